"""A log: what is appended is read again, at its offset, in its partition, in its order."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from lowwater.io import Log
from lowwater.io.log.conform import partitions_of
from tests.children import run_code

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("x", pa.list_(pa.float64()))])
Row = dict[str, Any]
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "k": st.none() | st.text(st.characters(codec="utf-8"), max_size=8),
            "v": st.none() | st.integers(-(2**63), 2**63 - 1),
            "x": st.none() | st.lists(st.floats(allow_nan=False), max_size=3),
        }
    ),
    max_size=12,
)


@pytest.fixture(autouse=True, scope="module")
def no_waiting_for_the_disk() -> Iterator[None]:
    """What is durable no test can see without pulling the plug."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", lambda descriptor: None)
        patched.setattr(os, "fdatasync", lambda descriptor: None)
        yield


def table(rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def read(log: Log, partitions: Any = None, start: Any = "earliest") -> dict[int, list[Row]]:
    """Return all rows by partition, having checked their offsets."""
    found: dict[int, list[Row]] = {}
    until: dict[int, int] = {}
    with log.reader(partitions, start) as reader:
        for batch in reader:
            assert batch.offset == until.get(batch.partition, batch.offset)
            until[batch.partition] = batch.next_offset
            found.setdefault(batch.partition, []).extend(batch.records.to_pylist())
    return found


@given(
    st.lists(st.tuples(ROWS, st.integers(0, 2), st.booleans()), max_size=8),
    st.sampled_from([1, 700, 1 << 20]),
    st.integers(0, 2),
)
def test_what_is_appended_is_read(
    tmp_path_factory: pytest.TempPathFactory,
    appends: list[tuple[list[Row], int, bool]],
    segment_bytes: int,
    fsync: int,
) -> None:
    path = tmp_path_factory.mktemp("log")
    expected: dict[int, list[Row]] = {}
    log = Log(path, partitions=3, segment_bytes=segment_bytes, fsync=fsync)
    for rows, partition, reopen in appends:
        offsets = log.append(table(rows), partition=partition)
        have = expected.setdefault(partition, [])
        assert offsets == ({partition: range(len(have), len(have) + len(rows))} if rows else {})
        have.extend(rows)
        if reopen:
            log.close()
            log = Log(path, segment_bytes=segment_bytes, fsync=fsync)
            assert log.recovered == ()
    expected = {number: rows for number, rows in expected.items() if rows}
    with log:
        assert read(log) == expected
        for partition, rows in expected.items():
            start = len(rows) // 2
            assert read(log, partition, start).get(partition, []) == rows[start:]
        assert log.latest == {number: len(expected.get(number, [])) for number in range(3)}


def test_long_tables_become_several_frames(tmp_path: Path) -> None:
    long = pa.table({"v": np.arange(200_000), "s": ["text"] * 200_000})
    with Log(tmp_path, segment_bytes=500_000) as log:
        assert log.append(long) == {0: range(200_000)}
        with log.reader(start=123_456) as reader:
            batches = [batch.records for batch in reader]
        assert pa.Table.from_batches(batches) == long.slice(123_456)
        assert len(list((tmp_path / "partition-00000").iterdir())) > 2


@pytest.mark.parametrize(
    "records",
    [
        [{"k": "a", "v": 1}, {"k": "b"}],
        ({"v": 1, "k": "a"}, {"k": "b", "v": None}),
        pa.table({"k": ["a", "b"], "v": pa.array([1, None], pa.int64())}),
        pa.table({"v": pa.array([1, None], pa.int64()), "k": ["a", "b"]}),
        pa.record_batch({"k": pa.array(["a", "b"]).dictionary_encode(), "v": [1, None]}),
        pa.concat_tables([pa.table({"k": [c], "v": pa.array([n], pa.int64())})
                          for c, n in (("a", 1), ("b", None))]),
    ],
)  # fmt: skip
def test_forms_of_records(tmp_path: Path, records: Any) -> None:
    with Log(tmp_path) as log:
        log.append([{"k": "z", "v": 0}])
        log.append(records)
        rows = [{"k": "z", "v": 0}, {"k": "a", "v": 1}, {"k": "b", "v": None}]
        assert read(log) == {0: rows}


def test_empty_batches_leave_no_trace(tmp_path: Path) -> None:
    with Log(tmp_path) as log:
        assert log.append(table([])) == {}
        assert log.schema is None
        log.append(table([{"k": "a"}]))
        assert log.append(table([])) == {}
        assert log.append([]) == {}
        assert log.latest == {0: 1}


@pytest.mark.parametrize(
    ("records", "message"),
    [
        (pa.table({"k": [1], "v": [1]}), "column 'k' is int64, not string"),
        (pa.table({"k": ["a"]}), "column 'v' is missing"),
        (pa.table({"k": ["a"], "v": [1], "w": [1]}), "column 'w' is new"),
        ([{"k": "a", "w": 1}], "column 'w' is new"),
        ([{"k": "a", "v": "many"}], "column 'v' are not int64"),
        ([{"k": "a", "v": 2**63}], "column 'v' are not int64"),
    ],
)
def test_another_schema_is_refused_with_the_difference(
    tmp_path: Path, records: Any, message: str
) -> None:
    with Log(tmp_path, partitions=2) as log:
        log.append([{"k": "a", "v": 1}], partition=1)
    with Log(tmp_path) as log:
        with pytest.raises(lw.DataError, match=message):
            log.append(records, partition=0)
        assert log.latest == {0: 0, 1: 1}


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ("text", "no records"),
        (5, "no records"),
        ([5], "no mapping"),
        ([{5: 1}], "no mapping"),
        ([{"v": None}], "nulls alone"),
        ([{}], "no columns"),
        (pa.table([[1], [2]], names=["v", "v"]), "one name"),
        (pa.table({"v": pa.array([[1]], pa.list_(pa.dictionary(pa.int32(), pa.int64())))}),
         "dictionary inside"),
    ],
)  # fmt: skip
def test_what_cannot_be_kept_is_refused(tmp_path: Path, records: Any, message: str) -> None:
    with Log(tmp_path) as log, pytest.raises(lw.InvalidArgument, match=message):
        log.append(records)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"partitions": 0}, "partitions=0"),
        ({"segment_bytes": 0}, "segment_bytes"),
        ({"fsync": True}, "fsync"),
        ({"retention_bytes": -1}, "retention_bytes"),
        ({"retention_age": "soon"}, "retention_age"),
        ({"read_only": True}, "no log"),
    ],
)
def test_wrong_arguments(tmp_path: Path, arguments: Any, message: str) -> None:
    with pytest.raises(lw.InvalidArgument, match=message):
        Log(tmp_path, **arguments)


