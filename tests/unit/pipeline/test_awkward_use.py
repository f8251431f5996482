"""Awkward but legitimate use, and mistakes, through the public interface alone (S-B1)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import lowwater as lw

ROWS = [{"t": at * 10_000_000, "k": "ab"[at % 2], "v": at} for at in range(10)]
CUSTOM: Any = lw.CustomWindows  # given what its types forbid


def untyped(value: Any) -> Any:
    return value


def pipeline(stream: lw.Stream, aggregate: Any = None, **options: Any) -> lw.Pipeline:
    aggregate = lw.sum("v") if aggregate is None else aggregate
    return stream.key_by("k").window(lw.FixedWindows("1m"), **options).aggregate(x=aggregate)


def values(made: lw.Pipeline, **options: Any) -> list[tuple[Any, Any]]:
    return [(pane.key, pane.value) for pane in made.run(**options)]


def stream(rows: Iterable[Any] = ROWS) -> lw.Stream:
    return lw.from_iterable(rows, time="t")


@pytest.mark.parametrize("size", [1, 2, 3, 5, 10, 11])
def test_batches_of_which_nothing_is_left(size: int) -> None:
    """A batch that a filter or flat_map empties has no columns for the next step to ask for."""
    kept = values(pipeline(stream(ROWS[6:])))
    late = stream().filter(lambda row: row["v"] > 5)
    assert values(pipeline(late.map(dict)), bundle_size=size) == kept
    fast = stream().filter(lw.col("v") > 5)
    assert values(pipeline(fast.map(dict)), bundle_size=size) == kept
    flat = stream().flat_map(lambda row: [row] if row["v"] > 5 else [])
    assert values(pipeline(flat.with_columns(v=lw.col("v") + 0)), bundle_size=size) == kept


def test_every_record_dropped() -> None:
    assert values(pipeline(stream().flat_map(lambda row: []))) == []


def test_an_iterator_is_read_once_and_says_so() -> None:
    for source in (
        stream(iter(ROWS)),
        lw.from_arrow(pa.Table.from_pylist(ROWS).to_reader(), time="t"),
    ):
        made = pipeline(source)
        assert values(made)
        with pytest.raises(lw.InvalidArgument, match="was read by an earlier run"):
            made.collect()


def test_a_generator_of_flat_map_that_fails_names_the_record() -> None:
    def halves(row: dict[str, Any]) -> Iterator[Any]:
        yield row
        yield {**row, "v": 1 // row["v"]}

    with pytest.raises(lw.DataError, match=r"flat_map failed on \{'t': 0, .*ZeroDivisionError"):
        pipeline(stream().flat_map(halves)).collect()


class Gather:
    """A combiner whose output is its accumulator."""

    def create_accumulator(self) -> list[Any]:
        return []

    def add_input(self, accumulator: list[Any], value: Any) -> list[Any]:
        accumulator.append(value)
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[list[Any]]) -> list[Any]:
        return [value for accumulator in accumulators for value in accumulator]

    def extract_output(self, accumulator: list[Any]) -> list[Any]:
        return accumulator


def test_what_a_pane_showed_stays_as_it_was() -> None:
    """S-A2, S-A3: a combiner's output may be its accumulator, which goes on growing."""
    rows = [{"t": at, "k": "a", "v": at} for at in range(3)]
    options = {"trigger": lw.Repeatedly(lw.AfterCount(1)), "accumulation": "retracting"}
    made = pipeline(stream(rows), lw.combine(Gather(), "v"), **options)
    shown = [(pane.kind, pane.value) for pane in made.collect(bundle_size=1).panes]
    assert shown == [
        ("insert", [0]),
        ("retract", [0]),
        ("insert", [0, 1]),
        ("retract", [0, 1]),
        ("insert", [0, 1, 2]),
    ]


@pytest.mark.parametrize(
    ("held", "distinct"),
    [
        ([{"a": [1]}, {"a": [1]}, {"a": [2]}], [{"a": [1]}, {"a": [2]}]),
        ([[1, [2]], [1, [2]]], [[1, [2]]]),
        ([2**63, 2**63, 1], [2**63, 1]),
    ],
)
def test_distinct_values_of_any_kind(held: list[Any], distinct: list[Any]) -> None:
    rows = [{"t": 0, "k": "a", "v": value} for value in held]
    assert values(pipeline(stream(rows), lw.collect_set("v"))) == [("a", distinct)]
    assert values(pipeline(stream(rows), lw.count_distinct("v"))) == [("a", len(distinct))]


