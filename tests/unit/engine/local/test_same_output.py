"""Outputs come in pieces while a run goes on: the same with and without a state directory."""

from __future__ import annotations

import itertools
import json
import re
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import lowwater as lw
from lowwater.engine.local import pieces
from lowwater.io.sinks import Callback, Delivery, Place, SqliteTable, Writer, json_lines
from tests.examples import sampled
from tests.unit.engine.local.durable_runs import Stopped, pipeline, stopping, write_files
from tests.unit.io.deliveries import files_in
from tests.unit.io.test_follow import SECOND, FakeWait, rows, write_jsonl

QUIET: Any = {"progress": False, "bundle_size": 10}


class Halves:
    """Emits each record to one output or the other, by whether its value is even."""

    odd = lw.output()

    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        value = record["value"]
        ctx.emit({"value": value, "half": value / 2}, tag="odd" if value % 2 else "main")


def outputs(folder: Path, source: Path) -> list[lw.pipeline.Writing]:
    """Return outputs of each kind of sink, of a stage and of a process."""
    panes = pipeline(source, accumulation="retracting")
    halves = lw.read_parquet(source, time="at").key_by("key").process(Halves())
    return [
        panes.write_parquet(folder / "panes"),
        panes.write_jsonl(folder / "panes-lines"),
        panes.write_jsonl(folder / "panes.jsonl"),
        halves.write_parquet(folder / "even"),
        halves.output("odd").write_jsonl(folder / "odd"),
        panes.write_to(SqliteTable(str(folder / "panes.sqlite"), "panes")),
    ]


def written(folder: Path) -> dict[str, Any]:
    """Return the bytes of all files, by place and name, and the rows of the database."""
    found: dict[str, Any] = {}
    for place in ("panes", "panes-lines", "even", "odd"):
        found |= {f"{place}/{name}": data for name, data in files_in(folder / place).items()}
    found |= {name: data for name, data in files_in(folder).items() if name.endswith(".jsonl")}
    with closing(sqlite3.connect(folder / "panes.sqlite")) as database:
        found["rows"] = database.execute("SELECT * FROM panes ORDER BY 1, 2, 3").fetchall()
    return found


