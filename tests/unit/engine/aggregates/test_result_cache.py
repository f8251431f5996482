"""Cached results of rows: one that goes on from the last one is that of all inputs (S-C4)."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from lowwater.engine.aggregates import signed_specs
from lowwater.engine.aggregates._retractable import Retractable
from lowwater.engine.records.columns import Column
from lowwater.engine.records.steps import Bundle
from lowwater.engine.window.aggregation import Aggregation
from lowwater.state.table import RowTable
from tests.examples import sampled

ROWS = 6
MANY = ("max", "min", "max_by", "last", "distinct", "top", "bottom", "ties")
NAN = float("nan")
VALUES: dict[str, list[Any]] = {
    "integers": [0, 1, 2, 3, 2**53, 2**53 + 1, -(2**63), 2**63 - 1],
    "floats": [0.0, -0.0, 1.5, NAN, float("inf"), float("-inf"), -2.0],
    "texts": ["", "a", "b", "ab", "\N{GREEK SMALL LETTER ALPHA}", "x\0y"],
    "truths": [False, True],
    "written differently": [1, 1.0, True, 0, False, Decimal(1), 2, Decimal("0.5")],
}
SPECS = {
    "max": lw.max(), "min": lw.min(), "first": lw.first(), "last": lw.last(),
    "max_by": lw.max_by("value", "by"), "min_by": lw.min_by("value", "by"),
    "distinct": lw.count_distinct(), "set": lw.collect_set(), "list": lw.collect(),
    "top": lw.top(2, by="value", keep="by"), "bottom": lw.top(1, by="value", reverse=True),
    "ties": lw.top(3, by="by", keep="value", with_ties=True),
}  # fmt: skip


class Aggregates:
    """Aggregates of a few rows, and the same ones, whose cache is emptied before each reading."""

    def __init__(self, specs: dict[str, Any]) -> None:
        tables = RowTable([]), RowTable([])
        self.both = tuple(Aggregation(signed_specs(specs, differences=False), t) for t in tables)
        self.rows = [table.allocate(ROWS) for table in tables]
        self.arrived = 0

    def add(self, bundle: Bundle, rows: np.ndarray[Any, Any]) -> None:
        arrival = np.arange(self.arrived, self.arrived + len(bundle))
        self.arrived += len(bundle)
        for each in self.both:
            each.add(bundle, None, rows, arrival)

    def forget(self) -> None:
        """Empty the cache of the others."""
        for aggregate in self.both[1].aggregates().values():
            if isinstance(aggregate, Retractable):
                aggregate.release_elsewhere({}, np.arange(ROWS))

    def check(self, rows: np.ndarray[Any, Any]) -> None:
        self.forget()
        going, made = (each.results(rows) for each in self.both)
        for name, column in going.items():
            assert written(column) == written(made[name]), name
            assert (column.type, column.data.dtype) == (made[name].type, made[name].data.dtype)

    def emptied(self, rows: np.ndarray[Any, Any]) -> None:
        for each in self.both:
            each.release(rows)


def written(column: Column) -> list[str]:
    """Values as text, which tells 0.0 from -0.0 and 1 from True, and NaN equals NaN."""
    return [repr(value) for value in column.to_list()]


def some(random: np.random.Generator, most: int = ROWS) -> np.ndarray[Any, Any]:
    return random.permutation(ROWS)[: int(random.integers(1, most + 1))]


def bundle_of(
    random: np.random.Generator, values: list[Any], count: int, before: list[Any]
) -> tuple[Bundle, np.ndarray[Any, Any]]:
    """Inserts, and retractions of what has come before, or will come, or never does."""
    elements, signs = [], []
    for _ in range(count):
        fresh = (
            int(random.integers(ROWS)),
            values[int(random.integers(len(values)))],
            (0.0, -0.0, 0.5, 1.0, 2.0, float("inf"))[int(random.integers(6))],
            int(random.integers(3)),
        )
        known = before and random.random() < 0.8
        elements.append(before[int(random.integers(len(before)))] if known else fresh)
        signs.append(-1 if random.random() < 0.45 else 1)
        before.append(elements[-1])
    rows, given, by, times = zip(*elements, strict=True)
    kinds = set(map(type, given))
    column = Column.of_objects(given)
    if len(set(map(type, values))) == 1 and kinds <= {int, float, bool}:
        column = Column(np.array(given))
    return Bundle(
        np.array(times, dtype=np.int64), (Column(np.zeros(count, dtype=np.int64)),),
        {"value": column, "by": Column(np.array(by))}, np.array(signs, dtype=np.int8),
    ), np.array(rows)  # fmt: skip


@given(st.integers(0, 2**32 - 1), st.sampled_from(sorted(VALUES)), st.sampled_from([1, 3, 40]))
def test_a_result_that_goes_on_is_that_of_all_inputs(seed: int, kind: str, count: int) -> None:
    random = np.random.default_rng(seed)
    left_out = {"max", "min"} if kind == "truths" else set()
    kept = Aggregates({name: spec for name, spec in SPECS.items() if name not in left_out})
    before: list[Any] = []
    kept.add(*bundle_of(random, VALUES[kind], count, before))
    for _ in range(24):
        what = random.random()
        if what < 0.4:
            kept.add(*bundle_of(random, VALUES[kind], count, before))
        elif what < 0.8:
            kept.check(some(random))
        elif what < 0.9:
            kept.emptied(some(random, 2))
        elif what < 0.95:
            into, row = random.permutation(ROWS)[:2]
            for each in kept.both:
                each.merge(np.array([into]), np.array([row]))
        else:
            into, row = random.permutation(ROWS)[:2]
            kept.emptied(np.array([into]))
            kept.check(np.array([into]))  # a row without inputs is cached, too
            for each in kept.both:
                each.copy(np.array([into]), np.array([row]))
    kept.check(np.arange(ROWS))


@pytest.mark.parametrize("kind", sampled(["integers", "floats", "texts"], every=2))
def test_many_rows_that_lose_and_gain(kind: str) -> None:
    random = np.random.default_rng(5)
    kept = Aggregates({name: SPECS[name] for name in MANY})
    before: list[Any] = []
    for _ in range(8):
        kept.add(*bundle_of(random, VALUES[kind], 2_000, before))
        kept.check(np.arange(ROWS))
        del before[:-5_000]


def test_of_equal_values_the_first_to_arrive_stays() -> None:
    """It does with all inputs at once, too, whichever of them is the last."""
    kept = Aggregates({"max": lw.max(), "min": lw.min()})

    def gain(*texts: str) -> None:
        values = Column.of_objects([Decimal(text) for text in texts])
        nothing = np.zeros(len(texts), dtype=np.int64)
        kept.add(Bundle(nothing, (Column(nothing),), {"value": values}), nothing)

    gain("1.0", "1.00")
    kept.check(np.array([0]))
    gain("1", "0.5", "0.50")
    kept.check(np.array([0]))
    gain("0.7")
    kept.check(np.array([0]))
    found = {name: written(column) for name, column in kept.both[0].results(np.array([0])).items()}
    assert found == {"max": ["Decimal('1.0')"], "min": ["Decimal('0.5')"]}


def test_rows_that_are_released_leave_nothing() -> None:
    random = np.random.default_rng(7)
    kept = Aggregates({name: SPECS[name] for name in MANY})
    bundle, rows = bundle_of(random, VALUES["texts"], 500, [])
    kept.add(replace(bundle, signs=np.ones(500, dtype=np.int8)), rows)
    kept.check(np.arange(ROWS))
    kept.forget()
    assert kept.both[0].nbytes > kept.both[1].nbytes  # the cache takes memory, too
    kept.emptied(np.arange(ROWS))
    found = list(kept.both[0].aggregates().values())
    assert {type(each) for each in found} == {Retractable}
    for each in found:
        cache = each._cache  # type: ignore[attr-defined]
        assert cache.nbytes == 0
        assert not cache._cached.any()
        assert not any(len(bag) for bag in cache._bags.values())
        objects = [held for held in cache._columns.values() if held.dtype == object]
        assert all(value is None for held in objects for value in held)


def test_a_row_that_changes_is_not_read_whole() -> None:
    kept = Aggregates({"max": lw.max(), "min": lw.min(), "last": lw.last()})
    kept.add(plain(np.arange(5_000)), np.zeros(5_000, dtype=np.int64))
    kept.check(np.array([0]))
    walked: list[str] = []
    for name, bag in kept.both[0].bags().items():
        bag._walk = lambda rows, name=name: walked.append(name)  # type: ignore[assignment, misc]
    kept.add(plain(np.array([17]), sign=-1), np.array([0]))
    kept.check(np.array([0]))
    assert not walked


def plain(numbers: np.ndarray[Any, Any], sign: int = 1) -> Bundle:
    """Each number as a value and its time."""
    keys = (Column(np.zeros_like(numbers)),)
    signs = np.full(len(numbers), sign, dtype=np.int8)
    return Bundle(numbers, keys, {"value": Column(numbers)}, signs)
