"""Erasure: what goes, what stays where it was, who still reads it, and what is refused."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lowwater as lw
from lowwater.io import Log
from lowwater.io.log._files import LogLock
from lowwater.io.log.frame_format import HEADER_BYTES
from lowwater.io.log.segment_files import segments_in

ONE = 1
"""A size at which each append begins a segment."""
DAY = 86_400_000_000


@pytest.fixture(autouse=True, scope="module")
def no_waiting_for_the_disk() -> Iterator[None]:
    """What is durable no test can see without pulling the plug."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", lambda descriptor: None)
        patched.setattr(os, "fdatasync", lambda descriptor: None)
        yield


def row(key: str | None, value: int | None, at: int = 0) -> dict[str, Any]:
    return {"t": f"2000-01-01T12:00:{at:02d}Z", "k": key, "v": value}


def read(log: Log, start: Any = "earliest") -> dict[int, dict[str, Any]]:
    """Return rows by offset, of a log of one partition."""
    with log.reader(start=start) as reader:
        return {
            offset: row
            for batch in reader
            for offset, row in zip(batch.offsets.tolist(), batch.records.to_pylist(), strict=True)
        }


def names(path: Path) -> list[str]:
    return sorted(file.name for file in (path / "partition-00000").iterdir())


def everything_in(path: Path) -> bytes:
    """Return the bytes of all files of a log."""
    return b"".join(file.read_bytes() for file in path.rglob("*") if file.is_file())


IS_ANN = lw.col("k") == "ann"


@pytest.mark.parametrize("size", [ONE, 600, 1 << 20])
@pytest.mark.parametrize("kept", [pa.string(), pa.dictionary(pa.int32(), pa.string())])
def test_the_bytes_are_gone_and_the_others_stay(
    tmp_path: Path, size: int, kept: pa.DataType
) -> None:
    with Log(tmp_path, segment_bytes=size) as log:
        expected: dict[int, str] = {}
        for at in range(20):
            keys = ["ann-secret", f"bob {at}", "ann-secret" if at % 3 else "cem"]
            expected |= {3 * at + n: key for n, key in enumerate(keys) if key != "ann-secret"}
            log.append(pa.table({"k": pa.array(keys, kept), "v": [at] * 3}))
        assert b"ann-secret" in everything_in(tmp_path)
        erased = log.erase(where=lw.col("k") == "ann-secret")
        assert erased.partitions == {0: 60 - len(expected)}
        assert erased.records == 60 - len(expected)
        assert b"ann-secret" not in everything_in(tmp_path)
        assert {at: row["k"] for at, row in read(log).items()} == expected
        for start in range(0, 60, 7):
            assert list(read(log, start)) == [at for at in expected if at >= start]
        assert log.latest == {0: 60}
        assert log.append([{"k": "dan", "v": 1}]) == {0: range(60, 61)}
        assert log.erase(where=lw.col("k") == "ann-secret").partitions == {}
    with Log(tmp_path) as log:
        assert log.recovered == ()
        assert list(read(log)) == [*expected, 60]


