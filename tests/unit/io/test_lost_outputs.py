"""Outputs that are lost, swapped or replaced between two runs over one state directory."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import lowwater as lw
from lowwater.engine.local.delivery import Sink
from lowwater.engine.local.pieces import place_names
from lowwater.errors import StateError
from lowwater.io.sinks import (
    Callback,
    JsonLinesFile,
    JsonLinesFolder,
    ParquetFolder,
    PostgresTable,
    SqliteTable,
)
from tests.examples import sampled
from tests.unit.engine.local.durable_runs import Stopped, pipeline, stopping, write_files
from tests.unit.io.deliveries import NEXT_RUN, WRITER, deliver_all, with_everything

KINDS = ("folder", "parquet", "file", "table")
POINTS = ("after the write", "between sinks")
EACH = pytest.mark.parametrize("kind", KINDS)
BEFORE = replace(WRITER, delivered=True)


def sink_of(kind: str, folder: Path, *, overwrite: bool = False) -> Sink:
    if kind == "table":
        return SqliteTable(str(folder / "t.sqlite"), "counts", overwrite=overwrite)
    if kind == "file":
        return JsonLinesFile(str(folder / "out.jsonl"), overwrite=overwrite)
    return (JsonLinesFolder if kind == "folder" else ParquetFolder)(str(folder), overwrite)


def bytes_in(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def run(folder: Path, *sinks: Sink) -> Any:
    made = pipeline(folder / "in").write_to(*sinks)
    return made.run(state=folder / "state", bundle_size=10, commit_every="bundle")


@EACH
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_lost_output_is_not_made_anew(kind: str, overwrite: bool, tmp_path: Path) -> None:
    with pytest.raises(StateError, match="has delivered to") as caught:
        sink_of(kind, tmp_path, overwrite=overwrite).open(BEFORE)
    assert "Restore the output" in (caught.value.hint or "")
    assert list(tmp_path.iterdir()) == []


@EACH
@pytest.mark.parametrize("overwrite", [False, True])
def test_another_output_in_its_place_stays(kind: str, overwrite: bool, tmp_path: Path) -> None:
    deliver_all(sink_of(kind, tmp_path), [with_everything()], NEXT_RUN)
    before = bytes_in(tmp_path)
    with pytest.raises(StateError, match="holds the output of another run now"):
        sink_of(kind, tmp_path, overwrite=overwrite).open(BEFORE)
    assert bytes_in(tmp_path) == before


@EACH
def test_the_same_output_is_gone_on_with(kind: str, tmp_path: Path) -> None:
    deliver_all(sink_of(kind, tmp_path), [with_everything(1)], WRITER)
    deliver_all(sink_of(kind, tmp_path), [with_everything(2)], BEFORE)


@EACH
def test_another_output_of_the_same_run_is_never_replaced(kind: str, tmp_path: Path) -> None:
    deliver_all(sink_of(kind, tmp_path), [with_everything()], WRITER)
    before = bytes_in(tmp_path)
    with pytest.raises(StateError, match="holds output 0 of this run, and this is output 1"):
        sink_of(kind, tmp_path, overwrite=True).open(replace(WRITER, output=1))
    assert bytes_in(tmp_path) == before


def test_another_kind_of_output_of_the_same_run_is_never_replaced(tmp_path: Path) -> None:
    deliver_all(sink_of("folder", tmp_path), [with_everything()], WRITER)
    with pytest.raises(StateError, match="a folder of its own"):
        sink_of("parquet", tmp_path, overwrite=True).open(WRITER)


@pytest.mark.parametrize(
    ("kind", "point"),
    sampled(
        [
            pytest.param(kind, POINTS[(at + turn) % len(POINTS)])
            for turn, kind in enumerate(KINDS)
            for at in range(len(POINTS))
        ],
        every=len(POINTS),
    ),
)
def test_a_run_whose_output_was_deleted_is_refused(kind: str, point: str, tmp_path: Path) -> None:
    """Whether it stopped between its first commit and its first delivery, or later."""
    write_files(tmp_path / "in", 1)
    out = tmp_path / "out"
    out.mkdir()
    with stopping(point, 1), pytest.raises(Stopped):
        run(tmp_path, sink_of(kind, out))
    copy = tmp_path / "copy"
    out.rename(copy)
    out.mkdir()
    with pytest.raises(StateError, match="has delivered to"):
        run(tmp_path, sink_of(kind, out, overwrite=True))
    shutil.rmtree(out)
    copy.rename(out)
    run(tmp_path, sink_of(kind, out))
    whole = tmp_path / "whole"
    whole.mkdir()
    shutil.rmtree(tmp_path / "state")
    run(tmp_path, sink_of(kind, whole))
    if kind != "table":
        names = {path.name for path in out.iterdir()}
        assert names == {path.name for path in whole.iterdir()}


@pytest.mark.parametrize("kind", sampled(KINDS, every=3))
def test_a_run_that_stopped_before_its_first_commit_begins_anew(kind: str, tmp_path: Path) -> None:
    write_files(tmp_path / "in", 1)
    out = tmp_path / "out"
    out.mkdir()
    with stopping("before the write", 1), pytest.raises(Stopped):
        run(tmp_path, sink_of(kind, out))
    shutil.rmtree(out)
    out.mkdir()
    run(tmp_path, sink_of(kind, out))


@EACH
def test_a_new_sink_may_come_to_a_run_that_delivered(kind: str, tmp_path: Path) -> None:
    """What the state has not delivered to before need not be there; from then on it must."""
    write_files(tmp_path / "in", 1)
    out = tmp_path / "out"
    out.mkdir()
    with stopping("before forgetting", 4), pytest.raises(Stopped):
        run(tmp_path, Callback(lambda _: None))
    run(tmp_path, Callback(lambda _: None), sink_of(kind, out))
    shutil.rmtree(out)
    out.mkdir()
    with pytest.raises(StateError, match="has delivered to"):
        run(tmp_path, Callback(lambda _: None), sink_of(kind, out))


def test_outputs_that_are_swapped(tmp_path: Path) -> None:
    write_files(tmp_path / "in", 1)
    made = pipeline(tmp_path / "in")

    def go(first: str, second: str, *, overwrite: bool = False) -> None:
        lw.run(
            *(made.write_jsonl(tmp_path / name, overwrite=overwrite) for name in (first, second)),
            state=tmp_path / "state",
            bundle_size=10,
            commit_every="bundle",
        )

    with stopping("before forgetting", 4), pytest.raises(Stopped):
        go("a", "b")
    before = bytes_in(tmp_path / "a") | bytes_in(tmp_path / "b")
    with pytest.raises(StateError, match=r"outputs were .*/a'.*/b' and are .*/b'.*/a': new"):
        go("b", "a", overwrite=True)
    assert bytes_in(tmp_path / "a") | bytes_in(tmp_path / "b") == before
    go("a", "b")


@pytest.mark.parametrize("last", KINDS)
@pytest.mark.parametrize("state", sampled(["state", None], every=2))
def test_a_refused_output_leaves_the_others_untouched(
    last: str, state: str | None, tmp_path: Path
) -> None:
    """All places are looked at before the first is replaced."""
    write_files(tmp_path / "in", 1)
    made = pipeline(tmp_path / "in")
    folders = {kind: tmp_path / kind for kind in KINDS}
    for kind, folder in folders.items():
        folder.mkdir()
        deliver_all(sink_of(kind, folder), [with_everything()], NEXT_RUN)
    before = bytes_in(tmp_path)
    kinds = [*(kind for kind in KINDS if kind != last), last]
    outputs = [
        made.write_to(sink_of(kind, folders[kind], overwrite=kind != last)) for kind in kinds
    ]
    with pytest.raises(StateError, match="output of another"):
        lw.run(*outputs, state=state and tmp_path / state)
    found = bytes_in(tmp_path)
    assert {name: found.get(name) for name in before} == before
    whole = [made.write_to(sink_of(kind, folders[kind], overwrite=True)) for kind in kinds]
    shutil.rmtree(tmp_path / "state", ignore_errors=True)
    lw.run(*whole)


def test_what_a_state_knows_of_places_is_not_secret(tmp_path: Path) -> None:
    names = place_names(PostgresTable("host=db password=hunter2", "counts"))
    assert names == ["PostgresTable counts counts_late counts_errors"]
    assert place_names(JsonLinesFolder("out/")) == ["out"]
    assert place_names(Callback(print)) == []
