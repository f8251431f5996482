"""Input files that overlap, or that change under a durable run: each is read once, as it was."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from itertools import product, starmap
from pathlib import Path
from typing import Any

import pytest

import lowwater as lw
from lowwater.errors import DataError, StateError
from lowwater.io import file_content, follow
from lowwater.io.jsonl import JsonLinesSource
from lowwater.pipeline.state_tools import state_info
from tests.examples import sampled
from tests.unit.engine.local.durable_runs import SECOND, Stopped, output, stopping

COUNT = 30
OPTIONS: dict[str, Any] = {"bundle_size": 7, "commit_every": "bundle", "progress": False}


def write_lines(path: Path, first: int, add: int = 0) -> Path:
    """Write lines of one length whatever is added to their values."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [{"t": (first + n) * SECOND, "v": 1_000 + first + n + add} for n in range(COUNT)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def values(paths: Any, **options: Any) -> lw.Pipeline:
    """Return a pipeline that collects the values that are read."""
    return (
        lw.read_jsonl(paths, time="t", clock=lw.ManualClock(0), **options)
        .key_by(k=lw.lit("k"))
        .window(
            lw.GlobalWindow(), trigger=lw.Repeatedly(lw.AfterCount(1)), accumulation="discarding"
        )
        .aggregate(values=lw.collect("v"))
    )


def run(pipeline: lw.Pipeline, folder: Path) -> list[int]:
    """Run durably; return what was read, in the order in which it was emitted."""
    pipeline.write_jsonl(folder / "out").run(state=folder / "state", **OPTIONS)
    return emitted(folder)


def emitted(folder: Path) -> list[int]:
    parts = sorted((folder / "out").glob("part-*.jsonl"))
    rows = [json.loads(line) for part in parts for line in part.read_text().splitlines()]
    return [value for row in rows for value in row["values"]]


def stop_after(commits: int, pipeline: lw.Pipeline, folder: Path) -> None:
    with stopping("before forgetting", commits), pytest.raises(Stopped):
        run(pipeline, folder)


# ------------------------------------------------------------------------------ overlapping paths


def overlapping(folder: Path) -> dict[str, list[str]]:
    """Return paths by what they are, all of which lead to 0, 1 and 2.jsonl in this order."""
    inside = folder / "in"
    (folder / "link").symlink_to(inside)
    (folder / "also.jsonl").symlink_to(inside / "1.jsonl")
    return {
        "folder and file": [f"{inside}", f"{inside}/1.jsonl"],
        "twice": [f"{inside}", f"{inside}"],
        "glob": [f"{inside}/*.jsonl", f"{inside}"],
        "dots": [f"{inside}", f"{folder}/in/../in/1.jsonl"],
        "link to folder": [f"{inside}", f"{folder}/link"],
        "link to file": [f"{inside}", f"{folder}/also.jsonl"],
        "link first": [f"{folder}/link/0.jsonl", f"{inside}"],
    }


KINDS = [
    "folder and file", "twice", "glob", "dots", "link to folder", "link to file", "link first",
]  # fmt: skip

COMMITS = (None, 2, 6, 9)


@pytest.mark.parametrize(
    ("kind", "commits"),
    sampled(
        [
            pytest.param(kind, COMMITS[(at + turn) % len(COMMITS)])
            for turn, kind in enumerate(KINDS)
            for at in range(len(COMMITS))
        ],
        every=len(COMMITS),
    ),
)
def test_a_file_that_several_paths_match_is_read_once(
    kind: str, commits: int | None, tmp_path: Path
) -> None:
    for number in range(3):
        write_lines(tmp_path / f"in/{number}.jsonl", number * COUNT)
    pipeline = values(overlapping(tmp_path)[kind])
    if commits is not None:
        stop_after(commits, pipeline, tmp_path)
    assert run(pipeline, tmp_path) == [1_000 + n for n in range(3 * COUNT)]
    assert run(pipeline, tmp_path) == [1_000 + n for n in range(3 * COUNT)]


def test_without_a_state_too(tmp_path: Path) -> None:
    write_lines(tmp_path / "in/0.jsonl", 0)
    pipeline = values([tmp_path / "in", tmp_path / "in/0.jsonl", tmp_path / "in/../in/*"])
    assert sum(len(pane.value) for pane in pipeline.run(progress=False)) == COUNT


def test_a_path_added_later_that_leads_to_a_file_that_was_read(tmp_path: Path) -> None:
    for number in range(3):
        write_lines(tmp_path / f"in/{number}.jsonl", number * COUNT)
    inside = tmp_path / "in"
    (tmp_path / "link").symlink_to(inside)
    stop_after(7, values([inside]), tmp_path)
    found = run(values([tmp_path / "link/0.jsonl", inside]), tmp_path)
    assert found == [1_000 + n for n in range(3 * COUNT)]


