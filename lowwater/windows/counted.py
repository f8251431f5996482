"""Windows of a number of records (C-1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from lowwater.errors import InvalidArgument, constructor, describe
from lowwater.windows._base import MOST_WINDOWS

MOST_RECORDS = 1_000_000_000
"""How many records a window may have, and how many apart two may start."""


@constructor(size="count", length="count", n="count", slide="every", step="every", period="every")
@final
@dataclass(frozen=True, slots=True, repr=False)
class CountWindows:
    """Windows of a number of records of a key, in order of arrival (C-1 to C-4).

    The windows of a key start at its first record and then every ``every`` records. A window emits
    one pane, with the record that fills it; what is not full at the end of the input is emitted
    then. They have no trigger, no accumulation and no allowed lateness: no record is late for them.
    The result depends on the order of arrival, as that of no other windows does; bundles change
    nothing.

    Args:
        count: How many records a window has, at least 1.
        every: How many records after one window the next one starts, at most ``count``; by default
            ``count``, so that each record is in one window. A record is in at most 10,000 windows.

    Raises:
        InvalidArgument: ``count`` or ``every`` is not such an int, or a record would be in too many
            windows.

    >>> CountWindows(100)
    CountWindows(100)
    >>> CountWindows(100, every=20)
    CountWindows(100, every=20)
    """

    count: int
    every: int | None = None

    def __post_init__(self) -> None:
        _require_number("count", self.count, 'CountWindows(100), or FixedWindows("1m") for a time')
        if self.every is None:
            return
        _require_number("every", self.every, "CountWindows(100, every=20)")
        if self.every > self.count:
            raise InvalidArgument(
                f"every={self.every} is above count={self.count}: the records between two windows "
                "would be in none",
                where="CountWindows",
                hint=f"CountWindows({self.every}, every={self.count}), or filter records away "
                "before",
            )
        if self.overlap > MOST_WINDOWS:
            raise InvalidArgument(
                f"count={self.count:_} and every={self.every:_} put each record into "
                f"{self.overlap:_} windows, each with state and a pane of its own, and at most "
                f"{MOST_WINDOWS:_} are supported",
                where="CountWindows",
                hint=f"Use every={-(-self.count // MOST_WINDOWS)} or more, or over(rows=...), "
                "which has a result for each record",
            )

    @property
    def step(self) -> int:
        """How many records after one window the next one starts."""
        return self.count if self.every is None else self.every

    @property
    def overlap(self) -> int:
        """In how many windows a record is at most."""
        return -(-self.count // self.step)

    def __repr__(self) -> str:
        every = "" if self.every is None else f", every={self.every}"
        return f"CountWindows({self.count}{every})"


def _require_number(name: str, value: object, example: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_RECORDS:
        raise InvalidArgument(
            f"{describe(name, value)} is not an int from 1 to {MOST_RECORDS:_}",
            where="CountWindows",
            hint=f"Give a number of records: {example}",
        )
