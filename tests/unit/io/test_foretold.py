"""Positions that foretell the next batch, of a source that hands out what has arrived."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowwater.engine.graph.sources import Position
from lowwater.engine.records.batch import Records
from lowwater.engine.records.columns import Column
from lowwater.io.foretold import Part, foretold_batches

Numbers = Part[list[int], int]


class Arriving:
    """Numbers that arrive between looks, the last of them before the end.

    Args:
        at: Where to begin.
        arrived: How many numbers are there.
        looks: How many more arrive before each look.
        size: The largest number in a part.
    """

    def __init__(self, at: int, arrived: int, looks: list[int], size: int) -> None:
        self.at = self.fetched = at
        self.arrived, self.looks, self.size = arrived, looks, size
        self.waits: list[float | None] = []

    def fetch(self, until: int | None, seconds: float | None) -> list[Numbers]:
        self.waits.append(seconds)
        if self.looks:
            self.arrived += self.looks.pop()
        if until is not None:
            return [self._part(until)] if until <= self.arrived else []
        parts = []
        while self.fetched < self.arrived:
            parts.append(self._part(min(self.arrived, self.fetched + self.size)))
        return parts

    def _part(self, end: int) -> Numbers:
        start, self.fetched = self.fetched, end
        return Part(list(range(start, end)), end)

    def rest(self) -> float | None:
        return 0.5 if self.looks else None

    def batch(self, part: Numbers, following: int | None) -> tuple[Records, Position]:
        self.at = part.end
        column = Column(np.array(part.content, dtype=np.int64))
        return Records({"n": column}, len(part.content)), {"at": self.at, "next": following}

    def pause(self, following: int | None) -> tuple[Records, Position]:
        return Records({}, 0), {"at": self.at, "next": following}


def numbers_of(records: Records) -> list[int]:
    return [] if not records.length else records.columns["n"].to_list()


@given(
    st.integers(0, 9), st.lists(st.integers(0, 5), max_size=8), st.integers(1, 4), st.integers(0, 9)
)
def test_after_each_position_the_next_batch_is_the_same(
    arrived: int, looks: list[int], size: int, more: int
) -> None:
    """Whatever has arrived since, and nothing comes before a batch that a position foretells."""
    steps: list[tuple[list[int], Any]] = [([], {"at": 0, "next": None})]
    for records, position in foretold_batches(Arriving(0, arrived, looks[:], size), None):
        steps.append((numbers_of(records), position))
    whole = arrived + sum(looks)
    assert [n for numbers, _ in steps for n in numbers] == list(range(whole))
    assert steps[-1][1] == {"at": whole, "next": None}
    for (_, position), (numbers, following) in itertools.pairwise(steps):
        assert (position["next"] is not None) == bool(numbers)
        if numbers:
            reader = Arriving(position["at"], whole + more, [], size)
            records, again = next(foretold_batches(reader, position["next"]))
            assert (numbers_of(records), again["at"]) == (numbers, following["at"])


def test_a_batch_that_is_late_is_waited_for_with_the_same_position() -> None:
    reader = Arriving(0, 0, [3, 0, 0], 5)
    steps = list(foretold_batches(reader, 2))
    assert [numbers_of(records) for records, _ in steps] == [[], [], [0, 1], [2]]
    assert [records.is_rest for records, _ in steps[:2]] == [True, True]
    assert [position["next"] for _, position in steps] == [2, 2, 3, None]


def test_a_reader_waits_for_what_is_left_of_a_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other sources are read meanwhile; with a batch in hand it does not wait at all."""
    times = iter([10.0, 10.2, 20.0, 21.0])
    clock = SimpleNamespace(monotonic=lambda: next(times))
    monkeypatch.setattr("lowwater.io.foretold.time", clock)
    reader = Arriving(0, 0, [1, 0, 0], 5)
    list(foretold_batches(reader, None))
    assert reader.waits == [0.0, pytest.approx(0.3), 0.0, None, 0.0]
