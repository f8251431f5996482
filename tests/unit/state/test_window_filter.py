"""A filter of windows forgets none that it was given, and takes few others for one."""

import numpy as np

from lowwater.state.window_filter import WindowFilter
from lowwater.time import Int64Array

MINUTE = 60_000_000


def windows(seed: int, count: int, first_key: int) -> tuple[Int64Array, Int64Array, Int64Array]:
    random = np.random.default_rng(seed)
    keys = random.integers(first_key, first_key + 1000, count)
    start = random.integers(0, 1000, count) * MINUTE
    return keys, start, start + MINUTE


def test_none_is_missing_and_few_are_wrong() -> None:
    held = WindowFilter()
    known = windows(1, 50_000, 0)
    held.add(*known)
    assert held.may_hold(*known).all()
    wrong = held.may_hold(*windows(2, 50_000, 5_000)).mean()
    assert 0 < wrong < 0.02
    assert held.nbytes < 6 * 50_000


def test_what_ended_long_ago_is_forgotten() -> None:
    held = WindowFilter()
    for hour in range(20):
        start = np.full(5_000, hour * 60 * MINUTE)
        held.add(np.arange(5_000), start, start + MINUTE)
    before = held.nbytes
    held.forget(19 * 60 * MINUTE)
    assert held.nbytes < before
    start = np.full(5_000, 19 * 60 * MINUTE)
    assert held.may_hold(np.arange(5_000), start, start + MINUTE).all()
    held.forget(21 * 60 * MINUTE)
    assert held.nbytes == 0
