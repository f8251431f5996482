"""The Arrow type that each Python value has by itself, whatever values are beside it.

Arrow gives values one type together: beside a float an integer becomes a float, beside a decimal
with more digits a decimal gets these too, and a time takes the zone of the first one. Expressions
would then depend on which records share a bundle.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from lowwater.time import Int64Array

Kind: TypeAlias = Any
"""Something hashable that values share if they have the same Arrow type by themselves."""

_INT64 = 2**63
_UINT64 = 2**64


def one_kind(values: Sequence[Any], array: pa.Array) -> bool:
    """Return whether all values but nulls have the Arrow type of their array. O(n), and fast.

    Args:
        values: The values.
        array: What Arrow makes of them.
    """
    types = set(map(type, values))
    types.discard(type(None))
    if len(types) != 1:
        return not types
    (only,) = types
    if only is int:
        return bool(pa.types.is_int64(array.type))  # else there is one beyond 64 bits
    if only in _NESTED:
        return _is_alike(values, array.type) or not _mixed_paths(values, shapes=False)
    refine = _REFINED.get(only)
    if refine is None:
        return not issubclass(only, (np.datetime64, np.timedelta64))
    return len({refine(value) for value in values if value is not None}) == 1


def holds(array: pa.Array, values: Callable[[], Sequence[Any]]) -> bool:
    """Return whether an array still has what is in nested values, though types may be others.

    Integers may be floats that are equal, and a mapping may have nulls for names that others have.
    O(n), and fast where all values have the same types inside.

    Args:
        array: What Arrow made of them.
        values: Returns the values.
    """
    if not pa.types.is_nested(array.type) or one_kind(given := values(), array):
        return True
    return all(map(_is_same, given, array.to_pylist()))


def _is_same(value: Any, held: Any) -> bool:
    if isinstance(value, Mapping) and isinstance(held, dict):
        names = {*value, *held}
        return all(_is_same(value.get(name), held.get(name)) for name in names)
    if isinstance(value, (list, tuple)) and isinstance(held, list):
        return len(value) == len(held) and all(map(_is_same, value, held))
    if value is None or held is None:
        return value is held
    if isinstance(value, (bool, np.bool_)) is not isinstance(held, bool):
        return False
    same = value == held or (value != value and held != held)
    return bool(same)


def several_shapes(values: Sequence[Any]) -> bool:
    """Return whether mappings among the values, or in them, have other names than others. O(n)."""
    return bool(_mixed_paths(values, shapes=True))


def kinds_of(values: Sequence[Any], *, shapes: bool = False) -> tuple[Int64Array, list[Kind]]:
    """Return the kind of each value, as numbers, and the kinds. O(n).

    Args:
        values: The values.
        shapes: Whether mappings with other names are of another kind.

    Returns:
        The number of each value's kind, int64; and the kinds, of which ``None`` is that of nulls.
    """
    numbers: dict[Kind, int] = {}
    codes = np.empty(len(values), dtype=np.int64)
    mixed = _mixed_paths(values, shapes=shapes)
    for row, value in enumerate(values):
        kind = type(value)
        if mixed and kind in _NESTED:
            found = _inner(value, shapes=shapes)
            inner = tuple(frozenset(found.get(path, ())) for path in mixed)
            codes[row] = numbers.setdefault((kind, inner), len(numbers))
            continue
        refine = _REFINED.get(kind)
        key: Kind = None if value is None else kind if refine is None else (kind, refine(value))
        if refine is None and isinstance(value, (np.datetime64, np.timedelta64)):
            key = (kind, value.dtype.str)
        codes[row] = numbers.setdefault(key, len(numbers))
    return codes, list(numbers)


def _of_int(value: int) -> int:
    if -_INT64 <= value < _INT64:
        return 64
    return 65 if 0 <= value < _UINT64 else 66  # uint64, or none of Arrow's integers


def _of_decimal(value: Decimal) -> tuple[int, int] | None:
    _, digits, exponent = value.as_tuple()
    return (len(digits), exponent) if isinstance(exponent, int) else None


def _of_time(value: dt.datetime | dt.time) -> object:
    zone = value.tzinfo
    try:
        return zone if zone is None else str(zone)
    except MemoryError:
        raise
    except Exception:  # a class of the user: Arrow will say so
        return type(zone)


_REFINED: dict[type, Callable[[Any], Any]] = {
    int: _of_int,
    Decimal: _of_decimal,
    dt.datetime: _of_time,
    dt.time: _of_time,
}
"""What tells values of one Python type apart of which Arrow makes several types."""
_NESTED = (dict, list, tuple)
_NAMES = "names"


def _is_alike(values: Sequence[Any], kind: pa.DataType) -> bool:
    """Return whether what is in values surely has the types that it has in an array of them.

    Args:
        values: The values, nulls among them.
        kind: The type of the array.
    """
    if not _may_mix(kind):
        return True
    types = set(map(type, values)) - {type(None)}
    if not types:
        return True
    if pa.types.is_int64(kind):
        return types.isdisjoint(_CUT)
    if types == {dict} and pa.types.is_struct(kind):
        filled = [value for value in values if value is not None]
        inner = (kind.field(at) for at in range(kind.num_fields))
        return all(_is_alike([v.get(one.name) for v in filled], one.type) for one in inner)
    if types <= {list, tuple} and pa.types.is_list(kind):
        return _is_alike([item for v in values if v is not None for item in v], kind.value_type)
    return len(types) == 1 and types <= _ALIKE


_ALIKE = frozenset({float, bytes, dt.date, dt.timedelta})
"""Types of which Arrow makes one type by itself, whatever the values."""


_CUT = frozenset({np.float16, np.bool_})
"""Types inside of nested values that Arrow takes for integers beside some, and cuts off."""


def _may_mix(kind: pa.DataType) -> bool:
    """Return whether Arrow may have made a type for values that have others by themselves."""
    if pa.types.is_nested(kind):
        return any(_may_mix(kind.field(at).type) for at in range(kind.num_fields))
    return not (pa.types.is_boolean(kind) or pa.types.is_string(kind) or pa.types.is_null(kind))


def _mixed_paths(values: Sequence[Any], *, shapes: bool) -> list[tuple[Any, ...]]:
    """Return the places inside of values at which these have several kinds, in a fixed order."""
    kinds: dict[tuple[Any, ...], set[frozenset[Kind]]] = {}
    for value in values:
        if type(value) in _NESTED:
            for path, inner in _inner(value, shapes=shapes).items():
                kinds.setdefault(path, set()).add(frozenset(inner))
    return sorted((path for path, several in kinds.items() if len(several) > 1), key=repr)


def _inner(value: Any, *, shapes: bool) -> dict[tuple[Any, ...], set[Kind]]:
    """Return the kinds of what is in a value, by place; nulls have none.

    A place is the names on the way to it; all items of a list are at one.
    """
    found: dict[tuple[Any, ...], set[Kind]] = {}
    waiting: list[tuple[tuple[Any, ...], Any]] = [((), value)]
    while waiting:
        path, here = waiting.pop()
        kind = type(here)
        if kind in _NESTED and path:
            found.setdefault(path, set()).add(kind)
        if kind is dict:
            if shapes:
                found.setdefault((*path, _NAMES), set()).add(frozenset(here))
            waiting += [((*path, (name,)), inner) for name, inner in here.items()]
        elif kind in _NESTED:
            inside = (*path, ())
            found.setdefault(inside, set())  # an empty list has another type than others
            waiting += [(inside, item) for item in here]
        elif here is not None and path:
            refine = _REFINED.get(kind)
            found.setdefault(path, set()).add(kind if refine is None else (kind, refine(here)))
    return found
