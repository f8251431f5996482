"""Runs a stage that emits records: a keyed computation written by the user, or a join."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, final

import numpy as np

from lowwater.engine.graph.graph import Computed, Grouped, Joined, Stage, Upserted
from lowwater.engine.graph.metrics import StageMetrics
from lowwater.engine.join.as_of import AsOfOperator, SidesAdvance
from lowwater.engine.join.joining import AsOf, Joining
from lowwater.engine.join.operator import JoinOperator
from lowwater.engine.join.tables import GroupOperator, UpsertOperator
from lowwater.engine.join.two_sided import SideBundle
from lowwater.engine.local.outcomes import Outcome
from lowwater.engine.local.recorder import StageRecorder
from lowwater.engine.local.stage_input import StageBundle
from lowwater.engine.local.window_stage import late_elements, taken_from
from lowwater.engine.process import Emitted, ProcessOperator, ProcessOutput
from lowwater.engine.process.output import emitted_records
from lowwater.engine.records.batch import HIDDEN, Records
from lowwater.engine.records.columns import Column
from lowwater.engine.records.steps import Bundle, ClockAdvance, EndOfInput, WatermarkAdvance
from lowwater.errors import InternalError, InvalidArgument
from lowwater.state.key_layout import StoredPlace
from lowwater.state.store import Batch, StateStore
from lowwater.time import END_OF_TIME, START_OF_TIME

Emitting: TypeAlias = Computed | Joined | Upserted | Grouped
EmittingOperator: TypeAlias = (
    ProcessOperator | JoinOperator | AsOfOperator | UpsertOperator | GroupOperator
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

    ``minds_right`` says whether ``right_watermark``, that of the right side of a join, is to be set
    before each :meth:`advance`.
    """

    def __init__(
        self, stage: Stage, work: Emitting, number: int, *, is_end: bool, is_read: bool
    ) -> None:
        self.stage = stage
        self.number = number
        self.metrics = StageMetrics()
        self.operator = _operator_of(stage, work)
        self._is_end = is_end
        self._is_read = is_read
        self.minds_right = isinstance(work, Joined) and work.minds_right
        self.right_watermark = START_OF_TIME
        self._unread: dict[str, list[Emitted]] = {}
        self._recorder: StageRecorder | None = None

    def keep_in_store(self, place: StoredPlace, memory: int | None) -> None:
        """Track changes for :meth:`save`; a memory limit applies to windowed stages only."""
        self.operator.keep_in_store(place)

    def record(self, recorder: StageRecorder) -> None:
        """Record the stage's input in a trace; what it emits is not traced."""
        self._recorder = recorder

    def save(self, batch: Batch) -> None:
        """Add the changes since the last save to a batch."""
        self.operator.save(batch)

    def resume(self, store: StateStore, *, fresh: bool) -> None:
        """Restore stored state unless the run is ``fresh``."""
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
        for incoming in waiting:
            bundle, output = self._stepped(incoming)
            if self._recorder is not None:
                operator = self.operator
                self._recorder.took(
                    taken_from(incoming, None, output.late, operator.watermark, operator.clock)
                )
            if output.late is not None:
                late = late_elements(
                    output.late, output.late.element + incoming.start, bundle, incoming
                )
                self.metrics.count_late(output.late)
                yield Outcome(late=late, stage=self.number)
            yield from self._emitted(output)

    def advance(self, to: int) -> Iterator[Outcome]:
        """Advance the watermark."""
        if self.minds_right:
            yield from self._step(SidesAdvance(to, self.right_watermark))
        elif to > self.operator.watermark:
            step = EndOfInput() if to == END_OF_TIME else WatermarkAdvance(to)
            yield from self._step(step)

    def forget(self, watermark: int) -> None:
        """Do nothing: the operator clears its own state."""

    def _stepped(self, incoming: StageBundle) -> tuple[Bundle, ProcessOutput]:
        """Have the operator process a bundle; return it, with the columns the operator read."""
        given, work = incoming.bundle, self.stage.work
        operator: Any = self.operator
        keys = self.stage.keys_of(incoming.nth)
        if isinstance(work, Joined):
            values = {n: column for n, column in _columns(incoming).items() if n not in keys}
            bundle = replace(given, values=values)
            return bundle, operator.step(SideBundle(work.side_of(incoming.nth), bundle))
        if isinstance(work, Grouped):
            return given, operator.step(given)
        if isinstance(work, Upserted):
            values = {n: c for n, c in _columns(incoming).items() if n not in keys}
            bundle = replace(given, values={**values, **given.values})
            return bundle, operator.step(bundle)
        kinds = _kinds(incoming) if self.stage.signed else {}
        bundle = replace(given, values={**_columns(incoming), **kinds, **given.values})
        return bundle, operator.step(bundle)

    def _step(
        self, step: WatermarkAdvance | SidesAdvance | ClockAdvance | EndOfInput
    ) -> Iterator[Outcome]:
        operator: Any = self.operator
        yield from self._emitted(operator.step(step))

    def _emitted(self, output: ProcessOutput) -> Iterator[Outcome]:
        for tag, emitted in output.outputs.items():
            self.metrics.emitted[tag] += len(emitted)
            if self._is_read:
                self._unread.setdefault(tag, []).append(emitted)
            if self._is_end:
                yield Outcome(emitted={tag: emitted}, stage=self.number)


def _operator_of(stage: Stage, work: Emitting) -> EmittingOperator:
    match work:
        case Computed():
            return ProcessOperator(work.process, windowing=work.windowing)
        case Joined(joining=Joining() as joining):
            return JoinOperator(joining, work.columns, signed=stage.signed)
        case Joined(joining=AsOf() as as_of):
            return AsOfOperator(as_of, work.columns, signed=stage.signed)
        case Upserted():
            return UpsertOperator(work.rules, work.columns)
        case Grouped():
            return GroupOperator(work.aggregates)
        case _:
            raise InternalError(f"no operator does {type(work).__name__}")


def _columns(incoming: StageBundle) -> dict[str, Column]:
    """Return the columns of a bundle's records."""
    start, stop = incoming.start, incoming.start + len(incoming.bundle)
    kept = incoming.admitted.kept
    return {
        name: (column if kept is None else column.take(kept)).slice(start, stop)
        for name, column in incoming.records.columns.items()
        if not name.startswith(HIDDEN)
    }


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
