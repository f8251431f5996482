"""What must not come after a match: ``lw.absent(condition, within="30m")``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

from lowwater.engine.aggregates._conditions import Condition, condition_of
from lowwater.errors import InvalidArgument, describe, explained
from lowwater.time import DurationLike, as_micros, duration, format_duration, meant

if TYPE_CHECKING:
    import narwhals as nw


@final
@dataclass(frozen=True, slots=True, repr=False)
class Absent:
    """No row meets a condition for some time after the last row of a match (P-12).

    Args:
        condition: An expression of the row alone. Comparing two yields a third, so equality is
            judged by the text and the literals.
        within: How long after the last row; the end belongs to it.

    Raises:
        InvalidArgument: The condition is no expression of the row alone, or ``within`` is no
            duration of at least 0.
    """

    condition: nw.Expr = field(compare=False)
    within: DurationLike
    _compared: Condition = field(init=False)

    def __post_init__(self) -> None:
        compared = condition_of(self.condition, "lw.absent", name="condition")
        if compared is None:
            raise InvalidArgument(
                "condition=None is not an expression over columns",
                where="lw.absent",
                hint='Write, say, lw.absent(lw.col("kind") == "paid", within="30m")',
            )
        object.__setattr__(self, "_compared", compared)
        given = self.within
        object.__setattr__(self, "within", meant(duration(given, name="within")))
        if self.within_us < 0:
            raise InvalidArgument(
                f"{describe('within', given)} is below zero",
                where="lw.absent",
                hint='Give how long after the last row, as in within="30m"',
            )

    @property
    def within_us(self) -> int:
        """How long after the last row, in microseconds."""
        return as_micros(self.within)

    def __repr__(self) -> str:
        return f"absent({self._compared!r}, within={format_duration(self.within_us)!r})"


@explained(cond="condition", predicate="condition", where="condition", timeout="within")
def absent(condition: nw.Expr, within: DurationLike) -> Absent:
    """Return what must not come after a match, for ``match(..., without=...)``.

    >>> import lowwater as lw
    >>> lw.absent(lw.col("kind") == "paid", within="30m")
    absent(col(kind).__eq__(paid), within='30m')

    Args:
        condition: An expression of the row alone: no row of the key that meets it may come.
        within: For how long after the last row of the match; a row at its end counts, too.

    Raises:
        InvalidArgument: The condition is no expression of the row alone, or ``within`` is no
            duration of at least 0.
    """
    return Absent(condition, within)
