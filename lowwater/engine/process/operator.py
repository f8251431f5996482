"""The operator of a keyed computation: calls the user's hooks with state and timers per key."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, assert_never, final

import numpy as np

from lowwater.engine.process.column_execution import ColumnProcess
from lowwater.engine.process.column_persistence import StoredColumns
from lowwater.engine.process.definition import Definition
from lowwater.engine.process.key_parts import parts_of, parts_of_hashes, place_of_part
from lowwater.engine.process.outputs import Order
from lowwater.engine.process.record_execution import RecordProcess
from lowwater.engine.process.record_persistence import StoredProcess
from lowwater.engine.process.unfit import sifted
from lowwater.engine.process.waiting_records import PassedRecords, WaitingRecords
from lowwater.engine.records.stage_output import NOTHING, StageOutput
from lowwater.engine.records.steps import (
    Bundle,
    ClockAdvance,
    EndOfInput,
    StepInput,
    WatermarkAdvance,
    without_late,
)
from lowwater.engine.records.stored_keys import Kinds
from lowwater.engine.window.windowing import Windowing
from lowwater.errors import InternalError, InvalidArgument
from lowwater.state.arrays import distinct
from lowwater.state.key_layout import StoredPlace
from lowwater.state.store import Batch, StateStore
from lowwater.time import END_OF_TIME, START_OF_TIME, Int64Array
from lowwater.watermark import Hold


@final
@dataclass(frozen=True, slots=True)
class InputBundle:
    """A bundle of one of several inputs.

    Args:
        nth: Which input: at one event time, records of lower ones come first (S-K13).
        bundle: Its elements.
    """

    nth: int
    bundle: Bundle


ProcessInput: TypeAlias = StepInput | InputBundle


@final
class ProcessOperator:
    """Runs a user's process over keys, or over keys and windows (S-K1 to S-K13).

    It takes an advance of the watermark whole, and all of its state is in memory.
    A step does no I/O, reads no clock and starts no thread, unless the user's hooks do.

    Args:
        process: The user's object (see ``docs/process.md``).
        windowing: The windows and their lateness; ``None`` for a process without windows.
        order: Whether records come in order of ``"arrival"``, or of ``"event_time"``, when the
            watermark has passed them; then nothing is accepted late, whatever the lateness.
        columns: The columns that records have; ``None`` for all that come.
        watermark: Input watermark to begin with, int microseconds.
        clock: Clock to begin with, int microseconds.
        parts: The parts of the keys that it has, rising, where they are divided; per record only.

    Raises:
        InvalidArgument: The object is no process, or not one for these windows.
    """

    is_advancing = False
    is_over = False

    def __init__(
        self,
        process: object,
        *,
        windowing: Windowing | None = None,
        order: Order = "arrival",
        columns: tuple[str, ...] | None = None,
        watermark: int = START_OF_TIME,
        clock: int = START_OF_TIME,
        parts: Sequence[int] | None = None,
    ) -> None:
        self._parted = parts is not None
        self._parts = (0,) if parts is None else tuple(parts)
        self._waiting = (
            None if order == "arrival" else {part: WaitingRecords() for part in self._parts}
        )
        if self._waiting is not None and windowing is not None:
            windowing = windowing.with_(allowed_lateness=0)
        self.definition = Definition.of(process, windowing)
        given = self.definition, windowing, columns, int(watermark), int(clock)
        in_order = self._waiting is not None
        self._engine: ColumnProcess | RecordProcess
        if self.definition.vectorised:
            self._engine = ColumnProcess(*given, in_order=in_order)
        else:
            self._engine = RecordProcess(*given, in_order=in_order, parted=self._parted)
        self._stored: StoredColumns | StoredProcess | None = None

    @property
    def outputs(self) -> tuple[str, ...]:
        """The tags the process may emit to, the main one first."""
        return self.definition.outputs

    @property
    def watermark(self) -> int:
        """The input watermark, int microseconds."""
        return self._engine.watermark

    @property
    def output_watermark(self) -> int:
        """The watermark of the output: the input's, or an earlier timer's output time.

        It never goes back (S-H3, S-K6).
        """
        return self._engine.output_watermark

    @property
    def clock(self) -> int:
        """The clock, int microseconds."""
        return self._engine.clock

    @property
    def next_deadline(self) -> int:
        """The clock at which a processing-time timer is due next, or the end of time."""
        return self._engine.next_deadline

    def due_times(self) -> Int64Array:
        """Return nothing: timers are not counted by when they are due."""
        return np.zeros(0, dtype=np.int64)

    def next_due(self) -> int:
        """Return the watermark at which something may be due next, or the end of time."""
        waits = [waiting.first_passed for waiting in self._every_waiting]
        return min([*waits, self._engine.next_event])

    @property
    def last_waiting(self) -> int:
        """The time of the last record that waits, or the start of time. O(n)."""
        return max((waiting.last for waiting in self._every_waiting), default=START_OF_TIME)

    @property
    def open_windows(self) -> int:
        """How many keys (in windows: keys and windows) have state."""
        return len(self._engine)

    @property
    def state_rows(self) -> int:
        """The same, and how many records wait (S-K13).

        Nothing is kept of a key that has neither a cell nor a timer (S-K2).
        """
        return len(self._engine) + self.waiting

    @property
    def admitted(self) -> int:
        """How many records hooks got and did not refuse, each counted once (S-B2)."""
        return self._engine.admitted

    @property
    def partly(self) -> int:
        """How many of these were dropped from another of their windows."""
        return self._engine.partly

    @property
    def waiting(self) -> int:
        """How many records wait for the watermark (S-K13)."""
        return sum(map(len, self._every_waiting))

    @property
    def refused_at(self) -> tuple[int, int]:
        """Which cell of a key of which part could not be saved; of a per-record process."""
        stored = self._stored
        return stored.refused_at if isinstance(stored, StoredProcess) else (0, 0)

    @property
    def stored_kinds(self) -> Kinds | None:
        """The types of the keys that are stored, of a per-record process; ``None`` before any."""
        stored = self._stored
        return stored.kinds if isinstance(stored, StoredProcess) else None

    def hold(self) -> Hold | None:
        """Return what holds the output watermark below the input's, if anything: a key's timer."""
        return self._engine.hold()

    @property
    def records(self) -> RecordProcess:
        """What calls the hooks of a per-record process."""
        if isinstance(self._engine, ColumnProcess):
            raise InternalError("a process over columns was asked for its records")
        return self._engine

    def prepare(self, store: StateStore, step: ProcessInput) -> Iterator[ProcessInput]:
        """Yield the step: all state is in memory."""
        yield step

    def settle(self, store: StateStore) -> None:
        """Load nothing: all state is in memory."""

    def step(self, step: ProcessInput) -> StageOutput:
        """Process one input and return its output (S-O1).

        Costs O(elements + timers due * log timers), and whatever the hooks do. What cannot be held
        is in an output of its own: see :mod:`lowwater.engine.process.unfit`.

        Raises:
            DataError: A hook failed, or timers set each other without end.
            InvalidArgument: A hook asked for what there is not, or emitted below the output
                watermark.
        """
        output = self._called(step)
        if not output.outputs:
            return output
        return replace(output, outputs=sifted(output.emitted, self.definition.name))

    def _called(self, step: ProcessInput) -> StageOutput:
        """Call the hooks for one input, and return all that they emitted."""
        engine = self._engine
        match step:
            case Bundle():
                return self._take(step, 0)
            case InputBundle(nth=nth, bundle=bundle):
                return self._take(bundle, nth)
            case WatermarkAdvance(to=to, due=None):
                if to <= engine.watermark:
                    return NOTHING
                passed = self._passed(int(to))
                if isinstance(engine, ColumnProcess):
                    waited = None if passed is None else passed.bundle
                    return _of(engine.advance_watermark(int(to), waited), passed)
                return _of(engine.advance_watermark(int(to), passed), passed)
            case WatermarkAdvance():
                raise InvalidArgument(
                    "a process takes an advance of the watermark whole, not in portions",
                    hint="Leave due out",
                )
            case ClockAdvance(to=to):
                return engine.advance_clock(int(to))
            case EndOfInput(after=after):
                passed = self._passed(END_OF_TIME)
                if isinstance(engine, ColumnProcess):
                    return _of(engine.end(None if passed is None else passed.bundle), passed)
                return _of(engine.end(passed, after), passed)
            case _:
                assert_never(step)

    def report_to_trace(self) -> None:
        """Report in outputs from now on what becomes of timers."""
        self._engine.report_timers()

    def report_replaced(self) -> None:
        """Do nothing: it emits no panes."""

    def keep_in_store(self, place: StoredPlace, memory: int | None = None) -> None:
        """Track changes, so that :meth:`save` can write them; call it before the first step.

        Args:
            place: Where: the name of its stage, and the key groups.
            memory: Has no effect: what hooks have read can be in memory alone.
        """
        engine = self._engine
        if isinstance(engine, ColumnProcess):
            self._stored = engine.stored(place, next(iter(self._every_waiting), None))
        elif self._parted:
            places = {part: place_of_part(place.stage, part) for part in self._parts}
            first = place_of_part(place.stage, 0)
            self._stored = engine.stored(first, places, self._waiting)
        else:
            self._stored = engine.stored(place, {0: place}, self._waiting)

    def save(self, batch: Batch) -> None:
        """Add what changed since the last save to a batch of a store. O(changed).

        Raises:
            StateError: A cell holds what cannot be stored; the message names cell and key.
        """
        engine = self._engine
        facts = {
            "watermark": engine.watermark,
            "clock": engine.clock,
            "output watermark": engine.output_watermark,
        }
        self._kept().write(batch, facts)

    def restore(self, store: StateStore) -> bool:
        """Load what was saved in a store, before the first step; return whether there was any.

        Raises:
            StateError: What is stored is damaged, of another layout, or another process's.
        """
        facts = self._kept().load(store)
        if facts is None:
            return False
        engine = self._engine
        engine.watermark, engine.clock = facts["watermark"], facts["clock"]
        engine.output_watermark = facts["output watermark"]
        engine.rebuild()
        return True

    def _take(self, bundle: Bundle, nth: int) -> StageOutput:
        engine, waiting = self._engine, self._waiting
        if waiting is None:
            return engine.take(bundle)
        late, timely = without_late(bundle, engine.watermark, engine.watermark)
        if timely is not None:
            bundle = bundle.take(timely)
        if len(bundle) and not self._parted:
            waiting[0].put(bundle, nth)
        elif len(bundle):
            hashes = bundle.hashes
            parts = parts_of(bundle.keys) if hashes is None else parts_of_hashes(hashes)
            for part in distinct(parts).tolist():
                waiting[part].put(bundle.take(np.flatnonzero(parts == part)), nth)
        return NOTHING if late is None else StageOutput(late=late)

    @property
    def _every_waiting(self) -> Collection[WaitingRecords]:
        return () if self._waiting is None else self._waiting.values()

    def _passed(self, watermark: int) -> PassedRecords | None:
        """Return the records that waited for a watermark, in order."""
        every = [waiting.take_before(watermark) for waiting in self._every_waiting]
        passed = [each for each in every if each is not None]
        return PassedRecords.of_parts(passed) if passed else None

    def _kept(self) -> StoredColumns | StoredProcess:
        if self._stored is None:
            raise InternalError("keep_in_store was not called")
        return self._stored


def _of(output: StageOutput, passed: PassedRecords | None) -> StageOutput:
    """Return an output that says which records its late elements are, of those that waited."""
    if output.late is None or passed is None:
        return output
    # A record that was dropped from several windows is one record (S-B2).
    elements, element = np.unique(output.late.element, return_inverse=True)
    late = replace(output.late, element=element)
    return replace(output, late=late, late_of=passed.take(elements))
