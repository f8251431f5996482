"""Erasure against a plain list, killed at any instant, and on a disk that fails."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from lowwater.io import Log
from lowwater.io.log.segment_files import segments_in
from tests.examples import is_campaign
from tests.unit.io.deliveries import Killed, Moments
from tests.unit.io.log.test_compaction_laws import KEEP, ROWS, SECOND, Follower, Model

CALLS = ("open", "fsync", "fdatasync", "replace", "unlink", "ftruncate")
SECRET = lw.col("k") == "secret"


@contextmanager
def failing(at: int, error: Callable[[], BaseException], *, after: bool) -> Iterator[Moments]:
    """Let the ``at``-th call that changes the file system fail, and all after it."""
    moments = Moments(at, error, after=after)
    with ExitStack() as stack:
        for name in CALLS:
            counted = moments.around(getattr(os, name))
            stack.enter_context(mock.patch.object(os, name, counted))
        yield moments


@contextmanager
def no_waiting_for_the_disk() -> Iterator[None]:
    """What is durable no test can see without pulling the plug."""
    with mock.patch.object(os, "fsync"), mock.patch.object(os, "fdatasync"):
        yield


def rows_of(path: Path, number: int = 0, start: int | str = "earliest") -> list[tuple[int, int]]:
    """Return offset and value of each record of a partition, as a new reader sees them."""
    with Log(path, read_only=True) as log, log.reader(number, start=start) as reader:
        return [
            (offset, value)
            for batch in reader
            for offset, value in zip(
                batch.offsets.tolist(), batch.records["v"].to_pylist(), strict=True
            )
        ]


def bytes_of(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in path.rglob("*") if file.is_file())


@pytest.fixture(
    params=[
        "compacted",
        pytest.param("appended", marks=pytest.mark.long(reason="faults of a disk at every write")),
    ]
)
def log_to_erase(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A log of two partitions of several segments, perhaps compacted before more was appended."""
    path = tmp_path / "log"
    options: Any = {"partitions": 2, "segment_bytes": 1200, "clock": lw.ManualClock(0)}
    with Log(path, **options) as log:
        for value in range(16):
            key = "secret" if value % 4 == 1 else f"key {value % 9}"
            log.append([{"k": key, "v": value}, {"k": "other", "v": -value}], partition=value % 2)
            if request.param == "compacted" and value == 11:
                log.compact("k")
    assert len(segments_in(path / "partition-00001")) > 2
    return path


def erase(path: Path) -> None:
    with Log(path, segment_bytes=1200, clock=lw.ManualClock(0)) as log:
        log.erase(where=SECRET)


def require_old_or_new(
    path: Path, before: dict[int, list[Any]], after: dict[int, list[Any]], number: int
) -> None:
    """Assert that each segment has the records that it had, or those that are to be left."""
    segments = segments_in(path / f"partition-{number:05d}")
    found = rows_of(path, number)
    for segment, end in zip(segments, [*(one.base for one in segments[1:]), 10**9], strict=True):

        def within(rows: list[Any], base: int = segment.base, end: int = end) -> list[Any]:
            return [row for row in rows if base <= row[0] < end]

        assert within(found) in (within(before[number]), within(after[number]))


