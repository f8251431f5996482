"""The first rows of each group of a table, a row at a time: an oracle for T-6."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, final


@final
@dataclass(frozen=True)
class TableRow:
    """A row of a table.

    Args:
        id: Its primary key.
        group: What it is grouped by; null is a group.
        by: The value that decides, or null.
        tie: A value that orders rows of equal ``by``, or null.
        time: Its event time.
    """

    id: int
    group: str | None
    by: Any
    tie: str | None
    time: int


Change: TypeAlias = tuple[TableRow, int]
"""A row and its sign."""
Ranked: TypeAlias = tuple[str | None, int, TableRow]
"""Group, rank and row."""


@final
@dataclass
class TopRun:
    """Keeps all rows, and sorts each group again after each bundle.

    Args:
        most: How many rows of a group.
        tied: Whether ``tie`` orders rows of equal ``by``.
        reverse: Whether small values come first.
        is_whole: Whether all rows are one group.
    """

    most: int
    tied: bool = False
    reverse: bool = False
    is_whole: bool = False
    rows: Counter[TableRow] = field(default_factory=Counter)

    def take(self, changes: Sequence[Change]) -> Counter[tuple[Ranked, int]]:
        """Apply the changes of a bundle; return how often each rank is retracted or inserted."""
        before = self.standing()
        for row, sign in changes:
            self.rows[row] += sign
        assert min(self.rows.values(), default=0) >= 0
        self.rows = +self.rows
        after = self.standing()
        retracted = ((one, -1) for one in before - after)
        return Counter([*retracted, *((one, 1) for one in after - before)])

    def standing(self) -> set[Ranked]:
        """Return the rows that have a rank, with it."""
        groups: dict[str | None, list[TableRow]] = {}
        for row in self.rows:
            if row.by is not None:
                groups.setdefault(None if self.is_whole else row.group, []).append(row)
        return {
            (group, rank, row)
            for group, rows in groups.items()
            for rank, row in enumerate(self.in_order(rows)[: self.most], 1)
        }

    def in_order(self, rows: Sequence[TableRow]) -> list[TableRow]:
        """Return rows in the order of their ranks."""
        rows = sorted(rows, key=lambda row: row.id)
        if self.tied:
            rows.sort(key=lambda row: (row.tie is not None, row.tie or ""))
        rows.sort(key=lambda row: row.by, reverse=not self.reverse)  # stable, reversed too
        return rows
