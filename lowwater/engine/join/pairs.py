"""Pairs of records that a join emits, put together from the rows of both sides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, final

import numpy as np
from numpy.typing import NDArray

from lowwater.engine.keyed.records import KeyedRecords
from lowwater.engine.records.batch import SIDE
from lowwater.engine.records.columns import Column, Types
from lowwater.engine.records.keys import KeyDictionary
from lowwater.engine.records.stage_output import Emitted
from lowwater.kernels.positions import repeated
from lowwater.time import START_OF_TIME, Int64Array


@final
@dataclass(frozen=True, slots=True)
class JoinedColumns:
    """The columns of both sides, and what they are called in the output.

    Args:
        left, right: The columns of each side without the keys, with their types if these are known.
        keys: The names of the keys in the output.
        suffixes: What is appended to a name that both sides have, on the left and on the right.
        labels: Further columns of the output, whose names no side may have.
        sided: Which rows without a left partner have true in the hidden column ``SIDE``: ``all``,
            or those with ``nulls`` in the keys. An outer join has the column where the primary keys
            of both tables may hold nulls: a row of the left alone and one of the right alone may
            then have the same key otherwise (T-3). ``None``: there is no such column.

    The columns of a side may include such hidden ones of joins before. Their names grow by a letter
    for the side, so they name the path to their join, and stay distinct.
    """

    left: Types
    right: Types
    keys: tuple[str, ...]
    suffixes: tuple[str, str] = ("", "_right")
    labels: tuple[str, ...] = ()
    sided: Literal["all", "nulls"] | None = None

    @property
    def hidden(self) -> tuple[frozenset[str], frozenset[str]]:
        """The hidden columns of the left and of the right side."""
        left, right = (
            frozenset(name for name in side if name.startswith(SIDE))
            for side in (self.left, self.right)
        )
        return left, right

    def names(
        self, left: Sequence[str], right: Sequence[str]
    ) -> tuple[dict[str, str], dict[str, str]]:
        """Return the name in the output of each column of the left and of the right side."""
        both = {*left} & {*right} | {*self.labels}
        before, behind = self.suffixes
        clash = both | {*self.keys}
        of_left = {name: name + before if name in both else name for name in left}
        of_right = {name: name + behind if name in clash else name for name in right}
        for names, letter in ((of_left, "l"), (of_right, "r")):
            names.update({name: name + letter for name in names if name.startswith(SIDE)})
        return of_left, of_right


@final
@dataclass(frozen=True, slots=True)
class BornPairs:
    """Which records some pairs consist of, in the order in which they were emitted.

    Args:
        left, right: The rank of arrival of each pair's record among those of its side, int64; -1
            where a side has none.
        signs: +1 for inserts, -1 for retractions, int8.
        times: Their event times, int64.
    """

    left: Int64Array
    right: Int64Array
    signs: NDArray[np.int8]
    times: Int64Array


@final
class Pairs:
    """Collects pairs of rows during a step, each an insert or a retraction.

    Args:
        left, right: The records of both sides.
        columns: What their columns are called in the output.
        with_right: Whether the columns of the right side come out.
    """

    def __init__(
        self,
        left: KeyedRecords,
        right: KeyedRecords,
        columns: JoinedColumns,
        *,
        with_right: bool = True,
    ) -> None:
        self._left = left
        self._right = right
        self._columns = columns
        self._with_right = with_right
        self._parts: list[tuple[Int64Array, Int64Array, int]] = []
        self._reported: list[BornPairs] | None = None

    def report(self) -> None:
        """Record which records pairs consist of, for :meth:`reported` and traces."""
        self._reported = []

    def reported(self) -> list[BornPairs]:
        """Return which records the pairs consist of that were taken since the last time."""
        found = self._reported or []
        self._reported = None if self._reported is None else []
        return found

    def __bool__(self) -> bool:
        return bool(self._parts)

    def add(self, left: Int64Array, right: Int64Array, sign: int) -> None:
        """Add pairs.

        Args:
            left: Their rows on the left, int64; -1 where that side has none.
            right: Their rows on the right, of the same shape.
            sign: +1 for inserts, -1 for retractions.
        """
        if left.size:
            self._parts.append((left, right, sign))

    def take(self, keys: KeyDictionary, *, signed: bool, at_left: bool = False) -> Emitted:
        """Return what was added since the last time, in this order.

        Args:
            keys: The keys of both sides.
            signed: Whether to say which are retractions.
            at_left: Whether pairs have the event time of their left record, not the later one.
        """
        parts, self._parts = self._parts, []
        left = np.concatenate([part[0] for part in parts])
        right = np.concatenate([part[1] for part in parts])
        signs = repeated(
            np.array([part[2] for part in parts], dtype=np.int8), [len(part[0]) for part in parts]
        )
        no_left, no_right = left < 0, right < 0
        of_left, of_right = self._left.table, self._right.table
        none_left = bool(no_left.any())
        times = of_left["start"][left]
        if none_left:
            times[no_left] = START_OF_TIME
        if not at_left:
            right_times = np.where(no_right, START_OF_TIME, of_right["start"][right])
            times = np.maximum(times, right_times)
        if self._reported is not None:
            born_left = np.where(no_left, -1, of_left["born"][left])
            born_right = np.where(no_right, -1, of_right["born"][right])
            self._reported.append(BornPairs(born_left, born_right, signs, times))
        owner = of_left["key"][left]
        if none_left:
            owner[no_left] = of_right["key"][right[no_left]]
        values = self._values(left, right)
        if self._columns.sided is not None:
            nulls = keys.with_nulls(owner) if self._columns.sided == "nulls" else no_left
            told = np.zeros(len(owner), dtype=np.bool_) if nulls is None else no_left & nulls
            values[SIDE] = Column(told)
        return Emitted(
            times,
            keys.decode(owner),
            values,
            signs=signs if signed else None,
        )

    def _values(self, left: Int64Array, right: Int64Array) -> dict[str, Column]:
        by_left, by_right = self._left.kept, self._right.kept
        if not self._with_right:
            return by_left.take(left)
        of_left, of_right = self._columns.names(by_left.names, by_right.names)
        values = {of_left[name]: column for name, column in by_left.take(left).items()}
        values |= {of_right[name]: column for name, column in by_right.take(right).items()}
        return values
