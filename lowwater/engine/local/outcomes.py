"""What one stretch of a run gave: panes, late elements and dead letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import final

import numpy as np

from lowwater.display.text import repr_of
from lowwater.engine.records.batch import Records
from lowwater.engine.records.columns import Column
from lowwater.engine.records.panes import ErrorRecord, LateRecord
from lowwater.engine.records.stage_output import HasOutputs, Output
from lowwater.engine.records.steps import REASONS, LateBatch, MergedWindows, key_values
from lowwater.engine.records.unchecked import draft_of, instants
from lowwater.errors import DataError
from lowwater.time import Instant, Int64Array


@final
@dataclass(frozen=True, slots=True)
class LateElements:
    """Elements dropped from one of their windows, with the records they came in.

    Args:
        batch: The elements as the operator gives them.
        records: The batch of records they are among.
        rows: Row of each in ``records``, int64, shape (n,).
        times: Event time of each, int64, shape (n,).
        keys: The key columns, each of length n.
    """

    batch: LateBatch
    records: Records
    rows: Int64Array
    times: Int64Array
    keys: tuple[Column, ...]

    def __len__(self) -> int:
        return len(self.batch)

    def compact(self) -> LateElements:
        """Return the same, without holding on to the records that were not late."""
        own = self.records.take(self.rows)
        return replace(self, records=own, rows=np.arange(len(own), dtype=np.int64))

    def to_records(self) -> list[LateRecord]:
        """Return them as Python values. O(n)."""
        batch = self.batch
        watermark = Instant(batch.watermark)
        records = []
        for value, time, key, window, reason, detail in zip(
            self.records.rows(self.rows),
            instants(self.times),
            key_values(self.keys),
            batch.windows(),
            batch.reason.tolist(),
            batch.all_details(),
            strict=True,
        ):
            record = _LateDraft()
            record.value = value
            record.time = time
            record.key = key
            record.window = window
            record.watermark = watermark
            record.reason = REASONS[reason]
            record.detail = detail
            record.__class__ = LateRecord
            records.append(record)
        return records


_LateDraft = draft_of(LateRecord)


@final
@dataclass(frozen=True, slots=True)
class Outcome(HasOutputs):
    """What one step of the runner gave; any part may be missing.

    Args:
        outputs: What leaves the pipeline from a stage, by output.
        late: Elements that the stage dropped.
        errors: Dead letters.
        boundary: Whether a bundle is done: a run can be stopped and resumed here.
        stage: The number of the stage.
        replaced: Which windows with earlier panes merged into those of the panes.
    """

    outputs: Mapping[str, Output] = field(default_factory=dict)
    late: LateElements | None = None
    errors: Sequence[ErrorRecord] = ()
    boundary: bool = False
    stage: int = 0
    replaced: tuple[MergedWindows, ...] = ()


def refusal_of(letter: ErrorRecord) -> DataError:
    """Return what to raise for an invalid record where such records are not set aside."""
    return DataError(
        f"a record is invalid ({letter.reason}): {letter.detail}; it is {repr_of(letter.record)}",
        where=letter.where,
        hint='Fix it, or use on_error="dead_letter" to set such records aside',
    )
