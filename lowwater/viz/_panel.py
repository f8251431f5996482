"""Builds the panel of one key in a scene."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from lowwater.engine.graph.trace import StageTrace, TracedElement
from lowwater.engine.graph.traced_parts import keys_of, pick
from lowwater.engine.local.traced_columns import TraceColumns, hashable
from lowwater.engine.records.panes import Pane
from lowwater.engine.records.steps import TIMINGS
from lowwater.time import Instant, Int64Array, saturating_add
from lowwater.viz._window_history import Waiting, WindowHistory
from lowwater.viz.axes import TraceOrdinates
from lowwater.viz.scene import (
    Band,
    Box,
    Bracket,
    DenseKind,
    DensityCell,
    Mark,
    Panel,
    Retraction,
    Span,
    WatermarkStep,
)
from lowwater.viz.words import (
    MINUS,
    element_title,
    key_text,
    merge_title,
    pane_title,
    reason_text,
    value_text,
    window_text,
)
from lowwater.windows import Window

_LEAST = 20


@final
@dataclass(frozen=True, slots=True)
class PanelLimits:
    """How much of each kind a panel shows, so that a picture of a long run stays small.

    Args:
        marks: With more elements than this, kept elements are drawn as density.
        dropped: The most dropped elements then.
        boxes: The most panes.
        open: The most windows whose elements no pane has emitted.
        retractions: The most retractions.
        merges: The most merges.
        bands: The most windows with allowed lateness.
        columns, rows: The grid of the density.
    """

    marks: int = 300
    dropped: int = 150
    boxes: int = 240
    open: int = 60
    retractions: int = 150
    merges: int = 60
    bands: int = 200
    columns: int = 32
    rows: int = 22

    @classmethod
    def of(cls, columns: TraceColumns, merges: Sequence[Any], keys: Sequence[int]) -> PanelLimits:
        """Return the limits of each panel, such that the panels together keep to them.

        Args:
            columns: The elements and panes.
            merges: The merges.
            keys: The numbers of the keys to draw.
        """
        whole, side = cls(), max(1, len(keys)) ** 0.5
        merged = Counter(map(hashable, keys_of(merges)))
        counts = {
            "elements": np.bincount(columns.elements.key, minlength=len(columns.keys))[keys],
            "panes": np.bincount(columns.panes.key, minlength=len(columns.keys))[keys],
            "merges": np.array([merged[columns.keys[key]] for key in keys]),
        }

        def share(most: int, of: str) -> int:
            return fair_share(most, counts[of].tolist())

        return cls(
            share(whole.marks, "elements"),
            share(whole.dropped, "elements"),
            share(whole.boxes, "panes"),
            share(whole.open, "elements"),
            share(whole.retractions, "panes"),
            share(whole.merges, "merges"),
            share(whole.bands, "panes"),
            int(whole.columns / side),
            int(whole.rows / side),
        )


def fair_share(most: int, counts: Sequence[int]) -> int:
    """Return how many each may have so that all together have at most ``most``, or 20 each.

    >>> fair_share(300, [10, 1000, 200]), fair_share(300, [10, 20, 30])
    (145, 300)
    """
    left, sizes = most, sorted(counts)
    for at, size in enumerate(sizes):
        share = left // (len(sizes) - at)
        if size > share:
            return max(_LEAST, share)
        left -= size
    return most


_T = TypeVar("_T")


@final
class PanelOf:
    """Collects the elements, panes and bands of one key.

    Args:
        trace: The trace of the stage.
        columns: Its elements and panes, or those of a stretch.
        key: The number of the key in the columns.
        ordinates: The ``y`` of each.
        x, y: The axes.
        watermark: The steps of the watermark.
        limits: How much to show.
    """

    def __init__(
        self,
        trace: StageTrace,
        columns: TraceColumns,
        key: int,
        ordinates: TraceOrdinates,
        x: Span,
        y: Span,
        watermark: Sequence[WatermarkStep],
        limits: PanelLimits,
    ) -> None:
        self._trace, self._x, self._y, self._watermark = trace, x, y, watermark
        self._most, self._key = limits, columns.keys[key]
        rows = np.flatnonzero(columns.elements.key == key)
        self._elements, self._arrivals = columns.elements.take(rows), ordinates.elements[rows]
        rows = np.flatnonzero(columns.panes.key == key)
        self._panes, self._firings = columns.panes.take(rows), ordinates.panes[rows]
        self._windows = columns.windows.of(self._elements)
        stands = ~self._panes.is_retraction
        self._emitted, self._emitted_at = self._panes.take(stands), self._firings[stands]
        self._merges = [
            (merge, y)
            for merge, y in zip(trace.merges, ordinates.merges.tolist(), strict=True)
            if hashable(merge.key) == self._key
        ]

    def build(self, aggregate: str | None, column: str | None) -> Panel:
        """Return the panel.

        Args:
            aggregate: The aggregate to draw.
            column: The column of the elements that the aggregate reads, if any.
        """
        notes: list[str] = []
        marks, cells = self._marks(column, notes)
        boxes, dense = self._boxes(aggregate, notes)
        most = self._most
        return Panel(
            name=key_text(self._key),
            marks=tuple(marks),
            cells=(*dense, *cells),
            bands=_spread(most.bands, "windows with allowed lateness", list(self._bands()), notes),
            boxes=tuple(boxes),
            retractions=tuple(self._retractions(aggregate, notes)),
            brackets=tuple(self._brackets(notes)),
            notes=tuple(notes),
            key=self._key,
        )

    def _brackets(self, notes: list[str]) -> Iterator[Bracket]:
        for merge, y in _spread(self._most.merges, "merges", self._merges, notes):
            parts = tuple((window.start, window.end) for window in merge.of)
            yield Bracket(merge.into.start, merge.into.end, y, parts, merge_title(merge))

    # -- elements ----------------------------------------------------------------------------

    def _marks(self, column: str | None, notes: list[str]) -> tuple[list[Mark], list[DensityCell]]:
        most, elements = self._most, self._elements
        if len(elements) <= most.marks:
            return self._marked(np.arange(len(elements)), column), []
        is_usual = (elements.outcome == 0) & ~elements.is_retraction
        usual, others = np.flatnonzero(is_usual), np.flatnonzero(~is_usual)
        # As floats, since the watermark may be unknown: its distance fits no int64.
        ahead = elements.time[usual].astype(np.float64) - elements.watermark[usual]
        latest = np.sort(usual[np.argsort(ahead, kind="stable")[: max(1, most.marks // 15)]])
        shown = others[spread_over(elements.outcome[others], most.dropped)]
        notes.append(
            f"{len(usual):,} elements are drawn as density; the {len(latest)} latest are marked"
        )
        cells = self._cells(elements.time[usual], self._arrivals[usual], "kept")
        if len(shown) < len(others):
            notes.append(
                f"{len(others) - len(shown):,} of {len(others):,} dropped or retracted elements "
                "are drawn as density"
            )
            cells += self._cells(elements.time[others], self._arrivals[others], "dropped")
        return self._marked(np.concatenate([shown, latest]), column), cells

    def _marked(self, rows: Int64Array, column: str | None) -> list[Mark]:
        """Return the marks of some elements, in the order of arrival."""
        rows = np.sort(rows)
        places, arrivals = self._elements.place[rows].tolist(), self._arrivals[rows].tolist()
        elements = pick(self._trace.elements, places)
        return [
            _mark(element, y, column, place)
            for element, y, place in zip(elements, arrivals, places, strict=True)
        ]

    def _cells(self, across: Int64Array, up: Int64Array, kind: DenseKind) -> list[DensityCell]:
        """Return how many points each cell of the grid has."""
        x, y = self._x, self._y
        wide, high = -(-x.size // self._most.columns) or 1, -(-y.size // self._most.rows) or 1
        first = int(up.min(initial=y.high))
        row = (up - y.low) // high
        column = (np.clip(across, x.low, x.high) - x.low) // wide
        many = int(column.max(initial=0)) + 1
        places, counts = np.unique(row * many + column, return_counts=True)
        return [
            DensityCell(
                x.low + place % many * wide,
                x.low + (place % many + 1) * wide,
                max(first, y.low + place // many * high),
                y.low + (place // many + 1) * high,
                count,
                kind,
            )
            for place, count in zip(places.tolist(), counts.tolist(), strict=True)
        ]

    # -- panes -------------------------------------------------------------------------------

    def _boxes(
        self, aggregate: str | None, notes: list[str]
    ) -> tuple[list[Box], list[DensityCell]]:
        panes, firings = self._emitted, self._emitted_at
        since, waiting = self._collected()
        rows = spread_over(panes.timing, self._most.boxes)
        cells: list[DensityCell] = []
        if len(rows) < len(panes):
            left = len(panes) - len(rows)
            notes.append(f"{left:,} of {len(panes):,} panes are drawn as density")
            for code, timing in enumerate(TIMINGS):
                own = panes.timing == code
                if own.any():
                    cells += self._cells(panes.end[own], firings[own], timing)
        boxes = [
            Box(
                pane.window.start, pane.window.end, bottom, top, pane.timing,
                _shown(pane, aggregate), pane.index, pane_title(pane),
            )
            for pane, bottom, top in zip(
                pick(self._trace.panes, panes.place[rows].tolist()),
                since[rows].tolist(), firings[rows].tolist(), strict=True,
            )
        ]  # fmt: skip
        for start, end, bottom, count in _spread(
            self._most.open, "windows whose elements no pane has emitted", waiting, notes
        ):
            what = "element" if count == 1 else "elements"
            window = window_text(Window(Instant(start), Instant(end)))
            title = f"{window}: {count} {what} that no pane has emitted"
            boxes.append(Box(start, end, bottom, self._y.high, "OPEN", "", -1, title))
        return boxes, cells

    def _collected(self) -> tuple[Int64Array, list[Waiting]]:
        """Return since when each emitted pane collected, and what no pane has emitted."""
        history = WindowHistory(self._emitted, self._emitted_at, self._windows, self._arrivals)
        return history.merging(self._merges) if self._merges else history.apart()

    def _retractions(self, aggregate: str | None, notes: list[str]) -> Iterator[Retraction]:
        rows = np.flatnonzero(self._panes.is_retraction)
        rows = np.array(_spread(self._most.retractions, "retractions", rows.tolist(), notes), int)
        panes = pick(self._trace.panes, self._panes.place[rows].tolist())
        for pane, y in zip(panes, self._firings[rows].tolist(), strict=True):
            yield Retraction(
                pane.window.start, pane.window.end, y, f"{MINUS}{_shown(pane, aggregate)}",
                pane_title(pane),
            )  # fmt: skip

    # -- allowed lateness --------------------------------------------------------------------

    def _bands(self) -> Iterator[Band]:
        windowing = self._trace.windowing
        if windowing is None or not windowing.lateness_us:
            return
        lateness = windowing.lateness_us
        merged_away = {
            (int(window.start), int(window.end))
            for merge, _ in self._merges
            for window in merge.of
            if window != merge.into
        }
        ends = zip(self._panes.start.tolist(), self._panes.end.tolist(), strict=True)
        for start, end in dict.fromkeys(ends):
            complete = self._reached(end)
            if complete is None or (start, end) in merged_away:
                continue
            expired = self._reached(saturating_add(end, lateness))
            top = self._y.high if expired is None else expired
            if top > complete:
                yield Band(start, end, complete, top)

    def _reached(self, at: int) -> int | None:
        """Return when the watermark reached an instant."""
        place = bisect_left(self._watermark, at, key=lambda step: step.x)
        return self._watermark[place].y if place < len(self._watermark) else None


def _mark(element: TracedElement, y: int, column: str | None, place: int) -> Mark:
    text = ""
    values = element.values
    if column is not None and column in values:
        text = value_text(values[column], 6)
    elif set(values) == {"value"}:
        text = value_text(values["value"], 6)
    elif not values and isinstance(element.record, (int, float, str)):
        text = value_text(element.record, 6)
    if element.retract:
        text = f"{MINUS}{text}"
    return Mark(
        element.time, y, text, element.outcome, element_title(element, column),
        retract=element.retract, reason=reason_text(element), place=place,
    )  # fmt: skip


def spread_over(kinds: NDArray[np.uint8], most: int) -> Int64Array:
    """Return which items to draw, ascending: of each kind a fair share, spread over the run.

    Args:
        kinds: The kind of each item, in order, uint8, shape (n,).
        most: About how many to draw.
    """
    if len(kinds) <= most:
        return np.arange(len(kinds))
    found, counts = np.unique(kinds, return_counts=True)
    share = fair_share(most, counts.tolist())
    rows = [np.flatnonzero(kinds == kind) for kind in found.tolist()]
    return np.sort(np.concatenate([own[evenly(len(own), share)] for own in rows]))


def evenly(count: int, most: int) -> Int64Array:
    """Return the places of at most ``most`` of ``count`` items, at even distances."""
    if count <= most:
        return np.arange(count)
    return np.linspace(0, count - 1, most).astype(np.int64)


def _spread(most: int, what: str, items: Sequence[_T], notes: list[str]) -> tuple[_T, ...]:
    """Return items at even distances, and note how many are left out."""
    if len(items) > most:
        notes.append(f"{len(items) - most:,} of {len(items):,} {what} are not shown")
    return tuple(items[at] for at in evenly(len(items), most).tolist())


def _shown(pane: Pane, aggregate: str | None) -> str:
    if aggregate is None or aggregate not in pane.values:
        return value_text(pane.value)
    return value_text(pane.values[aggregate])
