"""``over`` beside the scalar oracle, which changes the same at each step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import hypothesis.strategies as st

from lowwater.engine.records.steps import EndOfInput, WatermarkAdvance
from tests.oracles.over_rows import END, Row
from tests.property.driven_joins import Driven
from tests.property.driven_over import (
    EXPRESSIONS,
    NAMES,
    NUMBERS,
    Case,
    bundle_of,
    maker,
    shown,
)
from tests.property.stepped import RESTART, Run, one_of_each

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
def runs(draw: st.DrawFn) -> Run:
    case = draw(cases())
    return run_of(case, draw(steps_of(case)))


def run_of(case: Case, steps: Sequence[Any]) -> Run:
    """Return a run of a case with these bundles, watermarks and restarts."""
    stage, oracle = case.stage(), case.run()

    def compare(library: Driven, step: Any) -> None:
        if isinstance(step, list):
            rows = without_unknown(step, oracle)
            if not rows:
                return
            late = len(oracle.late)
            wanted = oracle.add(rows)
            found = shown(case, library.step(bundle_of(stage, rows)))
            dropped = library._last_late
            assert (0 if dropped is None else len(dropped)) == len(oracle.late) - late
        else:
            wanted = oracle.advance(step)
            to: Any = EndOfInput() if step == END else WatermarkAdvance(step)
            found = shown(case, library.step(to))
        assert net(found) == net(wanted)
        came = step if isinstance(step, list) else []
        undone = [change for change in found if (*change[:-1], -change[-1]) in found]
        assert all(is_doubled([*oracle.rows, *came], change) for change in undone)
        if step != END and not case.signed:
            assert library.operator.state_rows <= most_kept(case, oracle)

    return Run(maker(case, stage), steps, compare)


def net(changes: Counter[Any]) -> dict[Any, int]:
    """Return by how much each row changes in number."""
    found: Counter[Any] = Counter()
    for (*row, sign), count in changes.items():
        found[tuple(row)] += sign * count
    return {row: count for row, count in found.items() if count}


def is_doubled(rows: Sequence[Row], change: tuple[Any, ...]) -> bool:
    """Whether two of the rows equal that of a change.

    Then one may get the result that the other had, which is so retracted and inserted at once.
    """
    key, time, values = change[:3]
    alike = [row for row in rows if (row.key, row.time) == (key, time)]
    return sum(repr(dict(row.values)) == values for row in alike) > 1


_ROW = one_of_each(range(3), range(21), "xyz", [None, 0, 1, 2, 3], [None, *_FLOATS], [0, None, 1])


@st.composite
def steps_of(draw: st.DrawFn, case: Case, most: int = 5) -> list[Any]:
    """Bundles, watermarks, and restarts."""
    steps: list[Any] = []
    there: list[Row] = []
    for _ in range(draw(st.integers(2, 8))):
        kind = draw(st.integers(0, 6))
        if kind == 0:
            steps.append(RESTART)
        elif kind <= 2:
            steps.append(draw(st.integers(0, 24)))
        else:
            bundle = []
            for _ in range(draw(st.integers(1, most))):
                if case.signed and there and draw(st.integers(0, 4)) == 0:
                    row = there.pop(draw(st.integers(0, len(there) - 1)))
                    bundle.append(Row(row.key, row.time, row.values, -1))
                    continue
                key, time, v, n, f, order = draw(_ROW)
                values = {"v": v, "n": n, "f": f, "o": order if case.ordered else 0}
                bundle.append(Row(key, time, values))
                there.append(bundle[-1])
            steps.append(bundle)
    return steps


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
