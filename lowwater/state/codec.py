"""User values as bytes: msgpack, with the Python types it lacks as extensions. Never a pickle.

What comes back is equal and of the same type: tuples stay tuples, sets sets, dates dates. A type
that is not in the table is refused when it is written, not guessed at when it is read.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any, cast, final
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import numpy as np

from lowwater.errors import StateError
from lowwater.time import Instant

_NUMPY_TIME = re.compile(r"<[mM]8(\[\d*[a-zA-Z]+\])?")
_PLAIN_KINDS = frozenset({type(None), bool, float, str, bytes})
_INT_MIN, _INT_MAX = -(2**63), 2**64 - 1
_DEEPEST = 100
"""What is nested deeper than this could be written, but not read again: Python's stack ends."""


def encode(value: Any) -> bytes:
    """Return a value as bytes.

    Takes ``None``, bools, ints of any size, floats, text, bytes, lists, tuples, dicts, sets,
    frozensets, dates, times, datetimes, timedeltas, decimals, UUIDs and numpy scalars of these
    kinds (which come back as plain Python, but for dates and durations that Python has none of,
    such as those in nanoseconds). A value of a subclass, such as a named tuple or a member of an
    ``IntEnum``, comes back as one of the class itself, and is refused if the two are not equal. A
    time zone that is neither of :mod:`zoneinfo` nor a fixed offset becomes a fixed offset.

    Raises:
        StateError: It holds something else, or is nested more than 100 deep.
    """
    try:
        return _ENCODER.encode(_plain(value))
    except (StateError, UnicodeError, MemoryError, RecursionError):
        raise
    except Exception as error:  # a class of the user, such as that of a time zone
        raise StateError(
            f"a value cannot be stored: reading it raises {type(error).__name__}",
            hint="Keep plain values (numbers, text, bytes, dates, lists, tuples, dicts, sets)",
        ) from error


@final
class Encoded:
    """A part of values that are encoded again and again, encoded once; it is not to change.

    >>> encode([Encoded((1, 2)), 3]) == encode([(1, 2), 3])
    True

    Args:
        value: What it is when it is read.

    Raises:
        StateError: It is nothing that :func:`encode` takes.
    """

    __slots__ = ("raw",)

    def __init__(self, value: Any) -> None:
        self.raw = msgspec.Raw(encode(value))


def encode_slices(values: list[Any], bounds: Iterable[tuple[int, int]]) -> list[bytes]:
    """Return slices of a list, each as :func:`encode` returns it.

    Args:
        values: The list.
        bounds: Where each slice begins and ends.

    Raises:
        StateError: One holds what cannot be stored.
    """
    # Most columns have one type of a few, which need not be looked for in each slice.
    write = _ENCODER.encode if _PLAIN_KINDS.issuperset(map(type, values)) else encode
    return [write(values[low:high]) for low, high in bounds]


def encode_each(values: list[Any]) -> list[bytes]:
    """Return each value in a list of its own, as :func:`encode` returns that.

    >>> encode_each(["a", None]) == [encode(["a"]), encode([None])]
    True

    Raises:
        StateError: One cannot be stored.
    """
    if _PLAIN_KINDS.issuperset(map(type, values)):
        return list(map(_ENCODER.encode, zip(values)))  # msgpack has no tuples: they are lists
    return [encode([value]) for value in values]


def decode(data: bytes) -> Any:
    """Return the value that :func:`encode` was given.

    Raises:
        StateError: The bytes are not what :func:`encode` writes.
    """
    try:
        return _DECODER.decode(data)
    except StateError:
        raise
    except _FAILURES as error:
        raise StateError(
            f"stored bytes are not a value: {error}",
            hint="The state is damaged: restore a copy, or reset it",
        ) from None


_FAILURES = (
    msgspec.MsgspecError,
    ValueError,
    TypeError,
    ArithmeticError,
    AttributeError,
    MemoryError,
    RecursionError,
)
_ENCODER = msgspec.msgpack.Encoder()


