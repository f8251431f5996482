"""An operator that is saved, dropped and restored amid a scenario, to be tested in its place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from unittest import mock

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from lowwater.engine.aggregates import AggregateSpec
from lowwater.engine.records import stored_keys
from lowwater.engine.records.columns import Column
from lowwater.engine.records.key_hash import hash_keys
from lowwater.engine.records.stage_output import StageOutput, only
from lowwater.engine.records.steps import (
    Bundle,
    ClockAdvance,
    EndOfInput,
    PaneBatch,
    StepInput,
    WatermarkAdvance,
)
from lowwater.engine.window import spilling
from lowwater.engine.window.inspect import InspectedWindows
from lowwater.engine.window.operator import WindowOperator
from lowwater.engine.window.windowing import Windowing
from lowwater.state import hashed_places
from lowwater.state.key_layout import StoredPlace
from lowwater.state.memory import MemoryContents, MemoryStore
from lowwater.state.store import Batch
from lowwater.testing import _drive
from lowwater.time import END_OF_TIME
from tests.kernels import alternating

SAVED, RESTORED = "saved", "restored"
PLACE = StoredPlace("stage 7", 0, 4)


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
        self.step = alternating(self.step)  # type: ignore[method-assign]
        self._windowing = windowing
        self._aggregates = aggregates
        self._start = (watermark, clock)
        self._signed = signed
        self._store = MemoryStore(MemoryContents())
        self._turn = 0
        self._operator = self._made()

    is_advancing = False

    @property
    def admitted(self) -> int:
        return self._operator.admitted

    @property
    def partly(self) -> int:
        return self._operator.partly

    @property
    def waiting(self) -> int:
        return self._operator.waiting

    def step(self, step: StepInput) -> StageOutput:
        parts: list[PaneBatch] = []
        if isinstance(step, Bundle):
            self._operator.load(self._store, step)
        elif isinstance(step, ClockAdvance):
            self._operator.load_timers(self._store, step.to)
        elif isinstance(step, WatermarkAdvance | EndOfInput):
            to = END_OF_TIME if isinstance(step, EndOfInput) else step.to
            while (bound := self._operator.load_due(self._store, to)) is not None:
                part = self._operator.step(WatermarkAdvance(to, due=bound))
                if part.panes is not None:
                    parts.append(part.panes)
                self._operator.load_holder(self._store)
                self._fate()
        output = self._operator.step(step)
        self._operator.load_holder(self._store)
        self._fate()
        if output.panes is not None:
            parts.append(output.panes)
        return StageOutput(only(PaneBatch.concat(parts) if parts else None), late=output.late)

    def _fate(self) -> None:
        fate = self.fates[self._turn % len(self.fates)]
        self._turn += 1
        if fate is None:
            return
        batch = Batch()
        self._operator.save(batch)
        self._store.commit(batch)
        InspectedWindows(self._store, PLACE).verify()
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
        operator.keep_in_store(PLACE, memory=limit)
        if self._turn % 2 and operator._spilled is not None:  # keys stay when their windows leave
            operator._spilled._key_bytes = 1 << 30
        return operator

    @property
    def watermark(self) -> int:
        return self._operator.watermark

    @property
    def open_windows(self) -> int:
        return self._operator.open_windows

    @property
    def state_rows(self) -> int:
        return self._operator.state_rows


def two_hashes(columns: Sequence[Column]) -> NDArray[np.uint64]:
    """Return one of two numbers for each key."""
    return hash_keys(columns) % np.uint64(2)


FATES = st.lists(st.sampled_from([SAVED, None, RESTORED]), min_size=1, max_size=5)


@contextmanager
def stored(fates: list[str | None], *, spills: bool) -> Iterator[None]:
    """Have scenarios run on such an operator; keys have one of two hashes, so that many collide."""
    with (
        mock.patch.multiple(Stored, create=True, fates=fates, spills=spills),
        mock.patch.object(_drive, "WindowOperator", Stored),
        mock.patch.object(spilling, "AT_ONCE", 2),
        mock.patch.object(hashed_places, "_RANGE", 2),
        mock.patch.object(spilling, "hash_keys", two_hashes),
        mock.patch.object(stored_keys, "hash_keys", two_hashes),
    ):
        yield
