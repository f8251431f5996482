"""Graphs on Spark's levels, without Spark: equal to the embedded runner, bundle for bundle."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

import lowwater as lw
from tests.examples import examples
from tests.property.graphs import BASE, Batches, Drawn, drawn
from tests.property.levels import InLevels, embedded


@given(
    drawn(),
    st.integers(1, 3),
    st.integers(1, 2),
    st.frozensets(st.integers(1, 6), max_size=2),
)
@examples(2)
def test_levels_are_equal_to_the_embedded_runner(
    case: Drawn, key_groups: int, partitions: int, forgets: frozenset[int]
) -> None:
    """Panes, late elements and watermarks of each micro-batch, with restarts at any of them."""
    levels = InLevels(case, key_groups, partitions, forgets)
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
