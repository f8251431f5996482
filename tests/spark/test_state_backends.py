"""The cell that Spark hands over is the truth; what it does not go with is refused."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

import lowwater as lw
from lowwater.engine.window.operator import WindowOperator
from lowwater.errors import StateError
from lowwater.spark.key_group import ShuffleRows
from lowwater.spark.shuffle import from_bytes
from lowwater.spark.state_backends import GroupCell, InlineBackend, LiveOperators
from lowwater.testing import Scenario
from tests.spark.cases import Case

CASE = Case(
    lw.Windowing(
        windows=lw.Sessions("10s"),
        trigger=lw.AfterWatermark(early=lw.AfterCount(1)),
        accumulation="retracting",
    ),
    Scenario(start="12:00")
    .add((1, "12:00:01", "A"), (2, "12:00:05", "B"))
    .add((3, "12:00:07", "A"))
    .watermark("12:00:16")
    .end(),
    {"values": lw.collect(), "least": lw.min()},
)


def shuffle_rows(at: int) -> ShuffleRows:
    batch = list(CASE.micro_batches())[at]
    return ShuffleRows.of_table(pa.Table.from_batches(list(CASE.packer()(iter([batch])))))


def shown(given: pa.Table) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = from_bytes(given.column("rows")[0].as_py()).to_pylist()
    return rows


def test_a_retried_task_begins_where_the_cell_says() -> None:
    """The first attempt left its operator behind, a step further: it must not be used."""
    group, live = CASE.key_group(), LiveOperators()
    _, cell, _ = group.step(0, None, shuffle_rows(1), 0, live=live)
    first, _, _ = group.step(0, cell, shuffle_rows(2), 0, live=live)
    again, after, _ = group.step(0, cell, shuffle_rows(2), 0, live=live)
    assert shown(again) == shown(first) != []
    with_live, _, _ = group.step(0, after, shuffle_rows(3), 0, live=live)
    without, _, _ = group.step(0, after, shuffle_rows(3), 0, live=LiveOperators())
    assert shown(with_live) == shown(without) != []


def test_live_operators_are_few() -> None:
    live = LiveOperators(at_most=2)
    for number in range(5):
        kept = InlineBackend().open(CASE.key_group()._operator, number, None)
        live.put("stage", number, b"stamp", kept)
    assert len(live) == 2
    assert live.take("stage", 4, b"another stamp") is None
    assert live.take("stage", 3, b"stamp") is not None
    assert len(live) == 0


def test_a_cell_of_another_layout_group_count_or_backend_is_refused() -> None:
    row = GroupCell(4, "inline", b"stamp", None, b"").to_row()
    assert GroupCell.from_row(row, key_groups=4, backend="inline").stamp == b"stamp"
    with pytest.raises(StateError, match="in 4 key groups, not 8"):
        GroupCell.from_row(row, key_groups=8, backend="inline")
    with pytest.raises(StateError, match="kept by 'inline', not 'rocksdb'"):
        GroupCell.from_row(row, key_groups=4, backend="rocksdb")
    for layout in (1, 99):  # 1: keys were placed in groups by Spark's own hash
        with pytest.raises(StateError, match=f"in layout {layout} of Spark cells; this") as caught:
            GroupCell.from_row((layout, *row[1:]), key_groups=4, backend="inline")
        assert "Start a new checkpoint" in (caught.value.hint or "")


def test_a_snapshot_of_another_pipeline_is_refused() -> None:
    _, cell, _ = CASE.key_group().step(0, None, shuffle_rows(1), 0, live=LiveOperators())
    other = WindowOperator(CASE.windowing, {"most": lw.max()})
    with pytest.raises(StateError):
        other.restore_snapshot(cell.content)


def test_damaged_snapshots_raise_state_errors_and_nothing_else() -> None:
    group = CASE.key_group()
    _, cell, _ = group.step(0, None, shuffle_rows(1), 0, live=LiveOperators())
    pick = random.Random(7)
    refused = 0
    for _ in range(300):
        damaged = bytearray(cell.content)
        if pick.random() < 0.2:
            del damaged[pick.randrange(len(damaged)) :]
        else:
            damaged[pick.randrange(len(damaged))] ^= 1 << pick.randrange(8)
        try:
            group._operator().restore_snapshot(bytes(damaged))
        except StateError:
            refused += 1
    assert refused > 100
