"""Tables: which upserts stand, when rows go, primary keys, and how tables describe themselves."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from lowwater.engine.join.joining import HOWS, How
from lowwater.io import Log
from lowwater.pipeline.joined_keys import TableKey
from lowwater.pipeline.tables import Form

Rows = list[dict[str, Any]]


def stream(*rows: Any, columns: str) -> lw.Stream:
    """Return records; the first of each row is the second of its time."""
    names = columns.split()
    records = [
        {"at": lw.Instant(at * 1_000_000), **dict(zip(names, row, strict=True))}
        for at, *row in rows
    ]
    return lw.from_iterable(records, time="at", watermark=lw.Ascending())


def upserts(*rows: Any, **options: Any) -> lw.Table[lw.Stream]:
    """Return a table of rows (second, id, version, city, gone)."""
    read = stream(*rows, columns="id v city gone")
    return read.table(key="id", deleted=lw.col("gone"), **options)


def changes(table: lw.Table[lw.Stream], **options: Any) -> list[tuple[str, int, Any]]:
    """Return how each change came: kind, second, and the row without its time."""
    made = []
    for one in table.changes().run(bundle_size=1, **options):
        row = {name: value for name, value in one.value.items() if name != "at"}
        second = int(one.timestamp) // 1_000_000
        made.append((one.kind[:1], second, tuple(row.values())))
    return made


def cities(table: lw.Table[lw.Stream], bundle_size: int) -> dict[int, str]:
    return {row["id"]: row["city"] for row in table.rows(bundle_size=bundle_size)}


SIZES = pytest.mark.parametrize("size", [1, 2, 100])


# -- which upserts stand ---------------------------------------------------------------------


def test_a_change_retracts_the_row_with_its_own_time() -> None:
    """T-2."""
    table = upserts((1, 7, 1, "Ulm", False), (5, 7, 2, "Bonn", False), (9, 7, 3, "", True))
    assert changes(table) == [
        ("i", 1, (7, 1, "Ulm", False)),
        ("r", 1, (7, 1, "Ulm", False)),
        ("i", 5, (7, 2, "Bonn", False)),
        ("r", 5, (7, 2, "Bonn", False)),
    ]


@SIZES
def test_without_order_the_later_arrival_stands(size: int) -> None:
    """T-1: whatever the event times say."""
    table = upserts((9, 7, 2, "Ulm", False), (5, 7, 1, "Bonn", False))
    result = table.changes().collect(bundle_size=size)
    assert result.metrics.superseded == 0
    assert cities(table, size) == {7: "Bonn"}


@SIZES
def test_an_upsert_of_a_lower_order_is_superseded(size: int) -> None:
    """T-1: it is ignored and counted."""
    table = upserts(
        (1, 7, 5, "Ulm", False), (2, 7, 4, "Bonn", False), (3, 8, 1, "Kiel", False),
        (4, 7, 4, "", True), order="v",
    )  # fmt: skip
    assert cities(table, size) == {7: "Ulm", 8: "Kiel"}
    metrics = table.changes().collect(bundle_size=size).metrics
    assert metrics.superseded == 2
    assert not metrics.late
    assert "2 superseded" in str(metrics)


@SIZES
def test_of_one_order_the_later_arrival_stands(size: int) -> None:
    """T-1: a row may be written again with the same version."""
    table = upserts((1, 7, 5, "Ulm", False), (0, 7, 5, "Bonn", False), order="v")
    assert cities(table, size) == {7: "Bonn"}
    assert table.changes().collect(bundle_size=size).metrics.superseded == 0


@SIZES
def test_a_null_is_the_lowest_order(size: int) -> None:
    """T-1."""
    table = upserts(
        (1, 7, None, "Ulm", False), (2, 7, None, "Bonn", False), (3, 7, -9, "Kiel", False),
        (4, 7, None, "Jena", False), order="v",
    )  # fmt: skip
    assert cities(table, size) == {7: "Kiel"}
    assert table.changes().collect(bundle_size=size).metrics.superseded == 1


@SIZES
def test_columns_of_a_row_stay_together(size: int) -> None:
    """T-1: an upsert replaces the whole row, nulls included."""
    table = upserts((1, 7, 1, "Ulm", False), (2, 7, 2, None, None), order="v")
    assert [{**row, "at": None} for row in table.rows(bundle_size=size)] == [
        {"id": 7, "at": None, "v": 2, "city": None, "gone": None}
    ]


def test_orders_that_cannot_be_compared() -> None:
    table = stream((1, 7, "x"), (2, 7, "y"), columns="id v").with_columns(v=lw.lit(None))
    assert len(table.table(key="id", order="v").rows()) == 1  # nulls only: all are equal
    mixed = stream((1, 7, "x"), (2, 7, 3), columns="id v").table(key="id", order="v")
    assert [row["v"] for row in mixed.rows(on_error="dead_letter")] == ["x"]


# -- deletes and ages ------------------------------------------------------------------------


@pytest.mark.parametrize(("keep", "found"), [("30s", {}), ("29s", {7: "Ulm"})])
def test_a_tombstone_is_remembered_for_keep_deleted(keep: str, found: dict[int, str]) -> None:
    """T-1: in event time, from the time of the delete; 8 only moves the watermark."""
    table = upserts(
        (10, 7, 5, "", True), (40, 8, 1, "x", True), (41, 7, 4, "Ulm", False),
        order="v", keep_deleted=keep,
    )  # fmt: skip
    assert cities(table, 1) == found


def test_a_day_is_remembered_by_default() -> None:
    day = 86_400
    read = stream((0, 7, 5, True), (day, 8, 1, False), (day, 7, 4, False), columns="id v gone")
    for keep, keys in ((None, [8]), ("23h", [8, 7])):
        table = read.table(key="id", order="v", deleted=lw.col("gone"), keep_deleted=keep)
        assert [row["id"] for row in table.rows(bundle_size=1)] == keys


def test_a_newer_upsert_brings_a_deleted_row_back() -> None:
    table = upserts((1, 7, 1, "", True), (2, 7, 2, "Ulm", False), order="v")
    assert changes(table) == [("i", 2, (7, 2, "Ulm", False))]


def test_a_null_does_not_delete() -> None:
    assert cities(upserts((1, 7, 1, "Ulm", None)), 1) == {7: "Ulm"}


def test_a_row_is_deleted_when_the_watermark_passes_its_time_to_live() -> None:
    """T-3: the retraction has the row's own time; a change begins the time again."""
    table = upserts(
        (0, 7, 1, "Ulm", False), (20, 7, 1, "Bonn", False), (31, 8, 1, "a", False),
        (51, 8, 1, "b", False), ttl="30s",
    )  # fmt: skip
    assert [(kind, at, row[2]) for kind, at, row in changes(table)] == [
        ("i", 0, "Ulm"), ("r", 0, "Ulm"), ("i", 20, "Bonn"), ("i", 31, "a"), ("r", 20, "Bonn"),
        ("r", 31, "a"), ("i", 51, "b"),
    ]  # fmt: skip


