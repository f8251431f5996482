"""A trace that is a sample says the same of what it keeps as the trace of everything."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

import lowwater as lw
from lowwater.engine.graph.trace import NOT_KEPT, StageTrace, Trace
from lowwater.engine.graph.traced_parts import is_sampled, numbered, sampled
from lowwater.time import START_OF_TIME
from tests.examples import examples

EXAMPLES = examples(0.6)
SECOND = 1_000_000


@st.composite
def inputs(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Return records that are out of order, some of them twice."""
    number = draw(st.integers(20, 90))
    behind = draw(st.lists(st.integers(-3, 9), min_size=number, max_size=number))
    keys = draw(st.lists(st.sampled_from("ab"), min_size=number, max_size=number))
    rows = [
        {"id": at, "at": max(0, at - back) * SECOND, "k": key, "v": at % 7}
        for at, (back, key) in enumerate(zip(behind, keys, strict=True))
    ]
    return rows + rows[: draw(st.integers(0, 6))]


_WINDOWS = st.sampled_from(
    [
        lw.FixedWindows("5s"),
        lw.SlidingWindows("6s", "2s"),
        lw.Sessions("2s"),
        lw.Sessions("700ms"),
    ]
)


def source(rows: list[dict[str, Any]]) -> Any:
    return lw.from_iterable(rows, time="at", watermark=lw.BoundedDisorder("3s"))


def run(pipeline: Any, limit: int | None, size: int) -> lw.Result:
    result: lw.Result = pipeline.collect(
        trace=lw.Tracing(limit=limit), bundle_size=size, clock=lw.ManualClock(0), progress=False
    )
    return result


def numbers_of(stage: StageTrace, whole: StageTrace) -> list[int]:
    """Return the index of each kept element among all, which must be rising."""
    rest = iter(enumerate(whole.elements))
    return [next(at for at, one in rest if one == element) for element in stage.elements]


def said(explanation: Any, *, sample: bool) -> list[str]:
    """Return the lines of an explanation without those about the sample."""
    lines = list(explanation)
    if not sample:
        return lines
    return [line for line in lines if "the trace keeps" not in line and "trace=lw." not in line]


def must_keep(stage: StageTrace) -> set[int]:
    """Return the elements that were dropped, or whose windows merged with others."""
    merged = {(m.order - 1, m.key, part) for m in stage.merges for part in m.of}
    return {
        at
        for at, e in enumerate(stage.elements)
        if e.outcome != "kept" or any((e.order, e.key, window) in merged for window in e.windows)
    }


def check_stage(part: StageTrace, whole: StageTrace, limit: int) -> list[int]:
    kept = numbers_of(part, whole)
    needed = must_keep(whole)
    assert needed <= {*kept}
    assert len({*kept} - needed) <= limit
    assert list(part.panes) == list(whole.panes)
    assert list(part.merges) == list(whole.merges)
    assert (part.moves, part.pane_orders) == (whole.moves, whole.pane_orders)
    assert part.arrived == len(whole.elements)
    if part.sample is None:
        assert kept == list(range(len(whole.elements)))
        return kept
    first_ones = [e for e in whole.elements if e.outcome != "duplicate" and not e.retract]
    by_chance = 0
    for at, drawn, latest in zip(kept, part.sample.drawn, part.sample.latest, strict=True):
        before = [e.time for e in first_ones if e.order < whole.elements[at].order]
        same = [
            e.time
            for e in whole.elements[:at]
            if e.order == whole.elements[at].order and e.outcome != "duplicate" and not e.retract
        ]
        assert latest == max([*before, *same], default=START_OF_TIME)
        assert drawn or at in needed
        by_chance += bool(drawn)
    assert by_chance < len(whole.elements)
    return kept


def check_records(part: Trace, whole: Trace) -> None:
    for name, records in part.read.items():
        every = whole.read[name]
        kept = dict(numbered(records))
        assert all(every[number] == record for number, record in kept.items())
        assert list(kept) == sorted(kept)
        for stage in part.stages:
            for element in stage.elements:
                assert all(number in kept for of, number in element.origins if of == name)


@given(inputs(), _WINDOWS, st.integers(1, 40), st.integers(1, 30))
@EXAMPLES
def test_windows(rows: list[dict[str, Any]], windows: Any, limit: int, size: int) -> None:
    first = (
        source(rows)
        .deduplicate(id="id", within="1h")
        .key_by("k")
        .window(windows, trigger=lw.Repeatedly(lw.AfterCount(2)), accumulation="retracting")
        .aggregate(total=lw.sum("v"))
    )
    pipeline = (
        first.key_by("k")
        .window(lw.FixedWindows("10s"), accumulation="retracting")
        .aggregate(grand=lw.sum("total"))
    )
    whole, part = run(pipeline, None, size).trace, run(pipeline, limit, size).trace
    check_records(part, whole)
    for ours, every in zip(part.stages, whole.stages, strict=True):
        check_stage(ours, every, limit)
    first_stage = part.stages[0]
    result, all_of_it = run(pipeline, limit, size), run(pipeline, None, size)
    for element in list(first_stage.elements)[::5]:
        ours_said = said(result.why(element, stage=first_stage.name), sample=True)
        assert ours_said == said(all_of_it.why(element, stage=first_stage.name), sample=False)
    kept = {number for _, number in (o for e in first_stage.elements for o in e.origins)}
    for number, record in list(enumerate(rows))[::7]:
        story = str(result.why(lambda one, record=record: one == record))
        if number not in kept and first_stage.sample is not None:
            assert "a step" not in story
            assert "the trace keeps" in story


@given(inputs(), inputs(), st.integers(1, 30), st.integers(1, 30))
@EXAMPLES
def test_joins(
    rows: list[dict[str, Any]], others: list[dict[str, Any]], limit: int, size: int
) -> None:
    joined = source(rows).join(source(others), on="k", within="2s", how="outer")
    whole, part = run(joined, None, size).trace, run(joined, limit, size).trace
    check_records(part, whole)
    ours, every = part.stage(), whole.stage()
    kept = check_stage(ours, every, limit)
    place = {number: at for at, number in enumerate(kept)}

    def end(number: int | None) -> int | None:
        return None if number is None else place.get(number, NOT_KEPT)

    wanted = [(end(p.left), end(p.right), p.time, p.retract, p.order) for p in every.pairs]
    assert [(p.left, p.right, p.time, p.retract, p.order) for p in ours.pairs] == [
        each for each in wanted if any(at not in (None, NOT_KEPT) for at in each[:2])
    ]
    result = run(joined, limit, size)
    for element in list(ours.elements)[::7]:
        said_of_it = str(result.why(element))
        at = ours.elements.index(element)
        lacks = any(at in (p.left, p.right) and NOT_KEPT in (p.left, p.right) for p in ours.pairs)
        assert ("that is not in the sample" in said_of_it) == lacks


def test_a_sample_contains_the_thinner_ones_and_is_about_as_large_as_it_says() -> None:
    numbers = np.arange(100_000, dtype=np.int64)
    before = sampled(numbers, 0)
    assert before.all()
    for thinning in range(1, 12):
        now = sampled(numbers, thinning)
        assert not (now & ~before).any()
        assert abs(now.sum() - 100_000 / 2**thinning) < 5 * (100_000 / 2**thinning) ** 0.5
        assert is_sampled(7, thinning) == now[7]
        before = now
