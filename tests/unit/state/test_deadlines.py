"""Deadlines, against a heap."""

from __future__ import annotations

import heapq
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowwater.state.deadlines import Deadlines
from lowwater.time import END_OF_TIME, START_OF_TIME, Int64Array

TIMES = st.one_of(st.integers(0, 60), st.sampled_from([START_OF_TIME, END_OF_TIME]))
PUSHES = st.lists(st.tuples(TIMES, st.integers(0, 1_000)), max_size=60)


class Checked:
    """A queue and a heap, kept in step."""

    def __init__(self) -> None:
        self.queue = Deadlines()
        self.heap: list[tuple[int, int]] = []
        self.is_thorough = True
        """Whether each step looks at all entries."""

    def push(self, entries: list[tuple[int, int]]) -> None:
        times, rows = (np.array(part, dtype=np.int64) for part in _columns(entries))
        before = times.copy(), rows.copy()
        self.queue.push(times, rows)
        assert (times == before[0]).all()
        assert (rows == before[1]).all()
        for entry in entries:
            heapq.heappush(self.heap, entry)
        self.check()

    def pop(self, upto: int) -> None:
        expected = []
        while self.heap and self.heap[0][0] <= upto:
            expected.append(heapq.heappop(self.heap))
        times, rows = self.queue.pop(upto)
        assert times.dtype == rows.dtype == np.int64
        assert sorted(zip(times.tolist(), rows.tolist(), strict=True)) == expected
        self.check()

    def check(self) -> None:
        if self.is_thorough:
            self.queue._check()
        assert len(self.queue) == len(self.heap)
        assert self.queue.first == (self.heap[0][0] if self.heap else END_OF_TIME)


def _columns(entries: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
    return [at for at, _ in entries], [row for _, row in entries]


@given(st.lists(st.one_of(PUSHES, TIMES), max_size=25))
def test_like_a_heap(steps: list[list[tuple[int, int]] | int]) -> None:
    checked = Checked()
    for step in steps:
        if isinstance(step, int):
            checked.pop(step)
        else:
            checked.push(step)
    checked.pop(END_OF_TIME)


@pytest.mark.parametrize("bundle", [1, 16, 17, 1_000])
def test_a_long_stream(bundle: int) -> None:
    """Few at a time go through a heap that spills, many at a time through sorted runs."""
    random = np.random.default_rng(bundle)
    checked = Checked()
    for turn in range(4_000 // bundle + 20):
        checked.is_thorough = turn % 20 == 0
        times = random.integers(turn * bundle, turn * bundle + 3_000, bundle)
        rows = random.integers(0, 1 << 30, bundle)
        checked.push(list(zip(times.tolist(), rows.tolist(), strict=True)))
        checked.pop(turn * bundle)
    checked.pop(END_OF_TIME)


def test_the_end_of_time_is_a_deadline_like_others() -> None:
    checked = Checked()
    checked.push([(END_OF_TIME, 1)])
    checked.pop(END_OF_TIME - 1)
    assert len(checked.queue) == 1
    checked.pop(END_OF_TIME)
    assert len(checked.queue) == 0


def test_what_is_not_due_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Popping costs what is due: sorting 100 000 others again is not part of it."""
    queue = Deadlines()
    queue.push(np.arange(100_000, dtype=np.int64), np.arange(100_000, dtype=np.int64))
    sorted_sizes: list[int] = []
    argsort = np.argsort

    def counting(array: Int64Array, *, kind: Literal["stable"]) -> Int64Array:
        sorted_sizes.append(len(array))
        return argsort(array, kind=kind)

    monkeypatch.setattr(np, "argsort", counting)
    for at in range(100):
        times, _ = queue.pop(at)
        assert times.tolist() == [at]
        queue.push(np.full(20, 200_000 + at), np.arange(20, dtype=np.int64))
    assert sum(sorted_sizes) < 100_000
