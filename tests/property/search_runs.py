"""``search`` beside the scalar oracle, which changes the same at each step (J-15 to J-17)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, get_args

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa

import lowwater as lw
from lowwater.engine.join.pairs import JoinedColumns
from lowwater.engine.join.search import SearchOperator
from lowwater.engine.join.searching import Match, Searching
from lowwater.engine.keyed.operator import SideBundle, SidesAdvance
from lowwater.engine.keyed.sides import LEFT, RIGHT
from lowwater.engine.records.columns import Column
from lowwater.engine.records.steps import Bundle, EndOfInput
from tests.oracles.row_patterns import END
from tests.oracles.search import Found, Listed, SearchRun
from tests.property.driven_joins import Driven, Row
from tests.property.stepped import RESTART, Run, one_of_each

WORDS = ["a", "b", "c", "d", None]
OTHERS = [1, 1.5, "a", "1", b"a", None, -1, -2]


def bundle_of(side: str, elements: Sequence[Listed], *, arrow: bool) -> Bundle:
    """Return elements as the operator gets them."""
    words = [None if one.words is None else list(one.words) for one in elements]
    column = Column.from_arrow(pa.array(words, pa.list_(pa.string()))) if arrow else None
    ids = pa.array([one.id for one in elements], pa.int64())
    signs = np.array([one.sign for one in elements], dtype=np.int8)
    return Bundle(
        np.array([one.time for one in elements], dtype=np.int64),
        (Column(np.zeros(len(elements), dtype=np.int64)),),
        {
            "document" if side == "documents" else "query": Column.from_arrow(ids),
            "words": Column.of_objects(words) if column is None else column,
        },
        None if (signs > 0).all() else signs,
    )


def shown(rows: Sequence[Row]) -> Counter[Found]:
    """Return by how much rows of output change each pair."""
    found: Counter[Found] = Counter()
    for key, time, row, sign in rows:
        words, stored = (
            None if row[n] is None else tuple(row[n]) for n in ("words", "words_query")
        )
        found[Listed(row["document"], time, words), Listed(key, 0, stored)] += sign
    return Counter({pair: count for pair, count in found.items() if count})


def timeless(found: Counter[Found]) -> Counter[Found]:
    """Return the same without the times of versions, which do not come out."""
    changes: Counter[Found] = Counter()
    for (document, version), count in found.items():
        changes[document, Listed(version.id, 0, version.words)] += count
    return Counter({pair: count for pair, count in changes.items() if count})


@st.composite
def runs(draw: st.DrawFn) -> Run:
    corrects, arrow = draw(st.booleans()), draw(st.booleans())
    run = SearchRun(draw(st.sampled_from(get_args(Match))), corrects, draw(st.integers(0, 8)))
    rules = Searching(
        "words", "query", run.match, "correct" if run.corrects else "ignore", run.keep
    )
    columns = JoinedColumns({}, {}, ("query",), ("", "_query"))
    late = 0

    def compare(library: Driven, step: Any) -> None:
        nonlocal late
        if step == END:
            wanted = timeless(run.advance(lw.END_OF_TIME, lw.END_OF_TIME))
            assert shown(library.step(EndOfInput())) == wanted
            return
        if isinstance(step[0], int):
            wanted = timeless(run.advance(*step))
            assert shown(library.step(SidesAdvance(*step))) == wanted
            assert library.operator.output_watermark == run.watermark
        else:
            side, elements = step
            wanted = timeless(run.take(side, elements))
            bundle = bundle_of(side, elements, arrow=arrow)
            made = library.step(SideBundle(LEFT if side == "documents" else RIGHT, bundle))
            late += 0 if library._last_late is None else len(library._last_late.element)
            assert shown(made) == wanted
        assert library.operator.state_rows == len(run.documents) + len(run.versions)
        assert late == run.late

    return Run(
        lambda: SearchOperator(rules, columns, signed=run.corrects),
        draw(steps_of(run, WORDS if arrow else OTHERS)),
        compare,
    )


@st.composite
def steps_of(draw: st.DrawFn, run: SearchRun, words: list[Any]) -> list[Any]:
    """Bundles of documents and of queries, watermarks of both, and restarts."""
    element = one_of_each(range(-2, 2), range(-run.keep - 1, 10), range(-1, 5), *[words] * 4)
    held: dict[str, list[Listed]] = {"documents": [], "queries": []}
    steps: list[Any] = []
    low = high = 0
    for _ in range(draw(st.integers(2, 9))):
        kind = draw(st.integers(0, 9))
        if kind == 0:
            steps.append(RESTART)
            continue
        if kind < 4:
            low, high = low + draw(st.integers(0, 4)), max(low, high + draw(st.integers(-2, 5)))
            high = max(low, high)
            steps.append((low, high))
            continue
        side = "documents" if kind < 7 else "queries"
        some: list[Listed] = []
        for _ in range(draw(st.integers(1, 6))):
            back = [each for each in held[side] if each.time >= low - run.keep]
            if run.corrects and back and draw(st.integers(0, 4)) == 0:
                gone = draw(st.sampled_from(back))
                held[side].remove(gone)
                some.append(Listed(gone.id, gone.time, gone.words, -1))
                continue
            which, after, count, *listed = draw(element)
            time = max(0, low + after)
            new = Listed(which, time, None if count < 0 else tuple(listed[:count]))
            some.append(new)
            if time >= low - run.keep:
                held[side].append(new)
        steps.append((side, some))
    return steps
