"""Folders whose deliveries collect into few files: each row once, whatever happens meanwhile."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow.parquet as pq
import pytest

import lowwater as lw
from lowwater.cli.main import main
from lowwater.engine.local.delivery import Delivery, Writer
from lowwater.errors import InvalidArgument, StateError
from lowwater.io.sinks import Compaction, JsonLinesFolder, ParquetFolder, compaction, file_forms
from lowwater.io.sinks.owned_folder import compact_folder
from lowwater.pipeline.state_tools import compact_outputs
from tests.examples import sampled
from tests.unit.engine.local.durable_runs import (
    KEYS,
    SECOND,
    Stopped,
    pipeline,
    stopping,
    write_files,
)
from tests.unit.io.deliveries import (
    ANOTHER,
    NEXT_RUN,
    RUN,
    WRITER,
    Killed,
    deliver_all,
    die,
    dying_in_files,
    files_in,
    with_everything,
)
from tests.unit.io.deliveries import encoded_once as encoded_once  # a fixture

Folder = type[ParquetFolder] | type[JsonLinesFolder]
BOTH = pytest.mark.parametrize("folder", [ParquetFolder, JsonLinesFolder])
NEVER = Compaction(size="1GB", age="1000d")
POINTS = ("after the write", "before publishing", "before forgetting")
pytestmark = pytest.mark.usefixtures("encoded_once")


@cache
def deliveries() -> list[Delivery]:
    return [with_everything(epoch, add=epoch) for epoch in range(1, 7)]


def rows_in(folder: Path) -> dict[str, list[Any]]:
    """Return what a reader finds in a folder now, in the order of the names."""
    found: dict[str, list[Any]] = {"part": [], "late": [], "errors": []}
    for path in sorted(folder.glob("*-*.*")):
        kind = path.name.split("-")[0]
        if path.suffix == ".parquet":
            found[kind] += pq.read_table(path).to_pylist()
        else:
            found[kind] += [json.loads(line) for line in path.read_text().splitlines()]
    return found


def counted(folder: Path) -> Counter[str]:
    return Counter(f"{kind} {row}" for kind, rows in rows_in(folder).items() for row in rows)


@pytest.fixture(params=[ParquetFolder, JsonLinesFolder])
def folder(request: Any) -> Folder:
    kind: Folder = request.param
    return kind


@pytest.fixture
def whole(folder: Folder, tmp_path: Path) -> dict[str, list[Any]]:
    """What the deliveries come to without compaction."""
    deliver_all(folder(str(tmp_path / "whole")), deliveries())
    return rows_in(tmp_path / "whole")


def test_the_end_of_a_run_publishes_one_file_of_each_kind(
    folder: Folder, whole: dict[str, list[Any]], tmp_path: Path
) -> None:
    deliver_all(folder(str(tmp_path / "out"), compact=NEVER), deliveries())
    first, last = deliveries()[0].id, deliveries()[-1].id
    end = "parquet" if folder is ParquetFolder else "jsonl"
    assert set(files_in(tmp_path / "out")) == {
        f"part-{first}_{last}.{end}", f"late-{first}_{last}.jsonl", f"errors-{first}_{last}.jsonl"
    }  # fmt: skip
    assert rows_in(tmp_path / "out") == whole
    assert not (tmp_path / "out" / ".pending").exists()


def test_size_decides(folder: Folder, whole: dict[str, list[Any]], tmp_path: Path) -> None:
    """A file is published as soon as what has collected is large enough."""
    sink = folder(str(tmp_path), compact=Compaction(size=1, age="1000d"))
    sink.open(WRITER)
    for number, delivery in enumerate(deliveries(), 1):
        sink.deliver(delivery)
        assert len(list(tmp_path.glob("part-*"))) == number
    sink.close(complete=True)
    assert rows_in(tmp_path) == whole


def test_age_decides(folder: Folder, whole: dict[str, list[Any]], tmp_path: Path) -> None:
    """The oldest delivery waits that long, even if nothing more is delivered."""
    sink = folder(str(tmp_path), compact=Compaction(size="1GB", age="1h"))
    now = 0.0

    def clock() -> float:
        return now

    with mock.patch.object(compaction, "clock", clock):
        sink.open(WRITER)
        for number, delivery in enumerate(deliveries()):
            now = number * 1200.0
            sink.deliver(delivery)
            assert len(list(tmp_path.glob("part-*"))) == number // 3
            sink.publish_due()
        now += 2399
        sink.publish_due()
        assert len(list(tmp_path.glob("part-*"))) == 1
        now += 1
        sink.publish_due()
        assert len(list(tmp_path.glob("part-*"))) == 2
    assert rows_in(tmp_path) == whole
    sink.close(complete=True)


def test_a_run_publishes_what_is_old_enough_while_nothing_comes_out(
    folder: Folder, tmp_path: Path
) -> None:
    """Each key has one pane in the third file, and the next at the end."""
    made = (
        lw.read_parquet(write_files(tmp_path / "in"), time="at", clock=lw.ManualClock(0))
        .key_by("key")
        .window(
            lw.GlobalWindow(), trigger=lw.Repeatedly(lw.AfterCount(30)), accumulation="discarding"
        )
        .aggregate(n=lw.count())
    )
    now = 0.0
    seen: list[int] = []

    def clock() -> float:
        return now

    def look(hours: int) -> None:
        nonlocal now
        now += hours * 3600
        seen.append(len(rows_in(tmp_path / "out")["part"]))

    with (
        mock.patch.object(compaction, "clock", clock),
        stopping("after the write", 24, lambda: look(1)),
        stopping("after the write", 26, lambda: look(0)),
    ):
        made.write_to(folder(str(tmp_path / "out"), compact=Compaction(age="1h"))).run(
            state=tmp_path / "state", bundle_size=10, commit_every="bundle", progress=False
        )
    assert seen == [0, KEYS]
    assert len(rows_in(tmp_path / "out")["part"]) == 2 * KEYS


def test_a_run_without_a_state_directory_does_so_too(folder: Folder, tmp_path: Path) -> None:
    now = 0.0
    seen: list[int] = []

    def clock() -> float:
        return now

    def items() -> Iterator[dict[str, Any]]:
        nonlocal now
        for at in range(100):
            if at in {75, 95}:
                seen.append(len(rows_in(tmp_path)["part"]))
                now += 3600
            yield {"at": at * SECOND, "key": "k"}

    made = (
        lw.from_iterable(items(), time="at", clock=lw.ManualClock(0))
        .key_by("key")
        .window(
            lw.GlobalWindow(), trigger=lw.Repeatedly(lw.AfterCount(60)), accumulation="discarding"
        )
        .aggregate(n=lw.count())
    )
    with mock.patch.object(compaction, "clock", clock):
        made.write_to(folder(str(tmp_path), compact=Compaction(age="1h"))).run(
            bundle_size=5, commit_every="bundle", progress=False
        )
    assert seen == [0, 1]
    assert len(rows_in(tmp_path)["part"]) == 2


@pytest.mark.long(reason="faults of a disk at every write")
@pytest.mark.parametrize(("folder", "after"), [(ParquetFolder, False), (JsonLinesFolder, True)])
def test_death_at_any_instant(folder: Folder, after: bool, tmp_path: Path) -> None:
    """A reader sees each row at most once; delivered again, all rows are there once."""
    deliver_all(folder(str(tmp_path / "whole")), deliveries()[:4])
    whole, all_of_it = rows_in(tmp_path / "whole"), counted(tmp_path / "whole")
    compact = Compaction(size=6_000, age="1000d")
    at = 0
    while True:
        target = tmp_path / str(at)
        with dying_in_files(at, after=after) as moments:
            try:
                deliver_all(folder(str(target), compact=compact), deliveries()[:3])
            except Killed:
                pass
        assert counted(target) <= all_of_it
        if not moments.reached:
            break
        deliver_all(folder(str(target), compact=compact), deliveries()[:4])
        assert rows_in(target) == whole
        assert not list(target.glob(".pending/*"))
        at += 1
    assert at > 60


def test_what_was_published_never_changes_or_goes(
    folder: Folder, whole: dict[str, list[Any]], tmp_path: Path
) -> None:
    """So a reader that goes through the folder file by file sees each row once."""
    before: dict[str, bytes] = {}
    for count in range(1, len(deliveries()) + 1):
        sink = folder(str(tmp_path), compact=Compaction(size=6_000, age="1000d"))
        sink.open(WRITER)
        for delivery in deliveries()[max(0, count - 2) : count]:  # the last one comes again
            sink.deliver(delivery)
            now = files_in(tmp_path)
            assert before.items() <= now.items()
            before = now
        sink.close(complete=False)
    deliver_all(folder(str(tmp_path), compact=NEVER), [])
    assert before.items() <= files_in(tmp_path).items()
    assert rows_in(tmp_path) == whole


def test_a_later_run_without_compaction_publishes_what_is_left(
    folder: Folder, whole: dict[str, list[Any]], tmp_path: Path
) -> None:
    sink = folder(str(tmp_path), compact=NEVER)
    sink.open(WRITER)
    for delivery in deliveries()[:3]:
        sink.deliver(delivery)
    die()
    assert not files_in(tmp_path)
    deliver_all(folder(str(tmp_path)), deliveries()[2:])
    assert rows_in(tmp_path) == whole


def test_joined_files_that_a_program_moved_away(
    folder: Folder, whole: dict[str, list[Any]], tmp_path: Path
) -> None:
    """A delivery that comes again would be another file, with rows that were read before."""
    out, moved = tmp_path / "out", tmp_path / "moved"
    deliver_all(folder(str(out), compact=NEVER), deliveries()[:4], complete=False)
    moved.mkdir()
    for path in out.glob("*-*.*"):
        path.rename(moved / path.name)
    deliver_all(folder(str(out), compact=NEVER), deliveries()[2:])
    for path in out.glob("*-*.*"):
        path.rename(moved / path.name)
    assert rows_in(moved) == whole


def test_row_groups_of_a_joined_file(tmp_path: Path) -> None:
    """Deliveries of few rows would be read slowly as a row group each."""
    with mock.patch.object(file_forms, "ROW_GROUP_ROWS", 20):
        deliver_all(ParquetFolder(str(tmp_path), compact=NEVER), deliveries())
    (path,) = tmp_path.glob("part-*")
    sizes = [
        pq.ParquetFile(path).metadata.row_group(number).num_rows
        for number in range(pq.ParquetFile(path).num_row_groups)
    ]
    assert sum(sizes) == sum(one.panes.num_rows for one in deliveries())
    assert min(sizes[:-1]) >= 20
    assert len(sizes) < len(deliveries())


def test_what_waits_belongs_to_its_writer(folder: Folder, tmp_path: Path) -> None:
    """It is ahead of an older state, is refused to others, and goes when it is overwritten."""
    sink = folder(str(tmp_path), compact=NEVER)
    sink.open(WRITER)
    sink.deliver(deliveries()[0])
    die()
    with pytest.raises(StateError, match="holds epoch 1 of this state"):
        folder(str(tmp_path)).open(replace(WRITER, epoch=0))
    with pytest.raises(StateError, match="another state directory"):
        folder(str(tmp_path)).open(ANOTHER)
    deliver_all(folder(str(tmp_path), overwrite=True), [deliveries()[1]], ANOTHER)
    assert {name.split("-")[1] for name in files_in(tmp_path)} == {"000000000002"}
    assert not (tmp_path / ".pending").exists() or not list((tmp_path / ".pending").iterdir())


@pytest.mark.parametrize("writer", [RUN, WRITER])
def test_a_run_that_is_stopped_or_fails_publishes_what_it_has(
    folder: Folder, writer: Writer, tmp_path: Path
) -> None:
    """It may not come again for long, and readers should not wait for that."""
    sink = folder(str(tmp_path), compact=NEVER)
    sink.open(writer)
    sink.deliver(deliveries()[0])
    sink.close(complete=False)
    assert len(files_in(tmp_path)) == 3
    with pytest.raises(StateError, match="did not complete"):
        folder(str(tmp_path)).open(NEXT_RUN)


@pytest.mark.parametrize("name", [".staging", ".staging/lock"])
def test_links_in_place_of_hidden_files_are_not_followed(name: str, tmp_path: Path) -> None:
    out, others = tmp_path / "out", tmp_path / "others"
    deliver_all(JsonLinesFolder(str(out)), deliveries())
    others.mkdir()
    (others / "lock").write_text("mine")
    if name == ".staging":
        shutil.rmtree(out / name)
        (out / name).symlink_to(others, target_is_directory=True)
    else:
        (out / name).symlink_to(others / "lock")
    before = files_in(out)
    with pytest.raises(StateError, match=r"is no folder|is a symbolic link"):
        compact_folder(out, WRITER.id, Compaction(age="1us"))
    with pytest.raises(StateError, match=r"is no folder|is a symbolic link"):
        JsonLinesFolder(str(out)).open(WRITER)
    assert (others / "lock").read_text() == "mine"
    assert files_in(out) == before


def test_a_folder_is_locked_whatever_it_is_called(folder: Folder, tmp_path: Path) -> None:
    """A run in the same process, or another one, that comes by another path is refused."""
    out = tmp_path / "out"
    (tmp_path / "sub").mkdir()
    (tmp_path / "link").symlink_to(out, target_is_directory=True)
    sink = folder(str(out))
    sink.open(WRITER)
    for path in (tmp_path / "sub" / ".." / "out", tmp_path / "link"):
        with pytest.raises(StateError, match="another run writes to"):
            folder(str(path), overwrite=True).open(ANOTHER)
    sink.deliver(deliveries()[0])
    sink.close(complete=True)


def test_columns_of_other_types_are_another_file(tmp_path: Path) -> None:
    """Parquet files have one schema each."""
    changed = []
    for number, one in enumerate(deliveries()):
        panes = one.panes.drop_columns(["mean"]) if number in {2, 3} else one.panes
        changed.append(Delivery(one.epoch, 0, 0, panes))
    deliver_all(ParquetFolder(str(tmp_path), compact=NEVER), changed)
    names = sorted(path.name for path in tmp_path.glob("part-*"))
    assert [name.count("_") for name in names] == [1, 1, 1]
    assert sum(pq.read_metadata(tmp_path / name).num_rows for name in names) == sum(
        one.panes.num_rows for one in changed
    )


@pytest.mark.parametrize("turn", sampled(range(3), every=3))
def test_a_run_that_is_stopped_and_resumed(turn: int, tmp_path: Path) -> None:
    """Exactly once, with deliveries that come again after what they were in was published."""
    write_files(tmp_path / "in")
    made = pipeline(tmp_path / "in")
    options: Any = {"bundle_size": 10, "commit_every": "bundle", "progress": False}
    made.write_jsonl(tmp_path / "whole").run(**options)
    small = Compaction(size=8_000, age="1000d")
    for at, count in enumerate((3, 5, 2, 4), turn):
        with stopping(POINTS[at % len(POINTS)], count), pytest.raises(Stopped):
            made.write_to(JsonLinesFolder(str(tmp_path / "out"), compact=small)).run(
                state=tmp_path / "state", **options
            )
    made.write_jsonl(tmp_path / "out", compact=small).run(state=tmp_path / "state", **options)
    assert rows_in(tmp_path / "out") == rows_in(tmp_path / "whole")
    assert len(files_in(tmp_path / "out")) < len(files_in(tmp_path / "whole")) / 2


@pytest.mark.parametrize(
    ("options", "says"),
    [({"size": 0}, "size=0"), ({"age": "0s"}, "age='0s'"), ({"size": "much"}, "size='much'")],
)
def test_what_cannot_be_meant(options: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidArgument, match=says):
        Compaction(**options)


def test_not_a_compaction(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"compact='1h' .* is not a Compaction"):
        ParquetFolder(str(tmp_path), compact="1h")  # type: ignore[arg-type]


def test_published_files_are_compacted_afterwards(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By size and age; a run that was stopped resumes behind it, and delivers nothing twice."""
    write_files(tmp_path / "in")
    made = pipeline(tmp_path / "in")
    options: Any = {"bundle_size": 10, "commit_every": "bundle", "progress": False}
    state, out = tmp_path / "state", tmp_path / "out"
    made.write_jsonl(tmp_path / "whole").run(**options)
    with stopping("before forgetting", 20), pytest.raises(Stopped):
        made.write_jsonl(out).run(state=state, **options)
    before = rows_in(out)
    young = compact_outputs(state, Compaction(age="1h"))
    assert [(one.path, one.before) for one in young] == [(str(out), 0)]
    assert main(["state", "compact", str(state), "--age", "1d"]) == 0
    assert capsys.readouterr().out == f"{out}: 0 files became 0\n"
    (done,) = compact_outputs(state, Compaction(age="1us"))
    assert done.before > 20
    assert done.after == 2 == len(files_in(out))
    assert rows_in(out) == before
    made.write_jsonl(out).run(state=state, **options)
    assert rows_in(out) == rows_in(tmp_path / "whole")
    (done,) = compact_outputs(state, Compaction(size=3_000, age="1us"))
    assert done.after > 2
    assert rows_in(out) == rows_in(tmp_path / "whole")


