"""The forms of a table's changes: retractions, upserts, and Debezium's."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from lowwater.engine.graph.graph import is_signed
from lowwater.engine.join.changes import DebeziumForm, UpsertForm, net_changes
from lowwater.engine.records.batch import Records
from lowwater.engine.records.columns import Column
from lowwater.engine.records.pane_table import SIGN
from lowwater.engine.records.stage_output import TIME
from lowwater.errors import InvalidArgument
from lowwater.pipeline import Stream
from lowwater.pipeline.tables import Form, Table

GONE = lw.col("gone")
MOVES = [
    {"at": "2000-01-01T00:00:01Z", "id": 1, "city": "Ulm", "gone": False},
    {"at": "2000-01-01T00:00:02Z", "id": 2, "city": "Bonn", "gone": False},
    {"at": "2000-01-01T00:00:03Z", "id": 1, "city": "Bonn", "gone": False},
    {"at": "2000-01-01T00:00:04Z", "id": 2, "city": "Bonn", "gone": True},
]
START_MS = 946_684_800_000


class Same:
    """Emits each record."""

    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        ctx.emit(dict(record))


def people() -> Table[Stream]:
    stream = lw.from_iterable(MOVES, time="at").table(key="id", deleted=GONE)
    return stream.select("id", "city")


def changes(form: Form, size: int) -> list[Any]:
    stream = people().changes(form)
    return [one.value for one in stream.key_by(lambda _: 0).process(Same()).run(bundle_size=size)]


@pytest.mark.parametrize("size", [1, 100])
def test_keys_of_one_hash_are_not_equal(size: int) -> None:
    """T-4: those of -1 and -2, and of what Python's hash takes modulo a prime."""
    ids = [-1, -2, 3, 3 + 2**61 - 1]
    rows = [{"at": lw.Instant(0), "id": one, "v": n} for n, one in enumerate(ids)]
    table = lw.from_iterable(rows, time="at").table(key="id").select("id", "v")
    upserts = [one.value for one in table.changes("upsert").run(bundle_size=size)]
    assert {one["id"]: one["v"] for one in upserts} == {one: n for n, one in enumerate(ids)}
    found = [one.value["after"]["id"] for one in table.changes("debezium").run(bundle_size=size)]
    assert sorted(found) == sorted(ids)


def test_an_update_to_a_value_of_the_same_hash_is_one() -> None:
    rows = [{"at": lw.Instant(0), "id": 1, "v": v} for v in (-1, -2, -1)]
    table = lw.from_iterable(rows, time="at").table(key="id").select("id", "v")
    for each in (table, table.top(1, by="v")):
        found = [(one.kind, one.value["v"]) for one in each.changes().run(bundle_size=1)]
        assert found == [
            ("insert", -1), ("retract", -1), ("insert", -2), ("retract", -2), ("insert", -1),
        ], each  # fmt: skip


def test_upserts() -> None:
    assert changes("upsert", 1) == [
        {"id": 1, "city": "Ulm", "deleted": False},
        {"id": 2, "city": "Bonn", "deleted": False},
        {"id": 1, "city": "Bonn", "deleted": False},
        {"id": 2, "city": None, "deleted": True},
    ]


def test_one_upsert_per_batch_and_key() -> None:
    assert changes("upsert", 2) == [
        {"id": 1, "city": "Ulm", "deleted": False},
        {"id": 2, "city": "Bonn", "deleted": False},
        {"id": 2, "city": None, "deleted": True},
        {"id": 1, "city": "Bonn", "deleted": False},
    ]


def test_debezium() -> None:
    ulm, bonn, two = {"id": 1, "city": "Ulm"}, {"id": 1, "city": "Bonn"}, {"id": 2, "city": "Bonn"}
    assert changes("debezium", 1) == [
        {"op": "c", "before": None, "after": ulm, "ts_ms": START_MS + 1_000},
        {"op": "c", "before": None, "after": two, "ts_ms": START_MS + 2_000},
        {"op": "u", "before": ulm, "after": bonn, "ts_ms": START_MS + 3_000},
        {"op": "d", "before": two, "after": None, "ts_ms": START_MS + 2_000},
    ]


