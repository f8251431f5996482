"""Groups records by key and window, aggregates them, and emits panes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import pyarrow as pa

from lowwater.engine.aggregates import AggregateSpec
from lowwater.engine.aggregates._base import Needs, strictest_needs
from lowwater.engine.graph.described import described_aggregates
from lowwater.engine.graph.finding import Finding, Upstream
from lowwater.engine.graph.graph import MAIN, Stage
from lowwater.engine.graph.input_types import InputTypes
from lowwater.engine.graph.operator import Operator
from lowwater.engine.graph.outline import outline, shown_aggregates, spec_text
from lowwater.engine.records.stage_bundle import StageBundle
from lowwater.engine.records.steps import Bundle
from lowwater.engine.stages.kind import StageKind
from lowwater.engine.stages.triggered import (
    aggregate_findings,
    described_windowing,
    windowing_findings,
)
from lowwater.engine.window.aggregation import result_type
from lowwater.engine.window.windowing import Windowing
from lowwater.time import Int64Array


@final
@dataclass(frozen=True, slots=True)
class Windowed(StageKind):
    """The work of a stage with windows, triggers and aggregates.

    Args:
        windowing: The windows and the rest.
        aggregates: The aggregates by name; where windows are filled, ``is_filled`` is added.
    """

    windowing: Windowing
    aggregates: Mapping[str, AggregateSpec]

    def __post_init__(self) -> None:
        if self.windowing.fill is not None:
            from lowwater.engine.aggregates.filled import with_is_filled

            object.__setattr__(self, "aggregates", with_is_filled(self.aggregates))

    stored_as: ClassVar[str] = "windows"
    noun: ClassVar[str] = "windowed stage"
    emits_panes: ClassVar[bool] = True
    fires: ClassVar[bool] = True
    takes_whole_records: ClassVar[bool] = False
    outputs: ClassVar[tuple[str, ...]] = (MAIN,)

    @property
    def retracts(self) -> bool:
        """Whether it emits retractions."""
        return self.windowing.mode == "retracting"

    def lateness_behind(self, upstream_us: Callable[[], int]) -> int:
        return self.windowing.lateness_us

    def needs(self) -> dict[str, Needs]:
        return strictest_needs(self.aggregates)

    def operator(self, stage: Stage) -> Operator:
        from lowwater.engine.window.operator import WindowOperator

        return WindowOperator(self.windowing, self.aggregates, signed=stage.signed)

    def step(
        self, stage: Stage, incoming: StageBundle, kept: Int64Array | None
    ) -> tuple[Bundle, Any]:
        bundle = incoming.bundle if kept is None else incoming.bundle.take(kept)
        return bundle, bundle

    def described(self) -> dict[str, Any]:
        return {
            **described_windowing(self.windowing),
            "aggregates": described_aggregates(shown_aggregates(self.aggregates)),
        }

    def outline(self, stage: Stage) -> str:
        return outline(
            stage.inputs,
            stage.key_names,
            self.windowing,
            self.aggregates,
            deduplication=stage.deduplication,
        )

    def summary(self, stage: Stage) -> Iterator[str]:
        if self.windowing.fill is not None:
            yield f"fills windows without records: {self.windowing.fill}"
        for name, spec in shown_aggregates(self.aggregates).items():
            yield f"{name} = {spec_text(spec)}"

    def lines(self, stage: Stage) -> Iterator[str]:
        for text in self.summary(stage):
            yield text if text.startswith("fills ") else f"emits: {text}"

    def emitted_types(self, stage: Stage, types: InputTypes) -> dict[str, pa.DataType | None]:
        return {
            name: types.given.get(name) or result_type(spec, types.left)
            for name, spec in self.aggregates.items()
        }

    def findings(self, stage: Stage, where: str, upstream: Sequence[Upstream]) -> Iterator[Finding]:
        yield from windowing_findings(self.windowing, where, upstream)
        yield from aggregate_findings(self.aggregates, where)
