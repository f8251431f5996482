"""Seconds and memory of this process and of those it started (a Java machine, say)."""

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


def peak_bytes() -> int:
    """Return the most memory that this process and those it started have had, each by itself.

    Of processes that have ended it says nothing; 0 where there is no ``/proc``.
    """
    most = 0
    for number in _ours():
        try:
            lines = Path(f"/proc/{number}/status").read_text().splitlines()
        except OSError:  # it has ended meanwhile
            continue
        most += sum(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    return most


def _cpu_seconds() -> float:
    return sum(_ours().values()) / os.sysconf("SC_CLK_TCK")


def _ours() -> dict[int, int]:
    """Return the ticks of CPU of this process and of those it started, by number."""
    spent: dict[int, int] = {}
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
    ours = {os.getpid()} if spent else set()
    while more := {number for number, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return {number: spent[number] for number in ours if number in spent}
