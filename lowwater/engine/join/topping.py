"""The rules of a table with the first rows of each group of another (T-6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True, slots=True)
class Topping:
    """The rules of a table with the first rows of each group of another (T-6).

    Args:
        most: How many rows of a group are in the table.
        by: The column that decides; rows in which it is null are left out.
        ties: The columns that order rows of equal ``by``, ascending.
        key: Those of the primary key of the other table, the hidden ones too, which decide last.
        reverse: Whether small values come first.
        rank: The column with the place of a row in its group, int64, from 1.
        is_whole: Whether all rows are one group. The key of the output is then the rank alone.
    """

    most: int
    by: str
    ties: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    reverse: bool = False
    rank: str = "rank"
    is_whole: bool = False
