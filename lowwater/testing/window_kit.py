"""The conformance check for window functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lowwater.errors import InvalidArgument, describe
from lowwater.testing._moments import DAY
from lowwater.time import DAY_US, Int64Array
from lowwater.windows import (
    Assignment,
    MergingWindowFunction,
    SlicedWindowFunction,
    WindowFunction,
)

_SECOND = 1_000_000
_Windows = list[tuple[int, int]]


def check_window_function(
    windows: WindowFunction,
    *,
    times: Sequence[int] | None = None,
    columns: Mapping[str, Sequence[Any]] | None = None,
    confluent: bool = True,
) -> None:
    """Check that a function fulfils :class:`~lowwater.windows.WindowFunction` (S-W6, S-W7).

    The checks: the function is a value, which means hashable, equal to itself and without state.
    The windows of an element depend on that element only, not on the rest of the bundle. Windows
    end after they start. The returned columns have the right types and order. If there are slices,
    all elements of one are in the same windows. If windows merge,
    each window is in one group of its own key, a key's windows do not depend on other keys, and
    functions of scope ``"overlapping"`` merge only windows that overlap or touch. If ``confluent``,
    merging step by step, in any order of arrival, gives the same windows as merging all at once.

    Args:
        windows: The window function.
        times: Event times to try, int microseconds, at least two; by default some around
            2000-01-01 and 1970.
        columns: Values of the columns that the function reads, one for each of ``times``.
        confluent: Whether the order of merging must not matter. Use ``False`` for a function that
            bounds or shrinks windows; the order of arrival may then change which windows exist.

    Raises:
        AssertionError: A check failed; the message names it and gives an example.
        InvalidArgument: ``windows`` is not a window function, or a column is missing.

    >>> import lowwater as lw
    >>> check_window_function(lw.Sessions("30s"))
    """
    if isinstance(windows, type) or not isinstance(windows, WindowFunction):
        raise InvalidArgument(
            f"{describe('windows', windows)} has no columns, merge_scope and assign",
            hint="See lowwater.windows.WindowFunction",
        )
    at = np.array(_some_times() if times is None else list(times), dtype=np.int64)
    given = _given(windows, at, columns or {})
    _is_a_value(windows)
    _assigns(windows, at, given)
    if isinstance(windows, SlicedWindowFunction) and not windows.columns:
        _slices(windows, at)
    if windows.merge_scope == "none":
        return
    assert isinstance(windows, MergingWindowFunction), "a function that merges must have merge()"
    found = sorted({window for windows_of in _of_each(windows, at, given) for window in windows_of})
    _merges(windows, found)
    if confluent:
        _is_confluent(windows, found)


def _some_times() -> list[int]:
    near = [0, 1, 2, 4, 5, 7, 10, 11, 12, 15, 16, 30, 60, 61, 90, 3_600, 86_399, 86_400]
    here = [int(DAY) + second * _SECOND for second in near]
    before = [-second * _SECOND for second in near] + [-1, 1, 40 * 365 * DAY_US]
    return here + before


def _given(
    windows: WindowFunction, at: Int64Array, columns: Mapping[str, Sequence[Any]]
) -> dict[str, NDArray[Any]]:
    for name in windows.columns:
        if name not in columns or len(columns[name]) != len(at):
            raise InvalidArgument(
                f"{windows!r} reads a column {name!r}, but times= and columns= differ in length",
                where="check_window_function",
                hint=f"Give times=[...] and columns={{{name!r}: [...]}} of one length",
            )
    return {name: np.asarray(columns[name]) for name in windows.columns}


def _is_a_value(windows: WindowFunction) -> None:
    assert windows.merge_scope in ("none", "overlapping", "key"), (
        f"merge_scope={windows.merge_scope!r} is none of 'none', 'overlapping', 'key'"
    )
    assert isinstance(windows.columns, tuple), "columns must be a tuple of names"
    assert hash(windows) == hash(windows), "a window function must be hashable"
    assert windows == windows, "a window function must equal itself"


def _assigns(windows: WindowFunction, at: Int64Array, columns: dict[str, NDArray[Any]]) -> None:
    before = at.copy()
    whole = windows.assign(at, columns)
    assert (at == before).all(), "assign must not change the times it is given"
    each = _listed(whole, len(at))
    again = _listed(windows.assign(at, columns), len(at))
    assert each == again, "assign must return the same windows for the same elements"
    nothing = windows.assign(at[:0], {name: column[:0] for name, column in columns.items()})
    assert len(nothing.start) == len(nothing.end) == 0, (
        "assign must return no windows for no elements"
    )
    alone = _of_each(windows, at, columns)
    for time, together, single in zip(at.tolist(), each, alone, strict=True):
        assert together == single, (
            f"the windows of {time} must not depend on the rest of its bundle: {together} with it, "
            f"{single} without it"
        )
    back = _listed(
        windows.assign(at[::-1].copy(), {n: c[::-1].copy() for n, c in columns.items()}), len(at)
    )
    assert back[::-1] == each, "the windows of an element must not depend on the order of a bundle"


def _slices(windows: SlicedWindowFunction, at: Int64Array) -> None:
    assert windows.slice_us > 0, f"slice_us must be above zero, not {windows.slice_us}"
    starts = windows.slice_starts(at)
    if starts is None or not len(at):
        return
    assert starts.dtype == np.int64, f"slice_starts must be int64, not {starts.dtype}"
    assert starts.shape == at.shape, "slice_starts must have one entry per element"
    assert not ((starts - starts[0]) % windows.slice_us).any(), (
        "slices must start multiples of slice_us apart"
    )
    of_elements = _listed(windows.assign(at, {}), len(at))
    of_starts = _listed(windows.assign(starts, {}), len(at))
    for time, start, here, there in zip(
        at.tolist(), starts.tolist(), of_elements, of_starts, strict=True
    ):
        assert here == there, (
            f"{time} must be in the windows of its slice, which starts at {start}: {here} are not "
            f"{there}"
        )


def _of_each(
    windows: WindowFunction, at: Int64Array, columns: dict[str, NDArray[Any]]
) -> list[_Windows]:
    return [
        _listed(windows.assign(at[n : n + 1], {m: c[n : n + 1] for m, c in columns.items()}), 1)[0]
        for n in range(len(at))
    ]


def _listed(assigned: Assignment, count: int) -> list[_Windows]:
    """Check the columns of an assignment; return the windows of each element."""
    start, end, element = assigned.start, assigned.end, assigned.element
    for name, column in (("start", start), ("end", end)):
        assert column.dtype == np.int64, f"{name} must be int64, not {column.dtype}"
        assert column.ndim == 1, f"{name} must be of shape (m,)"
    assert len(start) == len(end), "each window has a start and an end"
    assert (start < end).all(), f"a window must end after it starts: {_first(start, end)}"
    if element is None:
        assert len(start) == count, "without element=, each element has exactly one window"
        element = np.arange(count)
    assert len(element) == len(start), "element must have one entry per window"
    assert (np.diff(element) >= 0).all(), "element= must not decrease"
    assert not len(element) or (element[0] >= 0 and element[-1] < count), (
        "element= must be an index of an element"
    )
    of: list[_Windows] = [[] for _ in range(count)]
    for number, low, high in zip(element.tolist(), start.tolist(), end.tolist(), strict=True):
        of[number].append((low, high))
    lone = [] if assigned.unwindowed is None else assigned.unwindowed.tolist()
    without = [number for number, found in enumerate(of) if not found]
    assert sorted(lone) == without, (
        f"unwindowed= must name the elements in no window, {without}, not {lone}"
    )
    return of


def _first(start: Int64Array, end: Int64Array) -> str:
    wrong = np.flatnonzero(start >= end)
    return f"[{start[wrong[0]]}, {end[wrong[0]]})" if wrong.size else ""


def _merges(windows: MergingWindowFunction, found: _Windows) -> None:
    alone = _merged(windows, {0: found})[0]
    half = found[::2]
    both = _merged(windows, {0: half, 3: found})
    assert both[3] == alone, "how a key's windows merge must not depend on other keys"
    assert both[0] == _merged(windows, {0: half})[0], (
        "how a key's windows merge must not depend on later keys"
    )
    for members, result in alone:
        others = [window for window in found if window not in members]
        assert result not in others, (
            f"{members} merge into {result}, which is another active window: the result must be "
            "one of the set or a new window"
        )
        if windows.merge_scope == "overlapping":
            reach = members[0][1]
            for low, high in members[1:]:
                assert low <= reach, f"{members} merge, but they do not overlap"
                reach = max(reach, high)


def _is_confluent(windows: MergingWindowFunction, found: _Windows) -> None:
    wanted = sorted(result for _, result in _merged(windows, {0: found})[0])
    for order in _orders(found):
        active: _Windows = []
        for window in order:
            present = sorted({*active, window})
            active = [result for _, result in _merged(windows, {0: present})[0]]
        assert sorted(active) == wanted, (
            f"the order of merging must not matter (S-W7): {order}, merged in this order, give "
            f"{sorted(active)}, but merged at once {wanted}; pass confluent=False if this is "
            "intended"
        )


def _orders(found: _Windows) -> Iterator[_Windows]:
    yield found
    yield found[::-1]
    yield found[1::2] + found[::2]
    for by in range(1, min(len(found), 8)):
        yield found[by:] + found[:by]


def _merged(
    windows: MergingWindowFunction, of: Mapping[int, _Windows]
) -> dict[int, list[tuple[_Windows, tuple[int, int]]]]:
    """Return, by key, each set of merging windows with the resulting window."""
    rows = [(key, *window) for key, some in sorted(of.items()) for window in sorted(some)]
    keys, start, end = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    merged = windows.merge(keys, start, end)
    group = merged.group
    assert len(group) == len(rows), "merge must give a group for each window"
    groups = len(merged.start)
    assert len(merged.end) == groups, "each group has a start and an end"
    assert sorted(set(group.tolist())) == list(range(groups)), (
        "groups must be numbered from 0, each with a window"
    )
    assert (merged.start < merged.end).all(), (
        f"a merged window must end after it starts: {_first(merged.start, merged.end)}"
    )
    results: dict[int, list[tuple[_Windows, tuple[int, int]]]] = {key: [] for key in of}
    for number in range(groups):
        members = [rows[at] for at in np.flatnonzero(group == number).tolist()]
        keys_of = {key for key, *_ in members}
        assert len(keys_of) == 1, f"windows of several keys were merged: {members}"
        result = int(merged.start[number]), int(merged.end[number])
        results[keys_of.pop()].append(([(low, high) for _, low, high in members], result))
    return {key: sorted(some) for key, some in results.items()}
