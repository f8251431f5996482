"""Changes of tables, read from a server that the tests start."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lowwater as lw
from lowwater.engine.graph.sources import Position
from lowwater.engine.local import commit_policy
from lowwater.engine.records.batch import Records
from lowwater.errors import DataError, LowwaterError, StateError
from lowwater.io.postgres_changes.options import changes_of
from lowwater.io.postgres_changes.slot import create
from lowwater.io.postgres_changes.table_source import PostgresChanges
from lowwater.io.sinks import PostgresTable
from tests.examples import is_campaign
from tests.unit.engine.local.durable_runs import Stopped, stopping
from tests.unit.engine.local.thirty_runs import side_by_side
from tests.unit.io.postgres_changes.writer import View, Writer
from tests.unit.io.postgresql import running_server

psycopg = pytest.importorskip("psycopg", reason="needs the extra postgres")
pytestmark = pytest.mark.long(reason="needs a server")

SCHEMA = "(id int, part text, n int, body text, PRIMARY KEY (id, part))"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with running_server() as dsn:
        yield dsn


@pytest.fixture
def dsn(server: str) -> Iterator[str]:
    """Give each test tables and slots of its own."""
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
        connection.execute("GRANT USAGE ON SCHEMA public TO PUBLIC")
        yield server
        connection.execute("DROP PUBLICATION IF EXISTS all_of_it")
        drop_slots(connection)


def drop_slots(connection: Any) -> None:
    connection.execute(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT temporary"
    )


def source_of(dsn: str, table: str = "t", **options: Any) -> PostgresChanges:
    given: dict[str, Any] = {
        "publication": "all_of_it", "slot": "mine", "snapshot": True, "columns": None, "types": {},
        "truncate": "error", "end": "never",
    }  # fmt: skip
    return changes_of(dsn, table, **{**given, **options})


def applied(view: View, records: Records) -> View:
    """Return a view after some changes."""
    view = dict(view)
    for change in records.rows():
        before, after = change["before"], change["after"]
        match change["op"]:
            case "t":
                view = {}
            case "d":
                view.pop((before["id"], before["part"]), None)
            case _:
                if before is not None:
                    view.pop((before["id"], before["part"]), None)
                view[after["id"], after["part"]] = after
    return view


@pytest.mark.parametrize("seed", range(60 if is_campaign() else 8))
def test_a_view_follows_its_table(dsn: str, seed: int) -> None:
    """A reader that is killed at any batch, while transactions go on, always has a known state."""
    chance = random.Random(seed)
    full = chance.random() < 0.6  # otherwise large values that stay are not told
    read = ["id", "part", "n", *["body"] * full]

    def connect() -> Any:
        return psycopg.connect(dsn, autocommit=True)

    with connect() as connection:
        connection.execute(f"CREATE TABLE t {SCHEMA}")
        connection.execute("ALTER TABLE t ALTER body SET STORAGE EXTERNAL")
        connection.execute("CREATE TABLE other (id int PRIMARY KEY)")
        connection.execute("CREATE PUBLICATION all_of_it FOR ALL TABLES")
        if full:
            connection.execute("ALTER TABLE t REPLICA IDENTITY FULL")
    writer = Writer(connect, "t", chance, truncates=True)
    for _ in range(chance.choice([0, 5, 30])):
        writer.step()
    writer.finish()
    # A run's first commit comes after the slot was created, which waits for open transactions.
    source = source_of(dsn, columns=None if full else read, truncate="record")
    size = chance.choice([1, 2, 3, 7, 50])
    position: Position | None = None
    view: View = {}
    known, exact_since = 0, None
    skip: Records | None = None  # a batch that a run has committed, and not the place after it
    for restarts in range(7):
        batches = source.batches_from(position, size, ())
        finished = restarts == 6
        quiet = 0
        for records, after in batches:
            if skip is None:
                view = applied(view, records)
            elif position is not None and position["rows"] is None:
                assert records.rows() == skip.rows()
            elif position is not None:  # other rows perhaps, but up to the same key
                assert after["rows"] is None or after["rows"][0] == position["rows"][1]
            skip = None
            before, position = position, after
            if after["rows"] is None and after["at"][0] >= after["exact"] and not after["at"][1]:
                exact_since = exact_since or len(writer.states)
                states = [
                    {key: {name: row[name] for name in read} for key, row in state.items()}
                    for state in writer.states
                ]
                places = [at for at, state in enumerate(states) if at >= known and state == view]
                assert places, (seed, view, states[known:])
                known = places[0]
            is_told = chance.random() < 0.3
            if is_told:
                source.committed(position)
            if records.rest_seconds:
                quiet += 1
                if finished:
                    break
                if quiet > 1:
                    break
            if not finished:
                for _ in range(chance.choice([0, 0, 1, 2])):
                    writer.step()
                if records.length and chance.random() < 0.25:
                    if before is not None and not is_told and chance.random() < 0.5:
                        skip, position = records, before
                    break
        batches.close()  # type: ignore[attr-defined]
        if restarts == 5:
            writer.finish()
    wanted = {key: {name: row[name] for name in read} for key, row in writer.now().items()}
    assert view == wanted
    assert exact_since is not None
    writer.close()


def query(dsn: str, *statements: str) -> Any:
    """Run statements; return the rows of the last."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.cursor()
        for statement in statements:
            cursor.execute(statement)
        return cursor.fetchall() if cursor.description else None