def _plain(value: Any, depth: int = 0) -> Any:
    if isinstance(value, np.generic):
        if isinstance(value, (np.datetime64, np.timedelta64)):
            return _plain_time(value)
        if isinstance(value, np.void):
            raise _no_form(np.void)  # as bytes or a tuple it would be a sound key, which it is not
        value = value.item()
    kind = type(value)
    if kind in _PLAIN_KINDS:
        return value
    if kind is int:
        return value if _INT_MIN <= value <= _INT_MAX else _extension(1, _int_bytes(value))
    if kind is Encoded:
        return value.raw
    if depth == _DEEPEST:
        raise StateError(
            f"a value nested more than {_DEEPEST} deep cannot be stored",
            hint="Keep what is needed of it in a flatter form, or as text",
        )
    if kind is list:
        if _PLAIN_KINDS.issuperset(map(type, value)):  # most columns of values: nothing to convert
            return value
        return _items(value, depth + 1)
    if kind is dict:
        # Pairs, as msgpack's maps take no tuples for keys.
        is_plain = _PLAIN_KINDS.issuperset(map(type, value))
        keys: Iterable[Any] = value if is_plain else _items(value, depth + 1)
        return _extension(2, list(zip(keys, _items(value.values(), depth + 1), strict=True)))
    if (timed := _TIMES.get(kind)) is not None:
        return timed(value)
    made = _TO_EXTENSION.get(kind)
    if made is None:
        if (base := of_base(value)) is not value:
            return _plain(base, depth)
        raise _no_form(kind)
    code, convert = made
    return _extension(code, convert(value, depth + 1))


def _no_form(kind: type) -> StateError:
    return StateError(
        f"a value of type {kind.__module__}.{kind.__qualname__} cannot be stored",
        hint="Keep plain values (numbers, text, bytes, dates, lists, tuples, dicts, sets) in "
        "keys, accumulators and trigger states",
    )


def of_base(value: Any) -> Any:
    """Return the equal value of a built-in class that a value's own class is derived from.

    The value itself is returned if there is none: it has no such class, or is more than that, as a
    ``pandas.Timestamp`` with nanoseconds is.
    """
    for base, convert in _BASES:
        if issubclass(type(value), base):  # what a proxy says of its class is not asked
            if type(value) is base:
                return value
            try:  # by the methods of the base: those of the class may do anything
                plain = convert(value)
                is_equal = bool(plain == value) and bool(value == plain)
            except Exception:
                return value
            return plain if is_equal else value
    return value


# Lists, dicts and sets of a class of their own are more than their items, mostly: they are refused.
_BASES: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (Instant, lambda v: v),
    (int, int.__int__),
    (float, float.__float__),
    (str, str.__str__),
    (bytes, lambda v: b"".join((v,))),
    (tuple, lambda v: tuple(tuple.__iter__(v))),
    (dt.datetime, lambda v: dt.datetime.combine(dt.datetime.date(v), dt.datetime.timetz(v))),
    (dt.date, lambda v: dt.date.fromordinal(dt.date.toordinal(v))),
    (dt.timedelta, lambda v: dt.timedelta.__add__(v, dt.timedelta())),
    (Decimal, lambda v: Decimal(cast(Any, Decimal.as_tuple(v)))),  # its sign would round it
    (UUID, lambda v: UUID(int=v.int)),
)


def _plain_time(value: np.datetime64 | np.timedelta64) -> Any:
    """Return a date or duration of numpy as Python's, or as it is where Python has none."""
    item = value.item()
    if isinstance(item, (dt.date, dt.timedelta)):
        return _plain(item)
    return _extension(14, [value.dtype.str, int(value.view(np.int64))])


def _numpy_time(parts: list[Any]) -> Any:
    kind, count = parts
    if _NUMPY_TIME.fullmatch(kind) is None:
        raise ValueError(f"{kind!r} is no type of times")
    return np.int64(count).view(kind)


