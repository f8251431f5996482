"""What only ``over`` computes of a row: its number among those of its key, and its rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from lowwater.errors import InvalidArgument, describe, explained, explains


@final
@explains
@dataclass(frozen=True, slots=True, repr=False)
class RowNumber:
    """The number of a row among all rows of its key, from 1; :func:`row_number` makes it."""

    def __repr__(self) -> str:
        return "row_number()"


@final
@explains
@dataclass(frozen=True, slots=True, repr=False)
class Rank:
    """The rank of a row among those of its range, from 1; :func:`rank` makes it.

    Args:
        by: The column whose values are compared.
        descending: Whether the largest value has rank 1, and not the smallest.

    Raises:
        InvalidArgument: An argument is of another type.
    """

    by: str
    descending: bool = False

    def __post_init__(self) -> None:
        column: object = self.by
        if not isinstance(column, str) or not column:
            raise InvalidArgument(
                f"{describe('by', column)} is not the name of a column",
                where="lw.rank",
                hint='Write, say, lw.rank(by="price")',
            )
        if not isinstance(self.descending, bool):
            raise InvalidArgument(
                f"{describe('descending', self.descending)} is neither True nor False",
                where="lw.rank",
                hint="Use descending=True to give the largest value rank 1",
            )

    def __repr__(self) -> str:
        more = ", descending=True" if self.descending else ""
        return f"rank(by={self.by!r}{more})"


def row_number() -> RowNumber:
    """Number the rows of a key from 1, in order of event time; int64. For ``over(rows=...)``.

    All rows of the key count, also those outside of the range. The number of a row that no longer
    counts is remembered for each key, so it cannot be combined with ``keep=``.

    >>> row_number()
    row_number()
    """
    return RowNumber()


@explained(col="by", column="by", order_by="by")
def rank(by: str, *, descending: bool = False) -> Rank:
    """Rank a row among those of its range by a column, from 1; int64. For ``over``.

    The rank is 1 plus the number of rows in the range with a smaller value, as ``RANK()`` of SQL:
    equal values share a rank. Where the value is null, so is the rank, and nulls are not counted.

    >>> rank(by="price"), rank(by="price", descending=True)
    (rank(by='price'), rank(by='price', descending=True))

    Args:
        by: The column, of any ordered type.
        descending: Whether the largest value has rank 1, and not the smallest.

    Raises:
        InvalidArgument: An argument is of another type.
    """
    return Rank(by, descending)
