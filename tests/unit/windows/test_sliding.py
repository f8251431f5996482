"""Sliding windows (S-W2)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lowwater.errors import InvalidArgument
from lowwater.time import START_OF_TIME
from lowwater.windows import SlidingWindows


def assign(windows: SlidingWindows, *times: int) -> list[list[tuple[int, int]]]:
    """Return each element's windows, in the order given."""
    given = windows.assign(np.array(times, dtype=np.int64), {})
    assert given.element is not None
    assert (np.diff(given.element) >= 0).all()
    found: list[list[tuple[int, int]]] = [[] for _ in times]
    rows = zip(given.element.tolist(), given.start.tolist(), given.end.tolist(), strict=True)
    for element, start, end in rows:
        found[element].append((start, end))
    unwindowed = [] if given.unwindowed is None else given.unwindowed.tolist()
    assert unwindowed == [index for index, windows in enumerate(found) if not windows]
    return found


def test_an_element_falls_in_each_window_that_covers_it() -> None:
    """S-W2."""
    #                -1   7  10
    # -20 [-----------*)
    # -10      [------*---*--)
    #   0              [--*--*--------)
    #  10                    [*---------------)
    #    -20  -10      0     10      20      30
    assert assign(SlidingWindows(20, 10), 7, 10, -1) == [
        [(-10, 10), (0, 20)],
        [(0, 20), (10, 30)],
        [(-20, 0), (-10, 10)],
    ]


def test_a_size_that_is_no_multiple_of_the_period_gives_fewer_windows_at_times() -> None:
    """S-W2."""
    # -10 [=====*====) 5        t=4 is in both, t=5 only in the second
    #   0 [=====*=========) 15
    assert assign(SlidingWindows(15, 10), 4, 5) == [[(-10, 5), (0, 15)], [(0, 15)]]


def test_gaps_between_windows_leave_elements_unwindowed() -> None:
    """S-W2: with period > size an element may fall in no window."""
    # 0 [===) 3          10 [===) 13
    #    2  3  9          10    13
    assert assign(SlidingWindows(3, 10), 2, 3, 9, 10, 13) == [
        [(0, 3)],
        [],
        [],
        [(10, 13)],
        [],
    ]


def test_an_offset_shifts_every_start() -> None:
    """S-W2: s = offset (mod period)."""
    #         4
    # -2 [====*===) 8
    #      3 [*=======) 13
    for offset in (3, -2, 8):
        assert assign(SlidingWindows(10, 5, offset=offset), 4) == [[(-2, 8), (3, 13)]]


def test_windows_cut_off_by_the_start_of_time_stay_apart() -> None:
    """S-T1: starts saturate, but an element is in each window once."""
    #         t
    # -inf [--|--)
    # -inf [--|----------)
    #      [--|------------------)
    [windows] = assign(SlidingWindows(30, 10), START_OF_TIME + 1)
    assert len(windows) == len(set(windows)) == 3
    assert all(start <= START_OF_TIME + 1 < end for start, end in windows)


def test_no_elements_have_no_windows() -> None:
    assert assign(SlidingWindows(15, 10)) == []
    assert assign(SlidingWindows(3, 10)) == []


@pytest.mark.parametrize(("size", "period"), [(0, 1), (1, 0), (-1, 1), ("1m", None)])
def test_size_and_period_must_be_above_zero(size: Any, period: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"(size|period)="):
        SlidingWindows(size, period)


@pytest.mark.parametrize(
    ("size", "period"),
    [("365000d", "1us"), ("1d", "8s"), (10_001, 1), (2**63 - 1, 10**12), ("1d", "1ms")],
)
def test_an_element_is_in_ten_thousand_windows_at_most(size: Any, period: Any) -> None:
    """S-W2: more are refused when they are built, with a period that would do."""
    with pytest.raises(InvalidArgument, match=r"at most 10,000 .* at least '(\w+)'") as raised:
        SlidingWindows(size, period)
    least = str(raised.value).rpartition("at least '")[2].strip("'")
    assert len(assign(SlidingWindows(size, least), 0)[0]) <= 10_000


def test_as_many_windows_as_may_be() -> None:
    """S-W2."""
    assert len(assign(SlidingWindows("10000us", "1us"), 5)[0]) == 10_000
    assert len(assign(SlidingWindows("1d", "10s"), 5)[0]) == 8_640


def test_a_bundle_that_memory_may_not_hold_names_its_size() -> None:
    times = np.arange(50_000, dtype=np.int64)
    with pytest.raises(InvalidArgument, match=r"50,000 elements.* bundle_size of at most 13,421"):
        SlidingWindows("10s", "1ms").assign(times, {})


def test_sliding_windows_are_values() -> None:
    assert SlidingWindows("1m", "10s") == SlidingWindows(60_000_000, "10s", 20_000_000)
    assert repr(SlidingWindows("1m", "10s", "3s")) == "SlidingWindows('1m', '10s', offset='3s')"