# ----------------------------------------------------------------- files of the same size as before


def overwrite(path: Path) -> None:
    """Give a file other content of the same size, in place."""
    write_lines(path, int(path.stem) * COUNT, add=500)


def replace(path: Path) -> None:
    """Put another file of the same size in its place."""
    write_lines(path.with_name(".new"), int(path.stem) * COUNT, add=500).replace(path)


def replace_with_its_times(path: Path) -> None:
    """Do so as `cp -p` and `rsync -t` do."""
    stat = path.stat()
    replace(path)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


CHANGES = [overwrite, replace, replace_with_its_times]
Change = Callable[[Path], None]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a run that was stopped in the second of three files."""
    for number in range(3):
        write_lines(tmp_path / f"in/{number}.jsonl", number * COUNT)
    stop_after(7, values(tmp_path / "in"), tmp_path)
    assert COUNT < len(emitted(tmp_path)) < 2 * COUNT
    return tmp_path


@pytest.mark.parametrize(
    ("number", "change"), sampled(starmap(pytest.param, product([0, 1], CHANGES)), every=2)
)
def test_a_file_of_one_size_replaced_between_runs(
    change: Change, number: int, folder: Path
) -> None:
    path, before = folder / f"in/{number}.jsonl", emitted(folder)
    former = path.read_bytes()
    change(path)
    assert path.stat().st_size == len(former)
    read = "all of it was read" if number == 0 else "batch 1 of it was being read"
    with pytest.raises(DataError, match=rf"still has {len(former)} bytes.*{read}") as caught:
        run(values(folder / "in"), folder)
    assert caught.value.where == str(path)
    assert "Put the former file back" in str(caught.value.hint)
    assert "reset the state, empty the outputs" in str(caught.value.hint)
    assert emitted(folder) == before
    path.write_bytes(former)
    assert run(values(folder / "in"), folder) == [1_000 + n for n in range(3 * COUNT)]


@pytest.mark.parametrize(
    ("number", "change"), sampled(starmap(pytest.param, product([0, 1, 2], CHANGES)), every=4)
)
def test_a_file_of_one_size_replaced_during_the_run(
    change: Change, number: int, tmp_path: Path
) -> None:
    paths = [write_lines(tmp_path / f"in/{n}.jsonl", n * COUNT) for n in range(3)]
    former = paths[number].read_bytes()
    pipeline = values(tmp_path / "in")
    with (
        stopping("after the write", 5 * number + 4, lambda: change(paths[number])),
        pytest.raises(DataError, match="was replaced since it was read"),
    ):
        run(pipeline, tmp_path)
    # No value of the other file was emitted.
    found = emitted(tmp_path)
    assert found == [1_000 + n for n in range(len(found))]
    paths[number].write_bytes(former)
    assert run(pipeline, tmp_path) == [1_000 + n for n in range(3 * COUNT)]


@pytest.mark.parametrize(
    ("number", "commits", "change"),
    sampled(
        [pytest.param(*at, how) for at in [(0, 8), (0, 13), (1, 13)] for how in CHANGES], every=4
    ),
)
def test_a_file_of_one_size_replaced_while_a_later_one_is_read(
    change: Change, number: int, commits: int, tmp_path: Path
) -> None:
    """The run is not complete then, though it has nothing more to read."""
    paths = [write_lines(tmp_path / f"in/{n}.jsonl", n * COUNT) for n in range(3)]
    former = paths[number].read_bytes()
    pipeline = values(tmp_path / "in")
    with (
        stopping("after the write", commits, lambda: change(paths[number])),
        pytest.raises(DataError, match=r"was replaced since it was read.*all of it was read"),
    ):
        run(pipeline, tmp_path)
    assert not state_info(tmp_path / "state").complete
    paths[number].write_bytes(former)
    assert run(pipeline, tmp_path) == [1_000 + n for n in range(3 * COUNT)]


def test_a_file_replaced_between_the_batches_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader holds the first file open; the second would be read after a restart."""
    monkeypatch.setattr("lowwater.io.jsonl._FIRST_LINES", 7)
    monkeypatch.setattr("lowwater.io.jsonl.read_rows", lambda size: size)
    path = write_lines(tmp_path / "in/0.jsonl", 0)
    with (
        stopping("after the write", 3, lambda: replace(path)),
        pytest.raises(DataError, match="batch 4 of it was being read"),
    ):
        run(values(tmp_path / "in"), tmp_path)
    found = emitted(tmp_path)
    assert found == [1_000 + n for n in range(len(found))]


