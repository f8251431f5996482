"""What a process keeps for a key outlives restarts, whatever types its keys are of, and where."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowwater.engine.local.parted_process import PartedProcess
from lowwater.engine.process.definition import Definition
from lowwater.engine.records.columns import Column
from lowwater.engine.records.key_hash import KEY_GROUPS
from lowwater.engine.stages.computed import Computed
from lowwater.state.key_layout import StoredPlace
from lowwater.state.memory import MemoryContents, MemoryStore
from lowwater.state.store import Batch
from tests.examples import examples
from tests.property.simulated_workers import SimulatedWorkers
from tests.unit.engine.process.test_stored_keys import COLUMNS, DAY, Counts, bundle, typed

# Among keys of other types, those in nanoseconds are values of pandas, which are refused.
NAMES = sorted(name for name in COLUMNS if not name.endswith("in ns"))
BUNDLES = st.lists(st.sampled_from(NAMES), min_size=1, max_size=6)


class Running:
    """A process whose keys several workers have, and its store.

    Args:
        windowed: Whether it is in windows.
    """

    def __init__(self, *, windowed: bool) -> None:
        windowing = DAY if windowed else None
        definition = Definition.of(Counts(), windowing)
        self._work = Computed(definition.process, windowing, definition.outputs)
        self._store = MemoryStore(MemoryContents())
        self.operator = self.made(1)

    def made(self, count: int) -> PartedProcess:
        operator = PartedProcess(self._work, 0, SimulatedWorkers(count))
        operator.keep_in_store(StoredPlace("stage 1", 0, KEY_GROUPS))
        return operator

    def begin(self, count: int) -> None:
        self.operator = self.made(count)
        self.operator.restore(self._store)

    def take(self, keys: Column) -> list[Any]:
        """Return what comes of a bundle, after it is saved."""
        output = self.operator.step(bundle(keys))
        batch = Batch()
        self.operator.save(batch)
        self._store.commit(batch)
        return output.emitted["main"].to_list()


@pytest.mark.parametrize("windowed", [False, True])
@examples(2)
@given(BUNDLES, st.lists(st.sampled_from([1, 2, 3, 5]), min_size=6, max_size=6))
def test_counts_go_on_after_restarts_with_other_workers(
    windowed: bool, names: list[str], counts: list[int]
) -> None:
    whole, restarted = (Running(windowed=windowed) for _ in range(2))
    whole.begin(1)
    for name, count in zip(names, counts, strict=False):
        restarted.begin(count)
        assert restarted.take(COLUMNS[name]) == whole.take(COLUMNS[name])
        assert restarted.operator.open_windows == whole.operator.open_windows


SMALL = typed(list(range(40)), pa.uint64())
INTS = typed(list(range(40)), pa.int64())


@pytest.mark.parametrize(
    "columns",
    [
        # One type of Arrow, whose values are numbers here and objects there.
        [SMALL, typed([2**64 - 1, 1], pa.uint64())],
        # Null does not say that there will be text.
        [INTS, typed([None, None], pa.string()), typed(["k1"], pa.string())],
    ],
)
@pytest.mark.parametrize("count", [2, 3, 5, 16])
def test_types_that_some_workers_have_not_seen(columns: list[Column], count: int) -> None:
    whole, restarted = (Running(windowed=False) for _ in range(2))
    for running, workers in ((whole, 1), (restarted, count)):
        running.begin(workers)
        for column in columns:
            running.take(column)
    restarted.begin(count)
    for column in columns:
        assert restarted.take(column) == whole.take(column)
