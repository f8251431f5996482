"""The cell that Spark hands over is the truth; what it does not go with is refused."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

import lowwater as lw
from lowwater.errors import StateError
from lowwater.spark.level_call import LevelCall
from lowwater.spark.rows import LEAVES, counted_of
from lowwater.spark.state_backends import GroupCell, Live
from lowwater.testing import Scenario
from tests.spark.cases import Case, bodies_of, leaving, run_directly

PICKLER: Any = cloudpickle  # which has no types

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


BATCHES = list(CASE.micro_batches())


def step(
    call: LevelCall, cell: GroupCell | None, at: int, live: Live[Any] | None = None
) -> tuple[pa.Table, GroupCell]:
    """Step a micro-batch, by its number; without ``live`` nothing but the cell is held."""
    held = Live() if live is None else live
    bodies = bodies_of(CASE.packed(BATCHES[at]))
    given, after, _ = call.step(0, cell, bodies, 0, ended=False, live=held)
    return given, after


def shown(given: pa.Table) -> list[dict[str, object]]:
    """Return the output rows among rows."""
    return [row for table in leaving(given) for row in table.to_pylist()]


def test_a_retried_task_begins_where_the_cell_says() -> None:
    """The first attempt left its run behind, a step further: it must not be used."""
    call: LevelCall = CASE.call()
    live: Live[Any] = Live()
    _, cell = step(call, None, 1, live)
    first, _ = step(call, cell, 2, live)
    again, after = step(call, cell, 2, live)
    assert shown(again) == shown(first) != []
    with_live, _ = step(call, after, 3, live)
    without, _ = step(call, after, 3)
    assert shown(with_live) == shown(without) != []


def test_what_is_held_goes_on_with_a_function_that_was_sent_anew() -> None:
    """Spark sends it to a worker with each task, and with it another copy of the graph."""
    windowing = lw.Windowing(windows=lw.FixedWindows("10s"))
    scenario = Scenario(start="12:00").add((1, "12:00:01", "A")).watermark("12:01")
    case = Case(windowing, scenario.add((2, "12:00:02", "A")).end(), {"values": lw.collect()})
    rows, cell = [], None
    live: Live[Any] = Live()
    for batch in case.micro_batches():
        call: LevelCall = PICKLER.loads(PICKLER.dumps(case.call()))
        bodies = bodies_of(case.packed(batch))
        given, cell, _ = call.step(0, cell, bodies, 0, ended=False, live=live)
        rows += shown(given)
    assert [row["output"] for row in rows] == ["pane", "late"]
    assert rows == run_directly(case).to_pylist()


def test_what_is_held_is_little() -> None:
    live: Live[str] = Live(at_most=2)
    for number in range(5):
        live.put("query", 1, number, b"stamp", f"group {number}")
    assert len(live) == 2
    assert live.take("query", 1, 4, b"another stamp") is None
    assert live.take("query", 2, 3, b"stamp") is None
    assert live.take("another", 1, 3, b"stamp") is None
    assert live.holds("query", 1, 3, b"stamp")
    assert live.take("query", 1, 3, b"stamp") == "group 3"
    assert not live.holds("query", 1, 3, b"stamp")
    assert len(live) == 0


def test_a_cell_of_another_layout_group_count_or_backend_is_refused() -> None:
    row = GroupCell(4, "inline", b"stamp", b"").to_row()
    assert GroupCell.from_row(row, key_groups=4, backend="inline").stamp == b"stamp"
    with pytest.raises(StateError, match="in 4 key groups, not 8"):
        GroupCell.from_row(row, key_groups=8, backend="inline")
    with pytest.raises(StateError, match="kept by 'inline', not 'rocksdb'"):
        GroupCell.from_row(row, key_groups=4, backend="rocksdb")
    for layout in (1, 3, 99):  # 1: keys were placed in groups by Spark's own hash; 3: one stage
        with pytest.raises(StateError, match=f"in layout {layout} of Spark cells; this") as caught:
            GroupCell.from_row((layout, *row[1:]), key_groups=4, backend="inline")
        assert "Start a new checkpoint" in (caught.value.hint or "")


def size_told(given: pa.Table) -> int:
    """Return the size of the state that rows tell."""
    leaving = [row["counted"] for row in given.to_pylist() if row["level"] == LEAVES]
    counted = [counted_of(text.decode()) for text in leaving]
    (told,) = (row["state_bytes"] for row in counted if row["place"] == 0)
    return int(told)


def test_the_size_of_the_state_is_told() -> None:
    given, cell = step(CASE.call(), None, 1)
    assert size_told(given) == len(cell.content)


def test_the_state_of_another_pipeline_is_refused() -> None:
    _, cell = step(CASE.call(), None, 1)
    other = replace(CASE, aggregates={"most": lw.max()})
    with pytest.raises(StateError):
        step(other.call(), cell, 2)


def test_damaged_cells_raise_state_errors_and_nothing_else() -> None:
    _, cell = step(CASE.call(), None, 1)
    pick = random.Random(7)
    refused = 0
    for _ in range(300):
        damaged = bytearray(cell.content)
        if pick.random() < 0.2:
            del damaged[pick.randrange(len(damaged)) :]
        else:
            damaged[pick.randrange(len(damaged))] ^= 1 << pick.randrange(8)
        try:
            step(CASE.call(), replace(cell, content=bytes(damaged)), 2)
        except StateError:
            refused += 1
    assert refused == 300
