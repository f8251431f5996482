"""A log as a source of pipelines: the same records in the same batches from every position."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from lowwater.engine.graph.sources import READ_ROWS, ReplayableSource
from lowwater.engine.records.batch import Records
from lowwater.io import Log
from lowwater.io.log import LogSource

Step = tuple[list[Any], dict[str, Any]]


@pytest.fixture(autouse=True, scope="module")
def no_waiting_for_the_disk() -> Iterator[None]:
    """What is durable no test can see without pulling the plug."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", lambda descriptor: None)
        patched.setattr(os, "fdatasync", lambda descriptor: None)
        yield


def rows(records: Records) -> list[Any]:
    return records.to_arrow().to_pylist()


def sums(stream: lw.Stream) -> dict[Any, Any]:
    result = stream.key_by("k").window(lw.GlobalWindow()).aggregate(lw.sum("v")).collect()
    return {pane.key: pane.value for pane in result.panes}


def event(key: str, value: int) -> dict[str, Any]:
    return {"t": f"2000-01-01T12:00:{value % 60:02d}Z", "k": key, "v": value}


def test_a_pipeline_reads_a_log(tmp_path: Path) -> None:
    with Log(tmp_path, partitions=3) as log:
        for value in range(20):
            log.append([event("a", value), event("b", 1)], key="k")
        assert sums(lw.read_log(tmp_path, time="t")) == {"a": 190, "b": 20}  # beside its writer
        home = log.append([event("b", 5)], key="k")
    (partition,) = home
    assert sums(lw.read_log(tmp_path, time="t", partitions=partition))["b"] == 25
    assert (
        sums(lw.read_log(tmp_path, time="t", start={str(partition): home[partition][0]}))["b"] == 5
    )
    assert sums(lw.read_log(tmp_path, time="t", start="latest")) == {}


def test_what_is_wrong_is_found_when_the_pipeline_is_built(tmp_path: Path) -> None:
    with pytest.raises(lw.InvalidArgument, match="no log in"):
        lw.read_log(tmp_path, time="t")
    with Log(tmp_path) as log:
        assert sums(lw.read_log(tmp_path, time="t")) == {}  # no records, so no columns yet
        log.append([event("a", 1)])
    with pytest.raises(lw.InvalidArgument, match="'at'"):
        lw.read_log(tmp_path, time="at")
    with pytest.raises(lw.InvalidArgument, match="no partition"):
        lw.read_log(tmp_path, time="t", partitions=[1])
    with pytest.raises(lw.InvalidArgument, match="start"):
        lw.read_log(tmp_path, time="t", start=1.5)  # type: ignore[arg-type]


def test_dead_letters_say_where_they_come_from(tmp_path: Path) -> None:
    with Log(tmp_path) as log:
        log.append([event("a", 1)])
        log.append([event("a", 2), {**event("a", 3), "t": "soon"}])
    result = lw.read_log(tmp_path, time="t").key_by("k").window(lw.GlobalWindow())
    (error,) = result.aggregate(lw.sum("v")).collect().errors
    assert error.where == f"{tmp_path / 'partition-00000'}, row 2"


def test_small_appends_come_as_long_batches(tmp_path: Path) -> None:
    with Log(tmp_path, partitions=2) as log:
        for value in range(300):
            log.append([event("a", value)])
    source = LogSource(str(tmp_path))
    assert isinstance(source, ReplayableSource)
    (only,) = source.batches(1000, ())
    assert [row["v"] for row in rows(only)] == list(range(300))
    with Log(tmp_path) as log:
        log.append([event("a", 1)] * (READ_ROWS + 5), partition=0)
    assert max(len(records) for records in source.batches(1000, ())) == 131_000


def test_following(tmp_path: Path) -> None:
    """It waits when there is nothing new; the run looks to its clock before."""
    log = Log(tmp_path)
    script = iter([[1, 2, 3], [], [4]])

    def wait() -> bool:
        values = next(script, None)
        if values is None:
            return False
        if values:
            log.append([event("a", value) for value in values])
        return True

    source = LogSource(str(tmp_path), follow=True, wait=wait)
    seen = [[row["v"] for row in rows(records)] for records in source.batches(2, ())]
    log.close()
    assert seen == [[], [], [1, 2], [3], [], [], [], [4], []]


def test_a_run_that_started_late_starts_there_again(tmp_path: Path) -> None:
    """The first batch says where "latest" was, before any record has come."""
    with Log(tmp_path) as log:
        log.append([event("a", 1)])
        source = LogSource(str(tmp_path), start="latest", follow=True, wait=lambda: False)
        ((_, position),) = source.batches_from(None, 10, ())
        log.append([event("a", 2)])
        found = [row["v"] for r, _ in source.batches_from(position, 10, ()) for row in rows(r)]
        assert found == [2]


