"""What the pipelines that are killed have in common: each is a process that is told how to die.

``python -m tests.crash.NAME FOLDER HOW [cold]``, where HOW is ``none``, ``alarm:MICROSECONDS``
(die at that instant), ``opening:MICROSECONDS`` (die so long after the state begins to be opened) or
``point:NAME:COUNT`` (die when the named point is passed for that time). With ``cold``, no window
stays in memory that can be spared.
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
from lowwater.engine.local import durable
from lowwater.engine.local import memory_budget as _memory_budget
from lowwater.engine.window import spilling as _cold
from lowwater.pipeline.outputs import Writing
from lowwater.state.rocks import RocksStore


@final
@dataclass(frozen=True)
class Told:
    """What the process was told.

    Args:
        folder: Where it works: it holds ``in``; ``state`` and ``out`` are to be made.
        memory_limit: For the run.
        began: When it began to work, by the stopwatch.
    """

    folder: Path
    memory_limit: int | None
    began: float

    def run(self, *ends: Writing, bundle_size: int) -> None:
        """Run to the end or to death; note at the end what was counted, and how long it took."""
        metrics: Metrics = lw.run(
            *ends, state=self.folder / "state", commit_every="bundle",
            memory_limit=self.memory_limit, bundle_size=bundle_size, progress=False,
        )  # fmt: skip
        (self.folder / "out" / "metrics.json").write_text(json.dumps(metrics.remember()))
        (self.folder / "seconds").write_text(str(time.perf_counter() - self.began))


def told() -> Told:
    """Return what the command line says, and be ready to die as it says."""
    folder, how = Path(sys.argv[1]), sys.argv[2]
    (folder / "out").mkdir(exist_ok=True)
    limit = None
    if "cold" in sys.argv[3:]:
        _memory_budget._LEAST, _cold.AT_ONCE, limit = 0, 20, 4096
    kind, _, rest = how.partition(":")
    if kind == "point":
        name, _, count = rest.rpartition(":")
        _die_at_point(name, int(count))
    elif kind == "opening":
        _die_in_opening(int(rest))
    elif kind == "alarm":
        _die_after(int(rest))
    return Told(folder, limit, time.perf_counter())


def _die_after(micros: int) -> None:
    # Nobody handles it, so the kernel ends the process there and then.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, micros / 1e6)


def _die_in_opening(micros: int) -> None:
    opened = RocksStore._open_to_write

    def opening(self: RocksStore) -> None:
        _die_after(micros)
        opened(self)

    RocksStore._open_to_write = opening  # type: ignore[method-assign]  # it is over in a moment


def _die_at_point(name: str, count: int) -> None:
    left = count

    def on_point(point: str) -> None:
        nonlocal left
        if point == name:
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

    durable.on_point = on_point
