"""Where streams begin that read a log."""

from __future__ import annotations

import os
from collections.abc import Iterable

from lowwater.engine.graph.clocks import ClockLike
from lowwater.io.log.layout import Layout
from lowwater.io.log.source import LogSource
from lowwater.io.log.values import Start, as_time
from lowwater.pipeline.fluent import Stream
from lowwater.pipeline.readers import _stream
from lowwater.time import DurationLike
from lowwater.watermark import WatermarkEstimator


def read_log(
    path: str | os.PathLike[str],
    *,
    time: str,
    watermark: WatermarkEstimator | None = None,
    start: Start = "earliest",
    follow: bool = False,
    partitions: int | Iterable[int] | None = None,
    timezone: str | None = None,
    clock: ClockLike | None = None,
    max_ahead: DurationLike | None = None,
    idle_after: DurationLike | None = None,
) -> Stream:
    """Begin with a log, as :class:`lowwater.io.Log` writes it, in the order of its appends.

    Args:
        path: The log's folder.
        time: The column of event times.
        watermark: How the watermark is guessed; left out, there is none until the input ends.
        start: Where to begin: ``"earliest"``, ``"latest"``, an offset, a time of append (an
            ``Instant``, an aware ``datetime`` or ISO-8601 text), or the position of a reader.
        follow: Whether to go on with what is appended during the run; such a run does not end.
        partitions: One partition, or several; all unless given.
        timezone: What times without a time zone mean, e.g. ``"UTC"``; else they are refused.
        clock: Where processing time comes from.
        max_ahead: How far beyond the clock an event time may be; records further ahead are dead
            letters and do not move the watermark. Any distance unless given.
        idle_after: After how long without elements other sources of the same pipeline do not wait
            for this one any more, by the clock; they do for ever unless given.
    """
    numbers = Layout.require(path).numbers(partitions)
    if not isinstance(start, dict):
        as_time(start)
    source = LogSource(os.fspath(path), start, follow, numbers)
    return _stream(source, time, watermark, timezone, clock, max_ahead, idle_after)
