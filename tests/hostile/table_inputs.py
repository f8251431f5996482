"""Hostile tables, for the readers of Parquet, logs, Arrow and pandas, and hostile elements."""

from __future__ import annotations

import datetime as dt
import io
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from tests.hostile.hostile_input import TIME_US, HostileInput

_ENDS = (-(2**63), -(2**63) + 1, -(2**62), -1, 0, 2**53, 2**62, 2**63 - 2, 2**63 - 1)


def _viewed(kind: pa.DataType) -> pa.Array:
    ends = [end % 2**32 - 2**31 for end in _ENDS] if kind.bit_width == 32 else list(_ENDS)
    return pa.array(ends, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)


def _invalid_text() -> pa.Array:
    texts = [b"a", b"\xff", b"b\xed\xa0\x80", b"", b"a", b"a", b"a", b"a", b"a"]
    plain = pa.array(texts, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(texts), plain.buffers())


def _deep(levels: int) -> pa.Array:
    array = pa.array(range(len(_ENDS)))
    for _ in range(levels):
        array = pa.ListArray.from_arrays(pa.array(range(len(_ENDS) + 1), pa.int32()), array)
    return array


COLUMNS: Mapping[str, Callable[[], pa.Array]] = {
    **{
        f"timestamp in {unit}, {zone}": partial(_viewed, pa.timestamp(unit, zone))
        for unit in ("s", "ms", "us", "ns")
        for zone in (None, "UTC", "Europe/Berlin", "Nowhere/Land", "+25:00", "-01:00")
    },
    **{f"{kind}": partial(_viewed, kind) for kind in (
        pa.date32(), pa.date64(), pa.time32("s"), pa.time64("us"), pa.duration("s"),
        pa.duration("us"), pa.duration("ns"), pa.int64(), pa.uint64(), pa.float64(),
    )},
    "text that is not UTF-8": _invalid_text,
    "a dictionary that is not UTF-8": lambda: pa.DictionaryArray.from_arrays(
        pa.array(range(9), pa.int32()), _invalid_text()
    ),
    "lists of text that is not UTF-8": lambda: pa.ListArray.from_arrays(
        pa.array(range(10), pa.int32()), _invalid_text()
    ),
    "lists of timestamps": lambda: pa.ListArray.from_arrays(
        pa.array(range(10), pa.int32()), _viewed(pa.timestamp("ms"))
    ),
    "structs of timestamps": lambda: pa.StructArray.from_arrays(
        [_viewed(pa.timestamp("us", "Nowhere/Land"))], ["t"]
    ),
    "nulls": lambda: pa.nulls(9),
    "half floats": lambda: pa.array(np.array([0, 1, np.nan, np.inf, -np.inf, 1, 2, 3, 4], "e")),
    "decimals": lambda: pa.array([Decimal(10) ** 37] * 9, pa.decimal128(38)),
    "booleans": lambda: pa.array([True, None, False] * 3),
    "lists 39 deep": lambda: _deep(39),
    "lists 60 deep": lambda: _deep(60),
    "lists 300 deep": lambda: _deep(300),
    "maps": lambda: pa.array([[("a", 1)]] * 9, pa.map_(pa.string(), pa.int64())),
    "string views": lambda: pa.array(["a" * 20] * 9, pa.string_view()),
    "intervals": lambda: pa.array([(1, 2, 3)] * 9, pa.month_day_nano_interval()),
    "fixed bytes": lambda: pa.array([b"abc"] * 9, pa.binary(3)),
    "empty structs": lambda: pa.array([{}] * 9, pa.struct([])),
}  # fmt: skip


def _table(column: str, name: str) -> pa.Table:
    """Return a table of sound columns, but for one."""
    sound = {
        "at": pa.array(range(TIME_US, TIME_US + 9)), "k": pa.array(list("ababababa")),
        "v": pa.array(range(9)), "x": pa.array(range(9)),
    }  # fmt: skip
    return pa.table({**sound, name: COLUMNS[column]()})


def tables(random_: random.Random) -> HostileInput:
    """Return a table with an odd column in any place, for any reader of tables."""
    return _of_table(
        random_, random_.choice(list(COLUMNS)), random_.choice(("at", "k", "v", "x", "x"))
    )


def table_of(random_: random.Random, column: str) -> HostileInput:
    """Return a table with an odd column that is only collected."""
    return _of_table(random_, column, "x")


def _of_table(random_: random.Random, column: str, name: str) -> HostileInput:
    reader = random_.choice(("parquet", "arrow", "log", "pandas"))
    options = {"timezone": random_.choice(("UTC", "Europe/Berlin", None))} if name == "at" else {}
    title = f"{name} is {column}"
    table = _table(column, name)
    refusable = name != "x" or "deep" in column or "UTF-8" in column
    if reader == "parquet" and (data := _parquet(table)) is not None:
        return HostileInput(
            "parquet", title, {"1.parquet": data}, rows=9, refusable=refusable, options=options
        )
    if reader == "pandas":
        try:
            table = table.to_pandas()
        except (pa.ArrowException, ValueError, TypeError, OverflowError):
            reader = "arrow"
    reader = "arrow" if reader == "parquet" else reader
    return HostileInput(
        reader, title, data=table, rows=9, refusable=refusable or reader == "log", options=options
    )


def _parquet(table: pa.Table) -> bytes | None:
    """Return a table as a Parquet file; ``None`` if it cannot be one."""
    buffer = io.BytesIO()
    try:
        pq.write_table(table, buffer)
    except (pa.ArrowException, OSError):
        return None
    return buffer.getvalue()


