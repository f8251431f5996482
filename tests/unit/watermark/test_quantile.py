"""What ``Quantile`` learns, forgets and refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lowwater as lw
from lowwater.time import START_OF_TIME, Int64Array
from lowwater.watermark import Observed, holder_of


def observed(times: Int64Array | list[int]) -> Observed:
    return Observed(np.array(times, dtype=np.int64), {}, 0)


def stream(n: int, mean_lag: float, seed: int = 1, start: int = 0) -> Int64Array:
    """Return event times of elements that come a random while after they happen."""
    lags = np.random.default_rng(seed).exponential(mean_lag, n)
    return (start + 1_000 * np.arange(n) - lags).astype(np.int64)


@pytest.mark.parametrize(
    ("quantile", "count"), [(0.5, 6_000), (0.9, 6_000), (0.99, 15_000), (0.999, 60_000)]
)
def test_about_the_rest_is_late(quantile: float, count: int) -> None:
    state = lw.Quantile(quantile).start()
    late = 0
    # Short parts, so that the watermark is up to date.
    for part in np.split(stream(count, 50_000.0), count // 6):
        late += int((part < state.current(0)).sum())
        state.observe(observed(part))
    share = late / count
    assert share <= (1 - quantile) * 1.1
    assert share >= (1 - quantile) * 0.5


def test_what_was_learned_fades() -> None:
    """After much disorder comes little: the delay shrinks, but only once that is forgotten."""
    state = lw.Quantile(0.99, memory=1_000).start()
    for some in (stream(5_000, 1e6), stream(1_000, 10.0, start=10**10)):
        state.observe(observed(some))
    high = 10**10 + 1_000 * 999
    assert high - state.current(0) > 10**5
    state.observe(observed(stream(20_000, 10.0, start=10**10 + 10**7)))
    assert 10**10 + 10**7 + 1_000 * 19_999 - state.current(0) < 200


def test_the_counts_are_halved_at_exact_elements() -> None:
    """Whatever the bundles are."""
    whole, single = (lw.Quantile(0.9, memory=3).start() for _ in range(2))
    times = stream(50, 5_000.0)
    whole.observe(observed(times))
    for at in times.tolist():
        single.observe(observed([at]))
    assert whole.remember() == single.remember()
    assert sum(whole.remember()["counts"]) < 6


def test_before_it_has_learned_it_waits() -> None:
    patient, bold = lw.Quantile(0.5).start(), lw.Quantile(0.5, most="1s").start()
    for state in (patient, bold):
        state.observe(observed([10_000_000] * 999))
    assert (patient.current(0), bold.current(0)) == (START_OF_TIME, 9_000_000)
    assert holder_of(patient) == "it has seen 999 of the 1000 records it learns from"
    patient.observe(observed([10_000_000]))
    assert patient.current(0) == 10_000_000
    assert holder_of(patient) == "it waits 0s for records that are out of order"


def test_the_delay_has_bounds() -> None:
    state = lw.Quantile(1, least=5, most=20, warm_up=0).start()
    state.observe(observed([100]))
    assert state.current(0) == 95
    state.observe(observed([0, 100]))
    assert state.current(0) == 95
    state.observe(observed([200]))
    assert state.current(0) == 180


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"quantile": 0}, "above 0 and at most 1"),
        ({"quantile": 1.5}, "above 0 and at most 1"),
        ({"quantile": float("nan")}, "above 0 and at most 1"),
        ({"quantile": True}, "above 0 and at most 1"),
        ({"quantile": "99%"}, "above 0 and at most 1"),
        ({"quantile": 0.9, "least": "-1s"}, "must not be negative"),
        ({"quantile": 0.9, "least": "2s", "most": "1s"}, "is below"),
        ({"quantile": 0.9, "warm_up": -1}, "warm_up=-1"),
        ({"quantile": 0.9, "memory": 0}, "memory=0"),
        ({"quantile": 0.9, "memory": 1.5}, "memory=1.5"),
    ],
)
def test_what_cannot_be_is_refused(arguments: dict[str, Any], match: str) -> None:
    with pytest.raises(lw.InvalidArgument, match=match):
        lw.Quantile(**arguments)
