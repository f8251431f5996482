"""``why`` of a record that a join has taken: its pairs, and when it came out by itself."""

from __future__ import annotations

from typing import Any

import lowwater as lw
from lowwater.testing import PipelineRun, Scenario

SHOPPING = (
    Scenario("searches", "clicks", start="12:00")
    .add(("boots", "12:00:00", "s1"), ("umbrella", "12:01:00", "s2"), to="searches", at="12:00:10")
    .add(("a", "12:00:20", "s1"), to="clicks", at="12:01:00")
    .watermark("12:06:30", at="12:09:00")
    .add(("b", "12:05:30", "s2"), ("c", "12:06:40", "s3"), to="clicks", at="12:11:00")
    .add(("d", "12:00:00", "s2"), to="clicks")
    .end(at="12:19:00")
)

A = "record time=2000-01-01T12:00:20Z, value='a' at 12:00:20"
B = "record time=2000-01-01T12:05:30Z, value='b' at 12:05:30"


def run_of(**how: Any) -> PipelineRun:
    def joined(searches: lw.Stream, clicks: lw.Stream) -> Any:
        return searches.join(clicks, on="key", within="5m", allowed_lateness="2m", **how)

    return SHOPPING.run_pipeline(joined, trace=True)


def lines_of(run: PipelineRun, value: object) -> list[str]:
    return repr(run.why(lambda record: record["value"] == value)).splitlines()[2:]


def test_pairs_and_what_came_out_alone() -> None:
    run = run_of(how="left", unmatched="on_time")
    assert lines_of(run, "boots") == [
        "  it came to the left side",
        f"  12:01:00  the pair with right {A} was emitted",
    ]
    assert lines_of(run, "umbrella") == [
        "  it came to the left side",
        "  12:09:00  it was emitted without a right record",
        "  12:11:00  it was retracted without a right record",
        f"  12:11:00  the pair with right {B} was emitted",
    ]
    assert lines_of(run, "c") == [
        "  it came to the right side",
        "  nothing came out for it: it met no left record",
    ]
    assert lines_of(run, "d")[-1] == "  it came to the right side"
    assert "dropped (too_late)" in lines_of(run, "d")[0]
    assert "for its first partner" in lines_of(run_of(how="semi"), "boots")[1]
    assert "it met a right record, or" in lines_of(run_of(how="anti"), "boots")[1]


def test_facts_and_versions() -> None:
    scenario = (
        Scenario("orders", "rates")
        .add((1.1, "12:00", "eur"), to="rates")
        .add(*[(n, "12:15", "eur") for n in range(12)], to="orders")
        .watermark("12:30")
        .end()
    )
    run = scenario.run_pipeline(lambda left, right: left.join_as_of(right, on="key"), trace=True)
    assert lines_of(run, 3)[0] == "  it is a fact"
    said = lines_of(run, 1.1)
    assert said[0] == "  it is a version"
    assert "the pair with fact time=2000-01-01T12:15:00Z, value=0 at 12:15:00 was" in said[1]
    assert said[-1] == "  … and 2 pairs more"


def test_a_fact_that_waits_for_what_lies_ahead() -> None:
    """J-11: nothing came out for it yet, and the watermark says what holds it."""
    scenario = (
        Scenario("orders", "fills")
        .add((1, "12:15", "eur"), (2, "12:16", "chf"), to="orders")
        .watermark("12:30")
    )

    def joined(orders: lw.Stream, fills: lw.Stream) -> Any:
        return orders.join_as_of(fills, on="key", direction="forward", tolerance="1h")

    run = scenario.run_pipeline(joined, trace=True)
    waits = (
        "stage 1: key 'eur', a fact of 2000-01-01T12:15:00Z waits until the versions have passed"
    )
    assert run.trace.stage().moves[-1].held_by == f"{waits} 2000-01-01T13:15:00Z"
    assert str(run.output_watermark) == "2000-01-01T12:15:00Z"
    assert lines_of(run, 1) == [
        "  it is a fact",
        "  nothing came out for it: it met no version, or still waits for one",
    ]
