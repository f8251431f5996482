"""The input watermarks of a run's stages: the lowest of what each reads (S-H3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias, final

from lowwater.engine.graph.graph import Flow, Graph, Read
from lowwater.engine.graph.operator import Operator
from lowwater.engine.local.source_reader import SourceReader
from lowwater.engine.local.source_watermark import followed
from lowwater.engine.local.stage_run import StageRun
from lowwater.time import END_OF_TIME, START_OF_TIME, Instant
from lowwater.watermark import Hold, LowWatermarks, StageWatermark

_Origins: TypeAlias = list[tuple[bool, int]]
"""Whether it is a source, and its number."""


@final
class InputWatermarks:
    """Knows what each stage reads, and how far that is.

    Args:
        graph: The graph of the run.
        readers: Its sources.
        stages: Its stages.
    """

    def __init__(
        self, graph: Graph, readers: Sequence[SourceReader], stages: Sequence[StageRun]
    ) -> None:
        self._readers = readers
        self._reads = [graph.name_of(read) for read in graph.reads]
        self._names = [graph.name_of(stage) for stage in graph.stages]
        upstream = {name: list[str]() for name in self._reads}
        for name, stage in zip(self._names, graph.stages, strict=True):
            origins = (graph.name_of(flow.origin) for flow in stage.inputs)
            upstream[name] = list(dict.fromkeys(origins))
        self._low = LowWatermarks(upstream)
        self._marks = [reader.mark for reader in readers]
        self._stages = stages
        self._every = [_origins(graph, stage.inputs) for stage in graph.stages]
        self._sides = {
            number: (
                _origins(graph, stage.left_inputs),
                _origins(graph, stage.right_inputs),
            )
            for number, stage in enumerate(graph.stages)
            if stage.work.join_rules is not None or stage.reads_right
        }

    def of(self, run: StageRun) -> int:
        """Return the lowest output watermark upstream of a stage (S-H3)."""
        return self._lowest(self._every[run.number])

    def of_sources(self) -> tuple[tuple[int, ...], tuple[bool, ...]]:
        """Return the watermark of each source as stages see it, and whether it has ended."""
        marks = self._marks
        return tuple(followed(mark, marks) for mark in marks), tuple(mark.ended for mark in marks)

    def sides(self, run: StageRun) -> tuple[int, int] | None:
        """Return the watermarks of the sides of a join; ``None`` for another stage."""
        if run.number not in self._sides:
            return None
        left, right = self._sides[run.number]
        return self._lowest(left), self._lowest(right)

    def set_right(self, run: StageRun) -> bool:
        """Set a join's right-side watermark if it uses one; return whether it is known."""
        if not run.reads_right:
            return False
        run.right_watermark = self._lowest(self._sides[run.number][1])
        return run.right_watermark > START_OF_TIME

    def report(self, clock: int, *, with_due: bool = False) -> list[StageWatermark]:
        """Report the watermarks of sources and stages, and what holds each (S-H3).

        Args:
            clock: The clock of the run.
            with_due: Whether to look up when anything is due next. O(state).
        """
        low = self._low
        low.reset()
        for name, reader in zip(self._reads, self._readers, strict=True):
            low.enter(name, [Hold(followed(reader.mark, self._marks), reader.mark.holder(clock))])
            low.leave(name)
        for run in self._stages:
            name, operator = self._names[run.number], run.operator
            low.resume(
                {name: [operator.watermark, operator.output_watermark]}
            )  # so that the report never shows a watermark going back
            low.enter(name)
            hold = operator.hold()
            low.leave(name, [] if hold is None else [hold])
        marks = low.report(clock)
        if not with_due:
            return marks
        operators = {self._names[run.number]: run.operator for run in self._stages}
        return [_with_due(mark, operators.get(mark.stage)) for mark in marks]

    def _lowest(self, origins: _Origins) -> int:
        """Return the lowest output watermark of sources and stages; see :func:`followed`."""
        low = END_OF_TIME
        for is_source, at in origins:
            if is_source:
                low = min(low, followed(self._marks[at], self._marks))
            else:
                low = min(low, self._stages[at].operator.output_watermark)
        return low


def _with_due(mark: StageWatermark, operator: Operator | None) -> StageWatermark:
    if operator is None:
        return mark
    due, deadline = operator.next_due(), operator.next_deadline
    return replace(mark, due=_before_end(due), due_at_clock=_before_end(deadline))


def _before_end(at: int) -> Instant | None:
    return None if at == END_OF_TIME else Instant(at)


def _origins(graph: Graph, flows: Sequence[Flow]) -> _Origins:
    """Return where flows come from."""
    origins = dict.fromkeys(flow.origin for flow in flows)
    return [
        (True, graph.reads.index(origin))
        if isinstance(origin, Read)
        else (False, graph.stages.index(origin))
        for origin in origins
    ]
