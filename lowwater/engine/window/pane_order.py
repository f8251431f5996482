"""The order of the panes of one advance of the clock, which takes several settlings (S-O8)."""

from __future__ import annotations

from typing import final

import numpy as np

from lowwater.engine.window.window_state import WindowState
from lowwater.time import Int64Array


@final
class PaneOrder:
    """What the panes of a settling were sorted by: (due, end, start, first-seen key)."""

    def __init__(self, columns: tuple[Int64Array, ...]) -> None:
        self._columns = columns

    @classmethod
    def of(cls, state: WindowState, rows: Int64Array, due: Int64Array) -> PaneOrder:
        """Return what the panes of rows, due when it says, are sorted by."""
        return cls((due, state.table["end"][rows], state.table["start"][rows], state.places(rows)))

    def take(self, window: Int64Array) -> PaneOrder:
        """Return it for panes, each of one of the rows."""
        return PaneOrder(tuple(column[window] for column in self._columns))

    @staticmethod
    def together(orders: list[PaneOrder]) -> Int64Array:
        """Return the order that sorts the panes of several settlings, one after the other."""
        due, end, start, place = (
            np.concatenate(parts)
            for parts in zip(*(order._columns for order in orders), strict=True)
        )
        return np.lexsort((place, start, end, due))
