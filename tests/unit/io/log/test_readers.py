"""Readers of a log: offsets of their own, replay, readers beside a writer, and retention."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from lowwater.io import Log, LogReader
from lowwater.io.log.segment_files import segments_in
from lowwater.time import Instant

NOON = lw.instant("2000-01-01T12:00:00Z")
MINUTE = 60_000_000


def values(reader: LogReader) -> list[Any]:
    return [value for batch in reader for value in batch.records.column("v").to_pylist()]


def written(log: Log, clock: lw.ManualClock, minutes: int) -> None:
    """Append a batch of two each minute, 0, 1, 10, 11, 20, 21 ..., to alternate partitions."""
    for minute in range(minutes):
        clock.advance_to(NOON + minute * MINUTE)
        log.append([{"v": 10 * minute}, {"v": 10 * minute + 1}], partition=minute % log.partitions)


@pytest.fixture(autouse=True, scope="module")
def no_waiting_for_the_disk() -> Iterator[None]:
    """What is durable no test can see without pulling the plug."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", lambda descriptor: None)
        patched.setattr(os, "fdatasync", lambda descriptor: None)
        yield


@pytest.fixture
def clock() -> lw.ManualClock:
    return lw.ManualClock(NOON)


@pytest.mark.parametrize("segment_bytes", [1, 800, 1 << 20])
def test_places_to_start(tmp_path: Path, clock: lw.ManualClock, segment_bytes: int) -> None:
    with Log(tmp_path, segment_bytes=segment_bytes, clock=clock) as log:
        written(log, clock, 4)
        expected: list[tuple[Any, list[int]]] = [
            ("earliest", [0, 1, 10, 11, 20, 21, 30, 31]),
            ("latest", []),
            (0, [0, 1, 10, 11, 20, 21, 30, 31]),
            (3, [11, 20, 21, 30, 31]),
            (8, []),
            ({"0": 5}, [21, 30, 31]),
            (Instant(NOON), [0, 1, 10, 11, 20, 21, 30, 31]),
            (Instant(NOON + 1), [10, 11, 20, 21, 30, 31]),
            ("2000-01-01T12:02:00Z", [20, 21, 30, 31]),
            (datetime(2000, 1, 1, 12, 2, 30, tzinfo=UTC), [30, 31]),
            ("2000-01-01T12:03:01Z", []),
            ("1999-01-01T00:00:00Z", [0, 1, 10, 11, 20, 21, 30, 31]),
        ]
        for start, want in expected:
            with log.reader(start=start) as reader:
                assert values(reader) == want, start
        with log.reader(start="latest") as reader:
            clock.advance_to(NOON + 4 * MINUTE)
            log.append([{"v": 40}])
            assert values(reader) == [40]
            for start, want in expected:
                reader.seek(start)
                assert values(reader) == ([] if start == "latest" else [*want, 40]), start


def test_the_clock_of_a_log_never_goes_back(tmp_path: Path) -> None:
    for at in ("2000-01-01T12:00:00Z", "1999-01-01T00:00:00Z"):
        with Log(tmp_path, partitions=2, clock=lw.ManualClock(at)) as log:
            log.append([{"v": 1}])
    with Log(tmp_path) as log, log.reader() as reader:
        assert [(batch.partition, batch.time) for batch in reader] == [(0, NOON), (1, NOON)]


@pytest.mark.parametrize("start", [True, -1, 1.5, None, "soon", {"2": 0}, {"x": 0}, {"0": "1"}])
def test_wrong_places_to_start(tmp_path: Path, start: Any) -> None:
    with Log(tmp_path, partitions=2) as log, pytest.raises(lw.InvalidArgument):
        log.reader(start=start)


@pytest.mark.parametrize("partitions", [2, -1, [0, 0], [], "0", True])
def test_wrong_partitions(tmp_path: Path, partitions: Any) -> None:
    with Log(tmp_path, partitions=2) as log, pytest.raises(lw.InvalidArgument, match="partitions"):
        log.reader(partitions)


