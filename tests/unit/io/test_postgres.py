"""The table in PostgreSQL, against a server that the tests start."""

from __future__ import annotations

import datetime as dt
import json
import random
import string
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lowwater as lw
from lowwater.engine.local.delivery import Delivery
from lowwater.errors import DataError, StateError
from lowwater.io.sinks import Callback, PostgresTable, late_to_table
from tests.examples import sampled
from tests.unit.engine.local.durable_runs import Stopped, stopping
from tests.unit.io.deliveries import (
    ANOTHER,
    SECOND,
    WRITER,
    Killed,
    Moments,
    Whatever,
    deliver_all,
    dying_in_database,
    empty,
    of_items,
    panes_of,
    sessions,
    with_everything,
)
from tests.unit.io.postgresql import running_server

psycopg = pytest.importorskip("psycopg", reason="needs the extra postgres")
pytestmark = pytest.mark.slow(reason="needs a server")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with running_server() as dsn:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("CREATE DATABASE one")
        yield dsn


@pytest.fixture
def dsn(server: str) -> str:
    """Give an empty database to each test, to which nobody is connected."""
    one = server.replace("dbname=postgres", "dbname=one")
    query(one, OTHERS_END)
    with psycopg.connect(one, autocommit=True) as connection:
        connection.execute('DROP SCHEMA IF EXISTS public, "my schema" CASCADE')
        connection.execute("CREATE SCHEMA public")
    return one


OTHERS_END = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE pid <> pg_backend_pid() AND datname = 'one'"
)


def query(dsn: str, statement: str) -> list[Any]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SET TIME ZONE 'UTC'")
        found: list[Any] = connection.execute(statement).fetchall()
    return found


def everything(dsn: str) -> dict[str, list[Any]]:
    tables = query(dsn, "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1")
    return {name: query(dsn, f'SELECT * FROM "{name}" AS t ORDER BY t::text') for (name,) in tables}


FIRST, NEXT = with_everything(1, 0), with_everything(2, 0, add=1)


def test_delivered_again_it_is_the_same(dsn: str) -> None:
    deliver_all(PostgresTable(dsn, "counts"), [FIRST, NEXT])
    once = everything(dsn)
    assert set(once) == {"counts", "counts_late", "counts_errors", "lowwater_outputs"}
    assert len(once["counts"]) == FIRST.panes.num_rows
    deliver_all(PostgresTable(dsn, "counts"), [FIRST, NEXT])
    assert everything(dsn) == once
    ((record,),) = query(dsn, f"SELECT record FROM counts_late WHERE delivery = '{FIRST.id}'")
    assert record["record"] == {"t": 0, "k": "a", "v": 3}


@pytest.mark.parametrize("seed", sampled(range(3), every=3))
def test_retracting_sessions_come_to_the_batch_answer(dsn: str, seed: int) -> None:
    """S-A3."""
    deliveries, answer = sessions(seed)
    for place, one in enumerate(deliveries):
        again = [other for other in deliveries[:place] if other.epoch == one.epoch]
        deliver_all(PostgresTable(dsn, "counts"), [*again, one])
    found = query(
        dsn,
        "SELECT k, extract(epoch FROM window_start)::bigint, "
        "extract(epoch FROM window_end)::bigint, total FROM counts",
    )
    assert {tuple(row[:3]): row[3] for row in found} == answer
    assert len(found) == len(answer)


