"""What a bag holds survives being stored, also where its dtype has changed since."""

import numpy as np

import lowwater as lw
from lowwater.engine.records.columns import Column
from lowwater.engine.records.steps import Bundle, EndOfInput
from lowwater.engine.window.operator import WindowOperator
from lowwater.engine.window.windowing import Windowing
from lowwater.state.key_layout import StoredPlace
from lowwater.state.memory import MemoryContents, MemoryStore
from lowwater.state.store import Batch


def made() -> WindowOperator:
    operator = WindowOperator(
        Windowing(windows=lw.FixedWindows("10s")), {"seen": lw.collect("value")}
    )
    operator.keep_in_store(StoredPlace("stage 1", 0, 4))
    return operator


def bundle(second: int, value: float) -> Bundle:
    times = np.array([second * 1_000_000])
    return Bundle(times, (Column(np.array([1])),), {"value": Column(np.array([value]))})


def test_values_stored_before_their_column_became_wider() -> None:
    store = MemoryStore(MemoryContents())
    operator = made()
    for each in (bundle(1, 5), bundle(11, 0.5)):
        operator.step(each)
        batch = Batch()
        operator.save(batch)
        store.commit(batch)
    restored = made()
    assert restored.restore(store)
    panes = restored.step(EndOfInput()).panes
    assert panes is not None
    assert [pane.values["seen"] for pane in panes] == [[5.0], [0.5]]
