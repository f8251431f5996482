"""Vectorised processes equal a scalar model, key by key, and restored anywhere."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowwater.engine.process import ProcessOperator
from lowwater.state.key_layout import END, StoredPlace
from lowwater.state.memory import MemoryContents, MemoryStore
from lowwater.state.store import Batch
from lowwater.time import END_OF_TIME
from tests.examples import examples
from tests.property import process_columns_model as model
from tests.property.process_model import late_of


@pytest.mark.parametrize("windowed", [False, True])
@examples(4)
@given(acts=model.ACTS, survives=st.lists(st.booleans(), min_size=1, max_size=5))
def test_as_the_model_says(windowed: bool, acts: list[model.Act], survives: list[bool]) -> None:
    """S-K9: of each key in time order, exactly once, saved and restored."""
    wanted = model.Model(windowed)
    store = MemoryStore(MemoryContents())
    operator = made(windowed)
    operator.keep_in_store(StoredPlace("stage 3", 0, 4))
    found: dict[str, list[tuple[int, ...]]] = defaultdict(list)
    late: list[tuple[str, int, str | None]] = []
    every: list[model.Act | str] = [*acts, "end"]
    for turn, act in enumerate(every):
        wanted.act(act)
        output = operator.step(model.step(act))
        late += late_of(act, output)
        for emitted in output.outputs.values():
            starts = [0] * len(emitted) if emitted.start is None else emitted.start.tolist()
            rows = zip(
                emitted.keys[0].to_list(), starts, emitted.times.tolist(),
                *(column.to_list() for column in emitted.columns().values()), strict=True,
            )  # fmt: skip
            for key, start, *told in rows:
                found[f"{key} {start}"].append(tuple(told))
        assert found == wanted.given
        assert late == wanted.late
        assert operator.state_rows == len(wanted.scopes)
        assert operator.output_watermark == wanted.output_watermark
        assert (operator.hold() is None) == (
            min([END_OF_TIME, *wanted.holds()]) >= operator.watermark
        )
        if not survives[turn % len(survives)]:
            operator = reborn(operator, store, windowed)
    assert operator.state_rows == 0
    reborn(operator, store, windowed)
    assert len(list(store.scan(b"", END))) == 1  # the facts


def reborn(operator: ProcessOperator, store: MemoryStore, windowed: bool) -> ProcessOperator:
    batch = Batch()
    operator.save(batch)
    store.commit(batch)
    again = made(windowed)
    again.keep_in_store(StoredPlace("stage 3", 0, 4))
    assert again.restore(store)
    return again


def made(windowed: bool) -> ProcessOperator:
    if windowed:
        return ProcessOperator(model.InWindows(), windowing=model.WINDOWS, watermark=0, clock=0)
    return ProcessOperator(model.ToTheEnd(), watermark=0, clock=0)
