"""Turns rows into panes: labels, retractions, and what a window keeps of its last pane."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from lowwater.engine.records.columns import Mask
from lowwater.engine.records.steps import EARLY, INSERT, RETRACT, MergedWindows, PaneBatch
from lowwater.engine.window.window_state import WindowState
from lowwater.time import Int64Array


@final
@dataclass(frozen=True, slots=True)
class Firing:
    """Windows that fire together, as columns, in the order their panes come out.

    Args:
        rows: Distinct rows, int64, shape (n,).
        timing: uint8, as in :class:`PaneBatch`.
        last: Whether no more panes can come, bool.
        released: Whether the row is released right after, bool.
        clock: The clock, an int or int64 of shape (n,).
        watermark: The watermark.
    """

    rows: Int64Array
    timing: NDArray[np.uint8]
    last: Mask
    released: Mask
    clock: int | Int64Array
    watermark: int


@final
class PaneOrder:
    """What panes were sorted by: (due, end, start, first-seen key).

    An advance of the clock settles once per deadline (S-O8); its panes are sorted together at last.
    """

    def __init__(self, columns: tuple[Int64Array, ...]) -> None:
        self._columns = columns

    @classmethod
    def of(cls, state: WindowState, rows: Int64Array, due: Int64Array) -> PaneOrder:
        """Return what the panes of rows that came due at some times are sorted by."""
        return cls((due, state.table["end"][rows], state.table["start"][rows], state.places(rows)))

    def take(self, window: Int64Array) -> PaneOrder:
        """Return the order of panes, each of one of the rows."""
        return PaneOrder(tuple(column[window] for column in self._columns))

    @staticmethod
    def together(orders: list[PaneOrder]) -> Int64Array:
        """Return the order that sorts the panes of several settlings together."""
        due, end, start, place = (
            np.concatenate(parts)
            for parts in zip(*(order._columns for order in orders), strict=True)
        )
        return np.lexsort((place, start, end, due))


def emit(state: WindowState, firing: Firing) -> tuple[PaneBatch, Int64Array]:
    """Return the panes of a firing, and which of its windows each is of.

    Afterwards nothing in the windows is new; in discarding mode they hold nothing.
    """
    rows = firing.rows
    table = state.table
    index = table["index"][rows].astype(np.int64)
    on_time_index = table["on_time_index"][rows].astype(np.int64)
    on_time_index += firing.timing != EARLY
    shown_index = np.where(firing.timing == EARLY, -1, on_time_index)
    end = table["end"][rows]
    count = len(rows)
    batch = PaneBatch(
        keys=state.decode_keys(rows),
        start=table["start"][rows],
        end=end,
        values=state.aggregation.results(rows),
        timing=firing.timing,
        index=index,
        on_time_index=shown_index,
        is_first=index == 0,
        is_last=firing.last,
        kind=np.full(count, INSERT, dtype=np.uint8),
        timestamp=_timestamps(state, rows, end),
        emitted_at=np.broadcast_to(np.asarray(firing.clock, dtype=np.int64), (count,)),
        watermark=np.full(count, firing.watermark, dtype=np.int64),
    )
    window = np.arange(count, dtype=np.int64)
    shown = batch
    if state.replaced is not None:
        _note_replaced(state, rows, batch)
    elif state.shown is not None:
        shown, window = _with_retractions(state, rows, batch)
    _remember(state, firing, batch, on_time_index)
    return shown, window


def _timestamps(state: WindowState, rows: Int64Array, end: Int64Array) -> Int64Array:
    latest = end - 1
    if state.rule == "end":
        return latest
    seen = state.table["timestamp"][rows]
    return np.where(seen == state.no_timestamp, latest, seen)


def _with_retractions(
    state: WindowState, rows: Int64Array, batch: PaneBatch
) -> tuple[PaneBatch, Int64Array]:
    """Put the panes that each firing retracts in front of it, in event-time order (S-A3)."""
    count = len(rows)
    if state.shown is None:
        return batch, np.arange(count)
    panes, window = state.shown.take(rows)
    if not panes.size:
        return batch, np.arange(count)
    labels = state.shown.labels(panes)
    taken = PaneBatch(
        keys=state.decode_keys(rows[window]),
        start=labels["start"],
        end=labels["end"],
        values=state.shown.values(panes, state.aggregation.names),
        timing=labels["timing"].astype(np.uint8),
        index=labels["index"],
        on_time_index=labels["on_time_index"],
        is_first=labels["index"] == 0,
        is_last=np.zeros(len(panes), dtype=np.bool_),
        kind=np.full(len(panes), RETRACT, dtype=np.uint8),
        timestamp=labels["timestamp"],
        emitted_at=batch.emitted_at[window],
        watermark=batch.watermark[window],
    )
    state.shown.release(panes)
    order = np.lexsort((taken.start, taken.end, taken.timestamp, window))
    place = np.argsort(np.concatenate((2 * window[order], 2 * np.arange(count) + 1)), kind="stable")
    both = PaneBatch.concat((taken, batch)).take(
        np.concatenate((order, len(panes) + np.arange(count)))[place]
    )
    return both, np.concatenate((window[order], np.arange(count)))[place]


def _note_replaced(state: WindowState, rows: Int64Array, batch: PaneBatch) -> None:
    """Note the windows whose last panes these firings replace: what would be retracted (S-A3)."""
    if state.shown is None or state.replaced is None:
        return
    panes, window = state.shown.take(rows)
    labels = state.shown.labels(panes)
    state.shown.release(panes)
    start, end = labels["start"], labels["end"]
    merged = (start != batch.start[window]) | (end != batch.end[window])
    if merged.any():
        into = window[merged]
        state.replaced.append(
            MergedWindows(
                np.arange(len(into), dtype=np.int64), start[merged], end[merged],
                tuple(key.take(into) for key in batch.keys), batch.start[into], batch.end[into],
            )
        )  # fmt: skip


def _remember(
    state: WindowState, firing: Firing, batch: PaneBatch, on_time_index: Int64Array
) -> None:
    stays = ~firing.released
    if not stays.any():
        return
    rows = firing.rows
    table = state.table
    if not stays.all():
        rows, on_time_index = rows[stays], on_time_index[stays]
        batch = batch.take(np.flatnonzero(stays))
    table["index"][rows] = batch.index + 1
    table["on_time_index"][rows] = on_time_index
    table["new"][rows] = 0
    table["on_time_new"][rows] = False
    if state.mode == "discarding":
        state.aggregation.reset(rows)
        if state.rule != "end":
            table["timestamp"][rows] = state.no_timestamp
    if state.shown is not None:
        labels = {
            "start": batch.start,
            "end": batch.end,
            "timing": batch.timing.astype(np.int64),
            "index": batch.index,
            "on_time_index": batch.on_time_index,
            "timestamp": batch.timestamp,
        }
        state.shown.put(rows, labels, batch.values if state.replaced is None else {})
