"""``over`` gives what the scalar oracle gives: step by step, and in all ways to keep state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import hypothesis.strategies as st
from hypothesis import given

from lowwater.engine.records.steps import EndOfInput, WatermarkAdvance
from lowwater.time import END_OF_TIME
from tests.examples import examples
from tests.oracles.over_rows import END, Row
from tests.property.driven_joins import colliding
from tests.property.driven_over import (
    EXPRESSIONS,
    NAMES,
    NUMBERS,
    Case,
    bundle_of,
    driven,
    shown,
)

_FLOATS = [0.1, 0.2, 0.3, 1e16, -1e16, 1e-300, -0.5, 3.0]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    by_time = draw(st.booleans())
    usable = [*NAMES, "rank", "rank down"] if by_time else [*NAMES, *NUMBERS, *EXPRESSIONS]
    names = tuple(draw(st.lists(st.sampled_from(usable), min_size=1, max_size=4, unique=True)))
    lateness = draw(st.sampled_from([0, 0, 2, 20]))
    signed = draw(st.integers(0, 3)) == 0
    if by_time:
        return Case(names, draw(st.integers(1, 8)), lateness=lateness, signed=signed)
    keep = None if "number" in names else draw(st.none() | st.integers(1, 8))
    rows, ordered = draw(st.integers(1, 4)), draw(st.booleans())
    return Case(names, None, rows, ordered, keep, lateness, signed)


@st.composite
def steps_of(draw: st.DrawFn, case: Case, most: int = 5) -> list[Any]:
    """Bundles, watermarks, and "restart"."""
    steps: list[Any] = []
    there: list[Row] = []
    for _ in range(draw(st.integers(1, 8))):
        kind = draw(st.integers(0, 6))
        if kind == 0:
            steps.append("restart")
        elif kind <= 2:
            steps.append(draw(st.integers(0, 24)))
        else:
            bundle = []
            for _ in range(draw(st.integers(1, most))):
                if case.signed and there and draw(st.integers(0, 4)) == 0:
                    row = there.pop(draw(st.integers(0, len(there) - 1)))
                    bundle.append(Row(row.key, row.time, row.values, -1))
                    continue
                values = {
                    "v": draw(st.sampled_from("xyz")),
                    "n": draw(st.none() | st.integers(0, 3)),
                    "f": draw(st.none() | st.sampled_from(_FLOATS)),
                    "o": draw(st.none() | st.integers(0, 1)) if case.ordered else 0,
                }
                bundle.append(Row(draw(st.integers(0, 2)), draw(st.integers(0, 20)), values))
                there.append(bundle[-1])
            steps.append(bundle)
    return steps


def check(case: Case, steps: Sequence[Any], groups: int, *, spills: bool, memory: int = 0) -> None:
    """Run both, and compare what each step changes."""
    stage = case.stage()
    library, oracle = driven(case, stage, groups, spills=spills, memory=memory), case.run()
    for step in [*steps, END]:
        if step == "restart":
            if library.is_stored:
                library.restart()
            continue
        if isinstance(step, list):
            rows = without_unknown(step, oracle)
            if not rows:
                continue
            late = len(oracle.late)
            wanted = oracle.add(rows)
            found = shown(case, library.step(bundle_of(stage, rows)))
            dropped = library._last_late
            assert (0 if dropped is None else len(dropped)) == len(oracle.late) - late
        else:
            wanted = oracle.advance(step)
            to: Any = EndOfInput() if step == END else WatermarkAdvance(step)
            found = shown(case, library.step(to))
        assert found == wanted
        library.operator._check()
        if step != END and not case.signed:
            assert library.operator.state_rows <= most_kept(case, oracle)
    assert library.operator.output_watermark == END_OF_TIME
    assert library.operator.state_rows == 0
    if library.is_stored:
        library.save()
        assert library.operator.open_windows == 0


def most_kept(case: Case, oracle: Any) -> int:
    """Return how many rows the rules keep at most (O-7)."""
    watermark = oracle.watermark
    horizon = watermark - case.lateness
    kept = 0
    for key in {row.key for row in oracle.rows}:
        times = sorted(row.time for row in oracle.rows if row.key == key)
        if case.length is not None:
            kept += sum(time + case.length > horizon for time in times)
            continue
        before = max(
            (case.rows or 1) - 1,
            2 if "prev 2" in case.names else 0,
            int(bool({"number", "prev", "step"} & {*case.names})),
        )
        below = [time for time in times if time < horizon]
        # Rows of the time of the last row that counts stay with it.
        least = sorted(below)[-before] if before and len(below) >= before else None
        needed = [time for time in below if before and (least is None or time >= least)]
        if case.keep is not None:
            needed = [time for time in needed if time + case.keep > horizon]
        kept += len(needed) + len(times) - len(below)
    return kept


def without_unknown(step: Sequence[Row], oracle: Any) -> list[Row]:
    """Leave out what retracts a row that was dropped as late."""
    late = [(row.key, row.time, row.values) for row in oracle.late if row.sign > 0]
    lowest = oracle.watermark - oracle.lateness
    late += [(row.key, row.time, row.values) for row in step if row.time < lowest]
    return [row for row in step if row.sign > 0 or (row.key, row.time, row.values) not in late]


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
