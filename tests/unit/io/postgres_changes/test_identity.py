"""A table that is no longer the one that is read is refused in words, at a start and amid a run.

Nothing in the stream of changes says that a name was given to another table, or that changes are
no longer published.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lowwater as lw
from lowwater.engine.graph.sources import Position
from lowwater.errors import DataError, InvalidArgument, PipelineWarning, StateError
from lowwater.io.postgres_changes import change_parts
from lowwater.io.postgres_changes.options import changes_of
from lowwater.io.postgres_changes.table_source import PostgresChanges
from lowwater.io.sinks import PostgresTable
from tests.examples import is_campaign
from tests.unit.io.postgresql import Server, mortal_server

psycopg = pytest.importorskip("psycopg", reason="needs the extra postgres")
pytestmark = pytest.mark.long(reason="needs a server")

REPLACED = "is not the one that was read before"
GONE = "the table public.t is gone"
PARTED = "PARTITION BY RANGE (id)"


@pytest.fixture(scope="module", params=["newest", "oldest"][: 2 if is_campaign() else 1])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with mortal_server(oldest=request.param == "oldest") as server:
        yield server


@pytest.fixture
def dsn(server: Server) -> Iterator[str]:
    execute(server.dsn, "DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
    yield server.dsn
    execute(
        server.dsn,
        *("DROP PUBLICATION IF EXISTS p", "DROP PUBLICATION IF EXISTS q"),
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT temporary",
    )


@pytest.fixture(autouse=True)
def looks_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_parts, "_LOOK_S", 0.0)


def execute(dsn: str, *statements: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


def create(dsn: str, *, every: bool = True, columns: str = "id int PRIMARY KEY, n int") -> None:
    execute(
        dsn,
        f"CREATE TABLE t ({columns})",
        "INSERT INTO t VALUES (1, 10), (2, 20)",
        f"CREATE PUBLICATION p FOR {'ALL TABLES' if every else 'TABLE t'}",
    )


def source_of(dsn: str, **options: Any) -> PostgresChanges:
    given: dict[str, Any] = {
        "publication": "p", "slot": "mine", "snapshot": True, "columns": None, "types": {},
        "truncate": "error", "end": "never",
    }  # fmt: skip
    return changes_of(dsn, "t", **{**given, **options})


@contextmanager
def reading(source: PostgresChanges, position: Position | None = None) -> Iterator[Any]:
    batches: Any = source.batches_from(position, 100, ())
    try:
        yield batches
    finally:
        batches.close()


def read_up(batches: Iterator[Any]) -> tuple[list[Any], Position]:
    """Read until there is nothing new; return the records and the position."""
    rows: list[Any] = []
    quiet = 0
    for records, position in batches:
        rows += records.rows() if records.length else []
        quiet = quiet + 1 if records.rest_seconds else 0
        if quiet == 2:
            return rows, position
    raise AssertionError("the source has ended")


def values(rows: list[Any]) -> list[Any]:
    return [(row["op"], (row["after"] or row["before"])["id"]) for row in rows]


SWAPPED = ("CREATE TABLE t_new (LIKE t INCLUDING ALL)", "INSERT INTO t_new VALUES (7, 70)",
           "ALTER TABLE t RENAME TO t_old", "ALTER TABLE t_new RENAME TO t")  # fmt: skip
ANEW = ("DROP TABLE t", "CREATE TABLE t (id int PRIMARY KEY, n int)", "INSERT INTO t VALUES (3, 3)")
CHANGES: dict[str, tuple[bool, tuple[str, ...], str]] = {
    "dropped and created, published": (True, ANEW, REPLACED),
    "dropped and created": (False, ANEW, REPLACED),
    "dropped and created, and added": (
        False, (*ANEW, "ALTER PUBLICATION p ADD TABLE t", "INSERT INTO t VALUES (4, 4)"), REPLACED,
    ),
    "dropped": (True, ("DROP TABLE t",), GONE),
    "renamed away": (True, ("ALTER TABLE t RENAME TO t2", "INSERT INTO t2 VALUES (3, 3)"), GONE),
    "moved to another schema": (
        True, ("CREATE SCHEMA IF NOT EXISTS other", "ALTER TABLE t SET SCHEMA other",
               "DROP SCHEMA other CASCADE"), GONE,
    ),
    "swapped, published": (True, SWAPPED, REPLACED),
    "swapped": (False, SWAPPED, REPLACED),
    "swapped, then changed": (True, (*SWAPPED, "UPDATE t SET n = 71"), REPLACED),
    "a column added again": (
        True, ("ALTER TABLE t DROP n", "ALTER TABLE t ADD n int DEFAULT 5"), "'n' of public.t was",
    ),
    "out of the publication": (
        False, ("ALTER PUBLICATION p DROP TABLE t", "INSERT INTO t VALUES (3, 3)"),
        "no longer has the table public.t",
    ),
    "out and in again": (
        False, ("ALTER PUBLICATION p DROP TABLE t", "INSERT INTO t VALUES (3, 3)",
                "ALTER PUBLICATION p ADD TABLE t"), "has of public.t was changed",
    ),
    "another condition": (
        False, ("ALTER PUBLICATION p SET TABLE t WHERE (id > 1)",), "has of public.t was changed",
    ),
    "the publication recreated": (
        True, ("DROP PUBLICATION p", "CREATE PUBLICATION p FOR ALL TABLES"), "created anew",
    ),
    "the publication gone": (False, ("DROP PUBLICATION p",), "the publication 'p' is gone"),
    "inserts only": (
        True, ("ALTER PUBLICATION p SET (publish = 'insert')", "DELETE FROM t WHERE id = 1"),
        "no longer publishes updates, deletes, truncates",
    ),
}  # fmt: skip


@pytest.mark.parametrize("when", ["amid", "between", "before"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_table_that_is_another(change: str, when: str, dsn: str) -> None:
    """Amid a run, between two, and over a state of a version that did not store what it was."""
    every, statements, said = CHANGES[change]
    create(dsn, every=every)
    source = source_of(dsn)
    with reading(source) as batches:
        rows, position = read_up(batches)
        assert values(rows) == [("r", 1), ("r", 2)]
        if when == "amid":
            execute(dsn, *statements)
            with pytest.raises(DataError, match=said):
                read_up(batches)
            return
    if when == "before":
        del position["table"], position["timeline"]
        with reading(source, position) as batches:
            assert read_up(batches)[0] == []
            position = read_up(batches)[1]
        assert position["table"]["oid"] > 0
    execute(dsn, *statements)
    with (
        pytest.raises(DataError, match=said),
        reading(source, position) as batches,
    ):
        read_up(batches)


HARMLESS = [
    ("VACUUM FULL t",),
    ("ALTER TABLE t RENAME TO x", "INSERT INTO x VALUES (3, 3)", "ALTER TABLE x RENAME TO t"),
    ("CREATE TABLE t_old (LIKE t INCLUDING ALL)", "INSERT INTO t_old VALUES (1, 1)"),
    ("ALTER TABLE t REPLICA IDENTITY FULL",),
    ("CREATE PUBLICATION q FOR TABLE t", "ALTER PUBLICATION q DROP TABLE t"),
    ("REINDEX TABLE t", "CREATE INDEX ON t (n)", "ANALYZE t"),
    ("ALTER TABLE t ALTER n SET DEFAULT 5",),
]


@pytest.mark.parametrize("statements", HARMLESS, ids=[one[0] for one in HARMLESS])
@pytest.mark.parametrize("every", [True, False])
def test_a_table_that_stays_what_it_is(every: bool, statements: tuple[str, ...], dsn: str) -> None:
    create(dsn, every=every)
    source = source_of(dsn)
    with reading(source) as batches:
        _, position = read_up(batches)
        execute(dsn, *statements, "UPDATE t SET n = 11 WHERE id = 1")
        rows, _ = read_up(batches)
    assert ("u", 1) in values(rows)
    with reading(source, position) as batches:
        assert values(read_up(batches)[0]) == values(rows)


def test_replica_identity_that_is_taken_back(dsn: str) -> None:
    create(dsn)
    execute(dsn, "ALTER TABLE t REPLICA IDENTITY FULL")
    with reading(source_of(dsn)) as batches:
        read_up(batches)
        execute(dsn, "ALTER TABLE t REPLICA IDENTITY DEFAULT")
        with pytest.raises(DataError, match="no longer has REPLICA IDENTITY FULL"):
            read_up(batches)


@pytest.mark.parametrize("truncate", ["error", "record"])
def test_partitions(truncate: str, dsn: str) -> None:
    """Rows that leave with a partition are told of by nothing; nor are those that come with one."""
    execute(
        dsn,
        f"CREATE TABLE t (id int PRIMARY KEY, n int) {PARTED}",
        "CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (10)",
        "INSERT INTO t VALUES (1, 10)",
        "CREATE PUBLICATION p FOR TABLE t WITH (publish_via_partition_root = true)",
        "CREATE TABLE t2 (id int PRIMARY KEY, n int)",
        "INSERT INTO t2 VALUES (11, 1)",
    )
    with reading(source_of(dsn, truncate=truncate)) as batches:
        assert values(read_up(batches)[0]) == [("r", 1)]
        execute(dsn, "ALTER TABLE t ATTACH PARTITION t2 FOR VALUES FROM (10) TO (20)")
        with pytest.warns(PipelineWarning, match="public.t has 1 new partitions"):
            read_up(batches)
        execute(dsn, "INSERT INTO t VALUES (12, 1)")
        assert values(read_up(batches)[0]) == [("c", 12)]
        execute(dsn, "ALTER TABLE t DETACH PARTITION t1")
        if truncate == "record":
            with pytest.warns(PipelineWarning, match="were detached or dropped"):
                read_up(batches)
            return
        with pytest.raises(DataError, match="were detached or dropped, which does not say which"):
            read_up(batches)


def test_a_run_that_ends_looks_at_its_end(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was swapped while the last changes were read is seen before the run says it is done."""
    monkeypatch.setattr(change_parts, "_LOOK_S", 1e9)
    create(dsn, every=False)
    batches = source_of(dsn, end="latest").batches_from(None, 100, ())
    *_, (_, position) = batches
    execute(dsn, *(f"INSERT INTO t VALUES ({number}, 0)" for number in range(10, 14)))
    batches = source_of(dsn, end="latest").batches_from(position, 1, ())
    while not next(batches)[0].length:
        pass
    execute(dsn, *ANEW)
    with pytest.raises(DataError, match=REPLACED):
        list(batches)


