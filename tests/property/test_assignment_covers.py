"""What every window function promises of its windows (S-T2, S-W1 to S-W5, S-W7)."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lowwater.time import (
    DAY_US,
    END_OF_TIME,
    LAST_EVENT_TIME,
    START_OF_TIME,
    Int64Array,
    saturating_add,
)
from lowwater.windows import (
    CalendarWindows,
    CumulativeWindows,
    CustomWindows,
    FixedWindows,
    GlobalWindow,
    Sessions,
    SlidingWindows,
    WindowFunction,
)

ANY_TIME = st.integers(START_OF_TIME, LAST_EVENT_TIME)
NEAR = st.integers(-50, 50)
# datetime's own years, less a day at either end.
CALENDAR_TIME = st.integers(-62_135_510_400_000_000, 253_402_127_999_999_999)
SIZES = st.integers(1, 2**62)
SMALL = st.integers(1, 20)
OFFSETS = st.integers(-100, 100)

FIXED = st.builds(FixedWindows, SMALL | SIZES, OFFSETS)
SLIDING = st.builds(SlidingWindows, SMALL, SMALL, OFFSETS)
CUMULATIVE = st.builds(
    lambda steps, rest, step, offset, zone: (
        CumulativeWindows(steps * step + rest % step, step, offset=offset)
        if zone is None
        else CumulativeWindows(
            steps * DAY_US, (rest + 1) * 3_600_000_000, offset=offset, timezone=zone
        )
    ),
    SMALL,
    SMALL,
    SMALL,
    OFFSETS,
    st.sampled_from([None, "UTC", "Europe/Berlin", "America/Sao_Paulo"]),
)
SESSIONS = st.builds(Sessions, SMALL | SIZES, merge_touching=st.booleans())
CALENDAR = st.one_of(
    *(
        st.builds(
            CalendarWindows,
            **{unit: st.integers(1, 40)},
            timezone=st.sampled_from(["UTC", "Europe/Berlin", "America/Sao_Paulo"]),
        )
        for unit in ("years", "months", "weeks", "days")
    )
)


def rows(windows: WindowFunction, times: Int64Array) -> list[list[tuple[int, int]]]:
    """Return the windows of each element, having checked the shape of the assignment."""
    made = windows.assign(times, {})
    assert made.start.dtype == made.end.dtype == np.int64
    assert (made.start < made.end).all()
    element = np.arange(len(times)) if made.element is None else made.element
    assert len(made.start) == len(made.end) == len(element)
    assert (np.diff(element) >= 0).all()
    found: list[list[tuple[int, int]]] = [[] for _ in range(len(times))]
    for index, start, end in zip(
        element.tolist(), made.start.tolist(), made.end.tolist(), strict=True
    ):
        found[index].append((start, end))
    without = [index for index, windows in enumerate(found) if not windows]
    assert without == ([] if made.unwindowed is None else made.unwindowed.tolist())
    return found


@st.composite
def cases(draw: st.DrawFn) -> tuple[WindowFunction, list[int]]:
    windows: WindowFunction = draw(
        FIXED | SLIDING | CUMULATIVE | SESSIONS | CALENDAR | st.just(GlobalWindow())
    )
    times = CALENDAR_TIME if getattr(windows, "timezone", None) else ANY_TIME | NEAR
    return windows, draw(st.lists(times, max_size=30))


@given(cases())
def test_each_window_holds_its_element_and_no_window_comes_twice(
    case: tuple[WindowFunction, list[int]],
) -> None:
    """S-T2: start <= t < end."""
    windows, times = case
    for at, made in zip(times, rows(windows, np.array(times, dtype=np.int64)), strict=True):
        assert all(start <= at < end for start, end in made)
        assert len(set(made)) == len(made)
        assert made == sorted(made)
        if not isinstance(windows, SlidingWindows | CumulativeWindows):
            assert len(made) == 1


@given(cases(), st.randoms(use_true_random=False))
def test_an_elements_windows_do_not_depend_on_its_company(
    case: tuple[WindowFunction, list[int]], random: Any
) -> None:
    """S-W7: nor on the order of arrival."""
    windows, times = case
    together = rows(windows, np.array(times, dtype=np.int64))
    order = list(range(len(times)))
    random.shuffle(order)
    shuffled = rows(windows, np.array([times[i] for i in order], dtype=np.int64))
    assert [together[i] for i in order] == shuffled
    alone = [rows(windows, np.array([at]))[0] for at in times]
    assert together == alone


@given(st.lists(ANY_TIME | NEAR, max_size=30), SMALL | SIZES, OFFSETS)
def test_fixed_windows_obey_their_formula(times: list[int], size: int, offset: int) -> None:
    """S-W1: start = t - floormod(t - offset, size), saturating."""
    made = rows(FixedWindows(size, offset), np.array(times, dtype=np.int64))
    for at, [(start, end)] in zip(times, made, strict=True):
        assert start == max(START_OF_TIME, at - (at - offset) % size)
        assert end == saturating_add(start, size)


@given(st.lists(NEAR, max_size=30), SMALL, SMALL, OFFSETS)
def test_sliding_windows_are_all_those_that_hold_the_element(
    times: list[int], size: int, period: int, offset: int
) -> None:
    """S-W2: every [s, s + size) with s = offset (mod period) that contains t."""
    made = rows(SlidingWindows(size, period, offset), np.array(times, dtype=np.int64))
    for at, windows in zip(times, made, strict=True):
        starts = [s for s in range(at - size + 1, at + 1) if (s - offset) % period == 0]
        assert windows == [(s, s + size) for s in starts]


@given(st.lists(CALENDAR_TIME, min_size=1, max_size=30), CUMULATIVE)
def test_cumulative_windows_divide_a_day(times: list[int], windows: CumulativeWindows) -> None:
    """S-W8: they share their start, and end step by step, the last one with the day."""
    at = np.array(times, dtype=np.int64)
    shortest = windows.shortest(at)
    for number, (time, made) in enumerate(zip(times, rows(windows, at), strict=True)):
        starts, ends = {start for start, _ in made}, [end for _, end in made]
        assert len(starts) == 1
        (start,) = starts
        assert (shortest.start[number], shortest.end[number]) == made[0]
        assert made[0][1] - windows.step_us <= time
        every = windows.ends(start).tolist()
        assert ends == [end for end in every if end > time]
        assert all(end == start + (k + 1) * windows.step_us for k, end in enumerate(every[:-1]))
        assert 0 < every[-1] - (every[-2] if len(every) > 1 else start) <= windows.step_us
        if windows.timezone is None:
            assert every[-1] - start == windows.size_us
        else:
            day = CalendarWindows(days=windows.size_us // DAY_US, timezone=windows.timezone)
            if not windows.offset_us:
                assert rows(day, np.array([time])) == [[(start, every[-1])]]
        if every[-1] <= max(times):
            [[(following, _), *_]] = rows(windows, np.array([every[-1]]))
            assert following == every[-1]


@given(st.lists(CALENDAR_TIME, min_size=1, max_size=30), CALENDAR)
def test_calendar_windows_leave_no_hole(times: list[int], windows: CalendarWindows) -> None:
    """S-W5: where one ends the next starts."""
    for [(start, end)] in rows(windows, np.array(times, dtype=np.int64)):
        if end <= max(times):
            [[(following, _)]] = rows(windows, np.array([end]))
            assert following == end
        if start > min(times):
            [[(_, before)]] = rows(windows, np.array([start - 1]))
            assert before == start


INTERVALS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(-30, 30), st.integers(1, 15)), max_size=25
)


def spans(intervals: list[tuple[int, int, int]], *, touching: bool) -> set[tuple[int, int, int]]:
    """Return the sessions of (key, start, length) by merging two at a time until none can."""
    found = {(key, start, start + length) for key, start, length in intervals}
    while True:
        pair = next(
            (
                (a, b)
                for a in found
                for b in found
                if a != b and a[0] == b[0] and a[1] <= b[1] and b[1] < a[2] + touching
            ),
            None,
        )
        if pair is None:
            return found
        (key, start, end), (_, _, other) = pair
        found = found - set(pair) | {(key, start, max(end, other))}


@given(INTERVALS, st.booleans())
def test_sessions_merge_as_if_two_at_a_time(
    intervals: list[tuple[int, int, int]], touching: bool
) -> None:
    """S-W3, S-W7: the outcome is that of merging pairs in any order."""
    ordered = sorted((key, start, start + length) for key, start, length in intervals)
    keys, start, end = (
        np.array([row[column] for row in ordered], dtype=np.int64) for column in range(3)
    )
    made = Sessions(1, merge_touching=touching).merge(keys, start, end)
    group = made.group.tolist()
    assert sorted(set(group)) == list(range(len(made.start)))
    merged = {
        (key, int(made.start[g]), int(made.end[g]))
        for (key, _, _), g in zip(ordered, group, strict=True)
    }
    assert merged == spans(intervals, touching=touching)
    for (_, low, high), g in zip(ordered, group, strict=True):
        assert made.start[g] <= low < high <= made.end[g]


def _union(active: Any) -> Any:
    """Merge overlapping windows, as a user would write it."""
    open_set: list[Any] = []
    for window in active:
        if open_set and window.start >= max(w.end for w in open_set):
            yield open_set, (open_set[0].start, max(w.end for w in open_set))
            open_set = []
        open_set.append(window)
    if open_set:
        yield open_set, (open_set[0].start, max(w.end for w in open_set))


@given(INTERVALS)
def test_a_users_own_sessions_are_the_built_in_ones(intervals: list[tuple[int, int, int]]) -> None:
    """S-W6: the slow path says what the fast one says."""
    ordered = sorted((key, start, start + length) for key, start, length in intervals)
    keys, start, end = (
        np.array([row[column] for row in ordered], dtype=np.int64) for column in range(3)
    )
    fast = Sessions(1).merge(keys, start, end)
    slow = CustomWindows(lambda t: [(t, t + 1)], merge_active=_union).merge(keys, start, end)
    assert fast.group.tolist() == slow.group.tolist()
    assert fast.start.tolist() == slow.start.tolist()
    assert fast.end.tolist() == slow.end.tolist()


@given(st.lists(ANY_TIME, max_size=20), SIZES)
def test_sessions_saturate(times: list[int], gap: int) -> None:
    """S-T1, S-W3."""
    for at, [(start, end)] in zip(
        times, rows(Sessions(gap), np.array(times, dtype=np.int64)), strict=True
    ):
        assert start == at
        assert end == min(END_OF_TIME, at + gap)
