"""Groups records by key and number, and aggregates them: windows of a count (C-1 to C-4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import pyarrow as pa

from lowwater.engine.aggregates import AggregateSpec
from lowwater.engine.aggregates._base import Needs, strictest_needs
from lowwater.engine.graph.described import described_aggregates, repr_text
from lowwater.engine.graph.finding import Finding, Severity, Upstream
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
from lowwater.windows.counted import CountWindows


@final
@dataclass(frozen=True, slots=True)
class Counted(StageKind):
    """The work of a stage with windows of a number of records."""

    windows: CountWindows
    aggregates: Mapping[str, AggregateSpec]

    stored_as: ClassVar[str] = "counted"
    noun: ClassVar[str] = "windowed stage"
    windowing: ClassVar[None] = None
    emits_panes: ClassVar[bool] = True
    retracts: ClassVar[bool] = False
    takes_whole_records: ClassVar[bool] = False
    outputs: ClassVar[tuple[str, ...]] = (MAIN,)

    @property
    def count_windows(self) -> CountWindows:
        return self.windows

    def lateness_behind(self, upstream_us: Callable[[], int]) -> int:
        return 0  # a pane is never below the output watermark (C-3)

    def needs(self) -> dict[str, Needs]:
        return strictest_needs(self.aggregates)

    def operator(self, stage: Stage) -> Operator:
        from lowwater.engine.counted.operator import CountOperator

        return CountOperator(self.windows, self.aggregates)

    def step(
        self, stage: Stage, incoming: StageBundle, kept: Int64Array | None
    ) -> tuple[Bundle, Any]:
        bundle = incoming.bundle if kept is None else incoming.bundle.take(kept)
        return bundle, bundle

    def described(self) -> dict[str, Any]:
        return {
            "windows": repr_text(self.windows),
            "aggregates": described_aggregates(self.aggregates),
        }

    def outline(self, stage: Stage) -> str:
        return outline(
            stage.inputs,
            stage.key_names,
            self.windows,
            self.aggregates,
            deduplication=stage.deduplication,
        )

    def summary(self, stage: Stage) -> Iterator[str]:
        yield repr(self.windows)
        for name, spec in self.aggregates.items():
            yield f"{name} = {spec_text(spec)}"

    def lines(self, stage: Stage) -> Iterator[str]:
        yield f"windows: {self.windows!r}, by arrival"
        for name, spec in self.aggregates.items():
            yield f"emits: {name} = {spec_text(spec)}"

    def emitted_types(self, stage: Stage, types: InputTypes) -> dict[str, pa.DataType | None]:
        return {
            name: types.given.get(name) or result_type(spec, types.left)
            for name, spec in self.aggregates.items()
        }

    def findings(self, stage: Stage, where: str, upstream: Sequence[Upstream]) -> Iterator[Finding]:
        endless = any(flow.is_endless for flow in upstream)
        severity: Severity = "warning" if endless else "note"
        if self.windows.count > 1:
            yield Finding(
                severity,
                f"a window of {self.windows.count:,} records waits for its last record, however "
                "long that takes: what a key has is kept until then, also of keys that never come "
                "back",
                where,
                'If time must close a window, use FixedWindows("1m"), or a process with a timer',
            )
        yield from aggregate_findings(self.aggregates, where)
