"""The watermark of several partitions (S-T3), and what holds it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from lowwater.engine.records.columns import Column
from lowwater.io import Log
from lowwater.state.codec import decode, encode
from lowwater.time import START_OF_TIME
from lowwater.watermark import EstimatorState, Observed, holder_of
from lowwater.watermark.observed import PARTITION

SECOND = 1_000_000


def observed(elements: Sequence[tuple[int, Any]], clock: int = 0) -> Observed:
    times = np.array([time for time, _ in elements], dtype=np.int64)
    return Observed(times, {"part": Column.of_objects([part for _, part in elements])}, clock)


def started(**options: Any) -> Any:
    return lw.PerPartition(lw.Ascending(), by="part", **options).start()


def test_it_is_the_minimum_of_those_seen_and_never_goes_back() -> None:
    state = started()
    assert holder_of(state) == "no partition has been seen"
    steps = [([(10, "a"), (20, "b")], 10), ([(30, "a")], 20), ([(5, "c")], 20), ([(40, "b")], 20)]
    for elements, wanted in steps:
        state.observe(observed(elements))
        assert state.current(0) == wanted
    assert holder_of(state) == "partition 'c' is behind the others"


def test_an_expected_partition_that_is_missing_freezes_it() -> None:
    state = started(expected=["a", "b", "c"], idle_after=5)
    state.observe(observed([(10, "a"), (3, "zzz")]))
    assert state.current(1_000) == START_OF_TIME
    assert holder_of(state) == "partition 'b' has not been seen, nor have 1 others"
    assert state.left_out() == []
    state.observe(observed([(12, "b"), (11, "c")], 1_000))
    assert state.current(1_000) == 11
    assert state.left_out() == ["a"]


def test_a_partition_is_idle_from_the_very_moment_and_comes_back() -> None:
    """
    clock    0    4    5    9   10
    a      (1)    .    .    .  (2)
    b     (50)  (60)   .    .    .
    mark     1    1   60   60   60
    """
    state = started(idle_after=5)
    state.observe(observed([(1, "a"), (50, "b")], 0))
    assert state.current(0) == 1
    state.observe(observed([(60, "b")], 4))
    assert state.current(4) == 1
    assert holder_of(state) == "partition 'a' silent since 1970-01-01T00:00:00Z"
    assert state.current(5) == 60
    assert state.left_out() == ["a"]
    assert state.current(9) == 60
    state.observe(observed([(2, "a")], 10))
    assert state.current(10) == 60
    state.observe(observed([(70, "a")], 10))
    assert (state.current(10), state.left_out()) == (70, ["b"])


@pytest.mark.parametrize("looks", [[100], [5, 100], [5, 6, 7, 8, 100], [6, 100]])
def test_looks_in_between_make_no_difference_where_all_become_idle(looks: list[int]) -> None:
    """The one that spoke last is not left out."""
    state = started(idle_after=5)
    state.observe(observed([(9, "a")], 1))
    state.observe(observed([(2, "b")], 2))
    state.observe(observed([(4, "c")], 2))
    assert [state.current(clock) for clock in looks][-1] == 2
    assert holder_of(state) == (
        "partition 'b' idle since 1970-01-01T00:00:00.000002Z, the last one to fall idle"
    )


def test_a_clock_that_was_never_told_makes_nobody_idle() -> None:
    state = started(idle_after=5)
    state.observe(observed([(9, "a")], START_OF_TIME))
    state.observe(observed([(2, "b")], START_OF_TIME))
    assert state.current(START_OF_TIME) == 2


def test_after_a_restart_silence_can_be_excused() -> None:
    first = started(idle_after=5)
    first.observe(observed([(1, "a")], 0))
    first.observe(observed([(50, "b")], 1))
    strict, kind = started(idle_after=5), started(idle_after=5)
    for state in (strict, kind):
        state.resume(first.remember())
    kind.excuse(1_000)
    assert (strict.current(1_000), kind.current(1_000)) == (50, 1)
    assert kind.current(1_005) == 1  # both spoke last, so to say


def of_source(elements: Sequence[tuple[int, int]], clock: int = 0) -> Observed:
    times = np.array([time for time, _ in elements], dtype=np.int64)
    numbers = np.array([number for _, number in elements], dtype=np.int64)
    return Observed(times, {PARTITION: Column(numbers)}, clock)


def announced(*partitions: int, **options: Any) -> Any:
    state: Any = lw.PerPartition(lw.Ascending(), **options).start()
    state.announce(partitions)
    return state


def test_announced_partitions_are_waited_for() -> None:
    state = announced(0, 1)
    state.observe(of_source([(10, 0)]))
    assert state.current(1_000) == START_OF_TIME
    assert holder_of(state) == "partition 1 has not been seen"
    state.observe(of_source([(5, 1)], 1_000))
    assert state.current(1_000) == 5
    state.announce((0, 1, 2))  # found later: it does not go back, and not on
    state.observe(of_source([(20, 0), (20, 1)], 1_000))
    assert state.current(1_000) == 5
    state.observe(of_source([(7, 2)], 1_000))
    assert state.current(1_000) == 7


def test_announced_partitions_fall_idle() -> None:
    """Silence counts from the first clock after the announcement; one that was heard counts."""
    state = announced(0, 1, idle_after=5)
    assert state.current(START_OF_TIME) == START_OF_TIME
    state.observe(of_source([(10, 0)], 1_000))
    assert [state.current(clock) for clock in (1_000, 1_004)] == [START_OF_TIME] * 2
    assert state.left_out() == []
    assert state.current(1_005) == 10
    assert state.left_out() == [1]
    assert "the last one to fall idle" in str(holder_of(state))
    assert announced(0, 1, idle_after=5).current(1_000) == START_OF_TIME
    none = announced(0, 1, idle_after=5)
    assert [none.current(clock) for clock in (1, 100)] == [START_OF_TIME] * 2
    assert holder_of(none) == "partition 0 has not been seen, nor have 1 others"


def test_what_is_announced_is_of_no_account_where_a_column_or_names_are_given() -> None:
    state = announced(0, 1, by="part")
    state.observe(observed([(10, "a")]))
    assert state.current(0) == 10
    state = announced(0, 1, expected=[0])
    state.observe(of_source([(10, 0)]))
    assert state.current(0) == 10


@given(
    st.lists(st.lists(st.integers(0, 5), max_size=6), min_size=1, max_size=5),
    st.lists(st.integers(1, 4), max_size=30),
    st.data(),
)
def test_no_element_of_a_partition_in_order_is_below_the_watermark(
    gaps: list[list[int]], sizes: list[int], data: st.DataObject
) -> None:
    """In whichever order partitions come, however bundles are cut, and over restarts (S-T3)."""
    each = [np.cumsum(some).tolist() for some in gaps]
    partitions = tuple(range(len(each)))
    left = data.draw(st.permutations([n for n in partitions for _ in each[n]]))
    state = announced(*partitions)
    for size in [*sizes, len(left)]:
        bundle = [(each[number].pop(0), number) for number in left[:size]]
        left = left[size:]
        assert all(time >= state.current(0) for time, _ in bundle)
        state.observe(of_source(bundle))
        if data.draw(st.booleans()):
            known = decode(encode(state.remember()))
            state = announced()
            state.resume(known)
    if all(gaps):
        assert state.current(0) == min(sum(some) for some in gaps)


def test_what_is_expected_may_change_between_runs() -> None:
    first = started(expected=["a", "b"])
    first.observe(observed([(7, "a"), (5, "b")]))
    assert first.current(0) == 5
    more = started(expected=["b", "c"])
    more.resume(first.remember())
    assert more.current(0) == 5
    assert holder_of(more) == "partition 'c' has not been seen"
    more.observe(observed([(6, "c"), (8, "b")]))
    assert more.current(0) == 6


def test_any_estimator_can_be_inside() -> None:
    value = lw.PerPartition(lw.Punctuated("mark"), by="part")
    assert value.columns == ("part", "mark")
    state = value.start()
    columns = {
        "part": Column.of_objects(["a", "b", "a"]),
        "mark": Column(np.array([5, 0, 3]), np.array([True, False, True])),
    }
    state.observe(Observed(np.array([9, 9, 9]), columns, 0))
    assert state.current(0) == START_OF_TIME
    assert holder_of(state) == (
        "partition 'b' is behind the others: no record has carried a watermark yet"
    )
    columns["mark"] = Column(np.array([1, 4, 2]))
    state.observe(Observed(np.array([9, 9, 9]), columns, 0))
    assert state.current(0) == 4


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (lambda: lw.PerPartition(lw.Ascending), "not a watermark estimator"),  # type: ignore[arg-type]
        (lambda: lw.PerPartition(lw.External()), "would share"),
        (lambda: lw.PerPartition(lw.Ascending(), by=3), "name of a column"),  # type: ignore[arg-type]
        (lambda: lw.PerPartition(lw.Ascending(), expected="abc"), "not a set of partitions"),
        (lambda: lw.PerPartition(lw.Ascending(), expected=[]), "expected= names no partition"),
        (lambda: lw.PerPartition(lw.Ascending(), expected=[[1]]), "cannot be a partition"),
        (lambda: lw.PerPartition(lw.Ascending(), idle_after=0), "idle_after"),
    ],
)
def test_what_cannot_be_is_refused(build: Any, match: str) -> None:
    with pytest.raises(lw.InvalidArgument, match=match):
        build()


def test_a_column_that_is_not_there_is_told() -> None:
    state: EstimatorState = lw.PerPartition(lw.Ascending()).start()
    with pytest.raises(lw.InvalidArgument, match="gives the partition of a record"):
        state.observe(observed([(1, "a")]))
    with pytest.raises(lw.InvalidArgument, match="Did you mean 'part'"):
        lw.PerPartition(lw.Ascending(), by="prt").start().observe(observed([(1, "a")]))
    lists = {"part": Column.of_objects([[1]])}
    with pytest.raises(lw.DataError, match="plain values"):
        lw.PerPartition(lw.Ascending(), by="part").start().observe(
            Observed(np.array([1]), lists, 0)
        )


def log_of(path: Path) -> Path:
    """Make a log of two partitions, of which one runs a minute ahead of the other."""
    with Log(path, partitions=2) as log:
        for part, ahead in ((0, 60), (1, 0)):
            for at in range(3):
                row = {"t": (ahead + 20 * at) * SECOND, "k": "x"}
                log.append(pa.RecordBatch.from_pylist([row]), partition=part)
    return path


@pytest.mark.parametrize("whole", [False, True])
def test_a_log_says_which_partition_a_record_is_from(tmp_path: Path, whole: bool) -> None:
    """The one ahead makes nothing late; without partitions it would."""
    estimator: Any = lw.Ascending()
    stream = lw.read_log(
        log_of(tmp_path / "log"),
        time="t",
        watermark=lw.PerPartition(estimator, expected=range(2)) if whole else estimator,
    )
    result = stream.key_by("k").window(lw.FixedWindows("20s")).aggregate(n=lw.count())
    found = result.collect(bundle_size=1)
    assert len(found.late) == (0 if whole else 3)
    assert not any("__lw" in str(late.value) for late in found.late)


def test_a_step_that_changes_the_number_of_records_comes_behind_the_watermark(
    tmp_path: Path,
) -> None:
    def counted(watermark: Any) -> Any:
        stream = lw.read_log(log_of(tmp_path / str(id(watermark))), time="t", watermark=watermark)
        halved = stream.map_batches(lambda batch: batch.slice(0, (batch.num_rows + 1) // 2))
        windowed = halved.key_by("k").window(lw.FixedWindows("1h"))
        return windowed.aggregate(n=lw.count()).collect()

    for watermark in (lw.Ascending(), lw.PerPartition(lw.Ascending())):
        assert [pane.value for pane in counted(watermark).panes] == [3]


def test_a_step_that_keeps_the_records_keeps_their_partitions(tmp_path: Path) -> None:
    stream = lw.read_log(
        log_of(tmp_path / "log"),
        time="t",
        watermark=lw.PerPartition(lw.Ascending(), expected=[0, 1]),
    )
    for stepped in (
        stream.map(dict),
        stream.flat_map(lambda record: [record]),
        stream.map_batches(lambda batch: batch),
        stream.select("k").filter(lw.col("k") == "x"),
    ):
        windowed = stepped.key_by("k").window(lw.FixedWindows("20s"))
        assert not windowed.aggregate(n=lw.count()).collect(bundle_size=1).late
