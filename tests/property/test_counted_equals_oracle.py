"""``CountWindows`` give what the scalar oracle gives: in order, in all ways to keep state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

import lowwater as lw
from lowwater.engine.counted import operator as counted
from lowwater.engine.counted.operator import CountOperator
from lowwater.engine.records.columns import Column
from lowwater.engine.records.steps import Bundle, EndOfInput, WatermarkAdvance
from lowwater.engine.stages.counted import Counted
from lowwater.time import END_OF_TIME
from tests.examples import examples
from tests.oracles.counted_rows import Came, CountedRun, Filled
from tests.property.driven_joins import Driven, colliding
from tests.property.driven_joins import Row as OutRow

_LARGE = [None, 0, 1, 7, -3, 2**53 + 1, -(2**59), 2**59]


def _present(name: str, records: Sequence[Came]) -> list[Any]:
    return [one.values[name] for one in records if one.values[name] is not None]


RESULTS: dict[str, tuple[Callable[[list[Came]], Any], Any]] = {
    "rows": (len, lw.count()),
    "total": (lambda some: sum(_present("n", some)), lw.sum("n")),
    "least": (lambda some: min(_present("n", some), default=None), lw.min("n")),
    "most": (lambda some: max(_present("v", some), default=None), lw.max("v")),
    "first": (lambda some: _by_time(some, "v")[0], lw.first("v")),
    "last": (lambda some: _by_time(some, "v")[-1], lw.last("v")),
    "list": (lambda some: _present("n", some), lw.collect("n")),
    "kinds": (lambda some: len(set(_present("v", some))), lw.count_distinct("v")),
}


def _by_time(some: list[Came], name: str) -> list[Any]:
    """Return values by event time, those of one time as they arrived; a null if there is none."""
    given = [one for one in some if one.values[name] is not None]
    return [one.values[name] for one in sorted(given, key=lambda one: one.time)] or [None]


def work_of(windows: lw.CountWindows) -> Counted:
    """Return the work of the stage that is built with all results."""
    nothing: list[dict[str, Any]] = []
    asked = {name: library for name, (_, library) in RESULTS.items()}
    stream = lw.from_iterable(nothing, time="at").key_by("k")
    work = stream.window(windows).aggregate(**asked)._stage.work
    assert isinstance(work, Counted)
    return work


def bundle_of(records: Sequence[Came]) -> Bundle:
    """Return records as the operator gets them."""
    types = {"v": pa.string(), "n": pa.int64()}
    columns = {
        name: Column.from_arrow(pa.array([one.values[name] for one in records], kind))
        for name, kind in types.items()
    }
    times = np.array([one.time for one in records], dtype=np.int64)
    return Bundle(times, (Column.of_objects([one.key for one in records]),), columns)


def shown(rows: Sequence[OutRow]) -> list[Filled]:
    """Return panes as the oracle has them."""
    return [
        Filled(
            key,
            time,
            int(row["window"].start),
            int(row["window"].end),
            tuple(row[name] for name in RESULTS),
        )
        for key, time, row, _ in rows
    ]


@st.composite
def windows_of(draw: st.DrawFn) -> lw.CountWindows:
    count = draw(st.integers(1, 6))
    return lw.CountWindows(count, every=draw(st.none() | st.integers(1, count)))


@st.composite
def steps_of(draw: st.DrawFn) -> list[Any]:
    """Bundles, watermarks, and "restart"."""
    steps: list[Any] = []
    record = st.builds(
        Came,
        st.sampled_from(["a", "b", 3]),
        st.integers(0, 20),
        st.fixed_dictionaries(
            {"v": st.none() | st.sampled_from("xyz"), "n": st.sampled_from(_LARGE)}
        ),
    )
    for _ in range(draw(st.integers(1, 8))):
        kind = draw(st.integers(0, 6))
        if kind == 0:
            steps.append("restart")
        elif kind == 1:
            steps.append(draw(st.integers(0, 24)))
        else:
            steps.append(draw(st.lists(record, min_size=1, max_size=9)))
    return steps


def check(
    windows: lw.CountWindows, steps: Sequence[Any], groups: int, *, spills: bool, memory: int = 0
) -> None:
    """Run both, and compare what each step emits, in its order."""
    work = work_of(windows)

    def make() -> CountOperator:
        return CountOperator(windows, work.aggregates)

    library = Driven(make, groups, spills=spills, memory=memory)
    oracle = CountedRun(windows.count, windows.step, [oracle for oracle, _ in RESULTS.values()])
    for step in steps:
        if step == "restart":
            if library.is_stored:
                library.restart()
            continue
        if isinstance(step, list):
            wanted = [pane for record in step for pane in oracle.add(record)]
            assert shown(library.step(bundle_of(step))) == wanted
        else:
            oracle.watermark = max(oracle.watermark, step)
            assert not library.step(WatermarkAdvance(step))
            assert library.operator.output_watermark == oracle.watermark
        library.operator._check()
        assert library.operator.state_rows == oracle.open_windows()
    assert shown(library.step(EndOfInput())) == oracle.end()
    library.operator._check()
    assert library.operator.output_watermark == END_OF_TIME
    assert library.operator.state_rows == 0
    if library.is_stored:
        library.save()
        assert library.operator.open_windows == 0


@given(windows_of(), steps_of(), st.sampled_from([1, 2, 1 << 20]))
@examples(60)
def test_each_step_emits_what_the_oracle_emits(
    windows: lw.CountWindows, steps: list[Any], pairs: int
) -> None:
    with mock.patch.object(counted, "_PAIRS_AT_ONCE", pairs):
        check(windows, steps, 0, spills=False)


@given(windows_of(), steps_of(), st.sampled_from([1, 4]))
@examples(20)
def test_state_comes_back_from_a_store(
    windows: lw.CountWindows, steps: list[Any], groups: int
) -> None:
    check(windows, steps, groups, spills=False)


@given(windows_of(), steps_of(), st.sampled_from([0, 0, 1500]))
@examples(20)
def test_state_leaves_memory(windows: lw.CountWindows, steps: list[Any], memory: int) -> None:
    with colliding():
        check(windows, steps, 4, spills=True, memory=memory)


@pytest.mark.parametrize(
    "windows", [lw.CountWindows(7), lw.CountWindows(5_000, every=1_000)], ids=str
)
@pytest.mark.parametrize("bundle_size", [997, 60_000])
def test_bundles_past_every_chunk(windows: lw.CountWindows, bundle_size: int) -> None:
    """60,000 records of keys that are rare and of one that is not, in one bundle and in many."""
    random = np.random.default_rng(5)
    size = 60_000
    keys = np.minimum(random.zipf(1.3, size), 3_000)
    times = random.permutation(size)
    values = random.integers(-(2**46), 2**46, size)
    table = pa.table({"at": pa.array(times, pa.timestamp("us", "UTC")), "k": keys, "v": values})
    windowed = lw.from_arrow(table, time="at").key_by("k").window(windows)
    found = windowed.aggregate(n=lw.count(), total=lw.sum("v"), low=lw.min("v")).to_arrow(
        bundle_size=bundle_size
    )
    got: dict[Any, list[Any]] = {}
    for row in found.select(["k", "n", "total", "low"]).to_pylist():
        got.setdefault(row["k"], []).append((row["n"], row["total"], row["low"]))
    for key in np.unique(keys).tolist():
        own = values[keys == key].tolist()
        wanted = [own[at : at + windows.count] for at in range(0, len(own), windows.step)]
        expected = [(len(some), sum(some), min(some)) for some in wanted]
        assert sorted(got[key]) == sorted(expected)