@pytest.mark.slow(reason="faults of a disk at every write")
@pytest.mark.parametrize(("folder", "after"), [(ParquetFolder, True), (JsonLinesFolder, False)])
def test_death_amid_compaction_of_published_files(
    folder: Folder, after: bool, tmp_path: Path
) -> None:
    """Nothing is ever missing; what is there twice is gone after the next run or compaction."""
    deliver_all(folder(str(tmp_path / "whole")), deliveries()[:3])
    whole, all_of_it = rows_in(tmp_path / "whole"), counted(tmp_path / "whole")
    at = 0
    while True:
        target = tmp_path / str(at)
        deliver_all(folder(str(target)), deliveries()[:3])
        with dying_in_files(at, after=after) as moments:
            try:
                compact_folder(target, WRITER.id, Compaction(age="1us"))
            except Killed:
                pass
        assert set(counted(target)) == set(all_of_it)
        if not moments.reached:
            break
        if at % 2:
            deliver_all(folder(str(target)), deliveries()[2:3])
        else:
            compact_folder(target, WRITER.id, Compaction(age="1us"))
            assert len(files_in(target)) == 3
        assert rows_in(target) == whole
        at += 1
    assert at > 20


def test_only_own_folders_are_compacted(tmp_path: Path) -> None:
    deliver_all(JsonLinesFolder(str(tmp_path)), deliveries(), ANOTHER)
    before = files_in(tmp_path)
    assert compact_folder(tmp_path, WRITER.id, Compaction(age="1us")) is None
    assert compact_folder(tmp_path / "nowhere", WRITER.id, Compaction()) is None
    sink = JsonLinesFolder(str(tmp_path))
    sink.open(ANOTHER)
    with pytest.raises(StateError, match="at this moment"):
        compact_folder(tmp_path, ANOTHER.id, Compaction(age="1us"))
    sink.close(complete=True)
    assert files_in(tmp_path) == before
