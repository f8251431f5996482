"""Fixed windows and the global window (S-W1, S-W4), and the window itself (S-T2)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lowwater.errors import InvalidArgument
from lowwater.time import END_OF_TIME, LAST_EVENT_TIME, START_OF_TIME, Instant
from lowwater.windows import FixedWindows, GlobalWindow, Window, WindowFunction


def assign(windows: WindowFunction, *times: int) -> list[tuple[int, int]]:
    given = windows.assign(np.array(times, dtype=np.int64), {})
    assert given.element is None
    assert given.unwindowed is None
    return list(zip(given.start.tolist(), given.end.tolist(), strict=True))


def test_a_window_is_half_open() -> None:
    """S-T2."""
    # 10 [==========) 20
    window = Window(Instant(10), Instant(20))
    assert 10 in window
    assert 19 in window
    assert 9 not in window
    assert 20 not in window
    assert window.max_timestamp == 19
    assert str(window) == "[1970-01-01T00:00:00.000010Z, 1970-01-01T00:00:00.000020Z)"


def test_windows_sort_by_start_then_end() -> None:
    # 0 [====) 4
    # 0 [======) 6
    #     2 [==) 4
    made = [Window(Instant(s), Instant(e)) for s, e in [(2, 4), (0, 6), (0, 4)]]
    assert [(w.start, w.end) for w in sorted(made)] == [(0, 4), (0, 6), (2, 4)]


@pytest.mark.parametrize(("start", "end"), [(5, 5), (6, 5)])
def test_an_empty_window_is_refused(start: int, end: int) -> None:
    with pytest.raises(InvalidArgument, match="end after it starts"):
        Window(Instant(start), Instant(end))


def test_fixed_windows_stand_side_by_side_before_the_epoch_too() -> None:
    """S-W1."""
    # -20     -10       0        10       20
    #   [------[--------[--------[--------)
    #       -11|-10   -1|0      9|10
    assert assign(FixedWindows(10), -11, -10, -1, 0, 9, 10) == [
        (-20, -10),
        (-10, 0),
        (-10, 0),
        (0, 10),
        (0, 10),
        (10, 20),
    ]


def test_an_offset_shifts_the_grid_and_counts_modulo_the_size() -> None:
    """S-W1."""
    # -7       3        13
    #  [-------[--------)
    #         2|3
    for offset in (3, 13, -7):
        assert assign(FixedWindows(10, offset=offset), 2, 3) == [(-7, 3), (3, 13)]
    assert FixedWindows(10, offset=13) == FixedWindows(10, offset=3)


def test_fixed_windows_saturate_at_the_ends_of_time() -> None:
    """S-T1, S-W1."""
    size = 2**62
    for at in (START_OF_TIME, START_OF_TIME + 1, 0, LAST_EVENT_TIME):
        [(start, end)] = assign(FixedWindows(size, offset=12_345), at)
        assert START_OF_TIME <= start <= at < end <= END_OF_TIME


def test_no_elements_have_no_windows() -> None:
    assert assign(FixedWindows(10)) == []


@pytest.mark.parametrize("size", [0, -1, "0s", "1 parsec", None, 1.5])
def test_a_size_must_be_above_zero(size: Any) -> None:
    with pytest.raises(InvalidArgument, match="size="):
        FixedWindows(size)


def test_fixed_windows_are_values() -> None:
    assert FixedWindows("1m") == FixedWindows(60_000_000)
    assert hash(FixedWindows("1m")) == hash(FixedWindows("60s"))
    assert repr(FixedWindows("90s", "5s")) == "FixedWindows('1m30s', offset='5s')"
    assert isinstance(FixedWindows("1m"), WindowFunction)
    assert FixedWindows("1m").merge_scope == "none"


def test_the_global_window_holds_every_event_time() -> None:
    """S-W4: it ends a day before the end of time, so that lateness up to a day fits."""
    # -inf [=================================================) +inf - 1d
    everything = (START_OF_TIME, LAST_EVENT_TIME + 1)
    assert assign(GlobalWindow(), START_OF_TIME, 0, LAST_EVENT_TIME) == [everything] * 3
    assert GlobalWindow() == GlobalWindow()
    assert repr(GlobalWindow()) == "GlobalWindow()"
