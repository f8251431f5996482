"""MergeWindows for a process: windows merge, and their cells and timers with them (S-K8)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lowwater.engine.process.cell import RecordCell
from lowwater.engine.process.state_keys import StateKeys
from lowwater.engine.process.timers import Timers
from lowwater.engine.window.placement import Placement
from lowwater.errors import InternalError
from lowwater.time import Int64Array


def merge_windows(
    state_keys: StateKeys,
    cells: Sequence[RecordCell],
    timers: Timers,
    placement: Placement,
    keys: list[int],
    start: Int64Array,
    end: Int64Array,
    values: list[Any],
) -> list[int]:
    """Merge the proto-windows of a bundle with each other and with the open ones of their keys.

    Args:
        state_keys: The live keys and windows.
        cells: Their cells.
        timers: Their timers.
        placement: The windows.
        keys: Key id of each element.
        start: Start of its proto-window, int64, shape (n,).
        end: Its end, int64, shape (n,).
        values: Its key.

    Returns:
        The scope of each element. O(n log n + open windows of the keys).
    """
    merging = placement.windowing.merging
    if merging is None:
        raise InternalError("these windows do not merge")
    value_of = dict(zip(keys, values, strict=True))
    opened = [scope for key in value_of for scope in state_keys.of_key(key)]
    places = np.array([state_keys.place(scope) for scope in opened], dtype=np.int64).reshape(-1, 3)
    of = np.concatenate((np.array(keys, dtype=np.int64), places[:, 0]))
    begins = np.concatenate((start, places[:, 1]))
    ends = np.concatenate((end, places[:, 2]))
    order = np.lexsort((ends, begins, of))
    merged = merging.merge(of[order], begins[order], ends[order])
    group = np.empty(len(of), dtype=np.int64)
    group[order] = merged.group
    key_of = np.empty(len(merged.start), dtype=np.int64)
    key_of[group] = of
    # The open windows of each group, by start: as they came out of the sort.
    members: dict[int, list[int]] = {}
    for at in order[order >= len(keys)].tolist():
        members.setdefault(int(group[at]), []).append(opened[at - len(keys)])
    found: dict[int, int] = {}
    for number in group.tolist():  # in order of arrival, those that got no element last
        if number not in found:
            key = int(key_of[number])
            found[number] = _one_window(
                state_keys, cells, timers, placement, members.get(number, []), key,
                int(merged.start[number]), int(merged.end[number]), value_of[key],
            )  # fmt: skip
    return [found[number] for number in group[: len(keys)].tolist()]


def _one_window(
    state_keys: StateKeys,
    cells: Sequence[RecordCell],
    timers: Timers,
    placement: Placement,
    members: list[int],
    key: int,
    start: int,
    end: int,
    value: Any,
) -> int:
    into = state_keys.find(key, start, end)
    if into is None:
        into = state_keys.open(key, start, end, value)
        timers.expire_at(placement.expires(end), state_keys.born[into], into)
    if members and members != [into]:
        for cell in cells:
            cell.merge(into, members)
        timers.merge(into, members)
        for scope in members:
            if scope != into:
                state_keys.bury(scope)
    return into
