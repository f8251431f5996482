"""Compaction by key: what stays, where, for how long, and what it refuses."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lowwater as lw
from lowwater.io import Log
from lowwater.io.log import LogSource
from lowwater.io.log.cursor import PartitionView
from lowwater.io.log.frame_format import HEADER_BYTES, Kind, encode_header
from lowwater.io.log.segment_files import segments_in
from lowwater.time import Instant
from tests.examples import sampled

MINUTE = 60_000_000
ONE = 1
"""A size at which each append begins a segment."""


@pytest.fixture(autouse=True, scope="module")
def no_waiting_for_the_disk() -> Iterator[None]:
    """What is durable no test can see without pulling the plug."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", lambda descriptor: None)
        patched.setattr(os, "fdatasync", lambda descriptor: None)
        yield


def event(key: str, value: int | None) -> dict[str, Any]:
    return {"t": f"2000-01-01T12:00:{(value or 0) % 60:02d}Z", "k": key, "v": value}


def read(path: Path, start: Any = "earliest") -> dict[int, dict[str, Any]]:
    """Return rows by offset, of a log of one partition."""
    with Log(path, read_only=True) as log, log.reader(start=start) as reader:
        return {
            offset: row
            for batch in reader
            for offset, row in zip(batch.offsets.tolist(), batch.records.to_pylist(), strict=True)
        }


def names(path: Path) -> list[str]:
    return sorted(file.name for file in (path / "partition-00000").iterdir())


def test_of_each_key_the_last_record_stays_at_its_offset(tmp_path: Path) -> None:
    #  offset   0    1   2   3    4   5  | 6   (the last segment)
    #  key      a    b   a   c    b   a  | a
    #  stays                 *    *   *  | *
    with Log(tmp_path, segment_bytes=ONE) as log:
        log.append([event("a", 0), event("b", 1), event("a", 2)])
        log.append([event("c", 3), event("b", 4)])
        log.append([event("a", 5)])
        log.append([event("a", 6)])
        done = log.compact("k")
        assert (done.records_before, done.records_after) == (6, 3)
        assert log.latest == {0: 7}
        assert log.earliest == {0: 0}
        assert log.append([event("a", 7)]) == {0: range(7, 8)}
    assert {offset: row["v"] for offset, row in read(tmp_path).items()} == {
        3: 3, 4: 4, 5: 5, 6: 6, 7: 7,
    }  # fmt: skip
    for start in range(9):
        assert list(read(tmp_path, start)) == list(range(max(start, 3), 8))


def test_the_last_record_of_each_key_is_read_as_before(tmp_path: Path) -> None:
    """A changelog by key, in partitions, read by a pipeline."""

    def table() -> dict[Any, Any]:
        stream = lw.read_log(tmp_path, time="t", watermark=lw.BoundedDisorder("1h"))
        last = stream.key_by("k").window(lw.GlobalWindow()).aggregate(v=lw.last("v"))
        return {pane.key: pane.value for pane in last.collect().panes}

    with Log(tmp_path, partitions=3, segment_bytes=2000) as log:
        for value in range(60):
            log.append([event(f"key {value % 7}", value), event("often", value)], key="k")
        before = table()
        assert len(before) == 8
        done = log.compact("k")
        assert done.records_after < done.records_before
        assert done.bytes_after < done.bytes_before
        assert table() == before
        log.append([event("key 1", 59)], key="k")
        assert table() == {**before, "key 1": 59}


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ([1, 2, 1, -1], pa.int32()),
        ([2**64 - 1, 2, 2**64 - 1, 5], pa.uint64()),
        (["ann", "żółw", "ann", ""], pa.string()),
        (["ann", "żółw", "ann", ""], pa.large_string()),
        ([b"a", b"\xff", b"a", b""], pa.binary()),
        ([0.0, 1.5, -0.0, 2.0], pa.float64()),
        ([float("nan"), 1.5, float("nan"), 2.0], pa.float32()),
        ([Decimal("1.50"), Decimal("2.00"), Decimal("1.5"), Decimal(3)], pa.decimal128(9, 2)),
        ([date(2000, 1, 1), date(2000, 1, 2), date(2000, 1, 1), date(1, 1, 1)], pa.date32()),
        ([0, 1, 0, -(2**62)], pa.timestamp("ns", tz="Europe/Paris")),
        ([0, 1, 0, 2**30], pa.duration("s")),
    ],
)
def test_types_of_keys(tmp_path: Path, key: list[Any], kind: pa.DataType) -> None:
    table = pa.table({"k": pa.array(key, kind), "v": range(4)})
    with Log(tmp_path, segment_bytes=ONE) as log:
        log.append(table)
        log.append(table.slice(0, 2))
        log.append(table.slice(0, 1))
        log.compact("k")
    assert list(read(tmp_path)) == [3, 4, 5, 6]


