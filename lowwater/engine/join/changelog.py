"""Explicit changes, such as those that a database publishes, as upserts of a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lowwater.display.text import repr_of
from lowwater.engine.join.upserting import DELETED
from lowwater.engine.records.admit_keys import check_key
from lowwater.engine.records.admit_times import PLAIN, TimeFormat, event_times
from lowwater.engine.records.batch import HIDDEN, Records, is_name
from lowwater.engine.records.columns import Column, Mask
from lowwater.engine.records.panes import ErrorRecord
from lowwater.engine.records.problems import Problems
from lowwater.engine.records.stage_output import TIME
from lowwater.engine.records.stepping import Rejected, StepKind, Stepped
from lowwater.engine.records.storable import Fault, note_unstorable, writable
from lowwater.engine.records.value_kinds import one_kind
from lowwater.errors import DataError, InvalidArgument, describe
from lowwater.kernels.positions import repeated

UNKNOWN_OP = "unknown_op"
"""The reason of a dead letter for a change of no known operation."""
NO_ROW = "no_row"
"""The reason of a dead letter for a change without the row that it needs."""
_WHERE = "changelog"


@final
@dataclass(frozen=True, slots=True)
class FromChangelog(StepKind):
    """Turns each change into an upsert: the row after it, or a deletion of the key before it.

    An update that changes the primary key becomes a deletion of the old one and an upsert. Rejects
    changes of no known operation, inserts and updates without the row after them, and deletions
    without the row before them.

    Args:
        key: The columns of the primary key, within the rows.
        op: The column of the operation.
        puts: The operations that insert or update a row.
        deletes: Those that delete it.
        before: The column of the row before the change, a struct.
        after: The column of the row after it.
        time: The column of event times.
        keep: Further columns to keep, beside those of the row.
        tombstones: Whether records in which all is null are ignored, not rejected.
        times: How event times are written that do not say it themselves.
    """

    key: tuple[str, ...]
    op: str
    puts: tuple[str, ...]
    deletes: tuple[str, ...]
    before: str
    after: str
    time: str
    keep: tuple[str, ...] = ()
    tombstones: bool = False
    times: TimeFormat = field(default=PLAIN, repr=False)

    method: ClassVar[str] = "changelog"
    vectorised: ClassVar[bool] = True

    def text(self) -> str:
        return f"changelog(op={self.op!r})"

    def apply(self, records: Records) -> Stepped:
        """Apply the step. O(n).

        Raises:
            DataError: A column is missing, or does not hold rows.
        """
        try:
            judged = self._by_column(records)
        except DataError:
            raise
        except _NOT_FOR_ARROW:  # S-B1: some value is not like the others
            judged = self._by_row(records)
        judged = self._with_sound_moves(records, judged)
        gone, come = np.flatnonzero(judged.goes), np.flatnonzero(judged.puts)
        origin = np.concatenate((gone, come))
        is_gone = repeated([True, False], [len(gone), len(come)])
        order = np.lexsort((~is_gone, origin))
        origin, is_gone = origin[order], is_gone[order]
        places = origin + np.where(is_gone, 0, len(records))
        columns = {
            name: column.take(origin)
            for name, column in records.columns.items()
            if name.startswith(HIDDEN) or name in self.keep
        }
        columns[TIME] = self._column(records, self.time).take(origin)
        columns |= {name: column.take(places) for name, column in judged.fields.items()}
        columns[DELETED] = Column(is_gone)
        made = records.derived(columns, origin)
        # An update that moves to another key is one record, of which two are made.
        passed = int(np.count_nonzero(judged.puts | judged.goes))
        rejected = _dead_letters(records, judged.faults)
        return Stepped(made, origin, rejected, judged.ignored, passed=passed)

    def _by_column(self, records: Records) -> _Judged:
        before = self._rows(records, self.before)
        after = self._rows(records, self.after)
        codes = _code_texts(self._column(records, self.op))
        puts, deletes = _among(codes, self.puts), _among(codes, self.deletes)
        has_before, has_after = _valid(before), _valid(after)
        unknown = ~puts & ~deletes
        ignored = 0
        if self.tombstones:
            nothing = ~has_before & ~has_after & ~_valid(codes)
            unknown &= ~nothing
            ignored = int(np.count_nonzero(nothing))
        lacking = (puts & ~has_after) | (deletes & ~has_before)
        puts, deletes = puts & has_after, deletes & has_before
        # An update that changes the key first deletes the old row.
        moved = puts & has_before & self._differ(before, after)
        bad = np.flatnonzero(unknown | lacking)
        ops = self._column(records, self.op).take(bad).to_list() if bad.size else []
        faults = {
            row: self._fault(op, is_known=not unknown[row])
            for row, op in zip(bad.tolist(), ops, strict=True)
        }
        return _Judged(puts, deletes | moved, self._fields(before, after), faults, ignored)

    def _by_row(self, records: Records) -> _Judged:
        """Judge each change by itself, as where the values of several have no type in common."""
        length = len(records)
        puts, goes = np.zeros(length, np.bool_), np.zeros(length, np.bool_)
        faults: dict[int, Fault] = {}
        rows: list[Mapping[str, Any] | None] = [None] * (2 * length)
        ignored = 0
        changes = zip(
            *(self._column(records, name).to_list() for name in (self.op, self.before, self.after)),
            strict=True,
        )
        for at, (op, before, after) in enumerate(changes):
            code = _code_text(op)
            is_put, is_delete = code in self.puts, code in self.deletes
            if self.tombstones and op is None and before is None and after is None:
                ignored += 1
            elif not is_put and not is_delete:
                faults[at] = self._fault(op, is_known=False)
            elif (after if is_put else before) is None:
                faults[at] = self._fault(op, is_known=True)
            elif (wrong := self._wrong_row(before, after if is_put else None)) is not None:
                faults[at] = wrong
            else:
                rows[at], rows[length + at] = before, after if is_put else None
                puts[at] = is_put
                goes[at] = is_delete or (before is not None and self._moves(before, after))
        names = dict.fromkeys(
            (*self.key, *(name for row in rows[length:] if row is not None for name in row))
        )
        fields = {
            name: Column.of_objects(
                [
                    row.get(name)
                    if row is not None and (at >= length or name in self.key)
                    else None
                    for at, row in enumerate(rows)
                ]
            )
            for name in names
        }
        return _Judged(puts, goes, fields, faults, ignored)

    def _with_sound_moves(self, records: Records, judged: _Judged) -> _Judged:
        """Return what changes do: one that moves a row to, or from, no valid row deletes nothing.

        The new row becomes the one dead letter of the change, and so the old one stays, as it does
        if a change that moves nothing is invalid; and without a valid key there is no old row.
        """
        moved = np.flatnonzero(judged.puts & judged.goes)
        if not moved.size:
            return judged
        come = moved + len(judged.puts)
        problems = Problems()
        for name in self.key:
            for rows in (moved, come):
                with _noting(problems, len(moved)):
                    check_key(judged.fields[name].take(rows), problems, name)
        with _noting(problems, len(moved)):
            event_times(self._column(records, self.time).take(moved), "", problems, self.times)
        for name, column in judged.fields.items():
            note_unstorable(column.take(come), name, problems)
        if not problems.found:
            return judged
        goes = judged.goes.copy()
        goes[moved[list(problems.found)]] = False
        return replace(judged, goes=goes)

    def _wrong_row(self, before: Any, after: Any) -> Fault | None:
        for name, row in ((self.before, before), (self.after, after)):
            if row is None:
                continue
            if not isinstance(row, Mapping):
                what = f"{describe(name, row)} is not a row"
                return "wrong_type", what
            bad = next((field for field in row if not is_name(field)), None)
            if bad is not None:
                return "wrong_type", f"{bad!r} in {name} cannot be the name of a column"
        return None

    def _moves(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
        """Return whether the key before a change is another than that after it."""
        pairs = [(before.get(name), after.get(name)) for name in self.key]
        return any(
            _are_unequal(old, new) for old, new in pairs if old is not None and new is not None
        )

    def _fault(self, op: Any, *, is_known: bool) -> Fault:
        if not is_known:
            known = ", ".join(map(repr, (*self.puts, *self.deletes)))
            return UNKNOWN_OP, f"{self.op} is {repr_of(op)}, and {known} are known"
        name = self.before if _code_text(op) in self.deletes else self.after
        return NO_ROW, f"{self.op} is {op!r}, and {name} is null"

    def _column(self, records: Records, name: str) -> Column:
        if name not in records.columns:
            raise DataError(
                f"there is no column {name!r}",
                where=_WHERE,
                hint="Name the columns of the changes: op=, before=, after=",
            )
        return records.columns[name]

    def _rows(self, records: Records, name: str) -> pa.Array:
        column = self._column(records, name)
        array = column.to_arrow()
        if column.arrow is None and not one_kind(column.to_list(), array):
            raise TypeError(f"{name!r} holds values of several types")
        if not pa.types.is_struct(array.type) and not pa.types.is_null(array.type):
            if column.arrow is None and column.type is None:  # other batches may hold rows
                raise TypeError(f"{name!r} holds {array.type}")
            raise DataError(
                f"the column {name!r} holds values of type {array.type}, not rows",
                where=_WHERE,
                hint="Rows are structs: decode text before, as with map",
            )
        return array

    def _differ(self, before: pa.Array, after: pa.Array) -> Mask:
        """Return where the key before a change is another than that after it."""
        found = np.zeros(len(after), dtype=np.bool_)
        for name in self.key:
            old, new = _field(before, name), _field(after, name)
            if pa.types.is_null(old.type) or pa.types.is_null(new.type):
                continue
            differs = pc.not_equal(old.cast(new.type), new).fill_null(False)
            found |= differs.to_numpy(zero_copy_only=False)
        return found

    def _fields(self, before: pa.Array, after: pa.Array) -> dict[str, Column]:
        """Return the fields of the rows before all changes, then of those after them.

        Of the rows before there is only the key.
        """
        found: dict[str, Column] = {}
        for name in dict.fromkeys((*self.key, *_names(after))):
            new = _field(after, name)
            old = _field(before, name) if name in self.key else pa.nulls(len(before), new.type)
            if pa.types.is_null(new.type):
                new = new.cast(old.type)
            found[name] = Column.from_arrow(pa.concat_arrays([old.cast(new.type), new]))
        return found


_NOT_FOR_ARROW = (pa.ArrowException, OverflowError, UnicodeError, TypeError, ValueError)


@final
@dataclass(frozen=True, slots=True)
class _Judged:
    """What changes do.

    Args:
        puts: Which of them put a row.
        goes: Which of them delete a row, of another key if they put one.
        fields: The fields of the rows before the changes, then of those after them.
        faults: Why others are invalid, by row.
        ignored: How many do nothing.
    """

    puts: Mask
    goes: Mask
    fields: Mapping[str, Column]
    faults: Mapping[int, Fault]
    ignored: int


@contextmanager
def _noting(problems: Problems, length: int) -> Iterator[None]:
    """Report a type that no value of a column can have as a problem of all of them."""
    try:
        yield
    except InvalidArgument as error:
        problems.add_all(np.arange(length), "wrong_type", error.what)


def _dead_letters(records: Records, faults: Mapping[int, Fault]) -> Sequence[Rejected]:
    if not faults:
        return ()
    rows = np.array(sorted(faults), dtype=np.int64)
    return [
        (row, ErrorRecord(writable(record), *faults[row], records.place(row) or _WHERE))
        for row, record in zip(rows.tolist(), records.rows(rows, exact=True), strict=True)
    ]


def _code_text(value: Any) -> str | None:
    """Return the text of one operation, as :func:`_code_texts` does; ``None`` if it has none."""
    if value is None or isinstance(value, str):
        return value
    try:
        text: str | None = pa.scalar(value).cast(pa.string()).as_py()
    except _NOT_FOR_ARROW:
        return None
    return text


def _are_unequal(old: Any, new: Any) -> bool:
    try:
        return bool(old != new)
    except MemoryError:
        raise
    except Exception:  # whatever a class of the user raises there; admission judges both keys
        return True


def _code_texts(column: Column) -> pa.Array:
    array = column.to_arrow()
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    return array.cast(pa.string())


def _among(codes: pa.Array, wanted: tuple[str, ...]) -> Mask:
    if not wanted:
        return np.zeros(len(codes), dtype=np.bool_)
    found: NDArray[Any] = pc.is_in(codes, pa.array(wanted, pa.string())).to_numpy(
        zero_copy_only=False
    )
    return found


def _valid(array: pa.Array) -> Mask:
    found: NDArray[Any] = array.is_valid().to_numpy(zero_copy_only=False)
    return found


def _names(rows: pa.Array) -> list[str]:
    return [field.name for field in rows.type] if pa.types.is_struct(rows.type) else []


def _field(rows: pa.Array, name: str) -> pa.Array:
    """Return a field of structs, null where there is no struct or no such field."""
    if name not in _names(rows):
        return pa.nulls(len(rows))
    return pc.struct_field(rows, name)