def test_the_end_of_the_input_deletes_nothing() -> None:
    table = upserts((0, 7, 1, "Ulm", False), ttl="30s")
    assert changes(table) == [("i", 0, (7, 1, "Ulm", False))]


def test_nothing_is_late_in_a_table() -> None:
    """T-2: an upsert far below the watermark changes the row, and the watermark is not held."""
    table = upserts((50, 7, 1, "Ulm", False), (1, 7, 2, "Bonn", False), (2, 8, 1, "x", False))
    result = table.changes().collect(bundle_size=1)
    assert not result.metrics.late
    assert cities(table, 1) == {7: "Bonn", 8: "x"}


# -- changes ---------------------------------------------------------------------------------


@SIZES
def test_a_table_is_the_sum_of_its_changes(size: int) -> None:
    """T-4, T-5: after each change a key has one row or none, that of the upserts so far."""
    rows = [
        (1, 7, 1, "Ulm", False), (2, 8, 1, "Bonn", False), (3, 7, 3, "Kiel", False),
        (4, 7, 2, "Jena", False), (5, 8, 2, "", True), (6, 8, 3, "Trier", False),
    ]  # fmt: skip
    table = upserts(*rows, order="v")
    summed: dict[int, list[str]] = {}
    for one in table.changes().run(bundle_size=size):
        cities_of = summed.setdefault(one.value["id"], [])
        if one.kind == "retract":
            cities_of.remove(one.value["city"])
        else:
            cities_of.append(one.value["city"])
    assert summed == {7: ["Kiel"], 8: ["Trier"]}
    again = table.select("id", "v", "city").changes(form="upsert")
    assert cities(again.table(key="id", deleted=lw.col("deleted")), size) == {7: "Kiel", 8: "Trier"}


