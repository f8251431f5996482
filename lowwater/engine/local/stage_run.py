"""Runs one stage, whatever its operator: duplicates, state in a store, metrics, traces, outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, final

import pyarrow as pa

from lowwater.engine.graph.graph import Stage
from lowwater.engine.graph.metrics import StageMetrics
from lowwater.engine.local.duplicates import DuplicateFilter
from lowwater.engine.local.health.conservation import AdmittedCounter
from lowwater.engine.local.outcomes import LateElements, Outcome
from lowwater.engine.local.stage_operators import hosted
from lowwater.engine.records.batch import HIDDEN, WHOLE, Records
from lowwater.engine.records.columns import Column
from lowwater.engine.records.panes import ErrorRecord
from lowwater.engine.records.stage_bundle import StageBundle
from lowwater.engine.records.stage_output import UNFIT, Output, StageOutput, output_records
from lowwater.engine.records.steps import (
    Bundle,
    ClockAdvance,
    LateBatch,
    PaneBatch,
)
from lowwater.kernels import count_bundle
from lowwater.state.key_layout import StoredPlace
from lowwater.state.store import Batch, StateStore
from lowwater.time import START_OF_TIME, Int64Array

if TYPE_CHECKING:
    from lowwater.engine.local.pair_recorder import PairRecorder
    from lowwater.engine.local.recorder import StageRecorder
    from lowwater.engine.local.worker_pool import Workers


@final
class StageRun:
    """One stage of a run, embedded or for a key group on Spark.

    In each turn of the run a stage advances its clock, processes the bundles queued, and advances
    its watermark, in this order (S-O8). Duplicates advance the source's watermark but do not
    reach the operator (S-D1).

    Args:
        stage: The stage.
        number: Its number in the graph.
        is_end: Whether its output leaves the pipeline.
        is_read: Whether downstream stages read its output.
        workers: Compute what can be divided by keys; ``None``: all is computed here.

    ``reads_right`` says whether ``right_watermark``, that of the right side of a join, is to be set
    before each :meth:`advance`.
    """

    def __init__(
        self,
        stage: Stage,
        number: int,
        *,
        is_end: bool,
        is_read: bool,
        workers: Workers | None = None,
    ) -> None:
        self.stage = stage
        self.number = number
        self.metrics = StageMetrics()
        self.operator, self._gather, self.is_parted = hosted(stage, number, workers)
        self.reads_right = stage.reads_right
        self.right_watermark = START_OF_TIME
        self._duplicates = DuplicateFilter(stage.deduplication)
        self._counter = AdmittedCounter()
        self._is_end = is_end
        self._is_read = is_read
        self._unread: dict[str, list[Output]] = {}
        self._recorder: StageRecorder | None = None
        self._pairs: PairRecorder | None = None
        # The store is read only where state may be in it alone.
        self._spills = False
        self._store: StateStore | None = None

    def keep_in_store(self, place: StoredPlace, memory: int | None) -> None:
        """Track changes for :meth:`save`; the stage's rows are stored under its name."""
        self._spills = memory is not None
        self.operator.keep_in_store(place, memory)
        self._duplicates.keep_in_store(place)

    def record(self, recorder: StageRecorder) -> None:
        """Record the stage's input in a trace, and panes, merges of windows, timers and pairs."""
        self._recorder = recorder
        operator = self.operator
        operator.report_to_trace()
        if self.stage.work.join_rules is not None:
            # Imported on use: it loads the joins.
            from lowwater.engine.local.pair_recorder import PairRecorder

            self._pairs = PairRecorder(operator, recorder)

    def report_replaced(self) -> None:
        """Report in outcomes which windows merged away, if panes leave the pipeline."""
        if self._is_end:
            self.operator.report_replaced()

    def save(self, batch: Batch) -> None:
        """Add the changes since the last save to a batch."""
        # What workers hold is fetched first, so that it is saved in the same batch.
        self._gather()
        self.operator.save(batch)
        self._duplicates.save(batch, self.operator.watermark)

    def resume(self, store: StateStore, *, fresh: bool) -> None:
        """Restore stored state unless the run is ``fresh``; use the store from now on."""
        self._store = store if self._spills else None
        self._duplicates.restore(store)
        if not fresh and self.operator.restore(store) and self._recorder is not None:
            self._recorder.is_resumed = True

    def take_outputs(self) -> Mapping[str, Records]:
        """Return what was emitted since the last call as records, by output, for downstream."""
        stage = self.stage
        unread, self._unread = self._unread, {}
        return {
            tag: output_records(parts, stage.key_names, signed=stage.retracts)
            for tag, parts in unread.items()
        }

    def tick(self, now: int) -> Iterator[Outcome]:
        """Advance the clock."""
        yield from self._step(ClockAdvance(now))

    def take(self, waiting: Sequence[StageBundle]) -> Iterator[Outcome]:
        """Process bundles."""
        operator, metrics = self.operator, self.metrics
        for incoming in waiting:
            count_bundle(len(incoming.bundle))
            metrics.arrived += len(incoming.bundle)
            times = incoming.bundle.times
            kept = None
            if self.stage.deduplication is not None:
                kept = self._duplicates.kept(incoming.ids(), times, operator.watermark, metrics)
            bundle, step = self.stage.work.step(self.stage, incoming, kept)
            born = 0 if self._pairs is None else self._pairs.births(step)
            if self._store is not None:
                # A bundle is loaded for as a whole; only advances are cut in portions.
                (step,) = operator.prepare(self._store, step)
            output = operator.step(step)
            if self._recorder is not None:
                self._record(incoming, kept, output, step, born)
            late = None
            if output.late is not None:
                rows = output.late.element if kept is None else kept[output.late.element]
                late = late_elements(output.late, rows + incoming.start, bundle, incoming)
                if WHOLE in self.stage.keys:  # one group of all records: they have no key
                    late = replace(late, keys=(Column.from_arrow(pa.nulls(len(late))),))
                metrics.count_late(output.late)
            yield from self._emit(output, late)
        self._settle()

    def advance(self, to: int) -> Iterator[Outcome]:
        """Advance the watermark; if much is due that is not in memory, in portions.

        Loading all that is due at once could exceed the memory limit. An operator of windows stops
        after a portion (``is_advancing``), so that a run may stop there and be resumed.
        """
        operator = self.operator
        # The right side's watermark may have moved while the lower of both stood still.
        if self.reads_right or operator.is_advancing or to > operator.watermark:
            yield from self._step(self.stage.work.advance(to, self.right_watermark))

    def forget(self, watermark: int) -> None:
        """Drop record ids that the watermark has passed."""
        self._duplicates.forget(watermark)

    def _step(self, step: Any) -> Iterator[Outcome]:
        steps = [step] if self._store is None else self.operator.prepare(self._store, step)
        for portion in steps:
            output = self.operator.step(portion)
            if self._recorder is not None:
                self._recorder.timed(output.timers, of_bundle=False)
            if self._pairs is not None:
                self._pairs.emitted()
            late = None
            if output.late is not None and output.late_of is not None:
                # Records that waited, and were refused when their time had come.
                late = self._late_of(output.late, output.late_of)
                self.metrics.count_late(output.late)
            yield from self._emit(output, late)
        self._settle()

    def _settle(self) -> None:
        """Bring the counts up to date, and load what holds the output watermark."""
        self._counter.settle(self.operator, self.metrics)
        if self._store is not None:
            self.operator.settle(self._store)

    def _record(
        self,
        incoming: StageBundle,
        kept: Int64Array | None,
        output: StageOutput,
        step: Any,
        born: int,
    ) -> None:
        # Imported on use, as everything that only traces need.
        from lowwater.engine.local.taken_bundles import TakenBundle

        operator = self.operator
        at = operator.watermark, operator.clock
        if self._pairs is not None:
            name = self._pairs.side_name(step)
            self._pairs.took(TakenBundle.of(incoming, kept, output.late, *at, name), step, born)
        elif self._recorder is not None:
            self._recorder.took(TakenBundle.of(incoming, kept, output.late, *at), output.merges)
            self._recorder.timed(output.timers, of_bundle=True)

    def _late_of(self, late: LateBatch, bundle: Bundle) -> LateElements:
        added = {"kind"} if self.stage.signed else set()
        columns = {
            name: column
            for name, column in bundle.values.items()
            if name not in added and not name.startswith(HIDDEN)
        }
        element = late.element
        keys = tuple(key.take(element) for key in bundle.keys)
        records = Records(columns, len(bundle))
        return LateElements(late, records, element, bundle.times[element], keys)

    def _emit(self, output: StageOutput, late: LateElements | None) -> Iterator[Outcome]:
        """Count what was emitted, queue it for downstream, and yield what leaves the pipeline."""
        self.metrics.superseded += output.superseded
        leaving: dict[str, Output] = {}
        errors: list[ErrorRecord] = []
        for tag, emitted in output.outputs.items():
            if tag == UNFIT:
                from lowwater.engine.process.unfit import letters_of

                errors += letters_of(emitted)
                continue
            self._count(tag, emitted)
            if self._is_read:
                self._unread.setdefault(tag, []).append(emitted)
            if self._is_end:
                leaving[tag] = emitted
        if leaving or late is not None:
            yield Outcome(leaving, late, stage=self.number, replaced=output.replaced)
        if errors:  # by themselves: a run that raises at the first has emitted what was sound
            yield Outcome(errors=errors, stage=self.number)

    def _count(self, tag: str, emitted: Output) -> None:
        if not isinstance(emitted, PaneBatch):
            self.metrics.emitted[tag] += len(emitted)
            return
        self.metrics.count_panes(emitted)
        if self._recorder is not None:
            self._recorder.showed(emitted)


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
