"""The conditions of variables on rows by themselves and on rows before them, as bits (P-3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import numpy as np

from lowwater.engine.keyed.records import KeyedRecords
from lowwater.engine.match.key_rows import KeyRows
from lowwater.engine.match.measures import is_aggregate
from lowwater.engine.match.references import references_in
from lowwater.engine.match.rules import Matching
from lowwater.engine.match.taken import Values
from lowwater.engine.records.columns import Column, Mask
from lowwater.engine.records.other_rows import Prev
from lowwater.engine.records.steps import Bundle
from lowwater.time import Int64Array

DEFINE = "match(define=)"
"""What messages call it."""
FUNCTIONS_REACH = 8
"""How many rows before its own a condition that is a function may read."""
MOST_VARIABLES = 62
"""How many variables a pattern may have: a row has a bit for each, and one for what is absent."""


@final
class Conditions:
    """Computes which rows meet which conditions.

    A row has a bit for each variable with a condition that does not depend on the match, by the
    number of the variable, and behind them one for what must not come behind a match.

    Args:
        rules: The rules.
    """

    def __init__(self, rules: Matching) -> None:
        self.labels: Mapping[str, int] = {name: at for at, name in enumerate(rules.variables)}
        self.absent_bit = len(self.labels) if rules.absence is not None else -1
        self._columns = {self.labels[name]: column for name, column in rules.columns.items()}
        if rules.absence is not None:
            self._columns[self.absent_bit] = rules.absence.column
        self._before = rules.before
        self.bits = frozenset(self.labels[name] for name in (*rules.columns, *rules.before))
        """The numbers of the variables that have a bit."""
        self.depth = max(
            (
                reference.k
                for one in (
                    *rules.before.values(),
                    *rules.so_far.values(),
                    *rules.measures.values(),
                )
                if not callable(one) and not is_aggregate(one)
                for reference in references_in(one)
                if isinstance(reference, Prev)
            ),
            default=0,
        )
        if rules.functions:
            self.depth = max(self.depth, FUNCTIONS_REACH)
        """How many rows before its own a condition or a measure reads."""

    @property
    def reads_before(self) -> bool:
        """Whether bits depend on rows before."""
        return bool(self._before)

    def of_bundle(self, bundle: Bundle) -> Int64Array:
        """Return the bits of records that depend on nothing else, int64, shape (n,)."""
        bits = np.zeros(len(bundle), dtype=np.int64)
        for bit, name in self._columns.items():
            bits |= true_rows(bundle.values[name]).astype(np.int64) << bit
        return bits

    def judge(self, records: KeyedRecords, rows: KeyRows, values: Values, *, every: bool) -> None:
        """Compute the bits that depend on rows before, of rows where these have changed.

        Args:
            records: The records, with columns ``bits`` and ``judged``.
            rows: The rows of some keys.
            values: Computes over them.
            every: Whether rows have been taken out, so that any may have changed.
        """
        table = records.table
        judged = table["judged"][rows.rows]
        at = np.arange(len(rows)) if every else rows.behind(~judged, self.depth)
        if not at.size:
            return
        changed = rows.rows[at]
        bits = table["bits"][changed]
        for name, truths in values.truths(self._before, at, None, DEFINE).items():
            bit = self.labels[name]
            mask = np.int64(1) << np.int64(bit)
            bits = np.where(truths, bits | mask, bits & ~mask)
        table["bits"][changed] = bits
        table["judged"][changed] = True
        records.touch(changed)


def true_rows(column: Column) -> Mask:
    """Return where a column is true; null is not."""
    truths = column.data.astype(np.bool_)
    return truths if column.valid is None else truths & column.valid
