"""One file of JSON lines: appended to exactly once, and cut back after a crash."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from lowwater.engine.local.delivery import Delivery, Writer
from lowwater.engine.records.json_lines import json_lines
from lowwater.errors import InvalidArgument, StateError
from lowwater.io.sinks import JsonLinesFile, JsonLinesFolder
from tests.examples import is_campaign
from tests.unit.io.deliveries import (
    ANOTHER,
    NEXT_RUN,
    RUN,
    WRITER,
    Killed,
    Moments,
    deliver_all,
    die,
    dying_in_files,
    empty,
    files_in,
    message_of,
    with_everything,
)
from tests.unit.io.deliveries import encoded_once as encoded_once  # a fixture

FIRST, SECOND, THIRD = (with_everything(epoch, 0, add=epoch) for epoch in (1, 3, 4))
# A death after a call leaves the files that one before the next call leaves, but for what is
# written in between.
AFTER = pytest.mark.parametrize("after", [False, True] if is_campaign() else [False])
pytestmark = pytest.mark.usefixtures("encoded_once")
NAMES = ("out.jsonl", "out.late.jsonl", "out.errors.jsonl")


def everything_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def sink_in(folder: Path, **options: Any) -> JsonLinesFile:
    return JsonLinesFile(str(folder / "out.jsonl"), **options)


def owner_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / ".out.jsonl.lowwater.json").read_text())
    return found


def test_it_holds_what_the_parts_of_a_folder_do(tmp_path: Path) -> None:
    deliveries = [FIRST, empty(2), SECOND, THIRD]
    deliver_all(sink_in(tmp_path / "file"), deliveries)
    deliver_all(JsonLinesFolder(str(tmp_path / "folder")), deliveries)
    assert set(files_in(tmp_path / "file")) == set(NAMES)
    for name, prefix in zip(NAMES, ("part", "late", "errors"), strict=True):
        parts = sorted((tmp_path / "folder").glob(f"{prefix}-*.jsonl"))
        whole = b"".join(part.read_bytes() for part in parts)
        assert (tmp_path / "file" / name).read_bytes() == whole


def test_without_panes_the_file_is_empty(tmp_path: Path) -> None:
    deliver_all(sink_in(tmp_path / "deep" / "er"), [empty(1)])
    assert files_in(tmp_path / "deep" / "er") == {"out.jsonl": b""}


def test_delivered_again_it_is_the_same(tmp_path: Path) -> None:
    deliver_all(sink_in(tmp_path), [FIRST, SECOND])
    once = everything_in(tmp_path)
    deliver_all(sink_in(tmp_path), [FIRST, SECOND, SECOND])
    assert everything_in(tmp_path) == once


@pytest.mark.slow(reason="a sink dies at every instant")
@AFTER
def test_death_at_any_instant(after: bool, tmp_path: Path) -> None:
    """A restart cuts off what was not noted; the last delivery comes again."""
    deliver_all(sink_in(tmp_path / "whole"), [FIRST, SECOND])
    whole = everything_in(tmp_path / "whole")
    at = 0
    while True:
        target = tmp_path / str(at)
        with dying_in_files(at, after=after) as moments:
            try:
                deliver_all(sink_in(target), [FIRST, SECOND])
            except Killed:
                pass
        if not moments.reached:
            break
        for name, data in files_in(target).items():
            assert whole[name].startswith(data)
        noted = target / ".out.jsonl.lowwater.json"
        has_first = noted.exists() and owner_of(target)["last"] >= FIRST.id
        deliver_all(sink_in(target), [SECOND] if has_first else [FIRST, SECOND])
        assert everything_in(target) == whole
        at += 1
    assert at > 40


@pytest.mark.slow(reason="a sink dies at every instant")
@AFTER
def test_death_while_it_replaces(after: bool, tmp_path: Path) -> None:
    deliver_all(sink_in(tmp_path / "whole"), [SECOND])
    whole = everything_in(tmp_path / "whole")
    at = 0
    while True:
        target = tmp_path / str(at)
        deliver_all(sink_in(target), [FIRST, THIRD], RUN)
        old = files_in(target)
        with dying_in_files(at, after=after) as moments:
            try:
                deliver_all(sink_in(target, overwrite=True), [SECOND])
            except Killed:
                pass
        if not moments.reached:
            break
        owner = owner_of(target)
        if owner["complete"]:
            assert files_in(target) == (
                old if owner["writer"] == RUN.id else files_in(tmp_path / "whole")
            )
        deliver_all(sink_in(target, overwrite=True), [SECOND])
        assert everything_in(target) == whole
        at += 1
    assert at > 20


@pytest.mark.parametrize("name", ["write", "fsync", "replace"])
def test_the_system_refuses(name: str, tmp_path: Path) -> None:
    """It is said, and the same sink can go on: nothing is there twice."""
    deliver_all(sink_in(tmp_path / "whole"), [FIRST, SECOND])
    whole = everything_in(tmp_path / "whole")
    at = 0
    while True:
        sink = sink_in(tmp_path / f"{name}{at}")
        sink.open(WRITER)
        sink.deliver(FIRST)
        moments = Moments(at, lambda: OSError(errno.ENOSPC, "full"), after=False)
        with mock.patch.object(os, name, moments.around(getattr(os, name))):
            said = message_of(sink, SECOND)
        assert (said is not None) == moments.reached
        assert said is None or "is full" in said
        sink.deliver(SECOND)
        sink.close(complete=True)
        assert everything_in(tmp_path / f"{name}{at}") == whole
        at += 1
        if not moments.reached:
            break
    assert at > 1


def test_a_run_that_dies_before_its_first_commit_begins_again(tmp_path: Path) -> None:
    first = replace(WRITER, epoch=0)
    sink_in(tmp_path).open(first)
    die()
    deliver_all(sink_in(tmp_path), [FIRST], first)
    with pytest.raises(StateError, match=r"holds epoch 1 of this state.* is epoch 0"):
        sink_in(tmp_path).open(first)


def test_another_writer_is_refused_or_replaces(tmp_path: Path) -> None:
    deliver_all(sink_in(tmp_path), [FIRST, SECOND], RUN)
    before = everything_in(tmp_path)
    for writer in (NEXT_RUN, WRITER):
        with pytest.raises(StateError, match=r"output of another run.*overwrite=True"):
            sink_in(tmp_path).open(writer)
    assert everything_in(tmp_path) == before
    deliver_all(sink_in(tmp_path, overwrite=True), [THIRD], NEXT_RUN)
    deliver_all(sink_in(tmp_path / "alone"), [THIRD], NEXT_RUN)
    assert everything_in(tmp_path) == everything_in(tmp_path / "alone")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_file_that_no_run_wrote_stays(name: str, overwrite: bool, tmp_path: Path) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(StateError, match="this sink did not write it"):
        sink_in(tmp_path, overwrite=overwrite).open(WRITER)
    assert everything_in(tmp_path) == {name: b"mine"}


def test_a_symlink_is_not_followed(tmp_path: Path) -> None:
    deliver_all(sink_in(tmp_path), [FIRST])
    (tmp_path / "out.late.jsonl").rename(tmp_path / "mine")
    (tmp_path / "out.late.jsonl").symlink_to(tmp_path / "mine")
    with pytest.raises(StateError, match="this sink did not write it"):
        sink_in(tmp_path).open(WRITER)


def test_a_file_that_was_cut_short(tmp_path: Path) -> None:
    deliver_all(sink_in(tmp_path), [FIRST])
    data = (tmp_path / "out.jsonl").read_bytes()
    (tmp_path / "out.jsonl").write_bytes(data[:-1])
    with pytest.raises(StateError, match=f"{len(data) - 1} bytes, and {len(data)} were delivered"):
        sink_in(tmp_path).open(WRITER)


@pytest.mark.parametrize("how", ["truncated", "moved"])
def test_a_file_that_is_cut_or_moved_while_it_is_written(how: str, tmp_path: Path) -> None:
    """It is said at the next delivery: the file does not begin with a hole."""
    sink = sink_in(tmp_path)
    sink.open(WRITER)
    sink.deliver(FIRST)
    path = tmp_path / "out.jsonl"
    data = path.read_bytes()
    if how == "truncated":
        os.truncate(path, 5)
    else:
        path.rename(tmp_path / "out.1.jsonl")
    left = len(data[:5]) if how == "truncated" else None
    with pytest.raises(StateError, match=r"something else has cut it|is gone, and") as caught:
        sink.deliver(SECOND)
    assert caught.value.hint
    assert (path.stat().st_size if path.exists() else None) == left
    path.write_bytes(data)
    sink.deliver(SECOND)
    sink.close(complete=True)
    deliver_all(sink_in(tmp_path / "whole"), [FIRST, SECOND])
    assert path.read_bytes() == (tmp_path / "whole" / "out.jsonl").read_bytes()


@pytest.mark.parametrize("name", NAMES[1:])
@pytest.mark.parametrize("writer", [WRITER, RUN])
def test_a_neighbour_that_the_run_did_not_make_stays(
    name: str, writer: Writer, tmp_path: Path
) -> None:
    """Whether it comes while the run goes on, or before its restart or replacement."""
    without = Delivery(FIRST.epoch, 0, 0, FIRST.panes)
    sink = sink_in(tmp_path)
    sink.open(writer)
    sink.deliver(without)
    (tmp_path / name).write_text("mine")
    with pytest.raises(StateError, match="this sink did not write it"):
        sink.deliver(SECOND)
    sink.close(complete=False)
    for later in (WRITER, NEXT_RUN):
        with pytest.raises(StateError, match="this sink did not write it"):
            sink_in(tmp_path, overwrite=True).open(later)
    assert (tmp_path / name).read_text() == "mine"
    assert (tmp_path / "out.jsonl").read_bytes() == json_lines(FIRST.panes)


@pytest.mark.parametrize("text", ["mine", "mine " * 10_000])
@pytest.mark.parametrize("complete", [False, True])
@pytest.mark.parametrize("later", [WRITER, NEXT_RUN])
def test_a_file_in_place_of_the_one_that_was_written_stays(
    text: str, complete: bool, later: Writer, tmp_path: Path
) -> None:
    sink = sink_in(tmp_path)
    sink.open(WRITER)
    sink.deliver(FIRST)
    sink.close(complete=complete)
    (tmp_path / "out.jsonl").write_text(text)
    before = everything_in(tmp_path)
    with pytest.raises(StateError, match=rf"has {len(text)} bytes.* were delivered to it"):
        sink_in(tmp_path, overwrite=True).open(later)
    assert everything_in(tmp_path) == before


def test_a_complete_output_that_is_written_again(tmp_path: Path) -> None:
    """While more is written, it does not say that it is complete; a crash is put right."""
    deliver_all(sink_in(tmp_path), [FIRST])
    sink = sink_in(tmp_path)
    sink.open(WRITER)
    moments = Moments(2, Killed, after=True)
    with mock.patch.object(os, "write", moments.around(os.write)), pytest.raises(Killed):
        sink.deliver(SECOND)
    die()
    assert owner_of(tmp_path)["complete"] is False
    deliver_all(sink_in(tmp_path), [SECOND])
    deliver_all(sink_in(tmp_path / "whole"), [FIRST, SECOND])
    assert files_in(tmp_path) == files_in(tmp_path / "whole")


@pytest.mark.parametrize("writer", [WRITER, RUN])
def test_a_failed_write_leaves_no_half_line(writer: Writer, tmp_path: Path) -> None:
    sink = sink_in(tmp_path)
    sink.open(writer)
    sink.deliver(FIRST)
    before = files_in(tmp_path)
    write = os.write

    def torn(to: int, data: bytes) -> int:
        write(to, data[:20])
        raise OSError(errno.ENOSPC, "full")

    with mock.patch.object(os, "write", torn):
        assert message_of(sink, SECOND)
    assert files_in(tmp_path) != before
    sink.close(complete=False)
    assert files_in(tmp_path) == before


@pytest.mark.parametrize("delivers", [False, True])
def test_a_run_that_fails(delivers: bool, tmp_path: Path) -> None:
    sink = sink_in(tmp_path)
    sink.open(RUN)
    if delivers:
        sink.deliver(FIRST)
    sink.close(complete=False)
    assert set(files_in(tmp_path)) == (set(NAMES) if delivers else set())
    if not delivers:
        assert list(tmp_path.iterdir()) == []
        return
    assert owner_of(tmp_path)["complete"] is False
    with pytest.raises(StateError, match="which did not complete"):
        sink_in(tmp_path).open(NEXT_RUN)


def test_one_sink_object_in_two_runs(tmp_path: Path) -> None:
    sink = sink_in(tmp_path, overwrite=True)
    sink.open(RUN)
    with pytest.raises(InvalidArgument, match="one sink object is in two runs"):
        sink.open(NEXT_RUN)
    sink.deliver(FIRST)
    sink.close(complete=True)
    assert owner_of(tmp_path)["writer"] == RUN.id


def test_a_file_that_was_taken_over(tmp_path: Path) -> None:
    sink = sink_in(tmp_path)
    sink.open(RUN)
    with pytest.raises(StateError, match=r"another run writes to .* at this moment"):
        sink_in(tmp_path, overwrite=True).open(NEXT_RUN)
    die()  # as on a file system whose locks do not hold
    deliver_all(sink_in(tmp_path, overwrite=True), [FIRST], NEXT_RUN)
    before = everything_in(tmp_path)
    with pytest.raises(StateError, match="taken over by another run"):
        sink.deliver(SECOND)
    sink.close(complete=False)
    assert everything_in(tmp_path) == before


def test_only_own_passing_files_are_removed(tmp_path: Path) -> None:
    own, other = (f".{name}.lowwater.json.0123456789abcdef" for name in ("out.jsonl", "x.jsonl"))
    for name in (own, other):
        (tmp_path / name).write_text("half")
    sink = sink_in(tmp_path)
    sink.open(WRITER)
    sink.close(complete=False)
    assert set(everything_in(tmp_path)) == {other, "out.jsonl", ".out.jsonl.lowwater.json"}


def test_what_cannot_be_the_target(tmp_path: Path) -> None:
    for wrong in (None, 3, b"x"):
        with pytest.raises(InvalidArgument, match="is not a path"):
            JsonLinesFile(wrong)  # type: ignore[arg-type]
    for name in ("out", "out.json", ".jsonl"):
        with pytest.raises(InvalidArgument, match=r"ends in \.jsonl"):
            JsonLinesFile(name)
    (tmp_path / "out.jsonl").mkdir()
    with pytest.raises(InvalidArgument, match="is a folder"):
        sink_in(tmp_path).open(WRITER)
    with pytest.raises(InvalidArgument, match="is not open"):
        sink_in(tmp_path).deliver(FIRST)
    deliver_all(sink_in(tmp_path / "a"), [FIRST])
    with pytest.raises(StateError, match="another state directory"):
        sink_in(tmp_path / "a").open(ANOTHER)


def test_repr_evaluates_back() -> None:
    sink = JsonLinesFile("out.jsonl", overwrite=True)
    assert eval(repr(sink)) == sink


def test_that_it_is_open_does_not_show(tmp_path: Path) -> None:
    sink, other = sink_in(tmp_path), sink_in(tmp_path)
    sink.open(WRITER)
    assert (sink, hash(sink), repr(sink)) == (other, hash(other), repr(other))
    sink.close(complete=True)
    with pytest.raises(TypeError, match="positional argument"):
        JsonLinesFile("out.jsonl", False, [])  # type: ignore[call-arg]


@pytest.mark.parametrize("complete", [False, True])
def test_lines_behind_those_of_a_complete_run_are_someone_elses(
    complete: bool, tmp_path: Path
) -> None:
    """A run that was not complete may have died between a delivery and its note."""
    deliver_all(sink_in(tmp_path), [FIRST], complete=complete)
    with (tmp_path / "out.jsonl").open("a") as file:
        file.write("{}\n")
    if not complete:
        sink_in(tmp_path).open(WRITER)
        assert (tmp_path / "out.jsonl").read_bytes() == json_lines(FIRST.panes)
        return
    with pytest.raises(StateError, match=r"has \d+ bytes, and \d+ were delivered to it"):
        sink_in(tmp_path).open(WRITER)
    assert (tmp_path / "out.jsonl").read_bytes() == json_lines(FIRST.panes) + b"{}\n"


def test_overwrite_is_a_bool() -> None:
    with pytest.raises(InvalidArgument, match="neither True nor False"):
        JsonLinesFile("out.jsonl", overwrite="no")  # type: ignore[arg-type]  # the test
