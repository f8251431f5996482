"""Which values can be held: in state, by workers, in tables and in files (S-B1).

There is one rule for all of them, because the same pipeline is to have the same dead letters with
and without a state directory, with any number of workers, and whatever it writes to. A value can
be held if :func:`lowwater.state.codec.encode` takes it, its integers fit 64 bits (signed or not),
its text is valid Unicode, and it is nested at most :data:`MOST_NESTED` deep.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import chain
from typing import Any, TypeAlias
from uuid import UUID

import msgspec
import numpy as np

from lowwater.display.text import shown
from lowwater.engine.records.columns import Column
from lowwater.engine.records.problems import Problems
from lowwater.errors import describe
from lowwater.state.codec import encode, of_base
from lowwater.time import Instant

UNSTORABLE = "unstorable"
"""The reason of a dead letter with a value that cannot be held."""
TOO_DEEP = "wrong_type"
"""The reason of a dead letter with a value that is nested too deep."""
MOST_NESTED = 40
"""How deep values may be nested: Arrow's files hold 64 levels, and Parquet's about 45 of lists."""
_MOST_PARTS = 10_000_000
"""How many parts a value has at most: one list may be in another many times over."""

_MOST_TOGETHER = 2_000_000
"""How many parts of all values of a column are looked at together."""

_UNREADABLE = "it raises when it is read"
_TOO_MANY = f"it has more than {_MOST_PARTS:,} parts"

Fault: TypeAlias = tuple[str, str]
"""Why a value cannot be held: the reason of its dead letter, and the cause in words."""

LEAVES = frozenset(
    {type(None), bool, int, float, str, bytes, dt.date, dt.time, dt.datetime, dt.timedelta, UUID}
)
"""Types without parts whose values can be held, but for integers and text that are too much."""
_MORE_LEAVES = LEAVES | {Instant}
NESTED = (list, tuple, set, frozenset, Mapping)
"""Types whose values have parts."""
_ZONED = frozenset({dt.datetime, dt.time})
_SURE = LEAVES - _ZONED - {int, str}
"""Types whose values can all be held."""
_CONTAINERS = frozenset({list, tuple, set, frozenset, dict})
_INT_MIN, _INT_MAX = -(2**63), 2**64 - 1


def _as_int(value: Any) -> int:
    """Return an instant as msgspec takes it; it gets nothing else that it does not know."""
    return int(value)


# Fails on integers beyond 64 bits and on lone surrogates: in C, at some ten nanoseconds a value.
_PROBE = msgspec.msgpack.Encoder(enc_hook=_as_int)


def note_unstorable(column: Column, name: str, problems: Problems) -> None:
    """Record the rows of a column whose value cannot be held. O(n).

    Columns with an Arrow type hold only what can be held.

    Args:
        column: The column.
        name: Its name, for messages.
        problems: Where to record the rows.
    """
    if column.type is not None or column.data.dtype != object:
        return
    values = column.data.tolist()
    if are_sound(values):
        return
    valid = column.valid
    for row, value in enumerate(values):
        if (valid is None or valid[row]) and (fault := fault_of(value)) is not None:
            problems.add(row, *detail_of(name, value, fault))


def detail_of(name: str, value: Any, fault: Fault) -> Fault:
    """Return the reason and the detail of a dead letter with a value that cannot be held."""
    reason, cause = fault
    if reason == TOO_DEEP:
        return reason, f"{name} is {cause}"
    return reason, f"{describe(name, value)} cannot be held: {cause}"


def are_leaves(values: Sequence[Any]) -> bool:
    """Return whether values have no parts and can all be held. O(n), in C but for decimals."""
    kinds = set(map(type, values))
    if Decimal in kinds:
        if any(type(value) is Decimal and value.is_snan() for value in values):
            return False
        kinds.discard(Decimal)
    return kinds <= _MORE_LEAVES and fit(values)


def are_sound(values: Sequence[Any]) -> bool:
    """Return whether values of Python's own types surely can all be held. O(their parts), in C.

    All values are looked at level by level together, up to some number of parts.
    """
    level: Sequence[Any] = values
    parts = 0
    for _ in range(MOST_NESTED + 1):
        kinds = set(map(type, level))
        nested = kinds & _CONTAINERS
        if kinds != nested and not are_leaves(
            [v for v in level if type(v) not in _CONTAINERS] if nested else level
        ):
            return False
        below: list[Any] = []
        for kind in nested:
            items: Any = level if len(kinds) == 1 else [v for v in level if type(v) is kind]
            parts += sum(map(len, items))
            if parts > _MOST_TOGETHER:
                return False
            if kind is dict:
                if set(map(type, chain.from_iterable(items))) - {str}:
                    return False
                if not fit(list(set(chain.from_iterable(items)))):
                    return False
                below.extend(chain.from_iterable(map(dict.values, items)))
            else:
                below.extend(chain.from_iterable(items))
        if not nested:
            return True
        level = below
    return False


def fault_of(value: Any, *, wide: bool = False) -> Fault | None:
    """Return why a value cannot be held, if it cannot. O(its parts).

    Args:
        value: The value.
        wide: Whether integers may have any size, as they may in cells.
    """
    kind = type(value)
    if kind in _SURE:
        return None
    try:
        if kind in _CONTAINERS or isinstance(value, NESTED):
            return _fault_of_nested(value, wide)
        return _fault_of_leaf(value, wide)
    except MemoryError:
        raise
    except Exception as error:  # a class of the user, such as that of a time zone
        return UNSTORABLE, f"{_UNREADABLE} ({type(error).__name__})"


def too_deep_rows(values: Sequence[Any]) -> list[int]:
    """Return the rows of values that are nested more than :data:`MOST_NESTED` deep. O(parts)."""
    if not any(issubclass(kind, NESTED) for kind in set(map(type, values))) or are_sound(values):
        return []
    return [row for row, value in enumerate(values) if _is_too_deep(value)]


def _is_too_deep(value: Any) -> bool:
    level = [value]
    try:
        for _ in range(MOST_NESTED + 1):
            # By identity, because the same list may be in a level many times.
            inside = {id(item): item for item in level if isinstance(item, NESTED)}
            if not inside:
                return False
            level = [child for item in inside.values() for child in _children(item)]
    except MemoryError:
        raise
    except Exception:  # a class of the user: whoever needs the value says so
        return False
    return True


def fit(values: Any) -> bool:
    """Return whether the integers among values fit 64 bits, and all text is valid Unicode."""
    try:
        _PROBE.encode(values)
    except MemoryError:
        raise
    except Exception:  # also a datetime that msgspec has no form for: looked at one by one
        return False
    return True


def _fault_of_leaf(value: Any, wide: bool) -> Fault | None:
    if isinstance(value, np.generic):
        if isinstance(value, (np.datetime64, np.timedelta64)):
            return None
        item = value.item()
        if isinstance(value, np.void) or isinstance(item, np.generic):
            return _unknown(value)  # a record may change, and so has no hash
        return fault_of(item, wide=wide)
    kind = type(value)
    if kind is bool:
        return None
    if kind is int:
        if wide or _INT_MIN <= value <= _INT_MAX:
            return None
        return UNSTORABLE, "it has more than 64 bits"
    if kind is str:
        return None if fit(value) else (UNSTORABLE, "it is not valid Unicode")
    if kind is Decimal:
        return (UNSTORABLE, "a signalling NaN equals nothing") if value.is_snan() else None
    if kind in _MORE_LEAVES:
        if kind in _ZONED and value.tzinfo is not None:
            value.utcoffset()  # the zone may be of a class that raises
        return None
    base = of_base(value)
    return _unknown(value) if base is value else fault_of(base, wide=wide)


def _unknown(value: Any) -> Fault:
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    return UNSTORABLE, f"neither state nor workers nor files have a form for a {name}"


def _fault_of_nested(value: Any, wide: bool) -> Fault | None:
    """Look at a value level by level: by identity, because it may be in itself."""
    level: list[Any] = [value]
    times: Counter[int] = Counter({id(value): 1})
    parts = 0
    for depth in range(MOST_NESTED + 1):
        inside: dict[int, Any] = {}
        leaves = []
        for item in level:
            if type(item) in _CONTAINERS:
                inside[id(item)] = item
            elif isinstance(item, NESTED):
                base = of_base(item)
                if base is item:
                    len(item), list(item)  # raises if Arrow must not try either
                    return _unknown(item)
                inside[id(item)] = base
            else:
                leaves.append(item)
        if not are_leaves(leaves):
            for leaf in leaves:
                if (fault := _fault_of_leaf(leaf, wide)) is not None:
                    return fault
        if not inside:
            return None
        if depth == MOST_NESTED:
            break
        level, below = [], Counter[int]()
        for place, item in inside.items():
            often = times[place]
            children = list(_children(item, keys=True))
            parts += often * len(children)
            if parts > _MOST_PARTS:
                return UNSTORABLE, _TOO_MANY
            for child in children:
                if isinstance(child, NESTED):
                    below[id(child)] += often
            level += children
        times = below
    return TOO_DEEP, f"nested more than {MOST_NESTED} deep"


def _children(item: Any, *, keys: bool = False) -> Iterable[Any]:
    if not isinstance(item, Mapping):
        return iter(item)
    return chain(item, item.values()) if keys else item.values()


def writable(value: Any) -> Any:
    """Return the record of a dead letter without what nobody can print: that as text.

    The rest stays as it arrived, whether it can be held or not.
    """
    if type(value) is dict:
        if not any(map(_is_endless, value.values())):  # a record is a level above its fields
            return value
        return {name: _cut(item) if _is_endless(item) else item for name, item in value.items()}
    return _cut(value) if _is_endless(value) else value


def portable(value: Any) -> Any:
    """Return the record of a dead letter as it is in any process: as text what has no form."""
    value = writable(value)
    if _has_form(value):
        return value
    if type(value) is dict and all(map(_has_form, value)):
        return {name: item if _has_form(item) else _text(item) for name, item in value.items()}
    return _text(value)


def endless_rows(values: Sequence[Any]) -> list[int]:
    """Return the rows of values that are nested too deep, or have too many parts, for Arrow.

    Arrow would read a list that is in itself, or in others many times over, part by part without
    end; and values of classes that raise when they are read end the process. O(n), mostly in C;
    only values that have parts inside parts, or such a class, are looked at further.
    """
    kinds = set(map(type, values))
    if not any(issubclass(kind, NESTED) or _has_odd_class(kind) for kind in kinds):
        return []
    if are_sound(values):
        return []
    return [row for row, value in enumerate(values) if _has_levels(value) and _is_endless(value)]


def _has_odd_class(kind: type) -> bool:
    """Whether values say themselves of which class they are, as proxies do."""
    return kind.__module__ != "builtins" and any(
        "__class__" in vars(base) for base in kind.__mro__[:-1]
    )


def _has_levels(value: Any) -> bool:
    kind = type(value)
    if kind not in _CONTAINERS:
        return issubclass(kind, NESTED) or _has_odd_class(kind)
    kinds = set(map(type, value.values() if kind is dict else value))
    return any(issubclass(inner, NESTED) or _has_odd_class(inner) for inner in kinds)


def _is_endless(value: Any) -> bool:
    """Return whether a value is nested too deep, has too many parts, or raises, to be printed."""
    kind = type(value)
    if not (issubclass(kind, NESTED) or _has_odd_class(kind)):
        return False
    fault = fault_of(value)
    return fault is not None and (
        fault[0] == TOO_DEEP or fault[1] == _TOO_MANY or fault[1].startswith(_UNREADABLE)
    )


def _cut(value: Any) -> str:
    fault = fault_of(value)
    odd = fault is not None and fault[1].startswith(_UNREADABLE)
    return (
        f"<{type(value).__name__}, {'which raises when it is read' if odd else 'nested too deep'}>"
    )


def _has_form(value: Any) -> bool:
    try:
        encode(value)
    except MemoryError:
        raise
    except Exception:  # it has none, or a class of the user raises
        return False
    return True


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else shown(value, exact=True)
    return text.encode("utf-8", "backslashreplace").decode()
