"""``search`` gives what the scalar oracle gives, however state is kept (J-15 to J-17)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, get_args
from unittest import mock

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
from hypothesis import given

import lowwater as lw
from lowwater.engine.join import query_index, search
from lowwater.engine.join.pairs import JoinedColumns
from lowwater.engine.join.search import SearchOperator
from lowwater.engine.join.searching import Match, Searching
from lowwater.engine.keyed.operator import SideBundle, SidesAdvance
from lowwater.engine.keyed.sides import LEFT, RIGHT
from lowwater.engine.records.columns import Column
from lowwater.engine.records.steps import Bundle, EndOfInput
from tests.examples import examples
from tests.oracles.search import Found, Listed, SearchRun
from tests.property.driven_joins import Driven, Row, colliding

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
def runs(draw: st.DrawFn) -> tuple[SearchRun, list[Any], bool]:
    """Draw a run, its steps, and whether words are texts of Arrow."""
    corrects, arrow = draw(st.booleans()), draw(st.booleans())
    run = SearchRun(draw(st.sampled_from(get_args(Match))), corrects, draw(st.integers(0, 8)))
    one = st.sampled_from(WORDS if arrow else OTHERS)
    words = st.none() | st.lists(one, max_size=4).map(tuple)
    held: dict[str, list[Listed]] = {"documents": [], "queries": []}
    steps: list[Any] = []
    low = high = 0
    for _ in range(draw(st.integers(1, 9))):
        kind = draw(st.integers(0, 9))
        if kind == 0:
            steps.append("restart")
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
            if corrects and back and draw(st.integers(0, 4)) == 0:
                gone = draw(st.sampled_from(back))
                held[side].remove(gone)
                some.append(Listed(gone.id, gone.time, gone.words, -1))
                continue
            time = draw(st.integers(max(0, low - run.keep - 1), low + 9))
            new = Listed(draw(st.integers(-2, 1)), time, draw(words))
            some.append(new)
            if time >= low - run.keep:
                held[side].append(new)
        steps.append((side, some))
    return run, steps, arrow


def check(
    case: tuple[SearchRun, list[Any], bool], groups: int, *, spills: bool = False, memory: int = 0
) -> None:
    run, steps, arrow = case
    rules = Searching(
        "words", "query", run.match, "correct" if run.corrects else "ignore", run.keep
    )
    columns = JoinedColumns({}, {}, ("query",), ("", "_query"))

    def make() -> SearchOperator:
        return SearchOperator(rules, columns, signed=run.corrects)

    library = Driven(make, groups, spills=spills, memory=memory)
    late = 0
    for step in steps:
        if step == "restart":
            if library.is_stored:
                library.restart()
            continue
        if isinstance(step[0], int):
            wanted = run.advance(*step)
            assert shown(library.step(SidesAdvance(*step))) == timeless(wanted)
            assert library.operator.output_watermark == run.watermark
        else:
            side, elements = step
            wanted = run.take(side, elements)
            bundle = bundle_of(side, elements, arrow=arrow)
            made = library.step(SideBundle(LEFT if side == "documents" else RIGHT, bundle))
            late += 0 if library._last_late is None else len(library._last_late.element)
            assert shown(made) == timeless(wanted)
        library.operator._check()
        assert library.operator.state_rows == len(run.documents) + len(run.versions)
        assert late == run.late
    assert shown(library.step(EndOfInput())) == timeless(
        run.advance(lw.END_OF_TIME, lw.END_OF_TIME)
    )
    assert library.operator.state_rows == 0
    library.operator._check()


@given(runs(), st.sampled_from([1, 3, 1 << 15]))
@examples(60)
def test_each_step_emits_what_the_oracle_emits(
    case: tuple[SearchRun, list[Any], bool], chunk: int
) -> None:
    with (
        mock.patch.object(search, "_DOCUMENTS_AT_ONCE", chunk),
        mock.patch.object(query_index, "_PAIRS_AT_ONCE", chunk),
    ):
        check(case, 0)


@given(runs(), st.sampled_from([1, 4]))
@examples(20)
def test_state_comes_back_from_a_store(
    case: tuple[SearchRun, list[Any], bool], groups: int
) -> None:
    check(case, groups)


@given(runs(), st.sampled_from([0, 0, 2_000]))
@examples(20)
def test_state_leaves_memory(case: tuple[SearchRun, list[Any], bool], memory: int) -> None:
    with colliding():
        check(case, 4, spills=True, memory=memory)
