"""Folders of files named by delivery: published whole, and the same when delivered again."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lowwater as lw
from lowwater.engine.local.delivery import Delivery, Sink
from lowwater.engine.local.outbox import decode_delivery, encode_delivery
from lowwater.errors import DataError, InvalidArgument, StateError
from lowwater.io.sinks import JsonLinesFolder, ParquetFolder
from lowwater.io.sinks.staging import write_whole
from tests.examples import is_campaign
from tests.unit.io.deliveries import (
    ANOTHER,
    NEXT_RUN,
    RUN,
    WRITER,
    Killed,
    Moments,
    Whatever,
    deliver_all,
    die,
    dying_in_files,
    empty,
    files_in,
    message_of,
    of_items,
    staged_in,
    with_everything,
)
from tests.unit.io.deliveries import encoded_once as encoded_once  # a fixture

FIRST, SECOND = with_everything(1, 0), with_everything(1, 1, add=100)
ID = "000000000001-000-000000"
Folder = type[ParquetFolder] | type[JsonLinesFolder]
BOTH = pytest.mark.parametrize("folder", [ParquetFolder, JsonLinesFolder])
# A death after a call leaves the files that one before the next call leaves, but for what is
# written in between.
AFTER = pytest.mark.parametrize("after", [False, True] if is_campaign() else [False])
pytestmark = pytest.mark.usefixtures("encoded_once")


@BOTH
def test_what_a_folder_holds(folder: Folder, tmp_path: Path) -> None:
    sink = folder(str(tmp_path / "deep" / "out"))
    assert isinstance(sink, Sink)
    deliver_all(sink, [FIRST, SECOND, empty(2)])
    end = "parquet" if folder is ParquetFolder else "jsonl"
    names = [f"{part}-{one.id}" for one in (FIRST, SECOND) for part in ("part", "late", "errors")]
    assert set(files_in(tmp_path / "deep" / "out")) == {
        f"{name}.{end if name.startswith('part') else 'jsonl'}" for name in names
    }
    assert not staged_in(tmp_path / "deep" / "out")


def test_parquet_holds_the_panes(tmp_path: Path) -> None:
    deliver_all(ParquetFolder(str(tmp_path)), [FIRST])
    assert pq.read_table(tmp_path / f"part-{ID}.parquet").to_pylist() == FIRST.panes.to_pylist()


def test_lines_are_those_of_the_other_sink(tmp_path: Path) -> None:
    """Late elements and dead letters look as in ``write_jsonl``."""
    deliver_all(JsonLinesFolder(str(tmp_path)), [FIRST])
    first = json.loads((tmp_path / f"part-{ID}.jsonl").read_text().splitlines()[0])
    assert first["window_start"] == "1970-01-01T00:00:00Z"
    assert first["values"] == [0, 2, 4]
    (late,) = map(json.loads, (tmp_path / f"late-{ID}.jsonl").read_text().splitlines())
    assert late == {
        "reason": "expired",
        "detail": None,
        "time": "1970-01-01T00:00:00Z",
        "key": "a",
        "window_start": "1970-01-01T00:00:00Z",
        "window_end": "1970-01-01T00:01:00Z",
        "watermark": "1970-01-01T00:03:10Z",
        "record": {"t": 0, "k": "a", "v": 3},
    }
    (error,) = map(json.loads, (tmp_path / f"errors-{ID}.jsonl").read_text().splitlines())
    assert error["record"] == {"t": None, "k": "b", "v": "ff"}


@BOTH
def test_delivered_again_it_is_the_same(folder: Folder, tmp_path: Path) -> None:
    deliver_all(folder(str(tmp_path)), [FIRST, SECOND])
    once = files_in(tmp_path)
    deliver_all(folder(str(tmp_path)), [FIRST, SECOND, SECOND])
    assert files_in(tmp_path) == once


@BOTH
def test_bytes_depend_on_content_alone(folder: Folder, tmp_path: Path) -> None:
    """Neither how panes are cut into chunks, nor a stay in the outbox, shows."""
    rows = FIRST.panes
    codes = rows["k"].combine_chunks().dictionary_encode()
    rows = rows.set_column(0, "k", codes)
    parts = [rows.slice(i, 2) for i in range(0, rows.num_rows, 2)]
    encoded_anew = [
        part.set_column(0, "k", pa.array(part["k"].to_pylist()).dictionary_encode())
        for part in parts
    ]
    variants = [
        Delivery(1, 0, 0, pa.concat_tables([rows.slice(0, 0), *parts])),
        decode_delivery(encode_delivery(Delivery(1, 0, 0, pa.concat_tables(parts)))),
        Delivery(1, 0, 0, pa.concat_tables(encoded_anew)),
    ]
    found = []
    for place, delivery in enumerate(variants):
        deliver_all(folder(str(tmp_path / str(place))), [delivery])
        found.append(files_in(tmp_path / str(place)))
    assert found[0] == found[1] == found[2]


@pytest.mark.slow(reason="a sink dies at every instant")
@BOTH
@AFTER
def test_death_at_any_instant(folder: Folder, after: bool, tmp_path: Path) -> None:
    """Whatever was done, a reader sees whole files, and a restart makes it complete."""
    deliver_all(folder(str(tmp_path / "whole")), [FIRST, SECOND])
    whole = files_in(tmp_path / "whole")
    at = 0
    while True:
        target = tmp_path / str(at)
        with dying_in_files(at, after=after) as moments:
            try:
                deliver_all(folder(str(target)), [FIRST, SECOND])
            except Killed:
                pass
        seen = files_in(target)
        assert seen.items() <= whole.items()
        if not moments.reached:
            break
        deliver_all(folder(str(target)), [FIRST, SECOND])
        assert files_in(target) == whole
        assert not staged_in(target)
        at += 1
    assert at > 40


@BOTH
def test_sidecars_come_before_their_part(folder: Folder, tmp_path: Path) -> None:
    """Who sees a part sees its late elements too."""
    names: list[str] = []
    rename = os.replace

    def noted(source: Path, target: Path) -> None:
        names.append(Path(target).name.split("-")[0])
        rename(source, target)

    sink = folder(str(tmp_path))
    sink.open(WRITER)
    with mock.patch.object(os, "replace", noted):
        sink.deliver(FIRST)
    assert names == ["errors", "late", "part"]


@BOTH
@pytest.mark.parametrize(
    ("number", "says", "hint"),
    [
        (errno.ENOSPC, "is full", "Free some space"),
        (errno.EDQUOT, "is full", "Free some space"),
        (errno.EROFS, "Read-only", "Give this process the right"),
        (errno.EACCES, "denied", "Give this process the right"),
        (errno.EIO, "put/output", "See that the folder is there"),
    ],
)
def test_the_system_refuses(
    folder: Folder, number: int, says: str, hint: str, tmp_path: Path
) -> None:
    """At whichever call: it is said, no half file is there, and the same sink can go on."""
    deliver_all(folder(str(tmp_path / "whole")), [FIRST])
    whole = files_in(tmp_path / "whole")

    def refused() -> OSError:
        return OSError(number, os.strerror(number))

    for name in ("write", "fsync", "replace"):
        at = 0
        while True:
            target = tmp_path / f"{name}{at}"
            sink = folder(str(target))
            sink.open(WRITER)
            moments = Moments(at, refused, after=False)
            with mock.patch.object(os, name, moments.around(getattr(os, name))):
                said = message_of(sink, FIRST)
            assert (said is not None) == moments.reached
            assert said is None or (says in said and hint in said)
            seen = files_in(target)
            assert seen.items() <= whole.items()
            if name == "write":
                assert not seen or not moments.reached
            if moments.reached:
                assert not staged_in(target)
            sink.deliver(FIRST)
            assert files_in(target) == whole
            at += 1
            if not moments.reached:
                break
        assert at > 2


@BOTH
def test_short_writes_are_continued(folder: Folder, tmp_path: Path) -> None:
    write: Callable[..., int] = os.write
    deliver_all(folder(str(tmp_path / "whole")), [FIRST])
    with mock.patch.object(os, "write", lambda to, data: write(to, data[:7])):
        deliver_all(folder(str(tmp_path / "short")), [FIRST])
    assert files_in(tmp_path / "short") == files_in(tmp_path / "whole")


@BOTH
def test_what_cannot_be_the_target(folder: Folder, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    with pytest.raises(InvalidArgument, match="is a file"):
        folder(str(file)).open(WRITER)
    with pytest.raises(DataError, match="cannot be written"):
        folder(str(file / "below")).open(WRITER)
    for wrong in (None, 3, b"x"):
        with pytest.raises(InvalidArgument, match="is not a path"):
            folder(wrong)  # type: ignore[arg-type]
    assert file.read_text() == "mine"


@BOTH
def test_a_folder_that_cannot_be_read(folder: Folder, tmp_path: Path) -> None:
    deliver_all(folder(str(tmp_path)), [FIRST])
    denied = PermissionError(errno.EACCES, "Permission denied")
    with (
        mock.patch.object(Path, "iterdir", side_effect=denied),
        pytest.raises(DataError, match=r"Permission denied.*Give this process the right"),
    ):
        folder(str(tmp_path)).open(WRITER)


@BOTH
def test_a_folder_that_vanished(folder: Folder, tmp_path: Path) -> None:
    sink = folder(str(tmp_path / "out"))
    sink.open(WRITER)
    (tmp_path / "out").rename(tmp_path / "moved")
    with pytest.raises(DataError, match="See that the folder is there"):
        sink.deliver(FIRST)


def test_another_state_directory_is_refused(tmp_path: Path) -> None:
    """Its epochs begin anew, so its files would mix with those that are there."""
    sink = ParquetFolder(str(tmp_path))
    deliver_all(sink, [FIRST])
    with pytest.raises(StateError, match=r"another state directory.*overwrite=True"):
        sink.open(ANOTHER)
    with pytest.raises(StateError, match="holds output 0 of this run, and this is output 1"):
        sink.open(replace(WRITER, output=1))
    sink.open(WRITER)
    with pytest.raises(StateError, match="a folder of its own"):
        JsonLinesFolder(str(tmp_path)).open(WRITER)


def everything_in(folder: Path) -> dict[str, bytes]:
    """Return all files below a folder, hidden ones among them."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@BOTH
