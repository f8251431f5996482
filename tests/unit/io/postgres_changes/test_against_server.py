"""Changes of tables, read from a server that the tests start."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from lowwater.engine.graph.sources import Position
from lowwater.engine.records.batch import Records
from lowwater.io.postgres_changes.options import changes_of
from lowwater.io.postgres_changes.source import PostgresChanges
from tests.examples import is_campaign
from tests.unit.io.postgres_changes.writer import View, Writer
from tests.unit.io.postgresql import running_server

psycopg = pytest.importorskip("psycopg", reason="needs the extra postgres")
pytestmark = pytest.mark.slow

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
            if chance.random() < 0.3:
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
                    if before is not None and chance.random() < 0.5:
                        skip, position = records, before
                    break
        batches.close()  # type: ignore[attr-defined]
        if restarts == 5:
            writer.finish()
    wanted = {key: {name: row[name] for name in read} for key, row in writer.now().items()}
    assert view == wanted
    assert exact_since is not None
    writer.close()
