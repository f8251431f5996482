"""The state of a vectorised process: a row per key (and window); cells and timers are columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import final

import numpy as np

from lowwater.engine.keyed.row_counts import RowCounts
from lowwater.engine.process.declarations import Cell, Timer
from lowwater.engine.records.columns import Column, Mask
from lowwater.engine.records.keys import KeyDictionary
from lowwater.errors import InternalError, InvalidArgument
from lowwater.kernels import kernels
from lowwater.state.arrays import NONE, Scratch
from lowwater.state.journal import Journal
from lowwater.state.table import Field, Index, RowTable
from lowwater.time import END_OF_TIME, START_OF_TIME, Int64Array

UNSET = START_OF_TIME
"""The time of a timer that is not set."""
NO_HOLD = END_OF_TIME
_GARBAGE = 1 << 16
_RECENT = 8


@final
class ColumnState:
    """Rows by key, or by key and window.

    Columns of ``table``: ``key`` (id), ``start``, ``end`` (0 without windows), ``born`` (rank in
    the order in which rows came to be); ``cell:NAME``; ``time:NAME`` and ``hold:NAME`` of timers.

    Args:
        place: The process, in words.
        cells: The cells it declares, each with a dtype.
        timers: The timers it declares.
        windowed: Whether there are windows.
    """

    def __init__(
        self, place: str, cells: Mapping[str, Cell], timers: Mapping[str, Timer], *, windowed: bool
    ) -> None:
        self.windowed = windowed
        self._place = place
        fields = [Field(name, np.int64) for name in ("key", "start", "end", "born")]
        self._empty = {f"cell:{name}": cell.default for name, cell in cells.items()}
        fields += [
            Field(f"cell:{name}", np.dtype(cell.dtype), cell.default)
            for name, cell in cells.items()
        ]
        self.timers = [f"time:{name}" for name in timers]
        for name in timers:
            fields += [Field(f"time:{name}", np.int64, UNSET)]
            fields += [Field(f"hold:{name}", np.int64, NO_HOLD)]
        self.table = RowTable(fields)
        self.index = Index(self.table, ("key", "start", "end") if windowed else ("key",))
        self.keys: KeyDictionary | None = None
        self.births = 0
        self.journal: Journal | None = None
        self.on_forgetting: Callable[[Mask], None] | None = None
        self.row_counts = RowCounts()
        self._touched: list[Int64Array] = []
        self.scratch = Scratch()

    def encode(self, columns: tuple[Column, ...]) -> Int64Array:
        """Return the key id of each element."""
        if self.keys is None:
            self.keys = KeyDictionary(len(columns))
        return self.keys.encode(columns)

    def rows(
        self, keys: Int64Array, start: Int64Array | None, end: Int64Array | None
    ) -> tuple[Int64Array, Int64Array]:
        """Return each element's row, and the rows that are new. O(n) expected."""
        values = (keys,) if start is None or end is None else (keys, start, end)
        rows, new = self.index.find_or_insert(*values)
        if new.size:
            # In order of first element: the order in which the index allocates depends on probing.
            first, _ = self.scratch.unique(rows, self.table.capacity)
            fresh = np.zeros(self.table.capacity, dtype=np.bool_)
            fresh[new] = True
            new = first[fresh[first]]
            self.table["born"][new] = self.births + np.arange(len(new))
            self.births += len(new)
            self.row_counts.add(self.table["key"][new])
        self.touch(rows)
        return rows, new

    def touch(self, rows: Int64Array) -> None:
        """Record that rows change in this step; they may be given several times."""
        if not any(rows is each for each in self._touched[-_RECENT:]):
            self._touched.append(rows)

    def touched(self) -> Int64Array:
        """Return the distinct rows touched since the last time."""
        if not self._touched:
            return NONE
        every = self._touched[0] if len(self._touched) == 1 else np.concatenate(self._touched)
        self._touched = []
        rows = self.scratch.unique(every, self.table.capacity)[0] if every.size else NONE
        if self.journal is not None:
            self.journal.touch(rows)
        return rows

    def check(self, ids: object) -> Int64Array:
        """Return ids that a hook gave as an array.

        Raises:
            InvalidArgument: They are not ids of keys that it was given.
        """
        rows = np.asarray(ids)
        sound = rows.ndim == 1 and (rows.dtype in (np.int64, np.intp) or not rows.size)
        if sound and rows.size:
            sound = int(rows.min()) >= 0 and int(rows.max()) < self.table.top
            sound = sound and bool(self.table.alive(rows).all())
        if not sound:
            raise InvalidArgument(
                f"ids={rows!r} are not ids of keys that the hook was given",
                where=self._place,
                hint="Use batch.ids, or a part of it such as batch.ids[mask]",
            )
        return rows.astype(np.int64, copy=False)

    def is_empty(self, rows: Int64Array) -> Mask:
        """Return which rows have neither a cell that differs from its default nor a timer."""
        empty = np.ones(len(rows), dtype=np.bool_)
        for name, default in self._empty.items():
            column = self.table[name][rows]
            empty &= np.isnan(column) if default != default else column == default
        for name in self.timers:
            empty &= self.table[name][rows] == UNSET
        return empty

    def release(self, rows: Int64Array) -> None:
        """Release distinct live rows."""
        if not rows.size:
            return
        keys = self.table["key"][rows]
        self.index.remove(rows)
        for name in self.timers:
            self.table[name][rows] = UNSET  # so that no stale entry looks valid
            self.table[name.replace("time:", "hold:")][rows] = NO_HOLD
        if self.journal is not None:
            self.journal.touch(rows)
        self.table.release(rows)
        self.row_counts.remove(keys)

    def by_birth(self, rows: Int64Array) -> Int64Array:
        """Return rows in the order in which they came to be."""
        return rows[kernels().argsort(self.table["born"][rows])]

    def decode(self, keys: Int64Array) -> tuple[Column, ...]:
        """Return the key columns of key ids."""
        if self.keys is None:
            raise InternalError("a key was asked for before any was seen")
        return self.keys.decode(keys)

    def forget_keys(self) -> None:
        """Recycle the ids of keys without a row, once most have none. Amortised."""
        if self.keys is None or len(self.keys) <= 2 * len(self.table) + _GARBAGE:
            return
        kept = self.row_counts.of(np.arange(self.keys.capacity)) > 0
        if self.on_forgetting is not None:
            self.on_forgetting(kept)
        self.keys.retain(kept)

    def rebuild(self, rows: Int64Array) -> None:
        """Rebuild what is not stored: how rows are found, and what is counted per key."""
        self.row_counts.add(self.table["key"][rows])
        self.index.insert(rows)