def test_a_later_run_without_a_state_directory(folder: Folder, tmp_path: Path) -> None:
    """It is refused and touches nothing, or it replaces what is there, and nothing else."""
    deliver_all(folder(str(tmp_path)), [FIRST, SECOND], RUN)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / ".staging" / "mine").write_text("too")
    before = everything_in(tmp_path)
    with pytest.raises(StateError, match=r"output of another run: .*overwrite=True"):
        folder(str(tmp_path)).open(NEXT_RUN)
    assert everything_in(tmp_path) == before
    later = with_everything(1, 0, add=9)
    deliver_all(folder(str(tmp_path), overwrite=True), [later], NEXT_RUN)
    deliver_all(folder(str(tmp_path / "alone")), [later], NEXT_RUN)
    wanted = everything_in(tmp_path / "alone")
    shutil.rmtree(tmp_path / "alone")
    assert everything_in(tmp_path) == wanted | {
        "notes.txt": b"mine",
        ".staging/mine": b"too",
    }


@BOTH
def test_overwriting_is_not_for_the_writer_itself(folder: Folder, tmp_path: Path) -> None:
    for delivery in (FIRST, SECOND):
        deliver_all(folder(str(tmp_path), overwrite=True), [delivery])
    assert len(files_in(tmp_path)) == 6