def test_generated_columns(dsn: str) -> None:
    """The server does not publish them: they are left out, with a word."""
    create(dsn, columns="id int PRIMARY KEY, n int, double int GENERATED ALWAYS AS (n * 2) STORED, "
           "own int GENERATED BY DEFAULT AS IDENTITY, \"two words\" text GENERATED ALWAYS AS "
           "('x') STORED")  # fmt: skip
    with pytest.warns(PipelineWarning, match="read without 'double', 'two words'"):
        source = source_of(dsn)
    assert [column.name for column in source.table.columns] == ["id", "n", "own"]
    with reading(source) as batches:
        rows, position = read_up(batches)
        assert rows[0]["after"] == {"id": 1, "n": 10, "own": 1}
        execute(dsn, "UPDATE t SET n = 11 WHERE id = 1", "DELETE FROM t WHERE id = 2")
        rows, _ = read_up(batches)
    assert [row["op"] for row in rows] == ["u", "d"]
    assert rows[0]["after"] == {"id": 1, "n": 11, "own": 1}
    with pytest.raises(InvalidArgument, match="names 'double', a generated column"):
        source_of(dsn, columns=["id", "double"])
    with pytest.raises(InvalidArgument, match="types= names 'double', a generated column"):
        source_of(dsn, types={"double": pa.int64()})
    with reading(source, position) as batches:
        assert [row["op"] for row in read_up(batches)[0]] == ["u", "d"]
    source_of(dsn, columns=["id", "n"])  # without a word


