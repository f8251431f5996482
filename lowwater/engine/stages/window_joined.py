"""A join within windows: both sides are grouped by key and window, then paired (J-7)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

from lowwater.engine.aggregates import AggregateSpec
from lowwater.engine.graph.finding import Finding, Upstream
from lowwater.engine.graph.graph import MAIN, Stage
from lowwater.engine.graph.operator import Operator
from lowwater.engine.graph.outline import window_options
from lowwater.engine.join.joining import How
from lowwater.engine.join.pairs import JoinedColumns
from lowwater.engine.records.stage_bundle import StageBundle
from lowwater.engine.records.steps import Bundle
from lowwater.engine.stages.join_kind import JoinKind
from lowwater.engine.stages.kind import NO_AGGREGATES
from lowwater.engine.stages.triggered import described_windowing, windowing_findings
from lowwater.engine.window.windowing import Windowing
from lowwater.time import Int64Array


@final
@dataclass(frozen=True, slots=True)
class WindowJoined(JoinKind):
    """The work of a join within windows.

    Args:
        windowing: The windows of both sides, and when they fire.
        how: Which rows come out.
        left: How many of the stage's inputs are the left side; the others are the right.
        right_keys: The key columns of the right side; the stage's own are those of the left.
        columns: The columns of both sides, and their names in the output.
    """

    windowing: Windowing
    how: How
    left: int
    right_keys: tuple[str, ...]
    columns: JoinedColumns

    stored_as: ClassVar[str] = "windows"
    fires: ClassVar[bool] = True
    output_names_are_new: ClassVar[bool] = True  # window_start and window_end
    outputs: ClassVar[tuple[str, ...]] = (MAIN,)
    aggregates: ClassVar[Mapping[str, AggregateSpec]] = NO_AGGREGATES

    @property
    def retracts(self) -> bool:
        """Whether it emits retractions."""
        return self.windowing.mode == "retracting"

    @property
    def emits_pairs(self) -> bool:
        return self.how not in ("semi", "anti")

    def lateness_behind(self, upstream_us: Callable[[], int]) -> int:
        return self.windowing.lateness_us

    def operator(self, stage: Stage) -> Operator:
        from lowwater.engine.join.window_join import PairedPanes, WindowJoinOperator

        pairing = PairedPanes(self.how, self.columns, signed=stage.signed)
        return WindowJoinOperator(
            self.windowing, pairing, signed=stage.signed, retracts=stage.retracts
        )

    def step(
        self, stage: Stage, incoming: StageBundle, kept: Int64Array | None
    ) -> tuple[Bundle, Any]:
        from lowwater.engine.join.window_join import PanedSide

        bundle = incoming.bundle
        columns = incoming.columns(without=stage.keys_of(incoming.nth))
        if kept is not None:
            bundle = bundle.take(kept)
            columns = {name: column.take(kept) for name, column in columns.items()}
        return bundle, PanedSide(self.side_of(incoming.nth), bundle, columns)

    def described(self) -> dict[str, Any]:
        return {
            **described_windowing(self.windowing),
            **self.described_sides(self.how),
            # What panes hold is stored with them.
            "columns": [sorted(self.columns.left), sorted(self.columns.right)],
        }

    def outline(self, stage: Stage) -> str:
        windows, *options = window_options(self.windowing)
        return self.outline_of(stage, "join", f"within={windows}", f"how={self.how!r}", *options)

    def summary(self, stage: Stage) -> Iterator[str]:
        yield f"{self.how} join within windows"

    def findings(self, stage: Stage, where: str, upstream: Sequence[Upstream]) -> Iterator[Finding]:
        return windowing_findings(self.windowing, where, upstream)
