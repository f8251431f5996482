"""State in versions: the cell names the truth, whoever else wrote what since."""

from __future__ import annotations

import pickle
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lowwater as lw
from lowwater.engine.local import memory_budget
from lowwater.errors import InvalidArgument, StateError
from lowwater.spark import GrowingBackend, InlineBackend, RocksBackend, StateBackend
from lowwater.spark.level_call import LevelCall
from lowwater.spark.state_backends import GroupCell, Live
from lowwater.spark.versioned import CHECKPOINTS
from lowwater.state.versions.database import close_shelves
from tests.s3_server import S3Server
from tests.spark.test_state_backends import BATCHES, CASE, shown, size_told, step
from tests.spark.test_to_spark import (
    SECOND,
    START,
    TYPES,
    cut,
    everything,
    plain,
    run,
    stream,
    table,
    write,
)


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[RocksBackend]:
    yield RocksBackend(str(tmp_path / "state"), cache=str(tmp_path / "cache"))
    close_shelves()


def stepped(call: LevelCall) -> Iterator[tuple[Any, GroupCell]]:
    """Take all micro-batches with what the cell has; yield the rows, and the cell."""
    cell = None
    for at in range(len(BATCHES)):
        given, cell = step(call, cell, at)
        yield given, cell


def through(backend: StateBackend, *, keeps: bool) -> list[Any]:
    """Take all micro-batches, with what the process holds or each time from the cell."""
    call, cell, rows = CASE.call(backend), None, []
    live: Live[Any] = Live()
    for at in range(len(BATCHES)):
        given, cell = step(call, cell, at, live if keeps else None)
        rows.append(shown(given))
    return rows


@pytest.mark.parametrize("keeps", [True, False])
def test_both_backends_give_the_same(backend: RocksBackend, keeps: bool) -> None:
    rows = through(backend, keeps=keeps)
    assert rows == through(InlineBackend(), keeps=keeps)
    assert any(rows)


def test_state_in_an_object_store(s3_server: S3Server, tmp_path: Path) -> None:
    """Each micro-batch in another process: nothing but the cell and the objects is there."""
    backend = RocksBackend(s3_server.uri(f"{s3_server.bucket()}/state"), cache=str(tmp_path))
    call, cell, rows = CASE.call(backend), None, []
    for at in range(len(BATCHES)):
        given, cell = step(call, cell, at)
        rows.append(shown(given))
        close_shelves()
        shutil.rmtree(tmp_path)
    assert rows == through(InlineBackend(), keeps=False)