def test_a_process_reads_which_changes_are_retractions() -> None:
    """T-2: windows refuse the changes of a table; a process takes them, with ``kind``."""

    class Kinds:
        def on_record(self, record: dict[str, Any], ctx: lw.ProcessContext) -> None:
            ctx.emit({"kind_of": record["kind"], "city": record["city"]})

    table = upserts((1, 7, 1, "Ulm", False), (2, 7, 2, "Bonn", False))
    process = table.changes().key_by("id").process(Kinds())
    made = [
        (one.value["kind_of"], one.value["city"])
        for one in process.collect(bundle_size=1).elements()
    ]
    assert made == [("insert", "Ulm"), ("retract", "Ulm"), ("insert", "Bonn")]


@pytest.mark.parametrize("step", ["group_by", "join"])
def test_a_null_is_a_group_and_matches_nothing(step: str) -> None:
    """T-3: and nothing is left of it when the row changes."""
    table = upserts((1, 7, 1, None, False), (2, 8, 1, "Ulm", False), (3, 7, 2, "Ulm", False))
    if step == "join":
        other = table.select("id", "city")
        needing = other.join(other, on="city", how="outer")
        first = [
            {"city": None, "id": 7, "id_right": None},
            {"city": None, "id": None, "id_right": 7},
        ]
    else:
        needing = table.group_by("city").aggregate(n=lw.count())
        first = [{"city": None, "n": 1}]
    changes = [(one.kind, one.value) for one in needing.changes().run(bundle_size=1)]
    of_null = [change for change in changes if change[1]["city"] is None]
    assert of_null == [(kind, row) for kind in ("insert", "retract") for row in first]
    assert len(needing.rows(bundle_size=1)) == (1 if step == "group_by" else 4)


def test_the_primary_key_of_a_table_of_upserts_holds_no_null() -> None:
    rows = stream((1, 7, None), (2, 8, "Ulm"), columns="id city")
    found = rows.table(key="city").changes().collect(on_error="dead_letter")
    assert [error.reason for error in found.errors] == ["null_key"]
    assert [one.value["city"] for one in found.elements()] == ["Ulm"]


def test_rows_of_an_outer_join_with_one_key_stay_apart() -> None:
    """T-3: one of each side alone, both with the key null; what tells them apart is not seen."""
    table = upserts((1, 7, 1, None, False), (2, 8, 1, "Ulm", False))
    groups = table.group_by("city").aggregate(n=lw.count())
    both = groups.join(table.group_by("city").aggregate(v=lw.sum("v")), on="city", how="outer")
    assert both.key == ("city",)
    assert both.columns == ("city", "n", "v")
    wanted = [
        {"city": None, "n": 1, "v": None},
        {"city": None, "n": None, "v": 1},
        {"city": "Ulm", "n": 1, "v": 1},
    ]
    assert both.rows(bundle_size=1) == wanted
    assert both.filter(~lw.col("v").is_null()).select("city", "v").rows(bundle_size=1) == [
        {"city": None, "v": 1}, {"city": "Ulm", "v": 1},
    ]  # fmt: skip
    for form in get_args(Form):
        found = both.changes(form).collect(bundle_size=1)
        assert len(found.elements()) == (5 if form == "retract" else 3)
        assert "__lw" not in str(found.elements()) + str(found.to_arrow().column_names)
    events = both.changes("debezium").key_by("op").window(lw.GlobalWindow())
    assert {pane.key: pane.value for pane in events.aggregate(lw.count()).run()} == {"c": 3}


# -- groups ----------------------------------------------------------------------------------


def test_a_group_has_the_time_of_its_latest_change() -> None:
    """T-3: also of one that took a row away; a group without rows is deleted."""
    moves = upserts(
        (1, 7, 1, "Ulm", False), (5, 8, 1, "Ulm", False), (3, 9, 1, "Ulm", False),
        (9, 7, 1, "Bonn", False), (11, 7, 1, "", True),
    )  # fmt: skip
    by_city = moves.group_by("city").aggregate(n=lw.count())
    assert by_city.key == ("city",)
    assert changes(by_city) == [
        ("i", 1, ("Ulm", 1)),
        ("r", 1, ("Ulm", 1)),
        ("i", 5, ("Ulm", 2)),
        ("r", 5, ("Ulm", 2)),
        ("i", 5, ("Ulm", 3)),
        ("r", 5, ("Ulm", 3)),
        ("i", 5, ("Ulm", 2)),
        ("i", 9, ("Bonn", 1)),
        ("r", 9, ("Bonn", 1)),
    ]


