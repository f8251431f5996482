"""Combiners in workers change nothing: panes, their order, late elements and state are the same.

Workers are simulated: each has its own accumulators, and all that goes there and back is packed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from unittest import mock

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from lowwater.engine.aggregates import AggregateSpec
from lowwater.engine.local.worker_combiners import AWAY, CombinersInWorkers
from lowwater.engine.records.stage_output import StageOutput
from lowwater.engine.records.steps import StepInput
from lowwater.engine.window.operator import WindowOperator
from lowwater.engine.window.windowing import Windowing
from lowwater.state.key_layout import END
from lowwater.state.memory import MemoryContents, MemoryStore
from lowwater.state.store import Batch
from lowwater.testing import Scenario, _drive
from lowwater.time import Int64Array
from tests.examples import examples
from tests.property import retracted_elements as retracted
from tests.property import strategies as own
from tests.property.simulated_workers import SimulatedWorkers
from tests.property.stored_operator import FATES, PLACE, RESTORED


class Listed:
    """A combiner that tells in which order it was called, and changes accumulators in place."""

    def create_accumulator(self) -> list[Any]:
        return []

    def add_input(self, accumulator: list[Any], value: Any) -> list[Any]:
        accumulator.append(value)
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[list[Any]]) -> list[Any]:
        first, *others = accumulators
        for each in others:
            first.append(each)
        return first

    def extract_output(self, accumulator: list[Any]) -> list[Any]:
        return accumulator


COMBINED: dict[str, AggregateSpec] = {
    "listed": lw.combine(Listed()),
    "count": lw.count(),
    "tally": lw.combine(retracted.Tally()),
}


class Beside:
    """An operator, and beside it one with its combiners in workers, which does the same.

    What happens after each step: ``fates``, in turn. Each time they are restored there are as many
    workers as the next of ``counts`` says.
    """

    fates: list[str | None]
    counts: list[int]

    def __init__(
        self,
        windowing: Windowing,
        aggregates: Mapping[str, AggregateSpec],
        *,
        watermark: int,
        clock: int,
        signed: bool = False,
    ) -> None:
        self._made = windowing, aggregates, watermark, clock, signed
        self._turn = 0
        self._stores = [MemoryStore(MemoryContents()) for _ in range(2)]
        self._begin()

    def _begin(self) -> None:
        windowing, aggregates, watermark, clock, signed = self._made
        self._workers = SimulatedWorkers(self.counts[self._turn % len(self.counts)])
        self._away = CombinersInWorkers(aggregates, 3, self._workers, self._keys_of, signed=signed)
        self._one, self._other = (
            WindowOperator(windowing, each, watermark=watermark, clock=clock, signed=signed)
            for each in (aggregates, self._away.aggregates)
        )
        for operator in (self._one, self._other):
            operator.keep_in_store(PLACE)

    def _keys_of(self, rows: Int64Array) -> Int64Array:
        return self._other.keys_of(rows)

    def step(self, step: StepInput) -> StageOutput:
        output, other = self._one.step(step), self._other.step(step)
        assert list(output.panes or ()) == list(other.panes or ())
        assert repr(output.late) == repr(other.late)
        assert self._one.output_watermark == self._other.output_watermark
        self._check()
        fate = self.fates[self._turn % len(self.fates)]
        self._turn += 1
        if fate is not None:
            self._away.fetch()
            assert not any(held for _, held in self._accumulators())
            for operator, store in zip((self._one, self._other), self._stores, strict=True):
                batch = Batch()
                operator.save(batch)
                store.commit(batch)
            assert list(self._stores[0].scan(b"", END)) == list(self._stores[1].scan(b"", END))
        if fate == RESTORED:
            self._begin()
            for operator, store in zip((self._one, self._other), self._stores, strict=True):
                assert operator.restore(store)
        return output

    def _accumulators(self) -> list[tuple[Any, dict[int, Any]]]:
        """Return what runs each combiner, with all that workers have of it."""
        found = []
        for each in self._away._each:
            held: dict[int, Any] = {}
            for at, worker in enumerate(self._workers._each):
                hosted: Any = worker._hosted.get(each._place)
                if hosted is not None:
                    gone = np.concatenate([np.zeros(0, np.int64), *each._gone.get(at, [])])
                    here = hosted._held.keys() - set(gone.tolist())
                    assert not held.keys() & here
                    held |= dict.fromkeys(here, at)
            found.append((each, held))
        return found

    def _check(self) -> None:
        """Assert that workers have what rows say they have, the rows of a key together."""
        table = self._other._state.table
        for each, held in self._accumulators():
            name = each._place.split(": ")[1]
            column = table.columns.get(f"{name}:accumulator")
            cells = {} if column is None else {row: column[row] for row in table.live().tolist()}
            assert {row for row, cell in cells.items() if cell is AWAY} == held.keys()
            for row, at in held.items():
                assert table["key"][row] % self._workers.count == at

    @property
    def watermark(self) -> int:
        return self._one.watermark

    @property
    def open_windows(self) -> int:
        return self._one.open_windows

    @property
    def state_rows(self) -> int:
        return self._one.state_rows


COUNTS = st.lists(st.integers(2, 5), min_size=1, max_size=3)


def beside(fates: list[str | None], counts: list[int]) -> Any:
    return mock.patch.multiple(Beside, create=True, fates=fates, counts=counts)


@given(own.cases(), FATES, COUNTS)
@examples(1.5, is_core=True)
def test_any_windowing(
    case: tuple[Windowing, Scenario], fates: list[str | None], counts: list[int]
) -> None:
    windowing, scenario = case
    with beside(fates, counts), mock.patch.object(_drive, "WindowOperator", Beside):
        run = scenario.run_windowing(windowing, aggregate=COMBINED)
    assert run.state_rows == 0


@given(retracted.cases(retracted.safe_windowings()), FATES, COUNTS)
@examples(1.5, is_core=True)
def test_inputs_with_retractions(
    case: retracted.Case, fates: list[str | None], counts: list[int]
) -> None:
    """The one that can remove values is in workers; the other is run anew for each pane."""
    windowing, scenario, signs = case
    aggregates = {**COMBINED, "longest": lw.combine(retracted.Longest())}
    aggregates = {name: spec for name, spec in aggregates.items() if name != "listed"}
    if windowing.shows_differences:
        return
    with beside(fates, counts), mock.patch.object(_drive, "WindowOperator", Beside):
        scenario._run(windowing, aggregates, "dead_letter", signs)
