"""A compaction that is killed, or whose disk fails, at any instant: no record is lost."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest

import lowwater as lw
from lowwater.io import Log
from lowwater.io.log._files import LogLock
from lowwater.io.log.segment_files import segments_in
from tests.examples import is_campaign
from tests.unit.io.deliveries import Killed, Moments

KEYS = 4
DAY = 86_400_000_000
CALLS = ("open", "fsync", "replace", "unlink")
"""What compaction changes files with; not `close`, as the end of a process releases its locks."""


@contextmanager
def failing(at: int, error: Callable[[], BaseException], *, after: bool) -> Iterator[Moments]:
    """Let the ``at``-th call that changes the file system fail, and all after it."""
    moments = Moments(at, error, after=after)
    with ExitStack() as stack:
        for name in CALLS:
            counted = moments.around(getattr(os, name))
            stack.enter_context(mock.patch.object(os, name, counted))
        yield moments


def rows_of(path: Path, start: int | str = "earliest") -> list[tuple[int, int, int]]:
    """Return offset, key and value of each record, as a new reader sees them."""
    with Log(path, read_only=True) as log, log.reader(start=start) as reader:
        return [
            (offset, row["k"], row["v"])
            for batch in reader
            for offset, row in zip(batch.offsets.tolist(), batch.records.to_pylist(), strict=True)
        ]


def names_in(path: Path) -> set[str]:
    return {file.name for file in (path / "partition-00000").iterdir()}


def compact(path: Path, *, days: int = 0) -> None:
    clock = lw.ManualClock(days * DAY)
    with Log(path, read_only=True, segment_bytes=1200, clock=clock) as log:
        log.compact("k", deleted=lw.col("v") < 0)


@pytest.fixture(
    params=[
        1,
        *(
            pytest.param(count, marks=pytest.mark.long(reason="faults of a disk at every write"))
            for count in (0, 2)
        ),
    ]
)
def log_to_compact(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A log of several segments, compacted so many times before more was appended."""
    path = tmp_path / "log"
    for part in range(request.param + 1):
        with Log(path, segment_bytes=1500, clock=lw.ManualClock(0)) as log:
            for number in range(20 * part, 20 * part + 20):
                value = -number if number % 7 == 3 else number
                log.append([{"k": value % KEYS, "v": value}, {"k": KEYS + part, "v": value}])
        if part < request.param:
            compact(path, days=3 * part)
    assert len(segments_in(path / "partition-00000")) > 3
    return path


def require_progress(before: list[Any], seen: list[Any], after: list[Any]) -> None:
    """Assert that a reader sees a state between two: from the front on more is compacted.

    What the state after compaction lacks, a record that it supersedes may still be there for. But
    never the older record without the newer one.
    """
    assert set(after) <= set(seen) <= set(before)
    assert seen == sorted(seen)
    extra = set(seen) - set(after)
    for offset, key, _ in extra:
        for record in before:
            if record[1] == key and record[0] > offset:
                assert record in seen  # else an older record would have come back


# A death after a call leaves the files that one before the next call leaves, but for what is
# written in between.
@pytest.mark.long(reason="a compaction for each call that changes a file")
@pytest.mark.parametrize("after", [False, True] if is_campaign() else [False])
def test_killed_at_any_instant(log_to_compact: Path, tmp_path: Path, after: bool) -> None:
    days = 9
    whole = tmp_path / "whole"
    shutil.copytree(log_to_compact, whole)
    before = rows_of(whole)
    compact(whole, days=days)
    compacted = rows_of(whole)
    assert len(compacted) < len(before)
    at = 0
    while True:
        path = tmp_path / "copy"
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(log_to_compact, path)
        with Log(path, read_only=True) as log, log.reader() as early, log.reader() as late:
            seen = [row["v"] for batch in early.read(1) for row in batch.records.to_pylist()]
            with failing(at, Killed, after=after) as moments:
                try:
                    compact(path, days=days)
                except Killed:
                    pass
            found = rows_of(path)
            require_progress(before, found, compacted)
            for start in range(0, before[-1][0] + 2, 9):
                assert rows_of(path, start) == [row for row in found if row[0] >= start]
            # Who had a segment open reads it to its end; who had none, sees what is there.
            seen += [row["v"] for batch in early for row in batch.records.to_pylist()]
            assert {row[2] for row in found} <= set(seen) <= {row[2] for row in before}
            values = [row["v"] for batch in late for row in batch.records.to_pylist()]
            assert values == [row[2] for row in found]
        with Log(path, clock=lw.ManualClock(0)) as log:  # clears up
            assert log.recovered == ()
            shown = {segment.path.name for segment in segments_in(path / "partition-00000")}
            assert names_in(path) == shown
            assert log.latest == {0: before[-1][0] + 1}
        assert rows_of(path) == found
        compact(path, days=days)
        again = rows_of(path)
        require_progress(found, again, compacted)
        if not moments.reached:
            break
        compact(path, days=2 * days)
        compact(whole, days=2 * days)
        assert rows_of(path) == rows_of(whole)
        at += 1
    assert at > 8


