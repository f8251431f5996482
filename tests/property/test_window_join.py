"""J-7: a join within windows emits the pairs of the panes that the oracle gives, no more, in order.

The oracle groups both sides together, and knows of no join; what a pane comes to is paired here, by
two loops.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any, TypeAlias
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from lowwater.engine.aggregates import _retractable, collect
from lowwater.engine.graph.graph import MAIN, Flow, Stage
from lowwater.engine.join import window_join
from lowwater.engine.join.joining import HOWS, How
from lowwater.engine.join.pairs import JoinedColumns
from lowwater.engine.join.window_join import WINDOW
from lowwater.engine.keyed.sides import LEFT, RIGHT
from lowwater.engine.local.outcomes import Outcome
from lowwater.engine.local.stage_run import StageRun
from lowwater.engine.records.admission import Admitted
from lowwater.engine.records.batch import Records
from lowwater.engine.records.columns import Column
from lowwater.engine.records.panes import Pane
from lowwater.engine.records.python_values import FIRST_DATETIME, LAST_DATETIME
from lowwater.engine.records.stage_bundle import StageBundle
from lowwater.engine.records.steps import Bundle, ClockAdvance, EndOfInput, WatermarkAdvance
from lowwater.engine.stages.window_joined import WindowJoined
from lowwater.engine.stages.windowed import Windowed
from lowwater.engine.window.windowing import Windowing
from lowwater.testing import Scenario, oracle
from lowwater.testing._arrivals import Add
from lowwater.testing._drive import _Source
from lowwater.time import END_OF_TIME, START_OF_TIME
from tests.examples import examples
from tests.property import retracted_elements, strategies
from tests.property.graphs import BASE, SECOND, Batches, Drawn
from tests.property.killed_runs import run_killed
from tests.property.stored_operator import FATES, Stored, stored

Row: TypeAlias = tuple[Any, ...]
LATE_UNSIGNED = Windowed(Windowing(windows=lw.FixedWindows(1)), {})
LATE_SIGNED = Windowed(Windowing(windows=lw.FixedWindows(1), accumulation="retracting"), {})


def side_of(value: int) -> int:
    return value % 2


def columns_of(values: Sequence[int]) -> dict[str, Column]:
    """Return records as columns; in one of them are nulls."""
    texts = [None if value % 3 == 0 else f"text {value}" for value in values]
    return {
        "value": Column(np.array(values, dtype=np.int64)),
        "text": Column.from_arrow(pa.array(texts, pa.string())),
    }


def record_of(value: int | None) -> Row:
    if value is None:
        return (None, None)
    return (value, None if value % 3 == 0 else f"text {value}")


def by_side(scenario: Scenario) -> Scenario:
    """Return a scenario whose bundles are each of one side; elements stay in their order."""
    found = Scenario(start=scenario.start, watermark=scenario.watermark_at_start)
    for step in scenario.steps:
        if not isinstance(step, Add):
            found = found._with(step)
            continue
        parts = [tuple(part) for _, part in groupby(step.elements, lambda one: side_of(one.value))]
        for at, part in enumerate(parts):
            found = found._with(replace(step, elements=part, at=None if at else step.at))
    return found


def stage_of(windowing: Windowing, how: How, *, signed: bool) -> Stage:
    origin = Stage((), ("key",), ("key",), LATE_SIGNED if signed else LATE_UNSIGNED)
    flow = Flow(origin, (), "time")
    known = {"value": pa.int64(), "text": pa.string()}
    columns = JoinedColumns(known, known, ("key",), labels=WINDOW)
    work = WindowJoined(windowing, how, 1, ("key",), columns)
    return Stage((flow, flow), ("key",), ("key",), work)


def outcomes_of(
    run: StageRun, scenario: Scenario, windowing: Windowing, signs: list[int] | None
) -> Iterator[Outcome]:
    """Give a stage what a scenario says."""
    source = _Source(scenario, windowing, {"value": collect()}, "raise", signs)
    for step, elements in source.inputs():
        match step:
            case Bundle():
                values = [element.value for element in elements]
                columns = columns_of(values) | {"key": step.keys[0]}
                durations = {name: step.values[name] for name in windowing.windows.columns}
                bundle = replace(step, values=durations)
                admitted = Admitted(bundle, None, [], ())
                nth = side_of(values[0])
                records = Records(columns, len(values))
                yield from run.take([StageBundle(0, bundle, 0, records, admitted, nth)])
            case WatermarkAdvance():
                yield from run.advance(int(step.to))
            case EndOfInput():
                yield from run.advance(END_OF_TIME)
            case ClockAdvance():
                yield from run.tick(int(step.to))


def rows_of(outcome: Outcome) -> Iterator[Row]:
    """Return what came out, as plain rows."""
    emitted = outcome.emitted[MAIN]
    signs = [1] * len(emitted) if emitted.signs is None else emitted.signs.tolist()
    names = ("value", "text", "value_right", "text_right")
    for key, time, value, sign in zip(
        emitted.keys[0].to_list(), emitted.times.tolist(), emitted.to_list(), signs, strict=True
    ):
        bounds = (value["window_start"], value["window_end"])
        record = tuple(value.get(name) for name in names)
        yield (key, time, *map(lw.Instant, bounds), sign, *record)


def wanted_of(pane: Pane, how: How) -> Iterator[Row]:
    """Return what a pane comes to, by two loops."""
    left: list[int | None] = [value for value in pane.values["value"] if side_of(value) == LEFT]
    right: list[int | None] = [value for value in pane.values["value"] if side_of(value) == RIGHT]
    nothing = (None, None)
    if how in ("semi", "anti"):
        rows = [record_of(one) + nothing for one in left if bool(right) == (how == "semi")]
    else:
        if how in ("left", "outer"):
            right = right or ([None] if left else [])
        if how in ("right", "outer"):
            left = left or ([None] if any(one is not None for one in right) else [])
        rows = [record_of(one) + record_of(other) for one in left for other in right]
    sign = 1 if pane.kind == "insert" else -1
    bounds = (pane.window.start, pane.window.end)
    return ((pane.key, int(pane.timestamp), *map(clipped, bounds), sign, *row) for row in rows)


def clipped(at: lw.Instant) -> lw.Instant:
    return lw.Instant(min(max(int(at), FIRST_DATETIME), LAST_DATETIME))


def check(windowing: Windowing, scenario: Scenario, signs: list[int] | None, how: How) -> None:
    scenario = by_side(scenario)
    wanted = oracle.run(scenario, windowing, list, signs=signs)
    stage = stage_of(windowing, how, signed=signs is not None)
    assert isinstance(stage.work, WindowJoined)
    run = StageRun(stage, 0, is_end=True, is_read=False)
    list(run.tick(int(scenario.start)))
    list(run.advance(int(scenario.watermark_at_start)))
    found: list[Row] = []
    late: list[Any] = []
    for outcome in outcomes_of(run, scenario, windowing, signs):
        if outcome.late is None:
            found += rows_of(outcome)
        else:
            late += [
                (one.key, one.time, one.window, one.reason) for one in outcome.late.to_records()
            ]
    rows = [row for pane in wanted.panes for row in wanted_of(pane, how)]
    if signs is not None and windowing.windows.merge_scope == "key":
        # Where windows are merged by the user's own function, equal elements may meet again.
        assert Counter(found) == Counter(rows)
    else:
        assert found == rows
    assert late == [(one.key, one.time, one.window, one.reason) for one in wanted.late]
    assert run.operator.state_rows == 0


def check_kept(
    kept: str,
    windowing: Windowing,
    scenario: Scenario,
    signs: list[int] | None,
    how: How,
    fates: list[str | None],
) -> None:
    if kept == "in memory":
        check(windowing, scenario, signs, how)
        return
    operator = partial(Stored, watermark=START_OF_TIME, clock=START_OF_TIME)
    with (
        stored(fates, spills=kept == "spilled"),
        mock.patch.object(window_join, "WindowOperator", operator),
    ):
        check(windowing, scenario, signs, how)


KEPT = st.sampled_from(["in memory", "stored", "spilled"])


@given(KEPT, strategies.cases(), st.sampled_from(HOWS), FATES)
@examples(1.2)
def test_pairs_are_those_of_the_oracles_panes(
    kept: str, case: tuple[Windowing, Scenario], how: How, fates: list[str | None]
) -> None:
    check_kept(kept, *case, None, how, fates)


@given(KEPT, retracted_elements.cases(), st.sampled_from(HOWS), FATES)
@examples(1)
def test_retracted_records_take_their_pairs_with_them(
    kept: str, case: retracted_elements.Case, how: How, fates: list[str | None]
) -> None:
    windowing, scenario, signs = case
    if windowing.shows_differences:  # refused when the stage is built
        windowing = windowing.with_(accumulation="retracting")
    with mock.patch.object(_retractable, "_SPARE", 1):
        check_kept(kept, windowing, scenario, signs, how, fates)


ELEMENTS = st.lists(st.tuples(st.integers(0, 40), st.sampled_from("ab")), max_size=8)
IN_BATCH: dict[str, Any] = {
    "fixed": lw.FixedWindows("10s"),
    "sliding": lw.SlidingWindows("10s", "5s"),
    "sessions": lw.Sessions("4s"),
}


@pytest.mark.parametrize("kind", list(IN_BATCH))
@given(ELEMENTS, ELEMENTS, st.sampled_from(HOWS), st.sampled_from([1, 2, 100]))
@examples(1)
def test_net_output_is_the_batch_join_however_records_are_bundled(
    kind: str, left: list[Any], right: list[Any], how: How, bundle_size: int
) -> None:
    """Elements come in any order; none is too late."""
    sides = [
        lw.from_iterable(
            [{"at": at * SECOND, "key": key, name: n} for n, (at, key) in enumerate(side)]
            or [{"at": 99 * SECOND, "key": "other", name: 0}],
            time="at",
            watermark=lw.Ascending(),
        ).select("key", name)
        for name, side in (("l", left), ("r", right))
    ]
    joined = sides[0].join(
        sides[1],
        on="key",
        within=IN_BATCH[kind],
        how=how,
        accumulation="retracting",
        allowed_lateness="10m",
    )
    result = joined.collect(bundle_size=bundle_size)
    net: Counter[Any] = Counter()
    for one in result.elements():
        if one.key != "other":
            row = (one.key, one.timestamp, one.value["l"], one.value.get("r"))
            net[row] += 1 if one.kind == "insert" else -1
    assert {row: count for row, count in net.items() if count} == batch(kind, left, right, how)
    assert result.metrics.open_windows == 0


def batch(kind: str, left: list[Any], right: list[Any], how: How) -> Counter[Any]:
    """Return the rows of all windows, with everything at hand."""
    both = [(at, key, LEFT, n) for n, (at, key) in enumerate(left)]
    both += [(at, key, RIGHT, n) for n, (at, key) in enumerate(right)]
    windows: dict[Any, list[list[int | None]]] = {}
    for at, key, side, n in both:
        if kind == "sessions":
            ends = [*spans([one for one, other, *_ in both if other == key])]
            found = [end for start, end in ends if start <= at < end]
        elif kind == "fixed":
            found = [at - at % 10 + 10]
        else:
            start = at - at % 5
            found = [start + 10, start + 5]
        for end in found:
            windows.setdefault((key, end), [[], []])[side].append(n)
    rows: Counter[Any] = Counter()
    for (key, end), (ours, theirs) in windows.items():
        if how in ("semi", "anti"):
            pairs: list[Any] = [(n, None) for n in ours if bool(theirs) == (how == "semi")]
        else:
            mine = ours or ([None] if how in ("right", "outer") else [])
            other = theirs or ([None] if how in ("left", "outer") else [])
            pairs = [(n, m) for n in mine for m in other]
        rows.update((key, end * SECOND - 1, n, m) for n, m in pairs)
    return rows


def spans(times: list[int]) -> Iterator[tuple[int, int]]:
    """Return the sessions of some times: from the first to 4 s after the last."""
    start = end = None
    for at in sorted(times):
        if start is None or end is None or at >= end:
            if start is not None and end is not None:
                yield start, end
            start = at
        end = at + 4
    if start is not None and end is not None:
        yield start, end


@given(st.lists(st.integers(1, 40), max_size=3), st.sampled_from(["retracting", "discarding"]))
@examples(0.2)
def test_a_run_that_is_killed_writes_what_one_run_writes(kills: list[int], mode: Any) -> None:
    """With text in windows that are open, and in panes that were shown."""
    rows = [(BASE + 60 * SECOND * n, n % 7, n, 1, "pq"[n % 2], BASE) for n in range(40)]
    left, right = (
        lw.from_source(Batches([rows[at : at + 8] for at in range(shift, 40, 8)]), time="at")
        for shift in (0, 3)
    )
    joined = left.join(
        right.select("key", "v"),
        on="key",
        within=lw.Sessions("8m"),
        how="outer",
        trigger=lw.AfterWatermark(early=lw.AfterCount(3)),
        accumulation=mode,
    )
    case = Drawn((joined,), lw.ManualClock(0), {"bundle_size": 5})
    (whole,) = run_killed(case, [], 1)
    (found,) = run_killed(case, kills, 1)
    assert len(whole.rows) > 20
    assert found.rows == whole.rows
