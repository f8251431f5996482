"""Keys survive being stored, of whatever type, and however the types of a column came to be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lowwater as lw
from lowwater.engine.records.columns import Column
from lowwater.engine.records.steps import Bundle, EndOfInput
from lowwater.engine.window.operator import WindowOperator
from lowwater.engine.window.persistence import KEYS
from lowwater.engine.window.windowing import Windowing
from lowwater.errors import StateError
from lowwater.state.key_layout import StoredPlace, split_key, stage_range
from lowwater.state.memory import MemoryContents, MemoryStore
from lowwater.state.store import Batch


def made() -> WindowOperator:
    operator = WindowOperator(Windowing(windows=lw.FixedWindows("10s")), {"n": lw.count()})
    operator.keep_in_store(StoredPlace("stage 1", 0, 4))
    return operator


def stored(*bundles: tuple[pa.Array, ...]) -> MemoryStore:
    """Return a store with a window for each element; the elements have these keys."""
    store = MemoryStore(MemoryContents())
    operator = made()
    for columns in bundles:
        keys = tuple(Column.from_arrow(column) for column in columns)
        operator.step(Bundle(np.zeros(len(columns[0]), dtype=np.int64), keys, {}))
        batch = Batch()
        operator.save(batch)
        store.commit(batch)
    return store


def keys_in(store: MemoryStore) -> list[Any]:
    operator = made()
    assert operator.restore(store)
    panes = operator.step(EndOfInput()).panes
    assert panes is not None
    return [pane.key for pane in panes]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([0, 2**63, 2**64 - 1], pa.uint64()),
        pa.array([-128, 127], pa.int8()),
        pa.array([-(2**63), 0, 2**63 - 1], pa.int64()),
        pa.array(["", "é", "a\x00b"]),
        pa.array([b"", b"\xc1"]),
        pa.array([0.5, -1.5]),
        pa.array([True, False]),
    ],
    ids=lambda column: str(column.type),
)
def test_keys_of_each_type(column: pa.Array) -> None:
    assert keys_in(stored((column,))) == column.to_pylist()
    pairs = stored((column, pa.array(range(len(column)))))
    assert keys_in(pairs) == list(zip(column.to_pylist(), range(len(column)), strict=True))


def test_keys_of_other_types_than_the_first() -> None:
    numbers, words = pa.array([1, 2**62]), pa.array(["x"])
    assert keys_in(stored((numbers,), (words,))) == [1, 2**62, "x"]
    assert keys_in(stored((words,), (numbers,))) == ["x", 1, 2**62]
    assert [type(key) for key in keys_in(stored((numbers,), (words,)))] == [int, int, str]
    large = pa.array([2**64 - 1], pa.uint64())
    assert keys_in(stored((numbers,), (large,))) == [1, 2**62, 2**64 - 1]


@pytest.mark.parametrize(
    "value",
    [b"", b"\xc1", b"\xc1" + bytes(7), b"\xc1" + bytes(16), b"\x92\x01\x02", b"\x01", b"\xc0"],
)
def test_a_key_that_is_damaged(value: bytes) -> None:
    store = stored((pa.array([7, 8]),))
    rows = store.scan(*stage_range("stage 1"))
    key = next(key for key, _ in rows if split_key(key)[2] == KEYS)
    batch = Batch()
    batch.put([key], [value])
    store.commit(batch)
    with pytest.raises(StateError):
        made().restore(store)