def test_keys_of_several_columns_and_nulls(tmp_path: Path) -> None:
    """Records whose key has a null stay, all of them: what they supersede nobody can say."""
    rows: list[dict[str, Any]] = [
        {"k": "a", "n": 1}, {"k": "a", "n": 2}, {"k": "a", "n": None}, {"k": "b", "n": 1},
        {"k": "a", "n": 1}, {"k": None, "n": None}, {"k": "a", "n": None}, {"k": None, "n": None},
    ]  # fmt: skip
    for at, (key, left) in enumerate(
        [(("k", "n"), [1, 2, 3, 4, 5, 6, 7]), ("k", [3, 5, 6, 7]), (["n"], [1, 2, 4, 5, 6, 7])]
    ):
        path = tmp_path / str(at)
        with Log(path, segment_bytes=ONE) as log:
            log.append(rows)
            log.append([{"k": "end", "n": 9}])
            log.compact(key)
        assert list(read(path)) == [*left, 8]


def test_records_that_delete_are_kept_for_a_time(tmp_path: Path) -> None:
    """From the compaction that first finds them in a closed segment; then they go, too."""
    clock = lw.ManualClock(0)
    left: list[list[int]] = []
    with Log(tmp_path, segment_bytes=ONE, clock=clock) as log:
        log.append([event("a", 0), event("b", 1)])
        log.append([event("a", None), event("c", 3)])

        def compact() -> None:
            log.compact("k", deleted=lw.col("v").is_null(), keep_deleted="10m")
            left.append(list(read(tmp_path)))

        compact()  # the record that deletes is in the last segment
        clock.advance_to(Instant(60 * MINUTE))
        log.append([event("d", 4)])
        for minute in (60, 70, 71):
            clock.advance_to(Instant(minute * MINUTE))
            compact()
        log.append([event("a", 5)])
        log.append([event("d", 6)])
        compact()
    assert left == [[0, 1, 2, 3, 4][:4], [1, 2, 3, 4], [1, 2, 3, 4], [1, 3, 4], [1, 3, 4, 5, 6]]


def test_a_key_that_is_deleted_and_comes_again(tmp_path: Path) -> None:
    with Log(tmp_path, segment_bytes=ONE) as log:
        for value in (1, None, 3, 4):
            log.append([event("a", value)])
        log.compact("k", deleted=lw.col("v").is_null(), keep_deleted=0)
    assert list(read(tmp_path)) == [2, 3]


def test_times_of_append_stay(tmp_path: Path) -> None:
    clock = lw.ManualClock(0)
    with Log(tmp_path, clock=clock) as log:
        for minute in range(6):
            clock.advance_to(Instant(minute * MINUTE))
            log.append([event("a", minute), event(f"b{minute}", minute)])
        size = segments_in(tmp_path / "partition-00000")[0].path.stat().st_size
    with Log(tmp_path, segment_bytes=size, clock=clock) as log:
        log.append([event("z", 9)])
        log.compact("k")
        with log.reader() as reader:
            assert [(batch.time, batch.offset) for batch in reader] == [
                (Instant(0), 1), (Instant(MINUTE), 3), (Instant(2 * MINUTE), 5),
                (Instant(3 * MINUTE), 7), (Instant(4 * MINUTE), 9), (Instant(5 * MINUTE), 10),
                (Instant(5 * MINUTE), 12),
            ]  # fmt: skip
        with log.reader(start=Instant(3 * MINUTE)) as reader:
            assert next(iter(reader)).offset == 7


