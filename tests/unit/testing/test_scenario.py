"""Scenario, its runs, and the assertions on them."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

import pytest

import lowwater as lw
from lowwater.errors import InvalidArgument
from lowwater.testing import Scenario, assert_late, assert_panes

PAPER = (
    Scenario(start="12:00:00", watermark="12:00:00")
    .add((5, "12:00:26", "A"), at="12:05:19")
    .add((7, "12:02:26", "A"), (3, "12:03:39", "A"))
    .watermark("12:02:00", at="12:06:00")
    .clock("12:06:30")
    .end()
)


def test_a_run_from_beginning_to_end() -> None:
    run = PAPER.run(
        lw.FixedWindows("2m"),
        trigger=lw.AfterWatermark(late=lw.AfterCount(1)),
        accumulation="accumulating",
        allowed_lateness="1d",
        aggregate=lw.sum(),
    )
    assert_panes(
        run,
        [
            ("12:06:00", ("12:00", "12:02"), 5, "ON_TIME", 0, 0, True, False),
            ("12:06:30", ("12:02", "12:04"), 10, "ON_TIME", 0, 0, True, True),
        ],
    )
    assert (run.late, run.errors, run.open_windows, run.state_rows) == ([], [], 0, 0)


def test_the_aggregate_is_the_elements_unless_named() -> None:
    assert_panes(PAPER.run(lw.GlobalWindow(), accumulation="accumulating"), [{"value": [5, 7, 3]}])


def test_several_aggregates_and_columns() -> None:
    scenario = (
        Scenario()
        .add((1, "12:00:01", "A", {"delay": 3.0}), (2, "12:00:02", "A", {"delay": 5}))
        .add((3, "12:00:03", "A"))
        .end()
    )
    run = scenario.run(
        lw.FixedWindows("1m"),
        trigger=lw.AfterWatermark(),
        aggregate={"n": lw.count(), "delay": lw.mean("delay"), "sum": lw.sum()},
    )
    assert_panes(run, [{"values": {"n": 3, "delay": 4.0, "sum": 6}}])


def test_late_records_show_the_columns_they_have() -> None:
    scenario = Scenario(watermark="13:00").add(
        (1, "12:00:01", "A", {"delay": 3}), (2, "12:00:02", "A")
    )
    run = scenario.run(lw.FixedWindows("1m"), trigger=lw.AfterWatermark())
    window = ("12:00", "12:01")
    assert_late(
        run,
        [
            ({"value": 1, "delay": 3}, window, "expired", "12:00:01", "A", "13:00"),
            (2, window, "expired", "12:00:02", "A", "13:00"),
        ],
    )


def test_bad_elements_are_dead_letters_and_the_rest_goes_on() -> None:
    """S-B1."""
    scenario = Scenario().add(
        (1, "12:00:01", "A"),
        (2, None, "A"),
        (3, "yesterday", "A"),
        (4, "12:00:02", None),
        ("five", "12:00:03", "A"),
        (6, datetime(2000, 1, 1, 12, 0, 4, tzinfo=UTC), "A"),
        (7, 1.5, "A"),
    )
    run = scenario.end().run(lw.FixedWindows("1m"), trigger=lw.AfterWatermark(), aggregate=lw.sum())
    assert_panes(run, [{"value": 7, "window": ("12:00", "12:01")}])
    reasons = [error.reason for error in run.errors]
    assert reasons == ["null_time", "bad_time", "null_key", "wrong_type", "bad_time"]
    assert run.errors[2].record["value"] == 4
    with pytest.raises(lw.DataError, match="record 1 "):
        scenario.run(
            lw.FixedWindows("1m"),
            trigger=lw.AfterWatermark(),
            aggregate=lw.sum(),
            on_error="raise",
        )


def test_late_records_are_of_the_right_elements_after_a_dead_letter() -> None:
    scenario = Scenario(watermark="13:00").add((1, None, "A"), (2, "12:00", "B"), (3, "14:00", "A"))
    run = scenario.run(lw.FixedWindows("1m"), trigger=lw.AfterWatermark())
    assert_late(run, [{"value": 2, "key": "B"}])


def test_texts() -> None:
    assert PAPER.to_markdown() == (
        "| at       | watermark | value | time     | key |\n"
        "| -------- | --------- | ----- | -------- | --- |\n"
        "| 12:00:00 | 12:00:00  |       |          |     |\n"
        "| 12:05:19 |           | 5     | 12:00:26 | A   |\n"
        "| .        |           | 7     | 12:02:26 | A   |\n"
        "|          |           | 3     | 12:03:39 | A   |\n"
        "| 12:06:00 | 12:02:00  |       |          |     |\n"
        "| 12:06:30 |           |       |          |     |\n"
        "| .        | end       |       |          |     |\n"
    )
    assert "12:06:30" in PAPER.to_yaml()
    assert repr(PAPER).endswith(".clock('12:06:30').end()")


def test_scenarios_are_values() -> None:
    before = Scenario(start="12:00")
    assert before.add((1, "12:00", "A")) == before.add((1, "12:00:00", "A")) != before
    assert before.steps == ()


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("no table", "no table of a scenario"),
        ("| at | watermark | value | time | key |\n| - |", "no table of a scenario"),
        (PAPER.to_markdown() + "| . | end |\n", "line 10"),
    ],
)
def test_bad_tables_are_refused(text: str, what: str) -> None:
    with pytest.raises(lw.InvalidArgument, match=what):
        Scenario.from_markdown(text)


@pytest.mark.parametrize("text", ["5", "steps: 3", "steps: [{jump: 3}]"])
def test_bad_yaml_is_refused(text: str) -> None:
    with pytest.raises(lw.InvalidArgument):
        Scenario.from_yaml(text)


def test_bad_elements_of_a_scenario_are_refused() -> None:
    with pytest.raises(lw.InvalidArgument, match="at least one element"):
        Scenario().add()
    with pytest.raises(lw.InvalidArgument, match="is not \\(value, event time, key\\)"):
        Scenario().add((1, 2))  # type: ignore[arg-type]  # too short on purpose


def test_a_column_that_no_element_has_is_told() -> None:
    plain = Scenario(start="12:00").add((5, "12:00:26", "A"))
    with pytest.raises(lw.InvalidArgument, match=r"no column 'gap'.*read columns 'gap', 'value'"):
        plain.run(lw.Sessions(gap_column="gap"))
    with pytest.raises(
        lw.InvalidArgument, match=r"no columns 'amount', 'tax'.*have column 'value'"
    ):
        plain.run(lw.FixedWindows("1m"), aggregate={"a": lw.sum("amount"), "b": lw.max("tax")})
    some = plain.add((6, "12:00:27", "A", {"amount": 7}))
    (pane,) = some.end().run(lw.FixedWindows("1m"), aggregate=lw.sum("amount")).panes
    assert pane.value == 7
    assert not Scenario().end().run(lw.FixedWindows("1m"), aggregate=lw.sum("amount")).panes


def test_differences_are_shown_side_by_side() -> None:
    run = PAPER.run(lw.FixedWindows("2m"), trigger=lw.AfterWatermark(), aggregate=lw.sum())
    with pytest.raises(AssertionError) as caught:
        assert_panes(
            run,
            [("12:06:00", ("12:00", "12:02"), 6, "ON_TIME"), {"value": 10}, {"value": 11}],
        )
    assert str(caught.value).splitlines() == [
        "the panes differ (- expected, + actual)",
        "- emitted_at=12:06:00  window=12:00:00..12:02:00  value=6   timing=ON_TIME",
        "+ emitted_at=12:06:00  window=12:00:00..12:02:00  value=5   timing=ON_TIME",
        "?   differs in value",
        "  emitted_at=12:06:30  window=12:02:00..12:04:00  value=10  timing=ON_TIME",
        "-                                                 value=11",
    ]


def test_expectations_name_known_fields() -> None:
    with pytest.raises(lw.InvalidArgument, match="timing"):
        assert_panes([], [{"timming": "LATE"}])
    with pytest.raises(lw.InvalidArgument, match="places"):
        assert_panes([], [(1, 2)], fields=["value"])


def test_the_result_of_a_pipeline_can_be_compared() -> None:
    rows = [{"at": f"2000-01-01T12:0{minute}:00Z", "key": "A"} for minute in (2, 0)]
    stream = lw.from_iterable(rows, time="at", watermark=lw.Ascending()).key_by("key")
    result = stream.window(lw.FixedWindows("1m")).aggregate(n=lw.count()).collect(bundle_size=1)
    assert_panes(result, [{"window": ("12:02", "12:03"), "value": 1, "timing": "ON_TIME"}])
    assert_late(result, [{"window": ("12:00", "12:01"), "reason": "expired"}])


@pytest.mark.parametrize(
    ("text", "problem", "where"),
    [
        ("a: [1", "expected", "line 1, column 6"),
        ("start: x\nsteps:\n\t- x", "cannot start any token", "line 3, column 1"),
        ("steps: &a [*b]", "undefined alias", "line 1, column 12"),
        ("a: !!python/object:os.system x", "could not determine", "line 1, column 4"),
        ("---\n---\n", "another document", "line 2, column 1"),
        ("? [a]\n: b", "unhashable", "line 1, column 3"),
        ("a: \x00", "not allowed", "character 4"),
        ("start: 2024-13-45", "month", None),
        ("[" * 800, "nested", None),
        ("start: '12:00'\nsteps: [{add: 5}]", "not a list of a value", r"$.steps[0].add"),
        ("start: '12:00'\nsteps: [{add: [[1]]}]", "not a list of a value", r"$.steps[0].add"),
        ("steps: [{end: true}, {add: [[1, '12:00', a, {}, 5]]}]", "not a list", r"$.steps[1].add"),
        ("inputs: 5\nsteps: []", "not a list", "$.inputs"),
        ("steps: [5]", "not a step", "$.steps[0]"),
    ],
)
def test_what_is_wrong_with_yaml_is_said_with_its_place(
    text: str, problem: str, where: str | None
) -> None:
    """The errors of the parser do not escape."""
    with pytest.raises(InvalidArgument, match=problem) as raised:
        Scenario.from_yaml(text)
    assert raised.value.where == where
    assert raised.value.hint


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("form", ["yaml", "markdown"])
def test_text_that_was_cut_or_changed_gives_an_error_of_ours_or_a_scenario(
    form: str, several: bool
) -> None:
    scenario = Scenario(*(("left", "right") if several else ()), start="12:00")
    to: Any = {"to": "left"} if several else {}
    of: Any = {"of": "left"} if several else {}
    scenario = scenario.add((1, "12:00:10", ("a", 1)), ("x", "12:01", "k", {"c": 2}), **to)
    scenario = scenario.watermark("12:01", at="12:02", **of).clock("12:05").end()
    text = scenario.to_yaml() if form == "yaml" else scenario.to_markdown()
    read = Scenario.from_yaml if form == "yaml" else Scenario.from_markdown
    assert read(text) == scenario
    choose = random.Random(f"{form} {several}")
    signs = "|[]{}:,-\n '\"&*!%5ax\t?#\x00~\u2028"
    refused = 0
    for _ in range(300):
        changed = text
        for _ in range(choose.randint(1, 4)):
            at, to_at = sorted(choose.randrange(len(changed) + 1) for _ in range(2))
            if choose.random() < 0.2:
                changed = changed[:at] + changed[to_at:]
            else:
                changed = changed[:at] + choose.choice(signs) + changed[at + choose.randrange(2) :]
        try:
            assert isinstance(read(changed), Scenario)
        except lw.LowwaterError:
            refused += 1
    assert refused > 30


def test_a_retraction_is_no_pane_that_was_expected() -> None:
    scenario = Scenario().add((5, "12:00:10", "A")).watermark("12:02").add((3, "12:00:20", "A"))
    run = scenario.run_windowing(
        lw.Windowing(
            windows=lw.FixedWindows("2m"), allowed_lateness="1h", accumulation="retracting",
            trigger=lw.AfterWatermark(late=lw.AfterCount(1)),
        ),
        aggregate=lw.sum("value"),
    )  # fmt: skip
    kinds = [pane.kind for pane in run.panes]
    assert "retract" in kinds
    (at,) = (at for at, kind in enumerate(kinds) if kind == "retract")
    alike = {"window": ("12:00", "12:02"), "value": run.panes[at].value}
    with pytest.raises(AssertionError, match="kind=retract"):
        assert_panes(run.panes[at : at + 1], [alike])
    assert_panes(run.panes[at : at + 1], [{**alike, "kind": "retract"}])


def test_a_scenario_runs_through_a_match() -> None:
    scenario = Scenario().add((1, "12:00", "A"), (3, "12:02", "A")).watermark("12:02:30")
    scenario = scenario.add((2, "12:01", "A")).end()

    def rises(keyed: lw.KeyedStream) -> lw.MatchedStream:
        return keyed.match(
            "low up+",
            define={"up": lw.col("value") > lw.prev("value")},
            measures={"ups": lw.count(of="up")},
            within="5m",
            allowed_lateness="2m",
        )

    run = scenario.run(match=rises)
    assert [(one.kind, one.value["ups"]) for one in run.elements] == [("insert", 2)]
    with pytest.raises(InvalidArgument, match="one of the two"):
        scenario.run(lw.FixedWindows("1m"), match=rises)  # type: ignore[call-overload]
    with pytest.raises(InvalidArgument, match="one of the two"):
        scenario.run()  # type: ignore[call-overload]