@pytest.mark.parametrize(
    ("every", "piece"),
    sampled([pytest.param(*one) for one in product([35, "bundle", "1h"], [7, 1_000])], every=3),
)
def test_the_same_files_with_and_without_a_state_directory(
    every: str | int, piece: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same names, the same layout, and the same bytes."""
    monkeypatch.setattr(pieces, "PIECE_ROWS", piece)
    source = write_files(tmp_path / "in")
    without, with_state = tmp_path / "without", tmp_path / "with"
    for folder in (without, with_state):
        folder.mkdir()
        options = {"state": folder / "state"} if folder is with_state else {}
        lw.run(*outputs(folder, source), commit_every=every, **options, **QUIET)  # type: ignore[arg-type]  # of two kinds
    found = written(without)
    assert found == written(with_state)
    names = [name for name in found if "/" in name]
    assert all(
        re.fullmatch(r"\S+/(part|late|errors)-\d{12}-\d{3}-\d{6}\.(parquet|jsonl)", name)
        for name in names
    )
    assert {name.rpartition("-")[2].partition(".")[0] for name in names} >= (
        {"000000", "000001"} if piece == 7 and every != "bundle" else {"000000"}
    )
    for name in names:
        lines = found[name].splitlines()
        count = len(lines) if name.endswith("jsonl") else pq.read_table(without / name).num_rows
        assert 0 < count <= piece
    assert len(found["rows"]) == len(json_rows(without / "panes-lines")) - 2 * retracted(without)


def json_rows(folder: Path) -> list[Any]:
    parts = sorted(folder.glob("part-*.jsonl"))
    return [json.loads(line) for part in parts for line in part.read_text().splitlines()]


def retracted(folder: Path) -> int:
    return sum(row["kind"] == "retract" for row in json_rows(folder / "panes-lines"))


def test_pieces_are_cut_by_size_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_files(tmp_path / "in")
    panes = pipeline(source, windows=lw.FixedWindows("1h"))
    panes.write_jsonl(tmp_path / "whole").run(**QUIET)
    monkeypatch.setattr(pieces, "PIECE_BYTES", 500)
    panes.write_jsonl(tmp_path / "cut").run(**QUIET)
    assert len(list((tmp_path / "whole").glob("part-*"))) == 1
    assert len(list((tmp_path / "cut").glob("part-*"))) > 3
    assert json_rows(tmp_path / "cut") == json_rows(tmp_path / "whole")


def test_a_full_piece_ends_an_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So what waits in memory is bounded whatever ``commit_every`` says, and a commit is too."""
    monkeypatch.setattr(pieces, "PIECE_ROWS", 5)
    panes = pipeline(write_files(tmp_path / "in"))
    seen: dict[str, list[str]] = {"with": [], "without": []}
    panes.write_to(Callback(lambda one: seen["with"].append(one.id))).run(
        state=tmp_path / "state", commit_every="1h", **QUIET
    )
    panes.write_to(Callback(lambda one: seen["without"].append(one.id))).run(
        commit_every="1h", **QUIET
    )
    assert seen["with"] == seen["without"]
    assert len({id.partition("-")[0] for id in seen["with"]}) > 3


def test_a_commit_of_several_pieces_comes_again_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "PIECE_ROWS", 7)
    source = write_files(tmp_path / "in")
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    options: Any = {"commit_every": 35, **QUIET}
    for folder in (whole, killed):
        folder.mkdir()
    lw.run(*outputs(whole, source), state=whole / "state", **options)
    stops = 0
    for point, count in (("before publishing", 3), ("between sinks", 2), ("after the write", 2)):
        with stopping(point, count):
            try:
                lw.run(*outputs(killed, source), state=killed / "state", **options)
            except Stopped:
                stops += 1
    lw.run(*outputs(killed, source), state=killed / "state", **options)
    assert stops == 3
    found, wanted = written(killed), written(whole)
    assert [found[name] for name in ("panes.jsonl", "rows")] == [
        wanted[name] for name in ("panes.jsonl", "rows")
    ]
    assert json_rows(killed / "panes-lines") == json_rows(whole / "panes-lines")


# ------------------------------------------------------------------------------------ endless runs


@pytest.mark.parametrize("target", ["out", "out.jsonl"])
def test_an_endless_run_publishes_before_it_ends(target: str, tmp_path: Path) -> None:
    def endless() -> Iterator[dict[str, Any]]:
        for at in itertools.count():
            if at == 500:
                raise Stopped
            yield {"t": at * SECOND, "k": "a"}

    counts = (
        lw.from_iterable(endless(), time="t", key="k", watermark=lw.Ascending())
        .window(lw.FixedWindows("10s"))
        .aggregate(n=lw.count())
    )
    with pytest.raises(Stopped):
        counts.write_jsonl(tmp_path / target).run(bundle_size=20, commit_every=40, progress=False)
    if target == "out":
        found = json_rows(tmp_path / "out")
        owner = tmp_path / "out" / ".lowwater.json"
    else:
        found = [json.loads(line) for line in (tmp_path / target).read_text().splitlines()]
        owner = tmp_path / ".out.jsonl.lowwater.json"
    assert len(found) >= 40
    assert json.loads(owner.read_text())["complete"] is False


