"""Reads the elements and panes of a trace as columns, without making a Python value for each."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self, cast, final

import numpy as np
from numpy.typing import NDArray

from lowwater.engine.graph.trace import StageTrace, TracedElement
from lowwater.engine.graph.traced_parts import TracedParts, keys_of
from lowwater.engine.local.taken_bundles import mask_of
from lowwater.engine.local.trace_parts import ElementPart, PanePart
from lowwater.engine.records.columns import Column
from lowwater.engine.records.panes import Pane
from lowwater.engine.records.steps import KINDS, REASONS, TIMINGS
from lowwater.engine.window.windowing import Windowing
from lowwater.kernels.positions import repeated
from lowwater.time import Int64Array
from lowwater.windows import Window

OUTCOMES = ("kept", "late", "partly late", "duplicate")
_KEPT, _LATE, _PARTLY, _DUPLICATE = range(4)
_UNWINDOWED = REASONS.index("unwindowed")


@final
@dataclass(frozen=True, slots=True)
class ElementColumns:
    """Elements of a stage as columns, int64 of shape (n,) unless said otherwise.

    Args:
        key: The number of the key of each, in :attr:`TraceColumns.keys`.
        order, time, clock, watermark: As in :class:`TracedElement`.
        outcome: uint8 index into ``OUTCOMES``.
        is_retraction: bool.
        is_unwindowed: Whether no window contains it, bool.
        place: The index of each among the elements of the trace.
    """

    key: Int64Array
    order: Int64Array
    time: Int64Array
    clock: Int64Array
    watermark: Int64Array
    outcome: NDArray[np.uint8]
    is_retraction: NDArray[np.bool_]
    is_unwindowed: NDArray[np.bool_]
    place: Int64Array

    def __len__(self) -> int:
        return len(self.time)

    def of_keys(self, many: int) -> Int64Array:
        """Return the number of elements of each of ``many`` keys."""
        return np.bincount(self.key, minlength=many)

    def take(self, rows: Int64Array | NDArray[np.bool_]) -> Self:
        """Select elements by index or mask."""
        return type(self)(*(getattr(self, field.name)[rows] for field in fields(self)))


@final
@dataclass(frozen=True, slots=True)
class WindowColumns:
    """The windows that accepted elements, before any merging; int64, shape (m,).

    Args:
        element: Which element of the trace each is of, ascending.
        start, end: The window.
        order: Position of the element in the order of events.
    """

    element: Int64Array
    start: Int64Array
    end: Int64Array
    order: Int64Array

    def of(self, elements: ElementColumns) -> Self:
        """Return the windows of some elements; ``element`` becomes the row among these."""
        row = np.searchsorted(elements.place, self.element)
        row[row == len(elements)] = 0
        is_in = elements.place[row] == self.element if len(elements) else np.zeros(len(row), bool)
        row = row[is_in]
        return type(self)(row, self.start[is_in], self.end[is_in], elements.order[row])


@final
@dataclass(frozen=True, slots=True)
class PaneColumns:
    """Panes of a stage as columns, int64 of shape (n,) unless said otherwise.

    Args:
        key: The number of the key of each, in :attr:`TraceColumns.keys`.
        order: Position in the order of events.
        start, end, emitted_at, watermark: As in :class:`Pane`.
        timing: uint8 index into ``TIMINGS``.
        is_retraction: bool.
        place: The index of each among the panes of the trace.
    """

    key: Int64Array
    order: Int64Array
    start: Int64Array
    end: Int64Array
    emitted_at: Int64Array
    watermark: Int64Array
    timing: NDArray[np.uint8]
    is_retraction: NDArray[np.bool_]
    place: Int64Array

    def __len__(self) -> int:
        return len(self.start)

    def take(self, rows: Int64Array | NDArray[np.bool_]) -> Self:
        """Select panes by index or mask."""
        return type(self)(*(getattr(self, field.name)[rows] for field in fields(self)))


@final
@dataclass(frozen=True, slots=True)
class TraceColumns:
    """The elements, their windows and the panes of a stage as columns.

    Args:
        keys: The keys, in order of appearance: of elements first, then of panes.
        elements: The elements.
        windows: The windows that accepted them.
        panes: The panes.
        dropped: The windows that they were dropped from.
    """

    keys: tuple[Hashable, ...]
    elements: ElementColumns
    windows: WindowColumns
    panes: PaneColumns
    dropped: WindowColumns

    @classmethod
    def of(cls, trace: StageTrace) -> TraceColumns:
        """Return the columns of a trace. O(elements + panes)."""
        codes: dict[Hashable, int] = {}
        elements, windows, dropped = _elements(trace, _codes(trace.elements, codes))
        panes = _panes(trace, _codes(trace.panes, codes))
        return cls(tuple(codes), elements, windows, panes, dropped)

    def within(self, low: int, high: int) -> TraceColumns:
        """Return the elements from ``low`` to ``high`` (exclusive), and windows that touch these.

        Keys without any keep their numbers.
        """
        elements, panes, windows = self.elements, self.panes, self.windows
        elements = elements.take((elements.time >= low) & (elements.time < high))
        panes = panes.take((panes.start < high) & (panes.end > low))
        windows, dropped = (
            replace(found, element=elements.place[found.element])
            for found in (windows.of(elements), self.dropped.of(elements))
        )
        return replace(self, elements=elements, panes=panes, windows=windows, dropped=dropped)

    def events(self) -> Int64Array:
        """Return the number of elements and panes of each key, int64, shape (keys,)."""
        many = len(self.keys)
        found: Int64Array = np.bincount(self.elements.key, minlength=many)
        return found + np.bincount(self.panes.key, minlength=many)


def hashable(key: Any) -> Hashable:
    """Return a hashable form of a key: the key itself, or its text if it is not hashable."""
    try:
        hash(key)
    except TypeError:
        return repr(key)
    return cast(Hashable, key)


def _codes(items: Sequence[Any], codes: dict[Hashable, int]) -> Int64Array:
    """Return the number of the key of each item; new keys get the next ones."""
    keys = keys_of(items)
    try:
        found = [codes.setdefault(key, len(codes)) for key in keys]
    except TypeError:
        found = [codes.setdefault(hashable(key), len(codes)) for key in keys]
    return np.array(found, dtype=np.int64)


# -- elements --------------------------------------------------------------------------------------


def _elements(
    trace: StageTrace, key: Int64Array
) -> tuple[ElementColumns, WindowColumns, WindowColumns]:
    elements = trace.elements
    if not isinstance(elements, TracedParts):
        return _of_values(elements, key)
    parts = [part for part in elements.parts if isinstance(part, ElementPart) and len(part)]
    taken = [part.taken for part in parts]
    sizes = np.array([len(part) for part in parts], dtype=np.int64)
    begins = (np.cumsum(sizes) - sizes).tolist()

    def spread(values: list[int]) -> Int64Array:
        return repeated(np.array(values, dtype=np.int64), sizes)

    number = int(sizes.sum())
    time = _joined([one.bundle.times for one in taken])
    outcome = np.zeros(number, dtype=np.uint8)
    retracts = np.zeros(number, dtype=np.bool_)
    unwindowed = np.zeros(number, dtype=np.bool_)
    order = spread([part.order for part in parts])
    late, starts, ends = [], [], []
    for one, begin in zip(taken, begins, strict=True):
        if one.bundle.signs is not None:
            retracts[begin : begin + len(one)] = one.bundle.signs < 0
        if one.kept is not None:
            outcome[begin : begin + len(one)][~mask_of(one.kept, len(one))] = _DUPLICATE
        if one.late is not None:
            places = one.places[one.late.element] + begin
            unwindowed[places[one.late.reason == _UNWINDOWED]] = True
            late.append(places)
            starts.append(one.late.start)
            ends.append(one.late.end)
    dropped, start, end = _joined(late), _joined(starts), _joined(ends)
    is_late = mask_of(dropped, number)
    has_window = start < end
    dropped = dropped[has_window]
    gone = WindowColumns(dropped, start[has_window], end[has_window], order[dropped])
    values = [one.bundle.values for one in taken]
    windows = _accepted(trace.windowing, time, order, values, gone, outcome)
    stays = is_late & mask_of(windows.element, number)
    outcome[is_late] = _LATE
    outcome[stays] = _PARTLY
    columns = ElementColumns(
        key=key,
        order=order,
        time=time,
        clock=spread([one.clock for one in taken]),
        watermark=spread([one.watermark for one in taken]),
        outcome=outcome,
        is_retraction=retracts,
        is_unwindowed=unwindowed,
        place=np.arange(number, dtype=np.int64),
    )
    return columns, windows, gone


def _accepted(
    windowing: Windowing | None,
    time: Int64Array,
    order: Int64Array,
    values: Sequence[Any],
    gone: WindowColumns,
    outcome: NDArray[np.uint8],
) -> WindowColumns:
    """Return the windows that accepted elements: those assigned, but for the dropped ones."""
    none = np.zeros(0, dtype=np.int64)
    if windowing is None or not len(time):
        return WindowColumns(none, none, none, none)
    windows = windowing.windows
    columns = {name: Column.concat([one[name] for one in values]).data for name in windows.columns}
    assigned = windows.assign(time, columns)
    element = assigned.element
    if element is None:
        element = np.arange(len(time), dtype=np.int64)
    is_in = (assigned.start < assigned.end) & (outcome[element] != _DUPLICATE)
    element, start, end = element[is_in], assigned.start[is_in], assigned.end[is_in]
    if not len(gone.element):
        return WindowColumns(element, start, end, order[element])
    dropped = set(zip(gone.element.tolist(), gone.start.tolist(), gone.end.tolist(), strict=True))
    doubtful = np.flatnonzero(np.isin(element, gone.element))
    places = zip(*(part[doubtful].tolist() for part in (element, start, end)), strict=True)
    stays = np.ones(len(element), dtype=np.bool_)
    stays[doubtful] = [place not in dropped for place in places]
    element = element[stays]
    return WindowColumns(element, start[stays], end[stays], order[element])


def _of_values(
    elements: Sequence[TracedElement], key: Int64Array
) -> tuple[ElementColumns, WindowColumns, WindowColumns]:
    columns = ElementColumns(
        key=key,
        order=_ints([element.order for element in elements]),
        time=_ints([element.time for element in elements]),
        clock=_ints([element.clock for element in elements]),
        watermark=_ints([element.watermark for element in elements]),
        outcome=np.array([OUTCOMES.index(e.outcome) for e in elements], dtype=np.uint8),
        is_retraction=np.array([element.retract for element in elements], dtype=np.bool_),
        is_unwindowed=np.array([e.reason == "unwindowed" for e in elements], dtype=np.bool_),
        place=np.arange(len(elements), dtype=np.int64),
    )
    return (
        columns,
        _windows_of(columns, [element.windows for element in elements]),
        _windows_of(columns, [element.dropped for element in elements]),
    )


def _windows_of(columns: ElementColumns, windows: Sequence[Sequence[Window]]) -> WindowColumns:
    found = [
        (at, int(window.start), int(window.end))
        for at, each in enumerate(windows)
        for window in each
    ]
    of, start, end = np.array(found, dtype=np.int64).reshape(-1, 3).T
    return WindowColumns(of, start, end, columns.order[of])


# -- panes -----------------------------------------------------------------------------------------


def _panes(trace: StageTrace, key: Int64Array) -> PaneColumns:
    panes = trace.panes
    order = np.array(trace.pane_orders, dtype=np.int64)
    place = np.arange(len(panes), dtype=np.int64)
    if not isinstance(panes, TracedParts):
        windows = [pane.window for pane in panes]
        return PaneColumns(
            key, order,
            _ints([window.start for window in windows]), _ints([window.end for window in windows]),
            _ints([pane.emitted_at for pane in panes]), _ints([pane.watermark for pane in panes]),
            np.array([TIMINGS.index(pane.timing) for pane in panes], dtype=np.uint8),
            np.array([_is_retraction(pane) for pane in panes], dtype=np.bool_),
            place,
        )  # fmt: skip
    batches = [part.batch for part in panes.parts if isinstance(part, PanePart)]
    timing = np.concatenate([np.zeros(0, dtype=np.uint8), *(one.timing for one in batches)])
    kind = np.concatenate([np.zeros(0, dtype=np.uint8), *(one.kind for one in batches)])
    return PaneColumns(
        key, order,
        _joined([one.start for one in batches]), _joined([one.end for one in batches]),
        _joined([one.emitted_at for one in batches]), _joined([one.watermark for one in batches]),
        timing, kind == KINDS.index("retract"), place,
    )  # fmt: skip


def _is_retraction(pane: Pane) -> bool:
    return pane.kind == "retract"


def _joined(parts: Sequence[Int64Array]) -> Int64Array:
    return np.concatenate([np.zeros(0, dtype=np.int64), *parts])


def _ints(values: Sequence[int]) -> Int64Array:
    return np.array(values, dtype=np.int64)
