"""An operator that is saved, dropped and restored amid a scenario, to be tested in its place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from unittest import mock

from hypothesis import assume
from hypothesis import strategies as st

from lowwater.engine.aggregates import AggregateSpec
from lowwater.engine.records.steps import (
    Bundle,
    EndOfInput,
    PaneBatch,
    StepInput,
    StepOutput,
    WatermarkAdvance,
)
from lowwater.engine.window import spilling
from lowwater.engine.window.operator import WindowOperator
from lowwater.engine.window.windowing import Windowing
from lowwater.errors import InvalidArgument
from lowwater.state.key_layout import StoredPlace
from lowwater.state.memory import MemoryContents, MemoryStore
from lowwater.state.store import Batch
from lowwater.testing import _drive
from lowwater.time import END_OF_TIME

SAVED, RESTORED = "saved", "restored"


class Stored:
    """An operator that is saved to a store after some of its steps, or dropped and restored.

    What happens after each step, and within advances after each portion: ``fates``, in turn. With
    ``spills`` it keeps no window in memory that it can do without, most of the time.
    """

    fates: list[str | None]
    spills: bool

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
        self._turn = 0
        self._operator = self._made()

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
            self._operator = self._made()
            assert self._operator.restore(self._store)

    def _made(self) -> WindowOperator:
        limit = 0 if self.spills and (not self._turn or self._turn % 3) else None
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


FATES = st.lists(st.sampled_from([SAVED, None, RESTORED]), min_size=1, max_size=5)


@contextmanager
def stored(windowing: Windowing, fates: list[str | None], *, spills: bool) -> Iterator[None]:
    """Have scenarios run on such an operator; discard examples that it cannot run."""
    if spills:
        try:
            windowing.require_bounded_memory()
        except InvalidArgument:
            assume(False)
    with (
        mock.patch.multiple(Stored, create=True, fates=fates, spills=spills),
        mock.patch.object(_drive, "WindowOperator", Stored),
        mock.patch.object(spilling, "AT_ONCE", 2),
    ):
        yield
