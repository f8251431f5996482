"""A vectorised process that does as its records say, and the same key by key, scalar by scalar."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

import lowwater as lw
from lowwater.engine.records.columns import Column
from lowwater.engine.records.steps import (
    Bundle,
    ClockAdvance,
    EndOfInput,
    StepInput,
    WatermarkAdvance,
)
from lowwater.engine.window.windowing import Windowing
from lowwater.time import END_OF_TIME, LAST_EVENT_TIME

SIZE, LATENESS = 10, 5
NAMES = ("once", "again", "wall")
WINDOWS = Windowing(
    windows=lw.FixedWindows(f"{SIZE}us"), allowed_lateness=LATENESS, accumulation="discarding"
)

# key, time, added, timer (-1 for none, 3 to clear all, 4 to refuse it), after, hold (-1 for none)
Row = tuple[str, int, int, int, int, int]
Act = list[Row] | tuple[str, int]


class Scripted:
    """Does what its records say.

    Args:
        allowed: How long after its end a window expires.
    """

    def __init__(self, allowed: int = LATENESS) -> None:
        self.allowed = allowed

    windowed = False
    total = lw.value_cell(dtype="int64")
    once = lw.timer()
    again = lw.timer()
    wall = lw.timer(domain="processing")

    def on_records(self, batch: Any, ctx: Any) -> None:
        ctx.total.add(batch.ids, batch["added"])
        for number, name in enumerate(NAMES):
            for held in (False, True):
                rows = np.flatnonzero((batch["timer"] == number) & ((batch["hold"] >= 0) == held))
                ids, times = batch.ids[rows], batch.times[rows]
                at = batch["after"][rows] + (ctx.clock if name == "wall" else times)
                if self.windowed and name != "wall":
                    at = np.minimum(at, ctx.ends(ids) + self.allowed)
                # Of one key each row has its say, in order: the last with a hold, then without.
                holds = times + batch["hold"][rows] if held else None
                getattr(ctx, name).set(ids, at, output_times=holds)
        ctx.late(batch["timer"] == 4, "four")
        ctx.late(np.flatnonzero(batch["timer"] == 4), "again")
        gone = batch.ids[batch["timer"] == 3]
        for name in NAMES:
            getattr(ctx, name).clear(gone)

    def on_timers(self, batch: Any, ctx: Any) -> None:
        self._tell(batch, ctx, NAMES.index(batch.name))
        left = ctx.total[batch.ids]
        if batch.name == "again":
            ids, due = batch.ids[left > 0], batch.due[left > 0]
            ctx.total.add(ids, -1)
            at = due + 2
            if self.windowed:
                at = np.minimum(at, ctx.ends(ids) + self.allowed)
            ctx.again.set(ids, at)
            ctx.total.clear(batch.ids[left <= 0])

    def _tell(self, batch: Any, ctx: Any, what: int) -> None:
        columns = {
            "what": np.full(len(batch), what),
            "due": batch.due,
            "clock": np.full(len(batch), ctx.clock),
            "watermark": np.full(len(batch), ctx.watermark),
            "total": ctx.total[batch.ids],
        }
        ctx.emit(columns, ids=batch.ids, times=batch.times)


class InWindows(Scripted):
    windowed = True

    def on_windows_expired(self, batch: Any, ctx: Any) -> None:
        self._tell(batch, ctx, 8)


class ToTheEnd(Scripted):
    def on_keys_end(self, batch: Any, ctx: Any) -> None:
        self._tell(batch, ctx, 9)


@dataclass
class Scope:
    total: int = 0
    end: int = 0
    timers: dict[int, tuple[int, int | None]] = field(default_factory=dict)


class Model:
    """The same, key by key.

    Args:
        windowed: Whether there are windows.
        in_order: Whether records come by event time, when the watermark has passed them.
    """

    def __init__(self, windowed: bool, in_order: bool = False) -> None:
        self.windowed = windowed
        self.in_order = in_order
        self.lateness = 0 if in_order else LATENESS
        self.waiting: list[Row] = []
        self.watermark = self.clock = self.output_watermark = 0
        self.scopes: dict[tuple[str, int], Scope] = {}
        self.given: dict[str, list[tuple[int, ...]]] = defaultdict(list)
        self.late: list[tuple[str, int, str | None]] = []

    def act(self, act: Act | str) -> None:
        if isinstance(act, list) and self.in_order:
            self.late += [(row[0], row[1], None) for row in act if row[1] < self.watermark]
            self.waiting += [row for row in act if row[1] >= self.watermark]
        elif isinstance(act, list):
            self._take(act)
            self._drain(self.watermark)
        elif isinstance(act, str):
            self._pass(END_OF_TIME)
            self.watermark = END_OF_TIME
            self._drain(END_OF_TIME)
            at = min(self.output_watermark, LAST_EVENT_TIME)
            for place, scope in self.scopes.items():
                self._tell(place, scope, 9, at, at)
            self.scopes = {}
        elif act[0] == "watermark":
            if act[1] > self.watermark:
                self._pass(act[1])
                if not self.in_order:
                    self.watermark = act[1]
                self._drain(act[1])
                self.watermark = act[1]
        elif act[1] > self.clock:
            while (first := self._wall()) <= act[1]:
                self.clock = max(self.clock, first)
                self._drain(self.watermark)
            self.clock = act[1]
        if not self.windowed:
            self.scopes = {p: s for p, s in self.scopes.items() if s.total or s.timers}
        low = min([self.watermark, *self.holds()])
        self.output_watermark = max(self.output_watermark, low)

    def _pass(self, upto: int) -> None:
        """Process the rows of one instant at a time."""
        passed = [row for row in self.waiting if row[1] < upto]
        self.waiting = [row for row in self.waiting if row[1] >= upto]
        for at in sorted({row[1] for row in passed}):
            self._drain(at)
            self.watermark = max(self.watermark, at)
            self._take([row for row in passed if row[1] == at])
            self._drain(self.watermark)

    def holds(self) -> list[int]:
        every = [t for scope in self.scopes.values() for t in scope.timers.values()]
        return [hold for _, hold in every if hold is not None]

    def _wall(self) -> int:
        found = [s.timers[2][0] for s in self.scopes.values() if 2 in s.timers]
        return min(found, default=END_OF_TIME)

    def _take(self, rows: list[Row]) -> None:
        admitted: list[tuple[Scope, Row]] = []
        for row in rows:
            start = row[1] // SIZE * SIZE if self.windowed else 0
            if self.windowed and start + SIZE + self.lateness <= self.watermark:
                self.late.append((row[0], row[1], None))
                continue
            self.late += [(row[0], row[1], "four")] * (row[3] == 4)
            end = start + SIZE if self.windowed else 0
            scope = self.scopes.setdefault((row[0], start), Scope(end=end))
            scope.total += row[2]
            admitted.append((scope, row))
        for number in range(3):
            for held in (False, True):
                for scope, (_, at, _, timer, after, hold) in admitted:
                    if timer == number and (hold >= 0) == held:
                        time = after + (self.clock if number == 2 else at)
                        if self.windowed and number != 2:
                            time = min(time, scope.end + self.lateness)
                        scope.timers[number] = (time, at + hold if held else None)
        for scope, row in admitted:
            if row[3] == 3:
                scope.timers = {}

    def _drain(self, upto: int) -> None:
        before = self.watermark
        for place, scope in list(self.scopes.items()):
            self.watermark = before
            while True:
                event = [(t, n) for n, (t, _) in scope.timers.items() if n < 2]
                due = [each for each in event if each[0] <= upto]
                if due:
                    self.watermark = max(self.watermark, min(due)[0])
                if not due and 2 in scope.timers and scope.timers[2][0] <= self.clock:
                    due = [(scope.timers[2][0], 2)]
                if not due:
                    break
                time, number = min(due)
                _, hold = scope.timers.pop(number)
                at = hold if hold is not None else self.output_watermark if number == 2 else time
                self._tell(place, scope, number, at, time)
                if number == 1 and scope.total > 0:
                    scope.total -= 1
                    again = time + 2
                    if self.windowed:
                        again = min(again, scope.end + self.lateness)
                    scope.timers[1] = (again, None)
                elif number == 1:
                    scope.total = 0
            if self.windowed and scope.end + self.lateness <= upto:
                self.watermark = max(self.watermark, scope.end + self.lateness)
                at = max(scope.end - 1, self.output_watermark)
                self._tell(place, scope, 8, at, at)
                del self.scopes[place]
        self.watermark = before

    def _tell(self, place: tuple[str, int], scope: Scope, what: int, at: int, due: int) -> None:
        told = (at, what, due, self.clock, self.watermark, scope.total)
        self.given[f"{place[0]} {place[1]}"].append(told)


_ROWS = st.tuples(
    st.sampled_from("abc"),
    st.integers(1, 60),
    st.integers(0, 3),
    st.integers(-1, 4),
    st.integers(-3, 30),
    st.integers(-1, 20),
)
ACTS = st.lists(
    st.one_of(
        st.lists(_ROWS, min_size=1, max_size=6),
        st.tuples(st.just("watermark"), st.integers(0, 80)),
        st.tuples(st.just("clock"), st.integers(0, 80)),
    ),
    max_size=12,
)


def step(act: Act | str) -> StepInput:
    if isinstance(act, str):
        return EndOfInput()
    if isinstance(act, tuple):
        name, to = act
        return WatermarkAdvance(to) if name == "watermark" else ClockAdvance(to)
    keys, times, *columns = zip(*act, strict=True)
    values = {
        name: Column(np.array(column, dtype=np.int64))
        for name, column in zip(("added", "timer", "after", "hold"), columns, strict=True)
    }
    return Bundle(np.array(times, dtype=np.int64), (Column.of_objects(keys),), values)
