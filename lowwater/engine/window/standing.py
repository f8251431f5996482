"""What stands of panes: for each key and window, the net of what they emitted and retracted (S-A4).

Each pane and each event that ends one, a retraction or a merge, gets its place in one sequence. A
*life* of a window is what lies between two such events. Panes of a life that an event has ended no
longer stand; of the others, the last one does, or all of them together where panes contain only
what was new.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, final

import numpy as np
import pyarrow as pa

from lowwater.engine.aggregates import AggregateSpec
from lowwater.engine.records.columns import Column, Mask
from lowwater.engine.records.keys import KeyDictionary
from lowwater.engine.records.steps import INSERT, RETRACT, Bundle, MergedWindows, PaneBatch
from lowwater.engine.window.aggregation import Aggregation
from lowwater.engine.window.windowing import Windowing
from lowwater.errors import InvalidArgument
from lowwater.kernels.positions import repeated
from lowwater.state.arrays import run_starts, sort_by_key_and_time
from lowwater.state.table import Field, Index, RowTable
from lowwater.time import Int64Array

# The order at one pane: the lives that it replaces end, the life that they go on in is the one that
# has begun by now, and the pane comes.
_ENDS, _INTO, _COMES, _PLACES = 0, 1, 2, 3
_WINDOW = ("key", "start", "end")


@final
@dataclass(frozen=True, slots=True)
class Replaced:
    """Windows with panes that merged into others, as the operator reports them.

    Args:
        windows: The windows, and those that they merged into.
        before: How many panes had been emitted before those of the same step.
    """

    windows: MergedWindows
    before: int


def standing(
    batches: Sequence[PaneBatch],
    replaced: Sequence[Replaced],
    windowing: Windowing,
    aggregates: Mapping[str, AggregateSpec],
) -> list[PaneBatch]:
    """Return what stands of panes (S-A4): one for each key and window, in order of emission.

    *Accumulating* and *retracting*: the last pane, unless it was retracted or its window merged
    into another that has a pane. *Discarding*: the results of all panes combined, those of windows
    that merged too, with the other columns of the last pane. O(n log n).

    Args:
        batches: All panes of a run, in order of emission.
        replaced: Which windows merged, if their panes are not retracted.
        windowing: The stage's windowing.
        aggregates: Its aggregates.

    Raises:
        InvalidArgument: Panes contain only what is new, and an aggregate's results cannot be
            combined.
    """
    if windowing.shows_differences:  # whatever this run has emitted
        _require_rejoining(aggregates)
    if not batches:
        return []
    life, ended, into = _lives(batches, replaced)
    came = np.flatnonzero(_concat(batches, "kind") == INSERT)
    last = np.full(len(ended), -1, dtype=np.int64)
    np.maximum.at(last, life, came)
    rows = np.sort(last[~ended & (last >= 0)])
    bounds = np.cumsum([0, *map(len, batches)])
    which = np.searchsorted(rows, bounds)
    parts = [
        batch.take(rows[which[at] : which[at + 1]] - bounds[at])
        for at, batch in enumerate(batches)
        if which[at] < which[at + 1]
    ]
    if windowing.mode != "discarding" or len(came) == len(rows):
        return parts
    _require_rejoining(aggregates)
    place = np.full(len(ended), -1, dtype=np.int64)
    place[life[np.searchsorted(came, rows)]] = np.arange(len(rows))
    values = _combined(batches, place[into[life]], len(rows), aggregates)
    stops = np.cumsum([len(part) for part in parts]).tolist()
    return [
        replace(part, values={n: c.slice(stop - len(part), stop) for n, c in values.items()})
        for part, stop in zip(parts, stops, strict=True)
    ]


def _require_rejoining(aggregates: Mapping[str, AggregateSpec]) -> None:
    for name, spec in aggregates.items():
        if getattr(spec, "rejoins", None) is None:
            raise InvalidArgument(
                f"the panes of a discarding stage contain only what is new, and results of "
                f"{name}={spec!r} cannot be combined",
                where="final",
                hint='Use accumulation="accumulating", where the last pane contains everything; '
                "count, sum, min, max, any, all, collect and collect_set can be combined",
            )


def _lives(
    batches: Sequence[PaneBatch], replaced: Sequence[Replaced]
) -> tuple[Int64Array, Mask, Int64Array]:
    """Number the lives of windows.

    Returns:
        The life of each inserted pane; which lives have ended; and the life that the contents of
        each ended up in, through all merges: itself, if none.
    """
    kind = _concat(batches, "kind")
    merged = [one.windows for one in replaced]
    before = np.concatenate(
        [np.zeros(0, np.int64), *(np.full(len(one.windows.group), one.before) for one in replaced)]
    )
    group = _groups(batches, merged)
    panes, ends = len(kind), len(before)
    at = before * _PLACES
    place = np.concatenate((np.arange(panes) * _PLACES + _COMES, at + _ENDS, at + _INTO))
    ending = np.zeros(len(place), dtype=np.bool_)
    ending[:panes] = kind == RETRACT
    ending[panes : panes + ends] = True
    order = sort_by_key_and_time(group, place)
    begins = run_starts(group[order])
    begins[1:] |= ending[order][:-1]
    life = np.empty(len(place), dtype=np.int64)
    life[order] = np.cumsum(begins) - 1
    lives = int(begins.sum())
    ended = np.zeros(lives, dtype=np.bool_)
    ended[life[ending]] = True
    into = np.arange(lives)
    into[life[panes : panes + ends]] = life[panes + ends :]
    while not np.array_equal(further := into[into], into):  # each turn halves the way
        into = further
    return life[:panes][kind == INSERT], ended, into


def _groups(batches: Sequence[PaneBatch], merged: Sequence[MergedWindows]) -> Int64Array:
    """Number the distinct (key, window) of panes, of merged windows and of what they merged into.

    Of the panes first, and then of all that merged, and then of what these merged into.
    """
    ids = KeyDictionary(len(batches[0].keys))
    keys = [ids.encode(batch.keys) for batch in batches]
    parts = [ids.encode(one.keys)[one.group] for one in merged]
    key = np.concatenate((*keys, *parts, *parts))
    start = np.concatenate(
        (
            *(batch.start for batch in batches),
            *(one.part_start for one in merged),
            *(one.start[one.group] for one in merged),
        )
    )
    end = np.concatenate(
        (
            *(batch.end for batch in batches),
            *(one.part_end for one in merged),
            *(one.end[one.group] for one in merged),
        )
    )
    distinct = RowTable([Field(name, np.int64) for name in _WINDOW])
    return Index(distinct, _WINDOW).find_or_insert(key, start, end)[0]


def _combined(
    batches: Sequence[PaneBatch],
    rows: Int64Array,
    count: int,
    aggregates: Mapping[str, AggregateSpec],
) -> dict[str, Column]:
    """Combine the results of panes: those with the same number in ``rows``, of ``count``."""
    table = RowTable([])
    parts = {
        name: Aggregation({name: spec.rejoins(name)}, table)  # type: ignore[attr-defined]  # checked
        for name, spec in aggregates.items()
    }
    held = table.allocate(count)
    rows = held[rows]
    begin = arrived = 0
    for batch in batches:
        own, most = rows[begin : begin + len(batch)], 0
        for name, part in parts.items():
            column, at = batch.values[name], own
            if aggregates[name].lists:  # type: ignore[attr-defined]  # checked
                column, lengths = _unnested(column)
                at = repeated(own, lengths)
            times = np.zeros(len(at), dtype=np.int64)
            # Of a batch after those before it: what is in lists is in order of arrival (S-W7).
            arrival = arrived + np.arange(len(at), dtype=np.int64)
            part.add(Bundle(times, (), {name: column}), None, at, arrival)
            most = max(most, len(at))
        begin += len(batch)
        arrived += most
    return {name: column for part in parts.values() for name, column in part.results(held).items()}


def _unnested(column: Column) -> tuple[Column, Int64Array]:
    """Return the values in lists as one column, and how many each list has."""
    if column.arrow is not None:
        lengths = pa.compute.list_value_length(column.arrow).to_numpy(zero_copy_only=False)
        return Column.from_arrow(column.arrow.flatten()), lengths.astype(np.int64)
    lists: list[Any] = column.data.tolist()
    lengths = np.fromiter(map(len, lists), dtype=np.int64, count=len(lists))
    return Column.of_objects(list(chain.from_iterable(lists))), lengths


def _concat(batches: Sequence[PaneBatch], name: str) -> Any:
    return np.concatenate([getattr(batch, name) for batch in batches])
