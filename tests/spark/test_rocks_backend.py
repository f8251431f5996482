"""State in versions: the cell names the truth, whoever else wrote what since."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import lowwater as lw
from lowwater.errors import InvalidArgument, StateError
from lowwater.spark import InlineBackend, RocksBackend, StateBackend
from lowwater.spark.key_group import KeyGroup
from lowwater.spark.shuffle import numbers_of_groups
from lowwater.spark.state_backends import GroupCell, LiveOperators
from lowwater.spark.versioned import CHECKPOINTS
from lowwater.state.versions.database import close_shelves
from tests.spark.test_state_backends import CASE, shown, shuffle_rows
from tests.spark.test_to_spark import TYPES, cut, everything, plain, run, stream, table, write

STEPS = len(list(CASE.micro_batches()))


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[RocksBackend]:
    yield RocksBackend(str(tmp_path / "state"), cache=str(tmp_path / "cache"))
    close_shelves()


def group_with(backend: StateBackend) -> KeyGroup:
    return replace(CASE.key_group(), backend=backend)


def through(group: KeyGroup, *, live: bool) -> list[Any]:
    """Take all micro-batches, with the operators of the process or each time from the cell."""
    held, cell, rows = LiveOperators(), None, []
    for at in range(STEPS):
        given, cell, _ = group.step(
            0, cell, shuffle_rows(at), 0, live=held if live else LiveOperators()
        )
        rows.append(shown(given))
    return rows


@pytest.mark.parametrize("live", [True, False])
def test_both_backends_give_the_same(backend: RocksBackend, live: bool) -> None:
    rows = through(group_with(backend), live=live)
    assert rows == through(group_with(InlineBackend()), live=live)
    assert any(rows)


def test_a_retried_task_begins_where_the_cell_says(backend: RocksBackend) -> None:
    """Attempts leave an operator and a version of their own behind: neither is gone on from."""
    group, live = group_with(backend), LiveOperators()
    _, cell, _ = group.step(0, None, shuffle_rows(1), 0, live=live)
    first, zombie, _ = group.step(0, cell, shuffle_rows(2), 0, live=live)
    group.step(0, zombie, shuffle_rows(3), 0, live=live)
    again, after, _ = group.step(0, cell, shuffle_rows(2), 0, live=live)
    assert zombie.content != after.content
    assert shown(again) == shown(first) != []
    close_shelves()  # as another executor begins
    elsewhere, _, _ = group.step(0, after, shuffle_rows(3), 0, live=LiveOperators())
    here, _, _ = group.step(0, after, shuffle_rows(3), 0, live=live)
    assert shown(elsewhere) == shown(here) != []


def test_a_lost_cache_is_rebuilt(backend: RocksBackend, tmp_path: Path) -> None:
    group = group_with(backend)
    _, cell, _ = group.step(0, None, shuffle_rows(1), 0, live=LiveOperators())
    wanted, _, _ = group.step(0, cell, shuffle_rows(2), 0, live=LiveOperators())
    close_shelves()
    shutil.rmtree(tmp_path / "cache")
    given, _, _ = group.step(0, cell, shuffle_rows(2), 0, live=LiveOperators())
    assert shown(given) == shown(wanted) != []
    assert given.column("state_bytes")[0].as_py() > 1_000  # all of it, not the version's name


def test_old_versions_are_collected(backend: RocksBackend, tmp_path: Path) -> None:
    group = group_with(replace(backend, retain=3, collect_every=4))
    kept, cells = LiveOperators(), [None]
    for _ in range(40):
        cell: GroupCell | None = cells[-1]
        _, cell, _ = group.step(0, cell, shuffle_rows(1), 0, live=kept)
        cells.append(cell)  # type: ignore[arg-type]
    folder = tmp_path / "state" / "group-00000"
    manifests = list(folder.glob("*.version"))
    assert 4 <= len(manifests) <= 3 + 4 + 1
    for cell in cells[-4:]:  # what may be run again can be
        group.step(0, cell, shuffle_rows(1), 0, live=LiveOperators())
    with pytest.raises(StateError, match="is missing"):
        group.step(0, cells[1], shuffle_rows(1), 0, live=LiveOperators())


def test_a_lost_or_foreign_version_is_an_error_that_says_so(
    backend: RocksBackend, tmp_path: Path
) -> None:
    group = group_with(backend)
    _, cell, _ = group.step(0, None, shuffle_rows(1), 0, live=LiveOperators())
    with pytest.raises(StateError, match="names no version"):
        group.step(0, replace(cell, content=b"\xff"), shuffle_rows(2), 0, live=LiveOperators())
    close_shelves()
    shutil.rmtree(tmp_path / "state")
    with pytest.raises(StateError, match="missing") as caught:
        group.step(0, cell, shuffle_rows(2), 0, live=LiveOperators())
    assert caught.value.hint


def test_it_is_a_value_that_can_be_shipped(backend: RocksBackend) -> None:
    assert pickle.loads(pickle.dumps(backend)) == backend
    assert Path(RocksBackend("relative").location).is_absolute()
    assert RocksBackend("s3://bucket/state").location == "s3://bucket/state"
    with pytest.raises(InvalidArgument, match="collect_every"):
        RocksBackend("state", collect_every=0)


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
    assert {one.name for one in query.iterdir()} == {f"group-{n:05d}" for n in numbers_of_groups(3)}
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
        made(state_location=tmp_path)
    with pytest.raises(InvalidArgument, match="not known"):
        made(state="postgres")
