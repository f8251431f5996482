"""Tables from explicit changes, and from Debezium's."""

from __future__ import annotations

import datetime as dt
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from lowwater.errors import DataError, InvalidArgument

ULM, BONN = {"id": 1, "city": "Ulm"}, {"id": 1, "city": "Bonn"}


def change(op: Any, before: Any, after: Any, at: int = 1, **more: Any) -> dict[str, Any]:
    return {"ts_ms": 946_684_800_000 + at, "op": op, "before": before, "after": after, **more}


def stream(changes: list[dict[str, Any]]) -> lw.Stream:
    return lw.from_iterable(changes, time="ts_ms", unit="ms")


def rows(changes: list[dict[str, Any]], **options: Any) -> list[dict[str, Any]]:
    return lw.debezium(stream(changes), key="id").rows(progress=False, **options)


@pytest.mark.parametrize("size", [1, 2, 100])
def test_each_operation(size: int) -> None:
    two = {"id": 2, "city": "Jena"}
    changes = [
        change("r", None, ULM),
        change("c", None, two),
        change("u", ULM, BONN),
        change("d", two, None),
        change(None, None, None),
    ]
    assert rows(changes, bundle_size=size) == [BONN]
    assert rows(changes[:3], bundle_size=size) == [two, BONN]


def test_a_delete_needs_only_the_key() -> None:
    assert rows([change("c", None, ULM), change("d", {"id": 1}, None)], bundle_size=1) == []


def test_an_update_of_the_key() -> None:
    moved = {"id": 2, "city": "Ulm"}
    assert rows([change("c", None, ULM), change("u", ULM, moved)], bundle_size=1) == [moved]
    assert rows([change("c", None, ULM), change("u", ULM, moved)]) == [moved]


NO_KEYS = [10**30, Fraction(1, 3), None, float("nan"), [1], (1, float("nan")), {"a": 1}, "\ud800"]


@pytest.mark.parametrize("size", [1, 100])
@pytest.mark.parametrize("key", NO_KEYS, ids=repr)
def test_an_update_to_what_is_no_key_changes_nothing(key: Any, size: int) -> None:
    """S-B1: it is one dead letter, and the old row stays."""
    changes = [change("c", None, ULM), change("u", ULM, {"id": key, "city": "Bonn"})]
    letters: list[Any] = []
    more: dict[str, Any] = {
        "on_error": "dead_letter",
        "on_dead_letter": letters.append,
        "bundle_size": size,
    }
    assert rows(changes, **more) == [ULM]
    assert len(letters) == 1


@pytest.mark.parametrize("size", [1, 100])
@pytest.mark.parametrize("key", NO_KEYS, ids=repr)
def test_an_update_from_what_is_no_key_puts_its_row(key: Any, size: int) -> None:
    moved = {"id": 2, "city": "Bonn"}
    changes = [change("c", None, ULM), change("u", {"id": key}, moved)]
    assert rows(changes, bundle_size=size) == [ULM, moved]


BAD_TIMES = ["bad", None, float("nan"), 2**70, [1], Fraction(1, 3), dt.datetime(2024, 5, 1)]  # noqa: DTZ001


@pytest.mark.parametrize("size", [1, 100])
@pytest.mark.parametrize("time", BAD_TIMES, ids=repr)
def test_a_move_at_no_time_changes_nothing(time: Any, size: int) -> None:
    """S-B1: it is one dead letter, and the old row stays, whatever step made the time."""
    changes = [change("c", None, ULM), change("u", ULM, {"id": 2, "city": "Bonn"}, 2)]
    letters: list[Any] = []
    more: dict[str, Any] = {
        "on_error": "dead_letter",
        "on_dead_letter": letters.append,
        "bundle_size": size,
    }
    given = stream(changes).map(lambda r: {**r, "ts_ms": time} if r["op"] == "u" else r)
    assert lw.debezium(given, key="id").rows(**more) == [ULM]
    assert len(letters) == 1


@pytest.mark.parametrize("size", [1, 100])
@pytest.mark.parametrize("value", [10**30, Fraction(1, 3), "\ud800"], ids=repr)
def test_a_move_to_what_cannot_be_held_changes_nothing(value: Any, size: int) -> None:
    moved = {"id": 2, "city": value}
    letters: list[Any] = []
    more: dict[str, Any] = {
        "on_error": "dead_letter",
        "on_dead_letter": letters.append,
        "bundle_size": size,
    }
    assert rows([change("c", None, ULM), change("u", ULM, moved)], **more) == [ULM]
    assert len(letters) == 1


