"""A pipeline to kill that follows a folder, into which one file after another is renamed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import lowwater as lw
from lowwater.io.sinks import Compaction, JsonLinesFolder, SqliteTable
from tests.crash.killed_process import instructions


def _renamed_in(source: Path, target: Path) -> Iterator[Path]:
    """Copy files under hidden names and rename them, in order; those that are there stay."""
    target.mkdir(exist_ok=True)
    for path in sorted(source.glob("*.parquet")):
        if not (target / path.name).exists():
            passing = target / f".{path.name}"
            shutil.copyfile(path, passing)
            yield passing.rename(target / path.name)


def main() -> None:
    """Run until all files were renamed in and read, or until death."""
    work = instructions()
    out, live = work.folder / "out", work.folder / "live"
    live.mkdir(exist_ok=True)
    renamed = _renamed_in(work.folder / "in", live)
    pipeline = (
        lw.read_parquet(
            str(live),
            time="at",
            watermark=lw.BoundedDisorder("5s"),
            clock=lw.ArrivalClock("arrived", tick="5s"),
            follow=True,
            poll_every="2ms",
            stop=lambda: next(renamed, None) is None,  # one more before each look
        )
        .key_by("key")
        .window(
            lw.Sessions("8s"),
            trigger=lw.AfterWatermark(early=lw.AfterCount(3), late=lw.AfterCount(1)),
            accumulation="retracting",
            allowed_lateness="10s",
        )
        .aggregate(total=lw.sum("value"), values=lw.collect("value"))
    )
    end = pipeline.write_to(
        JsonLinesFolder(str(out / "jsonl"), compact=Compaction(size=20_000, age="1000d")),
        SqliteTable(str(out / "panes.sqlite"), "panes"),
    )
    work.run(end, bundle_size=100)


if __name__ == "__main__":
    main()
