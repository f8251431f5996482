"""The step that adds columns of a fixed table, found by a key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lowwater.engine.records.batch import Records
from lowwater.engine.records.columns import Column, Mask
from lowwater.engine.records.key_hash import hash_keys
from lowwater.engine.records.stepping import StepKind, Stepped
from lowwater.errors import InvalidArgument, StateError, nearest_column
from lowwater.time import Int64Array

LookupHow: TypeAlias = Literal["left", "inner"]
LOOKUP_HOWS: tuple[LookupHow, ...] = ("left", "inner")


@final
class FixedTable:
    """A table whose rows are found by a key, each key once.

    Args:
        keys: The key columns; those of a row are not null.
        columns: The other columns by name, each in one chunk.
        digest: What stands for its content; empty if that may change from run to run.
    """

    def __init__(self, keys: tuple[Column, ...], columns: dict[str, pa.Array], digest: str) -> None:
        self._keys = keys
        self.columns = columns
        self.digest = digest
        hashes = hash_keys(keys) if len(keys[0]) else np.zeros(0, dtype=np.uint64)
        self._rows = np.argsort(hashes, kind="stable").astype(np.int64)
        self._hashes = hashes[self._rows]

    def __reduce__(self) -> tuple[Any, ...]:
        return FixedTable, (self._keys, self.columns, self.digest)

    def __repr__(self) -> str:
        content = f"digest {self.digest}" if self.digest else "reloaded"
        return f"<table of {', '.join(self.columns)}: {content}>"

    def __len__(self) -> int:
        return len(self._rows)

    def duplicate(self) -> int | None:
        """Return a row whose key another one has, too; ``None`` if there is none."""
        same = np.flatnonzero(self._hashes[1:] == self._hashes[:-1])
        # Those of one hash are few, unless a key is there twice.
        rows = self._rows[np.unique(np.concatenate((same, same + 1)))]
        columns = [key.take(rows).to_list(exact=True) for key in self._keys]
        seen: set[tuple[Any, ...]] = set()
        for row, key in zip(rows.tolist(), zip(*columns, strict=True), strict=True):
            if key in seen:
                return int(row)
            seen.add(key)
        return None

    def find(self, keys: tuple[Column, ...]) -> Int64Array:
        """Return the row with each key, int64, -1 for none. O(n log rows).

        A null, and a value that cannot be a key, is equal to nothing.
        """
        count = len(keys[0])
        found = np.full(count, -1, dtype=np.int64)
        if not len(self) or not count:
            return found
        hashes, usable = _hashes_of(keys)
        place = np.searchsorted(self._hashes, hashes)
        # Several keys may have one hash; then the next places are tried, too.
        open_ = np.flatnonzero(usable & (place < len(self)))
        while open_.size:
            open_ = open_[self._hashes[place[open_]] == hashes[open_]]
            rows = self._rows[place[open_]]
            equal = _equal(keys, open_, self._keys, rows)
            found[open_[equal]] = rows[equal]
            open_ = open_[~equal]
            place[open_] += 1
            open_ = open_[place[open_] < len(self)]
        return found


def _hashes_of(keys: tuple[Column, ...]) -> tuple[NDArray[np.uint64], Mask]:
    """Return the hash of each key, and which of them can be one and have no null."""
    usable = np.ones(len(keys[0]), dtype=np.bool_)
    for key in keys:
        nulls = key.nulls()
        if nulls is not None:
            usable &= ~nulls
        if key.type is not None and pa.types.is_floating(key.type):
            usable &= ~np.isnan(key.data)
    try:
        return hash_keys(keys), usable
    except (StateError, TypeError):
        pass
    hashes = np.zeros(len(usable), dtype=np.uint64)
    for row in np.flatnonzero(usable).tolist():
        at = np.array([row], dtype=np.int64)
        try:
            hashes[row] = hash_keys([key.take(at) for key in keys])[0]
        except (StateError, TypeError):  # such as a list: no table has it as a key
            usable[row] = False
    return hashes, usable


def _equal(
    left: tuple[Column, ...], rows: Int64Array, right: tuple[Column, ...], others: Int64Array
) -> Mask:
    """Return which pairs of rows have the same key."""
    same = np.ones(len(rows), dtype=np.bool_)
    for mine, its in zip(left, right, strict=True):
        one, other = mine.take(rows), its.take(others)
        if one.type is not None and one.type == other.type:
            equal = pc.equal(one.to_arrow(), other.to_arrow()).fill_null(False)
            same &= equal.to_numpy(zero_copy_only=False)
        else:  # as Python does: 1, 1.0 and Decimal("1.00") are equal
            values = zip(one.to_list(exact=True), other.to_list(exact=True), strict=True)
            same &= np.fromiter((bool(a == b) for a, b in values), np.bool_, len(rows))
    return same


@final
@dataclass(frozen=True, slots=True)
class Lookup(StepKind):
    """Adds the columns of the row of a fixed table that has the record's key.

    Args:
        on: The columns of the records with the key.
        table: The table.
        how: Whether a record without such a row passes with nulls, or not at all.
    """

    on: tuple[str, ...]
    table: FixedTable
    how: LookupHow = "left"

    method: ClassVar[str] = "lookup"
    vectorised: ClassVar[bool] = True

    def text(self) -> str:
        how = "" if self.how == "left" else f", how={self.how!r}"
        on = self.on[0] if len(self.on) == 1 else list(self.on)
        return f"lookup({', '.join(self.table.columns)}, on={on!r}{how})"

    def names_after(self, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return None if names is None else tuple(dict.fromkeys((*names, *self.table.columns)))

    def apply(self, records: Records) -> Stepped:
        self._check_names(records)
        missing: dict[str, InvalidArgument] = {}
        keys = []
        for name in self.on:
            column = records.columns.get(name)
            if column is None:
                absent = InvalidArgument(
                    f"there is no column {name!r}",
                    where=self.method,
                    hint=nearest_column(name, records.names),
                )
                if not records.length or getattr(records.columns, "knows_names", False):
                    raise absent
                missing[name] = absent  # the column is taken to be null
                column = Column.from_arrow(pa.nulls(records.length))
            keys.append(column)
        rows = self.table.find(tuple(keys))
        if self.how == "left":
            return Stepped(self._with(records, rows), missing=missing)
        passed = np.flatnonzero(rows >= 0)
        left = self._with(records.take(passed), rows[passed])
        return Stepped(left, passed, filtered=records.length - len(passed), missing=missing)

    def _with(self, records: Records, rows: Int64Array) -> Records:
        places = pa.array(rows, mask=rows < 0)
        found = {
            name: Column.from_arrow(pc.take(column, places))
            for name, column in self.table.columns.items()
        }
        return records.replaced({**records.columns, **found})

    def _check_names(self, records: Records) -> None:
        """Raise if the records have a column of the table already."""
        for name in self.table.columns:
            if name in set(records.columns):
                raise name_taken(name)


def name_taken(name: str) -> InvalidArgument:
    """Return the error for a column that the records and the table have."""
    return InvalidArgument(
        f"the records have a column {name!r} already",
        where="lookup",
        hint="Rename it in the table, or leave it out of the table",
    )
