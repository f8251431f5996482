"""What other delays and latenesses would have done, by hand."""

from __future__ import annotations

import pytest

import lowwater as lw
from lowwater.testing import Scenario
from lowwater.testing.scenario import ScenarioRun

SECOND = 1_000_000


@pytest.fixture(scope="module")
def run() -> ScenarioRun:
    """Elements of two windows: one 20 s behind, when the latest is 10 s past its window's end."""
    scenario = Scenario(start="12:00")
    for at, time in (
        ("12:00:20", "12:00:20"),
        ("12:01:05", "12:01:05"),
        ("12:01:10", "12:01:10"),
        ("12:01:11", "12:00:50"),
        ("12:02:30", "12:02:30"),
    ):
        scenario = scenario.add((1, time, "A"), at=at)
    return scenario.end(at="12:03").run(lw.FixedWindows("1m"), trace=True)


def test_by_hand(run: ScenarioRun) -> None:
    profile = run.lateness_profile(delays=["0s", "10s", "11s"], lateness=["0s", "10s", "11s"])
    told = [(row.delay // SECOND, row.lateness // SECOND, row.late, row.dropped)
            for row in profile.rows]  # fmt: skip
    assert told == [
        (0, 0, 0, 1), (0, 10, 0, 1), (0, 11, 1, 0),
        (10, 0, 0, 1), (10, 10, 1, 0), (10, 11, 1, 0),
        (11, 0, 0, 0), (11, 10, 0, 0), (11, 11, 0, 0),
    ]  # fmt: skip
    assert profile.elements == 5
    assert profile.disorder == 20 * SECOND
    assert profile.wait_by == "clock"
    # 12:00 is complete at 12:01:05; with a delay of 10 s at 12:01:10, of 11 s at 12:02:30. 12:01
    # is complete at 12:02:30 in any case.
    assert [row.median_wait for row in profile.rows[::3]] == [0, 2_500_000, 42_500_000]
    assert (profile.suggestion.delay, profile.suggestion.lateness) == (11 * SECOND, 0)


def test_it_chooses_candidates_itself(run: ScenarioRun) -> None:
    profile = run.lateness_profile()
    assert profile.suggestion.dropped == 0
    assert profile.suggestion.late == 0
    assert {row.delay for row in profile.rows} >= {0, 20 * SECOND}
    assert "suggestion: watermark=BoundedDisorder(" in repr(profile)


def test_as_a_frame(run: ScenarioRun) -> None:
    pd = pytest.importorskip("pandas")
    frame = run.lateness_profile(delays=["10s"], lateness=["0s"]).to_frame()
    assert frame["delay"].iloc[0] == pd.Timedelta("10s")
    assert frame["dropped"].iloc[0] == 1


def test_without_elements() -> None:
    run = Scenario().end().run(lw.FixedWindows("1m"), trace=True)
    assert "no elements" in repr(run.lateness_profile())
    assert run.lateness_profile().suggestion.dropped == 0


def test_wrong_candidates(run: ScenarioRun) -> None:
    with pytest.raises(lw.InvalidArgument, match="not a list of durations"):
        run.lateness_profile(delays="10s")
    with pytest.raises(lw.InvalidArgument, match="negative"):
        run.lateness_profile(lateness=[-1])
    with pytest.raises(lw.InvalidArgument, match="there is no stage"):
        run.lateness_profile(stage="x")


def test_at_the_ends_of_time_it_does_not_wrap() -> None:
    rows = [{"k": "a", "v": 1, "at": at} for at in (9 * 10**18, -9 * 10**18)]
    made = lw.from_iterable(rows, time="at").key_by("k").window(lw.FixedWindows("1m"))
    profile = made.aggregate(n=lw.count()).collect(trace=True, bundle_size=1).lateness_profile()
    assert profile.disorder == 2**63 - 1
    assert all(row.delay >= 0 and row.lateness >= 0 for row in profile.rows)
    assert (profile.rows[0].late, profile.rows[0].dropped) == (0, 1)
