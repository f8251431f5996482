"""A process that does as its records say, and the same stated a second time, scalar by scalar.

The model keeps a plain list of timers and looks through all of it, all of the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np
from hypothesis import strategies as st

import lowwater as lw
from lowwater.engine.process.operator import InputBundle
from lowwater.engine.records.columns import Column
from lowwater.engine.records.stage_output import StageOutput
from lowwater.engine.records.steps import (
    Bundle,
    ClockAdvance,
    EndOfInput,
    StepInput,
    WatermarkAdvance,
)
from lowwater.time import END_OF_TIME, LAST_EVENT_TIME

SIZE = 10
LATENESS = 5
NAMES = ("once", "again", "wall")

_Due = tuple[int, int, int, tuple[str, int], tuple[str, Any] | None]
Record = tuple[str, int, tuple[tuple[Any, ...], ...]]
Act = list[Record] | tuple[str, int] | str


class Scripted:
    """Does what each record lists: sets and clears cells and timers, and tells of all calls.

    Args:
        allowed: How long after its end a window expires.
    """

    def __init__(self, allowed: int = LATENESS) -> None:
        self.allowed = allowed

    total = lw.value_cell(0)
    seen = lw.list_cell()
    names = lw.set_cell()
    by_name = lw.map_cell()
    least = lw.combining_cell(lw.min())
    ordered = lw.ordered_cell()
    once = lw.timer()
    again = lw.timer()
    wall = lw.timer(domain="processing")
    told = lw.output()

    def on_record(self, record: Any, ctx: Any) -> None:
        for act, *rest in record["acts"]:
            if act == "set":
                name, after, hold, tag = rest
                base = ctx.clock if name == "wall" else ctx.time
                is_bounded = ctx.window and name != "wall"
                bound = ctx.window.end + self.allowed if is_bounded else END_OF_TIME
                at = min(base + after, bound)
                output_time = None if hold is None else ctx.time + hold
                getattr(ctx, name).set(at, output_time=output_time, tag=tag)
            elif act == "clear":
                getattr(ctx, rest[0]).clear(tag=rest[1])
            elif act == "add":
                ctx.total.set(ctx.total.get() + rest[0])
                ctx.seen.append(rest[0])
                ctx.names.add(rest[0])
                ctx.by_name[rest[0]] = ctx.time
                ctx.least.add(rest[0])
                ctx.ordered.add(ctx.time, rest[0])
            elif act == "refuse":
                ctx.late(rest[0])
            elif act == "forget":
                ctx.ordered.delete(None, ctx.time)
                for cell in (ctx.total, ctx.seen, ctx.names, ctx.by_name, ctx.least):
                    cell.clear()
        # What is read counts as changed, so that most records must not.
        all_told = told(ctx) if ("tell",) in [tuple(act) for act in record["acts"]] else []
        ctx.emit(["record", ctx.total.get(), ctx.watermark, *all_told], tag="told")

    def on_timer(self, name: str, ctx: Any) -> None:
        left = ctx.total.get()
        ctx.emit([name, ctx.tag, ctx.due, ctx.clock, ctx.watermark, *told(ctx)])
        if name == "again" and left > 0:
            ctx.total.set(left - 1)
            bound = ctx.window.end + self.allowed if ctx.window else END_OF_TIME
            ctx.again.set(min(ctx.due + 2, bound), tag=ctx.tag)
        elif name == "again":
            ctx.total.clear()


class ScriptedInWindows(Scripted):
    def on_window_expired(self, ctx: Any) -> None:
        ctx.emit(["expired", ctx.window.start, *told(ctx)])


class ScriptedToTheEnd(Scripted):
    def on_end(self, ctx: Any) -> None:
        ctx.emit(["end", *told(ctx)], time=max(ctx.time, 0))


def told(ctx: Any) -> list[Any]:
    ordered = [list(each) for each in ctx.ordered.range()]
    return [
        ctx.total.get(), ctx.seen.get(), list(ctx.names), ctx.by_name.items(), ctx.least.get(),
        ordered,
    ]  # fmt: skip


@dataclass
class Scope:
    """One key (and window) of the model."""

    key: str
    born: int
    start: int = 0
    end: int = 0
    total: int | None = None
    seen: list[int] = field(default_factory=list)
    by_name: dict[int, int] = field(default_factory=dict)
    ordered: list[list[int]] = field(default_factory=list)
    # Of each name and tag: time, turn, output time.
    timers: dict[tuple[str, Any], tuple[int, int, int | None]] = field(default_factory=dict)

    def told(self) -> list[Any]:
        ordered = sorted(self.ordered, key=lambda pair: pair[0])
        least = min(self.seen, default=None)
        names = list(dict.fromkeys(self.seen))
        return [self.total or 0, list(self.seen), names, list(self.by_name.items()), least, ordered]

    @property
    def live(self) -> bool:
        return self.total is not None or bool(self.seen or self.ordered or self.timers)


class Model:
    """What the steps give, as (tag, key, time, value), by the rules read aloud.

    Args:
        windowed: Whether there are windows.
        in_order: Whether records come by event time, when the watermark has passed them.
    """

    def __init__(self, windowed: bool, in_order: bool = False) -> None:
        self.windowed = windowed
        self.in_order = in_order
        self.lateness = 0 if in_order else LATENESS
        self.waiting: list[tuple[int, int, int, Record]] = []
        self.arrived = 0
        self.watermark = self.output_watermark = 0
        self.clock = 0
        self.turn = self.births = 0
        self.scopes: dict[tuple[str, int], Scope] = {}
        self.late: list[tuple[str, int, str | None]] = []
        self.given: list[tuple[str, str, int, Any]] = []

    def act(self, act: Act) -> None:
        if isinstance(act, list) and self.in_order:
            for key, at, acts in act:
                if at < self.watermark:
                    self.late.append((key, at, None))
                else:
                    record = (key, at, acts)
                    self.waiting.append((at, input_of(record), self.arrived, record))
                    self.arrived += 1
        elif isinstance(act, list):
            for key, at, acts in act:
                self._record(key, at, acts)
                self._drain(self.watermark)
        elif isinstance(act, str):
            self._pass(END_OF_TIME)
            self.watermark = END_OF_TIME
            self._drain(END_OF_TIME)
            for scope in sorted(self.scopes.values(), key=lambda scope: scope.born):
                at = max(min(self.output_watermark, LAST_EVENT_TIME), 0)
                self.given.append(("main", scope.key, at, ["end", *scope.told()]))
            self.scopes = {}
        elif act[0] == "watermark" and act[1] > self.watermark:
            self._pass(act[1])
            if not self.in_order:
                self.watermark = act[1]
            self._drain(act[1])
            self.watermark = act[1]
        elif act[0] == "clock" and act[1] > self.clock:
            while (at := self._next_clock()) <= act[1]:
                self.clock = max(self.clock, at)
                self._drain(self.watermark)
            self.clock = act[1]
        low = min([self.watermark, *self.holds()])
        self.output_watermark = max(self.output_watermark, low)

    def _pass(self, upto: int) -> None:
        passed = sorted(each for each in self.waiting if each[0] < upto)
        self.waiting = [each for each in self.waiting if each[0] >= upto]
        for at, _, _, (key, _, acts) in passed:
            self._drain(at)
            self.watermark = max(self.watermark, at)
            self._record(key, at, acts)
            self._drain(self.watermark)

    def holds(self) -> list[int]:
        every = [t for scope in self.scopes.values() for t in scope.timers.values()]
        return [hold for _, _, hold in every if hold is not None]

    def _next_clock(self) -> int:
        every = [
            time
            for scope in self.scopes.values()
            for (name, _), (time, _, _) in scope.timers.items()
            if name == "wall"
        ]
        return min(every, default=END_OF_TIME + 1)

    def _record(self, key: str, at: int, acts: Sequence[tuple[Any, ...]]) -> None:
        start = at // SIZE * SIZE if self.windowed else 0
        end = start + SIZE if self.windowed else 0
        if self.windowed and end + self.lateness <= self.watermark:
            self.late.append((key, at, None))
            return
        place = (key, start)
        scope = self.scopes.get(place) or Scope(key, -1, start, end)
        refused = [rest[0] for act, *rest in acts if act == "refuse"]
        self.late += [(key, at, reason) for reason in refused[:1]]
        for act, *rest in acts:
            if act == "set":
                name, after, hold, tag = rest
                base = self.clock if name == "wall" else at
                bound = end + self.lateness if self.windowed and name != "wall" else END_OF_TIME
                held = None if hold is None else at + hold
                scope.timers[name, tag] = (min(base + after, bound), self.turn, held)
                self.turn += 1
            elif act == "clear":
                scope.timers.pop((rest[0], rest[1]), None)
            elif act == "add":
                scope.total = (scope.total or 0) + rest[0]
                scope.seen.append(rest[0])
                scope.by_name[rest[0]] = at
                scope.ordered.append([at, rest[0]])
            elif act == "forget":
                scope.ordered = [pair for pair in scope.ordered if pair[0] >= at]
                scope.total, scope.seen, scope.by_name = None, [], {}
        told = scope.told() if ("tell",) in acts else []
        told = ["record", scope.total or 0, self.watermark, *told]
        self.given.append(("told", key, at, told))
        self._settle(place, scope)

    def _settle(self, place: tuple[str, int], scope: Scope) -> None:
        if not (scope.live or self.windowed):
            self.scopes.pop(place, None)
        elif place not in self.scopes:
            scope.born = self.births
            self.births += 1
            self.scopes[place] = scope

    def _drain(self, upto: int) -> None:
        now = -1  # how far it has come: what hooks set for a time past comes next
        while True:
            event: list[_Due] = [
                (time, 0, turn, place, slot)
                for place, scope in self.scopes.items()
                for slot, (time, turn, _) in scope.timers.items()
                if slot[0] != "wall" and time <= upto
            ]
            event += [
                (scope.end + self.lateness, 1, scope.born, place, None)
                for place, scope in self.scopes.items()
                if self.windowed and scope.end + self.lateness <= upto
            ]
            wall: list[_Due] = [
                (time, 0, turn, place, slot)
                for place, scope in self.scopes.items()
                for slot, (time, turn, _) in scope.timers.items()
                if slot[0] == "wall" and time <= self.clock
            ]
            if not event and not wall:
                return
            is_event = bool(event) and (not wall or min(event)[0] <= now)
            due, _, _, place, slot = min(event if is_event else wall, key=lambda each: each[:3])
            if is_event:  # in event-time order, each timer sees the watermark at its time
                now = max(now, due)
                self.watermark = max(self.watermark, due)
            scope = self.scopes[place]
            if slot is None:
                at = max(scope.end - 1, self.output_watermark)
                told = ["expired", scope.start, *scope.told()]
                self.given.append(("main", scope.key, at, told))
                del self.scopes[place]
            else:
                self._fire(place, scope, slot, due)

    def _fire(self, place: tuple[str, int], scope: Scope, slot: tuple[str, Any], due: int) -> None:
        _, _, hold = scope.timers.pop(slot)
        name, tag = slot
        at = hold if hold is not None else self.output_watermark if name == "wall" else due
        told = [name, tag, due, self.clock, self.watermark, *scope.told()]
        self.given.append(("main", scope.key, at, told))
        if name == "again" and (scope.total or 0) > 0:
            assert scope.total is not None
            scope.total -= 1
            bound = scope.end + self.lateness if self.windowed else END_OF_TIME
            scope.timers[slot] = (min(due + 2, bound), self.turn, None)
            self.turn += 1
        elif name == "again":
            scope.total = None
        self._settle(place, scope)


_TAGS = st.sampled_from([None, 1, (2, "x")])
_ACTS = st.one_of(
    st.tuples(
        st.just("set"),
        st.sampled_from(NAMES),
        st.integers(-3, 30),
        st.one_of(st.none(), st.integers(0, 20)),
        _TAGS,
    ),
    st.tuples(st.just("clear"), st.sampled_from(NAMES), _TAGS),
    st.tuples(st.just("add"), st.integers(0, 3)),
    st.tuples(st.just("forget")),
    st.tuples(st.just("refuse"), st.sampled_from(["why", "why not"])),
    st.tuples(st.just("tell")),
)
RECORDS = st.tuples(
    st.sampled_from("abc"), st.integers(1, 60), st.lists(_ACTS, max_size=3).map(tuple)
)
ACTS: st.SearchStrategy[list[Act]] = st.lists(
    st.one_of(
        st.lists(RECORDS, min_size=1, max_size=5),
        st.tuples(st.just("watermark"), st.integers(0, 80)),
        st.tuples(st.just("clock"), st.integers(0, 80)),
    ),
    max_size=12,
)


def all_cut(acts: Sequence[Act], sizes: Sequence[int]) -> list[Act]:
    """Return acts with their records cut into bundles, and the end."""
    return [part for act in [*acts, "end"] for part in cut(act, sizes)]


def cut(act: Act, sizes: Sequence[int]) -> list[Act]:
    """Return an act, or its records cut into bundles of these sizes in turn."""
    if not isinstance(act, list):
        return [act]
    parts: list[Act] = []
    while act:
        size = sizes[len(parts) % len(sizes)]
        parts.append(act[:size])
        act = act[size:]
    return parts


def step(act: Act) -> StepInput:
    """Return the step of an act."""
    if isinstance(act, list):
        return bundle(act)
    if isinstance(act, str):
        return EndOfInput()
    name, to = act
    return WatermarkAdvance(to) if name == "watermark" else ClockAdvance(to)


def input_of(record: Record) -> int:
    """Return which of two inputs a record comes by."""
    return (record[1] // 2 + len(record[2])) % 2


def steps_by_input(act: Act) -> list[tuple[list[Record], StepInput | InputBundle]]:
    """Return the steps of an act, a bundle of each input in turn, with the records of each."""
    if not isinstance(act, list):
        return [([], step(act))]
    runs = [(nth, list(run)) for nth, run in groupby(act, input_of)]
    return [(run, InputBundle(nth, bundle(run))) for nth, run in runs]


def bundle(records: Sequence[Record]) -> Bundle:
    return Bundle(
        np.array([at for _, at, _ in records], dtype=np.int64),
        (Column.of_objects([key for key, _, _ in records]),),
        {"acts": Column.of_objects([list(acts) for _, _, acts in records])},
    )


def given_by(output: StageOutput) -> list[tuple[str, str, int, Any]]:
    """Return what a step gave as the model does: the main output after the other."""
    return [
        (tag, key, at, value)
        for tag, emitted in sorted(output.emitted.items(), reverse=True)
        for key, at, value in zip(
            emitted.keys[0].to_list(), emitted.times.tolist(), emitted.to_list(), strict=True
        )
    ]


def late_of(act: Any, output: StageOutput) -> list[tuple[str, int, str | None]]:
    """Return the late records of a step as the model has them."""
    late = output.late
    if late is None:
        return []
    if output.late_of is not None:
        keys, times = output.late_of.keys[0].to_list(), output.late_of.times.tolist()
        act = list(zip(keys, times, strict=True))
    places = zip(late.element.tolist(), late.all_details(), strict=True)
    return [(act[place][0], act[place][1], detail) for place, detail in places]
