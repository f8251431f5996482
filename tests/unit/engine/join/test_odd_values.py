"""Joins and tables over values that are nested, change their type, or are not there."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lowwater as lw
from lowwater.engine.join.tables import UpsertOperator
from lowwater.engine.join.upserting import Upserting
from lowwater.engine.records.columns import Column
from lowwater.engine.records.steps import Bundle
from lowwater.state.key_layout import StoredPlace
from lowwater.state.memory import MemoryStore
from lowwater.state.store import Batch


def at(minute: int) -> str:
    return f"2000-01-01T00:{minute:02d}:00Z"


def stream(*rows: dict[str, Any]) -> lw.Stream:
    return lw.from_iterable(list(rows), time="at", watermark=lw.Ascending())


def upsert(time: int, key: str, column: Column) -> Bundle:
    return Bundle(np.array([time]), (Column.of_objects([key]),), {"v": column})


def test_a_stored_value_is_the_same_after_its_column_has_changed_its_type() -> None:
    store = MemoryStore()

    def made() -> UpsertOperator:
        operator = UpsertOperator(Upserting(), {})
        operator.keep_in_store(StoredPlace("table", 0, 1))
        operator.restore(store)
        return operator

    def save(operator: UpsertOperator) -> None:
        batch = Batch()
        operator.save(batch)
        store.commit(batch)

    day = dt.date(2000, 1, 5)
    operator = made()
    operator.step(upsert(1, "a", Column.from_arrow(pa.array([day]))))
    save(operator)
    operator.step(upsert(2, "b", Column.of_objects(["text"])))
    save(operator)
    output = made().step(upsert(3, "a", Column.of_objects(["new"])))
    (emitted,) = output.emitted.values()
    assert emitted.to_list() == [{"v": day}, {"v": "new"}]


@pytest.mark.parametrize("nested", [[1, 2], {"x": [1]}, [{"a": None}]])
def test_records_with_nested_values_are_retracted(nested: Any) -> None:
    rows = stream(
        {"at": at(0), "id": 1, "g": 1, "v": nested}, {"at": at(1), "id": 1, "g": 1, "v": [3]}
    )
    names = stream({"at": at(0), "g": 1, "name": "n"}).table(key="g")
    joined = rows.table(key="id").join(names, on="g").changes().collect(bundle_size=1)
    kinds = [one.kind for one in joined.elements()]
    assert kinds == ["insert", "retract", "insert"]


def test_rows_come_out_at_the_end_whatever_the_interval() -> None:
    left, right = stream({"at": at(0), "k": 1}), stream({"at": at(0), "k": 2, "n": 1})
    for unmatched in ("final", "on_time", "early"):
        joined = left.join(right, on="k", within="106751000d", how="left", unmatched=unmatched)
        assert [one.key for one in joined.collect().elements()] == [1]


def test_an_order_that_some_records_lack_is_the_lowest() -> None:
    rows = stream({"at": at(0), "id": 1, "v": 1}, {"at": at(1), "id": 1, "v": 2, "o": 3},
                  {"at": at(2), "id": 1, "v": 3})  # fmt: skip
    changes = rows.table(key="id", order="o").changes().collect(bundle_size=1)
    assert [(one.kind, one.value["v"]) for one in changes.elements()] == [
        ("insert", 1), ("retract", 1), ("insert", 2),
    ]  # fmt: skip
    assert changes.metrics.superseded == 1


def test_a_value_is_not_made_one_of_another_type() -> None:
    day = dt.date(2000, 1, 1)
    first = lw.from_arrow(
        pa.table({"at": pa.array([0], pa.timestamp("us", "UTC")), "k": [1], "v": [day]}),
        time="at",
    )
    second = lw.from_iterable([{"at": 1, "i": 0}], time="at").map(
        lambda record: {"at": record["at"], "k": 2, "v": 5}
    )
    right = lw.from_iterable([{"at": 2, "k": 1}, {"at": 3, "k": 2}], time="at")
    both = (first | second).select("k", "v")
    joined = both.join(right, on="k", within="1s").collect()
    assert sorted(one.value["v"] for one in joined.elements() if one.key == 2) == [5]


def test_a_row_with_a_long_life_is_deleted_in_time() -> None:
    rows = lw.from_iterable(
        [{"at": at(0), "id": 1}, {"at": at(40), "id": 2}], time="at", watermark=lw.Ascending()
    )
    table = rows.table(key="id", ttl="30m", keep_deleted="1m")
    kinds = [(one.kind, one.value["id"]) for one in table.changes().collect().elements()]
    assert kinds == [("insert", 1), ("retract", 1), ("insert", 2)]


def test_a_process_cannot_put_the_changes_of_a_table_in_order() -> None:
    """Old rows are retracted at their own times, which the watermark has long passed."""

    class Repeat:
        def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
            ctx.emit(record)

    changes = stream({"at": at(0), "id": 1}).table(key="id").changes().key_by("id")
    with pytest.raises(lw.InvalidArgument, match=r"changes of a table.*process\(order=\)"):
        changes.process(Repeat(), order="event_time")
