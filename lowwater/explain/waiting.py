"""Describes what a trigger is waiting for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never, final

from lowwater.engine.graph.trace import TracedElement
from lowwater.explain.text import Times, counted
from lowwater.time import format_duration, saturating_add
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


@final
@dataclass(frozen=True, slots=True)
class Waiting:
    """A window as its trigger observes it.

    Args:
        end: The end of the window, int microseconds.
        complete: Whether the watermark has passed the end.
        fresh: The elements that arrived since the last pane.
        times: Formats instants.
    """

    end: int
    complete: bool
    fresh: Sequence[TracedElement]
    times: Times

    def text(self, trigger: Trigger) -> str:
        """Describe what the trigger is waiting for."""
        match trigger:
            case Default():
                return self.text(trigger.expand())
            case AfterWatermark():
                return self._watermark(trigger)
            case AfterCount():
                elements = counted(trigger.count, "element")
                return f"{elements} since the last pane (so far {len(self.fresh):,})"
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
                return f"its custom logic, {trigger.logic!r}"
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
        return f"the clock to reach {self.times.at(at)} ({reason})"


def looks_at_watermark(trigger: Trigger) -> bool:
    """Whether a trigger can become ready when the watermark passes the end of a window."""
    match trigger:
        case AfterWatermark() | Default() | CustomTrigger():
            return True
        case Repeatedly():
            return looks_at_watermark(trigger.trigger)
        case OrFinally():
            return looks_at_watermark(trigger.main) or looks_at_watermark(trigger.until)
        case AfterAny():
            return any(looks_at_watermark(part) for part in trigger.parts)
        case AfterAll() | AfterEach():
            return any(looks_at_watermark(part) for part in trigger.parts)
        case AfterCount() | AfterProcessingTime() | Never() | Always():
            return False
        case _:
            assert_never(trigger)
