"""Seconds by the wall and of CPU, of this process and of those it started (a Java machine, say)."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, final


@final
class Stopwatch:
    """``with Stopwatch() as watch: ...``, then ``watch.seconds`` and ``watch.cpu``.

    ``cpu`` is 0 where there is no ``/proc``. It counts processes that live at both ends.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.cpu = 0.0

    def __enter__(self) -> Stopwatch:
        self._cpu = _cpu_seconds()
        self._began = time.perf_counter()
        return self

    def __exit__(self, *_: Any) -> None:
        self.seconds = time.perf_counter() - self._began
        self.cpu = _cpu_seconds() - self._cpu


def _cpu_seconds() -> float:
    spent: dict[int, float] = {}
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name, in brackets, may hold anything; what follows it is plain.
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        number = int(entry.parent.name)
        parents[number] = int(fields[1])
        spent[number] = int(fields[11]) + int(fields[12])
    ours = {os.getpid()}
    grew = True
    while grew:
        more = {number for number, parent in parents.items() if parent in ours} - ours
        ours |= more
        grew = bool(more)
    return sum(spent.get(number, 0) for number in ours) / os.sysconf("SC_CLK_TCK")
