"""Collects the invalid rows of a batch while its columns are validated."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, final

import numpy as np

from lowwater.time import Int64Array


@final
class Problems:
    """The invalid rows of a batch, each with the first reason found and a description."""

    __slots__ = ("found",)

    def __init__(self) -> None:
        self.found: dict[int, tuple[str, str]] = {}

    def add(self, row: int, reason: str, detail: str) -> None:
        """Record a row; the first reason recorded for it stays."""
        self.found.setdefault(row, (reason, detail))

    def add_all(self, rows: Int64Array, reason: str, detail: str) -> None:
        """Record many rows with the same reason."""
        for row in rows.tolist():
            self.found.setdefault(row, (reason, detail))

    def rows(self) -> Int64Array:
        """Return the rows, int64, sorted."""
        return np.array(sorted(self.found), dtype=np.int64)


def is_nan(value: Any) -> bool:
    """Return whether a value is NaN or NaT.

    The types are checked first: ``!=`` of arbitrary objects may raise or return an array.
    """
    return isinstance(value, _MAY_BE_NAN) and bool(value != value)


_MAY_BE_NAN = (float, np.floating, np.datetime64, np.timedelta64, datetime, timedelta)
