"""The records of a process in event-time order, while they wait for the watermark (S-K13)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from lowwater.engine.keyed.rows import StoredRows
from lowwater.engine.records.batch import HIDDEN
from lowwater.engine.records.columns import Column
from lowwater.engine.records.kept_records import KeptRecords
from lowwater.engine.records.key_hash import hash_keys
from lowwater.engine.records.steps import Bundle, PlainRecords
from lowwater.state.deadlines import Deadlines
from lowwater.state.journal import Journal
from lowwater.state.key_layout import StoredPlace
from lowwater.state.store import Batch, StateStore
from lowwater.state.table import Field, RowTable
from lowwater.time import END_OF_TIME, START_OF_TIME, Int64Array, saturating_add_array

_KEY = HIDDEN + "waiting_key"
_NAMES = HIDDEN + "waiting_names"


@final
@dataclass(frozen=True, slots=True)
class PassedRecords:
    """Records that have waited, in order.

    Records of several bundles need not have the same columns. Each has those that it came with.

    Args:
        bundle: The records; a column that one of them does not have is null there.
        names: Which columns there are together.
        which: Of those, which each record has, int64.
    """

    bundle: Bundle
    names: Sequence[tuple[str, ...]]
    which: Int64Array

    def __len__(self) -> int:
        """Return how many records there are."""
        return len(self.which)

    def slice(self, start: int, stop: int) -> PassedRecords:
        """Return records ``start`` to ``stop`` (exclusive) without copying."""
        bundle, which = self.bundle.slice(start, stop), self.which[start:stop]
        return PassedRecords(bundle, self.names, which)

    def take(self, rows: Int64Array) -> Bundle:
        """Return some of the records, with the columns that any of them has."""
        some, names = self.bundle.take(rows), _together(self.names, self.which[rows])
        return Bundle(some.times, some.keys, {name: some.values[name] for name in names})

    def plain(self, columns: Sequence[str] | None) -> PlainRecords:
        """Return the records as hooks get them.

        Args:
            columns: The columns that all of them have; ``None``: those that they came with.
        """
        if columns is not None or len(self.names) == 1:
            return PlainRecords.of(self.bundle, self.names[0] if columns is None else columns)
        plain = PlainRecords.of(self.bundle, None)
        pairs = zip(plain.records, self.which.tolist(), strict=True)
        records = [{name: each[name] for name in self.names[at]} for each, at in pairs]
        return replace(plain, records=records)

    @staticmethod
    def of_parts(parts: Sequence[PassedRecords]) -> PassedRecords:
        """Return the records of several parts in one order: by time, then part, then as they are.

        Args:
            parts: Those of each part, in the order of the parts, at least one.
        """
        if len(parts) == 1:
            return parts[0]
        number = {
            name: at for at, name in enumerate(dict.fromkeys(n for p in parts for n in p.names))
        }
        bundle = Bundle.concat([part.bundle for part in parts])
        which = np.concatenate(
            [np.array([number[name] for name in part.names])[part.which] for part in parts]
        )
        order = np.argsort(bundle.times, kind="stable")
        return PassedRecords(bundle.take(order), list(number), which[order])


@final
class WaitingRecords:
    """Whole records by event time, each in a row of a table.

    Columns of ``table``: ``start`` (the event time), ``nth`` (which input it came by), ``born``
    (rank of arrival), ``group`` (the key group, where they are stored). ``names`` are the columns
    that records came with; which of these is a hidden column of each, where it is not the first.
    """

    def __init__(self) -> None:
        self.table = RowTable([Field(name, np.int64) for name in ("start", "nth", "born", "group")])
        self.kept = KeptRecords(self.table, {})
        self.births = 0
        self.names: list[tuple[str, ...]] = []
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
        """Queue the elements of a bundle. Amortised O(n log n).

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
        if len(self) == len(rows):
            self.names = []
        names = tuple(bundle.values)
        if names not in self.names:
            self.names.append(names)
        columns = {f"{_KEY}{at}": key for at, key in enumerate(bundle.keys)}
        columns.update(bundle.values)
        if which := self.names.index(names):
            columns[_NAMES] = Column(np.full(len(rows), which, dtype=np.int64))
        self.kept.put(rows, columns)
        self._dues.push(bundle.times, rows)
        if self.journal is not None:
            table["group"][rows] = self._groups(bundle.keys, len(rows))
            self.journal.touch(rows)

    def take_before(self, watermark: int) -> PassedRecords | None:
        """Remove and return the elements that a watermark has passed; ``None`` if there are none.

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
        which = np.zeros(len(rows), dtype=np.int64)
        if (said := columns.pop(_NAMES, None)) is not None:
            nulls = said.nulls()
            which = said.data.astype(np.int64) if nulls is None else np.where(nulls, 0, said.data)
            which = which.astype(np.int64)
        used = np.unique(which)
        names = [self.names[at] for at in used.tolist()]
        values = {name: columns[name] for name in _together(self.names, which)}
        if self.journal is not None:
            self.journal.touch(rows)
        table.release(rows)
        return PassedRecords(Bundle(times, keys, values), names, np.searchsorted(used, which))

    def rebuild(self) -> None:
        """Rebuild what is not stored: the queue, and how many key columns there are."""
        rows = self.table.live()
        self._dues.push(self.table["start"][rows], rows)
        self._keys = sum(name.startswith(_KEY) for name in self.kept.names)
        if not self.names and len(self):
            self.names = [tuple(name for name in self.kept.names if not name.startswith(HIDDEN))]

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
        self._rows = StoredRows(
            table,
            place,
            tag,
            "the waiting records of a process",
            groups=lambda rows: table["group"][rows],
            due=lambda rows: saturating_add_array(table["start"][rows], 1),
            kept=waiting.kept,
        )
        waiting.journal, waiting.place = self._rows.journal, place

    def write(self, batch: Batch, watermark: int) -> dict[str, Any]:
        """Add what changed since the last time to a batch; return what :meth:`load` needs."""
        self._rows.write(batch, watermark)
        names = [list(each) for each in self._waiting.names]
        return {"births": self._waiting.births, "names": names, **self._rows.record()}

    def load(self, store: StateStore, record: dict[str, Any], watermark: int) -> None:
        """Queue the records that were stored.

        Raises:
            StateError: What is stored is damaged.
        """
        self._waiting.births = record["births"]
        self._waiting.names = [tuple(each) for each in record.get("names", ())]
        self._rows.load(store, record, watermark)
        self._waiting.rebuild()


def _together(names: Sequence[tuple[str, ...]], which: Int64Array) -> Sequence[str]:
    """Return the columns that some records have together: by name, if these are not the same."""
    some = [names[at] for at in np.unique(which).tolist()]
    return some[0] if len(some) == 1 else sorted({name for each in some for name in each})
