"""Values that some part of a run might not be able to hold, compare, hash, print or write."""

from __future__ import annotations

import datetime as dt
import enum
from collections import namedtuple
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from ipaddress import ip_address
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any, NoReturn
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa

from lowwater.time import Instant

UTC = dt.UTC


class Hue(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    LOW = 1


class Side(enum.StrEnum):
    LEFT = "left"


class Text(str):
    """Text of a class of its own."""

    __slots__ = ()


Pair = namedtuple("Pair", "a b")


@dataclass(frozen=True)
class Point:
    x: int = 1


@dataclass(frozen=True, order=True)
class Ordered:
    x: int = 1


def _fails(*_: Any) -> NoReturn:
    raise ZeroDivisionError("of the value's own class")


class NoHash:
    __hash__ = _fails


class NoEquality:
    __eq__ = _fails

    def __hash__(self) -> int:
        return 1


class NoRepr:
    __repr__ = __str__ = _fails


class NoTruth:
    __bool__ = _fails

    def __lt__(self, other: object) -> NoTruth:
        return self


class OddText(str):
    """Text that cannot be compared."""

    __slots__ = ()
    __eq__ = __lt__ = __gt__ = _fails
    __hash__ = str.__hash__


class OddNumber(int):
    """A number that cannot be compared, or hashed."""

    __eq__ = __lt__ = __gt__ = __le__ = __ge__ = __hash__ = _fails


class OddZone(dt.tzinfo):
    """A time zone that fails when it is asked."""

    utcoffset = dst = tzname = _fails


class OddMapping(Mapping[str, Any]):
    """A mapping that cannot be read."""

    __getitem__: Any = _fails
    __iter__: Any = _fails
    __len__: Any = _fails


class HalfMapping(OddMapping):
    """A mapping that names what it does not have."""

    def __iter__(self) -> Iterator[str]:
        return iter(("a", "b"))


class OddDict(dict[str, Any]):
    """A dict whose items cannot be read by its methods."""

    __iter__ = __getitem__ = items = keys = values = __len__ = _fails


class OddList(list[Any]):
    """A list that cannot be iterated."""

    __iter__ = __len__ = __getitem__ = _fails


class OddTuple(tuple[Any, ...]):
    """A tuple that cannot be iterated."""

    __slots__ = ()
    __iter__ = __len__ = __getitem__ = __hash__ = __eq__ = _fails


class OddFloat(float):
    """A float that cannot be converted or compared."""

    __float__ = __eq__ = __ne__ = __lt__ = __hash__ = __int__ = _fails


class OddTime(dt.datetime):
    """A time that cannot be converted."""

    utcoffset: Any = _fails
    astimezone: Any = _fails
    isoformat: Any = _fails
    __hash__ = __eq__ = __sub__ = timestamp = _fails


class OddClass:
    """Something that fails when it is asked what it is."""

    __class__: Any = property(_fails)


def _nested(depth: int) -> list[Any]:
    value: list[Any] = [1]
    for _ in range(depth - 1):
        value = [value]
    return value


def _endless() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def _doubled(depth: int) -> list[Any]:
    value: list[Any] = [1]
    for _ in range(depth):
        value = [value, value]
    return value


VALUES: dict[str, Any] = {
    "int beyond 64 bits": 10**30,
    "int below 64 bits": -(10**30),
    "int of 63 bits": 2**63,
    "int of 64 bits": 2**64,
    "int with 5,000 digits": 10**5000,
    "int that no float holds": 2**53 + 1,
    "bool": True,
    "minus zero": -0.0,
    "nan": float("nan"),
    "infinity": float("inf"),
    "decimal": Decimal("1.50"),
    "decimal nan": Decimal("NaN"),
    "decimal signalling nan": Decimal("sNaN"),
    "decimal infinity": Decimal("Infinity"),
    "decimal beyond floats": Decimal("1e400"),
    "decimal beyond all": Decimal("1e999999999"),
    "fraction": Fraction(1, 3),
    "complex": 1j,
    "ip address": ip_address("10.0.0.1"),
    "uuid": UUID(int=7),
    "path": PurePosixPath("/a/b"),
    "enum": Hue.RED,
    "int enum": Level.LOW,
    "str enum": Side.LEFT,
    "text of a class": Text("text"),
    "lone surrogate": "\ud800",
    "surrogate inside": {"a": ["x", "\udfff"]},
    "nul": "a\x00b",
    "empty text": "",
    "escapes": "\x1b[31m\n\u2028\"'\\",
    "astral": "🚲",
    "bytes": b"\xff",
    "bytearray": bytearray(b"\xff"),
    "memoryview": memoryview(b"\xff"),
    "dict": {"a": [1, {"b": None}]},
    "dict with other keys": {1: "a", (1, 2): "b"},
    "dict with a bad value": {"a": Fraction(1, 2)},
    "list": [1, [2.5, None], "x"],
    "empty list": [],
    "set": {1, 2},
    "set of mixed": {1, "a"},
    "frozenset": frozenset({(1, 2), "a"}),
    "mapping": MappingProxyType({"a": 1}),
    "tuple": (1, "a"),
    "other tuple": ("a", 1),
    "tuple with null": (None, 1),
    "tuple with nan": (float("nan"), 1),
    "tuple with a list": ([1], 2),
    "tuple with a big int": (10**30, 1),
    "tuple with a surrogate": ("\udc80",),
    "empty tuple": (),
    "named tuple": (Pair(1, "b"),),
    "dataclass": [Point()],
    "ordered dataclass": Ordered(),
    "naive datetime": dt.datetime(2024, 5, 1, 12, tzinfo=UTC).replace(tzinfo=None),
    "aware datetime": dt.datetime(2024, 5, 1, 12, tzinfo=UTC),
    "foreign zone": dt.datetime(2024, 5, 1, 12, tzinfo=ZoneInfo("Asia/Tokyo")),
    "fold": dt.datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
    "last datetime": dt.datetime.fromisoformat("9999-12-31T23:59:59.999999"),
    "last datetime of a zone": dt.datetime.max.replace(tzinfo=dt.timezone(dt.timedelta(hours=-5))),
    "first datetime": dt.datetime.min.replace(tzinfo=dt.timezone(dt.timedelta(hours=5))),
    "date": dt.date(2024, 5, 1),
    "time": dt.time(12, 30, tzinfo=UTC),
    "timedelta": dt.timedelta(days=-1, microseconds=1),
    "last timedelta": dt.timedelta.max,
    "instant": Instant(55),
    "float16": np.float16(1.5),
    "float32": np.float32(0.1),
    "longdouble": np.longdouble("1.5"),
    "int8": np.int8(-3),
    "uint64": np.uint64(2**64 - 1),
    "numpy bool": np.bool_(True),
    "numpy text": np.str_("text"),
    "numpy bytes": np.bytes_(b"x"),
    "numpy void": np.void(b"ab"),
    "numpy record": np.array([(1, 2.0)], dtype="i4,f8")[0],
    "numpy complex": np.complex64(1),
    "numpy nanoseconds": np.datetime64("2024-05-01T00:00:00.000000001", "ns"),
    "numpy year": np.datetime64("2024", "Y"),
    "numpy NaT": np.datetime64("NaT", "ns"),
    "numpy duration": np.timedelta64(5, "ns"),
    "numpy array": np.arange(3),
    "pandas timestamp": pd.Timestamp("2024-05-01T00:00:00.000000001"),
    "pandas plain timestamp": pd.Timestamp("2024-05-01", tz="UTC"),
    "pandas timedelta": pd.Timedelta("1s"),
    "pandas NA": pd.NA,
    "pandas NaT": pd.NaT,
    "arrow scalar": pa.scalar(1),
    "object": object(),
    "class": object,
    "function": len,
    "no hash": NoHash(),
    "no equality": NoEquality(),
    "no repr": NoRepr(),
    "no truth": NoTruth(),
    "odd text": OddText("odd"),
    "odd number": OddNumber(3),
    "odd zone": dt.datetime(2024, 5, 1, 12, tzinfo=OddZone()),
    "time of an odd zone": dt.time(12, tzinfo=OddZone()),
    "odd zone inside": {"a": [dt.datetime(2024, 5, 1, 12, tzinfo=OddZone())]},
    "odd mapping": OddMapping(),
    "half mapping": HalfMapping(),
    "odd mapping inside": [OddMapping()],
    "odd dict": OddDict(a=1),
    "odd list": OddList([1]),
    "odd tuple": OddTuple((1, 2)),
    "odd float": OddFloat(1.5),
    "odd time": OddTime(2024, 5, 1, tzinfo=UTC),
    "odd class": OddClass(),
    "nested 40": _nested(40),
    "nested 41": _nested(41),
    "nested 100,000": _nested(100_000),
    "endless": _endless(),
    "doubled": _doubled(38),
    "long text": "x" * 20_000,
}
"""The values by what is odd about them."""
