"""Where elements went, which panes differ, and traces as tables."""

from __future__ import annotations

from typing import Any

import pytest

import lowwater as lw
from lowwater.explain import why
from lowwater.testing import Scenario

ROWS: list[dict[str, Any]] = [
    {"id": 1, "k": "a", "at": "2000-01-01T12:00:10Z", "v": 1},
    {"id": 2, "k": "a", "at": "2000-01-01T12:01:10Z", "v": 2},
    {"id": 3, "k": None, "at": "2000-01-01T12:01:12Z", "v": 3},
    {"id": 4, "k": "b", "at": "2000-01-01T12:01:13Z", "v": -4},
    {"id": 2, "k": "a", "at": "2000-01-01T12:01:11Z", "v": 5},
    {"id": 6, "k": "a", "at": "2000-01-01T12:00:50Z", "v": 6},
]


def pipeline() -> lw.Pipeline:
    return (
        lw.from_iterable(ROWS, time="at", watermark=lw.Ascending())
        .filter(lw.col("v") > 0)
        .deduplicate(id="id", within="1h")
        .key_by("k")
        .window(lw.FixedWindows("1m"))
        .aggregate(total=lw.sum("v"))
    )


@pytest.fixture(scope="module")
def result() -> lw.Result:
    return pipeline().collect(trace=True, bundle_size=1)


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"id": 1}, "ON_TIME #0 of [12:00:00, 12:01:00) shows it: 1"),
        ({"id": 3}, "became a dead letter, null_key"),
        ({"id": 4}, "no step kept it"),
        ({"v": 5}, "dropped as a duplicate"),
        ({"id": 6}, "dropped from [12:00:00, 12:01:00), expired"),
        ({"id": 99}, "no source gave such an element"),
        (ROWS[1], "it went into window [12:01:00, 12:02:00)"),
        (lambda record: record["v"] == 2, "shows it: 2"),
    ],
)
def test_each_element_is_accounted_for(result: lw.Result, record: Any, said: str) -> None:
    assert said in result.why(record)


def test_a_function_that_knows_no_record_is_refused(result: lw.Result) -> None:
    with pytest.raises(lw.InvalidArgument, match="raised KeyError for every record"):
        result.why(lambda record: record["idd"] == 1)
    assert "shows it: 1" in result.why(lambda record: 1 / (2 - record["v"]) == 1)


def test_a_traced_element_is_found_again(result: lw.Result) -> None:
    for element in result.trace.stages[0].elements:
        assert result.why(element).elements == (element,)


def test_steps_that_change_records_do_not_lose_them() -> None:
    made = (
        lw.from_iterable([1, 2, 3], time=lambda value: value * 1_000_000, watermark=None)
        .flat_map(lambda value: [value * 10, value * 10 + 1] if value != 2 else [])
        .map(lambda value: value + 1)
        .key_by(lambda value: "k")
        .window(lw.FixedWindows("1s"))
        .aggregate(all=lw.collect("value"))
    )
    result = made.collect(trace=True)
    assert [element.values for element in result.why(1).elements] == [{"value": 11}, {"value": 12}]
    assert "no step kept it" in result.why(2)
    assert result.why(3).panes[0].value == [31, 32]


def test_two_branches_are_both_told() -> None:
    stream = lw.from_iterable(ROWS, time="at").filter(lw.col("v") > 0)
    a = stream.key_by("k").window(lw.FixedWindows("1m")).aggregate(n=lw.count()).named("a")
    b = stream.key_by("k").window(lw.FixedWindows("1h")).aggregate(n=lw.count()).named("b")
    both = (a | b).key_by("k").window(lw.FixedWindows("1d")).aggregate(n=lw.sum("n")).named("c")
    result = both.collect(trace=True)
    said = result.why({"id": 1})
    assert "stage `a`" in said
    assert "stage `b`" in said
    assert "stage `b`" not in result.why({"id": 1}, stage="a")
    assert said.lines.count("  its panes went on to `c`") == 2
    assert [stage.inputs for stage in result.trace.stages][-1] == ("a", "b")


def test_tracing_changes_nothing(result: lw.Result) -> None:
    plain = pipeline().collect(bundle_size=1)
    keys = ("key", "window", "values", "timing", "index", "is_last")
    told = [[getattr(pane, name) for name in keys] for pane in plain.panes]
    assert [[getattr(pane, name) for name in keys] for pane in result.panes] == told
    assert len(plain.late) == len(result.late)


def test_runs_that_go_on_and_runs_that_write_are_traced(tmp_path: Any) -> None:
    panes = pipeline().run(trace=True, bundle_size=1)
    next(panes)
    assert "shows it: 1" in panes.why({"id": 1})
    metrics = lw.run(pipeline().write_jsonl(tmp_path / "out.jsonl"), trace=True)
    assert metrics.trace is not None
    assert len(metrics.trace.stages[0].panes) == sum(metrics.panes.values())


