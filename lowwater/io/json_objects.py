"""Parses JSON lines one by one and converts the objects to columns: what Arrow does not parse."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from lowwater.engine.records.batch import HIDDEN, MOST_NESTED
from lowwater.io.settled_types import (
    EXACT,
    Values,
    column_of,
    extended,
    fits,
    is_number_of_time,
    is_text,
    kind_of_times,
    type_of,
)

_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]')


def object_of(line: bytes, *, decimals: bool = False) -> tuple[dict[str, Any] | None, str]:
    """Parse a line; return its object, or ``None`` and why it is not a record.

    Args:
        line: The line.
        decimals: Whether fractions are decimals, with the digits that they are written with.
    """
    if is_deep(line, MOST_NESTED + 1):  # the object itself is a level
        return None, f"values are nested more than {MOST_NESTED} deep"
    try:
        found = json.loads(line.decode(), parse_float=Decimal if decimals else None)
    except (ValueError, RecursionError) as error:
        return None, f"the line is not JSON: {error}"
    if not isinstance(found, dict):
        return None, f"the line holds a JSON {type(found).__name__}, not an object"
    for name in found:
        if name.startswith(HIDDEN):
            return None, f"the name of the field {name!r} is reserved"
        if not is_text(name):
            return None, f"the name of the field {name!r} is not valid Unicode"
    return found, ""


def is_deep(line: bytes, most: int) -> bool:
    """Return whether a line nests objects and arrays more than ``most`` deep."""
    if line.count(b"[") + line.count(b"{") <= most:
        return False
    depth = 0
    for bracket in _BRACKETS.findall(line):
        if bracket in (b"[", b"{"):
            depth += 1
            if depth > most:
                return True
        elif bracket in (b"]", b"}"):
            depth -= 1
    return False


def is_time(kind: pa.DataType, fractions: bool) -> bool:
    """Return whether values of a JSON type may be event times: numbers, text, or only nulls.

    Args:
        kind: The type.
        fractions: Whether floats may be event times.
    """
    if pa.types.is_float64(kind):
        return fractions
    return bool(pa.types.is_int64(kind) or pa.types.is_string(kind) or pa.types.is_null(kind))


def columns_of_objects(
    objects: Sequence[Mapping[str, Any]],
    types: dict[str, pa.DataType],
    time: str | None,
    fractions: bool,
    *,
    strict: Collection[str] = (),
    option: str = "types",
) -> tuple[dict[str, Values], dict[int, str]]:
    """Convert objects to columns; a missing field is null.

    Args:
        objects: The objects of some lines.
        types: The types of the columns so far; a field without any is settled by its first value.
        time: The field of event times, if there is one.
        fractions: Whether event times may be floats.
        strict: The columns whose types were given: a fraction is no value of one of integers, and
            an integer is a float in one of floats.
        option: The option of the reader by which users name types.

    Returns:
        The columns; and for each object with a value of the wrong type what is wrong with it. The
        columns hold a null in its place.
    """
    names = dict.fromkeys((*types, *(name for row in objects for name in row)))
    wrong: dict[int, str] = {}
    columns: dict[str, Values] = {}
    for name in names:
        values = [row.get(name) for row in objects]
        if name == time:
            columns[name] = _times(name, values, types, wrong, fractions)
        else:
            columns[name] = _column(name, values, types, wrong, name in strict, option)
    return columns, wrong


def _times(
    name: str,
    values: list[Any],
    types: dict[str, pa.DataType],
    wrong: dict[int, str],
    fractions: bool,
) -> pa.Array:
    kind = types.get(name, pa.null())
    if pa.types.is_null(kind):
        kind = kind_of_times(values, fractions=fractions)
        types[name] = kind
    of_text = pa.types.is_string(kind)
    kept: list[Any] = []
    for index, value in enumerate(values):
        if value is None or (
            is_text(value) if of_text else is_number_of_time(value, fractions=fractions)
        ):
            kept.append(value)
        else:
            kept.append(None)
            wanted = "an integer or text" if pa.types.is_null(kind) else kind
            wrong.setdefault(index, f"{name}={value!r} is not {wanted}")
    if pa.types.is_int64(kind) and any(type(value) is float for value in kept):
        kind = pa.float64()
    return pa.array(kept, type=kind)


def _column(
    name: str,
    values: list[Any],
    types: dict[str, pa.DataType],
    wrong: dict[int, str],
    strict: bool,
    option: str,
) -> Values:
    kind = types.get(name, pa.null())
    kept: list[Any] = []
    for index, given in enumerate(values):
        value = _as_given(given, kind) if strict else given
        is_fraction = strict and pa.types.is_integer(kind) and type(value) is float
        if value is not None and (is_fraction or not fits(value, kind)):
            detail = f"{name}={given!r} is not {_said(kind)}"
            wrong.setdefault(index, detail if strict else f"{detail}; {option}= can name another")
            value = None
        elif value is not None and (pa.types.is_null(kind) or pa.types.is_nested(kind)):
            kind = extended(kind, type_of(value))
        kept.append(value)
    types[name] = kind
    return column_of(kept, kind)


def _as_given(value: Any, kind: pa.DataType) -> Any:
    """Return a number as one of a type that was given, where it is the same; an object as a map."""
    if pa.types.is_map(kind) and isinstance(value, dict):
        return list(value.items())
    if pa.types.is_floating(kind) and type(value) is int:
        return float(value) if abs(value) < 2**1023 else value
    if pa.types.is_integer(kind) and type(value) is float and abs(value) <= EXACT:
        return int(value) if value.is_integer() else value
    return value


def _said(kind: pa.DataType) -> str:
    return "of one type, with valid Unicode" if pa.types.is_null(kind) else str(kind)
