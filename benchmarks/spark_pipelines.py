"""The pipelines of this library that are timed on Spark; some of them embedded too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, final

import lowwater as lw
from benchmarks.process import Count, Expiring


@final
@dataclass(frozen=True, slots=True)
class Timed:
    """A pipeline.

    Args:
        build: Makes it of a stream of events.
        watermark: How far the watermark is behind the events.
        types: Of the result's columns, where Spark has to be told.
    """

    build: Callable[[lw.Stream], Any]
    watermark: str = "10s"
    types: Mapping[str, str] = field(default_factory=dict)


def fixed(events: lw.Stream) -> lw.Pipeline:
    """Sums per key and minute."""
    keyed = events.key_by("key").window(lw.FixedWindows("1m"))
    return keyed.aggregate(total=lw.sum("value"))


def sessions(events: lw.Stream) -> lw.Pipeline:
    """Sums per key and session."""
    return events.key_by("key").window(lw.Sessions("30s")).aggregate(total=lw.sum("value"))


def count(events: lw.Stream) -> Any:
    """Records counted one at a time, in Python."""
    return events.key_by("key").process(Count())


def expiring(events: lw.Stream) -> Any:
    """The same with a timer, which each record sets."""
    return events.key_by("key").process(Expiring())


def retracting(events: lw.Stream) -> lw.Pipeline:
    """Sums per minute that each bundle corrects, and over these sums per ten minutes."""
    minutes = events.key_by("key").window(
        lw.FixedWindows("1m"),
        trigger=lw.Repeatedly(lw.AfterCount(1)),
        accumulation="retracting",
    )
    tens = minutes.aggregate(value=lw.sum("value")).key_by("key").window(lw.FixedWindows("10m"))
    return tens.aggregate(value=lw.sum("value"))


PIPELINES: dict[str, Timed] = {
    "fixed": Timed(fixed),
    "sessions": Timed(sessions),
    "growing": Timed(fixed, watermark="1000h"),  # no window ends
    "count": Timed(count, types={"value": "long"}),
    "expiring": Timed(expiring, types={"count": "long"}),
    "retracting": Timed(retracting),
}
