"""A pipeline to kill whose sinks are folders in an object store."""

from __future__ import annotations

import json
import os

import lowwater as lw
from lowwater.io.sinks import Compaction, JsonLinesFolder, ParquetFolder, Sink
from tests.crash.killed_process import instructions


def main() -> None:
    """Run the pipeline over the files in the folder, until the end or death."""
    work = instructions()
    pipeline = (
        lw.read_parquet(
            str(work.folder / "in"),
            time="at",
            watermark=lw.BoundedDisorder("5s"),
            clock=lw.ArrivalClock("arrived", tick="5s"),
        )
        .key_by("key")
        .window(
            lw.FixedWindows("10s"), trigger=lw.AfterWatermark(late=lw.AfterCount(1)),
            accumulation="retracting", allowed_lateness="10s",
        )
        .aggregate(total=lw.sum("value"), values=lw.collect("value"), last=lw.last("name"))
    )  # fmt: skip
    store = json.loads((work.folder / "in" / "store.json").read_text())
    os.environ.update(store["environment"])
    place = store["place"].replace("FOLDER", work.folder.name)
    compact = Compaction(size=30_000, age="1000d")
    sinks: list[Sink] = [
        ParquetFolder(place.replace("NAME", "parquet")),
        JsonLinesFolder(place.replace("NAME", "jsonl")),
        JsonLinesFolder(place.replace("NAME", "large"), compact=compact),
        ParquetFolder(place.replace("NAME", "larger"), compact=compact),
    ]
    work.run(pipeline.write_to(*sinks), bundle_size=200)


if __name__ == "__main__":
    main()