def test_a_log_that_has_nothing_to_compact(tmp_path: Path) -> None:
    with Log(tmp_path, segment_bytes=ONE) as log:
        assert log.compact("k").records_before == 0  # no records, so no columns
        log.append([event("a", 0)])
        assert log.compact("k").records_before == 0  # only the last segment
        log.append([event("b", 1)])
        log.append([event("a", 2)])
        before = names(tmp_path)
        done = log.compact("k")
        assert (done.records_before, done.records_after) == (2, 2)
        assert done.bytes_before == done.bytes_after
        assert names(tmp_path) == before
    assert json.loads((tmp_path / "log.json").read_text())["content"]["layout"] == 2


def test_small_neighbours_are_joined(tmp_path: Path) -> None:
    with Log(tmp_path, segment_bytes=2000) as log:
        for value in range(40):
            log.append([event("a", value)])
        segments = len(names(tmp_path))
        log.compact("k")
        first, last = names(tmp_path)
        assert segments > 5
        assert first.endswith(".1.segment")
        for value in range(40):
            log.append([event("a", value)])
        log.compact("k")
        assert names(tmp_path)[0].endswith(".2.segment")
        assert len(names(tmp_path)) == 2
        assert last not in names(tmp_path)
    assert json.loads((tmp_path / "log.json").read_text())["content"]["layout"] == 3


def test_a_reader_amid_a_segment_goes_on_in_the_new_one(tmp_path: Path) -> None:
    with Log(tmp_path, segment_bytes=ONE) as log:
        for value in range(5):
            log.append([event("a", value), event("a", value)])
        with log.reader() as reader:
            reader.read(1)
            log.compact("k")
            assert [offset for batch in reader for offset in batch.offsets.tolist()] == [7, 8, 9]
            assert reader.lag == {0: 0}


def test_positions_stay_valid(tmp_path: Path) -> None:
    with Log(tmp_path, segment_bytes=ONE) as log:
        for value in range(6):
            log.append([event("a", value)])
        with log.reader(name="bill") as reader:
            reader.read(2)
            reader.commit()
        log.compact("k")
        with log.reader(name="bill") as reader:
            assert [batch.offset for batch in reader] == [4, 5]
            reader.seek({"0": 3})
            assert [batch.offset for batch in reader.read(1)] == [4]
            reader.seek(1)
            reader.stop_at({"0": 3})
            assert reader.read() == []
            assert reader.position == {"0": 3}
            reader.stop_at({})
            assert [batch.offset for batch in reader] == [4, 5]


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize("size", [1, 3, 100])
def test_a_run_resumes_from_any_position(tmp_path: Path, size: int, follow: bool) -> None:
    """The records after it that are left come, and none before it."""
    path = tmp_path / "log"
    with Log(path, segment_bytes=ONE) as log:
        for value in range(4):
            log.append([event(key, value) for key in ("a", "b", f"c{value}")])
    source = LogSource(str(path), follow=follow, wait=lambda: False)
    positions = [None, *(position for _, position in source.batches_from(None, size, ()))]
    with Log(path, read_only=True, segment_bytes=ONE) as log:
        log.compact("k")
    left = read(path)
    for position in positions:
        start = 0 if position is None else position["at"]["0"]
        found = list(source.batches_from(position, size, ()))
        assert all(records.length <= size for records, _ in found)
        rows = [
            row for records, _ in found for row in records.to_arrow(("t", "k", "v")).to_pylist()
        ]
        assert rows == [row for offset, row in left.items() if offset >= start]
        places = [records.place(at) for records, _ in found for at in range(records.length)]
        assert places == [f"{path / 'partition-00000'}, row {at}" for at in left if at >= start]
        until = None if position is None else position["next"]
        if until is not None and all(not start <= at < until["0"] for at in left):
            assert found[0][0].length == 0  # in place of the batch that is no more
            assert found[0][1]["at"] == until


class Crash(Exception):
    """Stands for the end of the process."""


