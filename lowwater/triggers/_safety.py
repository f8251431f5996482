"""What is known of a trigger without running it: when it may fire and finish, and how often."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import assert_never, final

from lowwater.triggers._values import (
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


class Moment(IntEnum):
    """The earliest moment in the life of a window at which something may happen."""

    NEVER = 0
    AT_COMPLETION = 1
    ANYTIME = 2


@final
@dataclass(frozen=True, slots=True)
class Outlook:
    """When a trigger may first fire and finish, and how many times it may fire (2: or more)."""

    fires: Moment
    finishes: Moment
    times: int


_FINISHING = {
    "never": Moment.NEVER,
    "at_completion": Moment.AT_COMPLETION,
    "anytime": Moment.ANYTIME,
}


def outlook(trigger: Trigger, *, late_possible: bool) -> Outlook:
    """Return what a trigger may do.

    Args:
        trigger: The trigger.
        late_possible: Whether a window takes elements after its completion (the allowed lateness
            is above zero), without which ``late`` never fires.
    """
    match trigger:
        case AfterCount() | AfterProcessingTime():
            return Outlook(Moment.ANYTIME, Moment.ANYTIME, 1)
        case Never():
            return Outlook(Moment.NEVER, Moment.NEVER, 0)
        case Always():
            return Outlook(Moment.ANYTIME, Moment.NEVER, 2)
        case Default():
            return outlook(trigger.expand(), late_possible=late_possible)
        case CustomTrigger():
            return Outlook(Moment.ANYTIME, _FINISHING[trigger.finishes], 2)
        case AfterWatermark():
            early = _part(trigger.early, late_possible)
            late = _part(trigger.late if late_possible else None, late_possible)
            return Outlook(
                max(early.fires, Moment.AT_COMPLETION),
                Moment.AT_COMPLETION if trigger.late is None else Moment.NEVER,
                1 if early.times == late.times == 0 else 2,
            )
        case Repeatedly():
            part = _part(trigger.trigger, late_possible)
            again = 2 if part.finishes is not Moment.AT_COMPLETION or late_possible else 1
            return Outlook(part.fires, Moment.NEVER, min(part.times, 1) * again)
        case OrFinally():
            main, until = _part(trigger.main, late_possible), _part(trigger.until, late_possible)
            return Outlook(
                max(main.fires, until.fires),
                max(main.finishes, until.fires),
                min(2, main.times + min(until.times, 1)),
            )
        case AfterAny():
            parts = [_part(part, late_possible) for part in trigger.parts]
            fires = max(part.fires for part in parts)
            return Outlook(fires, fires, 0 if fires is Moment.NEVER else 1)
        case AfterAll():
            parts = [_part(part, late_possible) for part in trigger.parts]
            fires = min(part.fires for part in parts)
            return Outlook(fires, fires, 0 if fires is Moment.NEVER else 1)
        case AfterEach():
            parts = [_part(part, late_possible) for part in trigger.parts]
            times = 0
            for part in parts:
                times += part.times
                if part.finishes is Moment.NEVER:
                    break
            return Outlook(parts[0].fires, min(part.finishes for part in parts), min(2, times))
        case _:
            assert_never(trigger)


def _part(trigger: Trigger | None, late_possible: bool) -> Outlook:
    return outlook(trigger or Never(), late_possible=late_possible)
