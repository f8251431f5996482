"""Watermarks carried by the elements themselves (punctuation)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np

from lowwater.display.text import shown
from lowwater.errors import DataError, InvalidArgument, describe, user_code
from lowwater.time import END_OF_TIME, START_OF_TIME, InstantLike, instant
from lowwater.watermark.estimators import EstimatorState
from lowwater.watermark.observed import ColumnLike, Observed, TimeColumn

Punctuation: TypeAlias = str | Callable[[Any], InstantLike | None]


@final
@dataclass(frozen=True, slots=True, repr=False)
class Punctuated:
    """The watermark is the largest one that any element has carried.

    Args:
        by: A column whose non-null values are watermarks, in any form that an event time may
            have; or a function that takes a record and returns an instant or ``None``.

    A column costs O(n) in numpy; a function is called for each record. A value that is not an
    instant raises a ``DataError``, because ignoring it would silently stall the watermark. The end
    of time is refused too: only the source decides when the input ends.

    >>> Punctuated("complete_to")
    Punctuated('complete_to')
    """

    by: Punctuation

    def __post_init__(self) -> None:
        if not isinstance(self.by, str) and not callable(self.by):
            raise InvalidArgument(
                f"{describe('by', self.by)} is neither a column nor a function",
                hint='Write Punctuated("complete_to") or Punctuated(function)',
            )

    @property
    def columns(self) -> tuple[str, ...]:
        """The column that the estimator reads; a function may read any column and names none."""
        return (self.by,) if isinstance(self.by, str) else ()

    def start(self) -> EstimatorState:
        return _Punctuations(self.by)

    def __repr__(self) -> str:
        return f"Punctuated({shown(self.by, exact=True)})"


@final
class _Punctuations:
    __slots__ = ("_at", "_by")

    def __init__(self, by: Punctuation) -> None:
        self._by = by
        self._at = START_OF_TIME

    def observe(self, observed: Observed) -> None:
        if not observed.times.size:
            return
        if isinstance(self._by, str):
            found = _largest(observed.column(self._by, "watermark=Punctuated(...)"))
        else:
            with user_code("the function of Punctuated"):
                found = _largest_returned(self._by, observed)
        if found == END_OF_TIME:
            raise DataError(
                "a record's watermark is the end of time",
                where=f"watermark=Punctuated({shown(self._by)})",
                hint="Use null instead: a run ends when its source does",
            )
        self._at = max(self._at, found)

    def current(self, clock: int) -> int:
        return self._at

    def remember(self) -> Any:
        return {"punctuated": self._at}

    def resume(self, known: Any) -> None:
        if isinstance(known, dict) and "punctuated" in known:
            self._at = max(self._at, known["punctuated"])

    def holder(self) -> str | None:
        return "no record has carried a watermark yet" if self._at == START_OF_TIME else None


def _largest(column: ColumnLike) -> int:
    if isinstance(column, TimeColumn):
        times, found = column.instants()
        times = times[found]
    elif column.data.dtype == np.int64 and getattr(column, "type", None) is None:
        times = column.data if column.valid is None else column.data[column.valid]
    else:  # the column has no unit of time, so each value must be convertible by itself
        given = [instant(value) for value in column.to_list() if value is not None]
        return max(given, default=START_OF_TIME)
    return int(times.max()) if times.size else START_OF_TIME


def _largest_returned(function: Callable[[Any], InstantLike | None], observed: Observed) -> int:
    names = observed.names()
    lists = [observed.columns[name].to_list() for name in names]
    records = lists[0] if names == ("value",) else _mappings(names, lists)
    returned = (function(record) for record in records)
    return max((instant(at) for at in returned if at is not None), default=START_OF_TIME)


def _mappings(names: tuple[str, ...], lists: list[list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(names, row, strict=True)) for row in zip(*lists, strict=True)]