@pytest.mark.parametrize("how", ["inner", "left", "right", "outer"])
def test_a_join_of_tables_by_primary_key(dsn: str, how: Any) -> None:
    """T-4: where the key may hold nulls, its text is the primary key."""
    rng = random.Random(how)
    rows = [
        {"at": at, "side": rng.choice("lr"), "id": rng.randrange(4), "g": rng.randrange(4), "v": at}
        for at in range(60)
    ]
    stream = lw.from_iterable(rows, time="at", unit="s")
    left, right = (
        stream.filter(lw.col("side") == side).table(key="id").select("id", "g", "v")
        for side in "lr"
    )
    table = left.join(right, on="g", how=how)
    for name, one in (("l", left), ("r", right), ("joined", table)):
        one.write_to(PostgresTable(dsn, name)).run(bundle_size=6, commit_every="bundle")
    found = query(dsn, "SELECT g, id, v, id_right, v_right FROM joined")
    kind = "full" if how == "outer" else how
    wanted = query(
        dsn,
        f"SELECT coalesce(l.g, r.g), l.id, l.v, r.id, r.v FROM l {kind} JOIN r ON l.g = r.g",
    )
    assert sorted(map(str, found)) == sorted(map(str, wanted))


@pytest.mark.long(reason="needs a server")
@pytest.mark.parametrize("after", [False, True])
def test_death_at_any_statement(dsn: str, after: bool) -> None:
    deliveries = [FIRST, NEXT, empty(3)]
    deliver_all(PostgresTable(dsn, "counts"), deliveries)
    whole = everything(dsn)
    at = 0
    while True:
        for name in everything(dsn):
            with psycopg.connect(dsn, autocommit=True) as connection:
                connection.execute(f'DROP TABLE "{name}"')
        moments = Moments(at, Killed, after=after)
        with dying_in_database(psycopg, moments):
            try:
                deliver_all(PostgresTable(dsn, "counts"), deliveries)
            except Killed:
                pass
        if not moments.reached:
            break
        deliver_all(PostgresTable(dsn, "counts"), deliveries)
        assert everything(dsn) == whole
        at += 1
    assert at > 20


def test_a_zombie_waits_and_then_does_nothing(dsn: str) -> None:
    """Two that deliver at once are put in order by the row in the ledger."""
    one, other = PostgresTable(dsn, "counts"), PostgresTable(dsn, "counts")
    one.open(WRITER)
    other.open(WRITER)
    one.deliver(NEXT)
    before = everything(dsn)
    other.deliver(FIRST)
    other.deliver(NEXT)
    assert everything(dsn) == before
    one.close(complete=True)
    other.close(complete=True)


