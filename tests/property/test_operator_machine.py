"""The window operator driven step by step, with every invariant of its state asserted after each.

Bundles, watermarks (whole and in portions), clocks, commits, restores and windows that
leave memory come in any order; panes and late elements are the scalar oracle's, step by step.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import lowwater as lw
from lowwater.engine.records.columns import Column
from lowwater.engine.records.panes import Pane
from lowwater.engine.records.steps import (
    REASONS,
    Bundle,
    ClockAdvance,
    EndOfInput,
    LateBatch,
    StepInput,
    WatermarkAdvance,
)
from lowwater.engine.window import spilling
from lowwater.engine.window.operator import WindowOperator
from lowwater.engine.window.placement import nested_windows
from lowwater.engine.window.schedule import RowQueue
from lowwater.engine.window.windowing import Windowing
from lowwater.state.bag import Bag
from lowwater.state.key_layout import StoredPlace
from lowwater.state.memory import MemoryContents, MemoryStore
from lowwater.state.segments import Segments
from lowwater.state.store import Batch
from lowwater.state.table import Index
from lowwater.testing import oracle
from lowwater.testing._arrivals import ScenarioElement
from lowwater.time import END_OF_TIME, Instant
from tests.examples import examples
from tests.property import strategies as own

SECOND = own.SECOND
START = 1_000 * SECOND
AGGREGATES = {"all": lw.collect("value"), "n": lw.count(), "sum": lw.sum("value")}
PLAIN: dict[str, Any] = {"all": list, "n": len, "sum": sum}
WINDOWS = own.fixed() | own.sliding() | own.cumulative() | own.sessions() | own.MERGING_CUSTOM
STORES = st.sampled_from(["small memory", "store"])
CASES = st.tuples(own.windowings(WINDOWS) | own.filling(), STORES)
"""A windowing, and where its state is kept."""
MERGING_CASES = st.tuples(own.windowings(own.sessions() | own.MERGING_CUSTOM), STORES)
ELEMENTS = st.lists(
    st.tuples(st.integers(-12, 30), st.sampled_from("abc"), st.integers(1, 9)),
    min_size=1,
    max_size=8,
)
"""Seconds behind or ahead of the watermark, key, seconds of the element's own gap."""


class OperatorMachine(RuleBasedStateMachine):
    """An operator with a store, beside the oracle."""

    @initialize(case=CASES)
    def begin(self, case: tuple[Windowing, str]) -> None:
        self.windowing, self.stores = case
        self.watermark = self.clock = START
        self.ended = False
        self.store = MemoryStore(MemoryContents())
        self.operator = self.made()
        self.oracle = oracle._Oracle(self.windowing, PLAIN, START, START)
        self.count = 0

    def made(self) -> WindowOperator:
        operator = WindowOperator(self.windowing, AGGREGATES, watermark=START, clock=START)
        operator.keep_in_store(
            StoredPlace("stage 1", 0, 4), memory=0 if self.stores == "small memory" else None
        )
        return operator

    compares = True

    # -- inputs --------------------------------------------------------------------------------

    @precondition(lambda self: not self.ended)
    @rule(elements=ELEMENTS)
    def add(self, elements: list[tuple[int, str, int]]) -> None:
        values = list(range(self.count, self.count + len(elements)))
        self.count += len(elements)
        times = [self.watermark + seconds * SECOND for seconds, _, _ in elements]
        gaps = [gap * SECOND for _, _, gap in elements]
        keys = [key for _, key, _ in elements]
        bundle = Bundle(
            np.array(times, dtype=np.int64),
            (Column.of_objects(keys),),
            {
                "value": Column(np.array(values, dtype=np.int64)),
                "gap": Column(np.array(gaps, dtype=np.int64)),
            },
        )
        self.oracle.add(
            [
                ScenarioElement(value, Instant(at), key, {"gap": gap})
                for value, at, key, gap in zip(values, times, keys, gaps, strict=True)
            ]
        )
        self.operator.load(self.store, bundle)
        self.step(bundle)

    @precondition(lambda self: not self.ended)
    @rule(seconds=st.integers(0, 10))
    def advance_watermark(self, seconds: int) -> None:
        self.watermark += seconds * SECOND
        self.oracle.move_watermark(self.watermark)
        self.advance(self.watermark, WatermarkAdvance(self.watermark))

    @precondition(lambda self: not self.ended)
    @rule(seconds=st.integers(0, 15))
    def advance_clock(self, seconds: int) -> None:
        self.clock += seconds * SECOND
        self.oracle.move_clock(self.clock)
        self.operator.load_timers(self.store, self.clock)
        self.step(ClockAdvance(self.clock))

    @precondition(lambda self: not self.ended and self.count > 30)
    @rule()
    def end_of_input(self) -> None:
        self.ended = True
        self.oracle.move_watermark(END_OF_TIME)
        self.advance(END_OF_TIME, EndOfInput())
        assert self.operator.state_rows == 0  # S-O7

    def advance(self, to: int, last: StepInput) -> None:
        panes: list[Pane] = []
        with mock.patch.object(spilling, "AT_ONCE", 2):
            while (bound := self.operator.load_due(self.store, to)) is not None:
                part = self.operator.step(WatermarkAdvance(to, due=bound))
                panes += part.panes or ()
                self.operator._check()
                if self.count % 2:  # a commit, and a restart, in the midst of an advance
                    self.restart()
        self.step(last, panes)

    def step(self, step: StepInput, before: list[Pane] | None = None) -> None:
        output = self.operator.step(step)
        self.operator.load_holder(self.store)
        self.operator._check()
        if self.compares:
            assert [*(before or ()), *(output.panes or ())] == self.oracle.panes
            gone = [(one.window, one.reason) for _, one in self.oracle.late]
            assert list(late(output.late)) == gone
        self.oracle.panes.clear()
        self.oracle.late.clear()

    # -- state ---------------------------------------------------------------------------------

    @rule()
    def commit(self) -> None:
        batch = Batch()
        self.operator.save(batch)
        self.store.commit(batch)

    @rule()
    def restart(self) -> None:
        before = self.operator
        self.commit()
        self.operator = self.made()
        assert self.operator.restore(self.store)
        assert self.operator.output_watermark == before.output_watermark

    # -- what always holds ---------------------------------------------------------------------

    @invariant()
    def agrees(self) -> None:
        self.operator._check()
        opened = len(self.oracle.open) + self.oracle.next_to_fill()
        rows = opened + len(self.oracle.finished)
        if nested_windows(self.windowing, AGGREGATES) is None:
            assert self.operator.open_windows == opened
            assert self.operator.state_rows == rows
        else:  # S-W8: windows that would hold what a shorter one holds are not there yet
            assert (self.operator.state_rows > 0) == (rows > 0)
            assert self.operator.open_windows <= opened
            assert self.operator.state_rows <= rows
        assert self.operator.output_watermark <= self.operator.watermark