@SIZES
def test_aggregates_follow_rows_that_go(size: int) -> None:
    moves = upserts(
        (1, 7, 30, "Ulm", False), (2, 8, 50, "Ulm", False), (3, 8, 50, "Bonn", False),
        (4, 9, 10, "Bonn", False), (5, 9, 10, "", True),
    )  # fmt: skip
    made = moves.group_by("city").aggregate(lw.count(), most=lw.max("v"), all=lw.sum("v"))
    assert sorted(made.rows(bundle_size=size), key=lambda row: row["city"]) == [
        {"city": "Bonn", "count": 1, "most": 50, "all": 50},
        {"city": "Ulm", "count": 1, "most": 30, "all": 30},
    ]


# -- primary keys (T-3) ----------------------------------------------------------------------

USERS = stream((1, 1, "ann", 5), columns="id name oid").table(key="id")
PARTS = stream((1, 1, 1, "x"), columns="shop part name").table(key=("shop", "part"))
ORDERS = stream((2, 10, 1, 7), columns="oid user amount").table(key="oid")

BOTH = {"inner": ("oid",), "left": ("oid",), "right": ("oid", "user"), "outer": ("oid", "user")}


@pytest.mark.parametrize("how", HOWS)
def test_on_the_right_key_the_result_has_the_left_key(how: How) -> None:
    joined = ORDERS.join(USERS.select("id", "name"), left_on="user", right_on="id", how=how)
    assert joined.key == BOTH.get(how, ("oid",))


@pytest.mark.parametrize("how", HOWS)
def test_on_both_keys_the_result_has_it_once(how: How) -> None:
    """The key is called as on the left."""
    assert USERS.join(ORDERS, left_on="id", right_on="oid", how=how).key == ("id",)
    assert USERS.join(USERS.filter(lw.col("oid") > 3), on="id", how=how).key == ("id",)
    twice = PARTS.join(PARTS, left_on=("part", "shop"), right_on=("shop", "part"), how=how)
    assert twice.key == ("shop", "part")


@pytest.mark.parametrize("how", ["inner", "left", "right", "outer"])
def test_else_the_result_has_both_keys(how: How) -> None:
    assert USERS.join(ORDERS, left_on="id", right_on="user", how=how).key == ("id", "oid_right")
    assert USERS.join(USERS, on="name", how=how).key == ("id", "id_right")
    assert USERS.join(PARTS, on="name", how=how).key == ("id", "shop", "part")
    # Part of the right key is joined on: it is called as on the left.
    joined = USERS.join(PARTS.select("shop", "part"), left_on="oid", right_on="part", how=how)
    assert joined.key == ("id", "shop", "oid")


def test_suffixes_are_part_of_the_key() -> None:
    joined = USERS.join(USERS, on="name", suffixes=("_one", "_two"))
    assert joined.key == ("id_one", "id_two")
    # The right table has a column that is called like the left key.
    first = ORDERS.join(USERS, left_on="user", right_on="id", suffixes=("_left", ""))
    assert first.key == ("oid_left",)
    assert first.columns == ("user", "oid_left", "at_left", "amount", "at", "name", "oid")
    last = ORDERS.join(USERS, left_on="user", right_on="id", suffixes=("_left", ""), how="left")
    assert (last.key, last._key.nullable) == (("oid_left",), False)


@pytest.mark.parametrize("how", HOWS)
def test_rows_of_a_join_have_a_primary_key(how: How) -> None:
    many = stream(
        (1, 1, "a", 1), (2, 2, "a", 1), (3, 3, "b", 2), (4, 4, None, 9), columns="id name oid"
    ).table(key="id")
    other = stream(
        (1, 1, 1, 7), (2, 2, 2, 8), (3, 3, 3, 8), (4, 4, 1, 9), columns="oid user amount"
    ).table(key="oid")
    names = many.select("id", "name")
    for joined in (
        many.join(other, left_on="id", right_on="user", how=how),
        other.join(many, left_on="user", right_on="id", how=how, suffixes=("_l", "_r")),
        names.join(names.filter(lw.col("id") > 1), on="name", how=how),
        names.join(names.filter(lw.col("id") > 1), on="id", how=how),
    ):
        rows = joined.rows()
        assert len({tuple(row[name] for name in joined.key) for row in rows}) == len(rows)