# A death after a call leaves the files that one before the next call leaves, but for what is
# written in between.
@pytest.mark.long(reason="faults of a disk at every write")
@pytest.mark.parametrize("after", [False, True] if is_campaign() else [False])
def test_killed_at_any_instant(log_to_erase: Path, tmp_path: Path, after: bool) -> None:
    whole, path = tmp_path / "whole", tmp_path / "copy"
    shutil.copytree(log_to_erase, whole)
    before = {number: rows_of(whole, number) for number in range(2)}
    erase(whole)
    left = {number: rows_of(whole, number) for number in range(2)}
    assert sum(map(len, left.values())) < sum(map(len, before.values()))
    assert b"secret" not in bytes_of(whole)
    at = 0
    while True:
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(log_to_erase, path)
        log = Log(path, segment_bytes=1200, clock=lw.ManualClock(0))
        reader = Log(path, read_only=True).reader(1)
        seen = [value for batch in reader.read(2) for value in batch.records["v"].to_pylist()]
        with failing(at, Killed, after=after) as moments, suppress(Killed):
            log.erase(where=SECRET)
        for lock in (log._lock, log._changing):  # as the system releases those of a process
            assert lock is not None
            lock.close()
        log._writers = []
        for number in range(2):
            require_old_or_new(path, before, left, number)
            assert set(left[number]) <= set(rows_of(path, number)) <= set(before[number])
        with reader:
            rest = [value for batch in reader for value in batch.records["v"].to_pylist()]
            assert [*dict.fromkeys(seen + rest)] == seen + rest
            assert {value for _, value in rows_of(path, 1)} <= {*seen, *rest}
        with Log(path, segment_bytes=1200, clock=lw.ManualClock(0)) as log:
            assert log.recovered == ()
            assert log.latest == {0: 16, 1: 16}
            found = rows_of(path, 0), rows_of(path, 1)
            erased = log.erase(where=SECRET)
            assert erased.records == sum(map(len, found)) - sum(map(len, left.values()))
            assert b"secret" not in bytes_of(path)
            assert (rows_of(path, 0), rows_of(path, 1)) == (left[0], left[1])
            assert log.append([{"k": "x", "v": 1}], partition=1) == {1: range(16, 17)}
        assert all(not file.name.startswith(".") for file in path.rglob("*"))
        if not moments.reached:
            break
        at += 1
    assert at > 12


@pytest.mark.parametrize("name", ["fsync", "fdatasync", "replace", "unlink", "open"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO] if is_campaign() else [errno.EIO])
def test_the_system_refuses(log_to_erase: Path, tmp_path: Path, name: str, number: int) -> None:
    """It is said, the log goes on, and the next erasure does the rest."""
    step = 3 if name == "open" and not is_campaign() else 1  # most open a segment to read it
    at = 0
    while True:
        path = tmp_path / "copy"
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(log_to_erase, path)
        moments = Moments(at, lambda: OSError(number, os.strerror(number)), after=False)
        said: str | None = None
        with Log(path, segment_bytes=1200, fsync=0) as log:
            log.append([{"k": "secret", "v": 3}], partition=1)
            before = rows_of(path, 1)
            with mock.patch.object(os, name, moments.around(getattr(os, name))):
                try:
                    log.erase(where=SECRET)
                except lw.LowwaterError as error:
                    said = str(error)
            assert (said is not None) == moments.reached
            assert set(rows_of(path, 1)) <= set(before)
            if moments.reached:
                assert os.strerror(number) in str(said)
                with suppress(lw.StateError):  # a log that could not undo takes no more
                    log.append([{"k": "x", "v": 1}], partition=1)
        if not moments.reached:
            break
        with Log(path, segment_bytes=1200) as log:
            log.erase(where=SECRET)
            log.append([{"k": "secret", "v": 2}], partition=1)
            assert log.erase(where=SECRET).records == 1
        assert b"secret" not in bytes_of(path)
        at += step
    assert at


MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("append"), ROWS, st.integers(0, 1)),
        st.tuples(st.just("erase"), st.none() | st.integers(0, 4), st.integers(0, 2)),
        st.tuples(st.just("compact"), st.none(), st.integers(0, KEEP)),
        st.tuples(st.just("open"), st.integers(0, 100), st.integers(0, 1)),
        st.tuples(st.just("read"), st.integers(0, 10), st.integers(1, 6)),
        st.tuples(st.just("reopen reader"), st.integers(0, 10), st.none()),
        st.tuples(st.just("reopen log"), st.none(), st.none()),
    ),
    min_size=5,
    max_size=40,
)


@given(MOVES, st.sampled_from([1, 900, 2000, 1 << 20]))
def test_any_order_of_events(
    tmp_path_factory: pytest.TempPathFactory, moves: list[tuple[str, Any, Any]], size: int
) -> None:
    """With compactions in between, and readers, none of which sees what was erased before."""
    with no_waiting_for_the_disk():
        _any_order(tmp_path_factory.mktemp("log"), moves, size)


