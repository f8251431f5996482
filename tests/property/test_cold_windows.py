"""Windows that leave memory and come back change nothing: panes are the oracle's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from unittest import mock

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import lowwater as lw
from lowwater.engine.aggregates import AggregateSpec
from lowwater.engine.records.steps import (
    Bundle,
    EndOfInput,
    PaneBatch,
    StepInput,
    StepOutput,
    WatermarkAdvance,
)
from lowwater.engine.window import spilling as _cold
from lowwater.engine.window.operator import WindowOperator
from lowwater.engine.window.windowing import Windowing
from lowwater.errors import InvalidArgument
from lowwater.state.key_layout import StoredPlace
from lowwater.state.memory import MemoryContents, MemoryStore
from lowwater.state.store import Batch
from lowwater.testing import Scenario, _drive, assert_late, assert_panes, oracle
from lowwater.time import END_OF_TIME
from tests.examples import examples
from tests.property import strategies as own

pytestmark = pytest.mark.slow  # left to `make test`

SAVED, RESTORED = "saved", "restored"


class Cold:
    """An operator that keeps no window in memory it can do without, and may be restored.

    What happens after each step, and within advances after each portion: ``fates``, in turn.
    """

    fates: list[str | None]

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
        self._operator = self._made(0)
        self._turn = 0

    def step(self, step: StepInput) -> StepOutput:
        parts: list[PaneBatch] = []
        if isinstance(step, Bundle):
            self._operator.load(self._store, step)
        elif isinstance(step, WatermarkAdvance | EndOfInput):
            to = END_OF_TIME if isinstance(step, EndOfInput) else step.to
            while (bound := self._operator.load_due(self._store, to)) is not None:
                part = self._operator.step(WatermarkAdvance(to, due=bound))
                if part.panes is not None:
                    parts.append(part.panes)
                self._fate()
        output = self._operator.step(step)
        self._fate()
        if output.panes is not None:
            parts.append(output.panes)
        return StepOutput(PaneBatch.concat(parts) if parts else None, output.late)

    def _fate(self) -> None:
        fate = self.fates[self._turn % len(self.fates)]
        self._turn += 1
        if fate is None:
            return
        batch = Batch()
        self._operator.save(batch)
        self._store.commit(batch)
        if fate == RESTORED:
            limit = None if self._turn % 3 == 0 else 0
            self._operator = self._made(limit)
            assert self._operator.restore(self._store)

    def _made(self, limit: int | None) -> WindowOperator:
        watermark, clock = self._start
        operator = WindowOperator(
            self._windowing,
            self._aggregates,
            watermark=watermark,
            clock=clock,
            signed=self._signed,
        )
        operator.keep_in_store(StoredPlace("stage 7", 0, 4), memory=limit)
        return operator

    @property
    def open_windows(self) -> int:
        return self._operator.open_windows

    @property
    def state_rows(self) -> int:
        return self._operator.state_rows


def check(
    case: tuple[Windowing, Scenario], fates: list[str | None], aggregate: Any, plain: Any
) -> None:
    windowing, scenario = case
    try:
        windowing.require_bounded_memory()
    except InvalidArgument:
        assume(False)
    with (
        mock.patch.object(Cold, "fates", fates, create=True),
        mock.patch.object(_drive, "WindowOperator", Cold),
        mock.patch.object(_cold, "AT_ONCE", 2),
    ):
        run = scenario.run_windowing(windowing, aggregate=aggregate)
    wanted = oracle.run(scenario, windowing, plain)
    assert_panes(run, wanted.panes)
    assert_late(run, wanted.late)
    assert run.state_rows == 0


FATES = st.lists(st.sampled_from([SAVED, None, RESTORED]), min_size=1, max_size=5)


@given(own.cases(), FATES)
@examples(4)
def test_lists_and_any_trigger(case: tuple[Windowing, Scenario], fates: list[str | None]) -> None:
    check(case, fates, lw.collect(), list)


@given(own.cases(), FATES)
@examples(4)
def test_numbers(case: tuple[Windowing, Scenario], fates: list[str | None]) -> None:
    aggregates = {"count": lw.count(), "sum": lw.sum(), "least": lw.min()}
    plain = {
        "count": len,
        "sum": sum,
        "least": lambda values: min(values, default=None),
    }
    check(case, fates, aggregates, plain)
