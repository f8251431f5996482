"""Joins and tables emit the same, in the same order, whatever of their state leaves memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from lowwater.engine.join.as_of import AsOfOperator
from lowwater.engine.join.interval_join import JoinOperator
from lowwater.engine.join.joining import HOWS, UNMATCHED, AsOf, Between, Joining, of_tables
from lowwater.engine.join.pairs import JoinedColumns
from lowwater.engine.join.tables import GroupOperator, UpsertOperator
from lowwater.engine.join.upserting import DELETED, Upserting
from lowwater.engine.keyed.operator import SideBundle, SidesAdvance
from lowwater.engine.keyed.sides import LEFT, RIGHT
from lowwater.engine.records.columns import Column
from lowwater.engine.records.steps import Bundle, EndOfInput, WatermarkAdvance
from tests.examples import examples, sampled
from tests.property.driven_joins import Driven, colliding

COLUMNS = JoinedColumns({"value": None}, {"value": None, "order": None}, ("key",))
KEYS = 12


def joined(how: Any, unmatched: Any, *, signed: bool) -> Callable[[], JoinOperator]:
    rules = Joining(Between("-4us", "7us"), how, unmatched, 3)
    return lambda: JoinOperator(rules, COLUMNS, signed=signed)


def as_of(
    late: Any, order: str | None, tolerance: int | None, *how: Any
) -> Callable[[], AsOfOperator]:
    rules = AsOf("left", order, tolerance, late, 6, *how)
    return lambda: AsOfOperator(rules, COLUMNS, signed=late == "correct")


OPERATORS: dict[str, Callable[[], Any]] = {
    **{
        f"{how} {unmatched}": joined(how, unmatched, signed=at % 2 == 0)
        for at, (how, unmatched) in enumerate(product(HOWS, UNMATCHED))
    },
    "tables": lambda: JoinOperator(of_tables("outer"), COLUMNS, signed=True),
    "as of": as_of("ignore", None, None),
    "as of, corrected": as_of("correct", "order", None),
    "as of, tolerance": as_of("correct", None, 9),
    "as of, strictly": as_of("correct", None, None, "backward", False),
    "as of, forward": as_of("ignore", None, 9, "forward", True),
    "as of, forward, corrected": as_of("correct", "order", 9, "forward", False),
    "as of, nearest": as_of("ignore", "order", 5, "nearest", False),
    "as of, nearest, corrected": as_of("correct", None, 9, "nearest", True),
    "as of, nearest, strictly": as_of("correct", "order", 7, "nearest", False),
    "upserts": lambda: UpsertOperator(Upserting("order", 5, 9), {}),
    "upserts, no order": lambda: UpsertOperator(Upserting(None, 0, None), {}),
    "groups": lambda: GroupOperator(
        {"n": lw.count(), "most": lw.max("order"), "kinds": lw.count_distinct("value")}
    ),
}


class Given:
    """Makes up bundles: records that come about in order, and retractions of some of them."""

    def __init__(self, seed: int, operator: Any) -> None:
        self.random = np.random.default_rng(seed)
        self._signed = operator._signed
        self._upserts = isinstance(operator, UpsertOperator)
        self._held: tuple[list[Any], list[Any]] = ([], [])
        # Of one side alone if there is but one.
        self.sides = (LEFT, RIGHT)[: len(operator.sides)]

    def bundle(self, side: int, lowest: int, highest: int) -> Bundle:
        """Return records of these times, and retractions of some that are not older."""
        random, held = self.random, self._held[side]
        held[:] = [one for one in held if one[1] >= lowest]
        rows = []
        for _ in range(int(random.integers(1, 9))):
            if self._signed and held and random.random() < 0.3:
                rows.append((*held.pop(int(random.integers(len(held)))), -1))
                continue
            key, time = int(random.integers(KEYS)), int(random.integers(lowest, highest))
            value = None if random.random() < 0.1 else f"v{random.integers(40)}"
            row = (None if key == 0 else f"key {key}", time, value, int(random.integers(20)))
            rows.append((*row, 1))
            held.append(row)
        keys, times, values, orders, signs = zip(*rows, strict=True)
        columns = {
            "value": Column.from_arrow(pa.array(values, pa.string())),
            "order": Column.from_arrow(pa.array(orders, pa.int64())),
        }
        if self._upserts:
            columns[DELETED] = Column(random.random(len(rows)) < 0.2)
        return Bundle(
            np.array(times, dtype=np.int64),
            (Column.from_arrow(pa.array(keys, pa.string())),),
            columns,
            np.array(signs, dtype=np.int8) if self._signed else None,
        )


def steps(given_: Given, name: str) -> Iterator[Any]:
    """Yield bundles and watermarks, and ``None`` for a restart."""
    random, now, right = given_.random, 0, 0
    is_as_of, is_one = name.startswith("as of"), len(given_.sides) == 1
    for _ in range(30):
        choice = random.random()
        if choice < 0.55:
            side = given_.sides[int(random.integers(len(given_.sides)))]
            low = max(0, now - 2) if not is_as_of or side == LEFT else max(0, now - 5)
            bundle = given_.bundle(side, low, now + 14)
            yield bundle if is_one else SideBundle(side, bundle)
        elif choice < 0.9:
            now += int(random.integers(1, 7))
            right = max(right, now + int(random.integers(0, 4)))
            yield SidesAdvance(now, right) if is_as_of else WatermarkAdvance(now)
        else:
            yield None
    yield EndOfInput()


@pytest.mark.parametrize("name", sampled(OPERATORS, every=8))
@given(seed=st.integers(0, 2**32), groups=st.integers(1, 3))
@examples(0.1, is_core=True)
def test_what_leaves_memory_makes_no_difference(name: str, seed: int, groups: int) -> None:
    with colliding():
        driven = Driven(OPERATORS[name], groups, spills=True)
        check(name, seed, driven)


@pytest.mark.parametrize("name", sampled([*OPERATORS][4:] + [*OPERATORS][:4], every=8))
@given(seed=st.integers(0, 2**32), memory=st.integers(1_500, 6_000))
@examples(0.1, is_core=True)
def test_some_of_it_leaves_memory(name: str, seed: int, memory: int) -> None:
    with colliding():
        driven = Driven(OPERATORS[name], 2, spills=True, memory=memory)
        check(name, seed, driven)


def check(name: str, seed: int, driven: Driven) -> None:
    """Make steps; the driven operator compares itself with one that keeps all in memory."""
    for step in steps(Given(seed, driven.operator), name):
        if step is None:
            driven.restart()
        else:
            driven.step(step)
            driven.operator._check()
    assert driven.operator.state_rows == 0
    driven.restart()
    assert driven.stored_rows() == 1  # the facts