def _any_order(path: Path, moves: list[tuple[str, Any, Any]], size: int) -> None:
    clock = lw.ManualClock(0)
    options: Any = {"segment_bytes": size, "fsync": 0, "clock": clock}
    log = Log(path, partitions=2, **options)
    models = [Model(), Model()]
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("gone", pa.bool_())])
    followers: list[Follower] = []
    erased: list[set[int]] = [set(), set()]
    count = 0
    for move, what, how in moves:
        if move == "append":
            rows = [{"k": k, "v": count + at, "gone": gone} for at, (k, gone) in enumerate(what)]
            count += len(rows)
            log.append(pa.Table.from_pylist(rows, schema=schema), partition=how)
            models[how].append(rows)
        elif move == "erase":
            key = lw.col("k").is_null() if what is None else lw.col("k") == what
            numbers = range(2) if how == 2 else [how]
            done = log.erase(where=key, partitions=numbers)
            for number in numbers:
                left = models[number].left
                gone = {at for at, row in left.items() if row["k"] == what}
                assert done.partitions.get(number, 0) == len(gone)
                erased[number] |= gone
                for at in gone:
                    del left[at]
        elif move == "compact":
            clock.advance_to(clock.now() + how * SECOND)
            log.compact("k", deleted="gone", keep_deleted=f"{KEEP}s")
            for number, model in enumerate(models):
                segments = segments_in(path / f"partition-{number:05d}")
                model.compact(segments[-1].base if segments else 0, clock.now())
        elif move == "open":
            start = what % (len(models[how].all) + 1)
            followers.append(Follower(log, how, start))
        elif move == "read" and followers:
            read(followers[what % len(followers)], how, models, erased)
        elif move == "reopen reader" and followers:
            follower = followers[what % len(followers)]
            position = follower.reader.position
            follower.reader.close()
            follower.reader = log.reader(follower.partition, start=position)
        elif move == "reopen log":
            log.close()
            log = Log(path, **options)
            assert log.recovered == ()
    for number, model in enumerate(models):
        fresh = Follower(log, number, 0)
        fresh.read(10_000, model)
        assert fresh.seen == model.left
        assert fresh.reader.lag == {number: 0}
        fresh.reader.close()
    for follower in followers:
        position = follower.reader.position[str(follower.partition)]
        read(follower, 10_000, models, erased)
        follower.reader.close()
        ahead = {at for at in models[follower.partition].left if at >= position}
        assert ahead <= set(follower.seen)
    log.close()


def read(follower: Follower, most: int, models: list[Model], erased: list[set[int]]) -> None:
    before = set(follower.seen)
    follower.read(most, models[follower.partition])
    assert not (set(follower.seen) - before) & erased[follower.partition]


def test_beside_readers(tmp_path: Path) -> None:
    """In threads, with small segments: nothing that was erased comes afterwards, all else does."""
    path, count = tmp_path / "log", 200 if is_campaign() else 80
    errors: list[BaseException] = []
    done = threading.Event()
    lowest = [0]  # every odd value below it is erased
    with no_waiting_for_the_disk(), Log(path, segment_bytes=1200, fsync=0) as log:
        log.append([{"v": 0}])
        seen: list[int] = []

        def following() -> None:
            try:
                with Log(path, read_only=True) as own, own.reader() as reader:
                    rest = 2
                    while rest:
                        rest -= done.is_set()
                        erased = lowest[0]
                        for batch in reader:
                            values = batch.records["v"].to_pylist()
                            assert all(value % 2 == 0 or value >= erased for value in values)
                            assert values == batch.offsets.tolist()
                            seen.extend(values)
            except BaseException as error:  # shown by the test
                errors.append(error)

        thread = threading.Thread(target=following)
        thread.start()
        for value in range(1, count):
            log.append([{"v": value}])
            if value % 10 == 9:
                log.erase(where=(lw.col("v") <= value) & (lw.col("v") % 2 == 1))
                lowest[0] = value + 1
        done.set()
        thread.join()
        assert rows_of(path) == [(value, value) for value in range(0, count, 2)]
    assert not errors, errors
    assert seen == sorted(set(seen))
    assert set(range(0, count, 2)) <= set(seen)
