"""Windows of the user's own making (S-W6)."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from lowwater.errors import DataError, InvalidArgument
from lowwater.time import Instant, Int64Array
from lowwater.windows import Assignment, CustomWindows, MergingWindowFunction, Window

MergeSets = Iterable[tuple[Sequence[Window], tuple[int, int]]]


def ints(*values: int) -> Int64Array:
    return np.array(values, dtype=np.int64)


def rows(given: Assignment) -> list[tuple[int, int, int]]:
    assert given.element is not None
    columns = (given.element.tolist(), given.start.tolist(), given.end.tolist())
    return list(zip(*columns, strict=True))


def test_an_element_may_have_any_number_of_windows() -> None:
    """S-W6: per element; S-W2: none of them is `unwindowed`."""
    # 0 [====) 10    t=0
    # 0 [====) 10    t=1: both, given in any order and one twice
    # 0 [=======) 15
    #                t=2: none
    windows = CustomWindows(lambda t: {0: [(0, 10)], 1: [(0, 15), (0, 10), (0, 15)]}.get(t, []))
    given = windows.assign(ints(0, 1, 2), {})
    assert rows(given) == [(0, 0, 10), (1, 0, 10), (1, 0, 15)]
    assert given.unwindowed is not None
    assert given.unwindowed.tolist() == [2]


def test_a_column_of_one_window_each() -> None:
    """S-W6: vectorised."""
    # 0 [====) 10 [====) 20
    windows = CustomWindows(assign_column=lambda t: (t - t % 10, t - t % 10 + 10))
    given = windows.assign(ints(3, 10), {})
    assert given.start.tolist() == [0, 10]
    assert given.end.tolist() == [10, 20]
    assert given.element is None


def test_a_column_of_several_windows_each() -> None:
    """S-W6."""
    # 3 [=) 4
    # 3 [==) 5
    #       10 none
    windows = CustomWindows(assign_column=lambda _: (ints(3, 3), ints(4, 5), ints(0, 0)))
    given = windows.assign(ints(3, 10), {})
    assert rows(given) == [(0, 3, 4), (0, 3, 5)]
    assert given.unwindowed is not None
    assert given.unwindowed.tolist() == [1]


@pytest.mark.parametrize(
    ("assign", "problem"),
    [
        (lambda t: (t,), "must return"),
        (lambda t: (t, t[:1] + 1), "must return"),
        (lambda t: (t, t + 1, t[:1]), "must return"),
        (lambda t: (t, t + 1, ints(1, 0)), "never go down"),
        (lambda t: (t, t + 1, ints(0, 2)), r"within 0\.\.1"),
        (lambda t: (t, t + 1, ints(-1, 0)), r"within 0\.\.1"),
        (lambda t: (t, t), "end after it starts"),
    ],
)
def test_a_column_that_breaks_the_rules_names_the_function(
    assign: Callable[[Int64Array], tuple[Any, ...]], problem: str
) -> None:
    windows = CustomWindows(assign_column=assign, name="by shift")
    with pytest.raises(InvalidArgument, match=f"by shift.*{problem}|by shift.*not {problem}"):
        windows.assign(ints(5, 6), {})


def test_an_empty_window_names_the_function() -> None:
    with pytest.raises(InvalidArgument, match=r"by shift gave .*\[5, 5\)"):
        CustomWindows(lambda t: [(t, t)], name="by shift").assign(ints(5), {})


def one_each(t: int) -> list[tuple[int, int]]:
    return [(t, t + 1)]


def merging(merge: Callable[[Sequence[Window]], MergeSets]) -> CustomWindows:
    return CustomWindows(one_each, merge_active=merge, name="by shift")


def test_a_merge_sees_one_key_at_a_time_and_may_grow_or_shrink() -> None:
    """S-W6."""
    # key 1: 0 [==) 5
    # key 1:      5 [==) 9    -> 0 [======) 9
    # key 2: 0 [======) 9     -> 0 [==) 3
    seen: list[list[tuple[int, int]]] = []

    def merge(active: Sequence[Window]) -> MergeSets:
        seen.append([(w.start, w.end) for w in active])
        yield active, ((0, 9) if len(active) == 2 else (0, 3))

    outcome = merging(merge).merge(ints(1, 1, 2), ints(0, 5, 0), ints(5, 9, 9))
    assert seen == [[(0, 5), (5, 9)], [(0, 9)]]
    assert outcome.group.tolist() == [0, 0, 1]
    assert outcome.start.tolist() == [0, 0]
    assert outcome.end.tolist() == [9, 3]


def test_windows_in_no_set_stay_as_they_are() -> None:
    """S-W6."""
    # 0 [==) 2
    #    2 [==) 4    -> 2 [======) 8
    #       6 [==) 8
    outcome = merging(lambda active: [(active[1:], (2, 8))]).merge(
        ints(0, 0, 0), ints(0, 2, 6), ints(2, 4, 8)
    )
    made = list(zip(outcome.start.tolist(), outcome.end.tolist(), strict=True))
    assert [made[group] for group in outcome.group.tolist()] == [(0, 2), (2, 8), (2, 8)]


def test_equal_windows_are_one_active_window() -> None:
    # 0 [==) 2
    # 0 [==) 2
    seen: list[int] = []

    def merge(active: Sequence[Window]) -> MergeSets:
        seen.append(len(active))
        return []

    outcome = merging(merge).merge(ints(0, 0), ints(0, 0), ints(2, 2))
    assert seen == [1]
    assert outcome.group.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("merge", "problem"),
    [
        (lambda w: [([w[0]], (0, 9)), ([w[0]], (0, 8))], "two merge sets"),
        (lambda w: [([w[0]], (0, 9)), ([w[1]], (0, 9))], "two sets into one"),
        (lambda w: [([w[0]], (w[1].start, w[1].end))], "outside the set"),
        (lambda _: [([Window(Instant(7), Instant(8))], (0, 9))], "not an active window"),
        (lambda _: [([], (0, 9))], "no windows"),
        (lambda w: [(w, (9, 0))], "end after it starts"),
    ],
)
def test_a_merge_that_breaks_the_rules_is_an_error(
    merge: Callable[[Sequence[Window]], MergeSets], problem: str
) -> None:
    """S-W6: each window in at most one set; the result is one of the set or new."""
    with pytest.raises(InvalidArgument, match=problem):
        merging(merge).merge(ints(0, 0), ints(0, 2), ints(2, 4))


def test_a_set_may_be_any_iterable_and_merge_to_one_of_its_own() -> None:
    # 0 [======) 4
    # 0 [==) 2       -> 0 [==) 2
    def merge(active: Sequence[Window]) -> Any:
        yield iter(active), active[0]

    outcome = merging(merge).merge(ints(0, 0), ints(0, 0), ints(2, 4))
    assert outcome.group.tolist() == [0, 0]
    assert (outcome.start.tolist(), outcome.end.tolist()) == ([0], [2])


def test_nothing_merges_into_nothing() -> None:
    outcome = merging(lambda active: [(active, (0, 9))]).merge(ints(), ints(), ints())
    assert len(outcome.group) == len(outcome.start) == 0


@pytest.mark.parametrize("arguments", [{}, {"assign_element": one_each, "assign_column": one_each}])
def test_exactly_one_way_to_assign(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match="either assign_element or assign_column"):
        CustomWindows(**arguments)


def test_merging_follows_from_the_merge_function() -> None:
    assert CustomWindows(one_each).merge_scope == "none"
    assert merging(lambda _: []).merge_scope == "key"
    assert isinstance(merging(lambda _: []), MergingWindowFunction)
    assert CustomWindows(one_each) == CustomWindows(one_each)
    assert hash(CustomWindows(one_each)) == hash(CustomWindows(one_each))


@pytest.mark.parametrize("bound", [0.5, 10.0, np.float64(3)])
def test_a_float_is_no_bound(bound: Any) -> None:
    """A fraction would be cut off; a whole float is whole by luck."""
    windows = CustomWindows(lambda at: [(bound, at + 20)], name="halves")
    with pytest.raises(InvalidArgument, match=r"halves gave .* int microseconds"):
        windows.assign(np.array([5]), {})


@pytest.mark.parametrize("dtype", ["float64", "datetime64[us]", "timedelta64[ns]"])
def test_a_column_of_bounds_is_of_integers(dtype: str) -> None:
    windows = CustomWindows(assign_column=lambda times: (times.astype(dtype), times + 10))
    with pytest.raises(InvalidArgument, match=re.escape(dtype)):
        windows.assign(np.array([5]), {})


def test_integers_of_numpy_are_bounds() -> None:
    def assign(at: int) -> Iterator[tuple[Any, Any]]:
        return ((np.int32(s), np.int64(s + 10)) for s in (0, 5))

    windows = CustomWindows(assign)
    found = windows.assign(np.array([5]), {})
    assert list(zip(found.start.tolist(), found.end.tolist(), strict=True)) == [(0, 10), (5, 15)]


def test_a_generator_that_fails_is_the_function_that_fails() -> None:
    def assign(at: int) -> Iterator[tuple[int, int]]:
        yield at, at + 10
        raise TypeError("no such shift")

    with pytest.raises(DataError, match="assign_element of shifts failed: TypeError: no such"):
        CustomWindows(assign, name="shifts").assign(np.array([5]), {})


def endless(at: int) -> Iterator[tuple[int, int]]:
    return ((at, at + n) for n in itertools.count(1))


class Endless:
    """An iterable that is no iterator."""

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return endless(0)


@pytest.mark.parametrize(
    "windows",
    [
        CustomWindows(endless, name="by shift"),
        CustomWindows(lambda _: Endless(), name="by shift"),
        CustomWindows(lambda at: [(at, at + n) for n in range(1, 10_002)], name="by shift"),
        CustomWindows(
            assign_column=lambda at: (
                np.arange(10_001),
                np.arange(10_001) + 1,
                np.zeros(10_001, dtype=np.int64),
            ),
            name="by shift",
        ),
    ],
)
def test_an_element_is_in_ten_thousand_windows_at_most(windows: CustomWindows) -> None:
    """S-W6."""
    with pytest.raises(InvalidArgument, match="by shift put an element into more than 10,000"):
        windows.assign(ints(5), {})


@pytest.mark.parametrize("bound", [2**63, -(2**63) - 1, 10**30])
def test_a_bound_beyond_the_ends_of_time_names_the_function(bound: int) -> None:
    """S-T1: it is neither an error of numpy nor another time."""
    low, high = sorted((bound, 0))
    for windows in (
        CustomWindows(lambda _: [(low, high)], name="by shift"),
        CustomWindows(
            assign_column=lambda at: ([low] * len(at), [high] * len(at)), name="by shift"
        ),
    ):
        with pytest.raises(InvalidArgument, match=f"by shift gave the bound {bound}, which does"):
            windows.assign(ints(5, 6), {})
    merges = merging(lambda windows: [(windows, (low, high))])
    with pytest.raises(InvalidArgument, match=f"by shift gave the bound {bound}, which does"):
        merges.merge(ints(0), ints(5), ints(6))


def test_a_column_of_unsigned_bounds_does_not_wrap() -> None:
    def assign(at: Int64Array) -> tuple[Any, ...]:
        start = np.array([2**63 - 1, 2**63], dtype=np.uint64)
        return start, start + np.uint64(1)

    with pytest.raises(InvalidArgument, match="by shift gave the bound 9223372036854775808"):
        CustomWindows(assign_column=assign, name="by shift").assign(ints(5, 6), {})
