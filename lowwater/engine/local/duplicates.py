"""Drops duplicates before a stage's operator, whatever the stage does (S-D1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np

from lowwater.engine.graph.metrics import StageMetrics
from lowwater.engine.records.columns import Column
from lowwater.engine.records.deduplicate import Deduplication, Deduplicator
from lowwater.state.key_layout import StoredPlace
from lowwater.state.store import Batch, StateStore
from lowwater.time import Int64Array


@final
class DuplicateFilter:
    """Remembers the ids of one stage's elements, and drops those that it has seen.

    Args:
        deduplication: Which elements are duplicates; ``None``: none are.
    """

    def __init__(self, deduplication: Deduplication | None) -> None:
        self._ids = None if deduplication is None else Deduplicator(deduplication)

    def keep_in_store(self, place: StoredPlace) -> None:
        """Keep ids in the store, under the name of the stage."""
        if self._ids is not None:
            self._ids.keep_in_store(place)

    def save(self, batch: Batch, watermark: int) -> None:
        """Add the changes since the last save to a batch."""
        if self._ids is not None:
            self._ids.advance(watermark)
            self._ids.save(batch)

    def restore(self, store: StateStore) -> None:
        """Use the store from now on."""
        if self._ids is not None:
            self._ids.restore(store)

    def forget(self, watermark: int) -> None:
        """Drop ids that the watermark has passed."""
        if self._ids is not None:
            self._ids.advance(watermark)

    def kept(
        self, ids: Sequence[Column], times: Int64Array, watermark: int, metrics: StageMetrics
    ) -> Int64Array | None:
        """Return the places of the elements that are no duplicates; ``None`` if all are none.

        Args:
            ids: The columns of the id, each of length n.
            times: The event times, int64, shape (n,).
            watermark: The watermark that they meet.
            metrics: Counts the duplicates.
        """
        if self._ids is None:
            return None
        self._ids.advance(watermark)
        first = self._ids.step(tuple(ids), times)
        if first.all():
            return None
        kept = np.flatnonzero(first)
        metrics.duplicates += len(first) - len(kept)
        return kept
