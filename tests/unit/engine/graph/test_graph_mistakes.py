"""What is said when a graph is put together wrongly, before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import lowwater as lw
from lowwater.io.sinks import (
    Callback,
    Delivery,
    JsonLinesFile,
    JsonLinesFolder,
    ParquetFolder,
    Place,
    PostgresTable,
    SqliteTable,
    Writer,
)
from lowwater.io.sinks.sink_conflicts import check_conflicts

ROWS = [{"t": 1, "user": "a", "v": 2}]


class Counter:
    """Counts the records of each key."""

    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        ctx.emit({"seen": record["v"]})


def stream(*, typed: bool) -> lw.Stream:
    """Return a stream of which the columns are known before it runs, or not."""
    if typed:
        return lw.from_arrow(pa.Table.from_pylist(ROWS), time="t")
    return lw.from_iterable(ROWS, time="t")


def totals(*, typed: bool, mode: Any = None, trigger: Any = None) -> Any:
    windows = lw.FixedWindows("1s")
    options = {} if trigger is None else {"trigger": trigger}
    keyed = stream(typed=typed).key_by("user")
    return keyed.window(windows, accumulation=mode, **options).aggregate(total=lw.sum("v"))


EACH = lw.Repeatedly(lw.AfterCount(1))
HOUR = lw.FixedWindows("1h")


@pytest.mark.parametrize("typed", [True, False])
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda panes: panes.key_by("usr"), "no column 'usr'.*Did you mean 'user'"),
        (
            lambda panes: panes.key_by("user").window(HOUR).aggregate(lw.sum("totl")),
            "no column 'totl'.*Did you mean 'total'",
        ),
        (
            lambda panes: panes.key_by("user").window(lw.Sessions("gapp")).aggregate(lw.count()),
            "gapp",
        ),
        (lambda panes: panes.to_stream().deduplicate(id="idd", within="1h"), "no column 'idd'"),
        (
            lambda panes: panes.with_columns(twice=lw.col("total") * 2).key_by("twise"),
            "no column 'twise'.*Did you mean 'twice'",
        ),
        (lambda panes: panes.filter(lw.col("total") > 1).key_by("usr"), "no column 'usr'"),
        (lambda panes: panes | panes.named("again").with_columns(x=lw.lit(1)), "one has 'x'"),
        (lambda panes: panes | "panes", r"other='panes' \(str\) is not a stream"),
        (lambda panes: panes.key_by(), 'key_by\\(all=lw.lit\\("all"\\)\\)'),
        (lambda panes: panes.named(""), "is not a name"),
        (lambda panes: panes.key_by("user").collect(), r"no 'collect'. Say what to compute first"),
        (lambda panes: panes.key_by("user").process(Counter).collect(), "is a class"),
    ],
)
def test_mistakes_behind_a_stage(call: Callable[[Any], Any], message: str, typed: bool) -> None:
    with pytest.raises(lw.InvalidArgument, match=message):
        call(totals(typed=typed))


@pytest.mark.parametrize("typed", [True, False])
def test_accumulating_panes_would_count_twice(typed: bool) -> None:
    """Refused when the chain is built (S-C8)."""
    panes = totals(typed=typed, mode="accumulating", trigger=EACH)
    with pytest.raises(lw.InvalidArgument, match="would count them more than once"):
        panes.key_by("user").window(HOUR).aggregate(lw.sum("total"))


@pytest.mark.parametrize("typed", [True, False])
def test_differences_that_there_are_not(typed: bool) -> None:
    """What takes elements back shows differences of counts and sums alone (S-C5)."""
    keyed = totals(typed=typed, mode="retracting", trigger=EACH).key_by("user")
    windowed = keyed.window(HOUR, trigger=EACH, accumulation="discarding")
    windowed.aggregate(lw.sum("total"), lw.count())
    with pytest.raises(lw.InvalidArgument, match="cannot be discarded between panes"):
        windowed.aggregate(lw.max("total"))


def test_lateness_must_not_shrink() -> None:
    """A stage would drop what the one before still shows (S-C7)."""
    keyed = stream(typed=True).key_by("user")
    late = keyed.window(
        lw.FixedWindows("1s"), allowed_lateness="1m", accumulation="retracting"
    ).aggregate(total=lw.sum("v"))
    with pytest.raises(lw.InvalidArgument, match=r"'1s' is shorter than .* '1m'"):
        late.key_by("user").window(HOUR, allowed_lateness="1s", accumulation="retracting")


def test_two_of_one_name(tmp_path: Any) -> None:
    panes = totals(typed=True).named("x")
    counts = stream(typed=True).key_by("user").process(Counter()).named("x")
    with pytest.raises(lw.InvalidArgument, match="two parts of the pipeline are named 'x'"):
        lw.run(panes.write_jsonl(tmp_path / "a"), counts.write_jsonl(tmp_path / "b"))


def test_an_output_that_there_is_not() -> None:
    counts = stream(typed=True).key_by("user").process(Counter())
    with pytest.raises(lw.InvalidArgument, match=r"no output 'late'\. Known: 'main'"):
        counts.output("late")


@pytest.mark.parametrize("durable", [True, False])
def test_two_ends_with_one_target(tmp_path: Path, durable: bool) -> None:
    """One would take the place of the other, silently."""
    (tmp_path / "in.jsonl").write_text('{"t": 1, "user": "a", "v": 2}\n')
    rows = lw.read_jsonl(tmp_path / "in.jsonl", time="t")
    panes = rows.key_by("user").window(HOUR).aggregate(lw.sum("v"))
    counts = rows.key_by("user").process(Counter())
    options: Any = {"state": tmp_path / "state"} if durable else {}
    place, again = tmp_path / "out", tmp_path / "x" / ".." / "out"
    for ends in (
        (panes.write_parquet(place), counts.write_parquet(again)),
        (panes.write_jsonl(place), counts.write_jsonl(place)),
        (panes.write_jsonl(place), panes.write_parquet(again)),
    ):
        with pytest.raises(lw.InvalidArgument, match=r"two outputs write to '.*out'"):
            lw.run(*ends, **options)
    assert not place.exists()


def test_two_ends_with_one_file_for_what_is_late(tmp_path: Path) -> None:
    panes = totals(typed=True)
    late = panes.write_jsonl(tmp_path / "out.late.jsonl")
    for outputs in ((panes.write_jsonl(tmp_path / "out.jsonl"), late), (late, late)):
        with pytest.raises(lw.InvalidArgument, match=r"two outputs write to|is given twice"):
            lw.run(*outputs)
    assert not list(tmp_path.iterdir())


def refused(*sinks: Any) -> str | None:
    """Return why sinks of an output each are refused, if they are."""
    try:
        check_conflicts([[sink] for sink in sinks])
    except lw.InvalidArgument as error:
        return str(error)
    return None


@pytest.mark.parametrize("durable", [True, False])
def test_a_target_within_the_folder_of_another_end(tmp_path: Path, durable: bool) -> None:
    """Either would write, replace or read what is the other's."""
    panes = totals(typed=True)
    options: Any = {"state": tmp_path / "state"} if durable else {}
    (tmp_path / "link").symlink_to(tmp_path / "out", target_is_directory=True)
    outer = panes.write_parquet(tmp_path / "out")
    for path in ("out/x", "out/x/y", "z/../out/x", "link/x"):
        inner = panes.write_parquet(tmp_path / path)
        for ends in ((outer, inner), (inner, outer)):
            with pytest.raises(lw.InvalidArgument, match=r"write to '.*out': '.*x.*' lies within"):
                lw.run(*ends, **options)
    assert not (tmp_path / "out").exists()


