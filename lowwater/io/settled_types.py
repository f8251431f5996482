"""Types of columns that first values settle: which values fit, and columns that hold them exactly.

Numbers are of one type: a column of integers and fractions is of floats where these hold all of its
integers exactly, and of Python values where they do not. So no value changes with what is beside
it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lowwater.engine.records.columns import EXACT as EXACT
from lowwater.engine.records.value_kinds import holds
from lowwater.time import END_OF_TIME, START_OF_TIME

Values: TypeAlias = pa.Array | list[Any]
"""A column: an array, or Python values that no Arrow type holds exactly."""

_INT64 = 2**63
_BAD_VALUE = (
    pa.ArrowInvalid,
    pa.ArrowTypeError,
    pa.ArrowNotImplementedError,
    OverflowError,
    UnicodeEncodeError,  # half of a surrogate pair is no text
)


def kind_of_most(values: Sequence[Any]) -> pa.DataType:
    """Return the type that most values have, so that one wrong value does not decide it.

    Nulls do not count.
    """
    shapes = Counter(_SHAPES.get(type(value)) for value in values if value is not None)
    for shape, _ in shapes.most_common():  # those of one count in order of appearance
        of_shape = [v for v in values if v is not None and _SHAPES.get(type(v)) == shape]
        if shape == "number":
            return pa.float64() if any(type(v) is float for v in of_shape) else pa.int64()
        for value in of_shape:
            kind = type_of(value)
            if not pa.types.is_null(kind) and fits(value, kind):
                return kind
    return pa.null()


def type_of(value: Any) -> pa.DataType:
    """Return the type of a value of JSON; a null type if it has none."""
    if type(value) in (int, float):
        return pa.int64() if type(value) is int else pa.float64()
    if type(value) is list:
        kind = pa.null()
        for item in value:
            kind = extended(kind, type_of(item))
        return pa.list_(kind)
    if type(value) is dict:
        if not all(map(is_text, value)):
            return pa.null()
        return pa.struct([(name, type_of(item)) for name, item in value.items()])
    try:
        return pa.array([value]).type
    except _BAD_VALUE:
        return pa.null()


_SHAPES = {int: "number", float: "number", bool: "bool", str: "text", list: "list", dict: "object"}


def kind_of_times(values: Sequence[Any], *, fractions: bool) -> pa.DataType:
    """Return the type that most event times have: integers, floats or text.

    Args:
        values: The values of their field; nulls do not count.
        fractions: Whether event times may be floats.
    """
    numbers = sum(is_number_of_time(value, fractions=fractions) for value in values)
    texts = sum(map(is_text, values))
    if not numbers and not texts:
        return pa.null()
    if numbers < texts:
        return pa.string()
    some_float = fractions and any(type(value) is float for value in values)
    return pa.float64() if some_float else pa.int64()


def is_number_of_time(value: Any, *, fractions: bool) -> bool:
    """Return whether a value may be an event time in a column of numbers."""
    if type(value) is float:
        return fractions
    return type(value) is int and START_OF_TIME <= value <= END_OF_TIME


def is_text(value: Any) -> bool:
    """Return whether a value is text that is valid Unicode."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def fits(value: Any, kind: pa.DataType) -> bool:
    """Return whether a value of JSON, which is not null, is of a type.

    Any number is of a type of numbers of JSON's, which are int64 and float64. A null type has no
    values yet: all are of it. Fields of an object that the type does not have may hold anything.
    """
    if pa.types.is_null(kind):
        return is_sound(value)
    if pa.types.is_int64(kind) or pa.types.is_float64(kind):
        return type(value) in (int, float)
    if pa.types.is_string(kind):
        return is_text(value)
    if pa.types.is_boolean(kind):
        return type(value) is bool
    if is_list(kind):
        inner = kind.value_type
        return type(value) is list and all(v is None or fits(v, inner) for v in value)
    if pa.types.is_struct(kind):
        if type(value) is not dict or not all(map(is_text, value)):
            return False
        known = {field.name: field.type for field in kind}
        return all(v is None or fits(v, known.get(n, pa.null())) for n, v in value.items())
    try:  # a type that was given, such as a decimal
        pa.array([value], kind)
    except _BAD_VALUE:
        return False
    return type(value) is not bool and not (pa.types.is_integer(kind) and type(value) is not int)


def is_sound(value: Any) -> bool:
    """Return whether all text in a value of JSON is valid Unicode."""
    if isinstance(value, str):
        return is_text(value)
    if isinstance(value, list):
        return all(map(is_sound, value))
    if isinstance(value, dict):
        return all(map(is_text, value)) and all(map(is_sound, value.values()))
    return True


def column_of(values: list[Any], kind: pa.DataType) -> Values:
    """Return values that are of a type, and nulls, as a column. O(n)."""
    if pa.types.is_int64(kind) or pa.types.is_float64(kind):
        return _numbers(values, kind)
    if not pa.types.is_nested(kind) or pa.types.is_map(kind):
        return pa.array(values, kind)
    try:
        array = pa.array(values, _wider(kind, pa.array(values).type))
        if holds(array, lambda: values):
            return array
    except _BAD_VALUE:
        pass
    return values


def _wider(kind: pa.DataType, own: pa.DataType) -> pa.DataType:
    """Return a type with the fields of both, so that an object has nulls for those it lacks."""
    schemas = [pa.schema([("", with_texts(kind))]), pa.schema([("", own)])]
    return pa.unify_schemas(schemas, promote_options="permissive").field(0).type


