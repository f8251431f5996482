"""What levels do over several micro-batches, without Spark: sources that are silent, restarts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import lowwater as lw
from lowwater.engine.graph.graph import Graph
from lowwater.errors import StateError
from lowwater.spark import CarriedTime
from lowwater.spark.levels import Levels
from tests.spark.stepped import GROUPS, Stepped

SECOND = 1_000_000
SCHEMA = pa.schema([("at", pa.int64()), ("key", pa.string()), ("low", pa.int64())])


def table(*rows: tuple[int | None, str | None, int]) -> pa.Table:
    """Records: seconds of event time, the key, and seconds of the watermark that they carry."""
    return pa.table(
        {
            "at": [None if at is None else at * SECOND for at, _, _ in rows],
            "key": [key for _, key, _ in rows],
            "low": [low * SECOND for _, _, low in rows],
        },
        schema=SCHEMA,
    )


def source(watermark: Any = None, idle_after: str | None = None) -> lw.Stream:
    return lw.from_arrow(table(), time="at", watermark=watermark, idle_after=idle_after)


def counted(stream: Any, size: str = "5s") -> lw.Pipeline:
    made: lw.Pipeline = stream.key_by("key").window(lw.FixedWindows(size)).aggregate(low=lw.count())
    return made


def test_an_idle_source_follows_a_watermark_that_another_carries() -> None:
    idle = source(lw.BoundedDisorder("1s"), idle_after="10s")
    query = Stepped(counted(idle | source(CarriedTime("low"))), SCHEMA)
    query.step([table((2, "a", 0)), table((2, "a", 1))], 100 * SECOND)
    assert query.watermark() == SECOND
    query.step([None, table((50, "a", 40))], 105 * SECOND)
    assert query.watermark() == SECOND
    rows = query.step([None, table((50, "a", 41))], 120 * SECOND)
    assert query.watermark() == 41 * SECOND
    assert [row["low"] for row in rows] == [2]


def test_a_heartbeat_is_a_sign_of_life() -> None:
    """A source that says how far it is does not follow the others, so nothing of it is late."""
    beating = source(CarriedTime("low"), idle_after="10s")
    query = Stepped(counted(source(lw.BoundedDisorder("1s")) | beating), SCHEMA)
    query.step([table((1, "a", 0)), table((1, "a", 1))], 100 * SECOND)
    for low in range(2, 6):
        beat = table((None, None, low))
        query.step([table((low * 100, "a", 0)), beat], (100 + low * 20) * SECOND)
        assert query.watermark() == low * SECOND
    query.step([None, table((8, "b", 8))], 300 * SECOND)
    query.end(301 * SECOND)
    assert [row["output"] for row in query.rows] == ["pane"] * len(query.rows)
    assert [row["low"] for row in query.rows if row["key"] == "b"] == [1]


def test_the_watermark_of_a_stage_is_never_reported_to_go_back() -> None:
    """That of a source goes back when the source is not idle any more."""
    first, second = (source(lw.BoundedDisorder("1s"), idle_after="10s") for _ in range(2))
    query = Stepped(counted(first | second), SCHEMA)
    query.step([table((1, "a", 0)), table((1, "a", 0))], 100 * SECOND)
    query.step([table((100, "a", 0)), None], 120 * SECOND)
    assert query.watermark() == 99 * SECOND
    query.step([None, table((50, "a", 0))], 121 * SECOND)
    assert query.watermark(-2) == 49 * SECOND
    assert query.watermark() == 99 * SECOND


def test_events_of_a_stage_behind_deduplication_are_counted_once() -> None:
    begun = source(lw.BoundedDisorder("1s")).deduplicate(id="at", within="1m")
    query = Stepped(counted(begun), SCHEMA)
    query.step([table((1, "a", 0), (1, "a", 0), (2, "b", 0))], 100 * SECOND)
    assert sum(row["events"] for row in query.counted[0]) == 3
    assert sum(row["duplicates"] for row in query.counted[0]) == 1


def test_what_drops_duplicates_has_a_name_that_no_stage_has() -> None:
    """State is kept by name, and both are on one level."""
    begun = source(lw.BoundedDisorder("1s"))
    once = counted(begun.deduplicate(id="at", within="1m")).named("x").select("key", "low")
    other = counted(begun).named("x: ids").select("key", "low")
    nodes = Levels(Graph.of([counted(once | other)._stage])).nodes
    assert [node.name for node in nodes] == ["x: ids'", "x", "x: ids", "stage 3"]


def two_levels() -> lw.Pipeline:
    return counted(counted(source(lw.BoundedDisorder("1s"))), "10s")


def another_source() -> lw.Pipeline:
    return counted(counted(source() | source()), "10s")


def another_stage() -> lw.Pipeline:
    begun = source(lw.BoundedDisorder("1s"))
    both = counted(begun).select("key", "low") | counted(begun, "7s").select("key", "low")
    return counted(both, "10s")


def another_window() -> lw.Pipeline:
    return counted(counted(source(lw.BoundedDisorder("1s"))), "20s")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (another_source, "the source 'source 2' is new"),
        (another_stage, "the stage 'stage 3' is new"),
        (another_window, r"stage 2: windows was .FixedWindows\('10s'\). and is .FixedWindows"),
    ],
)
def test_a_checkpoint_of_another_pipeline_is_refused(
    make: Callable[[], lw.Pipeline], message: str
) -> None:
    before = Stepped(two_levels(), SCHEMA)
    before.step([table((1, "a", 0))], 100 * SECOND)
    after = Stepped(make(), SCHEMA, before.cells)
    with pytest.raises(
        StateError, match=f"the checkpoint belongs to another pipeline: .*{message}"
    ):
        after.end(101 * SECOND)


def test_a_checkpoint_is_taken_up_with_another_watermark() -> None:
    before = Stepped(two_levels(), SCHEMA)
    before.step([table((1, "a", 0))], 100 * SECOND)
    stream = source(lw.BoundedDisorder("3s"))
    after = Stepped(counted(counted(stream), "10s"), SCHEMA, before.cells)
    after.step([table((2, "a", 0))], 101 * SECOND)
    assert [row["low"] for row in after.end(102 * SECOND)] == [1]


def test_a_group_with_nothing_to_say_sends_its_watermark_in_one_row_to_a_level() -> None:
    """Not in one for each key group there, which is as many as there are groups, squared."""
    first = counted(source(CarriedTime("low")))
    query = Stepped(counted(first.select("key", "low"), "10s"), SCHEMA)
    query.step([table((1, "a", 0))], 100 * SECOND)
    quiet = query.sent
    assert quiet == {1: GROUPS, 2: GROUPS}
    query.step([table((7, "a", 6))], 101 * SECOND)  # one key leaves the first level
    assert query.sent == {1: GROUPS, 2: GROUPS + 1}
    assert query.watermark(1) == query.watermark(0) == 6 * SECOND
