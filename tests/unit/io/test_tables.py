"""Tables of the latest pane of each key and window, in SQLite and in what stands for PostgreSQL."""

from __future__ import annotations

import datetime as dt
import json
import sqlite3
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from lowwater.engine.local.delivery import Delivery, Sink, Writer
from lowwater.errors import DataError, InvalidArgument, StateError
from lowwater.io.sinks import PostgresTable, SqliteTable
from lowwater.io.sinks.upserts import changes
from tests.examples import is_campaign, sampled
from tests.unit.io.deliveries import (
    ANOTHER,
    NEXT_RUN,
    RUN,
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
from tests.unit.io.fake_psycopg import FakeCursor, FakeError, FakeOperationalError, fake_psycopg

Make = Callable[..., Sink]


@pytest.fixture
def fake() -> Iterator[types.ModuleType]:
    with fake_psycopg() as module:
        yield module


@pytest.fixture(params=["sqlite", "postgres"])
def make(request: pytest.FixtureRequest, fake: types.ModuleType) -> Make:
    return SqliteTable if request.param == "sqlite" else PostgresTable


def rows(path: Path, table: str = "counts", what: str = "*") -> list[Any]:
    connection = sqlite3.connect(path)
    found = connection.execute(f'SELECT {what} FROM "{table}" ORDER BY 1, 2, 3').fetchall()
    connection.close()
    return found


def everything(path: Path) -> dict[str, list[Any]]:
    """Return the rows of all tables, by name."""
    connection = sqlite3.connect(path)
    names = [
        name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE sql > ''")
    ]
    connection.close()
    return {name: rows(path, name) for name in names}


def answer_in(path: Path) -> dict[tuple[str, int, int], int]:
    found = rows(path, "counts", "k, window_start, window_end, total")
    return {(k, _second(start), _second(end)): total for k, start, end, total in found}


def _second(text: str) -> int:
    return int(dt.datetime.fromisoformat(text).timestamp())


FIRST, NEXT = with_everything(1, 0), with_everything(2, 0, add=1)


def test_what_a_table_holds(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    sink = SqliteTable(str(path), "counts")
    assert isinstance(sink, Sink)
    deliver_all(sink, [FIRST, empty(2)])
    what = '"k", window_start, window_end, total, "values", mean, timing, "index", is_first'
    assert rows(path, "counts", what)[:2] == [
        ("a", "1970-01-01T00:00:00.000000Z", "1970-01-01T00:01:00.000000Z", 6, "[0, 2, 4]", 2.0,
         "ON_TIME", 0, 1),
        ("a", "1970-01-01T00:01:00.000000Z", "1970-01-01T00:02:00.000000Z", 24, "[6, 8, 10]", 8.0,
         "ON_TIME", 0, 1),
    ]  # fmt: skip
    ((delivery, place, reason, record),) = rows(path, "counts_late")
    assert (delivery, place, reason) == (FIRST.id, 0, "expired")
    assert json.loads(record)["record"] == {"t": 0, "k": "a", "v": 3}
    ((_, _, reason, record),) = rows(path, "counts_errors")
    assert json.loads(record)["reason"] == reason
    assert rows(path, "lowwater_outputs", "table_name, writer, output, epoch, piece") == [
        ("counts", "a-state", 0, 2, 0)
    ]
    functions = rows(path, "counts", "unixepoch(window_start), 1, 1")
    assert functions[0][0] == 0


def test_delivered_again_it_is_the_same(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    deliver_all(make(str(path), "counts"), [FIRST, NEXT])
    once = everything(path)
    assert [row[0] for row in once["counts_late"]] == [FIRST.id, NEXT.id]
    deliver_all(make(str(path), "counts"), [FIRST, NEXT])
    deliver_all(make(str(path), "counts"), [NEXT, FIRST])
    assert everything(path) == once


@pytest.mark.parametrize("seed", sampled(range(8), every=4))
def test_retracting_sessions_come_to_the_batch_answer(
    make: Make, seed: int, tmp_path: Path
) -> None:
    """S-A3: after merges, early and late panes, what is left is each session once."""
    deliveries, answer = sessions(seed)
    kinds = pa.concat_tables([one.panes.select(["kind"]) for one in deliveries])
    assert kinds["kind"].to_pylist().count("retract") > 50
    path = tmp_path / "a.sqlite"
    deliver_all(make(str(path), "counts"), deliveries)
    assert answer_in(path) == answer


def test_restarts_that_deliver_again(make: Make, tmp_path: Path) -> None:
    """A restart delivers the last epoch again, from its start."""
    deliveries, answer = sessions(3)
    path = tmp_path / "a.sqlite"
    for place, one in enumerate(deliveries):
        again = [other for other in deliveries[:place] if other.epoch == one.epoch]
        deliver_all(make(str(path), "counts"), [*again, one])
    assert answer_in(path) == answer


@pytest.mark.parametrize("after", [False, True] if is_campaign() else [False])
def test_death_at_any_statement(
    make: Make, after: bool, fake: types.ModuleType, tmp_path: Path
) -> None:
    """Before and after each statement, COMMIT among them: a restart comes to the same rows."""
    deliveries = [FIRST, NEXT, empty(3)]
    deliver_all(make(str(tmp_path / "whole"), "counts"), deliveries)
    whole = everything(tmp_path / "whole")
    own = sqlite3 if make is SqliteTable else fake
    at = 0
    while True:
        path = tmp_path / f"{at}.sqlite"
        moments = Moments(at, Killed, after=after)
        with dying_in_database(own, moments):
            try:
                deliver_all(make(str(path), "counts"), deliveries)
            except Killed:
                pass
        if not moments.reached:
            break
        deliver_all(make(str(path), "counts"), deliveries)
        assert everything(path) == whole
        at += 1
    assert at > 20


def test_two_tables_in_one_file(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    one, other = make(str(path), "counts"), make(str(path), "others")
    one.open(WRITER)
    other.open(ANOTHER)
    one.deliver(FIRST)
    other.deliver(Delivery(9, 0, 9, FIRST.panes.slice(0, 1)))
    one.deliver(NEXT)
    one.close(complete=True)
    other.close(complete=True)
    assert len(rows(path, "counts")) == FIRST.panes.num_rows
    assert len(rows(path, "others")) == 1
    assert rows(path, "lowwater_outputs", "table_name, epoch, piece") == [
        ("counts", 2, 0),
        ("others", 9, 9),
    ]


def test_another_state_directory_is_refused(make: Make, tmp_path: Path) -> None:
    """Its epochs begin anew, and would be skipped as those that are noted."""
    sink = make(str(tmp_path / "a.sqlite"), "counts")
    deliver_all(sink, [FIRST])
    with pytest.raises(StateError, match=r"another state directory.*Give another table"):
        sink.open(ANOTHER)
    with pytest.raises(StateError, match=r"holds output 0 of this run, and this is output 1"):
        sink.open(replace(WRITER, output=1))
    sink.open(WRITER)
    sink.close(complete=True)


def test_a_later_run_without_a_state_directory(make: Make, tmp_path: Path) -> None:
    """It is refused, or what is there is dropped; nobody else's table is."""
    path = tmp_path / "a.sqlite"
    deliver_all(make(str(path), "others"), [FIRST])
    before = rows(path, "others")
    deliver_all(make(str(path), "counts"), [FIRST], RUN)
    assert rows(path, "lowwater_outputs", "table_name, resumes, complete") == [
        ("counts", 0, 1), ("others", 1, 1),
    ]  # fmt: skip
    with pytest.raises(StateError, match=r"output of another run.*overwrite=True"):
        make(str(path), "counts").open(NEXT_RUN)
    deliver_all(make(str(path), "counts", overwrite=True), [NEXT], NEXT_RUN)
    deliver_all(make(str(tmp_path / "b.sqlite"), "counts"), [NEXT], NEXT_RUN)
    everywhere = everything(path)
    assert everywhere["counts"] == rows(tmp_path / "b.sqlite", "counts")
    assert everywhere["counts_late"] == rows(tmp_path / "b.sqlite", "counts_late")
    assert rows(path, "others") == before


def test_overwriting_is_not_for_the_writer_itself(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    deliver_all(make(str(path), "counts", overwrite=True), [FIRST])
    deliver_all(make(str(path), "counts", overwrite=True), [NEXT])
    deliver_all(make(str(tmp_path / "b.sqlite"), "counts"), [FIRST, NEXT])
    assert everything(path) == everything(tmp_path / "b.sqlite")


def test_a_run_that_fails_before_it_writes_leaves_no_trace(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    for deliveries, left in (([], []), ([FIRST], [("counts", 0, 1)])):
        sink = make(str(path), "counts")
        sink.open(RUN)
        for delivery in deliveries:
            sink.deliver(delivery)
        sink.close(complete=False)
        assert rows(path, "lowwater_outputs", "table_name, complete, epoch") == left


def test_a_table_that_was_taken_over(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    sink = make(str(path), "counts")
    sink.open(RUN)
    deliver_all(make(str(path), "counts", overwrite=True), [FIRST], NEXT_RUN)
    before = everything(path)
    with pytest.raises(StateError, match="is another run's"):
        sink.deliver(NEXT)
    sink.close(complete=True)
    assert everything(path) == before


def test_a_table_taken_over_before_anything_was_written(make: Make, tmp_path: Path) -> None:
    """The run that fails forgets its own row, not that of the run that took the table over."""
    path = tmp_path / "a.sqlite"
    first, second = make(str(path), "counts"), make(str(path), "counts", overwrite=True)
    first.open(RUN)
    second.open(NEXT_RUN)
    first.close(complete=False)
    second.deliver(FIRST)
    second.close(complete=True)
    assert rows(path, "lowwater_outputs", "writer, complete, epoch") == [(NEXT_RUN.id, 1, 1)]


def test_one_sink_object_in_two_runs(make: Make, tmp_path: Path) -> None:
    sink = make(str(tmp_path / "a.sqlite"), "counts", overwrite=True)
    sink.open(RUN)
    with pytest.raises(InvalidArgument, match="one sink object is in two runs"):
        sink.open(NEXT_RUN)
    sink.deliver(FIRST)
    sink.close(complete=True)


@pytest.mark.parametrize("table", ["counts_late", "counts_errors"])
@pytest.mark.parametrize("writer", [WRITER, RUN])
def test_a_side_table_that_the_run_did_not_make_stays(
    make: Make, writer: Writer, table: str, tmp_path: Path
) -> None:
    """Whether it comes while the run goes on, or before its restart or replacement."""
    path = tmp_path / "a.sqlite"
    sink = make(str(path), "counts")
    sink.open(writer)
    sink.deliver(Delivery(1, 0, 0, FIRST.panes))
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(f"CREATE TABLE {table} (a, b, c)")
        connection.execute(f"INSERT INTO {table} VALUES (1, 2, 3)")
    before = everything(path)
    with pytest.raises(StateError, match=f"there is a table '{table}' already"):
        sink.deliver(NEXT)
    sink.close(complete=False)
    for later in (WRITER, NEXT_RUN):
        with pytest.raises(StateError, match=f"there is a table '{table}' already"):
            make(str(path), "counts", overwrite=True).open(later)
    assert everything(path) == before
    with connection:
        connection.execute(f"DROP TABLE {table}")
    connection.close()
    deliver_all(make(str(path), "counts", overwrite=True), [NEXT], NEXT_RUN)


@pytest.mark.parametrize("table", ["counts", "counts_late", "counts_errors"])
def test_a_table_that_is_gone(make: Make, table: str, tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    deliver_all(make(str(path), "counts"), [FIRST])
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(f"DROP TABLE {table}")
    connection.close()
    with pytest.raises(StateError, match=f"the table '{table}' is gone"):
        make(str(path), "counts", overwrite=True).open(WRITER)


@pytest.mark.parametrize("table", ["counts", "counts_late", "counts_errors"])
def test_a_strange_table_is_refused(make: Make, table: str, tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    connection = sqlite3.connect(path)
    connection.execute(f"CREATE TABLE {table} (a, b, c)")
    connection.close()
    with pytest.raises(StateError, match=f"there is a table '{table}' already"):
        make(str(path), "counts").open(WRITER)


def test_a_later_layout(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    deliver_all(make(str(path), "counts"), [FIRST])
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("UPDATE lowwater_outputs SET version = 4")
    with pytest.raises(StateError, match=r"in layout 4, and 3 is known"):
        make(str(path), "counts").open(WRITER)
    with connection:
        connection.execute("UPDATE lowwater_outputs SET version = 3")
    sink = make(str(path), "counts")
    sink.open(WRITER)
    with connection:
        connection.execute("DELETE FROM lowwater_outputs")
    connection.close()
    with pytest.raises(StateError, match="has vanished"):
        sink.deliver(NEXT)
    sink.close(complete=True)


def minute(at: int, odd: Any, epoch: int) -> Delivery:
    """Return one pane whose value is of some type."""
    items = [{"t": at * 60 * SECOND, "k": "a", "v": 0}]
    return Delivery(epoch, 0, 0, of_items(items, {"odd": lw.combine(Whatever(odd), "v")}))


def test_a_column_comes_with_its_first_value(make: Make, tmp_path: Path) -> None:
    """Nulls alone have no type; an int may become a float."""
    path = tmp_path / "a.sqlite"
    values = [None, 3, None, 2.5, 4]
    deliver_all(make(str(path), "counts"), [minute(at, v, at + 1) for at, v in enumerate(values)])
    assert [
        odd
        for _, _, odd in rows(
            path,
            "counts",
            "k, window_start, odd",
        )
    ] == values


def test_a_column_that_changes_its_type(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    sink = make(str(path), "counts")
    sink.open(WRITER)
    sink.deliver(minute(0, 3, 1))
    before = everything(path)
    with pytest.raises(DataError, match=r"'odd' .* kind integer, and now come some of kind text"):
        sink.deliver(minute(1, "x", 2))
    assert everything(path) == before
    sink.deliver(minute(1, 4, 3))
    sink.close(complete=True)
    assert len(rows(path)) == 2


@pytest.mark.parametrize(
    ("value", "of", "stored"),
    [
        (True, pa.bool_(), 1),
        (-(2**63), pa.int64(), -(2**63)),
        (2**64 - 1, pa.uint64(), "18446744073709551615"),
        (1.5, pa.float32(), 1.5),
        (float("inf"), pa.float64(), float("inf")),
        (float("nan"), pa.float64(), None),
        (Decimal("1.10"), pa.decimal128(5, 2), "1.10"),
        ("1", pa.large_string(), "1"),
        ("1", pa.dictionary(pa.int8(), pa.string()), "1"),
        (b"\0x", pa.binary(), b"\0x"),
        (b"ab", pa.binary(2), b"ab"),
        (dt.date(1, 2, 3), pa.date32(), "0001-02-03"),
        (dt.time(1, 2, 3), pa.time32("s"), "01:02:03"),
        (1_500, pa.time64("ns"), "00:00:00.000001"),
        (0, pa.timestamp("s"), "1970-01-01T00:00:00.000000"),
        (-1, pa.timestamp("us", "America/New_York"), "1969-12-31T23:59:59.999999Z"),
        (1, pa.timestamp("ns", "UTC"), "1970-01-01T00:00:00.000000001Z"),
        (dt.timedelta(seconds=1), pa.duration("ms"), 1_000_000),
        ([1, None], pa.list_(pa.int8()), "[1, null]"),
        ({"a": dt.date(2020, 1, 1)}, pa.struct([("a", pa.date32())]), '{"a": "2020-01-01"}'),
        ([("a", 1)], pa.map_(pa.string(), pa.int8()), '[["a", 1]]'),
    ],
)
def test_types_in_sqlite(value: Any, of: pa.DataType, stored: Any, tmp_path: Path) -> None:
    panes = minute(0, 3, 1).panes
    raw = isinstance(value, int) and pa.types.is_temporal(of)
    column = pa.array([value], pa.int64()).cast(of) if raw else pa.array([value], of)
    place = panes.schema.names.index("odd")
    path = tmp_path / "a.sqlite"
    nulls = panes.set_column(place, "odd", pa.nulls(1, of)).set_column(0, "k", pa.array(["b"]))
    typed = panes.set_column(place, "odd", column)
    deliver_all(
        SqliteTable(str(path), "counts"), [Delivery(1, 0, 0, typed), Delivery(1, 0, 1, nulls)]
    )
    assert [odd for _, odd, _ in rows(path, "counts", "k, odd, 1")] == [stored, None]


@pytest.mark.parametrize("key", [3, 1.5, b"x", dt.date(2020, 1, 1), dt.datetime(2020, 1, 1)])  # noqa: DTZ001
def test_keys_of_any_type(key: Any, tmp_path: Path) -> None:
    """A retraction finds its row whatever the key is."""
    panes = minute(0, 3, 1).panes.set_column(0, "k", pa.array([key]))
    kind = panes.schema.names.index("kind")
    retract = pa.DictionaryArray.from_arrays(pa.array([1], pa.int8()), ["insert", "retract"])
    path = tmp_path / "a.sqlite"
    back = panes.set_column(kind, "kind", retract)
    other = back.set_column(panes.schema.names.index("index"), "index", pa.array([1]))
    deliver_all(
        SqliteTable(str(path), "counts"), [Delivery(1, 0, 0, panes), Delivery(2, 0, 0, other)]
    )
    assert len(rows(path)) == 1, "another pane's retraction leaves it"
    deliver_all(SqliteTable(str(path), "counts"), [Delivery(3, 0, 0, back)])
    assert rows(path) == []


def test_several_keys_and_strange_names(make: Make, tmp_path: Path) -> None:
    items = [{"t": i * 30 * SECOND, 'a "b"': "x", "100%": i % 2, "v": i} for i in range(8)]
    result = panes_of(
        lw.from_iterable(items, time="t", watermark=lw.Ascending(), clock=lw.ManualClock(0))
        .key_by('a "b"', "100%")
        .window(lw.FixedWindows("1m"))
        .aggregate(**{"%s ?": lw.sum("v")})
    )
    path = tmp_path / "a.sqlite"
    deliver_all(make(str(path), 'the "counts" 100%?'), [Delivery(1, 0, 0, result)] * 2)
    found = rows(path, 'the ""counts"" 100%?', '"a ""b""", "100%", window_start, "%s ?"')
    assert [(*row[:2], row[3]) for row in found] == [
        ("x", parity, total) for parity in (0, 1) for total in range(parity, 8, 2)
    ]


NUMBERS = st.integers(0, 3)


@given(st.lists(st.tuples(NUMBERS, NUMBERS, st.booleans())), st.dictionaries(NUMBERS, NUMBERS))
def test_changes_come_to_what_one_by_one_does(
    panes: list[tuple[int, int, bool]], held: dict[int, int]
) -> None:
    """Any order of inserts and retractions, on any table."""
    plain = dict(held)
    for key, index, retract in panes:
        if not retract:
            plain[key] = index
        elif plain.get(key) == index:
            del plain[key]
    found = dict(held)
    change = changes([pane[:2] for pane in panes], [pane[2] for pane in panes], key=1, index=1)
    for key, index in change.taken:
        if found.get(key) == index:
            del found[key]
    for (key,) in change.gone:
        found.pop(key, None)
    found.update(change.rows)
    assert found == plain


def keyed(*names: str, **aggregates: Any) -> lw.Pipeline:
    items = [{"t": SECOND, **dict.fromkeys(names, "x"), "v": 1}]
    stream = lw.from_iterable(items, time="t", clock=lw.ManualClock(0)).key_by(*names)
    return stream.window(lw.FixedWindows("1m")).aggregate(**aggregates)


N = lw.count()


@pytest.mark.parametrize(
    ("names", "aggregates", "match"),
    [
        (["k"], {"": N}, "the column '' has an empty name"),
        (["k"], {"a\0": N}, r"the column 'a.x00' has the character U\+0000 in its name"),
        (["a\0"], {"n": N}, r"U\+0000"),
    ],
)
def test_names_that_no_column_can_have(
    make: Make, names: list[str], aggregates: dict[str, Any], match: str
) -> None:
    with pytest.raises(InvalidArgument, match=f"{match}.*Rename it"):
        keyed(*names, **aggregates).write_to(make("a.sqlite", "counts"))


@pytest.mark.parametrize(
    ("names", "aggregates"),
    [(["k"], {"Total": N, "total": N}), (["Total"], {"total": N}), (["k"], {"INDEX": N})],
)
def test_names_that_differ_in_case(
    fake: types.ModuleType, names: list[str], aggregates: dict[str, Any]
) -> None:
    pipeline = keyed(*names, **aggregates)
    with pytest.raises(InvalidArgument, match=r"is the same name as '\w+' to SQLite.*Rename"):
        pipeline.write_to(SqliteTable("a.sqlite", "counts"))
    pipeline.write_to(PostgresTable("", "counts"))


def test_names_that_differ_beyond_ascii_are_two_in_sqlite(tmp_path: Path) -> None:
    pipeline = keyed("Ä", ä=N)
    pipeline.write_to(SqliteTable(str(tmp_path / "a.sqlite"), "counts")).run(progress=False)
    assert rows(tmp_path / "a.sqlite", "counts", '"Ä", "ä", 1') == [("x", 1, 1)]


def test_names_that_postgresql_would_cut_or_refuse(fake: types.ModuleType) -> None:
    sink = PostgresTable("", "counts")
    keyed("k", **{"é" * 31 + "n": N}).write_to(sink)
    with pytest.raises(InvalidArgument, match="has a name of 64 bytes, of which PostgreSQL keeps"):
        keyed("k", **{"é" * 32: N}).write_to(sink)
    with pytest.raises(InvalidArgument, match="'xmin' has a name that PostgreSQL reserves"):
        keyed("k", xmin=N).write_to(sink)
    keyed(*[f"k{n}" for n in range(30)], n=N).write_to(sink)
    with pytest.raises(InvalidArgument, match=r"there are 31 key columns.*Group by fewer"):
        keyed(*[f"k{n}" for n in range(31)], n=N).write_to(sink)


def test_more_columns_than_a_table_has(make: Make) -> None:
    most = 2_000 if make is SqliteTable else 1_600
    aggregates = {f"n{n}": N for n in range(most)}
    with pytest.raises(InvalidArgument, match=f"has at most {most}.*Aggregate less"):
        keyed("k", **aggregates).write_to(make("a.sqlite", "counts"))


class Emits:
    """A process that emits its records."""

    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        ctx.emit(record)


def test_the_output_of_a_process_is_refused_before_the_run(make: Make) -> None:
    """At the first delivery it was committed already, and the run could never go on."""
    stream = lw.from_iterable([{"t": 1, "k": "a"}], time="t").key_by("k")
    with pytest.raises(InvalidArgument, match=r"that a process emitted.*a folder of files"):
        stream.process(Emits()).write_to(make("a.sqlite", "counts"))


def test_what_sqlite_holds_of_u0000(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    items = [{"t": SECOND, "k": key, "v": 1} for key in ("a\0b", "a\0c", "a")]
    panes = of_items(items, {"total": lw.sum("v")})
    deliver_all(SqliteTable(str(path), "counts"), [Delivery(1, 0, 0, panes)])
    assert rows(path, "counts", "k, total, 1") == [("a", 1, 1), ("a\0b", 1, 1), ("a\0c", 1, 1)]


def test_a_value_that_is_too_long_for_sqlite(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    sink = SqliteTable(str(path), "counts")
    sink.open(WRITER)
    sink.deliver(minute(0, "x", 1))
    sink._open[0][0].setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 2_000)
    sink.deliver(Delivery(2, 0, 0, minute(0, "y" * 3_000, 2).panes, FIRST.late))
    sink.close(complete=True)
    assert rows(path) == []
    ((reason, record, _),) = rows(path, "counts_errors", "reason, record, 1")
    assert reason == "not_storable"
    assert "too big" in json.loads(record)["detail"]
    assert "record" not in json.loads(record)
    assert len(rows(path, "counts_late")) == 1


@pytest.mark.parametrize(
    ("number", "of", "in_sqlite"),
    [
        (253402300800_000_000, pa.timestamp("us", "UTC"), "10000-01-01T00:00:00.000000Z"),
        (3_000_000, pa.date32(), None),
    ],
)
def test_values_beyond_those_of_python(
    make: Make, number: int, of: pa.DataType, in_sqlite: str | None, tmp_path: Path
) -> None:
    """They ended in a traceback at every delivery, and so at every restart."""
    path = tmp_path / "a.sqlite"
    panes = pa.concat_tables([minute(at, 3, 1).panes for at in range(3)])
    odd = pa.array([0, number, 0], pa.int32() if of == pa.date32() else pa.int64()).cast(of)
    typed = panes.set_column(panes.schema.names.index("odd"), "odd", odd)
    keyed = panes.set_column(0, "k", odd)
    deliver_all(make(str(path), "counts"), [Delivery(1, 0, 0, typed)])
    deliver_all(make(str(path), "keyed"), [Delivery(1, 0, 0, keyed)])
    if make is SqliteTable and in_sqlite is not None:
        assert (in_sqlite, 1, 1) in rows(path, "counts", "odd, 1, 1")
        return
    for table in ("counts", "keyed"):
        assert len(rows(path, table)) == 2
        ((reason, record, _),) = rows(path, f"{table}_errors", "reason, record, 1")
        assert reason == "not_storable"
        letter = json.loads(record)["record"]
        assert letter["window_start"].startswith("1970-01-01T00:01")
        assert letter["odd" if table == "counts" else "k"].startswith(("10000-", "10183-"))


def test_no_database(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    path.write_text("this is no database, but long enough to be looked at" * 50)
    with pytest.raises(StateError, match="damaged, or no SQLite database"):
        SqliteTable(str(path), "counts").open(WRITER)
    with pytest.raises(DataError, match="See that its folder is there"):
        SqliteTable(str(tmp_path / "none" / "a.sqlite"), "counts").open(WRITER)
    with pytest.raises(DataError, match="See that its folder is there"):
        SqliteTable(str(tmp_path), "counts").open(WRITER)


def test_a_full_disk(tmp_path: Path) -> None:
    """SQLite's own limit on pages stands for the disk's."""
    path = tmp_path / "a.sqlite"
    sink = SqliteTable(str(path), "counts")
    sink.open(WRITER)
    sink.deliver(FIRST)
    before = everything(path)
    connection = sink._open[0][0]
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(DataError, match=r"full.*Free some space"):
        sink.deliver(minute(0, "x" * 100_000, 2))
    assert everything(path) == before
    connection.execute("PRAGMA max_page_count = 100000")
    sink.deliver(minute(0, "x" * 100_000, 2))
    assert len(rows(path)) == len(before["counts"])
    sink.close(complete=True)


def test_a_locked_database(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    deliver_all(SqliteTable(str(path), "counts"), [FIRST])
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with (
        mock.patch("lowwater.io.sinks.sqlite._PATIENCE_S", 0.0),
        pytest.raises(DataError, match=r"locked.*End what holds"),
    ):
        SqliteTable(str(path), "counts").open(WRITER)
    other.close()


def test_readers_are_not_in_the_way_of_durability(tmp_path: Path) -> None:
    sink = SqliteTable(str(tmp_path / "a.sqlite"), "counts")
    sink.open(WRITER)
    assert sink._open[0][0].execute("PRAGMA synchronous").fetchone() == (3,)  # EXTRA
    sink.close(complete=True)


def test_not_open(make: Make, tmp_path: Path) -> None:
    sink = make(str(tmp_path / "a.sqlite"), "counts")
    with pytest.raises(InvalidArgument, match="is not open"):
        sink.deliver(FIRST)
    sink.close(complete=True)


@pytest.mark.parametrize("table", ["", " a", "a\0", "a\udc80", None, 3, "lowwater_outputs"])
def test_what_cannot_name_a_table(make: Make, table: Any) -> None:
    with pytest.raises(InvalidArgument):
        make("a.sqlite", table)


def test_arguments() -> None:
    with pytest.raises(InvalidArgument, match="no restart finds again"):
        SqliteTable(":memory:", "counts")
    with pytest.raises(InvalidArgument, match="are reserved"):
        SqliteTable("a.sqlite", "sqlite_counts")
    for wrong in (None, 3, b"x"):
        with pytest.raises(InvalidArgument, match="is not a path"):
            SqliteTable(wrong, "counts")  # type: ignore[arg-type]
    for table in ("a.b.c", ".a", "a.", "a." + "x" * 60):
        with pytest.raises(InvalidArgument, match=r"cannot be used|too long"):
            PostgresTable("", table)
    with pytest.raises(InvalidArgument, match="dsn is int, not text"):
        PostgresTable(3, "counts")  # type: ignore[arg-type]
    assert eval(repr(SqliteTable("a", "b"))) == SqliteTable("a", "b")


def test_passwords_are_not_shown(fake: types.ModuleType) -> None:
    sink = PostgresTable("host=db password=secret", "counts")
    assert "secret" not in repr(sink)
    refusal = FakeOperationalError("no route to host")
    with (
        mock.patch.object(fake, "connect", side_effect=refusal),
        pytest.raises(DataError, match=r"no route to host.*can be reached") as raised,
    ):
        sink.open(WRITER)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("state", "hint"),
    [("53100", "Free some space"), ("42501", "Give the user"), ("22P05", "nothing of it")],
)
def test_what_the_server_refuses(
    fake: types.ModuleType, state: str, hint: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.sqlite"
    sink = PostgresTable(str(path), "counts")
    sink.open(WRITER)
    before = everything(path)
    refusal = FakeError("it refused")
    refusal.sqlstate = state
    with (
        mock.patch.object(FakeCursor, "executemany", side_effect=refusal),
        pytest.raises(DataError, match=f"it refused.*{hint}"),
    ):
        sink.deliver(FIRST)
    assert everything(path) == before
    sink.deliver(FIRST)
    sink.close(complete=True)


def test_without_psycopg() -> None:
    with (
        mock.patch.dict(sys.modules, psycopg=None),
        pytest.raises(InvalidArgument, match=r'pip install "lowwater\[postgres\]"'),
    ):
        PostgresTable("", "counts").open(WRITER)