@pytest.mark.parametrize(
    "values",
    [
        (2**53 + 1, 1.5),
        (dt.date(2024, 5, 1), dt.datetime(2024, 5, 1, 12)),  # noqa: DTZ001 (a value is what it is)
        ([1], [1.5]),
        (True, 2),
        ("a", 1),
    ],
    ids=repr,
)
def test_values_of_a_change_are_what_they_are_alone(values: tuple[Any, Any]) -> None:
    changes = [change("c", None, {"id": at, "v": value}) for at, value in enumerate(values)]
    together, alone = rows(changes), rows(changes, bundle_size=1)
    assert together == alone
    assert [type(row["v"]) for row in together] == [type(row["v"]) for row in alone]


def test_a_row_has_the_time_of_its_change() -> None:
    table = lw.debezium(stream([change("c", None, ULM, 5)]), key="id").to_arrow()
    assert table.column_names == ["id", "city", "timestamp"]
    assert table["timestamp"].cast(pa.int64()).to_pylist() == [946_684_800_005_000]


def test_a_row_may_have_a_column_like_that_of_its_time() -> None:
    row = {"id": 1, "ts_ms": "mine"}
    assert rows([change("c", None, row)]) == [row]


def test_invalid_changes_are_dead_letters() -> None:
    changes = [
        change("x", None, ULM),
        change("c", None, None),
        change("d", None, None),
        change("c", None, {"id": None, "city": "Ulm"}),
        change("c", None, BONN),
    ]
    table = lw.debezium(stream(changes), key="id")
    found: list[lw.ErrorRecord] = []
    assert table.rows(on_dead_letter=found.append, on_error="dead_letter") == [BONN]
    assert sorted(
        (error.reason, error.detail) for error in found if error.reason != "null_key"
    ) == [
        ("no_row", "op is 'c', and after is null"),
        ("no_row", "op is 'd', and before is null"),
        ("unknown_op", "op is 'x', and 'c', 'r', 'u', 'd' are known"),
    ]
    assert [error.reason for error in found].count("null_key") == 1
    with pytest.raises(DataError, match="unknown_op"):
        table.rows(on_error="raise")


def test_names_of_another_kind() -> None:
    changes = [
        {"at": "2000-01-01T00:00Z", "what": "I", "old": None, "new": {"shop": 1, "id": 1, "n": 1}},
        {"at": "2000-01-02T00:00Z", "what": "U", "old": None, "new": {"shop": 1, "id": 1, "n": 2}},
        {
            "at": "2000-01-03T00:00Z",
            "what": "P",
            "old": None,
            "new": {"shop": 2, "id": 1, "n": 3},
        },
        {"at": "2000-01-04T00:00Z", "what": "D", "old": {"shop": 1, "id": 1}, "new": None},
    ]
    table = lw.changelog(
        lw.from_iterable(changes, time="at"),
        key=("shop", "id"), op="what", before="old", after="new",
        insert="I", update=("U", "P"), delete="D",
    )  # fmt: skip
    assert table.key == ("shop", "id")
    assert table.rows(bundle_size=1) == [{"shop": 2, "id": 1, "n": 3}]


def test_changes_in_files(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    lines = [change("c", None, ULM), change("u", ULM, BONN), change("d", BONN, None)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    table = lw.debezium(lw.read_jsonl(path, time="ts_ms", unit="ms"), key="id")
    assert table.rows(bundle_size=1) == []
    path.write_text("".join(json.dumps(line) + "\n" for line in lines[:2]))
    assert table.rows(bundle_size=1) == [BONN]


def test_known_columns() -> None:
    kind = pa.struct([("id", pa.int64()), ("city", pa.string())])
    schema = pa.schema(
        [("ts_ms", pa.int64()), ("op", pa.string()), ("before", kind), ("after", kind)]
    )
    changes = pa.Table.from_pylist([change("c", None, ULM)], schema)
    table = lw.debezium(lw.from_arrow(changes, time="ts_ms", unit="ms"), key="id")
    assert table.columns == ("id", "city")
    by_city = table.group_by("city").aggregate(n=lw.count())
    assert by_city.rows() == [{"city": "Ulm", "n": 1}]


def test_there_and_back() -> None:
    moves = [{"at": at, "id": at % 3, "city": f"c{at}", "gone": at % 4 == 3} for at in range(20)]
    source = lw.from_iterable(moves, time="at", unit="s").table(key="id", deleted=lw.col("gone"))
    table = source.select("id", "city")
    again = lw.debezium(table.changes("debezium"), key="id")
    for size in (1, 4, 100):
        wanted = {row["id"]: row for row in table.rows()}
        assert {row["id"]: row for row in again.rows(bundle_size=size)} == wanted


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans()), max_size=15),
    st.integers(1, 6),
)
def test_equals_a_dict(steps: list[tuple[int, int, bool]], size: int) -> None:
    held: dict[int, dict[str, Any]] = {}
    changes = []
    for key, other, deletes in steps:
        old = held.pop(key, None)
        if deletes and old:
            changes.append(change("d", old, None))
            continue
        after = other if old else key
        held[after] = new = {"id": after, "city": f"c{len(changes)}"}
        changes.append(change("u" if old else "c", old, new))
    found = rows(changes, bundle_size=size)
    assert {row["id"]: row for row in found} == held
    assert len(found) == len(held)


