"""The record of a run: what only grows in it is stored by what is new."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowwater.engine.graph.sources import GrowingMap
from lowwater.engine.local.run_record import GROWN, RUN, StoredRun, read_run, rewrite_run
from lowwater.engine.records.key_hash import KEY_GROUPS
from lowwater.errors import StateError
from lowwater.state.codec import decode, encode
from lowwater.state.formats import FORMATS
from lowwater.state.key_layout import prefix_range
from lowwater.state.memory import MemoryStore
from lowwater.state.rocks import RocksStore
from lowwater.state.store import Batch, Put
from tests.unit.engine.local.durable_runs import Stopped, pipeline, stopping, write_file


def record_of(**positions: Any) -> dict[str, Any]:
    source = {"bundles": 0, "learned": {}, "ended": False}
    return {
        "layout": FORMATS["the run record"],
        "state_id": "id",
        "epoch": 1,
        "outputs": [],
        "outputs_given": 0,
        "moved": [],
        "openings": [],
        "description": {},
        "stages": {},
        "key_groups": KEY_GROUPS,
        "run": {
            "sources": {name: {**source, "position": at} for name, at in positions.items()},
            "between": {},
            "metrics": {},
            "ended": False,
        },
    }


def written_bytes(batch: Batch) -> int:
    """Return how many bytes a batch writes of the record of a run."""
    rows = [
        row
        for put in batch.changes()
        if isinstance(put, Put)
        for row in zip(put.keys, put.values, strict=True)
    ]
    return sum(len(value) for key, value in rows if key == RUN or key.startswith(GROWN))


def test_an_extension_leaves_what_it_extends() -> None:
    first = GrowingMap({"a": 1})
    second = first.extended("b", 2)
    third = first.extended("b", 3)  # the second way to go on from the first
    assert [dict(one) for one in (first, second, third)] == [
        {"a": 1}, {"a": 1, "b": 2}, {"a": 1, "b": 3}
    ]  # fmt: skip
    assert "b" not in first
    with pytest.raises(KeyError):
        first["b"]
    with pytest.raises(KeyError):
        second.extended("a", 5)
    assert second.continues(first)
    assert not first.continues(second)
    assert not third.continues(first)
    assert (second.since(1), second.since(2)) == ([["b", 2]], [])


STEPS = st.lists(st.sampled_from(["one", "other", "commit", "restart", "anew"]), max_size=30)


@given(STEPS)
def test_what_is_stored_is_what_there_was(steps: list[str]) -> None:
    """Whatever grows between commits, restarts and changes of what was there before."""
    store, grown = MemoryStore(), {"one": GrowingMap(), "other": GrowingMap()}
    stored, count = StoredRun(None), 0
    committed: dict[str, dict[str, Any]] = {"one": {}, "other": {}}
    for step in [*steps, "commit", "restart"]:
        record = record_of(
            # A source has no position before it was read, and either may be read first.
            one={"files": grown["one"], "at": count} if grown["one"] else None,
            two={"x": grown["other"]} if grown["other"] else None,
        )
        batch = Batch()
        if step in grown:
            count += 1
            grown[step] = grown[step].extended(f"file {count}", [count, None])
        elif step == "commit":
            stored.write(batch, record)
            store.commit(batch)
        elif step == "anew":
            grown["one"] = GrowingMap((name, [0, 0]) for name in grown["one"])
        elif (found := read_run(store, "state")) is not None:
            stored = StoredRun(found)
            last = found["run"]["sources"]
            grown["one"] = (last["one"]["position"] or {"files": GrowingMap()})["files"]
            grown["other"] = (last["two"]["position"] or {"x": GrowingMap()})["x"]
            if last["one"]["position"] is not None:
                count = last["one"]["position"]["at"]
            assert {name: dict(one) for name, one in grown.items()} == committed
        if step == "commit":
            committed = {name: dict(one) for name, one in grown.items()}


def test_a_commit_writes_what_is_new() -> None:
    store, stored, files = MemoryStore(), StoredRun(None), GrowingMap()
    sizes = []
    for number in range(2_000):
        files = files.extended(f"a/rather/long/path/to/file-{number:06d}.jsonl", [100, 7, 8])
        batch = Batch()
        stored.write(batch, record_of(source={"done": files}))
        sizes.append(written_bytes(batch))
        store.commit(batch)
    assert max(sizes[1:]) - min(sizes[1:]) < 20
    batch = Batch()
    rewrite_run(batch, record_of(source={"done": files}))
    store.commit(batch)
    assert len(list(store.scan(*prefix_range(GROWN)))) == 1
    found = read_run(store, "state")
    assert found is not None
    assert len(found["run"]["sources"]["source"]["position"]["done"]) == 2_000


@pytest.mark.parametrize("what", ["gone", "first gone", "more", "count"])
def test_damage_is_told(what: str) -> None:
    store, stored, files = MemoryStore(), StoredRun(None), GrowingMap()
    for number in range(3):
        files = files.extended(f"file {number}", [1, 1, 1])
        batch = Batch()
        stored.write(batch, record_of(source={"done": files}))
        store.commit(batch)
    batch, keys = Batch(), [key for key, _ in store.scan(*prefix_range(GROWN))]
    assert len(keys) == 3
    if what == "more":
        batch.put([keys[-1][:-8] + b"\x80" + bytes(6) + b"\x03"], [encode([["x", [1, 1, 1]]])])
    elif what == "count":
        (value,) = store.get([RUN])
        assert value is not None
        batch.put([RUN], [encode({**decode(value), "grown": []})])
    else:
        batch.delete([keys[0 if what == "first gone" else -1]])
    store.commit(batch)
    with pytest.raises(StateError, match="the record of the run cannot be read"):
        read_run(store, "state")


def test_a_run_over_many_files(tmp_path: Path) -> None:
    """Stopped on the way and resumed, the last commits cost what the first ones do."""
    for number in range(120):
        write_file(tmp_path / "in" / f"{number:03d}.parquet", number, rows=5)
    sizes: list[int] = []
    commit = RocksStore.commit

    def measured(store: RocksStore, batch: Batch) -> None:
        sizes.append(written_bytes(batch))
        commit(store, batch)

    written = pipeline(tmp_path / "in").write_jsonl(tmp_path / "out")
    options: Any = {"state": tmp_path / "state", "commit_every": "bundle", "progress": False}
    with mock.patch.object(RocksStore, "commit", measured):
        with stopping("before forgetting", 60), pytest.raises(Stopped):
            written.run(**options)
        written.run(**options)
    steady = sorted([*sizes[5:58], *sizes[65:]])
    assert steady[-1] < 1.3 * steady[0] + 200
    assert len(sizes) > 120
