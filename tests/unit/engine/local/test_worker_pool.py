"""Workers of a run: who answers, and that each is woken, however long a request is."""

from __future__ import annotations

import os
import select
import sys
from typing import Any

import pytest

from lowwater.engine.local.worker_pool import Bell, Request, Workers


class Echo:
    """Answers with its number, its process and what it was asked."""

    def __init__(self, worker: int) -> None:
        self.worker = worker

    def answer(self, request: Request) -> Any:
        return self.worker, os.getpid(), request[0]


def test_the_first_worker_is_the_own_process_and_answers_are_in_order_of_requests() -> None:
    workers = Workers(3)
    workers.add("echo", Echo)
    try:
        found = workers.ask("echo", {2: ("c",), 0: ("a",), 1: ("b",)})
        assert [(worker, what) for worker, _, what in found] == [(2, "c"), (0, "a"), (1, "b")]
        assert len({process for _, process, _ in found}) == 3
        assert found[1][1] == os.getpid()
        assert workers.ask("echo", {2: ("again",)}) == [(2, found[0][1], "again")]
    finally:
        workers.close()


@pytest.mark.skipif(sys.platform != "linux", reason="a worker is woken by its pipe there")
@pytest.mark.parametrize("length", [1, 1 << 15, 1 << 16, 1 << 18, 1 << 22])
def test_a_bell_wakes_a_worker_that_looks_at_nothing_else(
    length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def strict(self: Bell, _: Any) -> None:
        event = self._event
        assert event is not None
        bell = select.poll()
        bell.register(event, select.POLLIN)
        if not bell.poll(20_000):
            os._exit(3)
        os.eventfd_read(event)

    monkeypatch.setattr(Bell, "wait", strict)
    workers = Workers(2)
    workers.add("echo", Echo)
    try:
        for _ in range(3):
            ((_, _, what),) = workers.ask("echo", {1: (b"x" * length,)})
            assert what == b"x" * length
    finally:
        workers.close()
