"""Sessions (S-W3)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lowwater.errors import DataError, InvalidArgument
from lowwater.time import END_OF_TIME, LAST_EVENT_TIME, Instant, Int64Array, instant
from lowwater.windows import MergingWindowFunction, Sessions, Window


def ints(*values: int) -> Int64Array:
    return np.array(values, dtype=np.int64)


def merged(sessions: Sessions, *windows: tuple[int, int, int]) -> list[tuple[int, int, list[int]]]:
    """Return (start, end, members) of what (key, start, end) rows merge into."""
    keys, start, end = (ints(*column) for column in zip(*windows, strict=True))
    outcome = sessions.merge(keys, start, end)
    groups = outcome.group.tolist()
    return [
        (s, e, [row for row, at in enumerate(groups) if at == group])
        for group, (s, e) in enumerate(
            zip(outcome.start.tolist(), outcome.end.tolist(), strict=True)
        )
    ]


def test_customer_support_conversations() -> None:
    """S-W3, the example of the documentation: messages at 13:02, 13:14 and 13:57, gap 30 min."""
    # 13:02 [--------------) 13:32
    #    13:14 [--------------) 13:44
    #                               13:57 [--------------) 14:27
    # 13:02 [=================) 13:44     [==============)
    sessions = Sessions("30m")
    times = ints(*(instant(f"2024-05-06T{at}:00Z") for at in ("13:02", "13:14", "13:57")))
    proto = sessions.assign(times, {})
    assert proto.element is None
    outcome = sessions.merge(ints(0, 0, 0), proto.start, proto.end)
    windows = [
        str(Window(Instant(s), Instant(e)))
        for s, e in zip(outcome.start.tolist(), outcome.end.tolist(), strict=True)
    ]
    assert windows == [
        "[2024-05-06T13:02:00Z, 2024-05-06T13:44:00Z)",
        "[2024-05-06T13:57:00Z, 2024-05-06T14:27:00Z)",
    ]
    assert outcome.group.tolist() == [0, 0, 1]


def test_windows_that_touch_stay_apart() -> None:
    """S-W3, decided: half-open intervals that touch do not overlap."""
    # 0 [====) 10
    #     10 [====) 20
    touching = [(0, 0, 10), (0, 10, 20)]
    assert merged(Sessions(10), *touching) == [(0, 10, [0]), (10, 20, [1])]
    assert merged(Sessions(10, merge_touching=True), *touching) == [(0, 20, [0, 1])]


def test_windows_one_microsecond_apart_never_merge() -> None:
    """S-W3."""
    # 0 [====) 10
    #      11 [====) 21
    apart = [(0, 0, 10), (0, 11, 21)]
    for touching in (False, True):
        assert len(merged(Sessions(10, merge_touching=touching), *apart)) == 2


def test_a_long_window_bridges_short_ones_inside_it() -> None:
    """S-W3: the reach of a run is its greatest end, not its last."""
    # 0 [================) 100
    #   5 [==) 10
    #       50 [==) 60
    #            90 [======) 110
    #                       110 [==) 115
    assert merged(
        Sessions(1), (0, 0, 100), (0, 5, 10), (0, 50, 60), (0, 90, 110), (0, 110, 115)
    ) == [(0, 110, [0, 1, 2, 3]), (110, 115, [4])]


def test_keys_do_not_merge_with_each_other() -> None:
    """S-W3, S-W7."""
    # key 1: 0 [==========) 100
    # key 2:   5 [==) 15
    # key 2:       10 [==) 20
    assert merged(Sessions(10), (1, 0, 100), (2, 5, 15), (2, 10, 20)) == [
        (0, 100, [0]),
        (5, 20, [1, 2]),
    ]


def test_equal_windows_merge() -> None:
    # 0 [====) 10
    # 0 [====) 10
    assert merged(Sessions(10), (0, 0, 10), (0, 0, 10)) == [(0, 10, [0, 1])]


def test_nothing_merges_into_nothing() -> None:
    outcome = Sessions(10).merge(ints(), ints(), ints())
    assert len(outcome.group) == len(outcome.start) == len(outcome.end) == 0


def test_the_end_saturates_at_the_end_of_time() -> None:
    """S-T1."""
    given = Sessions("2d").assign(ints(0, LAST_EVENT_TIME), {})
    assert given.end.tolist() == [2 * 86_400_000_000, END_OF_TIME]


def test_each_element_may_have_its_own_gap() -> None:
    """S-W3."""
    # 0 [==) 3
    #    5 [=======) 12
    sessions = Sessions(gap_column="gap")
    assert sessions.columns == ("gap",)
    for gaps in (ints(3, 7), np.array([3_000, 7_000], dtype="timedelta64[ns]")):
        given = sessions.assign(ints(0, 5), {"gap": gaps})
        assert given.start.tolist() == [0, 5]
        assert given.end.tolist() == [3, 12]


@pytest.mark.parametrize("gap", [0, -1])
def test_a_gap_of_an_element_must_be_above_zero(gap: int) -> None:
    with pytest.raises(DataError, match=r"00:00:00\.000005Z has a gap of -?\d us.*'gap'"):
        Sessions(gap_column="gap").assign(ints(0, 5), {"gap": ints(3, gap)})


@pytest.mark.parametrize(
    "arguments", [{}, {"gap": "1m", "gap_column": "gap"}, {"gap": 0}, {"gap": "-1s"}]
)
def test_sessions_need_one_gap_above_zero(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match="gap"):
        Sessions(**arguments)


def test_sessions_are_values() -> None:
    assert Sessions("30m") == Sessions(1_800_000_000)
    assert Sessions("30m") != Sessions("30m", merge_touching=True)
    assert repr(Sessions("30m", merge_touching=True)) == "Sessions('30m', merge_touching=True)"
    assert repr(Sessions(gap_column="gap")) == "Sessions(gap_column='gap')"
    assert isinstance(Sessions("30m"), MergingWindowFunction)
    assert Sessions("30m").merge_scope == "overlapping"
