"""Explains line by line, from a trace, why a window has fired or has not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from lowwater.display.text import counted, shown
from lowwater.engine.graph.trace import StageTrace, Trace, TracedElement, TracedMerge
from lowwater.engine.records.panes import Pane
from lowwater.engine.window.windowing import Windowing
from lowwater.errors import InvalidArgument, describe
from lowwater.explain.lineage import Lineage
from lowwater.explain.text import (
    Explanation,
    Times,
    element_text,
    sample_lines,
    values_text,
)
from lowwater.explain.waiting import Waiting, holder, last_move
from lowwater.time import (
    END_OF_TIME,
    START_OF_TIME,
    Instant,
    InstantLike,
    format_duration,
    instant,
    rounded_up,
    saturating_add,
)
from lowwater.triggers import looks_at_watermark, outlook
from lowwater.windows import Window

WindowLike: TypeAlias = Window | InstantLike | tuple[InstantLike, InstantLike]

_MOST = 20
_FEW = 5


def explain(trace: Trace, key: Any, window: WindowLike, *, stage: str | None = None) -> Explanation:
    """Explain what happened to a window: its elements, its panes, and what it waits for.

    Of a stage of ``match``, explain what matched: which row stands for which variable, when that
    was decided and what corrected it; or how far the attempts came. Of a stage of ``over``, explain
    the results of rows.

    Args:
        trace: The trace of the run.
        key: The key: a plain value, or a tuple for several key columns.
        window: The window; a ``(start, end)`` pair; or an instant, for all windows around it. Of a
            stage of ``match``: the ``match_start``, or another instant, for the matches around it;
            or a pair, for what begins there. Of a stage of ``over``: the time of a row, or a pair.
        stage: The name of the stage; the last one by default.

    Raises:
        InvalidArgument: There is no such stage, it has no windows, or ``window`` is none of these.
    """
    of = trace.stage(stage)
    if isinstance(key, list):
        key = tuple(key)
    if of.matching is not None:
        # Imported on use: it loads the searches.
        from lowwater.explain.matches import explain_matches

        return explain_matches(of, key, window)
    if of.ranging is not None:
        from lowwater.explain.ranges import explain_ranges

        return explain_ranges(of, key, window)
    if of.counting is not None:
        raise InvalidArgument(
            f"the windows of stage {of.name!r} are of a number of records, and two of a key may "
            "have the same times",
            where="explain",
            hint="Ask which windows have a record: why(element)",
        )
    if of.windowing is None:
        raise InvalidArgument(
            f"stage {of.name!r} has no windows",
            where="explain",
            hint="Name a stage with windows: stage=; or use why(element)",
        )
    lineage = Lineage(of)
    found = [_Life(trace, lineage, of.windowing, key, w) for w in _meant(lineage, key, window)]
    lines = [line for at, life in enumerate(found) for line in ([""] if at else []) + life.lines()]
    return Explanation(
        (*lines, *(f"  {line}" for line in sample_lines([of]))),
        tuple(element for life in found for element in life.elements),
        tuple(pane for life in found for _, pane in life.panes),
    )


def _meant(lineage: Lineage, key: Any, window: WindowLike) -> list[Window]:
    """Return the windows that the argument selects, at least one."""
    if isinstance(window, Window):
        return [window]
    if isinstance(window, (tuple, list)):
        if len(window) != 2:
            raise InvalidArgument(
                f"{describe('window', window)} is not (start, end)",
                where="explain",
                hint='Write ("2000-01-01T12:00:00Z", "2000-01-01T12:02:00Z"), or an instant inside',
            )
        return [Window(instant(window[0], name="start"), instant(window[1], name="end"))]
    at = instant(window, name="window")
    found = [each for each in lineage.windows(key) if at in each]
    return found or _assigned(lineage.stage.windowing, at)


def _assigned(windowing: Windowing | None, at: Instant) -> list[Window]:
    """Return the windows that an element at an instant would be assigned to."""
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
            f"no window of the run contains {at}", where="explain", hint="Give the window's bounds"
        )
    return found


class _Life:
    """The history of one window."""

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
        self.elements = lineage.elements(key, window) or lineage.passing(key, window)
        self.is_gone = lineage.became(key, window, 0) != window
        self.dropped = lineage.dropped(key, window)
        self.panes = lineage.panes(key, window)
        self.merges = lineage.merges_into(key, window)
        move = last_move(self._stage)
        self._now = START_OF_TIME if move is None else move.input_watermark

    def lines(self) -> list[str]:
        """Return the explanation."""
        return [*self._head(), *self._happened(), *self._state()]

    def _head(self) -> Iterator[str]:
        windowing, times = self._windowing, self._times
        day = "" if self._window.start == START_OF_TIME else f" on {times.day}"
        window = f"{times.window(self._window)}{day}"
        if windowing.windows.merge_scope != "none":  # the length of others is the same for all
            window += f", {format_duration(self._window.end - self._window.start)} long"
        yield f"key {shown(self._key)}, window {window}, stage `{self._stage.name}`"
        lateness = format_duration(windowing.lateness_us)
        yield f"  {shown(windowing.windows)}, allowed lateness {lateness}"
        yield f"  {shown(windowing.trigger)}, {windowing.mode}"
        if windowing.fill is not None:
            yield f"  windows without elements are filled: {windowing.fill}"

    def _happened(self) -> Iterator[str]:
        """Yield elements, merges and panes in the order of events."""
        if not (self.elements or self.dropped or self.panes or self.merges):
            yield "  no element of this key " + (
                "arrived for it"
                if self._stage.sample is None
                else "that arrived for it is in the sample"
            )
        came = sorted((*self.elements, *self.dropped), key=lambda element: element.order)
        lines = [(e.order, e.clock, self._element(e)) for e in came[:_MOST]]
        if len(came) > _MOST:
            more = counted(len(came) - _MOST, "element")
            lines.append((came[_MOST].order, came[_MOST].clock, f"… and {more} more"))
        lines += [(merge.order, merge.clock, self._merged(merge)) for merge in self.merges]
        left_out = self.panes[_MOST - 1 : -1]
        for order, pane in self.panes[: _MOST - 1] + self.panes[_MOST - 1 :][-1:]:
            lines.append((order, pane.emitted_at, self._pane(order, pane)))
        if left_out:
            order, pane = left_out[0]
            lines.append((order, pane.emitted_at, f"… and {len(left_out):,} more panes"))
        for _, clock, line in sorted(lines, key=lambda each: each[0]):
            yield f"  {self._times.clock(clock)}  {line}"

    def _merged(self, merge: TracedMerge) -> str:
        return "merged from " + " and ".join(self._times.window(part) for part in merge.of)

    def _element(self, element: TracedElement) -> str:
        what = f"{element_text(element.values)} at {self._times.at(element.time)}"
        if element.retract:
            what = f"retraction of {what}"
        if any(element is each for each in self.elements):
            return f"{what} arrived"
        if element.reason == "closed":
            return f"{what} was dropped (closed): the trigger had already finished"
        gone = max(window.end for window in element.dropped)
        short = element.watermark - gone + 1
        until = saturating_add(gone, self._windowing.lateness_us)
        said = (
            f"{what} was dropped (expired): the watermark was {self._times.at(element.watermark)}, "
            f"and its window had expired at {self._times.at(until)}"
        )
        if any(pane.is_last and pane.watermark < self._expiry for _, pane in self.panes):
            return f"{said}; the trigger had already finished"
        return f"{said}; allowed_lateness={rounded_up(short)!r} would have admitted it"

    def _pane(self, order: int, pane: Pane) -> str:
        name, values = f"{pane.timing} #{pane.index}", values_text(dict(pane.values))
        if pane.kind == "retract":
            return f"retracted {name}: {values}"
        return f"fired {name}: {values}, because {self._why(order, pane)}"

    def _why(self, order: int, pane: Pane) -> str:
        """Return why a pane was emitted: the event just before it that its trigger waited for."""
        times, trigger = self._times, self._windowing.trigger
        if pane.watermark <= self._before(order):
            if not self._is_of_bundle(order) and pane.emitted_at > self._clock_before(order):
                return f"the clock reached {times.clock(pane.emitted_at)}"
            early = pane.timing == "EARLY"
            return "these elements made its trigger ready" if early else "late elements arrived"
        at = f"the watermark reached {times.at(pane.watermark)}"
        if pane.watermark == END_OF_TIME:
            at = "the input ended"
        if pane.watermark < self._expiry or (
            looks_at_watermark(trigger) and pane.timing == "ON_TIME"
        ):
            return at
        return f"{at} and the window expired, which emits all remaining elements"

    def _is_of_bundle(self, order: int) -> bool:
        before = order - 1
        sample = self._stage.sample
        if sample is not None:
            return before in sample.bundles or any(m.order == before for m in self._stage.merges)
        return any(element.order == before for element in self._stage.elements) or any(
            merge.order == before for merge in self._stage.merges
        )

    def _clock_before(self, order: int) -> int:
        """Return the clock before the turn of an event."""
        moved = [move for move in self._stage.moves if move.order < order]
        return moved[-1].clock if moved else START_OF_TIME

    def _before(self, order: int) -> int:
        """Return the watermark before the turn of an event."""
        moved = [move for move in self._stage.moves if move.order < order]
        return moved[-1].input_watermark if moved else START_OF_TIME

    def _state(self) -> Iterator[str]:
        if self.is_gone:
            became = self._lineage.became(self._key, self._window, 0)
            yield f"  it merged into {self._times.window(became)}: explain that window instead"
            return
        fills = self._windowing.fill is not None and bool(self.panes)
        if not self.elements and not fills and not (self._stage.sample is not None and self.panes):
            yield from self._unknown()
            return
        if fills and not self.elements:
            yield "  no element was assigned to it: it is filled, as one before it has some"
        inserts = [pane for _, pane in self.panes if pane.kind == "insert"]
        if not inserts:
            yield "  it has not fired"
        if inserts and inserts[-1].is_last:
            yield from self._over(inserts)
            return
        if self._now >= self._expiry:
            yield f"  it expired at {self._times.at(self._expiry)} and emits no more panes"
            return
        yield f"  it is waiting for {self._waiting().text(self._windowing.trigger)}"
        if self._now < self._window.end:
            yield from self._held(END_ORDER, self._now)
        yield from self._never_ready()

    def _unknown(self) -> Iterator[str]:
        """Describe what exists instead: other windows of the key, or other keys."""
        if self._stage.sample is None:
            yield "  it has not fired: no element was assigned to it, so there is no such window"
            if self._windowing.fill is not None:
                yield (
                    f"  fill={self._windowing.fill!r} fills windows that close behind one of its "
                    "key with elements, as the watermark passes them"
                )
        else:
            yield "  it has not fired; whether it has elements is not known from the sample"
        windows = self._lineage.windows(self._key)
        if windows:
            near = sorted(windows, key=lambda each: abs(each.start - self._window.start))
            texts = ", ".join(self._times.window(each) for each in sorted(near[:_FEW]))
            yield f"  the key has {counted(len(windows), 'window')}; nearest: {texts}"
            return
        keys = list(dict.fromkeys(values_text(each.key) for each in self._stage.elements))
        texts = ", ".join(keys[:_FEW]) or "none"
        more = f" and {len(keys) - _FEW:,} more" if len(keys) > _FEW else ""
        of = "no element" if self._stage.sample is None else "no element of the sample"
        yield f"  {of} has this key; the keys are {texts}{more}"
        null = self._key is None or (isinstance(self._key, tuple) and None in self._key)
        dead_letters = [error for error in self._trace.errors if error.reason == "null_key"]
        if null and dead_letters:
            yield f"  {counted(len(dead_letters), 'element')} without a key became dead letters"

    def _over(self, inserts: Sequence[Pane]) -> Iterator[str]:
        yield "  it is closed and emits no more panes"
        on_time = [p for p in inserts if p.timing == "ON_TIME"] or inserts[:1]
        if on_time[0].watermark == END_OF_TIME and self._window.end < END_OF_TIME:
            before = last_move(self._stage, ended=False)
            if before is not None and before.input_watermark < self._window.end:
                yield "  before the input ended:"
                yield from self._held(before.order + 1, before.input_watermark)
        if inserts[-1].watermark >= self._expiry:
            yield from self._never_ready()
        elif not looks_at_watermark(self._windowing.trigger):
            trigger = self._windowing.trigger
            yield (
                f"  {shown(trigger)} finished with that pane, so later elements are dropped; "
                f"use Repeatedly({shown(trigger)}) to keep firing"
            )

    def _waiting(self) -> Waiting:
        shown_until = max((order for order, _ in self.panes), default=-1)
        fresh = [element for element in self.elements if element.order > shown_until]
        return Waiting(
            self._window.end, self._now >= self._window.end, fresh, self._times,
            is_sample=self._stage.sample is not None,
        )  # fmt: skip

    def _held(self, before: int, watermark: int) -> Iterator[str]:
        times = self._times
        found = holder(self._trace, self._stage, before, times)
        end = times.at(self._window.end)
        yield f"  the watermark, {times.at(watermark)}, is before the window's end, {end}; {found}"

    def _never_ready(self) -> Iterator[str]:
        """Point out if the trigger never fires, so that panes come only at expiry."""
        windowing = self._windowing
        early = outlook(windowing.trigger, late_possible=windowing.lateness_us > 0)
        if looks_at_watermark(windowing.trigger):
            return
        what = "never fires" if not early.times else "ignores the watermark"
        yield (
            f"  {shown(windowing.trigger)} {what}: elements that it has not emitted are emitted "
            f"when the window expires, at {self._times.at(self._expiry)}; use "
            "AfterWatermark(early=..., late=...) to emit them when the window is complete"
        )


END_ORDER = 2**63
"""An order after all events."""
