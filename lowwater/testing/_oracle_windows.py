"""AssignWindows and MergeWindows of the scalar oracle: one element, one key at a time (S-W)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from lowwater.engine.window.fill import UntilIdle
from lowwater.engine.window.windowing import Windowing
from lowwater.time import (
    END_OF_TIME,
    LAST_EVENT_TIME,
    START_OF_TIME,
    Instant,
    duration,
    instant,
    saturating_add,
)
from lowwater.windows import (
    ColumnWindows,
    CumulativeWindows,
    CustomWindows,
    FixedWindows,
    GlobalWindow,
    Sessions,
    SlidingWindows,
    Window,
    WindowFunction,
)


def windows_of(windows: WindowFunction, at: int, columns: Mapping[str, Any]) -> list[Window]:
    """Return the (proto-)windows of one element, earliest first."""
    match windows:
        case FixedWindows():
            start = at - (at - windows.offset_us) % windows.size_us  # S-W1
            return [_span(max(START_OF_TIME, start), windows.size_us)]
        case SlidingWindows():
            last = at - (at - windows.offset_us) % windows.period_us  # S-W2
            starts = range(last, at - windows.size_us, -windows.period_us)
            return [_span(start, windows.size_us) for start in reversed(starts)]
        case CumulativeWindows(timezone=None):
            start = at - (at - windows.offset_us) % windows.size_us  # S-W8
            last = start + windows.size_us
            ends = [*range(start + windows.step_us, last, windows.step_us), last]
            cut = max(START_OF_TIME, start)
            return [_window(cut, end) for end in _distinct_ends(ends) if end > at]
        case ColumnWindows():
            start, end = (int(instant(columns[name])) for name in windows.columns)  # S-W9
            return [_window(start, end)] if start <= at < end else []
        case Sessions():
            gap = windows.gap_us
            return [_span(at, duration(columns[windows.columns[0]]) if gap is None else gap)]
        case GlobalWindow():
            return [_window(START_OF_TIME, LAST_EVENT_TIME + 1)]  # S-W4
        case CustomWindows(assign_element=assign) if assign is not None:
            return sorted(_window(start, end) for start, end in assign(at))
    given = windows.assign(np.array([at], dtype=np.int64), {})
    return list(map(_window, given.start.tolist(), given.end.tolist()))


def fillable(windowing: Windowing, had: Collection[Window]) -> set[Window]:
    """Return the windows of a key that may be filled: behind those with elements (S-F1)."""
    if windowing.fill is None:
        return set()
    return {one for window in had for one in followers(windowing, window)}.difference(had)


def opens_next(windowing: Windowing, had: Collection[Window], watermark: int) -> bool:
    """Return whether the window behind the complete ones of a key waits to be filled (S-F4)."""
    if windowing.fill is None or watermark == END_OF_TIME:
        return False
    complete = [window for window in had if window.end <= watermark]
    behind = {one for window in complete for one in followers(windowing, window)}
    to_come = sorted(one for one in behind if one.end > watermark)
    return bool(to_come) and to_come[0] not in had


def followers(windowing: Windowing, window: Window) -> list[Window]:
    """Return the windows behind one with elements that are filled if they have none (S-F1)."""
    windows, fill = windowing.windows, windowing.fill
    found: list[Window] = []
    while True:
        end = found[-1].end if found else window.end
        if isinstance(windows, SlidingWindows):
            following = _span(end - windows.size_us + windows.period_us, windows.size_us)
        else:
            (following,) = windows_of(windows, end, {}) or [window]
        if isinstance(fill, UntilIdle):
            more = following.end <= window.end + duration(fill.idle)
        else:
            more = len(found) < int(str(fill).split()[0])
        if not more or following.end <= end or following.end >= END_OF_TIME:
            return found
        found.append(following)


def merge_sets(
    windows: WindowFunction, active: Sequence[Window]
) -> list[tuple[list[Window], Window]]:
    """Return how the distinct windows of one key merge: each set with the resulting window.

    Windows that the function leaves alone are sets of one.
    """
    if windows.merge_scope == "none":
        return [([window], window) for window in active]
    if isinstance(windows, Sessions):
        return _overlapping(active, touching=windows.merge_touching)
    if not isinstance(windows, CustomWindows) or windows.merge_active is None:
        raise NotImplementedError(f"the oracle does not know how {windows!r} merges")
    sets = []
    left = sorted(active)
    for members, merged in windows.merge_active(sorted(active)):
        result = merged if isinstance(merged, Window) else _window(*merged)
        sets.append((list(members), result))
        left = [window for window in left if window not in members]
    return [*sets, *(([window], window) for window in left)]


def _overlapping(active: Sequence[Window], *, touching: bool) -> list[tuple[list[Window], Window]]:
    """Return the runs of windows that overlap, each with its span (S-W3)."""
    sets: list[tuple[list[Window], Window]] = []
    for window in sorted(active):
        members, span = sets[-1] if sets else ([], None)
        if span and (window.start < span.end or (touching and window.start == span.end)):
            sets[-1] = ([*members, window], Window(span.start, max(span.end, window.end)))
        else:
            sets.append(([window], window))
    return sets


def _distinct_ends(ends: Sequence[int]) -> list[int]:
    """Return instants, those beyond the end of time as one there."""
    return sorted({min(end, END_OF_TIME) for end in ends})


def _span(start: int, size: int) -> Window:
    return _window(start, saturating_add(start, size))


def _window(start: int, end: int) -> Window:
    return Window(Instant(start), Instant(end))
