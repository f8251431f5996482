"""Row patterns beside the scalar oracle, which changes the same at each step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import hypothesis.strategies as st
from hypothesis import assume

from lowwater.engine.graph.graph import Stage
from lowwater.engine.records.steps import EndOfInput, WatermarkAdvance
from lowwater.errors import InvalidArgument
from lowwater.time import START_OF_TIME
from tests.oracles.pattern_runs import Given
from tests.oracles.row_patterns import END, Row
from tests.property.driven_joins import Driven
from tests.property.driven_matches import (
    CONDITIONS,
    MEASURES,
    Case,
    bundle_of,
    expected,
    maker,
    shown,
)
from tests.property.stepped import RESTART, Run, one_of_each

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
def runs(draw: st.DrawFn) -> Run:
    case = draw(cases())
    stage, oracle = stage_of(case), case.run()
    output_watermark = START_OF_TIME

    def compare(library: Driven, step: Any) -> None:
        nonlocal output_watermark
        before = oracle.watermark
        if isinstance(step, list):
            rows = without_unknown(step, oracle)
            if not rows:
                return
            late = len(oracle.late)
            wanted = expected(oracle.add(rows))
            found = shown(case, library.step(bundle_of(stage, rows, ordered=case.ordered)))
            dropped = library._last_late
            assert (0 if dropped is None else len(dropped)) == len(oracle.late) - late
        else:
            wanted = expected(oracle.advance(step))
            to: Any = EndOfInput() if step == END else WatermarkAdvance(step)
            found = shown(case, library.step(to))
        assert found == wanted
        if step == END or oracle.watermark < 0:
            return
        if oracle.watermark > before:  # P-10: else the output watermark stays, too
            counts = case.meets_one if library.operator._search.skips_idle_rows else None
            held = min(oracle.held(counts), oracle.watermark)
            output_watermark = max(output_watermark, int(held))
        assert library.operator.output_watermark == output_watermark

    return Run(maker(case, stage), draw(steps_of(case)), compare)


def stage_of(case: Case) -> Stage:
    """Return the stage of a case, if there may be one."""
    try:
        return case.stage()
    except InvalidArgument as error:
        refused = ("prefers to take no row", "without within=", "would not move on")
        assume(not any(text in str(error) for text in refused))
        raise


_ROW = one_of_each(range(3), range(13), "xyz", [None, 0, 1, 2, 3], [0, None, 1])


@st.composite
def steps_of(draw: st.DrawFn, case: Case, most: int = 5) -> list[Any]:
    """Bundles, watermarks, and restarts."""
    steps: list[Any] = []
    there: list[Given] = []
    for _ in range(draw(st.integers(2, 7))):
        kind = draw(st.integers(0, 6))
        if kind == 0:
            steps.append(RESTART)
        elif kind <= 2:
            steps.append(draw(st.integers(0, 14)))
        else:
            bundle = []
            for _ in range(draw(st.integers(1, most))):
                if case.signed and there and draw(st.integers(0, 4)) == 0:
                    one = there.pop(draw(st.integers(0, len(there) - 1)))
                    bundle.append(Given(one.key, one.row, -1))
                    continue
                key, time, v, n, order = draw(_ROW)
                row = Row(time, {"v": v, "n": n}, order if case.ordered else None)
                bundle.append(Given(key, row))
                there.append(bundle[-1])
            steps.append(bundle)
    return steps


def without_unknown(step: Sequence[Given], oracle: Any) -> list[Given]:
    """Leave out what takes back a row that was dropped as late."""
    late = [(one.key, one.row) for one in oracle.late if one.sign > 0]
    lowest = oracle.watermark - oracle._lateness
    late += [(one.key, one.row) for one in step if one.row.time < lowest]
    return [one for one in step if one.sign > 0 or (one.key, one.row) not in late]
