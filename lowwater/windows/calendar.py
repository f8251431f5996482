"""Calendar windows: days, weeks, months and years of a time zone (S-W5)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Literal, TypeAlias, final, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

import numpy as np

from lowwater.errors import InvalidArgument, constructor, describe, nearest
from lowwater.time import DAY_US, Int64Array, instant
from lowwater.windows._base import Assignment, Columns, Mask, MergeScope

Weekday: TypeAlias = Literal[
    "monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"
]
Unit: TypeAlias = Literal["years", "months", "weeks", "days"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
# Zone offsets stay below a day, so within these no conversion leaves the years 1 to 9999.
_EARLIEST = int(instant("0001-01-02T00:00:00Z"))
_LATEST = int(instant("9999-12-30T00:00:00Z"))
_EPOCH_WEEKDAY = date(1970, 1, 1).weekday()
_MOST: dict[Unit, int] = {"years": 10_000, "months": 120_000, "weeks": 520_000, "days": 3_650_000}


@constructor(day="days", week="weeks", month="months", year="years", tz="timezone", zone="timezone")
@final
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CalendarWindows:
    """Periods of a local calendar: ``[local midnight, next local midnight)`` as instants (S-W5).

    A window is as long as its period is in that zone: a day on which clocks go forward has 23
    hours. Where midnight does not exist the period starts at the first instant after the gap;
    where it occurs twice, at the first of the two. With a count above one, periods are counted
    from 1970: days and weeks from the (week of) 1970-01-01, months from January 1970, years from
    1970, all in local time.

    Args:
        years: Length of a window in years; at least 1.
        months: Length in months, instead.
        weeks: Length in weeks, instead.
        days: Length in days, instead.
        timezone: IANA name of the time zone, such as ``"Europe/Berlin"``.
        week_starts: First day of a week, in English.

    Raises:
        InvalidArgument: Not exactly one unit was given, it is not an int of at least 1, or the
            time zone or weekday is not known.

    >>> CalendarWindows(months=1, timezone="Europe/Berlin")
    CalendarWindows(months=1, timezone='Europe/Berlin')
    """

    years: int | None = None
    months: int | None = None
    weeks: int | None = None
    days: int | None = None
    timezone: str = "UTC"
    week_starts: Weekday = "monday"

    def __post_init__(self) -> None:
        given = {unit: n for unit in get_args(Unit) if (n := getattr(self, unit)) is not None}
        if len(given) != 1:
            raise InvalidArgument(
                "CalendarWindows takes exactly one of years, months, weeks and days, got "
                + (", ".join(f"{unit}={n!r}" for unit, n in given.items()) or "none"),
                hint="Write, say, CalendarWindows(months=1)",
            )
        for unit, count in given.items():
            whole = isinstance(count, int) and not isinstance(count, bool)
            if not whole or not 1 <= count <= _MOST[unit]:
                raise InvalidArgument(
                    f"{describe(unit, count)} must be an int from 1 to {_MOST[unit]}",
                    hint=f"Write, say, CalendarWindows({unit}=1)",
                )
        require_zone(self.timezone)
        if self.week_starts not in get_args(Weekday):
            raise InvalidArgument(
                f"{describe('week_starts', self.week_starts)} is not a day of the week",
                hint=nearest(str(self.week_starts), get_args(Weekday)),
            )

    @property
    def columns(self) -> tuple[str, ...]:
        """None: only the event time is read."""
        return ()

    @property
    def merge_scope(self) -> MergeScope:
        """``"none"``: these windows never merge."""
        return "none"

    @property
    def unit(self) -> Unit:
        """The unit of the length."""
        return next(unit for unit in get_args(Unit) if getattr(self, unit) is not None)

    @property
    def count(self) -> int:
        """The length of a window, in its unit."""
        return next(n for n in (self.years, self.months, self.weeks, self.days) if n is not None)

    def assign(self, times: Int64Array, columns: Columns) -> Assignment:
        """Return the one window of each element. O(n log p) for p periods touched.

        Calendar arithmetic runs once per period touched, not once per element. An element outside
        the years that calendars cover (1 to 9999, less a few days) belongs to no window: it goes
        to the late output with reason ``unwindowed``.
        """
        outside = outside_calendars(times)
        if not outside.any():
            return self._assign_within(times)
        inside = np.flatnonzero(~outside)
        made = self._assign_within(times[inside])
        return Assignment(made.start, made.end, inside, np.flatnonzero(outside))

    def _assign_within(self, times: Int64Array) -> Assignment:
        if times.size == 0:
            return Assignment(times, times)
        edges = self._edges(times)
        at = np.searchsorted(edges, times, side="right")
        return Assignment(edges[at - 1], edges[at])

    def _edges(self, times: Int64Array) -> Int64Array:
        """Return the sorted edges of all periods touched, with at least one above each time."""
        # Why one day on either side is enough: the local date of an instant differs from its UTC
        # date by at most one day, and a local midnight is less than a day from the UTC one.
        days = _distinct(times // DAY_US)
        near = np.unique(np.concatenate([days - 1, days, days + 1]))
        first = np.unique(self._period_of(near))
        periods = np.unique(np.concatenate([first, first + 1]))
        edges = [self._edge(period) for period in periods.tolist()]
        return np.unique(np.array(edges, dtype=np.int64))

    def _period_of(self, days: Int64Array) -> Int64Array:
        """Return the number of the period that holds each local date (days since 1970-01-01)."""
        if self.unit == "days":
            return days // self.count
        if self.unit == "weeks":
            return (days - self._week_origin) // (7 * self.count)
        unit = "M" if self.unit == "months" else "Y"
        since: Int64Array = (
            days.astype("datetime64[D]").astype(f"datetime64[{unit}]").astype(np.int64)
        )
        return since // self.count

    @property
    def _week_origin(self) -> int:
        """First day of the week that holds 1970-01-01, in days since then."""
        return -((_EPOCH_WEEKDAY - get_args(Weekday).index(self.week_starts)) % 7)

    def _edge(self, period: int) -> int:
        """Return the instant at which a period starts."""
        first = period * self.count
        if self.unit == "days":
            return _midnight(self.timezone, first)
        if self.unit == "weeks":
            return _midnight(self.timezone, self._week_origin + 7 * first)
        unit: Literal["M", "Y"] = "M" if self.unit == "months" else "Y"
        day = np.datetime64(first, unit).astype("datetime64[D]").astype(np.int64)
        return _midnight(self.timezone, int(day))

    def __repr__(self) -> str:
        default = {"timezone": "UTC", "week_starts": "monday"}
        shown = [(f.name, getattr(self, f.name)) for f in fields(self)]
        body = ", ".join(f"{n}={v!r}" for n, v in shown if v != default.get(n))
        return f"CalendarWindows({body})"


def outside_calendars(times: Int64Array) -> Mask:
    """Return which times are outside the years that calendars cover: 1 to 9999, less a few days."""
    return (times < _EARLIEST) | (times >= _LATEST)


def day_spans(
    times: Int64Array, timezone: str, days: int, offset_us: int
) -> tuple[Int64Array, Int64Array]:
    """Return the start and the end of the days that hold times within :func:`outside_calendars`.

    Args:
        times: The times, int64, shape (n,).
        timezone: The time zone.
        days: How many days are one; they are counted from 1970-01-01.
        offset_us: How long after midnight they start, on the clock there; below ``days``.
    """
    if not times.size:
        return times, times
    # The local date differs from the UTC date by at most one, and the offset moves starts on.
    near = _distinct((times - offset_us) // DAY_US)
    first = np.unique(np.concatenate([near - 1, near, near + 1]) // days)
    periods = np.unique(np.concatenate([first, first + 1])).tolist()
    edges = np.unique(np.array([_clock(timezone, p * days, offset_us) for p in periods]))
    at = np.searchsorted(edges, times, side="right")
    return edges[at - 1], edges[at]


def _distinct(days: Int64Array) -> Int64Array:
    """Return the distinct values, sorted. O(n) while their span is about n or less."""
    low, high = int(days.min()), int(days.max())
    if high - low <= len(days) + 1_000:
        return np.flatnonzero(np.bincount(days - low)) + low
    return np.unique(days)


def _midnight(timezone: str, day: int) -> int:
    """Return the first instant of a local date, given as days since 1970-01-01."""
    return _clock(timezone, day, 0)


@lru_cache(maxsize=65_536)
def _clock(timezone: str, day: int, offset_us: int) -> int:
    """Return the first instant at which a clock is some time past the midnight of a date.

    Dates that ``datetime`` cannot represent are treated as UTC.
    """
    try:
        wall = _EPOCH + timedelta(days=day, microseconds=offset_us)
        return _first_instant(wall.replace(tzinfo=require_zone(timezone)))
    except OverflowError:
        return day * DAY_US + offset_us


def _first_instant(midnight: datetime) -> int:
    """Return the first instant at or after a wall-clock time that may be missing or repeated."""
    zone = midnight.tzinfo
    # PEP 495: fold=0 is the first of two that come twice; of one in a gap, fold=0 is converted
    # with the offset before the gap, hence after it by as much as midnight is inside the gap.
    at = midnight.replace(fold=0).astimezone(UTC)
    if at.astimezone(zone).replace(tzinfo=None) == midnight.replace(tzinfo=None):
        return (at - _EPOCH) // _MICROSECOND
    # In a gap: find the instant of the jump, between the two readings (fold=1 comes earlier).
    low = (midnight.replace(fold=1).astimezone(UTC) - _EPOCH) // _MICROSECOND
    high = (at - _EPOCH) // _MICROSECOND
    wall = midnight.replace(tzinfo=None)
    while high - low > 1:
        middle = (low + high) // 2
        local = (_EPOCH + middle * _MICROSECOND).astimezone(zone).replace(tzinfo=None)
        low, high = (middle, high) if local < wall else (low, middle)
    return high


def require_zone(name: str) -> ZoneInfo:
    """Return a time zone; raise ``InvalidArgument`` if it is not known."""
    hint = 'Use, say, "Europe/Berlin" or "UTC"'
    if isinstance(name, str) and name:
        try:
            return ZoneInfo(name)  # which keeps its own cache
        except (ZoneInfoNotFoundError, ValueError, OSError):  # OSError: the name of a folder
            close = nearest(name, available_timezones())
            hint = close if close.startswith("Did you mean") else hint
    raise InvalidArgument(f"{describe('timezone', name)} is not an IANA time zone", hint=hint)
