"""`eval(repr(x)) == x`, and equal values hash alike, for every value users write (S-R4)."""

from __future__ import annotations

import copy
import pickle
from datetime import UTC
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from lowwater.engine.join.joining import Between, between
from lowwater.engine.window.windowing import Windowing
from lowwater.time import (
    END_OF_TIME,
    START_OF_TIME,
    Instant,
    duration,
    format_duration,
    format_instant,
    instant,
)
from lowwater.triggers import (
    AfterAll,
    AfterAny,
    AfterCount,
    AfterEach,
    AfterProcessingTime,
    AfterWatermark,
    Always,
    Default,
    Never,
    OrFinally,
    Repeatedly,
    Trigger,
)
from lowwater.watermark import (
    Ascending,
    BoundedDisorder,
    FinishedFiles,
    PerPartition,
    Punctuated,
    Quantile,
    WatermarkEstimator,
)
from lowwater.windows import (
    CalendarWindows,
    ColumnWindows,
    CumulativeWindows,
    FixedWindows,
    GlobalWindow,
    Sessions,
    SlidingWindows,
    Window,
    WindowFunction,
)

INT64 = st.integers(START_OF_TIME, END_OF_TIME)
ABOVE_ZERO = st.integers(1, END_OF_TIME)
WEEKDAY = cast(Any, st.sampled_from(["monday", "thursday", "sunday"]))
ZONE = st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kathmandu"])

WINDOWS: st.SearchStrategy[WindowFunction] = st.one_of(
    st.builds(FixedWindows, ABOVE_ZERO, INT64),
    st.builds(SlidingWindows, ABOVE_ZERO, ABOVE_ZERO, INT64),
    st.builds(
        lambda step, steps, offset: CumulativeWindows(step * steps, step, offset=offset),
        st.integers(1, 10**12),
        st.integers(1, 99),
        INT64,
    ),
    st.builds(
        CumulativeWindows,
        st.sampled_from(["1d", "7d"]),
        st.integers(10**9, 10**10),
        offset=INT64,
        timezone=ZONE,
    ),
    st.builds(
        lambda start, end, longest: ColumnWindows(start, end + "!", longest=longest),
        st.text(min_size=1, max_size=3),
        st.text(min_size=3),
        ABOVE_ZERO,
    ),
    st.builds(Sessions, ABOVE_ZERO, merge_touching=st.booleans()),
    st.builds(Sessions, gap_column=st.text(min_size=1), merge_touching=st.booleans()),
    st.builds(CalendarWindows, years=st.integers(1, 9), timezone=ZONE, week_starts=WEEKDAY),
    st.builds(CalendarWindows, months=st.integers(1, 9), timezone=ZONE, week_starts=WEEKDAY),
    st.builds(CalendarWindows, weeks=st.integers(1, 9), timezone=ZONE, week_starts=WEEKDAY),
    st.builds(CalendarWindows, days=st.integers(1, 9), timezone=ZONE, week_starts=WEEKDAY),
    st.just(GlobalWindow()),
)

LEAVES: st.SearchStrategy[Trigger] = st.one_of(
    st.builds(AfterCount, st.integers(1, 10**12)),
    st.builds(
        AfterProcessingTime, st.integers(0, END_OF_TIME), st.none() | st.integers(1, END_OF_TIME)
    ),
    st.sampled_from([Never(), Always(), Default(), AfterWatermark()]),
)


def composites(part: st.SearchStrategy[Trigger]) -> st.SearchStrategy[Trigger]:
    parts = st.lists(part, min_size=2, max_size=3)
    return st.one_of(
        st.builds(AfterWatermark, st.none() | part, st.none() | part),
        st.builds(Repeatedly, part),
        st.builds(OrFinally, part, part),
        parts.map(lambda some: AfterAny(*some)),
        parts.map(lambda some: AfterAll(*some)),
        parts.map(lambda some: AfterEach(*some)),
    )


TRIGGERS = st.recursive(LEAVES, composites, max_leaves=8)
NAME = st.text(min_size=1)
DELAY = st.integers(0, END_OF_TIME)
ESTIMATORS: st.SearchStrategy[WatermarkEstimator] = st.one_of(
    st.just(Ascending()),
    st.builds(BoundedDisorder, DELAY),
    st.builds(
        Quantile,
        st.floats(0, 1, exclude_min=True),
        least=st.integers(0, 99),
        most=st.none() | st.integers(99, END_OF_TIME),
        warm_up=st.integers(0, 2_000),
        memory=st.integers(1, 2_000_000),
    ),
    st.builds(Punctuated, NAME),
    st.builds(FinishedFiles, st.dictionaries(NAME, INT64, min_size=1), by=st.none() | NAME),
)
NESTED = ESTIMATORS | st.builds(
    PerPartition,
    ESTIMATORS,
    by=st.none() | NAME,
    expected=st.none() | st.lists(NAME | st.integers(), min_size=1),
    idle_after=st.none() | ABOVE_ZERO,
)
INTERVALS = st.tuples(INT64, INT64).filter(lambda pair: pair[0] != pair[1]).map(sorted)


def check(value: object) -> None:
    for twin in (eval(repr(value)), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
        assert twin == value
        assert type(twin) is type(value)
        assert hash(twin) == hash(value)
        assert repr(twin) == repr(value)


@given(WINDOWS)
def test_window_functions(windows: WindowFunction) -> None:
    check(windows)


@given(TRIGGERS)
def test_triggers(trigger: Trigger) -> None:
    """S-R4."""
    check(trigger)


@given(NESTED)
def test_watermark_estimators(estimator: WatermarkEstimator) -> None:
    check(estimator)


@given(
    WINDOWS,
    TRIGGERS,
    st.sampled_from(["discarding", "accumulating", "retracting"]),
    st.integers(0, END_OF_TIME),
    st.sampled_from(["end", "earliest", "latest"]),
)
def test_windowings(
    windows: WindowFunction, trigger: Trigger, mode: Any, lateness: int, timestamps: Any
) -> None:
    check(
        Windowing(
            windows=windows,
            trigger=trigger,
            accumulation=mode,
            allowed_lateness=lateness,
            timestamps=timestamps,
            allow_data_loss="not what is tested",
        )
    )


@given(INTERVALS)
def test_intervals_of_differences(pair: list[int]) -> None:
    """J-1."""
    check(between(*pair))
    low, high = (format_duration(end) for end in pair)
    assert between(low, high) == Between(*pair)


@given(st.text(max_size=4), st.text(max_size=4), ABOVE_ZERO, INT64)
def test_intervals_between_columns(low: str, high: str, longest: int, difference: int) -> None:
    """J-14."""
    check(between(f"from {low}", f"to {high}", longest=longest))
    least, most = sorted((difference, longest))
    if least < most:
        check(between(least, "a column", longest=longest))


@given(INTERVALS)
def test_windows(pair: list[int]) -> None:
    """S-T2."""
    check(Window(Instant(pair[0]), Instant(pair[1])))


@given(INT64)
def test_instants(at: int) -> None:
    """S-T1."""
    check(Instant(at))
    assert Instant(format_instant(at)) == at


@given(st.datetimes(timezones=st.timezones()))
def test_datetimes_and_their_text_are_one_instant(at: Any) -> None:
    """S-T1: whatever the zone, fold and all."""
    assert instant(at) == instant(at.isoformat())
    if 1 < at.year < 9999:
        assert instant(at).to_datetime() == at.astimezone(UTC)


@given(INT64)
def test_durations_read_their_own_text_back(micros: int) -> None:
    """S-T1."""
    assert duration(format_duration(micros)) == micros
