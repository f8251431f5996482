"""Graphs on Spark's levels, without Spark: equal to the embedded runner, bundle for bundle."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

import lowwater as lw
from tests.examples import examples
from tests.property.graphs import (
    BASE,
    SECOND,
    Batches,
    Drawn,
    drawn,
    null_keys_and_duplicates,
)
from tests.property.levels import InLevels, embedded


@given(
    drawn(),
    st.integers(1, 3),
    st.integers(1, 2),
    st.frozensets(st.integers(1, 6), max_size=2),
    st.sampled_from([None, 0, 2_000]),
)
@examples(1.5)
def test_levels_are_equal_to_the_embedded_runner(
    case: Drawn, key_groups: int, partitions: int, forgets: frozenset[int], memory: int | None
) -> None:
    """Panes, late elements and watermarks of each micro-batch, with restarts at any of them.

    With little memory, most of the state of windows, joins and tables is in the cells alone.
    """
    levels = InLevels(case, key_groups, partitions, forgets, memory=memory)
    for expected, found in zip(embedded(case), levels.told(), strict=True):
        assert found == expected
    assert levels.rows_left() == 0


class Apart:
    """Emits to one output what it emits to the other, first to the side."""

    side = lw.output()

    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        ctx.emit({"v": -1, "n": 1}, tag="side")
        ctx.emit({"v": record["v"], "n": 1})


@pytest.mark.parametrize("side_first", [True, False])
def test_the_outputs_of_a_process_arrive_in_the_order_in_which_they_are_united(
    side_first: bool,
) -> None:
    rows = [(BASE, 0, v, 1, "p", BASE) for v in (1, 2)]
    made = lw.from_source(Batches([rows]), time="at").key_by("key").process(Apart())
    both = [made.output("side").to_stream(), made.to_stream()]
    united = both[0] | both[1] if side_first else both[1] | both[0]
    pipeline = (
        united.key_by(key=lw.lit(0))
        .window(
            lw.GlobalWindow(),
            trigger=lw.Repeatedly(lw.AfterCount(2)),
            accumulation="discarding",
        )
        .aggregate(v=lw.sum("v"), n=lw.count())
    )
    case = Drawn((pipeline,), lw.ManualClock(BASE), {})
    told = list(embedded(case))
    assert told == list(InLevels(case, 1, 1).told())
    first = next(row for row in told[0].panes[1] if "index=0" in row)
    assert ("'v': -2" in first) == side_first


@pytest.mark.parametrize("key_groups", [1, 3])
def test_null_keys_and_duplicates(key_groups: int) -> None:
    """T-3, S-D1: rows whose keys are null alike stay apart on their way to another stage."""
    case = null_keys_and_duplicates()
    levels = InLevels(case, key_groups, 2, frozenset({2}))
    for expected, found in zip(embedded(case), levels.told(), strict=True):
        assert found == expected
        assert "__lw" not in str(found)
    assert levels.rows_left() == 0


@pytest.mark.parametrize("key_groups", [1, 2, 5])
@pytest.mark.parametrize("name", ["behind duplicates", "behind another key", "in a process"])
def test_lists_have_the_same_order_on_every_runner(name: str, key_groups: int) -> None:
    """What drops duplicates has key groups of its own, and so has a stage with other keys."""
    rows = [(BASE + at * SECOND, at % 5, at * 7 % 10, 1, "p", BASE) for at in range(40)]
    source = lw.from_source(Batches([rows[:20], rows[20:]]), time="at")
    windows = lw.FixedWindows("10s")
    if name == "behind duplicates":
        all_ = source.with_columns(k=lw.lit(0))
        stream = all_.deduplicate(id=("v", "arrived", "at"), within="1m").key_by("k")
    else:
        sums = source.key_by("key").window(windows).aggregate(v=lw.sum("v"))
        stream = sums.to_stream().key_by(k=lw.lit(0))
    end: Any = (
        stream.process(Appends())
        if name == "in a process"
        else stream.window(windows).aggregate(v=lw.collect("v"))
    )
    case = Drawn((end,), lw.ManualClock(BASE), {})
    levels = InLevels(case, key_groups, 2)
    for expected, found in zip(embedded(case), levels.told(), strict=True):
        assert found == expected


class Appends:
    seen = lw.list_cell()

    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        ctx.seen.append(record["v"])
        ctx.emit({"seen": ctx.seen.get()})


@pytest.mark.parametrize("key_groups", [1, 3])
@pytest.mark.parametrize("ids", ["v", ("v", "key")])
def test_behind_duplicates_records_of_one_time_come_in_the_order_of_the_union(
    ids: str | tuple[str, ...], key_groups: int
) -> None:
    """S-K13: not in the order in which the graph has the sources."""
    rows = [
        [(BASE + at * SECOND, at % 2, v + at, 1, "p", BASE) for at in (1, 2, 1)] for v in (0, 100)
    ]
    first, second = (lw.from_source(Batches([some]), time="at") for some in rows)
    counted = first.key_by("key").window(lw.FixedWindows("1s")).aggregate(n=lw.count())
    united = (second | first).deduplicate(id=ids, within="1m")
    ordered = united.key_by("key").process(Appends(), order="event_time")
    case = Drawn((counted, ordered), lw.ManualClock(BASE), {})
    told = list(embedded(case))
    assert told == list(InLevels(case, key_groups, 2).told())
    assert any("[101, 1]" in row for turn in told for row in turn.panes.get(1, ()))