@BOTH
def test_what_no_sink_wrote_is_never_replaced(folder: Folder, tmp_path: Path) -> None:
    deliver_all(folder(str(tmp_path)), [FIRST], RUN)
    (tmp_path / "part-mine.parquet").write_text("mine")
    before = everything_in(tmp_path)
    with pytest.raises(StateError, match=r"already holds 'part-mine.parquet'"):
        folder(str(tmp_path), overwrite=True).open(NEXT_RUN)
    assert everything_in(tmp_path) == before


@pytest.mark.slow(reason="a sink dies at every instant")
@BOTH
@AFTER
def test_death_while_it_replaces(folder: Folder, after: bool, tmp_path: Path) -> None:
    """The two runs never mix, and what was half removed does not say that it is complete."""
    deliver_all(folder(str(tmp_path / "whole")), [SECOND])
    wanted = files_in(tmp_path / "whole")
    at = 0
    while True:
        target = tmp_path / str(at)
        deliver_all(folder(str(target)), [FIRST], RUN)
        old = files_in(target)
        with dying_in_files(at, after=after) as moments:
            try:
                deliver_all(folder(str(target), overwrite=True), [SECOND])
            except Killed:
                pass
        if not moments.reached:
            break
        seen = files_in(target)
        assert seen.items() <= old.items() or seen.items() <= wanted.items()
        owner = json.loads((target / ".lowwater.json").read_text())
        if owner["complete"]:
            assert seen == (old if owner["writer"] == RUN.id else wanted)
        deliver_all(folder(str(target), overwrite=True), [SECOND])
        assert files_in(target) == wanted
        at += 1
    assert at > 20


@BOTH
@pytest.mark.parametrize("delivers", [False, True])
def test_a_run_that_fails(folder: Folder, delivers: bool, tmp_path: Path) -> None:
    """Without a state directory it leaves what it published, marked; or nothing at all."""
    sink = folder(str(tmp_path))
    sink.open(RUN)
    if delivers:
        sink.deliver(FIRST)
    sink.close(complete=False)
    if not delivers:
        assert list(tmp_path.iterdir()) == []
        return
    assert len(files_in(tmp_path)) == 3
    assert json.loads((tmp_path / ".lowwater.json").read_text())["complete"] is False
    with pytest.raises(StateError, match="another run, which did not complete"):
        folder(str(tmp_path)).open(NEXT_RUN)


