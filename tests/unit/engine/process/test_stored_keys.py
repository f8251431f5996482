"""Keys of any type come back from a store as they were, whatever comes beside them later."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest

import lowwater as lw
from lowwater.engine.process import ProcessOperator
from lowwater.engine.records.columns import Column
from lowwater.engine.records.steps import Bundle
from lowwater.engine.window.windowing import Windowing
from lowwater.state.key_layout import END, StoredPlace
from lowwater.state.memory import MemoryContents, MemoryStore
from lowwater.state.store import Batch
from tests.examples import sampled

DAY = Windowing(windows=lw.FixedWindows("1d"))


class Counts:
    """Counts the records of each key, and has a timer that does not fire."""

    number = lw.value_cell(0)
    never = lw.timer()

    def on_record(self, record: Any, ctx: Any) -> None:
        ctx.number.set(ctx.number.get() + 1)
        ctx.never.set(10**9)
        ctx.emit({"number": ctx.number.get()})

    def on_timer(self, name: str, ctx: Any) -> None:
        raise AssertionError("it is later than all records")


def typed(values: list[Any], kind: pa.DataType) -> Column:
    return Column.from_arrow(pa.array(values, kind))


def plain(*values: Any) -> Column:
    return Column.of_objects(values)


COLUMNS: dict[str, Column] = {
    "ints": typed([1, None, -(2**63), 2**63 - 1], pa.int64()),
    "small ints": typed([1, 2, None], pa.int8()),
    "large ints": typed([1, 2**64 - 1], pa.uint64()),
    "floats": typed([1.5, -0.0, float("nan"), float("inf"), None], pa.float64()),
    "bools": typed([True, None, False], pa.bool_()),
    "text": typed(["a", "", None, "ü"], pa.string()),
    "large text": typed(["a", "b"], pa.large_string()),
    "bytes": typed([b"\xff", b"", None], pa.binary()),
    "instants": typed([0, 1, None, -(10**15)], pa.timestamp("us", "UTC")),
    "instants in ns": typed([1, 1001, None], pa.timestamp("ns", "UTC")),
    "durations in ns": typed([1, 1001], pa.duration("ns")),
    "times in ns": typed([1, 1001], pa.time64("ns")),
    "local times": typed([0, 1, None], pa.timestamp("us")),
    "dates": typed([0, 1, None], pa.date32()),
    "times of day": typed([0, 1, None], pa.time64("us")),
    "durations": typed([0, -1, None], pa.duration("us")),
    "decimals": typed([Decimal("1.50"), None], pa.decimal128(5, 2)),
    "no text": typed([None, None], pa.string()),
    "nulls": typed([None, None], pa.null()),
    "Python ints": plain(1, None, 2**70),
    "Python text": plain("a", None),
    "tuples": plain((1, "a"), (), None),
    "mixed": plain(1, "1", None, dt.date(2024, 1, 1), UUID(int=5), frozenset({1})),
    "datetimes": plain(
        dt.datetime(2024, 1, 1, tzinfo=dt.UTC), dt.datetime(2024, 1, 2, tzinfo=dt.UTC)
    ),
}
PAIRS = [
    *((name, name) for name in COLUMNS),
    *((name, "text") for name in COLUMNS),
    *(("nulls", name) for name in COLUMNS),
    *((name, "nulls") for name in COLUMNS),
    ("ints", "floats"),
    ("ints", "small ints"),
    ("instants", "local times"),
    ("instants in ns", "instants"),
    ("bools", "ints"),
    ("dates", "datetimes"),
    ("text", "mixed"),
]


def bundle(*columns: Column) -> Bundle:
    return Bundle(np.arange(len(columns[0])), columns, {})


class Kept:
    """An operator whose state is in a store, which may be begun again from it."""

    def __init__(self, windowing: Windowing | None, *, is_parted: bool) -> None:
        self._windowing, self._is_parted = windowing, is_parted
        self.store = MemoryStore(MemoryContents())
        self._operator = self._made()

    def rows(self) -> dict[bytes, bytes]:
        return dict(self.store.scan(b"", END))

    def again(self) -> None:
        self._operator = self._made()
        assert self._operator.restore(self.store)

    def take(self, bundle: Bundle) -> tuple[list[Any], ...]:
        """Return what comes of a bundle: the type of each key column, the keys, and values."""
        emitted = self._operator.step(bundle).emitted["main"]
        batch = Batch()
        self._operator.save(batch)
        self.store.commit(batch)
        types = [(column.type, column.data.dtype) for column in emitted.keys]
        keys = [repr(column.to_list()) for column in emitted.keys]
        return types, keys, emitted.to_list()

    def _made(self) -> ProcessOperator:
        parts = range(16) if self._is_parted else None
        operator = ProcessOperator(Counts(), windowing=self._windowing, parts=parts)
        operator.keep_in_store(StoredPlace("stage 1", 0, 256))
        return operator


CASES = [
    pytest.param(*pair, windowing, is_parted)
    for pair in dict.fromkeys(PAIRS)
    for windowing in (None, DAY)
    for is_parted in (False, True)
]


@pytest.mark.parametrize(("first", "second", "windowing", "is_parted"), sampled(CASES, every=5))
def test_keys_come_back_as_they_were(
    first: str, second: str, windowing: Windowing | None, is_parted: bool
) -> None:
    one, other = (Kept(windowing, is_parted=is_parted) for _ in range(2))
    for name in (first, second, first, second):
        given = bundle(COLUMNS[name])
        assert one.take(given) == other.take(given)
        assert one.rows() == other.rows()
        other.again()


@pytest.mark.parametrize("is_parted", [False, True])
def test_keys_of_several_columns(is_parted: bool) -> None:
    one, other = (Kept(None, is_parted=is_parted) for _ in range(2))
    text, number = COLUMNS["text"], COLUMNS["ints"]
    mixed = plain(1, "a", None, 2.5)
    for columns in ((text, number), (text, mixed), (number, mixed), (text, number)):
        assert one.take(bundle(*columns)) == other.take(bundle(*columns))
        assert one.rows() == other.rows()
        other.again()