def test_what_is_refused() -> None:
    some = stream([change("c", None, ULM)])
    with pytest.raises(InvalidArgument, match="'c' is named twice"):
        lw.changelog(some, key="id", update="c")
    with pytest.raises(InvalidArgument, match=r"op=1 .* is not the name of a column"):
        lw.changelog(some, key="id", op=1)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="neither text nor several texts"):
        lw.changelog(some, key="id", delete=(1,))  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="not a stream of records"):
        lw.debezium([change("c", None, ULM)], key="id")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="there is no column 'new'"):
        lw.changelog(some, key="id", after="new").rows()
    text = pa.table({"at": [1], "op": ["c"], "before": pa.nulls(1), "after": ["{}"]})
    with pytest.raises(DataError, match="'after' holds values of type string, not rows"):
        lw.changelog(lw.from_frame(text, time="at", unit="s"), key="id").rows()


@pytest.mark.parametrize("size", [1, 2, 100])
@pytest.mark.parametrize(
    ("bad", "reason", "detail"),
    [
        (change(5, None, {"id": 2}), "unknown_op", "op is 5, and"),
        (change(b"\xff", None, {"id": 2}), "unknown_op", "op is b'"),
        (change(["c"], None, {"id": 2}), "unknown_op", "op is ['c'], and"),
        (change("c", None, "{}"), "wrong_type", "after='{}' (str) is not a row"),
        (change("u", 5, {"id": 2}), "wrong_type", "before=5 (int) is not a row"),
        (change("d", "1", None), "wrong_type", "before='1' (str) is not a row"),
        (change("c", None, {"id": 2, 5: 1}), "wrong_type", "5 in after cannot be the name"),
        (change("c", None, {"id": 10**30}), "unstorable", "more than 64 bits"),
        (change("c", None, {"id": 2, "city": "\ud800"}), "unstorable", "not valid Unicode"),
        (change("c", None, {"id": [2]}), "wrong_type", "cannot be a key"),
        (change("u", None, None), "no_row", "op is 'u', and after is null"),
    ],
)
def test_a_change_that_is_like_no_other_is_one_dead_letter(
    bad: dict[str, Any], reason: str, detail: str, size: int
) -> None:
    """S-B1: whatever it holds, in bundles of any size."""
    two = {"id": 3, "city": "Jena"}
    changes = [change("c", None, ULM), bad, change("c", None, two), change("u", ULM, BONN)]
    table = lw.debezium(stream(changes), key="id")
    found = table.changes(form="upsert").collect(on_error="dead_letter", bundle_size=size)
    assert [error.reason for error in found.errors] == [reason]
    assert detail in found.errors[0].detail
    rows_in_the_end = {row["id"]: row["city"] for row in found.values()}
    assert rows_in_the_end == {1: "Bonn", 3: "Jena"}


@pytest.mark.parametrize("size", [1, 100])
def test_rows_of_mixed_types_are_kept_as_they_are(size: int) -> None:
    changes = [
        change("c", None, {"id": 1, "city": "Ulm"}),
        change("c", None, {"id": "one", "city": 2**53 + 1}),
        change("c", None, {"id": 2, "city": 1.5}),
        change("u", {"id": "one"}, {"id": 3, "city": None}),
        change("d", {"id": 2, "city": "any"}, None),
    ]
    found = rows(changes, bundle_size=size, on_error="raise")
    assert sorted(found, key=lambda row: row["id"]) == [ULM, {"id": 3, "city": None}]


@pytest.mark.parametrize("size", [1, 100])
@pytest.mark.parametrize("form", ["debezium", "upsert"])
def test_changes_of_rows_of_mixed_types(form: Any, size: int) -> None:
    values = [1, "x", [1], {"a": 1}, 2**64 - 1, 1.5, None]
    changes = [change("c", None, {"id": at, "v": value}) for at, value in enumerate(values)]
    table = lw.debezium(stream(changes), key="id").changes(form=form)
    found = table.collect(on_error="raise", bundle_size=size).values()
    rows_found = [row["after"] if form == "debezium" else row for row in found]
    assert {row["id"]: row["v"] for row in rows_found} == dict(enumerate(values))
