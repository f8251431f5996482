"""Drives a process operator with plain records, for tests."""

from __future__ import annotations

from typing import Any

import numpy as np

import lowwater as lw
from lowwater.engine.process import ProcessOperator
from lowwater.engine.process.outputs import Order
from lowwater.engine.records.batch import columns_of
from lowwater.engine.records.columns import Column
from lowwater.engine.records.stage_output import StageOutput
from lowwater.engine.records.steps import Bundle, ClockAdvance, EndOfInput, WatermarkAdvance
from lowwater.engine.window.windowing import Windowing
from lowwater.state.key_layout import StoredPlace
from lowwater.state.memory import MemoryContents, MemoryStore
from lowwater.state.store import Batch

Given = list[tuple[Any, int, Any]]
"""What came out of the main output: key, time, value."""

FIXED = Windowing(windows=lw.FixedWindows("10us"))
SESSIONS = Windowing(windows=lw.Sessions("10us"))


class Driven:
    """An operator, and the store it is saved in."""

    def __init__(
        self, process: object, windowing: Windowing | None = None, order: Order = "arrival"
    ) -> None:
        self._process, self._windowing, self._order = process, windowing, order
        self.store = MemoryStore(MemoryContents())
        self.operator = ProcessOperator(process, windowing=windowing, order=order)
        self.operator.keep_in_store(StoredPlace("stage 1", 0, 4))
        self.last = StageOutput()

    def take(self, *records: dict[str, Any]) -> Given:
        """Give records with a time ``t``, a key ``k`` and what else there is."""
        times = np.array([record["t"] for record in records], dtype=np.int64)
        keys = Column.of_objects([record["k"] for record in records])
        return self._given(Bundle(times, (keys,), columns_of(records)))

    def watermark(self, to: int) -> Given:
        return self._given(WatermarkAdvance(to))

    def clock(self, to: int) -> Given:
        return self._given(ClockAdvance(to))

    def end(self) -> Given:
        return self._given(EndOfInput())

    def save(self) -> Batch:
        batch = Batch()
        self.operator.save(batch)
        self.store.commit(batch)
        return batch

    def reborn(self) -> None:
        """Save, and go on with another operator that is restored."""
        self.save()
        self.operator = ProcessOperator(self._process, windowing=self._windowing, order=self._order)
        self.operator.keep_in_store(StoredPlace("stage 1", 0, 4))
        assert self.operator.restore(self.store)

    def tagged(self, tag: str) -> Given:
        """Return what the last step gave to an output."""
        emitted = self.last.emitted.get(tag)
        if emitted is None:
            return []
        return list(
            zip(emitted.keys[0].to_list(), emitted.times.tolist(), emitted.to_list(), strict=True)
        )

    def _given(self, step: Any) -> Given:
        self.last = self.operator.step(step)
        return self.tagged("main")


def process(**members: Any) -> Any:
    """Return a process with these declarations and hooks."""
    return type("Mine", (), {"on_record": lambda self, record, ctx: None, **members})()


def records(*rows: tuple[str, int]) -> list[dict[str, Any]]:
    """Return records of a key and a time."""
    return [{"k": key, "t": at} for key, at in rows]