def test_full_frames_against_a_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames of as many rows as they can have, several segments, values at edges of their types."""
    count, rows_at_once = 30_000, 6_553
    monkeypatch.setattr("lowwater.io.log.partition._FRAME_ROWS", rows_at_once)
    monkeypatch.setattr("lowwater.io.log.erasure._ROWS", rows_at_once)
    rng = np.random.default_rng(7)
    numbers = rng.integers(0, 50, count) + 2**53
    floats = [None if n % 7 == 0 else float("nan") if n % 7 == 1 else float(n) for n in numbers]
    table = pa.table(
        {"n": numbers, "f": pa.array(floats, pa.float64()), "s": [f"s{n}" for n in numbers]}
    )
    with Log(tmp_path, partitions=2, segment_bytes=100_000) as log:
        for start in range(0, count, 10_000):
            log.append(table.slice(start, 10_000), partition=0)
        log.append(table.slice(0, 2_000), partition=1)
        assert len(segments_in(tmp_path / "partition-00000")) > 5
        texts = table["s"].to_pylist()
        left = [list(enumerate(texts)), list(enumerate(texts[:2_000]))]
        rules: list[tuple[Any, Callable[[str], bool]]] = [
            (lw.col("n") == 2**53 + 1, lambda s: s != f"s{2**53 + 1}"),
            (lw.col("f") < 2**53 + 12, lambda s: not (int(s[1:]) < 2**53 + 12 and is_number(s))),
            (lw.col("s").str.ends_with("2"), lambda s: not s.endswith("2")),
        ]
        for where, stays in rules:
            before = [len(rows) for rows in left]
            left = [[(at, s) for at, s in rows if stays(s)] for rows in left]
            erased = log.erase(where=where).partitions
            assert erased == {n: before[n] - len(rows) for n, rows in enumerate(left)}
            for number, rows in enumerate(left):
                with log.reader(number) as reader:
                    found = [
                        pair
                        for batch in reader
                        for pair in zip(
                            batch.offsets.tolist(), batch.records["s"].to_pylist(), strict=True
                        )
                    ]
                assert found == rows
            assert log.latest == {0: count, 1: 2_000}
        assert log.erase(where=lw.col("n") > 0).records == sum(map(len, left))
        assert log.erase(where=lw.col("n") > 0).records == 0
        assert log.latest == {0: count, 1: 2_000}
        assert log.schema == table.schema
    with Log(tmp_path) as log:
        assert log.append(table.slice(0, 2), partition=0) == {0: range(count, count + 2)}


def is_number(text: str) -> bool:
    return int(text[1:]) % 7 > 1


def test_a_condition_that_is_null_keeps_the_record(tmp_path: Path) -> None:
    with Log(tmp_path) as log:
        log.append([row("ann", 1), row(None, 2), row("ann", None), row(None, None)])
        assert log.erase(where=IS_ANN).records == 2
        assert [row["v"] for row in read(log).values()] == [2, None]
        assert log.erase(where=lw.col("k").is_null() & lw.col("v").is_null()).records == 1
        assert list(read(log)) == [1]


def test_the_name_of_a_boolean_column(tmp_path: Path) -> None:
    with Log(tmp_path) as log:
        log.append([{"v": 1, "gone": True}, {"v": 2, "gone": False}, {"v": 3, "gone": None}])
        assert log.erase(where="gone").records == 1
        assert list(read(log)) == [1, 2]


def test_only_segments_with_such_records_are_written(tmp_path: Path) -> None:
    with Log(tmp_path, segment_bytes=ONE) as log:
        for at in range(5):
            log.append([row("ann" if at == 2 else "bob", at)])
        before = names(tmp_path)
        assert log.erase(where=IS_ANN).records == 1
        assert set(before) - set(names(tmp_path)) == {before[2]}
        assert len(names(tmp_path)) == 5  # the last one has none: it was not closed
        log.append([row("bob", 5)])
        assert json.loads((tmp_path / "log.json").read_text())["content"]["layout"] == 3


def test_nothing_to_erase_changes_no_file(tmp_path: Path) -> None:
    with Log(tmp_path, partitions=2, segment_bytes=600) as log:
        assert log.erase(where=IS_ANN).records == 0  # no columns yet
        for at in range(9):
            log.append([row("bob", at)], partition=0)
        before = names(tmp_path)
        assert log.erase(where=IS_ANN, partitions=[1]).records == 0
        assert log.erase(where=IS_ANN).records == 0
        assert names(tmp_path) == before
        assert json.loads((tmp_path / "log.json").read_text())["content"]["layout"] == 2


def test_only_the_partitions_that_are_named(tmp_path: Path) -> None:
    with Log(tmp_path, partitions=3) as log:
        for number in range(3):
            log.append([row("ann", number), row("bob", number)], partition=number)
        assert log.erase(where=IS_ANN, partitions=[0, 2]).partitions == {0: 1, 2: 1}
        assert log.erase(where=IS_ANN).partitions == {1: 1}


def test_many_erasures_leave_few_segments(tmp_path: Path) -> None:
    """Each closes a small segment; neighbours are joined."""
    with Log(tmp_path) as log:
        for at in range(30):
            log.append([row("ann", at), row("bob", at)])
            log.erase(where=IS_ANN)
        assert len(names(tmp_path)) == 2
        assert [row["v"] for row in read(log).values()] == list(range(30))


def test_times_of_append_stay(tmp_path: Path) -> None:
    clock = lw.ManualClock(0)
    with Log(tmp_path, clock=clock) as log:
        for day in range(4):
            clock.advance_to(lw.instant(day * DAY))
            log.append([row("ann" if day in (1, 3) else "bob", day)])
        log.erase(where=IS_ANN)
        with log.reader() as reader:
            assert [int(batch.time) for batch in reader] == [0, 2 * DAY]
        with log.reader(start=lw.instant(DAY)) as reader:
            assert [batch.offset for batch in reader] == [2]
    with Log(tmp_path, clock=lw.ManualClock(0)) as log:  # a clock that went back
        log.append([row("bob", 9)])
        with log.reader() as reader:
            assert [int(batch.time) for batch in reader] == [0, 2 * DAY, 3 * DAY]


def test_a_reader_amid_a_segment_gets_no_more_of_it(tmp_path: Path) -> None:
    """Not even from the frame that it has in memory; its position is where it was."""
    with Log(tmp_path) as log:
        for at in range(5):
            log.append([row("ann", 2 * at), row("bob", 2 * at + 1)])
        with log.reader() as reader, log.reader(name="bill") as bill:
            assert [batch.offset for batch in reader.read(1)] == [0]
            assert sum(map(len, bill.read(4))) == 4
            bill.commit()
            log.erase(where=IS_ANN)
            assert [offset for batch in reader for offset in batch.offsets.tolist()] == [
                1, 3, 5, 7, 9,
            ]  # fmt: skip
            assert [offset for batch in bill for offset in batch.offsets.tolist()] == [5, 7, 9]
            assert bill.lag == {0: 0}
        with log.reader(name="bill") as bill:
            assert next(iter(bill)).offset == 5


def test_a_reader_at_the_end_goes_on(tmp_path: Path) -> None:
    with Log(tmp_path) as log, Log(tmp_path, read_only=True) as other, other.reader() as reader:
        log.append([row("ann", 0), row("bob", 1)])
        assert len(list(reader)) == 1
        assert log.erase(where=IS_ANN).records == 1
        assert list(reader) == []
        assert reader.lag == {0: 0}
        log.append([row("ann", 2)])
        assert [batch.offset for batch in reader] == [2]
        log.erase(where=IS_ANN)
        assert reader.position == {"0": 3}
        assert other.schema == log.schema


def test_what_retention_removed_is_still_read_to_its_end(tmp_path: Path) -> None:
    with Log(tmp_path, segment_bytes=300, retention_bytes=0) as log:
        log.append([row("bob", 0)])
        log.append([row("bob", 1)])
        with log.reader() as reader:
            assert [batch.offset for batch in reader.read(1)] == [0]
            first = segments_in(tmp_path / "partition-00000")[0]
            while segments_in(tmp_path / "partition-00000")[0] == first:
                log.append([row("bob", 2)])
            assert [batch.offset for batch in reader.read(1)] == [1]


def test_an_erasure_does_not_begin_the_time_of_records_that_delete(tmp_path: Path) -> None:
    """Else the first compaction would remove one together with what readers have read of its key.

    S: an erasure; C: a compaction, at these days.
    """
    clock = lw.ManualClock(0)
    left: list[list[int]] = []
    with Log(tmp_path, segment_bytes=ONE, clock=clock) as log:
        log.append([row("ann", 0), row("bob", 1), row("cem", 2)])
        log.append([row("ann", 3), row("bob", None)])
        log.append([row("dan", 5)])
        log.erase(where=IS_ANN)
        left.append(list(read(log)))
        for day in (3, 3.5, 5):
            clock.advance_to(lw.instant(int(day * DAY)))
            log.compact("k", deleted=lw.col("v").is_null(), keep_deleted="1d")
            left.append(list(read(log)))
            log.erase(where=lw.col("k") == "cem")
    assert left == [[1, 2, 4, 5], [2, 4, 5], [4, 5], [5]]


@pytest.mark.parametrize("bundle", range(1, 6))
def test_a_durable_run_resumes_after_an_erasure(tmp_path: Path, bundle: int) -> None:
    """It has counted what it had read, and counts what is left: none is skipped or comes twice."""

    class Crash(Exception):
        pass

    bundles = iter(range(bundle))

    def crash(_: Any) -> None:
        if next(bundles, None) is None:
            raise Crash

    with Log(tmp_path / "log", segment_bytes=900) as log:
        for at in range(12):
            log.append([row("ann", at), row("bob", at), row("cem", at)])

    def pipeline() -> Any:
        stream = lw.read_log(tmp_path / "log", time="t", watermark=lw.BoundedDisorder("1h"))
        return (
            stream.key_by("k")
            .window(lw.GlobalWindow())
            .aggregate(values=lw.collect("v"))
            .write_jsonl(tmp_path / "out")
        )

    options: Any = {"state": tmp_path / "state", "commit_every": "bundle", "bundle_size": 4}
    with pytest.raises(Crash):
        pipeline().run(progress=crash, **options)
    with Log(tmp_path / "log", segment_bytes=900) as log:
        assert log.erase(where=IS_ANN).records == 12
    pipeline().run(**options)
    found = {
        pane["k"]: pane["values"]
        for path in (tmp_path / "out").glob("**/*.jsonl")
        for pane in map(json.loads, path.read_text().splitlines())
    }
    ann = found.pop("ann", [])
    assert found == {"bob": list(range(12)), "cem": list(range(12))}
    assert ann == list(range(len(ann)))  # state holds what it had read: the page says so
    assert len(ann) < 12


def test_what_is_refused(tmp_path: Path) -> None:
    with Log(tmp_path) as log:
        log.append([row("ann", 0), row("bob", 1)])
        for where, what in [
            (lw.col("v"), "not a condition"),
            (3, "not a condition"),
            (lambda record: True, "not a condition"),
            (lw.col("nobody") == 1, "no column 'nobody'"),
            ("k", "not a condition"),
            ("nobody", "no column 'nobody'"),
            (lw.col("v") > lw.col("v").mean(), "mean"),
            (lw.prev("v") == 1, "prev"),
        ]:
            with pytest.raises(lw.InvalidArgument, match=what):
                log.erase(where=where)
        with pytest.raises(lw.InvalidArgument, match="no partition"):
            log.erase(where=IS_ANN, partitions=3)
        with Log(tmp_path, read_only=True) as other:
            with pytest.raises(lw.StateError, match="reading alone") as raised:
                other.erase(where=IS_ANN)
            assert "Log(path)" in str(raised.value)
        lock = LogLock(tmp_path / "compaction.lock", "")
        with lock.held(), pytest.raises(lw.StateError, match="compacted already"):
            log.erase(where=IS_ANN)
        lock.close()
        assert list(read(log)) == [0, 1]
    with pytest.raises(lw.StateError, match="closed"):
        log.erase(where=IS_ANN)


def test_a_value_for_which_it_cannot_be_computed(tmp_path: Path) -> None:
    with Log(tmp_path) as log:
        log.append([row("ann", 0)])
        log.append([row("2001", 1)])
        before = names(tmp_path)
        with pytest.raises(lw.DataError, match="erase"):
            log.erase(where=lw.col("k").str.to_datetime(format="%Y") == lw.col("v"))
        assert names(tmp_path) == before
        assert list(read(log)) == [0, 1]


def test_a_tail_that_recovery_saved(tmp_path: Path) -> None:
    """It may contain what is to go, and nobody can tell."""
    with Log(tmp_path) as log:
        for at in range(3):
            log.append([row("ann", at)])
    path = segments_in(tmp_path / "partition-00000")[0].path
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with Log(tmp_path) as log:
        (cut,) = log.recovered
        assert cut.kept is not None
        left = list(read(log))
        with pytest.raises(lw.StateError, match="tail") as raised:
            log.erase(where=IS_ANN)
        assert cut.kept in str(raised.value)
        assert list(read(log)) == left
        Path(cut.kept).unlink()
        assert log.erase(where=IS_ANN).records == len(left)


def test_damage_is_told_and_nothing_changed(tmp_path: Path) -> None:
    with Log(tmp_path, segment_bytes=ONE) as log:
        for at in range(4):
            log.append([row("ann", at)])
        path = segments_in(tmp_path / "partition-00000")[1].path
        data = bytearray(path.read_bytes())
        data[-HEADER_BYTES] ^= 1
        path.write_bytes(data)
        with pytest.raises(lw.DataError, match="damaged"):
            log.erase(where=IS_ANN)
        assert next(iter(log.reader())).offset == 0
        assert log.append([row("ann", 4)]) == {0: range(4, 5)}
