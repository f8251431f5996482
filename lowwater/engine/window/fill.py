"""Which windows without elements emit panes, for keys that are known: the option ``fill``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np

from lowwater.errors import InvalidArgument, LowwaterError, describe
from lowwater.time import (
    DurationLike,
    Int64Array,
    as_micros,
    duration,
    format_duration,
    meant,
    saturating_add_array,
)
from lowwater.triggers import AfterWatermark, Default, Trigger
from lowwater.windows import CalendarWindows, FixedWindows, SlidingWindows, WindowFunction

_COUNT = re.compile(r"\s*(\d+)\s+windows?\s*")
_MOST = 10_000


@final
@dataclass(frozen=True, slots=True, repr=False)
class UntilIdle:
    """Fill windows that end at most so long after the last window of the key with elements.

    Args:
        idle: How long, above zero.
    """

    idle: DurationLike

    def __post_init__(self) -> None:
        idle = duration(self.idle, name="idle")
        if idle <= 0:
            raise InvalidArgument(
                f"{describe('idle', self.idle)} is not above zero",
                where="until_idle",
                hint='Write, say, until_idle("1h")',
            )
        object.__setattr__(self, "idle", meant(idle))

    def __repr__(self) -> str:
        return f"until_idle({format_duration(as_micros(self.idle))!r})"


Fill: TypeAlias = str | UntilIdle
"""How long windows without elements are filled: ``"2 windows"``, or :func:`until_idle`."""


def until_idle(idle: DurationLike) -> UntilIdle:
    """Fill windows that end at most ``idle`` after the last window of the key with records (S-F1).

    >>> until_idle("60m")
    until_idle('1h')

    Args:
        idle: How long, above zero.

    Raises:
        InvalidArgument: ``idle`` is not a duration above zero.
    """
    return UntilIdle(idle)


def is_fillable(windows: object, trigger: object, on_time: str) -> bool:
    """Return whether windows are on a grid and emit a pane on time, as ``fill`` needs."""
    return (
        isinstance(windows, (FixedWindows, SlidingWindows, CalendarWindows))
        and isinstance(trigger, (AfterWatermark, Default))
        and on_time == "always"
    )


def checked_fill(fill: object, windows: WindowFunction, trigger: Trigger, on_time: str) -> Fill:
    """Return the option as it is kept, or raise: it goes with windows on a grid that fire on time.

    Raises:
        InvalidArgument: It is not known, or does not go with the windows or the trigger.
    """
    found: Fill
    if isinstance(fill, UntilIdle):
        found = fill
    else:
        match = _COUNT.fullmatch(fill) if isinstance(fill, str) else None
        if match is None or not 1 <= (count := int(match[1])) <= _MOST:
            raise InvalidArgument(
                f"{describe('fill', fill)} is not a number of windows from 1 to {_MOST:_}",
                where="window(fill=)",
                hint=_hint(fill),
            )
        found = f"{count} window{'s' if count > 1 else ''}"
    if not isinstance(windows, (FixedWindows, SlidingWindows, CalendarWindows)):
        raise InvalidArgument(
            f"{windows!r} are not on a grid, so which of them are without elements is not known",
            where="window(fill=)",
            hint="Use FixedWindows, SlidingWindows or CalendarWindows, or leave fill= out",
        )
    if isinstance(found, UntilIdle) and isinstance(windows, (FixedWindows, SlidingWindows)):
        period = windows.size_us if isinstance(windows, FixedWindows) else windows.period_us
        if (many := as_micros(found.idle) // period) > _MOST:
            raise InvalidArgument(
                f"{found!r} fills {many:,} windows behind each with elements, and at most "
                f"{_MOST:,} are supported",
                where="window(fill=)",
                hint=f"Use until_idle({format_duration(_MOST * period)!r}) or less, or longer "
                "windows",
            )
    if not is_fillable(windows, trigger, on_time):
        what = repr(trigger) if on_time == "always" else f"on_time={on_time!r}"
        raise InvalidArgument(
            f"a window without elements emits its pane on time, and {what} emits none there",
            where="window(fill=)",
            hint='Use trigger=AfterWatermark(...) and on_time="always", or leave fill= out',
        )
    return found


def _hint(fill: object) -> str:
    try:
        idle = format_duration(duration(fill, name="fill"))  # type: ignore[arg-type]
    except LowwaterError:
        idle = "1h"
    return f'Write fill="2 windows", or for a time fill=lw.until_idle({idle!r})'


def following(windows: WindowFunction, end: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return the next window behind each; one that is not there repeats the end.

    Args:
        windows: The windows.
        end: The end of each, int64.

    Returns:
        (start, end), int64; where calendars have no further window, both are ``end``.
    """
    if isinstance(windows, FixedWindows):
        return end, saturating_add_array(end, windows.size_us)
    if isinstance(windows, SlidingWindows):
        later = saturating_add_array(end, windows.period_us)
        return later - windows.size_us, later
    made = windows.assign(end, {})
    if made.element is None:
        return made.start, made.end
    starts, ends = end.copy(), end.copy()
    starts[made.element], ends[made.element] = made.start, made.end
    return starts, ends


def last_filled(fill: Fill, windows: WindowFunction, end: Int64Array) -> Int64Array:
    """Return the greatest end that a filled window has behind each window with elements.

    Args:
        fill: The option.
        windows: The windows.
        end: The ends of windows with elements, int64.
    """
    if isinstance(fill, UntilIdle):
        return saturating_add_array(end, as_micros(fill.idle))
    count = int(fill.split()[0])
    if isinstance(windows, FixedWindows):
        return saturating_add_array(end, count * windows.size_us)
    if isinstance(windows, SlidingWindows):
        return saturating_add_array(end, count * windows.period_us)
    distinct, of = np.unique(end, return_inverse=True)
    for _ in range(count):
        _, distinct = following(windows, distinct)
    return distinct[of]
