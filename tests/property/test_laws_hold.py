"""The shipped laws hold for pipelines of every kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lowwater as lw
from lowwater.engine.window.windowing import Windowing
from lowwater.pipeline import Pipeline, Stream
from lowwater.testing import (
    Scenario,
    check_batch_equal,
    check_bundle_insensitive,
    check_no_loss,
    check_order_insensitive,
    check_pane_labels,
    check_retractions_telescope,
    strategies,
)
from lowwater.testing._oracle_windows import windows_of
from lowwater.triggers import Repeatedly
from tests.examples import examples
from tests.property import strategies as own

EXAMPLES = examples(1)
Build = Callable[[Stream], Pipeline]


def build(windowing: Windowing) -> Build:
    def pipeline(stream: Stream) -> Pipeline:
        return (
            stream.with_columns(rank=lw.col("value") % 3)
            .key_by("key")
            .window(windowing)
            .aggregate(
                n=lw.count(),
                total=lw.sum("value"),
                most=lw.max("value"),
                mean=lw.mean("value"),
                each=lw.collect("value"),
                first=lw.first("value"),
                last=lw.last("value", by="rank"),
                lead=lw.max_by("value", "rank"),
                trail=lw.min_by("value", "rank"),
            )
        )

    return pipeline


def built_in() -> Any:
    return strategies.windows(gap_column="gap")


@st.composite
def cases(draw: st.DrawFn, /, windowings: Any, **how: Any) -> tuple[Build, Scenario]:
    windowing = draw(windowings)
    columns = {"gap": strategies.durations(most=9)} if windowing.windows.columns else None
    return build(windowing), draw(strategies.scenarios(columns=columns, **how))


SAFE = strategies.windowings(
    windows=built_in(), triggers=strategies.triggers(leaves=own.custom_triggers())
)


@given(case=own.cases())
@EXAMPLES
def test_nothing_is_lost(case: tuple[Windowing, Scenario]) -> None:
    windowing, scenario = case
    check_no_loss(build(windowing), scenario)


@given(case=own.cases())
@EXAMPLES
def test_panes_are_labelled_by_the_rules(case: tuple[Windowing, Scenario]) -> None:
    windowing, scenario = case
    check_pane_labels(build(windowing), scenario)


@given(case=own.cases(own.windowings(accumulation="retracting")))
@EXAMPLES
def test_retractions_telescope(case: tuple[Windowing, Scenario]) -> None:
    windowing, scenario = case
    check_retractions_telescope(build(windowing), scenario)


@given(case=cases(SAFE), data=st.data())
@EXAMPLES
def test_order_does_not_matter(case: tuple[Build, Scenario], data: st.DataObject) -> None:
    pipeline, scenario = case
    check_order_insensitive(pipeline, scenario, data.draw(strategies.reorderings(scenario)))


@given(case=cases(SAFE))
@EXAMPLES
def test_a_few_orders_of_its_own(case: tuple[Build, Scenario]) -> None:
    check_order_insensitive(*case)
    check_bundle_insensitive(*case)


@given(case=cases(SAFE), data=st.data())
@EXAMPLES
def test_bundles_do_not_matter(case: tuple[Build, Scenario], data: st.DataObject) -> None:
    pipeline, scenario = case
    check_bundle_insensitive(pipeline, scenario, data.draw(strategies.bundlings(scenario)))


@given(
    windowing=strategies.windowings(windows=strategies.windows(merging=False)),
    scenario=strategies.scenarios(),
)
@EXAMPLES
def test_the_batch_answer(windowing: Windowing, scenario: Scenario) -> None:
    def batch(records: Any) -> dict[Any, Any]:
        found: dict[Any, list[int]] = {}
        for record in records:
            for window in windows_of(windowing.windows, int(record["time"]), record):
                found.setdefault((record["key"], window), []).append(record["value"])
        return {at: {"n": len(v), "total": sum(v)} for at, v in found.items()}

    check_batch_equal(
        lambda stream: (
            stream.key_by("key").window(windowing).aggregate(n=lw.count(), total=lw.sum("value"))
        ),
        batch,
        scenario,
    )


def chain(first: Windowing, second: Windowing) -> Build:
    def pipeline(stream: Stream) -> Pipeline:
        sums = stream.key_by("key").window(first).aggregate(total=lw.sum("value"))
        return (
            sums.key_by(all=lw.lit("all"))
            .window(second)
            .aggregate(total=lw.sum("total"), windows=lw.count())
        )

    return pipeline


FIRST = strategies.windowings(
    windows=strategies.fixed_windows() | strategies.sessions(),
    triggers=st.builds(Repeatedly, strategies.triggers(depth=1)) | st.just(lw.Default()),
    accumulation="retracting",
    allowed_lateness=0,
    timestamps="end",
)
SECOND = strategies.windowings(
    windows=strategies.fixed_windows() | st.just(lw.GlobalWindow()),
    triggers=st.just(lw.Default()),
    allowed_lateness=0,
)


@given(first=FIRST, second=SECOND, scenario=strategies.scenarios(late=False), data=st.data())
@EXAMPLES
def test_chains_of_stages(
    first: Windowing, second: Windowing, scenario: Scenario, data: st.DataObject
) -> None:
    pipeline = chain(first, second)
    check_order_insensitive(pipeline, scenario, data.draw(strategies.reorderings(scenario)))
    check_bundle_insensitive(pipeline, scenario, data.draw(strategies.bundlings(scenario)))
    check_pane_labels(pipeline, scenario)


@pytest.mark.parametrize("kind", [Scenario, Windowing, lw.Trigger, lw.Instant, lw.Window])
def test_types_are_registered(kind: Any) -> None:
    @given(st.from_type(kind))
    @settings(max_examples=20)
    def draws(value: Any) -> None:
        assert value is not None

    draws()
