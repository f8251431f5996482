"""The jobs that peers do, and their answers. Needs numpy and pyarrow, nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import pyarrow.parquet as pq

MINUTE_US = 60_000_000
GAP_US = 30_000_000
DELAY_S = 10
# Events handed over at a time, where a peer lets its user choose.
BATCH = 50_000
WINDOWS = ("fixed", "sessions")
JOIN = "join"
"""Events of even value with those of odd value that have their key, and come within five seconds.

A pair counts as ``1_000 * even + odd``. Both ends of the interval belong to it.
"""
PATTERN = "pattern"
"""Rows of a key in order of time and value: one of any value, falling ones, and one that rises.

The last of those that fall counts. Matches do not overlap.
"""
JOBS = (*WINDOWS, JOIN, PATTERN)
WITHIN_S = 5


@final
@dataclass(frozen=True, slots=True)
class Answer:
    """What is compared: windows, the sum of their sums, and the sum of the squares of these.

    The squares differ when a value is counted in the wrong window, which the plain sum cannot see.
    Of the join, pairs stand for windows.
    """

    windows: int
    total: int
    squares: int


@final
@dataclass(frozen=True, slots=True)
class Timed:
    """A run: what came out, and what it took from its first event to its last window.

    ``cpu`` is in seconds, over all cores and over the processes that the peer starts.
    """

    answer: Answer
    seconds: float
    cpu: float


# What a peer's module offers as `run`: the Parquet file and one of JOBS, to a Timed.
Run = Callable[[Path, str], Timed]


def answer_of(totals: Any) -> Answer:
    """Return the answer of a column of sums, one per window."""
    sums = np.asarray(totals, dtype=np.int64)
    return Answer(len(sums), int(sums.sum()), int((sums * sums).sum()))


def right_answer(path: Path, windows: str, *, unit_us: int = 1, touching: bool = False) -> Answer:
    """Work the answer out all at once, with numpy's sort; O(n log n) in the events of the file.

    Args:
        path: The events, see ``benchmarks/events.py``.
        windows: One of ``JOBS``.
        unit_us: What instants are cut to: some peers keep milliseconds.
        touching: Whether sessions that only touch are one. To the microsecond these events hold
            none that touch, so that it matters only together with a coarser unit.
    """
    table = pq.read_table(path)
    keys = table["key"].combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64)
    at = table["at"].cast("int64").to_numpy()
    values = table["value"].to_numpy()
    at = at // unit_us * unit_us
    if windows == JOIN:
        return _joined(at, keys, values)
    if windows == PATTERN:
        return _matched(at, keys, values)
    if windows == "fixed":
        minutes = at // MINUTE_US
        order = np.lexsort((minutes, keys))
        new = (np.diff(keys[order]) != 0) | (np.diff(minutes[order]) != 0)
    else:
        order = np.lexsort((at, keys))
        new = (np.diff(keys[order]) != 0) | (np.diff(at[order]) >= GAP_US + touching)
    starts = np.flatnonzero(np.concatenate(([True], new)))
    return answer_of(np.add.reduceat(values[order], starts))


def _joined(at: Any, keys: Any, values: Any) -> Answer:
    """Join everything at once: sort one side by key and time, and search for the other."""
    even, odd = (np.flatnonzero(values % 2 == rest) for rest in (0, 1))
    span = int(at.max() - at.min()) + 2 * WITHIN_S * 1_000_000
    places = keys * span + (at - at.min())
    odd = odd[np.argsort(places[odd], kind="stable")]
    low = np.searchsorted(places[odd], places[even])
    high = np.searchsorted(places[odd], places[even] + WITHIN_S * 1_000_000, side="right")
    count = high - low
    begins = np.cumsum(count) - count
    of_even = np.repeat(np.arange(len(even)), count)
    of_odd = np.arange(len(of_even)) - begins[of_even] + low[of_even]
    return answer_of(values[even[of_even]] * 1_000 + values[odd[of_odd]])


def _matched(at: Any, keys: Any, values: Any) -> Answer:
    """Find the pattern: a match is a run of falling rows, the row before it and the row behind."""
    order = np.lexsort((values, at, keys))
    keys, values = keys[order], values[order]
    same = np.concatenate((keys[1:] == keys[:-1], [False]))  # as the row behind
    falls = np.concatenate(([False], same[:-1] & (values[1:] < values[:-1])))
    begins = np.flatnonzero(falls & ~np.concatenate(([False], falls[:-1])))
    ends = np.flatnonzero(falls & ~np.concatenate((falls[1:], [False])))
    rises = np.append(values, 0)[ends + 1] > values[ends]
    lows, taken = [], -1
    for begin, end, ok in zip(
        begins.tolist(), ends.tolist(), (same[ends] & rises).tolist(), strict=True
    ):
        # The first row of a match is not the last one of the match before.
        if ok and max(begin - 1, taken + 1) < end:
            lows.append(values[end])
            taken = end + 1
    return answer_of(lows)
