"""Steps that look at one record at a time: column expressions, and Python functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, final

import numpy as np
import pyarrow as pa

from lowwater.engine.records.batch import HIDDEN, TRACED, Records, columns_of
from lowwater.engine.records.columns import Column
from lowwater.engine.records.expressions import Expressions, evaluate, frame_of
from lowwater.errors import DataError, InvalidArgument, describe, nearest
from lowwater.time import Int64Array
from lowwater.watermark.observed import PARTITION

RecordFunction: TypeAlias = Callable[[Any], Any]
BatchFunction: TypeAlias = Callable[[pa.RecordBatch], pa.RecordBatch | pa.Table]


class Step(Protocol):
    """A step without state: what becomes of a record depends on that record alone."""

    @property
    def vectorised(self) -> bool:
        """Whether it runs column expressions only, so that its schema can be known beforehand."""
        ...

    def apply(self, records: Records) -> Records:
        """Return what becomes of a batch of records."""
        ...


@final
@dataclass(frozen=True, slots=True)
class Filter:
    """Keeps the records for which a column expression, or a Python function, is true.

    As in SQL, a condition that is null does not hold.
    """

    condition: Any

    @property
    def vectorised(self) -> bool:
        return not callable(self.condition)

    def apply(self, records: Records) -> Records:
        if callable(self.condition):
            every = np.arange(records.length)
            truths = [bool(_call("filter", self.condition, row)) for row in records.rows(every)]
            return _only(records, np.array(truths, dtype=np.bool_))
        (found,) = evaluate("filter", frame_of(records), Expressions((self.condition,))).values()
        if not pa.types.is_boolean(found.type):
            raise InvalidArgument(
                f"the condition of filter gives {found.type}, not true or false",
                hint='Compare something, as in lw.col("cancelled") == 0',
            )
        if found.null_count:
            found = found.fill_null(False)
        return _only(records, found.to_numpy(zero_copy_only=False))


@final
@dataclass(frozen=True, slots=True)
class WithColumns:
    """Adds columns, or replaces those of the same name."""

    expressions: Expressions

    vectorised = True

    def apply(self, records: Records) -> Records:
        made = evaluate("with_columns", frame_of(records), self.expressions)
        columns: dict[str, Column] = dict(records.columns.items())
        columns.update((name, Column.from_arrow(array)) for name, array in made.items())
        return Records(columns, records.length, records.origin, records.first_row)


@final
@dataclass(frozen=True, slots=True)
class Select:
    """Leaves only the columns given, beside those that say when a record happened and arrived."""

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
        columns.update((name, Column.from_arrow(array)) for name, array in made.items())
        return Records(columns, records.length, records.origin, records.first_row)


@final
@dataclass(frozen=True, slots=True)
class Map:
    """Calls a Python function with each record; what it returns takes the record's place."""

    function: RecordFunction

    vectorised = False

    def apply(self, records: Records) -> Records:
        rows = records.rows(np.arange(records.length))
        made = [_call("map", self.function, row) for row in rows]
        columns = columns_of(made)
        columns.update(_hidden(records, None))
        return Records(columns, records.length, records.origin, records.first_row)


@final
@dataclass(frozen=True, slots=True)
class FlatMap:
    """Calls a Python function with each record; it gives any number of records in its place."""

    function: Callable[[Any], Iterable[Any]]

    vectorised = False

    def apply(self, records: Records) -> Records:
        made: list[Any] = []
        origin: list[int] = []
        for index, row in enumerate(records.rows(np.arange(records.length))):
            several = _call("flat_map", self.function, row)
            if isinstance(several, (str, bytes, Mapping)) or not isinstance(several, Iterable):
                raise DataError(
                    f"flat_map's function gave {describe('result', several)}, not several records",
                    hint="Return a list of records, or use map",
                )
            found = _call("flat_map", list, several, row)  # a generator fails only when read
            made.extend(found)
            origin.extend([index] * len(found))
        columns = columns_of(made)
        columns.update(_hidden(records, np.array(origin, dtype=np.int64)))
        return Records(columns, len(made), records.origin)


@final
@dataclass(frozen=True, slots=True)
class MapBatches:
    """Calls a function with an Arrow batch of records; it gives a batch or a table in its place.

    How the stream is cut into batches is not fixed, so rows should not depend on one another. What
    rows have besides their columns, such as a time that a function made, goes by their places.
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
                f"map_batches' function gave {describe('result', made)}, not an Arrow batch",
                hint="Return a pyarrow.RecordBatch or a pyarrow.Table",
            )
        hidden = _hidden(records, None)
        if made.num_rows != records.length:
            hidden.pop(PARTITION, None)  # who needs it will say so
        if TRACED in hidden and not _row_for_row(given, made):
            del hidden[TRACED]
        if hidden and made.num_rows != records.length:
            raise DataError(
                "map_batches' function changed the number of records, but time= or key= is a "
                "function of the original ones",
                hint="Name a column as time= and key=, or use flat_map",
            )
        columns = {name: Column.from_arrow(made.column(name)) for name in made.column_names}
        columns.update(hidden)
        return Records(columns, made.num_rows, records.origin)


@final
@dataclass(frozen=True, slots=True)
class AddComputed:
    """Adds a hidden column with what a Python function gives for each record (a computed key)."""

    name: str
    function: RecordFunction

    vectorised = False

    def apply(self, records: Records) -> Records:
        rows = records.rows(np.arange(records.length))
        made = Column.of_objects([_call("key_by", self.function, row) for row in rows])
        columns = {**records.columns, self.name: made}
        return Records(columns, records.length, records.origin, records.first_row)


@final
@dataclass(frozen=True, slots=True)
class AddWhole:
    """Adds a hidden column that holds each whole record (for ``group``)."""

    name: str

    vectorised = True

    def apply(self, records: Records) -> Records:
        whole = Column.of_objects(records.rows(np.arange(records.length)))
        columns = {**records.columns, self.name: whole}
        return Records(columns, records.length, records.origin, records.first_row)


def require_names(names: Iterable[str], known: Iterable[str], where: str) -> None:
    """Raise ``InvalidArgument`` for the first name that is not among the known columns."""
    known = tuple(known)
    for name in names:
        if name not in known:
            raise InvalidArgument(
                f"there is no column {name!r}", where=where, hint=nearest(name, known)
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


def _row_for_row(given: pa.RecordBatch, made: pa.Table) -> bool:
    """Whether rows are surely made of those in their places: a column tells them apart."""
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


def _hidden(records: Records, indices: Int64Array | None) -> dict[str, Column]:
    columns = {n: c for n, c in records.columns.items() if n.startswith(HIDDEN)}
    if indices is None:
        return columns
    return {name: column.take(indices) for name, column in columns.items()}


def _only(records: Records, truths: np.ndarray[Any, np.dtype[np.bool_]]) -> Records:
    return records if truths.all() else records.take(np.flatnonzero(truths))
