"""Under which number the rows of each stage are stored."""

from __future__ import annotations


def operator_number(stage: int) -> int:
    """Return the number of a stage's operator, for the stage's own number."""
    return 2 * stage + 1


def deduplicator_number(stage: int) -> int:
    """Return the number of the record ids of a stage."""
    return 2 * stage + 2
