"""Row patterns give what the scalar oracle gives: step by step, and in all ways to keep state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import hypothesis.strategies as st
from hypothesis import assume, given

from lowwater.engine.records.steps import EndOfInput, WatermarkAdvance
from lowwater.errors import InvalidArgument
from lowwater.time import END_OF_TIME
from tests.examples import examples
from tests.oracles.pattern_runs import Given
from tests.oracles.row_patterns import END, Row
from tests.property.driven_joins import colliding
from tests.property.driven_matches import (
    CONDITIONS,
    MEASURES,
    Case,
    bundle_of,
    driven,
    expected,
    shown,
)

NAMES = "abc"
REPEATS = ["", "", "", "*", "+", "?", "{2}", "{1,2}", "{2,}", "*?", "+?", "??", "{1,3}?"]
TEXTS = [
    "a b", "a b*", "a b* c", "a b+?", "a .. c", "a .. b .. c", "(a | a b) c?", "a{2} b?",
    "(a | b)+ c", "a b+ c+", "(a* b?)* c", "a{3} c", "a .. ", "(a | a b | b)* c",
]  # fmt: skip


@st.composite
def texts(draw: st.DrawFn, depth: int = 2) -> str:
    """Patterns of few nodes."""
    if depth == 0:
        name = draw(st.sampled_from((*NAMES, "..")))
        return name if name == ".." else name + draw(st.sampled_from(REPEATS))
    parts = draw(st.lists(texts(depth - 1), min_size=1, max_size=2))
    joined = draw(st.sampled_from([" ", " | ", " "])).join(parts)
    return f"({joined}){draw(st.sampled_from(REPEATS))}"


@st.composite
def cases(draw: st.DrawFn, conditions: Sequence[str] = tuple(CONDITIONS)) -> Case:
    text = draw(st.sampled_from(TEXTS) | texts())
    names = [name for name in NAMES if name in text]
    assume(names)
    define = {n: draw(st.sampled_from(conditions)) for n in names if draw(st.integers(0, 3))}
    usable = [
        name for name in MEASURES
        if {"a", "closed", "ax"}.isdisjoint({name}) or "a" in names
    ]  # fmt: skip
    usable = [n for n in usable if n not in ("low", "letters", "last b") or "b" in names]
    for name in (*define.values(),):
        needs = {"mean": "a", "last": "a", "few": "a", "function": "b"}.get(name)
        assume(needs is None or needs in names)
    skips: list[Any] = ["past_last", "past_last", "next"]
    skips += [(which, name) for which in ("first", "last") for name in names]
    return Case(
        text,
        define,
        tuple(draw(st.lists(st.sampled_from(usable), min_size=1, max_size=3, unique=True))),
        draw(st.none() | st.integers(0, 6)),
        draw(st.sampled_from(skips)),
        draw(st.sampled_from(["one", "one", "all"])),
        draw(st.sampled_from(["on_time", "on_time", "final", "early"])),
        draw(st.sampled_from([0, 0, 2, 20])),
        draw(st.none() | st.none() | st.none() | st.integers(0, 4)),
        draw(st.booleans()),
        draw(st.integers(0, 3)) == 0,
    )


@st.composite
def steps_of(draw: st.DrawFn, case: Case, most: int = 5) -> list[Any]:
    """Bundles, watermarks, and "restart"."""
    steps: list[Any] = []
    there: list[Given] = []
    for _ in range(draw(st.integers(1, 7))):
        kind = draw(st.integers(0, 6))
        if kind == 0:
            steps.append("restart")
        elif kind <= 2:
            steps.append(draw(st.integers(0, 14)))
        else:
            bundle = []
            for _ in range(draw(st.integers(1, most))):
                if case.signed and there and draw(st.integers(0, 4)) == 0:
                    one = there.pop(draw(st.integers(0, len(there) - 1)))
                    bundle.append(Given(one.key, one.row, -1))
                    continue
                n = draw(st.none() | st.integers(0, 3))
                values = {"v": draw(st.sampled_from("xyz")), "n": n}
                order = draw(st.none() | st.integers(0, 1)) if case.ordered else None
                row = Row(draw(st.integers(0, 12)), values, order)
                bundle.append(Given(draw(st.integers(0, 2)), row))
                there.append(bundle[-1])
            steps.append(bundle)
    return steps


def check(case: Case, steps: Sequence[Any], groups: int, *, spills: bool, memory: int = 0) -> None:
    """Run both, and compare what each step changes."""
    try:
        stage = case.stage()
    except InvalidArgument as error:
        refused = ("prefers to take no row", "without within=", "would not move on")
        assume(not any(text in str(error) for text in refused))
        raise
    library, oracle = driven(case, stage, groups, spills=spills, memory=memory), case.run()
    output_watermark = library.operator.output_watermark
    for step in [*steps, END]:
        if step == "restart":
            if library.is_stored:
                library.restart()
            continue
        before = oracle.watermark
        if isinstance(step, list):
            given_rows = without_unknown(step, oracle)
            if not given_rows:
                continue
            late = len(oracle.late)
            wanted = expected(oracle.add(given_rows))
            bundle = bundle_of(stage, given_rows, ordered=case.ordered)
            found = shown(case, library.step(bundle))
            dropped = library._last_late
            assert (0 if dropped is None else len(dropped)) == len(oracle.late) - late
        else:
            wanted = expected(oracle.advance(step))
            to: Any = EndOfInput() if step == END else WatermarkAdvance(step)
            rows = library.step(to)
            found = shown(case, rows)
        assert found == wanted
        operator = library.operator
        operator._check()
        if step == END or oracle.watermark < 0:
            continue
        if oracle.watermark > before:  # P-10: else the output watermark stays, too
            counts = case.meets_one if operator._search.skips_idle_rows else None
            held = min(oracle.held(counts), oracle.watermark)
            output_watermark = max(output_watermark, int(held))
        assert operator.output_watermark == output_watermark
    assert library.operator.output_watermark == END_OF_TIME
    assert library.operator.state_rows == 0
    if library.is_stored:
        library.save()
        assert library.operator.open_windows == 0


def without_unknown(step: Sequence[Given], oracle: Any) -> list[Given]:
    """Leave out what takes back a row that was dropped as late."""
    late = [(one.key, one.row) for one in oracle.late if one.sign > 0]
    lowest = oracle.watermark - oracle._lateness
    late += [(one.key, one.row) for one in step if one.row.time < lowest]
    return [one for one in step if one.sign > 0 or (one.key, one.row) not in late]


@given(st.data())
@examples(60)
def test_each_step_changes_what_the_oracle_changes(data: st.DataObject) -> None:
    case = data.draw(cases())
    check(case, data.draw(steps_of(case)), 0, spills=False)


@given(st.data(), st.sampled_from([1, 4]))
@examples(20)
def test_state_comes_back_from_a_store(data: st.DataObject, groups: int) -> None:
    case = data.draw(cases())
    check(case, data.draw(steps_of(case)), groups, spills=False)


@given(st.data(), st.sampled_from([0, 0, 1500]))
@examples(20)
def test_state_leaves_memory(data: st.DataObject, memory: int) -> None:
    case = data.draw(cases())
    with colliding():
        check(case, data.draw(steps_of(case)), 4, spills=True, memory=memory)
