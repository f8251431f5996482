"""The records of a batch that a source's watermark covers (S-T3).

These are the admitted ones, and those that a step rejected although their event time could be read:
a record does not hold the watermark back because an expression fails for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from lowwater.engine.records.admission import Admission
from lowwater.engine.records.batch import Records
from lowwater.engine.records.columns import Column
from lowwater.engine.records.elementwise import copied_column
from lowwater.engine.records.explode import Explode
from lowwater.engine.records.lookup import Lookup
from lowwater.engine.records.stateless import (
    AddComputed,
    AddWhole,
    Filter,
    FlatMap,
    Select,
    WithColumns,
)
from lowwater.engine.records.stepping import AppliedSteps, Step
from lowwater.errors import InvalidArgument
from lowwater.time import Int64Array


@final
@dataclass(frozen=True, slots=True)
class TimedRejects:
    """Records of a batch that steps rejected, and whose event time could be read.

    Args:
        rows: Their rows in the batch, int64.
        records: The records, as the steps were given them; one part for each step.
        times: Their event times, int64.
    """

    rows: Int64Array
    records: tuple[Records, ...]
    times: Int64Array


@final
@dataclass(frozen=True, slots=True)
class CoveredRecords:
    """The records of a batch that the watermark covers, in order.

    Args:
        records: Their columns.
        times: Their event times, int64.
        admitted: How many of those before each place are admitted, int64; one item more.
    """

    records: Records
    times: Int64Array
    admitted: Int64Array


def timed_rejects(
    stepped: AppliedSteps,
    steps: Sequence[Step],
    time: str,
    admission: Admission,
    clock: int | Int64Array | None,
) -> TimedRejects | None:
    """Return the rejected records of a batch whose event time can be read, ``None`` without any.

    Before a step that makes the event time, there is none to be read.

    Args:
        stepped: What became of the batch in the steps.
        steps: The steps.
        time: The column of event times.
        admission: Reads event times. What it counts does not matter.
        clock: The clock at arrival, for all records of the batch or for each.
    """
    first = _after_last_maker(steps, time)
    found: list[tuple[Int64Array, Records, Int64Array]] = []
    for rejects in stepped.rejects:
        if rejects.step < first or time not in set(rejects.records.columns):
            continue
        came = clock[rejects.rows] if isinstance(clock, np.ndarray) else clock
        try:
            checked = admission.admit(rejects.records, clock=came)
        except InvalidArgument:  # a type that holds no times
            continue
        kept = checked.kept
        if kept is None:
            found.append((rejects.rows, rejects.records, checked.bundle.times))
        elif len(kept):
            taken = rejects.records.take(kept)
            found.append((rejects.rows[kept], taken, checked.bundle.times))
    if not found:
        return None
    rows, parts, times = zip(*found, strict=True)
    return TimedRejects(np.concatenate(rows), parts, np.concatenate(times))


def with_rejects(
    records: Records,
    kept: Int64Array | None,
    rows: Int64Array | None,
    times: Int64Array,
    rejects: TimedRejects,
) -> CoveredRecords:
    """Return the admitted records of a batch together with the rejected ones, in order.

    Args:
        records: The records that the steps left.
        kept: The admitted ones among them; ``None`` for all.
        rows: The row of the batch that each of the records comes from; ``None``: row for row.
        times: The event times of the admitted ones.
        rejects: The rejected ones.
    """
    if kept is not None:
        records = records.take(kept)
        rows = kept if rows is None else rows[kept]
    own = np.arange(records.length, dtype=np.int64) if rows is None else rows
    order = np.argsort(np.concatenate((own, rejects.rows)), kind="stable")
    parts = (records, *rejects.records)
    names = dict.fromkeys(name for part in parts for name in part.columns)
    columns = {
        name: Column.concat_as_is([_column(part, name) for part in parts]).take(order)
        for name in names
    }
    is_admitted = (order < records.length).astype(np.int64)
    return CoveredRecords(
        Records(columns, len(order), records.origin),
        np.concatenate((times, rejects.times))[order],
        np.concatenate(([0], np.cumsum(is_admitted))),
    )


def _column(records: Records, name: str) -> Column:
    if name in set(records.columns):
        return records.columns[name]
    return Column.of_objects([None] * records.length)


def _after_last_maker(steps: Sequence[Step], time: str) -> int:
    """Return the number of the first step from which on no step makes the event time."""
    numbers = (number for number, step in enumerate(steps, 1) if _makes(step, time))
    return max(numbers, default=0)


def _makes(step: Step, time: str) -> bool:
    match step:
        case WithColumns(expressions=made) | Select(expressions=made):
            is_open = any(copied_column(one) is None for one in made.unnamed)
            return is_open or time in made.named
        case AddComputed(name=name):
            return name == time
        case Lookup(table=table):
            return time in table.columns
        case Filter() | FlatMap() | Explode() | AddWhole():
            return False
        case _:
            return True
