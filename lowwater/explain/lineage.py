"""Tracks the window of each element over time: its own, then the windows that merged it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, final

from lowwater.engine.graph.trace import StageTrace, TracedElement, TracedMerge
from lowwater.engine.graph.traced_parts import of_key
from lowwater.engine.records.panes import Pane
from lowwater.windows import Window

if TYPE_CHECKING:
    from lowwater.explain.match_history import MatchHistories

_LAST = 2**63


@final
class Lineage:
    """The windows of one stage over the course of a trace. Built in O(elements + merges + panes).

    Args:
        stage: The trace of the stage.

    Attributes:
        has_strangers: Whether the origin of some elements is unknown.
    """

    def __init__(self, stage: StageTrace) -> None:
        self.stage = stage
        self._histories: MatchHistories | None = None
        self.has_strangers = any(not (one.origins or one.pane) for one in stage.elements)
        self._merges: dict[tuple[Any, Window], list[TracedMerge]] = {}
        for merge in stage.merges:
            for part in merge.of:
                if part != merge.into:
                    self._merges.setdefault((_hashable(merge.key), part), []).append(merge)
        self._panes: dict[tuple[Any, Window], list[int]] = {}
        for number, pane in enumerate(stage.panes):
            self._panes.setdefault((_hashable(pane.key), pane.window), []).append(number)

    def histories(self) -> MatchHistories:
        """Return the searches of a stage of ``match``, by key."""
        if self._histories is None:
            # Imported on use: it loads the searches.
            from lowwater.explain.match_history import MatchHistories

            self._histories = MatchHistories(self.stage)
        return self._histories

    def became(self, key: Any, window: Window, since: int, until: int = _LAST) -> Window:
        """Return the window that a window had merged into by a given order.

        Args:
            key: The key of the window.
            window: The window, as it existed at ``since``.
            since: Ignore merges before this order.
            until: Ignore merges at this order or after.
        """
        while (merge := self._next_merge(key, window, since)) and merge.order < until:
            # The order goes on by one: a bundle merges a window no more than once.
            window, since = merge.into, merge.order + 1
        return window

    def final(self, element: TracedElement) -> tuple[Window, ...]:
        """Return the windows that an element is in at the end of the trace."""
        found = (self.became(element.key, w, element.order) for w in element.windows)
        return tuple(dict.fromkeys(found))

    def elements(self, key: Any, window: Window) -> list[TracedElement]:
        """Return the elements that ended up in a window, in order, without late ones."""
        return [e for e in self.of_key(key) if window in self.final(e)]

    def passing(self, key: Any, window: Window) -> list[TracedElement]:
        """Return the elements that were in a window before it merged into another, in order."""
        return [
            element
            for element in self.of_key(key)
            if any(window in self._chain(element, own) for own in element.windows)
        ]

    def dropped(self, key: Any, window: Window) -> list[TracedElement]:
        """Return the elements that were dropped from a window, in order."""
        merging = self.stage.windowing is not None and self.stage.windowing.merging is not None
        return [
            element
            for element in self.of_key(key)
            if any(
                gone == window or (merging and gone.start < window.end and window.start < gone.end)
                for gone in element.dropped
            )
        ]

    def of_key(self, key: Any) -> list[TracedElement]:
        """Return the elements of a key, in order."""
        return of_key(self.stage.elements, key)

    def panes(self, key: Any, window: Window) -> list[tuple[int, Pane]]:
        """Return the panes of a window with the order of each, retractions included."""
        orders, panes = self.stage.pane_orders, self.stage.panes
        return [(orders[at], panes[at]) for at in self._panes.get((_hashable(key), window), [])]

    def merges_into(self, key: Any, window: Window) -> list[TracedMerge]:
        """Return the merges that made a window, or made it larger than its parts."""
        return [merge for merge in self.stage.merges if (merge.key, merge.into) == (key, window)]

    def showing(self, element: TracedElement) -> list[Pane]:
        """Return the panes that contain an element; see :meth:`shown_in`."""
        return [self.stage.panes[number] for number in self.shown_in(element)]

    def shown_in(self, element: TracedElement) -> list[int]:
        """Return the indices of the panes that contain an element, by window and in order.

        A discarding pane contains only new elements, so only the first pane after the element
        does; accumulating panes contain all elements so far.
        """
        windowing, orders = self.stage.windowing, self.stage.pane_orders
        first_only = windowing is not None and windowing.mode == "discarding"
        found: list[int] = []
        for window in element.windows:
            at, since = window, element.order
            of_window: list[int] = []
            while not (first_only and of_window):
                merged = self._next_merge(element.key, at, since)
                until = _LAST if merged is None else merged.order
                shown = self._inserted(element.key, at, since, until)
                of_window += islice(shown, 1 if first_only else None)
                if merged is None:
                    break
                at, since = merged.into, merged.order + 1
            found += of_window
        return sorted(found, key=lambda number: orders[number])

    def taken_back(self, number: int) -> int | None:
        """Return the index of the pane that retracts a pane; ``None`` if none does."""
        panes = self.stage.panes
        pane = panes[number]
        numbers = self._panes[_hashable(pane.key), pane.window]
        for at in range(bisect_right(numbers, number), len(numbers)):
            later = panes[numbers[at]]
            if later.kind == "retract" and later.index == pane.index:
                return numbers[at]
        return None

    def windows(self, key: Any) -> list[Window]:
        """Return all windows of a key that were ever in the trace, sorted."""
        found = {window for element in self.of_key(key) for window in self.final(element)}
        found |= {window for element in self.of_key(key) for window in element.dropped}
        found |= {pane.window for pane in self.stage.panes if pane.key == key}
        return sorted(found)

    def _inserted(self, key: Any, window: Window, since: int, until: int) -> Iterator[int]:
        """Yield the indices of the panes of a window between two orders."""
        orders, panes = self.stage.pane_orders, self.stage.panes
        numbers = self._panes.get((_hashable(key), window), [])
        for at in range(bisect_left(numbers, since, key=lambda one: orders[one]), len(numbers)):
            if orders[numbers[at]] >= until:
                return
            if panes[numbers[at]].kind == "insert":
                yield numbers[at]

    def _chain(self, element: TracedElement, window: Window) -> Iterator[Window]:
        """Yield a window of an element, and each window that it merged into."""
        since = element.order
        while True:
            yield window
            merge = self._next_merge(element.key, window, since)
            if merge is None:
                return
            window, since = merge.into, merge.order + 1

    def _next_merge(self, key: Any, window: Window, since: int) -> TracedMerge | None:
        merges = self._merges.get((_hashable(key), window), [])
        at = bisect_left(merges, since, key=lambda merge: merge.order)
        return merges[at] if at < len(merges) else None


def _hashable(key: Any) -> Any:
    try:
        hash(key)
    except TypeError:
        return repr(key)
    return key
