"""Records that an operator keeps, found by key and time, such as those of a side of a join."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lowwater.engine.aggregates import AggregateSpec
from lowwater.engine.keyed.row_counts import RowCounts
from lowwater.engine.records.columns import Column, type_from_bytes, type_to_bytes
from lowwater.engine.records.kept_records import KeptRecords
from lowwater.engine.window.aggregation import Aggregation
from lowwater.kernels import kernels
from lowwater.state.arrays import NONE, Scratch, run_starts
from lowwater.state.bag import Bag
from lowwater.state.deadlines import Deadlines
from lowwater.state.journal import Journal
from lowwater.state.segments import Segments
from lowwater.state.table import Field, Index, RowTable
from lowwater.time import Int64Array

_STALE = 1 << 16
_PLACED = ("key", "start", "born")
"""The columns that every record has."""


@final
class KeyedRecords:
    """Rows in a table, found by key and time.

    Columns of ``table``: ``key`` (id), ``start`` (the event time), ``born`` (rank of arrival); for
    an input with retractions ``hash`` (of the record); and those that its user adds. ``by_time``
    has an entry for each row, and ``row_counts`` counts those of each key.

    Where no two rows of a key are equal, an index finds them by ``hash``; ``start`` is then what
    its user sorts the rows of a key by, and ``by_time`` is empty.

    Args:
        types: The columns of the records, as far as they are known before any has come.
        fields: Further columns of the table.
        signed: Whether records may be retracted.
        unique: Whether rows of a key are distinct, and found by their hashes.
        found_by_key: Whether rows are found by key at all; if not, :meth:`find` and ``segments``
            are of no use.
        aggregates: What is aggregated in each row, in columns of the table; ``None`` for nothing.
    """

    def __init__(
        self,
        types: Mapping[str, pa.DataType | None],
        fields: Sequence[Field] = (),
        *,
        signed: bool = False,
        unique: bool = False,
        found_by_key: bool = True,
        aggregates: Mapping[str, AggregateSpec] | None = None,
    ) -> None:
        own = [Field(name, np.int64) for name in _PLACED]
        if signed or unique:
            own.append(Field("hash", np.int64))
        self.table = RowTable([*own, *fields])
        self._index = Index(self.table, ("key", "hash")) if unique else None
        self.kept = KeptRecords(self.table, types)
        self.aggregation = Aggregation(aggregates or {}, self.table)
        self.segments = Segments(self.table, disjoint=True, end="start")
        self._found_by_key = found_by_key
        self.births = 0
        self.by_time = Deadlines()
        self.journal: Journal | None = None
        self.row_counts = RowCounts()
        self._gone: list[Int64Array] = []
        self._scratch = Scratch()

    def __len__(self) -> int:
        """Return how many records there are."""
        return len(self.table)

    def insert(
        self,
        keys: Int64Array,
        times: Int64Array,
        columns: Mapping[str, Column],
        hashes: Int64Array | None,
    ) -> Int64Array:
        """Add records; return their rows. Amortised O(n log n)."""
        table = self.table
        rows = table.allocate(len(keys), _PLACED)
        table["key"][rows], table["start"][rows] = keys, times
        table["born"][rows] = self.births + np.arange(len(rows))
        self.births += len(rows)
        if hashes is not None:
            table["hash"][rows] = hashes
        self.kept.put(rows, columns)
        self._find_again(rows, keys, times)
        self.touch(rows)
        return rows

    def equal_to(self, keys: Int64Array, hashes: Int64Array) -> Int64Array:
        """Return the unique row of each hash among those of its key, -1 for none. O(n)."""
        assert self._index is not None
        return self._index.find(keys, hashes)

    def move(self, rows: Int64Array, starts: Int64Array) -> None:
        """Sort distinct rows of unique ones elsewhere among those of their keys."""
        if rows.size:
            self.segments.remove(rows)
            self.table["start"][rows] = starts
            self.segments.insert(rows)
            self.touch(rows)

    def find(
        self, keys: Int64Array, low: Int64Array, high: Int64Array
    ) -> tuple[Int64Array, Int64Array]:
        """Return the rows of each key between two instants, both included.

        Returns:
            The rows by time and arrival, and for which place of ``keys`` each is, rising.
        """
        return self.segments.overlapping(keys, low, high, touching=True)

    def equal_rows(
        self, keys: Int64Array, times: Int64Array, hashes: Int64Array, *, newest: bool = False
    ) -> Int64Array:
        """Return a row for each record that equals it, -1 where there is none; each row once.

        Args:
            keys: Their keys.
            times: Their event times.
            hashes: Hashes of them.
            newest: Whether the last of several equal rows to arrive is taken, not the first.
        """
        rows, which = self.find(keys, times, times)
        same = self.table["hash"][rows] == hashes[which]
        rows, which = rows[same], which[same]
        found = np.full(len(keys), -1, dtype=np.int64)
        if not rows.size:
            return found
        order = np.lexsort((hashes, times, keys))
        rank = np.empty(len(keys), dtype=np.int64)
        rank[order] = _places(run_starts(keys[order], times[order], hashes[order]))
        place = _places(run_starts(which))
        if newest:
            place = np.bincount(which, minlength=len(keys))[which] - 1 - place
        chosen = place == rank[which]
        found[which[chosen]] = rows[chosen]
        return found

    def retime(self, rows: Int64Array, times: Int64Array) -> None:
        """Give rows, of keys that have no others, another time. O(rows)."""
        later = times > self.table["start"][rows]
        rows, times = rows[later], times[later]
        self.table["start"][rows] = times
        self.by_time.push(times, rows)
        self.touch(rows)

    def count(self, rows: Int64Array, column: str, by: int) -> Int64Array:
        """Add to a column, once for each time a row is given; return the distinct rows."""
        own, place = self._scratch.unique(rows, self.table.capacity)
        self.table[column][own] += by * np.bincount(place, minlength=len(own))
        self.touch(own)
        return own

    def is_row(
        self, times: Int64Array, rows: Int64Array, column: str = "start"
    ) -> NDArray[np.bool_]:
        """Return which entries of a queue by a column still stand for a row."""
        found: NDArray[np.bool_] = self.table.alive(rows) & (self.table[column][rows] == times)
        return found

    def take_due(self, queue: Deadlines, upto: int, column: str = "start") -> Int64Array:
        """Remove and return the rows of a queue up to an instant, by time and arrival.

        Args:
            queue: The queue.
            upto: The instant.
            column: What the queue is by. Rows come in its order, then by time and arrival.
        """
        rows = self.take_all_due(queue, upto, column)
        if not rows.size:
            return rows
        born, times = (self.table[name][rows] for name in ("born", "start"))
        rows = rows[_by_time_and_arrival(times, born)]
        return rows if column == "start" else rows[kernels().argsort(self.table[column][rows])]

    def take_all_due(self, queue: Deadlines, upto: int, column: str = "start") -> Int64Array:
        """Remove and return the rows of a queue up to an instant as :meth:`take_due`, unordered."""
        if queue.first > upto:
            return NONE
        times, rows = queue.pop(upto)
        rows = rows[self.is_row(times, rows, column)]
        return self._scratch.unique(rows, self.table.capacity)[0]

    def among(self, rows: Int64Array, some: Int64Array) -> NDArray[np.bool_]:
        """Return which rows are among some others. O(both)."""
        return self._scratch.among(rows, some, self.table.capacity)

    def remove(self, rows: Int64Array) -> None:
        """Hide distinct records from lookups; :meth:`release_removed` frees their rows."""
        if rows.size:
            self._lose(rows)
            self._gone.append(rows)

    def remove_but_last(self, keys: Int64Array, upto: Int64Array) -> None:
        """Remove the records at or before an instant of distinct keys, but for each key's last."""
        rows = self.segments.cut(keys, upto)
        if rows.size:
            self._gone.append(rows)

    def clear(self) -> None:
        """Remove all records that are not removed yet."""
        rows = self.table.live()
        self.remove(np.setdiff1d(rows, np.concatenate(self._gone)) if self._gone else rows)

    def release_removed(self) -> None:
        """Free the rows of removed records, of which nothing is to be read any more."""
        for rows in self._gone:
            self._release(rows)
        self._gone = []

    def bags(self) -> Mapping[str, Bag]:
        """Return the bags of the aggregates."""
        return self.aggregation.bags()

    def kinds(self) -> dict[str, Any]:
        """Return what :meth:`expect` needs to know."""
        return {
            "records": self.kept.kinds(),
            "aggregates": self.aggregation.bindings(type_to_bytes),
        }

    def expect(self, known: Mapping[str, Any]) -> None:
        """Create the columns that existed when rows were stored; the table is empty.

        Raises:
            StateError: A type cannot be read.
        """
        self.kept.expect(known["records"])
        self.aggregation.rebind(known["aggregates"], type_from_bytes)

    def note_changes(self, changed: Callable[[Int64Array], None]) -> None:
        """Report rows whose stored form is out of date, because their column was converted."""
        self.kept.note_changes(changed)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the records take, about."""
        rows = len(self.table) * self.table.row_bytes
        return rows + self.row_counts.nbytes + self.aggregation.nbytes

    def touch(self, rows: Int64Array) -> None:
        """Note that rows, distinct ones, changed."""
        if self.journal is not None:
            self.journal.touch(rows)

    def tidy(self, *queues: Deadlines, column: str = "start") -> None:
        """Drop stale entries of its queue and of others, of those in which most are stale.

        Args:
            queues: The others.
            column: What these are by.
        """
        most = 2 * len(self.table) + _STALE
        if len(self.by_time) > most:
            self.by_time.retain(self.is_row)
        for queue in queues:
            if len(queue) > most:
                queue.retain(partial(self.is_row, column=column))

    def evict(self, rows: Int64Array) -> None:
        """Release rows that have been written down, with all other rows of their keys."""
        if rows.size:
            self._lose(rows)
            self._release(rows)

    def readmit(self, rows: Int64Array) -> None:
        """Index rows again that were evicted and have been filled since.

        Args:
            rows: The rows; those of a key and time by arrival.
        """
        self._find_again(rows, self.table["key"][rows], self.table["start"][rows])
        self.touch(rows)

    def rebuild(self) -> Int64Array:
        """Rebuild what is not stored: how rows are found; return the distinct rows."""
        rows = self.table.live()
        rows = rows[kernels().argsort(self.table["born"][rows])]
        self._find_again(rows, self.table["key"][rows], self.table["start"][rows])
        return rows

    def _find_again(self, rows: Int64Array, keys: Int64Array, times: Int64Array) -> None:
        if self._found_by_key:
            self.segments.insert(rows)
        if self._index is None:
            self.by_time.push(times, rows)
        else:
            self._index.insert(rows)
        self.row_counts.add(keys)

    def _lose(self, rows: Int64Array) -> None:
        """Hide rows from lookups."""
        if self._found_by_key:
            self.segments.remove(rows)
        if self._index is not None:
            self._index.remove(rows)

    def _release(self, rows: Int64Array) -> None:
        keys = self.table["key"][rows]
        self.touch(rows)
        self.aggregation.release(rows)
        self.table.release(rows)
        self.row_counts.remove(keys)

    def _check(self) -> None:
        """Assert what must hold between rows, keys and how they are found. O(rows)."""
        self.table._check()
        self.segments._check()
        if self._index is not None:
            self._index._check()
            assert len(self._index) == len(self.segments)
        rows = self.table.live()
        assert len(self.segments) == (len(rows) if self._found_by_key else 0)
        self.row_counts._check(self.table["key"][rows])
        assert not self._gone


def _by_time_and_arrival(times: Int64Array, born: Int64Array) -> Int64Array:
    """Return the order that sorts by time and arrival.

    Those of one time mostly come by arrival: then a stable sort by time does it.
    """
    order = kernels().argsort(times)
    sorted_times, sorted_born = times[order], born[order]
    same = sorted_times[1:] == sorted_times[:-1]
    if (same & (sorted_born[1:] < sorted_born[:-1])).any():
        return np.lexsort((born, times))
    return order


def _places(begins: NDArray[Any]) -> Int64Array:
    """Return the place of each element in its run, from 0."""
    at = np.arange(len(begins), dtype=np.int64)
    return at - np.maximum.accumulate(np.where(begins, at, 0))
