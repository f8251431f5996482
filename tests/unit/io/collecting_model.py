"""A durable run whose outputs come, move and go between its deaths, and what must come of it.

The model draws what happens, runs plans, and counts: of each output every row that it was given is
published once, in one of the places that it has had. What a plan says can be run in this process or
in one that is killed.
"""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, final

import pyarrow.parquet as pq
import pytest

import lowwater as lw
from lowwater.errors import StateError
from lowwater.io.sinks import Compaction, JsonLinesFolder, ParquetFolder

BUNDLE, FILES = 10, 12
CLOCK = lw.ManualClock(0)
KINDS = {"parquet": ParquetFolder, "jsonl": JsonLinesFolder}
COMPACTIONS: tuple[list[Any] | None, ...] = (
    ["1GB", "1000d"], ["1GB", "1000d"], ["1GB", "1000d"], [4000, "1000d"], [1, "1000d"], None,
)  # fmt: skip

Plan: TypeAlias = Mapping[str, Any]
"""What :func:`run_plan` runs: plain values."""


def write_files(folder: Path) -> None:
    """Write the records: those of a file are a batch, which a stage that is new begins with."""
    folder.mkdir(parents=True)
    for number in range(FILES):
        rows = range(number * BUNDLE, (number + 1) * BUNDLE)
        lines = [json.dumps({"at": 1_000_000 + n, "n": n}) + "\n" for n in rows]
        (folder / f"{number:03}.jsonl").write_text("".join(lines))


def run_plan(folder: Path, plan: Plan, **options: Any) -> None:
    """Run the pipeline that a plan describes over the state in a folder."""
    read = lw.read_jsonl(str(folder / "in"), time="at", unit="s", clock=CLOCK).named("numbers")
    each = read.key_by(n=lw.col("n")).window(
        lw.GlobalWindow(), trigger=lw.Repeatedly(lw.AfterCount(1)), accumulation="discarding"
    )
    ends = []
    for name, kind, place, compact in plan["outputs"]:
        when = None if compact is None else Compaction(size=compact[0], age=compact[1])
        sink = KINDS[kind](str(folder / place), compact=when)
        ends.append(each.aggregate(total=lw.sum("n")).named(name).write_to(sink))
    lw.run(
        *ends,
        state=folder / "state",
        bundle_size=BUNDLE,
        commit_every="bundle",
        progress=options.pop("progress", False),
        remove=plan["remove"],
        drop_undelivered=bool(plan["remove"]),
        **options,
    )


def numbers_in(place: Path, pattern: str = "part-*") -> list[int]:
    """Return the records whose panes are in the files of a folder."""
    found: list[int] = []
    for path in sorted(place.glob(pattern)):
        if path.suffix == ".parquet":
            found += pq.read_table(path)["n"].to_pylist()
        else:
            found += [json.loads(line)["n"] for line in path.read_text().splitlines()]
    return found


@final
@dataclass
class Output:
    """An output, and where it has been.

    Args:
        name: Its stage.
        kind: The form of its files.
        places: The folders that it has had; the last one is that of now.
        compact: When its deliveries become files.
    """

    name: str
    kind: str
    places: list[str]
    compact: list[Any] | None
    taken: set[int] | None = None
    """What its sinks had taken when it was removed."""
    moved: int = -2
    """The last epoch of the state when its folder was moved without telling the state."""


Runner: TypeAlias = Callable[[Plan, str], bool]
"""Runs a plan until the death that the text asks for; returns whether it died of it."""


