"""Evaluates expressions so that each record is judged alone (S-B1).

A batch that has one type in each column, and for which nothing fails, is evaluated as a whole: that
is the rule, and costs one call. Otherwise each expression is evaluated for the records whose values
have the same Arrow types by themselves, and those for which it fails are set apart.

The file is long because the ways share one account of the rows: a row that any of them leaves out,
or judges twice, is a record that is lost or doubled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lowwater.engine.records.batch import HIDDEN, Records
from lowwater.engine.records.calls import Failure, said
from lowwater.engine.records.columns import Column
from lowwater.engine.records.elementwise import Reading, copied_column, reading_of
from lowwater.engine.records.expressions import Expressions, evaluate, frame_of
from lowwater.engine.records.failing_rows import RowSearch
from lowwater.engine.records.integer_arithmetic import (
    OUTSIDE,
    Mask,
    computes,
    names_of,
    out_of_range,
    require_range,
    with_columns,
    with_wide_integers,
)
from lowwater.engine.records.mixed_numbers import is_for_python, is_refusal
from lowwater.engine.records.nested_fields import (
    fields_of_nulls,
    parted_by_nulls,
    siblings_of,
    with_fields,
)
from lowwater.engine.records.storable import endless_rows
from lowwater.engine.records.value_kinds import kinds_of, one_kind, several_shapes
from lowwater.errors import DataError, InvalidArgument, LowwaterError, nearest
from lowwater.time import Int64Array

BAD_EXPRESSION = "bad_expression"
"""The reason of a dead letter for which an expression failed."""
OUT_OF_RANGE = "out_of_range"
"""The reason of a dead letter for which an operation on integers leaves 64 bits."""

CONDITION = HIDDEN + "condition"
"""The result of the condition of a filter, which is named after no column that it reads."""

_BEYOND = (OUTSIDE, "ArrowInvalid: overflow")
_TRIED = 16
"""How many rows are tried to learn which type a column of nulls may have."""

_ROW = HIDDEN + "row"
_LONGEST = 300
_YEAR_FIRST = "^[0-9]{4}"
_A_TIME = "2000-01-01"
_AMBIGUOUS = (
    "a text that does not begin with the year is read as a time only with a format: name it"
)
_NULLS = (
    pa.int64(), pa.float64(), pa.string(), pa.bool_(), pa.timestamp("us"),
    pa.timestamp("us", "UTC"), pa.date32(), pa.duration("us"), pa.binary(), pa.time64("us"),
    pa.list_(pa.int64()), pa.list_(pa.string()),
)  # fmt: skip
"""The types that a column of nulls may have, in the order in which they are tried."""


@final
@dataclass(frozen=True, slots=True)
class Evaluated:
    """The values of expressions for a batch of records.

    Args:
        columns: The values by name, for the records for which no expression failed.
        rows: The rows of these records, int64; ``None`` for all.
        failed: The other records.
        missing: What is wrong if a column is read that none of the records has, by column. Such a
            column was taken to be null; if no record ever has it, its name must be a mistake.
    """

    columns: dict[str, Column]
    rows: Int64Array | None = None
    failed: Sequence[Failure] = ()
    missing: Mapping[str, InvalidArgument] = field(default_factory=dict)


def evaluated(step: str, records: Records, expressions: Expressions) -> Evaluated:
    """Evaluate expressions for each record.

    Args:
        step: What messages call the step.
        records: The records; without any, expressions are only checked.
        expressions: The expressions; those of a filter are one, whose result is ``CONDITION``.

    Raises:
        InvalidArgument: There are no records, and a column is missing.
        DataError: There are no records, and the types of the columns do not fit.
    """
    if not records.length:
        arrays = evaluate(step, frame_of(records), expressions)
        return Evaluated({name: Column.from_arrow(array) for name, array in arrays.items()})
    visible = records.names
    every = reading_of((*expressions.unnamed, *expressions.named.values()))
    absent = sorted(name for name in every.columns or () if _column_of(records, name) is None)
    if absent:
        missing = {
            name: InvalidArgument(
                f"there is no column {name!r}", where=step, hint=nearest(name, visible)
            )
            for name in absent
        }
        if getattr(records.columns, "knows_names", False):
            raise missing[absent[0]]
        return _Careful(step, records, missing).evaluated(expressions)
    copied, computed = ({}, expressions) if step == "filter" else _divided(step, expressions)
    columns = {name: records.columns[source] for name, source in copied.items()}
    if not computed.unnamed and not computed.named:
        return Evaluated(columns)
    reading = reading_of((*computed.unnamed, *computed.named.values()))
    names = visible if reading.columns is None else sorted(reading.columns)
    if (table := _table_if_plain(records, names)) is not None:
        try:
            arrays = _run(step, table, computed)
            if _is_unambiguous(table, reading) and not _lends_fields(records, names, arrays):
                columns |= {name: Column.from_arrow(array) for name, array in arrays.items()}
                if computed is not expressions:
                    order = (*map(copied_column, expressions.unnamed), *expressions.named)
                    columns = {name: columns[name] for name in order if name is not None}
                return Evaluated(columns)
        except MemoryError:
            raise
        except Exception as error:
            if isinstance(error, LowwaterError):
                raise
            if type(error).__name__ == "DuplicateError":
                raise _same_name(step, said(error)) from error
    return _Careful(step, records, {}).evaluated(expressions)


def _divided(step: str, expressions: Expressions) -> tuple[dict[str, str], Expressions]:
    """Return which columns are copied under which names, and the other expressions.

    Raises:
        DataError: Two results have the same name.
    """
    named = {name: copied_column(expression) for name, expression in expressions.named.items()}
    unnamed = [copied_column(expression) for expression in expressions.unnamed]
    if None in unnamed:  # only narwhals knows the names and the order of the results
        return {}, expressions
    copied = {name: name for name in unnamed if name is not None}
    if len(copied) < len(unnamed) or copied.keys() & named.keys():
        raise _same_name(step, "two of them have the same name")
    copied |= {name: source for name, source in named.items() if source is not None}
    return copied, Expressions((), {n: expressions.named[n] for n in named if named[n] is None})


def _same_name(step: str, what: str) -> DataError:
    return DataError(
        f"the expressions of {step} failed: {what}",
        where=step,
        hint='Name results, as in with_columns(double=lw.col("n") * 2)',
    )


def _run(step: str, table: pa.Table, expressions: Expressions) -> dict[str, pa.Array]:
    """Evaluate expressions over a table; raises whatever narwhals or Arrow raise.

    Raises:
        OutOfRangeError: An operation on integers leaves 64 bits.
    """
    import narwhals as nw

    unnamed = [nw.col(e) if isinstance(e, str) else e for e in expressions.unnamed]
    named = {n: nw.col(e) if isinstance(e, str) else e for n, e in expressions.named.items()}
    names = names_of(table, unnamed, named)
    results = with_columns(table, unnamed, named)
    arrays = {name: Column.from_arrow(results[name].to_native()).to_arrow() for name in names}
    if step == "filter":
        kind = arrays[CONDITION].type
        if not (pa.types.is_boolean(kind) or pa.types.is_null(kind)):
            raise TypeError(f"the condition has type {kind}, not bool: compare something")
    return arrays


def _table_if_plain(records: Records, names: Sequence[str]) -> pa.Table | None:
    """Return the columns as a table if the values of each have one type; else ``None``."""
    arrays: dict[str, pa.Array] = {}
    for name in names:
        column = records.columns[name]
        values = column.to_list() if _is_of_objects(column) else None
        if values is not None and endless_rows(values):
            return None
        try:
            array = column.to_arrow() if values is None else pa.array(values)
        except MemoryError:
            raise
        except Exception:  # not for Arrow, or a class of the user raises
            return None
        if values is not None and not one_kind(values, array):
            return None
        arrays[name] = _decoded(array)
    return _as_table(arrays, records.length)


def _lends_fields(records: Records, names: Iterable[str], results: Mapping[str, pa.Array]) -> bool:
    """Whether results have fields that only other records have: values of several shapes."""
    if not any(pa.types.is_nested(array.type) for array in results.values()):
        return False
    columns = [records.columns[name] for name in names]
    return any(several_shapes(column.to_list()) for column in columns if _is_of_objects(column))


def _as_table(arrays: Mapping[str, pa.Array], length: int) -> pa.Table:
    if not arrays:  # only literals: they still have a length
        arrays = {_ROW: pa.array(np.arange(length))}
    return pa.table(dict(arrays))


def _decoded(array: pa.Array) -> pa.Array:
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _is_of_objects(column: Column) -> bool:
    """Whether a column holds Python values, of which each may have a type of its own."""
    return column.arrow is None and column.type is None and column.data.dtype == object


def _column_of(records: Records, name: str) -> Column | None:
    """Return a column that users see, ``None`` if the records do not have it."""
    return None if name.startswith(HIDDEN) else records.columns.get(name)


def _array_of(values: list[Any]) -> pa.Array:
    """Convert values of one kind to an Arrow array."""
    try:
        return pa.array(values)
    except OverflowError:  # Arrow takes integers for signed ones by itself
        return pa.array(values, pa.uint64())


@contextmanager
def _unless_memory_ends() -> Iterator[None]:
    """Go on after any exception but those of the machine; the values are then looked at alone."""
    try:
        yield
    except Exception as error:
        if isinstance(error, MemoryError):
            raise


@final
class _Endless:
    """Stands for a value that is nested too deep for Arrow, which says so of it."""

    def __repr__(self) -> str:
        return "a value that is nested too deep"


_ENDLESS = _Endless()


def _is_unambiguous(table: pa.Table, reading: Reading) -> bool:
    """Whether text that is read as times without a format says what it means."""
    return all(_ambiguous(table.column(name)) is None for name in reading.guessed)


def _ambiguous(column: pa.ChunkedArray) -> np.ndarray[Any, np.dtype[np.bool_]] | None:
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return None
    clear = pc.match_substring_regex(column, _YEAR_FIRST).fill_null(True)
    if pc.all(clear).as_py():
        return None
    unclear: np.ndarray[Any, np.dtype[np.bool_]] = ~clear.to_numpy()
    return unclear


_Piece: TypeAlias = tuple[Int64Array, dict[str, pa.Array]]
"""Rows of the batch, and the values of an expression for them."""


@final
class _Careful:
    """Evaluates expressions one at a time, for groups of records whose values have the same types.

    Args:
        step: What messages call the step.
        records: The records.
        missing: What is wrong if a column is read that none of them has, by column.
    """

    def __init__(self, step: str, records: Records, missing: Mapping[str, InvalidArgument]) -> None:
        self._step = step
        self._records = records
        self._missing = dict(missing)
        self._arrays: dict[str, pa.Array] = {}
        self._objects: dict[str, tuple[list[Any], Int64Array, list[Any]]] = {}
        self._failed: dict[int, str] = {}
        self._shapes = False

    def evaluated(self, expressions: Expressions) -> Evaluated:
        left = np.arange(self._records.length)
        pieces: list[list[_Piece] | tuple[str, str]] = []
        for single in _single(expressions):
            (expression,) = (*single.unnamed, *single.named.values())
            source = None if self._step == "filter" else copied_column(expression)
            if source is not None:
                pieces.append((next(iter(single.named), source), source))
                continue
            done, failed = self._one(single, expression, left)
            pieces.append(done)
            if failed:
                self._failed.update(failed)
                left = left[~np.isin(left, np.fromiter(failed, np.int64, len(failed)))]
        columns: dict[str, Column] = {}
        for of_one in pieces:
            named = (
                {of_one[0]: self._copied(of_one[1], left)}
                if isinstance(of_one, tuple)
                else self._together(of_one, left)
            )
            if twice := columns.keys() & named.keys():
                raise _same_name(self._step, f"two of them are named {min(twice)!r}")
            columns |= named
        failures = [
            Failure(row, OUT_OF_RANGE if why.endswith(_BEYOND) else BAD_EXPRESSION, why)
            for row, why in sorted(self._failed.items())
        ]
        rows = None if len(left) == self._records.length else left
        return Evaluated(columns, rows, failures, self._missing)

    def _copied(self, name: str, left: Int64Array) -> Column:
        column = _column_of(self._records, name)
        if column is None:
            return Column.from_arrow(pa.nulls(len(left)))
        return column if len(left) == len(column) else column.take(left)

    def _one(
        self, single: Expressions, expression: Any, rows: Int64Array
    ) -> tuple[list[_Piece], dict[int, str]]:
        """Return the values of one expression, and the rows for which it fails."""
        reading = reading_of([expression])
        search = RowSearch(
            expression, lambda table: _run(self._step, table, single), _probe_of(expression)
        )
        work = _OneExpression(self._step, single, expression, search)
        names = self._records.names if reading.columns is None else sorted(reading.columns)
        for group in self._groups(names, rows):
            for part, table in self._tables(names, group, work):
                work.settle(part, table, reading)
        present = [name for name in names if _column_of(self._records, name) is not None]
        if not self._shapes and any(
            _lends_fields(self._records, present, arrays) for _, arrays in work.pieces
        ):
            self._shapes = True
            self._objects.clear()
            return self._one(single, expression, rows)
        for path, siblings in sorted(work.siblings.items()):
            if path[-1] not in siblings:
                self._missing[".".join(path)] = InvalidArgument(
                    f"there is no field {path[-1]!r} in the values of {'.'.join(path[:-1])!r}",
                    where=self._step,
                    hint=nearest(path[-1], siblings),
                )
        return work.pieces, work.failed

    def _groups(self, names: Iterable[str], rows: Int64Array) -> Iterator[Int64Array]:
        """Yield rows by the types that their values have by themselves."""
        codes = np.zeros(len(rows), dtype=np.int64)
        for name in names:
            if self._array(name) is None:
                own = self._objects[name][1][rows]
                codes = codes * (int(own.max(initial=0)) + 1) + own
                _, codes = np.unique(codes, return_inverse=True)
        order = np.argsort(codes, kind="stable")
        bounds = np.flatnonzero(np.diff(codes[order])) + 1
        for part in np.split(order, bounds):
            if len(part):
                yield rows[part]

    def _array(self, name: str) -> pa.Array | None:
        """Return a column whose values have one type; ``None`` if each may have its own."""
        if name in self._arrays:
            return self._arrays[name]
        if name in self._objects:
            return None
        column = _column_of(self._records, name)
        if column is None:
            self._arrays[name] = pa.nulls(self._records.length)
            return self._arrays[name]
        if not _is_of_objects(column):
            with _unless_memory_ends():  # some value may not be of the column's type
                self._arrays[name] = _decoded(column.to_arrow())
                return self._arrays[name]
        values = column.to_list(exact=True)
        for row in endless_rows(values):
            values[row] = _ENDLESS
        self._objects[name] = (values, *kinds_of(values, shapes=self._shapes))
        return None

    def _tables(
        self, names: Sequence[str], rows: Int64Array, work: _OneExpression
    ) -> Iterator[tuple[Int64Array, pa.Table]]:
        """Yield rows of one group with their columns; in parts where these need several types."""
        table = None
        with _unless_memory_ends():  # values may not be for Arrow, or a class of the user raises
            table = self._table(names, rows)
        if table is not None:
            yield rows, table
            return
        types: dict[tuple[Any, ...], list[int]] = {}
        mixed = [name for name in names if self._array(name) is None]
        for row in rows.tolist():
            try:
                kinds = tuple([_array_of([self._objects[n][0][row]]).type for n in mixed])
            except MemoryError:
                raise
            except Exception as error:
                work.fail(row, said(error))
            else:
                types.setdefault(kinds, []).append(row)
        for some in types.values():
            part = np.array(some, dtype=np.int64)
            yield part, self._table(names, part)

    def _table(self, names: Sequence[str], rows: Int64Array) -> pa.Table:
        arrays = {}
        for name in names:
            array = self._array(name)
            if array is None:
                values = self._objects[name][0]
                arrays[name] = _array_of([values[row] for row in rows.tolist()])
            else:
                arrays[name] = array if len(rows) == len(array) else array.take(pa.array(rows))
        return _as_table(arrays, len(rows))

    def _together(self, pieces: Sequence[_Piece], left: Int64Array) -> dict[str, Column]:
        """Return the values of one expression for the rows that are left, in their order."""
        place = np.full(self._records.length, -1, dtype=np.int64)
        place[left] = np.arange(len(left))
        names = dict.fromkeys(name for _, arrays in pieces for name in arrays)
        return {name: self._column(name, pieces, place, len(left)) for name in names}

    def _column(
        self, name: str, pieces: Sequence[_Piece], place: Int64Array, length: int
    ) -> Column:
        parts: list[pa.Array] = []
        places: list[Int64Array] = []
        for rows, arrays in pieces:
            array = arrays.get(name)
            if array is None:
                array = self._former(name, rows)
            at = place[rows]
            if (at < 0).any():
                array = array.take(pa.array(np.flatnonzero(at >= 0)))
                at = at[at >= 0]
            parts.append(_decoded(array))
            places.append(at)
        order = np.concatenate(places) if places else np.zeros(0, dtype=np.int64)
        kinds = {part.type for part in parts if part.null_count < len(part)}
        if len(kinds) > 1:  # one column of Python values: nothing is converted or rounded
            values: list[Any] = [None] * length
            for part, at in zip(parts, places, strict=True):
                own = Column.from_arrow(part).to_list(exact=True)
                for position, value in zip(at.tolist(), own, strict=True):
                    values[position] = value
            return Column.of_objects(values)
        kind = next(iter(kinds), next((part.type for part in parts if len(part)), pa.null()))
        filled = [part if part.type == kind else pa.nulls(len(part), kind) for part in parts]
        whole = pa.concat_arrays(filled) if filled else pa.nulls(0)
        return Column.from_arrow(whole.take(pa.array(np.argsort(order))))

    def _former(self, name: str, rows: Int64Array) -> pa.Array:
        """Return a column where an expression has no value for it, as selectors may have none."""
        column = self._records.columns.get(name)
        if column is None or self._step != "with_columns":
            return pa.nulls(len(rows))
        return column.take(rows).to_arrow()


@final
class _OneExpression:
    """Evaluates one expression for groups of rows, and collects the rows for which it fails."""

    def __init__(self, step: str, single: Expressions, expression: Any, search: RowSearch) -> None:
        self._step = step
        self._one = single
        self._text = _cut(repr(expression))
        self._expression = expression
        self._search = search
        self.pieces: list[_Piece] = []
        self.failed: dict[int, str] = {}
        self.siblings: dict[tuple[str, ...], set[str]] = {}

    def fail(self, row: int, why: str) -> None:
        """Reject a row of the batch."""
        self.failed[row] = f"{self._text} failed: {_cut(why)}"

    def settle(self, rows: Int64Array, table: pa.Table, reading: Reading) -> None:
        """Evaluate the expression for rows of the batch."""
        for name in reading.guessed:
            if name in table.column_names and (bad := _ambiguous(table.column(name))) is not None:
                for row in rows[bad].tolist():
                    self.fail(row, _AMBIGUOUS)
                rows, table = rows[~bad], table.take(pa.array(np.flatnonzero(~bad)))
        if reading.columns is not None:
            for path in reading.fields:
                if (siblings := siblings_of(table.schema, path)) is not None:
                    self.siblings.setdefault(path, set()).update(siblings)
            table = with_fields(table, reading.fields)
        if len(rows) and (bad := self._out_of_range(table)) is not None:
            for row in rows[bad].tolist():
                self.fail(row, OUTSIDE)
            rows, table = rows[~bad], table.take(pa.array(np.flatnonzero(~bad)))
        if not len(rows) or (why := self._attempt(rows, table, reading)) is None:
            return
        if reading.columns is None or not reading.fields:
            self._search_rows(rows, table, reading, why)
            return
        for some, part in parted_by_nulls(table, reading.fields):
            if (why := self._attempt(rows[some], part, reading)) is not None:
                self._search_rows(rows[some], part, reading, why)

    def _out_of_range(self, table: pa.Table) -> Mask | None:
        """Return the rows that leave 64 bits, as far as the expression can be computed."""
        if not computes([self._expression]):
            return None
        return out_of_range(self._expression, with_wide_integers(table))

    def _search_rows(self, rows: Int64Array, table: pa.Table, reading: Reading, why: str) -> None:
        """Evaluate the expression for rows of which at least one fails."""
        table = self._with_null_types(table, reading)
        if self._is_of_types(table, reading):
            for row in rows.tolist():
                self.fail(row, why)
            return
        bad_rows = self._search.failing(table)
        for row, text in bad_rows.items():
            self.fail(int(rows[row]), text)
        sound = np.ones(len(rows), dtype=np.bool_)
        sound[list(bad_rows)] = False
        good = np.flatnonzero(sound)
        if len(good):
            self._halve(rows[good], table.take(pa.array(good)), reading)

    def _attempt(self, rows: Int64Array, table: pa.Table, reading: Reading) -> str | None:
        """Evaluate the expression for all rows; return why it fails, ``None`` if it does not."""
        try:
            self.pieces.append((rows, self._run(table, reading)))
        except MemoryError:
            raise
        except Exception as error:
            if isinstance(error, LowwaterError):
                raise
            return said(error)
        return None

    def _run(self, table: pa.Table, reading: Reading) -> dict[str, pa.Array]:
        guessed = [
            at
            for at, name in enumerate(table.column_names)
            if name in reading.guessed and table.column(at).null_count == len(table)
        ]
        if not guessed:
            return _run(self._step, table, self._one)
        # No format can be taken from nulls: a row before them has one.
        longer = table.take(pa.array([0, *range(len(table))]))
        for at in guessed:
            texts = pa.array([_A_TIME, *([None] * len(table))])
            longer = longer.set_column(at, table.column_names[at], texts)
        results = _run(self._step, longer, self._one)
        return {name: array.slice(1) for name, array in results.items()}

    def _halve(self, rows: Int64Array, table: pa.Table, reading: Reading) -> None:
        """Evaluate the expression for rows for which it does not fail individually."""
        why = self._attempt(rows, table, reading)
        if why is None:
            return
        if len(rows) == 1:
            self.fail(int(rows[0]), why)
            return
        middle = len(rows) // 2
        self._halve(rows[:middle], table.slice(0, middle), reading)
        self._halve(rows[middle:], table.slice(middle), reading)

    def _is_of_types(self, table: pa.Table, reading: Reading) -> bool:
        """Whether the expression cannot work with the types of the columns, whatever the values."""
        return (
            not reading.guessed
            and self._search.why(table.slice(0, 0)) is not None
            and self._search.why(table.slice(0, 1)) is not None
        )

    def _with_null_types(self, table: pa.Table, reading: Reading) -> pa.Table:
        """Return a table in which nulls alone have a type that the expression can read.

        A null has no type of its own. Beside other values it has theirs; alone it must not fail
        for the lack of one. So it is in a column, and in a field of one.
        """
        empty = fields_of_nulls(table, reading.fields)
        if not empty:
            return table
        rows = sorted(set(np.linspace(0, len(table) - 1, _TRIED).astype(np.int64).tolist()))
        sample = table.take(pa.array(rows))
        for kind in (pa.null(), *_NULLS):
            typed = with_fields(sample, empty, kind)
            if any(self._search.why(typed.slice(row, 1)) is None for row in range(len(sample))):
                return with_fields(table, empty, kind)
        return table


def _single(expressions: Expressions) -> Iterator[Expressions]:
    for expression in expressions.unnamed:
        yield Expressions((expression,))
    for name, expression in expressions.named.items():
        yield Expressions((), {name: expression})


def _cut(text: str) -> str:
    if "\n" in text:
        text = " ".join(text.split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _probe_of(expression: Any) -> Any:
    """Return what evaluates an expression over one row without a frame around it, if possible.

    A shortcut through narwhals' internals, several times as fast for single rows. Where these are
    other than expected there is none.
    """
    import narwhals as nw

    try:
        frame = nw.from_native(pa.table({_ROW: [0]}), eager_only=True)
        inner = frame._compliant_frame
        expression = nw.col(expression) if isinstance(expression, str) else expression
        compliant = expression._to_compliant_expr(inner.__narwhals_namespace__())

        checks = computes([expression])

        def probe(table: pa.Table) -> object:
            if checks:
                table = with_wide_integers(table)
                require_range([expression], table)
            try:
                if not is_for_python([expression], table):
                    return compliant(inner._with_native(table, validate_column_names=False))
            except (pa.ArrowInvalid, OverflowError) as error:
                if not is_refusal(error):
                    raise
            return with_columns(table, [expression], {})

    except Exception:  # an earlier or later narwhals: rows are evaluated like batches
        return None
    return probe
