"""The rules of a stage that computes values over the rows before each row (O-1 to O-8)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, final

from lowwater.engine.aggregates import AggregateSpec
from lowwater.engine.over.row_numbers import Rank, RowNumber
from lowwater.time import saturating_add

Late: TypeAlias = Literal["correct", "drop"]
LATE: tuple[Late, ...] = ("correct", "drop")


@final
@dataclass(frozen=True, slots=True)
class Over:
    """What is computed of each row, over which rows, and how long these are kept.

    Either ``length_us`` or ``rows`` is given.

    Args:
        names: The names of the results, in order.
        aggregates: The aggregates over the range of a row, by name.
        numbers: Row numbers and ranks, by name.
        expressions: Expressions over the row and the rows before it, by name.
        length_us: The range is this long, in microseconds, up to the row and its peers.
        rows: The range is this many rows, the row included.
        order: The column that orders rows of one time; ``None``: as they arrive.
        keep_us: Rows this much older than a row do not count, in microseconds; for ``rows``.
        lateness_us: How far below the watermark a row may be, in microseconds.
        late: Whether late rows correct results, or are dropped.
        depth: How many rows before a row the expressions reach.
    """

    names: tuple[str, ...]
    aggregates: Mapping[str, AggregateSpec] = field(default_factory=dict)
    numbers: Mapping[str, RowNumber | Rank] = field(default_factory=dict)
    expressions: Mapping[str, Any] = field(default_factory=dict)
    length_us: int | None = None
    rows: int | None = None
    order: str | None = None
    keep_us: int | None = None
    lateness_us: int = 0
    late: Late = "correct"
    depth: int = 0

    @property
    def corrects(self) -> bool:
        """Whether it may retract what it emitted, even if its input retracts nothing."""
        return self.lateness_us > 0

    @property
    def numbers_rows(self) -> bool:
        """Whether it needs the number of rows of a key that are no longer kept."""
        return any(isinstance(number, RowNumber) for number in self.numbers.values())

    @property
    def rows_before(self) -> int:
        """How many rows before a row its results depend on, of those below the lowest time.

        Of row numbers it is 1, whose row holds the count of those that are gone.
        """
        if self.rows is None:
            return 0
        return max(self.rows - 1, self.depth, 1 if self.numbers_rows else 0)

    @property
    def reach_us(self) -> int | None:
        """How much later than a row another can be that depends on it; ``None``: any time."""
        return self.keep_us if self.length_us is None else self.length_us

    @property
    def stays_us(self) -> int | None:
        """How long after its time a row is kept, in microseconds; ``None``: that is not bounded."""
        return None if self.reach_us is None else saturating_add(self.reach_us, self.lateness_us)
