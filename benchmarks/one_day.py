"""A day of commits each second, simulated: files, size of the state, cost of a commit.

::

    python -m benchmarks.one_day DIR              # 86,400 seconds
    python -m benchmarks.one_day DIR --seconds 7200 --plain

Each second a file with some records appears in a folder that a durable run follows, and the run
commits. Clocks and waiting are replaced: a second takes as long as its work. Files that were read
are removed after a minute, as a user would archive them; the state remembers their names.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import lowwater as lw
from lowwater.engine.local import commit_policy
from lowwater.io import follow
from lowwater.io.sinks import Compaction, compaction
from lowwater.state.rocks import RocksStore
from lowwater.state.store import Batch

RECORDS = 20
KEYS = 50
START = 1_700_000_000


class Day:
    """The clock of the simulation, and the program that writes the files.

    Args:
        folder: Where the files appear.
        seconds: How long the day is.
    """

    def __init__(self, folder: Path, seconds: int) -> None:
        self.folder = folder
        self.seconds = seconds
        self.now = 0
        self.took: list[float] = []
        self.commits: list[tuple[int, float, int]] = []  # second, duration, bytes
        self._began = 0.0

    def wait(self, seconds: float) -> None:
        """Let the next second begin: its file appears."""
        if self._began:
            self.took.append(time.perf_counter() - self._began)
        self._began = time.perf_counter()
        if self.now < self.seconds:
            at, name = START + self.now, f"{self.now:06d}.jsonl"
            lines = [
                json.dumps({"at": (at - n % 7) * 1_000_000, "key": (at * 31 + n) % KEYS, "v": n})
                for n in range(RECORDS)
            ]
            (self.folder / f".{name}").write_text("\n".join(lines) + "\n")
            (self.folder / f".{name}").rename(self.folder / name)
            (self.folder / f"{self.now - 60:06d}.jsonl").unlink(missing_ok=True)
        self.now += 1

    def is_over(self) -> bool:
        """Whether the last file was written."""
        return self.now > self.seconds

    def clock(self) -> float:
        """Return the seconds since the day began."""
        return float(self.now)


class Monotonic:
    """In place of the module ``time`` where commits look at the clock."""

    def __init__(self, day: Day) -> None:
        self.monotonic = day.clock


def simulate(folder: Path, seconds: int, *, compact: bool) -> Day:
    """Run the day in a folder, and return what was measured."""
    source = folder / "in"
    source.mkdir(parents=True)
    day = Day(source, seconds)
    replaced: Any = follow
    replaced.wait, replaced.stopwatch = day.wait, lambda: 0.0
    setattr(commit_policy, "time", Monotonic(day))  # noqa: B010
    setattr(compaction, "clock", day.clock)  # noqa: B010
    commit = RocksStore.commit

    def timed(store: RocksStore, batch: Batch) -> None:
        began = time.perf_counter()
        commit(store, batch)
        day.commits.append((day.now, time.perf_counter() - began, batch.size_bytes))

    setattr(RocksStore, "commit", timed)  # noqa: B010
    panes = (
        lw.read_jsonl(
            source, time="at", watermark=lw.BoundedDisorder("10s"), clock=lw.ManualClock(0),
            follow=True, poll_every="1s", stop=day.is_over,
        )
        .key_by("key")
        .window(lw.FixedWindows("1m"))
        .aggregate(total=lw.sum("v"), count=lw.count())
    )  # fmt: skip
    written = panes.write_parquet(
        folder / "out", compact=Compaction(size="128MB", age="1h") if compact else None
    )
    written.run(state=folder / "state", commit_every="1s", progress=False)
    return day


def report(folder: Path, day: Day) -> None:
    """Print the number of files, the size of the state, and commits early and late."""
    files = list((folder / "out").glob("*-*"))
    state = sum(path.stat().st_size for path in (folder / "state").rglob("*") if path.is_file())
    print(f"files published: {len(files):,}, {sum(f.stat().st_size for f in files):,} bytes")
    print(f"state directory: {state:,} bytes")
    hour = min(3600, day.seconds // 4)
    for name, first, last in (
        ("first", 60, 60 + hour), ("last", day.seconds - hour, day.seconds)
    ):  # fmt: skip
        some = [one for one in day.commits if first <= one[0] < last]
        took = statistics.median(one[1] for one in some) * 1e3
        size = statistics.median(one[2] for one in some)
        whole = statistics.median(day.took[first:last]) * 1e3
        print(
            f"{name} hour: {len(some):,} commits of {size:,.0f} bytes in {took:.2f} ms "
            f"(medians); a second's work takes {whole:.1f} ms"
        )


def main() -> None:
    """Simulate what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="a folder that is not there yet")
    parser.add_argument("--seconds", type=int, default=86_400)
    parser.add_argument("--plain", action="store_true", help="publish each delivery at once")
    options = parser.parse_args()
    day = simulate(options.folder, options.seconds, compact=not options.plain)
    report(options.folder, day)


if __name__ == "__main__":
    main()