def test_partitions_come_in_the_order_of_their_appends(
    tmp_path: Path, clock: lw.ManualClock
) -> None:
    with Log(tmp_path, partitions=3, segment_bytes=1, clock=clock) as log:
        written(log, clock, 7)
        with log.reader() as reader:
            assert values(reader) == [v for n in range(7) for v in (10 * n, 10 * n + 1)]
            assert reader.position == {"0": 6, "1": 4, "2": 4}
        with log.reader([2, 0]) as reader:
            assert values(reader) == [0, 1, 20, 21, 30, 31, 50, 51, 60, 61]


def test_positions_inside_a_batch(tmp_path: Path) -> None:
    with Log(tmp_path) as log:
        log.append([{"v": n} for n in range(10)])
        seen: list[int] = []
        position = {"0": 0}
        while True:
            with log.reader(start=position) as reader:
                batches = reader.read(3)
                if not batches:
                    break
                assert [batch.offset for batch in batches] == [len(seen)]
                seen += [v for batch in batches for v in batch.records.column(0).to_pylist()]
                position = dict(reader.position)
        assert seen == list(range(10))


def test_committed_offsets_survive(tmp_path: Path) -> None:
    with Log(tmp_path, partitions=2) as log:
        log.append([{"v": n} for n in range(6)], partition=0)
        log.append([{"v": n} for n in range(6, 8)], partition=1)
        with log.reader(name="bill") as reader, log.reader(name="mail", start={"0": 5}) as other:
            reader.read(4)
            reader.commit()
            assert reader.lag == {0: 2, 1: 2}
            reader.read(1)  # not committed
            other.seek({"0": 6})
            other.commit({"0": 1})
    with Log(tmp_path) as log:
        with log.reader(name="bill", start="latest") as reader:
            assert reader.position == {"0": 4, "1": 0}
            assert values(reader) == [4, 5, 6, 7]
        with log.reader(name="mail", partitions=1) as reader:
            assert reader.position == {"1": 0}
            values(reader)
            reader.commit()
        with log.reader(name="mail") as reader:
            assert reader.position == {"0": 1, "1": 2}
        with log.reader(name="new", start="latest") as reader:
            assert reader.position == {"0": 6, "1": 2}
            with pytest.raises(lw.InvalidArgument):
                reader.commit({"0": -1})
        with log.reader() as reader, pytest.raises(lw.InvalidArgument, match="without a name"):
            reader.commit()
        for name in ("", ".hidden", "a/b", "../up", "x" * 101, 5):
            with pytest.raises(lw.InvalidArgument, match="no name for a reader"):
                log.reader(name=name)  # type: ignore[arg-type]
    assert sorted(path.name for path in (tmp_path / "readers").iterdir()) == [
        "bill.json",
        "mail.json",
    ]


@given(st.lists(st.tuples(st.sampled_from("arcwx"), st.integers(0, 2)), max_size=30))
def test_readers_beside_a_writer(
    tmp_path_factory: pytest.TempPathFactory, moves: list[tuple[str, int]]
) -> None:
    """Each reader sees all records of a partition once and in order, whenever it looks."""
    path = tmp_path_factory.mktemp("log")
    log = Log(path, partitions=2, segment_bytes=600, fsync=0)
    count = [0, 0]
    readers = [log.reader() for _ in range(2)]
    seen: list[list[list[int]]] = [[[], []], [[], []]]

    def look(which: int, most: int) -> None:
        for batch in readers[which].read(most):
            seen[which][batch.partition] += batch.records.column("v").to_pylist()

    for move, number in moves:
        if move == "a":
            partition = number % 2
            rows = [{"v": count[partition] + n} for n in range(number + 1)]
            count[partition] += len(rows)
            log.append(rows, partition=partition)
        elif move == "r":
            look(number % 2, number + 1)
        elif move == "c":  # a reader that begins anew where it was
            position = readers[number % 2].position
            readers[number % 2].close()
            readers[number % 2] = log.reader(start=position)
        elif move == "w":
            log.close()
            log = Log(path, segment_bytes=600, fsync=0)
        else:  # a write that has not been finished
            segments = segments_in(path / f"partition-{number % 2:05d}")
            if segments:
                whole = segments[-1].path.read_bytes()
                size = len(whole)
                with segments[-1].path.open("ab") as file:
                    file.write(whole[: 7 * (number + 1)])
                    file.flush()
                    look(0, 100)
                    file.truncate(size)
    for which in (0, 1):
        look(which, 10_000)
        assert seen[which] == [list(range(count[0])), list(range(count[1]))]
        assert readers[which].lag == {0: 0, 1: 0}
        readers[which].close()
    log.close()