def test_the_number_of_partitions_never_changes(tmp_path: Path) -> None:
    Log(tmp_path, partitions=2).close()
    with pytest.raises(lw.InvalidArgument, match="the log has 2"):
        Log(tmp_path, partitions=3)
    with Log(tmp_path) as log:  # the failed attempt holds no lock
        assert log.partitions == 2
        with pytest.raises(lw.InvalidArgument, match="partition"):
            log.append([{"v": 1}], partition=2)
        with pytest.raises(lw.InvalidArgument, match="both"):
            log.append([{"v": 1}], partition=1, key="v")


def test_one_writer_and_many_readers(tmp_path: Path) -> None:
    with Log(tmp_path) as log:
        log.append([{"v": 1}])
        with pytest.raises(lw.StateError, match="has a writer already"):
            Log(tmp_path)
        other = run_code(f"import lowwater.io as io; io.Log({str(tmp_path)!r})")
        assert "StateError: the log has a writer already" in other.stderr
        for _ in range(2):
            with Log(tmp_path, read_only=True) as reading:
                assert read(reading) == {0: [{"v": 1}]}
                with pytest.raises(lw.StateError, match="reading alone"):
                    reading.append([{"v": 2}])
    with Log(tmp_path) as log:
        log.append([{"v": 2}])
    with pytest.raises(lw.StateError, match="closed"):
        log.append([{"v": 3}])


def test_without_a_place_batches_go_where_least_is(tmp_path: Path) -> None:
    with Log(tmp_path, partitions=3) as log:
        went = [list(log.append([{"v": n}] * n)) for n in (3, 1, 1, 1, 1)]
    assert went == [[0], [1], [2], [1], [2]]


KEYS: list[tuple[pa.Array, list[int]]] = [
    (pa.array(["ann", "bob", "", None, "żółw"]), [78, 27, 21, 68, 32]),
    (pa.array(["ann", "bob", "", None, "żółw"]).dictionary_encode(), [78, 27, 21, 68, 32]),
    (pa.array([b"ann", b"bob", b""]), [27, 73, 75]),
    (pa.array([0, 1, -1, 2**63 - 1, None], pa.int64()), [57, 13, 38, 47, 68]),
    (pa.array([0, 1], pa.int8()), [57, 13]),
    (pa.array([2**64 - 1, 1], pa.uint64()), [69, 13]),
    (pa.array([0.0, -0.0, 1.0, 1.5, float("nan")]), [57, 57, 13, 88, 24]),
    (pa.array([False, True]), [57, 13]),
    (pa.array([0, 1], pa.timestamp("us", tz="UTC")), [6, 69]),
    (pa.array([0, 1_000], pa.timestamp("ns", tz="Europe/Paris")), [6, 69]),
    (pa.array([0, 1], pa.date32()), [19, 0]),
]


