"""Runs a windowed stage: deduplication, the window operator, metrics and trace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import final

import numpy as np

from lowwater.engine.graph.graph import MAIN, Stage, Windowed, WindowJoined
from lowwater.engine.graph.metrics import StageMetrics
from lowwater.engine.graph.trace import TracedSide
from lowwater.engine.join.window_join import PairedPanes
from lowwater.engine.local.duplicates import DuplicateFilter
from lowwater.engine.local.health.conservation import AdmittedCounter
from lowwater.engine.local.outcomes import LateElements, Outcome
from lowwater.engine.local.recorder import StageRecorder
from lowwater.engine.local.stage_input import StageBundle
from lowwater.engine.local.taken_bundles import TakenBundle
from lowwater.engine.local.worker_combiners import CombinersInWorkers, combines_in_workers
from lowwater.engine.local.worker_pool import Workers
from lowwater.engine.records.batch import HIDDEN, Records
from lowwater.engine.records.columns import Column
from lowwater.engine.records.pane_table import records_of
from lowwater.engine.records.stage_output import Emitted, StageOutput, emitted_records
from lowwater.engine.records.steps import (
    Bundle,
    ClockAdvance,
    LateBatch,
    PaneBatch,
    WatermarkAdvance,
)
from lowwater.engine.window.operator import WindowOperator
from lowwater.kernels import count_records
from lowwater.state.key_layout import StoredPlace
from lowwater.state.store import Batch, StateStore
from lowwater.time import Int64Array


@final
class WindowRun:
    """One windowed stage of a run.

    In each turn of the run a stage advances its clock, processes the bundles queued, and advances
    its watermark, in this order (S-O8). Duplicates advance the source's watermark but do not
    reach the operator (S-D1).

    Args:
        stage: The stage.
        work: Its windowing and aggregates; or it joins within windows, and makes pairs of panes.
        number: Its number in the graph.
        is_end: Whether its panes leave the pipeline.
        is_read: Whether downstream stages read its panes.
        workers: Call the combiners of users; ``None``: they are called here.
    """

    def __init__(
        self,
        stage: Stage,
        work: Windowed | WindowJoined,
        number: int,
        *,
        is_end: bool,
        is_read: bool,
        workers: Workers | None = None,
    ) -> None:
        self.stage = stage
        self.number = number
        self.metrics = StageMetrics()
        self._pairing: PairedPanes | None = None
        aggregates = work.aggregates
        if isinstance(work, WindowJoined):
            self._pairing = PairedPanes(work.how, work.columns, signed=stage.signed)
            aggregates = self._pairing.aggregates
        self._combiners: CombinersInWorkers | None = None
        if workers is not None and workers.count > 1 and combines_in_workers(stage):
            self._combiners = CombinersInWorkers(
                aggregates, number, workers, self._keys_of, signed=stage.signed
            )
            aggregates = self._combiners.aggregates
        self.operator = WindowOperator(work.windowing, aggregates, signed=stage.signed)
        self._duplicates = DuplicateFilter(stage.deduplication)
        self._counter = AdmittedCounter()
        self._is_end = is_end
        self._is_read = is_read
        # The store is only read in a step where windows may be in it alone.
        self._spills = False
        self._store: StateStore | None = None
        self._unread: list[PaneBatch] = []
        self._unread_pairs: list[Emitted] = []
        self._recorder: StageRecorder | None = None

    def keep_in_store(self, place: StoredPlace, memory: int | None) -> None:
        """Track changes for :meth:`save`; the stage's rows are stored under its name."""
        self._spills = memory is not None
        self.operator.keep_in_store(place, memory=memory)
        self._duplicates.keep_in_store(place)

    def record(self, recorder: StageRecorder) -> None:
        """Record the stage's input and output in a trace."""
        self._recorder = recorder
        self.operator.report_merges()

    def report_replaced(self) -> None:
        """Have outcomes say which windows merged away, if the panes leave the pipeline."""
        if self._is_end and self._pairing is None:
            self.operator.report_replaced()

    def save(self, batch: Batch) -> None:
        """Add the changes since the last save to a batch."""
        if self._combiners is not None:
            self._combiners.fetch()
        self.operator.save(batch)
        self._duplicates.save(batch, self.operator.watermark)

    def resume(self, store: StateStore, *, fresh: bool) -> None:
        """Restore stored state unless the run is ``fresh``; use the store from now on."""
        self._store = store if self._spills else None
        self._duplicates.restore(store)
        if not fresh:
            self.operator.restore(store)

    def take_outputs(self) -> Mapping[str, Records]:
        """Return the panes emitted since the last call as records, by output, for downstream."""
        if self._unread_pairs:
            pairs, self._unread_pairs = self._unread_pairs, []
            return {MAIN: emitted_records(pairs, self.stage.key_names)}
        if not self._unread:
            return {}
        unread, self._unread = self._unread, []
        stage = self.stage
        panes = PaneBatch.concat(unread)
        return {MAIN: records_of(panes, stage.key_names, signed=stage.retracts)}

    def tick(self, now: int) -> Iterator[Outcome]:
        """Advance the clock."""
        if self._store is not None:
            self.operator.load_timers(self._store, now)
        yield from self._emit(self.operator.step(ClockAdvance(now)))
        if self._store is not None:
            self.operator.load_holder(self._store)

    def take(self, waiting: Sequence[StageBundle]) -> Iterator[Outcome]:
        """Process bundles."""
        operator, metrics = self.operator, self.metrics
        for incoming in waiting:
            count_records(len(incoming.bundle))
            metrics.arrived += len(incoming.bundle)
            bundle = incoming.bundle if self._pairing is None else self._given(incoming)
            kept = None
            if self.stage.deduplication is not None:
                kept = self._duplicates.kept(
                    incoming.ids(), bundle.times, operator.watermark, metrics
                )
            if kept is not None:
                bundle = bundle.take(kept)
            if self._store is not None:
                operator.load(self._store, bundle)
            output = operator.step(bundle)
            if self._recorder is not None:
                taken = taken_from(incoming, kept, output.late, operator.watermark, operator.clock)
                self._recorder.took(taken, output.merges)
            late = None
            if output.late is not None:
                rows = output.late.element if kept is None else kept[output.late.element]
                late = late_elements(output.late, rows + incoming.start, bundle, incoming)
                metrics.count_late(output.late)
            if late is not None and self._pairing is not None:
                yield Outcome(late=late, stage=self.number)
                late = None
            yield from self._emit(output, late)
        self._counter.settle(operator, metrics)
        if self._store is not None:
            self.operator.load_holder(self._store)

    def advance(self, to: int) -> Iterator[Outcome]:
        """Advance the watermark, in portions if many spilled windows are due.

        Loading all due windows at once could exceed the memory limit, so each call handles one
        portion. A run may stop between portions; the next run resumes the advance.
        """
        operator = self.operator
        bound = None if self._store is None else operator.load_due(self._store, to)
        yield from self._emit(operator.step(WatermarkAdvance(to, due=bound)))
        if self._store is not None:
            self.operator.load_holder(self._store)

    def forget(self, watermark: int) -> None:
        """Drop record ids that the watermark has passed."""
        self._duplicates.forget(watermark)

    def _keys_of(self, rows: Int64Array) -> Int64Array:
        return self.operator.keys_of(rows)

    def _given(self, incoming: StageBundle) -> Bundle:
        """Return a bundle with the columns that the operator reads."""
        work, bundle = self.stage.work, incoming.bundle
        if self._pairing is None or not isinstance(work, WindowJoined):
            return bundle
        keys = self.stage.keys_of(incoming.nth)
        columns = {
            name: column for name, column in columns_of_bundle(incoming).items() if name not in keys
        }
        return self._pairing.side_bundle(work.side_of(incoming.nth), bundle, columns)

    def _emit(self, output: StageOutput, late: LateElements | None = None) -> Iterator[Outcome]:
        if self._pairing is not None:
            yield from self._paired(self._pairing, output.panes)
            return
        panes = self._route(output.panes)
        if panes is not None or late is not None:
            yield Outcome(panes, late, stage=self.number, replaced=output.replaced)

    def _paired(self, pairing: PairedPanes, panes: PaneBatch | None) -> Iterator[Outcome]:
        """Emit the pairs of panes, to downstream stages and out of the pipeline."""
        if panes is None:
            return
        emitted = pairing.pairs(panes, retracts=self.stage.retracts)
        if emitted is None:
            return
        self.metrics.emitted[MAIN] += len(emitted)
        if self._is_read:
            self._unread_pairs.append(emitted)
        if self._is_end:
            yield Outcome(emitted={MAIN: emitted}, stage=self.number)

    def _route(self, panes: PaneBatch | None) -> PaneBatch | None:
        """Count panes and queue them for downstream; return those that leave the pipeline."""
        if panes is None:
            return None
        self.metrics.count_panes(panes)
        if self._recorder is not None:
            self._recorder.showed(panes)
        if self._is_read:
            self._unread.append(panes)
        return panes if self._is_end else None


