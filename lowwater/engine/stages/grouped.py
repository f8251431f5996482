"""A table that aggregates the rows of another (T-3)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
from lowwater.engine.graph.outline import outline, spec_text
from lowwater.engine.records.stage_bundle import StageBundle
from lowwater.engine.records.steps import Bundle
from lowwater.engine.stages.kind import StageKind
from lowwater.engine.stages.triggered import aggregate_findings
from lowwater.engine.window.aggregation import result_type
from lowwater.time import Int64Array


@final
@dataclass(frozen=True, slots=True)
class Grouped(StageKind):
    """The work of a table of groups: one row a key, of what stands in another table."""

    aggregates: Mapping[str, AggregateSpec]

    stored_as: ClassVar[str] = "table"
    noun: ClassVar[str] = "table"
    windowing: ClassVar[None] = None
    retracts: ClassVar[bool] = True
    outputs: ClassVar[tuple[str, ...]] = (MAIN,)
    keeps_rows: ClassVar[bool] = True
    takes_whole_records: ClassVar[bool] = False

    @property
    def makes_table(self) -> bool:
        return True

    def needs(self) -> dict[str, Needs]:
        return strictest_needs(self.aggregates)

    def operator(self, stage: Stage) -> Operator:
        from lowwater.engine.join.tables import GroupOperator

        return GroupOperator(self.aggregates)

    def step(
        self, stage: Stage, incoming: StageBundle, kept: Int64Array | None
    ) -> tuple[Bundle, Any]:
        bundle = incoming.with_values(dict(incoming.bundle.values), kept)
        return bundle, bundle

    def described(self) -> dict[str, Any]:
        return {"aggregates": described_aggregates(self.aggregates)}

    def outline(self, stage: Stage) -> str:
        by = ", ".join(map(repr, stage.key_names))
        return f"{outline(stage.inputs, (), None, self.aggregates)} by {by}"

    def summary(self, stage: Stage) -> Iterator[str]:
        for name, spec in self.aggregates.items():
            yield f"{name} = {spec_text(spec)}"

    def findings(self, stage: Stage, where: str, upstream: Sequence[Upstream]) -> Iterator[Finding]:
        return aggregate_findings(self.aggregates, where)

    def emitted_types(self, stage: Stage, types: InputTypes) -> dict[str, pa.DataType | None]:
        return {
            name: types.given.get(name) or result_type(spec, types.left)
            for name, spec in self.aggregates.items()
        }
