"""Scenarios of several inputs: how they are written and read back, run and refused."""

from __future__ import annotations

from typing import Any

import pytest

import lowwater as lw
from lowwater.testing import (
    PipelineRun,
    Scenario,
    assert_elements,
    assert_late,
    assert_panes,
    check_no_loss,
    oracle,
    rebundled,
    reordered,
    replay,
)

CLICKS = (
    Scenario("searches", "clicks", start="12:00")
    .add(("boots", "12:00:00", "s1"), ("umbrella", "12:01:00", "s2"), to="searches")
    .add(("a", "12:00:20", "s1"), ("b", "12:02:10", "s1"), to="clicks", at="12:03:00")
    .watermark("12:11:00", of="searches")
    .watermark("12:11:01", of="clicks")
    .watermark("12:20:00")
    .add(("late", "12:00:30", "s1"), to="clicks")
    .end(of="searches")
    .end()
)


ANY: Any = 5


def clicked(searches: lw.Stream, clicks: lw.Stream) -> Any:
    return searches.join(clicks, on="key", within="10m", how="left")


def counted(*streams: lw.Stream) -> Any:
    first, *others = streams
    return first.union(*others).key_by("key").window(lw.FixedWindows("1m")).aggregate(lw.count())


def more() -> lw.Stream:
    row = {"time": "2000-01-01T12:00:00Z", "key": "s1", "value": "c"}
    return lw.from_iterable([row], time="time").select("key", "value", "time")


def test_a_run_from_beginning_to_end() -> None:
    """J-2, J-4: a null row holds the watermark, of the slower input, until it is released."""
    run = CLICKS.run_pipeline(clicked)
    assert_elements(
        run,
        [
            ("12:00:20", "s1", {"value": "boots", "value_right": "a"}, "insert"),
            ("12:02:10", "s1", {"value": "boots", "value_right": "b"}),
            ("12:01:00", "s2", {"value": "umbrella", "value_right": None}),
        ],
    )
    assert [len(step.outputs) for step in run.steps] == [0, 2, 0, 0, 1, 0, 0, 0]
    assert [step.state_rows for step in run.steps] == [2, 4, 4, 1, 0, 0, 0, 0]
    found = [(str(s.watermark)[11:19], str(s.output_watermark)[11:19]) for s in run.steps[3:5]]
    assert found == [("12:11:00", "12:01:00"), ("12:20:00", "12:20:00")]
    assert_late(run, [{"reason": "too_late", "time": "12:00:30", "key": "s1"}])
    assert repr(run) == "<run of 5 elements in 8 steps: 3 emitted, 1 late, 0 errors, 0 rows kept>"
    assert "too_late" in run._repr_html_()
    assert (run.errors, run.state_rows, str(run.output_watermark)) == ([], 0, "+inf")


@pytest.mark.parametrize("how", [{"restarts": "all"}, {"restarts": [1, 3]}, {"runner": "levels"}])
def test_every_runner_gives_the_same(how: dict[str, Any]) -> None:
    wanted, found = CLICKS.run_pipeline(clicked), CLICKS.run_pipeline(clicked, **how)
    assert found.steps == wanted.steps


def test_tables_unions_and_windows_run_too() -> None:
    def placed(orders: lw.Stream, people: lw.Stream) -> Any:
        of = people.select("time", "key", city=lw.col("value")).table(key="key")
        return (
            orders.select("time", "key", amount=lw.col("value")).table(key="key").join(of, on="key")
        )

    scenario = (
        Scenario("orders", "people")
        .add((5, "12:00:00", "ann"), to="orders")
        .add(("Ulm", "12:01:00", "ann"), to="people")
        .add(("Bonn", "12:02:00", "ann"), ("Kiel", "12:03:00", "bob"), to="people")
    )
    for how in ({}, {"restarts": "all"}, {"runner": "levels"}):
        run: PipelineRun = scenario.run_pipeline(placed, **how)  # type: ignore[arg-type]
        kinds = [(one.kind, one.value["city"]) for one in run.elements]
        assert kinds == [("insert", "Ulm"), ("retract", "Ulm"), ("insert", "Bonn")]
        (row,) = run.rows
        assert (row["key"], row["amount"], row["city"]) == ("ann", 5, "Bonn")
        assert run.state_rows > 0

    run = CLICKS.run_pipeline(counted)
    assert_panes(
        run, [{"value": 2, "key": "s1"}, {"value": 1, "key": "s2"}, {"value": 1, "key": "s1"}]
    )
    assert "ON TIME" in run._repr_html_() or "ON_TIME" in run._repr_html_()
    with pytest.raises(lw.InvalidArgument, match="emits panes"):
        _ = run.elements
    with pytest.raises(lw.InvalidArgument, match="emits records, not panes"):
        _ = CLICKS.run_pipeline(clicked).panes


def test_one_input_needs_no_name() -> None:
    scenario = Scenario().add((5, "12:00", "A"), (None, "12:01", None)).end()
    run = scenario.run_pipeline(lambda stream: stream.table(key="key"), trace=True)
    assert [row["value"] for row in run.rows] == [5]
    assert [error.reason for error in run.errors] == ["null_key"]
    assert run.trace.read["source 1"][0]["value"] == 5
    named = Scenario("only").add((5, "12:00", "A")).end(of="only")
    assert replay(lambda s: s.key_by("key").window(lw.FixedWindows("1m")).group(), named).panes


