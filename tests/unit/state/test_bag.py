"""Bags, against a dictionary of lists."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowwater.state.bag import Bag
from lowwater.time import Int64Array

ROWS = st.integers(0, 7)


def ints(values: Any) -> Int64Array:
    return np.array(list(values), dtype=np.int64)


class Checked:
    """A bag of numbers, and lists of (arrival, value) that should come to the same."""

    def __init__(self) -> None:
        self.bag = Bag(np.int64)
        self.model: dict[int, list[tuple[int, int]]] = {row: [] for row in range(400)}
        self.arrived = 0

    def append(self, rows: list[int]) -> None:
        arrivals = range(self.arrived, self.arrived + len(rows))
        self.arrived += len(rows)
        values = [at * 10 for at in arrivals]
        for row, arrival, value in zip(rows, arrivals, values, strict=True):
            self.model[row].append((arrival, value))
        self.bag.append(ints(rows), ints(values), ints(arrivals))

    def merge(self, pairs: list[tuple[int, int]]) -> None:
        sources = dict(pairs)  # a source goes to one target, and no target goes anywhere
        pairs = [(row, into) for row, into in sources.items() if into not in sources]
        for row, into in pairs:
            self.model[into] = sorted(self.model[into] + self.model[row])
            self.model[row] = []
        self.bag.merge(ints(into for _, into in pairs), ints(row for row, _ in pairs))

    def clear(self, rows: list[int]) -> None:
        rows = list(dict.fromkeys(rows))
        for row in rows:
            self.model[row] = []
        self.bag.clear(ints(rows))

    def keep(self, rows: list[int]) -> None:
        rows = list(dict.fromkeys(rows))
        values, arrivals, counts = self.bag.gather_with_arrivals(ints(rows))
        kept = values % 3 != 0
        for row in rows:
            self.model[row] = [pair for pair in self.model[row] if pair[1] % 3]
        self.bag.keep(ints(rows), (values, arrivals, counts), kept)

    def gather(self, rows: list[int]) -> None:
        rows = list(dict.fromkeys(rows))
        values, counts = self.bag.gather(ints(rows))
        assert counts.tolist() == [len(self.model[row]) for row in rows]
        assert values.tolist() == [value for row in rows for _, value in self.model[row]]

    def check(self) -> None:
        self.bag._check()
        filled = [row for row, held in self.model.items() if held]
        assert len(self.bag) == sum(map(len, self.model.values()))
        assert self.bag.filled_rows().tolist() == filled
        rows = ints(self.model)
        assert self.bag.counts(rows).tolist() == [len(self.model[row]) for row in self.model]


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("append"), st.lists(ROWS, max_size=40)),
            st.tuples(st.just("merge"), st.lists(st.tuples(ROWS, ROWS), max_size=6)),
            st.tuples(st.sampled_from(["clear", "keep", "gather"]), st.lists(ROWS, max_size=8)),
        ),
        max_size=40,
    )
)
def test_like_a_dictionary_of_lists(steps: list[tuple[str, list[Any]]]) -> None:
    checked = Checked()
    for doing, argument in steps:
        getattr(checked, doing)(argument)
        checked.check()
    checked.gather(list(range(8)))


@pytest.mark.parametrize("seed", range(4))
def test_a_long_run(seed: int) -> None:
    """Enough to grow, rewrite long chains and compact many times."""
    random = np.random.default_rng(seed)
    checked = Checked()
    for turn in range(300):
        checked.append(random.integers(0, 50, 30).tolist())
        if turn % 3 == 0:
            checked.gather(random.integers(0, 60, 20).tolist())
        if turn % 5 == 0:
            checked.clear(random.integers(0, 50, 12).tolist())
        if turn % 7 == 0:
            pairs = zip(
                random.integers(0, 25, 9).tolist(), random.integers(25, 28, 9).tolist(), strict=True
            )
            checked.merge(list(pairs))
        if turn % 11 == 0:
            checked.keep(random.integers(0, 50, 30).tolist())
        if turn % 10 == 0:
            checked.check()
    checked.gather(list(range(60)))
    checked.check()


def test_merging_many_into_one_keeps_the_order_of_arrival() -> None:
    checked = Checked()
    checked.append([5, 1, 9, 1, 5, 2, 9])
    checked.merge([(1, 9), (5, 9), (2, 9), (7, 9), (3, 4)])
    checked.gather([9, 4, 1])
    checked.check()


def test_merging_into_an_empty_row() -> None:
    checked = Checked()
    checked.append([1, 2, 1])
    checked.merge([(1, 8), (3, 8), (2, 8)])
    checked.append([8, 1])
    checked.gather([8, 1, 2])


def test_rows_that_were_never_seen_are_empty() -> None:
    bag = Bag(np.float64)
    values, counts = bag.gather(ints([1_000, 3]))
    assert (values.tolist(), counts.tolist()) == ([], [0, 0])
    bag.clear(ints([5_000]))
    bag.append(ints([]), np.empty(0), ints([]))
    bag.merge(ints([]), ints([]))
    assert (len(bag), bag.filled_rows().tolist()) == (0, [])


def test_objects_and_a_change_of_type() -> None:
    bag = Bag(np.int64)
    bag.append(ints([1, 0]), ints([10, 20]), ints([0, 1]))
    bag.retype(object)
    values = np.empty(1, dtype=object)
    values[0] = ["a", "list"]
    bag.append(ints([1]), values, ints([2]))
    assert bag.gather(ints([0, 1]))[0].tolist() == [20, 10, ["a", "list"]]
    assert bag.dtype == object


def test_what_is_cleared_is_reclaimed() -> None:
    """The pool stays within a constant of what is held, however much passes through."""
    checked = Checked()
    for turn in range(500):
        checked.append([turn % 50] * 100)
        checked.clear([(turn + 1) % 50])
    assert len(checked.bag) <= 5_000
    assert len(checked.bag._values) <= 4 * 5_000
    assert len(checked.bag._piece_start) <= 4_000


def test_reading_one_row_does_not_read_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    bag = Bag(np.int64)
    for at in range(0, 100_000, 10_000):
        bag.append(np.arange(10_000), np.arange(10_000), np.arange(at, at + 10_000))
    walked: list[int] = []
    walk = Bag._walk

    def counting(self: Bag, rows: Int64Array) -> tuple[Int64Array, Int64Array, int]:
        place, which, depth = walk(self, rows)
        walked.append(len(place))
        return place, which, depth

    monkeypatch.setattr(Bag, "_walk", counting)
    assert bag.gather(ints([7]))[0].tolist() == [7] * 10
    assert bag.gather(ints([7]))[0].tolist() == [7] * 10
    assert sum(walked) == 20
