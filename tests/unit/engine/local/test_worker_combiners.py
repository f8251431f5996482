"""Combiners in worker processes: the same panes, errors and state as without workers."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lowwater as lw
from lowwater.engine.aggregates import AggregateInput
from lowwater.engine.local.worker_combiners import CombinersInWorkers
from lowwater.errors import DataError, PipelineWarning, StateError
from tests.examples import sampled
from tests.property.simulated_workers import SimulatedWorkers
from tests.unit.engine.local.durable_runs import output, run, stopped, write_files

SECOND = 1_000_000
RECORDS: list[dict[str, Any]] = [
    {"t": (n - 57 * (n % 5 == 4)) * SECOND, "k": f"k{n % 23}", "n": n} for n in range(250)
]
"""Of a key there is one every 23 s; with gaps of 20 s, those that are late merge two sessions."""


class Values:
    """Keeps all values, in the order in which they were added."""

    def __init__(self, fails: dict[str, set[int]] | None = None, made: Any = list) -> None:
        self.fails = fails or {}
        self.made = made

    def create_accumulator(self) -> Any:
        return self.made()

    def add_input(self, accumulator: Any, value: Any) -> Any:
        self._fail("add", {value})
        accumulator.append(value)
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[Any]) -> Any:
        first, *others = accumulators
        for each in others:
            self._fail("merge", {*first, *each})
            first.extend(each)
        return first

    def extract_output(self, accumulator: Any) -> Any:
        self._fail("extract", set(accumulator))
        return list(accumulator)

    def __repr__(self) -> str:
        return "Values()"

    def _fail(self, method: str, values: set[int]) -> None:
        if found := self.fails.get(method, set()) & values:
            raise ZeroDivisionError(f"{method} of {min(found)}")


class Own(list[Any]):
    """What cannot be stored, nor passed between processes."""


def combined(combiner: Any, windows: Any = None, rows: int = 250, **options: Any) -> Any:
    watermark = lw.BoundedDisorder("60s")
    source = lw.from_iterable(
        RECORDS[:rows], time="t", unit="us", watermark=watermark, clock=lw.ManualClock(0)
    )
    windowed = source.key_by("k").window(windows or lw.FixedWindows("1m"), **options)
    return windowed.aggregate(values=lw.combine(combiner, "n"), n=lw.count())


@pytest.mark.parametrize(
    "windows", [lw.FixedWindows("1m"), lw.Sessions("20s"), lw.SlidingWindows("1m", "20s")]
)
def test_the_same_for_any_number(windows: Any) -> None:
    early = lw.AfterWatermark(early=lw.AfterCount(2))
    stage = combined(Values(), windows, trigger=early, accumulation="retracting")
    behind = stage.key_by("k").window(lw.GlobalWindow()).aggregate(n=lw.sum("n"))
    for each in (stage, behind):
        wanted = each.collect(bundle_size=50).to_arrow()
        for count in (1, 3):
            assert each.collect(bundle_size=50, workers=count).to_arrow().equals(wanted)
    assert not multiprocessing.active_children()


def test_windows_that_were_reset_merge() -> None:
    """S-A1: after a pane that discards, a row has no accumulator, here or there."""
    every = lw.Repeatedly(lw.AfterCount(1))
    stage = combined(Values(), lw.Sessions("20s"), 100, trigger=every, accumulation="discarding")
    wanted = stage.collect(bundle_size=1).to_arrow()
    assert stage.collect(bundle_size=1, workers=2).to_arrow().equals(wanted)


def test_accumulators_of_any_type() -> None:
    """Those of a run that keeps no state stay where they are."""
    wanted = combined(Values(made=Own), lw.Sessions("20s")).collect()
    found = combined(Values(made=Own), lw.Sessions("20s")).collect(workers=3)
    assert found.to_arrow().equals(wanted.to_arrow())


@pytest.mark.parametrize("count", sampled([2, 1, 7], every=3))
@pytest.mark.parametrize("method", ["add", "merge", "extract"])
def test_what_fails_does_so_as_without_workers(method: str, count: int) -> None:
    """Of several failures in one step, the first without workers is the one that is told."""
    fails = {method: set(range(120, 250)) - {130, 140}}
    stage = combined(Values(fails), lw.Sessions("20s"))
    with pytest.raises(DataError) as wanted:
        stage.collect(bundle_size=30)
    with pytest.raises(DataError) as found:
        stage.collect(bundle_size=30, workers=count)
    assert str(found.value) == str(wanted.value)
    assert f"{method} of 1" in str(found.value)
    assert not multiprocessing.active_children()


class Left(Values):
    """Can remove values, in theory."""

    def remove_input(self, accumulator: Any, value: Any) -> Any:
        raise ZeroDivisionError(f"remove of {value}")


def test_a_value_that_cannot_be_removed() -> None:
    early = lw.AfterWatermark(early=lw.AfterCount(2))
    stage = combined(Values(), lw.FixedWindows("1m"), trigger=early, accumulation="retracting")
    keyed = stage.key_by(odd=lw.col("n") % 3).window(lw.GlobalWindow())
    behind = keyed.aggregate(lw.combine(Left(), "n"))
    with pytest.raises(DataError, match="remove of") as wanted:
        behind.collect()
    with pytest.raises(DataError) as found:
        behind.collect(workers=3)
    assert str(found.value) == str(wanted.value)


def test_values_are_removed_after_all_others_were_added() -> None:
    """So what cannot be added is told first, whichever worker has it."""
    workers = SimulatedWorkers(2)
    spec = {"c": lw.combine(Left({"add": {7}}))}
    away = CombinersInWorkers(spec, 0, workers, lambda rows: rows, signed=True)
    aggregate = away.aggregates["c"].bind(None, np.int64)
    rows, values = np.array([0, 1]), np.array([5, 7])
    batch = AggregateInput(rows, values, rows, rows, signs=np.array([-1, 1], dtype=np.int8))
    with pytest.raises(DataError, match="add of 7"):
        aggregate.add({"accumulator": np.full(2, None)}, batch)


def test_results_are_plain_values() -> None:
    class Odd(Values):
        def extract_output(self, accumulator: Any) -> Any:
            return Own(accumulator)

    assert isinstance(combined(Odd()).collect(workers=1).panes[0].value["values"], Own)
    with pytest.raises(DataError, match=r"Own cannot be passed between processes.*plain values"):
        combined(Odd()).collect(workers=2)


def totals(source: Path, made: Any = list) -> Any:
    watermark = lw.BoundedDisorder("5s")
    read = lw.read_parquet(source, time="at", watermark=watermark, clock=lw.ManualClock(0))
    windowed = read.key_by("key").window(lw.Sessions("40s"))
    return windowed.aggregate(values=lw.combine(Values(made=made), "value"))


def test_another_number_of_workers_goes_on_and_none_too(tmp_path: Path) -> None:
    source = write_files(tmp_path / "in")
    run(totals(source), tmp_path / "whole")
    wanted = output(tmp_path / "whole")
    assert len(wanted["part"]) == 8
    for count in (2, None, 3, 1, 5):
        stopped(totals(source), tmp_path / "other", commits=4, workers=count)
    run(totals(source), tmp_path / "other", workers=2)
    assert output(tmp_path / "other") == wanted


def test_an_accumulator_that_cannot_be_stored_is_told_as_without_workers(tmp_path: Path) -> None:
    source = write_files(tmp_path / "in")
    with pytest.raises(StateError) as wanted:
        run(totals(source, Own), tmp_path / "a")
    with pytest.raises(StateError) as found:
        run(totals(source, Own), tmp_path / "b", workers=2)
    assert str(found.value) == str(wanted.value)


def test_a_memory_limit_keeps_combiners_in_the_run(tmp_path: Path) -> None:
    source = write_files(tmp_path / "in")
    written = totals(source).write_jsonl(tmp_path / "out")
    with pytest.warns(PipelineWarning, match=r"workers=2 .*changes nothing.*limit of memory"):
        written.run(state=tmp_path / "state", memory_limit="64MB", workers=2)


def test_so_it_does_beside_what_workers_can_call(tmp_path: Path) -> None:
    read = lw.read_parquet(write_files(tmp_path / "in"), time="at", clock=lw.ManualClock(0))
    windowed = read.map(dict).key_by("key").window(lw.Sessions("40s"))
    written = windowed.aggregate(values=lw.combine(Values(), "value")).write_jsonl(tmp_path / "out")
    with pytest.warns(PipelineWarning, match="combiner in windows is called in the run itself"):
        written.run(state=tmp_path / "state", memory_limit="64MB", workers=2)


class Refused(DataError):
    """An error of a user, which is made of something else than those of the library."""

    def __init__(self, value: int) -> None:
        super().__init__(f"{value} is refused", where="the combiner", hint="Leave it out")


class Refusing(Values):
    def add_input(self, accumulator: Any, value: Any) -> Any:
        if value == 40:
            raise Refused(value)
        return super().add_input(accumulator, value)


@pytest.mark.parametrize("workers", [None, 2])
def test_an_error_of_a_class_of_the_user_says_what_it_says_without_workers(
    workers: int | None,
) -> None:
    with pytest.raises(Refused, match=r"40 is refused \(at the combiner\). Leave it out"):
        combined(Refusing()).collect(workers=workers)