def test_a_relative_path_into_the_folder_of_another_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = refused(ParquetFolder(str(tmp_path / "out")), JsonLinesFolder("out/x"))
    assert said is not None
    assert "'out/x' lies within it" in said
    assert refused(ParquetFolder("out"), ParquetFolder("out-x"), JsonLinesFolder("x/out")) is None


@pytest.mark.parametrize("name", [".staging/a", "part-1", "late-x.sqlite", ".lowwater.json"])
def test_a_database_among_the_files_of_a_folder(name: str) -> None:
    said = refused(ParquetFolder("out"), SqliteTable(f"out/{name}", "t"))
    assert said is not None
    assert "lies within" in said
    assert refused(ParquetFolder("out"), SqliteTable("out/counts.sqlite", "t")) is None


def test_a_single_file_among_the_files_of_a_folder() -> None:
    folder = ParquetFolder("out")
    assert refused(folder, JsonLinesFile("out/x.jsonl")) is None
    for inner in ("out/late-x.jsonl", "out/part-1.jsonl", "out/.staging/x.jsonl"):
        said = refused(folder, JsonLinesFile(inner))
        assert said is not None
        assert f"{inner!r} lies within it" in said
    said = refused(JsonLinesFile("out/x.jsonl"), JsonLinesFile("out/x.errors.jsonl"))
    assert said is not None
    assert "two outputs write to" in said


@dataclass
class Mine:
    """A sink of the user's own that says it writes to some places."""

    at: tuple[Any, ...]

    def places(self) -> Any:
        return self.at

    def open(self, writer: Writer) -> None:
        raise AssertionError("the run is refused before")

    def deliver(self, delivery: Delivery) -> None: ...

    def close(self, *, complete: bool) -> None: ...