def parquet_files(random_: random.Random) -> HostileInput:
    """Return Parquet files that are damaged, cut, or whose schemas differ."""
    sound = _parquet(_table("booleans", "y"))
    assert sound is not None
    match random_.randrange(4):
        case 0:
            data = bytearray(sound)
            for _ in range(random_.choice((1, 5))):
                data[random_.randrange(len(data))] = random_.randrange(256)
            return HostileInput("parquet", "damaged", {"1.parquet": bytes(data)})
        case 1:
            data = bytearray(sound[: random_.randrange(len(sound))])
            return HostileInput("parquet", "cut", {"1.parquet": bytes(data)})
        case 2:
            files = {"1.parquet": random_.randbytes(random_.randrange(200))}
            return HostileInput("parquet", "rubbish", files)
        case _:
            name = random_.choice(("at", "k", "v", "x"))
            column = random_.choice(list(COLUMNS))
            other = _parquet(_table(column, name)) or sound
            files = {"1.parquet": sound, "2.parquet": other}
            return HostileInput("parquet", f"then {name} is {column}", files, rows=18)


class _Named(NamedTuple):
    at: Any
    k: Any
    v: Any
    x: Any


@dataclass
class _Plain:
    at: Any
    k: Any
    v: Any
    x: Any


class _Unequal:
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise TypeError("not to be compared")

    def __repr__(self) -> str:
        return "<unequal>"


def _nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def _endless() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


PLAIN: list[Any] = [
    None, 0, -1, 2**62, 2**63, -(2**63), 2**63 - 1, 0.5, float("nan"), float("inf"), True, "",
    "soon", "\ud800", "\x00", b"\xff", [], {}, (), set(), [None], {1: 2}, {"\ud800": 1},
    _nested(38), _nested(90), _nested(900), _nested(50_000), _endless(),
    dt.datetime(9999, 12, 31, 23, 59, 59, tzinfo=dt.UTC), dt.datetime(1, 1, 1, tzinfo=dt.UTC),
    dt.datetime(2024, 5, 1), dt.date.max, dt.time.max, dt.timedelta.max, dt.timedelta.min,  # noqa: DTZ001
    dt.datetime(1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=23))),
]  # fmt: skip
"""Values that any pipeline must get along with."""
ODD: list[Any] = [
    10**400,
    object(),
    _Unequal(),
    np.datetime64("NaT"),
    np.datetime64(2**62, "us"),
    np.datetime64(2**62, "s"),
    np.timedelta64("NaT"),
    np.float32(1),
    np.int8(1),
    np.uint64(2**63),
    np.array([1, 2]),
    pd.NaT,
    pd.NA,
    pd.Timestamp.max,
    Decimal("NaN"),
    Decimal("1e400"),
    1j,
    len,
    ...,
    range(3),
    frozenset({1}),
    memoryview(b"a"),
    bytearray(b"a"),
    Exception("no"),
]
"""Values that not every output can hold: a clear error will do."""
VALUES = [*PLAIN, *ODD]


def elements(random_: random.Random) -> HostileInput:
    """Return Python elements, some with odd values."""
    return _with_value(
        random_, random_.randrange(len(VALUES)), random_.choice(("at", "k", "v", "x"))
    )


def element_with(random_: random.Random, number: int) -> HostileInput:
    """Return elements, one of which has an odd value in any field."""
    return _with_value(random_, number, random_.choice(("at", "k", "v", "x")))


def _with_value(random_: random.Random, number: int, name: str) -> HostileInput:
    value = VALUES[number]
    items: list[Any] = []
    kind = random_.choice((dict, dict, _Named, _Plain))
    for at in range(9):
        row = {"at": TIME_US + at, "k": "a", "v": at, "x": at}
        items.append(kind(**row))
    place = random_.choice((0, 4, 8))
    items[place] = kind(**{"at": TIME_US, "k": "a", "v": 1, "x": 1} | {name: value})
    title = f"{name} is a {type(value).__name__} ({number})"
    refusable = number >= len(PLAIN)
    return HostileInput("iterable", title, data=items, rows=9, refusable=refusable)


def odd_elements(random_: random.Random) -> HostileInput:
    """Return elements of other shapes among sound ones."""
    sound: list[Any] = [{"at": TIME_US + at, "k": "a", "v": at, "x": at} for at in range(9)]
    odd: list[Any] = [
        None, 1, "text", [], {}, {1: 2}, {"\ud800": 1}, {"__lw_time": 1}, {"at": TIME_US},
        {None: 1, "at": TIME_US}, (1, 2), object(), {"at": TIME_US, "k": "a", "v": 1, "new": 1},
    ]  # fmt: skip
    for element in random_.sample(odd, random_.choice((1, 2, 5))):
        sound.insert(random_.randrange(len(sound) + 1), element)
    return HostileInput(
        "iterable", "elements of other shapes", data=sound, rows=len(sound), refusable=False
    )


def frames(random_: random.Random) -> HostileInput:
    """Return a DataFrame with a column of mixed or odd values."""
    name = random_.choice(("at", "k", "v", "x"))
    chosen = [random_.choice(VALUES) for _ in range(2)]
    column: list[Any] = [TIME_US] * 7 if name == "at" else [1] * 7
    columns: dict[str, Any] = {"at": [TIME_US] * 9, "k": ["a"] * 9, "v": [1] * 9, "x": [1] * 9}
    columns[name] = pd.Series([*column, *chosen], dtype=object)
    kinds = ", ".join(type(value).__name__ for value in chosen)
    return HostileInput("pandas", f"{name} has {kinds}", data=pd.DataFrame(columns), rows=9)