def test_state_that_outgrows_its_cell_moves(backend: RocksBackend) -> None:
    """Whatever attempts are made at the move, and before and after it."""
    sizes = [size_told(given) for given, _ in stepped(CASE.call(InlineBackend()))]
    call = CASE.call(GrowingBackend(backend, sorted(sizes)[len(sizes) // 2]), memory=1)
    wanted = through(InlineBackend(), keeps=True)
    live: Live[Any] = Live()
    cell, apart = None, []
    for at in range(len(BATCHES)):
        step(call, cell, at, live)  # a zombie
        given, after = step(call, cell, at, live)
        again, other = step(call, cell, at)  # as another executor does it
        assert shown(given) == shown(again) == wanted[at]
        cell = (after, other)[at % 2]
        apart.append(cell.content[:1] == b"\1")
        assert after.content[:1] == other.content[:1]
    assert apart == sorted(apart)
    assert {*apart} == {False, True}


def test_what_was_inline_is_taken_over(backend: RocksBackend) -> None:
    wanted = through(InlineBackend(), keeps=False)
    cell = None
    for at in range(2):
        _, cell = step(CASE.call(InlineBackend()), cell, at)
    assert cell is not None
    cell = GroupCell.from_row(cell.to_row(), key_groups=1, backend="auto")
    call = CASE.call(GrowingBackend(backend, 0))
    rows = []
    for at in range(2, len(BATCHES)):
        given, cell = step(call, cell, at)
        rows.append(shown(given))
    assert rows == wanted[2:]
    assert cell.content[:1] == b"\1"


def test_a_cell_that_does_not_say_where_its_state_is_is_refused(backend: RocksBackend) -> None:
    call = CASE.call(GrowingBackend(backend))
    _, cell = step(call, None, 1)
    with pytest.raises(StateError, match="where its state is"):
        step(call, replace(cell, content=b"?" + cell.content), 2)
    with pytest.raises(InvalidArgument, match="at least 0"):
        GrowingBackend(backend, -1)


def test_windows_that_left_memory_are_loaded_again(backend: RocksBackend) -> None:
    """The store of a step before is closed by then: the one that is open is read."""
    call, cell = CASE.call(backend, memory=1), None
    live: Live[Any] = Live()
    rows = []
    for at in range(len(BATCHES)):
        given, cell = step(call, cell, at, live)
        rows.append(shown(given))
        if at == 1:
            held = live.take(call.query, 1, 0, cell.stamp)
            assert held is not None
            assert [one.operator.spilled_rows for one in held.run.runs] == [2]
            live.put(call.query, 1, 0, cell.stamp, held)
    assert rows == through(InlineBackend(), keeps=True)


def test_a_retried_task_begins_where_the_cell_says(backend: RocksBackend) -> None:
    """Attempts leave a run and a version of their own behind: neither is gone on from."""
    call = CASE.call(backend)
    live: Live[Any] = Live()
    _, cell = step(call, None, 1, live)
    first, zombie = step(call, cell, 2, live)
    step(call, zombie, 3, live)
    again, after = step(call, cell, 2, live)
    assert zombie.content != after.content
    assert shown(again) == shown(first) != []
    close_shelves()  # as another executor begins
    elsewhere, _ = step(call, after, 3)
    here, _ = step(call, after, 3, live)
    assert shown(elsewhere) == shown(here) != []


def test_a_lost_cache_is_rebuilt(backend: RocksBackend, tmp_path: Path) -> None:
    call = CASE.call(backend)
    _, cell = step(call, None, 1)
    wanted, _ = step(call, cell, 2)
    close_shelves()
    shutil.rmtree(tmp_path / "cache")
    given, _ = step(call, cell, 2)
    assert shown(given) == shown(wanted) != []
    assert size_told(given) > 1_000  # all of it, not the version's name


def test_old_versions_are_collected(backend: RocksBackend, tmp_path: Path) -> None:
    call = CASE.call(replace(backend, retain=3, collect_every=4))
    live: Live[Any] = Live()
    cells: list[GroupCell] = []
    for _ in range(40):
        _, cell = step(call, cells[-1] if cells else None, 1, live)
        cells.append(cell)
    manifests = list((tmp_path / "state" / "level-1" / "group-00000").glob("*.version"))
    assert 4 <= len(manifests) <= 3 + 4 + 1
    for cell in cells[-4:]:  # what may be run again can be
        step(call, cell, 1)
    with pytest.raises(StateError, match="is missing"):
        step(call, cells[0], 1)


def test_a_lost_or_foreign_version_is_an_error_that_says_so(
    backend: RocksBackend, tmp_path: Path
) -> None:
    call = CASE.call(backend)
    _, cell = step(call, None, 1)
    with pytest.raises(StateError, match="names no version"):
        step(call, replace(cell, content=b"\xff"), 2)
    close_shelves()
    shutil.rmtree(tmp_path / "state")
    with pytest.raises(StateError, match="missing") as caught:
        step(call, cell, 2)
    assert caught.value.hint


def test_it_is_a_value_that_can_be_shipped(backend: RocksBackend) -> None:
    assert pickle.loads(pickle.dumps(backend)) == backend
    assert Path(RocksBackend("relative").location).is_absolute()
    assert RocksBackend("s3://bucket/state").location == "s3://bucket/state"
    with pytest.raises(InvalidArgument, match="collect_every"):
        RocksBackend("state", collect_every=0)


@pytest.mark.long(reason="proves again on Spark")
def test_a_stream_with_either_backend_gives_the_same(spark: Any, tmp_path: Path) -> None:
    """Stopped and started again half-way; and a checkpoint goes on with its own backend alone."""
    parts = cut(table(800), 200)

    def both(where: str, **options: Any) -> list[str]:
        folder = write(tmp_path / where, *parts[:2])
        rows = []
        for more in (parts[2:], []):
            begun = lw.from_spark(stream(spark, folder), time="at", watermark="1s")
            panes = everything(begun).to_spark(spark, types=TYPES, key_groups=3, **options)
            rows += run(panes, tmp_path / f"{where}-checkpoint")[0]
            write(folder, *more)
        return plain(rows)

    state = tmp_path / "state"
    assert both("rocks", state="rocksdb", state_location=state) == both("inline") != []
    (query,) = state.iterdir()
    (level,) = query.iterdir()
    assert level.name == "level-1"
    assert {one.name for one in level.iterdir()} == {f"group-{group:05d}" for group in range(3)}
    write(tmp_path / "rocks", parts[0])
    begun = lw.from_spark(stream(spark, tmp_path / "rocks"), time="at", watermark="1s")
    with pytest.raises(Exception, match="kept by 'rocksdb', not 'inline'"):
        run(
            everything(begun).to_spark(spark, types=TYPES, key_groups=3),
            tmp_path / "rocks-checkpoint",
        )


def test_the_location_is_known_or_asked_for(spark: Any, tmp_path: Path) -> None:
    folder = write(tmp_path / "in", table(20))

    def made(**options: Any) -> Any:
        begun = lw.from_spark(stream(spark, folder), time="at", watermark="1s")
        pipeline = begun.key_by("key").window(lw.FixedWindows("10s")).aggregate(n=lw.count())
        return pipeline.to_spark(spark, **options)

    known = Path(spark.conf.get(CHECKPOINTS))
    _, progress = run(made(state="rocksdb"), tmp_path / "checkpoint")
    assert (known / "lowwater-state" / progress[0]["id"]).is_dir()
    spark.conf.unset(CHECKPOINTS)
    try:
        with pytest.raises(InvalidArgument, match="needs a place") as caught:
            made(state="rocksdb")
        assert "all tasks reach" in str(caught.value)
    finally:
        spark.conf.set(CHECKPOINTS, str(known))
    with pytest.raises(InvalidArgument, match="state_location"):
        made(state="inline", state_location=tmp_path)
    with pytest.raises(InvalidArgument, match="not known"):
        made(state="postgres")


def sides_of_a_join(rows: int, seed: int = 3) -> tuple[pa.Table, pa.Table]:
    """Return both sides: most records have a partner, some seconds later; the last ones do.

    Those come much later, so that nothing but them is left to wait for the end.
    """
    random = np.random.default_rng(seed)
    at = np.sort(random.integers(0, 60 * SECOND, rows)) + START
    key = random.permutation(rows)
    later = at + random.integers(0, 8 * SECOND, rows)
    at[-1] = later[-1] = START + 3_600 * SECOND
    order = np.argsort(later)
    left, right = (
        pa.table({"at": pa.array(times).cast(pa.timestamp("us", "UTC")), "key": keys, name: n % 97})
        for times, keys, name, n in (
            (at, key, "l", at), (later[order], key[order], "r", at[order]),
        )
    )  # fmt: skip
    return left, right


@pytest.mark.long(reason="proves again on Spark")
@pytest.mark.usefixtures("chains")
@pytest.mark.parametrize("kind", ["by time", "tables"])
def test_keys_of_joins_leave_the_memory_of_workers(
    kind: str, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over several micro-batches and a restart, the same comes out as embedded."""
    monkeypatch.setattr(memory_budget, "_LEAST", 0)
    sides = sides_of_a_join(450)

    def joined(left: lw.Stream, right: lw.Stream) -> Any:
        if kind == "by time":
            return left.join(right, on="key", within="5s", how="outer")
        both = left.table(key="key").join(right.table(key="key").select("key", "r"), on="key")
        return both.group_by("l").aggregate(n=lw.count(), most=lw.max("r")).changes()

    parts = [cut(side, 75) for side in sides]
    rows: list[dict[str, Any]] = []
    for last in (False, True):
        streams = []
        for name, some in zip(("left", "right"), parts, strict=True):
            folder = write(tmp_path / name, *(some[3:] if last else some[:3]))
            streams.append(
                lw.from_spark(stream(spark, folder), time="at", watermark=lw.BoundedDisorder("1s"))
            )
        shown = joined(*streams).to_spark(
            spark, key_groups=2, state="rocksdb",
            state_location=str(tmp_path / "state"), memory_limit=10_000,
        )  # fmt: skip
        rows += run(shown, tmp_path / "checkpoint")[0]
    embedded = joined(
        *(lw.from_arrow(side, time="at", watermark=lw.BoundedDisorder("1s")) for side in sides)
    )
    assert net(rows) == net(embedded.to_arrow(bundle_size=75).to_pylist())


def net(rows: list[dict[str, Any]]) -> Counter[Any]:
    """Return how often each row stands in the end, whatever was retracted on the way."""
    found: Counter[Any] = Counter()
    for row in rows:
        kept = {
            name: value for name, value in row.items() if name in {"key", "l", "r", "n", "most"}
        }
        found[repr(kept)] += -1 if row.get("kind") == "retract" else 1
    return Counter({row: count for row, count in found.items() if count})
