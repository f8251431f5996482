"""Whatever tasks do, in whatever order: a version that may be opened is what it was written as.

The model of a cluster: a line of versions that its bookkeeping knows, one for each batch; tasks
open one of them and may be slow, fail, win, or come too late; the cluster may go back some batches.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from pyarrow import fs

from lowwater.errors import StateError
from lowwater.state.key_layout import END
from lowwater.state.store import Batch
from lowwater.state.versions.database import Database, close_shelves
from lowwater.state.versions.history import GroupStore, Versions

_RETAIN = 3
_KEYS = [bytes([n]) for n in range(6)]
_CHANGES = st.dictionaries(st.sampled_from(_KEYS), st.none() | st.binary(max_size=3), max_size=4)
Rows = dict[bytes, bytes]


class Cluster(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self._directory = TemporaryDirectory()
        self.cache = Path(self._directory.name) / "cache"
        self.versions = self.place(Path(self._directory.name))
        self.line: list[str | None] = [None]  # by batch: its state before; the last is the truth
        self.written: dict[str | None, Rows] = {None: {}}
        self.tasks: list[tuple[GroupStore, int]] = []
        self.candidates: list[str] = []

    def place(self, directory: Path) -> Versions:
        return Versions(directory / "root", cache=self.cache, retain=_RETAIN)

    @rule()
    def begin(self) -> None:
        if len(self.tasks) < 4:
            store = self.versions.open(0, self.line[-1])
            assert dict(store.scan(b"", END)) == self.written[self.line[-1]]
            self.tasks.append((store, len(self.line) - 1))

    @precondition(lambda self: self.tasks)
    @rule(data=st.data(), changes=_CHANGES, wins=st.booleans())
    def end(self, data: st.DataObject, changes: dict[bytes, bytes | None], wins: bool) -> None:
        store, number = self.tasks.pop(data.draw(st.integers(0, len(self.tasks) - 1)))
        before = self.written[store.version]
        version = store.commit(_batch(changes), number)
        after = {k: v for k, v in (before | changes).items() if v is not None}
        assert self.written.setdefault(version, after) == after
        store.close()
        if wins and number == len(self.line) - 1:
            self.line.append(version)

    @precondition(lambda self: self.tasks)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        store, number = self.tasks.pop(data.draw(st.integers(0, len(self.tasks) - 1)))
        before = len(self.versions_at_root())
        with pytest.MonkeyPatch.context() as patched, store:
            patched.setattr(Database, "_publish", _broken)
            with pytest.raises(StateError, match="the wire was cut"):
                store.commit(_batch({b"x": b"y"}), number)
        assert len(self.versions_at_root()) == before

    @precondition(lambda self: self.tasks)
    @rule(data=st.data())
    def collect(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.tasks))[0].collect()

    @rule(batches=st.integers(1, _RETAIN))
    def go_back(self, batches: int) -> None:
        """Restart from an earlier batch, when no task of before is at work any more."""
        for store, _ in self.tasks:
            store.close()
        self.tasks.clear()
        self.line = self.line[: max(1, len(self.line) - batches)]

    @rule()
    def move(self) -> None:
        """Go on in another process, on another machine."""
        for store, _ in self.tasks:
            store.close()
        self.tasks.clear()
        close_shelves()
        shutil.rmtree(self.cache, ignore_errors=True)

    @rule(batches=st.integers(0, _RETAIN))
    def look(self, batches: int) -> None:
        version = self.line[max(0, len(self.line) - 1 - batches)]
        with self.versions.open(0, version) as store:
            assert dict(store.scan(b"", END)) == self.written[version]
            assert store.get(_KEYS) == [self.written[version].get(key) for key in _KEYS]

    @invariant()
    def tasks_at_work_see_their_own(self) -> None:
        for store, _ in self.tasks:
            assert dict(store.scan(b"", END)) == self.written[store.version]

    def versions_at_root(self) -> list[str]:
        return [name for name in self.sizes() if name.endswith(".version")]

    def sizes(self) -> dict[str, int]:
        from lowwater.state.versions.root import root_at

        return root_at(self.versions.root, self.versions.filesystem).sizes("group-00000")

    def teardown(self) -> None:
        for store, _ in self.tasks:
            store.close()
        for version in self.line[-1 - _RETAIN :]:
            with self.versions.open(0, version) as store:
                assert dict(store.scan(b"", END)) == self.written[version]
        close_shelves()
        self._directory.cleanup()


class RemoteCluster(Cluster):
    def place(self, directory: Path) -> Versions:
        mock = fs._MockFileSystem()
        return Versions("state", cache=self.cache, filesystem=mock, retain=_RETAIN)


def _batch(changes: dict[bytes, bytes | None]) -> Batch:
    batch = Batch()
    for key, value in changes.items():
        if value is None:
            batch.delete([key])
        else:
            batch.put([key], [value])
    return batch


def _broken(*_: Any) -> None:
    raise OSError("the wire was cut")


@pytest.mark.slow(reason="any schedule of two runs")
@pytest.mark.parametrize("cluster", [Cluster, RemoteCluster])
def test_any_schedule(cluster: type[Cluster]) -> None:
    run_state_machine_as_test(cluster, settings=settings(stateful_step_count=40))
