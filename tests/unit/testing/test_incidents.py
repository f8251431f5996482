"""Tests made of what runs emitted: small ones, of values of every type, of several inputs."""

from __future__ import annotations

import datetime
import random
import re
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

import lowwater as lw
from lowwater.pipeline import Pipeline
from lowwater.testing import Incident, Scenario, incident
from tests.examples import sampled

PLAYS = [
    {"team": "A", "points": 5, "at": "2024-05-01T12:00:26Z"},
    {"team": "B", "points": 4, "at": "2024-05-01T12:01:05Z"},
    {"team": "A", "points": 9, "at": "2024-05-01T12:01:26Z"},
    {"team": "A", "points": 3, "at": "2024-05-01T12:03:39Z"},
    {"team": "A", "points": 8, "at": "2024-05-01T12:01:06Z"},
]
AT = "2024-05-01T12:00:00Z"
SUMS = {"aggregate": {"total": lw.sum("value")}}


def game(plays: list[dict[str, Any]] = PLAYS) -> lw.KeyedStream:
    return lw.from_iterable(plays, time="at", watermark=lw.BoundedDisorder("30s")).key_by("team")


def patient(trigger: lw.Trigger, accumulation: Any) -> Pipeline:
    return (
        game()
        .window(
            lw.FixedWindows("2m"),
            trigger=trigger,
            accumulation=accumulation,
            allowed_lateness="1h",
        )
        .aggregate(total=lw.sum("points"))
    )


def run_code(one: Incident, *given: Any) -> None:
    names: dict[str, Any] = {}
    exec(str(one), names)
    names["test_incident"](*given)


LATE = lw.AfterWatermark(late=lw.AfterCount(1))
BOTH = lw.AfterWatermark(early=lw.AfterCount(1), late=lw.AfterCount(1))
CORRECTED = patient(LATE, "retracting")
TUTORIAL: dict[str, Pipeline] = {
    "once": game().window(lw.FixedWindows("2m")).aggregate(total=lw.sum("points")),
    "late": patient(LATE, "accumulating"),
    "early": patient(BOTH, "accumulating"),
    "corrected": CORRECTED,
    "whole game": CORRECTED.key_by("team")
    .window(lw.FixedWindows("1h"), accumulation="accumulating")
    .aggregate(total=lw.sum("total")),
}


@pytest.mark.parametrize("name", sampled(TUTORIAL, every=2))
def test_those_of_the_tutorial_are_small(name: str) -> None:
    pipeline = TUTORIAL[name]
    result = pipeline.collect(bundle_size=1, trace=True)
    for pane in result.panes:
        found = result.scenario(pane.key, pane.window)
        assert len(found.scenario.elements) <= 10
        emitted = [p for p in result.panes if (p.key, p.window) == (pane.key, pane.window)]
        assert [p.values for p in found.outputs] == [p.values for p in emitted]
        run_code(found, *([pipeline] if "(pipeline)" in found.code else []))


def test_what_was_dropped_is_part_of_it() -> None:
    found = TUTORIAL["once"].collect(bundle_size=1, trace=True).scenario("A", AT)
    assert "assert_late(" in found.code
    assert [one.reason for one in found.late] == ["expired"]
    run_code(found)


def test_a_long_run_becomes_short() -> None:
    pick = random.Random(7)
    start = lw.instant("2024-05-01T12:00:00Z")
    many = [
        {"team": pick.choice("ABCDEF"), "points": n, "at": start + n * 10_000} for n in range(5_000)
    ]
    result = (
        lw.from_iterable(many, time="at", unit="us", watermark=lw.BoundedDisorder("1s"))
        .key_by("team")
        .window(lw.FixedWindows("2m"))
        .aggregate(most=lw.max("points"))
        .collect(trace=lw.Tracing(limit=None))
    )
    found = result.scenario("A", AT)
    assert len(found.scenario.elements) == 1
    assert found.elements_before == 5_000
    run_code(found)


