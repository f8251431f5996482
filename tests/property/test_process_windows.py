"""In windows, a process that adds up gives at expiry what the window operator shows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from lowwater.engine.process import ProcessOperator
from lowwater.engine.records.columns import Column
from lowwater.engine.records.steps import Bundle, EndOfInput, StepInput, WatermarkAdvance
from lowwater.engine.window.operator import WindowOperator
from lowwater.engine.window.windowing import Windowing
from lowwater.state.key_layout import StoredPlace
from lowwater.state.memory import MemoryStore
from lowwater.state.store import Batch
from tests.examples import examples


class Adds:
    seen = lw.list_cell()
    most = lw.value_cell(-1, merge=max)
    total = lw.combining_cell(lw.sum())
    at = lw.ordered_cell()

    def on_record(self, record: Any, ctx: Any) -> None:
        assert ctx.time in ctx.window
        ctx.seen.append(record["value"])
        ctx.most.set(max(ctx.most.get(), record["value"]))
        ctx.total.add(record["value"])
        ctx.at.add(ctx.time, record["value"])

    def on_window_expired(self, ctx: Any) -> None:
        times = [at for at, _ in ctx.at]
        assert times == sorted(times)
        ctx.emit((sorted(ctx.seen), ctx.most.get(), ctx.total.get(), len(times)))


STEPS = st.lists(
    st.one_of(
        st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 60)), min_size=1, max_size=6),
        st.integers(0, 80),
    ),
    max_size=12,
)
WINDOWS = [
    lw.Sessions("5us"),
    lw.Sessions("5us", merge_touching=True),
    lw.FixedWindows("7us"),
    lw.SlidingWindows("9us", "4us"),
    lw.GlobalWindow(),
]


@pytest.mark.parametrize("windows", WINDOWS, ids=repr)
@examples(2.5)
@given(acts=STEPS, survives=st.lists(st.booleans(), min_size=1, max_size=4))
def test_as_windows_show(windows: Any, acts: list[Any], survives: list[bool]) -> None:
    """S-K7, S-K8."""
    windowing = Windowing(windows=windows)
    plain = WindowOperator(
        windowing,
        {
            "seen": lw.collect(), "most": lw.max(), "total": lw.sum(), "n": lw.count(),
        },
    )  # fmt: skip
    store = MemoryStore()
    operator = ProcessOperator(Adds(), windowing=windowing)
    operator.keep_in_store(StoredPlace("stage 1", 0, 4))
    value = 0
    for turn, act in enumerate([*acts, None]):
        step: StepInput = EndOfInput()
        if isinstance(act, int):
            step = WatermarkAdvance(act)
        elif act is not None:
            values = np.arange(value, value + len(act))
            value += len(act)
            keys = (Column.of_objects([key for key, _ in act]),)
            times = np.array([at for _, at in act], dtype=np.int64)
            step = Bundle(times, keys, {"value": Column(values)})
        shown, given_by = plain.step(step), operator.step(step)
        panes = [] if shown.panes is None else shown.panes.to_panes()
        wanted = [
            (pane.key, pane.window.start, pane.window.end, pane.timestamp,
             (sorted(v["seen"]), v["most"], v["total"], v["n"]))
            for pane in panes
            for v in [pane.values]
        ]  # fmt: skip
        emitted = given_by.emitted.get("main")
        found = []
        if emitted is not None:
            assert emitted.start is not None
            assert emitted.end is not None
            columns = (emitted.start, emitted.end, emitted.times)
            found = list(
                zip(
                    emitted.keys[0].to_list(), *(column.tolist() for column in columns),
                    emitted.to_list(), strict=True,
                )
            )  # fmt: skip
        assert sorted(found) == sorted(wanted)
        for late, other in ((given_by.late, shown.late), (shown.late, given_by.late)):
            assert late is None or other is not None
            assert late is None or other is None or np.array_equal(late.element, other.element)
        assert operator.open_windows == plain.open_windows
        if not survives[turn % len(survives)]:
            batch = Batch()
            operator.save(batch)
            store.commit(batch)
            operator = ProcessOperator(Adds(), windowing=windowing)
            operator.keep_in_store(StoredPlace("stage 1", 0, 4))
            assert operator.restore(store)
    assert operator.state_rows == 0


class Sums:
    total = lw.value_cell(dtype="int64")
    count = lw.value_cell(dtype="int64")

    def on_records(self, batch: Any, ctx: Any) -> None:
        assert (ctx.starts(batch.ids) <= batch.times).all()
        assert (batch.times < ctx.ends(batch.ids)).all()
        ctx.total.add(batch.ids, batch["value"])
        ctx.count.add(batch.ids, 1)

    def on_windows_expired(self, batch: Any, ctx: Any) -> None:
        columns = {"total": ctx.total[batch.ids], "n": ctx.count[batch.ids]}
        ctx.emit(columns, ids=batch.ids, times=batch.times)


@pytest.mark.parametrize("windows", WINDOWS[2:], ids=repr)
@given(acts=STEPS)
def test_columns_as_windows_show(windows: Any, acts: list[Any]) -> None:
    """S-K9: where elements fall into several windows, too."""
    windowing = Windowing(windows=windows)
    plain = WindowOperator(windowing, {"total": lw.sum(), "n": lw.count()})
    operator = ProcessOperator(Sums(), windowing=windowing)
    value = 0
    for act in [*acts, None]:
        step: StepInput = EndOfInput()
        if isinstance(act, int):
            step = WatermarkAdvance(act)
        elif act is not None:
            values = np.arange(value, value + len(act))
            value += len(act)
            keys = (Column.of_objects([key for key, _ in act]),)
            times = np.array([at for _, at in act], dtype=np.int64)
            step = Bundle(times, keys, {"value": Column(values)})
        shown, emitted = plain.step(step).panes, operator.step(step).emitted.get("main")
        wanted = [] if shown is None else [(p.key, int(p.window.start), p.values) for p in shown]
        found = []
        if emitted is not None and emitted.start is not None:
            found = list(
                zip(
                    emitted.keys[0].to_list(),
                    emitted.start.tolist(),
                    emitted.to_list(),
                    strict=True,
                )
            )
        assert sorted(found, key=str) == sorted(wanted, key=str)
        assert operator.open_windows == plain.open_windows
