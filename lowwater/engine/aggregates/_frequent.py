"""The most frequent values, with their counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import pyarrow as pa

from lowwater.engine.aggregates._column_values import list_column
from lowwater.engine.aggregates._tally import Counts
from lowwater.engine.records.columns import Column


@final
@dataclass(frozen=True, slots=True)
class MostFrequent:
    """Lists the values with the largest counts: ``{"value": ..., "count": ...}``.

    Args:
        most: How many.
        type: The Arrow type of the values, if known.
    """

    most: int
    type: pa.DataType | None

    def __call__(self, counts: Counts, rows: int) -> Column:
        """Return the list of each row: the most frequent first, at equal counts the smaller."""
        order = np.lexsort((np.arange(len(counts.owner)), -counts.counts, counts.owner))
        owner = counts.owner[order]
        place = np.arange(len(order)) - np.searchsorted(owner, owner)
        order = order[place < self.most]
        lengths = np.bincount(counts.owner[order], minlength=rows).astype(np.int64)
        fields = {
            "value": Column(counts.values[order], type=self.type),
            "count": Column(counts.counts[order]),
        }
        return list_column(fields, lengths)
