"""Vectorised processes equal a scalar model, key by key, and restored anywhere."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from lowwater.engine.process import ProcessOperator
from lowwater.engine.process.outputs import Order
from lowwater.engine.window.windowing import Windowing
from lowwater.state.key_layout import END, StoredPlace
from lowwater.state.memory import MemoryContents, MemoryStore
from lowwater.state.store import Batch
from lowwater.time import END_OF_TIME
from tests.examples import examples
from tests.property import process_columns_model as model
from tests.property.process_model import late_of


@pytest.mark.parametrize("order", ["arrival", "event_time"])
@pytest.mark.parametrize("windowed", [False, True])
@examples(4, is_core=True)
@given(acts=model.ACTS, survives=st.lists(st.booleans(), min_size=1, max_size=5))
def test_as_the_model_says(
    windowed: bool, order: Order, acts: list[model.Act], survives: list[bool]
) -> None:
    """S-K9, S-K13: of each key in time order, exactly once, saved and restored."""
    wanted = model.Model(windowed, in_order=order == "event_time")
    store = MemoryStore(MemoryContents())
    operator = made(windowed, order)
    operator.keep_in_store(StoredPlace("stage 3", 0, 4))
    found: dict[str, list[tuple[int, ...]]] = defaultdict(list)
    late: list[tuple[str, int, str | None]] = []
    every: list[model.Act | str] = [*acts, "end"]
    for turn, act in enumerate(every):
        wanted.act(act)
        output = operator.step(model.step(act))
        late += late_of(act, output)
        for emitted in output.emitted.values():
            starts = [0] * len(emitted) if emitted.start is None else emitted.start.tolist()
            rows = zip(
                emitted.keys[0].to_list(), starts, emitted.times.tolist(),
                *(column.to_list() for column in emitted.columns().values()), strict=True,
            )  # fmt: skip
            for key, start, *told in rows:
                found[f"{key} {start}"].append(tuple(told))
        assert found == wanted.given
        assert late == wanted.late
        assert operator.state_rows == len(wanted.scopes) + len(wanted.waiting)
        assert operator.output_watermark == wanted.output_watermark
        assert (operator.hold() is None) == (
            min([END_OF_TIME, *wanted.holds()]) >= operator.watermark
        )
        if not survives[turn % len(survives)]:
            operator = reborn(operator, store, windowed, order)
    assert operator.state_rows == 0
    reborn(operator, store, windowed, order)
    assert len(list(store.scan(b"", END))) == 1  # the facts


def test_in_event_time_order_batches_are_as_large_as_their_order_allows() -> None:
    """S-K13: up to the end of a window; where timers may be set for any instant, one instant."""

    class Counts:
        def on_records(self, batch: Any, ctx: Any) -> None:
            calls.append((ctx.watermark, batch.times.tolist()))

    class Expires(Counts):
        def on_windows_expired(self, batch: Any, ctx: Any) -> None:
            calls.append((ctx.watermark, ctx.ends(batch.ids).tolist()))

    class Wakes(Counts):
        wake = lw.timer()

        def on_timers(self, batch: Any, ctx: Any) -> None:
            calls.append((ctx.watermark, batch.due.tolist()))

    rows = [("a", at, 0, 0, 0, 0) for at in (21, 3, 3, 12, 15, 4)]
    windows = Windowing(windows=lw.FixedWindows("10us"))
    for process, windowing, wanted in (
        (Counts(), None, [(3, [3, 3, 4, 12, 15, 21])]),
        (Wakes(), None, [(at, [at] * (1 + (at == 3))) for at in (3, 4, 12, 15, 21)]),
        (Expires(), windows, [
            (3, [3, 3, 4]), (10, [10]), (12, [12, 15]), (20, [20]), (21, [21]),
        ]),
    ):  # fmt: skip
        calls: list[tuple[int, list[int]]] = []
        operator = ProcessOperator(process, windowing=windowing, order="event_time", watermark=0)
        operator.step(model.step(list(rows)))
        assert not calls
        operator.step(model.step(("watermark", 25)))
        assert calls == wanted


def reborn(
    operator: ProcessOperator, store: MemoryStore, windowed: bool, order: Order
) -> ProcessOperator:
    batch = Batch()
    operator.save(batch)
    store.commit(batch)
    again = made(windowed, order)
    again.keep_in_store(StoredPlace("stage 3", 0, 4))
    assert again.restore(store)
    return again


def made(windowed: bool, order: Order) -> ProcessOperator:
    allowed = 0 if order == "event_time" else model.LATENESS
    windowing = model.WINDOWS if windowed else None
    kind = model.InWindows if windowed else model.ToTheEnd
    return ProcessOperator(kind(allowed), windowing=windowing, order=order, watermark=0, clock=0)
