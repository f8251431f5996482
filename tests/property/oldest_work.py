"""What a stage has in hand, kept beside it: elements no pane has shown, timers that are set."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias, final

from lowwater.engine.graph.graph import Stage
from lowwater.engine.join.joining import Between, Joining
from lowwater.engine.keyed.operator import SideBundle
from lowwater.engine.keyed.sides import LEFT, Side
from lowwater.engine.process.operator import InputBundle
from lowwater.engine.records.steps import INSERT, Bundle, EndOfInput, WatermarkAdvance
from lowwater.engine.stages.computed import Computed
from lowwater.engine.stages.joined import Joined
from lowwater.engine.stages.window_joined import WindowJoined
from lowwater.engine.stages.windowed import Windowed
from lowwater.engine.window.windowing import Windowing
from lowwater.testing._oracle_windows import windows_of
from lowwater.time import END_OF_TIME, Instant
from lowwater.windows import Sessions
from tests.property.graphs import SECOND, timers_of

Element: TypeAlias = tuple[Any, int, int, int]  # key, start and end of its (proto-)window, time


class Beside(Protocol):
    """What is kept beside a stage."""

    def note(self, step: Any, output: Any, watermark: int, promised: int) -> None:
        """Take note of a step, and the input and output watermark before it."""
        ...

    def oldest(self) -> int:
        """Return the output time of the oldest work in hand; the end of time if there is none."""
        ...


def beside(stage: Stage) -> Beside:
    """Return what is to be kept beside a stage."""
    match stage.work:
        case Windowed() | WindowJoined():
            return Unshown(stage.work.windowing)
        case Joined(joining=Joining(within=Between()) as joining):
            return Unpaired(joining, signed=stage.retracts)
        case Computed():
            return Rings(in_order=stage.work.order == "event_time")
        case _:
            return Nothing()


@final
class Watched:
    """An operator, and what is kept beside it; each step checks what it promised before."""

    def __init__(self, operator: Any, model: Beside) -> None:
        self._operator = operator
        self.model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._operator, name)

    def step(self, step: Any) -> Any:
        watermark, promised = self._operator.watermark, self._operator.output_watermark
        output = self._operator.step(step)
        self.model.note(step, output, watermark, promised)
        if isinstance(self.model, Unshown) and output.panes is not None:
            self.model.check_kept(output.panes, promised)
        return output


@final
class Unshown:
    """The elements of a windowed stage that no pane has emitted.

    A firing shows all that its window holds. Elements that were late when they came hold nothing
    but what they bring to light (S-H2).

    Args:
        windowing: The stage's.
    """

    def __init__(self, windowing: Windowing) -> None:
        self._windowing = windowing
        self._merges = isinstance(windowing.windows, Sessions)
        self._unshown: set[Element] = set()
        self._came: set[Element] = set()
        self._shows_timely: list[bool] = []

    def note(self, step: Any, output: Any, watermark: int, promised: int) -> None:
        if isinstance(step, Bundle):
            dropped = set()
            if output.late is not None:
                late = output.late
                dropped = set(
                    zip(late.element.tolist(), late.start.tolist(), late.end.tolist(), strict=True)
                )
            keys = step.keys[0].to_list()
            for at, (key, time) in enumerate(zip(keys, step.times.tolist(), strict=True)):
                for window in windows_of(self._windowing.windows, Instant(time), {}):
                    start, end = int(window.start), int(window.end)
                    if (at, start, end) not in dropped and time >= watermark:
                        self._unshown.add((key, start, end, time))
                        self._came.add((key, start, end, time))
        self._shows_timely = []
        if output.panes is not None:
            self._show(output.panes)

    def oldest(self) -> int:
        """Exact but for sessions whose panes are not at their earliest: their end may move on."""
        rule = self._windowing.timestamps
        if rule == "earliest":
            return min((time for *_, time in self._unshown), default=END_OF_TIME)
        if self._merges:
            return END_OF_TIME
        if rule == "end":
            return min((end - 1 for _, _, end, _ in self._unshown), default=END_OF_TIME)
        # A pane of all so far is at the latest of all so far, shown before or not (S-H1).
        among = self._unshown if self._windowing.mode == "discarding" else self._came
        latest: dict[Any, int] = {}
        for *window, time in among:
            latest[tuple(window)] = max(time, latest.get(tuple(window), time))
        waiting = {element[:3] for element in self._unshown}
        return min((latest[window] for window in waiting), default=END_OF_TIME)

    def check_kept(self, panes: Any, promised: int) -> None:
        """Check that no pane which brings a timely element to light is late to the next stage.

        One that shows again what was shown before may be of an earlier time (S-H1).
        """
        if self._windowing.timestamps == "earliest" and self._windowing.mode != "discarding":
            return
        inserts = [at for at, kind in enumerate(panes.kind.tolist()) if kind == INSERT]
        for at, timely in zip(inserts, self._shows_timely, strict=True):
            assert not timely or panes.timestamp[at] >= promised

    def _show(self, panes: Any) -> None:
        keys = panes.keys[0].to_list()
        for at, kind in enumerate(panes.kind.tolist()):
            if kind != INSERT:
                continue
            start, end = int(panes.start[at]), int(panes.end[at])
            shown = [
                element
                for element in self._unshown
                if element[0] == keys[at]
                and (
                    (start <= element[1] and element[2] <= end)
                    if self._merges
                    else (start, end) == element[1:3]
                )
            ]
            self._shows_timely.append(bool(shown))
            self._unshown.difference_update(shown)


@final
class Nothing:
    """A stage through which the watermark passes: a table, or a join with a history."""

    def note(self, step: Any, output: Any, watermark: int, promised: int) -> None:
        pass

    def oldest(self) -> int:
        return END_OF_TIME


@final
class Unpaired:
    """The timely records of a join that may still come out by themselves (J-4).

    Args:
        joining: The rules of the join.
        signed: Whether it retracts: then a record with a partner may still lose it.
    """

    def __init__(self, joining: Joining, *, signed: bool) -> None:
        self._joining = joining
        self._signed = signed
        self._rows: tuple[list[tuple[Any, int]], list[tuple[Any, int]]] = ([], [])
        self._waiting: list[tuple[Side, Any, int]] = []

    def note(self, step: Any, output: Any, watermark: int, promised: int) -> None:
        if isinstance(step, SideBundle):
            dropped = set() if output.late is None else set(output.late.element.tolist())
            keys = step.bundle.keys[0].to_list()
            for at, (key, time) in enumerate(zip(keys, step.bundle.times.tolist(), strict=True)):
                sign = 1 if step.bundle.signs is None else int(step.bundle.signs[at])
                if at not in dropped and sign > 0:
                    self._rows[step.side].append((key, time))
                    if time >= watermark and self._joining.waits(step.side):
                        self._waiting.append((step.side, key, time))
                elif sign < 0 and (step.side, key, time) in self._waiting:
                    self._waiting.remove((step.side, key, time))
        if isinstance(step, (WatermarkAdvance, EndOfInput)):
            to = END_OF_TIME if isinstance(step, EndOfInput) else step.to
            self._waiting = [one for one in self._waiting if not self._is_over(one, to)]
        if not self._signed:
            self._waiting = [one for one in self._waiting if not self._has_partner(*one)]

    def oldest(self) -> int:
        return min((time for *_, time in self._waiting), default=END_OF_TIME)

    def _is_over(self, one: tuple[Side, Any, int], to: int) -> bool:
        side, _, time = one
        lasts = self._joining.horizon_us(side) + self._joining.lateness_us
        return to == END_OF_TIME or to > time + lasts

    def _has_partner(self, side: Side, key: Any, time: int) -> bool:
        between = range(self._joining.low_us, self._joining.high_us + 1)
        return any(
            key == other and (at - time if side == LEFT else time - at) in between
            for other, at in self._rows[1 - side]
        )


@final
class Rings:
    """The timers of :class:`tests.property.graphs.Alarms`: what is set, and what must have rung.

    Args:
        in_order: Whether records come by event time, when the watermark has passed them.
    """

    def __init__(self, *, in_order: bool) -> None:
        self._in_order = in_order
        self._waiting: list[tuple[int, int, int, Any, int]] = []
        self._arrived = 0
        self._set: dict[Any, dict[tuple[str, Any], tuple[int, int, int | None]]] = {}
        self._turn = 0
        self.due: dict[Any, list[tuple[str, int, int]]] = {}
        self.rang: dict[Any, list[tuple[str, int, int]]] = {}

    def note(self, step: Any, output: Any, watermark: int, promised: int) -> None:
        if isinstance(step, InputBundle):
            bundle = step.bundle
            keys, values = bundle.keys[0].to_list(), bundle.values["v"].to_list()
            for key, time, v in zip(keys, bundle.times.tolist(), values, strict=True):
                if not self._in_order:
                    self._record(key, time, v, promised)
                    self._ring(key, watermark)
                elif time >= watermark:
                    self._waiting.append((time, step.nth, self._arrived, key, v))
                    self._arrived += 1
        elif isinstance(step, (WatermarkAdvance, EndOfInput)):
            to = END_OF_TIME if isinstance(step, EndOfInput) else step.to
            passed = sorted(one for one in self._waiting if one[0] < to)
            self._waiting = [one for one in self._waiting if one[0] >= to]
            for time, _, _, key, v in passed:
                self._ring(key, time)
                self._record(key, time, v, promised)
                self._ring(key, time)
            for key in list(self._set):
                self._ring(key, to)
        emitted = output.outputs.get("rang")
        if emitted is not None:
            for key, value in zip(emitted.keys[0].to_list(), emitted.to_list(), strict=True):
                found = (value["name"], value["v"], value["n"])
                self.rang.setdefault(key, []).append(found)

    def oldest(self) -> int:
        holds = [held for timers in self._set.values() for *_, held in timers.values()]
        holds += [time for time, *_ in self._waiting]
        return min((held for held in holds if held is not None), default=END_OF_TIME)

    def _record(self, key: Any, time: int, v: int, promised: int) -> None:
        for name, at, held, tag in timers_of(v, time):
            late = held is not None and held < promised  # it cannot go back
            self._put(key, name, tag, at, None if late else held)

    def _put(self, key: Any, name: str, tag: Any, at: int | None, held: int | None) -> None:
        timers = self._set.setdefault(key, {})
        if at is None:
            timers.pop((name, tag), None)
        else:
            timers[name, tag] = (at, self._turn, held)
            self._turn += 1

    def _ring(self, key: Any, watermark: int) -> None:
        """Fire what is due, in the order of time and then of setting (S-K3)."""
        timers = self._set.get(key, {})
        while timers:
            slot = min(timers, key=lambda slot: timers[slot][:2])
            at = timers[slot][0]
            if at > watermark:
                return
            del timers[slot]
            name, tag = slot
            self.due.setdefault(key, []).append((name, at // SECOND, tag or 0))
            if name == "near":
                self._put(key, "far", None, at + 2 * SECOND, None)
