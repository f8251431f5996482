"""Stateless steps: column expressions and Python functions over one record at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, TypeAlias, TypeGuard, final

import numpy as np
import pyarrow as pa

from lowwater.display.text import cut, shown
from lowwater.engine.records.batch import HIDDEN, TRACED, Records, columns_of
from lowwater.engine.records.calls import (
    NULL_RECORD,
    Called,
    Failure,
    PythonStep,
    RecordFunction,
    call_each,
    dead_letters,
    expand_each,
    said,
    step_through,
    without_failures,
)
from lowwater.engine.records.columns import Column
from lowwater.engine.records.elementwise import reading_of
from lowwater.engine.records.evaluation import CONDITION, evaluated
from lowwater.engine.records.explode import Explode
from lowwater.engine.records.expressions import Expressions, frame_of
from lowwater.engine.records.lookup import Lookup
from lowwater.engine.records.stepping import Rejected, Step, StepKind, Stepped
from lowwater.errors import DataError, InvalidArgument, describe, nearest_column
from lowwater.kernels.positions import repeated
from lowwater.time import Int64Array
from lowwater.watermark.observed import PARTITION

_LONGEST = 60

BatchFunction: TypeAlias = Callable[[pa.RecordBatch], pa.RecordBatch | pa.Table]


@final
@dataclass(frozen=True, slots=True)
class Filter(StepKind):
    """Keeps the records for which a column expression or a Python function is true.

    As in SQL, a null condition counts as false.
    """

    condition: Any

    method: ClassVar[str] = "filter"

    @property
    def vectorised(self) -> bool:  # type: ignore[override]  # of an expression, not of a function
        return not callable(self.condition)

    def text(self) -> str:
        return f"filter({_short(self.condition)})"

    def names_after(self, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return names

    def apply(self, records: Records) -> Stepped:
        if callable(self.condition):
            return step_through(self, records)
        done = evaluated("filter", records, Expressions((), {CONDITION: self.condition}))
        found = done.columns[CONDITION].to_arrow() if done.columns else pa.nulls(0)
        if pa.types.is_null(found.type):
            found = found.cast(pa.bool_())
        if not pa.types.is_boolean(found.type):
            raise InvalidArgument(
                f"the condition of filter has type {found.type}, not bool",
                hint='Compare something, as in lw.col("cancelled") == 0',
            )
        if found.null_count:
            found = found.fill_null(False)
        letters = dead_letters(records, done.failed, "filter")
        truths = found.to_numpy(zero_copy_only=False)
        return _only(records, done.rows, truths, letters, missing=done.missing)

    def call(self, rows: Sequence[Any], *, sets_aside: bool) -> Called:
        truths, failed = call_each("filter", self._truth, rows, sets_aside=sets_aside)
        return without_failures(rows, truths, failed)

    def columns(self, values: Sequence[Any]) -> dict[str, Column]:
        return {"kept": Column(np.array(values, dtype=np.bool_))}

    def made(self, records: Records, columns: Mapping[str, Column], called: Called) -> Stepped:
        sound = None if called.counts is None else np.flatnonzero(called.counts)
        letters = dead_letters(records, called.failed, "filter")
        return _only(records, sound, columns["kept"].data, letters)

    def _truth(self, row: Any) -> bool:
        return bool(self.condition(row))  # an array of numpy may have none


@final
@dataclass(frozen=True, slots=True)
class WithColumns(StepKind):
    """Adds columns, or replaces columns of the same name.

    Args:
        expressions: The expressions.
        caller: What messages call the step. Another step that adds hidden columns, which it reads
            itself, has no text of its own.
    """

    expressions: Expressions
    caller: str = field(default="with_columns", repr=False)  # the repr is stored: see described

    method: ClassVar[str] = "with_columns"
    vectorised: ClassVar[bool] = True

    @property
    def is_hidden(self) -> bool:
        """Whether it computes what another step reads."""
        return self.caller != self.method

    def text(self) -> str:
        return "" if self.is_hidden else f"with_columns({_texts(self.expressions)})"

    def names_after(self, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if names is None or self.expressions.unnamed:
            return None
        return tuple(dict.fromkeys((*names, *self.expressions.named)))

    def apply(self, records: Records) -> Stepped:
        done = evaluated(self.caller, records, self.expressions)
        left = records if done.rows is None else records.take(done.rows)
        letters = dead_letters(records, done.failed, self.caller)
        left = left.replaced({**left.columns, **done.columns})
        return Stepped(left, done.rows, *letters, missing=done.missing)


@final
@dataclass(frozen=True, slots=True)
class Select(StepKind):
    """Keeps only the given columns, plus those with the event time and the time of arrival."""

    expressions: Expressions
    keep: tuple[str, ...]

    method: ClassVar[str] = "select"
    vectorised: ClassVar[bool] = True

    def text(self) -> str:
        return f"select({_texts(self.expressions)})"

    def names_after(self, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        expressions = self.expressions
        if not all(isinstance(one, str) for one in expressions.unnamed):
            return None
        kept = (name for name in names or () if name.startswith(HIDDEN))
        chosen = (*expressions.unnamed, *expressions.named)
        return tuple(dict.fromkeys((*kept, *self.keep, *chosen)))

    def apply(self, records: Records) -> Stepped:
        done = evaluated("select", records, self.expressions)
        left = records if done.rows is None else records.take(done.rows)
        columns = {
            name: column
            for name, column in left.columns.items()
            if name.startswith(HIDDEN) or name in self.keep
        }
        letters = dead_letters(records, done.failed, "select")
        left = left.replaced({**columns, **done.columns})
        return Stepped(left, done.rows, *letters, missing=done.missing)


@final
@dataclass(frozen=True, slots=True)
class Map(StepKind):
    """Replaces each record with the result of a Python function.

    Rejects a record with fields for which the function returns ``None`` (S-B1): such a function
    lacks its ``return``, on some path or on all. A plain value may become ``None``.
    """

    function: RecordFunction

    method: ClassVar[str] = "map"

    def text(self) -> str:
        return f"map({_short(self.function)})"

    def apply(self, records: Records) -> Stepped:
        return step_through(self, records)

    def call(self, rows: Sequence[Any], *, sets_aside: bool) -> Called:
        values, failed = call_each("map", self.function, rows, sets_aside=sets_aside)
        if all(value is not None for value in values):  # `in` would compare arrays
            return Called(values, None, ())
        lost = {failure.row for failure in failed}
        failed += [
            Failure(row, NULL_RECORD, "map's function returned None, which is not a record")
            for row, (record, value) in enumerate(zip(rows, values, strict=True))
            if value is None and isinstance(record, Mapping) and row not in lost
        ]
        return without_failures(rows, values, sorted(failed))

    def columns(self, values: Sequence[Any]) -> dict[str, Column]:
        return columns_of(values)

    def made(self, records: Records, columns: Mapping[str, Column], called: Called) -> Stepped:
        if called.counts is None:
            return Stepped(records.replaced({**columns, **_hidden(records)}))
        rows = np.flatnonzero(called.counts)
        left = records.take(rows)
        letters = dead_letters(records, called.failed, "map")
        return Stepped(left.replaced({**columns, **_hidden(left)}), rows, *letters)


@final
@dataclass(frozen=True, slots=True)
class FlatMap(StepKind):
    """Replaces each record with any number of records that a Python function returns."""

    function: Callable[[Any], Iterable[Any]]

    method: ClassVar[str] = "flat_map"

    def text(self) -> str:
        return f"flat_map({_short(self.function)})"

    def apply(self, records: Records) -> Stepped:
        return step_through(self, records)

    def call(self, rows: Sequence[Any], *, sets_aside: bool) -> Called:
        return expand_each("flat_map", self.function, rows, sets_aside=sets_aside)

    def columns(self, values: Sequence[Any]) -> dict[str, Column]:
        return columns_of(values)

    def made(self, records: Records, columns: Mapping[str, Column], called: Called) -> Stepped:
        rows = np.arange(records.length, dtype=np.int64)
        rows = rows if called.counts is None else repeated(rows, called.counts)
        hidden = {name: column.take(rows) for name, column in _hidden(records).items()}
        left = records.derived({**columns, **hidden}, rows)
        rejected, filtered = dead_letters(records, called.failed, "flat_map")
        passed = len(rows) if called.counts is None else len(called.counts) - len(called.failed)
        return Stepped(left, rows, rejected, filtered, passed=passed)


@final
@dataclass(frozen=True, slots=True)
class MapBatches(StepKind):
    """Replaces each Arrow batch with the batch or table that a Python function returns.

    Batch boundaries are not fixed, so rows should not depend on one another. Hidden columns, such
    as a computed event time, are carried over by row number.
    """

    function: BatchFunction

    method: ClassVar[str] = "map_batches"

    def text(self) -> str:
        return f"map_batches({_short(self.function)})"

    def apply(self, records: Records) -> Stepped:
        given = frame_of(records).batch
        try:
            made = self.function(given)
        except Exception as error:
            raise DataError(
                f"the function of map_batches failed on {type(given).__name__} of {len(given)}: "
                f"{said(error)}",
                where="map_batches",
                hint="Fix the function, or filter such records out first",
            ) from error
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
        left = Records({**columns, **hidden}, made.num_rows, records.origin)
        if left.length == records.length:
            return Stepped(left)
        # Nobody knows which record a row is from. It counts as one at the same place.
        rows = np.minimum(np.arange(left.length), records.length - 1)
        passed = min(left.length, records.length)
        return Stepped(left, rows, filtered=records.length - passed, passed=passed)


@final
@dataclass(frozen=True, slots=True)
class AddComputed(StepKind):
    """Adds a hidden column with the result of a Python function per record (a computed key)."""

    name: str
    function: RecordFunction

    method: ClassVar[str] = "key_by"

    def names_after(self, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return None if names is None else (*names, self.name)

    def apply(self, records: Records) -> Stepped:
        return step_through(self, records)

    def call(self, rows: Sequence[Any], *, sets_aside: bool) -> Called:
        values, failed = call_each("key_by", self.function, rows, sets_aside=sets_aside)
        return without_failures(rows, values, failed)

    def columns(self, values: Sequence[Any]) -> dict[str, Column]:
        return {self.name: Column.of_objects(values)}

    def made(self, records: Records, columns: Mapping[str, Column], called: Called) -> Stepped:
        if called.counts is None:
            return Stepped(records.replaced({**records.columns, **columns}))
        rows = np.flatnonzero(called.counts)
        left = records.take(rows)
        letters = dead_letters(records, called.failed, "key_by")
        return Stepped(left.replaced({**left.columns, **columns}), rows, *letters)


@final
@dataclass(frozen=True, slots=True)
class AddWhole(StepKind):
    """Adds a hidden column that contains each whole record (for ``group``)."""

    name: str

    method: ClassVar[str] = "group"
    vectorised: ClassVar[bool] = True

    def names_after(self, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return None if names is None else (*names, self.name)

    def apply(self, records: Records) -> Stepped:
        whole = Column.of_objects(records.rows())
        return Stepped(records.replaced({**records.columns, self.name: whole}))


def _texts(expressions: Expressions) -> str:
    named = (f"{name}={_short(value)}" for name, value in expressions.named.items())
    return ", ".join((*map(_short, expressions.unnamed), *named))


def _short(value: Any) -> str:
    return cut(shown(value), _LONGEST)


def calls_python(step: Step) -> TypeGuard[PythonStep]:
    """Return whether a step calls a Python function for each record."""
    if isinstance(step, Filter):
        return callable(step.condition)
    return isinstance(step, (Map, FlatMap, AddComputed))


def set_aside(step: Step, records: Records) -> Stepped:
    """Apply a step here; records for which its function fails are rejected."""
    if calls_python(step):
        return step_through(step, records, sets_aside=True)
    return step.apply(records)


def check_columns_read(steps: Iterable[Step], records: Records) -> None:
    """Check the columns that the first steps read, once all names of a source are known.

    While they were not, a column that no record had was taken to be null.

    Raises:
        InvalidArgument: There is no such column.
    """
    if not getattr(records.columns, "knows_names", False):
        return
    known = set(records.names)
    for step in steps:
        if isinstance(step, Filter) and step.vectorised:
            given = Expressions((step.condition,))
        elif isinstance(step, (WithColumns, Select)):
            given = step.expressions
        elif isinstance(step, Explode):
            require_names((step.column,), known, step.method)
            continue
        elif isinstance(step, Lookup):
            require_names(step.on, known, step.method)
            known |= set(step.table.columns)
            continue
        elif isinstance(step, (Filter, AddComputed)):
            continue
        else:
            return
        reading = reading_of((*given.unnamed, *given.named.values()))
        require_names(
            sorted((reading.columns or frozenset()) - known),
            known,
            STEP_NAMES[type(step)],
        )
        known |= set(given.named)
        if given.unnamed or isinstance(step, Select):
            return


STEP_NAMES: Mapping[type, str] = {Filter: "filter", WithColumns: "with_columns", Select: "select"}
"""What messages call the steps that evaluate expressions."""


def require_names(names: Iterable[str], known: Iterable[str], where: str) -> None:
    """Raise ``InvalidArgument`` for the first name that is not among the known columns."""
    known = tuple(known)
    for name in names:
        if name not in known:
            raise InvalidArgument(
                f"there is no column {name!r}", where=where, hint=nearest_column(name, known)
            )


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


def _only(
    records: Records,
    sound: Int64Array | None,
    truths: np.ndarray[Any, np.dtype[np.bool_]],
    letters: tuple[Sequence[Rejected], int] = ((), 0),
    missing: Mapping[str, InvalidArgument] = MappingProxyType({}),
) -> Stepped:
    """Return the records for which a condition is true.

    Args:
        records: The records.
        sound: The rows for which there is a truth; ``None`` for all.
        truths: Whether the condition is true for each of them.
        letters: The dead letters for the others, and how many of these are dropped without one.
        missing: What is wrong if the condition reads a column that none of them has, by column.
    """
    if sound is None and truths.all():
        return Stepped(records, missing=missing)
    rows = np.flatnonzero(truths) if sound is None else sound[truths]
    rejected, dropped = letters
    filtered = dropped + len(truths) - len(rows)
    return Stepped(records.take(rows), rows, rejected, filtered, missing)


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
    made = step.apply(no_records(schema)).records.columns
    return pa.schema([(name, column.to_arrow().type) for name, column in made.items()])


def no_records(schema: pa.Schema) -> Records:
    """Return records with these columns, and none in them."""
    arrays = [pa.array([], type=field.type) for field in schema]
    return Records.from_arrow(pa.RecordBatch.from_arrays(arrays, names=schema.names))
