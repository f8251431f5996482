"""Kills a pipeline again and again, and compares what it gives in the end."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

from tests.crash.standing import Standing, standing
from tests.crash.written import Files, Written, differences, files, written

ROOT = Path(__file__).parents[2]
POINTS = (
    "before the write",
    "after the write",
    "before publishing",
    "between sinks",
    "before forgetting",
)
_MOST_PER_PIPELINE = 6
_PATIENCE_S = 300.0  # a run takes a few; one that hangs is not waited for
_OPENING_US = 60_000
_DEATHS = {
    "alarm": -signal.SIGALRM, "opening": -signal.SIGALRM, "point": -signal.SIGKILL,
}  # fmt: skip


@final
@dataclass
class Campaign:
    """A pipeline that is killed in one folder after another, and has to give the same in each.

    Args:
        child: The module that runs it: see :mod:`tests.crash.child`.
        sources: A folder with what it reads.
        place: Where its folders go.

    Every third pipeline keeps its windows in memory: its deliveries are those of a run that is
    not killed, file by file. The others spare memory at every other start; then commits, and
    deliveries with them, may be cut otherwise, and what they hold is compared.

    Attributes:
        wanted: What it gives if it is not killed.
        wanted_files: The files of it.
        kills: How often it was killed.
        restarts: How often it was started where it had run before.
        pipelines: In how many folders it was.
    """

    child: str
    sources: Path
    place: Path
    wanted: Written = field(init=False)
    wanted_files: Files = field(init=False)
    kills: int = field(default=0, init=False)
    restarts: int = field(default=0, init=False)
    pipelines: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        whole = self._folder("whole")
        assert not self._is_killed(whole, "none")
        self.wanted, self.wanted_files = written(whole), files(whole)
        self._seconds = _seconds(whole)

    def __str__(self) -> str:
        return f"{self.kills} kills, {self.restarts} restarts, {self.pipelines} pipelines"

    def kill_at_points(self, deaths: list[tuple[str, int]]) -> int:
        """Kill one pipeline at each point, passed for that time; return how often it died."""
        before = self.kills
        self._run_killed(iter([f"point:{name}:{count}" for name, count in deaths]))
        return self.kills - before

    def kill_at_random(self, kills: int, *, seed: int) -> None:
        """Kill pipelines until they have died so often, at instants and points that chance says.

        Only deaths count: an instant may come after the end, where what is left takes less.
        """
        chance = random.Random(seed)
        wanted = self.kills + kills
        while self.kills < wanted:
            self._run_killed(self._at_random(chance, wanted))

    def _at_random(self, chance: random.Random, wanted: int) -> Iterator[str]:
        """Yield how to die next, for one pipeline."""
        for _ in range(_MOST_PER_PIPELINE):
            if self.kills == wanted:
                return
            match chance.choices(["alarm", "opening", "point"], [6, 1, 2])[0]:
                case "alarm":  # what is left takes ever less
                    yield f"alarm:{int(chance.uniform(0.01, 0.8) * self._seconds * 1e6)}"
                case "opening":
                    yield f"opening:{chance.randint(1, _OPENING_US)}"
                case _:
                    yield f"point:{chance.choice(POINTS)}:{chance.randint(1, 12)}"

    def _run_killed(self, deaths: Iterator[str]) -> None:
        """Run in a folder of its own until it outlives a death or none is left; compare then."""
        self.pipelines += 1
        folder = self._folder(str(self.pipelines))
        spares = self.pipelines % 3 != 1
        stood: Standing = {}
        died: list[str] = []
        for how in deaths:
            self.restarts += 1
            is_killed = self._is_killed(folder, how, cold=spares and len(died) % 2 == 0)
            stood = _gone_on(folder, stood)
            if not is_killed:
                break
            died.append(how)
            self.kills += 1
        if not died:
            self._seconds = _seconds(folder)  # the machine has become faster
        assert not self._is_killed(folder, "none", cold=spares and len(died) % 2 == 0)
        _gone_on(folder, stood)
        told = [f"after {', '.join(died)} in {folder}", *differences(written(folder), self.wanted)]
        assert len(told) == 1, "\n".join(told)
        if not spares:
            own, wanted = files(folder), self.wanted_files
            differ = sorted(n for n in {*own, *wanted} if own.get(n) != wanted.get(n))
            assert not differ, f"{told[0]} other files: {', '.join(differ)}"

    def _folder(self, name: str) -> Path:
        folder = self.place / name
        folder.mkdir()
        (folder / "in").symlink_to(self.sources)
        return folder

    def _is_killed(self, folder: Path, how: str, *, cold: bool = False) -> bool:
        """Run the child; return whether it died as it was told, and did not come to the end."""
        done = subprocess.run(
            [sys.executable, "-m", self.child, str(folder), how, *["cold"] * cold],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=_PATIENCE_S,
        )
        death = _DEATHS.get(how.partition(":")[0], 0)
        assert done.returncode in {0, death}, f"{how}: {done.returncode}\n{done.stderr}"
        return done.returncode != 0


def _gone_on(folder: Path, before: Standing) -> Standing:
    """Return where the state stands now; nothing of it may have gone back."""
    now = standing(folder / "state")
    for name, at in before.items():
        to = now.get(name)
        assert to is not None, f"{name} is gone from {folder}"
        assert to >= at, f"{name} went back from {at} to {to} in {folder}"
    return now


def _seconds(folder: Path) -> float:
    return float((folder / "seconds").read_text())