def test_differences_name_the_fields_that_are_asked_for() -> None:
    with pytest.raises(AssertionError) as caught:
        assert_elements(
            CLICKS.run_pipeline(clicked),
            [("12:00:20", "s1", {"value_right": "a"}), ("12:02:10", "s1", {"value_right": "c"})],
        )
    assert str(caught.value).splitlines() == [
        "the elements differ (- expected, + actual)",
        "  timestamp=12:00:20  key=s1  value={'value_right': 'a'}",
        "- timestamp=12:02:10  key=s1  value={'value_right': 'c'}",
        "+ timestamp=12:02:10  key=s1  value={'value_right': 'b'}",
        "?   differs in value",
        "+ timestamp=12:01:00  key=s2  value={'value_right': None}",
    ]


def test_texts() -> None:
    assert CLICKS.to_markdown().splitlines()[:6] == [
        "| input            | at       | watermark | value    | time     | key |",
        "| ---------------- | -------- | --------- | -------- | -------- | --- |",
        "| searches, clicks | 12:00:00 | -inf      |          |          |     |",
        "| searches         | .        |           | boots    | 12:00:00 | s1  |",
        "|                  |          |           | umbrella | 12:01:00 | s2  |",
        "| clicks           | 12:03:00 |           | a        | 12:00:20 | s1  |",
    ]
    assert repr(CLICKS).startswith("Scenario('searches', 'clicks', start='12:00:00').add(('boots',")
    assert ".watermark('12:11:00', of='searches')" in repr(CLICKS)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Scenario("a b", "c"), "'a b' .* is not the name of an input"),
        (lambda: Scenario("a", "a"), "two inputs have one name"),
        (lambda: Scenario("a", "b").add((1, "12:00", "A")), "this bundle names none"),
        (lambda: Scenario("a", "b").watermark("12:00", of="c"), "no input 'c'"),
        (lambda: Scenario().end(of="c"), "no input 'c'"),
        (lambda: CLICKS.run(lw.FixedWindows("1m")), "has 2 inputs, and this takes one"),
        (lambda: reordered(CLICKS, [0]), "has 2 inputs"),
        (lambda: rebundled(CLICKS, [1]), "has 2 inputs"),
        (lambda: check_no_loss(counted, CLICKS), "has 2 inputs"),
        (
            lambda: oracle.run(
                CLICKS, lw.Windowing(windows=lw.FixedWindows("1m")), list
            ),
            "has 2 inputs",
        ),
        (lambda: CLICKS.run_pipeline(lambda a, b: a.table(key="key")), "does not read the input"),
        (lambda: CLICKS.run_pipeline(lambda a, b: 5), "returned 5 .*, which cannot be run"),
        (lambda: CLICKS.run_pipeline(ANY), "is neither a function nor a pipeline"),
        (lambda: CLICKS.run_pipeline(clicked, runner=ANY), "5 .* is not known"),
        (lambda: CLICKS.run_pipeline(clicked, restarts=[9]), "are not numbers of steps"),
        (lambda: CLICKS.run_pipeline(clicked, restarts=[1], trace=True), "has no trace"),
        (lambda: CLICKS.run_pipeline(clicked, runner="levels", trace=True), "records no trace"),
        (lambda: CLICKS.run_pipeline(clicked).trace, "was not traced"),
        (lambda: CLICKS.run_pipeline(lambda a, b: a | b, runner="levels"), "is not a stage"),
        (
            lambda: CLICKS.add((1, "12:00", "A"), to="clicks").run_pipeline(clicked),
            "step 8 of the scenario comes after the end",
        ),
        (
            lambda: CLICKS.run_pipeline(lambda a, b: clicked(a, b | more())),
            "1 more sources than the scenario",
        ),
        (
            lambda: Scenario().add((1, "soon", "A")).run_pipeline(
                lambda s: s.table(key="key"), runner="levels"
            ),
            "an event time of the scenario is unreadable",
        ),
        (
            lambda: Scenario().add((1, "12:00", "A"), ("x", "12:00", "A")).run_pipeline(
                lambda s: s.table(key="key"), runner="levels"
            ),
            "no type in Arrow",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_run_is_refused(make: Any, said: str) -> None:
    with pytest.raises(lw.InvalidArgument, match=said):
        make()


def test_a_restart_remembers_ids_once() -> None:
    scenario = Scenario().add(({"v": 3}, "12:00", "a")).add(({"v": 3}, "12:00", "a")).end()

    def unique(stream: lw.Stream) -> lw.Pipeline:
        once = stream.deduplicate(id="v", within="5m")
        return once.key_by("key").window(lw.FixedWindows("1m")).aggregate(n=lw.count())

    whole = scenario.run_pipeline(unique)
    assert [pane.value for pane in whole.panes] == [1]
    assert scenario.run_pipeline(unique, restarts="all").steps == whole.steps
