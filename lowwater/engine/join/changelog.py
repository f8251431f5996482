"""Explicit changes, such as those that a database publishes, as upserts of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lowwater.engine.join.tables import DELETED
from lowwater.engine.process.output import TIME
from lowwater.engine.records.batch import HIDDEN, Records
from lowwater.engine.records.columns import Column, Mask
from lowwater.engine.records.panes import ErrorRecord
from lowwater.engine.records.stepping import Rejected, Stepped
from lowwater.errors import DataError
from lowwater.time import Int64Array

UNKNOWN_OP = "unknown_op"
"""The reason of a dead letter for a change of no known operation."""
NO_ROW = "no_row"
"""The reason of a dead letter for a change without the row that it needs."""
_WHERE = "changelog"


@final
@dataclass(frozen=True, slots=True)
class FromChangelog:
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

    vectorised: ClassVar[bool] = True

    def apply(self, records: Records) -> Stepped:
        """Apply the step. O(n).

        Raises:
            DataError: A column is missing, or does not hold rows.
        """
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
        gone, come = np.flatnonzero(deletes | moved), np.flatnonzero(puts)
        origin = np.concatenate((gone, come))
        is_gone = np.repeat([True, False], [len(gone), len(come)])
        order = np.lexsort((~is_gone, origin))
        origin, is_gone = origin[order], is_gone[order]
        places = origin + np.where(is_gone, 0, len(records))
        columns = {
            name: column.take(origin)
            for name, column in records.columns.items()
            if name.startswith(HIDDEN) or name in self.keep
        }
        columns[TIME] = self._column(records, self.time).take(origin)
        columns |= self._fields(before, after, places)
        columns[DELETED] = Column(is_gone)
        made = records.derived(columns, origin)
        rejected = self._rejected(records, unknown, lacking, codes)
        # An update that moves to another key is one record, of which two are made.
        passed = int(np.count_nonzero(puts | deletes))
        return Stepped(made, origin, rejected, ignored, passed=passed)

    def _column(self, records: Records, name: str) -> Column:
        if name not in records.columns:
            raise DataError(
                f"there is no column {name!r}",
                where=_WHERE,
                hint="Name the columns of the changes: op=, before=, after=",
            )
        return records.columns[name]

    def _rows(self, records: Records, name: str) -> pa.Array:
        array = self._column(records, name).to_arrow()
        if not pa.types.is_struct(array.type) and not pa.types.is_null(array.type):
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

    def _fields(self, before: pa.Array, after: pa.Array, places: Int64Array) -> dict[str, Column]:
        """Return the columns of the rows; of a deletion only the key is there."""
        found: dict[str, Column] = {}
        for name in dict.fromkeys((*self.key, *_names(after))):
            new = _field(after, name)
            old = _field(before, name) if name in self.key else pa.nulls(len(before), new.type)
            if pa.types.is_null(new.type):
                new = new.cast(old.type)
            both = pa.concat_arrays([old.cast(new.type), new])
            found[name] = Column.from_arrow(both.take(pa.array(places)))
        return found

    def _rejected(
        self, records: Records, unknown: Mask, lacking: Mask, codes: pa.Array
    ) -> Sequence[Rejected]:
        rows = np.flatnonzero(unknown | lacking)
        if not rows.size:
            return ()
        found = []
        for row, record in zip(rows.tolist(), records.rows(rows, exact=True), strict=True):
            code = codes[row].as_py()
            if unknown[row]:
                known = ", ".join(map(repr, (*self.puts, *self.deletes)))
                reason, detail = UNKNOWN_OP, f"{self.op} is {code!r}, and {known} are known"
            else:
                name = self.before if code in self.deletes else self.after
                reason, detail = NO_ROW, f"{self.op} is {code!r}, and {name} is null"
            where = records.place(row) or _WHERE
            found.append((row, ErrorRecord(record, reason, detail, where)))
        return found


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
