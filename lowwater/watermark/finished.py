"""The exact watermark of finished files, from the known earliest event time of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, final

import numpy as np

from lowwater.errors import DataError, InvalidArgument, describe, nearest
from lowwater.time import START_OF_TIME, InstantLike, Int64Array, instant
from lowwater.watermark._grouping import Grouping
from lowwater.watermark.estimators import EstimatorState
from lowwater.watermark.observed import ORIGIN, Observed


@final
@dataclass(frozen=True, slots=True, init=False, repr=False)
class FinishedFiles:
    """An exact watermark for files that do not change, from the earliest event time of each.

    While a file is read, the watermark is the earliest event time of that file and all later
    ones. This is exact: no element arrives below it, and it cannot be higher before the file is
    done. After the last file the input has ended.

    This value does no I/O. Take the minima from the footers of Parquet files, or read other files
    once beforehand.

    Args:
        minima: The earliest event time of each file by name, in reading order. Names are the
            paths as the source finds them, as in the ``where`` of dead letters.
        by: A column that names the file; ``None`` if the source knows it, as file sources do.

    >>> FinishedFiles({"1.csv": "2000-01-01T00:00:00Z", "2.csv": "2000-01-02T00:00:00Z"}).minima[1]
    ('2.csv', Instant('2000-01-02T00:00:00Z'))
    """

    minima: tuple[tuple[Any, int], ...]
    by: str | None

    def __init__(self, minima: Mapping[Any, InstantLike], *, by: str | None = None) -> None:
        if not isinstance(minima, Mapping) or not minima:
            raise InvalidArgument(
                f"{describe('minima', minima)} does not give the earliest event time of any file",
                hint='Write FinishedFiles({"day1.csv": "2000-01-01T00:00:00Z"})',
            )
        if by is not None and not isinstance(by, str):
            raise InvalidArgument(
                f"{describe('by', by)} is not the name of a column", hint='Write by="file"'
            )
        found = ((name, instant(at, name=f"minima[{name!r}]")) for name, at in minima.items())
        object.__setattr__(self, "minima", tuple(found))
        object.__setattr__(self, "by", by)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the estimator reads."""
        return () if self.by is None else (self.by,)

    def start(self) -> EstimatorState:
        return _Finished(self)

    def telling(self, observed: Observed) -> Int64Array:
        n = len(observed.times)
        if not n:
            return np.zeros(0, dtype=np.int64)
        column = observed.column(self.by or ORIGIN, "watermark=FinishedFiles(...)")
        return Grouping(column, n).rows(observed.times)

    def __repr__(self) -> str:
        minima = ", ".join(f"{name!r}: {int(at)}" for name, at in self.minima)
        by = "" if self.by is None else f", by={self.by!r}"
        return f"FinishedFiles({{{minima}}}{by})"


@final
class _Finished:
    __slots__ = ("_at", "_by", "_left", "_now", "_place")

    def __init__(self, value: FinishedFiles) -> None:
        names = [name for name, _ in value.minima]
        times = [int(at) for _, at in value.minima]
        self._by = value.by or ORIGIN
        self._place = {name: place for place, name in enumerate(names)}
        self._left = list(accumulate(reversed(times), min))[::-1]
        """The earliest event time in each file and all later ones."""
        self._now = 0
        self._at = START_OF_TIME

    def observe(self, observed: Observed) -> None:
        n = len(observed.times)
        if not n:
            return
        grouping = Grouping(observed.column(self._by, "watermark=FinishedFiles(...)"), n)
        places = np.array([self._placed(name) for name in grouping.partitions], dtype=np.int64)
        least = int(places.min())
        if least < self._now:
            names = list(self._place)
            raise DataError(
                f"the file {names[least]!r} was read after {names[self._now]!r}",
                where="watermark=FinishedFiles(...)",
                hint="Give the minima in the order in which the files are read",
            )
        self._now = int(places.max())

    def current(self, clock: int) -> int:
        self._at = max(self._at, self._left[self._now])
        return self._at

    def remember(self) -> Any:
        return {"file": list(self._place)[self._now], "at": self._at}

    def resume(self, known: Any) -> None:
        if isinstance(known, dict) and "file" in known:
            self._now = self._placed(known["file"])
            self._at = max(self._at, known["at"])

    def holder(self) -> str:
        return f"file {list(self._place)[self._now]!r} or a later one"

    def _placed(self, name: Any) -> int:
        place = self._place.get(name)
        if place is None:
            raise DataError(
                f"the earliest event time of the file {name!r} is not known",
                where="watermark=FinishedFiles(...)",
                hint=nearest(str(name), map(str, self._place)),
            )
        return place
