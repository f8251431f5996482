"""What a Python function that is a condition gets: the match so far, row by row (P-3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from lowwater.engine.match.conditions import FUNCTIONS_REACH
from lowwater.engine.match.key_rows import KeyRows
from lowwater.engine.records.columns import Mask
from lowwater.engine.records.other_rows import Prev
from lowwater.errors import DataError, LowwaterError, describe, nearest
from lowwater.time import Int64Array, format_instant

_NONE = "NoneType"


def _checked(k: int) -> int:
    """Return how many rows are counted off, or raise."""
    if k < 0:
        raise DataError(
            f"k={k} is below zero", where="match(define=)", hint="Count from 0: first, last"
        )
    return k


@final
class MatchedRows:
    """The rows of one variable, or of the whole match, so far.

    Args:
        values: Returns the values of a column at these rows.
        length: How many there are.
    """

    __slots__ = ("_length", "_values")

    def __init__(self, values: Callable[[str], list[Any]], length: int) -> None:
        self._values = values
        self._length = length

    def __len__(self) -> int:
        return self._length

    def values(self, column: str) -> list[Any]:
        """Return the values of a column, one for each row, nulls included."""
        return self._values(column)

    def first(self, column: str, k: int = 0) -> Any:
        """Return the value in the first row, or in the k-th behind it; ``None`` without one."""
        return self._values(column)[_checked(k)] if k < self._length else None

    def last(self, column: str, k: int = 0) -> Any:
        """Return the value in the last row, or in the k-th before it; ``None`` without one."""
        return self._values(column)[-1 - _checked(k)] if k < self._length else None

    def count(self, column: str | None = None) -> int:
        """Return how many rows there are, or how many of them have a value in a column."""
        return self._length if column is None else len(self._present(column))

    def min(self, column: str) -> Any:
        """Return the smallest value of a column; ``None`` without one."""
        return min(self._present(column), default=None)

    def max(self, column: str) -> Any:
        """Return the largest value of a column; ``None`` without one."""
        return max(self._present(column), default=None)

    def sum(self, column: str) -> Any:
        """Return the sum of a column; 0 without values."""
        return sum(self._present(column))

    def mean(self, column: str) -> Any:
        """Return the mean of a column; ``None`` without values."""
        present = self._present(column)
        return sum(present) / len(present) if present else None

    def _present(self, column: str) -> list[Any]:
        return [value for value in self._values(column) if value is not None]


@final
class MatchSoFar:
    """The match so far, and the row under test, which is its last row already.

    A condition that is a Python function gets it: ``lambda match: match.row["price"] <
    match.matched("down").last("price", 1)``.
    """

    __slots__ = ("_labels", "_numbers", "_place", "_source", "_start")

    def __init__(self, source: PythonRows, start: int, place: int, labels: NDArray[Any]) -> None:
        self._source = source
        self._start = start
        self._place = place
        self._labels = labels

    @property
    def row(self) -> Mapping[str, Any]:
        """The row under test, by column."""
        return self._source.row(self._place)

    @property
    def time(self) -> int:
        """Its event time, int microseconds."""
        return int(self._source.rows.times[self._place])

    def prev(self, column: str, k: int = 1) -> Any:
        """Return the value k rows before the row under test; ``None`` if there is no such row.

        Args:
            column: The name of the column.
            k: How many rows before, from 1 to 8: no more are kept before a match.

        Raises:
            DataError: ``k`` is less, or more.
        """
        if not 1 <= k <= FUNCTIONS_REACH:
            raise DataError(
                f"match.prev({column!r}, {k}) is out of reach: k is from 1 to {FUNCTIONS_REACH}",
                where="match(define=)",
                hint="Read rows of the match itself with match.matched().last(column, k)",
            )
        return self._source.before(column, k)[self._place]

    def matched(self, variable: str | None = None) -> MatchedRows:
        """Return the rows of a variable so far; of the whole match without one.

        Raises:
            DataError: The pattern has no such variable.
        """
        if variable is None:
            offsets = np.arange(len(self._labels))
        else:
            offsets = np.flatnonzero(self._labels == self._source.label(variable))
        places = (offsets + self._start).tolist()

        def values(column: str) -> list[Any]:
            every = self._source.column(column)
            return [every[place] for place in places]

        return MatchedRows(values, len(places))


@final
class PythonRows:
    """The rows of some keys as Python values, converted on first use.

    Args:
        rows: The rows.
        names: The columns of the records.
        labels: The number of each variable.
    """

    def __init__(self, rows: KeyRows, names: tuple[str, ...], labels: Mapping[str, int]) -> None:
        self.rows = rows
        self._names = names
        self._labels = labels
        self._columns: dict[str, list[Any]] = {}
        self._before: dict[tuple[str, int], list[Any]] = {}

    def label(self, variable: str) -> int:
        """Return the number of a variable."""
        if variable not in self._labels:
            raise DataError(
                f"the pattern has no variable {variable!r}",
                where="match(define=)",
                hint=f"It has {', '.join(map(repr, self._labels))}",
            )
        return self._labels[variable]

    def column(self, name: str) -> list[Any]:
        """Return the values of a column."""
        if name not in self._columns:
            self._require(name)
            self._columns[name] = self.rows.column(name).to_list()
        return self._columns[name]

    def _require(self, name: str) -> None:
        if name not in self._names:
            raise DataError(
                f"there is no column {name!r}",
                where="match(define=)",
                hint=nearest(name, self._names),
            )

    def before(self, name: str, k: int) -> list[Any]:
        """Return the values k rows before each row."""
        if (name, k) not in self._before:
            self._require(name)
            self._before[name, k] = self.rows.before(Prev(name, k)).to_list()
        return self._before[name, k]

    def row(self, place: int) -> dict[str, Any]:
        """Return a row by column."""
        return {name: self.column(name)[place] for name in self._names}

    def truths(
        self,
        name: str,
        condition: Callable[[MatchSoFar], Any],
        starts: Int64Array,
        places: Int64Array,
        labels: NDArray[Any],
        depth: Int64Array,
    ) -> Mask:
        """Return for which searches a function is true; computing with ``None`` is not.

        Args:
            name: The variable.
            condition: The function.
            starts: The place of the first row of each search, int64, shape (n,).
            places: That of the row under test.
            labels: The labels of what each has taken, shape (n, at least the deepest).
            depth: How many rows each has taken.

        Raises:
            DataError: The function failed.
        """
        found = np.zeros(len(starts), dtype=np.bool_)
        every = zip(starts.tolist(), places.tolist(), labels, depth.tolist(), strict=True)
        for at, (start, place, taken, length) in enumerate(every):
            try:
                truth = condition(MatchSoFar(self, start, place, taken[:length]))
            except LowwaterError:
                raise
            except Exception as error:
                if isinstance(error, TypeError) and _NONE in str(error):
                    continue
                when = format_instant(int(self.rows.times[place]))
                raise DataError(
                    f"the condition of {name!r} failed for the row of {when}: "
                    f"{type(error).__name__}: {error}",
                    where="match(define=)",
                    hint="Have the function return False for what it cannot judge",
                ) from error
            # What is false by itself may come out of `and`; what is true by itself is a mistake.
            if not isinstance(truth, (bool, np.bool_)) and truth:
                raise DataError(
                    f"{describe(f'what the condition of {name!r} returned', truth)} is neither "
                    "True nor False",
                    where="match(define=)",
                    hint="Compare something, or wrap it in bool(...)",
                )
            found[at] = bool(truth)
        return found
