"""A windowed stage of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import final

import numpy as np

from lowwater.engine.graph.graph import MAIN, Stage, Windowed
from lowwater.engine.graph.metrics import StageMetrics
from lowwater.engine.graph.stored_numbers import deduplicator_number, operator_number
from lowwater.engine.local.outcomes import LateElements, Outcome
from lowwater.engine.local.recorder import StageRecorder, TakenBundle
from lowwater.engine.local.source_reader import StageBundle
from lowwater.engine.records.batch import Records
from lowwater.engine.records.columns import Column
from lowwater.engine.records.deduplicate import Deduplicator
from lowwater.engine.records.pane_table import records_of
from lowwater.engine.records.steps import (
    Bundle,
    ClockAdvance,
    LateBatch,
    PaneBatch,
    StepOutput,
    WatermarkAdvance,
)
from lowwater.engine.window.operator import WindowOperator
from lowwater.state.store import Batch, StateStore
from lowwater.time import Instant, Int64Array


@final
class WindowRun:
    """A windowed stage of a run.

    Within a turn of the run a stage moves its clock, takes what has come for it, and moves its
    watermark, in this order (S-O8). Duplicates count for the source's watermark, but do not reach
    the operator (S-D1).

    Args:
        stage: The stage.
        work: What it does.
        number: Its number in the graph.
        is_end: Whether its panes leave the pipeline.
        is_read: Whether other stages read them.
    """

    def __init__(
        self, stage: Stage, work: Windowed, number: int, *, is_end: bool, is_read: bool
    ) -> None:
        self.stage = stage
        self.number = number
        self.metrics = StageMetrics()
        self.operator = WindowOperator(work.windowing, work.aggregates, signed=stage.signed)
        self._deduplicator = None
        if stage.deduplication is not None:
            self._deduplicator = Deduplicator(stage.deduplication)
        self._is_end = is_end
        self._is_read = is_read
        self._store: StateStore | None = None
        self._waiting: list[StageBundle] = []
        self._unread: list[PaneBatch] = []
        self._recorder: StageRecorder | None = None

    @property
    def is_advancing(self) -> bool:
        """Whether its watermark is moving in portions, with more to come."""
        return self.operator.is_advancing

    @property
    def is_over(self) -> bool:
        """Whether its state takes more memory than it may."""
        return self.operator.is_over

    @property
    def output_watermark(self) -> int:
        """How far this stage's output is known to be complete (S-H3)."""
        return self.operator.output_watermark

    def keep_in_store(self, memory: int | None) -> None:
        """Have changes noted, for :meth:`save`; the stage's rows are under numbers of its own."""
        self.operator.keep_in_store(operator_number(self.number), memory=memory)
        if self._deduplicator is not None:
            self._deduplicator.keep_in_store(deduplicator_number(self.number))

    def record(self, recorder: StageRecorder) -> None:
        """Have what it takes and shows recorded."""
        self._recorder = recorder
        self.operator.report_merges()

    def save(self, batch: Batch) -> None:
        """Add what changed since the last time to a batch."""
        self.operator.save(batch)
        if self._deduplicator is not None:
            self._deduplicator.advance(self.operator.watermark)
            self._deduplicator.save(batch)

    def resume(self, store: StateStore, *, fresh: bool) -> None:
        """Take up what is stored, unless the run is a ``fresh`` one, and read from there on."""
        self._store = store
        if self._deduplicator is not None:
            self._deduplicator.restore(store)
        if not fresh:
            self.operator.restore(store)

    def enqueue(self, incoming: StageBundle) -> None:
        """Have a bundle wait for the stage's turn."""
        self._waiting.append(incoming)

    def take_outputs(self) -> Mapping[str, Records]:
        """Return what the stage has shown since this was last called, by output, for the next."""
        if not self._unread:
            return {}
        take_outputs, self._unread = self._unread, []
        stage = self.stage
        panes = PaneBatch.concat(take_outputs)
        return {MAIN: records_of(panes, stage.key_names, signed=stage.retracts)}

    def tick(self, now: int) -> Iterator[Outcome]:
        """Move the clock."""
        yield from self._emit(self.operator.step(ClockAdvance(now)))

    def take(self) -> Iterator[Outcome]:
        """Take what waits."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        for incoming in waiting:
            yield from self._take(incoming)

    def advance(self, to: int) -> Iterator[Outcome]:
        """Move the watermark, or a portion of the way where much comes back from the store for it.

        Between portions a run can be stopped: the next one goes on with the advance.
        """
        operator = self.operator
        bound = None if self._store is None else operator.thaw_due(self._store, to)
        yield from self._emit(operator.step(WatermarkAdvance(to, due=bound)))

    def update_metrics(self) -> None:
        """Note in the metrics where the stage is."""
        operator, metrics = self.operator, self.metrics
        metrics.watermark = Instant(operator.watermark)
        metrics.output_watermark = Instant(operator.output_watermark)
        metrics.open_windows = operator.open_windows

    def forget(self, watermark: int) -> None:
        """Let go of record ids that no longer matter."""
        if self._deduplicator is not None:
            self._deduplicator.advance(watermark)

    def _take(self, incoming: StageBundle) -> Iterator[Outcome]:
        operator, metrics = self.operator, self.metrics
        kept = self._without_duplicates(incoming)
        take_outputs = incoming.bundle if kept is None else incoming.bundle.take(kept)
        if self._store is not None:
            operator.thaw(self._store, take_outputs)
        output = operator.step(take_outputs)
        if self._recorder is not None:
            taken = taken_from(incoming, kept, output.late, operator.watermark, operator.clock)
            self._recorder.took(taken, output.merges)
        late = None
        if output.late is not None:
            rows = output.late.element if kept is None else kept[output.late.element]
            late = late_elements(output.late, rows + incoming.start, take_outputs, incoming)
            metrics.count_late(output.late)
        panes = self._route(output.panes)
        if panes is not None or late is not None:
            yield Outcome(panes, late, stage=self.number)

    def _without_duplicates(self, incoming: StageBundle) -> Int64Array | None:
        """Return which elements of a bundle are no duplicates; ``None`` if none is one."""
        if self._deduplicator is None:
            return None
        bundle = incoming.bundle
        start, stop = incoming.start, incoming.start + len(bundle)
        ids: tuple[Column, ...] = tuple(id.slice(start, stop) for id in incoming.admitted.ids)
        self._deduplicator.advance(self.operator.watermark)
        first = self._deduplicator.step(ids, bundle.times)
        if first.all():
            return None
        kept = np.flatnonzero(first)
        self.metrics.duplicates += len(first) - len(kept)
        return kept

    def _emit(self, output: StepOutput) -> Iterator[Outcome]:
        panes = self._route(output.panes)
        if panes is not None:
            yield Outcome(panes=panes, stage=self.number)

    def _route(self, panes: PaneBatch | None) -> PaneBatch | None:
        """Count panes and keep them for the stages that read them; return what is to leave."""
        if panes is None:
            return None
        self.metrics.count_panes(panes)
        if self._recorder is not None:
            self._recorder.showed(panes)
        if self._is_read:
            self._unread.append(panes)
        return panes if self._is_end else None


def late_elements(
    late: LateBatch, rows: Int64Array, bundle: Bundle, incoming: StageBundle
) -> LateElements:
    """Return elements that were dropped, with the records they came in.

    Args:
        late: The elements, by their place in ``bundle``.
        rows: The place of each among the admitted elements of its batch, int64.
        bundle: What the operator was given.
        incoming: The bundle they came in.
    """
    element = late.element
    if incoming.admitted.kept is not None:
        rows = incoming.admitted.kept[rows]
    keys = tuple(key.take(element) for key in bundle.keys)
    return LateElements(late, incoming.records, rows, bundle.times[element], keys)


def taken_from(
    incoming: StageBundle,
    kept: Int64Array | None,
    late: LateBatch | None,
    watermark: int,
    clock: int,
) -> TakenBundle:
    """Return what came as a recorder takes it; see :class:`TakenBundle`."""
    rows = np.arange(incoming.start, incoming.start + len(incoming.bundle), dtype=np.int64)
    if incoming.admitted.kept is not None:
        rows = incoming.admitted.kept[rows]
    return TakenBundle(incoming.bundle, kept, late, incoming.records, rows, watermark, clock)
