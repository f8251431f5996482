"""Parses JSON lines one by one and converts the objects to columns: what Arrow does not parse."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from lowwater.engine.records.batch import HIDDEN, MOST_NESTED
from lowwater.time import END_OF_TIME, START_OF_TIME

_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]')
_BAD_VALUE = (
    pa.ArrowInvalid,
    pa.ArrowTypeError,
    pa.ArrowNotImplementedError,
    OverflowError,
    UnicodeEncodeError,  # half of a surrogate pair is no text
)

Types = Mapping[str, pa.DataType]
"""The types of the columns so far, by name."""


def object_of(line: bytes) -> tuple[dict[str, Any] | None, str]:
    """Parse a line; return its object, or ``None`` and why it is not a record."""
    if is_deep(line, MOST_NESTED + 1):  # the object itself is a level
        return None, f"values are nested more than {MOST_NESTED} deep"
    try:
        found = json.loads(line.decode())
    except (ValueError, RecursionError) as error:
        return None, f"the line is not JSON: {error}"
    if not isinstance(found, dict):
        return None, f"the line holds a JSON {type(found).__name__}, not an object"
    for name in found:
        if name.startswith(HIDDEN):
            return None, f"the name of the field {name!r} is reserved"
        if not _is_text(name):
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
    objects: Sequence[Mapping[str, Any]], types: Types, time: str | None, fractions: bool
) -> tuple[dict[str, pa.Array], dict[int, str]]:
    """Convert objects to columns; a missing field is null.

    Args:
        objects: The objects of some lines.
        types: The types of the columns so far.
        time: The field of event times, if there is one.
        fractions: Whether event times may be floats.

    Returns:
        The columns, whose types may be wider than before; and for each object with a value of the
        wrong type what is wrong with it. The columns hold a null in its place.
    """
    names = dict.fromkeys((*types, *(name for row in objects for name in row)))
    wrong: dict[int, str] = {}
    arrays: dict[str, pa.Array] = {}
    for name in names:
        values = [row.get(name) for row in objects]
        kind = types.get(name, pa.null())
        if name == time:
            arrays[name] = _times(name, values, kind, wrong, fractions)
        else:
            arrays[name] = _column(name, values, kind, wrong)
    return arrays, wrong


def _times(
    name: str, values: list[Any], kind: pa.DataType, wrong: dict[int, str], fractions: bool
) -> pa.Array:
    is_number = _is_number if fractions else _is_int64
    if pa.types.is_null(kind):
        kind = _kind_of_times(values, is_number)
    if pa.types.is_int64(kind) and fractions and any(type(value) is float for value in values):
        kind = pa.float64()
    accepts = _is_text if pa.types.is_string(kind) else is_number
    kept: list[Any] = []
    for index, value in enumerate(values):
        if value is None or accepts(value):
            kept.append(value)
        else:
            kept.append(None)
            wanted = "an integer or text" if pa.types.is_null(kind) else kind
            wrong.setdefault(index, f"{name}={value!r} is not {wanted}")
    return pa.array(kept, type=kind)


def _kind_of_times(values: list[Any], is_number: Callable[[Any], bool]) -> pa.DataType:
    """Return the type that most event times have, so that one wrong value does not decide it."""
    integers = sum(map(is_number, values))
    texts = sum(map(_is_text, values))
    if not integers and not texts:
        return pa.null()
    return pa.int64() if integers >= texts else pa.string()


def _column(name: str, values: list[Any], kind: pa.DataType, wrong: dict[int, str]) -> pa.Array:
    if pa.types.is_null(kind):
        kind = _kind_of_most(values)
    if pa.types.is_integer(kind) and any(type(value) is float for value in values):
        kind = pa.float64()
    try:
        wider = _wider(kind, values)
        return _array(values, wider)
    except _BAD_VALUE:
        pass
    for index, value in enumerate(values):
        try:
            wider = _wider(kind, [value])
            _array([value], wider)
            kind = wider
        except _BAD_VALUE:
            wrong.setdefault(index, f"{name}={value!r} is not {kind}")
    kept = [None if index in wrong else value for index, value in enumerate(values)]
    return _array(kept, kind)


def _wider(kind: pa.DataType, values: list[Any]) -> pa.DataType:
    """Return the type of a nested column with the fields that more values have.

    Raises:
        ArrowException: The values do not have the type's shape.
    """
    if not pa.types.is_nested(kind):
        return kind
    own = pa.array(values).type
    schemas = [pa.schema([("", kind)]), pa.schema([("", own)])]
    return pa.unify_schemas(schemas, promote_options="permissive").field(0).type


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if (pa.types.is_integer(kind) or pa.types.is_floating(kind)) and any(
        type(value) is bool for value in values
    ):
        raise pa.ArrowTypeError("true and false are not numbers")
    return pa.array(values, type=kind)


def _kind_of_most(values: list[Any]) -> pa.DataType:
    """Return the type that most values have, so that one wrong value does not decide it."""
    shapes = Counter(_SHAPES.get(type(value)) for value in values if value is not None)
    for shape, _ in shapes.most_common():  # those of one count in order of appearance
        for value in values:
            if value is not None and _SHAPES.get(type(value)) == shape:
                try:
                    return pa.array([value]).type
                except _BAD_VALUE:
                    continue
    return pa.null()


_SHAPES = {int: "number", float: "number", bool: "bool", str: "text", list: "list", dict: "object"}


def _is_int64(value: Any) -> bool:
    return type(value) is int and START_OF_TIME <= value <= END_OF_TIME


def _is_number(value: Any) -> bool:
    return type(value) is float or _is_int64(value)


def _is_text(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
