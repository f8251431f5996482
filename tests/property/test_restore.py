"""Saving and restoring at any step changes nothing: what comes out is what the oracle gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from lowwater.engine.aggregates import AggregateSpec
from lowwater.engine.records.steps import StepInput, StepOutput
from lowwater.engine.window.operator import WindowOperator
from lowwater.engine.window.windowing import Windowing
from lowwater.state.key_layout import StoredPlace
from lowwater.state.memory import MemoryContents, MemoryStore
from lowwater.state.store import Batch
from lowwater.testing import Scenario, _drive, assert_late, assert_panes, oracle
from tests.examples import examples
from tests.property import strategies as own


class Reborn:
    """An operator that is thrown away and restored from a store after some of its steps."""

    survives: list[bool]

    def __init__(
        self,
        windowing: Windowing,
        aggregates: Mapping[str, AggregateSpec],
        *,
        watermark: int,
        clock: int,
        signed: bool = False,
    ) -> None:
        self._windowing = windowing
        self._aggregates = aggregates
        self._start = (watermark, clock)
        self._signed = signed
        self._store = MemoryStore(MemoryContents())
        self._operator = self._made()
        self._turn = 0

    def step(self, step: StepInput) -> StepOutput:
        output = self._operator.step(step)
        self._turn += 1
        if not self.survives[self._turn % len(self.survives)]:
            batch = Batch()
            self._operator.save(batch)
            self._store.commit(batch)
            self._operator = self._made()
            assert self._operator.restore(self._store)
        return output

    def _made(self) -> WindowOperator:
        watermark, clock = self._start
        operator = WindowOperator(
            self._windowing,
            self._aggregates,
            watermark=watermark,
            clock=clock,
            signed=self._signed,
        )
        operator.keep_in_store(StoredPlace("stage 7", 0, 4))
        return operator

    @property
    def open_windows(self) -> int:
        return self._operator.open_windows

    @property
    def state_rows(self) -> int:
        return self._operator.state_rows


def check(
    windowing: Windowing, scenario: Scenario, survives: list[bool], aggregate: Any, plain: Any
) -> None:
    with (
        mock.patch.object(Reborn, "survives", survives, create=True),
        mock.patch.object(_drive, "WindowOperator", Reborn),
    ):
        run = scenario.run_windowing(windowing, aggregate=aggregate)
    wanted = oracle.run(scenario, windowing, plain)
    assert_panes(run, wanted.panes)
    assert_late(run, wanted.late)
    assert run.state_rows == 0


SURVIVES = st.lists(st.booleans(), min_size=1, max_size=5)


@given(own.cases(), SURVIVES)
@examples(4)
def test_lists_and_any_trigger(case: tuple[Windowing, Scenario], survives: list[bool]) -> None:
    check(*case, survives, lw.collect(), list)


@given(own.cases(), SURVIVES)
@examples(4)
def test_numbers(case: tuple[Windowing, Scenario], survives: list[bool]) -> None:
    aggregates = {"count": lw.count(), "sum": lw.sum(), "least": lw.min()}
    plain = {
        "count": len,
        "sum": sum,
        "least": lambda values: min(values, default=None),
    }
    check(*case, survives, aggregates, plain)
