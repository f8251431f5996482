"""Runs a per-record process: hooks are called record by record, timer by timer."""

from __future__ import annotations

from itertools import repeat
from typing import Any, final

from lowwater.engine.process.cell import Cursor
from lowwater.engine.process.cells import CELLS
from lowwater.engine.process.chains import Chains
from lowwater.engine.process.context import context_type
from lowwater.engine.process.definition import Definition, gave_back, mend_of
from lowwater.engine.process.output import NOTHING, ProcessOutput, Sink
from lowwater.engine.process.persistence import StoredProcess
from lowwater.engine.process.state_keys import Scopes
from lowwater.engine.process.timer_state import Moment, TimerState
from lowwater.engine.process.timers import Due, Timers
from lowwater.engine.process.window_merging import merge_windows
from lowwater.engine.records.steps import Bundle, key_values
from lowwater.engine.window.placement import Dropped, Placement
from lowwater.engine.window.windowing import Windowing
from lowwater.errors import DataError, InternalError, LowwaterError, describe
from lowwater.state.store import Batch, StateStore
from lowwater.time import END_OF_TIME, LAST_EVENT_TIME, format_instant
from lowwater.watermark import Hold


@final
class RecordProcess:
    """The state of a per-record process and the one way in which its hooks are called.

    Args:
        definition: What the process declares.
        windowing: The windows; ``None`` for none.
        columns: The columns that records have; ``None`` for all that come.
        watermark: Input watermark to begin with, int microseconds.
        clock: Clock to begin with, int microseconds.
    """

    def __init__(
        self,
        definition: Definition,
        windowing: Windowing | None,
        columns: tuple[str, ...] | None,
        watermark: int,
        clock: int,
    ) -> None:
        self._definition = definition
        self._columns = columns
        self.watermark = self.output_watermark = watermark
        self.clock = clock
        self._placement = None if windowing is None else Placement(windowing)
        self._cursor = Cursor()
        self._moment = Moment(definition.name)
        self._scopes = Scopes(windowed=windowing is not None)
        self._cells = [
            CELLS[cell.kind](name, cell, self._cursor) for name, cell in definition.cells.items()
        ]
        self._held = [cell.held for cell in self._cells]
        self._timers = Timers([each.domain == "event" for each in definition.timers.values()])
        self._timer_names = list(definition.timers)
        self._sinks = {tag: Sink() for tag in definition.outputs}
        bound = {cell.name: cell for cell in self._cells} | {
            name: TimerState(name, at, self._timers, self._cursor, self._moment)
            for at, name in enumerate(self._timer_names)
        }
        self._context = context_type(bound)(self._cursor, self._moment, self._sinks)
        self._context.tag = self._context.window = None
        self._on_record = definition.hook("on_record")
        self._on_timer = definition.hook("on_timer")
        self._on_window_expired = definition.hook("on_window_expired")
        self._on_end = definition.hook("on_end")
        self._chains = Chains(definition.name)
        self._stored: StoredProcess | None = None

    def __len__(self) -> int:
        """Return how many keys (and windows) have state."""
        return len(self._scopes)

    @property
    def next_deadline(self) -> int:
        """When the next timer of processing time is due; the end of time for none."""
        due = self._timers.next_clock
        return END_OF_TIME if due is None else due.time

    def hold(self) -> Hold | None:
        """Return what holds the output watermark below the input's, if anything."""
        due = self._timers.hold
        if due is None or due.slot is None or due.time >= self.watermark:
            return None
        name, tag = self._timer_names[due.slot[0]], due.slot[1]
        tagged = "" if tag is None else f", tag {tag!r}"
        window = self._scopes.window(due.scope)
        there = "" if window is None else f", window {window}"
        key = self._scopes.key(due.scope)
        return Hold(
            due.time,
            f"key {key!r}{there}, timer {name!r}{tagged}, output time {format_instant(due.time)}",
        )

    def take(self, bundle: Bundle) -> ProcessOutput:
        """Give each element to ``on_record``, in order of arrival."""
        if not len(bundle):
            return NOTHING
        late = Dropped(self.watermark)
        if self._placement is None:
            self._take_plain(bundle)
        else:
            self._take_windowed(bundle, self._placement, late)
        return self._done(late)

    def advance_watermark(self, to: int) -> ProcessOutput:
        """Fire what is due, and let windows expire, in time order."""
        if to <= self.watermark:
            return NOTHING
        self.watermark = to
        if self._timers.event_due(to):
            self._drain()
        return self._done(None)

    def advance_clock(self, to: int) -> ProcessOutput:
        """Fire what is due, each with the clock at its own due time (S-O8)."""
        if to <= self.clock:
            return NOTHING
        while (due := self._timers.next_clock) is not None and due.time <= to:
            self.clock = max(self.clock, due.time)
            self._drain()
        self.clock = to
        return self._done(None)

    def end(self) -> ProcessOutput:
        """Fire what is due at the end of time, then end every key, and release all state."""
        self.watermark = END_OF_TIME
        self._drain()
        context, moment = self._context, self._moment
        context.watermark, context.clock = self.watermark, self.clock
        for scope in self._scopes.in_order():
            if self._on_end is not None and scope in self._scopes.born:
                self._point(scope)
                context.time = context.due = min(self.output_watermark, LAST_EVENT_TIME)
                moment.floor = self.output_watermark
                self._call("on_end", self._on_end, context)
        for scope in self._scopes.in_order():
            self._release(scope)
        return self._done(None)

    def _take_plain(self, bundle: Bundle) -> None:
        scopes = self._scopes
        context, cursor, moment, timers = self._context, self._cursor, self._moment, self._timers
        on_record, output_watermark = self._on_record, self.output_watermark
        born, held, set_timers = scopes.born, self._held, timers.held
        context.watermark, context.clock = self.watermark, self.clock
        ids = scopes.encode(bundle.keys)
        keys = key_values(bundle.keys)
        times = bundle.times.tolist()
        for scope, key, at, record in zip(ids, keys, times, self._rows(bundle), strict=True):
            cursor.scope = scope
            context.key = key
            context.time = context.due = at
            moment.floor = at if at < output_watermark else output_watermark
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
                        scopes.bear(scope, key)
                    break
            else:
                self._settle(scope, key, scope in set_timers)
            if timers.event_due(self.watermark) or timers.clock_due(self.clock):
                self._drain()

    def _take_windowed(self, bundle: Bundle, placement: Placement, late: Dropped) -> None:
        element, start, end = placement.assign(bundle, self.watermark, late)
        if not len(start):
            return
        scopes, context, timers = self._scopes, self._context, self._timers
        every = scopes.encode(bundle.keys)
        values = key_values(bundle.keys)
        places = list(range(len(start))) if element is None else element.tolist()
        keys = [every[place] for place in places]
        if placement.windowing.merging is None:
            found = self._find_or_open(
                placement, keys, start.tolist(), end.tolist(), [values[place] for place in places]
            )
        else:
            found = merge_windows(
                scopes, self._cells, timers, placement, keys, start, end,
                [values[place] for place in places],
            )  # fmt: skip
        rows, times = self._rows(bundle), bundle.times.tolist()
        alone = len(places) == len(set(places))
        for place, scope in zip(places, found, strict=True):
            if scope not in scopes.born:
                raise InternalError(f"a window of key {values[place]!r} is gone before its time")
            at = times[place]
            self._point(scope)
            context.time = context.due = at
            self._moment.floor = min(at, self.output_watermark)
            record = rows[place] if alone else dict(rows[place])
            self._call("on_record", self._on_record, record, context)
            if timers.event_due(self.watermark) or timers.clock_due(self.clock):
                self._drain()

    def _find_or_open(
        self,
        placement: Placement,
        keys: list[int],
        starts: list[int],
        ends: list[int],
        values: list[Any],
    ) -> list[int]:
        scopes = self._scopes
        found: list[int] = []
        for key, start, end, value in zip(keys, starts, ends, values, strict=True):
            scope = scopes.find(key, start, end)
            if scope is None:
                scope = scopes.open(key, start, end, value)
                self._timers.expire_at(placement.expires(end), scopes.born[scope], scope)
            found.append(scope)
        return found

    def _drain(self) -> None:
        """Fire what is due by now, and what that makes due, in time order."""
        timers, chains = self._timers, self._chains
        while True:
            due = timers.pop_event(self.watermark) or timers.pop_clock(self.clock)
            if due is None:
                break
            if due.slot is None:
                if self._scopes.born.get(due.scope) == due.turn:
                    self._expire(due.scope)
                continue
            begun = timers.turn
            depth = chains.enter(due, self._timer_names[due.slot[0]], self.watermark == END_OF_TIME)
            self._fire(due, due.slot)
            chains.leave(due, depth, range(begun, timers.turn))
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
        self._moment.floor = min(context.time, self.output_watermark)
        self._call("on_timer", self._on_timer, self._timer_names[number], context)
        if self._placement is None:
            alive = due.scope in timers.held or any(due.scope in each for each in self._held)
            self._settle(due.scope, context.key, alive)

    def _expire(self, scope: int) -> None:
        """Give a window to ``on_window_expired`` and release its state."""
        context = self._context
        if self._on_window_expired is not None:
            self._point(scope)
            context.tag = None
            _, _, end = self._scopes.place(scope)
            context.time = context.due = min(max(end - 1, self.output_watermark), LAST_EVENT_TIME)
            self._moment.floor = min(context.time, self.output_watermark)
            self._call("on_window_expired", self._on_window_expired, context)
        self._release(scope)

    def _point(self, scope: int) -> None:
        """Have context, cells and timers show a live scope."""
        context = self._context
        self._cursor.scope = scope
        context.key = self._scopes.key(scope)
        context.watermark, context.clock = self.watermark, self.clock
        if self._placement is not None:
            _, _, end = self._scopes.place(scope)
            context.window = self._scopes.window(scope)
            self._moment.expiry = self._placement.expires(end)

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
            hint=mend_of(error),
        )

    def _settle(self, scope: int, key: Any, alive: bool) -> None:
        """Have a key without windows be live exactly while it has a cell or a timer (S-K2)."""
        if alive == (scope in self._scopes.born):
            return
        if alive:
            self._scopes.bear(scope, key)
        else:
            self._scopes.bury(scope)

    def _release(self, scope: int) -> None:
        for cell in self._cells:
            cell.drop(scope)
        self._timers.drop(scope)
        self._scopes.bury(scope)

    def _rows(self, bundle: Bundle) -> list[dict[str, Any]]:
        names = tuple(bundle.values) if self._columns is None else self._columns
        if not names:
            return [{} for _ in repeat(None, len(bundle))]
        columns = [bundle.values[name].to_list() for name in names]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def _done(self, late: Dropped | None) -> ProcessOutput:
        """Let the output watermark move on, and gather what was emitted."""
        hold = self._timers.hold
        low = self.watermark if hold is None else min(self.watermark, hold.time)
        self.output_watermark = max(self.output_watermark, low)
        outputs = {}
        for tag, sink in self._sinks.items():
            emitted = sink.drain(self._scopes.describe)
            if emitted is not None:
                outputs[tag] = emitted
        self._scopes.tidy()
        return ProcessOutput(outputs, None if late is None else late.batch())

    def keep_in_store(self, operator: int, group: int) -> None:
        """Have changes noted, so that they can be saved; before the first step."""
        self._stored = StoredProcess(
            self._definition, self._scopes, self._cells, self._timers, operator, group
        )

    def save(self, batch: Batch) -> None:
        """Add what changed since the last save to a batch. O(changed)."""
        facts = {
            "watermark": self.watermark,
            "clock": self.clock,
            "output watermark": self.output_watermark,
        }
        self._kept().write(batch, facts, self._placement)

    def restore(self, store: StateStore) -> bool:
        """Take up what was saved, if anything was."""
        facts = self._kept().load(store, self._placement)
        if facts is None:
            return False
        self.watermark = facts["watermark"]
        self.clock = facts["clock"]
        self.output_watermark = facts["output watermark"]
        return True

    def _kept(self) -> StoredProcess:
        if self._stored is None:
            raise InternalError("keep_in_store was not called")
        return self._stored
