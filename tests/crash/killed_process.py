"""The common part of the processes that a campaign kills.

``python -m tests.crash.NAME FOLDER HOW [cold]``, where HOW is ``none``, ``alarm:MICROSECONDS``
(die at that instant), ``opening:MICROSECONDS`` (die that long after the state store begins to open)
or ``point:NAME:COUNT`` (die when the named point is passed for the COUNT-th time). With ``cold``,
every window that can be spilled is.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import final

import lowwater as lw
from lowwater.engine.graph.metrics import Metrics
from lowwater.engine.keyed import spilled
from lowwater.engine.local import durable
from lowwater.engine.local import memory_budget as _memory_budget
from lowwater.engine.window import spilling as _cold
from lowwater.pipeline.outputs import Writing
from lowwater.state.rocks import RocksStore

ANNOUNCED = "announced.jsonl"
"""The file in the working folder that has the points that all its processes have come to."""


@final
@dataclass(frozen=True)
class Instructions:
    """What the command line asks for.

    Args:
        folder: The working folder: it holds ``in``; the run makes ``state`` and ``out``.
        memory_limit: For the run.
        began: When the process began to work (``time.perf_counter()``).
    """

    folder: Path
    memory_limit: int | None
    began: float

    def run(self, *outputs: Writing, bundle_size: int, parted: bool = False) -> None:
        """Run until the end or death; at the end, write the metrics and the duration.

        Args:
            outputs: What to run.
            bundle_size: Of the run.
            parted: Whether to run with workers: one, two or three, at each start another number.
        """
        starts = self.folder / "starts"
        starts.write_text((starts.read_text() if starts.exists() else "") + "x")
        workers = 1 + len(starts.read_text()) % 3 if parted else None
        metrics: Metrics = lw.run(
            *outputs, state=self.folder / "state", commit_every="bundle", workers=workers,
            memory_limit=self.memory_limit, bundle_size=bundle_size, progress=False,
        )  # fmt: skip
        (self.folder / "out" / "metrics.json").write_text(json.dumps(metrics.remember()))
        (self.folder / "seconds").write_text(str(time.perf_counter() - self.began))


def instructions() -> Instructions:
    """Parse the command line and arrange the death that it asks for."""
    folder, how = Path(sys.argv[1]), sys.argv[2]
    (folder / "out").mkdir(exist_ok=True)
    limit = None
    if "cold" in sys.argv[3:]:
        _memory_budget._LEAST, _cold.AT_ONCE, limit = 0, 20, 4096
        spilled.AT_ONCE = 5
    kind, _, rest = how.partition(":")
    name, _, count = rest.rpartition(":") if kind == "point" else ("", "", "0")
    _announce(folder / ANNOUNCED, name, int(count))
    if kind == "opening":
        _die_in_opening(int(rest))
    elif kind == "alarm":
        _die_after(int(rest))
    return Instructions(folder, limit, time.perf_counter())


def _die_after(micros: int) -> None:
    # No handler: the kernel ends the process at once.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, micros / 1e6)


def _die_in_opening(micros: int) -> None:
    opened = RocksStore._open_to_write

    def opening(self: RocksStore) -> None:
        _die_after(micros)
        opened(self)

    RocksStore._open_to_write = opening  # type: ignore[method-assign]  # it is over in a moment


def _announce(file: Path, name: str, count: int) -> None:
    """Write each point into a file before it is passed; die at one, when it comes for that time.

    Args:
        file: Where to: what is there stays.
        name: The point to die at; empty for none.
        count: Which time that is.
    """
    opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    left, parent = count, os.getpid()

    def on_point(point: str) -> None:
        nonlocal left
        if os.getpid() != parent:  # a worker, which is forked off the run
            return
        os.write(opened, (json.dumps([str(point), getattr(point, "fact", None)]) + "\n").encode())
        if point == name:
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

    durable.on_point = on_point
