"""Describes what a trigger is waiting for, and what holds a watermark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never, final

from lowwater.display.text import counted, shown
from lowwater.engine.graph.trace import StageTrace, Trace, TracedElement, TracedMove, TracedSource
from lowwater.explain.text import Times
from lowwater.time import END_OF_TIME, START_OF_TIME, format_duration, saturating_add
from lowwater.triggers import (
    AfterAll,
    AfterAny,
    AfterCount,
    AfterEach,
    AfterProcessingTime,
    AfterWatermark,
    Always,
    CustomTrigger,
    Default,
    Never,
    OrFinally,
    Repeatedly,
    Trigger,
)
from lowwater.watermark import Ascending, BoundedDisorder, PerPartition


@final
@dataclass(frozen=True, slots=True)
class Waiting:
    """A window as its trigger observes it.

    Args:
        end: The end of the window, int microseconds.
        complete: Whether the watermark has passed the end.
        fresh: The elements that arrived since the last pane.
        times: Formats instants.
        is_sample: Whether there may be more such elements.
    """

    end: int
    complete: bool
    fresh: Sequence[TracedElement]
    times: Times
    is_sample: bool = False

    def text(self, trigger: Trigger) -> str:
        """Describe what the trigger is waiting for."""
        match trigger:
            case Default():
                return self.text(trigger.expand())
            case AfterWatermark():
                return self._watermark(trigger)
            case AfterCount():
                elements = counted(trigger.count, "element")
                least = "at least " if self.is_sample else ""
                return f"{elements} since the last pane (so far {least}{len(self.fresh):,})"
            case AfterProcessingTime():
                return self._clock(trigger)
            case AfterAny():
                return " or ".join(self._part(part) for part in trigger.parts)
            case AfterAll():
                return " and ".join(self._part(part) for part in trigger.parts)
            case AfterEach():
                return ", then ".join(self._part(part) for part in trigger.parts)
            case Repeatedly():
                return f"{self.text(trigger.trigger)}, repeatedly"
            case OrFinally():
                return f"{self._part(trigger.main)}, until {self._part(trigger.until)}"
            case Never():
                return "nothing: Never() never fires"
            case Always():
                return "the next bundle with an element for the window"
            case CustomTrigger():
                return f"its custom logic, {shown(trigger.logic)}"
            case _:
                assert_never(trigger)

    def _part(self, trigger: Trigger) -> str:
        text = self.text(trigger)
        composite = isinstance(trigger, (AfterAny, AfterAll, AfterEach, OrFinally))
        return f"({text})" if composite else text

    def _watermark(self, trigger: AfterWatermark) -> str:
        if not self.complete:
            text = f"the watermark to reach {self.times.at(self.end)}"
            return (
                text
                if trigger.early is None
                else f"{text}, or, for an early pane, {self.text(trigger.early)}"
            )
        if trigger.late is None:
            return "nothing more: it closed with its on-time pane"
        return f"late elements: {self.text(trigger.late)}"

    def _clock(self, trigger: AfterProcessingTime) -> str:
        delay = format_duration(trigger.delay_us)
        aligned = ""
        if trigger.align_us is not None:
            aligned = f", rounded up to a multiple of {format_duration(trigger.align_us)}"
        if not self.fresh:
            return f"the clock to be {delay} past the arrival of its next element{aligned}"
        at = saturating_add(self.fresh[0].clock, trigger.delay_us)
        if trigger.align_us is not None:
            at = -(-at // trigger.align_us) * trigger.align_us
        reason = f"{delay} after its first element arrived{aligned}"
        latest = " at the latest" if self.is_sample else ""
        return f"the clock to reach {self.times.at(at)}{latest} ({reason})"


@final
@dataclass(frozen=True, slots=True)
class WatermarkHolder:
    """What holds a watermark.

    Args:
        text: A description.
        hint: How to fix it.
    """

    text: str
    hint: str

    def __str__(self) -> str:
        return f"{self.text}; {self.hint}" if self.hint else self.text


def last_move(stage: StageTrace, *, ended: bool = True) -> TracedMove | None:
    """Return the last watermarks of a stage; with ``ended=False``, before the input ended."""
    for move in reversed(stage.moves):
        if ended or move.input_watermark < END_OF_TIME:
            return move
    return None


def holder(trace: Trace, stage: StageTrace, before: int, times: Times) -> WatermarkHolder:
    """Return what holds the input watermark of a stage.

    Args:
        trace: The trace.
        stage: The stage.
        before: Ignore events with this order or a higher one.
        times: Formats instants.
    """
    names = {each.name: each for each in trace.stages}
    stood = {name: _stood(moves, before) for name, moves in trace.sources.items()}
    found = []
    for name in stage.inputs:
        if name in names:
            moved = [move for move in names[name].moves if move.order < before]
            at = moved[-1].output_watermark if moved else START_OF_TIME
        else:
            source = stood.get(name)
            if source is None:
                continue
            at = END_OF_TIME if source.is_idle else source.watermark
        found.append((at, name))
    if not found:
        return WatermarkHolder(
            "nothing advances it", "advance it with Scenario(...).watermark(...)"
        )
    _, name = min(found, key=lambda each: each[0])
    if name not in names:
        source = stood[name]
        return _of_source(trace, name, source, stood, times)
    above = names[name]
    moved = [move for move in above.moves if move.order < before]
    if moved and moved[-1].output_watermark < moved[-1].input_watermark and above.matching:
        at = moved[-1].output_watermark
        return WatermarkHolder(
            f"stage `{name}` holds it: whether a match begins at {times.at(at)} is undecided",
            f"see explain(key, {str(at)!r}, stage={name!r})",
        )
    if moved and moved[-1].output_watermark < moved[-1].input_watermark:
        return WatermarkHolder(
            f"stage `{name}` holds it: it has elements of {times.at(moved[-1].output_watermark)} "
            "that no pane has emitted",
            f"check its trigger with explain(..., stage={name!r})",
        )
    return holder(trace, above, before, times)


def _stood(moves: Sequence[TracedSource], before: int) -> TracedSource | None:
    known = [move for move in moves if move.order < before]
    return known[-1] if known else None


def _of_source(
    trace: Trace,
    name: str,
    source: TracedSource | None,
    stood: dict[str, TracedSource | None],
    times: Times,
) -> WatermarkHolder:
    read = trace.reads.get(name)
    if source is None:
        return WatermarkHolder(f"source `{name}` has not emitted anything yet", "")
    if read is not None and read.watermark is None:
        return WatermarkHolder(
            f"source `{name}` holds it: it has no watermark until it ends",
            'give it one, as in watermark=BoundedDisorder("10s")',
        )
    silent = source.heard_at is not None and source.clock > source.heard_at
    others = [each for other, each in stood.items() if other != name and each is not None]
    ahead = any(each.watermark > source.watermark for each in others)
    if silent and (ahead or not others) and source.heard_at is not None:
        since = times.at(source.heard_at)
        if not others:
            return WatermarkHolder(
                f"source `{name}` holds it: it has been silent since {since}",
                "the next element advances it",
            )
        set_to = None if read is None else read.idle_after_us
        if set_to is not None:
            return WatermarkHolder(
                f"source `{name}` holds it: it has been idle since {since}",
                f"set a shorter `idle_after=` than {format_duration(set_to)}",
            )
        return WatermarkHolder(
            f"source `{name}` holds it: it has been idle since {since}", "set `idle_after=`"
        )
    return _behind(name, source, None if read is None else read.watermark, times)


def _behind(name: str, source: TracedSource, estimator: object, times: Times) -> WatermarkHolder:
    if isinstance(estimator, BoundedDisorder) and source.watermark > START_OF_TIME:
        delay = int(estimator.delay)  # type: ignore[arg-type]  # made so when it was built
        return WatermarkHolder(
            f"source `{name}` holds it: {shown(estimator)} keeps it "
            f"{format_duration(delay)} behind the latest element, "
            f"{times.at(source.watermark + delay)}",
            "wait for later elements, or use a shorter delay",
        )
    if isinstance(estimator, Ascending) and source.watermark > START_OF_TIME:
        return WatermarkHolder(
            f"source `{name}` holds it: its latest element is at {times.at(source.watermark)}",
            "wait for later elements",
        )
    if source.watermark == START_OF_TIME and source.heard_at is None:
        return WatermarkHolder(
            f"source `{name}` holds it: it has not emitted anything yet",
            "wait, or set `idle_after=`",
        )
    hint = "wait for later elements"
    if isinstance(estimator, PerPartition) and estimator.idle_after is None:
        hint = "set PerPartition(..., `idle_after=`) if it may fall silent"
    return WatermarkHolder(f"source `{name}` holds it: {source.holder}", hint)
