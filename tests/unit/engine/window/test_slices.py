"""When elements are grouped by slice, and how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from lowwater.engine.window.placement import Placement
from lowwater.engine.window.slices import Slices, sliced
from lowwater.engine.window.windowing import Windowing
from lowwater.errors import InvalidArgument
from lowwater.state.arrays import Scratch
from lowwater.time import Int64Array
from lowwater.windows import Assignment, FixedWindows, Sessions, SlidingWindows

MINUTE = SlidingWindows(60, 10)


def found_in(
    times: Int64Array, keys: Int64Array, windows: SlidingWindows = MINUTE
) -> Slices | None:
    """Return the slices of elements."""
    placement = Placement(Windowing(windows=windows))
    return placement.slices(times, keys, int(keys.max()) + 1, Scratch())


def test_elements_are_grouped_by_key_and_slice() -> None:
    times = np.arange(100, dtype=np.int64)  # ten slices
    keys = times % 2
    found = found_in(times, keys)
    assert found is not None
    assert found.size.tolist() == [5] * 20
    assert found.of.tolist() == [2 * (at // 10) + at % 2 for at in range(100)]
    assert (keys[found.one] == np.arange(20) % 2).all()
    assert found.bundle.times.tolist() == [10 * (at // 2) for at in range(20)]
    slices: Int64Array = np.array([19, 0])
    elements, which = found.elements(slices)
    assert elements.tolist() == [91, 93, 95, 97, 99, 0, 2, 4, 6, 8]
    assert which.tolist() == [0] * 5 + [1] * 5


def test_pairs_of_slices_become_pairs_of_elements_in_their_order() -> None:
    times = np.array([0, 10] * 50, dtype=np.int64)
    found = found_in(times, np.zeros(100, dtype=np.int64))
    assert found is not None
    element, which = found.of_each(np.array([0, 0, 1]))
    assert element.tolist() == [at for at in range(100) for _ in range(2 - at % 2)]
    assert which.tolist() == [0, 1, 2] * 50


def test_they_are_not_where_that_saves_nothing() -> None:
    """Few elements, a slice for nearly each, and slices too far apart to be numbered."""
    times = np.arange(100, dtype=np.int64)
    one_key = np.zeros(100, dtype=np.int64)
    assert found_in(times[:20], one_key[:20]) is None
    assert found_in(times, times) is None
    assert found_in(times * 10**9, one_key) is None


def test_ids_of_keys_may_be_far_apart() -> None:
    """Those in use are few, behind many that were."""
    times = np.arange(100, dtype=np.int64)
    found = found_in(times, 10**6 * (times % 2))
    assert found is not None
    assert found.size.tolist() == [5] * 20


def test_there_are_none_over_more_time_than_can_be_told_apart() -> None:
    """The distance of two slices would wrap around, and meet that of others."""
    times = np.arange(-500, 500, dtype=np.int64) * 2**53
    assert found_in(times, np.zeros(1000, dtype=np.int64), SlidingWindows(2**54, 2**53)) is None


def two_keys() -> Slices:
    """Return the slices of two keys in a hundred seconds: twenty, of which ten are a key's."""
    times = np.arange(100, dtype=np.int64)
    found = found_in(times, times % 2)
    assert found is not None
    return found


