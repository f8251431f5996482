"""A process: user-defined state and timers, per key or per key and window."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from lowwater.engine.aggregates import AggregateSpec
from lowwater.engine.graph.described import described, repr_text
from lowwater.engine.graph.finding import Finding, Upstream
from lowwater.engine.graph.graph import Stage
from lowwater.engine.graph.input_types import InputTypes
from lowwater.engine.graph.operator import Operator
from lowwater.engine.graph.outline import outline
from lowwater.engine.process.definition import Definition
from lowwater.engine.process.outputs import Order
from lowwater.engine.records.columns import Column
from lowwater.engine.records.stage_bundle import StageBundle
from lowwater.engine.records.steps import Bundle
from lowwater.engine.stages.kind import NO_AGGREGATES, StageKind
from lowwater.engine.window.windowing import Windowing
from lowwater.errors import InvalidArgument
from lowwater.time import Int64Array, format_duration


@final
@dataclass(frozen=True, slots=True)
class Computed(StageKind):
    """The work of a process.

    Args:
        process: The user's object.
        windowing: The windows and their lateness; ``None`` for a process without windows.
        outputs: The tags of its outputs, the main one first.
        retracts: Whether it emits retractions (S-K12).
        lateness_us: How far below the output watermark it may emit by itself, in microseconds.
        order: Whether records come in order of arrival or of event time (S-K13).
    """

    process: object
    windowing: Windowing | None
    outputs: tuple[str, ...]
    retracts: bool = False
    lateness_us: int = 0
    order: Order = "arrival"

    stored_as: ClassVar[str] = "process"
    noun: ClassVar[str] = "process"
    spills: ClassVar[bool] = False
    aggregates: ClassVar[Mapping[str, AggregateSpec]] = NO_AGGREGATES

    def lateness_behind(self, upstream_us: Callable[[], int]) -> int:
        if self.order == "event_time":
            return self.lateness_us  # it accepts no late records
        accepted = upstream_us() if self.windowing is None else self.windowing.lateness_us
        return max(accepted, self.lateness_us)

    def operator(self, stage: Stage) -> Operator:
        from lowwater.engine.process.operator import ProcessOperator

        return ProcessOperator(self.process, windowing=self.windowing, order=self.order)

    def step(
        self, stage: Stage, incoming: StageBundle, kept: Int64Array | None
    ) -> tuple[Bundle, Any]:
        from lowwater.engine.process.operator import InputBundle

        kinds = _kinds(incoming) if stage.signed else {}
        values = {**incoming.columns(), **kinds, **incoming.bundle.values}
        bundle = incoming.with_values(values, kept)
        return bundle, InputBundle(incoming.nth, bundle)

    def described(self) -> dict[str, Any]:
        definition = self._definition()
        return {
            "process": definition.name,
            "cells": {name: described(cell) for name, cell in definition.cells.items()},
            "timers": {name: repr_text(timer) for name, timer in definition.timers.items()},
            "outputs": list(definition.outputs),
            # Older states have neither.
            **({"retracts": True} if definition.retracts else {}),
            **({"order": self.order} if self.order != "arrival" else {}),
        }

    def outline(self, stage: Stage) -> str:
        before = outline(
            stage.inputs, stage.key_names, self.windowing, deduplication=stage.deduplication
        )
        order = "" if self.order == "arrival" else f", order={self.order!r}"
        return f"{before} → process({type(self.process).__name__}{order})"

    def summary(self, stage: Stage) -> Iterator[str]:
        yield f"process {type(self.process).__name__}"
        if self.order != "arrival":
            yield "in event-time order"
        if len(self.outputs) > 1:
            yield f"outputs {', '.join(self.outputs)}"
        if self.retracts:
            yield "retracts what it emitted"
        if self.lateness_us:
            yield f"emits up to {format_duration(self.lateness_us)} late"
        for name, timer in self._definition().timers.items():
            yield f"timer {name}, of {timer.domain} time"

    def _definition(self) -> Definition:
        return Definition.of(self.process, self.windowing)

    def emitted_types(self, stage: Stage, types: InputTypes) -> None:
        """Return nothing: only the process knows what it emits."""

    def findings(self, stage: Stage, where: str, upstream: Sequence[Upstream]) -> Iterator[Finding]:
        if self.order == "event_time" and any(flow.is_blind for flow in upstream):
            yield Finding(
                "warning",
                "records wait until the watermark passes them, and there is no watermark",
                where,
                "Give the source a watermark",
            )
        definition = self._definition()
        timers = [name for name, timer in definition.timers.items() if timer.domain == "event"]
        if timers and self.order == "arrival" and not definition.vectorised:
            yield Finding(
                "note",
                f"the timer {timers[0]!r} fires when the watermark passes its time, and records "
                "come as they arrive: one that sets it again moves it, even if its own time is "
                "after the timer's; so recorded data, of which much arrives at once, loses alarms",
                where,
                'Use process(..., order="event_time") if an alarm depends on what comes when',
            )
        if self.windowing is None and any(flow.is_endless for flow in upstream):
            yield Finding(
                "note",
                "a process without windows keeps its state until it clears it",
                where,
                "Clear state with a timer, or use windows",
            )
        if stage.signed:
            yield Finding(
                "note",
                "it receives upstream retractions as records with kind 'retract'",
                where,
                "Check the column kind in the process",
            )


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
