"""Looks up values by equality, whether they are hashable or not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Generic, TypeVar, final

_T = TypeVar("_T")


@final
class EqualityIndex(Generic[_T]):
    """Maps values to items by equality. Built in O(values) for hashable and nested plain values.

    Plain values, and lists, tuples, sets and mappings of them, are hashed. Other unhashable
    values, such as arrays, are compared with every value of their kind.

    Args:
        pairs: The values, each with its item.

    >>> found = EqualityIndex([({"id": 1, "tags": ["a"]}, "first"), ([2], "second")])
    >>> found.of({"tags": ["a"], "id": 1.0}), found.of([3])
    (['first'], [])
    """

    def __init__(self, pairs: Iterable[tuple[Any, _T]]) -> None:
        self._by: dict[Any, list[tuple[Any, _T]]] = {}
        for value, what in pairs:
            self._by.setdefault(_kind(value), []).append((value, what))

    def of(self, value: Any) -> list[_T]:
        """Return the items of all values equal to this one, in order."""
        return [what for one, what in self._by.get(_kind(value), []) if same(one, value)]


def same(one: Any, other: Any) -> bool:
    """Return whether two values are equal; NaN equals NaN, incomparable values are not equal."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        alike = isinstance(one, list) == isinstance(other, list) and len(one) == len(other)
        return alike and all(map(same, one, other))
    try:
        return one is other or bool(one == other) or bool(one != one and other != other)
    except (TypeError, ValueError):  # such as arrays, which compare element by element
        return False


def _kind(value: Any) -> Any:
    """Return a hashable value that is the same for equal values."""
    if isinstance(value, Mapping):
        return Mapping, frozenset((name, _kind(item)) for name, item in value.items())
    if isinstance(value, (list, tuple)):
        return list if isinstance(value, list) else tuple, tuple(map(_kind, value))
    try:
        if value != value:
            return float
        hash(value)
    except (TypeError, ValueError):
        return frozenset(value) if isinstance(value, set) else None
    return value
