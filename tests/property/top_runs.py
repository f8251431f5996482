"""``table.top`` beside the scalar oracle, which changes the same at each step (T-6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import count
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa

import lowwater as lw
from lowwater.engine.join.topping import Topping
from lowwater.engine.join.tops import TopOperator
from lowwater.engine.records.columns import Column
from lowwater.engine.records.steps import Bundle, EndOfInput, WatermarkAdvance
from lowwater.engine.stages.topped import Topped
from tests.oracles.row_patterns import END
from tests.oracles.top_rows import Change, Ranked, TableRow, TopRun
from tests.property.driven_joins import Driven, Row
from tests.property.stepped import RESTART, Run, one_of_each

LARGE = 2**53
VALUES: dict[str, list[Any]] = {
    "ints": [None, 0, 1, 2, -1, -2, LARGE, LARGE + 1, -(2**63)],
    "floats": [None, 0.0, -0.0, 1.5, 2.5, float("inf"), float("-inf")],
    "both": [None, 0, -0.0, 1, 1.5, 2.0, LARGE + 1, float(LARGE)],
    "texts": [None, "", "a", "b", "é", "ß", "aa"],
    "same": [None, 7, 7, 7, 7, 7],
}


def rules_of(run: TopRun) -> Topping:
    """Return the rules of the stage that is built."""
    rows: list[dict[str, Any]] = []
    table = lw.from_iterable(rows, time="time").table(key="id")
    made = table.top(
        run.most,
        per=None if run.is_whole else "group",
        by="by",
        ties="tie" if run.tied else (),
        reverse=run.reverse,
    )
    work = made._stage.work
    assert isinstance(work, Topped)
    return work.rules


def bundle_of(changes: Sequence[Change], run: TopRun, *, arrow: bool) -> Bundle:
    """Return changes as the operator gets them; values of ``by`` may be of several types."""
    rows = [row for row, _ in changes]
    by = [row.by for row in rows]
    groups = [0 if run.is_whole else row.group for row in rows]
    columns = {
        "id": Column.from_arrow(pa.array([row.id for row in rows], pa.int64())),
        "by": Column.from_arrow(pa.array(by)) if arrow and _is_typed(by) else Column.of_objects(by),
        "tie": Column.from_arrow(pa.array([row.tie for row in rows], pa.string())),
    }
    if run.is_whole:
        columns["group"] = Column.from_arrow(pa.array([row.group for row in rows], pa.string()))
    return Bundle(
        np.array([row.time for row in rows], dtype=np.int64),
        (Column.from_arrow(pa.array(groups, pa.int64() if run.is_whole else pa.string())),),
        columns,
        np.array([sign for _, sign in changes], dtype=np.int8),
    )


def _is_typed(values: Sequence[Any]) -> bool:
    return len({*map(type, values)} - {type(None)}) < 2


def shown(rows: Sequence[Row], run: TopRun) -> Counter[tuple[Ranked, int]]:
    """Return what is emitted as the oracle has it; retractions come first."""
    signs = [sign for *_, sign in rows]
    assert signs == sorted(signs)
    found: Counter[tuple[Ranked, int]] = Counter()
    for key, time, values, sign in rows:
        group = values["group"] if run.is_whole else key
        row = TableRow(values["id"], group, values["by"], values["tie"], time)
        ranked = (None, key, row) if run.is_whole else (key, values["rank"], row)
        found[ranked, sign] += 1
    return found


@st.composite
def runs(draw: st.DrawFn) -> Run:
    run = TopRun(
        draw(st.integers(1, 4)),
        tied=draw(st.booleans()),
        reverse=draw(st.booleans()),
        is_whole=draw(st.integers(0, 3)) == 0,
    )
    rules, bundles = rules_of(run), count()

    def compare(library: Driven, step: Any) -> None:
        if isinstance(step, list):
            bundle = bundle_of(step, run, arrow=next(bundles) % 3 > 0)
            assert shown(library.step(bundle), run) == run.take(step)
            assert library.operator.state_rows == sum(row.by is not None for row in run.rows)
            return
        watermark = max(library.operator.watermark, step)
        assert not library.step(EndOfInput() if step == END else WatermarkAdvance(step))
        assert step == END or library.operator.output_watermark == watermark

    return Run(lambda: TopOperator(rules, {}), draw(steps_of()), compare)


@st.composite
def steps_of(draw: st.DrawFn) -> list[Any]:
    """Bundles of changes of a table, watermarks, and restarts.

    A change may insert before it retracts, come more often than once, and cancel itself.
    """
    values = VALUES[draw(st.sampled_from(sorted(VALUES)))]
    change = one_of_each(
        range(18), range(10), ["a", "a", "a", "b", None], values, [None, "x", "y"], range(6)
    )
    stands: dict[int, TableRow] = {}
    steps: list[Any] = []
    for _ in range(draw(st.integers(2, 8))):
        kind = draw(st.integers(0, 7))
        if kind == 0:
            steps.append(RESTART)
            continue
        if kind == 1:
            steps.append(draw(st.integers(0, 24)))
            continue
        changes: list[Change] = []
        for _ in range(draw(st.sampled_from([1, 2, 6, 15]))):
            which, how, *row = draw(change)
            old = stands.pop(which, None)
            if how < 2 or (how == 2 and old is None):
                changes += [] if old is None else [(old, -1)]
                continue
            new = TableRow(which, *row)
            if how == 2 and old is not None:
                new = old
            stands[which] = new
            pair = [(new, 1)] if old is None else [(old, -1), (new, 1)]
            changes += pair[::-1] if how > 6 else pair
            if how == 9:
                changes += [(new, 1), (new, -1)]
        if changes:
            steps.append(changes)
    return steps