@given(st.lists(st.tuples(st.integers(0, 19), st.integers(-8, 9)), min_size=1, max_size=60))
def test_pairs_of_slices_are_grouped_by_key_and_window(pairs: list[tuple[int, int]]) -> None:
    slices = np.array([each for each, _ in pairs], dtype=np.int64)
    start = np.array([10 * number + 3 for _, number in pairs], dtype=np.int64)
    shared = two_keys().windows(slices, start, start + 60, Scratch())
    assert shared is not None
    alike = [(each % 2, number) for each, number in pairs]
    found = list(zip((shared.slice % 2).tolist(), ((shared.start - 3) // 10).tolist(), strict=True))
    assert found == list(dict.fromkeys(alike))
    assert (shared.end == shared.start + 60).all()
    assert [found[of] for of in shared.of.tolist()] == alike
    sizes = np.bincount(shared.of, weights=two_keys().size[slices])
    assert shared.size.tolist() == sizes.tolist()


@given(
    st.integers(0, 2**32 - 1), st.integers(1, 12), st.sampled_from([1, 7, 10**6, 3 * 10**11]),
    st.sampled_from([1, 5, 4_000]), st.sampled_from([64, 1_000, 20_000]), st.booleans(),
)  # fmt: skip
def test_windows_on_a_grid_are_those_of_all_pairs(
    seed: int, copies: int, period: int, keys: int, count: int, far: bool
) -> None:
    """Whatever gaps a key has, with slices in any order, beside windows found pair by pair."""
    random = np.random.default_rng(seed)
    windows = SlidingWindows(copies * period, period, offset=int(random.integers(period)))
    reach = int(random.choice([1, copies, 6 * copies]))
    times = random.integers(-reach * period, reach * period + 1, count)
    times += 10**15 if far else 0
    of = np.sort(random.integers(0, keys, count)) if random.random() < 0.5 else random.integers(
        0, keys, count
    )  # fmt: skip
    slices = found_in(times, of * 3, windows)
    if slices is None:
        return
    shared = slices.on_grid(windows)
    assert shared is not None
    each = windows.assign(slices.bundle.times, {})
    element = np.arange(len(slices.one)) if each.element is None else each.element
    pairs = list(
        zip(slices.key[element].tolist(), each.start.tolist(), each.end.tolist(), strict=True)
    )
    names = list(
        zip(slices.key[shared.slice].tolist(), shared.start.tolist(), shared.end.tolist(),
            strict=True)
    )  # fmt: skip
    assert len(set(names)) == len(names)
    assert shared.element.tolist() == element.tolist()
    assert [names[at] for at in shared.of.tolist()] == pairs
    assert set(names) == set(pairs)
    size = np.bincount(shared.of, weights=slices.size[element], minlength=len(names))
    assert shared.size.tolist() == size.astype(np.int64).tolist()
    first = list(dict.fromkeys(slices.key[shared.slice].tolist()))
    assert first == list(dict.fromkeys(slices.key.tolist()))  # keys in order of arrival


def test_windows_that_are_no_whole_number_of_slices_have_no_grid() -> None:
    windows = SlidingWindows(25, 10)
    found = found_in(np.arange(100, dtype=np.int64) % 30, np.zeros(100, dtype=np.int64), windows)
    assert found is not None
    assert found.on_grid(windows) is None


def test_pairs_are_looked_up_where_starts_do_not_tell_windows_apart() -> None:
    """Windows of several lengths, starts that are not in step, and too many numbers."""
    of, scratch = two_keys(), Scratch()
    slices = np.array([0, 1, 2, 3], dtype=np.int64)
    start = np.array([0, 10, 20, 30], dtype=np.int64)
    assert of.windows(slices, start, start + 60, scratch) is not None
    assert of.windows(slices, start, start + np.array([60, 60, 50, 60]), scratch) is None
    uneven = start + np.array([0, 0, 1, 0])
    assert of.windows(slices, uneven, uneven + 60, scratch) is None
    assert of.windows(slices, start * 10**9, start * 10**9 + 60, scratch) is None
    far = np.array([-(2**62), 2**62, 0, 0], dtype=np.int64)
    assert of.windows(slices, far, far + 60, scratch) is None
    assert of.windows(slices[:0], start[:0], start[:0], scratch) is None


@dataclass(frozen=True)
class Uneven:
    """Sliced windows of two lengths, as nobody's windows are here: each slice is in one of each."""

    slice_us: int = 10
    columns: ClassVar[tuple[str, ...]] = ()
    merge_scope: ClassVar[Any] = "none"

    def assign(self, times: Int64Array, columns: Any) -> Assignment:
        start = np.repeat(times // 10 * 10, 2)
        end = start + np.tile([10, 15], len(times))
        return Assignment(start, end, np.repeat(np.arange(len(times)), 2))

    def slice_starts(self, times: Int64Array) -> Int64Array:
        return times // 10 * 10


def test_windows_of_one_start_and_several_ends_stay_apart() -> None:
    table = pa.table({"t": pa.array(range(100), pa.int64()), "k": ["a"] * 100, "v": [1] * 100})
    stream = lw.from_arrow(table, time="t", watermark=lw.BoundedDisorder("0us")).key_by("k")
    sums = stream.window(Uneven()).aggregate(total=lw.sum("v"))
    found = [
        (int(pane.window.start), int(pane.window.end), pane.values["total"]) for pane in sums.run()
    ]
    wanted = [(at, at + size, 10) for at in range(0, 100, 10) for size in (10, 15)]
    assert sorted(found) == wanted


@dataclass(frozen=True)
class Wrong:
    """Sliced windows with one thing wrong."""

    starts: Any = np.float64
    slice_us: int = 10
    columns: ClassVar[tuple[str, ...]] = ()
    merge_scope: ClassVar[Any] = "none"

    def assign(self, times: Int64Array, columns: Any) -> Assignment:
        return MINUTE.assign(times, columns)

    def slice_starts(self, times: Int64Array) -> Any:
        return times.astype(self.starts)


def test_slices_of_users_are_checked() -> None:
    with pytest.raises(InvalidArgument, match=r"Wrong.slice_starts returned .* float64"):
        found_in(np.arange(9), np.arange(9), Wrong())  # type: ignore[arg-type]
    for apart in (0, -10):
        with pytest.raises(InvalidArgument, match=f"slice_us of Wrong is {apart}"):
            Placement(Windowing(windows=Wrong(np.int64, apart)))


def test_only_sliding_windows_have_slices() -> None:
    assert sliced(MINUTE) is MINUTE
    assert sliced(FixedWindows(60)) is None
    assert sliced(Sessions(60)) is None