def test_a_schema(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute('CREATE SCHEMA "my schema"')
        connection.execute("CREATE TABLE strange (a int)")
    deliver_all(PostgresTable(dsn, "my schema.counts"), [FIRST, FIRST])
    found = query(dsn, "SELECT tablename FROM pg_tables WHERE schemaname = 'my schema'")
    assert {name for (name,) in found} == {
        "counts", "counts_late", "counts_errors", "lowwater_outputs",
    }  # fmt: skip
    with pytest.raises(StateError, match=r"there is a table .public\.strange. already"):
        PostgresTable(dsn, "public.strange").open(WRITER)
    with pytest.raises(StateError, match="another state directory"):
        PostgresTable(dsn, "my schema.counts").open(ANOTHER)
    with pytest.raises(DataError, match=r"schema .none. does not exist"):
        PostgresTable(dsn, "none.counts").open(WRITER)


def test_several_keys_and_strange_names(dsn: str) -> None:
    items = [{"t": i * 30 * SECOND, 'a "b"': "x", "100%": i % 2, "v": i} for i in range(8)]
    panes = panes_of(
        lw.from_iterable(items, time="t", watermark=lw.Ascending(), clock=lw.ManualClock(0))
        .key_by('a "b"', "100%")
        .window(lw.FixedWindows("1m"))
        .aggregate(**{"%s ?": lw.sum("v")})
    )
    deliver_all(PostgresTable(dsn, 'the "counts" 100%?'), [Delivery(1, 0, 0, panes)] * 2)
    found = query(dsn, 'SELECT "a ""b""", "100%", "%s ?" FROM "the ""counts"" 100%?" ORDER BY 2, 3')
    assert found == [("x", parity, total) for parity in (0, 1) for total in range(parity, 8, 2)]


def minute(at: int, odd: Any, epoch: int) -> Delivery:
    items = [{"t": at * 60 * SECOND, "k": "a", "v": 0}]
    return Delivery(epoch, 0, 0, of_items(items, {"odd": lw.combine(Whatever(odd), "v")}))


def test_a_column_comes_with_its_first_value(dsn: str) -> None:
    values = [None, 3, None, 2.5, 4]
    deliver_all(
        PostgresTable(dsn, "counts"), [minute(at, v, at + 1) for at, v in enumerate(values)]
    )
    assert [odd for (odd,) in query(dsn, "SELECT odd FROM counts ORDER BY window_start")] == values


NOON = dt.datetime(2020, 1, 1, 12, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("value", "of"),
    [
        (True, pa.bool_()),
        (-(2**63), pa.int64()),
        (2**64 - 1, pa.uint64()),
        (1.5, pa.float32()),
        (float("inf"), pa.float64()),
        (Decimal("1.10"), pa.decimal128(5, 2)),
        ("ü", pa.large_string()),
        ("1", pa.dictionary(pa.int8(), pa.string())),
        (b"\0x", pa.binary()),
        (dt.date(1, 2, 3), pa.date32()),
        (dt.time(1, 2, 3), pa.time64("us")),
        (NOON, pa.timestamp("us", "UTC")),
        (NOON.replace(tzinfo=None), pa.timestamp("ns")),
        (dt.timedelta(days=400, seconds=1), pa.duration("ms")),
        ([1, None], pa.list_(pa.int8())),
        ({"a": "b"}, pa.struct([("a", pa.string())])),
    ],
)
def test_types(dsn: str, value: Any, of: pa.DataType) -> None:
    """As values, with nulls beside them, and as keys that a retraction finds."""
    panes = minute(0, 3, 1).panes
    place = panes.schema.names.index("odd")
    typed = panes.set_column(place, "odd", pa.array([value], of))
    null = panes.set_column(place, "odd", pa.nulls(1, of)).set_column(0, "k", pa.array(["b"]))
    deliver_all(PostgresTable(dsn, "counts"), [Delivery(1, 0, 0, typed), Delivery(1, 0, 1, null)])
    assert query(dsn, "SELECT k, odd FROM counts ORDER BY 1") == [("a", value), ("b", None)]
    keyed = panes.set_column(0, "k", pa.array([value], of))
    retract = pa.DictionaryArray.from_arrays(pa.array([1], pa.int8()), ["insert", "retract"])
    back = keyed.set_column(panes.schema.names.index("kind"), "kind", retract)
    deliver_all(PostgresTable(dsn, "keyed"), [Delivery(1, 0, 0, keyed)])
    assert query(dsn, "SELECT k FROM keyed") == [(value,)]
    deliver_all(PostgresTable(dsn, "keyed"), [Delivery(2, 0, 0, back)])
    assert query(dsn, "SELECT k FROM keyed") == []


def test_records_that_no_text_column_holds(dsn: str) -> None:
    late = lw.LateRecord("a\0\udc80", lw.Instant(0), "k", None, lw.Instant(1), "unwindowed")
    deliver_all(
        PostgresTable(dsn, "counts"), [Delivery(1, 0, 0, FIRST.panes, late_to_table([late]))]
    )
    ((record,),) = query(dsn, "SELECT record::text FROM counts_late")
    assert json.loads(record)["record"] == "a\0\udc80"


def test_refused_as_a_whole(dsn: str) -> None:
    """Neither half a delivery nor a dead connection is left of what the server refuses."""
    sink = PostgresTable(dsn, "counts")
    sink.open(WRITER)
    sink.deliver(minute(0, "x", 1))
    before = everything(dsn)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("ALTER TABLE counts ADD CONSTRAINT mine CHECK (odd <> 'bad')")
    good, bad = minute(1, "y", 2).panes, minute(2, "bad", 2).panes
    with pytest.raises(DataError, match=r"violates check constraint .mine."):
        sink.deliver(Delivery(2, 0, 0, pa.concat_tables([good, bad]), FIRST.late))
    assert everything(dsn) == before
    sink.deliver(Delivery(2, 0, 0, good))
    assert len(query(dsn, "SELECT 1 FROM counts")) == 2
    sink.close(complete=True)


def test_a_server_that_went_away(dsn: str) -> None:
    sink = PostgresTable(dsn, "counts")
    sink.open(WRITER)
    query(dsn, OTHERS_END)
    with pytest.raises(DataError, match="can be reached"):
        sink.deliver(FIRST)
    sink.close(complete=False)
    deliver_all(sink, [FIRST])
    assert len(query(dsn, "SELECT 1 FROM counts")) == FIRST.panes.num_rows
    with pytest.raises(DataError, match="can be reached"):
        PostgresTable(dsn.replace("host=", "host=/none"), "counts").open(WRITER)


class Latest:
    """A combiner that gives the last value."""

    def create_accumulator(self) -> list[Any]:
        return []

    def add_input(self, accumulator: list[Any], value: Any) -> list[Any]:
        return [value]

    def merge_accumulators(self, accumulators: Any) -> list[Any]:
        return next((one for one in reversed(list(accumulators)) if one), [])

    def extract_output(self, accumulator: list[Any]) -> Any:
        return accumulator[0] if accumulator else None


# A key whose row in an index is too long however it is compressed.
LONG = "".join(random.Random(3).choices(string.ascii_letters + string.digits, k=9_000))
POISON = [
    pytest.param({"k": "a\0b"}, "NUL", id="U+0000 in a key"),
    pytest.param({"v": "x\0y"}, "NUL", id="U+0000 in a value"),
    pytest.param({"k": LONG}, "index row", id="a long key"),
    pytest.param({"v": ["x", "a\0"]}, "unsupported Unicode", id="U+0000 in a list"),
]


def latest(folder: Path) -> lw.Pipeline:
    return (
        lw.read_jsonl(folder / "in.jsonl", time="t", clock=lw.ManualClock(0))
        .key_by("k")
        .window(
            lw.FixedWindows("1m"),
            trigger=lw.Repeatedly(lw.AfterCount(1)),
            accumulation="accumulating",
        )
        .aggregate(v=lw.combine(Latest(), "v"), n=lw.count())
    )


def write_items(folder: Path, items: list[dict[str, Any]]) -> None:
    (folder / "in.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))


@pytest.mark.parametrize(("poison", "says"), POISON)
@pytest.mark.parametrize("dies", sampled([True, False], every=2))
def test_a_value_that_postgresql_cannot_hold_does_not_stop_the_run(
    dsn: str, poison: dict[str, Any], says: str, dies: bool, tmp_path: Path
) -> None:
    """It was committed before it was delivered, and came again at every start."""
    plain: Any = "good"
    if not isinstance(poison.get("v", ""), str):
        plain = type(poison["v"])()
    items = [{"t": SECOND * n, "k": f"k{n % 3}", "v": plain} for n in range(40)]
    items[20] |= poison
    items[20]["t"] = SECOND * 1_000  # a window of its own
    write_items(tmp_path, items)
    writing = latest(tmp_path).write_to(PostgresTable(dsn, "counts"))
    options: dict[str, Any] = {"bundle_size": 10, "commit_every": "bundle", "progress": False}
    if dies:
        with stopping("before forgetting", 3), pytest.raises(Stopped):
            writing.run(state=tmp_path / "state", **options)
    metrics = writing.run(state=tmp_path / "state", **options)
    assert metrics.events == 40
    assert query(dsn, "SELECT sum(n) FROM counts") == [(39,)]
    ((reason, record),) = query(dsn, "SELECT reason, record::text FROM counts_errors")
    assert reason == "not_storable"
    letter = json.loads(record)
    assert says in letter["detail"]
    assert "k=" in letter["detail"]
    assert letter["record"]["k"] == items[20]["k"]
    assert letter["record"]["n"] == 1
    if isinstance(plain, str):
        assert letter["record"]["v"] == items[20]["v"]
    once = everything(dsn)
    writing.run(state=tmp_path / "state", **options)
    again = everything(dsn)
    del once["lowwater_outputs"], again["lowwater_outputs"]  # each opening leaves its mark there
    assert again == once


def test_a_pane_that_is_refused_takes_the_row_before_it_away(dsn: str, tmp_path: Path) -> None:
    """The table never has an older pane than the latest."""
    values = ["a", "b\0", "c"]
    items = [{"t": SECOND, "k": "k", "v": value} for value in values]
    write_items(tmp_path, items)
    seen = []

    def look(_delivery: Delivery) -> None:
        seen.append(query(dsn, "SELECT v, n FROM counts"))

    latest(tmp_path).write_to(PostgresTable(dsn, "counts"), Callback(look)).run(
        bundle_size=1, commit_every="bundle", progress=False
    )
    assert seen == [[("a", 1)], [], [("c", 3)]]
    assert len(query(dsn, "SELECT 1 FROM counts_errors")) == 1


def test_many_rows_of_which_some_are_refused(dsn: str) -> None:
    items = [{"t": SECOND, "k": f"k{n}" + "\0" * (n % 500 == 7), "v": n % 7} for n in range(3_000)]
    panes = of_items(items, {"total": lw.sum("v")})
    deliver_all(PostgresTable(dsn, "counts"), [Delivery(1, 0, 0, panes, None, FIRST.errors)])
    assert query(dsn, "SELECT count(*) FROM counts") == [(2_994,)]
    found = query(dsn, "SELECT place, reason, record::text FROM counts_errors ORDER BY place")
    assert [place for place, _, _ in found] == list(range(7))
    assert {json.loads(record)["record"]["k"] for _, _, record in found[1:]} == {
        f"k{n}\0" for n in range(7, 3_000, 500)
    }


def test_what_was_refused_can_be_retracted(dsn: str) -> None:
    items = [{"t": SECOND, "k": key, "v": 1} for key in ("a", "a\0")]
    panes = of_items(items, {"total": lw.sum("v")})
    retract = pa.DictionaryArray.from_arrays(pa.array([1, 1], pa.int8()), ["insert", "retract"])
    back = panes.set_column(panes.schema.names.index("kind"), "kind", retract)
    deliver_all(PostgresTable(dsn, "counts"), [Delivery(1, 0, 0, panes), Delivery(2, 0, 0, back)])
    assert query(dsn, "SELECT * FROM counts") == []


def test_a_database_of_another_encoding(server: str) -> None:
    """What it lacks is a dead letter, and can be read in dead letters and late elements."""
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS latin WITH (FORCE)")
        connection.execute(
            "CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
        )
    dsn = server.replace("dbname=postgres", "dbname=latin")
    items = [{"t": SECOND, "k": key, "v": 1} for key in ("ü", "\u20ac")]
    late = lw.LateRecord("\u20ac \U0001f600", lw.Instant(0), "k", None, lw.Instant(1), "unwindowed")
    panes = of_items(items, {"total": lw.sum("v")})
    deliver_all(PostgresTable(dsn, "counts"), [Delivery(1, 0, 0, panes, late_to_table([late]))])
    assert query(dsn, "SELECT k FROM counts") == [("ü",)]
    for table, value in (("counts_errors", "\u20ac"), ("counts_late", "\u20ac \U0001f600")):
        ((record,),) = query(dsn, f"SELECT record::text FROM {table}")
        found = json.loads(record)["record"]
        assert (found["k"] if table == "counts_errors" else found) == value


def test_global_windows(dsn: str) -> None:
    items = [{"t": SECOND, "k": "a", "v": 1}]
    panes = panes_of(
        lw.from_iterable(items, time="t", key="k", clock=lw.ManualClock(0))
        .window(lw.GlobalWindow())
        .aggregate(total=lw.sum("v"))
    )
    deliver_all(PostgresTable(dsn, "counts"), [Delivery(1, 0, 0, panes)])
    assert query(dsn, "SELECT k, total FROM counts") == [("a", 1)]
