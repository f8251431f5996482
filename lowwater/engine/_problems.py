"""What was found wrong with the rows of a batch."""

from __future__ import annotations

from typing import final

import numpy as np

from lowwater.time import Int64Array


@final
class Problems:
    """The unusable rows of a batch, each with the first reason found and what was wrong."""

    __slots__ = ("found",)

    def __init__(self) -> None:
        self.found: dict[int, tuple[str, str]] = {}

    def add(self, row: int, reason: str, detail: str) -> None:
        """Note a row, unless it is known already."""
        self.found.setdefault(row, (reason, detail))

    def add_all(self, rows: Int64Array, reason: str, detail: str) -> None:
        """Note many rows for one reason."""
        for row in rows.tolist():
            self.found.setdefault(row, (reason, detail))

    def rows(self) -> Int64Array:
        """Return the rows, int64, sorted."""
        return np.array(sorted(self.found), dtype=np.int64)
