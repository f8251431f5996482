"""A pipeline of one stage to kill: deduplicated sessions per key, with sinks of all kinds."""

from __future__ import annotations

import os

import lowwater as lw
from lowwater.io.sinks import (
    Compaction,
    JsonLinesFile,
    JsonLinesFolder,
    ParquetFolder,
    PostgresTable,
    Sink,
    SqliteTable,
)
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
    (out / "one").mkdir(exist_ok=True)
    sinks: list[Sink] = [
        ParquetFolder(str(out / "parquet")),
        JsonLinesFolder(str(out / "jsonl")),
        JsonLinesFolder(str(out / "large"), compact=Compaction(size=40_000, age="1000d")),
        ParquetFolder(str(out / "larger"), compact=Compaction(size=30_000, age="1000d")),
        JsonLinesFile(str(out / "one" / "panes.jsonl")),
        SqliteTable(str(out / "panes.sqlite"), "panes"),
    ]
    if (dsn := os.environ.get("LOWWATER_DSN")) is not None:
        sinks.append(PostgresTable(dsn, f"panes_{work.folder.name}"))
    work.run(pipeline.write_to(*sinks), bundle_size=100)


if __name__ == "__main__":
    main()
