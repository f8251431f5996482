"""Elements of several bundles are selected together as they are one by one."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowwater.engine.local.taken_bundles import TakenBundle, take_together
from lowwater.engine.records.batch import ArrowColumns, Records
from lowwater.engine.records.columns import Column
from lowwater.engine.records.steps import Bundle, LateBatch
from lowwater.time import Int64Array


def batch(size: int) -> Records:
    columns = {"id": pa.array(range(size)), "text": pa.array([f"t{n}" for n in range(size)])}
    return Records(ArrowColumns(pa.RecordBatch.from_pydict(columns)), size, "a file", 100)


def taken(records: Records, start: int, stop: int, *, how: str, dropped: bool) -> TakenBundle:
    """Return rows of a batch as a bundle: keys in Arrow, in numpy, or as Python values."""
    rows = np.arange(start, stop, dtype=np.int64)
    number = len(rows)
    names = [f"k{n % 3}" for n in rows.tolist()]
    key = {
        "arrow": lambda: Column.from_arrow(pa.array(names)),
        "dictionary": lambda: Column.from_arrow(pa.array(names).dictionary_encode()),
        "numbers": lambda: Column(rows % 3),
        "objects": lambda: Column.of_objects(names),
    }[how]()
    signs = np.where(rows % 4, 1, -1).astype(np.int8) if dropped else None
    kept = np.flatnonzero(rows % 3) if dropped else None
    late = None
    if kept is not None and len(kept):
        element = np.arange(len(kept), dtype=np.int64)[::2]
        late = LateBatch(
            element, element * 10, element * 10 + 10, np.zeros(len(element), dtype=np.uint8), 9
        )
    bundle = Bundle(rows * 7, (key,), {"value": Column(rows * 2)}, signs)
    assert len(bundle) == number
    return TakenBundle(bundle, kept, late, records, rows, start, stop)


def plain(one: TakenBundle) -> dict[str, Any]:
    bundle, late = one.bundle, one.late
    return {
        "times": bundle.times.tolist(),
        "keys": [key.to_list() for key in bundle.keys],
        "values": {name: column.to_list() for name, column in bundle.values.items()},
        "signs": None if bundle.signs is None else bundle.signs.tolist(),
        "kept": None if one.kept is None else one.kept.tolist(),
        "late": None
        if late is None
        else [each.tolist() for each in (late.element, late.start, late.end, late.reason)],
        "records": one.records.rows(one.rows),
        "stands": (one.watermark, one.clock, one.side),
    }


SELECTIONS = st.lists(st.lists(st.booleans(), min_size=1, max_size=12), min_size=1, max_size=5)
KINDS = ["arrow", "dictionary", "numbers", "objects"]


@given(SELECTIONS, st.sampled_from(KINDS), st.booleans())
def test_together_as_one_by_one(selections: list[list[bool]], how: str, dropped: bool) -> None:
    records = batch(sum(map(len, selections)))
    bundles: list[TakenBundle] = []
    rows: list[Int64Array] = []
    at = 0
    for chosen in selections:
        bundles.append(taken(records, at, at + len(chosen), how=how, dropped=dropped))
        rows.append(np.flatnonzero(chosen))
        at += len(chosen)
    together = take_together(bundles, rows)
    alone = [each.take(own) for each, own in zip(bundles, rows, strict=True)]
    assert [plain(each) for each in together] == [plain(each) for each in alone]


@given(st.sampled_from(KINDS), st.sampled_from(KINDS))
def test_bundles_whose_columns_differ(one: str, other: str) -> None:
    records = batch(8)
    bundles = [
        taken(records, 0, 4, how=one, dropped=False),
        taken(records, 4, 8, how=other, dropped=False),
    ]
    rows = [np.array([1, 3]), np.array([0, 2])]
    together = take_together(bundles, rows)
    alone = [each.take(own) for each, own in zip(bundles, rows, strict=True)]
    assert [plain(each) for each in together] == [plain(each) for each in alone]


@pytest.mark.parametrize("how", KINDS)
def test_what_is_not_selected_is_released(how: str) -> None:
    records = batch(8)
    assert isinstance(records.columns, ArrowColumns)
    batch_ = weakref.ref(records.columns.batch)
    bundles = [taken(records, at, at + 4, how=how, dropped=False) for at in (0, 4)]
    together = take_together(bundles, [np.array([1]), np.array([0, 2])])
    del records, bundles
    assert batch_() is None
    assert [len(each) for each in together] == [1, 2]