@final
@dataclass
class World:
    """A folder with input, state and outputs.

    Args:
        folder: An empty folder.
        runner: Runs plans.
        record: Returns the record of the run in the state; ``None`` if there is none.
        chance: Decides.
    """

    folder: Path
    runner: Runner
    record: Callable[[], Mapping[str, Any] | None]
    chance: random.Random
    story: list[str] = field(default_factory=list)
    deaths: int = 0
    refusals: int = 0
    changes: int = 0
    gone: list[Output] = field(default_factory=list)
    is_complete: bool = False
    _names: int = 0

    def __post_init__(self) -> None:
        write_files(self.folder / "in")
        self.now = [self._new("main"), self._new("side 0")]

    def epoch(self) -> int:
        """Return the last epoch of the state, -1 if there is none."""
        record = self.record()
        return -1 if record is None else int(record["epoch"])

    def _is_over(self) -> bool:
        """Whether the input has ended: nothing new could get anything."""
        record = self.record()
        return bool(record and record["run"] and record["run"]["ended"])

    def _new(self, name: str) -> Output:
        kind = self.chance.choice(list(KINDS))
        return Output(name, kind, [self._place(name)], self.chance.choice(COMPACTIONS))

    def _place(self, name: str) -> str:
        self._names += 1
        return f"{name.replace(' ', '-')}-at-{self._names}"

    @property
    def plan(self) -> Plan:
        return {
            "outputs": [[one.name, one.kind, one.places[-1], one.compact] for one in self.now],
            "remove": [one.name for one in self.gone],
        }

    def die(self, how: str) -> None:
        """Run until a death; at times change something before."""
        if self.is_complete:
            return
        self._change()
        self.story.append(how)
        died = self.runner(self.plan, how)
        self.deaths += died
        self.is_complete = not died

    def finish(self) -> None:
        """Run to the end, and count."""
        self.runner(self.plan, "none")
        self.check()

    def _change(self) -> None:
        # Nothing can find a folder that was moved and left before a commit has seen it there.
        settled = [one for one in self.now if one.moved < self.epoch()]
        match self.chance.randrange(8):
            case 0 if len(self.now) > 1 and self.now[-1] in settled:
                self._remove(self.now.pop())
            case 1 if len(self.now) < 3 and not self._is_over():
                self._names += 1
                self.now.append(self._new(f"side {self._names}"))
                self._told(f"{self.now[-1].name} comes")
            case 2 if settled:
                one = self.chance.choice(settled)
                one.places.append(self._place(one.name))
                if self.chance.random() < 0.5:
                    one.kind = self.chance.choice(list(KINDS))
                self._told(f"{one.name} goes to {one.places[-1]}")
            case 3:
                self._rename(self.chance.choice(self.now))
            case 4:
                one = self.chance.choice(self.now)
                one.compact = self.chance.choice(COMPACTIONS)
                self._told(f"{one.name} has compact={one.compact}")
            case 5 | 6:
                self._damage(self.chance.choice(self.now))
            case _:
                pass

    def _told(self, what: str) -> None:
        self.changes += 1
        self.story.append(what)

    def _remove(self, one: Output) -> None:
        one.taken = {
            n
            for place in one.places
            for pattern in ("part-*", ".pending/part-*")
            for n in numbers_in(self.folder / place, pattern)
        }
        self.gone.append(one)
        self._told(f"{one.name} is removed")

    def _rename(self, one: Output) -> None:
        """Move the folder of now as it is, as its user may; those before it stay."""
        before = self.folder / one.places[-1]
        if before.is_dir():
            one.places[-1] = self._place(one.name)
            before.rename(self.folder / one.places[-1])
            one.moved = self.epoch()
            self._told(f"{one.name} is moved to {one.places[-1]}")

    def _damage(self, one: Output) -> None:
        """Damage a file that waits and is older than the last commit: that is refused by name."""
        place = self.folder / one.places[-1]
        marker = place / ".lowwater.json"
        if self.gone or not marker.is_file():  # with drop_undelivered=True it is said, not refused
            return
        up_to = json.loads(marker.read_text())["published"].get("part", "")
        up_to = max([up_to, *(path.stem.split("_")[-1][-22:] for path in place.glob("part-*"))])
        files = [
            path
            for path in sorted((place / ".pending").glob("part-*"))
            if int(path.name.split("-")[1]) < self.epoch() and path.stem[-22:] > up_to
        ]
        if not files:
            return
        path = self.chance.choice(files)
        copy = self.folder / "copy"
        shutil.copytree(place / ".pending", copy)
        match self.chance.randrange(4):
            case 0:
                shutil.rmtree(place / ".pending")
            case 1:
                path.unlink()
            case 2:
                path.write_bytes(path.read_bytes()[:-1])
            case _:
                data = bytearray(path.read_bytes())
                data[self.chance.randrange(len(data))] ^= 1 << self.chance.randrange(8)
                path.write_bytes(data)
        self._told(f"{path.name} of {one.name} is damaged")
        with pytest.raises(StateError) as caught:
            self.runner(self.plan, "refused")
        named = re.findall(r"'(part-[^']*)' (?:is gone|has)", caught.value.what)
        # Of a folder that is gone, the first few are named.
        assert path.name in named if (place / ".pending").exists() else named, caught.value
        shutil.rmtree(place / ".pending", ignore_errors=True)
        copy.rename(place / ".pending")
        self.refusals += 1

    def check(self) -> None:
        """Compare what readers see with what the outputs were given."""
        story = "\n".join(self.story)
        for one in (*self.now, *self.gone):
            found = [n for place in one.places for n in numbers_in(self.folder / place)]
            assert len({*found}) == len(found), f"{story}\n{one} has rows twice: {sorted(found)}"
            first = min(found, default=0)
            if one.taken is None:
                wanted = set(range(0 if one.name in {"main", "side 0"} else first, BUNDLE * FILES))
                assert found or one.name not in {"main", "side 0"}, story
                wanted = wanted if found else set()
            else:
                wanted = one.taken
            assert {*found} == wanted, f"{story}\n{one}: {sorted(wanted ^ {*found})} differ"
            for place in one.places:
                left = numbers_in(self.folder / place, ".pending/part-*")
                assert not left, f"{story}\n{one}: {left} wait in {place}"
