"""GroupByKeyAndWindow: the window operator, the one implementation of the semantics.

State is columns with a row per open window. A step takes a bundle as columns, places its elements
into rows, aggregates them, evaluates the trigger of the touched rows and emits panes as columns. It
does no I/O, reads no clock, starts no thread and draws no random number (S-T4).

The file is long because bundles, clock, watermark and end of input go through one settle path,
which is read in one place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, assert_never, final

import numpy as np

from lowwater.engine.aggregates import AggregateSpec, signed_specs
from lowwater.engine.records.columns import Mask
from lowwater.engine.records.stage_output import NOTHING, StageOutput, only
from lowwater.engine.records.steps import (
    CLOSED,
    EARLY,
    LATE,
    ON_TIME,
    Bundle,
    ClockAdvance,
    EndOfInput,
    PaneBatch,
    StepInput,
    WatermarkAdvance,
)
from lowwater.engine.window.emission import Firing, PaneOrder, emit
from lowwater.engine.window.merging import Placed, place_merging, place_plain
from lowwater.engine.window.placement import DroppedElements
from lowwater.engine.window.schedule import Schedule
from lowwater.engine.window.slices import SharedWindows, Slices
from lowwater.engine.window.window_state import WindowState
from lowwater.engine.window.windowing import Windowing
from lowwater.errors import InternalError
from lowwater.kernels import kernels
from lowwater.state.key_layout import StoredPlace
from lowwater.state.store import Batch, StateStore
from lowwater.time import END_OF_TIME, START_OF_TIME, Int64Array, saturating_add
from lowwater.triggers._machine import FedElements, Moments
from lowwater.watermark import Hold

if TYPE_CHECKING:
    from lowwater.engine.window.filling import Filler
    from lowwater.engine.window.persistence import StoredState
    from lowwater.engine.window.spilling import SpilledWindows


@final
class WindowOperator:
    """Groups elements by key and window, and emits panes as the windowing says.

    ``watermark`` is the input watermark and ``clock`` the clock, int microseconds. ``admitted``
    counts the elements added to a window, and ``partly`` those of them that were dropped from
    another one (S-B2).

    Args:
        windowing: Windows, trigger, accumulation and the rest.
        aggregates: What panes hold, by output name.
        watermark: Input watermark to begin with, int microseconds.
        clock: Clock to begin with, int microseconds.
        signed: Whether bundles may retract elements (S-C1). Aggregates then keep what retractions
            need, and state that was saved unsigned is not restored.

    Raises:
        InvalidArgument: The operator is signed, and panes would hold differences of an aggregate
            that has none (S-C5).
    """

    def __init__(
        self,
        windowing: Windowing,
        aggregates: Mapping[str, AggregateSpec],
        *,
        watermark: int = START_OF_TIME,
        clock: int = START_OF_TIME,
        signed: bool = False,
    ) -> None:
        if windowing.fill is not None:
            from lowwater.engine.aggregates.filled import with_is_filled

            aggregates = with_is_filled(aggregates)
        self._windowing = windowing
        self._signed = signed
        if signed:
            aggregates = signed_specs(aggregates, differences=windowing.shows_differences)
        self._state = WindowState(windowing, aggregates)
        self._placement = self._state.placement
        self._machine = self._state.machine
        self.watermark = int(watermark)
        self.clock = int(clock)
        self.admitted = self.partly = 0
        self._arrived = 0
        self._stored: StoredState | None = None
        self._spilled: SpilledWindows | None = None
        self._reports_merges = False
        self._schedule = Schedule(self._state)
        # With timestamps="end" a window holds the output watermark only once it is complete, and
        # completion is a step of its own that notes the hold, unless the trigger does not wait for
        # it and the window expires later.
        self._holds_at_once = windowing.timestamps != "end" or (
            windowing.lateness_us > 0 and not self._machine.watches_completion
        )
        # A merge may leave a window smaller than it was.
        self._filler: Filler | None = None
        if windowing.fill is not None:
            from lowwater.engine.window.filling import Filler

            self._filler = Filler(self._state, windowing.fill)
        self._shrinks = windowing.windows.merge_scope == "key"
        self._output_watermark = START_OF_TIME
        # While an advance in portions is under way: the watermark before it, and the bound up to
        # which due windows have been handled.
        self._advancing: tuple[int, int] | None = None

    waiting = 0
    """How many elements wait for the watermark: none, as each goes to its windows at once."""

    @property
    def is_advancing(self) -> bool:
        """Whether the watermark is moving in portions, with more to come."""
        return self._advancing is not None

    @property
    def next_deadline(self) -> int:
        """The clock at which a processing-time timer may be due next, or the end of time."""
        first = self._schedule.by_clock.first
        return min(first, self._spilled.timers.first) if self._spilled else first

    def due_times(self) -> Int64Array:
        """Return the watermark at which each window in memory is due next. O(windows)."""
        return self._waits(self._state.table.live())[0]

    def next_due(self) -> int:
        """Return the watermark at which a window is next due, or the end of time. O(windows)."""
        first = int(self.due_times().min(initial=END_OF_TIME))
        return min(first, self._spilled.next_due()) if self._spilled else first

    @property
    def open_windows(self) -> int:
        """How many windows are open."""
        return self._state.open_windows + (
            0 if self._spilled is None else self._spilled.open_windows
        )

    @property
    def state_rows(self) -> int:
        """How many windows have state: open ones, and finished ones that have not expired."""
        return len(self._state.table) + self.spilled_rows

    @property
    def spilled_rows(self) -> int:
        """How many of them are in the store only."""
        return 0 if self._spilled is None else len(self._spilled)

    @property
    def is_over(self) -> bool:
        """Whether state takes more memory than allowed, so that :meth:`save` spills rows."""
        return self._stored is not None and self._stored.is_over

    @property
    def output_watermark(self) -> int:
        """The watermark of the output (S-H2, S-H3): the input's, or an earlier hold."""
        low = self._schedule.holds.lowest(self._from)
        if self._spilled:
            low = min(low, self._spilled.holds.first)
        self._output_watermark = max(self._output_watermark, low)
        return self._output_watermark

    def hold(self) -> Hold | None:
        """Return what holds the output watermark below the input's, if anything. O(windows)."""
        return None if self.output_watermark >= self._from else self._schedule.holds.holder()

    def keep_in_store(self, place: StoredPlace, memory: int | None = None) -> None:
        """Track changes, so that :meth:`save` can write them; call it before the first step.

        Args:
            place: Where: the name of its stage, and the key groups.
            memory: About how many bytes state may take. Beyond that, :meth:`save` moves the windows
                touched longest ago to the store, and they have to be loaded before a step that
                needs them. ``None``: any number, and :meth:`restore` loads all.
        """
        from lowwater.engine.window.persistence import StoredState

        self._stored = StoredState(self._state, place, memory)
        self._spilled = None if memory is None else self._stored.spilled

    def keys_of(self, rows: Int64Array) -> Int64Array:
        """Return the key ids of state rows; a key keeps its id as long as it has windows."""
        return self._state.table["key"][rows]

    def report_to_trace(self) -> None:
        """Report in steps which windows merged into which, for traces."""
        self._reports_merges = True

    def report_replaced(self) -> None:
        """Report in steps which windows with panes merged into others, unless they retract."""
        self._state.note_replaced()

    def save(self, batch: Batch) -> None:
        """Add what changed since the last save to a batch of a store. O(changed rows)."""
        # What expires until then has been released, even in the middle of an advance.
        expired = self.watermark if self._advancing is None else self._advancing[1]
        if self._kept().write(batch, max(expired, self._from), self._facts(), self._waits):
            self._schedule.prune()

    def restore(self, store: StateStore) -> bool:
        """Load what was saved in a store, before the first step; return whether there was any.

        Raises:
            StateError: What is stored is damaged or of another layout.
        """
        facts = self._kept().load(store)
        if facts is None:
            return False
        self._resume(facts)
        return True

    def _facts(self) -> dict[str, int]:
        return {
            "watermark": self.watermark,
            "clock": self.clock,
            "arrived": self._arrived,
            "output watermark": self._output_watermark,
            "lateness": self._placement.lateness_us,
            "gone until": self._placement.gone_until,
            "advancing from": self._from,
            "advancing until": START_OF_TIME if self._advancing is None else self._advancing[1],
        }

    def _resume(self, facts: Mapping[str, int]) -> None:
        """Load the scalars, and queue the rows of a state that was just filled."""
        self.watermark = facts["watermark"]
        self.clock = facts["clock"]
        self._arrived = facts["arrived"]
        self._output_watermark = facts["output watermark"]
        if facts["advancing from"] < self.watermark:
            self._advancing = facts["advancing from"], facts["advancing until"]
        self._placement.resume(facts["lateness"], self.watermark, facts["gone until"])
        rows = self._state.table.live()
        self._schedule.clear(rows)
        self._wait_for(rows)

    def prepare(self, store: StateStore, step: StepInput) -> Iterator[StepInput]:
        """Load the windows that a step needs; an advance may be cut short (``is_advancing``)."""
        match step:
            case Bundle():
                self.load(store, step)
            case ClockAdvance(to=to):
                self.load_timers(store, int(to))
            case WatermarkAdvance(to=to):
                step = WatermarkAdvance(to, due=self.load_due(store, int(to)))
            case EndOfInput():
                due = self.load_due(store, END_OF_TIME)
                step = WatermarkAdvance(END_OF_TIME, due=due)
            case _:
                assert_never(step)
        yield step

    def settle(self, store: StateStore) -> None:
        """Load what holds the output watermark, so that it is known exactly; after steps."""
        self.load_holder(store)

    def load(self, store: StateStore, bundle: Bundle) -> None:
        """Load from the store the windows that a bundle may touch; before the bundle's own step."""
        spilled = self._spilled
        if not spilled or not len(bundle):
            return
        element, start, end = self._placement.assign(
            bundle, self.watermark, DroppedElements(self.watermark)
        )
        keys = self._state.encode_keys(bundle.keys)
        keys = keys if element is None else keys[element]
        self._wait_for(spilled.load_touched(store, keys, start, end, self.watermark))
        if (filler := self._filler) is not None:
            late = end <= self.watermark
            keys, end = keys[late], end[late]
            self._load_behind(store, keys, end, filler.last_of(end), self.watermark)

    def _load_behind(
        self, store: StateStore, keys: Int64Array, end: Int64Array, until: Int64Array, upto: int
    ) -> None:
        """Load the windows behind some, up to the first that ends later than ``upto``."""
        if self._filler is None or not self._spilled or not len(keys):
            return
        behind = self._filler.places(keys, end, until, upto)
        handled = self._from if self._advancing is None else self._advancing[1]
        self._wait_for(self._spilled.load_touched(store, *behind, handled))

    def load_due(self, store: StateStore, to: int) -> int | None:
        """Load from the store a portion of the windows that a watermark makes due.

        Args:
            store: The store.
            to: The watermark.

        Returns:
            ``None`` if all are loaded, for a step to ``to``; or the bound for a step to ``to`` that
            deals with what is due until then, with a further portion to follow.
        """
        from lowwater.engine.window import spilling

        spilled = self._spilled
        if not spilled or to <= self._from:
            return None
        after = self._from if self._advancing is None else self._advancing[1]
        bound = None
        if spilled.is_due(to):
            # Which windows are filled as the input ends depends on the last one of each key.
            whole = self._filler is not None and to == END_OF_TIME
            at_once = END_OF_TIME if whole else spilling.AT_ONCE
            rows, bound = spilled.load_due(store, to, after, at_once)
            self._wait_for(rows)
        if self._filler is not None and to < END_OF_TIME:
            upto = to if bound is None else bound
            rows = self._state.table.live()
            end = self._state.table["end"][rows]
            rows = rows[(end > self._from) & (end <= upto)]
            keys, end = self._state.table["key"][rows], self._state.table["end"][rows]
            self._load_behind(store, keys, end, self._filler.until(rows), upto)
        if self._state.nested is not None:
            from lowwater.engine.window.prefixes import reached_from

            upto = to if bound is None else bound
            longer = reached_from(self._state, after, upto)
            self._wait_for(spilled.load_touched(store, *longer, upto))
        return bound

    def load_timers(self, store: StateStore, to: int) -> None:
        """Load from the store what has timers due at a clock; before the step to there."""
        if self._spilled and to > self.clock and self._spilled.timers.first <= to:
            self._wait_for(self._spilled.load_timers(store, to))

    def load_holder(self, store: StateStore) -> None:
        """Load from the store what holds the output watermark, if it is there; after a step."""
        spilled = self._spilled
        while spilled and spilled.holds.first < (low := self._schedule.holds.lowest(self._from)):
            self._wait_for(spilled.load_holder(store, low))

    def _wait_for(self, rows: Int64Array) -> None:
        """Queue rows that were restored or loaded again, for all that they wait for."""
        self._schedule.by_watermark.push(rows, self._due(rows))
        self._schedule.holds.note(rows)
        self._schedule.at_clock(rows, self.clock)

    def _due(self, rows: Int64Array) -> Int64Array:
        """Return when rows are due, some of which an advance in portions may have handled."""
        due = self._schedule.due(rows, self.watermark)
        if self._advancing is not None:
            before, upto = self._advancing
            handled = self._state.table["end"][rows] <= upto
            due = np.where(handled, due, self._schedule.due(rows, before))
        return due

    def _waits(self, rows: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
        """Return what rows wait for: the watermark and the clock they are due at, and the hold.

        A window is due when it is complete, too, even if its trigger does not wait for that.
        """
        table = self._state.table
        due, end = self._due(rows), table["end"][rows]
        completes = (end > self._from) & ~table["finished"][rows]
        if self._advancing is not None:
            completes &= end > self._advancing[1]
        holds = self._schedule.holds.times(rows)
        holding = (end <= self._from) | self._holds_at_once
        return (
            np.where(completes, np.minimum(due, end), due),
            self._schedule.deadlines(rows, self.clock),
            np.where(holding, holds, END_OF_TIME),
        )

    def _check(self) -> None:
        """Assert every invariant; print the structure if one does not hold. O(windows)."""
        try:
            self._state._check()
            rows = self._state.table.live()
            complete = self._state.table["end"][rows] <= self._from
            self._schedule._check(self._due(rows), self.clock, complete | self._holds_at_once)
            if self._stored is None:
                self._state._check_keys(np.zeros(0, dtype=np.int64))
            else:
                self._stored._check()
        except AssertionError:
            print(f"{self._windowing}: {self._facts()}, spilled={self.spilled_rows}")
            raise

    @property
    def _from(self) -> int:
        """The watermark; during an advance in portions, the one before it."""
        return self.watermark if self._advancing is None else self._advancing[0]

    def _kept(self) -> StoredState:
        if self._stored is None:
            raise InternalError("keep_in_store was not called")
        return self._stored

    def step(self, step: StepInput) -> StageOutput:
        """Process one input and return its output (S-O1).

        Costs O(touched * log n), where n is the number of open windows, and touched that of the
        windows that elements fall in or that are due.
        """
        if self._advancing is not None and not (
            isinstance(step, EndOfInput)
            or (isinstance(step, WatermarkAdvance) and step.to >= self.watermark)
        ):
            # The portions that remain are about windows as they were when the advance began.
            raise InternalError(f"{type(step).__name__} came in the midst of an advance")
        match step:
            case Bundle():
                output = self._take_bundle(step)
            case WatermarkAdvance():
                output = self._advance_watermark(int(step.to), step.due)
            case ClockAdvance():
                output = self._advance_clock(int(step.to))
            case EndOfInput():
                output = self._advance_watermark(END_OF_TIME)
            case _:
                assert_never(step)
        if self._state.replaced:
            output = replace(output, replaced=tuple(self._state.replaced))
            self._state.replaced.clear()
        return output

    def _take_bundle(self, bundle: Bundle) -> StageOutput:
        if not len(bundle):
            return NOTHING
        if bundle.signs is not None and not self._signed:
            raise InternalError("elements have signs, but the operator was built without signed")
        state = self._state
        arrival = np.arange(self._arrived, self._arrived + len(bundle), dtype=np.int64)
        self._arrived += len(bundle)
        keys, slices = self._slices(bundle)
        late = DroppedElements(self.watermark, slices)
        element, start, end, shared = self._assigned(bundle, slices, late)
        if not len(start):
            state.forget_keys()
            return StageOutput(late=late.batch())
        if keys is None:
            keys = state.encode_keys(bundle.keys)
        if slices is not None:
            keys = keys[slices.one]
        placed = self._place(keys, element, start, end, shared)
        self._schedule.at_watermark(placed.opened, self.watermark)
        rows, arrived, sizes = placed.rows, placed.rows, None
        closed = placed.closed
        if shared is not None:
            rows, sizes = rows[shared.of], shared.size
            if closed is not None:
                closed, start, end = closed[shared.of], start[shared.of], end[shared.of]
        if closed is not None:
            late.add(closed, CLOSED, element, start, end)
            admitted = ~closed
            arrived = rows = rows[admitted]
            element = np.flatnonzero(admitted) if element is None else element[admitted]
            sizes = None
        if sizes is None and slices is not None:
            sizes = slices.size if element is None else slices.size[element]
        panes = None
        if rows.size or placed.changed.size:
            panes = self._accumulate(
                bundle, slices, element, rows, (arrived, sizes), placed.changed, arrival
            )
            self._count(bundle, slices, element, rows, late)
        state.forget_keys()
        return StageOutput(only(panes), late=late.batch(), merges=placed.merges)

    def _assigned(
        self, bundle: Bundle, slices: Slices | None, late: DroppedElements
    ) -> tuple[Int64Array | None, Int64Array, Int64Array, SharedWindows | None]:
        """Return (element, start, end, shared) of the windows of a bundle.

        The windows are those of pairs of an element (or a slice) and a window, in order; where it
        is known which pairs share a window, each of ``shared`` once.
        """
        if slices is None:
            return *self._placement.assign(bundle, self.watermark, late), None
        shared = self._placement.shared(slices, self.watermark)
        if shared is None:
            # Elements of one slice are in the same windows, so one of each is placed for all.
            element, start, end = self._placement.assign(slices.bundle, self.watermark, late)
            element = np.arange(len(slices.one)) if element is None else element
            shared = slices.windows(element, start, end, self._state.scratch)
            if shared is None:
                return element, start, end, None
        return shared.element, shared.start, shared.end, shared

    def _place(
        self,
        keys: Int64Array,
        element: Int64Array | None,
        start: Int64Array,
        end: Int64Array,
        shared: SharedWindows | None,
    ) -> Placed:
        """Find or open windows, or merge them; ``keys`` are those of the elements, or slices."""
        if shared is not None:
            return place_plain(self._state, keys[shared.slice], start, end)
        keys = keys if element is None else keys[element]
        if self._state.merging is None:
            return place_plain(self._state, keys, start, end)
        return place_merging(
            self._state, keys, start, end, self.clock, self.watermark,
            reports=self._reports_merges, element=element,
        )  # fmt: skip

    def _count(
        self,
        bundle: Bundle,
        slices: Slices | None,
        element: Int64Array | None,
        rows: Int64Array,
        late: DroppedElements,
    ) -> None:
        """Count the elements that were added to a window, each once (S-B2).

        Args:
            bundle: The elements.
            slices: Their slices; ``None`` if windows were looked up for each element.
            element: The element, or the slice, that each row is for; ``None`` for one each.
            rows: The row of each (element or slice, window).
            late: The elements that were dropped from a window.
        """
        # Rows then stand for elements one to one.
        if element is None:
            self.admitted += len(rows)
            return
        # A mask, as sorting the pairs of sliding windows costs several times as much.
        added = np.zeros(len(bundle) if slices is None else len(slices.one), dtype=np.bool_)
        added[element] = True
        elements = np.flatnonzero(added)
        if slices is None:
            self.admitted += len(elements)
        else:
            self.admitted += int(slices.size[elements].sum())
        if late.parts:
            self.partly += late.among(elements if slices is None else slices.elements(elements)[0])

    def _slices(self, bundle: Bundle) -> tuple[Int64Array | None, Slices | None]:
        """Return the keys' ids and the slices of a bundle, where windows are looked up for those.

        Elements may all be late, so keys are encoded before only if there may be slices.
        """
        if not self._placement.has_slices:
            return None, None
        state = self._state
        keys = state.encode_keys(bundle.keys)
        capacity = 1 if state.keys is None else max(1, state.keys.capacity)
        return keys, self._placement.slices(bundle.times, keys, capacity, state.scratch)

    def _accumulate(
        self,
        bundle: Bundle,
        slices: Slices | None,
        element: Int64Array | None,
        rows: Int64Array,
        arrived: tuple[Int64Array, Int64Array | None],
        changed: Int64Array,
        arrival: Int64Array,
    ) -> PaneBatch | None:
        """Add elements to their windows and evaluate each touched trigger once (S-O2).

        A window that a merge ``changed`` is touched too, even if it got no element.

        Args:
            bundle: The elements.
            slices: Their slices; ``None`` if windows were looked up for each element.
            element: The element that each row is for, or the slice; ``None`` for one each.
            rows: The row of each (element or slice, window).
            arrived: Rows of windows, and how many elements came to each; ``None`` for one.
            changed: Rows that a merge changed.
            arrival: Position of each element in the whole input.
        """
        state, table, machine = self._state, self._state.table, self._machine
        touched, counts, complete = kernels().arrive(
            state.scratch.room(table.capacity), *arrived, changed,
            table["end"], table["new"], table["on_time_new"], self.watermark,
        )  # fmt: skip
        of = None
        if slices is not None and element is not None:
            if state.rule == "end" and not machine.is_custom:
                of = element
            else:  # timestamps and custom triggers take each element
                element, pair = slices.of_each(element)
                rows = rows[pair]
        state.touch(touched)
        if self._filler is not None:
            self._schedule.at_watermark(self._filler.take(touched, self.watermark), self.watermark)
        if state.rule != "end":
            times = bundle.times if element is None else bundle.times[element]
            pick = kernels().max_at if state.rule == "latest" else kernels().min_at
            timely = times >= self.watermark
            pick(table["timestamp"], rows[timely], times[timely])
        if self._holds_at_once:
            self._schedule.holds.note(touched)
        elif np.count_nonzero(complete):  # a merge may have brought it what came before completion
            self._schedule.holds.note(touched[complete])
        if slices is None or of is None:
            state.aggregation.add(bundle, element, rows, arrival)
        else:
            state.aggregation.add_slices(bundle, slices, of, rows, arrival)
        elements = FedElements(rows, bundle.times, element, self.clock, self.watermark)
        fed = counts > 0
        machine.feed(table, touched[fed], counts[fed], elements)
        if machine.has_deadlines:
            self._schedule.at_clock(touched, self.clock)
        if machine.wakes:
            self._schedule.at_watermark(touched, self.watermark)
        expired = None
        if self._shrinks:
            expired = self._placement.expiry(table["end"][touched]) <= self.watermark
        # Nothing can fire, so the trigger is not evaluated: the common case of bundles in order.
        elif not machine.fires_before_completion and not complete.any():
            return None
        moments = Moments(complete, True, self.clock, self.watermark)
        panes, _ = self._settle(touched, moments, expired=expired)
        return panes

    def _advance_watermark(self, to: int, upto: int | None = None) -> StageOutput:
        """Handle the windows due at or before the new watermark (S-O5).

        Args:
            to: The new watermark.
            upto: Handle only windows due until then; the rest of the advance follows.
        """
        before = self._from
        if to <= before:
            return NOTHING
        upto = to if upto is None else min(upto, to)
        self._advancing = (before, upto) if upto < to else None
        # Finished windows, and those whose completion the trigger does not wait for, are queued
        # for their expiry only. If this step completes them too, they are handled at their end,
        # in the same order as the others (S-O5).
        reach = min(to, saturating_add(upto, self._placement.lateness_us))
        dues = self._schedule.by_watermark
        # `first` is a lower bound that costs nothing: most advances make nothing due.
        if dues.first > reach:
            self.watermark = to
            return NOTHING
        self.watermark = to
        rows = dues.pop(reach)
        if self._filler is not None:
            rows = self._with_filled(self._filler, rows, before, upto)
        due = self._schedule.due(rows, before)
        end = self._state.table["end"][rows]
        completing = (end > before) & (end <= to)
        # A window that completes in this step has its turn at its end, even if its trigger is due
        # later.
        turn = np.where(completing, np.minimum(due, end), due)
        now = (due <= to) & (turn <= upto)
        # The queue is lazy: a row is popped at the time it was queued for, which may have moved
        # since.
        dues.push(rows[~now], due[~now])
        rows, due, completing = rows[now], turn[now], completing[now]
        if not rows.size:
            return NOTHING
        rows, due, completing = self._carry(rows, due, completing, before, upto)
        end = self._state.table["end"][rows]
        complete = end <= to
        expired = self._placement.expiry(end) <= to
        moments = Moments(complete, False, self.clock, to)
        self._state.touch(rows)
        panes, staying = self._settle(
            rows, moments, expired=expired, completing=completing, due=due
        )
        self._schedule.at_watermark(staying, to)
        self._schedule.holds.note(staying)
        _ = self.output_watermark  # releases the holds of windows that are gone
        self._state.forget_keys()
        return StageOutput(only(panes))

    def _with_filled(self, filler: Filler, rows: Int64Array, before: int, upto: int) -> Int64Array:
        """Open what is filled behind windows that an advance completes; return all that is due.

        At the end of the input, windows without elements behind all of their keys' are gone.
        """
        end = self._state.table["end"][rows]
        rows = np.concatenate((rows, filler.behind(rows[(end > before) & (end <= upto)], upto)))
        if upto < END_OF_TIME:
            return rows
        gone = filler.beyond(rows)
        self._state.drop(rows[gone])
        return rows[~gone]

    def _carry(
        self, rows: Int64Array, due: Int64Array, completing: Mask, before: int, upto: int
    ) -> tuple[Int64Array, Int64Array, Mask]:
        """Add what windows that complete hold to longer ones, if elements are kept in the shortest.

        Args:
            rows: What is handled now.
            due: When each has its turn.
            completing: Which of them complete.
            before: The watermark before the advance.
            upto: Until when due windows are handled.

        Returns:
            The same, with windows that were opened by that and complete too.
        """
        if self._state.nested is None:
            return rows, due, completing
        from lowwater.engine.window.prefixes import carry  # few runs need it

        table = self._state.table
        opened, reached = carry(self._state, rows[completing], upto)
        if reached.size:
            self._schedule.at_watermark(reached, before)
            if self._holds_at_once:
                self._schedule.holds.note(reached)
        if opened.size:
            rows = np.concatenate((rows, opened))
            due = np.concatenate((due, table["end"][opened]))
            completing = np.concatenate((completing, np.ones(len(opened), dtype=np.bool_)))
        return rows, due, completing

    def _advance_clock(self, to: int) -> StageOutput:
        """Evaluate the windows whose processing-time timers are due, in time order (S-O8)."""
        if to <= self.clock:
            return NOTHING
        dues = self._schedule.by_clock
        if dues.first > to:
            self.clock = to
            return NOTHING
        table, machine = self._state.table, self._machine
        rows = dues.pop(to)
        at = machine.next_deadline(table, rows, self.clock)
        batches: list[PaneBatch] = []
        orders: list[PaneOrder] = []
        while rows.size:
            # A queued time may be stale: the deadline has moved. The end of time means no deadline.
            now = at <= min(to, END_OF_TIME - 1)
            dues.push(rows[~now], at[~now])
            rows, at = rows[now], at[now]
            complete = table["end"][rows] <= self.watermark
            moments = Moments(complete, False, at, self.watermark)
            self._state.touch(rows)
            panes, _ = self._settle(rows, moments, due=at, orders=orders)
            if panes is not None:
                batches.append(panes)
            at = machine.next_deadline(table, rows, at)
        self.clock = to
        # Timers that set each other fire in several rounds, but panes come in the order of one
        # step.
        if len(batches) < 2:
            return StageOutput(only(batches[0] if batches else None))
        return StageOutput(only(PaneBatch.concat(batches).take(PaneOrder.together(orders))))

    def _settle(
        self,
        rows: Int64Array,
        moments: Moments,
        *,
        expired: Mask | None = None,
        completing: Mask | None = None,
        due: Int64Array | None = None,
        orders: list[PaneOrder] | None = None,
    ) -> tuple[PaneBatch | None, Int64Array]:
        """Evaluate triggers, fire what is ready, release the expired: the one way to a pane.

        Args:
            rows: Distinct rows, which are touched already.
            moments: What triggers are evaluated by.
            expired: Which of them have expired, if any may have.
            completing: Which of them this step completes.
            due: When each came due: the first thing that panes are sorted by.
            orders: Takes what the panes were sorted by, where one step settles several times;
                goes with ``due``.

        Returns:
            The panes, and the rows that are still there.
        """
        state, table = self._state, self._state.table
        # A finished window remains until it expires, so that late elements are known to be closed
        # (S-R3).
        was_finished = table["finished"][rows]
        ready = self._machine.ready(table, rows, moments) & ~was_finished
        if expired is None and not np.count_nonzero(ready):
            return None, rows
        finished = np.zeros(len(rows), dtype=np.bool_)
        finished[ready] = self._machine.fire(table, rows[ready], moments.at(ready))
        has_new = table["new"][rows] > 0
        first_on_time = table["on_time_index"][rows] < 0
        emits = ready & has_new
        if completing is None:
            completing = np.zeros(len(rows), dtype=np.bool_)
        elif self._windowing.on_time == "always":
            emits |= ready & completing & first_on_time  # S-P3
        released = np.zeros(len(rows), dtype=np.bool_) if expired is None else expired
        if expired is not None:
            always = self._windowing.closing == "always"
            emits |= expired & (has_new | (always & ~was_finished))  # S-O6
        panes = None
        if emits.any():
            timely = first_on_time & (completing | table["on_time_new"][rows])  # S-P2
            timing = np.where(moments.complete, np.where(timely, ON_TIME, LATE), EARLY)
            chosen = np.flatnonzero(emits)
            by = state.order(rows[chosen], None if due is None else due[chosen])
            chosen = chosen[by]
            clock = moments.clock if isinstance(moments.clock, int) else moments.clock[chosen]
            firing = Firing(
                rows[chosen], timing[chosen].astype(np.uint8), (finished | released)[chosen],
                released[chosen], clock, moments.watermark,
            )  # fmt: skip
            order = None
            if orders is not None and due is not None:
                order = PaneOrder.of(state, firing.rows, due[chosen])
            panes, window = emit(state, firing)
            if orders is not None and order is not None:
                orders.append(order.take(window))
        state.finish(rows[finished & ~released])
        if expired is None:
            return panes, rows
        state.drop(rows[released])
        return panes, rows[~released]
