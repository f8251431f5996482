"""Reports the progress of a run: a status line on the terminal, or a user's callback."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Protocol, TextIO, TypeAlias, final

from lowwater.engine.graph.metrics import Metrics
from lowwater.errors import InvalidArgument, describe
from lowwater.time import format_instant

Progress: TypeAlias = bool | Callable[[Metrics], None]

_FIRST_AFTER = 1.0
_EVERY = 0.2


class Observer(Protocol):
    """Receives the metrics of a run while it goes on."""

    def __call__(self, metrics: Metrics) -> None:
        """Handle the metrics after a bundle."""
        ...

    def close(self) -> None:
        """Clean up; called when the run ends, normally or with an error."""
        ...


@final
class ProgressLine:
    """Rewrites one status line during a long run and erases it at the end.

    Writes nothing in the first second, and at most five times a second after that. The line ends
    with ``link``, unless it is ``None``.

    Args:
        stream: A terminal.
        stopwatch: Returns elapsed seconds; tests replace it.
    """

    def __init__(self, stream: TextIO, stopwatch: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._stopwatch = stopwatch
        self._next = stopwatch() + _FIRST_AFTER
        self._width = 0
        self.link: str | None = None

    def __call__(self, metrics: Metrics) -> None:
        now = self._stopwatch()
        if now < self._next:
            return
        self._next = now + _EVERY
        line = progress_text(metrics)
        if self.link is not None:
            line += f"  {self.link}"
        self._stream.write("\r" + line.ljust(self._width))
        self._stream.flush()
        self._width = len(line)

    def close(self) -> None:
        """Erase the line, if one was written."""
        if self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()
            self._width = 0


@final
class Observers:
    """Observers of one run, in the order in which they are told.

    Args:
        observers: Those so far.
    """

    def __init__(self, observers: Sequence[Observer]) -> None:
        self.all = [*observers]

    def __call__(self, metrics: Metrics) -> None:
        for observer in self.all:
            observer(metrics)

    def close(self) -> None:
        """Close all."""
        for observer in self.all:
            observer.close()


@final
class MetricsCallback:
    """Passes the metrics to a user's function."""

    def __init__(self, function: Callable[[Metrics], None]) -> None:
        self._function = function

    def __call__(self, metrics: Metrics) -> None:
        self._function(metrics)

    def close(self) -> None:
        """Do nothing: a function holds no resources."""


def observer_for(progress: Progress | None, stream: TextIO | None = None) -> Observer | None:
    """Return the observer that a ``progress=`` option asks for; ``None`` for none.

    Args:
        progress: ``None``: a status line if the stream is a terminal; ``True``: always a status
            line; ``False``: nothing; or a function that is called with the :class:`Metrics` after
            each bundle and at the end.
        stream: Where the line is written; standard error by default.

    Raises:
        InvalidArgument: ``progress`` is none of these.
    """
    if progress is False:
        return None
    if progress is None or progress is True:
        target = sys.stderr if stream is None else stream
        return ProgressLine(target) if progress or target.isatty() else None
    if not callable(progress):
        raise InvalidArgument(
            f"{describe('progress', progress)} is not a function",
            hint="Pass a function that takes the metrics, or True, False or None",
        )
    return MetricsCallback(progress)


def progress_text(metrics: Metrics) -> str:
    """Format the metrics as one line.

    >>> progress_text(Metrics(events=1200, elapsed=2.0))
    '1,200 events  600/s  watermark -inf  0 open  0 late  0 errors'

    Where the end is known, how much was read comes first, and how long the rest will take. An
    exclamation mark says that more than 1 % of the records are dead letters.

    >>> progress_text(Metrics(events=1200, elapsed=2.0, share=0.25))
    '25 %  0:06 left  1,200 events  600/s  watermark -inf  0 open  0 late  0 errors'
    """
    failed = metrics.errors.total()
    mark = " (!)" if failed * 100 > max(metrics.events, metrics.read) else ""
    share, left = metrics.share, metrics.seconds_left
    known = "" if not share or left is None else f"{share * 100:.0f} %  {_clock_text(left)} left  "
    return (
        f"{known}{metrics.events:,} events  {metrics.events_per_second:,.0f}/s  "
        f"watermark {format_instant(metrics.watermark)}  {metrics.open_windows:,} open  "
        f"{metrics.late.total():,} late  {failed:,} errors{mark}"
    )


def _clock_text(seconds: float) -> str:
    """Format a duration as minutes and seconds, with hours if there are any.

    >>> _clock_text(61.2), _clock_text(7325)
    ('1:01', '2:02:05')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
