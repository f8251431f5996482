"""Why a window has fired, or has not: from the trace of a run, line by line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from lowwater.engine.panes import Pane
from lowwater.engine.trace import StageTrace, Trace, TracedElement, TracedMerge
from lowwater.engine.windowing import Windowing
from lowwater.errors import InvalidArgument, describe
from lowwater.explain.holding import holder, last_move
from lowwater.explain.lineage import Lineage
from lowwater.explain.text import Explanation, Times, counted, element_text, rounded_up, shown
from lowwater.explain.waiting import Waiting, looks_at_watermark
from lowwater.time import (
    END_OF_TIME,
    START_OF_TIME,
    Instant,
    InstantLike,
    format_duration,
    instant,
    saturating_add,
)
from lowwater.triggers import outlook
from lowwater.windows import Window

WindowLike: TypeAlias = Window | InstantLike | tuple[InstantLike, InstantLike]

_MOST = 20


def explain(trace: Trace, key: Any, window: WindowLike, *, stage: str | None = None) -> Explanation:
    """Return line by line what became of a window: its elements, its panes, what it waits for.

    Args:
        trace: The trace of the run.
        key: The key: a plain value, or a tuple for several key columns.
        window: The window; a ``(start, end)`` pair; or an instant, for all windows it lies in.
        stage: The name of the stage; the last one unless given.

    Raises:
        InvalidArgument: There is no such stage, it has no windows, or ``window`` is none of these.
    """
    of = trace.stage(stage)
    if of.windowing is None:
        raise InvalidArgument(
            f"stage {of.name!r} has no windows",
            where="explain",
            mend="Name a stage that has, with stage=; or ask why(element)",
        )
    if isinstance(key, list):
        key = tuple(key)
    lineage = Lineage(of)
    found = [_Life(trace, lineage, of.windowing, key, w) for w in _meant(lineage, key, window)]
    return Explanation(
        tuple(
            line for at, life in enumerate(found) for line in ([""] if at else []) + life.lines()
        ),
        tuple(element for life in found for element in life.elements),
        tuple(pane for life in found for _, pane in life.panes),
    )


def _meant(lineage: Lineage, key: Any, window: WindowLike) -> list[Window]:
    """Return the windows that are meant, at least one."""
    if isinstance(window, Window):
        return [window]
    if isinstance(window, (tuple, list)):
        if len(window) != 2:
            raise InvalidArgument(
                f"{describe('window', window)} is not (start, end)",
                where="explain",
                mend='Write ("2000-01-01T12:00:00Z", "2000-01-01T12:02:00Z"), or an instant inside',
            )
        return [Window(instant(window[0], name="start"), instant(window[1], name="end"))]
    at = instant(window, name="window")
    found = [each for each in lineage.windows(key) if at in each]
    return found or _assigned(lineage.stage.windowing, at)


def _assigned(windowing: Windowing | None, at: Instant) -> list[Window]:
    """Return the windows that an element at an instant would be in."""
    if windowing is None or windowing.windows.columns:
        found = []
    else:
        assigned = windowing.windows.assign(np.array([at], dtype=np.int64), {})
        found = [
            Window(Instant(start), Instant(end))
            for start, end in zip(assigned.start.tolist(), assigned.end.tolist(), strict=True)
        ]
    if not found:
        raise InvalidArgument(
            f"no window of the run has {at} in it", where="explain", mend="Give a window's bounds"
        )
    return found


class _Life:
    """One window's life."""

    def __init__(
        self, trace: Trace, lineage: Lineage, windowing: Windowing, key: Any, window: Window
    ) -> None:
        self._trace = trace
        self._lineage = lineage
        self._stage: StageTrace = lineage.stage
        self._windowing = windowing
        self._key = key
        self._window = window
        self._times = Times.of(window.start if window.start > START_OF_TIME else 0)
        self._expiry = saturating_add(window.end, windowing.lateness_us)
        self.elements = lineage.elements(key, window)
        self.dropped = lineage.dropped(key, window)
        self.panes = lineage.panes(key, window)
        move = last_move(self._stage)
        self._now = START_OF_TIME if move is None else move.input_watermark

    def lines(self) -> list[str]:
        """Return what to say of it."""
        return [*self._head(), *self._happened(), *self._state()]

    def _head(self) -> Iterator[str]:
        windowing, times = self._windowing, self._times
        day = "" if self._window.start == START_OF_TIME else f" on {times.day}"
        window = f"{times.window(self._window)}{day}"
        yield f"key {self._key!r}, window {window}, stage `{self._stage.name}`"
        lateness = format_duration(windowing.lateness_us)
        yield f"  {windowing.windows!r}, allowed lateness {lateness}"
        yield f"  {windowing.trigger!r}, {windowing.mode}"

    def _happened(self) -> Iterator[str]:
        """Yield elements, merges and panes in the order in which they came."""
        if not self.elements and not self.dropped:
            yield "  no element of this key came for it"
        came = sorted((*self.elements, *self.dropped), key=lambda element: element.order)
        lines = [(e.order, e.clock, self._element(e)) for e in came[:_MOST]]
        if len(came) > _MOST:
            more = counted(len(came) - _MOST, "element")
            lines.append((came[_MOST].order, came[_MOST].clock, f"… and {more} more"))
        lines += [
            (merge.order, merge.clock, self._merged(merge))
            for merge in self._lineage.merges_into(self._key, self._window)
        ]
        lines += [(order, pane.emitted_at, self._pane(order, pane)) for order, pane in self.panes]
        for _, clock, line in sorted(lines, key=lambda each: each[0]):
            yield f"  {self._times.at(clock)}  {line}"

    def _merged(self, merge: TracedMerge) -> str:
        return "made of " + " and ".join(self._times.window(part) for part in merge.of)

    def _element(self, element: TracedElement) -> str:
        what = f"{element_text(element.values)} at {self._times.at(element.time)}"
        if element.retract:
            what = f"taken back: {what}"
        if any(element is each for each in self.elements):
            return f"{what} came in"
        if element.reason == "closed":
            return f"{what} was dropped, closed: the trigger had finished"
        gone = max(window.end for window in element.dropped)
        short = element.watermark - gone + 1
        until = saturating_add(gone, self._windowing.lateness_us)
        return (
            f"{what} was dropped, expired: the watermark was {self._times.at(element.watermark)}, "
            f"its window was kept until {self._times.at(until)}; "
            f"allowed_lateness={rounded_up(short)!r} would have taken it"
        )

    def _pane(self, order: int, pane: Pane) -> str:
        name, values = f"{pane.timing} #{pane.index}", shown(dict(pane.values))
        if pane.kind == "retract":
            return f"took back {name}: {values}"
        return f"fired {name}: {values}, as {self._why(order, pane)}"

    def _why(self, order: int, pane: Pane) -> str:
        """Return why a pane came: what happened just before it, and what waited for that."""
        times, trigger = self._times, self._windowing.trigger
        if pane.watermark <= self._before(order):
            if not self._is_of_bundle(order):
                return f"the clock reached {times.at(pane.emitted_at)}"
            early = pane.timing == "EARLY"
            return "its trigger was ready with these elements" if early else "elements came late"
        at = f"the watermark reached {times.at(pane.watermark)}"
        if pane.watermark == END_OF_TIME:
            at = "the input ended"
        if pane.watermark < self._expiry or (
            looks_at_watermark(trigger) and pane.timing == "ON_TIME"
        ):
            return at
        return f"{at} and the window expired: what no pane has shown comes then"

    def _is_of_bundle(self, order: int) -> bool:
        before = order - 1
        return any(element.order == before for element in self._stage.elements) or any(
            merge.order == before for merge in self._stage.merges
        )

    def _before(self, order: int) -> int:
        """Return the watermark before the turn in which something of an order happened."""
        moved = [move for move in self._stage.moves if move.order < order]
        return moved[-1].input_watermark if moved else START_OF_TIME

    def _state(self) -> Iterator[str]:
        became = self._lineage.became(self._key, self._window, 0)
        if became != self._window and not self.elements:
            yield f"  it became {self._times.window(became)}: ask for that"
            return
        if not self.elements:
            yield "  it has not fired: it has no elements, so there is no such window"
            return
        inserts = [pane for _, pane in self.panes if pane.kind == "insert"]
        if not inserts:
            yield "  it has not fired"
        if inserts and inserts[-1].is_last:
            yield from self._over(inserts)
            return
        yield f"  it waits for {self._waiting().text(self._windowing.trigger)}"
        if self._now < self._window.end:
            yield from self._held(END_ORDER, self._now)
        elif self._now >= self._expiry:
            yield f"  it expired at {self._times.at(self._expiry)}"
        yield from self._never_ready()

    def _over(self, inserts: Sequence[Pane]) -> Iterator[str]:
        yield "  it is closed: no more panes can come"
        on_time = [p for p in inserts if p.timing == "ON_TIME"] or inserts[:1]
        if on_time[0].watermark == END_OF_TIME and self._window.end < END_OF_TIME:
            before = last_move(self._stage, ended=False)
            if before is not None and before.input_watermark < self._window.end:
                yield "  until the input ended:"
                yield from self._held(before.order + 1, before.input_watermark)
        yield from self._never_ready()

    def _waiting(self) -> Waiting:
        shown_until = max((order for order, _ in self.panes), default=-1)
        fresh = [element for element in self.elements if element.order > shown_until]
        return Waiting(self._window.end, self._now >= self._window.end, fresh, self._times)

    def _held(self, before: int, watermark: int) -> Iterator[str]:
        times = self._times
        found = holder(self._trace, self._stage, before, times)
        yield f"  watermark {times.at(watermark)} < end {times.at(self._window.end)}; {found}"

    def _never_ready(self) -> Iterator[str]:
        """Say so if only expiry shows what the window has."""
        windowing = self._windowing
        early = outlook(windowing.trigger, late_possible=windowing.lateness_us > 0)
        if looks_at_watermark(windowing.trigger):
            return
        what = "never fires" if not early.times else "does not look at the watermark"
        yield (
            f"  {windowing.trigger!r} {what}: what it has not shown comes when the window expires, "
            f"at {self._times.at(self._expiry)}; use AfterWatermark(early=..., late=...) "
            "to have it when the window is complete"
        )


END_ORDER = 2**63
"""An order that nothing has yet."""
