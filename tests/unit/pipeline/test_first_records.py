"""What the first records lack, or have of another type, matters no more than later (S-B1)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import lowwater as lw
from lowwater.engine.records import problems
from lowwater.engine.records.json_rows import rows_of
from lowwater.engine.records.problems import JUDGED, AbsentColumns
from lowwater.errors import DataError, InvalidArgument
from lowwater.io.sinks import Callback, Delivery
from tests.examples import sampled
from tests.unit.engine.local.durable_runs import Stopped, stopping

Make = Callable[[Any], Any]
HOUR = lw.FixedWindows("1h")
ODD = 3
"""How many records at the beginning are unlike the others."""


def rows(count: int) -> list[dict[str, Any]]:
    return [{"at": n, "k": n % 3, "n": n, "v": {"a": n % 2}} for n in range(count)]


def totals(stream: Any) -> Any:
    return stream.key_by("k").window(HOUR).aggregate(total=lw.sum("n"))


PIPELINES: dict[str, Make] = {
    "windows": totals,
    "filtered": lambda s: totals(s.filter(lw.col("n") >= 0)),
    "computed": lambda s: totals(s.with_columns(n=lw.col("n") * 2)),
    "computed time": lambda s: totals(s.with_columns(at=lw.col("at") + 1)),
    "a field": lambda s: totals(s.with_columns(n=lw.col("v").struct.field("a"))),
    "key of a field": lambda s: totals(s.with_columns(k=lw.col("v").struct.field("a"))),
    "time of a field": lambda s: totals(s.with_columns(at=lw.col("v").struct.field("a"))),
    "without copies": lambda s: totals(s.deduplicate(id="n", within="1h")),
    "sessions": lambda s: s.key_by("k").window(lw.Sessions("1m")).aggregate(c=lw.count("n")),
    "two stages": lambda s: (
        totals(s).select("k", "total").key_by("k").window(HOUR).aggregate(sum=lw.sum("total"))
    ),
}


def without(name: str, first: int = ODD) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def made(row: dict[str, Any]) -> dict[str, Any]:
        return row if row["n"] >= first else {n: v for n, v in row.items() if n != name}

    return made


def other(name: str, value: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda row: row if row["n"] >= ODD else {**row, name: value}


CHANGES: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    **{f"no {name}": without(name) for name in ("at", "k", "n", "v")},
    "no field": other("v", {}),
    "a list in a field": other("v", {"a": [1]}),
    "a struct in a field": other("v", {"a": {"b": 1}}),
    "text in a field": other("v", {"a": "x"}),
    "a list as key": other("k", [1]),
    "a list as number": other("n", [1]),
    "a list as time": other("at", [1]),
}


def outcome(pipeline: Any, **options: Any) -> tuple[Any, list[tuple[str, str, Any]]]:
    result = pipeline.collect(on_error="dead_letter", **options)
    # A field that a record lacks is null beside records that have it.
    letters = [
        (one.reason, one.detail, {n: v for n, v in one.record.items() if v is not None})
        for one in result.errors
    ]
    last = {(pane.key, pane.window): pane.values for pane in result.panes}
    return sorted(last.items(), key=repr), letters


@pytest.mark.parametrize(
    ("name", "change"),
    sampled([pytest.param(*pair) for pair in product(PIPELINES, CHANGES)], every=3),
)
def test_they_are_judged_alike_in_any_bundles(name: str, change: str) -> None:
    begun = lw.from_iterable(rows(12), time="at", unit="s").map(CHANGES[change])
    pipeline = PIPELINES[name](begun)
    whole = outcome(pipeline, bundle_size=1000)
    for size in (1, 2, ODD):
        assert outcome(pipeline, bundle_size=size) == whole
    assert len(whole[1]) <= ODD
    assert whole[0]


@pytest.mark.parametrize("change", ["no at", "no k", "a list in a field"])
def test_they_are_judged_alike_by_workers(change: str) -> None:
    begun = lw.from_iterable(rows(12), time="at", unit="s").map(CHANGES[change])
    pipeline = PIPELINES["key of a field"](begun)
    whole = outcome(pipeline, bundle_size=1000)
    for size in (1, 1000):
        assert outcome(pipeline, bundle_size=size, workers=2) == whole


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    """Let the columns of fewer records be judged, and return how many that is."""
    assert JUDGED == 1_000
    monkeypatch.setattr(problems, "JUDGED", 50)
    return problems.JUDGED


@pytest.mark.parametrize("count", [1, 20, 150])
@pytest.mark.parametrize("size", [1, 7, 100_000])
@pytest.mark.parametrize("name", ["at", "k", "n"])
@pytest.mark.parametrize("options", [{}, {"on_error": "dead_letter"}])
def test_a_name_that_no_record_has_is_a_mistake(
    name: str, size: int, count: int, options: Mapping[str, Any], few: int
) -> None:
    """After those that are judged, or at the end."""
    assert 20 < few < 150
    begun = lw.from_iterable(rows(count), time="at", unit="s")
    begun = begun.map(lambda row: {n: v for n, v in row.items() if n != name})
    said = f"there is no column '{name}'"
    if name == "at":
        said = r"the records have no column 'at', which is to be their event time \(at map\)"
    with pytest.raises(InvalidArgument, match=said):
        totals(begun).collect(bundle_size=size, **options)


@pytest.mark.parametrize("size", [1, 100_000])
def test_a_name_in_an_expression_that_no_record_has_is_a_mistake(size: int) -> None:
    begun = lw.from_iterable(rows(50), time="at", unit="s").map(dict)
    with pytest.raises(InvalidArgument, match="there is no column 'm'"):
        totals(begun.filter(lw.col("m") > 0)).collect(bundle_size=size)


@pytest.mark.parametrize("size", [1, 2, 100_000])
def test_fields_of_which_each_record_lacks_another_are_no_mistake(size: int, few: int) -> None:
    count = 2 * few + 10

    def halves(row: dict[str, Any]) -> dict[str, Any]:
        return {**row, ("a", "b")[row["n"] % 2]: 1}

    begun = lw.from_iterable(rows(count), time="at", unit="s").map(halves)
    some = begun.filter((lw.col("a") > 0) | (lw.col("b") > 0))
    panes = totals(some).collect(bundle_size=size).panes
    assert sum(pane.values["total"] for pane in panes) == sum(range(count))


@pytest.mark.parametrize("size", [1, 5, 100_000])
def test_a_mistake_behind_a_step_that_drops_the_first_records_is_found(size: int) -> None:
    """A step that no record reached says nothing of its columns."""
    begun = lw.from_iterable(rows(50), time="at", unit="s").map(dict).filter(lw.col("n") > 5)
    with pytest.raises(InvalidArgument, match="there is no column 'm'"):
        totals(begun.filter(lw.col("m") > 0)).collect(bundle_size=size)


def test_an_absent_value_is_not_blamed_for_a_bad_time() -> None:
    begun = lw.from_iterable([{"at": "x", "k": 0}], time="at", unit="s").map(dict)
    with pytest.raises(DataError, match="bad_time"):
        totals(begun).collect(on_error="raise")


def test_what_is_absent_is_stored_until_it_is_known() -> None:
    absent = AbsentColumns()
    error = InvalidArgument("there is no column 'k'", where="here", hint="none")
    absent.note({"k": error, "n": error}, 600)
    absent.note({"k": error}, 1)
    stored = absent.remember()
    resumed = AbsentColumns()
    resumed.resume(stored)
    with pytest.raises(InvalidArgument, match="there is no column 'k'"):
        resumed.note({"k": error}, JUDGED - 601)
    late = AbsentColumns()
    late.resume(stored)
    late.note({}, 1)
    late.note({"k": error}, 5_000)
    late.end()
    assert not late.is_open
    earlier = AbsentColumns()
    earlier.resume(None)  # written by a version that stored none
    earlier.note({"k": error}, 5_000)
    earlier.end()


@pytest.mark.parametrize("change", ["no at", "no k", "no n", "no v", "a list in a field"])
@pytest.mark.parametrize("deaths", [1, 2, 5])
def test_a_run_that_is_resumed_judges_them_alike(change: str, deaths: int, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows(12)))

    def made() -> Any:
        read = lw.read_jsonl(tmp_path / "in.jsonl", time="at", unit="s", clock=lw.ManualClock(0))
        stream = read.map(CHANGES[change]).filter(lw.col("n").is_null() | (lw.col("n") >= 0))
        return PIPELINES["key of a field"](stream)

    whole = outcome(made())
    deliveries: dict[str, Delivery] = {}  # one that is made again has the same id

    def take(delivery: Delivery) -> None:
        deliveries[delivery.id] = delivery

    options: dict[str, Any] = {"state": tmp_path / "state", "on_error": "dead_letter"}
    options |= {"commit_every": "bundle", "bundle_size": 1, "on_dead_letter": lambda _: None}
    with stopping("before forgetting", deaths), pytest.raises(Stopped):
        made().write_to(Callback(take)).run(**options)
    made().write_to(Callback(take)).run(**options)
    every = [deliveries[name] for name in sorted(deliveries)]
    letters = [row["reason"] for one in every if one.errors for row in rows_of(one.errors)]
    assert letters == [reason for reason, _, _ in whole[1]]
    totals_of = {}
    for row in (row for one in every for row in one.panes.to_pylist()):
        totals_of[row["k"], row["window_start"]] = row["total"]
    assert sorted(totals_of.values()) == sorted(values["total"] for _, values in whole[0])


def test_a_durable_run_without_a_column_is_refused_again(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows(12)))
    for _ in range(2):
        stream = lw.read_jsonl(tmp_path / "in.jsonl", time="at", unit="s").map(without("k", 99))
        with pytest.raises(InvalidArgument, match="there is no column 'k'"):
            totals(stream).write_parquet(tmp_path / "out").run(
                state=tmp_path / "state", commit_every="bundle", bundle_size=1
            )
