"""Makes the operator of a stage, and the steps that it takes for the bundles that arrive."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from lowwater.engine.graph.graph import Stage
from lowwater.engine.graph.operator import Operator
from lowwater.time import Int64Array

if TYPE_CHECKING:
    from lowwater.engine.local.worker_pool import Workers
    from lowwater.engine.stages.windowed import Windowed
    from lowwater.engine.window.operator import WindowOperator


class StageOperator(NamedTuple):
    """A stage's operator.

    Args:
        operator: The operator.
        gather: Fetches the state that workers hold, before it is saved.
        parted: Whether keys are in parts, each in a worker.
    """

    operator: Operator
    gather: Callable[[], None]
    parted: bool = False


def hosted(stage: Stage, number: int, workers: Workers | None) -> StageOperator:
    """Make the operator of a stage.

    Args:
        stage: The stage.
        number: Its number in the graph.
        workers: Compute what can be divided by keys; ``None``: all is computed here.
    """
    divided = None if workers is None else _divided(stage, number, workers)
    return divided or StageOperator(stage.work.operator(stage), _nothing)


def _divided(stage: Stage, number: int, workers: Workers) -> StageOperator | None:
    """Make an operator that has workers do a part; ``None`` if nothing can be divided."""
    # Imported on use: few runs have workers.
    from lowwater.engine.local.parted_process import PartedProcess, is_parted
    from lowwater.engine.local.worker_combiners import combines_in_workers
    from lowwater.engine.stages.computed import Computed
    from lowwater.engine.stages.windowed import Windowed

    work = stage.work
    if isinstance(work, Computed) and is_parted(work):
        return StageOperator(PartedProcess(work, number, workers), _nothing, parted=True)
    if isinstance(work, Windowed) and workers.count > 1 and combines_in_workers(stage):
        return _combining(stage, work, number, workers)
    return None


def _combining(stage: Stage, work: Windowed, number: int, workers: Workers) -> StageOperator:
    """Make an operator whose combiners workers call, which look up keys in the operator."""
    from lowwater.engine.local.worker_combiners import CombinersInWorkers
    from lowwater.engine.window.operator import WindowOperator

    windows: list[WindowOperator] = []

    def keys_of(rows: Int64Array) -> Int64Array:
        return windows[0].keys_of(rows)

    combiners = CombinersInWorkers(work.aggregates, number, workers, keys_of, signed=stage.signed)
    windows.append(WindowOperator(work.windowing, combiners.aggregates, signed=stage.signed))
    return StageOperator(windows[0], combiners.fetch)


def _nothing() -> None:
    """All state is here."""