def test_values_of_every_type() -> None:
    berlin = datetime.datetime(2024, 5, 1, tzinfo=ZoneInfo("Europe/Berlin"))
    values = [
        float("nan"), float("-inf"), 2**53 + 1, Decimal("1.50"), "it's\n\"so\"", b"\x00", None,
        UUID(int=7), datetime.date(2024, 5, 1), berlin, (1, "a"), {"a": [1, {"b": None}]},
        lw.instant(AT), datetime.timedelta(seconds=1), {1, 2}, frozenset(), True,
    ]  # fmt: skip
    result = (
        lw.from_iterable([{"team": "A", "v": v, "at": AT} for v in values], time="at")
        .key_by("team")
        .window(lw.FixedWindows("2m"))
        .aggregate(values=lw.collect("v"))
        .collect(trace=True)
    )
    run_code(result.scenario("A", AT))


def test_a_value_without_code_is_refused() -> None:
    class Zone(datetime.tzinfo):
        def utcoffset(self, at: datetime.datetime | None) -> datetime.timedelta:
            return datetime.timedelta(hours=1)

        def dst(self, at: datetime.datetime | None) -> None:
            return None

        def tzname(self, at: datetime.datetime | None) -> str:
            return "own"

    value = datetime.datetime(2024, 5, 1, tzinfo=Zone())
    records = [{"team": "A", "v": value, "at": AT}]
    result = (
        lw.from_iterable(records, time="at")
        .key_by("team")
        .window(lw.FixedWindows("2m"))
        .aggregate(lw.collect("v"))
        .collect(trace=True)
    )
    with pytest.raises(lw.InvalidArgument, match="type datetime has no form as Python code"):
        result.scenario("A", AT)


def test_several_inputs_keep_their_names() -> None:
    left = lw.from_iterable(PLAYS, time="at").named("home team")
    right = lw.from_iterable(PLAYS, time="at").named("away")
    joined = left.join(right, on="team", within="20s")
    result = joined.collect(trace=True)
    found = result.scenario("A", "2024-05-01T12:01:26Z")
    assert found.scenario.inputs == ("home_team", "away")
    assert len(found.scenario.elements) == 3  # 9 with itself and with 8, on the left
    run_code(found, joined)


def test_tables() -> None:
    run = (
        Scenario()
        .add((1, "12:00", "A"), (1, "12:00", "B"))
        .add((2, "12:05", "A"))
        .run_pipeline(lambda stream: stream.table(key="key"))
    )
    found = incident(run, "A")
    assert len(found.scenario.elements) == 2
    run_code(found, lambda stream: stream.table(key="key"))


def test_the_clock_stays_where_a_trigger_depends_on_it() -> None:
    scenario = (
        Scenario(start="12:00")
        .add((1, "12:00:10", "A"), (1, "12:00:10", "B"), at="12:00:11")
        .clock("12:00:30")
        .add((2, "12:00:20", "A"), at="12:01:50")
        .watermark("12:02", at="12:03")
    )
    trigger = lw.AfterWatermark(early=lw.AfterProcessingTime("10s"))
    run = scenario.run(
        lw.FixedWindows("2m"), trigger=trigger, accumulation="accumulating", aggregate=lw.sum()
    )
    found = incident(run, "A", "12:00")
    assert [pane.timing for pane in found.outputs] == ["EARLY", "EARLY", "ON_TIME"]
    assert "emitted_at" in found.code
    assert "scenario.run(" in found.code
    run_code(found)


def test_windows_that_have_no_code_are_parameters() -> None:
    windows = lw.CustomWindows(lambda t: [(t - t % 10, t - t % 10 + 10)])
    run = Scenario().add((1, 3, "A")).end().run(windows, aggregate=SUMS["aggregate"])
    found = incident(run, "A")
    assert "def test_incident(windowing, aggregate):" in found.code
    run_code(found, run.windowing, SUMS["aggregate"])


