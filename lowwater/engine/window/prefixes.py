"""Keeps each element of nested windows once: in the shortest window that is not complete.

Windows such as ``[day, day + k hours)`` contain each other. While none of them can fire before it
is complete, what is in one is also in all longer ones, and nobody sees these before. So an element
goes to the shortest of its windows that is not complete, and when that one completes, what it holds
is added to the next longer one: prefix sums, computed as they are needed. A record then costs what
one of a fixed window does, and a key has state for the steps that it had records in.

Complete windows have their own panes to correct, so a late element is added to each of them.
"""

from __future__ import annotations

import numpy as np

from lowwater.engine.window.window_state import WindowState
from lowwater.kernels import kernels
from lowwater.state.arrays import NONE, run_starts
from lowwater.time import START_OF_TIME, Int64Array
from lowwater.windows import NestedWindowFunction

NO_END = START_OF_TIME
"""Stands for no window: none ends at the start of time."""


class LongerWindows:
    """Finds which of the windows with one start comes next.

    Args:
        windows: The windows.
    """

    def __init__(self, windows: NestedWindowFunction) -> None:
        self._windows = windows
        self._ends: dict[int, Int64Array] = {}

    def after(self, start: Int64Array, end: Int64Array | int) -> Int64Array:
        """Return the next end above one, for each start; ``NO_END`` if there is none.

        Args:
            start: The start of each window, int64, shape (n,).
            end: Its end, or one instant for all.
        """
        found = np.full(len(start), NO_END)
        starts, of = np.unique(start, return_inverse=True)
        for number, begin in enumerate(starts.tolist()):
            if begin not in self._ends:
                self._ends[begin] = self._windows.ends(begin)
            ends = np.append(self._ends[begin], NO_END)
            here = of == number if len(starts) > 1 else slice(None)
            above = end if isinstance(end, int) else end[here]
            found[here] = ends[np.searchsorted(ends[:-1], above, side="right")]
        return found


def carry(state: WindowState, rows: Int64Array, upto: int) -> tuple[Int64Array, Int64Array]:
    """Add what completing windows hold to the next longer ones, and so on.

    Args:
        state: The windows.
        rows: Those that complete.
        upto: Windows that end until then complete now, too.

    Returns:
        (rows opened that complete now, rows of longer windows that something was added to).
    """
    if state.nested is None or not rows.size:
        return NONE, NONE
    table, longer = state.table, LongerWindows(state.nested)
    order = kernels().argsort(table["end"][rows])
    rows = rows[order]
    ends = table["end"][rows]
    bounds = [*np.flatnonzero(run_starts(ends)).tolist(), len(rows)]
    completing, reached = [NONE], [NONE]
    carried, at = NONE, 0  # windows opened here, all with one end
    while carried.size or at < len(bounds) - 1:
        now = carried
        if not carried.size or (
            at < len(bounds) - 1 and ends[bounds[at]] == table["end"][carried[0]]
        ):
            # Windows of different starts do not overlap, so no other one ends before those opened.
            now = np.concatenate((carried, rows[bounds[at] : bounds[at + 1]]))
            at += 1
        opened, into = _add_to_next(state, longer, now)
        reached.append(into[table["end"][into] > upto])
        carried = opened[table["end"][opened] <= upto]
        completing.append(carried)
    return np.concatenate(completing), np.concatenate(reached)


def reached_from(
    state: WindowState, after: int, upto: int
) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Return the windows beyond an advance that what completes in it is added to.

    Those between are due in it too, or opened on the way.

    Args:
        state: The windows; those that are due in the advance are in memory.
        after: Where it begins.
        upto: Where it ends.

    Returns:
        (key, start, end) of each.
    """
    assert state.nested is not None
    table = state.table
    rows = table.live()
    end = table["end"][rows]
    rows = rows[(end > after) & (end <= upto)]
    start = table["start"][rows]
    end = LongerWindows(state.nested).after(start, upto)
    there = end != NO_END
    return table["key"][rows[there]], start[there], end[there]


def _add_to_next(
    state: WindowState, longer: LongerWindows, rows: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """Add what windows hold to the next longer ones; return those opened, and all of them."""
    table = state.table
    end = longer.after(table["start"][rows], table["end"][rows])
    there = end != NO_END
    rows, end = rows[there], end[there]
    keys = table["key"][rows]
    into, opened = state.index.find_or_insert(keys, table["start"][rows], end)
    if opened.size:
        state.hold_keys(opened, keys)
    state.touch(into)
    there = ~np.isin(into, opened)
    state.aggregation.copy(into[~there], rows[~there])
    if there.any():
        _merge(state, into[there], rows[there])
    table["new"][into] += table["new"][rows]
    table["on_time_new"][into] |= table["on_time_new"][rows]
    if state.rule != "end":
        pick = kernels().max_at if state.rule == "latest" else kernels().min_at
        pick(table["timestamp"], into, table["timestamp"][rows])
    return opened, into


def _merge(state: WindowState, into: Int64Array, rows: Int64Array) -> None:
    """Add what windows hold to others, by way of copies: a merge takes lists away from them."""
    table = state.table
    spare = table.allocate(len(rows))
    state.aggregation.copy(spare, rows)
    state.aggregation.merge(into, spare)
    state.aggregation.release(spare)
    for name in state.queued:  # a stale entry must not look valid
        table[name][spare] = START_OF_TIME
    table.release(spare)