def with_table(dsn: str, *statements: str) -> None:
    query(dsn, f"CREATE TABLE t {SCHEMA}", "CREATE PUBLICATION all_of_it FOR TABLE t", *statements)


def read(
    source: PostgresChanges, position: Position | None = None, size: int = 100
) -> tuple[list[Any], Position]:
    """Read all that is there, as a run with a state directory does."""
    found: list[Any] = []
    at = position
    for records, after in source.batches_from(position, size, ()):
        found, at = found + records.rows(), after
        if records.rest_seconds:
            break
    assert at is not None
    return found, at


def view_of(dsn: str, **options: Any) -> lw.Table[lw.Stream]:
    given: dict[str, Any] = {"publication": "all_of_it", "slot": "mine", **options}
    return lw.debezium(lw.read_postgres_changes(dsn, "t", **given), key=("id", "part"))


def test_a_run_resumes_and_the_slot_follows_it(dsn: str, tmp_path: Path) -> None:
    with_table(dsn, "INSERT INTO t SELECT n, '', n, 'x' FROM generate_series(1, 25) n")
    view, table = "SELECT id, part, n, body FROM {} ORDER BY id, part", "t"
    for number in range(4):
        with stopping("before the write" if number % 2 else "after the write", 3):
            writing = view_of(dsn).write_to(PostgresTable(dsn, "followed"))
            with pytest.raises(Stopped):
                writing.run(state=tmp_path, commit_every="bundle", bundle_size=5, progress=False)
        query(
            dsn,
            f"INSERT INTO t SELECT {number}, 'a' || n, n FROM generate_series(1, 7) n",
            f"UPDATE t SET part = 'b' WHERE id = {number + 4}",
            f"DELETE FROM t WHERE id = {number + 10}",
        )
    ((end,),) = query(dsn, "SELECT pg_current_wal_flush_lsn()::text")
    writing = view_of(dsn, end=end).write_to(PostgresTable(dsn, "followed"))
    writing.run(state=tmp_path, commit_every="bundle", bundle_size=5, progress=False)
    assert query(dsn, view.format("followed")) == query(dsn, view.format(table))
    followed = f"SELECT confirmed_flush_lsn >= '{end}' FROM pg_replication_slots"
    assert query(dsn, followed) == [(True,)]


