"""Where elements went, which panes differ, and traces as tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lowwater as lw
from lowwater.explain import why
from lowwater.explain.element import EqualityIndex
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
        ({"id": 1}, "ON_TIME #0 of [12:00:00, 12:01:00) contains it: 1"),
        ({"id": 3}, "became a dead letter (null_key)"),
        ({"id": 4}, "a step, such as a filter, dropped it"),
        ({"v": 5}, "dropped as a duplicate"),
        ({"id": 6}, "dropped from [12:00:00, 12:01:00) (expired)"),
        ({"id": 99}, "no source read such an element"),
        (ROWS[1], "it was assigned to window [12:01:00, 12:02:00)"),
        (lambda record: record["v"] == 2, "contains it: 2"),
    ],
)
def test_each_element_is_accounted_for(result: lw.Result, record: Any, said: str) -> None:
    assert said in result.why(record)


def test_a_function_that_knows_no_record_is_refused(result: lw.Result) -> None:
    with pytest.raises(lw.InvalidArgument, match="raised KeyError for every record"):
        result.why(lambda record: record["idd"] == 1)
    assert "contains it: 1" in result.why(lambda record: 1 / (2 - record["v"]) == 1)


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
    assert "a step, such as a filter, dropped it" in result.why(2)
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
    assert said.lines.count("  its panes were sent to `c`") == 2
    assert [stage.inputs for stage in result.trace.stages][-1] == ("a", "b")


def hourly(**how: Any) -> lw.Pipeline:
    stream = lw.from_iterable(ROWS, time="at").filter(lw.col("v") > 0).key_by("k")
    return stream.window(lw.FixedWindows("1h"), **how).aggregate(n=lw.count()).named("hour")


def daily(before: Any) -> lw.Pipeline:
    return before.key_by("k").window(lw.FixedWindows("1d")).aggregate(n=lw.sum("n")).named("day")


def test_panes_are_followed_through_the_stages_behind() -> None:
    month = daily(hourly()).key_by("k").window(lw.FixedWindows("30d")).aggregate(n=lw.sum("n"))
    result = month.named("month").collect(trace=True)
    said = result.why({"id": 1})
    at = [said.lines.index(line) for line in said if "were sent to" in line]
    assert [said.lines[each] for each in at] == [
        "  its panes were sent to `day`",
        "  panes of `day` that contain it were sent to `month`",
    ]
    assert said.lines[at[0] + 1] == "    element 4 at 12:59:59.999999 on 2000-01-01, key 'a'"
    assert "it was assigned to window [00:00:00, 2000-01-02 00:00:00)" in said.lines[at[0] + 3]
    assert said.lines[at[0] + 4].endswith(
        "ON_TIME #0 of [00:00:00, 2000-01-02 00:00:00) contains it: 4"
    )
    assert said.lines[-1].endswith("contains it: 4")
    stages = result.trace.stages
    assert said.elements == tuple(stage.elements[0] for stage in stages)
    assert said.panes == tuple(stage.panes[0] for stage in stages)
    assert stages[1].elements[0].pane == ("hour", 0)
    assert stages[1].elements[0].origins == ()
    assert "    " not in str(result.why({"id": 1}, stage="hour"))


def test_what_is_told_of_as_the_pane_of_another_is_not_told_again() -> None:
    result = daily(hourly()).collect(trace=True)
    said = result.why({"k": "a"})
    assert len(said.elements) == len({id(element) for element in said.elements}) == 5
    assert sum("reached stage `day`" in line for line in said) == 4  # below each that is in it


def test_panes_that_are_taken_back_are_followed_too() -> None:
    early = lw.AfterWatermark(early=lw.AfterCount(1))
    before = hourly(trigger=early, accumulation="retracting")
    result = daily(before).collect(trace=True, bundle_size=1)
    came = [one for one in result.why({"id": 1}).elements[1:] if one.key == "a"]
    assert [(one.values["n"], one.retract) for one in came] == [
        (1, False), (1, True), (2, False), (2, True), (3, False), (3, True), (4, False), (4, True),
        (4, False),
    ]  # fmt: skip
    assert "    retraction of element 1" in result.why({"id": 1})
    hour, day = result.trace.stages
    for one in day.elements:
        assert one.pane is not None
        pane = hour.panes[one.pane[1]]
        assert (pane.key, pane.values["n"], pane.kind == "retract") == (
            one.key, one.values["n"], one.retract,
        )  # fmt: skip


def test_what_becomes_of_panes_between_stages_is_said() -> None:
    dropped = daily(hourly().filter(lw.col("n") > 100)).collect(trace=True)
    assert dropped.why({"id": 1}).lines[-1].startswith("    a step dropped them")

    def twice(batch: pa.RecordBatch) -> pa.Table:
        return pa.Table.from_batches([batch, batch])

    doubled = daily(hourly().map_batches(twice)).collect(trace=True)
    assert doubled.why({"id": 1}).lines[-1] == "    its elements cannot be traced back to them"


def test_a_stage_further_on_may_be_looked_at_alone() -> None:
    result = daily(hourly().filter(lw.col("n") > 1)).collect(trace=True)
    said = result.why({"id": 1}, stage="day")
    assert said.elements == result.trace.stage("day").elements
    assert "it reached stage `day`" in said
    assert "were sent to" not in said
    gone = daily(hourly().filter(lw.col("n") > 9)).collect(trace=True).why({"id": 1}, stage="day")
    assert gone.lines == (f"{ROWS[0]!r} reached `hour`; nothing derived from it reached `day`",)
    assert "a step, such as a filter, dropped it" in result.why({"id": 4}, stage="day")


def test_panes_that_may_be_dead_letters_are_not_said_to_be_dropped() -> None:
    keyless = hourly().map(lambda pane: {**pane, "k": None})
    last = daily(keyless).collect(trace=True).why({"id": 1}).lines[-1]
    assert last == "    a step dropped them, or they became dead letters: the run has 2"


def test_where_map_batches_may_have_moved_rows_nothing_is_guessed() -> None:
    def said(function: Any) -> str:
        stream = lw.from_iterable(ROWS[:2], time="at").map_batches(function).key_by("k")
        made = stream.window(lw.FixedWindows("1m")).aggregate(total=lw.sum("v"))
        return str(made.collect(trace=True).why({"id": 1}))

    def reversed_(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.take(pa.array([1, 0]))

    def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
        column = pa.array([2 * value for value in batch.column("v").to_pylist()])
        return batch.set_column(batch.schema.get_field_index("v"), "v", column)

    assert "12:00:10 on 2000-01-01, key 'a'" in said(reversed_)  # found by its values
    assert "(record 0); it cannot be traced further" in said(reversed_)
    assert "contains it: 2" in said(doubled)
    nested = [{"at": n, "k": "a", "v": [n]} for n in range(2)]
    stream = lw.from_iterable(nested, time="at").map_batches(lambda batch: batch.select(["v"]))
    trace = stream.with_columns(at=lw.lit(0), k=lw.lit("a")).key_by("k").window(
        lw.FixedWindows("1m")).aggregate(n=lw.count()).collect(trace=True).trace  # fmt: skip
    assert [one.origins for one in trace.stages[0].elements] == [(), ()]


class Counted(tuple[Any, ...]):
    """Elements that count how often they are all looked at."""

    looks = 0

    def __iter__(self) -> Iterator[Any]:
        Counted.looks += 1
        return super().__iter__()


def test_elements_are_looked_at_as_often_for_one_match_as_for_many() -> None:
    rows = [{"id": at, "k": "a", "at": at, "v": [at]} for at in range(200)]
    stream = lw.from_iterable(rows, time="at").key_by("k")
    trace = stream.window(lw.FixedWindows("1s")).aggregate(n=lw.count()).collect(trace=True).trace
    stage = replace(trace.stages[0], elements=Counted(trace.stages[0].elements))
    trace = replace(trace, stages=(stage,))
    looks = []
    for meant in ({"id": 7}, {"k": "a"}):
        before = Counted.looks
        why(trace, meant)
        looks.append(Counted.looks - before)
    assert looks[0] == looks[1]


class Value:
    """A value that counts what it is compared with, and may refuse to be hashed."""

    compared = 0

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        Value.compared += 1
        return isinstance(other, Value) and self.number == other.number

    def __hash__(self) -> int:
        return hash(self.number)


def test_dead_letters_are_not_compared_with_every_record() -> None:
    alike = EqualityIndex(({"v": [Value(at)]}, at) for at in range(500))
    assert [alike.of({"v": [Value(at)]}) for at in range(500)] == [[at] for at in range(500)]
    assert Value.compared < 5_000


def test_values_that_cannot_be_hashed_are_found() -> None:
    array = np.arange(3)
    values = [{"v": [1]}, [array], {1, 2}, bytearray(b"x"), (1, 2), [1, 2], array, {"v": array}]
    alike = EqualityIndex((value, at) for at, value in enumerate(values))
    for at in (0, 2, 3, 4, 5, 6, 7):
        assert alike.of(values[at]) == [at]
    assert alike.of({"v": [2]}) == []
    rows = [{"k": None, "at": 1, "v": [at]} for at in range(3)]
    stream = lw.from_iterable(rows, time="at").key_by("k").window(lw.FixedWindows("1s"))
    result = stream.aggregate(n=lw.count()).collect(trace=True, on_error="dead_letter")
    said = result.why(lambda record: True)
    assert sum("became a dead letter" in line for line in said) == len(said.lines) == 3


def test_what_is_not_a_number_is_found() -> None:
    nan = float("nan")
    alike = EqualityIndex([(nan, 0), ({"v": nan, "w": [float("nan")]}, 1), ((1, nan), 2)])
    assert alike.of(float("nan")) == [0]
    assert alike.of({"w": [float("nan")], "v": float("nan")}) == [1]
    assert alike.of((1, float("nan"))) == [2]
    assert alike.of([1, float("nan")]) == alike.of({"v": nan, "w": [0.0]}) == []
    table = pa.table({"at": [1, 2], "k": ["a", "a"], "v": [nan, 1.0]})
    stream = lw.from_arrow(table, time="at").key_by("k").window(lw.FixedWindows("1s"))
    (line,) = stream.aggregate(v=lw.sum("v")).collect(trace=True).why({"v": float("nan")})
    assert "became a dead letter (nan)" in line


def test_tracing_changes_nothing(result: lw.Result) -> None:
    plain = pipeline().collect(bundle_size=1)
    keys = ("key", "window", "values", "timing", "index", "is_last")
    told = [[getattr(pane, name) for name in keys] for pane in plain.panes]
    assert [[getattr(pane, name) for name in keys] for pane in result.panes] == told
    assert len(plain.late) == len(result.late)


def test_runs_that_go_on_and_runs_that_write_are_traced(tmp_path: Any) -> None:
    panes = pipeline().run(trace=True, bundle_size=1)
    next(panes)
    assert "contains it: 1" in panes.why({"id": 1})
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
    assert repr(lw.diff(one, other)) == "no differences: 2 windows with the same final panes"


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
    assert "it was received" in why(trace, {"id": 1})


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
