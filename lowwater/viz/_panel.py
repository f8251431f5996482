"""Builds the panel of one key in a scene."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast, final

from lowwater.engine.graph.trace import StageTrace, TracedElement, TracedMerge
from lowwater.engine.graph.traced_parts import keys_of
from lowwater.engine.records.panes import Pane
from lowwater.time import saturating_add
from lowwater.viz.axes import TraceOrdinates
from lowwater.viz.scene import (
    Band,
    Box,
    Bracket,
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
        retractions: The most retractions.
        merges: The most merges.
        bands: The most windows with allowed lateness.
        columns, rows: The grid of the density.
    """

    marks: int = 300
    dropped: int = 150
    boxes: int = 240
    retractions: int = 150
    merges: int = 60
    bands: int = 200
    columns: int = 32
    rows: int = 22

    @classmethod
    def of(cls, trace: StageTrace, keys: Sequence[Hashable]) -> PanelLimits:
        """Return the limits of each panel, such that the panels together keep to them."""
        whole, side = cls(), max(1, len(keys)) ** 0.5

        def share(most: int, items: Sequence[Any]) -> int:
            count = Counter(map(hashable, keys_of(items)))
            return fair_share(most, [count[key] for key in keys])

        return cls(
            share(whole.marks, trace.elements),
            share(whole.dropped, trace.elements),
            share(whole.boxes, trace.panes),
            share(whole.retractions, trace.panes),
            share(whole.merges, trace.merges),
            share(whole.bands, trace.panes),
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


def hashable(key: Any) -> Hashable:
    """Return a hashable form of a key: the key itself, or its text if it is not hashable."""
    try:
        hash(key)
    except TypeError:
        return repr(key)
    return cast(Hashable, key)


@final
class PanelOf:
    """Collects the elements, panes and bands of one key."""

    def __init__(
        self,
        trace: StageTrace,
        key: Hashable,
        ordinates: TraceOrdinates,
        x: Span,
        y: Span,
        watermark: Sequence[WatermarkStep],
        limits: PanelLimits | None = None,
    ) -> None:
        self._x, self._y, self._watermark = x, y, watermark
        self._most = PanelLimits() if limits is None else limits
        self._key = key
        self._windowing = trace.windowing
        self._elements = [
            (element, moment)
            for element, moment in zip(trace.elements, ordinates.elements, strict=True)
            if hashable(element.key) == key
        ]
        self._panes = [
            (pane, moment, order)
            for pane, moment, order in zip(
                trace.panes, ordinates.panes, trace.pane_orders, strict=True
            )
            if hashable(pane.key) == key
        ]
        self._merges = [
            (merge, moment)
            for merge, moment in zip(trace.merges, ordinates.merges, strict=True)
            if hashable(merge.key) == key
        ]

    def build(self, aggregate: str | None, column: str | None) -> Panel:
        """Return the panel.

        Args:
            aggregate: The aggregate to draw.
            column: The column of the elements that the aggregate reads, if any.
        """
        notes: list[str] = []
        marks, cells = self._marks(column, notes)
        most = self._most
        return Panel(
            name=key_text(self._key),
            marks=tuple(marks),
            cells=tuple(cells),
            bands=_first(most.bands, "windows with allowed lateness", self._bands(), notes),
            boxes=_first(most.boxes, "panes", self._boxes(aggregate), notes),
            retractions=tuple(self._retractions(aggregate, notes)),
            brackets=tuple(self._brackets(notes)),
            notes=tuple(notes),
        )

    def _brackets(self, notes: list[str]) -> Iterator[Bracket]:
        for merge, y in _first(self._most.merges, "merges", self._merges, notes):
            parts = tuple((window.start, window.end) for window in merge.of)
            yield Bracket(merge.into.start, merge.into.end, y, parts, merge_title(merge))

    # -- elements ----------------------------------------------------------------------------

    def _marks(self, column: str | None, notes: list[str]) -> tuple[list[Mark], list[DensityCell]]:
        most = self._most
        if len(self._elements) <= most.marks:
            return [self._mark(e, y, column) for e, y in self._elements], []
        usual = [(e, y) for e, y in self._elements if e.outcome == "kept" and not e.retract]
        others = [(e, y) for e, y in self._elements if e.outcome != "kept" or e.retract]
        late_first = sorted(range(len(usual)), key=lambda at: self._ahead(usual[at][0]))
        outliers = sorted(late_first[: max(1, most.marks // 15)])
        marked = _first(most.dropped, "dropped elements", others, notes)
        found = [*marked, *(usual[at] for at in outliers)]
        notes.append(
            f"{len(usual):,} elements are drawn as density; the {len(outliers)} latest are marked"
        )
        return [self._mark(e, y, column) for e, y in found], self._cells(usual)

    @staticmethod
    def _ahead(element: TracedElement) -> int:
        """Return the event time of an element minus the watermark on arrival: low is late."""
        return element.time - element.watermark

    def _mark(self, element: TracedElement, y: int, column: str | None) -> Mark:
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
            retract=element.retract, reason=reason_text(element),
        )  # fmt: skip

    def _cells(self, elements: Sequence[tuple[TracedElement, int]]) -> list[DensityCell]:
        x, y = self._x, self._y
        wide, high = -(-x.size // self._most.columns) or 1, -(-y.size // self._most.rows) or 1
        first = min((moment for _, moment in elements), default=y.low)
        counts: dict[tuple[int, int], int] = {}
        for element, moment in elements:
            place = ((moment - y.low) // high, (x.clip(element.time) - x.low) // wide)
            counts[place] = counts.get(place, 0) + 1
        return [
            DensityCell(
                x.low + column * wide,
                x.low + (column + 1) * wide,
                max(first, y.low + row * high),
                y.low + (row + 1) * high,
                count,
            )
            for (row, column), count in sorted(counts.items())
        ]

    # -- panes -------------------------------------------------------------------------------

    def _boxes(self, aggregate: str | None) -> Iterator[Box]:
        histories = _Histories()
        for _, kind, at in self._order():
            if kind == 0:
                element, y = self._elements[at]
                histories.came(element.windows, y)
            elif kind == 1:
                histories.merged(self._merges[at][0])
            else:
                pane, y, _ = self._panes[at]
                window = pane.window
                yield Box(
                    window.start, window.end, histories.fired(window, y), y, pane.timing,
                    _shown(pane, aggregate), pane.index, pane_title(pane),
                )  # fmt: skip
        for window, since, count in histories.waiting():
            what = "element" if count == 1 else "elements"
            title = f"{window_text(window)}: {count} {what} that no pane has emitted"
            yield Box(window.start, window.end, since, self._y.high, "OPEN", "", -1, title)

    def _order(self) -> list[tuple[int, int, int]]:
        """Return (order, kind, place) of elements, merges and panes, in the order of the run."""
        found = [(e.order, 0, at) for at, (e, _) in enumerate(self._elements)]
        found += [(merge.order, 1, at) for at, (merge, _) in enumerate(self._merges)]
        found += [
            (order, 2, at) for at, (p, _, order) in enumerate(self._panes) if p.kind == "insert"
        ]
        return sorted(found)

    def _retractions(self, aggregate: str | None, notes: list[str]) -> Iterator[Retraction]:
        retracted = [(pane, y) for pane, y, _ in self._panes if pane.kind == "retract"]
        for pane, y in _first(self._most.retractions, "retractions", retracted, notes):
            yield Retraction(
                pane.window.start, pane.window.end, y, f"{MINUS}{_shown(pane, aggregate)}",
                pane_title(pane),
            )  # fmt: skip

    # -- allowed lateness --------------------------------------------------------------------

    def _bands(self) -> Iterator[Band]:
        if self._windowing is None or not self._windowing.lateness_us:
            return
        lateness = self._windowing.lateness_us
        merged_away = {w for merge, _ in self._merges for w in merge.of if w != merge.into}
        windows = dict.fromkeys(pane.window for pane, _, _ in self._panes)
        for window in windows:
            complete = self._reached(window.end)
            if window in merged_away or complete is None:
                continue
            expired = self._reached(saturating_add(window.end, lateness))
            top = self._y.high if expired is None else expired
            if top > complete:
                yield Band(window.start, window.end, complete, top)

    def _reached(self, at: int) -> int | None:
        """Return when the watermark reached an instant."""
        place = bisect_left(self._watermark, at, key=lambda step: step.x)
        return self._watermark[place].y if place < len(self._watermark) else None


@final
class _Histories:
    """Tracks since when each open window collects for its next pane. O(1) for each event."""

    def __init__(self) -> None:
        self._since: dict[Window, int] = {}
        self._fired: set[Window] = set()
        self._unshown: dict[Window, int] = {}
        self._became: dict[Window, Window] = {}

    def came(self, windows: Sequence[Window], y: int) -> None:
        for proto in windows:
            window = self._home(proto)
            self._since.setdefault(window, y)
            self._unshown[window] = self._unshown.get(window, 0) + 1

    def merged(self, merge: TracedMerge) -> None:
        """Start the merged window at the last firing of its parts, or else at the first element."""
        parts = [window for window in merge.of if window != merge.into]
        known = [w for w in (*parts, merge.into) if w in self._since]
        shown = [self._since[w] for w in known if w in self._fired]
        if known:
            self._since[merge.into] = max(shown) if shown else min(self._since[w] for w in known)
        if shown:
            self._fired.add(merge.into)
        self._unshown[merge.into] = sum(self._unshown.pop(w, 0) for w in (*parts, merge.into))
        self._became.pop(merge.into, None)
        for window in parts:
            self._since.pop(window, None)
            self._became[window] = merge.into

    def fired(self, window: Window, y: int) -> int:
        """Return since when the pane collected, and start the next one."""
        since = self._since.get(window, y)
        self._since[window] = y
        self._fired.add(window)
        self._unshown.pop(window, None)
        return since

    def waiting(self) -> list[tuple[Window, int, int]]:
        """Return (window, since when, how many elements) for elements that no pane has emitted."""
        return [(w, self._since[w], count) for w, count in self._unshown.items() if count]

    def _home(self, window: Window) -> Window:
        # A window that was merged away may be created again; then its former merge no longer
        # counts.
        while (larger := self._became.get(window)) is not None and window not in self._since:
            window = larger
        return window


def _first(most: int, what: str, found: Iterable[_T], notes: list[str]) -> tuple[_T, ...]:
    """Return the first of what was found, and note how many are left out."""
    every = tuple(found)
    if len(every) > most:
        notes.append(f"{len(every) - most:,} of {len(every):,} {what} are not shown")
    return every[:most]


def _shown(pane: Pane, aggregate: str | None) -> str:
    if aggregate is None or aggregate not in pane.values:
        return value_text(pane.value)
    return value_text(pane.values[aggregate])
