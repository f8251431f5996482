"""``CountWindows`` beside the scalar oracle, which emits the same in the same order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa

import lowwater as lw
from lowwater.engine.counted.operator import CountOperator
from lowwater.engine.records.columns import Column
from lowwater.engine.records.steps import Bundle, EndOfInput, WatermarkAdvance
from lowwater.engine.stages.counted import Counted
from tests.oracles.counted_rows import Came, CountedRun, Filled
from tests.oracles.row_patterns import END
from tests.property.driven_joins import Driven
from tests.property.driven_joins import Row as OutRow
from tests.property.stepped import RESTART, Run, one_of_each

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


_RECORD = one_of_each(["a", "b", 3], range(21), [None, *"xyz"], _LARGE)


@st.composite
def runs(draw: st.DrawFn) -> Run:
    count = draw(st.integers(1, 6))
    windows = lw.CountWindows(count, every=draw(st.none() | st.integers(1, count)))
    work = work_of(windows)
    oracle = CountedRun(windows.count, windows.step, [oracle for oracle, _ in RESULTS.values()])

    def compare(library: Driven, step: Any) -> None:
        if isinstance(step, list):
            wanted = [pane for record in step for pane in oracle.add(record)]
            assert shown(library.step(bundle_of(step))) == wanted
        elif step == END:
            assert shown(library.step(EndOfInput())) == oracle.end()
            return
        else:
            oracle.watermark = max(oracle.watermark, step)
            assert not library.step(WatermarkAdvance(step))
            assert library.operator.output_watermark == oracle.watermark
        assert library.operator.state_rows == oracle.open_windows()

    return Run(lambda: CountOperator(windows, work.aggregates), draw(steps_of()), compare)


@st.composite
def steps_of(draw: st.DrawFn) -> list[Any]:
    """Bundles, watermarks, and restarts."""
    steps: list[Any] = []
    for _ in range(draw(st.integers(2, 8))):
        kind = draw(st.integers(0, 6))
        if kind == 0:
            steps.append(RESTART)
        elif kind == 1:
            steps.append(draw(st.integers(0, 24)))
        else:
            drawn = [draw(_RECORD) for _ in range(draw(st.integers(1, 9)))]
            steps.append([Came(key, time, {"v": v, "n": n}) for key, time, v, n in drawn])
    return steps
