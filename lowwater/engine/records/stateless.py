"""Stateless steps: column expressions and Python functions over one record at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import Any, Protocol, TypeAlias, TypeGuard, final

import numpy as np
import pyarrow as pa

from lowwater.engine.records.batch import HIDDEN, TRACED, Records, columns_of
from lowwater.engine.records.columns import Column
from lowwater.engine.records.expressions import Expressions, evaluate, frame_of
from lowwater.engine.records.panes import ErrorRecord
from lowwater.errors import DataError, InvalidArgument, describe, nearest_column
from lowwater.time import Int64Array
from lowwater.watermark.observed import PARTITION

RecordFunction: TypeAlias = Callable[[Any], Any]
BatchFunction: TypeAlias = Callable[[pa.RecordBatch], pa.RecordBatch | pa.Table]


class Step(Protocol):
    """A stateless step: its output for a record depends on that record alone."""

    @property
    def vectorised(self) -> bool:
        """Whether the step only evaluates column expressions, so its schema is known in advance."""
        ...

    def apply(self, records: Records) -> Records:
        """Apply the step to a batch of records."""
        ...


Called: TypeAlias = tuple[list[Any], Int64Array | None]
"""What a function returned for records, and how many values each gave; ``None``: one each."""


class PythonStep(Step, Protocol):
    """A step that calls a Python function for each record."""

    def call(self, rows: Sequence[Any]) -> Called:
        """Call the function for each record, in order."""
        ...

    def columns(self, values: Sequence[Any]) -> dict[str, Column]:
        """Return what the function returned as columns."""
        ...

    def made(
        self, records: Records, columns: Mapping[str, Column], counts: Int64Array | None
    ) -> Records:
        """Return the records that the step outputs.

        Args:
            records: Those it was given.
            columns: What :meth:`columns` made of what the function returned for them.
            counts: How many values each gave, int64; ``None``: one each.
        """
        ...


Apply: TypeAlias = Callable[[Step, Records], Records]
"""Applies a step to records."""


def applied(step: Step, records: Records) -> Records:
    """Apply a step here, in this process."""
    return step.apply(records)


NULL_RECORD = "null_record"
"""The reason of a dead letter of which ``map`` made ``None``."""


def apply_steps(
    steps: Iterable[Step], records: Records, apply: Apply = applied
) -> tuple[Records, list[tuple[int, ErrorRecord]]]:
    """Apply steps in turn. A record that one rejects is a dead letter; later steps do not see it.

    Args:
        steps: The steps.
        records: The records.
        apply: Applies a step.

    Returns:
        What is left, and the dead letters, with their rows. Steps after one that leaves nothing are
        not applied, so the columns of an empty batch may be any.
    """
    rejected: list[tuple[int, ErrorRecord]] = []
    for step in steps:
        if not records.length:
            break
        records = apply(step, records)
        if records.rejected:
            rejected.extend(records.rejected)
            records = replace(records, rejected=())
    return records, rejected


@final
@dataclass(frozen=True, slots=True)
class Filter:
    """Keeps the records for which a column expression or a Python function is true.

    As in SQL, a null condition counts as false.
    """

    condition: Any

    @property
    def vectorised(self) -> bool:
        return not callable(self.condition)

    def apply(self, records: Records) -> Records:
        if callable(self.condition):
            return _applied_here(self, records)
        (found,) = evaluate("filter", frame_of(records), Expressions((self.condition,))).values()
        if not pa.types.is_boolean(found.type):
            raise InvalidArgument(
                f"the condition of filter has type {found.type}, not bool",
                hint='Compare something, as in lw.col("cancelled") == 0',
            )
        if found.null_count:
            found = found.fill_null(False)
        return _only(records, found.to_numpy(zero_copy_only=False))

    def call(self, rows: Sequence[Any]) -> Called:
        return [_call("filter", self._truth, row) for row in rows], None

    def columns(self, values: Sequence[Any]) -> dict[str, Column]:
        return {"kept": Column(np.array(values, dtype=np.bool_))}

    def made(
        self, records: Records, columns: Mapping[str, Column], counts: Int64Array | None
    ) -> Records:
        return _only(records, columns["kept"].data)

    def _truth(self, row: Any) -> bool:
        return bool(self.condition(row))  # an array of numpy may have none


@final
@dataclass(frozen=True, slots=True)
class WithColumns:
    """Adds columns, or replaces columns of the same name."""

    expressions: Expressions

    vectorised = True

    def apply(self, records: Records) -> Records:
        made = evaluate("with_columns", frame_of(records), self.expressions)
        new = {name: Column.from_arrow(array) for name, array in made.items()}
        return records.replaced({**records.columns, **new})


@final
@dataclass(frozen=True, slots=True)
class Select:
    """Keeps only the given columns, plus those with the event time and the time of arrival."""

    expressions: Expressions
    keep: tuple[str, ...]

    vectorised = True

    def apply(self, records: Records) -> Records:
        made = evaluate("select", frame_of(records), self.expressions)
        columns = {
            name: column
            for name, column in records.columns.items()
            if name.startswith(HIDDEN) or name in self.keep
        }
        new = {name: Column.from_arrow(array) for name, array in made.items()}
        return records.replaced({**columns, **new})


@final
@dataclass(frozen=True, slots=True)
class Map:
    """Replaces each record with the result of a Python function.

    Rejects a record with fields for which the function returns ``None`` (S-B1): such a function
    lacks its ``return``, on some path or on all. A plain value may become ``None``.
    """

    function: RecordFunction

    vectorised = False

    def apply(self, records: Records) -> Records:
        return _applied_here(self, records)

    def call(self, rows: Sequence[Any]) -> Called:
        made = [_call("map", self.function, row) for row in rows]
        if all(each is not None for each in made):  # `in` would compare arrays
            return made, None
        kept = [
            each is not None or not isinstance(row, Mapping)
            for row, each in zip(rows, made, strict=True)
        ]
        return list(compress(made, kept)), np.array(kept, dtype=np.int64)

    def columns(self, values: Sequence[Any]) -> dict[str, Column]:
        return columns_of(values)

    def made(
        self, records: Records, columns: Mapping[str, Column], counts: Int64Array | None
    ) -> Records:
        if counts is None:
            return records.replaced({**columns, **_hidden(records)})
        rejected = _rejected(records, np.flatnonzero(counts == 0))
        records = records.take(np.flatnonzero(counts))
        return replace(records.replaced({**columns, **_hidden(records)}), rejected=rejected)


@final
@dataclass(frozen=True, slots=True)
class FlatMap:
    """Replaces each record with any number of records that a Python function returns."""

    function: Callable[[Any], Iterable[Any]]

    vectorised = False

    def apply(self, records: Records) -> Records:
        return _applied_here(self, records)

    def call(self, rows: Sequence[Any]) -> Called:
        made: list[Any] = []
        counts = np.zeros(len(rows), dtype=np.int64)
        for index, row in enumerate(rows):
            several = _call("flat_map", self.function, row)
            if isinstance(several, (str, bytes, Mapping)) or not isinstance(several, Iterable):
                raise DataError(
                    f"flat_map's function returned {describe('result', several)}, not an iterable "
                    "of records",
                    hint="Return a list of records, or use map",
                )
            # Consume it inside _call: a generator raises only when it is read.
            found = _call("flat_map", list, several, row)
            made.extend(found)
            counts[index] = len(found)
        return made, counts

    def columns(self, values: Sequence[Any]) -> dict[str, Column]:
        return columns_of(values)

    def made(
        self, records: Records, columns: Mapping[str, Column], counts: Int64Array | None
    ) -> Records:
        taken = np.arange(records.length, dtype=np.int64)
        taken = taken if counts is None else np.repeat(taken, counts)
        hidden = {name: column.take(taken) for name, column in _hidden(records).items()}
        return Records({**columns, **hidden}, len(taken), records.origin)


@final
@dataclass(frozen=True, slots=True)
class MapBatches:
    """Replaces each Arrow batch with the batch or table that a Python function returns.

    Batch boundaries are not fixed, so rows should not depend on one another. Hidden columns, such
    as a computed event time, are carried over by row number.
    """

    function: BatchFunction

    vectorised = False

    def apply(self, records: Records) -> Records:
        given = frame_of(records).batch
        made = _call("map_batches", self.function, given)
        if isinstance(made, pa.RecordBatch):
            made = pa.Table.from_batches([made])
        if not isinstance(made, pa.Table):
            raise DataError(
                f"map_batches' function returned {describe('result', made)}, not an Arrow batch",
                hint="Return a pyarrow.RecordBatch or a pyarrow.Table",
            )
        hidden = _hidden(records)
        if made.num_rows != records.length:
            hidden.pop(PARTITION, None)  # an estimator that needs it raises its own error
        if TRACED in hidden and not _row_for_row(given, made):
            del hidden[TRACED]
        if hidden and made.num_rows != records.length:
            raise DataError(
                "map_batches' function changed the number of records, but time= or key= is a "
                "function of the original ones",
                hint="Name a column as time= and key=, or use flat_map",
            )
        columns = {name: Column.from_arrow(made.column(name)) for name in made.column_names}
        return Records({**columns, **hidden}, made.num_rows, records.origin)


@final
@dataclass(frozen=True, slots=True)
class AddComputed:
    """Adds a hidden column with the result of a Python function per record (a computed key)."""

    name: str
    function: RecordFunction

    vectorised = False

    def apply(self, records: Records) -> Records:
        return _applied_here(self, records)

    def call(self, rows: Sequence[Any]) -> Called:
        return [_call("key_by", self.function, row) for row in rows], None

    def columns(self, values: Sequence[Any]) -> dict[str, Column]:
        return {self.name: Column.of_objects(values)}

    def made(
        self, records: Records, columns: Mapping[str, Column], counts: Int64Array | None
    ) -> Records:
        return records.replaced({**records.columns, **columns})


@final
@dataclass(frozen=True, slots=True)
class AddWhole:
    """Adds a hidden column that contains each whole record (for ``group``)."""

    name: str

    vectorised = True

    def apply(self, records: Records) -> Records:
        whole = Column.of_objects(records.rows())
        return records.replaced({**records.columns, self.name: whole})


def calls_python(step: Step) -> TypeGuard[PythonStep]:
    """Return whether a step calls a Python function for each record."""
    if isinstance(step, Filter):
        return callable(step.condition)
    return isinstance(step, (Map, FlatMap, AddComputed))


def _applied_here(step: PythonStep, records: Records) -> Records:
    values, counts = step.call(records.rows())
    return step.made(records, step.columns(values), counts)


def require_names(names: Iterable[str], known: Iterable[str], where: str) -> None:
    """Raise ``InvalidArgument`` for the first name that is not among the known columns."""
    known = tuple(known)
    for name in names:
        if name not in known:
            raise InvalidArgument(
                f"there is no column {name!r}", where=where, hint=nearest_column(name, known)
            )


def _call(step: str, function: Callable[[Any], Any], given: Any, record: Any = None) -> Any:
    try:
        return function(given)
    except Exception as error:
        record = given if record is None else record
        shown = f"{type(given).__name__} of {len(given)}" if step == "map_batches" else repr(record)
        raise DataError(
            f"the function of {step} failed on {shown}: {type(error).__name__}: {error}",
            where=step,
            hint="Fix the function, or filter such records out first",
        ) from error


def _rejected(records: Records, rows: Int64Array) -> list[tuple[int, ErrorRecord]]:
    """Return dead letters for the records of which ``map`` made nothing."""
    detail = "map's function returned None, which is not a record"
    return [
        (row, ErrorRecord(record, NULL_RECORD, detail, records.place(row) or "map"))
        for row, record in zip(rows.tolist(), records.rows(rows, exact=True), strict=True)
    ]


def _row_for_row(given: pa.RecordBatch, made: pa.Table) -> bool:
    """Whether row i of the result certainly derives from row i of the input.

    True if some column of distinct values is unchanged, which rules out reordering.
    """
    if made.num_rows != given.num_rows:
        return False
    before = pa.Table.from_batches([given])
    same = (name for name in before.column_names if name in made.column_names)
    return any(before[name].equals(made[name]) and _distinct(before[name]) for name in same)


def _distinct(column: pa.ChunkedArray) -> bool:
    try:
        return len(column.unique()) == len(column)
    except pa.ArrowNotImplementedError:  # lists and structs have no hash
        return False


def _hidden(records: Records) -> dict[str, Column]:
    return {name: c for name, c in records.columns.items() if name.startswith(HIDDEN)}


def _only(records: Records, truths: np.ndarray[Any, np.dtype[np.bool_]]) -> Records:
    return records if truths.all() else records.take(np.flatnonzero(truths))


def schema_after(step: Step, schema: pa.Schema | None) -> pa.Schema | None:
    """Return the schema after a step, as far as it can be known; this also checks the step."""
    if schema is None:
        return None
    if isinstance(step, AddComputed):
        return schema.append(pa.field(step.name, pa.null()))
    if isinstance(step, Filter) and not step.vectorised:
        return schema
    if not step.vectorised:
        return None
    made = step.apply(no_records(schema)).columns
    return pa.schema([(name, column.to_arrow().type) for name, column in made.items()])


def no_records(schema: pa.Schema) -> Records:
    """Return records with these columns, and none in them."""
    arrays = [pa.array([], type=field.type) for field in schema]
    return Records.from_arrow(pa.RecordBatch.from_arrays(arrays, names=schema.names))
