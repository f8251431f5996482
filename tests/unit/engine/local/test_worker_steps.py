"""Python functions of steps in worker processes: the same records, dead letters and errors."""

from __future__ import annotations

import datetime as dt
import multiprocessing
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from lowwater.engine.local import worker_steps
from lowwater.engine.local.worker_steps import SLICE, StepsInWorkers
from lowwater.engine.records.batch import Records
from lowwater.engine.records.calls import PythonStep
from lowwater.engine.records.stateless import AddComputed, Filter, FlatMap, Map, set_aside
from lowwater.engine.records.stepping import applied, apply_steps
from lowwater.errors import DataError, PipelineWarning
from tests.examples import examples, sampled
from tests.property.simulated_workers import SimulatedWorkers
from tests.unit.engine.local.durable_runs import output, run, stopped, write_files

SECOND = 1_000_000
RECORDS: list[dict[str, Any]] = [
    {"t": n * SECOND, "k": f"k{n % 23}", "n": n, "x": n / 3, "day": dt.date(2024, 1, 1 + n % 28)}
    for n in range(4 * SLICE + 7)
]


def source(records: list[dict[str, Any]] = RECORDS) -> Any:
    return lw.from_iterable(
        records, time="t", unit="us", watermark=lw.Ascending(), clock=lw.ManualClock(0)
    )


def even(record: Any) -> bool:
    return record["n"] % 4 != 1


def shifted(record: Any) -> Any:
    if record["n"] % 100 == 2 and record["n"] < SLICE:
        return None  # a dead letter
    odd = {"odd": (record["n"], str(record["day"]))} if record["n"] > 3 * SLICE else {}
    return {"t": record["t"], "k": record["k"], "n": record["n"] + 1, **odd}


def several(record: Any) -> list[Any]:
    return [{**record, "nth": nth} for nth in range(record["n"] % 3)]


def tens(record: Any) -> int:
    return int(record["n"]) // 10 % 10


@pytest.mark.parametrize("batch", [50, 50_000])
def test_the_same_for_any_number(batch: int) -> None:
    mapped = source().filter(even).map(shifted).flat_map(several)
    counted = (
        mapped.key_by(tens).window(lw.FixedWindows("1m")).aggregate(n=lw.sum("n"), c=lw.count())
    )
    behind = counted.map(lambda pane: {**pane, "sum": pane["n"] + 1}).filter(
        lambda pane: pane["c"] > 1
    )

    def found(what: Any, **options: Any) -> Any:
        result = what.collect(bundle_size=batch, **options)
        errors = [(each.record, each.reason, each.where) for each in result.errors]
        return result.to_arrow(), errors, result.metrics.events

    for each in (mapped, counted, behind):
        wanted = found(each)
        assert len(wanted[1]) == 5
        for count in (1, 3):
            assert found(each, workers=count) == wanted
    assert not multiprocessing.active_children()


def divided(numbers: set[int]) -> Callable[[Any], Any]:
    def function(record: Any) -> Any:
        if record["n"] in numbers:
            raise ZeroDivisionError(f"in {record['n']}")
        return record

    return function


@pytest.mark.parametrize("count", sampled([2, 1, 3], every=3))
@pytest.mark.parametrize("step", ["map", "filter", "flat_map", "key_by"])
def test_what_fails_does_so_as_without_workers(step: str, count: int) -> None:
    """Of several records that fail, the first is the one that is told."""
    failing = divided({2 * SLICE + 5, 2 * SLICE + 3, SLICE + 450, 4 * SLICE})
    if step == "key_by":
        keyed = source().key_by(failing)
        stage = keyed.window(lw.FixedWindows("1m")).aggregate(n=lw.count())
    else:
        each = (lambda record: [failing(record)]) if step == "flat_map" else failing
        stage = getattr(source(), step)(each)
    with pytest.raises(DataError) as wanted:
        stage.collect()
    with pytest.raises(DataError) as found:
        stage.collect(workers=count)
    assert str(found.value) == str(wanted.value)
    assert f"in {SLICE + 450}" in str(found.value)
    assert not multiprocessing.active_children()


