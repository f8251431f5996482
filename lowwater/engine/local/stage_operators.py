"""Makes the operator of a stage, and the steps that it takes for the bundles that arrive."""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import replace
from typing import Any, NamedTuple, assert_never

import numpy as np

from lowwater.engine.graph.graph import (
    Computed,
    Grouped,
    Joined,
    Passed,
    Stage,
    Upserted,
    Windowed,
    WindowJoined,
)
from lowwater.engine.join.as_of import AsOfOperator
from lowwater.engine.join.interval_join import JoinOperator
from lowwater.engine.join.joining import AsOf, Joining
from lowwater.engine.join.keyed_operator import SideBundle
from lowwater.engine.join.tables import GroupOperator, UpsertOperator
from lowwater.engine.join.window_join import PairedPanes, PanedSide, WindowJoinOperator
from lowwater.engine.local.parted_process import PartedProcess, is_parted
from lowwater.engine.local.stage_input import StageBundle
from lowwater.engine.local.worker_combiners import CombinersInWorkers, combines_in_workers
from lowwater.engine.local.worker_pool import Workers
from lowwater.engine.process import ProcessOperator
from lowwater.engine.process.operator import InputBundle
from lowwater.engine.process.passing import PassingOperator
from lowwater.engine.records.batch import HIDDEN
from lowwater.engine.records.columns import Column
from lowwater.engine.records.steps import Bundle
from lowwater.engine.stages.operator import Operator
from lowwater.engine.window.operator import WindowOperator
from lowwater.errors import InternalError, InvalidArgument
from lowwater.time import Int64Array


class Hosted(NamedTuple):
    """A stage's operator.

    Args:
        operator: The operator.
        gather: Fetches the state that workers hold, before it is saved.
    """

    operator: Operator
    gather: Callable[[], None]


def hosted(stage: Stage, number: int, workers: Workers | None) -> Hosted:
    """Make the operator of a stage.

    Args:
        stage: The stage.
        number: Its number in the graph.
        workers: Compute what can be divided by keys; ``None``: all is computed here.
    """
    work = stage.work
    if workers is not None and isinstance(work, Computed) and is_parted(work):
        return Hosted(PartedProcess(work, number, workers), _nothing)
    if workers is not None and workers.count > 1 and combines_in_workers(stage):
        assert isinstance(work, Windowed)
        return _combining(stage, work, number, workers)
    return Hosted(_operator_of(stage), _nothing)


def _combining(stage: Stage, work: Windowed, number: int, workers: Workers) -> Hosted:
    """Make an operator whose combiners workers call, which look up keys in the operator."""
    windows: list[WindowOperator] = []

    def keys_of(rows: Int64Array) -> Int64Array:
        return windows[0].keys_of(rows)

    combiners = CombinersInWorkers(work.aggregates, number, workers, keys_of, signed=stage.signed)
    windows.append(WindowOperator(work.windowing, combiners.aggregates, signed=stage.signed))
    return Hosted(windows[0], combiners.fetch)


def _nothing() -> None:
    """All state is here."""


def _operator_of(stage: Stage) -> Operator:
    work, signed = stage.work, stage.signed
    match work:
        case Windowed():
            return WindowOperator(work.windowing, work.aggregates, signed=signed)
        case WindowJoined():
            pairing = PairedPanes(work.how, work.columns, signed=signed)
            return WindowJoinOperator(
                work.windowing, pairing, signed=signed, retracts=stage.retracts
            )
        case Computed():
            return ProcessOperator(work.process, windowing=work.windowing, order=work.order)
        case Joined(joining=AsOf() as as_of):
            return AsOfOperator(as_of, work.columns, signed=signed)
        case Joined(joining=Joining() as joining):
            return JoinOperator(joining, work.columns, signed=signed)
        case Passed():
            return PassingOperator(signed=signed)
        case Upserted():
            return UpsertOperator(work.rules, work.columns)
        case Grouped():
            return GroupOperator(work.aggregates)
        case _:
            raise InternalError(f"no operator does {type(work).__name__}")


def step_for(stage: Stage, incoming: StageBundle, kept: Int64Array | None) -> tuple[Bundle, Any]:
    """Return a bundle with the columns that a stage's operator reads, and the operator's step.

    Args:
        stage: The stage.
        incoming: The bundle.
        kept: The places of its elements that are no duplicates; ``None`` for all.
    """
    bundle, work, nth = incoming.bundle, stage.work, incoming.nth
    match work:
        case Windowed():
            bundle = bundle if kept is None else bundle.take(kept)
            return bundle, bundle
        case Grouped():
            values = dict(bundle.values)
        case Computed():
            kinds = _kinds(incoming) if stage.signed else {}
            values = {**columns_of_bundle(incoming), **kinds, **bundle.values}
        case WindowJoined():
            columns = _others(incoming, stage.keys_of(nth))
            if kept is not None:
                bundle = bundle.take(kept)
                columns = {name: column.take(kept) for name, column in columns.items()}
            return bundle, PanedSide(work.side_of(nth), bundle, columns)
        case Joined():
            hidden = work.columns.hidden[work.side_of(nth)]
            values = {**_others(incoming, stage.keys_of(nth), hidden), **bundle.values}
        case Passed() | Upserted():
            values = {**_others(incoming, stage.keys_of(nth)), **bundle.values}
        case _:
            assert_never(work)
    bundle = replace(bundle, values=values)
    bundle = bundle if kept is None else bundle.take(kept)
    if isinstance(work, Computed):
        return bundle, InputBundle(nth, bundle)
    if isinstance(work, Joined):
        return bundle, SideBundle(work.side_of(nth), bundle)
    return bundle, bundle


def columns_of_bundle(incoming: StageBundle, hidden: Set[str] = frozenset()) -> dict[str, Column]:
    """Return the columns of a bundle's records; of those that users never see, some."""
    start, stop = incoming.start, incoming.start + len(incoming.bundle)
    kept = incoming.admitted.kept
    return {
        name: (column if kept is None else column.take(kept)).slice(start, stop)
        for name, column in incoming.records.columns.items()
        if not name.startswith(HIDDEN) or name in hidden
    }


def _others(
    incoming: StageBundle, keys: tuple[str, ...], hidden: Set[str] = frozenset()
) -> dict[str, Column]:
    """Return the columns of a bundle's records but for the keys."""
    columns = columns_of_bundle(incoming, hidden)
    return {name: column for name, column in columns.items() if name not in keys}


def _kinds(incoming: StageBundle) -> dict[str, Column]:
    """Return a column ``kind``, for a process that reads retractions.

    Raises:
        InvalidArgument: The records already have a column of that name.
    """
    if "kind" in incoming.records.columns:
        raise kind_taken()
    signs = incoming.bundle.signs
    if signs is None:  # this input has no retractions, another input has
        return {"kind": Column.of_objects(["insert"] * len(incoming.bundle))}
    kinds = np.where(signs > 0, "insert", "retract").astype(object)
    return {"kind": Column(kinds)}


def kind_taken() -> InvalidArgument:
    """Return the error for a user column ``kind`` in the input of a process with retractions."""
    return InvalidArgument(
        "a column is named 'kind', but downstream of a stage that retracts panes this name says "
        "whether a record is an insert or a retract",
        where="process",
        hint="Rename the column",
    )
