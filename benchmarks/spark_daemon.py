"""Spark's Python daemon, whose workers record each task that they have run.

The benchmark wants to know which worker a key group met, and how large the workers are. Neither
depends on how this library keeps state, so it is recorded where Spark hands out tasks.
"""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark.daemon
from pyspark import TaskContext

TASKS = "LOWWATER_BENCHMARK_TASKS"
"""The environment variable with the path of the file that tasks are recorded in, a line each."""
STEP = "LOWWATER_BENCHMARK_STEP"
"""The environment variable with the number of the Python step, where each has its own workers."""

_last: list[TaskContext] = []


def _record() -> None:
    task = _last[-1]
    resident = _resident_bytes()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1_024
    line = {
        "query": task.getLocalProperty("sql.streaming.queryId") or "",
        "batch": int(task.getLocalProperty("streaming.sql.batchId") or -1),
        "stage": task.stageId(),
        "partition": task.partitionId(),
        "step": int(os.environ.get(STEP, "0")),
        "pid": os.getpid(),
        "resident_bytes": resident,
        "peak_bytes": max(resident, peak),  # the kernel counts the two at different moments
    }
    # One write of less than a page: lines of several processes do not mix.
    file = os.open(os.environ[TASKS], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, (json.dumps(line) + "\n").encode())
    finally:
        os.close(file)


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _recording(worker: Callable[..., int]) -> Callable[..., int]:
    def run(*given: Any) -> int:
        """Run one task."""
        _last.clear()
        code = worker(*given)
        if _last:
            _record()
        return code

    return run


def _keeping(set_context: Callable[[Any], None]) -> Callable[[Any], None]:
    def keep(context: Any) -> None:
        if context is not None:  # when a task ends, the worker forgets it before it returns
            _last.append(context)
        set_context(context)

    return keep


if __name__ == "__main__":
    daemon: Any = pyspark.daemon
    tasks: Any = TaskContext
    daemon.worker = _recording(daemon.worker)
    tasks._setTaskContext = _keeping(tasks._setTaskContext)
    daemon.manager()