def test_a_function_that_fails_comes_before_a_field_that_cannot_be() -> None:
    """Without workers the fields are looked at when all functions have returned."""
    failing = divided({3 * SLICE})
    stage = source().map(lambda record: {"__lw_": 1} if record["n"] == 3 else failing(record))
    for options in ({}, {"workers": 2}, {"workers": 3}):
        with pytest.raises(DataError, match=f"in {3 * SLICE}"):
            stage.collect(**options)
    stage = source().map(
        lambda record: {f"__lw_{record['n']}": 1} if record["n"] % SLICE == 3 else record
    )
    for options in ({}, {"workers": 2}, {"workers": 3}):
        with pytest.raises(DataError, match="__lw_3'"):
            stage.collect(**options)


def test_invalid_records_are_dead_letters_or_stop_the_run() -> None:
    def undated(record: Any) -> Any:
        return {**record, "t": None} if record["n"] % 1000 == 999 else record

    stage = source().map(undated)
    wanted = stage.collect(on_error="dead_letter")
    found = stage.collect(on_error="dead_letter", workers=2)
    assert [each.record for each in found.errors] == [each.record for each in wanted.errors]
    assert found.to_arrow().equals(wanted.to_arrow())
    with pytest.raises(DataError) as first:
        stage.collect(on_error="raise")
    with pytest.raises(DataError) as second:
        stage.collect(on_error="raise", workers=2)
    assert str(second.value) == str(first.value)


def test_values_are_plain_and_records_need_not_be() -> None:
    @dataclass
    class Own:
        t: int
        of: Any

    stage = source().map(lambda record: Own(record["t"], record["n"]))
    assert stage.collect(workers=2).to_arrow().equals(stage.collect().to_arrow())
    nested = source().map(lambda record: Own(record["t"], Own(1, 2)))
    with pytest.raises(DataError, match=r"unstorable.*Own.*cannot be held") as wanted:
        nested.collect()
    with pytest.raises(DataError) as found:
        nested.collect(workers=2)
    assert str(found.value) == str(wanted.value)


def test_what_a_function_changes_stays_in_its_process() -> None:
    seen: list[int] = []

    def noted(record: Any) -> bool:
        seen.append(record["n"])
        return True

    stage = source().filter(noted)
    assert len(stage.collect(workers=2).values()) == len(RECORDS)
    assert 0 < len(seen) < len(RECORDS)  # those of the run's own process


def test_expressions_alone_are_nothing_to_do() -> None:
    stage = source().filter(lw.col("n") > 1).map_batches(lambda batch: batch)
    with pytest.warns(PipelineWarning, match=r"workers=2 .* changes nothing.*flat_map"):
        stage.collect(workers=2)
    stage.collect(workers="auto")


def totals(path: Path) -> Any:
    read = lw.read_parquet(
        path, time="at", watermark=lw.BoundedDisorder("5s"), clock=lw.ManualClock(0)
    )
    mapped = read.flat_map(lambda record: [record, {**record, "value": 1000 + record["value"]}])
    windowed = mapped.key_by("key").window(lw.FixedWindows("20s"))
    return windowed.aggregate(total=lw.sum("value"), n=lw.count())


def test_a_state_directory_is_that_of_a_run_without_workers(tmp_path: Path) -> None:
    path = write_files(tmp_path / "in")
    run(totals(path), tmp_path / "whole")
    for count in (None, 2, 3, None, 1):
        stopped(totals(path), tmp_path / "other", commits=3, workers=count)
    run(totals(path), tmp_path / "other", workers=2)
    assert output(tmp_path / "other") == output(tmp_path / "whole")
    assert len(output(tmp_path / "whole")["part"]) > 10


VALUES = (
    st.none() | st.integers(-(2**65), 2**65) | st.text(max_size=3) | st.floats() | st.booleans()
)
MADE = (
    VALUES
    | st.dictionaries(st.sampled_from(["a", "b", "c"]), VALUES, max_size=3)
    | st.tuples(VALUES, VALUES)
)
FAILURES = st.sampled_from(["raise", "name"])


