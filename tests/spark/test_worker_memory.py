"""A worker's collector is spared modules, also those that are loaded late, but no state."""

from __future__ import annotations

import gc
import sys
import types
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from lowwater.spark import worker_memory
from lowwater.spark.level_call import LIVE
from lowwater.spark.worker_memory import spare_the_collector


class Ring:
    """Refers to itself, as much of a key group's state does: only the collector frees it."""

    def __init__(self) -> None:
        self.ring = self


@pytest.fixture(autouse=True)
def _as_in_a_new_worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(worker_memory._Spared, "modules", 0)
    yield
    gc.unfreeze()
    LIVE.clear()


def _import_many(monkeypatch: pytest.MonkeyPatch, prefix: str) -> None:
    for at in range(200):
        monkeypatch.setitem(sys.modules, f"{prefix}{at}", types.ModuleType(f"{prefix}{at}"))


def test_objects_are_set_aside_once(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen: list[int] = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(1))
    spare_the_collector()
    spare_the_collector()
    assert len(frozen) == 1


def test_modules_that_are_loaded_later_are_set_aside_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """So are the compiled kernels, which are loaded after some thousand records."""
    spare_the_collector()
    before = gc.get_freeze_count()
    _import_many(monkeypatch, "late")
    spare_the_collector()
    assert gc.get_freeze_count() >= before + 200


def test_no_state_is_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is set aside and refers to itself is never freed: state that a worker drops must be."""
    spare_the_collector()
    held: Any = Ring()
    seen = weakref.ref(held)
    LIVE.put("query", 1, 0, b"stamp", held)
    del held
    _import_many(monkeypatch, "more")
    spare_the_collector()
    assert seen() is None
    assert LIVE.take("query", 1, 0, b"stamp") is None
