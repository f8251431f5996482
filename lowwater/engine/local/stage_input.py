"""One input of a stage: applies its stateless steps, validates records and cuts bundles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from lowwater.engine.graph.graph import MAIN
from lowwater.engine.records.admission import Admission, Admitted
from lowwater.engine.records.batch import HIDDEN, Records
from lowwater.engine.records.columns import Column
from lowwater.engine.records.pane_table import SIGN
from lowwater.engine.records.panes import ErrorRecord
from lowwater.engine.records.stepping import Apply, Step, applied, apply_steps
from lowwater.engine.records.steps import Bundle
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
    """

    stage: int
    steps: tuple[Step, ...]
    admission: Admission
    output: str = MAIN
    signed: bool = False
    minds_order: bool = False
    nth: int = 0
    apply: Apply = applied

    def take(self, records: Records, clock: int | Int64Array | None = None) -> AdmittedBatch | None:
        """Apply the steps to a batch and validate what is left; ``None`` if nothing is left.

        Args:
            records: The batch.
            clock: The clock when the batch arrived; needed if event times have a ``max_ahead``.
        """
        if isinstance(clock, np.ndarray):  # the steps may drop records: carry it along
            came = Column(clock)
            records = records.replaced({**records.columns, _ARRIVED: came})
        errors: list[ErrorRecord] = []
        if self.steps:
            stepped = apply_steps(self.steps, records, self.apply)
            records = stepped.records
            self.admission.require(stepped.missing)
            if stepped.rejected:
                errors = self.admission.reject(stepped.errors)
            # A Python function that is called for no rows returns no columns, so the validation
            # below would report every column as missing. Without steps it is right to do so.
            if not records.length:
                if not errors:
                    return None
                nothing = Bundle(np.zeros(0, dtype=np.int64), (), {})
                return AdmittedBatch(self, records, Admitted(nothing, None, errors))
        if isinstance(clock, np.ndarray):
            clock = records.columns[_ARRIVED].data
        admitted = self.admission.admit(records, clock=clock)
        if errors:
            admitted = replace(admitted, errors=[*errors, *admitted.errors])
        return AdmittedBatch(self, records, _signed(admitted, records) if self.signed else admitted)


@final
@dataclass(frozen=True, slots=True)
class AdmittedBatch:
    """A batch after the steps and the validation of one stage's input."""

    entry: StageAdmission
    records: Records
    admitted: Admitted

    def bundles(self, size: int) -> Iterator[StageBundle]:
        """Split the batch into bundles of at most ``size`` elements."""
        bundle = self.admitted.bundle
        for start in range(0, len(bundle), size):
            yield self.stage_bundle(bundle.slice(start, start + size), start)

    def stage_bundle(self, bundle: Bundle, start: int) -> StageBundle:
        """Wrap consecutive elements of this batch, from ``start`` on, for the stage."""
        entry = self.entry
        return StageBundle(entry.stage, bundle, start, self.records, self.admitted, entry.nth)


@final
@dataclass(frozen=True, slots=True)
class StageBundle:
    """A bundle addressed to a stage, with the batch that its elements come from.

    Args:
        stage: Number of the stage.
        bundle: The elements.
        start: Index of the bundle's first element among the batch's admitted elements.
        records: The batch.
        admitted: The result of validating the batch.
        nth: Which input of the stage they came by.
    """

    stage: int
    bundle: Bundle
    start: int
    records: Records
    admitted: Admitted
    nth: int = 0

    def ids(self) -> tuple[Column, ...]:
        """Return the columns of the elements' ids; none where duplicates are not dropped."""
        stop = self.start + len(self.bundle)
        return tuple(column.slice(self.start, stop) for column in self.admitted.ids)


def _signed(admitted: Admitted, records: Records) -> Admitted:
    """Attach each record's sign, insert or retract, to the admitted bundle (S-C1)."""
    column = records.columns[SIGN]
    signs = column.data if admitted.kept is None else column.data[admitted.kept]
    return replace(admitted, bundle=replace(admitted.bundle, signs=signs.astype(np.int8)))
