"""Tables of pipelines that are written by primary key, and what stands of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lowwater as lw
from lowwater.errors import InvalidArgument, StateError
from lowwater.io.sinks import Callback, Delivery, PostgresTable, Sink, SqliteTable
from lowwater.io.sinks.upserts import changes
from lowwater.pipeline import Stream
from lowwater.pipeline.tables import Table
from tests.unit.io.fake_psycopg import fake_psycopg

GONE = lw.col("gone")
MOVES = [
    {"at": 1, "id": 1, "city": "Ulm", "gone": False},
    {"at": 2, "id": 2, "city": "Bonn", "gone": False},
    {"at": 3, "id": 1, "city": "Bonn", "gone": False},
    {"at": 4, "id": 2, "city": "Bonn", "gone": True},
]


def people(rows: list[dict[str, Any]] = MOVES) -> Table[Stream]:
    stream = lw.from_iterable(rows, time="at")
    return stream.table(key="id", deleted=GONE).select("id", "city")


def pets() -> Table[Stream]:
    rows = [{"at": 5, "pet": name, "id": 1} for name in ("Ada", "Bo")]
    return lw.from_iterable(rows, time="at").table(key="pet").select("pet", "id")


def rows_in(path: Path, table: str = "t") -> list[dict[str, Any]]:
    with sqlite3.connect(path) as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute(f'SELECT * FROM "{table}" ORDER BY 1')]


@pytest.fixture(params=["sqlite", "postgres"])
def make(request: pytest.FixtureRequest) -> Any:
    with fake_psycopg():
        yield SqliteTable if request.param == "sqlite" else PostgresTable


@pytest.mark.parametrize("size", [1, 2, 100])
def test_a_row_per_primary_key(make: Callable[..., Sink], tmp_path: Path, size: int) -> None:
    path = tmp_path / "a.sqlite"
    people().write_to(make(str(path), "t")).run(bundle_size=size, commit_every="bundle")
    (row,) = rows_in(path)
    assert str(row.pop("timestamp"))[:26].replace(" ", "T").startswith("1970-01-01T00:00:00.000003")
    assert row == {"id": 1, "city": "Bonn"}


def test_the_primary_key_of_the_sql_table(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    people().write_to(SqliteTable(str(path), "t")).run()
    with sqlite3.connect(path) as connection:
        found = connection.execute("SELECT name FROM pragma_table_info('t') WHERE pk").fetchall()
    assert found == [("id",)]


def test_nulls_in_the_key_of_an_outer_join(make: Callable[..., Sink], tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    both = people(MOVES[:3]).join(pets(), on="id", how="left")
    both.write_to(make(str(path), "t")).run(bundle_size=1, commit_every="bundle")
    found = [(row["row_key"], row["id"], row["pet"]) for row in rows_in(path)]
    assert found == [('[1, "Ada"]', 1, "Ada"), ('[1, "Bo"]', 1, "Bo"), ("[2, null]", 2, None)]


@pytest.mark.parametrize(
    ("how", "nullable"),
    [("inner", False), ("left", True), ("right", True), ("outer", True), ("semi", False)],
)
def test_when_the_key_is_kept_as_text(how: Any, nullable: bool) -> None:
    assert people().join(pets(), on="id", how=how)._key.nullable is nullable
    on_keys = people().join(people(), on="id", how=how)
    assert (on_keys.key, on_keys._key.nullable) == (("id",), False)
    cities = people().group_by("city").aggregate(n=lw.count())
    assert cities._key.nullable
    assert not people().group_by("id").aggregate(n=lw.count())._key.nullable
    of_groups = cities.join(cities, on="city", how=how)
    assert of_groups.key == ("city",)
    assert of_groups._key.nullable is (how != "inner")


def test_rows_with_one_key_stay_apart(make: Callable[..., Sink], tmp_path: Path) -> None:
    """T-4: one of each side of an outer join, both with the key null."""
    path = tmp_path / "a.sqlite"
    rows = [{"at": 1, "id": 1, "city": "Ulm", "gone": False}]
    rows += [{"at": at, "id": at, "city": None, "gone": False} for at in (1, 2)]
    cities = people(rows).group_by("city").aggregate(n=lw.count())
    both = cities.join(cities, on="city", how="outer")
    both.write_to(make(str(path), "t")).run(bundle_size=1, commit_every="bundle")
    found = [(row["row_key"], row["city"], row["n"], row["n_right"]) for row in rows_in(path)]
    assert found == [("[null, true]", None, None, 2), ("[null]", None, 2, None)]


def test_other_sinks_get_net_changes() -> None:
    seen: list[Delivery] = []
    people().write_to(Callback(seen.append)).run(bundle_size=2, commit_every="bundle")
    assert [delivery.keys for delivery in seen] == [("id",)] * 2
    found = [
        [(row["id"], row["city"], row["kind"]) for row in delivery.panes.to_pylist()]
        for delivery in seen
    ]
    assert found == [
        [(1, "Ulm", "insert"), (2, "Bonn", "insert")],
        [(2, "Bonn", "retract"), (1, "Bonn", "insert")],
    ]


def test_several_outputs_of_one_run(tmp_path: Path) -> None:
    path = str(tmp_path / "a.sqlite")
    table = people()
    by_city = table.group_by("city").aggregate(n=lw.count())
    lw.run(
        table.write_to(SqliteTable(path, "people")), by_city.write_to(SqliteTable(path, "cities"))
    )
    assert [row["id"] for row in rows_in(Path(path), "people")] == [1]
    assert [(row["city"], row["n"]) for row in rows_in(Path(path), "cities")] == [("Bonn", 1)]


def test_a_state_belongs_to_the_steps_of_its_table(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(MOVES), tmp_path / "in.parquet")
    stream = lw.read_parquet(tmp_path / "in.parquet", time="at", unit="s")
    table = stream.table(key="id", deleted=GONE)

    def run(one: Table[Stream]) -> None:
        sink = SqliteTable(str(tmp_path / "a.sqlite"), "t")
        one.write_to(sink).run(state=tmp_path / "state", progress=False)

    run(table.filter(lw.col("city") == "Bonn"))
    run(table.filter(lw.col("city") == "Bonn"))
    with pytest.raises(StateError, match=r"output of 'stage 1' to .* was .*Bonn.* and is .*Ulm"):
        run(table.filter(lw.col("city") == "Ulm"))


def test_rows_that_stand() -> None:
    assert people().rows() == [{"id": 1, "city": "Bonn"}]
    assert people().to_arrow().column_names == ["id", "city", "timestamp"]
    assert isinstance(frame := people().to_pandas(), pd.DataFrame)
    assert frame["city"].tolist() == ["Bonn"]
    assert people().to_polars()["city"].to_list() == ["Bonn"]
    assert people([]).to_arrow().column_names == ["id", "city", "timestamp"]
    assert people([]).rows() == people(MOVES[3:]).rows() == []


def test_a_table_without_rows_has_its_columns() -> None:
    assert people(MOVES[3:]).to_arrow().column_names == ["id", "city", "timestamp"]


def test_changes_of_a_table_come_in_order() -> None:
    found = changes([(1, "a"), (1, "b"), (2, "c")], [False, True, True], key=1, index=None)
    assert (found.taken, found.gone, found.rows) == ([], [(1,), (2,)], [])
    found = changes([(1, "a"), (1, "b")], [True, False], key=1, index=None)
    assert (found.taken, found.gone, found.rows) == ([], [], [(1, "b")])


def test_a_key_that_no_record_has() -> None:
    with pytest.raises(InvalidArgument, match=r"no column 'ID' \(at table\(key=\)\)"):
        lw.from_iterable(MOVES, time="at").table(key="ID")


def test_what_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "a.sqlite")
    with pytest.raises(InvalidArgument, match="at least one sink"):
        people().write_to()
    with pytest.raises(InvalidArgument, match="'kind' has the name of one that is written"):
        people().with_columns(kind=lw.col("city")).write_to(SqliteTable(path, "t"))
    with pytest.raises(InvalidArgument, match=r"same name as 'city'.*Rename it with with_columns"):
        people().with_columns(City=lw.col("city")).write_to(SqliteTable(path, "t"))
    with pytest.raises(InvalidArgument, match="'id' of the primary key is not selected"):
        people().select(id=lw.col("city"))
