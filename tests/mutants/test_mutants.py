"""Bugs planted in the window operator are caught by the laws that users get, and within seconds.

Everything is seeded: the same scenarios are drawn each time, first without and then with the bug.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import Phase, given, settings

import lowwater as lw
from lowwater.pipeline import Pipeline, Stream
from lowwater.testing import (
    Scenario,
    check_batch_equal,
    check_bundle_insensitive,
    check_no_loss,
    check_order_insensitive,
    check_pane_labels,
    check_retractions_telescope,
)
from lowwater.testing import strategies as lws
from tests.mutants.mutants import MUTANTS, Mutant

pytestmark = pytest.mark.long(reason="each planted bug runs the laws")

SEEDED = settings(
    derandomize=True, database=None, deadline=None, phases=[Phase.generate],
    report_multiple_bugs=False,
)  # fmt: skip
Law = Callable[[Any, Scenario], None]
OFTEN = lw.AfterWatermark(early=lw.AfterCount(2), late=lw.AfterCount(1))


def totals(windows: Any, mode: Any, **how: Any) -> Callable[[Stream], Pipeline]:
    fields: dict[str, Any] = {"trigger": OFTEN, "allowed_lateness": "6s"} | how

    def build(stream: Stream) -> Pipeline:
        windowed = stream.key_by("key").window(windows, accumulation=mode, **fields)
        return windowed.aggregate(n=lw.count(), total=lw.sum("value"))

    return build


def chain(stream: Stream) -> Pipeline:
    """Each key's totals, at the time of the earliest of its elements, and the totals of these."""
    each = totals(
        lw.FixedWindows("10s"), None, trigger=lw.AfterWatermark(), allowed_lateness=0,
        timestamps="earliest",
    )(stream)  # fmt: skip
    whole = each.key_by(all=lw.lit("all")).window(lw.FixedWindows("5s"))
    return whole.aggregate(total=lw.sum("total"))


def batch(records: Any) -> dict[Any, Any]:
    """The totals of ten seconds, with no window but arithmetic."""
    found: dict[Any, dict[str, int]] = {}
    for record in records:
        start = int(record["time"]) // 10_000_000 * 10_000_000
        sums = found.setdefault((record["key"], (start, start + 10_000_000)), {"n": 0, "total": 0})
        sums["n"] += 1
        sums["total"] += record["value"]
    return found


def against_batch(pipeline: Any, scenario: Scenario) -> None:
    check_batch_equal(pipeline, batch, scenario)


TENS, SESSIONS = lw.FixedWindows("10s"), lw.Sessions("4s")
EACH = lw.AfterWatermark(early=lw.AfterCount(1), late=lw.AfterCount(1))
LAWS: list[tuple[str, Law, Any]] = [
    ("check_no_loss", check_no_loss, totals(TENS, "discarding")),
    ("check_no_loss", check_no_loss, totals(TENS, "accumulating", trigger=lw.Never())),
    ("check_no_loss", check_no_loss, totals(TENS, "accumulating")),
    ("check_no_loss", check_no_loss, totals(SESSIONS, "discarding")),
    ("check_no_loss", check_no_loss, totals(SESSIONS, "retracting")),
    ("check_pane_labels", check_pane_labels, totals(TENS, "accumulating")),
    ("check_pane_labels", check_pane_labels, totals(TENS, "discarding", closing="always")),
    ("check_retractions_telescope", check_retractions_telescope, totals(TENS, "retracting")),
    (
        "check_retractions_telescope",
        check_retractions_telescope,
        totals(SESSIONS, "retracting", trigger=EACH),
    ),
    ("check_order_insensitive", check_order_insensitive, totals(SESSIONS, "accumulating")),
    ("check_order_insensitive", check_order_insensitive, chain),
    ("check_bundle_insensitive", check_bundle_insensitive, totals(TENS, "discarding")),
    ("check_batch_equal", against_batch, totals(TENS, "accumulating")),
]


RUN_OFTEN = (check_order_insensitive, check_bundle_insensitive)  # several times per scenario


def check(law: Law, pipeline: Any) -> None:
    """Check a law on the same scenarios each time."""

    @settings(SEEDED, max_examples=25 if law in RUN_OFTEN else 80)
    @given(scenario=lws.scenarios(keys=("A", "B")))
    def holds(scenario: Scenario) -> None:
        law(pipeline, scenario)

    holds()


@pytest.mark.parametrize(("name", "law", "pipeline"), LAWS, ids=lambda part: "")
def test_the_engine_keeps_the_laws(name: str, law: Law, pipeline: Any) -> None:
    check(law, pipeline)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_caught(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.plant(monkeypatch)
    assert mutant.caught_by
    for name in mutant.caught_by:
        assert any(broken(law, pipeline) for of, law, pipeline in LAWS if of == name), (
            f"{name} does not catch that {mutant.name}"
        )


def broken(law: Law, pipeline: Any) -> bool:
    try:
        check(law, pipeline)
    except AssertionError as error:
        said = str(error)
        assert "scenario = (" in said, "it must say how to see it again"
        assert "watermark" in said or "end" in said
        return True
    return False


def test_there_are_ten_of_them() -> None:
    assert len({mutant.name for mutant in MUTANTS}) >= 10