@examples(2)
@given(
    kind=st.sampled_from([Map, FlatMap, Filter, AddComputed]),
    made=st.lists(st.lists(MADE, max_size=3), max_size=14),
    failures=st.dictionaries(st.integers(0, 20), FAILURES, max_size=2),
    count=st.integers(2, 5),
    size=st.integers(1, 4),
    whole=st.booleans(),
    coded=st.booleans(),
)
def test_any_step_in_slices_of_any_size(
    kind: Any,
    made: list[list[Any]],
    failures: dict[int, str],
    count: int,
    size: int,
    whole: bool,
    coded: bool,
) -> None:
    """The records, their types, dead letters and errors are those of the step applied here."""

    def function(row: Any) -> Any:
        at = row if whole else row["at"]
        fails = failures.get(at)
        if fails == "raise":
            raise ValueError(f"at {at}")
        given: list[Any] = [{"__lw_": at}] if fails else made[at]
        if kind is FlatMap:
            return iter(given)
        return bool(given) if kind is Filter else next(iter(given), None)

    numbers = list(range(len(made)))
    columns: dict[str, Any] = {"value" if whole else "at": pa.array(numbers, pa.int64())}
    if not whole:
        text = pa.array([f"k{n % 7}" for n in numbers], pa.string())
        columns["k"] = text.dictionary_encode() if coded else text
    batch = pa.RecordBatch.from_pydict({**columns, "__lw_n": pa.array(numbers, pa.int64())})
    records = Records.from_arrow(batch, "a file", 3)
    step: PythonStep = AddComputed("__lw_key0", function) if kind is AddComputed else kind(function)
    for sets_aside, here in ((False, applied), (True, set_aside)):
        with mock.patch.object(worker_steps, "SLICE", size):
            workers = StepsInWorkers(
                [Map(len), step], SimulatedWorkers(count), sets_aside=sets_aside
            )
            wanted = outcome([step], records, here)
            found = outcome([step], records, workers.apply)
        assert found == wanted
        assert not sets_aside or not isinstance(found, str)  # no run is stopped


def outcome(steps: list[Any], records: Records, *apply: Any) -> Any:
    """What becomes of records: all of it, as text, in which a NaN is one."""
    try:
        stepped = apply_steps(steps, records, *apply)
        left, rejected = stepped.records, list(stepped.rejected)
    except DataError as error:
        return str(error)
    columns = {
        name: (column.data.dtype, column.type, repr(column.to_list()), repr(column.valid))
        for name, column in left.columns.items()
    }
    return columns, left.length, left.origin, repr(left.row_numbers), repr(rejected)


def test_times_of_python_and_of_numpy_are_what_they_are_without_workers() -> None:
    zone = ZoneInfo("Europe/Amsterdam")
    noon = dt.datetime(2024, 3, 30, 12, tzinfo=zone)
    late = noon.replace(tzinfo=None, fold=1)
    given = [{"t": n, "noon": noon, "late": late} for n in range(SLICE + 2)]

    def read(record: Any) -> Any:
        then = record["noon"] + dt.timedelta(days=1)
        at = np.datetime64("2024-01-01", "ns") + np.timedelta64(record["t"], "s")
        key = f"{then.tzname()} {then.astimezone(dt.UTC).hour} {record['late'].fold}"
        return {"t": at, "k": key, "lasts": np.timedelta64(1500, "ns")}

    def panes(workers: int | None) -> list[Any]:
        steps = lw.from_iterable(given, time="t", unit="s", watermark=lw.Ascending()).map(read)
        windows = steps.key_by("k").window(lw.FixedWindows("1m")).aggregate(n=lw.count())
        return [
            (pane.key, pane.window, pane.values) for pane in windows.collect(workers=workers).panes
        ]

    assert panes(2) == panes(None)
    assert {key for key, _, _ in panes(2)} == {"CEST 10 1"}
