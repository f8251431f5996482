"""Whatever dies, goes on or runs again: a task reads the state that its micro-batch follows."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from lowwater.errors import StateError
from lowwater.spark import run_order
from lowwater.spark.cell_files import CellFiles, CellPlace, partitions_of
from lowwater.spark.group_numbers import numbers_of_groups, spark_hash
from lowwater.spark.micro_batch import MicroBatch
from lowwater.spark.state_backends import GroupCell
from tests.s3_server import S3Server

GROUPS, RETAIN = 4, 3
QUERY = "0b1c5a5e-7f2f-4a53-8d0e-7f0d5a2f9a11"
ENDS = ("committed", "before packing", "in the middle", "before the sink", "after the sink")


def place_at(folder: str | Path, partitions: int = 2, **options: Any) -> CellPlace:
    return CellPlace(
        str(folder), uuid4().hex, GROUPS, partitions, "inline", retain=RETAIN, collect_every=1,
        **options,
    )  # fmt: skip


def cell(content: str) -> GroupCell:
    return GroupCell(GROUPS, "inline", uuid4().bytes, content.encode())


def batch_of(run: str, number: int) -> MicroBatch:
    return MicroBatch(QUERY, run, number)


class Histories(RuleBasedStateMachine):
    """Runs of a query, one after another; what they leave undone goes on at any later time.

    The state that a run leaves is named by it, as if each run had other splits than the others:
    a task that read another run's state than the one whose output counts would be noticed.
    """

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self._place = place_at(self._folder.name)
        self._run: str | None = None
        self._truth: list[str] = []  # after each micro-batch that was committed
        self._sunk: str | None = None  # of the next one, if a sink has it
        self._zombies: list[tuple[bool, Callable[[], None]]] = []
        self._idle: dict[int, bool] = {}  # in which nothing is read, by the log of offsets

    def teardown(self) -> None:
        self._folder.cleanup()

    @precondition(lambda self: self._run is None)
    @rule(partitions=st.integers(1, GROUPS), back=st.integers(0, RETAIN))
    def start(self, partitions: int, back: int) -> None:
        """Start a run, of another DataFrame; perhaps from an older copy of the checkpoint."""
        self._run = uuid4().hex
        spread = partitions_of(GROUPS, partitions)
        self._place = replace(self._place, plan=uuid4().hex, partitions=spread)
        if 0 < back < len(self._truth):
            del self._truth[-back:]
            self._sunk = None
            # Micro-batches have other offsets now.
            self._idle = {at: idle for at, idle in self._idle.items() if at < len(self._truth)}
            self._zombies = [one for one in self._zombies if not one[0]]

    @precondition(lambda self: self._run is not None)
    @rule(
        ends=st.sampled_from(ENDS),
        attempts=st.integers(1, 2),
        lags=st.booleans(),
        tears=st.booleans(),
        idle=st.booleans(),
    )
    def micro_batch(self, ends: str, attempts: int, lags: bool, tears: bool, idle: bool) -> None:
        """Run one; what a driver leaves when it dies may go on later."""
        assert self._run is not None
        batch, place = batch_of(self._run, len(self._truth)), self._place
        if self._sunk is not None:  # a sink that has it runs nothing
            self._truth.append(self._sunk)
            self._sunk = None
            return
        idle = self._idle.setdefault(batch.number, idle)
        before = self._truth[-1] if self._truth else ""
        after = before if idle else f"{batch.run} {batch.number}"
        parts = list(range(place.partitions))
        tasks = [
            partial(self._task, place, batch, part, before, after, idle=idle) for part in parts
        ]
        if ends == "before packing":
            self._zombies.append((idle, lambda: place.runs().register(batch)))
            self._run = None
            return
        if not idle:  # where nothing is read, nothing is packed
            place.runs().register(batch)
        if tears and not idle:
            self._tear(place, batch)
        ended = len(tasks) // 2 if ends == "in the middle" else len(tasks)
        for task in tasks[:ended]:
            for _ in range(attempts):
                task()
        lagging = tasks[ended:] + (tasks[:1] if lags else [])
        self._zombies += [(idle, task) for task in lagging]
        if ends == "committed":
            self._truth.append(after)
        else:
            self._run = None
            self._sunk = after if ends == "after the sink" else None

    @precondition(lambda self: self._zombies)
    @rule(which=st.integers(0))
    def survive(self, which: int) -> None:
        """Have a task go on that was given up."""
        _, zombie = self._zombies.pop(which % len(self._zombies))
        try:
            zombie()
        except StateError:
            pass  # what it needs may have been collected long ago: nobody waits for it

    @rule()
    def move(self) -> None:
        """Have the next tasks run in other processes."""
        run_order._STANDINGS.clear()

    def _task(
        self, place: CellPlace, batch: MicroBatch, part: int, before: str, after: str, *, idle: bool
    ) -> None:
        files = CellFiles(place, 1, batch)
        if idle:
            files.note_idle()
            return
        groups = place.groups_of(part)
        base, cells = files.read(groups)
        assert {cells[group].content.decode() if cells else "" for group in groups} == {before}
        files.write(part, {group: cell(after) for group in groups})
        if batch.run == self._run:
            files.collect(part, base)

    def _tear(self, place: CellPlace, batch: MicroBatch) -> None:
        """Leave the beginning of a file, as a process does that is killed."""
        number = place.runs().standing(batch).number
        name = f"{batch.number:012}-{number:08}-{batch.run}-{uuid4().hex}"
        place.root().put(f"{QUERY}/level-1/cells/{place.partitions}/0", {}, name, b"\x01\x02")


TestHistories = Histories.TestCase


def test_groups_are_where_spark_puts_them() -> None:
    for groups in (1, 3, 4, 7, 8, 12):
        for most in (1, 2, 3, 5, 8, 200):
            count = partitions_of(groups, most)
            place = CellPlace("", "", groups, count, "inline")
            assert 1 <= count <= min(groups, most)
            assert all(place.groups_of(part) for part in range(count))
            hashes = [spark_hash(number) % count for number in numbers_of_groups(groups)]
            assert [place.partition_of(group) for group in range(groups)] == hashes


def test_a_micro_batch_that_was_not_read_to_its_end_is_an_error(tmp_path: Path) -> None:
    place, run = place_at(tmp_path), uuid4().hex
    place.runs().register(batch_of(run, 0))
    first, second = (place.groups_of(part) for part in range(2))
    CellFiles(place, 1, batch_of(run, 0)).write(0, {group: cell("") for group in first})
    files = CellFiles(place, 1, batch_of(run, 1))
    assert set(files.read(first)[1]) == set(first)
    with pytest.raises(StateError, match="after micro-batch 0 is not there") as raised:
        files.read(second)
    assert "foreachBatch" in str(raised.value)


def test_another_operators_checkpoint_is_refused(tmp_path: Path) -> None:
    place, run = place_at(tmp_path), uuid4().hex
    place.runs().register(batch_of(run, 7))
    with pytest.raises(StateError, match="begin with a new checkpoint"):
        CellFiles(place, 1, batch_of(run, 7)).read([0])


def test_two_pipelines_of_a_query_do_not_share_a_place(tmp_path: Path) -> None:
    place, run = place_at(tmp_path), uuid4().hex
    place.runs().register(batch_of(run, 0))
    other = place_at(tmp_path)
    with pytest.raises(StateError, match="two pipelines of one query") as raised:
        other.runs().register(batch_of(run, 0))
    assert "state_location" in str(raised.value)
    run_order._STANDINGS.clear()
    with pytest.raises(StateError, match="two pipelines of one query"):
        place.runs().standing(batch_of(run, 0))


def test_queries_share_a_location(tmp_path: Path) -> None:
    place = place_at(tmp_path)
    for query in "ab":
        run = uuid4().hex
        place.runs().register(MicroBatch(query, run, 0))
        files = CellFiles(place, 1, MicroBatch(query, run, 0))
        files.write(0, {group: cell(query) for group in place.groups_of(0)})
        _, cells = CellFiles(place, 1, MicroBatch(query, run, 1)).read(place.groups_of(0))
        assert {one.content for one in cells.values()} == {query.encode()}


def test_old_files_and_registrations_are_deleted(tmp_path: Path) -> None:
    place = place_at(tmp_path)
    for number in range(250):
        run = uuid4().hex
        place.runs().register(batch_of(run, number))
        files = CellFiles(place, 1, batch_of(run, number))
        base, _ = files.read([0])
        files.write(place.partition_of(0), {group: cell("") for group in range(GROUPS)})
        files.collect(place.partition_of(0), base)
    left = [path for path in (tmp_path / QUERY / "level-1").rglob("*") if path.is_file()]
    assert len(left) <= RETAIN + 4
    assert len(list((tmp_path / QUERY / "runs").iterdir())) <= 200


def test_other_cells_are_refused(tmp_path: Path) -> None:
    place, run = place_at(tmp_path), uuid4().hex
    place.runs().register(batch_of(run, 0))
    CellFiles(place, 1, batch_of(run, 0)).write(0, {group: cell("") for group in range(GROUPS)})
    with pytest.raises(StateError, match="kept by 'inline', not 'rocksdb'"):
        CellFiles(replace(place, backend="rocksdb"), 1, batch_of(run, 1)).read(place.groups_of(0))


def test_cells_are_kept_in_an_object_store(s3_server: S3Server) -> None:
    """Also where a task died with half of an object written, or with one that was not closed."""
    bucket, filesystem = s3_server.bucket(), s3_server.filesystem()
    place, run = place_at(s3_server.uri(f"{bucket}/state")), uuid4().hex
    with ExitStack() as stack:
        for number in range(3):
            batch = batch_of(run, number)
            place.runs().register(batch)
            for part in range(place.partitions):
                files, groups = CellFiles(place, 1, batch), place.groups_of(part)
                base, cells = files.read(groups)
                assert base == number - 1
                told = {cells[group].content.decode() if cells else "" for group in groups}
                assert told == {f"after {number - 1}" if number else ""}
                directory = f"{QUERY}/level-1/cells/{place.partitions}/{part}"
                name = f"{number:012}-{0:08}-{run}-{uuid4().hex}"
                place.root().put(directory, {}, name, b"\x01\x02")
                files.write(part, {group: cell(f"after {number}") for group in groups})
                files.collect(part, base)
                if not number:  # a part of an upload that is not completed yet
                    path = f"{bucket}/state/{directory}/{name}0"
                    unclosed = stack.enter_context(filesystem.open_output_stream(path))
                    unclosed.write(bytes(6 << 20))
        found = place.root().sizes(f"{QUERY}/level-1/cells/{place.partitions}/0")
        assert len(found) <= 2 * (RETAIN + 4)
        assert not [name for name in found if len(name) > len(f"{0:012}-{0:08}-{run}-{run}")]
        assert place.root().sizes("nothing/here") == {}
        place.root().delete(f"{QUERY}/level-1", ["nothing"])


def test_cells_are_kept_on_any_filesystem(tmp_path: Path) -> None:
    from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

    place = place_at("state", filesystem=SubTreeFileSystem(str(tmp_path), LocalFileSystem()))
    run = uuid4().hex
    place.runs().register(batch_of(run, 0))
    files = CellFiles(place, 1, batch_of(run, 0))
    files.note_idle()
    assert CellFiles(place, 1, batch_of(run, 1)).read([0]) == (-1, {})
    written = {group: cell(str(group)) for group in place.groups_of(0)}
    CellFiles(place, 1, batch_of(run, 1)).write(0, written)
    assert CellFiles(place, 1, batch_of(run, 2)).read(list(written)) == (1, written)
