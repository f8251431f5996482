"""A served run to kill: ``python -m tests.crash.served_to_kill FOLDER PORT``."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import lowwater as lw

BUNDLE = 50


def main() -> None:
    """Run over the files in the folder, slowly, until the end or death."""
    folder, port = Path(sys.argv[1]), int(sys.argv[2])

    def slow(record: dict[str, Any]) -> bool:
        if record["n"] % BUNDLE == 0:
            time.sleep(0.004)
        return True

    stream = lw.read_jsonl(
        str(folder / "in"), time="at", watermark=lw.BoundedDisorder("5s"), unit="s"
    ).named("orders")
    counts = (
        stream.filter(slow)
        .key_by("key")
        .window(
            lw.FixedWindows("1m"),
            trigger=lw.AfterWatermark(early=lw.AfterCount(9)),
            accumulation="retracting",
        )
        .aggregate(n=lw.count())
        .named("counts")
    )
    hours = (
        counts.to_stream()
        .key_by("key")
        .window(lw.FixedWindows("1h"))
        .aggregate(n=lw.sum("n"))
        .named("hours")
    )
    counted = counts.write_jsonl(str(folder / "counts.jsonl"))
    lw.run(
        counted, hours.write_jsonl(str(folder / "hours.jsonl")),
        state=folder / "state", commit_every=170, bundle_size=BUNDLE, serve=port,
        on_dead_letter=lambda _: None, on_late=lambda _: None, progress=False,
    )  # fmt: skip
    print("ended")


if __name__ == "__main__":
    main()