def test_which_forms_retract() -> None:
    forms: tuple[Form, ...] = ("retract", "upsert", "debezium")
    assert [is_signed(people().changes(form)._flows[0]) for form in forms] == [True, False, False]


def test_windows_over_upserts() -> None:
    stream = people().changes("upsert")
    pipeline = (
        stream.key_by("id")
        .window(lw.FixedWindows("1m"))
        .aggregate(n=lw.count(), gone=lw.any("deleted"))
    )
    found = {pane.key: pane.values for pane in pipeline.run(bundle_size=1)}
    assert found == {1: {"n": 2, "gone": False}, 2: {"n": 2, "gone": True}}


def test_upserts_make_the_same_table() -> None:
    again = people().changes("upsert").table(key="id", deleted=lw.col("deleted"))
    assert again.select("id", "city").rows(bundle_size=1) == people().rows(bundle_size=1)


def test_what_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"form='upserts'.*is not known"):
        people().changes("upserts")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="the table has a column 'deleted'"):
        people().with_columns(deleted=lw.col("city")).changes("upsert")


def test_columns_that_are_known() -> None:
    assert people().changes("upsert")._known == (TIME, "id", "city", "deleted")
    assert people().changes("debezium")._known == ("op", "before", "after", "ts_ms", TIME)


def records(rows: list[tuple[int, Any, int, int]]) -> Records:
    """Return changes: key, value, time, sign."""
    keys, values, times, signs = zip(*rows, strict=True) if rows else ((), (), (), ())
    columns = {
        "k": Column.from_arrow(pa.array(keys, pa.int64())),
        "v": Column.of_objects(list(values)),
        TIME: Column(np.array(times, dtype=np.int64), None, pa.timestamp("us", "UTC")),
        SIGN: Column(np.array(signs, dtype=np.int64)),
    }
    return Records(columns, len(rows))


@st.composite
def signed_rows(draw: st.DrawFn) -> tuple[dict[int, Any], list[tuple[int, Any, int, int]]]:
    """Draw the rows that stood before, and changes in any order within what they come to."""
    values = st.sampled_from([0, 1, None, float("nan"), {"x": 1}, [1]])
    held = draw(st.dictionaries(st.integers(0, 3), st.tuples(values, st.integers(0, 2))))
    before = dict(held)
    rows = []
    for key in draw(st.lists(st.integers(0, 4), max_size=12)):
        if key in held:
            rows.append((key, *held.pop(key), -1))
        if draw(st.booleans()):
            held[key] = (draw(values), draw(st.integers(0, 2)))
            rows.append((key, *held[key], 1))
    return before, draw(st.permutations(rows))


@given(signed_rows())
def test_what_changes_come_to(given: tuple[dict[int, Any], list[Any]]) -> None:
    before, rows = given
    net = net_changes(records(rows), ["k"])
    sums = Counter[str]()
    for key, value, time, sign in rows:
        sums[repr((key, value, time))] += sign
    gone = sorted(repr(rows[at][:3]) for at in net.before if at >= 0)
    come = sorted(repr(rows[at][:3]) for at in net.after if at >= 0)
    assert gone == sorted(row for row, count in sums.items() if count < 0)
    assert come == sorted(row for row, count in sums.items() if count > 0)
    for first, second in zip(net.before, net.after, strict=True):
        assert first < 0 or second < 0 or rows[first][0] == rows[second][0]
    assert all(rows[at][0] in before for at in net.before if at >= 0)
    if rows and all(type(value) is int for _, value, _, _ in rows):
        for form in (UpsertForm(("k",)), DebeziumForm(("k",))):
            assert len(form.apply(records(rows)).records) == len(net.after)
