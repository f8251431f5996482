"""A line on the terminal that says how far a run has come."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Protocol, TextIO, TypeAlias, final

from lowwater.engine.graph.metrics import Metrics
from lowwater.errors import InvalidArgument, describe
from lowwater.time import format_instant

Progress: TypeAlias = bool | Callable[[Metrics], None]

_FIRST_AFTER = 1.0
_EVERY = 0.2


class Observer(Protocol):
    """Something that watches a run."""

    def __call__(self, metrics: Metrics) -> None:
        """Take note of the metrics after a bundle."""
        ...

    def close(self) -> None:
        """The run is over, well or not."""
        ...


@final
class ProgressLine:
    """Writes one line over and over while a long run goes on, and wipes it at the end.

    Nothing is written in the first second, nor more than five times a second.

    Args:
        stream: A terminal.
        stopwatch: Returns seconds; for tests.
    """

    def __init__(self, stream: TextIO, stopwatch: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._stopwatch = stopwatch
        self._next = stopwatch() + _FIRST_AFTER
        self._width = 0

    def __call__(self, metrics: Metrics) -> None:
        now = self._stopwatch()
        if now < self._next:
            return
        self._next = now + _EVERY
        line = progress_text(metrics)
        self._stream.write("\r" + line.ljust(self._width))
        self._stream.flush()
        self._width = len(line)

    def close(self) -> None:
        """Wipe the line, if there is one."""
        if self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()
            self._width = 0


@final
class MetricsCallback:
    """Hands the metrics to a function of the user's."""

    def __init__(self, function: Callable[[Metrics], None]) -> None:
        self._function = function

    def __call__(self, metrics: Metrics) -> None:
        self._function(metrics)

    def close(self) -> None:
        """Nothing to tidy up."""


def observer_for(progress: Progress | None, stream: TextIO | None = None) -> Observer | None:
    """Return what watches a run.

    Args:
        progress: ``None``: a line, if the stream is a terminal; ``True``: a line in any case;
            ``False``: nothing; or a function that is called with the :class:`Metrics` after each
            bundle and at the end.
        stream: Where the line goes; standard error if not given.

    Raises:
        InvalidArgument: It is none of these.
    """
    if progress is False:
        return None
    if progress is None or progress is True:
        target = sys.stderr if stream is None else stream
        return ProgressLine(target) if progress or target.isatty() else None
    if not callable(progress):
        raise InvalidArgument(
            f"{describe('progress', progress)} is not a function",
            hint="Give a function of the metrics, True, False or None",
        )
    return MetricsCallback(progress)


def progress_text(metrics: Metrics) -> str:
    """Return the metrics in a line.

    >>> progress_text(Metrics(events=1200, elapsed=2.0))
    '1,200 events  600/s  watermark -inf  0 open  0 late  0 errors'
    """
    return (
        f"{metrics.events:,} events  {metrics.events_per_second:,.0f}/s  "
        f"watermark {format_instant(metrics.watermark)}  {metrics.open_windows:,} open  "
        f"{metrics.late.total():,} late  {metrics.errors.total():,} errors"
    )