@pytest.mark.parametrize("bundle", sampled(range(1, 9), every=3))
@pytest.mark.parametrize("copies", [1, 2])
def test_a_durable_run_that_crashes_before_a_compaction(
    tmp_path: Path, bundle: int, copies: int
) -> None:
    """Whichever bundle it had done, no key's last record is skipped or read twice.

    Where a batch is several bundles, a run that is amid one cannot know which records it has read,
    and says so.
    """
    bundles = iter(range(bundle))

    def crash(_: Any) -> None:
        if next(bundles, None) is None:
            raise Crash

    with Log(tmp_path / "log", segment_bytes=600) as log:
        for value in range(12):
            log.append([event("a", value), event(f"b{value}", value)])
    stream = lw.read_log(tmp_path / "log", time="t", watermark=lw.BoundedDisorder("1h"))
    if copies > 1:
        stream = stream.flat_map(lambda row: [row] * copies)
    pipeline = (
        stream.key_by("k")
        .window(lw.GlobalWindow())
        .aggregate(v=lw.last("v"), n=lw.count())
        .write_jsonl(tmp_path / "out")
    )
    options: Any = {"state": tmp_path / "state", "commit_every": "bundle", "bundle_size": 3}
    with pytest.raises(Crash):
        pipeline.run(progress=crash, **options)
    with Log(tmp_path / "log", read_only=True, segment_bytes=600) as log:
        assert log.compact("k").records_after < 22
    refused = ""
    try:
        pipeline.run(**options)
    except lw.DataError as error:
        refused = str(error)
    if copies > 1 and refused:
        assert "had read in part" in refused
        return
    assert not refused
    found = {
        line["k"]: line
        for file in (tmp_path / "out").glob("**/*.jsonl")
        for line in map(json.loads, file.read_text().splitlines())
    }
    assert {key: line["v"] for key, line in found.items()} == {
        "a": 11, **{f"b{value}": value for value in range(12)},
    }  # fmt: skip
    assert all(line["n"] == copies for key, line in found.items() if key != "a")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"key": "kk"}, "no column 'kk'.*Did you mean 'k'"),
        ({"key": ("k", "w")}, "no column 'w'"),
        ({"key": ()}, "names no column"),
        ({"key": "x"}, "'x' is list.*cannot be a key"),
        ({"key": "k", "deleted": "vv"}, "no column 'vv'"),
        ({"key": "k", "deleted": "v"}, r"int64, which is not a condition.*is_null"),
        ({"key": "k", "deleted": lw.col("v") + 1}, "int64, which is not a condition"),
        ({"key": "k", "deleted": lambda row: True}, "not a condition"),
        ({"key": "k", "deleted": True}, "not a condition"),
        ({"key": "k", "keep_deleted": "long"}, "keep_deleted"),
        ({"key": "k", "partitions": 1}, "partitions"),
    ],
)
def test_wrong_arguments(tmp_path: Path, arguments: Any, message: str) -> None:
    with Log(tmp_path, segment_bytes=ONE) as log:
        for value in range(3):
            log.append([{"k": "a", "v": value, "x": [1.0]}])
        before = names(tmp_path)
        with pytest.raises(lw.InvalidArgument, match=message):
            log.compact(**arguments)
        assert names(tmp_path) == before


def test_some_partitions(tmp_path: Path) -> None:
    with Log(tmp_path, partitions=2, segment_bytes=ONE) as log:
        for value in range(3):
            for partition in range(2):
                log.append([event("a", value)], partition=partition)
        assert log.compact("k", partitions=1).records_before == 2
        with log.reader(1) as reader:
            assert [batch.offset for batch in reader] == [1, 2]
        with log.reader(0) as reader:
            assert [batch.offset for batch in reader] == [0, 1, 2]


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_damaged_segment_is_named_and_nothing_changes(tmp_path: Path, which: int) -> None:
    with Log(tmp_path, segment_bytes=ONE) as log:
        for value in range(4):
            log.append([event("a", value)])
        path = segments_in(tmp_path / "partition-00000")[which].path
        whole = path.read_bytes()
        for data in (whole[:-8], whole + bytes(8), whole[:-1] + b"x", whole[:20]):
            path.write_bytes(data)
            before = names(tmp_path)
            with pytest.raises(lw.DataError, match=rf"damaged.*{path.name}, byte \d+.*Put the"):
                log.compact("k")
            assert names(tmp_path) == before
        path.unlink()
        if which:  # the segment before it does not reach the next
            with pytest.raises(lw.DataError, match="damaged"):
                log.compact("k")


