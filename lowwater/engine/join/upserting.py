"""The rules of a table that is made from upserts, and the column that marks deletions (T-1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from lowwater.engine.records.batch import HIDDEN

DELETED = HIDDEN + "deleted"
"""Hidden column of upserts: whether they delete their row, bool; null is no."""


@final
@dataclass(frozen=True, slots=True)
class Upserting:
    """The rules of a table that is made from upserts (T-1).

    Args:
        order: The column that says which of two upserts of a key is the newer; ``None``: the one
            that arrives later.
        keep_deleted_us: How long a deleted key is remembered, in event time, microseconds.
        ttl_us: How long after its last change a row is deleted, in event time, microseconds;
            ``None``: never.
    """

    order: str | None = None
    keep_deleted_us: int = 0
    ttl_us: int | None = None
