"""Inputs, outputs and state that lie within one another, and names of files that are none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lowwater as lw
from lowwater.errors import InvalidArgument
from lowwater.io.paths import files_at, would_match
from lowwater.io.sinks import JsonLinesFolder, SqliteTable

Place = Callable[[Path], Any]


def counts(paths: Any) -> lw.Pipeline:
    return (
        lw.read_jsonl(paths, time="t", clock=lw.ManualClock(0))
        .key_by("k")
        .window(lw.FixedWindows("1m"))
        .aggregate(n=lw.count())
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("in/a.jsonl", "in/deep/b.jsonl", "out/c.jsonl", "state/d.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(json.dumps({"t": 1, "k": "k"}) + "\n")
    (tmp_path / "link").symlink_to(tmp_path / "in")
    return tmp_path


def contents(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


@pytest.mark.parametrize(
    ("source", "output"),
    [
        ("in", "in"),
        ("in", "in/out"),
        ("in", "link/out"),
        ("link", "in/out"),
        (".", "new"),
        ("in", "in/new.jsonl"),
        ("in/a.jsonl", "in/a.jsonl"),
        ("in/a.jsonl", "in/../in/a.jsonl"),
        ("in/*/*.jsonl", "in/out"),
        ("in/**/*.jsonl", "in/x/out"),
        ("in/**", "in/x/out"),
        ("in/*.jsonl", "in/new.jsonl"),
        ("in/deep", "in"),
        ("in/deep/b.jsonl", "in"),
        ("in/deep/*.jsonl", "in"),
    ],
)
@pytest.mark.parametrize("state", [None, "new-state"])
def test_outputs_where_the_run_reads(
    source: str, output: str, state: str | None, folder: Path
) -> None:
    before = contents(folder)
    with pytest.raises(InvalidArgument, match=r"what it writes would be read|in the output folder"):
        counts(source).write_jsonl(output).run(state=state, progress=False)
    assert contents(folder) == before


@pytest.mark.parametrize(
    ("source", "output"),
    [
        ("in", "new"),
        ("in", "in2"),
        ("in", "in/_out"),
        ("in", "in/.out"),
        ("in/*.jsonl", "in/new"),
        ("in/a.jsonl", "in/new.jsonl"),
        ("in/a*.jsonl", "in/new.jsonl"),
        ("in/*/b.jsonl", "in/x/new"),
    ],
)
def test_outputs_that_are_not_read(source: str, output: str, folder: Path) -> None:
    for _ in range(2):
        metrics = counts(source).write_jsonl(output, overwrite=True).run(progress=False)
        assert metrics.events == len(files_at(source, (".jsonl",)))


def test_a_database_may_lie_beside_what_is_read(folder: Path) -> None:
    counts("in").write_to(SqliteTable("in/counts.sqlite", "counts")).run(progress=False)


@pytest.mark.parametrize(
    ("output", "state"),
    [
        ("new", "new"),
        ("new", "new/state"),
        ("new/out", "new"),
        ("out", "link/../out/state"),
        ("new/out.jsonl", "new"),
    ],
)
def test_a_state_directory_and_an_output(output: str, state: str, folder: Path) -> None:
    before = contents(folder)
    with pytest.raises(InvalidArgument, match="lie within one another"):
        counts("in").write_jsonl(output).run(state=state, progress=False)
    with pytest.raises(InvalidArgument, match="lie within one another"):
        counts("in").write_to(
            JsonLinesFolder("fine"), SqliteTable(f"{state}/a.sqlite", "counts")
        ).run(state=state, progress=False)
    assert contents(folder) == before


@pytest.mark.parametrize("source", ["state", "state/d.jsonl", "state/*.jsonl", "state/*"])
def test_an_input_in_the_state_directory(source: str, folder: Path) -> None:
    with pytest.raises(InvalidArgument, match="lies in the state directory 'state'"):
        counts(source).write_jsonl("new").run(state="state", progress=False)


def test_places_side_by_side(folder: Path) -> None:
    counts("in").write_jsonl("in-out").run(state="in-state", progress=False)
    counts("in/a.jsonl").write_jsonl("in/new.jsonl").run(state="in/state", progress=False)


@pytest.mark.parametrize(
    ("paths", "name", "matches"),
    [
        ("in", "in/new.jsonl", True),
        ("in", "in/x/y/new.jsonl", True),
        ("in", "in/new.csv", False),
        ("in", "in/_x/new.jsonl", False),
        ("in", "in/.new.jsonl", False),
        ("in", "other/new.jsonl", False),
        ("in/a.jsonl", "in/a.jsonl", True),
        ("in/a.jsonl", "in/a.jsonl/b.jsonl", False),
        ("in/*", "in/new.csv", True),
        ("in/*", "in/x/new.csv", False),
        ("in/*", "in/.new", False),
        ("in/.*", "in/.new", True),
        ("in/**/n?w.*", "in/new.csv", True),
        ("in/**/n?w.*", "in/x/y/new.csv", True),
        ("in/**/n?w.*", "in/.x/new.csv", False),
        ("in/**", "in/x/new.csv", True),
        ("*/new.csv", "in/new.csv", True),
        ("*/x/*", "in/new.csv", False),
    ],
)
def test_what_would_match_is_what_does(paths: str, name: str, matches: bool, folder: Path) -> None:
    """As if the file were there, and once it is there."""
    suffixes = (".jsonl",)
    assert would_match((paths,), suffixes, Path(name)) is matches
    if not Path(name).parent.is_file():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).touch()
        found = files_at(paths, suffixes, maybe_none=True)
        assert (str(Path(name)) in found) is matches


@pytest.mark.parametrize(
    "name", ["o.json", "o.JSON", "o.JSONL", "o.ndjson", "o.jsonl.gz", "x/.jsonl", "o.json.gz"]
)
def test_names_that_look_like_files(name: str, folder: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"looks like a file.*this would be a folder"):
        counts("in").write_jsonl(name)
    Path(name).mkdir(parents=True)
    counts("in").write_jsonl(name)
    counts("in").write_jsonl(f"x{name}/")
    counts("in").write_to(JsonLinesFolder(name))