def late(batch: LateBatch | None) -> Iterator[tuple[Any, str]]:
    if batch is None:
        return
    for start, end, why in zip(batch.start, batch.end, batch.reason.tolist(), strict=True):
        windowed = REASONS[why] != "unwindowed"
        yield (lw.Window(Instant(start), Instant(end)) if windowed else None), REASONS[why]


def test_any_order_of_steps() -> None:
    run_state_machine_as_test(
        OperatorMachine, settings=settings(examples(1, is_core=True), stateful_step_count=25)
    )


# -- planted bugs: each is found by a structure's own check ------------------------------------

SEEDED = settings(
    max_examples=60, derandomize=True, database=None, deadline=None, report_multiple_bugs=False,
    phases=[Phase.generate], stateful_step_count=25,
)  # fmt: skip


class OnlyChecks(OperatorMachine):
    """Takes whatever panes come, so that only the structures' own checks can find a bug."""

    compares = False


class OnlyChecksOfMerging(OnlyChecks):
    """The windows that are kept in segments: those that merge."""

    @initialize(case=MERGING_CASES)
    def begin(self, case: tuple[Windowing, str]) -> None:
        super().begin(case)


def index_keeps_removed_rows(patch: pytest.MonkeyPatch) -> None:
    def remove(self: Any, rows: Any) -> None:
        self._live -= len(rows)

    patch.setattr(Index, "remove", remove)


def rows_are_queued_too_late(patch: pytest.MonkeyPatch) -> None:
    right = RowQueue.push
    patch.setattr(RowQueue, "push", lambda self, rows, times: right(self, rows, times + SECOND))


def a_row_leaves_its_values_behind(patch: pytest.MonkeyPatch) -> None:
    right = Bag.clear
    patch.setattr(Bag, "clear", lambda self, rows: right(self, rows[1:]))


def segments_are_not_sorted(patch: pytest.MonkeyPatch) -> None:
    right = Segments._replace_tails

    def replace(self: Any, keys: Any, begin: Any, rows: Any, lengths: Any) -> None:
        flipped = rows[::-1] if len(keys) == 1 else rows
        right(self, keys, begin, flipped, lengths)

    patch.setattr(Segments, "_replace_tails", replace)


@pytest.mark.parametrize(
    ("plant", "machine"),
    [
        (index_keeps_removed_rows, OnlyChecks),
        (rows_are_queued_too_late, OnlyChecks),
        (a_row_leaves_its_values_behind, OnlyChecks),
        (segments_are_not_sorted, OnlyChecksOfMerging),
    ],
)
def test_a_broken_structure_is_found(
    plant: Any, machine: type[OnlyChecks], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError) as caught:
        run_state_machine_as_test(machine, settings=SEEDED)
    frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert "_check" in frames, "something else failed first"