def test_a_file_that_was_read_is_replaced_while_the_run_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_lines(tmp_path / "in/0.jsonl", 0)
    monkeypatch.setattr(follow, "wait", lambda _seconds: replace(path))
    pipeline = values(tmp_path / "in", follow=True, max_idle="3s")
    with pytest.raises(DataError, match=r"was replaced since it was read.*all of it was read"):
        run(pipeline, tmp_path)


def test_a_copy_of_the_project_is_as_good(folder: Path) -> None:
    """Other inodes and times, and the same content."""
    shutil.copytree(folder / "in", folder / "copy")
    shutil.rmtree(folder / "in")
    (folder / "copy").rename(folder / "in")
    assert run(values(folder / "in"), folder) == [1_000 + n for n in range(3 * COUNT)]


def test_content_is_not_read_again_while_inode_and_times_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_lines(tmp_path / "0.jsonl", 0)
    name, year_ns = str(path), 365 * 86_400 * 10**9
    contents = file_content.FileContents(checksums=True)
    fresh = contents.record(name)
    assert fresh[2] is None  # written a moment ago: its times might still be those of another
    later = path.stat().st_ctime_ns + year_ns
    monkeypatch.setattr(time, "time_ns", lambda: later)
    settled = contents.record(name)
    assert settled[:2] == fresh[:2]
    reads: list[str] = []
    again = file_content.FileContents(checksums=True)
    read = file_content.FileContents._read

    def counted(
        self: file_content.FileContents, name: str, before: int | str | None = None
    ) -> file_content.Content:
        reads.append(name)
        return read(self, name, before)

    monkeypatch.setattr(file_content.FileContents, "_read", counted)
    assert again.check(name, settled, "") == settled
    assert reads == []
    assert again.check(name, fresh, "") == settled
    assert reads == [name]
    path.write_bytes(path.read_bytes())
    assert again.check(name, settled, "") is not None
    assert reads == [name, name]
    path.unlink()
    assert again.check(name, settled, "") is None


# ----------------------------------------------------------------------------- the end of following


@pytest.mark.parametrize("state", [False, True])
def test_what_was_there_before_stop_was_set_is_read(
    state: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer puts its last file there, sets the event, and nothing is lost."""
    write_lines(tmp_path / "in/0.jsonl", 0)
    stop = False
    waits = 0

    def wait(_seconds: float) -> None:
        nonlocal stop, waits
        waits += 1
        if waits == 2:
            write_lines(tmp_path / "in/1.jsonl", COUNT)
            stop = True

    def is_set() -> bool:
        nonlocal stop
        if not stop and waits >= 3:  # too late: it was not asked after the last file came
            raise AssertionError
        return stop

    monkeypatch.setattr(follow, "wait", wait)
    monkeypatch.setattr(follow, "stopwatch", lambda: 0.0)
    pipeline = values(tmp_path / "in", follow=True, stop=is_set)
    expected = [1_000 + n for n in range(2 * COUNT)]
    if state:
        assert run(pipeline, tmp_path) == expected
    else:
        found = [value for pane in pipeline.run(progress=False) for value in pane.value]
        assert found == expected
    assert waits == 2


def test_a_file_put_there_just_as_stop_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_lines(tmp_path / "in/0.jsonl", 0)

    def stop() -> bool:
        write_lines(tmp_path / "in/1.jsonl", COUNT)
        return True

    monkeypatch.setattr(follow, "wait", lambda _seconds: None)
    pipeline = values(tmp_path / "in", follow=True, stop=stop)
    assert run(pipeline, tmp_path) == [1_000 + n for n in range(2 * COUNT)]
    assert run(pipeline, tmp_path) == [1_000 + n for n in range(2 * COUNT)]


def test_a_position_that_is_damaged_is_told(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "in/0.jsonl", 0)
    source = JsonLinesSource((str(tmp_path / "in"),), "at")
    batches = source.batches_from(None, 7, ())
    _, position = next(batches)
    assert position["file"] == str(path)
    for broken in (
        {**position, "content": [1]},
        {**position, "content": [1, -1, None]},
        {**position, "content": None},
        {**position, "done": {"a": 5}},
        {**position, "batch": -1},
        {**position, "file": 3},
    ):
        with pytest.raises(StateError, match="position in the files"):
            next(source.batches_from(broken, 7, ()))
    assert output(tmp_path) == {"part": [], "late": [], "errors": []}
