"""A new connector proves itself in ten lines, and a faulty one is found."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lowwater as lw
from lowwater.engine.local.delivery import Delivery, Writer
from lowwater.io import Log
from lowwater.io.sinks import Callback, Compaction, JsonLinesFolder, ParquetFolder, SqliteTable
from lowwater.testing import check_sink, check_source, sink_kit


def _parquet(folder: Path) -> Any:
    files = sorted(folder.glob("part-*.parquet"))
    return [row for path in files for row in pq.read_table(path).to_pylist()]


def _lines(folder: Path) -> Any:
    files = sorted(folder.glob("part-*.jsonl"))
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]


def _sql(path: Path) -> Any:
    with sqlite3.connect(path) as database:
        database.row_factory = sqlite3.Row
        return [dict(row) for row in database.execute("SELECT * FROM panes")]


COMPACT = Compaction(size="2KB", age="1h")
SINKS: dict[str, tuple[Callable[[Path], Any], Callable[[Path], Any]]] = {
    "parquet": (lambda at: ParquetFolder(str(at)), _parquet),
    "collected": (lambda at: ParquetFolder(str(at), compact=COMPACT), _parquet),
    "json lines": (lambda at: JsonLinesFolder(str(at)), _lines),
    "table": (lambda at: SqliteTable(str(at), "panes"), _sql),
}


@pytest.fixture
def few_deaths(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let runs die only where a place has been opened, and where it has what will come again."""
    monkeypatch.setattr(sink_kit, "POINTS", ("after opening", "before forgetting"))
    monkeypatch.setattr(sink_kit, "_ROWS", 12)


def _check_sink_of_library(name: str, folder: Path) -> None:
    make, read = SINKS[name]
    check_sink(lambda number: make(folder / str(number)), lambda number: read(folder / str(number)))


@pytest.mark.usefixtures("few_deaths")
@pytest.mark.parametrize("name", ["collected", "json lines", "table"])
def test_a_sink_of_the_library_with_few_deaths(name: str, tmp_path: Path) -> None:
    _check_sink_of_library(name, tmp_path)


@pytest.mark.long(reason="70 runs with a state directory")
@pytest.mark.parametrize("name", SINKS)
def test_a_sink_of_the_library(name: str, tmp_path: Path) -> None:
    _check_sink_of_library(name, tmp_path)


class Remembering:
    """A sink in memory that knows the last delivery it got."""

    def __init__(self, rows: list[Any], *, forgets: bool = False, early: bool = False) -> None:
        self._rows, self._forgets, self._early = rows, forgets, early

    def places(self) -> tuple[()]:
        return ()

    def open(self, writer: Writer) -> None:
        if self._early:  # takes what comes again for what is new
            del self._rows[-1:]

    def deliver(self, delivery: Delivery) -> None:
        if self._forgets or all(one != delivery.id for one, _ in self._rows):
            self._rows.append((delivery.id, delivery.panes.to_pylist()))

    def close(self, *, complete: bool) -> None:
        pass


def _kept(**faults: bool) -> tuple[Callable[[int], Any], Callable[[int], Any]]:
    places: dict[int, list[Any]] = {}
    return (
        lambda number: Remembering(places.setdefault(number, []), **faults),
        lambda number: [row for _, rows in places[number] for row in rows],
    )


@pytest.mark.usefixtures("few_deaths")
def test_a_sink_in_ten_lines() -> None:
    check_sink(*_kept(), is_owned=False)


@pytest.mark.usefixtures("few_deaths")
def test_a_sink_that_does_not_know_what_it_has_is_found() -> None:
    with pytest.raises(AssertionError, match=r"after a death .* one too many"):
        check_sink(*_kept(forgets=True), is_owned=False)


@pytest.mark.usefixtures("few_deaths")
def test_a_sink_that_loses_at_a_restart_is_found() -> None:
    with pytest.raises(AssertionError, match=r"rows are missing"):
        check_sink(*_kept(early=True), is_owned=False)


@pytest.mark.usefixtures("few_deaths")
def test_a_sink_that_refuses_nobody_is_found() -> None:
    with pytest.raises(AssertionError, match="an older copy of the state directory was not"):
        check_sink(*_kept())


