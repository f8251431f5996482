"""Calls the Python function of a step for each record of a batch.

A function that fails for a record either stops the run, or makes a dead letter of that record: the
user decides with ``on_error="dead_letter"``. Nothing of a record for which a function failed
passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any, NamedTuple, Protocol, TypeAlias, final

import numpy as np

from lowwater.display.text import repr_of, shown, without_addresses
from lowwater.engine.records.batch import Records, fields_of, is_name
from lowwater.engine.records.columns import Column
from lowwater.engine.records.pane_table import SIGN
from lowwater.engine.records.panes import ErrorRecord
from lowwater.engine.records.stepping import Rejected, Step, Stepped
from lowwater.engine.records.storable import writable
from lowwater.errors import DataError, describe
from lowwater.kernels.positions import repeated
from lowwater.time import Int64Array

RecordFunction: TypeAlias = Callable[[Any], Any]

NULL_RECORD = "null_record"
"""The reason of a dead letter of which ``map`` made ``None``."""
FUNCTION_FAILED = "function_failed"
"""The reason of a dead letter for which the function of a step failed."""


class Failure(NamedTuple):
    """A record for which the function of a step failed: its row, the reason and a description."""

    row: int
    reason: str
    detail: str


@final
@dataclass(frozen=True, slots=True)
class Called:
    """What a function returned for records.

    Args:
        values: The results, those of failures left out.
        counts: How many of them each record gave, int64; ``None``: one each, and none failed.
        failed: The records that are rejected, by row.
    """

    values: list[Any]
    counts: Int64Array | None
    failed: Sequence[Failure]


class MakesRecords(Step, Protocol):
    """A step that makes records of what a Python function returns."""

    def columns(self, values: Sequence[Any]) -> dict[str, Column]:
        """Return what the function returned as columns."""
        ...

    def made(self, records: Records, columns: Mapping[str, Column], called: Called) -> Stepped:
        """Return what the step outputs.

        Args:
            records: The records that it was given.
            columns: What :meth:`columns` made of the values.
            called: What the function returned for the records.
        """
        ...


class PythonStep(MakesRecords, Protocol):
    """A step that calls a Python function for each record, in this process or in a worker."""

    def call(self, rows: Sequence[Any], *, sets_aside: bool) -> Called:
        """Call the function for each record, in order.

        Args:
            rows: The records.
            sets_aside: Whether records for which it fails are rejected.

        Raises:
            DataError: It failed, and such records are not rejected.
        """
        ...


def step_through(step: PythonStep, records: Records, *, sets_aside: bool = False) -> Stepped:
    """Apply a step that calls a function, in this process."""
    called = step.call(records.rows(), sets_aside=sets_aside)
    columns, called = shaped(step, called, sets_aside=sets_aside)
    return step.made(records, columns, called)


def shaped(
    step: MakesRecords, called: Called, *, sets_aside: bool
) -> tuple[dict[str, Column], Called]:
    """Return what a function returned as columns; results that cannot be records are rejected.

    Raises:
        DataError: A result cannot be a record, and such records are not rejected.
    """
    try:
        return step.columns(called.values), called
    except Exception as error:
        if not sets_aside or isinstance(error, MemoryError):
            raise
    problems = [unfit_record(value) for value in called.values]
    length = len(called.values) if called.counts is None else len(called.counts)
    counts = np.ones(length, dtype=np.int64) if called.counts is None else called.counts.copy()
    owners = repeated(np.arange(length), counts).tolist()
    failed: dict[int, Failure] = {}
    for row, problem in zip(owners, problems, strict=True):
        if problem is not None and row not in failed:
            failed[row] = Failure(row, FUNCTION_FAILED, problem)
    counts[list(failed)] = 0
    values = list(compress(called.values, (row not in failed for row in owners)))
    every = sorted([*called.failed, *failed.values()])
    return step.columns(values), Called(values, counts, every)


def call_each(
    step: str, function: RecordFunction, rows: Sequence[Any], *, sets_aside: bool
) -> tuple[list[Any], list[Failure]]:
    """Call a function for each record.

    Args:
        step: What messages call the step.
        function: The function.
        rows: The records.
        sets_aside: Whether records for which it fails are rejected.

    Returns:
        What it returned for each, ``None`` for failures, and the failures.

    Raises:
        DataError: It failed, and such records are not rejected.
    """
    values: list[Any] = []
    failed: list[Failure] = []
    for row, record in enumerate(rows):
        try:
            values.append(function(record))
        except MemoryError:
            raise
        except Exception as error:
            if not sets_aside:
                raise _stopped(step, record, error) from error
            failed.append(_failure(row, step, error))
            values.append(None)
    return values, failed


def expand_each(
    step: str, function: Callable[[Any], Iterable[Any]], rows: Sequence[Any], *, sets_aside: bool
) -> Called:
    """Call a function for each record that returns any number of records.

    Raises:
        DataError: It failed, and such records are not rejected.
    """
    values: list[Any] = []
    failed: list[Failure] = []
    counts = np.zeros(len(rows), dtype=np.int64)
    for row, record in enumerate(rows):
        try:
            several = function(record)
            if isinstance(several, (str, bytes, Mapping)) or not isinstance(several, Iterable):
                raise _not_iterable(step, several)
            made = list(several)  # a generator raises only when it is read
        except MemoryError:
            raise
        except Exception as error:
            if not sets_aside:
                if isinstance(error, _NotIterable):
                    raise
                raise _stopped(step, record, error) from error
            failed.append(_failure(row, step, error))
            continue
        values.extend(made)
        counts[row] = len(made)
    return Called(values, counts, failed)


def without_failures(rows: Sequence[Any], values: list[Any], failed: Sequence[Failure]) -> Called:
    """Return what a function returned, one value for each record but for failures."""
    if not failed:
        return Called(values, None, ())
    counts = np.ones(len(rows), dtype=np.int64)
    counts[[failure.row for failure in failed]] = 0
    return Called(list(compress(values, counts.tolist())), counts, failed)


def dead_letters(
    records: Records, failed: Sequence[Failure], step: str
) -> tuple[list[Rejected], int]:
    """Return the dead letters for the records of a batch that a step rejects.

    The retraction of a record fails like the record itself, which is a dead letter already. It is
    dropped, so that what stands downstream is as if neither had been (T-5).

    Args:
        records: The batch, as the step was given it.
        failed: The records.
        step: What messages call the step.

    Returns:
        The dead letters, and how many retractions were dropped.
    """
    if not failed:
        return [], 0
    if SIGN in set(records.columns):  # a batch that may lack fields has a null for any name
        signs = records.columns[SIGN].data
        inserted = [failure for failure in failed if signs[failure.row] > 0]
        dropped = len(failed) - len(inserted)
        failed = inserted
    else:
        dropped = 0
    rows = np.fromiter((failure.row for failure in failed), np.int64, len(failed))
    letters = [
        (row, ErrorRecord(writable(record), reason, detail, records.place(row) or step))
        for (row, reason, detail), record in zip(
            failed, records.rows(rows, exact=True), strict=True
        )
    ]
    return letters, dropped


class _NotIterable(DataError):
    """What ``flat_map``'s function returned is not an iterable of records."""


