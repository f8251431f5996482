"""Panes that have been shown and may have to be taken back (S-A3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import pyarrow as pa

from lowwater.engine.aggregates._column_values import flattened, lists_of, no_lists
from lowwater.engine.records.columns import Column
from lowwater.kernels import kernels
from lowwater.kernels.positions import repeated
from lowwater.state.arrays import NONE, expand_ranges
from lowwater.state.bag import Bag
from lowwater.state.formats import damaged
from lowwater.state.row_codec import Chunk, Layouts, PackedRows, RowCodec
from lowwater.state.table import Field, RowTable
from lowwater.time import Int64Array

_HEAD = "shown"
LABELS = ("start", "end", "timing", "index", "on_time_index", "timestamp")


@final
class ShownPanes:
    """For each window the panes that its next one takes back.

    These are its own last, and the last ones of the windows that merged into it. They are kept as
    columns; a window's panes are a chain.

    Args:
        windows: The table of windows.
        lists: The aggregates whose results are lists of all values (J-7), which are kept in bags.
    """

    def __init__(self, windows: RowTable, lists: frozenset[str] = frozenset()) -> None:
        self._windows = windows
        windows.add_field(Field(_HEAD, np.int64, -1))
        self.table = self._panes = RowTable(
            [Field("next", np.int64, -1), *(Field(name, np.int64) for name in LABELS)]
        )
        self.types: dict[str, pa.DataType | None] = {}
        self._lists = lists
        self.bags: dict[str, Bag] = {}
        self.codec = RowCodec(self._panes, left_out=frozenset({"next"}), bags=lambda: self.bags)

    def __len__(self) -> int:
        """Return how many panes are kept."""
        return len(self._panes)

    def put(
        self, rows: Int64Array, labels: Mapping[str, Int64Array], values: Mapping[str, Column]
    ) -> None:
        """Keep the pane that each of some distinct windows has just shown."""
        panes = self._panes.allocate(len(rows))
        for name in LABELS:
            self._panes[name][panes] = labels[name]
        for name, column in values.items():
            if name in self._lists:
                self._put_lists(name, panes, column)
                continue
            data, valid = column.data, column.valid
            self._make_room(name, data.dtype)
            self.types[name] = column.type
            self._panes[f"value:{name}"][panes] = data
            self._panes[f"valid:{name}"][panes] = True if valid is None else valid
        heads = self._windows[_HEAD]
        self._panes["next"][panes] = heads[rows]
        heads[rows] = panes

    def take(self, rows: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Unlink the panes of windows and return them: (panes, index into ``rows``).

        The caller reads them (:meth:`labels`, :meth:`values`) and then releases them.
        """
        panes, windows = self._chains(rows)
        self._windows[_HEAD][rows] = -1
        return panes, windows

    def _chains(self, rows: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return the panes of windows, the latest of each first: (panes, index into ``rows``)."""
        pane = self._windows[_HEAD][rows]
        which = np.flatnonzero(pane >= 0)
        pane = pane[which]
        panes, windows = [NONE], [NONE]
        while pane.size:
            panes.append(pane)
            windows.append(which)
            pane = self._panes["next"][pane]
            more = pane >= 0
            pane, which = pane[more], which[more]
        return np.concatenate(panes), np.concatenate(windows)

    def labels(self, panes: Int64Array) -> dict[str, Int64Array]:
        """Return the labels of panes."""
        return {name: self._panes[name][panes] for name in LABELS}

    def values(self, panes: Int64Array, names: list[str]) -> dict[str, Column]:
        """Return the aggregates that panes showed."""
        columns = {}
        for name in names:
            if name in self._lists:
                columns[name] = self._lists_of(name, panes)
                continue
            valid = self._panes[f"valid:{name}"][panes]
            data = self._panes[f"value:{name}"][panes]
            columns[name] = Column(data, None if valid.all() else valid, self.types[name])
        return columns

    def release(self, panes: Int64Array) -> None:
        """Forget panes that were taken."""
        for bag in self.bags.values():
            bag.clear(panes)
        self._panes.release(panes)

    def merge(self, into: Int64Array, rows: Int64Array) -> None:
        """Move the panes of ``rows[i]`` to ``into[i]``; ``into`` may repeat."""
        panes, which = self.take(rows)
        target = into[which]
        heads = self._windows[_HEAD]
        while panes.size:  # each turn moves one pane to each target
            _, first = np.unique(target, return_index=True)
            self._panes["next"][panes[first]] = heads[target[first]]
            heads[target[first]] = panes[first]
            panes, target = np.delete(panes, first), np.delete(target, first)

    def _link(self, rows: Int64Array, panes: Int64Array) -> None:
        """Put allocated panes on the chains of windows that have none; those of one in order."""
        heads = self._windows[_HEAD]
        while panes.size:  # each turn puts one pane, the last that is left, before the others
            _, last = np.unique(rows[::-1], return_index=True)
            last = len(rows) - 1 - last
            self._panes["next"][panes[last]] = heads[rows[last]]
            heads[rows[last]] = panes[last]
            panes, rows = np.delete(panes, last), np.delete(rows, last)

    def drop(self, rows: Int64Array) -> None:
        """Forget the panes of windows."""
        self.release(self.take(rows)[0])

    def gather(self, rows: Int64Array) -> tuple[PackedRows, Int64Array] | None:
        """Return the panes of windows in their stored form, and how many each window has."""
        panes, which = self._chains(rows)
        if not panes.size:
            return None
        order = kernels().argsort(which)  # of one window they stay in their order
        counts = np.bincount(which, minlength=len(rows)).astype(np.int64)
        return self.codec.pack(panes[order]), counts

    def attach(
        self, rows: Int64Array, values: Sequence[bytes], counts: Int64Array, at: Int64Array
    ) -> None:
        """Give windows without panes those that were stored with them; see ``Nested``."""
        # Before there is room for as many panes as a damaged count may say.
        found = read_nested(values, self.codec.layouts, int(counts.sum()))
        begins = np.cumsum(counts) - counts
        places, which = expand_ranges(begins[at], counts[at])
        panes = self._panes.allocate(len(places))
        pane_at = np.full(int(counts.sum()), -1)
        pane_at[places] = panes
        for read in found:
            filled = pane_at[read.rows]
            some = np.flatnonzero(filled >= 0)
            filled = filled[some]
            self.codec.fill(filled, read.chunk, some)
            self.codec.side.put(filled, read.sides, read.counts, some)
        self._link(rows[which], panes)

    def record(self, written: Callable[[pa.DataType | None], Any]) -> dict[str, Any]:
        """Return what :meth:`expect` needs to know."""
        return {
            "types": {name: written(kind) for name, kind in self.types.items()},
            "columns": [(name, kind) for name, kind, _ in self.codec.layout()],
            "layouts": self.codec.layouts.stored,
            **({"bags": self._bag_types()} if self.bags else {}),
        }

    def expect(self, record: Mapping[str, Any], read: Callable[[Any], pa.DataType | None]) -> None:
        """Get ready for panes that were stored with such values."""
        self.types = {name: read(kind) for name, kind in record["types"].items()}
        dtypes = {name: np.dtype(kind) for name, kind in record["columns"]}
        for name, kind in record.get("bags", {}).items():
            self.bags[name] = Bag(np.dtype(kind))
        for name in self.types.keys() - self._lists:
            self._make_room(name, dtypes.get(f"value:{name}", np.dtype(object)))
        self.codec.layouts.expect(record["layouts"])

    def _check(self, rows: Int64Array) -> None:
        """Assert that each pane kept is on the chain of just one of the windows, all live ones."""
        self._panes._check()
        for bag in self.bags.values():
            bag._check()
            assert set(bag.filled_rows().tolist()) <= set(self._panes.live().tolist())
        found = [NONE]
        pane = self._windows[_HEAD][rows]
        while (pane := pane[pane >= 0]).size:
            found.append(pane)
            assert len(found) <= len(self) + 1, "the chain of a window is a circle"
            pane = self._panes["next"][pane]
        panes = np.sort(np.concatenate(found))
        assert np.array_equal(panes, self._panes.live()), "panes belong to no window, or to two"

    def _put_lists(self, name: str, panes: Int64Array, lists: Column) -> None:
        """Keep the values of lists, one list for each pane."""
        items, counts = flattened(lists)
        if not len(items):
            return
        self.types[name] = items.type
        held = items.data
        valid = np.ones(len(items), dtype=np.bool_) if items.valid is None else items.valid
        owner, places = repeated(panes, counts), np.arange(len(items), dtype=np.int64)
        for what, each in (("value", held), ("valid", valid)):
            bag = self.bags.setdefault(f"{what}:{name}", Bag(each.dtype))
            if bag.dtype != each.dtype:
                objects = object in (bag.dtype, each.dtype)
                wider = np.dtype(object) if objects else np.result_type(bag.dtype, each.dtype)
                if wider != bag.dtype:
                    bag.retype(wider)
            bag.append(owner, each.astype(bag.dtype, copy=False), places)

    def _lists_of(self, name: str, panes: Int64Array) -> Column:
        bag = self.bags.get(f"value:{name}")
        if bag is None:
            return no_lists(len(panes))
        values, counts = bag.gather(panes)
        valid, _ = self.bags[f"valid:{name}"].gather(panes)
        return lists_of(values, valid, counts, self.types[name])

    def _bag_types(self) -> dict[str, str]:
        return {name: bag.dtype.str for name, bag in self.bags.items()}

    def _make_room(self, name: str, dtype: np.dtype[Any]) -> None:
        value = f"value:{name}"
        if value not in self._panes.columns:
            self._panes.add_field(Field(value, dtype, _nothing_of(dtype)))
            self._panes.add_field(Field(f"valid:{name}", np.bool_, False))
            return
        held = self._panes[value].dtype
        if dtype == held:
            return
        wider = np.dtype(object) if object in (dtype, held) else np.result_type(dtype, held)
        if wider != dtype and held.kind != "O" and not self._has_values(name):
            wider = dtype  # of nulls alone the type was a guess
        if wider != held:
            self._panes.retype(value, wider, _nothing_of(wider))

    def _has_values(self, name: str) -> bool:
        return bool(self._panes[f"valid:{name}"][self._panes.live()].any())


@final
@dataclass(frozen=True, slots=True)
class ReadPanes:
    """Panes that were read, and that have one layout.

    Args:
        rows: Their places among all that were read, int64.
        chunk: The panes.
        sides: The encoded side columns of each value.
        counts: How many panes each of these values has, int64.
    """

    rows: Int64Array
    chunk: Chunk
    sides: list[bytes]
    counts: Int64Array


def read_nested(values: Sequence[bytes], layouts: Layouts, count: int) -> list[ReadPanes]:
    """Read panes that were stored with windows.

    Args:
        values: The stored values, one after the other.
        layouts: The layouts that panes were packed in.
        count: How many panes there are in all of them.

    Raises:
        StateError: They are damaged, or not so many.
    """
    found = layouts.read_many(values) if values else []
    of_values = np.zeros(len(values), dtype=np.int64)
    for at, counts, _, _ in found:
        of_values[at] = counts
    if int(of_values.sum()) != count:
        raise damaged("a stored row", f"it has {int(of_values.sum())} of {count} panes")
    first = np.cumsum(of_values) - of_values
    return [
        ReadPanes(expand_ranges(first[at], counts)[0], chunk, sides, counts)
        for at, counts, chunk, sides in found
    ]


def _nothing_of(dtype: np.dtype[Any]) -> int | None:
    return None if dtype.kind == "O" else 0
