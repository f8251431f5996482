"""A timer as the hooks of a per-record process see it, and what bounds times in a hook."""

from __future__ import annotations

from typing import Any, final

from lowwater.engine.process.cell import Cursor
from lowwater.engine.process.timers import Timers
from lowwater.errors import InvalidArgument, describe
from lowwater.time import (
    END_OF_TIME,
    START_OF_TIME,
    Instant,
    InstantLike,
    format_instant,
    instant,
)


@final
class TimerState:
    """One declared timer as hooks see it: that of the current key.

    Args:
        name: What the process calls it.
        number: Its number among those declared.
        timers: All timers.
        cursor: Whose timer it is.
        moment: What bounds it.
    """

    __slots__ = ("_bounded", "_cursor", "_moment", "_number", "_timers", "name")

    def __init__(
        self, name: str, number: int, timers: Timers, cursor: Cursor, moment: Moment
    ) -> None:
        self._bounded = timers.is_event(number)
        self.name = name
        self._number = number
        self._timers = timers
        self._cursor = cursor
        self._moment = moment

    def set(
        self, time: InstantLike, *, output_time: InstantLike | None = None, tag: Any = None
    ) -> None:
        """Have ``on_timer`` called once at a time; if it is set already, then instead of before.

        Args:
            time: When; at or below the watermark (or clock): as soon as the hook has returned.
            output_time: Event time of what it will emit: until it has fired or is cleared, the
                output watermark does not pass it. Without one, nothing is held.
            tag: Sets several timers of one name apart; plain values that are hashable.

        Raises:
            InvalidArgument: A time or an output time that it may not have (S-K4, S-K6).
        """
        at = micros(time, "time")
        held = None if output_time is None else micros(output_time, "output_time")
        moment = self._moment
        if held is not None and held < moment.floor:
            raise InvalidArgument(
                f"{describe('output_time', Instant(held))} is earlier than "
                f"{format_instant(moment.floor)}, below which the output watermark may have gone",
                where=f"the timer {self.name!r} of {moment.place}",
                hint="Use ctx.time or later",
            )
        if self._bounded and moment.expiry is not None and at > moment.expiry:
            raise InvalidArgument(
                f"{describe('time', Instant(at))} is after the expiry of its window, "
                f"{format_instant(moment.expiry)}: it would never fire",
                where=f"the timer {self.name!r} of {moment.place}",
                hint="Use on_window_expired, or min(time, ctx.window.end)",
            )
        self._timers.set(self._cursor.scope, (self._number, tag), at, held)

    def clear(self, *, tag: Any = None) -> None:
        """Clear it, if it is set; its hold is let go of."""
        self._timers.clear(self._cursor.scope, (self._number, tag))

    def get(self, *, tag: Any = None) -> int | None:
        """Return when it fires, or ``None`` if it is not set."""
        held = self._timers.held.get(self._cursor.scope)
        setting = None if held is None else held.get((self._number, tag))
        return None if setting is None else setting.time


@final
class Moment:
    """What bounds times in the hook that is running.

    ``floor``: no output may be earlier (S-K6). ``expiry``: of the current window; ``None`` without
    windows. ``place``: the process,
    in words.
    """

    __slots__ = ("expiry", "floor", "place")

    def __init__(self, place: str) -> None:
        self.place = place
        self.floor = 0
        self.expiry: int | None = None


def micros(value: InstantLike, name: str) -> int:
    """Return an instant as a plain int; ints, which most are, without detours."""
    if type(value) is int and START_OF_TIME <= value <= END_OF_TIME:
        return value
    return int(instant(value, name=name))
