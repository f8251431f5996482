"""Calendar windows (S-W5), against plain zoneinfo."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any, Literal
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lowwater.errors import InvalidArgument
from lowwater.time import END_OF_TIME, START_OF_TIME, Instant, instant
from lowwater.windows import CalendarWindows

HOUR = 3_600_000_000


def window(windows: CalendarWindows, at: str) -> tuple[str, str]:
    """Return the window of one element, as text."""
    made = windows.assign(np.array([instant(at)]), {})
    return str(Instant(int(made.start[0]))), str(Instant(int(made.end[0])))


def hours(windows: CalendarWindows, at: str) -> float:
    start, end = window(windows, at)
    return (instant(end) - instant(start)) / HOUR


def test_a_day_is_as_long_as_the_clocks_make_it() -> None:
    """S-W5: right across daylight-saving changes."""
    # Berlin, 2024-03-31: clocks go from 02:00 to 03:00
    # 30 [------- 24 h -------)
    # 31                      [------ 23 h ------)
    # 01                                         [------- 24 h -------)
    days = CalendarWindows(days=1, timezone="Europe/Berlin")
    assert window(days, "2024-03-31T12:00:00Z") == (
        "2024-03-30T23:00:00Z",
        "2024-03-31T22:00:00Z",
    )
    assert hours(days, "2024-03-30T12:00:00Z") == 24
    assert hours(days, "2024-03-31T12:00:00Z") == 23
    assert hours(days, "2024-10-27T12:00:00Z") == 25


def test_a_window_takes_its_first_instant_and_not_its_end() -> None:
    """S-T2, S-W5."""
    # May [=============================) June
    months = CalendarWindows(months=1, timezone="Europe/Berlin")
    may = ("2024-04-30T22:00:00Z", "2024-05-31T22:00:00Z")
    assert window(months, "2024-04-30T22:00:00Z") == may
    assert window(months, "2024-05-31T21:59:59.999999Z") == may
    assert window(months, "2024-05-31T22:00:00Z")[0] == may[1]


def test_a_midnight_that_does_not_exist() -> None:
    """S-W5: the day starts at the first instant after the gap."""
    # Sao Paulo, 2018-11-04: clocks go from 00:00 to 01:00, so the day starts at 01:00 (-02)
    # 04 [------ 23 h ------)
    days = CalendarWindows(days=1, timezone="America/Sao_Paulo")
    assert window(days, "2018-11-04T12:00:00Z") == ("2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z")
    assert window(days, "2018-11-04T02:59:59Z")[1] == "2018-11-04T03:00:00Z"


def test_a_midnight_that_comes_twice() -> None:
    """S-W5: the day starts at the first of the two."""
    # Havana, 2023-11-05: clocks go from 01:00 back to 00:00
    # 05 [------- 25 h -------)
    days = CalendarWindows(days=1, timezone="America/Havana")
    assert window(days, "2023-11-05T05:30:00Z") == ("2023-11-05T04:00:00Z", "2023-11-06T05:00:00Z")


def test_a_date_that_comes_back_belongs_to_the_day_that_has_begun() -> None:
    """S-W5: windows stay intervals when clocks go back across midnight."""
    # St John's, 2010-11-07: clocks go from 00:01 back to 23:01 on the 6th
    # 06 [------- 24 h -------)1 min
    # 07                       [-------- 25 h ---------)
    days = CalendarWindows(days=1, timezone="America/St_Johns")
    first = window(days, "2010-11-07T02:30:00Z")
    assert first == ("2010-11-07T02:30:00Z", "2010-11-08T03:30:00Z")
    assert window(days, "2010-11-07T02:45:00Z") == first


def test_a_date_that_never_was() -> None:
    """S-W5: Samoa went from 2011-12-29 straight to 2011-12-31."""
    # 29 [------)
    # 30        |
    # 31        [------)
    days = CalendarWindows(days=1, timezone="Pacific/Apia")
    assert window(days, "2011-12-30T09:59:59Z") == ("2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z")
    assert window(days, "2011-12-30T10:00:00Z") == ("2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z")


@pytest.mark.parametrize(
    ("windows", "at", "start", "end"),
    [
        (CalendarWindows(days=10), "1970-01-10T23:00:00Z", "1970-01-01", "1970-01-11"),
        (CalendarWindows(days=10), "1969-12-31T23:00:00Z", "1969-12-22", "1970-01-01"),
        (CalendarWindows(weeks=1), "1970-01-01T00:00:00Z", "1969-12-29", "1970-01-05"),
        (CalendarWindows(weeks=2), "1970-01-11T00:00:00Z", "1969-12-29", "1970-01-12"),
        (CalendarWindows(weeks=2), "1969-12-28T00:00:00Z", "1969-12-15", "1969-12-29"),
        (
            CalendarWindows(weeks=1, week_starts="sunday"),
            "1970-01-01T00:00:00Z",
            "1969-12-28",
            "1970-01-04",
        ),
        (
            CalendarWindows(weeks=1, week_starts="thursday"),
            "1970-01-01T00:00:00Z",
            "1970-01-01",
            "1970-01-08",
        ),
        (CalendarWindows(months=1), "2024-02-29T12:00:00Z", "2024-02-01", "2024-03-01"),
        (CalendarWindows(months=3), "2024-12-31T23:59:59Z", "2024-10-01", "2025-01-01"),
        (CalendarWindows(months=5), "1969-12-31T00:00:00Z", "1969-08-01", "1970-01-01"),
        (CalendarWindows(years=1), "2024-12-31T23:59:59Z", "2024-01-01", "2025-01-01"),
        (CalendarWindows(years=10), "1969-06-01T00:00:00Z", "1960-01-01", "1970-01-01"),
        (CalendarWindows(years=1), "1600-06-01T00:00:00Z", "1600-01-01", "1601-01-01"),
    ],
)
def test_longer_periods_are_counted_from_1970(
    windows: CalendarWindows, at: str, start: str, end: str
) -> None:
    """S-W5: and so are those before it."""
    assert window(windows, at) == (f"{start}T00:00:00Z", f"{end}T00:00:00Z")


ZONES = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "America/Havana",
    "America/Sao_Paulo",
    "America/St_Johns",
    "America/Asuncion",
    "Africa/Cairo",
    "Africa/Casablanca",
    "Asia/Beirut",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",
    "Pacific/Apia",
]
Unit = Literal["years", "months", "weeks", "days"]
WEEKDAYS: tuple[Any, ...] = ("monday", "wednesday", "sunday")


def plain_period(day: date, unit: Unit, count: int, first_weekday: int) -> date:
    """Return the first date of the period that holds a date, by plain calendar arithmetic."""
    if unit == "years":
        return date(1970 + (day.year - 1970) // count * count, 1, 1)
    if unit == "months":
        months = ((day.year - 1970) * 12 + day.month - 1) // count * count
        return date(1970 + months // 12, months % 12 + 1, 1)
    origin = date(1970, 1, 1)
    if unit == "weeks":
        while origin.weekday() != first_weekday:
            origin -= timedelta(days=1)
        count *= 7
    return origin + timedelta(days=(day - origin).days // count * count)


def plain_start(day: date, zone: ZoneInfo) -> datetime:
    """Return the first minute whose local time has reached a date, by looking at each."""
    wall = datetime(day.year, day.month, day.day)  # noqa: DTZ001
    at = wall.replace(tzinfo=UTC) - timedelta(hours=26)
    while at.astimezone(zone).replace(tzinfo=None) < wall:
        at += timedelta(minutes=1)
    return at


@given(
    at=st.datetimes(datetime(1950, 1, 1), datetime(2037, 12, 31), timezones=st.just(UTC)),  # noqa: DTZ001
    zone=st.sampled_from(ZONES),
    unit=st.sampled_from(["years", "months", "weeks", "days"]),
    count=st.integers(1, 7),
    weekday=st.sampled_from(WEEKDAYS),
)
@example(datetime(2010, 11, 7, 2, 45, tzinfo=UTC), "America/St_Johns", "days", 1, "monday")
@example(datetime(2011, 12, 30, 9, 59, tzinfo=UTC), "Pacific/Apia", "days", 1, "monday")
@example(datetime(2018, 11, 4, 3, 0, tzinfo=UTC), "America/Sao_Paulo", "days", 1, "monday")
def test_windows_are_what_zoneinfo_says(
    at: datetime, zone: str, unit: Unit, count: int, weekday: Any
) -> None:
    """S-W5."""
    counts: dict[str, Any] = {unit: count}
    windows = CalendarWindows(**counts, timezone=zone, week_starts=weekday)
    made = windows.assign(np.array([instant(at)]), {})
    start, end = Instant(int(made.start[0])), Instant(int(made.end[0]))
    tz = ZoneInfo(zone)
    names = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]

    def period(day: date) -> date:
        return plain_period(day, unit, count, names.index(weekday))

    def following(first: date) -> date:
        day = first
        while period(day) == first:
            day += timedelta(days=1)
        return day

    # Begin a day early: where clocks go back across midnight the local date is not the last begun.
    first = period(at.astimezone(tz).date() - timedelta(days=1))
    while plain_start(following(first), tz) <= at:
        first = following(first)
    assert start.to_datetime() == plain_start(first, tz)
    assert end.to_datetime() == plain_start(following(first), tz)


@given(
    times=st.lists(st.integers(-(2**55), 2**55), max_size=50),
    zone=st.sampled_from(ZONES),
    unit=st.sampled_from(["years", "months", "weeks", "days"]),
    count=st.integers(1, 400),
)
def test_a_bundle_gives_what_its_elements_give_one_by_one(
    times: list[int], zone: str, unit: Unit, count: int
) -> None:
    """S-W5, S-W7: which windows there are does not depend on the company."""
    counts: dict[str, Any] = {unit: count}
    windows = CalendarWindows(**counts, timezone=zone)
    together = windows.assign(np.array(times, dtype=np.int64), {})
    assert together.element is None
    for index, at in enumerate(times):
        alone = windows.assign(np.array([at]), {})
        assert together.start[index] == alone.start[0] <= at
        assert together.end[index] == alone.end[0] > at


def test_calendar_arithmetic_is_done_once_per_day_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    """S-W5: not once per element."""
    from lowwater.windows import calendar

    asked: list[int] = []

    def midnight(timezone: str, day: int) -> int:
        asked.append(day)
        return day * 24 * HOUR

    monkeypatch.setattr(calendar, "_midnight", midnight)
    times = np.concatenate([np.arange(100_000), np.arange(100_000) + 40_000 * 24 * HOUR])
    CalendarWindows(days=1).assign(times, {})
    assert len(asked) <= 8


def test_no_elements_have_no_windows() -> None:
    made = CalendarWindows(days=1).assign(np.empty(0, dtype=np.int64), {})
    assert len(made.start) == len(made.end) == 0


@pytest.mark.parametrize("at", [START_OF_TIME, -(2**60), 2**60, END_OF_TIME])
def test_times_no_calendar_knows_fall_in_no_window(at: int) -> None:
    made = CalendarWindows(days=1).assign(np.array([at, 0]), {})
    assert made.unwindowed is not None
    assert made.element is not None
    assert made.unwindowed.tolist() == [0]
    assert made.element.tolist() == [1]
    assert made.start.tolist() == [0]


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago"])
@pytest.mark.parametrize("counts", [{"years": 7}, {"months": 1}, {"weeks": 52}, {"days": 3}])
@pytest.mark.parametrize("at", ["0001-01-02T00:00:00Z", "9999-12-29T23:59:59.999999Z"])
def test_the_ends_of_the_calendar_work(at: str, counts: dict[str, Any], zone: str) -> None:
    made = CalendarWindows(**counts, timezone=zone).assign(np.array([instant(at)]), {})
    assert made.start[0] <= instant(at) < made.end[0]


@pytest.mark.parametrize("count", [0, -1, 1.0, True, "1", 10**9])
def test_a_count_must_be_a_sensible_int(count: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"months=.*from 1 to"):
        CalendarWindows(months=count)


@pytest.mark.parametrize("counts", [{}, {"days": 1, "weeks": 1}])
def test_exactly_one_unit(counts: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match="exactly one of years, months, weeks and days"):
        CalendarWindows(**counts)


@pytest.mark.parametrize("zone", ["Europe/Berln", "Europe", "", "../etc/passwd", None, 1, ["UTC"]])
def test_an_unknown_time_zone_is_named(zone: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"timezone=.* is not an IANA time zone"):
        CalendarWindows(days=1, timezone=zone)


def test_the_nearest_time_zone_is_suggested() -> None:
    with pytest.raises(InvalidArgument, match="Did you mean 'Europe/Berlin'"):
        CalendarWindows(days=1, timezone="Europe/Berln")


def test_an_unknown_weekday_is_named() -> None:
    day: Any = "mondy"
    with pytest.raises(InvalidArgument, match="Did you mean 'monday'"):
        CalendarWindows(weeks=1, week_starts=day)


def test_calendar_windows_are_values() -> None:
    assert CalendarWindows(months=1) == CalendarWindows(months=1, timezone="UTC")
    assert hash(CalendarWindows(months=1)) == hash(CalendarWindows(months=1, timezone="UTC"))
    assert CalendarWindows(months=1).merge_scope == "none"
    assert CalendarWindows(months=1).columns == ()
    assert repr(CalendarWindows(weeks=2, timezone="Asia/Beirut", week_starts="sunday")) == (
        "CalendarWindows(weeks=2, timezone='Asia/Beirut', week_starts='sunday')"
    )