def test_half_a_surrogate_pair(tmp_path: Path) -> None:
    """Python's text can hold what UTF-8 cannot; no reader lets it in, nor does a stage."""
    rows = [{"t": 0, "k": "\ud800", "v": 1}, {"t": 0, "k": "a", "v": 1}]
    result = pipeline(stream(rows)).collect(on_error="dead_letter")
    assert [pane.key for pane in result.panes] == ["a"]
    assert [(error.reason, error.record) for error in result.errors] == [("unstorable", rows[0])]
    pipeline(stream(rows)).write_jsonl(tmp_path / "out.jsonl").run()
    letter = json.loads((tmp_path / "out.errors.jsonl").read_text(encoding="utf-8"))
    assert letter["record"]["k"] == "\ud800"
    (tmp_path / "in.jsonl").write_text(r'{"t": 0, "k": "\ud800", "v": 1}' + "\n")
    alone = pipeline(lw.read_jsonl(tmp_path / "in.jsonl", time="t"))
    result = alone.collect(on_error="dead_letter")
    assert [error.reason for error in result.errors] == ["wrong_type"]


def test_json_nested_beyond_reason_is_a_dead_letter(tmp_path: Path) -> None:
    """Arrow's parser would run out of stack, and take the process with it."""
    deep = "[" * 100_000 + "]" * 100_000
    wide = json.dumps([{"s": "[[["}] * 2_000)
    lines = [
        f'{{"t": 0, "k": "a", "v": {v}, "x": {x}}}' for v, x in ((1, wide), (2, deep), (4, "[]"))
    ]
    (tmp_path / "in.jsonl").write_text("\n".join(lines) + "\n")
    result = pipeline(lw.read_jsonl(tmp_path / "in.jsonl", time="t")).collect()
    assert [pane.value for pane in result.panes] == [5]
    assert [error.reason for error in result.errors] == ["malformed_json"]


@pytest.mark.parametrize(
    "keys", [pd.period_range("2000", periods=2, freq="D"), pd.interval_range(0, 2)]
)
def test_keys_of_pandas_own_types(keys: Any) -> None:
    """No state has a form for them; as text they are keys like others."""
    frame = pd.DataFrame({"t": [0, 1], "k": keys, "v": [1, 2]})
    with pytest.raises(lw.DataError, match=r"unstorable.*str\(row\[\"k\"\]\)"):
        pipeline(lw.from_pandas(frame, time="t")).collect()
    texts = lw.from_pandas(frame.assign(k=frame["k"].astype(str)), time="t")
    assert values(pipeline(texts)) == [(str(keys[0]), 1), (str(keys[1]), 2)]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: lw.read_parquet([], time="t"), r"paths=\[\] \(list\) names no file"),
        (lambda: lw.read_csv("x.csv", time="t", delimiter=";;"), "delimiter=';;'"),
        (
            lambda: lw.from_arrow(pa.table([pa.array([1])] * 2, names=["t", "t"]), time="t"),
            "two columns are called 't'",
        ),
        (lambda: untyped(stream()).key_by(["k"]), r"key=\['k'\] \(list\) is neither"),
        (lambda: untyped(stream()).key_by(lw.col("v") % 2), r'key_by\(day=lw\.col\("at"\)'),
        (
            lambda: untyped(pipeline(stream())).run(on_late=3),
            r"on_late=3 \(int\) is not a function",
        ),
        (lambda: CUSTOM(3), r"assign_element=3 \(int\) is not a function"),
        (
            lambda: stream().key_by("k").window(CUSTOM(lambda at: (at, at + 1))).group().collect(),
            r"must give \(start, end\) pairs .* but gave \(0, 1\)",
        ),
        (
            lambda: (
                stream().key_by("k").window(CUSTOM(assign_column=lambda at: 3)).group().collect()
            ),
            r"must return \(start, end\)",
        ),
    ],
)
def test_mistakes_are_named(call: Any, message: str) -> None:
    with pytest.raises(lw.InvalidArgument, match=message):
        call()