def test_an_unfinished_write_is_not_there_yet(tmp_path: Path) -> None:
    """Whatever part of a frame is in the file, a reader sees nothing of it, and then all."""
    with Log(tmp_path / "a") as log:
        log.append([{"v": 1}])
        size = segments_in(tmp_path / "a" / "partition-00000")[0].path.stat().st_size
        log.append([{"v": 2}])
    whole = segments_in(tmp_path / "a" / "partition-00000")[0].path.read_bytes()
    Log(tmp_path / "b").close()
    segment = tmp_path / "b" / "partition-00000" / f"{0:020d}.segment"
    with (
        Log(tmp_path / "b", read_only=True) as log,
        segment.open("wb", buffering=0) as file,
        log.reader() as reader,
    ):
        seen: list[int] = []
        for at, byte in enumerate(whole):
            expected = [1] if at >= size else []
            assert seen == expected
            file.write(bytes([byte]))
            seen += values(reader)
        assert seen == [1, 2]


def test_records_that_are_read_in_part_stay_when_retention_takes_them(tmp_path: Path) -> None:
    with Log(tmp_path, segment_bytes=1, retention_bytes=0) as log:
        log.append([{"v": 1}, {"v": 2}])
        with log.reader() as reader:
            assert [batch.records.to_pylist() for batch in reader.read(1)] == [[{"v": 1}]]
            log.append([{"v": 3}])
            assert log.retain() == 1
            assert log.earliest == {0: 2}
            assert values(reader) == [2, 3]
        with pytest.raises(lw.DataError, match=r"no record 0: the first one kept is 2.*earliest"):
            log.reader(start=0)


def test_a_reader_that_retention_has_overtaken(tmp_path: Path) -> None:
    with Log(tmp_path, segment_bytes=1, retention_bytes=0) as log, log.reader() as reader:
        for value in range(3):
            log.append([{"v": value}])
        log.retain()
        with pytest.raises(lw.DataError, match=r"record 0 .* no longer there: .* is 2.*earliest"):
            reader.read()
        reader.seek("earliest")
        assert values(reader) == [2]


def test_retention_by_size(tmp_path: Path) -> None:
    with Log(tmp_path, segment_bytes=1) as log:
        for value in range(6):
            log.append([{"v": value}])
        assert log.retain() == 0
    size = segments_in(tmp_path / "partition-00000")[0].path.stat().st_size
    with Log(tmp_path, segment_bytes=1, retention_bytes=3 * size) as log:
        assert log.retain() == 3
        assert log.retain() == 0
        log.append([{"v": 6}])
        log.append([{"v": 7}])  # the segment before has ended: it is looked after by itself
        assert log.earliest == {0: 4}
        with log.reader() as reader:
            assert values(reader) == [4, 5, 6, 7]
    with Log(tmp_path, segment_bytes=1, retention_bytes=0) as log:
        assert log.retain() == 3  # never the last
        assert log.latest == {0: 8}


def test_retention_by_time(tmp_path: Path, clock: lw.ManualClock) -> None:
    options: Any = {"segment_bytes": 1, "retention_age": "2m", "clock": clock}
    with Log(tmp_path, partitions=2, **options) as log:
        for minute in range(3):
            clock.advance_to(NOON + minute * MINUTE)
            for partition in range(2):
                log.append([{"v": minute}], partition=partition)
        assert log.retain() == 0  # two minutes old is not older
        clock.advance_to(NOON + 2 * MINUTE + 1)
        assert log.retain() == 2
        assert log.earliest == {0: 1, 1: 1}
        clock.advance_to(NOON + 100 * MINUTE)
        assert log.retain() == 2
        assert log.earliest == {0: 2, 1: 2}  # never the last
        with log.reader(start=Instant(NOON)) as reader:
            assert values(reader) == [2, 2]
    with Log(tmp_path, **options) as log:
        assert log.append([{"v": 9}], partition=0) == {0: range(3, 4)}
