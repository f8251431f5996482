"""How watermarks are guessed (S-T3)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import lowwater as lw
from lowwater.time import END_OF_TIME, LAST_EVENT_TIME, START_OF_TIME
from lowwater.watermark import Observed
from tests.unit.engine.local.durable_runs import output, pipeline, run, stopped, write_files


def observed(*times: int) -> Observed:
    return Observed(np.array(times, dtype=np.int64), {}, 0)


def test_nothing_seen_is_the_start_of_time() -> None:
    state = lw.BoundedDisorder("5s").start()
    state.observe(observed())
    assert state.current(0) == START_OF_TIME


def test_bounded_disorder_is_behind_the_latest_and_never_goes_back() -> None:
    """S-T3: the watermark never goes back."""
    state = lw.BoundedDisorder("1us").start()
    for bundle, expected in ((observed(10, 3), 9), (observed(5), 9), (observed(11), 10)):
        state.observe(bundle)
        assert state.current(0) == expected


def test_ascending_allows_equal_times() -> None:
    """S-T3: an element at the watermark is not late."""
    state = lw.Ascending().start()
    state.observe(observed(7))
    assert state.current(0) == 7


def test_the_ends_of_time_saturate() -> None:
    """S-T1."""
    state = lw.BoundedDisorder(END_OF_TIME).start()
    state.observe(observed(START_OF_TIME + 1))
    assert state.current(0) == START_OF_TIME
    state.observe(observed(LAST_EVENT_TIME))
    assert state.current(0) == LAST_EVENT_TIME - END_OF_TIME


def test_each_run_starts_anew() -> None:
    estimator = lw.BoundedDisorder("0s")
    estimator.start().observe(observed(5))
    assert estimator.start().current(0) == START_OF_TIME


def test_manual_watermark_only_moves_forward() -> None:
    watermark = lw.ManualWatermark()
    state = watermark.start()
    state.observe(observed(100))
    assert state.current(0) == START_OF_TIME
    watermark.advance_to("1970-01-01T00:00:00.000009Z")
    watermark.advance_to(3)
    assert state.current(0) == 9


def test_estimators_are_values() -> None:
    assert lw.BoundedDisorder("6h") == lw.BoundedDisorder("360m")
    assert repr(lw.BoundedDisorder("6h")) == "BoundedDisorder('6h')"
    assert {lw.Ascending()} == {lw.Ascending()}


def test_a_negative_delay_is_refused() -> None:
    with pytest.raises(lw.InvalidArgument, match="must not be negative"):
        lw.BoundedDisorder("-1s")


@pytest.mark.parametrize(
    "estimator",
    [
        lw.Quantile(0.9, warm_up=20, memory=30),
        lw.PerPartition(lw.BoundedDisorder("5s"), by="key", expected=[f"k{n}" for n in range(7)]),
        lw.PerPartition(lw.Quantile(0.8, warm_up=2), by="key", idle_after="1s"),
        lw.Punctuated(lambda record: record["at"] - 7_000_000),
        lw.Punctuated("at"),
    ],
    ids=["quantile", "partitions", "idle partitions", "function", "column"],
)
def test_a_durable_run_goes_on_with_what_was_known(
    tmp_path: Path, estimator: lw.WatermarkEstimator
) -> None:
    source = write_files(tmp_path / "in")
    made = pipeline(source, watermark=estimator)
    run(made, tmp_path / "whole")
    for commits in (3, 11, 11):
        stopped(made, tmp_path / "parts", commits)
    run(made, tmp_path / "parts")
    whole = output(tmp_path / "whole")
    assert output(tmp_path / "parts") == whole
    assert whole["part"]
