"""``explode`` makes what a loop over the items makes, for each record by itself (S-B1)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from lowwater.engine.records.batch import Records
from lowwater.engine.records.explode import Explode
from lowwater.engine.records.stateless import no_records
from tests.examples import examples

ITEMS = st.sampled_from(
    [None, 0, 2**53 + 1, 2**80, 0.5, -0.0, float("nan"), "", "a", "\ud800", b"b"]
)
NESTED = st.one_of(ITEMS, st.lists(ITEMS, max_size=2), st.dictionaries(st.just("x"), ITEMS))
LISTS = st.lists(NESTED, max_size=4)
OTHERS = st.sampled_from([7, "ab", {"a": [1]}, {1, 2}, b"xy", 2**80, True])
VALUES = st.one_of(st.none(), LISTS, LISTS, LISTS.map(tuple), OTHERS)


def is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple))


@examples(3)
@given(st.lists(VALUES, max_size=12), st.integers(1, 12))
def test_each_item_is_a_record(values: list[Any], size: int) -> None:
    rows = [{"at": 0, "n": n, "l": value, "same": [n]} for n, value in enumerate(values)]
    stream = lw.from_iterable(rows, time="at").explode("l")
    made: list[tuple[int, str, Any]] = []

    def note(record: Any) -> Any:
        made.append((record["n"], repr(record["l"]), record["same"]))
        return {"at": 0, "n": record["n"]}

    seen: list[lw.ErrorRecord] = []
    passed = list(stream.map(note).run(on_dead_letter=seen.append, bundle_size=size))
    wanted = [
        (n, repr(item), [n]) for n, value in enumerate(values) if is_list(value) for item in value
    ]
    assert made == wanted
    assert [one.value["n"] for one in passed] == [n for n, _, _ in wanted]
    dead = [n for n, value in enumerate(values) if value is not None and not is_list(value)]
    assert [one.record["n"] for one in seen] == dead
    assert {one.reason for one in seen} <= {"not_a_list"}


KINDS = st.sampled_from([pa.list_(pa.int64()), pa.large_list(pa.int64()), pa.list_(pa.int64(), 2)])


@given(KINDS, st.lists(st.lists(st.none() | st.integers(-9, 9), max_size=3), max_size=9), st.data())
def test_lists_of_arrow_are_as_those_of_python(kind: Any, lists: list[Any], data: Any) -> None:
    if pa.types.is_fixed_size_list(kind):
        lists = [[*one, 1, 2][:2] for one in lists]
    gone = data.draw(st.sets(st.integers(0, 8)))
    lists = [None if n in gone else one for n, one in enumerate(lists)]
    numbers = list(range(len(lists)))
    batch = pa.record_batch({"l": pa.array(lists, kind), "n": pa.array(numbers, pa.int64())})
    start = data.draw(st.integers(0, len(lists)))
    done = (
        Explode("l").apply(Records.from_arrow(batch.slice(start))) if start < len(lists) else None
    )
    wanted = [(n, item) for n in numbers[start:] for item in lists[n] or ()]
    rows = [] if done is None else done.records.rows()
    assert [(one["n"], one["l"]) for one in rows] == wanted
    checked = Explode("l").apply(no_records(batch.schema)).records
    assert checked.columns["l"].to_arrow().type == pa.int64()


EVENTS = st.lists(
    st.tuples(st.integers(0, 30), st.sampled_from("ab"), st.integers(0, 3)), max_size=15
)


@examples(2)
@given(EVENTS, st.integers(1, 5))
def test_items_of_what_is_retracted_are_retracted(events: list[Any], size: int) -> None:
    """A window emits its list again and again; what stands is of the last one."""
    rows = [{"at": at, "k": key, "v": value} for at, key, value in events]
    lists = (
        lw.from_iterable(rows, time="at", unit="s", watermark=lw.BoundedDisorder("60s"))
        .key_by("k")
        .window(
            lw.FixedWindows("10s"),
            trigger=lw.Repeatedly(lw.AfterCount(1)),
            accumulation="retracting",
        )
        .aggregate(vs=lw.collect("v"))
    )
    counted = (
        lists.explode("vs").key_by("k", "vs").window(lw.FixedWindows("10s")).aggregate(c=lw.count())
    )
    result = counted.collect(bundle_size=size)
    found = {(one.window.start, *one.key): one.value for one in result.final()}
    wanted = Counter((lw.Instant(at // 10 * 10_000_000), key, value) for at, key, value in events)
    assert {key: count for key, count in found.items() if count} == wanted
    assert not result.errors