def test_conflicts_of_a_sink_of_the_users_own(tmp_path: Path) -> None:
    file, queue = Mine((Place(tmp_path / "a" / "x"),)), Mine((Place("queue one", "queue"),))
    for other, told in (
        (Mine((Place(tmp_path / "b"), Place(tmp_path / "c" / ".." / "a" / "x"))), "a/x'"),
        (Mine((Place(tmp_path / "a"),)), "lies within it"),
        (SqliteTable(str(tmp_path / "a" / "x"), "t"), "a/x'"),
    ):
        for sinks in ((file, other), (other, file)):
            said = refused(*sinks)
            assert said is not None
            assert told in said
    assert refused(file, Mine((Place(tmp_path / "a" / "y"),)), queue, Mine(())) is None
    said = refused(queue, Mine((Place("queue one"),)))
    assert said is not None
    assert "queue one" not in said, "it may hold a password"
    parts = [Mine((Place("db", "db", (name,)),)) for name in ("t", "u", "t")]
    assert refused(*parts[:2]) is None
    said = refused(*parts)
    assert said is not None
    assert "the table 't' in 'db'" in said
    outputs = [totals(typed=True).write_to(sink) for sink in (file, Mine(file.at))]
    for options in ({}, {"state": tmp_path / "state"}):
        with pytest.raises(lw.InvalidArgument, match="two outputs write to"):
            lw.run(*outputs, **options)  # type: ignore[arg-type]  # of two kinds
    said = refused(Mine(("a/x",)))
    assert said is not None
    assert "is no Place" in said


def test_what_is_no_sink() -> None:
    panes = totals(typed=True)
    without: Any = SimpleNamespace(open=print, deliver=print)
    with pytest.raises(lw.InvalidArgument, match="is no sink: it lacks places, close"):
        panes.write_to(without)
    kind: Any = Callback
    with pytest.raises(lw.InvalidArgument, match=r"lacks an instance.*Callback\(\.\.\.\)"):
        panes.write_to(kind)


def test_one_table_for_two_ends() -> None:
    """The second's deliveries would be skipped: their ids are noted already."""
    said = refused(SqliteTable("a.sqlite", "t"), SqliteTable("./a.sqlite", "T"))
    assert said is not None
    assert "the table 't' in './a.sqlite'" in said
    assert refused(SqliteTable("a.sqlite", "t"), SqliteTable("a.sqlite", "u")) is None
    said = refused(PostgresTable("dbname=secret", "t"), PostgresTable("dbname=secret", "t"))
    assert said is not None
    assert "secret" not in said
    for beside in ("t_late", "t_errors"):
        for tables in (("t", beside), (beside, "t")):
            said = refused(*(SqliteTable("a.sqlite", table) for table in tables))
            assert said is not None
            assert f"the table {beside!r} in" in said
            assert refused(*(PostgresTable("dbname=x", table) for table in tables)) is not None
    assert refused(PostgresTable("dbname=x", "t"), PostgresTable("dbname=y", "t")) is None
    said = refused(SqliteTable("out", "t"), ParquetFolder("out"))
    assert said is not None
    assert "two outputs write to 'out'" in said


def test_one_sink_twice(tmp_path: Path) -> None:
    sink = Callback(print)
    panes = totals(typed=True)
    for ends in ((panes.write_to(sink, sink),), (panes.write_to(sink), panes.write_to(sink))):
        with pytest.raises(lw.InvalidArgument, match="is given twice"):
            lw.run(*ends, state=tmp_path)
    folders = [panes.write_to(ParquetFolder(f"{tmp_path}/a")), panes.write_parquet(tmp_path / "a")]
    with pytest.raises(lw.InvalidArgument, match="two outputs write to"):
        lw.run(*folders, state=tmp_path)


def test_a_memory_limit_that_nothing_heeds(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"t": 1, "user": "a", "v": 2}\n')
    keyed = lw.read_jsonl(tmp_path / "in.jsonl", time="t").key_by("user")
    options: Any = {"state": tmp_path / "state", "memory_limit": "64MB"}
    alone = keyed.process(Counter()).write_jsonl(tmp_path / "alone")
    with pytest.raises(lw.InvalidArgument, match="state of processes stays in memory"):
        alone.run(**options)
    read = lw.read_jsonl(tmp_path / "in.jsonl", time="t")
    joined = read.join(read, on="user", within="1h").write_jsonl(tmp_path / "joined")
    assert joined.run(**{**options, "state": tmp_path / "of a join"}).emitted == 1
    behind = (
        keyed.window(HOUR)
        .aggregate(total=lw.sum("v"))
        .with_columns(v=lw.col("total"))
        .key_by("user")
        .process(Counter())
    )
    assert behind.write_jsonl(tmp_path / "behind").run(**options).events == 1
