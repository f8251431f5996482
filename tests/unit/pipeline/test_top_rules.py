"""``table.top``: its keys and columns, what it refuses, and how it describes itself (T-6)."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lowwater as lw
from lowwater.io import Log
from lowwater.io.sinks import SqliteTable

NAN = float("nan")


def bids(*rows: tuple[Any, ...], columns: str = "id shop price") -> lw.Table[lw.Stream]:
    """Return a table of rows; each comes a second after the one before."""
    names = columns.split()
    records = [
        {"at": lw.Instant(at * 1_000_000), **dict(zip(names, row, strict=True))}
        for at, row in enumerate(rows)
    ]
    stream = lw.from_iterable(records, time="at", watermark=lw.Ascending())
    return stream.table(key="id").select(*names)


BIDS = bids((1, "a", 5), (2, "a", 7), (3, "b", 1), (4, None, 2), (5, "a", 6))


def ranks(table: lw.Table[lw.Stream], **options: Any) -> list[tuple[Any, ...]]:
    rows = [tuple(row[name] for name in (*table.key, "id")) for row in table.rows(**options)]
    return sorted(rows, key=repr)


@pytest.mark.parametrize("size", [1, 2, 100])
def test_ranks_of_groups(size: int) -> None:
    wanted = [("a", 1, 2), ("a", 2, 5), ("b", 1, 3), (None, 1, 4)]
    assert ranks(BIDS.top(2, per="shop", by="price"), bundle_size=size) == wanted
    assert ranks(BIDS.top(2, by="price", reverse=True), bundle_size=size) == [(1, 3), (2, 4)]


def test_keys_and_columns() -> None:
    top = BIDS.top(2, per="shop", by="price")
    assert top.key == ("shop", "rank")
    assert top._key.nullable  # a group may be null
    assert top.columns == ("shop", "rank", "id", "price")
    whole = BIDS.top(2, by="price", rank="place")
    assert (whole.key, whole._key.nullable) == (("place",), False)
    assert whole.columns == ("place", "id", "shop", "price")
    own = BIDS.top(1, per="id", by="price")
    assert (own.key, own._key.nullable) == (("id", "rank"), False)
    assert BIDS.top(1, per=["id", "shop"], by="price").key == ("id", "shop", "rank")


def test_types_are_known_without_a_row() -> None:
    schema = pa.schema([("at", pa.timestamp("us", "UTC")), ("id", pa.int32()), ("v", pa.string())])
    table = lw.from_arrow(schema.empty_table(), time="at").table(key="id").top(3, per="id", by="v")
    assert table.to_arrow().schema.remove_metadata() == pa.schema(
        [
            ("id", pa.int32()),
            ("rank", pa.int64()),
            ("at", pa.timestamp("us", "UTC")),
            ("v", pa.string()),
            ("timestamp", pa.timestamp("us", "UTC")),
        ]
    )


def test_ties_and_nulls() -> None:
    """T-6: ties first, then the primary key; a row without a value has no rank."""
    table = bids(
        (9, "x", 5), (3, "y", 5), (4, "x", 5), (1, None, 5), (2, "a", None), columns="id name v"
    )
    assert ranks(table.top(9, by="v")) == [(1, 1), (2, 3), (3, 4), (4, 9)]
    assert ranks(table.top(9, by="v", ties="name")) == [(1, 1), (2, 4), (3, 9), (4, 3)]
    assert ranks(table.top(9, per="v", by="name")) == [
        (5, 1, 3), (5, 2, 4), (5, 3, 9), (None, 1, 2),
    ]  # fmt: skip


def test_values_of_any_ordered_type() -> None:
    large = bids((1, "a", 2**53), (2, "a", 2**53 + 1), (3, "a", float(2**53)))
    assert ranks(large.top(2, by="price")) == [(1, 2), (2, 1)]
    words = bids((1, "a", "é"), (2, "a", "z"), (3, "a", ""))
    assert ranks(words.top(2, by="price")) == [(1, 1), (2, 2)]
    flags = bids((1, "a", False), (2, "a", True))
    assert ranks(flags.top(1, by="price")) == [(1, 2)]


def test_nested_columns_are_rows_like_others() -> None:
    tags = bids((1, {"a": [1]}, 5), (2, {"a": [2]}, 6), (1, {"a": [3]}, 7), columns="id tags v")
    assert tags.top(2, by="v").rows(bundle_size=1) == [
        {"rank": 1, "id": 1, "tags": {"a": [3]}, "v": 7},
        {"rank": 2, "id": 2, "tags": {"a": [2]}, "v": 6},
    ]


def test_nan_is_a_dead_letter() -> None:
    """T-6, S-B1: the row has no rank, and so nothing is retracted when it changes."""
    table = bids((1, "a", 2.0), (2, "a", NAN), (2, "a", 1.0), (1, "a", NAN))
    letters: list[Any] = []
    rows = table.top(2, by="price").rows(bundle_size=1, on_dead_letter=letters.append)
    assert [(row["rank"], row["id"]) for row in rows] == [(1, 2)]
    assert {letter.reason for letter in letters} == {"nan"}


def test_the_time_of_a_rank_is_that_of_its_row() -> None:
    made = [
        (one.kind[:1], int(one.timestamp) // 1_000_000, one.value["rank"], one.value["id"])
        for one in BIDS.top(2, per="shop", by="price").changes().run(bundle_size=1)
    ]
    assert made == [
        ("i", 0, 1, 1), ("r", 0, 1, 1), ("i", 1, 1, 2), ("i", 0, 2, 1), ("i", 2, 1, 3),
        ("i", 3, 1, 4), ("r", 0, 2, 1), ("i", 4, 2, 5),
    ]  # fmt: skip


def test_it_is_kept_in_a_database(tmp_path: Path) -> None:
    """T-4, T-6: the rank is the primary key."""
    path = tmp_path / "a.sqlite"
    BIDS.top(2, by="price").write_to(SqliteTable(str(path), "best")).run(bundle_size=1)
    with sqlite3.connect(path) as database:
        found = database.execute("SELECT rank, id FROM best ORDER BY rank").fetchall()
        keys = [row[1] for row in database.execute("PRAGMA table_info(best)") if row[5]]
    assert (found, keys) == ([(1, 2), (2, 5)], ["rank"])


def test_upserts_of_a_rank_that_goes() -> None:
    table = lw.from_iterable(
        [{"at": lw.Instant(at), "id": at % 2, "gone": at == 3} for at in range(4)], time="at"
    ).table(key="id", deleted=lw.col("gone"))
    made = table.select("id").top(2, by="id").changes("upsert").run(bundle_size=1)
    assert [tuple(one.value.values()) for one in made] == [
        (1, 0, False), (2, 0, False), (1, 1, False), (2, 0, False), (1, 0, False),
        (2, None, True),
    ]  # fmt: skip


def test_windows_over_its_changes_are_refused() -> None:
    """T-2."""
    changes = BIDS.top(2, per="shop", by="price").changes().key_by("shop")
    with pytest.raises(lw.InvalidArgument, match="changes of a table"):
        changes.window(lw.FixedWindows("1m")).aggregate(n=lw.count())


def unknown(**more: Any) -> lw.Table[lw.Stream]:
    """Return a table whose columns only a run can tell."""
    rows = [{"at": lw.Instant(at), "id": at, "v": 1, **more} for at in range(3)]
    return lw.from_iterable(rows, time="at").map(dict).table(key="id")


def test_columns_that_only_a_run_can_tell() -> None:
    assert len(unknown().top(2, by="v").rows()) == 2
    assert unknown().top(2, by="v").columns is None
    with pytest.raises(lw.InvalidArgument, match=r"a column 'rank' already .*my_rank"):
        unknown(rank=3).top(2, by="v").rows()
    assert unknown(rank=3).top(2, by="v", rank="my_rank").rows()[0]["my_rank"] == 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"n": True}, "int of at least 1"),
        ({"n": 1.5}, "int of at least 1"),
        ({"per": 3}, r"top\(per=\)"),
        ({"ties": 3}, r"top\(ties=\)"),
        ({"ties": "nothing"}, r"no column 'nothing'.*top\(ties=\)"),
        ({"per": ("shop", "shop")}, "two keys|'shop'"),
        ({"rank": ""}, r"not a name.*top\(rank=\)"),
        ({"rank": "__lw_rank"}, r"not a name.*top\(rank=\)"),
        ({"rank": "kind"}, r"not a name.*top\(rank=\)"),
        ({"rank": "price"}, "a column 'price' already"),
        ({"rank": "shop"}, "a column 'shop' already"),
        ({"by": "shop"}, "all rows of a group have the same"),
        ({"by": None}, "not the name of a column"),
    ],
)
def test_refusals(options: dict[str, Any], says: str) -> None:
    n = options.pop("n", 2)
    with pytest.raises(lw.InvalidArgument, match=says):
        BIDS.top(n, **{"per": "shop", "by": "price", **options})


def test_how_it_describes_itself() -> None:
    top = BIDS.top(3, per="shop", by="price", ties=("id",), reverse=True, rank="place")
    text = "top(3, per='shop', by='price', ties='id', reverse=True, rank='place')"
    assert repr(top).endswith(f"→ {text}, key='shop', 'place')")
    lines = [line.strip() for line in top.named("best").explain().splitlines()]
    assert {"best", text, "exchanges records by: shop"} <= {*lines}
    whole = BIDS.top(3, by="price").explain()
    assert "exchanges records by: nothing: all are one group" in whole


def test_what_check_says(tmp_path: Path) -> None:
    """Rows are kept once more, if there is no end to them."""
    assert not any("once more" in one.what for one in lw.check(BIDS.top(3, by="price")))
    with Log(tmp_path / "log") as log:
        log.append([{"at": "2024-05-01T12:00:00Z", "id": 1, "v": 1}])
    stream = lw.read_log(tmp_path / "log", time="at", follow=True)
    (found,) = [
        one
        for one in lw.check(stream.table(key="id", ttl="1d").top(3, by="v"))
        if "once more" in one.what
    ]
    assert found.severity == "note"
    assert "the first 3 of each group" in found.what
    assert "lw.top" in str(found.hint)
