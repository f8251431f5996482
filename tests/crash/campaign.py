"""Kills a pipeline repeatedly and compares its final output with an uninterrupted run."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

from lowwater.engine.local.durable import POINTS as POINTS
from tests.crash.killed_process import ANNOUNCED
from tests.crash.launcher import Launcher
from tests.crash.sink_contents import (
    Files,
    SinkContents,
    delivered_files,
    differences,
    sink_contents,
)
from tests.crash.stored_progress import Progress, stored_progress
from tests.protocol.traces import Announcements
from tests.unit.io.postgresql import Server

ONCE = ("after taking up", "after the announcement", "after opening")  # a run passes it once
_MOST_PER_PIPELINE = 6
_OPENING_US = 60_000
_DEATHS = {
    "alarm": -signal.SIGALRM, "opening": -signal.SIGALRM, "point": -signal.SIGKILL,
}  # fmt: skip


@final
@dataclass
class Campaign:
    """Kills one pipeline in many folders; its output must be the same in each.

    Args:
        child: The module that runs the pipeline: see :mod:`tests.crash.killed_process`.
        sources: The folder of its input.
        place: The parent of its working folders.
        launcher: Starts its processes.
        same_files: Whether deliveries are cut alike in each run, so that files are the same.
        server: A database server that the pipeline writes to, and that is killed, too.
        bring: Copies into ``out`` what the pipeline wrote elsewhere, once a run has ended.
        passing: What the names of stages begin with that may be gone at a restart. What a commit
            owed to an output that is gone is then not held against the protocol.

    Every third folder keeps all windows in memory: its files must equal those of the uninterrupted
    run byte for byte. The others spill windows at every other start, which may move the boundaries
    of commits and deliveries; there only the rows are compared.

    Attributes:
        wanted: What the sinks hold after an uninterrupted run.
        wanted_files: The files of that run.
        kills: How often the pipeline was killed.
        restarts: How often it was started, the first starts included.
        pipelines: In how many folders it ran.
        cut_off: How many of the kills were those of the server.
        hit: The points at which a process died.
        traced: How many lives of processes were what the model of the protocol allows.
    """

    child: str
    sources: Path
    place: Path
    launcher: Launcher
    same_files: bool = True
    server: Server | None = None
    bring: Callable[[Path], object] = lambda folder: None
    passing: str | None = None
    wanted: SinkContents = field(init=False)
    wanted_files: Files = field(init=False)
    kills: int = field(default=0, init=False)
    restarts: int = field(default=0, init=False)
    pipelines: int = field(default=0, init=False)
    cut_off: int = field(default=0, init=False)
    hit: set[str] = field(default_factory=set, init=False)
    traced: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        whole = self._folder("whole")
        assert not self._is_killed(whole, "none")
        self.bring(whole)
        self.wanted, self.wanted_files = sink_contents(whole), delivered_files(whole)
        self._seconds = _seconds(whole)

    def __str__(self) -> str:
        return (
            f"{self.kills} kills, {self.restarts} restarts, {self.pipelines} pipelines, "
            f"{self.traced} lives held against the model"
        )

    def kill_at_points(
        self, deaths: Sequence[tuple[str, int]], *, spills: bool | None = None
    ) -> int:
        """Kill one pipeline at each (point, count) in turn; return how often it died.

        Args:
            deaths: The points, and for which time a run is to pass them.
            spills: Whether windows are spilled at every other start; ``None``: as is its turn.
        """
        before = self.kills
        self._run_killed(iter([_at_point(name, count) for name, count in deaths]), spills)
        return self.kills - before

    def kill_server(self, seconds: float) -> int:
        """Kill the server so long after the start of a run; return whether the run noticed."""
        before = self.kills
        self._run_killed(iter([f"server:{seconds}"]))
        return self.kills - before

    def kill_at_random(self, kills: int, *, seed: int) -> None:
        """Kill pipelines at random instants and points until they have died ``kills`` times.

        A drawn instant may lie after the end of a run; then nothing dies and nothing is counted.
        """
        chance = random.Random(seed)
        wanted = self.kills + kills
        while self.kills < wanted:
            self._run_killed(self._at_random(chance, wanted))
        for name in POINTS:
            if name not in self.hit:
                self._run_killed(iter([_at_point(name, 1)]))
                assert name in self.hit, f"{name!r} is armed, and no run came to it"

    def _at_random(self, chance: random.Random, wanted: int) -> Iterator[str]:
        """Yield the next deaths of one pipeline."""
        for _ in range(_MOST_PER_PIPELINE):
            if self.kills == wanted:
                return
            servers = 0 if self.server is None else 3
            match chance.choices(["alarm", "opening", "point", "server"], [6, 1, 2, servers])[0]:
                case "server":
                    yield f"server:{chance.uniform(0.01, 0.8) * self._seconds}"
                case "alarm":  # what is left takes ever less
                    yield f"alarm:{int(chance.uniform(0.01, 0.8) * self._seconds * 1e6)}"
                case "opening":
                    yield f"opening:{chance.randint(1, _OPENING_US)}"
                case _:
                    yield _at_point(chance.choice(POINTS), chance.randint(1, 12))

    def _run_killed(self, deaths: Iterator[str], spills: bool | None = None) -> None:
        """Run in a new folder until no death is left, or one came too late; then compare."""
        self.pipelines += 1
        folder = self._folder(str(self.pipelines))
        if spills is None:
            spills = self.pipelines % 3 != 1
        progress: Progress = {}
        died: list[str] = []
        announced = Announcements(folder / ANNOUNCED)
        changes = self.passing is not None
        for how in deaths:
            self.restarts += 1
            is_killed = self._is_killed(folder, how, cold=spills and len(died) % 2 == 0)
            announced.check(died=is_killed, outputs_change=changes)
            self.traced += 1
            progress = self._advanced(folder, progress)
            if not is_killed:
                break
            died.append(how)
            self.kills += 1
        if not died:
            self._seconds = _seconds(folder)  # the machine has become faster
        assert not self._is_killed(folder, "none", cold=spills and len(died) % 2 == 0)
        announced.check(died=False, outputs_change=changes)
        self.traced += 1
        self._advanced(folder, progress)
        self.bring(folder)
        where = f"after {', '.join(died)} in {folder}"
        differs = list(differences(sink_contents(folder), self.wanted))
        assert not differs, "\n".join([where, *differs])
        if not spills and self.same_files:
            own, wanted = delivered_files(folder), self.wanted_files
            others = sorted(n for n in {*own, *wanted} if own.get(n) != wanted.get(n))
            assert not others, f"{where}: other files: {', '.join(others)}"

    def _advanced(self, folder: Path, before: Progress) -> Progress:
        """Return the progress in the state directory; none of it may have decreased."""
        now = stored_progress(folder / "state")
        for name, at in before.items():
            to = now.get(name)
            if to is None and self.passing is not None and name.startswith(self.passing):
                continue
            assert to is not None, f"{name} is gone from {folder}"
            assert to >= at, f"{name} went back from {at} to {to} in {folder}"
        return now

    def _folder(self, name: str) -> Path:
        folder = self.place / name
        folder.mkdir()
        (folder / "in").symlink_to(self.sources)
        return folder

    def _is_killed(self, folder: Path, how: str, *, cold: bool = False) -> bool:
        """Run the child; return whether it died as instructed before it ended."""
        if how.startswith("server:"):
            return self._is_cut_off(folder, float(how.partition(":")[2]), cold=cold)
        code, errors = self.launcher.run(self.child, [str(folder), how, *["cold"] * cold])
        death = _DEATHS.get(how.partition(":")[0], 0)
        assert code in {0, death}, f"{how}: {code}\n{errors}"
        if code and how.startswith("point:"):
            self.hit.add(how.split(":")[1])
        return code != 0

    def _is_cut_off(self, folder: Path, seconds: float, *, cold: bool) -> bool:
        """Run the child and kill the server meanwhile; return whether the child noticed."""
        assert self.server is not None
        killed = threading.Event()

        def kill() -> None:
            assert self.server is not None
            killed.set()
            self.server.kill()

        killer = threading.Timer(seconds, kill)
        killer.start()
        code, errors = self.launcher.run(self.child, [str(folder), "none", *["cold"] * cold])
        killer.cancel()
        killer.join()
        if killed.is_set():
            self.server.recover()
        assert code == 0 or (code == 1 and "DataError" in errors), f"{code}\n{errors}"
        self.cut_off += code == 1
        return code == 1


def _at_point(name: str, count: int) -> str:
    return f"point:{name}:{1 if name in ONCE else count}"


def _seconds(folder: Path) -> float:
    return float((folder / "seconds").read_text())
