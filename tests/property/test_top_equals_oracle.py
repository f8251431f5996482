"""``table.top`` gives what the scalar oracle gives at each step, however state is kept (T-6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

import lowwater as lw
from lowwater.engine.join.topping import Topping
from lowwater.engine.join.tops import TopOperator
from lowwater.engine.records.columns import Column
from lowwater.engine.records.steps import Bundle, EndOfInput, WatermarkAdvance
from lowwater.engine.stages.topped import Topped
from lowwater.time import END_OF_TIME
from tests.examples import examples
from tests.oracles.top_rows import Change, Ranked, TableRow, TopRun
from tests.property.driven_joins import Driven, Row, colliding

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
def runs(draw: st.DrawFn) -> TopRun:
    return TopRun(
        draw(st.integers(1, 4)),
        tied=draw(st.booleans()),
        reverse=draw(st.booleans()),
        is_whole=draw(st.integers(0, 3)) == 0,
    )


@st.composite
def steps_of(draw: st.DrawFn) -> list[Any]:
    """Bundles of changes of a table, watermarks, and "restart".

    A change may insert before it retracts, come more often than once, and cancel itself.
    """
    values = VALUES[draw(st.sampled_from(sorted(VALUES)))]
    stands: dict[int, TableRow] = {}
    steps: list[Any] = []
    for _ in range(draw(st.integers(1, 8))):
        kind = draw(st.integers(0, 7))
        if kind == 0:
            steps.append("restart")
            continue
        if kind == 1:
            steps.append(draw(st.integers(0, 24)))
            continue
        changes: list[Change] = []
        for _ in range(draw(st.sampled_from([1, 2, 6, 15]))):
            which = draw(st.integers(0, 17))
            old, how = stands.pop(which, None), draw(st.integers(0, 9))
            if how < 2 or (how == 2 and old is None):
                changes += [] if old is None else [(old, -1)]
                continue
            new = TableRow(
                which,
                draw(st.sampled_from(["a", "a", "a", "b", None])),
                draw(st.sampled_from(values)),
                draw(st.sampled_from([None, "x", "y"])),
                draw(st.integers(0, 5)),
            )
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


def check(
    run: TopRun, steps: Sequence[Any], groups: int, *, spills: bool = False, memory: int = 0
) -> None:
    """Run both, and compare what each step emits."""
    rules = rules_of(run)

    def make() -> TopOperator:
        return TopOperator(rules, {})

    library = Driven(make, groups, spills=spills, memory=memory)
    for number, step in enumerate(steps):
        if step == "restart":
            if library.is_stored:
                library.restart()
            continue
        if isinstance(step, int):
            watermark = max(library.operator.watermark, step)
            assert not library.step(WatermarkAdvance(step))
            assert library.operator.output_watermark == watermark
            continue
        wanted = run.take(step)
        assert shown(library.step(bundle_of(step, run, arrow=number % 3 > 0)), run) == wanted
        library.operator._check()
        assert library.operator.state_rows == sum(row.by is not None for row in run.rows)
    assert not library.step(EndOfInput())
    library.operator._check()
    assert library.operator.output_watermark == END_OF_TIME
    assert library.operator.state_rows == 0


@given(runs(), steps_of())
@examples(60)
def test_each_step_emits_what_the_oracle_emits(run: TopRun, steps: list[Any]) -> None:
    check(run, steps, 0)


@given(runs(), steps_of(), st.sampled_from([1, 4]))
@examples(20)
def test_state_comes_back_from_a_store(run: TopRun, steps: list[Any], groups: int) -> None:
    check(run, steps, groups)


@given(runs(), steps_of(), st.sampled_from([0, 0, 1500]))
@examples(20)
def test_state_leaves_memory(run: TopRun, steps: list[Any], memory: int) -> None:
    with colliding():
        check(run, steps, 4, spills=True, memory=memory)


@pytest.mark.parametrize("order", ["first rows go first", "last rows go first", "at random"])
@pytest.mark.parametrize("many", [6, 2_000])
def test_rows_that_go_leave_others_in_their_place(order: str, many: int) -> None:
    """A group of 2,000 rows is emptied: its head is filled again and again."""
    random = np.random.default_rng(4)
    run = TopRun(3, tied=True)
    rows = [
        TableRow(at, "a", int(random.integers(30)), random.choice(["x", "y"]), at)
        for at in range(many)
    ]
    operator = TopOperator(rules_of(run), {})
    driven = Driven(lambda: operator, 0)

    def step(changes: list[Change]) -> None:
        wanted = run.take(changes)
        assert shown(driven.step(bundle_of(changes, run, arrow=True)), run) == wanted

    step([(row, 1) for row in rows])
    going = {
        "first rows go first": run.in_order(rows),
        "last rows go first": run.in_order(rows)[::-1],
        "at random": [rows[at] for at in random.permutation(many)],
    }[order]
    sizes = [1] * min(many, 40) + [97] * many
    while going:
        size = sizes.pop(0)
        step([(row, -1) for row in going[:size]])
        going = going[size:]
    operator._check()
    assert operator.state_rows == 0


@pytest.mark.parametrize("bundle_size", [997, 20_000])
@pytest.mark.parametrize("groups", [1, 50])
def test_bundles_past_every_chunk(groups: int, bundle_size: int) -> None:
    """20,000 upserts of 5,000 rows, in one bundle and in many, against sorting all at the end."""
    random = np.random.default_rng(5)
    size = 20_000
    ids, values = random.integers(0, 5_000, size), random.integers(0, 900, size)
    at = pa.array(np.arange(size), pa.timestamp("us", "UTC"))
    upserts = pa.table({"at": at, "id": ids, "g": (ids + values) % groups, "v": values})
    table = lw.from_arrow(upserts, time="at").table(key="id")
    rows = table.top(10, per="g", by="v").rows(bundle_size=bundle_size)
    last = dict(zip(ids.tolist(), values.tolist(), strict=True))
    wanted: dict[int, list[tuple[int, int]]] = {}
    for which, value in last.items():
        wanted.setdefault((which + value) % groups, []).append((-value, which))
    expected = {
        (group, rank, which, -value)
        for group, some in wanted.items()
        for rank, (value, which) in enumerate(sorted(some)[:10], 1)
    }
    assert {(row["g"], row["rank"], row["id"], row["v"]) for row in rows} == expected
    assert len(rows) == len(expected)


def counted_changes(make: Callable[[lw.Table[lw.Stream]], lw.Table[lw.Stream]]) -> list[Any]:
    rows = [{"at": f"2024-05-01T12:00:{at:02}Z", "id": at, "v": at} for at in range(12)]
    table = lw.from_iterable(rows, time="at").table(key="id")
    return list(make(table).changes().run(bundle_size=1))


def test_a_row_changes_the_ranks_behind_it_alone() -> None:
    """The row that comes last each time changes one rank, and the first one all (T-6)."""
    ascending = counted_changes(lambda table: table.top(3, by="v", reverse=True))
    assert len(ascending) == 3
    descending = counted_changes(lambda table: table.top(3, by="v"))
    assert len(descending) == 1 + 3 + 5 + 9 * 6