def _time(code: int) -> Callable[[Any], msgspec.msgpack.Ext]:
    """Return what encodes a time of day or a datetime.

    A time zone's rules, and which of two equal times a clock shows, are not in ISO-8601 text.
    """

    def encoded(value: dt.time | dt.datetime) -> msgspec.msgpack.Ext:
        zone = value.tzinfo
        name = zone.key if isinstance(zone, ZoneInfo) else None
        if name is None and not value.fold:
            return _extension(code, value.isoformat())
        bare = value if name is None else value.replace(tzinfo=None)
        return _extension(13, [code, bare.isoformat(), name, value.fold])

    return encoded


def _time_in_zone(parts: list[Any]) -> dt.time | dt.datetime:
    code, text, name, fold = parts
    if code not in (7, 8):
        raise ValueError(f"{code!r} is no kind of time")
    value: dt.time | dt.datetime = _FROM_EXTENSION[code](text)
    if name is None:
        return value.replace(fold=fold)
    try:
        return value.replace(tzinfo=ZoneInfo(name), fold=fold)
    except (KeyError, ValueError, OSError) as error:
        raise StateError(
            f"stored bytes hold a time of the zone {name!r}, which is not known here",
            hint="Install tzdata: pip install tzdata",
        ) from error


def _int_bytes(value: int) -> bytes:
    """Return an int of any size: as digits, a very long one could not be read again."""
    return value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)


def _extension(code: int, value: Any) -> msgspec.msgpack.Ext:
    return msgspec.msgpack.Ext(code, _ENCODER.encode(value))


def _items(values: Iterable[Any], depth: int) -> list[Any]:
    # Most are plain: a call for each of them would take several times as long.
    return [
        item
        if (kind := type(item)) in _PLAIN_KINDS or (kind is int and _INT_MIN <= item <= _INT_MAX)
        else _plain(item, depth)
        for item in values
    ]


def _sorted_items(values: Any, depth: int) -> list[Any]:
    """Return a set's items in an order that does not depend on hashes."""
    return sorted(_items(values, depth), key=_ENCODER.encode)


def _leaf(convert: Callable[[Any], Any]) -> Callable[[Any, int], Any]:
    return lambda value, _: convert(value)


_TO_EXTENSION: dict[type, tuple[int, Callable[[Any, int], Any]]] = {
    tuple: (3, _items),
    set: (4, _sorted_items),
    frozenset: (5, _sorted_items),
    dt.date: (6, _leaf(dt.date.isoformat)),
    dt.timedelta: (9, _leaf(lambda v: [v.days, v.seconds, v.microseconds])),
    Decimal: (10, _leaf(str)),
    UUID: (11, _leaf(str)),
    Instant: (12, _leaf(int)),
}
_TIMES: dict[type, Callable[[Any], Any]] = {dt.time: _time(7), dt.datetime: _time(8)}
_FROM_EXTENSION: dict[int, Callable[[Any], Any]] = {
    1: lambda data: int.from_bytes(data, "big", signed=True),
    2: dict,
    3: tuple,
    4: set,
    5: frozenset,
    6: dt.date.fromisoformat,
    7: dt.time.fromisoformat,
    8: dt.datetime.fromisoformat,
    9: lambda parts: dt.timedelta(*parts),
    10: Decimal,
    11: UUID,
    12: Instant,
    13: _time_in_zone,
    14: _numpy_time,
}


def _from_extension(code: int, data: memoryview) -> Any:
    convert = _FROM_EXTENSION.get(code)
    if convert is None:
        raise StateError(
            f"stored bytes hold a value of an unknown kind ({code})",
            hint="They may be of a newer lowwater: use that, or reset the state",
        )
    return convert(_DECODER.decode(data))


_DECODER = msgspec.msgpack.Decoder(ext_hook=_from_extension)