@BOTH
def test_a_run_interrupted_in_its_first_delivery(folder: Folder, tmp_path: Path) -> None:
    """Files may be there: their marker stays, so that a later run can replace them."""
    sink = folder(str(tmp_path))
    sink.open(RUN)
    with (
        mock.patch.object(os, "replace", Moments(1, Killed, after=True).around(os.replace)),
        pytest.raises(Killed),
    ):
        sink.deliver(FIRST)
    sink.close(complete=False)
    assert files_in(tmp_path)
    deliver_all(folder(str(tmp_path), overwrite=True), [SECOND], NEXT_RUN)
    assert {SECOND.id in name for name in files_in(tmp_path)} == {True}


@BOTH
def test_one_sink_object_in_two_runs(folder: Folder, tmp_path: Path) -> None:
    sink = folder(str(tmp_path), overwrite=True)
    sink.open(RUN)
    before = everything_in(tmp_path)
    with pytest.raises(InvalidArgument, match="one sink object is in two runs"):
        sink.open(NEXT_RUN)
    assert everything_in(tmp_path) == before
    sink.deliver(FIRST)
    sink.close(complete=True)


@BOTH
def test_complete_is_said_when_all_was_delivered(folder: Folder, tmp_path: Path) -> None:
    sink = folder(str(tmp_path))
    for complete in (False, True):
        sink.open(WRITER)
        sink.deliver(FIRST)
        sink.close(complete=complete)
        owner = json.loads((tmp_path / ".lowwater.json").read_text())
        assert owner == {
            "version": 3,
            "kind": "Parquet" if folder is ParquetFolder else "JSON lines",
            "writer": "a-state",
            "opening": "",
            "output": 0,
            "resumes": True,
            "complete": complete,
            "published": {},
        }


@BOTH
def test_a_folder_that_was_taken_over(folder: Folder, tmp_path: Path) -> None:
    sink = folder(str(tmp_path))
    sink.open(RUN)
    with pytest.raises(StateError, match=r"another run writes to .* at this moment"):
        folder(str(tmp_path), overwrite=True).open(NEXT_RUN)
    die()  # as on a file system whose locks do not hold
    deliver_all(folder(str(tmp_path), overwrite=True), [FIRST], NEXT_RUN)
    before = everything_in(tmp_path)
    with pytest.raises(StateError, match="taken over by another run"):
        sink.deliver(SECOND)
    sink.close(complete=False)
    assert everything_in(tmp_path) == before


@BOTH
def test_a_symlink_in_place_of_the_staging_folder(folder: Folder, tmp_path: Path) -> None:
    """What is behind it is another's, whatever it is called."""
    out, others = tmp_path / "out", tmp_path / "others"
    deliver_all(folder(str(out)), [FIRST])
    shutil.rmtree(out / ".staging")
    others.mkdir()
    name = f"part-{ID}.parquet.0123456789abcdef"
    (others / name).write_text("mine")
    (out / ".staging").symlink_to(others, target_is_directory=True)
    with pytest.raises(StateError, match="is no folder"):
        folder(str(out)).open(WRITER)
    assert (others / name).read_text() == "mine"
    (out / ".staging").unlink()
    (out / ".lowwater.json").rename(others / "owner")
    (out / ".lowwater.json").symlink_to(others / "owner")
    with pytest.raises(StateError, match="is a symbolic link"):
        folder(str(out)).open(WRITER)


@BOTH
def test_who_is_refused_removes_nothing_that_is_staged(folder: Folder, tmp_path: Path) -> None:
    sink = folder(str(tmp_path))
    sink.open(WRITER)
    staged = tmp_path / ".staging" / f"part-{ID}.parquet.0123456789abcdef"
    staged.write_text("half a fi")
    (tmp_path / ".staging" / "notes.txt").write_text("mine")
    with pytest.raises(StateError, match="another state directory"):
        folder(str(tmp_path)).open(ANOTHER)
    assert staged.exists()
    sink.close(complete=False)
    sink.open(WRITER)
    assert staged_in(tmp_path) == ["notes.txt"]


def test_a_folder_of_strangers_is_refused(tmp_path: Path) -> None:
    (tmp_path / "part-7.parquet").write_bytes(b"x")
    with pytest.raises(StateError, match=r"already holds 'part-7.parquet'"):
        ParquetFolder(str(tmp_path)).open(WRITER)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 3}', '{"version": "1"}', "\udcff"])
