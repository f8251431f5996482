"""Collects the invalid rows of a batch, and counts those among the first records of a stream."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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


JUDGED = 1_000
"""How many of the first records of a stream are counted, to judge by them whether it is usable."""

_LONGEST_EXAMPLE = 400


@final
class Tally:
    """Counts the dead letters among the first records of a stream, by reason.

    ``seen`` counts all records; ``failed`` has for each reason the count among the first 1,000, and
    an example in words. It counts the same however the stream is split into batches.
    """

    __slots__ = ("failed", "seen")

    def __init__(self) -> None:
        self.seen = 0
        self.failed: dict[str, tuple[int, str]] = {}

    def count(self, length: int, failures: Iterable[tuple[int, str, str, Any]]) -> None:
        """Count a batch. O(the failures among the first 1,000 records of the stream).

        Args:
            length: How many records it has.
            failures: The row, the reason, the detail and the record of each dead letter, in order.
        """
        first, self.seen = self.seen, self.seen + length
        if first >= JUDGED:
            return
        for row, reason, detail, record in failures:
            if first + row >= JUDGED:
                return
            count, example = self.failed.get(reason, (0, ""))
            if not count:
                example = f"{detail}; it is {record!r}"
                if len(example) > _LONGEST_EXAMPLE:
                    example = f"{example[:_LONGEST_EXAMPLE]}…"
            self.failed[reason] = (count + 1, example)

    def remember(self) -> dict[str, Any]:
        """Return the counts to store, as plain values."""
        failed = {reason: list(counted) for reason, counted in self.failed.items()}
        return {"seen": self.seen, "failed": failed}

    def resume(self, known: Mapping[str, Any] | None) -> None:
        """Restore the counts that an earlier run stored; ``None``: it did not count."""
        if known is None:
            self.seen = JUDGED
            return
        failed = known["failed"].items()
        self.seen = known["seen"]
        self.failed = {reason: (count, example) for reason, (count, example) in failed}


def is_nan(value: Any) -> bool:
    """Return whether a value is NaN or NaT.

    The types are checked first: ``!=`` of arbitrary objects may raise or return an array.
    """
    return isinstance(value, _MAY_BE_NAN) and bool(value != value)


_MAY_BE_NAN = (float, np.floating, np.datetime64, np.timedelta64, datetime, timedelta)
