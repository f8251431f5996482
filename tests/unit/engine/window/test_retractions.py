"""Panes that are taken back: as they were shown."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lowwater as lw
from lowwater.engine.records.columns import Column
from lowwater.engine.records.steps import Bundle
from lowwater.engine.window.operator import WindowOperator
from lowwater.engine.window.retractions import LABELS, ShownPanes
from lowwater.errors import StateError
from lowwater.state.table import RowTable
from tests.unit.engine.window.test_operator import panes


@pytest.mark.parametrize("guess", [pa.bool_(), pa.int64(), pa.float64()], ids=str)
@pytest.mark.parametrize(("kind", "values"), [
    (pa.int64(), [2**60 + 1, 2**60 + 3]), (pa.bool_(), [False, True]), (pa.float64(), [0.5, 1.5]),
], ids=["int64", "bool", "double"])  # fmt: skip
def test_the_type_of_nulls_is_a_guess_that_leaves_no_trace(
    guess: pa.DataType, kind: pa.DataType, values: list[Any]
) -> None:
    """Retractions are exact, and unused places of columns and bags raise no warning."""
    windowing = lw.Windowing(
        windows=lw.FixedWindows(10),
        trigger=lw.Repeatedly(lw.AfterCount(1)),
        accumulation="retracting",
    )
    specs = {"last": lw.last("v"), "max": lw.max("v"), "all": lw.collect("v")}
    stage = WindowOperator(windowing, specs)
    shown = []
    for column in (pa.array([None], guess), *(pa.array([value], kind) for value in values)):
        step = Bundle(
            np.zeros(1, np.int64),
            (Column(np.zeros(1, np.int64)),),
            {"v": Column.from_arrow(column)},
        )
        shown += [(p.kind, dict(p.values)) for p in panes(stage, step)]
    low, high = values
    assert shown == [
        ("insert", {"last": None, "max": None, "all": []}),
        ("retract", {"last": None, "max": None, "all": []}),
        ("insert", {"last": low, "max": low, "all": [low]}),
        ("retract", {"last": low, "max": low, "all": [low]}),
        ("insert", {"last": high, "max": high, "all": values}),
    ]


def test_a_damaged_number_of_panes_takes_no_room() -> None:
    """Four billion panes are not made room for before it is seen how many there are."""
    windows = RowTable([])
    shown = ShownPanes(windows)
    rows = windows.allocate(2)
    shown.put(rows, {name: np.arange(2) for name in LABELS}, {})
    gathered = shown.gather(rows)
    assert gathered is not None
    packed, counts = gathered
    values = packed.cut(np.array([0]), 2)
    others = windows.allocate(2)
    with pytest.raises(StateError, match="it has 2 of 4294967296 panes"):
        shown.attach(others, values, np.array([2**32 - 1, 1]), np.arange(2))
    assert len(shown) == 2
    shown.attach(others, values, counts, np.arange(2))
    shown._check(np.concatenate((rows, others)))