def test_steps_keep_the_key() -> None:
    steps = PARTS.filter(lw.col("part") > 0).with_columns(n=lw.col("part") + 1)
    assert steps.select("part", "shop", "n").key == ("shop", "part")
    assert steps.columns == ("shop", "part", "at", "name", "n")
    assert steps.group_by("name", "shop").aggregate(n=lw.sum("n")).key == ("name", "shop")


# -- how they describe themselves ------------------------------------------------------------


def test_reprs() -> None:
    table = upserts((1, 7, 1, "Ulm", False), order="v", ttl="1h")
    read = "IterableSource(list of 1) → with_columns(__lw_deleted=col(gone))"
    made = f"{read} → table(key='id', order='v', ttl='1h')"
    assert repr(table) == f"Table({made}, key='id')"
    assert repr(table.select("id", "city").changes()) == f"Stream({made} → select('id', 'city'))"
    users = "IterableSource(list of 1) → table(key='id')"
    orders = "IterableSource(list of 1) → table(key='oid')"
    joined = ORDERS.join(USERS, left_on="user", right_on="id", how="right")
    options = "left_on='user', right_on='id', how='right'"
    assert repr(joined) == f"Table({orders} → join({users}, {options}), key='oid', 'user')"
    grouped = USERS.group_by("name", "oid")
    assert repr(grouped) == f"GroupedTable(Table({users}, key='id') by 'name', 'oid')"
    counted = repr(grouped.aggregate(n=lw.count()))
    assert counted == f"Table({users} → aggregate(n=count()) by 'name', 'oid', key='name', 'oid')"
    assert "table(key=('shop', 'part'))" in repr(PARTS)


def test_explanations() -> None:
    joined = ORDERS.join(USERS.named("people"), left_on="user", right_on="id", how="left")
    text = joined.named("owned").group_by("name").aggregate(n=lw.count()).explain()
    lines = [line.strip() for line in text.splitlines()]
    assert "people" in text
    assert "owned" in text
    for told in (
        "table(key='oid')",
        "reads left: stage 1",
        "reads right: people",
        "exchanges records by: user (left), id (right)",
        "left join of tables",
        "exchanges records by: name",
        "n = count()",
        "applies upstream retractions",
    ):
        assert told in lines, told


def test_a_table_without_a_stage_has_no_name() -> None:
    read = stream((1, 7), columns="id")
    with pytest.raises(lw.InvalidArgument, match="no stage of its own"):
        lw.Table(read, TableKey(("id",))).named("people")


# -- logs ------------------------------------------------------------------------------------

EVENTS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 5), st.booleans()), min_size=1, max_size=12
)


@given(events=EVENTS, cuts=st.sets(st.integers(1, 11)), by_order=st.booleans())
def test_a_compacted_log_makes_the_same_table(
    tmp_path_factory: pytest.TempPathFactory,
    events: list[tuple[int, int, bool]],
    cuts: set[int],
    by_order: bool,
) -> None:
    """``Log.compact`` keeps the last record of each key, and with it the row (T-1).

    Versions grow within each key, as they do where the log is the source of truth.
    """
    path: Path = tmp_path_factory.mktemp("log")
    rows = [
        {"at": 1_000 - at * value, "k": key, "v": value, "version": at, "gone": gone}
        for at, (key, value, gone) in enumerate(events)
    ]
    edges = [0, *sorted(cut for cut in cuts if cut < len(rows)), len(rows)]

    def table() -> Rows:
        read = lw.read_log(path, time="at")
        made = read.table(key="k", order="version" if by_order else None, deleted=lw.col("gone"))
        return sorted(made.rows(), key=lambda row: row["k"])

    with Log(path, segment_bytes=1) as log:
        for start, stop in pairwise(edges):
            log.append(rows[start:stop])
        before = table()
        stands = {row["k"]: row for row in rows}
        assert before == [stands[key] for key in sorted(stands) if not stands[key]["gone"]]
        log.compact("k", deleted=lw.col("gone"), keep_deleted="0s")
        assert table() == before
        log.compact("k", deleted=lw.col("gone"), keep_deleted="0s")  # forgets deleted keys
        assert table() == before
