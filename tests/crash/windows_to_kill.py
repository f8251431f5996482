"""A pipeline of one stage to kill: deduplicated sessions per key, with three sinks."""

from __future__ import annotations

import lowwater as lw
from lowwater.io.sinks import JsonLinesFolder, ParquetFolder, SqliteTable
from tests.crash.killed_process import instructions


def main() -> None:
    """Run the pipeline over the files in the folder, until the end or death."""
    work = instructions()
    out = work.folder / "out"
    pipeline = (
        lw.read_parquet(
            str(work.folder / "in"),
            time="at",
            watermark=lw.BoundedDisorder("5s"),
            clock=lw.ArrivalClock("arrived", tick="5s"),
        )
        .deduplicate(id="id", within="20s")
        .key_by("key")
        .window(
            lw.Sessions("8s"),
            trigger=lw.AfterWatermark(
                early=lw.AfterAny(lw.AfterCount(3), lw.AfterProcessingTime("4s")),
                late=lw.AfterCount(1),
            ),
            accumulation="retracting",
            allowed_lateness="10s",
        )
        .aggregate(total=lw.sum("value"), values=lw.collect("value"), last=lw.last("name"))
    )
    end = pipeline.write_to(
        ParquetFolder(str(out / "parquet")),
        JsonLinesFolder(str(out / "jsonl")),
        SqliteTable(str(out / "panes.sqlite"), "panes"),
    )
    work.run(end, bundle_size=100)


if __name__ == "__main__":
    main()
