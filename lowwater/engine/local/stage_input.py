"""One input of a stage: applies its stateless steps, validates records and cuts bundles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

import numpy as np

from lowwater.engine.graph.graph import MAIN
from lowwater.engine.local.health.conservation import InputCounts
from lowwater.engine.records.admission import Admission, Admitted
from lowwater.engine.records.batch import HIDDEN, Records
from lowwater.engine.records.columns import Column
from lowwater.engine.records.pane_table import SIGN
from lowwater.engine.records.panes import ErrorRecord
from lowwater.engine.records.stage_bundle import StageBundle
from lowwater.engine.records.stepping import AppliedSteps, Apply, Step, applied, apply_steps
from lowwater.engine.records.steps import Bundle
from lowwater.errors import InvalidArgument
from lowwater.time import Int64Array

_ARRIVED = HIDDEN + "arrived"
"""Hidden column: the clock at the arrival of each record, where it is not the same for all."""


@final
@dataclass(frozen=True, slots=True)
class StageAdmission:
    """One input of a stage: applies its stateless steps, then validates the resulting records.

    Args:
        stage: Number of the stage.
        steps: The stateless steps between the origin and the stage.
        admission: Validates the records that leave the last step.
        output: Which output of the origin the stage reads.
        signed: Whether the input may contain retractions.
        minds_order: Whether records are sorted before: see :mod:`lowwater.engine.local.key_order`.
        nth: Which input of the stage it is.
        apply: Applies a step.
        counts: Counts the records (S-B2).
        first: How many steps were applied before.
    """

    stage: int
    steps: tuple[Step, ...]
    admission: Admission
    output: str = MAIN
    signed: bool = False
    minds_order: bool = False
    nth: int = 0
    apply: Apply = applied
    counts: InputCounts = field(default_factory=InputCounts, compare=False)
    first: int = 0

    def remember(self) -> dict[str, Any]:
        """Return the state to store, as plain values."""
        return {**self.admission.remember(), "counts": self.counts.remember()}

    def resume(self, known: Mapping[str, Any]) -> None:
        """Restore the state that an earlier run stored."""
        self.admission.resume(known)
        self.counts.resume(known.get("counts"))

    def take(self, records: Records, clock: int | Int64Array | None = None) -> AdmittedBatch | None:
        """Apply the steps to a batch and validate what is left; ``None`` if nothing is left.

        Args:
            records: The batch.
            clock: The clock when the batch arrived; needed if event times have a ``max_ahead``.
        """
        if isinstance(clock, np.ndarray):  # the steps may drop records: carry it along
            came = Column(clock)
            records = records.replaced({**records.columns, _ARRIVED: came})
        stepped = apply_steps(self.steps, records, self.apply)
        counts = self.counts
        if self.steps:
            self.admission.require(stepped)
            records = stepped.records
            counts.apply(self.first, stepped.counts)
            if stepped.rejected:
                self.admission.reject(stepped.errors)
                counts.rejected += len(stepped.rejected)
            # A Python function that is called for no rows returns no columns, so the validation
            # below would report every column as missing. Without steps it is right to do so.
            if not records.length:
                if not stepped.rejected:
                    return None
                nothing = Bundle(np.zeros(0, dtype=np.int64), (), {})
                rows = np.array([row for row, _ in stepped.rejected], dtype=np.int64)
                by = np.array(stepped.rejected_by, dtype=np.int64)
                rejected = Admitted(nothing, None, stepped.errors)
                return AdmittedBatch(self, records, rejected, stepped, rows, by)
        if isinstance(clock, np.ndarray):
            clock = records.columns[_ARRIVED].data
        try:
            admitted = self.admission.admit(records, clock=clock)
        except InvalidArgument as error:
            raise self._of_steps(error) from None
        counts.taken += records.length
        counts.invalid += len(admitted.errors)
        counts.sound += len(admitted.bundle)
        rows, by, errors = _in_order(stepped, admitted)
        admitted = replace(admitted, errors=errors)
        if self.signed:
            admitted = _signed(admitted, records)
        return AdmittedBatch(self, records, admitted, stepped, rows, by)

    def end(self) -> None:
        """Raise ``InvalidArgument`` if no record of the whole stream had a column that is read."""
        try:
            self.admission.end()
        except InvalidArgument as error:
            raise self._of_steps(error) from None

    def _of_steps(self, error: InvalidArgument) -> InvalidArgument:
        """Return an error that says which step left the event time out, if that is what it is."""
        time = self.admission.time_column
        if not self.steps or error.what != f"there is no column {time!r}":
            return error
        return InvalidArgument(
            f"the records have no column {time!r}, which is to be their event time",
            where=self.steps[-1].method,
            hint=f"Keep it: return {{**record, ...}} from a function, or name {time!r} in select",
        )


@final
@dataclass(frozen=True, slots=True)
class AdmittedBatch:
    """A batch after the steps and the validation of one stage's input.

    Args:
        entry: The input.
        records: What the steps made of the batch.
        admitted: The result of its validation, with the dead letters of the steps.
        stepped: What became of the records in the steps.
        error_rows: The row of each dead letter in the batch, int64, ascending.
        error_steps: The number of the step that each is from; -1: of the validation.
    """

    entry: StageAdmission
    records: Records
    admitted: Admitted
    stepped: AppliedSteps
    error_rows: Int64Array
    error_steps: Int64Array

    def bundles(self, size: int) -> Iterator[StageBundle]:
        """Split the batch into bundles of at most ``size`` elements."""
        bundle = self.admitted.bundle
        for start in range(0, len(bundle), size):
            yield self.stage_bundle(bundle.slice(start, start + size), start)

    def stage_bundle(self, bundle: Bundle, start: int) -> StageBundle:
        """Wrap consecutive elements of this batch, from ``start`` on, for the stage."""
        entry = self.entry
        entry.counts.cut += len(bundle)
        return StageBundle(entry.stage, bundle, start, self.records, self.admitted, entry.nth)


def own_dead_letters(
    entry: StageAdmission, others: Sequence[StageAdmission], by: Int64Array
) -> Int64Array:
    """Return which dead letters of a batch are not those of another input already.

    What a step rejects that several inputs share is one dead letter: that of the first of them.

    Args:
        entry: The input.
        others: The inputs that the batch came to before.
        by: The number of the step of the first input's steps that each dead letter is from; -1: of
            the validation.

    Returns:
        Their places, int64.
    """
    common = max((_common_steps(entry, other) for other in others), default=0)
    own = np.flatnonzero((by < 0) | (by >= common))
    entry.counts.shared += len(by) - len(own)
    return own


def _common_steps(one: StageAdmission, other: StageAdmission) -> int:
    """Return how many leading steps two inputs share."""
    pairs = zip(one.steps, other.steps, strict=False)
    return next(
        (number for number, (mine, its) in enumerate(pairs) if mine is not its),
        min(len(one.steps), len(other.steps)),
    )


def _in_order(
    stepped: AppliedSteps, admitted: Admitted
) -> tuple[Int64Array, Int64Array, list[ErrorRecord]]:
    """Return the dead letters of the steps and of validation in the order of the records.

    Returns:
        Their rows in the batch that the first step was given, the steps, and the dead letters.
    """
    rows = np.zeros(0, dtype=np.int64)
    if admitted.errors and admitted.kept is not None:
        is_bad = np.ones(stepped.records.length, dtype=np.bool_)
        is_bad[admitted.kept] = False
        rows = np.flatnonzero(is_bad)
        before = stepped.rows()
        rows = rows if before is None else before[rows]
    none = np.full(len(rows), -1, dtype=np.int64)
    if not stepped.rejected:
        return rows, none, admitted.errors
    own = np.array([row for row, _ in stepped.rejected], dtype=np.int64)
    errors = [*stepped.errors, *admitted.errors]
    every = np.concatenate((own, rows))
    steps = np.concatenate((np.array(stepped.rejected_by, dtype=np.int64), none))
    order = np.argsort(every, kind="stable")
    return every[order], steps[order], [errors[at] for at in order.tolist()]


def _signed(admitted: Admitted, records: Records) -> Admitted:
    """Attach each record's sign, insert or retract, to the admitted bundle (S-C1)."""
    column = records.columns[SIGN]
    signs = column.data if admitted.kept is None else column.data[admitted.kept]
    return replace(admitted, bundle=replace(admitted.bundle, signs=signs.astype(np.int8)))
