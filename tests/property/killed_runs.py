"""Durable runs over a store in memory that can be killed between any two steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, final
from unittest import mock

import lowwater as lw
from lowwater.engine.local import durable
from lowwater.engine.local.delivery import Delivery, Place, Writer
from lowwater.engine.local.memory_budget import MemoryBudget
from lowwater.state.memory import MemoryContents, MemoryStore
from lowwater.state.store import Batch
from tests.property.graphs import Drawn


class Killed(BaseException):
    """Ends a run at once; nothing handles it."""


@final
class Fuse:
    """Kills a run after a number of calls.

    Args:
        steps: How many calls return; ``None``: all.
    """

    def __init__(self, steps: int | None) -> None:
        self._left = steps
        self.passed = 0

    def __call__(self, *_: Any) -> None:
        self.passed += 1
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                raise Killed


@final
class LastingSink:
    """An idempotent sink that survives the runs."""

    def __init__(self) -> None:
        self._last = ""
        self.rows: list[dict[str, Any]] = []
        self.late: list[dict[str, Any]] = []
        self.fuse: Callable[[], None] = Fuse(None)

    def places(self) -> Iterable[Place]:
        return ()

    def open(self, writer: Writer) -> None:
        self.fuse()

    def deliver(self, delivery: Delivery) -> None:
        self.fuse()
        if delivery.id > self._last:
            self._last = delivery.id
            self.rows += delivery.panes.to_pylist()
            self.late += [] if delivery.late is None else delivery.late.to_pylist()
        self.fuse()

    def close(self, *, complete: bool) -> None:
        pass


def run_killed(case: Drawn, kills: Sequence[int], commit_every: Any) -> list[LastingSink]:
    """Run, die after each number of steps and run again, at last to the end; return the sinks."""
    contents = MemoryContents()
    sinks = [LastingSink() for _ in case.ends]
    for steps in (*kills, None):
        attempt(contents, case, sinks, steps, commit_every)
    return sinks


def attempt(
    contents: MemoryContents,
    case: Drawn,
    sinks: Sequence[LastingSink],
    steps: int | None,
    commit_every: Any,
    **more: Any,
) -> bool:
    """Run over a store, with a sink for each end; return whether the run got to its end.

    Args:
        contents: What is in the store.
        case: What to run.
        sinks: Where its ends write.
        steps: After how many steps it dies; ``None``: it does not.
        commit_every: When it commits.
        **more: Further options of the run.
    """
    fuse = Fuse(steps)
    for sink in sinks:
        sink.fuse = fuse
    ends = [end.write_to(sink) for end, sink in zip(case.ends, sinks, strict=True)]
    try:
        with _over(contents, fuse):
            lw.run(
                *ends, state="state", commit_every=commit_every, clock=case.clock,
                on_error="raise", progress=fuse, **case.options, **more,
            )  # fmt: skip
    except Killed:
        return False
    return True


@contextmanager
def _over(contents: MemoryContents, fuse: Fuse) -> Iterator[None]:
    """Replace the store of durable runs by one in memory that may die around each commit."""

    class Mortal(MemoryStore):  # type: ignore[misc]  # final, but for this test
        def commit(self, batch: Batch) -> None:
            fuse()
            super().commit(batch)
            fuse()

    with (
        mock.patch.object(MemoryBudget, "open", return_value=Mortal(contents)),
        mock.patch.object(durable, "on_point", fuse),
    ):
        yield
