"""Which clock a pipeline on Spark goes by: the micro-batches' own, or one that records carry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from lowwater.engine.graph.clocks import ArrivalClock, WallClock, arrivals
from lowwater.engine.graph.graph import Read
from lowwater.engine.records.batch import Records
from lowwater.errors import UnsupportedByRunner
from lowwater.spark.signals import (
    CarriedSignals,
    CarriedTime,
    EventTimes,
    Signal,
    Signals,
    largest,
)
from lowwater.time import END_OF_TIME, Int64Array


@final
@dataclass(frozen=True, slots=True)
class ArrivalSignals:
    """Event times as the elements tell them, and the clock as an :class:`ArrivalClock` reads it.

    The clock of a micro-batch is the end of the tick in which its last record arrived: all of it is
    one bundle, so ticks within it do not show.

    Args:
        clock: The clock.
        timezone: What arrival times without a time zone mean.
    """

    clock: ArrivalClock
    timezone: str | None = None

    def split(self, records: Records) -> tuple[Signal, Records]:
        arrived, tick = largest(records, self.clock.column, self.timezone), self.clock.tick_us
        now = None if arrived is None else min((arrived // tick + 1) * tick, END_OF_TIME)
        return Signal(clock=now, observes=True), records

    def came(self, elements: Records, signal: Signal) -> int | Int64Array | None:
        return arrivals(elements, self.clock, self.timezone)


def signals_of(read: Read) -> tuple[Signals, bool]:
    """Return what reads time from the records of a source, and whether these carry the clock.

    Args:
        read: The source, and what it was given as ``watermark=`` and ``clock=``.

    Raises:
        UnsupportedByRunner: Spark cannot go by that clock.
    """
    clock = read.clock
    if clock is not None and not isinstance(clock, (ArrivalClock, WallClock)):
        raise UnsupportedByRunner(
            f"the clock {clock!r} is an object of this process, which the tasks of a cluster "
            "cannot ask",
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
        return CarriedSignals(carried, read.time, read.timezone), carried.clock is not None
    if isinstance(clock, ArrivalClock):
        return ArrivalSignals(clock, read.timezone), True
    return EventTimes(), False


def time_columns(signals: Signals) -> set[str]:
    """Return the columns that are read for the watermark and the clock."""
    if isinstance(signals, ArrivalSignals):
        return {signals.clock.column}
    if isinstance(signals, CarriedSignals):
        return {name for name in (signals.carried.watermark, signals.carried.clock) if name}
    return set()
