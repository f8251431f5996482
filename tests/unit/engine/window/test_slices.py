"""When elements are grouped by slice, and how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

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
