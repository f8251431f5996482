"""J-8 and J-9: joins that look back, without corrections, against lists in plain Python.

What comes out is compared in its order, and so is how much is kept, in bundles past each chunk.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowwater.engine.join.as_of import AsOfOperator
from lowwater.engine.join.joining import AsOf
from lowwater.engine.join.pairs import JoinedColumns
from lowwater.engine.keyed import records
from lowwater.engine.keyed.operator import SideBundle, SidesAdvance
from lowwater.engine.keyed.sides import LEFT, RIGHT, Side
from lowwater.engine.records.columns import Column
from lowwater.engine.records.steps import Bundle, EndOfInput
from lowwater.time import START_OF_TIME
from tests.examples import examples, is_campaign
from tests.property.driven_joins import rows_of

pytestmark = pytest.mark.usefixtures("kernels")

Row: TypeAlias = tuple[int, int, Any, Any]
"""The number of the key, the time, and the values of the fact and of the version."""

KEYS: dict[str, Callable[[np.ndarray[Any, Any]], Column]] = {
    "beyond floats": lambda codes: Column(codes + 2**53),
    "text": lambda codes: Column.from_arrow(pa.array([f"key {code}" for code in codes.tolist()])),
    "floats and a null": lambda codes: Column.from_arrow(
        pa.array([code / 4 if code else None for code in codes.tolist()], pa.float64())
    ),
}


class PlainAsOf:
    """The join with lists: versions of each key by time and arrival, and the facts that wait."""

    def __init__(self, how: str, tolerance: int | None, keep: int, *, allow_equal: bool) -> None:
        self.how, self.tolerance, self.keep = how, tolerance, keep
        self.allow_equal = allow_equal
        self.watermark = self.right = START_OF_TIME
        self.times: dict[int, list[int]] = defaultdict(list)
        self.values: dict[int, list[Any]] = defaultdict(list)
        self.waiting: list[tuple[int, int, Any]] = []

    @property
    def rows(self) -> int:
        return len(self.waiting) + sum(map(len, self.times.values()))

    def is_settled(self, time: int) -> bool:
        return time < self.right or (time == self.right and not self.allow_equal)

    def facts(self, facts: Sequence[tuple[int, int, Any]]) -> list[Row]:
        timely = [fact for fact in facts if fact[1] >= self.watermark - self.keep]
        self.waiting += [fact for fact in timely if not self.is_settled(fact[1])]
        return self.joined([fact for fact in timely if self.is_settled(fact[1])])

    def versions(self, versions: Sequence[tuple[int, int, Any]]) -> None:
        for key, time, value in versions:
            if time >= self.watermark - self.keep:
                place = bisect_right(self.times[key], time)
                self.times[key].insert(place, time)
                self.values[key].insert(place, value)

    def advance(self, to: int, right: int) -> list[Row]:
        self.watermark, self.right = max(self.watermark, to), max(self.right, right)
        due = [fact for fact in self.waiting if self.is_settled(fact[1])]
        self.waiting = [fact for fact in self.waiting if not self.is_settled(fact[1])]
        rows = self.joined(sorted(due, key=lambda fact: fact[1]))
        for key, times in self.times.items():
            old = max(0, bisect_right(times, self.watermark - self.keep - 1) - 1)
            del times[:old], self.values[key][:old]
        return rows

    def joined(self, facts: Sequence[tuple[int, int, Any]]) -> list[Row]:
        rows: list[Row] = []
        for key, time, value in facts:
            times = self.times.get(key, [])
            place = bisect_right(times, time if self.allow_equal else time - 1) - 1
            if place >= 0 and self.tolerance is not None and times[place] < time - self.tolerance:
                place = -1
            if place >= 0 or self.how == "left":
                rows.append((key, time, value, self.values[key][place] if place >= 0 else None))
        return rows


def bundle_of(codes: Any, times: Any, values: Sequence[float | None], keys: str) -> Bundle:
    column = Column.from_arrow(pa.array(values, pa.float64(), from_pandas=False))
    return Bundle(np.asarray(times), (KEYS[keys](np.asarray(codes)),), {"value": column})


def same(one: Any, other: Any) -> bool:
    return one == other or (one != one and other != other)  # a NaN


class Pair:
    """The operator and the lists, given the same."""

    def __init__(
        self, how: Any, tolerance: int | None, keep: int, keys: str, *, allow_equal: bool
    ) -> None:
        rules = AsOf(how, None, tolerance, "ignore", keep, "backward", allow_equal)
        columns = JoinedColumns({"value": pa.float64()}, {"value": pa.float64()}, ("key",))
        self.operator = AsOfOperator(rules, columns)
        self.plain = PlainAsOf(how, tolerance, keep, allow_equal=allow_equal)
        self.keys = keys

    def take(self, side: Side, codes: Any, times: Any, values: Sequence[float | None]) -> None:
        output = self.operator.step(SideBundle(side, bundle_of(codes, times, values, self.keys)))
        rows = list(zip(map(int, codes), map(int, times), values, strict=True))
        if side == LEFT:
            self.compare(output, self.plain.facts(rows))
        else:
            self.plain.versions(rows)
            self.compare(output, [])

    def advance(self, to: int, right: int) -> None:
        self.compare(self.operator.step(SidesAdvance(to, right)), self.plain.advance(to, right))

    def end(self) -> None:
        wanted = self.plain.advance(1 << 60, 1 << 60)
        output = self.operator.step(EndOfInput())
        self.plain.times.clear()  # nothing stays
        self.compare(output, wanted)

    def compare(self, output: Any, wanted: list[Row]) -> None:
        rows = rows_of(output)
        codes = np.array([row[0] for row in wanted], dtype=np.int64)
        keys = KEYS[self.keys](codes).to_list(exact=True)
        assert [row[0] for row in rows] == keys
        assert [row[1] for row in rows] == [row[1] for row in wanted]
        for (_, _, values, sign), (_, _, fact, version) in zip(rows, wanted, strict=True):
            assert sign == 1
            assert same(values["value"], fact)
            assert same(values["value_right"], version)
        assert self.operator.state_rows == self.plain.rows
        self.operator._check()


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("how", ["left", "inner"])
@pytest.mark.parametrize(("tolerance", "allow_equal"), [(None, True), (900, False)])
def test_bundles_of_2_000(
    keys: str,
    how: Literal["left", "inner"],
    tolerance: int | None,
    allow_equal: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Equal times, records late within ``keep`` and beyond it, keys with and without versions."""
    monkeypatch.setattr(records, "_STALE", 1_000)
    random = np.random.default_rng([3, list(KEYS).index(keys), how == "left", allow_equal])
    pair = Pair(how, tolerance, 1_500, keys, allow_equal=allow_equal)
    count, some_keys = (20_000, 700) if is_campaign() else (2_000, 70)
    for turn in range(4):
        # Versions run ahead of the facts, or behind them.
        for side in (LEFT, RIGHT) if turn % 2 else (RIGHT, LEFT):
            times = 2_000 * turn + np.sort(random.integers(0, 2_000, count))
            times = times - random.integers(0, 4, count) ** 6 * random.integers(0, 8, count) // 2
            codes = random.integers(0, some_keys, count) + (some_keys // 7 if side else 0)
            values = random.integers(0, 1_000_000, count).astype(np.float64)
            odd = random.integers(0, 20, count)
            given = [
                None if which == 0 else math.nan if which == 1 else value
                for which, value in zip(odd.tolist(), values.tolist(), strict=True)
            ]
            pair.take(side, codes, times, given)
            pair.advance(2_000 * turn - 1_000, 2_000 * turn + (0 if side else 1_500))
    pair.end()


RECORDS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30)), min_size=1, max_size=8)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("facts"), RECORDS),
        st.tuples(st.just("versions"), RECORDS),
        st.tuples(st.just("advance"), st.integers(0, 30), st.integers(0, 30)),
    ),
    max_size=14,
)


@given(
    STEPS,
    st.sampled_from(["left", "inner"]),
    st.none() | st.integers(0, 9),
    st.integers(0, 9),
    st.booleans(),
)
@examples(4)
def test_any_schedule(
    steps: Any, how: Any, tolerance: int | None, keep: int, allow_equal: bool
) -> None:
    pair = Pair(how, tolerance, keep, "beyond floats", allow_equal=allow_equal)
    for number, (kind, *rest) in enumerate(steps):
        if kind == "advance":
            to, right = rest
            pair.advance(min(to, right), right)
            continue
        codes, times = zip(*rest[0], strict=True)
        values = [100.0 * number + place for place in range(len(codes))]
        pair.take(LEFT if kind == "facts" else RIGHT, codes, times, values)
    pair.end()
