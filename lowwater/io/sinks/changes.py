"""What panes come to, as changes to a table with one row for each key and window."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, final

Row: TypeAlias = tuple[Any, ...]


@final
@dataclass(frozen=True, slots=True)
class Changes:
    """Three kinds of changes, of distinct rows but for the first; apply them in this order.

    Args:
        taken: (key columns..., index) of rows that go if they have this index.
        gone: Key columns of rows that go in any case.
        rows: Whole rows, new or in place of the one of the same key.
    """

    taken: Sequence[Row]
    gone: Sequence[Row]
    rows: Sequence[Row]


def changes(rows: Iterable[Row], retracts: Iterable[bool], *, key: int, index: int) -> Changes:
    """Return what rows in order come to: an insert puts a row, a retract takes back just that one.

    After an insert the outcome no longer depends on what the table held, so that a window that
    fired a hundred times costs one statement.

    Args:
        rows: The panes; the first ``key`` values of each name its row.
        retracts: Which of them are taken back.
        key: How many values name a row.
        index: Where the pane's index is among the values.

    >>> changes([("a", 1, 0), ("a", 2, 1), ("b", 7, 4)], [False, False, True], key=1, index=2)
    Changes(taken=[('b', 4)], gone=[], rows=[('a', 2, 1)])
    """
    last: dict[Row, Row | None] = {}
    taken: list[Row] = []
    for row, retract in zip(rows, retracts, strict=True):
        name = row[:key]
        if not retract:
            last[name] = row
        elif name not in last:
            taken.append((*name, row[index]))
        else:
            shown = last[name]
            if shown is not None and shown[index] == row[index]:
                last[name] = None
    return Changes(
        taken,
        [name for name, row in last.items() if row is None],
        [row for row in last.values() if row is not None],
    )