def test_a_server_that_was_restored(dsn: str, server: Server, tmp_path: Path) -> None:
    """The copy has the identifier of the original, and less in its log."""
    create(dsn)
    source = source_of(dsn)
    server.kill()
    data, copy = server.folder / "data", tmp_path / "copy"
    shutil.copytree(data, copy, symlinks=True)
    server.recover()
    with reading(source) as batches:
        read_up(batches)
        execute(dsn, *["INSERT INTO t SELECT i, i FROM generate_series(100, 5000) AS i"])
        rows, position = read_up(batches)
        assert len(rows) == 4901
    with pytest.raises(DataError, match="restored from a copy, or another one took its place"):
        next(source.batches_from({**position, "timeline": 2}, 100, ()))
    with pytest.raises(DataError, match="restored from a copy"):
        next(source.batches_from({**position, "at": [position["at"][0] + 2**40, 0]}, 100, ()))
    with pytest.raises(DataError, match="from a run over another server"):
        next(source.batches_from({**position, "system": "1"}, 100, ()))
    wrong: list[Position] = [
        {"timeline": "2"}, {"table": {}}, {"table": {**position["table"], "oid": "1"}},
    ]  # fmt: skip
    for broken in wrong:
        with pytest.raises(StateError):
            source.batches_from({**position, **broken}, 100, ())


@pytest.mark.parametrize("sink", ["t", "public.t", "t1"])
@pytest.mark.parametrize("other", ["", " application_name=other", "uri", "tz"])
def test_a_run_does_not_write_the_table_that_it_reads(sink: str, other: str, dsn: str) -> None:
    execute(
        dsn,
        f"CREATE TABLE t (id int PRIMARY KEY, n int) {PARTED}",
        "CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (10)",
        "CREATE PUBLICATION p FOR TABLE t WITH (publish_via_partition_root = true)",
    )
    options = dict(part.split("=") for part in dsn.split())
    spelled = {
        "uri": f"postgresql://{options['user']}@/postgres?host={options['host']}",
        "tz": f"{dsn} options=-ctimezone=UTC",
    }.get(other, dsn + other)  # fmt: skip
    changes = lw.read_postgres_changes(dsn, "t", publication="p", slot="mine", end="latest")
    table = lw.debezium(changes, key="id")
    with pytest.raises(InvalidArgument, match="and writes to it: it would read again"):
        table.write_to(PostgresTable(spelled, sink)).run()
    table.write_to(PostgresTable(spelled, "another")).run()
    panes = table.write_to(PostgresTable(dsn, "another", overwrite=True))
    with pytest.raises(InvalidArgument, match="two outputs write to the table"):
        lw.run(panes, table.write_to(PostgresTable(spelled, "public.another")))
