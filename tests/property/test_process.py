"""Keyed computations equal a scalar model, whatever the bundles, and restored anywhere."""

from __future__ import annotations

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
from tests.property import process_model as model

EXAMPLES = examples(5, is_core=True)
WINDOWS = Windowing(
    windows=lw.FixedWindows(f"{model.SIZE}us"),
    allowed_lateness=model.LATENESS,
    accumulation="discarding",
)


def made(windowed: bool, order: Order = "arrival") -> ProcessOperator:
    allowed = 0 if order == "event_time" else model.LATENESS
    windowing = WINDOWS if windowed else None
    kind = model.ScriptedInWindows if windowed else model.ScriptedToTheEnd
    return ProcessOperator(kind(allowed), windowing=windowing, order=order, watermark=0, clock=0)


@pytest.mark.parametrize("windowed", [False, True])
@EXAMPLES
@given(
    acts=model.ACTS,
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    survives=st.lists(st.booleans(), min_size=1, max_size=5),
)
def test_as_the_model_says(
    windowed: bool, acts: list[model.Act], sizes: list[int], survives: list[bool]
) -> None:
    """S-K1 to S-K7: exactly once, in time order, held and released, saved and restored."""
    wanted = model.Model(windowed)
    store = MemoryStore(MemoryContents())
    operator = made(windowed)
    operator.keep_in_store(StoredPlace("stage 3", 0, 4))
    late: list[tuple[str, int, str | None]] = []
    before = operator.output_watermark
    for turn, act in enumerate(model.all_cut(acts, sizes)):
        already = len(wanted.given)
        wanted.act(act)
        output = operator.step(model.step(act))
        found = model.given_by(output)
        late += model.late_of(act, output)
        if not survives[turn % len(survives)]:
            operator = reborn(operator, store, windowed)
        for tag in ("told", "main"):
            assert [g for g in found if g[0] == tag] == [
                g for g in wanted.given[already:] if g[0] == tag
            ]
        assert operator.state_rows == len(wanted.scopes)
        assert late == wanted.late
        # MillWheel's low watermark: monotone, and at most every hold that was not late itself.
        assert operator.output_watermark == wanted.output_watermark >= before
        low = min([END_OF_TIME, *(hold for hold in wanted.holds() if hold >= before)])
        assert operator.output_watermark <= max(low, before)
        assert (operator.hold() is None) == (
            min([END_OF_TIME, *wanted.holds()]) >= operator.watermark
        )
        before = operator.output_watermark
    assert operator.state_rows == 0
    assert operator.output_watermark == END_OF_TIME
    reborn(operator, store, windowed)
    assert len(list(store.scan(b"", END))) == 2  # the facts, and those of the one part


@pytest.mark.parametrize("windowed", [False, True])
@EXAMPLES
@given(acts=model.ACTS, sizes=st.lists(st.integers(1, 5), min_size=1, max_size=3))
def test_bundles_change_nothing(windowed: bool, acts: list[model.Act], sizes: list[int]) -> None:
    """S-K1: but for the time of what a timer of processing time emits without an output time."""

    def told(sizes: list[int]) -> list[Any]:
        operator = made(windowed)
        every: list[Any] = []
        for act in model.all_cut(acts, sizes):
            every += model.given_by(operator.step(model.step(act)))
        return [
            [(key, at if value[0] not in ("wall", "expired", "end") else None, value)
             for tag, key, at, value in every if tag == wanted]
            for wanted in ("told", "main")
        ]  # fmt: skip

    assert told(sizes) == told([1])


@pytest.mark.parametrize("windowed", [False, True])
@EXAMPLES
@given(
    acts=model.ACTS,
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    survives=st.lists(st.booleans(), min_size=1, max_size=5),
)
def test_in_event_time_order_as_the_model_says(
    windowed: bool, acts: list[model.Act], sizes: list[int], survives: list[bool]
) -> None:
    """S-K13: records wait, then come by time with the timers in between."""
    wanted = model.Model(windowed, in_order=True)
    store = MemoryStore(MemoryContents())
    operator = made(windowed, "event_time")
    operator.keep_in_store(StoredPlace("stage 3", 0, 4))
    late: list[tuple[str, int, str | None]] = []
    for turn, act in enumerate(model.all_cut(acts, sizes)):
        already = len(wanted.given)
        wanted.act(act)
        found = []
        for records, step in model.steps_by_input(act):
            output = operator.step(step)
            found += model.given_by(output)
            late += model.late_of(records, output)
        if not survives[turn % len(survives)]:
            operator = reborn(operator, store, windowed, "event_time")
        for tag in ("told", "main"):
            assert [g for g in found if g[0] == tag] == [
                g for g in wanted.given[already:] if g[0] == tag
            ]
        assert operator.state_rows == len(wanted.scopes) + len(wanted.waiting)
        assert late == wanted.late
        assert operator.output_watermark == wanted.output_watermark
        assert operator.output_watermark <= min(
            [END_OF_TIME, *(at for at, _, _, _ in wanted.waiting)]
        )
    assert operator.state_rows == 0
    reborn(operator, store, windowed, "event_time")
    assert len(list(store.scan(b"", END))) == 2  # the facts, and those of the one part


@pytest.mark.parametrize("windowed", [False, True])
@EXAMPLES
@given(
    records=st.lists(model.RECORDS, max_size=12),
    order=st.randoms(use_true_random=False),
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=3),
)
def test_in_event_time_order_neither_bundles_nor_watermarks_change_anything(
    windowed: bool, records: list[model.Record], order: Any, sizes: list[int]
) -> None:
    """S-K13: only who comes first of one instant and one input makes a difference."""
    calm = [
        (key, at, tuple(act for act in acts if act[:2] != ("set", "wall")))
        for key, at, acts in records
    ]
    calm = list({(record[1], model.input_of(record)): record for record in calm}.values())

    def told(records: list[model.Record], sizes: list[int], *, advances: bool) -> Any:
        operator = made(windowed, "event_time")
        acts: list[model.Act] = []
        for act in model.cut(records, sizes):
            acts.append(act)
            left = records[sum(len(each) for each in acts if isinstance(each, list)) :]
            if advances and left:
                acts.append(("watermark", min(at for _, at, _ in left)))
        steps = [s for act in [*acts, ("watermark", 10_000), "end"] for s in
                 model.steps_by_input(act)]  # fmt: skip
        every: list[Any] = []
        for given_records, step in steps:
            output = operator.step(step)
            assert not model.late_of(given_records, output) or output.late_of is not None
            every += model.given_by(output)
        return [[g for g in every if g[0] == tag] for tag in ("told", "main")]

    wanted = told(calm, [len(calm) + 1], advances=False)
    shuffled = list(calm)
    order.shuffle(shuffled)
    assert told(shuffled, sizes, advances=True) == wanted


def reborn(
    operator: ProcessOperator, store: MemoryStore, windowed: bool, order: Order = "arrival"
) -> ProcessOperator:
    batch = Batch()
    operator.save(batch)
    store.commit(batch)
    again = made(windowed, order)
    again.keep_in_store(StoredPlace("stage 3", 0, 4))
    assert again.restore(store)
    return again