@pytest.mark.usefixtures("few_deaths")
def test_a_callback_is_at_least_once() -> None:
    got: dict[int, list[Any]] = {}

    def make(number: int) -> Any:
        rows = got.setdefault(number, [])
        return Callback(lambda delivery: rows.extend(delivery.panes.to_pylist()))

    with pytest.raises(AssertionError, match="one too many"):
        check_sink(make, lambda number: got[number], is_owned=False)


ROWS = [{"at": n * 1_000_000, "key": "ab"[n % 2], "value": n} for n in range(20)]


def _source(stream: Any) -> Any:
    return stream._flows[0].origin.source


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl"])
def test_files(kind: str, tmp_path: Path) -> None:
    import pyarrow.csv as pa_csv

    def write(number: int) -> None:
        rows = [{**row, "value": n + 100 * number} for n, row in enumerate(ROWS)]
        path = tmp_path / f"{number}.{kind}"
        if kind == "jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        elif kind == "csv":
            pa_csv.write_csv(pa.Table.from_pylist(rows), path)
        else:
            pq.write_table(pa.Table.from_pylist(rows), path)

    write(0)
    write(1)
    read = getattr(lw, f"read_{kind}")
    check_source(lambda: _source(read(tmp_path, time="at")), more=lambda: write(2))


def test_a_log(tmp_path: Path) -> None:
    with Log(tmp_path / "log", partitions=2) as log:
        for partition in range(2):
            log.append(pa.Table.from_pylist(ROWS), partition=partition)
        check_source(
            lambda: _source(lw.read_log(tmp_path / "log", time="at")),
            more=lambda: log.append(pa.Table.from_pylist(ROWS), partition=1),
        )


class Lines:
    """A source of a user: lines of a list, with some faults."""

    schema = None

    def __init__(
        self, rows: list[Any], *, skips: int = 0, position: Any = int, restarts: bool = False
    ) -> None:
        self._rows, self._skips, self._position = rows, skips, position
        self._restarts = restarts

    def batches(self, size: int, keys: tuple[str, ...]) -> Iterator[Any]:
        for records, _ in self.batches_from(None, size, keys):
            yield records

    def batches_from(self, position: Any, size: int, keys: tuple[str, ...]) -> Iterator[Any]:
        at: int = 0 if position is None else position["row"] + self._skips
        at = 0 if self._restarts and at == len(self._rows) else at
        while at < len(self._rows):
            rows = self._rows[at : at + size]
            at += len(rows)
            columns = {name: lw_column([row[name] for row in rows]) for name in rows[0]}
            after: Any = self._position(at)
            yield lw.Records(columns, len(rows)), {"row": after}


def lw_column(values: list[Any]) -> Any:
    from lowwater.engine.records.columns import Column

    return Column.of_objects(values)


def test_a_source_in_ten_lines() -> None:
    check_source(lambda: Lines(list(ROWS)))


def test_values_of_all_kinds_are_compared() -> None:
    """Among them NaN, made anew each time, which does not equal itself."""

    def rows() -> list[Any]:
        nan = float("nan")
        odd: list[Any] = [None, nan, 2**53 + 1, 2**80, True, "text", b"bytes", [None, nan]]
        return [{**row, "value": odd[n % len(odd)]} for n, row in enumerate(ROWS)]

    check_source(lambda: Lines(rows()))


@pytest.mark.parametrize(
    ("faults", "told"),
    [
        ({"skips": 1}, "follows, and"),
        ({"position": lambda at: at - 1 if at > 5 else at}, "follows, and"),
        ({"position": lambda at: object()}, "cannot be stored"),
        ({"restarts": True}, "come once more"),
    ],
)
def test_a_faulty_source_is_found(faults: dict[str, Any], told: str) -> None:
    with pytest.raises(AssertionError, match=told):
        check_source(lambda: Lines(list(ROWS), **faults))


def test_a_source_whose_next_batch_grows_is_found() -> None:
    """After a position the next batch has to be the same, also if more has come since."""
    rows = list(ROWS[:10])
    with pytest.raises(AssertionError, match="after more has come"):
        check_source(lambda: Lines(rows), more=lambda: rows.extend(ROWS[10:]))
