"""The records that are due come by time and arrival, however their queue holds them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowwater.engine.keyed.records import KeyedRecords
from lowwater.engine.records.columns import Column
from lowwater.state.deadlines import Deadlines
from lowwater.state.table import Field
from lowwater.time import Int64Array

pytestmark = pytest.mark.usefixtures("kernels")

TIMES = st.integers(-5, 20)


def inserted(records: KeyedRecords, times: list[int]) -> Int64Array:
    count = len(times)
    value = Column(np.arange(count))
    return records.insert(
        np.arange(count) % 3, np.array(times, dtype=np.int64), {"value": value}, None
    )


@given(
    st.lists(st.tuples(st.lists(TIMES, min_size=1, max_size=40), TIMES), max_size=8),
    st.booleans(),
    st.booleans(),
)
def test_due_records_like_a_sort(
    steps: list[tuple[list[int], int]], found_by_key: bool, again: bool
) -> None:
    records = KeyedRecords({"value": None}, found_by_key=found_by_key)
    waiting: list[tuple[int, int]] = []
    for times, upto in steps:
        first = records.births
        rows = inserted(records, times)
        waiting += zip(times, range(first, records.births), strict=True)
        if again:  # an entry may be there twice, and in another order
            records.by_time.push(records.table["start"][rows[::-1]], rows[::-1])
        due = records.take_due(records.by_time, upto)
        found = zip(
            records.table["start"][due].tolist(), records.table["born"][due].tolist(), strict=True
        )
        assert list(found) == sorted(entry for entry in waiting if entry[0] <= upto)
        waiting = [entry for entry in waiting if entry[0] > upto]
        records.remove(due)
        records.release_removed()
        records._check()


@given(st.lists(st.tuples(TIMES, TIMES), min_size=1, max_size=60), TIMES)
def test_due_by_another_column_like_a_sort(given_: list[tuple[int, int]], upto: int) -> None:
    records = KeyedRecords({"value": None}, [Field("until", np.int64)])
    rows = inserted(records, [time for time, _ in given_])
    until = np.array([until for _, until in given_], dtype=np.int64)
    records.table["until"][rows] = until
    queue = Deadlines()
    queue.push(until[::-1], rows[::-1])
    due = records.take_due(queue, upto, "until")
    wanted = sorted((until, time, born) for born, (time, until) in enumerate(given_))
    found = zip(
        *(records.table[name][due].tolist() for name in ("until", "start", "born")), strict=True
    )
    assert list(found) == [entry for entry in wanted if entry[0] <= upto]


def test_due_records_of_one_time_from_many_bundles() -> None:
    """Those of a later bundle are popped before those of an earlier one."""
    random = np.random.default_rng(1)
    records = KeyedRecords({"value": None}, found_by_key=False)
    for count in (20_000, 5_000, 900, 40, 5):
        inserted(records, random.integers(0, 50, count).tolist())
    due = records.take_due(records.by_time, 40)
    times, born = records.table["start"][due], records.table["born"][due]
    wanted = np.lexsort((born, times))
    assert np.array_equal(wanted, np.arange(len(due)))
    assert len(due) > 20_000
