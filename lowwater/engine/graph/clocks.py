"""Clocks for processing time. The runner reads them; operators only get the result (S-T4)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, TypeAlias, final, runtime_checkable

import numpy as np

from lowwater.engine.records.admit_times import PLAIN, TimeFormat, event_times
from lowwater.engine.records.batch import HIDDEN, Records
from lowwater.engine.records.problems import Problems
from lowwater.errors import InvalidArgument, describe, nearest
from lowwater.time import (
    END_OF_TIME,
    START_OF_TIME,
    DurationLike,
    InstantLike,
    Int64Array,
    as_micros,
    format_duration,
    instant,
    meant,
)
from lowwater.windows._base import positive_duration


@runtime_checkable
class Clock(Protocol):
    """A source of processing time, read once before each bundle."""

    def now(self) -> int:
        """Return the time (int microseconds); an earlier one than before counts as no change."""
        ...


@final
@dataclass(frozen=True, slots=True)
class WallClock:
    """The system clock."""

    def now(self) -> int:
        return time.time_ns() // 1000


@final
class ManualClock:
    """A clock that user code advances, for tests and simulations.

    Args:
        at: The initial time.
    """

    def __init__(self, at: InstantLike = START_OF_TIME) -> None:
        self._at = instant(at, name="at")

    def advance_to(self, to: InstantLike) -> None:
        """Advance the clock; an earlier instant changes nothing."""
        self._at = max(self._at, instant(to, name="to"))

    def now(self) -> int:
        return self._at


@final
@dataclass(frozen=True, slots=True, repr=False)
class ArrivalClock:
    """Replays recorded data: the clock follows a column with the time of arrival.

    Bundles are cut where the tick changes; before each, the clock advances to the end of its tick.
    The clock never goes back: an element whose time of arrival is earlier than its predecessor's,
    or null, counts as arriving in the predecessor's tick.

    Args:
        column: Name of the column; accepts the same types as event times.
        tick: The resolution of the clock; above zero.

    >>> ArrivalClock("landed", tick="10m")
    ArrivalClock('landed', tick='10m')
    """

    column: str
    tick: DurationLike = "1m"

    def __post_init__(self) -> None:
        object.__setattr__(self, "tick", meant(positive_duration(self.tick, "tick")))

    @property
    def tick_us(self) -> int:
        """The tick in microseconds."""
        return as_micros(self.tick)

    def __repr__(self) -> str:
        return f"ArrivalClock({self.column!r}, tick={format_duration(self.tick_us)!r})"


@final
@dataclass(frozen=True, slots=True)
class Arrival:
    """The event time of a record is its time of arrival, in a column of this name."""

    column: str

    def __repr__(self) -> str:
        return "arrival()" if self.column == "arrival" else f"arrival({self.column!r})"


def arrival(column: str = "arrival") -> Arrival:
    """Say that the event time of a record is the clock at its arrival: processing time.

    ``lw.read_jsonl(path, time=lw.arrival())`` adds the column to the records, one value for each
    bundle, and the clock is the watermark, so no record is late. The clock is that of the reader,
    or of the run: with :class:`ArrivalClock` recorded data is replayed as it came.

    >>> arrival()
    arrival()

    Args:
        column: What the column is called; timestamps of microseconds in UTC.

    Raises:
        InvalidArgument: ``column`` is not a name.
    """
    if not isinstance(column, str) or not column or column.startswith(HIDDEN):
        raise InvalidArgument(
            f"{describe('column', column)} is not a name for a column",
            where="arrival",
            hint='Write lw.arrival(), or lw.arrival("came")',
        )
    return Arrival(column)


ClockLike: TypeAlias = Clock | ArrivalClock


@final
@dataclass(frozen=True, slots=True)
class Cut:
    """One bundle of a batch: its rows, and the clock to set before it (``None``: read it)."""

    start: int
    stop: int
    clock: int | None


@final
class Cutter:
    """Splits batches into bundles, by size and by ticks of the arrival clock.

    ``tick`` is the current tick, to be stored, and set where a run resumes.

    Args:
        clock: The clock for processing time.
        size: The largest number of elements in a bundle.
        times: How arrival times are written that do not say it themselves.
    """

    def __init__(self, clock: ClockLike, size: int, times: TimeFormat = PLAIN) -> None:
        self._clock = clock
        self._size = size
        self._times = times
        self.tick = START_OF_TIME

    def cuts(self, records: Records, kept: Int64Array | None) -> Iterator[Cut]:
        """Yield the bundles of a batch. O(n).

        Args:
            records: The batch as the source returned it.
            kept: Indices of the admitted records, int64; ``None`` for all.
        """
        clock = self._clock
        if not isinstance(clock, ArrivalClock):
            length = records.length if kept is None else len(kept)
            for start in range(0, length, self._size):
                yield Cut(start, min(start + self._size, length), None)
            return
        ticks = self._ticks(clock, records, kept)
        if not len(ticks):
            return
        changes = np.flatnonzero(np.diff(ticks)) + 1
        bounds = [0, *changes.tolist(), len(ticks)]
        for low, high in pairwise(bounds):
            tick = int(ticks[low])
            end = min((tick + 1) * clock.tick_us, END_OF_TIME)
            for start in range(low, high, self._size):
                stop = min(start + self._size, high)
                yield Cut(start, stop, START_OF_TIME if tick == START_OF_TIME else end)

    def _ticks(self, clock: ArrivalClock, records: Records, kept: Int64Array | None) -> Int64Array:
        came = arrivals(records, clock, self._times)
        ticks: Int64Array = came // clock.tick_us
        ticks[came == START_OF_TIME] = START_OF_TIME
        if kept is not None:
            ticks = ticks[kept]
        if len(ticks):
            ticks[0] = max(self.tick, int(ticks[0]))
            ticks = np.maximum.accumulate(ticks)
            self.tick = int(ticks[-1])
        return ticks


def arrivals(records: Records, clock: ArrivalClock, times: TimeFormat = PLAIN) -> Int64Array:
    """Return each record's time of arrival, int64; the start of time where it is null.

    Raises:
        InvalidArgument: There is no such column.
    """
    column = records.columns.get(clock.column)
    if column is None:
        raise InvalidArgument(
            f"there is no column {clock.column!r} for the arrival clock",
            hint=nearest(clock.column, records.names),
        )
    problems = Problems()
    came = event_times(column, clock.column, problems, times)
    if problems.found:
        came = came.copy()
        came[problems.rows()] = START_OF_TIME
    return came
