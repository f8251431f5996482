"""The scalar oracle: the S-rules stated a second time, one element at a time, for tests only.

It shares no code with the engine but the values (windows, triggers, panes), and is written to be
read beside the contract rather than to be fast. Property tests hold the engine equal to it.

The file is long because one step of the contract is read from its top to its bottom, rule by rule.

Where the contract leaves room, these decisions hold here and in the engine:

- A key's place in the order (end, start, first-seen key) is when it came to hold state: one that
  has neither an open window nor a finished, unexpired one is forgotten. Within a bundle places
  are given by admitted element.
- A merge set that comes out exactly as a finished window of its key does not merge: its new
  elements are dropped as ``closed``, its active windows stay as they were (S-O4).
- A window is *touched* by a bundle that brought it an admitted element or changed it by a merge.
- A window that a merge shrank until it has expired is judged and expired at once (S-O2).
- On a watermark advance a window is handled once, at the earliest of the moments it waited for:
  its end, its expiry, a custom trigger's call (S-O5). It is judged with the watermark at its new
  value, at its end and at calls; at its expiry there is nothing left to judge.
- On a clock advance each deadline is judged by itself, the clock standing at it (S-O8).
- A firing that emits nothing still resets its trigger or finishes it, but does not count.
- Lateness is judged on proto-windows, but whether an element came before completion, on the
  (merged) window that took it in.
- Which of several equal elements a retraction takes back is only seen in the order of a list. It is
  judged by all that a window has taken in, in order of arrival, when a pane shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, assert_never, final

from lowwater.engine.records.panes import LateReason, LateRecord, Pane, Timing
from lowwater.engine.window.windowing import Windowing
from lowwater.testing._arrivals import Add, ClockMove, InputEnd, ScenarioElement, WatermarkMove
from lowwater.testing._oracle_triggers import (
    OracleMoment,
    OracleNode,
    build,
    clock_deadlines,
    feed,
    fire,
    merge,
    ready,
    watermark_wakes,
)
from lowwater.testing._oracle_windows import fillable, merge_sets, opens_next, windows_of
from lowwater.testing.scenario import Scenario, of_one_input
from lowwater.time import END_OF_TIME, Instant, saturating_add
from lowwater.windows import Window


@final
@dataclass(frozen=True, slots=True)
class Picked:
    """What ``first``, ``last``, ``min_by`` and ``max_by`` give with a column that decides.

    Args:
        column: The column of the result.
        by: The column that decides which element it is from, and after it the event time.
        last: Whether the last of them is picked, and not the first.
        nulls: Whether it may be from an element in which the column is null.
    """

    column: str
    by: str
    last: bool
    nulls: bool = False

    def __call__(self, elements: Sequence[ScenarioElement]) -> Any:
        """Return the result over elements in order of arrival."""
        takes = [
            one
            for one in elements
            if _read(one, self.by) is not None
            if self.nulls or _read(one, self.column) is not None
        ]
        if not takes:
            return None

        def place(one: ScenarioElement) -> tuple[Any, int]:
            return _read(one, self.by), one.time

        # Of equal ones, min and max return the one that comes first.
        picked = max(reversed(takes), key=place) if self.last else min(takes, key=place)
        return _read(picked, self.column)

    def equal(self, one: ScenarioElement, other: ScenarioElement) -> bool:
        """Return whether a retraction of one element takes the other back."""
        names = (self.column, self.by)
        return one.time == other.time and all(_read(one, n) == _read(other, n) for n in names)


@final
@dataclass(frozen=True, slots=True)
class OfRecords:
    """What an aggregate of several columns gives, such as ``top``, or one with a condition.

    Args:
        columns: The columns it reads.
        function: From records of these columns, in order of arrival, to the result.
        takes: Whether a record counts; ``None``: all do.
    """

    columns: tuple[str, ...]
    function: Callable[[list[dict[str, Any]]], Any]
    takes: Callable[[dict[str, Any]], bool] | None = None

    def __call__(self, elements: Sequence[ScenarioElement]) -> Any:
        """Return the result over elements in order of arrival."""
        records = [{name: _read(one, name) for name in self.columns} for one in elements]
        takes = self.takes
        return self.function([one for one in records if takes is None or takes(one)])

    def equal(self, one: ScenarioElement, other: ScenarioElement) -> bool:
        """Return whether a retraction of one element takes the other back."""
        return one.time == other.time and all(
            _read(one, n) == _read(other, n) for n in self.columns
        )


AggregateFunction: TypeAlias = Callable[[list[Any]], Any] | Picked | OfRecords


@final
@dataclass(frozen=True, slots=True)
class OracleRun:
    """The panes and late records that the oracle computes for a scenario, in order."""

    panes: list[Pane]
    late: list[LateRecord]


def run(
    scenario: Scenario,
    windowing: Windowing,
    aggregate: AggregateFunction | Mapping[str, AggregateFunction],
    *,
    signs: Sequence[int] | None = None,
    differing: Collection[str] = (),
) -> OracleRun:
    """Compute the panes and late records of a scenario whose elements are all valid.

    Args:
        scenario: What arrived when.
        windowing: Where, when and how.
        aggregate: From a pane's values, in order of arrival, to its result; one of them is named
            ``value``. Those that read more than the value are :class:`Picked` or
            :class:`OfRecords`.
        signs: +1 for each element that comes, -1 for one that takes an equal one back (S-C1), in
            order of arrival; ``None`` if all come.
        differing: Names of the functions whose results are differences: from the result over the
            elements there are, that over the retractions whose elements are not there is taken
            away (S-C5).
    """
    functions = aggregate if isinstance(aggregate, Mapping) else {"value": aggregate}
    scenario = of_one_input(scenario)
    oracle = _Oracle(windowing, functions, scenario.start, scenario.watermark_at_start)
    oracle.signs, oracle.differing = signs, differing
    for step in scenario.steps:
        if step.at is not None:
            oracle.move_clock(step.at)
        match step:
            case Add():
                oracle.add(step.elements)
            case WatermarkMove():
                oracle.move_watermark(step.to)
            case InputEnd():
                oracle.move_watermark(END_OF_TIME)
            case ClockMove():
                pass
            case _:
                assert_never(step)
    return OracleRun(oracle.panes, [record for _, record in oracle.late])


@dataclass(slots=True)
class _Admitted:
    """An element in one window."""

    element: ScenarioElement
    arrival: int
    late: bool
    sign: int = 1
    shown: bool = False


@dataclass(slots=True)
class _Open:
    """An open window of one key."""

    key: Any
    window: Window
    trigger: OracleNode
    held: list[_Admitted] = field(default_factory=list)
    panes: int = 0
    on_time_panes: int = 0  # those that were not EARLY
    owes_on_time: bool = False  # holds an unshown element admitted before completion (S-P2)
    to_retract: list[Pane] = field(default_factory=list)


_New: TypeAlias = tuple[int, Window, _Admitted]  # index in the bundle, proto-window, element


class _Oracle:
    def __init__(
        self,
        windowing: Windowing,
        functions: Mapping[str, AggregateFunction],
        clock: int,
        mark: int,
    ) -> None:
        self.windowing = windowing
        self.functions = functions
        self.clock, self.watermark = clock, mark
        self.open: dict[tuple[Any, Window], _Open] = {}
        self.finished: set[tuple[Any, Window]] = set()
        self.places: dict[Any, int] = {}
        self.arrivals = self.next_place = 0
        self.panes: list[Pane] = []
        self.late: list[tuple[tuple[int, ...], LateRecord]] = []
        self.had: dict[Any, set[Window]] = {}  # the windows of each key that had elements
        self.signs: Sequence[int] | None = None
        self.differing: Collection[str] = ()

    # -- the inputs (S-O1) ------------------------------------------------------------------

    def add(self, elements: Sequence[ScenarioElement]) -> None:
        """S-O2: assign, judge lateness, merge, drop, accumulate, judge once, fire."""
        logged = len(self.late)
        touched: dict[tuple[Any, Window], _Open] = {}
        for key, new in self._admit(elements).items():
            touched.update(self._settle(key, new))
        self.late[logged:] = sorted(self.late[logged:], key=lambda entry: entry[0])
        for row in sorted(touched.values(), key=self._order):
            emitted = self._judge(row, touched=True)
            self._expire(row, emitted=emitted)
        self._forget_keys()

    def move_watermark(self, to: int) -> None:
        """S-O5: each due window once, in order of (due time, end, start, first-seen key)."""
        before, self.watermark = self.watermark, max(to, self.watermark)
        self._fill(before)

        def passed(*moments: int) -> list[int]:
            return [at for at in moments if before < at <= self.watermark]

        due = []
        for row in self.open.values():
            wakes = watermark_wakes(row.trigger)
            if moments := passed(row.window.end, self._expiry(row.window), *wakes):
                due.append((min(moments), *self._order(row), row))
        for *_, row in sorted(due, key=lambda entry: entry[:-1]):
            completes, emitted = bool(passed(row.window.end)), False
            if completes or passed(*watermark_wakes(row.trigger)):
                emitted = self._judge(row, completes=completes)
            self._expire(row, completes=completes, emitted=emitted)
        self.finished = {
            (key, window) for key, window in self.finished if self._expiry(window) > self.watermark
        }
        self._forget_keys()

    def move_clock(self, to: int) -> None:
        """S-O8: each deadline in order, with the clock standing at it."""
        while due := self._deadlines(self.clock, to):
            self.clock = min(due)
            for row in sorted(due[self.clock], key=self._order):
                self._judge(row)
        self.clock = max(to, self.clock)
        self._forget_keys()

    # -- a bundle ---------------------------------------------------------------------------

    def _admit(self, elements: Sequence[ScenarioElement]) -> dict[Any, list[_New]]:
        """Judge lateness on the proto-windows (S-O3); return the rest by key."""
        admitted: dict[Any, list[_New]] = {}
        for index, element in enumerate(elements):
            sign = 1 if self.signs is None else self.signs[self.arrivals]
            self.arrivals += 1
            windows = windows_of(self.windowing.windows, element.time, element.columns)
            if not windows:
                self._drop(index, element, None, "unwindowed")  # S-W2
            for window in windows:
                if self._expiry(window) <= self.watermark:
                    self._drop(index, element, window, "expired")
                    continue
                late = element.time < self.watermark
                one = _Admitted(element, self.arrivals, late, sign)
                admitted.setdefault(element.key, []).append((index, window, one))
        for key in admitted:
            if key not in self.places:
                self.places[key] = self.next_place = self.next_place + 1
        return admitted

    def _settle(self, key: Any, new: list[_New]) -> dict[tuple[Any, Window], _Open]:
        """Merge one key's windows, drop what falls into finished ones, feed the rest."""
        active = {row.window for row in self.open.values() if row.key == key}
        touched: dict[tuple[Any, Window], _Open] = {}
        if self.windowing.merging is None:
            active = set()  # each window is by itself
        for members, window in merge_sets(
            self.windowing.windows, list(active | {proto for _, proto, _ in new})
        ):
            mine = [entry for entry in new if entry[1] in members]
            if (key, window) in self.finished:  # S-O4
                for index, proto, one in mine:
                    self._drop(index, one.element, proto, "closed")
                continue
            rows = [self.open[key, member] for member in members if member in active]
            changed = [row.window for row in rows] not in ([], [window])
            if mine or changed:
                touched[key, window] = self._join(key, window, rows)
                self._take_in(touched[key, window], [one for _, _, one in mine])
        return touched

    def _join(self, key: Any, window: Window, rows: list[_Open]) -> _Open:
        """Return the open window that a merge set becomes."""
        if not rows and (key, window) in self.open:
            return self.open[key, window]  # windows that do not merge
        if [row.window for row in rows] == [window]:
            return rows[0]
        for row in rows:
            del self.open[key, row.window]
        merged = self.open[key, window] = _Open(key, window, build(self.windowing.trigger))
        for row in rows:
            merged.held += row.held
            merged.owes_on_time |= row.owes_on_time
            merged.to_retract += row.to_retract  # S-A3
            if row.window == window:  # S-P4
                merged.panes, merged.on_time_panes = row.panes, row.on_time_panes
        merged.held.sort(key=lambda one: one.arrival)
        if rows:
            merged.trigger = merge([row.trigger for row in rows], self._moment(window))
        return merged

    def _take_in(self, row: _Open, new: list[_Admitted]) -> None:
        if new:
            self.had.setdefault(row.key, set()).add(row.window)
            row.held += new
            row.owes_on_time |= self.watermark < row.window.end
            feed(row.trigger, [one.element.time for one in new], self._moment(row.window))

    # -- windows without elements -------------------------------------------------------------

    def _fill(self, before: int) -> None:
        """S-F1: open those that the watermark now completes; it was at ``before``."""
        for key, had in self.had.items():
            last = max(window.start for window in had)
            for window in sorted(fillable(self.windowing, had)):
                at_end = self.watermark == END_OF_TIME
                if before < window.end <= self.watermark and (not at_end or window.start < last):
                    self.open[key, window] = _Open(key, window, build(self.windowing.trigger))

    def next_to_fill(self) -> int:
        """Return for how many keys a window is open that has had no elements (S-F4)."""
        return sum(opens_next(self.windowing, had, self.watermark) for had in self.had.values())

    # -- firing -----------------------------------------------------------------------------

    def _judge(self, row: _Open, *, touched: bool = False, completes: bool = False) -> bool:
        """Fire the row's trigger if it is ready; return whether a pane came out."""
        now = self._moment(row.window, touched=touched)
        if not ready(row.trigger, now):
            return False
        finished = fire(row.trigger, now)
        timing = self._timing(row, completes)
        on_time = completes and timing == "ON_TIME" and self.windowing.on_time == "always"
        emits = on_time or self._has_new(row)  # S-P3
        if emits:
            self._emit(row, timing, is_last=finished or self._expired(row))
        if finished and not self._expired(row):
            del self.open[row.key, row.window]
            self.finished.add((row.key, row.window))  # S-O7
        return emits

    def _expire(self, row: _Open, *, emitted: bool, completes: bool = False) -> None:
        """S-O6: show what no pane has shown, once, and hold nothing any more."""
        if not self._expired(row) or self.open.pop((row.key, row.window), None) is None:
            return  # not yet, or it finished before
        if not emitted and (self.windowing.closing == "always" or self._has_new(row)):
            self._emit(row, self._timing(row, completes), is_last=True)

    def _timing(self, row: _Open, completes: bool) -> Timing:
        """S-P2: ON_TIME at most once, by this window's own past alone."""
        if self.watermark < row.window.end:
            return "EARLY"
        return "ON_TIME" if not row.on_time_panes and (completes or row.owes_on_time) else "LATE"

    def _emit(self, row: _Open, timing: Timing, *, is_last: bool) -> None:
        discarding = self.windowing.mode == "discarding"
        shown = [one for one in row.held if not (discarding and one.shown)]
        pane = Pane(
            key=row.key,
            window=row.window,
            values=self._values(shown) | self._is_filled(row),
            timing=timing,
            index=row.panes,
            on_time_index=-1 if timing == "EARLY" else row.on_time_panes,
            is_first=row.panes == 0,
            is_last=is_last,
            kind="insert",
            timestamp=self._timestamp(row.window, shown),
            emitted_at=Instant(self.clock),
            watermark=Instant(self.watermark),
        )
        if self.windowing.mode == "retracting":
            self.panes += [
                replace(old, kind="retract", emitted_at=pane.emitted_at, watermark=pane.watermark)
                for old in sorted(row.to_retract, key=_event_order)
            ]
            row.to_retract = [pane]
        self.panes.append(pane)
        row.panes += 1
        row.on_time_panes += timing != "EARLY"
        row.owes_on_time = False
        for one in row.held:
            one.shown = True

    def _values(self, shown: list[_Admitted]) -> dict[str, Any]:
        values = {}
        for name, function in self.functions.items():
            if isinstance(function, (Picked, OfRecords)):
                there, _ = _balance(shown, function.equal)
                values[name] = function(there)
                continue
            there, waiting = _balance(shown, _equal)
            values[name] = function([one.value for one in there])
            if name in self.differing:
                values[name] -= function([one.value for one in waiting])
        return values

    def _is_filled(self, row: _Open) -> dict[str, bool]:
        return {} if self.windowing.fill is None else {"is_filled": not row.held}

    def _timestamp(self, window: Window, shown: list[_Admitted]) -> Instant:
        """S-H1: over the shown elements that were not late when admitted."""
        times = [one.element.time for one in shown if not one.late]
        if self.windowing.timestamps == "end" or not times:
            return window.max_timestamp
        return Instant(min(times) if self.windowing.timestamps == "earliest" else max(times))

    # -- small questions --------------------------------------------------------------------

    def _deadlines(self, after: int, to: int) -> dict[int, list[_Open]]:
        due: dict[int, list[_Open]] = {}
        for row in self.open.values():
            for at in set(clock_deadlines(row.trigger)):
                if after < at <= to:
                    due.setdefault(at, []).append(row)
        return due

    def _moment(self, window: Window, *, touched: bool = False) -> OracleMoment:
        merging = self.windowing.merging is not None
        return OracleMoment(window, self.watermark, self.clock, merging, touched)

    def _expiry(self, window: Window) -> int:
        return saturating_add(window.end, self.windowing.lateness_us)

    def _expired(self, row: _Open) -> bool:
        return self._expiry(row.window) <= self.watermark

    def _has_new(self, row: _Open) -> bool:
        return any(not one.shown for one in row.held)

    def _order(self, row: _Open) -> tuple[int, int, int]:
        return row.window.end, row.window.start, self.places[row.key]

    def _drop(
        self, index: int, element: ScenarioElement, window: Window | None, why: LateReason
    ) -> None:
        place = (index, window.start, window.end) if window else (index,)
        mark = Instant(self.watermark)
        record = LateRecord(element.record, element.time, element.key, window, mark, why)
        self.late.append((place, record))

    def _forget_keys(self) -> None:
        held = {key for key, _ in (*self.open, *self.finished)}
        held |= {  # S-F4: the window that may be filled next keeps the key
            key
            for key, had in self.had.items()
            if any(window.end > self.watermark for window in fillable(self.windowing, had))
        }
        self.places = {key: place for key, place in self.places.items() if key in held}


def _balance(
    shown: list[_Admitted], equal: Callable[[ScenarioElement, ScenarioElement], bool]
) -> tuple[list[ScenarioElement], list[ScenarioElement]]:
    """Return the elements that are there, and retractions that found no element (S-C1)."""
    there: list[_Admitted] = []
    waiting: list[_Admitted] = []
    for one in shown:
        mine, other = (there, waiting) if one.sign > 0 else (waiting, there)
        same = [held for held in other if equal(held.element, one.element)]
        if same:
            other.remove(same[-1])
        else:
            mine.append(one)
    return [one.element for one in there], [one.element for one in waiting]


def _read(element: ScenarioElement, name: str) -> Any:
    return element.value if name == "value" else element.columns.get(name)


def _equal(one: ScenarioElement, other: ScenarioElement) -> bool:
    return bool(one.time == other.time and one.value == other.value)


def _event_order(pane: Pane) -> tuple[int, int, int]:
    return pane.timestamp, pane.window.end, pane.window.start