@pytest.mark.parametrize("name", ["fsync", "replace", "unlink", "open"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO] if is_campaign() else [errno.EIO])
def test_the_system_refuses(log_to_compact: Path, tmp_path: Path, name: str, number: int) -> None:
    """It is said, nothing unfinished is left, and the next compaction does the rest."""
    step = 3 if name == "open" and not is_campaign() else 1  # most open a segment to read it
    before = rows_of(log_to_compact)
    at = 0
    while True:
        path = tmp_path / "copy"
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(log_to_compact, path)
        moments = Moments(at, lambda: OSError(number, os.strerror(number)), after=False)
        real = getattr(os, name)
        with Log(path) as log, mock.patch.object(os, name, moments.around(real)):
            said: str | None = None
            try:
                log.compact("k", deleted=lw.col("v") < 0)
            except lw.LowwaterError as error:
                said = str(error)
            assert (said is not None) == moments.reached
        if not moments.reached:
            break
        assert said is not None
        assert os.strerror(number) in said
        assert {row[2] for row in rows_of(path)} <= {row[2] for row in before}
        with Log(path) as log:
            log.compact("k", deleted=lw.col("v") < 0)
            log.append([{"k": 0, "v": 1}])
        assert all(not one.startswith(".") for one in names_in(path))
        at += step
    assert at


def test_one_compaction_at_a_time(log_to_compact: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from lowwater.io.log._files import LogLock\n"
        "with LogLock(Path(sys.argv[1]) / 'compaction.lock', '').held():\n"
        "    print('held', flush=True); sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(log_to_compact)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        before = rows_of(log_to_compact)
        with Log(log_to_compact) as log, pytest.raises(lw.StateError, match="compacted already"):
            log.compact("k")
        assert rows_of(log_to_compact) == before
        child.kill()
        child.wait()
    compact(log_to_compact)
    assert rows_of(log_to_compact) != before


def test_retention_and_compaction_do_not_bring_records_back(log_to_compact: Path) -> None:
    """A crash left files that a compacted segment covers; retention removes that segment."""
    at = 0
    while True:
        path = log_to_compact.with_name("copy")
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(log_to_compact, path)
        log = Log(path, retention_bytes=0)
        with failing(at, Killed, after=False) as moments:
            try:
                log.compact("k")
            except Killed:
                pass
        log.retain()
        last = segments_in(path / "partition-00000")[-1]
        assert {name for name in names_in(path) if not name.startswith(".")} == {last.path.name}
        log.close()
        if not moments.reached:
            break
        at += 1
    assert at > 8


def test_retention_overtakes_a_compaction(log_to_compact: Path) -> None:
    """What it has removed meanwhile does not come back with the segment that was written."""
    before = rows_of(log_to_compact)
    with Log(log_to_compact, retention_bytes=4000) as log:
        removed: list[int] = []

        def fsync(descriptor: int) -> None:
            patched.stop()  # the new segment is written, and not published yet
            removed.append(log.retain())

        patched = mock.patch.object(os, "fsync", fsync)
        patched.start()
        log.compact("k", deleted=lw.col("v") < 0)
        assert removed[0] > 0
        first = log.earliest[0]
        left = rows_of(log_to_compact)
    assert left[0][0] >= first > 0
    lasts = {key: (offset, key, value) for offset, key, value in before if offset >= first}
    assert set(lasts.values()) <= set(left) < set(before)


def test_what_an_append_may_still_undo_is_not_compacted(tmp_path: Path) -> None:
    """An append that closes a segment keeps the set of segments locked until it is over."""
    taken: list[bool] = []
    real = os.writev

    def writev(descriptor: int, parts: Any) -> int:
        with closing(LogLock(tmp_path / "segments.lock", "")) as lock:
            taken.append(lock.take(wait=False))
        if len(taken) == 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, parts)

    long = pa.table({"k": np.zeros(200_000, dtype=np.int64), "v": np.arange(200_000)})
    with Log(tmp_path, segment_bytes=500_000) as log:
        log.append([{"k": 0, "v": 1}, {"k": 1, "v": 2}])
        with mock.patch.object(os, "writev", writev), pytest.raises(lw.StateError):
            log.append(long)
        assert taken == [False] * 3
        log.compact("k")
        assert rows_of(tmp_path) == [(0, 0, 1), (1, 1, 2)]


def test_compaction_beside_a_writer_and_readers(tmp_path: Path) -> None:
    """In threads, with small segments that are closed and compacted all the time."""
    path = tmp_path / "log"
    count, errors = 400 if is_campaign() else 150, []
    last: dict[int, int] = {}
    done = threading.Event()
    with Log(path, segment_bytes=1200, fsync=0) as log:
        log.append([{"k": 0, "v": -1}])

        def guarded(work: Callable[[], None]) -> threading.Thread:
            def run() -> None:
                try:
                    work()
                except BaseException as error:  # shown by the test
                    errors.append(error)

            thread = threading.Thread(target=run)
            thread.start()
            return thread

        def compacting() -> None:
            while not done.is_set():
                compact(path)

        seen: list[dict[int, int]] = [{}, {}]

        def following(which: int) -> None:
            with Log(path, read_only=True) as own, own.reader() as reader:
                offset, rest = -1, 2
                while rest:
                    rest -= done.is_set()
                    for batch in reader:
                        assert batch.offset > offset
                        offset = batch.next_offset - 1
                        for row in batch.records.to_pylist():
                            seen[which][row["k"]] = row["v"]

        def replaying() -> None:
            while not done.is_set():
                offsets = [row[0] for row in rows_of(path)]
                assert offsets == sorted(set(offsets))

        threads = [
            guarded(compacting),
            guarded(lambda: following(0)),
            guarded(lambda: following(1)),
            guarded(replaying),
        ]
        for value in range(count):
            last[value % 5] = value
            log.append([{"k": value % 5, "v": value}])
        done.set()
        for thread in threads:
            thread.join()
    assert not errors, errors
    assert seen == [last, last]
    compact(path)
    assert {k: v for _, k, v in rows_of(path)} == last