@given(st.data())
def test_from_each_position_the_next_batch_is_the_same(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Whatever was appended since: a run skips, by count, the bundles it has done already."""
    path = tmp_path_factory.mktemp("log")
    size = data.draw(st.integers(1, 5))
    follow = data.draw(st.booleans())
    clock = lw.ManualClock(0)
    log = Log(path, partitions=3, segment_bytes=2000, fsync=0, clock=clock)
    numbers = itertools.count()
    moments = iter(range(12))  # or it would grow faster than it is read

    def append_some() -> None:
        if next(moments, None) is None:
            return
        for _ in range(data.draw(st.integers(0, 4))):
            clock.advance_to(clock.now() + data.draw(st.integers(0, 1)))
            count = data.draw(st.integers(1, 4))
            partition = data.draw(st.integers(0, 2))
            log.append([{"v": next(numbers)} for _ in range(count)], partition=partition)

    tries = iter(range(3))

    def wait() -> bool:
        append_some()
        return next(tries, None) is not None

    append_some()
    source = LogSource(str(path), follow=follow, wait=wait)
    steps: list[Step] = []
    for records, position in source.batches_from(None, size, ()):
        steps.append((rows(records), json.loads(json.dumps(position))))
        append_some()
    again = LogSource(str(path), follow=follow, wait=lambda: False)
    pairs = list(itertools.pairwise(steps))
    for (_, position), (following, behind) in pairs and data.draw(
        st.lists(st.sampled_from(pairs), max_size=5, unique_by=id)
    ):
        restarted = again.batches_from(position, size, ())
        records, position_now = next(restarted)
        if position["next"] is None:  # nothing of a batch has been seen
            assert following == []
            continue
        assert rows(records) == following
        assert position_now["at"] == behind["at"]
    rest: list[Any] = []
    if steps:
        rest = [row for r, _ in again.batches_from(steps[-1][1], size, ()) for row in rows(r)]
    whole = [row["v"] for seen, _ in steps for row in seen] + [row["v"] for row in rest]
    if steps:
        assert sorted(whole) == list(range(next(numbers)))
    log.close()


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), min_size=1, max_size=25),
    st.integers(1, 6),
)
def test_no_record_of_a_partition_in_order_is_late(
    tmp_path_factory: pytest.TempPathFactory,
    appended: list[tuple[int, int]],
    size: int,
) -> None:
    """However far its first record comes behind those of others (S-T3)."""
    path = tmp_path_factory.mktemp("log")
    at = [0, 0, 0, 0]
    with Log(path, partitions=4, fsync=0, clock=lw.ManualClock(0)) as log:
        for partition, later in appended:
            at[partition] += later
            log.append([{"t": at[partition] * 1_000_000, "k": "a"}], partition=partition)
    read = lw.read_log(path, time="t", watermark=lw.PerPartition(lw.Ascending()))
    counts = read.key_by("k").window(lw.FixedWindows("1s")).aggregate(n=lw.count())
    assert counts.collect(bundle_size=size).late == []


def test_partitions_are_announced_before_their_records(tmp_path: Path) -> None:
    """Those that are read, except where all is behind the reader already."""
    with Log(tmp_path, partitions=4) as log:
        log.append([event("a", 1)], partition=1)
        log.append([event("a", 2)], partition=2)
        ends = LogSource(str(tmp_path), partitions=(0, 1, 2))
        steps = list(ends.batches_from(None, 1, ()))
        assert [records.partitions for records, _ in steps] == [(1, 2)] * len(steps)
        following = LogSource(str(tmp_path), follow=True, partitions=(0, 1, 2), wait=lambda: False)
        (records, _) = next(following.batches_from(steps[-1][1], 1, ()))
        assert records.partitions == (0, 1, 2)


def drop_last_segment(path: Path) -> None:
    sorted((path / "partition-00000").iterdir())[-1].unlink()


@pytest.mark.parametrize(
    ("damage", "message"),
    [(drop_last_segment, "no record 2: the next one will be 1")],
)
def test_a_position_that_is_no_longer_there(
    tmp_path: Path, damage: Callable[[Path], None], message: str
) -> None:
    with Log(tmp_path, segment_bytes=1) as log:
        log.append([event("a", 1)])
        log.append([event("a", 2)])
    source = LogSource(str(tmp_path))
    positions = [position for _, position in source.batches_from(None, 1, ())]
    damage(tmp_path)
    with pytest.raises(lw.DataError, match=message):
        list(source.batches_from(positions[-1], 1, ()))
    with pytest.raises(lw.DataError, match="had read it before"):
        list(source.batches_from(positions[1], 1, ()))


def test_retention_does_not_skip_records_silently(tmp_path: Path) -> None:
    with Log(tmp_path, segment_bytes=1, retention_bytes=0) as log:
        log.append([event("a", 1)])
        source = LogSource(str(tmp_path))
        position = next(source.batches_from(None, 1, ()))[1]
        log.append([event("a", 2)])
        log.retain()
        with pytest.raises(lw.DataError, match="no record 0: the first one kept is 1"):
            list(source.batches_from(position, 1, ()))
