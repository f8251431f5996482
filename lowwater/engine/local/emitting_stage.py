"""Runs a stage that emits records: a keyed computation of the user's, a join, or none at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, final

import numpy as np

from lowwater.engine.graph.graph import Computed, Grouped, Joined, Passed, Stage, Upserted
from lowwater.engine.graph.metrics import StageMetrics
from lowwater.engine.join.as_of import AsOfOperator
from lowwater.engine.join.interval_join import JoinOperator
from lowwater.engine.join.joining import AsOf, Joining
from lowwater.engine.join.keyed_operator import KeyedOperator, SideBundle, SidesAdvance
from lowwater.engine.join.tables import GroupOperator, UpsertOperator
from lowwater.engine.join.two_sided import TwoSided
from lowwater.engine.local.duplicates import DuplicateFilter
from lowwater.engine.local.health.conservation import AdmittedCounter
from lowwater.engine.local.outcomes import LateElements, Outcome
from lowwater.engine.local.pair_recorder import PairRecorder
from lowwater.engine.local.parted_process import PartedProcess, is_parted
from lowwater.engine.local.recorder import StageRecorder
from lowwater.engine.local.stage_input import StageBundle
from lowwater.engine.local.window_stage import columns_of_bundle, late_elements, taken_from
from lowwater.engine.local.worker_pool import Workers
from lowwater.engine.process import ProcessOperator
from lowwater.engine.process.operator import InputBundle
from lowwater.engine.process.passing import PassingOperator
from lowwater.engine.process.unfit import UNFIT, letters_of, sifted
from lowwater.engine.records.batch import HIDDEN, Records
from lowwater.engine.records.columns import Column
from lowwater.engine.records.stage_output import Emitted, StageOutput, emitted_records
from lowwater.engine.records.steps import (
    Bundle,
    ClockAdvance,
    EndOfInput,
    LateBatch,
    WatermarkAdvance,
)
from lowwater.errors import InternalError, InvalidArgument
from lowwater.kernels import count_records
from lowwater.state.key_layout import StoredPlace
from lowwater.state.store import Batch, StateStore
from lowwater.time import END_OF_TIME, START_OF_TIME, Int64Array

EmittingWork: TypeAlias = Computed | Joined | Passed | Upserted | Grouped
EmittingOperator: TypeAlias = (
    ProcessOperator
    | PartedProcess
    | JoinOperator
    | AsOfOperator
    | UpsertOperator
    | GroupOperator
    | PassingOperator
)


@final
class EmittingRun:
    """One such stage of a run; see :class:`lowwater.engine.local.window_stage.WindowRun`.

    Args:
        stage: The stage.
        work: What it does.
        number: Its number in the graph.
        is_end: Whether the records it emits leave the pipeline.
        is_read: Whether downstream stages read them.
        workers: Have the parts of a keyed computation that can be in parts; ``None``: it is not.

    ``minds_right`` says whether ``right_watermark``, that of the right side of a join, is to be set
    before each :meth:`advance`.
    """

    def __init__(
        self,
        stage: Stage,
        work: EmittingWork,
        number: int,
        *,
        is_end: bool,
        is_read: bool,
        workers: Workers | None = None,
    ) -> None:
        self.stage = stage
        self.number = number
        self.metrics = StageMetrics()
        self.operator: EmittingOperator
        if workers is not None and isinstance(work, Computed) and is_parted(work):
            self.operator = PartedProcess(work, number, workers)
        else:
            self.operator = _operator_of(stage, work)
        self._duplicates = DuplicateFilter(stage.deduplication)
        self._counter = AdmittedCounter()
        self._is_end = is_end
        self._is_read = is_read
        self.minds_right = isinstance(work, Joined) and work.minds_right
        self.right_watermark = START_OF_TIME
        self._unread: dict[str, list[Emitted]] = {}
        self._recorder: StageRecorder | None = None
        self._pairs: PairRecorder | None = None
        self._store: StateStore | None = None

    def keep_in_store(self, place: StoredPlace, memory: int | None) -> None:
        """Track changes for :meth:`save`; a memory limit applies to joins and tables only."""
        if isinstance(self.operator, KeyedOperator):
            self.operator.keep_in_store(place, memory)
        else:
            self.operator.keep_in_store(place)
        self._duplicates.keep_in_store(place)

    def record(self, recorder: StageRecorder) -> None:
        """Record the stage's input in a trace, and the pairs of a join.

        What else it emits is not traced.
        """
        self._recorder = recorder
        if isinstance(self.operator, TwoSided):
            self._pairs = PairRecorder(self.operator, recorder)

    def save(self, batch: Batch) -> None:
        """Add the changes since the last save to a batch."""
        self.operator.save(batch)
        self._duplicates.save(batch, self.operator.watermark)

    def resume(self, store: StateStore, *, fresh: bool) -> None:
        """Restore stored state unless the run is ``fresh``; use the store from now on."""
        self._store = store
        self._duplicates.restore(store)
        if not fresh:
            self.operator.restore(store)

    def take_outputs(self) -> Mapping[str, Records]:
        """Return the records emitted since the last call, by output, for downstream stages."""
        unread, self._unread = self._unread, {}
        keys = self.stage.key_names
        return {tag: emitted_records(parts, keys) for tag, parts in unread.items()}

    def tick(self, now: int) -> Iterator[Outcome]:
        """Advance the clock."""
        yield from self._step(ClockAdvance(now))

    def take(self, waiting: Sequence[StageBundle]) -> Iterator[Outcome]:
        """Process bundles."""
        operator, metrics = self.operator, self.metrics
        for incoming in waiting:
            count_records(len(incoming.bundle))
            metrics.arrived += len(incoming.bundle)
            times = incoming.bundle.times
            kept = None
            if self.stage.deduplication is not None:
                kept = self._duplicates.kept(incoming.ids(), times, operator.watermark, metrics)
            bundle, step = self._given(incoming, kept)
            born = _births(operator, step)
            if self._store is not None and isinstance(operator, KeyedOperator):
                operator.load(self._store, bundle)
            output = operator.step(step)
            if self._recorder is not None:
                self._record(incoming, kept, output.late, step, born)
            if output.late is not None:
                rows = output.late.element if kept is None else kept[output.late.element]
                late = late_elements(output.late, rows + incoming.start, bundle, incoming)
                metrics.count_late(output.late)
                yield Outcome(late=late, stage=self.number)
            yield from self._emitted(output)
        self._counter.settle(operator, metrics)
        self._find_holder()

    def advance(self, to: int) -> Iterator[Outcome]:
        """Advance the watermark; in portions, if much is due that is not in memory."""
        operator = self.operator
        if self._store is not None and isinstance(operator, KeyedOperator):
            right = self.right_watermark if self.minds_right else to
            while (portion := operator.load_due(self._store, to, right)) is not None:
                yield from self._step(portion)
        yield from self._advance(to)
        self._counter.settle(operator, self.metrics)
        self._find_holder()

    def _advance(self, to: int) -> Iterator[Outcome]:
        if self.minds_right:
            yield from self._step(SidesAdvance(to, self.right_watermark))
        elif to > self.operator.watermark:
            step = EndOfInput() if to == END_OF_TIME else WatermarkAdvance(to)
            yield from self._step(step)

    def forget(self, watermark: int) -> None:
        """Drop record ids that the watermark has passed."""
        self._duplicates.forget(watermark)

    def _find_holder(self) -> None:
        """Have what holds the output watermark in memory, so that it is told exactly."""
        if self._store is not None and isinstance(self.operator, KeyedOperator):
            self.operator.load_holder(self._store)

    def _given(self, incoming: StageBundle, kept: Int64Array | None) -> tuple[Bundle, Any]:
        """Return a bundle with the columns that the operator reads, and the operator's step for it.

        Args:
            incoming: The bundle.
            kept: The places of its elements that are no duplicates; ``None`` for all.
        """
        bundle, work, nth = incoming.bundle, self.stage.work, incoming.nth
        hidden = work.columns.hidden[work.side_of(nth)] if isinstance(work, Joined) else frozenset()
        columns = columns_of_bundle(incoming, hidden)
        if isinstance(work, Computed):
            kinds = _kinds(incoming) if self.stage.signed else {}
            columns = {**columns, **kinds, **bundle.values}
        elif isinstance(work, (Joined, Upserted, Passed)):
            keys = self.stage.keys_of(nth)
            columns = {name: column for name, column in columns.items() if name not in keys}
            columns |= bundle.values
        elif isinstance(work, Grouped):
            columns = dict(bundle.values)
        bundle = replace(bundle, values=columns)
        bundle = bundle if kept is None else bundle.take(kept)
        if isinstance(work, Computed):
            return bundle, InputBundle(nth, bundle)
        if isinstance(work, Joined):
            return bundle, SideBundle(work.side_of(nth), bundle)
        return bundle, bundle

    def _record(
        self,
        incoming: StageBundle,
        kept: Int64Array | None,
        late: LateBatch | None,
        step: Any,
        born: int,
    ) -> None:
        operator = self.operator
        at = operator.watermark, operator.clock
        if self._pairs is not None and isinstance(step, SideBundle):
            name = self._pairs.side_name(step.side)
            self._pairs.took(taken_from(incoming, kept, late, *at, name), step.side, born)
        elif self._recorder is not None:
            self._recorder.took(taken_from(incoming, kept, late, *at))

    def _step(
        self, step: WatermarkAdvance | SidesAdvance | ClockAdvance | EndOfInput
    ) -> Iterator[Outcome]:
        operator: Any = self.operator
        output: StageOutput = operator.step(step)
        if self._pairs is not None:
            self._pairs.emitted()
        if output.late is not None and output.late_of is not None:
            # Records that waited, and were refused when their time had come.
            late = self._late_of(output.late, output.late_of)
            self.metrics.count_late(output.late)
            yield Outcome(late=late, stage=self.number)
        yield from self._emitted(output)

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

    def _emitted(self, output: StageOutput) -> Iterator[Outcome]:
        self.metrics.superseded += output.superseded
        outputs, operator = output.outputs, self.operator
        if isinstance(operator, ProcessOperator) and outputs:
            outputs = sifted(outputs, operator.definition.name)
        for tag, emitted in outputs.items():
            if tag == UNFIT:
                yield Outcome(errors=list(letters_of(emitted)), stage=self.number)
                continue
            self.metrics.emitted[tag] += len(emitted)
            if self._is_read:
                self._unread.setdefault(tag, []).append(emitted)
            if self._is_end:
                yield Outcome(emitted={tag: emitted}, stage=self.number)


def _births(operator: EmittingOperator, step: Any) -> int:
    """Return how many records have arrived at the side of a join that a bundle comes to."""
    if isinstance(operator, TwoSided) and isinstance(step, SideBundle):
        return operator.sides[step.side].births
    return 0


def _operator_of(stage: Stage, work: EmittingWork) -> EmittingOperator:
    match work:
        case Computed():
            return ProcessOperator(work.process, windowing=work.windowing, order=work.order)
        case Joined(joining=Joining() as joining):
            return JoinOperator(joining, work.columns, signed=stage.signed)
        case Joined(joining=AsOf() as as_of):
            return AsOfOperator(as_of, work.columns, signed=stage.signed)
        case Passed():
            return PassingOperator(signed=stage.signed)
        case Upserted():
            return UpsertOperator(work.rules, work.columns)
        case Grouped():
            return GroupOperator(work.aggregates)
        case _:
            raise InternalError(f"no operator does {type(work).__name__}")


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