def test_the_slot_follows_a_quiet_table(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the server would keep what others write for as long as this table stays as it is."""
    monkeypatch.setattr(commit_policy, "MOVED_S", 0.0)
    with_table(dsn, "CREATE TABLE other (n int)")
    writing = view_of(dsn).write_to(PostgresTable(dsn, "followed"))

    written: list[str] = []

    def write() -> None:
        query(dsn, "INSERT INTO other SELECT * FROM generate_series(1, 1000)")
        ((end,),) = query(dsn, "SELECT pg_current_wal_flush_lsn()::text")
        written.append(end)

    writes = stopping("before forgetting", 1, write)
    with writes, stopping("before forgetting", 2), pytest.raises(Stopped):
        writing.run(state=tmp_path, progress=False)
    with stopping("after the write", 1), pytest.raises(Stopped):
        writing.run(state=tmp_path, progress=False)  # which tells what the first one committed
    follows = (
        "SELECT confirmed_flush_lsn >= '{}' FROM pg_replication_slots WHERE slot_name = 'mine'"
    )
    assert query(dsn, follows.format(written[0])) == [(True,)]


def test_killed_while_rows_are_read(dsn: str) -> None:
    """The rows that are left are read as they are by then; with the changes they are right."""
    with_table(dsn, "INSERT INTO t SELECT n, '', 0 FROM generate_series(1, 9) n")
    source = source_of(dsn)
    assert repr(source) == "PostgresChanges('public.t', slot='mine')"
    first: list[Any] = []
    position: Position | None = None
    for records, after in source.batches_from(None, 3, ()):
        first, position = first + records.rows(), after
        if first:
            break
    assert position is not None
    assert [one["after"]["id"] for one in first] == [1, 2, 3]
    assert position["rows"] == [["3", ""], ["6", ""]]
    query(
        dsn, "UPDATE t SET n = 1 WHERE id IN (1, 5)", "DELETE FROM t WHERE id IN (2, 9)",
        "INSERT INTO t VALUES (4, 'a', 2)",
    )  # fmt: skip
    ((end, at),) = query(dsn, "SELECT lsn::text, (lsn - '0/0')::int8 FROM pg_current_wal_lsn() lsn")
    sizes, view = [], applied({}, Records.from_arrow(pa.RecordBatch.from_pylist(first)))
    for records, after in source_of(dsn, end=end).batches_from(position, 3, ()):
        assert after["exact"] >= at
        sizes.append(len(records))
        view = applied(view, records)
    # The first batch ends with the key that was foretold. All changes come, to any row.
    assert sizes[0] == 4
    assert sorted((key[0], row["n"]) for key, row in view.items()) == [
        (1, 1), (3, 0), (4, 0), (4, 2), (5, 1), (6, 0), (7, 0), (8, 0),
    ]  # fmt: skip
    assert sum(sizes) == 4 + 2 + 5


def test_rows_are_those_of_the_instant_at_which_the_slot_begins(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_table(dsn, "INSERT INTO t VALUES (1, '', 0)")

    def created(dsn: str, slot: str | None) -> Any:
        found = create(dsn, slot)
        query(dsn, "INSERT INTO t VALUES (2, '', 0)")
        return found

    monkeypatch.setattr("lowwater.io.postgres_changes.table_reading.create", created)
    found, position = read(source_of(dsn))
    assert [(one["op"], one["after"]["id"]) for one in found] == [("r", 1), ("c", 2)]
    assert found[0]["lsn"] < position["at"][0]
    # A run that was killed before it committed has left the slot: the next one uses it.
    monkeypatch.undo()
    found, _ = read(source_of(dsn))
    assert [(one["op"], one["after"]["id"]) for one in found] == [("r", 1), ("r", 2), ("c", 2)]


def test_a_run_without_a_state_leaves_no_slot(dsn: str) -> None:
    with_table(dsn, "INSERT INTO t VALUES (1, '', 1, 'x'), (2, '', NULL, NULL)")
    view = view_of(dsn, end="latest")
    query(dsn, "DELETE FROM t WHERE id = 1")
    assert view.rows() == [{"id": 2, "part": "", "n": None, "body": None}]
    assert query(dsn, "SELECT slot_name FROM pg_replication_slots") == []


def test_large_transactions_come_in_several_batches(dsn: str) -> None:
    with_table(dsn)
    source = source_of(dsn)
    _, position = read(source)
    query(dsn, "INSERT INTO t SELECT n, '', n FROM generate_series(1, 50) n")
    sizes = []
    for records, after in source.batches_from(position, 20, ()):
        sizes.append(len(records))
        position = after
        if sum(sizes) == 40:  # killed amid the transaction
            break
    assert [one for one in sizes if one] == [20, 20]
    found, _ = read(source, position, 20)
    assert [one["after"]["id"] for one in found] == list(range(41, 51))


def test_without_the_rows(dsn: str) -> None:
    """Only changes; a table without a primary key will do if its whole rows are told."""
    query(
        dsn, "CREATE TABLE t (a int, b bytea)", "ALTER TABLE t REPLICA IDENTITY FULL",
        "INSERT INTO t VALUES (1)", "CREATE PUBLICATION all_of_it FOR TABLE t",
    )  # fmt: skip
    source = source_of(dsn, snapshot=False, types={"a": pa.string()})
    found, position = read(source)
    assert not found
    query(dsn, "UPDATE t SET b = '\\x01ff'")
    (change,), _ = read(source, position)
    assert change["before"] == {"a": "1", "b": None}
    assert change["after"] == {"a": "1", "b": b"\x01\xff"}


def test_what_the_publication_leaves_out(dsn: str) -> None:
    """The rows that are there are those that the publication would have told."""
    query(
        dsn, f"CREATE TABLE t {SCHEMA}",
        "CREATE PUBLICATION all_of_it FOR TABLE t (id, part, n) WHERE (id > 1)",
        "INSERT INTO t VALUES (1, '', 1, 'x'), (2, '', 2, 'y')",
    )  # fmt: skip
    source = source_of(dsn)
    found, position = read(source)
    assert [one["after"] for one in found] == [{"id": 2, "part": "", "n": 2}]
    query(dsn, "INSERT INTO t VALUES (0, '', 1, 'x'), (3, '', 3, 'y')")
    found, _ = read(source, position)
    assert [one["after"] for one in found] == [{"id": 3, "part": "", "n": 3}]


def test_partitions_are_read_as_their_table(dsn: str) -> None:
    query(
        dsn, "CREATE TABLE t (id int PRIMARY KEY, n int) PARTITION BY LIST (id)",
        "CREATE TABLE t1 PARTITION OF t FOR VALUES IN (1)",
        "CREATE TABLE t2 PARTITION OF t FOR VALUES IN (2)", "INSERT INTO t VALUES (1, 1)",
        "CREATE PUBLICATION all_of_it FOR TABLE t",
    )  # fmt: skip
    with pytest.raises(DataError, match="publish_via_partition_root = true"):
        source_of(dsn)
    query(dsn, "ALTER PUBLICATION all_of_it SET (publish_via_partition_root = true)")
    source = source_of(dsn)
    _, position = read(source)
    query(dsn, "INSERT INTO t VALUES (2, 2)")
    (change,), _ = read(source, position)
    assert change["after"] == {"id": 2, "n": 2}


def test_columns_that_come_and_go(dsn: str) -> None:
    with_table(dsn)
    whole, some = source_of(dsn), source_of(dsn, slot="other", columns=["id", "part"])
    (_, at), (_, at_some) = read(whole), read(some)
    query(dsn, "ALTER TABLE t ADD size int", "INSERT INTO t VALUES (1, '', 1, 'x', 2)")
    query(dsn, "ALTER TABLE t DROP n", "INSERT INTO t VALUES (2, '', 'x', 2)")
    with pytest.raises(DataError, match="'size' is new"):
        read(whole, at)
    found, _ = read(some, at_some)
    assert [one["after"]["id"] for one in found] == [1, 2]


def test_a_truncate(dsn: str) -> None:
    with_table(dsn)
    source = source_of(dsn)
    _, position = read(source)
    query(dsn, "TRUNCATE t")
    with pytest.raises(DataError, match=r"public\.t was truncated at"):
        read(source, position)
    (found,), _ = read(source_of(dsn, truncate="record"), position)
    assert (found["op"], found["before"], found["after"]) == ("t", None, None)


def test_slots_that_are_not_what_the_state_knows(dsn: str) -> None:
    with_table(dsn)
    source = source_of(dsn)
    _, position = read(source)
    with pytest.raises(DataError, match="the state directory is from a run over another server"):
        read(source, {**position, "system": "1"})
    with pytest.raises(StateError, match="the position in the changes of a table cannot be read"):
        read(source, {**position, "at": ["0/1", 0]})
    query(dsn, "INSERT INTO t VALUES (1, '')", "SELECT pg_switch_wal()")
    query(dsn, "SELECT pg_replication_slot_advance('mine', pg_current_wal_flush_lsn())")
    with pytest.raises(DataError, match="what is between is lost"):
        read(source, position)
    query(dsn, "SELECT pg_drop_replication_slot('mine')")
    with pytest.raises(DataError, match="there is no replication slot 'mine'"):
        read(source, position)
    query(dsn, "DROP DATABASE IF EXISTS two", "CREATE DATABASE two")
    two = dsn.replace("dbname=postgres", "dbname=two")
    query(two, "SELECT pg_create_logical_replication_slot('mine', 'pgoutput')")
    with pytest.raises(DataError, match="is another database's"):
        read(source)
    query(two, "SELECT pg_drop_replication_slot('mine')")


def test_a_slot_that_is_lost(dsn: str) -> None:
    with_table(dsn)
    source = source_of(dsn)
    _, position = read(source)
    try:
        query(dsn, "ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'", "SELECT pg_reload_conf()")
        for _ in range(3):
            query(dsn, "CREATE TABLE filler ()", "DROP TABLE filler", "SELECT pg_switch_wal()")
        query(dsn, "CHECKPOINT")
        with pytest.raises(DataError, match="the replication slot 'mine' is lost"):
            read(source, position)
    finally:
        query(dsn, "ALTER SYSTEM RESET max_slot_wal_keep_size", "SELECT pg_reload_conf()")


@pytest.mark.parametrize(
    ("statement", "options", "told"),
    [
        ("", {"publication": "none"}, "CREATE PUBLICATION none FOR TABLE public.t"),
        ("CREATE TABLE u (id int)", {"table": "u"}, "ALTER PUBLICATION all_of_it ADD TABLE"),
        ("", {"table": "public.v"}, "the database has no table 'public.v'"),
        ("ALTER TABLE t DROP CONSTRAINT t_pkey", {}, "has no primary key"),
        ("ALTER TABLE t REPLICA IDENTITY NOTHING", {}, "has no replica identity"),
        ("", {"columns": ["id", "m"]}, "columns= names 'm'"),
        ("", {"types": {"m": pa.string()}}, "types= names 'm'"),
        ("", {"slot": "Mine"}, "is not the name of a replication slot"),
        ("", {"end": "soon"}, "is no place in the changes"),
        ("", {"truncate": "drop"}, "truncate='drop'"),
        ("", {"snapshot": 1}, "snapshot=1"),
        ("", {"publication": ""}, "publication="),
    ],
)
def test_what_cannot_be_read(dsn: str, statement: str, options: dict[str, Any], told: str) -> None:
    with_table(dsn, *[statement] * bool(statement))
    with pytest.raises(LowwaterError) as raised:
        source_of(dsn, **options)
    assert told in str(raised.value)


def test_who_cannot_read(dsn: str) -> None:
    with_table(dsn, "DROP ROLE IF EXISTS guest", "CREATE ROLE guest LOGIN")
    source = source_of(dsn.replace("user=tests", "user=guest"))
    with pytest.raises(DataError, match="attribute REPLICATION") as raised:
        read(source)
    assert "user=" not in str(raised.value)
    query(dsn, "ALTER ROLE guest REPLICATION")
    with pytest.raises(DataError, match="right to SELECT"):
        read(source)
    with pytest.raises(DataError, match="See that the server can be reached"):
        source_of(dsn.replace("host=", "host=/nowhere"))
    assert "host" not in repr(source)


def test_runs_up_to_what_is_there(dsn: str, tmp_path: Path) -> None:
    with_table(dsn, "INSERT INTO t SELECT n, '', n, 'x' FROM generate_series(1, 25) n")
    view = "SELECT id, part, n, body FROM {} ORDER BY id, part"
    for number in range(4):
        writing = view_of(dsn).write_to(PostgresTable(dsn, "followed"))
        writing.run(state=tmp_path, until="available", bundle_size=5, progress=False)
        assert query(dsn, view.format("followed")) == query(dsn, view.format("t"))
        query(
            dsn,
            f"INSERT INTO t SELECT {number}, 'a' || n, n FROM generate_series(1, 7) n",
            f"UPDATE t SET part = 'b' WHERE id = {number + 4}",
            f"DELETE FROM t WHERE id = {number + 10}",
        )


def test_thirty_runs_with_kills_write_what_one_run_that_follows_writes(
    dsn: str, tmp_path: Path
) -> None:
    with_table(dsn)
    rows = ", ".join(f"({{}}, 'p' || {n % 3}, {n})" for n in range(12))

    def written(which: str, folder: Path) -> Any:
        changes = lw.read_postgres_changes(
            dsn, "t", publication="all_of_it", slot=which, watermark=lw.Ascending(),
            clock=lw.ManualClock(0),
        )  # fmt: skip
        parts = changes.with_columns(
            k=lw.col("after").struct.field("part"), v=lw.col("after").struct.field("n")
        )
        panes = parts.key_by("k").window(lw.FixedWindows("20ms"))
        return panes.aggregate(n=lw.count(), values=lw.collect("v")).write_jsonl(folder)

    def add(number: int) -> int:
        query(dsn, f"INSERT INTO t VALUES {rows.format(*range(number * 12, number * 12 + 12))}")
        return 12

    for which in ("one", "many"):  # both slots begin before the first row
        written(which, tmp_path / which).run(
            state=tmp_path / f"{which} state", until="available", bundle_size=100, progress=False
        )
    one, many = side_by_side(tmp_path, written, add, bundle_size=100)
    assert many == one
    assert len(one["part"]) > 60