def test_time_ends_an_epoch_while_a_source_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source that is followed lets the run look at the time now and again."""
    (tmp_path / "in").mkdir()
    write_jsonl(tmp_path / "in" / "a.jsonl", rows(1, 2, 30))
    now = 0.0
    published: list[int] = []

    def wait() -> None:
        nonlocal now
        now += 4.0
        published.append(len(list((tmp_path / "out").glob("part-*"))))

    monkeypatch.setattr("lowwater.engine.local.commit_policy.time.monotonic", lambda: now)
    FakeWait(monkeypatch, *[wait] * 6)
    counts = (
        lw.read_jsonl(
            tmp_path / "in", time="t", watermark=lw.Ascending(), follow=True, max_idle="6s"
        )
        .key_by("k")
        .window(lw.FixedWindows("10s"))
        .aggregate(n=lw.count())
    )
    counts.write_jsonl(tmp_path / "out").run(commit_every="10s", progress=False)
    assert published == [0, 0, 0, 1, 1, 1]
    assert [row["n"] for row in json_rows(tmp_path / "out")] == [2, 1]


# ---------------------------------------------------------------------------- a sink of one's own


class Journal:
    """A sink of the user's own: one file, to which each delivery is appended once."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def places(self) -> Iterable[Place]:
        return [Place(self.path)]

    def open(self, writer: Writer) -> None:
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        if lines and lines[0] != writer.id:
            raise lw.StateError(f"{self.path} is another run's", hint="Give another file")
        self.seen = {line.partition(" ")[0] for line in lines}
        if not lines:
            self.path.write_text(f"{writer.id}\n")

    def deliver(self, delivery: Delivery) -> None:
        if delivery.id not in self.seen:
            with self.path.open("a") as file:
                for line in json_lines(delivery.panes).decode().splitlines():
                    file.write(f"{delivery.id} {line}\n")

    def close(self, *, complete: bool) -> None:
        self.path.with_suffix(".done").write_text(str(complete))


@pytest.mark.parametrize("durable", [False, True])
def test_a_sink_of_the_users_own(durable: bool, tmp_path: Path) -> None:
    panes = pipeline(write_files(tmp_path / "in"))
    options: Any = {"state": tmp_path / "state"} if durable else {}
    own = panes.write_to(Journal(tmp_path / "journal"))
    lw.run(own, panes.write_jsonl(tmp_path / "out"), commit_every="bundle", **options, **QUIET)
    _, *lines = (tmp_path / "journal").read_text().splitlines()
    found = [json.loads(line.partition(" ")[2]) for line in lines]
    assert found == json_rows(tmp_path / "out")
    assert (tmp_path / "journal.done").read_text() == "True"
    if durable:
        own_again = panes.write_to(Journal(tmp_path / "journal"))
        again = [own_again, panes.write_jsonl(tmp_path / "out")]
        lw.run(*again, commit_every="bundle", **options, **QUIET)
        assert (tmp_path / "journal").read_text().splitlines()[1:] == lines
    else:
        with pytest.raises(lw.StateError, match="is another run's"):
            own.run(**QUIET)
    with pytest.raises(lw.InvalidArgument, match="two outputs write to"):
        lw.run(own, panes.write_to(Journal(tmp_path / "journal")), **options, **QUIET)


def test_sinks_that_were_opened_are_closed(tmp_path: Path) -> None:
    """Where one refuses as it opens, those before it are closed as incomplete; nothing is left."""
    (tmp_path / "journal").write_text("another run\n")
    panes = pipeline(write_files(tmp_path / "in"))
    own = panes.write_to(Journal(tmp_path / "journal"))
    with pytest.raises(lw.StateError, match="is another run's"):
        lw.run(panes.write_jsonl(tmp_path / "a"), own, **QUIET)
    assert list((tmp_path / "a").iterdir()) == []


def test_sinks_that_look_are_not_opened_where_one_refuses(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "part-1").write_text("mine")
    panes = pipeline(write_files(tmp_path / "in"))
    with pytest.raises(lw.StateError, match="already holds 'part-1'"):
        lw.run(panes.write_jsonl(tmp_path / "a"), panes.write_jsonl(tmp_path / "b"), **QUIET)
    assert not (tmp_path / "a").exists()
    assert [path.name for path in (tmp_path / "b").iterdir()] == ["part-1"]