def test_a_run_that_is_only_partly_known_is_refused() -> None:
    pick = random.Random(3)
    many = [{"team": pick.choice("AB"), "points": 1, "at": 1_000_000 + n} for n in range(2_000)]
    sums = (
        lw.from_iterable(many, time="at", unit="us")
        .key_by("team")
        .window(lw.FixedWindows("2m"))
        .aggregate(total=lw.sum("points"))
    )
    result = sums.collect(trace=lw.Tracing(limit=10), bundle_size=100)
    with pytest.raises(lw.InvalidArgument, match=r"of the 2,000 records.*limit=None"):
        result.scenario("A")


def test_what_is_asked_must_have_happened() -> None:
    result = TUTORIAL["once"].collect(trace=True)
    for key, window in (("C", None), ("A", "2025-05-01T12:00:00Z")):
        with pytest.raises(lw.InvalidArgument, match=r"emitted nothing of key .*explain"):
            result.scenario(key, window)
    with pytest.raises(lw.InvalidArgument, match="not traced"):
        TUTORIAL["once"].collect().scenario("A")
    with pytest.raises(lw.InvalidArgument, match="does not name a pipeline"):
        result.scenario("A", AT, of="scores")
    with pytest.raises(lw.InvalidArgument, match=r"is not \(start, end\)"):
        result.scenario("A", (1, 2, 3))  # type: ignore[arg-type]


def test_what_is_not_the_same_in_each_run_is_refused() -> None:
    calls = iter(range(1_000))
    counted = (
        lw.from_iterable(PLAYS, time="at")
        .map(lambda play: {**play, "points": next(calls)})
        .key_by("team")
        .window(lw.FixedWindows("2m"))
        .aggregate(lw.sum("points"))
    )
    with pytest.raises(lw.InvalidArgument, match="do not give the same"):
        counted.collect(trace=True).scenario("A", AT)


def test_it_is_a_value_to_show_and_save(tmp_path: Path) -> None:
    result = TUTORIAL["once"].collect(trace=True)
    found = result.scenario("A", AT, of="scores:scores")
    assert "from scores import scores\n" in found.code
    assert str(found) == repr(found) == found.code.rstrip()
    assert "&#39;" in found._repr_html_()
    assert re.search(r"<pre>.*def test_incident", found._repr_html_(), re.S)
    path = found.save(tmp_path / "test_it.py")
    assert path.read_text() == found.code
    with pytest.raises(lw.InvalidArgument, match="exists"):
        found.save(path)
    with pytest.raises(lw.InvalidArgument, match="cannot be written"):
        found.save(tmp_path / "no" / "test_it.py")


def test_a_bundle_may_move_the_watermark_in_its_turn() -> None:
    """Then a later stage takes what both have emitted as one bundle."""
    scenario = Scenario().add((1, "12:00", "A"), (2, "12:02", "A"), watermark="12:02").end()
    assert eval(repr(scenario)) == scenario
    assert Scenario.from_markdown(scenario.to_markdown()) == scenario
    assert Scenario.from_yaml(scenario.to_yaml()) == scenario
    assert len(scenario.apart().steps) == 3

    def counts(stream: lw.Stream) -> Pipeline:
        early = lw.AfterWatermark(early=lw.AfterCount(1))
        return (
            stream.key_by("key")
            .window(lw.FixedWindows("1m"), trigger=early, accumulation="discarding")
            .aggregate(n=lw.count())
            .key_by("key")
            .window(lw.FixedWindows("1h"), trigger=early, accumulation="accumulating")
            .aggregate(panes=lw.count())
        )

    together, apart = (one.run_pipeline(counts) for one in (scenario, scenario.apart()))
    assert [pane.value for pane in together.panes] == [3, 4, 4]
    assert [pane.value for pane in apart.panes] == [2, 3, 4, 4]
    assert scenario.run_pipeline(counts, restarts="all").steps == together.steps