def test_values_that_cannot_be_decoded(tmp_path: Path) -> None:
    """The checksums are right, and the payload is not what was written."""
    with Log(tmp_path, segment_bytes=ONE) as log:
        log.append([event("a", 0)])
        log.append([event("a", 1)])
        path = segments_in(tmp_path / "partition-00000")[0].path
        data = path.read_bytes()
        at = data.index(b"LWLG", HEADER_BYTES)
        for kind in (Kind.RECORDS, Kind.SPARSE):
            for payload in (bytes(64), b"\xff" * 64, bytes(8)):
                path.write_bytes(data[:at] + encode_header(kind, 0, 0, 1, payload) + payload)
                if kind is Kind.SPARSE and payload == bytes(64):
                    continue
                with pytest.raises(lw.DataError, match=f"damaged.*byte {at}"):
                    log.compact("k")


def test_a_log_that_lost_its_last_segment_after_a_compaction(tmp_path: Path) -> None:
    with Log(tmp_path, segment_bytes=ONE) as log:
        for value in range(4):
            log.append([event("a", value)])
    with Log(tmp_path) as log:
        log.compact("k")
    segments_in(tmp_path / "partition-00000")[-1].path.unlink()
    compacted = names(tmp_path)
    with Log(tmp_path) as log:
        assert log.latest == {0: 3}
        assert log.append([event("b", 9)]) == {0: range(3, 4)}
    assert set(names(tmp_path)) == {*compacted, f"{3:020d}.segment"}
    assert list(read(tmp_path)) == [2, 3]


def test_a_compacted_segment_that_is_missing_is_noticed(tmp_path: Path) -> None:
    with Log(tmp_path, segment_bytes=ONE) as log:
        for value in range(6):
            log.append([event(f"key {value // 2}", value)])
        log.compact("k")
        assert list(read(tmp_path)) == [1, 3, 4, 5]
        segments_in(tmp_path / "partition-00000")[1].path.unlink()
        with pytest.raises(lw.DataError, match="damaged"):
            read(tmp_path)


def test_a_reader_that_seeks_before_and_after(tmp_path: Path) -> None:
    """What it remembers of a file's frames is not used for the file that takes its place."""
    with Log(tmp_path, segment_bytes=2000) as log, log.reader() as reader:
        for value in range(20):
            log.append([event("a", value), event(f"b{value}", value)])
        reader.seek(3)
        assert reader.read(1)[0].offset == 3
        log.compact("k")
        reader.seek(3)
        assert [offset for batch in reader for offset in batch.offsets.tolist()] == list(
            read(tmp_path, 3)
        )


def test_a_list_of_files_that_lacks_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Listing a folder takes time: it may miss a file that is renamed meanwhile."""
    with Log(tmp_path, segment_bytes=ONE) as log, log.reader() as reader:
        for value in range(5):
            log.append([event("a", value)])
        assert reader.read(1)[0].offset == 0
        before = segments_in(tmp_path / "partition-00000")
        with Log(tmp_path, read_only=True) as other:
            other.compact("k")
        stale = [[*before[:2], *before[3:]]] * 2
        real = PartitionView.segments
        monkeypatch.setattr(
            PartitionView, "segments", lambda view: stale.pop() if stale else real(view)
        )
        assert [batch.offset for batch in reader] == [1, 3, 4]  # 1 was read ahead
        assert not stale


def test_leftovers_of_a_crash_are_removed(tmp_path: Path) -> None:
    with Log(tmp_path, segment_bytes=ONE) as log:
        log.append([event("a", 0)])
        log.append([event("a", 1)])
        left = tmp_path / "partition-00000" / f".{0:020d}-{9:020d}.4.segment.part"
        left.touch()
        log.compact("k")
        assert not left.exists()