@pytest.mark.parametrize(
    ("column", "expected"), KEYS, ids=lambda one: str(getattr(one, "type", ""))
)
def test_the_partition_of_a_key_is_the_same_for_ever(column: pa.Array, expected: Any) -> None:
    """Were these numbers to change, the keys of every log in use would move."""
    batch = pa.record_batch({"k": column})
    assert partitions_of(batch, ["k"], 100).tolist() == expected
    sliced = pa.record_batch({"k": pa.concat_arrays([column, column]).slice(len(column))})
    assert partitions_of(sliced, ["k"], 100).tolist() == expected


@pytest.mark.long(reason="a process that imports the library")
def test_the_partition_of_a_key_is_the_same_in_every_process() -> None:
    """The other process hashes text with a seed that this one does not have."""
    code = (
        "import pyarrow as pa; from lowwater.io.log.conform import partitions_of\n"
        "b = pa.record_batch({'k': ['ann', 'bob', 'cid'], 'n': [1, 2, 3]})\n"
        "print(hash('ann'), *partitions_of(b, ['k', 'n'], 1000).tolist())"
    )
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": seed},
    )
    elsewhere, *found = map(int, done.stdout.split())
    assert elsewhere != hash("ann")
    batch = pa.record_batch({"k": ["ann", "bob", "cid"], "n": [1, 2, 3]})
    assert found == partitions_of(batch, ["k", "n"], 1000).tolist()


@given(ROWS, st.integers(1, 5))
def test_records_of_one_key_are_in_one_partition_in_order(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row], partitions: int
) -> None:
    with Log(tmp_path_factory.mktemp("log"), partitions=partitions, fsync=0) as log:
        log.append(table(rows), key="k")
        found = read(log)
    home: dict[Any, int] = {}
    for number, part in found.items():
        for row in part:
            assert home.setdefault(row["k"], number) == number
    for key, number in home.items():
        kept = [row for row in found[number] if row["k"] == key]
        assert kept == [row for row in rows if row["k"] == key]
    assert sum(map(len, found.values())) == len(rows)


def test_a_key_that_is_none(tmp_path: Path) -> None:
    with Log(tmp_path, partitions=2) as log:
        with pytest.raises(lw.InvalidArgument, match="Did you mean 'user'"):
            log.append([{"user": "a"}], key="usr")
        with pytest.raises(lw.InvalidArgument, match="which cannot be a key"):
            log.append([{"user": ["a"]}], key="user")


Fault = Callable[[pytest.MonkeyPatch], None]


def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The third write puts down a part of what it is given, and no more is possible."""
    real, count = os.writev, [0]

    def writev(descriptor: int, parts: Any) -> int:
        count[0] += 1
        if count[0] < 3:
            return real(descriptor, parts)
        return real(descriptor, parts[:1])

    def write(descriptor: int, data: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "writev", writev)
    monkeypatch.setattr(os, "write", write)


@pytest.mark.parametrize("segment_bytes", [1, 1 << 20])
def test_a_full_disk_takes_all_of_a_batch_or_nothing(
    tmp_path: Path, segment_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"k": name, "v": 1} for name in ("ann", "bob", "cid", "dan", "eve", "fay")]
    with Log(tmp_path, partitions=4, segment_bytes=segment_bytes) as log:
        log.append([{"k": "first", "v": 0}], partition=3)
        before = read(log)
        with monkeypatch.context() as patched:
            full_disk(patched)
            with pytest.raises(lw.StateError, match=r"No space left.*Make room"):
                log.append(rows, key="k")
        assert read(log) == before
        log.append(rows, key="k")
        after = read(log)
        assert sum(map(len, after.values())) == 7
    with Log(tmp_path) as log:
        assert log.recovered == ()
        assert read(log) == after


@pytest.mark.parametrize(("fsync", "expected"), [(1, 5), (2, 2), (0, 0)])
def test_how_often_the_disk_is_told(
    tmp_path: Path, fsync: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []
    monkeypatch.setattr(os, "fdatasync", told.append)
    with Log(tmp_path / "a", partitions=2, fsync=fsync) as log:
        for value in range(5):
            log.append([{"v": value}], partition=1)
        assert len(told) == expected
        log.sync()
        log.sync()
        assert len(told) == {1: 5, 2: 3, 0: 1}[fsync]
        with log.reader(name="bill") as reader:  # who commits makes sure of what was read
            list(reader)
            before = len(told)
            reader.commit()
            reader.commit()
            assert len(told) == before + 1
    told.clear()
    with Log(tmp_path / "b", segment_bytes=1, fsync=0) as log:
        for value in range(3):
            log.append([{"v": value}])
        assert len(told) == 2  # a segment is durable before the next begins


def test_a_disk_that_does_not_keep_ends_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with Log(tmp_path) as log:
        log.append([{"v": 1}])
        with monkeypatch.context() as patched:
            patched.setattr(os, "fdatasync", fail)
            with pytest.raises(lw.StateError, match="made durable"):
                log.append([{"v": 2}])
        with pytest.raises(lw.StateError, match="takes no more"):
            log.append([{"v": 2}])
    with Log(tmp_path) as log:
        assert read(log) == {0: [{"v": 1}]}
