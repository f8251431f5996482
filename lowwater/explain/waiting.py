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
                return (
                    f"{counted(trigger.count, 'element')} since the last pane "
                    f"(there {'is' if len(self.fresh) == 1 else 'are'} {len(self.fresh):,})"
                )
            case AfterProcessingTime():
                return self._clock(trigger)
            case AfterAny():
                return " or ".join(self._part(part) for part in trigger.parts)
            case AfterAll():
                return " and ".join(self._part(part) for part in trigger.parts)
            case AfterEach():
                return ", then ".join(self._part(part) for part in trigger.parts)
            case Repeatedly():
                return f"{self.text(trigger.trigger)}, again and again"
            case OrFinally():
                return f"{self._part(trigger.main)}, until {self._part(trigger.until)}"
            case Never():
                return "nothing: Never() never fires"
            case Always():
                return "the next bundle with an element of the window"
            case CustomTrigger():
                return f"what its own logic says, {trigger.logic!r}"
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
                else f"{text}, or early for {self.text(trigger.early)}"
            )
        if trigger.late is None:
            return "nothing more: it closed at its on-time pane"
        return f"late elements: {self.text(trigger.late)}"

    def _clock(self, trigger: AfterProcessingTime) -> str:
        delay = format_duration(trigger.delay_us)
        aligned = (
            "" if trigger.align_us is None else f", at a full {format_duration(trigger.align_us)}"
        )
        if not self.fresh:
            return f"the clock to be {delay} past its next element{aligned}"
        at = saturating_add(self.fresh[0].clock, trigger.delay_us)
        if trigger.align_us is not None:
            at = -(-at // trigger.align_us) * trigger.align_us
        return f"the clock to reach {self.times.at(at)} ({delay} past its first element{aligned})"
