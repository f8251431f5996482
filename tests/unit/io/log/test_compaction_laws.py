"""Compaction against a model: what stays is known, and no reader misses a key's last record."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from lowwater.io import Log, LogReader
from lowwater.io.log.segment_files import segments_in

Row = dict[str, Any]
Seen = dict[int, Row]
"""Rows by offset."""

SECOND = 1_000_000
KEEP = 10
"""For how many seconds records that delete are kept."""


@pytest.fixture(autouse=True, scope="module")
def no_waiting_for_the_disk() -> Iterator[None]:
    """What is durable no test can see without pulling the plug."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", lambda descriptor: None)
        patched.setattr(os, "fdatasync", lambda descriptor: None)
        yield


class Model:
    """What is in one partition, by offset: all that was appended, and what compaction leaves."""

    def __init__(self) -> None:
        self.all: Seen = {}
        self.left: Seen = {}
        self.compacted: dict[int, int] = {}

    def append(self, rows: list[Row]) -> None:
        for row in rows:
            self.left[len(self.all)] = self.all[len(self.all)] = row

    def compact(self, closed: int, now: int) -> None:
        """Keep of each key the last record below an offset, and for a time one that deletes."""
        last = {row["k"]: offset for offset, row in self.left.items() if offset < closed}
        for offset, row in list(self.left.items()):
            if offset >= closed or row["k"] is None:
                continue
            is_old = now - self.compacted.setdefault(offset, now) > KEEP * SECOND
            if last[row["k"]] != offset or (row["gone"] and is_old):
                del self.left[offset]


def table_of(seen: Seen) -> dict[Any, int]:
    """Return the value of each key after some records."""
    table: dict[Any, int] = {}
    for offset in sorted(seen):
        row = seen[offset]
        table[row["k"]] = row["v"]
        if row["gone"]:
            del table[row["k"]]
    return table


class Follower:
    """A reader of one partition and what it has seen, checked as it comes."""

    def __init__(self, log: Log, partition: int, start: int) -> None:
        self.partition = partition
        self.start = start
        self.reader: LogReader = log.reader(partition, start={str(partition): start})
        self.seen: Seen = {}

    def read(self, most: int, model: Model) -> None:
        position = self.reader.position[str(self.partition)]
        for batch in self.reader.read(most):
            assert batch.offset == batch.offsets[0]
            assert batch.next_offset == batch.offsets[-1] + 1
            for offset, row in zip(batch.offsets.tolist(), batch.records.to_pylist(), strict=True):
                assert offset >= position
                assert row == model.all[offset]
                self.seen[offset] = row
                position = offset + 1
        assert self.reader.position[str(self.partition)] >= position


ROWS = st.lists(st.tuples(st.none() | st.integers(0, 4), st.booleans()), min_size=1, max_size=5)
MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("append"), ROWS, st.integers(0, 1)),
        st.tuples(st.just("compact"), st.none(), st.integers(0, KEEP)),
        st.tuples(st.just("open"), st.integers(0, 100), st.integers(0, 1)),
        st.tuples(st.just("read"), st.integers(0, 10), st.integers(1, 6)),
        st.tuples(st.just("reopen reader"), st.integers(0, 10), st.none()),
        st.tuples(st.just("reopen log"), st.none(), st.none()),
    ),
    min_size=5,
    max_size=40,
)
KEYS = [pa.int64(), pa.string(), pa.timestamp("us")]
TEXT: dict[int | None, str | None] = {None: None, 0: "", 1: "ann", 2: "bob", 3: "żółw", 4: "x" * 99}


@given(MOVES, st.sampled_from([1, 900, 2000]), st.booleans(), st.sampled_from(KEYS))
def test_any_order_of_events(
    tmp_path_factory: pytest.TempPathFactory,
    moves: list[tuple[str, Any, Any]],
    segment_bytes: int,
    expiring: bool,
    key: pa.DataType,
) -> None:
    path = tmp_path_factory.mktemp("log")
    clock = lw.ManualClock(0)
    options: Any = {"segment_bytes": segment_bytes, "fsync": 0, "clock": clock}
    log = Log(path, partitions=2, **options)
    models = [Model(), Model()]
    schema = pa.schema([("k", key), ("v", pa.int64()), ("gone", pa.bool_())])
    as_key: Any = (
        TEXT.__getitem__ if pa.types.is_string(key) else lambda k: pa.scalar(k, key).as_py()
    )
    followers: list[Follower] = []
    count = 0
    for move, what, how in moves:
        if move == "append":
            rows = [
                {"k": as_key(k), "v": count + at, "gone": gone} for at, (k, gone) in enumerate(what)
            ]
            count += len(rows)
            log.append(pa.Table.from_pylist(rows, schema=schema), partition=how)
            models[how].append(rows)
        elif move == "compact":
            if expiring:
                clock.advance_to(clock.now() + how * SECOND)
            with Log(path, read_only=True, **options) as other:
                done = (log if how % 2 else other).compact(
                    "k", deleted="gone", keep_deleted=f"{KEEP}s"
                )
            before = sum(len(model.left) for model in models)
            for number, model in enumerate(models):
                segments = segments_in(path / f"partition-{number:05d}")
                model.compact(segments[-1].base if segments else 0, clock.now())
            after = sum(len(model.left) for model in models)
            assert done.records_before - done.records_after == before - after
        elif move == "open":
            start = what % (len(models[how].all) + 1)
            followers.append(Follower(log, how, start))
        elif move == "read" and followers:
            follower = followers[what % len(followers)]
            follower.read(how, models[follower.partition])
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
        has_null = [row for row in model.all.values() if row["k"] is None]
        if not has_null:
            assert table_of(fresh.seen) == table_of(model.all)
        assert fresh.reader.lag == {number: 0}
        fresh.reader.close()
    for follower in followers:
        model = models[follower.partition]
        follower.read(10_000, model)
        follower.reader.close()
        behind = {at: row for at, row in model.all.items() if at >= follower.start}
        lasts = {row["k"]: at for at, row in behind.items()}
        for at in lasts.values():
            assert at in follower.seen or model.all[at]["gone"]
        if not expiring:  # it is within the time for which records that delete are kept
            keyed = {at: row for at, row in behind.items() if row["k"] is not None}
            found = {at: row for at, row in follower.seen.items() if row["k"] is not None}
            assert table_of(found) == table_of(keyed)
            assert {at for at in follower.seen if behind[at]["k"] is None} == (
                behind.keys() - keyed.keys()
            )
    log.close()
