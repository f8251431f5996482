"""Runs a process stage: a keyed computation written by the user."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import final

from lowwater.engine.graph.graph import Computed, Stage
from lowwater.engine.graph.metrics import StageMetrics
from lowwater.engine.local.outcomes import Outcome
from lowwater.engine.local.recorder import StageRecorder
from lowwater.engine.local.stage_input import StageBundle
from lowwater.engine.local.window_stage import late_elements, taken_from
from lowwater.engine.process import Emitted, ProcessOperator, ProcessOutput
from lowwater.engine.process.output import emitted_records
from lowwater.engine.records.batch import HIDDEN, Records
from lowwater.engine.records.columns import Column
from lowwater.engine.records.pane_table import SIGN
from lowwater.engine.records.steps import ClockAdvance, EndOfInput, StepInput, WatermarkAdvance
from lowwater.errors import InvalidArgument
from lowwater.state.key_layout import StoredPlace
from lowwater.state.store import Batch, StateStore
from lowwater.time import END_OF_TIME


@final
class ProcessRun:
    """One process stage of a run; see :class:`lowwater.engine.local.window_stage.WindowRun`.

    Args:
        stage: The stage.
        work: Its process and windowing.
        number: Its number in the graph.
        is_end: Whether the records it emits leave the pipeline.
        is_read: Whether downstream stages read them.
    """

    def __init__(
        self, stage: Stage, work: Computed, number: int, *, is_end: bool, is_read: bool
    ) -> None:
        self.stage = stage
        self.number = number
        self.metrics = StageMetrics()
        self.operator = ProcessOperator(work.process, windowing=work.windowing)
        self._is_end = is_end
        self._is_read = is_read
        self._unread: dict[str, list[Emitted]] = {}
        self._recorder: StageRecorder | None = None

    def keep_in_store(self, place: StoredPlace, memory: int | None) -> None:
        """Track changes for :meth:`save`; a memory limit applies to windowed stages only."""
        self.operator.keep_in_store(place)

    def record(self, recorder: StageRecorder) -> None:
        """Record the stage's input in a trace; the outputs of a process are not traced."""
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
            bundle = replace(
                incoming.bundle,
                values={**_columns(incoming, signed=self.stage.signed), **incoming.bundle.values},
            )
            output = self.operator.step(bundle)
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
        if to > self.operator.watermark:
            step = EndOfInput() if to == END_OF_TIME else WatermarkAdvance(to)
            yield from self._step(step)

    def forget(self, watermark: int) -> None:
        """Do nothing: a process clears its own state."""

    def _step(self, step: StepInput) -> Iterator[Outcome]:
        yield from self._emitted(self.operator.step(step))

    def _emitted(self, output: ProcessOutput) -> Iterator[Outcome]:
        for tag, emitted in output.outputs.items():
            self.metrics.emitted[tag] += len(emitted)
            if self._is_read:
                self._unread.setdefault(tag, []).append(emitted)
            if self._is_end:
                yield Outcome(emitted={tag: emitted}, stage=self.number)


def _columns(incoming: StageBundle, *, signed: bool) -> dict[str, Column]:
    """Return the columns of a bundle's records, plus ``kind`` if the stage reads retractions.

    Raises:
        InvalidArgument: The records already have a column named ``kind``.
    """
    if signed and "kind" in incoming.records.columns:
        raise kind_taken()
    start, stop = incoming.start, incoming.start + len(incoming.bundle)
    kept = incoming.admitted.kept
    found: dict[str, Column] = {}
    for name, column in incoming.records.columns.items():
        if name == SIGN:
            signs = column if kept is None else column.take(kept)
            kinds = ["insert" if sign > 0 else "retract" for sign in signs.data[start:stop]]
            found["kind"] = Column.of_objects(kinds)
        elif not name.startswith(HIDDEN):
            found[name] = (column if kept is None else column.take(kept)).slice(start, stop)
    if signed and "kind" not in found:  # this input has no retractions, another input has
        found["kind"] = Column.of_objects(["insert"] * len(incoming.bundle))
    return found


def kind_taken() -> InvalidArgument:
    """Return the error for a user column ``kind`` in the input of a process with retractions."""
    return InvalidArgument(
        "a column is named 'kind', but downstream of a stage that retracts panes this name says "
        "whether a record is an insert or a retract",
        where="process",
        hint="Rename the column",
    )
