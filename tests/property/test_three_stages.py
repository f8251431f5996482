"""Sessions per user, sessions per minute, and who leads: as a batch over the same records says."""

from __future__ import annotations

from collections import Counter
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

import lowwater as lw
from examples.session_leaders import GAP, leaders
from tests.examples import examples

SECOND = 1_000_000
MINUTE = 60 * SECOND
EXAMPLES = examples(1)


def batch(visits: list[dict[str, int]], count: int) -> dict[int, list[list[int]]]:
    """Return [sessions, user] of who had the most, by the start of the minute."""
    gap = int(lw.duration(GAP))
    ended: Counter[tuple[int, int]] = Counter()
    for user in {visit["user"] for visit in visits}:
        times = sorted(visit["at"] for visit in visits if visit["user"] == user)
        for at, after in zip(times, [*times[1:], None], strict=True):
            if after is None or after >= at + gap:
                ended[(at + gap - 1) // MINUTE * MINUTE, user] += 1
    found: dict[int, list[list[int]]] = {}
    for (minute, user), number in ended.items():
        found.setdefault(minute, []).append([number, user])
    return {
        minute: sorted(each, key=lambda one: (-one[0], one[1]))[:count]
        for minute, each in found.items()
    }


def standing(panes: list[lw.Pane]) -> dict[int, list[list[int]]]:
    """Return what panes show, less what they took back; minutes in which nothing is left aside."""
    shown: dict[int, Any] = {}
    for pane in panes:
        if pane.kind == "retract":
            assert shown.pop(int(pane.window.start)) == pane.value
        else:
            assert int(pane.window.start) not in shown
            shown[int(pane.window.start)] = pane.value
    return {minute: value for minute, value in shown.items() if value}


@st.composite
def disordered(draw: st.DrawFn) -> tuple[list[dict[str, int]], int]:
    """Visits in order of arrival, and by how much they are out of order at most."""
    disorder = draw(st.sampled_from([0, 3, 25, 90])) * SECOND
    at, visits = 1_000 * SECOND, []
    for _ in range(draw(st.integers(0, 60))):
        at += draw(st.integers(0, 12)) * SECOND
        late = draw(st.integers(0, disorder // SECOND)) * SECOND
        visits.append({"at": at - late, "user": draw(st.integers(0, 5))})
    return visits, disorder


@pytest.mark.parametrize("retracting", [False, True], ids=["discarding", "retracting"])
@given(case=disordered(), bundle_size=st.sampled_from([1, 2, 7, 100]))
@EXAMPLES
def test_three_stages_are_a_batch(
    retracting: bool, case: tuple[list[dict[str, int]], int], bundle_size: int
) -> None:
    visits, disorder = case
    stream = lw.from_iterable(
        visits, time="at", watermark=lw.BoundedDisorder(disorder), clock=lw.ManualClock(0)
    )
    pipeline = leaders(stream, retracting=retracting, count=3)
    result = pipeline.collect(bundle_size=bundle_size, on_error="raise")
    assert result.late == []
    assert standing(result.panes) == batch(visits, 3)


@given(case=disordered(), bundle_size=st.sampled_from([1, 2, 7]))
@EXAMPLES
def test_late_visits_that_are_admitted_count_too(
    case: tuple[list[dict[str, int]], int], bundle_size: int
) -> None:
    """S-C7: what the first stage admits late, the others do too.

    Visits are late by no more than the lateness, so each finds the sessions that it belongs to.
    """
    visits, disorder = case
    delay = max(0, disorder - 30 * SECOND)
    stream = lw.from_iterable(
        visits, time="at", watermark=lw.BoundedDisorder(delay), clock=lw.ManualClock(0)
    )
    result = leaders(stream, count=3).collect(bundle_size=bundle_size, on_error="raise")
    assert result.late == []
    assert standing(result.panes) == batch(visits, 3)
