"""Sequences of a trace that are stored as columns and become Python values on first use."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, Generic, TypeVar, cast, final, overload

import numpy as np
from numpy.typing import NDArray

from lowwater.time import Int64Array

T = TypeVar("T")

_MISSING: Any = object()
_LEVELS = 63


class TracedPart(ABC, Generic[T]):
    """Consecutive items of a trace as columns; makes each Python value at most once."""

    __slots__ = ("_made",)

    def __init__(self) -> None:
        self._made: list[T] | None = None

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def make(self, rows: Int64Array | None) -> list[T]:
        """Convert the items at ``rows``, or all, to Python values."""

    @abstractmethod
    def all_keys(self) -> list[Any]:
        """Return the key of each item."""

    def all(self) -> list[T]:
        """Return the values of all items."""
        made = self._made
        if made is None:
            made = self._made = self.make(None)
        missing = [at for at, value in enumerate(made) if value is _MISSING]
        if missing:
            self._fill(made, missing)
        return made

    def some(self, rows: Sequence[int]) -> list[T]:
        """Return the values of the items at ``rows``."""
        made = self._made
        if made is None:
            made = self._made = cast("list[T]", [_MISSING] * len(self))
        missing = [row for row in rows if made[row] is _MISSING]
        if missing:
            self._fill(made, missing)
        return [made[row] for row in rows]

    def _fill(self, made: list[T], rows: Sequence[int]) -> None:
        values = self.make(np.array(rows, dtype=np.int64))
        for row, value in zip(rows, values, strict=True):
            made[row] = value


@final
class TracedParts(Sequence[T]):
    """A sequence of the items of a trace. Items are made when they are asked for, and kept.

    Args:
        parts: The parts, in order.
    """

    __slots__ = ("_parts", "_stops")

    def __init__(self, parts: Sequence[TracedPart[T]]) -> None:
        self._parts = tuple(parts)
        self._stops = list(accumulate(len(part) for part in self._parts))

    @property
    def parts(self) -> tuple[TracedPart[T], ...]:
        """The parts, in order."""
        return self._parts

    def __len__(self) -> int:
        return self._stops[-1] if self._stops else 0

    @overload
    def __getitem__(self, at: int) -> T: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[T]: ...

    def __getitem__(self, at: int | slice) -> T | Sequence[T]:
        if isinstance(at, slice):
            return tuple(self.pick(range(len(self))[at]))
        if not -len(self) <= at < len(self):
            raise IndexError(f"there is no item {at} of {len(self)}")
        return self.pick((at % len(self),))[0]

    def __iter__(self) -> Iterator[T]:
        for part in self._parts:
            yield from part.all()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (tuple, TracedParts)):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # equal to tuples, which hash otherwise

    def __repr__(self) -> str:
        return repr(tuple(self))

    def all_keys(self) -> list[Any]:
        """Return the key of each item, without making the items. O(items)."""
        return [key for part in self._parts for key in part.all_keys()]

    def pick(self, places: Sequence[int]) -> list[T]:
        """Return the items at some places, each from 0, in ascending order."""
        found: list[T] = []
        at = 0
        while at < len(places):
            part = bisect_right(self._stops, places[at])
            start = self._stops[part - 1] if part else 0
            rows: list[int] = []
            while at < len(places) and start <= places[at] < self._stops[part]:
                rows.append(places[at] - start)
                at += 1
            found += self._parts[part].some(rows)
        return found


def keys_of(items: Sequence[Any]) -> list[Any]:
    """Return the keys of elements, panes or merges of a trace."""
    return items.all_keys() if isinstance(items, TracedParts) else [item.key for item in items]


def of_key(items: Sequence[T], key: Any) -> list[T]:
    """Return the items of a key, in order. O(items)."""
    return pick(items, [at for at, one in enumerate(keys_of(items)) if one == key])


def pick(items: Sequence[T], places: Sequence[int]) -> list[T]:
    """Return the items at some places, each from 0, in ascending order."""
    return items.pick(places) if isinstance(items, TracedParts) else [items[at] for at in places]


@final
class TracedRecords(Sequence[Any]):
    """The records of a source that a trace keeps, as the source delivered them.

    Args:
        records: The records.
        numbers: The number of each record, ascending, int64, shape (n,). The first record that
            the run read has the number 0.
        total: How many records the run read.
        thinning: The records whose number :func:`is_sampled` at this level are all here.
    """

    __slots__ = ("_records", "numbers", "thinning", "total")

    def __init__(
        self, records: TracedParts[Any], numbers: Int64Array, total: int, thinning: int
    ) -> None:
        self._records = records
        self.numbers = numbers
        self.total = total
        self.thinning = thinning

    @property
    def parts(self) -> tuple[TracedPart[Any], ...]:
        """The batches that the records came in, in order."""
        return self._records.parts

    def __len__(self) -> int:
        return len(self._records)

    @overload
    def __getitem__(self, at: int) -> Any: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Any]: ...

    def __getitem__(self, at: int | slice) -> Any:
        return self._records[at]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._records)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, TracedRecords):
            return self._records == other._records
        return self._records == other

    __hash__ = None  # type: ignore[assignment]  # equal to tuples, which hash otherwise

    def __repr__(self) -> str:
        return repr(self._records)


def numbered(records: Sequence[Any]) -> Iterator[tuple[int, Any]]:
    """Yield the records of a source, each with its number."""
    if isinstance(records, TracedRecords):
        return zip(records.numbers.tolist(), records, strict=True)
    return enumerate(records)


def sampled(numbers: Int64Array, thinning: int) -> NDArray[np.bool_]:
    """Return which numbers are in a sample of about one in ``2 ** thinning``; bool, shape (n,).

    The choice depends on nothing but the number, and a sample contains the thinner ones. The hash
    is the finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
    """
    return drawn_at(sample_hashes(numbers), thinning)


def sample_hashes(numbers: Int64Array) -> NDArray[np.uint64]:
    """Return what decides whether each number is in a sample: see :func:`sampled`."""
    mixed = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed


def drawn_at(hashes: NDArray[np.uint64], thinning: int) -> NDArray[np.bool_]:
    """Return which numbers are in a sample, by their :func:`sample_hashes`; bool, shape (n,)."""
    if not thinning:
        return np.ones(len(hashes), dtype=np.bool_)
    kept: NDArray[np.bool_] = hashes >> np.uint64(64 - min(thinning, _LEVELS)) == 0
    return kept


def is_sampled(number: int, thinning: int) -> bool:
    """Return whether one number is in the sample; see :func:`sampled`."""
    return bool(sampled(np.array([number], dtype=np.int64), thinning)[0])
