"""The option ``workers=`` of a run: how many processes call the user's Python."""

from __future__ import annotations

import os
from typing import Any

from lowwater.engine.graph.graph import Graph, Stage
from lowwater.engine.local.parted_process import is_parted
from lowwater.engine.local.worker_combiners import combines_in_workers
from lowwater.engine.local.worker_pool import Workers
from lowwater.engine.local.worker_steps import python_steps
from lowwater.engine.process.key_parts import PARTS
from lowwater.engine.stages.computed import Computed
from lowwater.errors import InvalidArgument, PipelineWarning, describe, warn


def workers_of(value: Any, graph: Graph, memory: int | None) -> Workers | None:
    """Return the workers of a run; ``None`` if they would have nothing to do.

    Args:
        value: The option.
        graph: The graph of the run.
        memory: The limit of memory of the run, in bytes; ``None`` without one.

    Raises:
        InvalidArgument: It is no number of workers.
    """
    if value != "auto" and not (type(value) is int and 1 <= value <= PARTS):
        raise InvalidArgument(
            f'{describe("workers", value)} must be 1 to {PARTS}, or "auto"',
            where="run",
            hint='Write workers="auto" for one for each processor',
        )
    if not python_steps(graph) and not any(_has_work(stage, memory) for stage in graph.stages):
        if value != "auto":
            warn(
                PipelineWarning,
                f"{describe('workers', value)} changes nothing: the pipeline has no Python that "
                "workers would call: map, filter, flat_map or key_by with a function; a process "
                "with on_record; or a combiner in windows, without a limit "
                "of memory",
                where="run",
                hint="Leave it out",
            )
        return None
    if memory is not None and any(combines_in_workers(stage) for stage in graph.stages):
        warn(
            PipelineWarning,
            "a combiner in windows is called in the run itself, not by workers: with memory_limit= "
            "its accumulators leave memory one by one",
            where="run",
            hint="Leave memory_limit= out to have workers call it",
        )
    return Workers(min(_processors(), PARTS) if value == "auto" else value)


def _has_work(stage: Stage, memory: int | None) -> bool:
    """Return whether workers have something to do for a stage."""
    if isinstance(stage.work, Computed):
        return is_parted(stage.work)
    return memory is None and combines_in_workers(stage)


def _processors() -> int:
    """Return how many processors this process may use."""
    may_use = getattr(os, "sched_getaffinity", None)
    return os.cpu_count() or 1 if may_use is None else len(may_use(0))