def test_a_trace_as_a_table(result: lw.Result) -> None:
    pd = pytest.importorskip("pandas")
    frame = result.to_frame()
    counts = frame["what"].value_counts()
    assert counts["element"] == 4
    assert counts["pane"] == len(result.panes)
    assert counts["error"] == 1
    assert frame["order"].is_monotonic_increasing
    panes = frame[frame["what"] == "pane"]
    assert panes["window_start"].iloc[0] == pd.Timestamp("2000-01-01T12:00:00Z")
    assert set(frame[frame["what"] == "element"]["detail"]) == {"kept", "late", "duplicate"}


SCENARIO = Scenario(start="12:00").add((5, "12:00:26", "A"), (7, "12:03:26", "B")).end(at="12:10")


def test_runs_that_agree() -> None:
    one = SCENARIO.run(lw.FixedWindows("2m"))
    other = SCENARIO.run(lw.FixedWindows("2m"), trace=True)
    assert not lw.diff(one, other)
    assert not lw.diff(one.panes, other.trace)
    assert repr(lw.diff(one, other)) == "no difference: 2 windows with the same final panes"


def test_what_differs_between_windowings() -> None:
    one = SCENARIO.run(lw.FixedWindows("2m"), aggregate=lw.sum())
    other = SCENARIO.run(lw.FixedWindows("4m"), aggregate=lw.sum())
    found = lw.diff(one, other)
    assert [row.what for row in found.rows] == ["only in a", "only in b", "only in b", "only in a"]
    late = SCENARIO.add((1, "12:00:10", "A")).run(lw.FixedWindows("2m"), aggregate=lw.sum())
    assert not lw.diff(one, late)
    more = Scenario(start="12:00").add((6, "12:00:26", "A"), (7, "12:03:26", "B")).end()
    (row,) = lw.diff(one, more.run(lw.FixedWindows("2m"), aggregate=lw.sum())).rows
    assert (row.what, row.key, row.a, row.b) == ("differs", "A", {"value": 5}, {"value": 6})


def test_only_what_was_not_taken_back_is_final() -> None:
    early = Scenario(start="12:00").add((5, "12:00:26", "A")).add((7, "12:01:00", "A")).end()
    trigger = lw.AfterWatermark(early=lw.AfterCount(1))
    one = early.run(lw.Sessions("1m"), trigger=trigger, accumulation="retracting")
    assert not lw.diff(one, early.run(lw.Sessions("1m")))


def test_diff_wants_panes() -> None:
    with pytest.raises(lw.InvalidArgument, match="has no panes"):
        lw.diff(3, [])  # type: ignore[arg-type]


class Total:
    """A process that keeps a total."""

    total = lw.value_cell()

    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        ctx.total.set((ctx.total.get() or 0) + record["v"])


def test_what_a_process_takes_is_traced() -> None:
    made = lw.from_iterable(ROWS[:2], time="at").key_by("k").process(Total())
    trace = made.collect(trace=True).metrics.trace
    assert trace is not None
    assert [element.values["v"] for element in trace.stages[0].elements] == [1, 2]
    assert "it went to the process" in why(trace, {"id": 1})


def test_differences_as_a_table() -> None:
    pd = pytest.importorskip("pandas")
    one = SCENARIO.run(lw.FixedWindows("2m"), aggregate=lw.sum())
    other = SCENARIO.run(lw.FixedWindows("4m"), aggregate=lw.sum())
    frame = lw.diff(one, other).to_frame()
    assert list(frame.columns) == [
        "what", "key", "window_start", "window_end", "a_value", "b_value",
    ]  # fmt: skip
    assert frame["window_start"].iloc[0] == pd.Timestamp("2000-01-01T12:00:00Z")
    assert frame["a_value"].tolist()[0] == 5
    assert pd.isna(frame["b_value"].iloc[0])
    assert len(lw.diff(one, one).to_frame()) == 0


def test_differences_are_written_whole() -> None:
    one = Scenario(start="12:00").add((5, "12:00:26", "A\nB")).end()
    text = repr(lw.diff(one.run(lw.FixedWindows("2m"), aggregate=lw.sum()), []))
    assert "2000-01-01 12:00:00 +2m" in text
    assert "A\\nB" in text
    assert "value=5" in text
    assert "…" not in text


def test_sessions_that_merged_away_are_no_difference() -> None:
    merging = Scenario(start="12:00").add((5, "12:00:26", "A")).add((7, "12:01:00", "A")).end()
    early = lw.AfterWatermark(early=lw.AfterCount(1))
    one = merging.run(lw.Sessions("1m"), trigger=early, accumulation="accumulating", trace=True)
    other = merging.run(lw.Sessions("1m"), accumulation="accumulating")
    assert not lw.diff(one, other)
    assert not lw.diff(one.trace, other)
    assert not lw.diff(other, one.trace.stages[0])
    assert lw.diff(one.panes, other)