def _not_iterable(step: str, value: Any) -> _NotIterable:
    return _NotIterable(
        f"{step}'s function returned {describe('result', value)}, not an iterable of records",
        hint="Return a list of records, or use map",
    )


def _failure(row: int, step: str, error: Exception) -> Failure:
    detail = error.what if isinstance(error, _NotIterable) else f"the function of {step} failed: "
    if not isinstance(error, _NotIterable):
        detail += said(error)
    return Failure(row, FUNCTION_FAILED, detail)


def _stopped(step: str, record: Any, error: Exception) -> DataError:
    return DataError(
        f"the function of {step} failed on {repr_of(record)}: {said(error)}",
        where=step,
        hint="Fix the function, filter such records out first, or set them aside with "
        'on_error="dead_letter"',
    )


def said(error: BaseException) -> str:
    """Return the type and text of an exception, whose own ``__str__`` may fail."""
    name = type(error).__name__
    try:
        return without_addresses(f"{name}: {error}")  # another run has others
    except Exception as other:
        return f"{name}, whose text raises {type(other).__name__}"


def unfit_record(value: Any) -> str | None:
    """Return why a value cannot be a record, ``None`` if it can."""
    try:
        fields = fields_of(value)
        names = list(fields)
        for name in names:
            fields.get(name)
    except MemoryError:
        raise
    except Exception as error:
        return f"it cannot be read: {said(error)}"
    bad = next((name for name in names if not is_name(name)), None)
    return None if bad is None else f"{shown(bad, exact=True)} cannot be the name of a column"
