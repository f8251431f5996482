"""The records of a process in event-time order, while they wait for the watermark (S-K13)."""

from __future__ import annotations

from typing import Any, final

import numpy as np

from lowwater.engine.records.batch import HIDDEN
from lowwater.engine.records.columns import Column
from lowwater.engine.records.kept_records import KeptRecords
from lowwater.engine.records.key_hash import hash_keys
from lowwater.engine.records.steps import Bundle
from lowwater.engine.records.stored_records import StoredRecords
from lowwater.state.deadlines import Deadlines
from lowwater.state.journal import Journal
from lowwater.state.key_layout import StoredPlace
from lowwater.state.store import Batch, StateStore
from lowwater.state.table import Field, RowTable
from lowwater.time import END_OF_TIME, START_OF_TIME, Int64Array, saturating_add_array

_KEY = HIDDEN + "waiting_key"


@final
class WaitingRecords:
    """Whole records by event time, each in a row of a table.

    Columns of ``table``: ``start`` (the event time), ``nth`` (which input it came by), ``born``
    (rank of arrival), ``group`` (the key group, where they are stored).
    """

    def __init__(self) -> None:
        self.table = RowTable([Field(name, np.int64) for name in ("start", "nth", "born", "group")])
        self.kept = KeptRecords(self.table, {})
        self.births = 0
        self.journal: Journal | None = None
        self.place = StoredPlace("")
        self._dues = Deadlines()
        self._keys = 0

    def __len__(self) -> int:
        """Return how many records wait."""
        return len(self.table)

    @property
    def first_passed(self) -> int:
        """The watermark that passes the first of them; the end of time for none."""
        first = self._dues.first
        return first + 1 if first < END_OF_TIME else END_OF_TIME

    @property
    def last(self) -> int:
        """The time of the last of them; the start of time for none. O(n)."""
        times = self.table["start"][self.table.live()]
        return int(times.max()) if times.size else START_OF_TIME

    def put(self, bundle: Bundle, nth: int) -> None:
        """Have the elements of a bundle wait. Amortised O(n log n).

        Args:
            bundle: The elements; ``values`` are their columns.
            nth: Which input they came by.
        """
        rows = self.table.allocate(len(bundle))
        table = self.table
        table["start"][rows], table["nth"][rows] = bundle.times, nth
        table["born"][rows] = self.births + np.arange(len(rows))
        self.births += len(rows)
        self._keys = len(bundle.keys)
        keys = {f"{_KEY}{at}": key for at, key in enumerate(bundle.keys)}
        self.kept.put(rows, {**keys, **bundle.values})
        self._dues.push(bundle.times, rows)
        if self.journal is not None:
            table["group"][rows] = self._groups(bundle.keys, len(rows))
            self.journal.touch(rows)

    def take_before(self, watermark: int) -> Bundle | None:
        """Take out the elements that a watermark has passed; ``None`` if there are none.

        They come by time, at one time by input, and then as they arrived. O(n log n).
        """
        if self._dues.first >= watermark:
            return None
        times, rows = self._dues.pop(watermark - 1)
        table = self.table
        order = np.lexsort((table["born"][rows], table["nth"][rows], times))
        times, rows = times[order], rows[order]
        columns = self.kept.take(rows)
        keys = tuple(columns.pop(f"{_KEY}{at}") for at in range(self._keys))
        if self.journal is not None:
            self.journal.touch(rows)
        table.release(rows)
        return Bundle(times, keys, columns)

    def rebuild(self) -> None:
        """Rebuild what is not stored: the queue, and how many key columns there are."""
        rows = self.table.live()
        self._dues.push(self.table["start"][rows], rows)
        self._keys = sum(name.startswith(_KEY) for name in self.kept.names)

    def _groups(self, keys: tuple[Column, ...], number: int) -> Int64Array:
        place = self.place
        if place.count == 1:
            return np.full(number, place.first, dtype=np.int64)
        return (hash_keys(list(keys)) % np.uint64(place.count)).astype(np.int64) + place.first


@final
class StoredWaiting:
    """The durable form of waiting records.

    Args:
        waiting: The records; none yet.
        place: Where they are stored.
        tag: Tag of their blocks in the store; the next one is that of deletions.
    """

    def __init__(self, waiting: WaitingRecords, place: StoredPlace, tag: int) -> None:
        table = waiting.table
        self._waiting = waiting
        self._rows = StoredRecords(
            table,
            waiting.kept,
            place,
            tag,
            groups=lambda rows: table["group"][rows],
            due=lambda rows: saturating_add_array(table["start"][rows], 1),
        )
        waiting.journal, waiting.place = self._rows.journal, place

    def write(self, batch: Batch, watermark: int) -> dict[str, Any]:
        """Add what changed since the last time to a batch; return what :meth:`load` needs."""
        self._rows.write(batch, watermark)
        return {"births": self._waiting.births, **self._rows.record()}

    def load(self, store: StateStore, record: dict[str, Any], watermark: int) -> None:
        """Have the records wait that were stored.

        Raises:
            StateError: What is stored is damaged.
        """
        self._waiting.births = record["births"]
        self._rows.load(store, record, watermark, "the waiting records of a process")
        self._waiting.rebuild()
