"""Runs a vectorised process: hooks are called bundle by bundle, with columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from lowwater.engine.process.column_cells import (
    ColumnBounds,
    ColumnCell,
    ColumnTimer,
    ColumnTimerLog,
)
from lowwater.engine.process.column_context import KeyedBatch, column_context_type
from lowwater.engine.process.column_persistence import StoredColumns
from lowwater.engine.process.column_state import NO_HOLD, UNSET, ColumnState
from lowwater.engine.process.definition import Definition, gave_back, hint_of
from lowwater.engine.process.outputs import Order
from lowwater.engine.process.refusals import Refusals
from lowwater.engine.process.stored_facts import StoredFacts
from lowwater.engine.process.timers import AFTER_THE_END, AT_ONE_INSTANT
from lowwater.engine.process.waiting_records import WaitingRecords
from lowwater.engine.records.columns import Column
from lowwater.engine.records.stage_output import NOTHING, StageOutput
from lowwater.engine.records.steps import Bundle
from lowwater.engine.window.placement import DroppedElements, Placement
from lowwater.engine.window.windowing import Windowing
from lowwater.errors import DataError, LowwaterError
from lowwater.state.arrays import distinct
from lowwater.state.deadlines import Deadlines
from lowwater.state.key_layout import StoredPlace
from lowwater.time import END_OF_TIME, LAST_EVENT_TIME, START_OF_TIME, Int64Array, format_instant
from lowwater.watermark import Hold

_SPARE = 1 << 16


@final
@dataclass(frozen=True, slots=True)
class _Placed:
    """Elements of a bundle, each in a window if there are windows; all columns of length n."""

    element: Int64Array
    keys: Int64Array
    times: Int64Array
    start: Int64Array | None
    end: Int64Array | None
    columns: Mapping[str, Column]

    def take(self, rows: Int64Array) -> _Placed:
        """Select those at ``rows``, in that order."""
        return _Placed(
            self.element[rows],
            self.keys[rows],
            self.times[rows],
            None if self.start is None else self.start[rows],
            None if self.end is None else self.end[rows],
            {name: column.take(rows) for name, column in self.columns.items()},
        )

    def slice(self, start: int, stop: int) -> _Placed:
        """Return those from ``start`` to ``stop`` (exclusive) without copying."""
        return _Placed(
            self.element[start:stop],
            self.keys[start:stop],
            self.times[start:stop],
            None if self.start is None else self.start[start:stop],
            None if self.end is None else self.end[start:stop],
            {name: column.slice(start, stop) for name, column in self.columns.items()},
        )


@final
class ColumnProcess:
    """Holds the state of a vectorised process and calls its hooks.

    Args:
        definition: What the process declares.
        windowing: The windows, which do not merge; ``None`` for none.
        columns: The columns that records have; ``None`` for all that come.
        watermark: Input watermark to begin with, int microseconds.
        clock: Clock to begin with, int microseconds.
        in_order: Whether records come by event time, when the watermark passes them (S-K13).

    ``admitted`` counts the records that ``on_records`` got and did not refuse, and ``partly`` those
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
    ) -> None:
        self._definition = definition
        self._in_order = in_order
        self._columns = columns
        self.watermark = self.output_watermark = watermark
        self.clock = clock
        self.admitted = self.partly = 0
        self._accepted: list[Int64Array] = []
        self._placement = None if windowing is None else Placement(windowing)
        lateness = None if windowing is None else windowing.lateness_us
        self._bounds = ColumnBounds(definition.name, lateness)
        self._state = ColumnState(
            definition.name, definition.cells, definition.timers, windowed=windowing is not None
        )
        self._event, self._clocked, self._holds = Deadlines(), Deadlines(), Deadlines()
        self._timers = list(definition.timers)
        domains = [definition.timers[name].domain == "event" for name in self._timers]
        self._of_event = [at for at, event in enumerate(domains) if event]
        self._of_clock = [at for at, event in enumerate(domains) if not event]
        bound: dict[str, Any] = {
            name: ColumnCell(name, cell, self._state) for name, cell in definition.cells.items()
        }
        self._log = ColumnTimerLog(self._state, windowed=windowing is not None)
        for name, event in zip(self._timers, domains, strict=True):
            queue = self._event if event else self._clocked
            bound[name] = ColumnTimer(
                name, self._state, queue, self._holds, self._bounds, self._log, event=event
            )
        made = column_context_type(bound)
        self._refusals = Refusals(definition.name)
        self._bounds.lowest = definition.lowest(watermark)
        self._context = made(
            self._state,
            self._bounds,
            definition.outputs,
            self._refusals,
            signed=definition.retracts,
        )
        self._on_records = definition.hook("on_records")
        self._on_timers = definition.hook("on_timers")
        self._on_windows_expired = definition.hook("on_windows_expired")
        self._on_keys_end = definition.hook("on_keys_end")

    def __len__(self) -> int:
        """Return how many keys (and windows) have state."""
        return len(self._state.table)

    @property
    def next_deadline(self) -> int:
        """When a timer of processing time may be due next; the end of time for none."""
        return self._clocked.first

    @property
    def next_event(self) -> int:
        """When something may be due next by the watermark; the end of time for nothing."""
        return self._event.first

    def hold(self) -> Hold | None:
        """Return what holds the output watermark below the input's, if anything. O(keys)."""
        table = self._state.table
        rows = table.live()
        best, found = self.watermark, None
        for name in self._timers:
            holds = table[f"hold:{name}"][rows]
            if rows.size and int(holds.min()) < best:
                row = rows[[int(holds.argmin())]]
                best = int(holds.min())
                key = tuple(column.to_list(exact=True)[0] for column in self._context.keys(row))
                shown = key[0] if len(key) == 1 else key
                found = Hold(
                    best, f"key {shown!r}, timer {name!r}, output time {format_instant(best)}"
                )
        return found

    def take(self, bundle: Bundle) -> StageOutput:
        """Pass a bundle to ``on_records``, then fire the timers that this made due."""
        if not len(bundle):
            return NOTHING
        late = DroppedElements(self.watermark)
        self._take(self._assigned(bundle, self.watermark, late), late)
        self._count(late)
        return self._done(late)

    def advance_watermark(self, to: int, passed: Bundle | None = None) -> StageOutput:
        """Fire the timers that are due, and expire windows.

        Args:
            to: The watermark, above the last one.
            passed: The records that waited for it, in order: they come between the timers.
        """
        late = self._pass(passed)
        self._move_to(to)
        return self._done(late)

    def _assigned(self, bundle: Bundle, watermark: int, late: DroppedElements) -> _Placed:
        """Return the elements of a bundle, each in its windows, if there are any."""
        keys = self._state.encode(bundle.keys)
        names = tuple(bundle.values) if self._columns is None else self._columns
        columns: Mapping[str, Column] = {name: bundle.values[name] for name in names}
        if self._placement is None:
            every = np.arange(len(bundle), dtype=np.int64)
            return _Placed(every, keys, bundle.times, None, None, columns)
        element, start, end = self._placement.assign(bundle, watermark, late)
        placed = _Placed(np.arange(len(bundle)), keys, bundle.times, None, None, columns)
        if element is not None:
            placed = placed.take(element)
        return replace(placed, start=start, end=end)

    def _take(self, placed: _Placed, late: DroppedElements) -> None:
        """Pass elements to ``on_records``, and fire the timers that this made due."""
        if not len(placed.keys):
            return
        rows, new = self._state.rows(placed.keys, placed.start, placed.end)
        if new.size and self._placement is not None:
            self._event.push(self._placement.expiry(self._state.table["end"][new]), new)
        times = placed.times
        batch = KeyedBatch(rows, times, times, None, placed.columns)
        self._refusals.begin(late, len(rows), placed.element, placed.start, placed.end)
        self._call("on_records", self._on_records, batch)
        self._refusals.finish()
        accepted = self._refusals.accepted
        self._accepted.append(placed.element if accepted.all() else placed.element[accepted])
        self._drain()

    def _count(self, late: DroppedElements) -> None:
        """Count the records of a bundle that were accepted, each once (S-B2)."""
        if not self._accepted:
            return
        accepted, self._accepted = np.concatenate(self._accepted), []
        if self._placement is not None:
            accepted = distinct(accepted)
            self.partly += late.among(accepted)
        self.admitted += len(accepted)

    def _pass(self, passed: Bundle | None) -> DroppedElements | None:
        """Process records that waited, in as large batches as their order allows (S-K13).

        Timers of event time may be set for any instant, so a process with such timers gets the
        records of one instant at a time. Where windows expire is known, so batches end there.
        """
        if passed is None:
            return None
        late = DroppedElements(self.watermark)
        # The watermark meets each record at its time: no window has expired.
        placed = self._assigned(passed, START_OF_TIME, late)
        times, at = placed.times, 0
        first_end = None
        if placed.end is not None:
            first_end = np.minimum.accumulate(placed.end[::-1])[::-1]
        while at < len(times):
            self._move_to(int(times[at]))
            if self._of_event:
                stop = int(np.searchsorted(times, times[at], side="right"))
            elif first_end is None:
                stop = len(times)
            else:
                upto = min(int(first_end[at]), self._event.first)
                stop = int(np.searchsorted(times, upto, side="left"))
            self._take(placed.slice(at, stop), late)
            at = stop
        self._count(late)
        return late

    def _move_to(self, to: int) -> None:
        """Advance the watermark; in event-time order it stops where each timer is due."""
        if not self._in_order:
            self.watermark = to
            self._drain()
            return
        while self._event.first <= to:
            self.watermark = max(self.watermark, self._event.first)
            self._drain()
        self.watermark = max(self.watermark, to)

    def advance_clock(self, to: int) -> StageOutput:
        """Fire the timers that are due, each with the clock at its own due time (S-O8)."""
        if to <= self.clock:
            return NOTHING
        while (first := self._clocked.first) <= min(to, END_OF_TIME - 1):
            self.clock = max(self.clock, first)
            self._drain()
        self.clock = to
        return self._done(None)

    def end(self, passed: Bundle | None = None) -> StageOutput:
        """Fire what is due at the end of time, then end every key, and release all state.

        Args:
            passed: The records that still waited, in order: they come first.
        """
        late = self._pass(passed)
        self.watermark = END_OF_TIME
        self._drain()
        rows = self._state.by_birth(self._state.table.live())
        if rows.size and self._on_keys_end is not None:
            at = np.full(len(rows), min(self.output_watermark, LAST_EVENT_TIME), dtype=np.int64)
            self._call("on_keys_end", self._on_keys_end, KeyedBatch(rows, at, at, None, {}))
        self._state.release(rows)
        return self._done(late)

    def _drain(self) -> None:
        """Fire the timers that are due, and those they make due: of each key in time order."""
        rounds = still = 0
        before: int | None = None
        rows = np.empty(0, dtype=np.int64)
        expiring: list[Int64Array] = []
        while True:
            found = [rows]
            for queue, upto in ((self._event, self.watermark), (self._clocked, self.clock)):
                if queue.first <= upto:
                    found.append(queue.pop(upto)[1])
            rows = distinct(np.concatenate(found))
            rows = rows[self._state.table.alive(rows)]
            if not rows.size:
                break
            if self._placement is not None:
                expiring.append(rows)
            rows, due, which = self._next_of(rows)
            if not rows.size:
                continue
            first = int(due.min())
            still = still + 1 if before is not None and first <= before else 0
            before = first if before is None else max(before, first)
            rounds += 1
            if still >= AT_ONE_INSTANT:
                raise self._endless(f"{still:,} times at {format_instant(before)}", which)
            if self.watermark == END_OF_TIME and rounds >= AFTER_THE_END:
                raise self._endless(f"{rounds:,} times since the input has ended", which)
            self._fire(rows, due, which)
        if expiring and self._placement is not None:
            self._expire(distinct(np.concatenate(expiring)), self._placement)

    def _next_of(self, rows: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
        """Return (row, time, which timer) for the rows with a timer due: of each the first.

        Timers of event time come before those of processing time.
        """
        table = self._state.table
        due = np.full(len(rows), END_OF_TIME, dtype=np.int64)
        which = np.full(len(rows), -1, dtype=np.int64)
        for numbers, upto in ((self._of_event, self.watermark), (self._of_clock, self.clock)):
            taken = which >= 0
            for at in numbers:
                times = table[f"time:{self._timers[at]}"][rows]
                better = ~taken & (times != UNSET) & (times <= upto)
                better &= (times < due) | (which < 0)
                due[better], which[better] = times[better], at
        is_due = which >= 0
        return rows[is_due], due[is_due], which[is_due]

    def _fire(self, rows: Int64Array, due: Int64Array, which: Int64Array) -> None:
        table, state = self._state.table, self._state
        for at in distinct(which).tolist():
            chosen = np.flatnonzero(which == at)
            chosen = chosen[np.lexsort((table["born"][rows[chosen]], due[chosen]))]
            mine, times = rows[chosen], due[chosen]
            name = self._timers[at]
            # A hook that ran earlier in this round, for another key, may have cleared the timer or
            # released the row. (Of one key only one timer fires in a round.)
            kept = state.table.alive(mine) & (table[f"time:{name}"][mine] == times)
            mine, times = mine[kept], times[kept]
            holds = table[f"hold:{name}"][mine]
            table[f"time:{name}"][mine] = UNSET
            table[f"hold:{name}"][mine] = NO_HOLD
            state.touch(mine)
            own = times if at in self._of_event else np.full_like(times, self.output_watermark)
            at_output = np.minimum(np.where(holds == NO_HOLD, own, holds), LAST_EVENT_TIME)
            if len(mine):
                self._log.fired(name, mine, times, at_output, self.watermark, self.clock)
                self._call(
                    "on_timers", self._on_timers, KeyedBatch(mine, at_output, times, name, {})
                )

    def _expire(self, rows: Int64Array, placement: Placement) -> None:
        """Pass windows that have expired to ``on_windows_expired``, and release their rows."""
        state, table = self._state, self._state.table
        end = table["end"][rows]
        rows = rows[state.table.alive(rows) & (placement.expiry(end) <= self.watermark)]
        if not rows.size:
            return
        end = table["end"][rows]
        order = np.lexsort((table["born"][rows], table["start"][rows], end))
        rows, end = rows[order], end[order]
        if self._on_windows_expired is not None:
            at = np.minimum(np.maximum(end - 1, self.output_watermark), LAST_EVENT_TIME)
            self._call(
                "on_windows_expired", self._on_windows_expired, KeyedBatch(rows, at, at, None, {})
            )
        state.release(rows)

    def _call(self, name: str, hook: Any, batch: KeyedBatch) -> None:
        context = self._context
        context.watermark, context.clock = self.watermark, self.clock
        self._log.begin(batch.ids, batch.times, self.watermark, self.clock)
        self._bounds.floor = min(int(batch.times.min()), self.output_watermark)
        try:
            returned = hook(batch, context)
        except LowwaterError:
            raise
        except Exception as error:
            raise DataError(
                f"{name} failed: {type(error).__name__}: {error}",
                where=self._definition.name,
                hint=hint_of(error),
            ) from error
        if returned is not None:
            raise gave_back(name, returned, self._definition.name)

    def _endless(self, how: str, which: Int64Array) -> DataError:
        return DataError(
            f"timers have set each other {how}, the last of them {self._timers[int(which[0])]!r}",
            where=self._definition.name,
            hint="Set them for later than batch.due, and not once ctx.ended is true",
        )

    def _done(self, late: DroppedElements | None) -> StageOutput:
        """Release empty keys, advance the output watermark, and collect what was emitted."""
        state = self._state
        rows = state.touched()
        if rows.size and self._placement is None:
            rows = rows[state.table.alive(rows)]
            state.release(rows[state.is_empty(rows)])
        self.output_watermark = max(self.output_watermark, min(self.watermark, self._hold()))
        self._bounds.lowest = self._definition.lowest(self.output_watermark)
        outputs = self._context.drain()
        state.forget_keys()
        self._tidy()
        dropped = None if late is None else late.batch()
        return StageOutput(outputs=outputs, late=dropped, timers=self._log.take())

    def report_timers(self) -> None:
        """Report in outputs from now on what becomes of timers, for a trace."""
        self._log.is_open = True

    def _hold(self) -> int:
        """Return the earliest output time that is held. Amortised over the entries pushed."""
        return self._holds.first_that(self._is_held, self.watermark)

    def _is_held(self, times: Int64Array, rows: Int64Array) -> np.ndarray[Any, Any]:
        held = np.zeros(len(rows), dtype=np.bool_)
        for name in self._timers:
            held |= self._state.table[f"hold:{name}"][rows] == times
        return held & self._state.table.alive(rows)

    def _tidy(self) -> None:
        """Remove stale entries from the queues, once most are stale.

        Queues are lazy: a timer that moves or is cleared leaves its entry, and the column of times
        is authoritative.
        """
        table = self._state.table
        for queue, numbers in ((self._event, self._of_event), (self._clocked, self._of_clock)):
            if len(queue) <= (len(numbers) + 2) * 2 * len(table) + _SPARE:
                continue

            def holds(
                times: Int64Array, rows: Int64Array, numbers: list[int] = numbers
            ) -> np.ndarray[Any, Any]:
                held = np.zeros(len(rows), dtype=np.bool_)
                for at in numbers:
                    held |= table[f"time:{self._timers[at]}"][rows] == times
                if self._placement is not None:
                    held |= self._placement.expiry(table["end"][rows]) == times
                return held & table.alive(rows)

            queue.retain(holds)
        if len(self._holds) > (len(self._timers) + 1) * 2 * len(table) + _SPARE:
            self._holds.retain(self._is_held)

    def stored(self, place: StoredPlace, waiting: WaitingRecords | None) -> StoredColumns:
        """Return the durable form of the state, which tracks changes from now on."""
        order: Order = "arrival" if waiting is None else "event_time"
        facts = StoredFacts(self._definition, self._placement, place, order)
        return StoredColumns(self._definition, self._state, facts, waiting)

    def rebuild(self) -> None:
        """Rebuild what is not stored: how rows are found, and the queues."""
        table = self._state.table
        rows = table.live()
        self._bounds.lowest = self._definition.lowest(self.output_watermark)
        self._state.rebuild(rows)
        for at, name in enumerate(self._timers):
            times, holds = table[f"time:{name}"][rows], table[f"hold:{name}"][rows]
            is_set, held = times != UNSET, holds != NO_HOLD
            queue = self._event if at in self._of_event else self._clocked
            queue.push(times[is_set], rows[is_set])
            self._holds.push(holds[held], rows[held])
        if self._placement is not None:
            self._event.push(self._placement.expiry(table["end"][rows]), rows)