def test_a_csv_file_in_another_encoding(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes("t,k,v\n0,a,1\n".encode("utf-16"))
    with pytest.raises(lw.DataError, match="cannot be read as CSV"):
        lw.read_csv(tmp_path / "x.csv", time="t")


def test_what_pipelines_look_like() -> None:
    """One line without the data, however much there is."""
    start = lw.from_iterable([{"t": 0}] * 100_000, time="t").filter(lw.col("v") > 5).map(dict)
    options: dict[str, Any] = {"trigger": lw.Repeatedly(lw.AfterCount(3)), "allowed_lateness": "1h"}
    made = pipeline(start, accumulation="retracting", **options)
    assert (
        repr(start)
        == "Stream(IterableSource(list of 100000) → filter(col(v).__gt__(5)) → map(dict))"
    )
    assert repr(made) == (
        "Pipeline(IterableSource(list of 100000) → filter(col(v).__gt__(5)) → map(dict) → "
        "key_by('k') → window(FixedWindows('1m'), trigger=Repeatedly(AfterCount(3)), "
        "accumulation='retracting', allowed_lateness='1h') → aggregate(x=sum('v')))"
    )
    assert repr(made.run()) == "<Run, 0 events so far>"
    frame = pd.DataFrame({"t": np.arange(3)})
    assert repr(lw.from_pandas(frame, time="t")) == "Stream(ColumnsSource(3 rows))"
    assert repr(lw.from_arrow(pa.table({"t": [1]}), time="t")) == "Stream(ArrowSource(Table of 1))"


def test_a_sibling_aggregate_does_not_change_what_another_shows() -> None:
    rows = [{"t": 1, "k": "a", "v": True}]
    stream = lw.from_iterable(rows, time="t").key_by("k").window(lw.FixedWindows("1m"))
    (pane,) = stream.aggregate(values=lw.collect("v"), total=lw.sum("v")).collect().panes
    assert pane.values["values"] == [True]
    assert type(pane.values["values"][0]) is bool
    assert pane.values["total"] == 1


class _Failing:
    def create_accumulator(self) -> int:
        return 0

    def add_input(self, accumulator: int, value: int) -> int:
        return accumulator // value

    def merge_accumulators(self, accumulators: Iterable[int]) -> int:
        return sum(accumulators)

    def extract_output(self, accumulator: int) -> int:
        return accumulator


def test_a_failing_combiner_is_named() -> None:
    rows = [{"t": 1, "k": "a", "v": 0}]
    stream = lw.from_iterable(rows, time="t").key_by("k").window(lw.FixedWindows("1m"))
    with pytest.raises(lw.DataError, match=r"add_input of .*_Failing.*ZeroDivisionError"):
        stream.aggregate(lw.combine(_Failing(), "v")).collect()
    with pytest.raises(lw.InvalidArgument, match=r"is a class.*Make one: _Failing"):
        lw.combine(_Failing, "v")  # type: ignore[arg-type]


def test_a_failing_window_function_is_named() -> None:
    rows = [{"t": 1, "k": "a", "v": 0}]
    windows = lw.CustomWindows(lambda t: [(0, 1 // (t - 1))], name="Halves")
    stream = lw.from_iterable(rows, time="t").key_by("k").window(windows)
    with pytest.raises(lw.DataError, match="assign_element of Halves failed: ZeroDivisionError"):
        stream.aggregate(lw.count()).collect()


def test_a_time_no_calendar_knows_is_late_and_the_stream_goes_on() -> None:
    rows = [{"t": "9999-12-31T00:00:00Z", "k": "a"}, {"t": "2024-01-31T00:00:00Z", "k": "a"}]
    stream = lw.from_iterable(rows, time="t").key_by("k").window(lw.CalendarWindows(months=1))
    result = stream.aggregate(lw.count()).collect()
    assert [pane.value for pane in result.panes] == [1]
    assert [late.reason for late in result.late] == ["unwindowed"]


@pytest.mark.parametrize("size", [2**63, 10**30, 0, -1])
def test_a_bundle_size_is_of_64_bits(size: int) -> None:
    rows = [{"at": 1, "k": 1}]
    stream = lw.from_iterable(rows, time="at", unit="s").key_by("k")
    counts = stream.window(lw.FixedWindows("1m")).aggregate(n=lw.count())
    with pytest.raises(lw.InvalidArgument, match="bundle_size="):
        counts.collect(bundle_size=size)
    assert len(counts.collect(bundle_size=10**12).panes) == 1
