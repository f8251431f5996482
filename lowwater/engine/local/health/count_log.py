"""Logs how many elements a run dropped as late and how many records became dead letters."""

from __future__ import annotations

import logging
from collections import Counter
from typing import final

from lowwater.engine.graph.metrics import Metrics

_LOG = logging.getLogger("lowwater.engine")


@final
class CountLog:
    """Logs the counts of late elements and of dead letters, each when it reaches a power of ten.

    Args:
        metrics: The metrics of the run.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._late_next, self._dead_letters_next = 1, 1

    def resume(self) -> None:
        """Do not log again what an earlier run has logged; call it when its metrics are back."""
        self._late_next = _next_power(self._metrics.late.total())
        self._dead_letters_next = _next_power(self._metrics.errors.total())

    def log(self) -> None:
        """Log the counts that have reached a power of ten since the last call."""
        metrics = self._metrics
        if metrics.late.total() >= self._late_next:
            self._late_next = _log_count(
                logging.INFO,
                "element was dropped as late",
                "elements were dropped as late",
                metrics.late,
            )
        if metrics.errors.total() >= self._dead_letters_next:
            self._dead_letters_next = _log_count(
                logging.WARNING,
                "record became a dead letter",
                "records became dead letters",
                metrics.errors,
            )


def _log_count(level: int, one: str, many: str, counts: Counter[str]) -> int:
    """Log a count that has reached a power of ten; return at which one to log it again."""
    total = counts.total()
    _LOG.log(level, "%d %s: %s", total, one if total == 1 else many, dict(counts))
    return _next_power(total)


def _next_power(count: int) -> int:
    """Return the least power of ten above a count.

    >>> _next_power(0), _next_power(9), _next_power(10)
    (1, 10, 100)
    """
    return 10 ** len(str(count)) if count else 1
