"""The operator whose records leave as they came: of streams run by themselves, or once per id."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never, final

import numpy as np

from lowwater.engine.records.stage_output import NOTHING, Emitted, StageOutput, only
from lowwater.engine.records.steps import (
    Bundle,
    ClockAdvance,
    EndOfInput,
    StepInput,
    WatermarkAdvance,
)
from lowwater.errors import InternalError
from lowwater.state.codec import decode, encode
from lowwater.state.formats import FORMATS, check_format, damaged, decoding
from lowwater.state.key_layout import StoredPlace
from lowwater.state.store import Batch, StateStore
from lowwater.time import END_OF_TIME, START_OF_TIME, Int64Array

FORMAT = "passed records"
FACTS = 0
"""Tag of its only table."""
TABLES = {FACTS: "facts"}
_WHAT = "the stored facts of a stream"


@final
class PassingOperator:
    """Emits the records of each bundle with their times and signs; it keeps none.

    Args:
        signed: Whether records may be retractions (S-C1).
    """

    is_advancing = False
    is_over = False
    next_deadline = END_OF_TIME
    open_windows = 0
    state_rows = 0
    partly = waiting = 0

    def __init__(self, *, signed: bool) -> None:
        self.watermark = self.clock = START_OF_TIME
        self.admitted = 0  # the records that were passed on (S-B2)
        self._signed = signed
        self._place: StoredPlace | None = None

    @property
    def output_watermark(self) -> int:
        """The input watermark: nothing is held."""
        return self.watermark

    def due_times(self) -> Int64Array:
        """Return nothing: timers are not counted by when they are due."""
        return np.zeros(0, dtype=np.int64)

    def next_due(self) -> int:
        """Return the end of time: nothing waits."""
        return END_OF_TIME

    def hold(self) -> None:
        """Return what holds the output watermark: nothing."""

    def prepare(self, store: StateStore, step: StepInput) -> Iterator[StepInput]:
        """Yield the step: all state is in memory."""
        yield step

    def settle(self, store: StateStore) -> None:
        """Load nothing: all state is in memory."""

    def step(self, step: StepInput) -> StageOutput:
        """Process one input and return its output. O(1), as columns are passed on."""
        match step:
            case Bundle() if len(step):
                signs = step.signs
                if signs is None and self._signed:
                    signs = np.ones(len(step), dtype=np.int8)
                emitted = Emitted(step.times, step.keys, step.values, signs=signs, is_plain=True)
                self.admitted += len(emitted)
                return StageOutput(only(emitted))
            case Bundle():
                return NOTHING
            case WatermarkAdvance(to=to):
                self.watermark = max(self.watermark, int(to))
            case ClockAdvance(to=to):
                self.clock = max(self.clock, int(to))
            case EndOfInput():
                self.watermark = END_OF_TIME
            case _:
                assert_never(step)
        return NOTHING

    def report_to_trace(self) -> None:
        """Do nothing: there are no windows."""

    def report_replaced(self) -> None:
        """Do nothing: there are no windows."""

    def keep_in_store(self, place: StoredPlace, memory: int | None = None) -> None:
        """Set where :meth:`save` writes; call it before the first step."""
        self._place = place

    def save(self, batch: Batch) -> None:
        """Add watermark and clock to a batch of a store."""
        record = {"layout": FORMATS[FORMAT], "watermark": self.watermark, "clock": self.clock}
        batch.put([self._facts()], [encode(record)])

    def restore(self, store: StateStore) -> bool:
        """Load what was saved in a store, before the first step; return whether there was any.

        Raises:
            StateError: What is stored is damaged, or of another layout.
        """
        (data,) = store.get([self._facts()])
        if data is None:
            return False
        with decoding(_WHAT):
            record = decode(data)
            check_format(FORMAT, record["layout"])
            times = record["watermark"], record["clock"]
            for at in times:
                if type(at) is not int or not START_OF_TIME <= at <= END_OF_TIME:
                    raise damaged(_WHAT, f"there is a time {at!r}")
            self.watermark, self.clock = times
        return True

    def _facts(self) -> bytes:
        if self._place is None:
            raise InternalError("keep_in_store was not called")
        return self._place.prefix(FACTS)


def verify_passing(store: StateStore, place: StoredPlace) -> None:
    """Read what a stream that is run by itself has saved.

    Raises:
        StateError: It is damaged.
    """
    operator = PassingOperator(signed=False)
    operator.keep_in_store(place)
    operator.restore(store)
