"""The operators of tables equal scalar models, with restarts at any point (T-1, T-3, T-5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from lowwater.engine.join.tables import GroupOperator, UpsertOperator
from lowwater.engine.join.upserting import DELETED, Upserting
from lowwater.engine.records.columns import Column
from lowwater.engine.records.steps import Bundle, EndOfInput, WatermarkAdvance
from lowwater.time import START_OF_TIME
from tests.examples import examples
from tests.property.driven_joins import Driven, Row, colliding

LEAST = -50


@dataclass(frozen=True)
class Upsert:
    """One upsert; ``deletes`` may be null, which is no."""

    key: str
    time: int
    order: int
    deletes: bool | None
    value: int | None


@dataclass
class TableModel:
    """A table from upserts, one by one."""

    rules: Upserting
    rows: dict[str, Upsert] = field(default_factory=dict)
    watermark: int = LEAST
    superseded: int = 0

    def take(self, upserts: list[Upsert]) -> Counter[Any]:
        before = self.shown()
        for one in upserts:
            old = self.rows.get(one.key)
            if self.rules.order and old is not None and one.order < old.order:
                self.superseded += 1
            else:
                self.rows[one.key] = one
        return _changed(before, self.shown())

    def advance(self, to: int) -> Counter[Any]:
        if to <= self.watermark:
            return Counter()
        self.watermark = to
        before = self.shown()
        ttl, keep = self.rules.ttl_us, self.rules.keep_deleted_us
        for one in list(self.rows.values()):
            limit = keep if one.deletes else ttl
            if limit is not None and one.time + limit < to:
                del self.rows[one.key]
        return _changed(before, self.shown())

    def shown(self) -> Counter[Any]:
        return Counter(
            (one.key, one.time, one.order, one.value)
            for one in self.rows.values()
            if not one.deletes
        )


def _changed(before: Counter[Any], after: Counter[Any]) -> Counter[Any]:
    found = Counter(after)
    found.subtract(before)
    return Counter({row: count for row, count in found.items() if count})


def upserts_of(given: list[Upsert]) -> Bundle:
    """Return upserts as a bundle."""
    return Bundle(
        np.array([one.time for one in given], dtype=np.int64),
        (Column.from_arrow(pa.array([one.key for one in given])),),
        {
            "order": Column.from_arrow(pa.array([one.order for one in given], pa.int64())),
            "value": Column.from_arrow(pa.array([one.value for one in given], pa.int64())),
            DELETED: Column.from_arrow(pa.array([one.deletes for one in given], pa.bool_())),
        },
    )


def net(rows: Sequence[Row], *columns: str) -> Counter[Any]:
    """Return by how much rows of output change each row: key, time, columns."""
    found: Counter[Any] = Counter()
    for key, time, row, sign in rows:
        found[key, time, *(row[name] for name in columns)] += sign
    return Counter({row: count for row, count in found.items() if count})


upserts = st.builds(
    Upsert,
    key=st.sampled_from("abcd"),
    time=st.integers(0, 40),
    order=st.integers(0, 5),
    deletes=st.sampled_from([False, False, None, True]),
    value=st.none() | st.integers(0, 2),
)
turns = st.lists(
    st.lists(upserts, max_size=6) | st.integers(0, 60) | st.just("restart"), max_size=12
)
rules = st.builds(
    Upserting,
    order=st.sampled_from([None, "order"]),
    keep_deleted_us=st.integers(0, 20),
    ttl_us=st.none() | st.integers(0, 30),
)


@given(rules, turns, st.integers(1, 4))
@examples(1, is_core=True)
def test_upserts_equal_a_model(rules: Upserting, turns: list[Any], groups: int) -> None:
    made = Driven(lambda: UpsertOperator(rules, {}, watermark=LEAST), groups)
    check_upserts(rules, turns, made)


@given(rules, turns, st.integers(1, 4))
@examples(1, is_core=True)
def test_upserts_equal_a_model_whatever_leaves_memory(
    rules: Upserting, turns: list[Any], groups: int
) -> None:
    with colliding():
        made = Driven(lambda: UpsertOperator(rules, {}, watermark=LEAST), groups, spills=True)
        check_upserts(rules, turns, made)


def check_upserts(rules: Upserting, turns: list[Any], driven: Driven) -> None:
    model = TableModel(rules)
    sums: Counter[Any] = Counter()
    for turn in turns:
        if turn == "restart":
            driven.restart()
            continue
        if isinstance(turn, int):
            rows = driven.step(WatermarkAdvance(turn))
            wanted = model.advance(turn)
        else:
            rows = driven.step(upserts_of(turn))
            wanted = model.take(turn)
        found = net(rows, "order", "value")
        assert found == wanted
        sums.update(found)
        assert {*sums.values()} <= {0, 1}
        assert driven.operator.state_rows == len(model.rows)
        assert driven.operator.output_watermark == model.watermark
        driven.operator._check()
    assert driven.superseded == model.superseded
    assert net(driven.step(EndOfInput()), "order", "value") == Counter()
    assert driven.operator.state_rows == 0


def test_a_row_that_was_a_deleted_one_lives() -> None:
    operator = UpsertOperator(Upserting("order", keep_deleted_us=5), {}, watermark=LEAST)
    operator.step(upserts_of([Upsert("a", 10, 0, True, 1)]))
    operator.step(upserts_of([Upsert("a", 40, 1, False, 1)]))
    operator.step(upserts_of([Upsert("b", 10, 0, False, 2)]))  # in the row that was a's
    operator.step(WatermarkAdvance(30))
    assert operator.state_rows == 2
    (emitted,) = operator.step(upserts_of([Upsert("b", 12, 1, True, 2)])).emitted.values()
    assert emitted.times.tolist() == [10]


Change: TypeAlias = tuple[str | None, int, int, int]
"""Key, time, value and sign; null is a key like others."""


@dataclass
class GroupModel:
    """Groups of rows, one by one."""

    groups: dict[str | None, list[int]] = field(default_factory=dict)
    times: dict[str | None, int] = field(default_factory=dict)

    def take(self, changes: list[Change]) -> Counter[Any]:
        before = self.shown()
        for key, time, value, sign in changes:
            rows = self.groups.setdefault(key, [])
            if sign > 0:
                rows.append(value)
            else:
                rows.remove(value)
            self.times[key] = max(time, self.times.get(key, START_OF_TIME))
        for key in [key for key, rows in self.groups.items() if not rows]:
            del self.groups[key], self.times[key]
        return _changed(before, self.shown())

    def shown(self) -> Counter[Any]:
        return Counter(
            (key, self.times[key], len(rows), sum(rows), max(rows), len({*rows}))
            for key, rows in self.groups.items()
        )


def changes_of(given: list[Change]) -> Bundle:
    """Return signed rows as a bundle."""
    keys, times, values, signs = zip(*given, strict=True) if given else ((), (), (), ())
    return Bundle(
        np.array(times, dtype=np.int64),
        (Column.from_arrow(pa.array(keys, pa.string())),),
        {"v": Column.from_arrow(pa.array(values, pa.int64()))},
        np.array(signs, dtype=np.int8),
    )


@st.composite
def group_turns(draw: st.DrawFn) -> list[Any]:
    """Draw bundles of changes that retract rows which are there, and restarts."""
    held: list[tuple[str | None, int, int]] = []
    turns: list[Any] = []
    for _ in range(draw(st.integers(0, 8))):
        if draw(st.booleans()) and turns:
            turns.append("restart")
        bundle = []
        for _ in range(draw(st.integers(0, 6))):
            retracts: bool = draw(st.booleans())
            if retracts and held:
                bundle.append((*held.pop(draw(st.integers(0, len(held) - 1))), -1))
            else:
                row = (
                    draw(st.sampled_from(["a", "b", None])),
                    draw(st.integers(0, 9)),
                    draw(st.integers(0, 3)),
                )
                held.append(row)
                bundle.append((*row, 1))
        turns.append(bundle)
    return turns


AGGREGATES = {
    "n": lw.count(),
    "total": lw.sum("v"),
    "most": lw.max("v"),
    "kinds": lw.count_distinct("v"),
}


@given(group_turns(), st.integers(1, 4))
@examples(1, is_core=True)
def test_groups_equal_a_model(turns: list[Any], groups: int) -> None:
    check_groups(turns, Driven(lambda: GroupOperator(AGGREGATES), groups))


@given(group_turns(), st.integers(1, 4))
@examples(1, is_core=True)
def test_groups_equal_a_model_whatever_leaves_memory(turns: list[Any], groups: int) -> None:
    with colliding():
        check_groups(turns, Driven(lambda: GroupOperator(AGGREGATES), groups, spills=True))


def check_groups(turns: list[Any], driven: Driven) -> None:
    model = GroupModel()
    sums: Counter[Any] = Counter()
    for turn in turns:
        if turn == "restart":
            driven.restart()
            continue
        found = net(driven.step(changes_of(turn)), *AGGREGATES)
        assert found == model.take(turn)
        sums.update(found)
        assert {*sums.values()} <= {0, 1}
        assert driven.operator.state_rows == len(model.groups)
        driven.operator._check()
    assert net(driven.step(EndOfInput()), *AGGREGATES) == Counter()
    assert driven.operator.state_rows == 0
