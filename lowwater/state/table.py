"""Rows of state as a struct of arrays, with an index that finds them by value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from lowwater.errors import InternalError
from lowwater.kernels import kernels
from lowwater.kernels.plain import DELETED, EMPTY
from lowwater.state.arrays import object_bytes
from lowwater.time import Int64Array

_SMALLEST = 64
_AT_ONCE = 65_536  # tuples that an index makes room for
_FINDING = 64  # bytes of what finds a row: index, queues, journal


@final
@dataclass(frozen=True, slots=True)
class Field:
    """A column of a table.

    Args:
        name: Unique within the table.
        dtype: numpy dtype.
        fill: What a new row holds.
    """

    name: str
    dtype: DTypeLike
    fill: Any = 0


@final
class RowTable:
    """A struct of arrays whose rows are allocated, released and used again.

    ``columns`` maps a name to its array, indexed by row; arrays are replaced when the table grows,
    so they are looked up again in each step. Rows that are not live hold anything. ``fields`` says
    what the columns are, in the order they were added: another tuple once they have changed.
    ``capacity`` is how many rows there is room for, ``top`` one more than the highest row that was
    ever live.
    """

    def __init__(self, fields: Sequence[Field]) -> None:
        self.fields = tuple(fields)
        self.capacity = _SMALLEST
        self.top = 0
        self._free: Int64Array = np.empty(_SMALLEST, dtype=np.int64)
        self._free_count = 0
        self._alive = np.zeros(_SMALLEST, dtype=np.bool_)
        self.columns: dict[str, NDArray[Any]] = {
            field.name: np.empty(_SMALLEST, dtype=field.dtype) for field in fields
        }

    def __len__(self) -> int:
        """Return the number of live rows."""
        return self.top - self._free_count

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.columns[name]

    def allocate(self, count: int, written: Sequence[str] = ()) -> Int64Array:
        """Return ``count`` rows, their columns filled. Amortised O(count).

        Args:
            count: How many.
            written: Columns that the caller writes for all of them, so that they need no fill.
        """
        reused = min(count, self._free_count)
        self._free_count -= reused
        rows = self._free[self._free_count : self._free_count + reused]
        if count > reused:
            top = self.top + count - reused
            if top > self.capacity:
                self._grow(top)
            fresh = np.arange(self.top, top, dtype=np.int64)
            rows = np.concatenate((rows, fresh)) if reused else fresh
            self.top = top
        else:
            rows = rows.copy()
        for field in self.fields:
            if field.name not in written:
                self.columns[field.name][rows] = field.fill
        self._alive[rows] = True
        return rows

    def reserve(self, capacity: int) -> None:
        """Allocate room for n rows, so that filling the table part by part copies nothing."""
        if capacity > self.capacity:
            self._grow(capacity)

    def restore(self, rows: Int64Array) -> None:
        """Make an empty table have just these live rows, filled; distinct and rising."""
        self.prepare(rows)
        self.restore_prepared()

    def prepare(self, rows: Int64Array, written: frozenset[str] = frozenset()) -> None:
        """Make rows, distinct ones, live and filled; :meth:`restore_prepared` comes last.

        Args:
            rows: The rows.
            written: Columns that the caller writes for all rows, so that they need no fill.
        """
        top = int(rows.max(initial=-1)) + 1
        if top > self.capacity:
            self._grow(max(top, 2 * self.capacity))
        if top > self.top:
            for field in self.fields:  # whole stretches: scattered rows would take longer
                if field.name not in written:
                    self.columns[field.name][self.top : top] = field.fill
            self.top = top
        self._alive[rows] = True

    def restore_prepared(self) -> Int64Array:
        """Free all rows that are not live; return the live ones, rising."""
        self._free = np.flatnonzero(~self._alive[: self.top])[::-1].copy()
        self._free_count = len(self._free)
        return self.live()

    def alive(self, rows: Int64Array) -> NDArray[np.bool_]:
        """Return which of some rows are live."""
        return self._alive[rows]

    def reset(self, rows: Int64Array, names: Sequence[str] | None = None) -> None:
        """Write every column's (or the named columns') fill into rows."""
        for field in self.fields:
            if names is None or field.name in names:
                self.columns[field.name][rows] = field.fill

    def release(self, rows: Int64Array) -> None:
        """Give rows back; each must be live and given once."""
        need = self._free_count + len(rows)
        if need > len(self._free):
            room = np.empty(max(need, 2 * len(self._free)), dtype=np.int64)
            room[: self._free_count] = self._free[: self._free_count]
            self._free = room
        self._free[self._free_count : need] = rows
        self._free_count = need
        self._alive[rows] = False
        for field in self.fields:
            if np.dtype(field.dtype) == object:
                self.columns[field.name][rows] = None

    def live(self) -> Int64Array:
        """Return all live rows, rising. O(capacity): for housekeeping, not for steps."""
        return np.flatnonzero(self._alive[: self.top])

    @property
    def row_bytes(self) -> int:
        """About how many bytes a row takes: its columns, room to grow, and what finds it."""
        columns = sum(np.dtype(field.dtype).itemsize for field in self.fields)
        objects = sum(
            object_bytes(self.columns[field.name][: self.top])
            for field in self.fields
            if np.dtype(field.dtype).kind == "O"
        )
        return columns + columns // 2 + int(objects) + _FINDING

    def retype(self, name: str, dtype: DTypeLike, fill: Any) -> None:
        """Change a column's dtype; between numbers, rows that hold the old fill get the new one."""
        for at, field in enumerate(self.fields):
            if field.name == name:
                old = self.columns[name]
                with np.errstate(invalid="ignore"):  # what stands for nothing may not fit
                    new = old.astype(dtype)
                if object not in (old.dtype, new.dtype):
                    new[old == field.fill] = fill
                self.columns[name] = new
                changed = Field(name, dtype, fill)
                self.fields = (*self.fields[:at], changed, *self.fields[at + 1 :])
                return
        raise InternalError(f"no column {name!r} to retype")

    def add_field(self, field: Field) -> None:
        """Add a column; live rows hold its fill."""
        self.fields = (*self.fields, field)
        column = np.empty(self.capacity, dtype=field.dtype)
        column[: self.top] = field.fill
        self.columns[field.name] = column

    def _check(self) -> None:
        """Assert every invariant; print the structure if one does not hold. O(capacity)."""
        free, alive = self._free[: self._free_count], self._alive
        try:
            assert 0 <= self._free_count <= self.top <= self.capacity
            assert len(alive) == self.capacity
            assert not alive[self.top :].any()
            assert int(alive.sum()) == len(self)
            assert len(np.unique(free)) == len(free)
            assert ((free >= 0) & (free < self.top)).all()
            assert not alive[free].any()
            assert [field.name for field in self.fields] == list(self.columns)
            for field in self.fields:
                column = self.columns[field.name]
                assert len(column) == self.capacity, field.name
                assert column.dtype == np.dtype(field.dtype), field.name
        except AssertionError:
            print(f"RowTable: top={self.top} capacity={self.capacity} free={free.tolist()}")
            print(f"live={self.live().tolist()} fields={self.fields}")
            raise

    def _grow(self, need: int) -> None:
        self.capacity = max(need, self.capacity + self.capacity // 2)
        alive = np.zeros(self.capacity, dtype=np.bool_)
        alive[: self.top] = self._alive[: self.top]
        self._alive = alive
        for name, old in self.columns.items():
            new = np.empty(self.capacity, dtype=old.dtype)
            new[: self.top] = old[: self.top]
            self.columns[name] = new


@final
class Index:
    """Finds the rows of a table by the values of some int64 columns: open addressing, vectorised.

    A slot holds a row number, or says that it is empty or deleted; the values compared are the
    table's own. At most half of the slots are in use, so a probe is O(1) expected.
    """

    def __init__(self, table: RowTable, on: Sequence[str]) -> None:
        self._table = table
        self._on = tuple(on)
        self._slots = np.full(2 * _SMALLEST, EMPTY, dtype=np.int32)
        self._used = 0
        self._live = 0
        self._slot_name = "slot:" + "+".join(on)
        table.add_field(Field(self._slot_name, np.int32, EMPTY))

    def __len__(self) -> int:
        return self._live

    def find(self, *values: Int64Array) -> Int64Array:
        """Return the row of each tuple of values, -1 where there is none. O(n) expected."""
        if not self._live:
            return np.full(len(values[0]), EMPTY, dtype=np.int64)
        return kernels().find(self._slots, self._columns(), values)

    def find_or_insert(self, *values: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return the row of each tuple of values, and those rows that are new.

        New rows are allocated in the table, their indexed columns set. Equal tuples share a row.
        Amortised O(n) expected.
        """
        count = len(values[0])
        if count > _AT_ONCE:
            # Room for all at once would make the index several times as large as what it holds,
            # where most are here already.
            parts = [
                self.find_or_insert(*(value[first : first + _AT_ONCE] for value in values))
                for first in range(0, count, _AT_ONCE)
            ]
            every, fresh = zip(*parts, strict=True)
            return np.concatenate(every), np.concatenate(fresh)
        self._reserve(count)
        found = kernels().find_or_claim(self._slots, self._columns(), values)
        rows, first, slot = found.rows, found.at, found.slot
        if not first.size:
            return rows, first
        new = self._table.allocate(len(first), (*self._on, self._slot_name))
        for name, value in zip(self._on, values, strict=True):
            self._table[name][new] = value[first]
        self._slots[slot] = new.astype(np.int32)
        self._table[self._slot_name][new] = slot.astype(np.int32)
        self._used += len(first)
        self._live += len(first)
        rows[found.missing] = new[found.which]
        return rows, new

    def insert(self, rows: Int64Array) -> None:
        """Index rows whose columns are set; none equal to another or to one already here."""
        self._reserve(len(rows))
        self._place(rows)
        self._used += len(rows)
        self._live += len(rows)

    def remove(self, rows: Int64Array) -> None:
        """Forget rows; each must be here."""
        slot = self._table[self._slot_name][rows]
        self._slots[slot] = DELETED
        self._live -= len(rows)

    def _check(self) -> None:
        """Assert every invariant; print the structure if one does not hold. O(slots)."""
        slots, on = self._slots, [self._table[name] for name in self._on]
        place = np.flatnonzero(slots >= 0)
        rows = slots[place].astype(np.int64)
        try:
            assert len(slots).bit_count() == 1
            assert 2 * self._used <= len(slots)
            assert slots.min() >= DELETED  # no claim of an insertion is left
            assert np.count_nonzero(slots != EMPTY) == self._used
            assert len(rows) == len(np.unique(rows)) == self._live
            assert self._table.alive(rows).all()
            assert (self._table[self._slot_name][rows] == place).all()
            # Each row is found by its values: nothing empty is in the way, and no other equals it.
            assert (self.find(*(column[rows] for column in on)) == rows).all()
        except AssertionError:
            print(f"Index on {self._on}: used={self._used} live={self._live}")
            print("slot, row, values:", place, rows, [column[rows] for column in on])
            raise

    def _columns(self) -> list[Int64Array]:
        columns = self._table.columns
        return [columns[name] for name in self._on]

    def _reserve(self, count: int) -> None:
        if 2 * (self._used + count) <= len(self._slots):
            return
        size = len(self._slots)
        while size < 3 * (self._live + count):
            size *= 2
        keep = self._slots[self._slots >= 0].astype(np.int64)
        self._slots = np.full(size, EMPTY, dtype=np.int32)
        self._place(keep)
        self._used = self._live = len(keep)

    def _place(self, rows: Int64Array) -> None:
        slot = kernels().place(self._slots, self._columns(), rows)
        self._table[self._slot_name][rows] = slot
