"""Which window an element was in when: its own, then what that merged into."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, final

from lowwater.engine.panes import Pane
from lowwater.engine.trace import StageTrace, TracedElement, TracedMerge
from lowwater.windows import Window

_LAST = 2**63


@final
class Lineage:
    """The windows of one stage's trace over its time. Built in O(elements + merges + panes).

    Args:
        stage: The trace of the stage.
    """

    def __init__(self, stage: StageTrace) -> None:
        self.stage = stage
        self._merges: dict[tuple[Any, Window], list[TracedMerge]] = {}
        for merge in stage.merges:
            for part in merge.of:
                if part != merge.into:
                    self._merges.setdefault((_hashable(merge.key), part), []).append(merge)
        self._panes: dict[tuple[Any, Window], list[tuple[int, Pane]]] = {}
        for order, pane in zip(stage.pane_orders, stage.panes, strict=True):
            self._panes.setdefault((_hashable(pane.key), pane.window), []).append((order, pane))

    def became(self, key: Any, window: Window, since: int, until: int = _LAST) -> Window:
        """Return what a window had become by an order, if it was there at another.

        Args:
            key: Its key.
            window: The window.
            since: Merges before this order are not its own.
            until: Nor are those at this order or after.
        """
        key = _hashable(key)
        while True:
            merges = self._merges.get((key, window), [])
            at = bisect_right(merges, since - 1, key=lambda merge: merge.order)
            if at == len(merges) or merges[at].order >= until:
                return window
            # The order goes on by one: a bundle merges a window no more than once.
            window, since = merges[at].into, merges[at].order + 1

    def final(self, element: TracedElement) -> tuple[Window, ...]:
        """Return the windows that an element is in at the end of the trace."""
        found = (self.became(element.key, w, element.order) for w in element.windows)
        return tuple(dict.fromkeys(found))

    def elements(self, key: Any, window: Window) -> list[TracedElement]:
        """Return the elements that ended up in a window, in order; late ones are not among them."""
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
        return [element for element in self.stage.elements if element.key == key]

    def panes(self, key: Any, window: Window) -> list[tuple[int, Pane]]:
        """Return the panes of a window with the order of each, retractions too."""
        return self._panes.get((_hashable(key), window), [])

    def merges_into(self, key: Any, window: Window) -> list[TracedMerge]:
        """Return the merges that made a window, or made it larger than its parts."""
        return [merge for merge in self.stage.merges if (merge.key, merge.into) == (key, window)]

    def showing(self, element: TracedElement) -> list[Pane]:
        """Return the panes that show an element: of each of its windows, in order.

        Discarding panes show what is new, so the first behind it does; others show all so far.
        """
        windowing = self.stage.windowing
        found: list[tuple[int, Pane]] = []
        for window in element.windows:
            of_window: list[tuple[int, Pane]] = []
            at, since = window, element.order
            while True:
                merged = self._next_merge(element.key, at, since)
                until = _LAST if merged is None else merged.order
                of_window += [
                    (order, pane)
                    for order, pane in self.panes(element.key, at)
                    if since <= order < until and pane.kind == "insert"
                ]
                if merged is None:
                    break
                at, since = merged.into, merged.order + 1
            if windowing is not None and windowing.mode == "discarding":
                of_window = of_window[:1]
            found += of_window
        return [pane for _, pane in sorted(found, key=lambda each: each[0])]

    def windows(self, key: Any) -> list[Window]:
        """Return all windows of a key that were ever in the trace, sorted."""
        found = {window for element in self.of_key(key) for window in self.final(element)}
        found |= {window for element in self.of_key(key) for window in element.dropped}
        found |= {pane.window for pane in self.stage.panes if pane.key == key}
        return sorted(found)

    def _chain(self, element: TracedElement, window: Window) -> Iterator[Window]:
        """Yield a window of an element, and each that it became."""
        since = element.order
        while True:
            yield window
            merge = self._next_merge(element.key, window, since)
            if merge is None:
                return
            window, since = merge.into, merge.order + 1

    def _next_merge(self, key: Any, window: Window, since: int) -> TracedMerge | None:
        for merge in self._merges.get((_hashable(key), window), []):
            if merge.order >= since:
                return merge
        return None


def _hashable(key: Any) -> Any:
    try:
        hash(key)
    except TypeError:
        return repr(key)
    return key
