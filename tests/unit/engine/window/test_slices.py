"""When elements are grouped by slice, and how."""

from __future__ import annotations

import numpy as np

from lowwater.engine.window.slices import find_slices, sliced
from lowwater.state.arrays import Scratch
from lowwater.time import Int64Array
from lowwater.windows import FixedWindows, Sessions, SlidingWindows

MINUTE = SlidingWindows(60, 10)


def test_elements_are_grouped_by_key_and_slice() -> None:
    times = np.arange(100, dtype=np.int64)  # ten slices
    keys = times % 2
    found = find_slices(MINUTE, times, keys, 2, Scratch())
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
    found = find_slices(MINUTE, times, np.zeros(100, dtype=np.int64), 1, Scratch())
    assert found is not None
    element, which = found.of_each(np.array([0, 0, 1]))
    assert element.tolist() == [at for at in range(100) for _ in range(2 - at % 2)]
    assert which.tolist() == [0, 1, 2] * 50


def test_they_are_not_where_that_saves_nothing() -> None:
    """Few elements, a slice for nearly each, and slices too far apart to be numbered."""
    times = np.arange(100, dtype=np.int64)
    one_key = np.zeros(100, dtype=np.int64)
    assert find_slices(MINUTE, times[:20], one_key[:20], 1, Scratch()) is None
    assert find_slices(MINUTE, times, times, 100, Scratch()) is None
    assert find_slices(MINUTE, times * 10**9, one_key, 1, Scratch()) is None


def test_only_sliding_windows_have_slices() -> None:
    assert sliced(MINUTE) is MINUTE
    assert sliced(FixedWindows(60)) is None
    assert sliced(Sessions(60)) is None