def test_a_damaged_marker(text: str, tmp_path: Path) -> None:
    (tmp_path / ".lowwater.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(StateError, match="cannot be read"):
        ParquetFolder(str(tmp_path)).open(WRITER)


def test_a_marker_of_another_layout(tmp_path: Path) -> None:
    (tmp_path / ".lowwater.json").write_text('{"version": 1}')
    with pytest.raises(StateError, match="has layout 1, and 3 is known"):
        ParquetFolder(str(tmp_path), overwrite=True).open(WRITER)


@BOTH
def test_a_folder_that_is_not_open(folder: Folder, tmp_path: Path) -> None:
    sink = folder(str(tmp_path))
    with pytest.raises(InvalidArgument, match="is not open"):
        sink.deliver(FIRST)
    sink.close(complete=True)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ((3, "x"), ["3", '"x"']),
        (({1, 2}, "x"), ["[1, 2]", '"x"']),
        (({}, {}), ["{}", "{}"]),
        (({"a": 1}, [1]), ['{"a": 1}', "[1]"]),
    ],
)
def test_values_that_parquet_lacks(values: Any, texts: list[str], tmp_path: Path) -> None:
    items = [{"t": i * 60_000_000, "k": "a", "v": i} for i in range(2)]
    panes = of_items(items, {"odd": lw.combine(Whatever(*values), "v")})
    deliver_all(ParquetFolder(str(tmp_path / "p")), [Delivery(1, 0, 0, panes)])
    assert pq.read_table(tmp_path / "p" / f"part-{ID}.parquet")["odd"].to_pylist() == texts
    deliver_all(JsonLinesFolder(str(tmp_path / "j")), [Delivery(1, 0, 0, panes)])
    lines = (tmp_path / "j" / f"part-{ID}.jsonl").read_text().splitlines()
    assert [json.loads(line)["odd"] for line in lines] == [json.loads(text) for text in texts]


def test_repr_evaluates_back() -> None:
    for sink in (ParquetFolder("out"), JsonLinesFolder("out")):
        assert eval(repr(sink)) == sink


def test_lines_of_nulls_and_fractions(tmp_path: Path) -> None:
    """Instants are as ``write_jsonl`` has them, whatever their column."""
    of = pa.timestamp("ns", "UTC")
    panes = FIRST.panes.slice(0, 3).append_column(
        "at", pa.array([None, 0, 1_500_000_000]).cast(pa.int64()).cast(of)
    )
    deliver_all(JsonLinesFolder(str(tmp_path)), [Delivery(1, 0, 0, panes)])
    lines = (tmp_path / f"part-{ID}.jsonl").read_text().splitlines()
    assert [json.loads(line)["at"] for line in lines] == [
        None,
        "1970-01-01T00:00:00Z",
        "1970-01-01T00:00:01.500000Z",
    ]


def test_a_joined_file_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    staging = tmp_path / "staging"
    staging.mkdir()

    def fail(file: BinaryIO) -> None:
        file.write(b"half")
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        write_whole(tmp_path / "joined", staging, fail)
    assert list(tmp_path.rglob("*")) == [staging]
    write_whole(tmp_path / "joined", staging, lambda file: file.write(b"whole"))
    assert (tmp_path / "joined").read_bytes() == b"whole"
    assert not list(staging.iterdir())


@pytest.mark.parametrize(
    ("read", "sound", "unread"),
    [
        (lw.read_csv, "a.csv", ["B.CSV", "c.csv.GZ", "d.csv.zst", "e.tsv", "in/f.Csv"]),
        (lw.read_jsonl, "a.jsonl", ["b.json", "c.JSONL", "d.ndjson.zst", "e.json.gz"]),
    ],
)
def test_files_that_are_left_out_are_said(
    tmp_path: Path, read: Any, sound: str, unread: list[str]
) -> None:
    text = "at,k\n1,a\n" if sound.endswith("csv") else '{"at": 1, "k": "a"}\n'
    (tmp_path / "in").mkdir()
    for name in (sound, *unread, "_hidden.csv", ".hidden.jsonl", "notes.md", "other.parquet"):
        (tmp_path / name).write_text(text)
    with pytest.warns(lw.errors.DataWarning, match="not read in the folder") as caught:
        read(tmp_path, time="at", unit="s")
    (warning,) = {str(one.message) for one in caught}
    for name in sorted(unread)[:3]:
        assert repr(name) in warning
    assert ("more" in warning) == (len(unread) > 3)
    assert "hidden" not in warning
