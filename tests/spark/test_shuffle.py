"""Workers place keys in groups by the hash that every runner uses, of the keys as admitted."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import lowwater as lw
from lowwater.engine.graph.graph import Flow, Read, Stage, Windowed
from lowwater.engine.records.columns import Column
from lowwater.engine.records.expressions import Expressions
from lowwater.engine.records.key_hash import key_groups
from lowwater.engine.records.stateless import Step, WithColumns
from lowwater.io.log.conform import partitions_of
from lowwater.spark.shuffle import ShuffleWriter, numbers_of_groups, read_elements
from lowwater.spark.signals import EventTimes
from lowwater.spark.supported import Elsewhere

GROUPS = 8
NOON = dt.datetime(2000, 1, 1, 12, tzinfo=dt.UTC)
KEYS: dict[str, pa.Array] = {
    "text": pa.array([f"user-{at}" for at in range(100)]),
    "ints": pa.array(range(100), pa.int16()),
    "floats": pa.array([at / 2 for at in range(100)]),
    "decimals": pa.array([Decimal(at) / 4 for at in range(100)]),
    "dates": pa.array([dt.date(2000, 1, 1) + dt.timedelta(at) for at in range(100)]),
    "instants": pa.array([NOON + dt.timedelta(seconds=at) for at in range(100)]),
}


def placed(batch: pa.RecordBatch, *keys: str, steps: tuple[Step, ...] = ()) -> dict[Any, int]:
    """Return the group that each key of a batch is sent to."""
    read = Read(Elsewhere(), "at", watermark=lw.Ascending())
    work = Windowed(lw.Windowing(windows=lw.FixedWindows("1m")), {"n": lw.count()})
    stage = Stage((Flow(read, steps, "at"),), keys, keys, work)
    writer = ShuffleWriter(
        stage=stage,
        key_groups=GROUPS,
        on_error="dead_letter",
        signals=EventTimes(),
        keep_records=False,
        max_ahead_us=None,
        partition=lambda: 0,
    )
    groups = {number: group for group, number in enumerate(numbers_of_groups(GROUPS))}
    found: dict[Any, int] = {}
    for row in pa.Table.from_batches(list(writer(iter([batch])))).to_pylist():
        elements = read_elements([] if row["elements"] is None else [row["elements"]], len(keys))
        if elements is not None:
            columns = [column.to_list() for column in elements.bundle.keys]
            for key in zip(*columns, strict=True):
                assert found.setdefault(key, groups[row["key_group"]]) == groups[row["key_group"]]
    return found


def batch_of(**columns: pa.Array) -> pa.RecordBatch:
    length = len(next(iter(columns.values())))
    return pa.record_batch({"at": pa.array([NOON] * length), **columns})


@pytest.mark.parametrize("name", KEYS)
def test_a_key_is_in_the_group_of_its_hash(name: str) -> None:
    keys = KEYS[name]
    found = placed(batch_of(key=keys), "key")
    expected = key_groups([Column.from_arrow(keys)], GROUPS).tolist()
    assert found == {(key,): group for key, group in zip(keys.to_pylist(), expected, strict=True)}
    assert len(set(expected)) == GROUPS


def test_keys_of_several_columns_and_logs_with_as_many_partitions() -> None:
    batch = batch_of(a=KEYS["text"], b=KEYS["ints"])
    found = placed(batch, "a", "b")
    keys = zip(KEYS["text"].to_pylist(), KEYS["ints"].to_pylist(), strict=True)
    expected = partitions_of(batch, ["a", "b"], GROUPS).tolist()
    assert found == dict(zip(keys, expected, strict=True))


def test_the_type_of_a_column_does_not_move_its_keys() -> None:
    kinds = (pa.int16(), pa.int64(), pa.float64(), pa.decimal128(30, 2))
    found = [placed(batch_of(key=pa.array(range(100)).cast(kind)), "key") for kind in kinds]
    assert all(one == found[0] for one in found)


def test_dead_letters_do_not_shift_the_groups_of_others() -> None:
    keys = pa.array([None if at % 3 == 0 else f"user-{at}" for at in range(100)])
    whole = placed(batch_of(key=KEYS["text"]), "key")
    found = placed(batch_of(key=keys), "key")
    assert found == {key: group for key, group in whole.items() if key[0] in keys.to_pylist()}


def test_keys_that_steps_make_are_placed_as_they_come_out() -> None:
    step = WithColumns(Expressions(named={"key": lw.col("key").str.to_uppercase()}))
    found = placed(batch_of(key=KEYS["text"]), "key", steps=(step,))
    made = pa.array([key.upper() for key in KEYS["text"].to_pylist()])
    expected = key_groups([Column.from_arrow(made)], GROUPS).tolist()
    assert found == dict(zip([(key,) for key in made.to_pylist()], expected, strict=True))
