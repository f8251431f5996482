"""Panes that have been shown and may have to be taken back (S-A3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np
import pyarrow as pa

from lowwater.engine.records.columns import Column
from lowwater.state.arrays import NONE
from lowwater.state.damage import damaged
from lowwater.state.journal import Journal
from lowwater.state.table import Field, Table
from lowwater.time import Int64Array

_HEAD = "shown"
LABELS = ("start", "end", "timing", "index", "on_time_index", "timestamp")


@final
class ShownPanes:
    """For each window the panes that its next one takes back.

    These are its own last, and the last ones of the windows that merged into it. They are kept as
    columns; a window's panes are a chain.
    """

    def __init__(self, windows: Table) -> None:
        self._windows = windows
        windows.add_field(Field(_HEAD, np.int64, -1))
        self.table = self._panes = Table(
            [Field("next", np.int64, -1), *(Field(name, np.int64) for name in LABELS)]
        )
        self.types: dict[str, pa.DataType | None] = {}
        self.journal: Journal | None = None

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
            data, valid = column.data, column.valid
            self._make_room(name, data.dtype)
            self.types[name] = column.type
            self._panes[f"value:{name}"][panes] = data
            self._panes[f"valid:{name}"][panes] = True if valid is None else valid
        heads = self._windows[_HEAD]
        self._panes["next"][panes] = heads[rows]
        heads[rows] = panes
        self._touch(panes)

    def take(self, rows: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Take the panes of windows off their chains: (panes, index into ``rows``).

        The caller reads them (:meth:`labels`, :meth:`values`) and then releases them.
        """
        heads = self._windows[_HEAD]
        pane = heads[rows]
        heads[rows] = -1
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
            valid = self._panes[f"valid:{name}"][panes]
            data = self._panes[f"value:{name}"][panes]
            columns[name] = Column(data, None if valid.all() else valid, self.types[name])
        return columns

    def release(self, panes: Int64Array) -> None:
        """Forget panes that were taken."""
        self._touch(panes)
        self._panes.release(panes)

    def merge(self, into: Int64Array, rows: Int64Array) -> None:
        """Move the panes of ``rows[i]`` to ``into[i]``; ``into`` may repeat."""
        panes, which = self.take(rows)
        self._touch(panes)
        target = into[which]
        heads = self._windows[_HEAD]
        while panes.size:  # each turn moves one pane to each target
            _, first = np.unique(target, return_index=True)
            self._panes["next"][panes[first]] = heads[target[first]]
            heads[target[first]] = panes[first]
            panes, target = np.delete(panes, first), np.delete(target, first)

    def link(self, rows: Int64Array, panes: Int64Array) -> None:
        """Put allocated panes on the chains of windows that have none; those of one in order."""
        heads = self._windows[_HEAD]
        while panes.size:  # each turn puts one pane, the last that is left, before the others
            _, last = np.unique(rows[::-1], return_index=True)
            last = len(rows) - 1 - last
            self._panes["next"][panes[last]] = heads[rows[last]]
            heads[rows[last]] = panes[last]
            self._touch(panes[last])
            panes, rows = np.delete(panes, last), np.delete(rows, last)

    def drop(self, rows: Int64Array) -> None:
        """Forget the panes of windows."""
        self.release(self.take(rows)[0])

    def expect(
        self, types: Mapping[str, pa.DataType | None], layout: Sequence[tuple[str, str]]
    ) -> None:
        """Get ready to load panes with such values.

        Args:
            types: Arrow type of each aggregate's results.
            layout: The stored fixed-width columns.
        """
        self.types = dict(types)
        dtypes = {name: np.dtype(kind) for name, kind in layout}
        for name in types:
            self._make_room(name, dtypes.get(f"value:{name}", np.dtype(object)))

    def check(self, rows: Int64Array) -> None:
        """Raise ``StateError`` unless each pane loaded is on the chain of just one of the rows."""
        live = np.zeros(self._panes.capacity + 1, dtype=np.bool_)  # one more, for -1
        live[self._panes.live()] = True
        follows = np.concatenate((self._windows[_HEAD][rows], self._panes["next"][live[:-1]]))
        follows = follows[follows != -1]
        inside = (follows >= 0) & (follows < self._panes.capacity)
        once = len(np.unique(follows)) == len(follows) == len(self._panes)
        if not inside.all() or not live[follows].all() or not once:
            raise damaged("the stored state", "panes that were shown belong to no window")

    def _touch(self, panes: Int64Array) -> None:
        if self.journal is not None:
            self.journal.touch(panes)

    def _check(self, rows: Int64Array) -> None:
        """Assert that each pane kept is on the chain of just one of the windows, all live ones."""
        self._panes._check()
        found = [NONE]
        pane = self._windows[_HEAD][rows]
        while (pane := pane[pane >= 0]).size:
            found.append(pane)
            assert len(found) <= len(self) + 1, "the chain of a window is a circle"
            pane = self._panes["next"][pane]
        panes = np.sort(np.concatenate(found))
        assert np.array_equal(panes, self._panes.live()), "panes belong to no window, or to two"

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
        if wider != held:
            self._panes.retype(value, wider, _nothing_of(wider))


def _nothing_of(dtype: np.dtype[Any]) -> int | None:
    return None if dtype.kind == "O" else 0
