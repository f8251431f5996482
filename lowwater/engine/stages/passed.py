"""Records that leave as they came: a stream by itself, or one whose duplicates are dropped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

import pyarrow as pa

from lowwater.engine.aggregates import AggregateSpec
from lowwater.engine.graph.graph import MAIN, Stage
from lowwater.engine.graph.input_types import InputTypes
from lowwater.engine.graph.operator import Operator
from lowwater.engine.graph.outline import outline
from lowwater.engine.stages.kind import NO_AGGREGATES, StageKind


@final
@dataclass(frozen=True, slots=True)
class Passed(StageKind):
    """The work of a stream whose records leave as they came.

    It is run by itself, without keys; or its duplicates are dropped before a join, and its keys are
    the ids.
    """

    stored_as: ClassVar[str] = "records"
    noun: ClassVar[str] = "stream"
    windowing: ClassVar[None] = None
    passes_signs: ClassVar[bool] = True
    spills: ClassVar[bool] = False
    keys_are_ids: ClassVar[bool] = True
    retracts: ClassVar[bool] = False
    outputs: ClassVar[tuple[str, ...]] = (MAIN,)
    aggregates: ClassVar[Mapping[str, AggregateSpec]] = NO_AGGREGATES

    def operator(self, stage: Stage) -> Operator:
        from lowwater.engine.process.passing import PassingOperator

        return PassingOperator(signed=stage.signed)

    def described(self) -> dict[str, Any]:
        return {}

    def outline(self, stage: Stage) -> str:
        return outline(stage.inputs, deduplication=stage.deduplication)

    def summary(self, stage: Stage) -> Iterator[str]:
        yield "records as they are"

    def emitted_types(self, stage: Stage, types: InputTypes) -> dict[str, pa.DataType | None]:
        # Where the columns are not known, those that are given are all.
        return types.visible(types.left or types.given, ("kind",))
