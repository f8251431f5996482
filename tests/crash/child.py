"""The pipeline that is killed: a process of its own, told how to die.

``python -m tests.crash.child FOLDER HOW [cold]``, where HOW is ``none``, ``alarm:MICROSECONDS``
(die at that instant) or ``point:NAME:COUNT`` (die when the named point is passed for that time).
With ``cold``, no window stays in memory that can be spared.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import lowwater as lw
from lowwater.engine import _cold
from lowwater.io.delivery import JsonLinesFolder, ParquetFolder, SqliteTable
from lowwater.pipeline import _memory_budget, durable


def main() -> None:
    """Run the pipeline in a folder that holds ``in/``, until the end or until death."""
    folder, how = Path(sys.argv[1]), sys.argv[2]
    kind, _, rest = how.partition(":")
    if kind == "point":
        name, _, count = rest.rpartition(":")
        _die_at_point(name, int(count))
    elif kind == "alarm":
        # Nobody handles it, so the kernel ends the process there and then.
        signal.setitimer(signal.ITIMER_REAL, int(rest) / 1e6)
    limit = None
    if "cold" in sys.argv[3:]:
        _memory_budget._LEAST, _cold.AT_ONCE, limit = 0, 20, 4096
    pipeline = (
        lw.read_parquet(
            str(folder / "in"),
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
    metrics = pipeline.write_to(
        ParquetFolder(str(folder / "parquet")),
        JsonLinesFolder(str(folder / "jsonl")),
        SqliteTable(str(folder / "panes.sqlite"), "panes"),
    ).run(
        state=folder / "state", commit_every="bundle", memory_limit=limit,
        bundle_size=100, progress=False,
    )  # fmt: skip
    (folder / "duplicates").write_text(str(metrics.duplicates))


def _die_at_point(name: str, count: int) -> None:
    left = count

    def on_point(point: str) -> None:
        nonlocal left
        if point == name:
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

    durable.on_point = on_point


if __name__ == "__main__":
    main()
