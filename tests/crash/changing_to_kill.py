"""A graph to kill that is another one at every second start; part of it is always the same.

::

    left ──┬─ hours (retracting, early and late) ── days       the same at every start
           ├─ pairs (outer join)
    right ─┘
    left ──── extra N                                          new at start 2 N, gone at 2 N + 2
    more N ── its own N                                        likewise, with its source
"""

from __future__ import annotations

import json
import time

import lowwater as lw
from lowwater.engine.graph import sources
from lowwater.errors import StateError
from lowwater.pipeline.state_tools import state_info
from tests.crash.killed_process import Instructions, instructions

CORE = ("hours", "days", "pairs")
CLOCK = lw.ManualClock(0)
_MOST = 20


def main() -> None:
    """Run the graph of this start over the files in the folder, until the end or death."""
    work = instructions()
    sources.READ_ROWS = 40  # so that the sources take turns
    generation = _start(work) // 2
    out, others = work.folder / "out", work.folder / "others"
    left, right = _read(work, "left"), _read(work, "right")
    hours = (
        left.deduplicate(id="id", within="20s")
        .key_by("key")
        .window(
            lw.FixedWindows("10s"),
            trigger=lw.AfterWatermark(early=lw.AfterCount(3), late=lw.AfterCount(1)),
            accumulation="retracting",
            allowed_lateness="4s",
        )
        .aggregate(n=lw.count(), value=lw.sum("value"))
        .named("hours")
    )
    days = (
        hours.key_by(all=lw.lit("all"))
        .window(lw.FixedWindows("40s"), accumulation="retracting", allowed_lateness="4s")
        .aggregate(n=lw.sum("n"), value=lw.sum("value"))
        .named("days")
    )
    pairs = left.join(right, on="key", within="3s", how="outer").named("pairs")
    ends = [
        hours.write_jsonl(out / "hours"),
        days.write_parquet(out / "days"),
        pairs.write_jsonl(out / "pairs"),
    ]
    if not _is_complete(work):  # then what is new would get nothing
        windows = left.key_by("key").window(lw.Sessions("2s"))
        extra = windows.aggregate(n=lw.count()).named(f"extra {generation}")
        more = _read(work, "sound", f"extra source {generation}").key_by("key")
        own = more.window(lw.FixedWindows("7s")).aggregate(n=lw.count())
        own = own.named(f"extra of its own {generation}")
        ends.append(extra.write_jsonl(others / f"extra {generation}"))
        ends.append(own.write_jsonl(others / f"own {generation}"))
    there = {end._stage.name for end in ends}
    names = [f"extra{kind} {at}" for at in range(_MOST) for kind in ("", " source", " of its own")]
    metrics = lw.run(
        *ends,
        state=work.folder / "state",
        commit_every="bundle",
        memory_limit=work.memory_limit,
        bundle_size=20,
        progress=False,
        remove=[n for n in names if n not in there and n != f"extra source {generation}"]
        if len(ends) > len(CORE)
        else names,
        drop_undelivered=True,
    )
    counts = {name: metrics.stages[name].remember() for name in CORE}
    (out / "metrics.json").write_text(json.dumps(counts))
    (work.folder / "seconds").write_text(str(time.perf_counter() - work.began))


def _read(work: Instructions, side: str, name: str | None = None) -> lw.Stream:
    place = str(work.folder / "in" / side)
    watermark = lw.BoundedDisorder("2s")
    return lw.read_parquet(place, time="at", watermark=watermark, clock=CLOCK).named(name or side)


def _start(work: Instructions) -> int:
    """Return the number of this start, from 0."""
    starts = work.folder / "starts"
    starts.mkdir(exist_ok=True)
    number = len(list(starts.iterdir()))
    (starts / str(number)).touch()
    return number


def _is_complete(work: Instructions) -> bool:
    try:
        return state_info(work.folder / "state").complete
    except StateError:  # there is none yet
        return False


if __name__ == "__main__":
    main()