def columns_of_bundle(incoming: StageBundle, hidden: Set[str] = frozenset()) -> dict[str, Column]:
    """Return the columns of a bundle's records; of those that users never see, some."""
    start, stop = incoming.start, incoming.start + len(incoming.bundle)
    kept = incoming.admitted.kept
    return {
        name: (column if kept is None else column.take(kept)).slice(start, stop)
        for name, column in incoming.records.columns.items()
        if not name.startswith(HIDDEN) or name in hidden
    }


def late_elements(
    late: LateBatch, rows: Int64Array, bundle: Bundle, incoming: StageBundle
) -> LateElements:
    """Return late elements together with the records that contain them.

    Args:
        late: The elements, by index into ``bundle``.
        rows: Index of each among the admitted elements of its batch, int64.
        bundle: The bundle that the operator processed.
        incoming: The bundle that arrived, duplicates included.
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
    side: TracedSide | None = None,
) -> TakenBundle:
    """Describe a processed bundle for the recorder; see :class:`TakenBundle`."""
    rows = np.arange(incoming.start, incoming.start + len(incoming.bundle), dtype=np.int64)
    if incoming.admitted.kept is not None:
        rows = incoming.admitted.kept[rows]
    return TakenBundle(incoming.bundle, kept, late, incoming.records, rows, watermark, clock, side)