def _numbers(values: list[Any], kind: pa.DataType) -> Values:
    kinds = set(map(type, values)) - {type(None)}
    wide = [v for v in values if type(v) is int and not -EXACT <= v <= EXACT]
    if (kinds == {int} and pa.types.is_int64(kind)) or not kinds:
        return pa.array(values, kind) if all(-_INT64 <= v < _INT64 for v in wide) else values
    return values if wide else pa.array(values, pa.float64())


def extended(known: pa.DataType, found: pa.DataType) -> pa.DataType:
    """Return a settled type with the fields that an object of it was found to have."""
    if pa.types.is_null(known):
        return found
    if is_list(known) and is_list(found):
        return pa.list_(extended(known.value_type, found.value_type))
    if pa.types.is_struct(known) and pa.types.is_struct(found):
        types = {field.name: field.type for field in known}
        for field in found:
            types[field.name] = extended(types.get(field.name, pa.null()), field.type)
        return pa.struct(list(types.items()))
    return known


def is_alike(known: pa.DataType, found: pa.DataType) -> bool:
    """Return whether values of a type that was inferred are of a settled one."""
    if pa.types.is_null(known) or pa.types.is_null(found) or known == found:
        return True
    if is_list(known) and is_list(found):
        return is_alike(known.value_type, found.value_type)
    if pa.types.is_struct(known) and pa.types.is_struct(found):
        types = {field.name: field.type for field in known}
        return all(is_alike(types.get(f.name, f.type), f.type) for f in found)
    return all(pa.types.is_int64(one) or pa.types.is_float64(one) for one in (known, found))


def has_numbers(kind: pa.DataType) -> bool:
    """Return whether a type has numbers of JSON's in it, or fields without a value yet."""
    if pa.types.is_nested(kind):
        return any(has_numbers(kind.field(at).type) for at in range(kind.num_fields))
    return bool(pa.types.is_int64(kind) or pa.types.is_float64(kind) or pa.types.is_null(kind))


def has_decimals(kind: pa.DataType) -> bool:
    """Return whether a type has decimals in it, as only one that was given can."""
    if pa.types.is_nested(kind):
        return any(has_decimals(kind.field(at).type) for at in range(kind.num_fields))
    return bool(pa.types.is_decimal(kind))


def has_nulls(kind: pa.DataType) -> bool:
    """Return whether a type is not settled: of a field without a value yet, or with one in it."""
    if pa.types.is_nested(kind):
        return any(has_nulls(kind.field(at).type) for at in range(kind.num_fields))
    return bool(pa.types.is_null(kind))


def is_of_json(kind: pa.DataType) -> bool:
    """Return whether JSON can have values of a type: numbers, text, bools, lists and objects."""
    if is_list(kind) or pa.types.is_struct(kind):
        return all(is_of_json(kind.field(at).type) for at in range(kind.num_fields))
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_string(kind)
        or pa.types.is_boolean(kind)
    )


def with_texts(kind: pa.DataType) -> pa.DataType:
    """Return a type with text for times, which JSON does not have."""
    if is_list(kind):
        return pa.list_(with_texts(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(with_texts(field.type)) for field in kind])
    return pa.string() if pa.types.is_temporal(kind) else kind


def is_beyond(column: pa.ChunkedArray | pa.Array, bound: float) -> bool:
    """Return whether a float in a column is as far from zero as a bound. O(n)."""
    kind = column.type
    if pa.types.is_float64(kind):
        span = pc.min_max(column).as_py()
        least, most = span["min"], span["max"]
        return least is not None and (least <= -bound or most >= bound)
    if is_list(kind):
        return has_numbers(kind) and is_beyond(pc.list_flatten(column), bound)
    if pa.types.is_struct(kind):
        return has_numbers(kind) and any(
            is_beyond(pc.struct_field(column, at), bound) for at in range(kind.num_fields)
        )
    return False


def joined_exactly(pieces: Sequence[Values], kind: pa.DataType) -> pa.Array | None:
    """Return columns as one array; ``None`` if no Arrow type holds all values exactly.

    Args:
        pieces: The columns, in order.
        kind: The settled type.
    """
    arrays = [piece for piece in pieces if not isinstance(piece, list)]
    if len(arrays) < len(pieces):
        return None
    types = {array.type for array in arrays if not pa.types.is_null(array.type)}
    if not types:
        return pa.nulls(sum(map(len, arrays)), with_texts(kind))
    if pa.types.is_float64(kind):
        types.add(kind)
    if len(types) == 1:
        (only,) = types
        return pa.concat_arrays([a if a.type == only else a.cast(only) for a in arrays])
    tables = [pa.table({"": array}) for array in arrays]
    try:
        joined = pa.concat_tables(tables, promote_options="permissive").column(0)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return None
    return joined.combine_chunks() if joined.num_chunks != 1 else joined.chunk(0)


def as_values(piece: Values) -> list[Any]:
    """Return a column as Python values."""
    return piece if isinstance(piece, list) else piece.to_pylist()


def taken(column: Values, rows: list[int]) -> Values:
    """Return the values of some rows."""
    if isinstance(column, list):
        return [column[row] for row in rows]
    return column.take(pa.array(rows, pa.int64()))


def is_list(kind: pa.DataType) -> bool:
    """Return whether a type is one of lists, as those of JSON are."""
    return bool(pa.types.is_list(kind))


def plain_floats(value: Any, kind: pa.DataType) -> Any:
    """Return a value in which fractions, which were parsed as decimals, are floats if they may."""
    if pa.types.is_decimal(kind):
        return value
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, list):
        inner = kind.value_type if is_list(kind) else pa.null()
        return [plain_floats(item, inner) for item in value]
    if isinstance(value, Mapping):
        types = {f.name: f.type for f in kind} if pa.types.is_struct(kind) else {}
        return {n: plain_floats(v, types.get(n, pa.null())) for n, v in value.items()}
    return value
