"""Reads the clock and the watermark that records carry, if they do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, final

import numpy as np

from lowwater.engine.graph.clocks import ArrivalClock, WallClock
from lowwater.engine.graph.graph import Read
from lowwater.engine.records.admit_times import PLAIN, TimeFormat, event_times
from lowwater.engine.records.batch import Records
from lowwater.engine.records.columns import Column
from lowwater.engine.records.problems import Problems
from lowwater.errors import InvalidArgument, UnsupportedByRunner, nearest
from lowwater.time import END_OF_TIME, LAST_EVENT_TIME


@final
@dataclass(frozen=True, slots=True)
class Signal:
    """What a chunk of records carries of time; ``None`` where it carries nothing.

    Args:
        clock: The clock at arrival, int microseconds.
        watermark: The watermark after the records, int microseconds.
    """

    clock: int | None = None
    watermark: int | None = None


class Signals(Protocol):
    """Separates what is carried from elements; a record may be only a heartbeat."""

    def split(self, records: Records) -> tuple[Signal, Records]:
        """Return what records carry, and the records that are elements."""
        ...


@final
@dataclass(frozen=True, slots=True)
class NoSignals:
    """Records that are elements, and carry nothing."""

    def split(self, records: Records) -> tuple[Signal, Records]:
        return Signal(), records


@final
@dataclass(frozen=True, slots=True)
class CarriedTime:
    """Watermark and clock that a source carries in its records, instead of an estimate.

    The watermark and the clock of a micro-batch are the largest that any of its records carries;
    both columns accept the types of event times. A record with a null event time only carries
    these: it is a heartbeat, not a dead letter.

    Args:
        watermark: The column of watermarks.
        clock: The column of processing time; by default the time of the micro-batch.
    """

    watermark: str
    clock: str | None = None

    def start(self) -> Any:
        """Refuse, because the embedded runner cannot use this as an estimator."""
        raise InvalidArgument(
            "CarriedTime is for Spark alone", hint="Use, say, BoundedDisorder here"
        )


@final
@dataclass(frozen=True, slots=True)
class CarriedSignals:
    """Reads a :class:`CarriedTime` from records whose event time is in the column ``time``.

    Args:
        carried: The columns.
        time: The column of event times.
        format: How times are written that do not say it themselves.
    """

    carried: CarriedTime
    time: str
    format: TimeFormat = PLAIN

    def split(self, records: Records) -> tuple[Signal, Records]:
        carried = self.carried
        clock = None if carried.clock is None else largest(records, carried.clock, self.format)
        watermark = largest(records, carried.watermark, self.format)
        signal = Signal(clock=clock, watermark=watermark)
        present = _column(records, self.time).to_arrow().is_valid()
        kept = present.to_numpy(zero_copy_only=False)
        return signal, records if kept.all() else records.take(np.flatnonzero(kept))


def largest(records: Records, name: str, format: TimeFormat = PLAIN) -> int | None:
    """Return the latest instant in a column, int microseconds; ``None`` if it has none.

    Raises:
        InvalidArgument: There is no such column.
    """
    column = _column(records, name)
    problems = Problems()
    times = event_times(column, name, problems, format)
    sound = np.ones(len(times), dtype=np.bool_)
    sound[problems.rows()] = False
    sound |= times > LAST_EVENT_TIME  # no event time, yet the watermark goes to the end of time
    return int(times[sound].max()) if sound.any() else None


def _column(records: Records, name: str) -> Column:
    column = records.columns.get(name)
    if column is None:
        raise InvalidArgument(f"there is no column {name!r}", hint=nearest(name, records.names))
    return column


@final
@dataclass(frozen=True, slots=True)
class ArrivalSignals:
    """Event times from the elements, and the clock from the column of an :class:`ArrivalClock`.

    The clock of a micro-batch is the end of the tick in which its last record arrived. The
    micro-batch is one bundle, so earlier ticks in it have no effect.

    Args:
        clock: The clock.
        format: How arrival times are written that do not say it themselves.
    """

    clock: ArrivalClock
    format: TimeFormat = PLAIN

    def split(self, records: Records) -> tuple[Signal, Records]:
        arrived = largest(records, self.clock.column, self.format)
        tick = self.clock.tick_us
        now = None if arrived is None else min((arrived // tick + 1) * tick, END_OF_TIME)
        return Signal(clock=now), records


def signals_of(read: Read) -> tuple[Signals, bool]:
    """Return what reads time from the records of a source, and whether these carry the clock.

    Args:
        read: The source, and what it was given as ``watermark=`` and ``clock=``.

    Raises:
        UnsupportedByRunner: Spark cannot use that clock.
    """
    clock = read.clock
    if clock is not None and not isinstance(clock, (ArrivalClock, WallClock)):
        raise UnsupportedByRunner(
            f"the clock {type(clock).__name__} is an object of this process, which the tasks of a "
            "cluster cannot ask",
            where="clock=",
            hint="Leave it out for the time of micro-batches, or carry the time in a column: "
            'ArrivalClock("column")',
        )
    carried = read.watermark
    if isinstance(carried, CarriedTime):
        if isinstance(clock, ArrivalClock):
            raise UnsupportedByRunner(
                f"{clock!r} does not go with a watermark that is carried in the records",
                where="clock=",
                hint=f"Say it there: {CarriedTime(carried.watermark, clock=clock.column)!r}",
            )
        return CarriedSignals(carried, read.time, read.times), carried.clock is not None
    if isinstance(clock, ArrivalClock):
        return ArrivalSignals(clock, read.times), True
    return NoSignals(), False


def time_columns(signals: Signals) -> set[str]:
    """Return the columns with the watermark and the clock."""
    if isinstance(signals, ArrivalSignals):
        return {signals.clock.column}
    if isinstance(signals, CarriedSignals):
        return {name for name in (signals.carried.watermark, signals.carried.clock) if name}
    return set()
