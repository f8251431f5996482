"""Runs a per-record process: hooks are called record by record, timer by timer.

The file is long because hooks may set timers that are due at once, emit, clear and fail, and the
order of these effects is the contract (S-K3 to S-K9).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np

from lowwater.engine.process.cell import ScopeCursor
from lowwater.engine.process.cells import CELLS
from lowwater.engine.process.context import HookBounds, TimerState, context_type, timer_event
from lowwater.engine.process.definition import Definition, gave_back, hint_of
from lowwater.engine.process.key_parts import SHIFT
from lowwater.engine.process.outputs import OutputBuffer
from lowwater.engine.process.own_attributes import OwnAttributes
from lowwater.engine.process.record_persistence import StoredProcess
from lowwater.engine.process.refusals import Refusals
from lowwater.engine.process.state_keys import StateKeys
from lowwater.engine.process.stored_facts import StoredFacts
from lowwater.engine.process.timers import Chains, Due, Timers
from lowwater.engine.process.waiting_records import PassedRecords, WaitingRecords
from lowwater.engine.process.window_merging import merge_windows
from lowwater.engine.records.stage_output import NOTHING, StageOutput
from lowwater.engine.records.steps import Bundle, PlainRecords, TimerEvent
from lowwater.engine.records.stored_keys import Kinds
from lowwater.engine.window.placement import DroppedElements, Placement
from lowwater.engine.window.windowing import Windowing
from lowwater.errors import DataError, InternalError, LowwaterError, describe
from lowwater.state.arrays import distinct
from lowwater.state.key_layout import StoredPlace
from lowwater.time import (
    END_OF_TIME,
    LAST_EVENT_TIME,
    START_OF_TIME,
    Int64Array,
    format_instant,
)
from lowwater.watermark import Hold

_HALF = 1 << 62
_BEFORE_THE_END = END_OF_TIME - 1  # the place of timers of the end of time: on_end comes after them
_ROWS_AT_ONCE = 4096
"""Waiting records that become Python values at a time, which take far more memory than columns."""


@final
class RecordProcess:
    """Holds the state of a per-record process and calls its hooks.

    Args:
        definition: What the process declares.
        windowing: The windows; ``None`` for none.
        columns: The columns that records have; ``None`` for all that come.
        watermark: Input watermark to begin with, int microseconds.
        clock: Clock to begin with, int microseconds.
        in_order: Whether records come by event time, when the watermark passes them (S-K13).
        parted: Whether keys are in parts; then what is emitted says which is whose.

    ``admitted`` counts the records that ``on_record`` got and did not refuse, and ``partly`` those
    of them that were dropped from another window (S-B2).
    """

    def __init__(
        self,
        definition: Definition,
        windowing: Windowing | None,
        columns: tuple[str, ...] | None,
        watermark: int,
        clock: int,
        *,
        in_order: bool,
        parted: bool = False,
    ) -> None:
        self._definition = definition
        self._parted = parted
        self._in_order = in_order
        self._columns = columns
        self.watermark = self.output_watermark = watermark
        self.clock = clock
        self.admitted = self.partly = 0
        self._placement = None if windowing is None else Placement(windowing)
        self._cursor = ScopeCursor()
        self._by_time = False
        self._bounds = HookBounds(definition.name)
        self._state_keys = StateKeys(windowed=windowing is not None, parted=parted)
        self._cells = [
            CELLS[cell.kind](name, cell, self._cursor) for name, cell in definition.cells.items()
        ]
        self._held = [cell.held for cell in self._cells]
        self._timers = Timers([each.domain == "event" for each in definition.timers.values()])
        self._timer_names = list(definition.timers)
        self._buffers = {
            tag: OutputBuffer(signed=definition.retracts) for tag in definition.outputs
        }
        bound = {cell.name: cell for cell in self._cells} | {
            name: TimerState(name, at, self._timers, self._cursor, self._bounds)
            for at, name in enumerate(self._timer_names)
        }
        self._refusals = Refusals(definition.name)
        made = context_type(bound)
        self._context = made(self._cursor, self._bounds, self._buffers, self._refusals)
        self._context.tag = self._context.window = None
        self._on_record = definition.hook("on_record")
        self._on_timer = definition.hook("on_timer")
        self._on_window_expired = definition.hook("on_window_expired")
        self._on_end = definition.hook("on_end")
        self._chains = Chains(definition.name)
        self._bounds.context = self._context
        self._attributes = OwnAttributes(definition.process, definition.name)
        self._bounds.lowest = definition.lowest(watermark)

    def __len__(self) -> int:
        """Return how many keys (and windows) have state."""
        return len(self._state_keys)

    @property
    def next_deadline(self) -> int:
        """When the next timer of processing time is due; the end of time for none."""
        due = self._timers.next_clock
        return END_OF_TIME if due is None else due.time

    @property
    def next_event(self) -> int:
        """When something may be due next by the watermark; the end of time for nothing."""
        return self._timers.first_event

    @property
    def held_at(self) -> int:
        """The earliest output time of a timer; the end of time for none."""
        hold = self._timers.hold
        return END_OF_TIME if hold is None else hold.time

    @property
    def place(self) -> int:
        """What has the last hook run; see :class:`ScopeCursor`."""
        return self._cursor.place

    @property
    def hold_part(self) -> int:
        """The part of the key whose timer has the earliest output time."""
        due = self._timers.hold
        return 0 if due is None else due.scope >> SHIFT

    @property
    def part(self) -> int:
        """The part of the key whose hook has run last."""
        return self._cursor.scope >> SHIFT

    def become(self, kinds: Kinds) -> None:
        """Set the types of keys to those of the whole stage."""
        self._state_keys.become(kinds)

    def stand_at(self, watermark: int, clock: int, output_watermark: int) -> None:
        """Advance to where other operators of the stage are: nothing is due here until then."""
        self.watermark = max(self.watermark, watermark)
        if clock < self.next_deadline:
            self.clock = max(self.clock, clock)
        self.meet(output_watermark)

    def meet(self, output_watermark: int) -> None:
        """Set the output watermark; among operators for other keys it is the lowest of all."""
        self.output_watermark = output_watermark
        self._bounds.lowest = self._definition.lowest(output_watermark)

    def hold(self) -> Hold | None:
        """Return what holds the output watermark below the input's, if anything."""
        due = self._timers.hold
        if due is None or due.slot is None or due.time >= self.watermark:
            return None
        name, tag = self._timer_names[due.slot[0]], due.slot[1]
        tagged = "" if tag is None else f", tag {tag!r}"
        window = self._state_keys.window(due.scope)
        there = "" if window is None else f", window {window}"
        key = self._state_keys.key(due.scope)
        return Hold(
            due.time,
            f"key {key!r}{there}, timer {name!r}{tagged}, output time {format_instant(due.time)}",
        )

    def take(self, bundle: Bundle) -> StageOutput:
        """Pass each element to ``on_record``, in order of arrival."""
        if not len(bundle):
            return NOTHING
        late = DroppedElements(self.watermark)
        self._by_time = False
        self._take(bundle, late)
        self._attributes.check()
        self._refusals.finish()
        return self._done(late)

    def advance_watermark(self, to: int, passed: PassedRecords | None = None) -> StageOutput:
        """Fire the timers that are due and expire windows, in time order.

        Args:
            to: The watermark, above the last one.
            passed: The records that waited for it, in order: they come between the timers.
        """
        self._begin_advance()
        late = self._pass(passed)
        self._move_to(to)
        return self._done(late)

    def advance_clock(self, to: int) -> StageOutput:
        """Fire the timers that are due, each with the clock at its own due time (S-O8)."""
        if to <= self.clock:
            return NOTHING
        self._by_time = False
        while (due := self._timers.next_clock) is not None and due.time <= to:
            self.clock = max(self.clock, due.time)
            self._cursor.place = self.clock
            self._drain(self.watermark)
        self.clock = to
        return self._done(None)

    def end(self, passed: PassedRecords | None = None, after: int = START_OF_TIME) -> StageOutput:
        """Fire the timers due at the end of time, then end every key, and release all state.

        Args:
            passed: The records that still waited, in order: they come first.
            after: In event-time order, when the last record of all operators came.
        """
        self._begin_advance()
        late = self._pass(passed)
        if passed is not None:  # the last of them may be in no window
            after = max(after, int(passed.bundle.times[-1]))
        if self._in_order and after > self.watermark:
            self._move_to(after)
        self.watermark = END_OF_TIME
        self._drain(END_OF_TIME)
        context, bounds = self._context, self._bounds
        self._cursor.place = END_OF_TIME
        context.watermark, context.clock = self.watermark, self.clock
        for scope in self._state_keys.in_order():
            if self._on_end is not None and scope in self._state_keys.born:
                self._point(scope)
                context.time = context.due = min(self.output_watermark, LAST_EVENT_TIME)
                bounds.floor = self.output_watermark
                self._call("on_end", self._on_end, context)
        for scope in self._state_keys.in_order():
            self._release(scope)
        return self._done(late)

    def _begin_advance(self) -> None:
        """Stamp what is emitted from now on with a time of the advance."""
        self._by_time = True
        self._cursor.place = START_OF_TIME

    def _pass(self, passed: PassedRecords | None) -> DroppedElements | None:
        """Process records that waited, each with the watermark at its time (S-K13)."""
        if passed is None:
            return None
        late = DroppedElements(self.watermark)
        for start in range(0, len(passed), _ROWS_AT_ONCE):
            some = passed.slice(start, start + _ROWS_AT_ONCE)
            self._take(some.bundle, late, start, some.plain(self._columns))
        self._attributes.check()
        self._refusals.finish()
        return late

    def _move_to(self, to: int) -> None:
        """Advance the watermark; in event-time order it stops where each timer is due."""
        if not self._in_order:
            self.watermark = to
        if self._timers.event_due(to):
            self._drain(to)
        self.watermark = to

    def _take(
        self,
        bundle: Bundle,
        late: DroppedElements,
        first: int = 0,
        plain: PlainRecords | None = None,
    ) -> None:
        if self._placement is None:
            self._take_plain(bundle, plain, late, first)
        else:
            self._take_windowed(bundle, plain, self._placement, late, first)

    def _take_plain(
        self, bundle: Bundle, plain: PlainRecords | None, late: DroppedElements, first: int
    ) -> None:
        state_keys = self._state_keys
        context, cursor, bounds, timers = self._context, self._cursor, self._bounds, self._timers
        on_record, output_watermark = self._on_record, self.output_watermark
        refusals = self._refusals
        refusals.begin(late, len(bundle), np.arange(first, first + len(bundle)), None, None)
        born, held, set_timers = state_keys.born, self._held, timers.held
        context.watermark, context.clock = self.watermark, self.clock
        ids = state_keys.encode(bundle.keys, bundle.hashes)
        in_order = self._in_order
        plain = PlainRecords.of(bundle, self._columns) if plain is None else plain
        numbers = range(len(bundle))
        number = -1
        places = [_place(at, of_record=True) for at in plain.times] if in_order else numbers
        for number, place, scope, key, at, record in zip(
            numbers, places, ids, plain.keys, plain.times, plain.records, strict=True
        ):
            if in_order and at > self.watermark:
                self._move_to(at)
                context.watermark = at
            cursor.scope = scope
            cursor.place = place
            refusals.at = number
            context.key = key
            context.time = context.due = at
            bounds.floor = at if at < output_watermark else output_watermark
            try:
                returned = on_record(record, context)
            except LowwaterError:
                raise
            except Exception as error:
                raise self._failed("on_record", error) from error
            if returned is not None:
                raise gave_back("on_record", returned, self._definition.name)
            for each in held:
                if scope in each:
                    if scope not in born:
                        state_keys.bear(scope, key)
                    break
            else:
                self._settle(scope, key, scope in set_timers)
            if timers.event_due(self.watermark) or timers.clock_due(self.clock):
                self._drain(self.watermark)
        self.admitted += int(np.count_nonzero(refusals.accepted[: number + 1]))

    def _take_windowed(
        self,
        bundle: Bundle,
        plain: PlainRecords | None,
        placement: Placement,
        late: DroppedElements,
        first: int,
    ) -> None:
        # In event-time order the watermark meets each record at its time: no window has expired.
        watermark = START_OF_TIME if self._in_order else self.watermark
        since = late.parts
        element, start, end = placement.assign(bundle, watermark, late, first)
        if not len(start):
            return
        state_keys, context, timers = self._state_keys, self._context, self._timers
        every = state_keys.encode(bundle.keys, bundle.hashes)
        plain = PlainRecords.of(bundle, self._columns) if plain is None else plain
        values, times, rows = plain.keys, plain.times, plain.records
        if element is None:
            element = np.arange(len(start), dtype=np.int64)
        places = element.tolist()
        found = None
        if not self._in_order:
            found = self._scopes(placement, every, values, places, start, end)
        alone = len(places) == len(set(places))
        self._refusals.begin(late, len(places), element + first, start, end)
        number = -1
        for number, place in enumerate(places):
            at = times[place]
            if found is not None:
                scope = found[number]
            else:  # each record is a bundle of its own: what comes later shows in no window yet
                if at > self.watermark:
                    self._move_to(at)
                one = slice(number, number + 1)
                (scope,) = self._scopes(placement, every, values, [place], start[one], end[one])
            if scope not in state_keys.born:
                raise InternalError(f"a window of key {values[place]!r} is gone before its time")
            self._point(scope)
            context.time = context.due = at
            self._bounds.floor = min(at, self.output_watermark)
            record = rows[place] if alone else dict(rows[place])
            self._refusals.at = number
            self._cursor.place = _place(at, of_record=True) if self._in_order else place
            self._call("on_record", self._on_record, record, context)
            if timers.event_due(self.watermark) or timers.clock_due(self.clock):
                self._drain(self.watermark)
        given = element[: number + 1] + first
        admitted = distinct(given[self._refusals.accepted[: number + 1]])
        self.admitted += len(admitted)
        self.partly += late.among(admitted, since)

    def _scopes(
        self,
        placement: Placement,
        every: list[int],
        values: list[Any],
        places: list[int],
        start: Int64Array,
        end: Int64Array,
    ) -> list[int]:
        """Return the scope of each (element, window), opened if it is new.

        Args:
            placement: The windows.
            every: The key id of each element of the bundle.
            values: The key of each.
            places: Which element each is of.
            start: Start of each window, int64.
            end: Its end.
        """
        keys, own = [every[place] for place in places], [values[place] for place in places]
        if placement.windowing.merging is None:
            return self._find_or_open(placement, keys, start.tolist(), end.tolist(), own)
        return merge_windows(
            self._state_keys, self._cells, self._timers, placement, keys, start, end, own
        )

    def _find_or_open(
        self,
        placement: Placement,
        keys: list[int],
        starts: list[int],
        ends: list[int],
        values: list[Any],
    ) -> list[int]:
        state_keys = self._state_keys
        found: list[int] = []
        for key, start, end, value in zip(keys, starts, ends, values, strict=True):
            scope = state_keys.find(key, start, end)
            if scope is None:
                scope = state_keys.open(key, start, end, value)
                self._timers.expire_at(placement.expires(end), state_keys.born[scope], scope)
            found.append(scope)
        return found

    def _drain(self, upto: int) -> None:
        """Fire the timers due by a watermark, and those that this makes due, in time order."""
        timers, chains = self._timers, self._chains
        self._refusals.at = None
        part, reached = self._cursor.scope >> SHIFT, START_OF_TIME
        while (due := timers.pop(upto, self.clock, part, reached)) is not None:
            if due.scope >> SHIFT != part:
                part, reached = due.scope >> SHIFT, START_OF_TIME
            if timers.is_of_event(due):
                reached = max(reached, due.time)
                self.watermark = max(self.watermark, due.time)  # above it in event-time order only
                if self._by_time:
                    at = _place(due.time, of_record=False) if self._in_order else due.time
                    self._cursor.place = max(self._cursor.place, min(at, _BEFORE_THE_END))
            if due.slot is None:
                if self._state_keys.born.get(due.scope) == due.turn:
                    self._expire(due.scope)
                continue
            begun = timers.turns[part]
            depth = chains.enter(due, self._timer_names[due.slot[0]], self.watermark == END_OF_TIME)
            self._fire(due, due.slot)
            chains.leave(due, depth, range(begun, timers.turns[part]))
        chains.clear()
        self._context.tag = None

    def _fire(self, due: Due, slot: tuple[int, Any]) -> None:
        context, timers = self._context, self._timers
        setting = due.setting
        assert setting is not None, "only windows have none"
        number, context.tag = slot
        self._point(due.scope)
        at = setting.output_time
        if at is None:
            at = due.time if timers.is_event(number) else self.output_watermark
        context.due = due.time
        context.time = min(at, LAST_EVENT_TIME)
        self._bounds.floor = min(context.time, self.output_watermark)
        name = self._timer_names[number]
        if timers.log is not None:
            timers.log.append(timer_event("fired", name, context.tag, due.time, context))
        self._call("on_timer", self._on_timer, name, context)
        if self._placement is None:
            alive = due.scope in timers.held or any(due.scope in each for each in self._held)
            self._settle(due.scope, context.key, alive)

    def _expire(self, scope: int) -> None:
        """Pass a window to ``on_window_expired``, and release its state."""
        context = self._context
        if self._on_window_expired is not None:
            self._point(scope)
            context.tag = None
            _, _, end = self._state_keys.place(scope)
            context.time = context.due = min(max(end - 1, self.output_watermark), LAST_EVENT_TIME)
            self._bounds.floor = min(context.time, self.output_watermark)
            self._call("on_window_expired", self._on_window_expired, context)
        self._release(scope)

    def _point(self, scope: int) -> None:
        """Point context, cells and timers at a live scope."""
        context = self._context
        self._cursor.scope = scope
        context.key = self._state_keys.key(scope)
        context.watermark, context.clock = self.watermark, self.clock
        if self._placement is not None:
            _, _, end = self._state_keys.place(scope)
            context.window = self._state_keys.window(scope)
            self._bounds.expiry = self._placement.expires(end)

    def _call(self, name: str, hook: Any, *args: Any) -> None:
        try:
            returned = hook(*args)
        except LowwaterError:
            raise
        except Exception as error:
            raise self._failed(name, error) from error
        if returned is not None:
            raise gave_back(name, returned, self._definition.name)

    def _failed(self, name: str, error: Exception) -> DataError:
        context = self._context
        return DataError(
            f"{name} failed for {describe('key', context.key)} at {format_instant(context.time)}: "
            f"{type(error).__name__}: {error}",
            where=self._definition.name,
            hint=hint_of(error),
        )

    def _settle(self, scope: int, key: Any, alive: bool) -> None:
        """Make a key without windows live exactly while it has a cell or a timer (S-K2)."""
        if alive == (scope in self._state_keys.born):
            return
        if alive:
            self._state_keys.bear(scope, key)
        else:
            self._state_keys.bury(scope)

    def _release(self, scope: int) -> None:
        for cell in self._cells:
            cell.drop(scope)
        self._timers.drop(scope)
        self._state_keys.bury(scope)

    def _done(self, late: DroppedElements | None) -> StageOutput:
        """Advance the output watermark, and collect what was emitted."""
        self.meet(max(self.output_watermark, min(self.watermark, self.held_at)))
        outputs = {}
        for tag, buffer in self._buffers.items():
            emitted = buffer.drain(self._state_keys.describe, parted=self._parted)
            if emitted is not None:
                outputs[tag] = emitted
        self._state_keys.tidy()
        noted: Sequence[TimerEvent] = ()
        if self._timers.log:
            noted, self._timers.log = self._timers.log, []
        dropped = None if late is None else late.batch()
        return StageOutput(outputs=outputs, late=dropped, timers=noted)

    def report_timers(self) -> None:
        """Report in outputs from now on what becomes of timers, for a trace."""
        self._timers.log = []

    def stored(
        self,
        place: StoredPlace,
        places: Mapping[int, StoredPlace],
        waiting: Mapping[int, WaitingRecords] | None,
    ) -> StoredProcess:
        """Return the durable form of the state, which tracks changes from now on.

        Args:
            place: Where the first of all parts is stored.
            places: Where each part is stored, by its number.
            waiting: The records of each part that wait; ``None`` in order of arrival.
        """
        return StoredProcess(
            self._definition,
            self._state_keys,
            self._cells,
            self._timers,
            StoredFacts(
                self._definition,
                self._placement,
                place,
                "event_time" if self._in_order else "arrival",
            ),
            places,
            waiting,
        )

    def rebuild(self) -> None:
        """Rebuild what is not stored: when windows expire."""
        self._bounds.lowest = self._definition.lowest(self.output_watermark)
        if self._placement is None:
            return
        for scope, born in self._state_keys.born.items():
            end = self._state_keys.place(scope)[2]
            self._timers.expire_at(self._placement.expires(end), born, scope)


def _place(time: int, *, of_record: bool) -> int:
    """Return what is behind a time of an advance in event-time order: records come last (S-K13).

    Times after the year 148,000 are one place, as int64 is not wide enough.
    """
    return 2 * max(-_HALF, min(time, _HALF - 1)) + of_record
