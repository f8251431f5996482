"""Stateless steps on Spark: as native columns where the results are equal, else in workers.

What is translated of expressions: columns, literals, comparisons, ``& | ~``, ``is_null``,
``is_in``, ``alias``, and ``+ - *`` of float64. Null is Kleene's in both. NaN is not alike: Spark
holds it equal to itself and above all numbers, the engine does as IEEE 754; so comparisons of
floats say what is meant. Everything else (integer arithmetic, which Spark stops at an overflow,
division, text, casts) runs in the Python workers, as embedded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as every user of Spark calls it

from lowwater.engine.records.batch import HIDDEN, Records
from lowwater.engine.records.stateless import (
    AddWhole,
    Filter,
    FlatMap,
    Map,
    MapBatches,
    Select,
    Step,
    WithColumns,
)
from lowwater.errors import UnsupportedByRunner
from lowwater.spark.shuffle import CORRUPT
from lowwater.spark.types import (
    arrow_schema,
    quoted,
)

_NAME_A_COLUMN = "Name a column: group(column), or key_by(column) made with with_columns"


def native_steps(
    frame: DataFrame, steps: tuple[Step, ...]
) -> tuple[DataFrame, pa.Schema, tuple[Step, ...]]:
    """Translate the first steps to Spark's columns, as far as Spark computes the same results.

    Returns:
        The DataFrame; the schema after all steps; the steps that the workers have to apply.

    Raises:
        UnsupportedByRunner: The columns that a step makes are not known in advance.
    """
    schema = arrow_schema(frame.schema)
    native = True
    left: list[Step] = []
    for step in steps:
        after = _after(step, schema)
        made = _native(frame, step, schema) if native else None
        if made is None:
            native = False  # later steps read its results, so the workers apply them too
            left.append(step)
        else:
            frame = made
        schema = after
    return frame, schema, tuple(left)


def _native(frame: DataFrame, step: Step, schema: pa.Schema) -> DataFrame | None:
    """Apply a step natively; ``None`` if Spark's columns would not give the same results."""
    types = {field.name: field.type for field in schema}
    if isinstance(step, Filter):
        if not step.vectorised:
            return None
        held = condition(step.condition, types)
        if held is not None and CORRUPT in frame.columns:
            held = (
                held | F.col(CORRUPT).isNotNull()
            )  # keep unreadable lines: they become dead letters
        return None if held is None else frame.filter(held)
    if not isinstance(step, (WithColumns, Select)):
        return None
    made = [translated(one, types) for one in step.expressions.unnamed]
    for name, one in step.expressions.named.items():
        found = translated(one, types)
        made.append(None if found is None else (name, found[1]))
    columns = [one for one in made if one is not None]
    if len(columns) < len(made) or len(dict(columns)) < len(columns):
        return None
    if _differ_by_case([*frame.columns, *dict(columns)]):
        return None  # Spark ignores case in names
    if isinstance(step, WithColumns):
        return frame.withColumns(dict(columns))
    given = dict(columns)
    kept = [n for n in frame.columns if (n in step.keep or n.startswith(HIDDEN)) and n not in given]
    return frame.select(
        *(quoted(name) for name in kept),
        *(column.alias(name) for name, column in columns),
    )


def _after(step: Step, schema: pa.Schema) -> pa.Schema:
    if isinstance(step, Filter):
        return schema
    if isinstance(step, (WithColumns, Select)):
        made = step.apply(_no_records(schema)).columns
        return pa.schema([(name, column.to_arrow().type) for name, column in made.items()])
    hint = "Use filter, with_columns or select, or do it on the DataFrame before from_spark"
    match step:
        case Map():
            called = "map"
        case FlatMap():
            called = "flat_map"
        case MapBatches():
            called = "map_batches"
        case AddWhole():
            called, hint = "group() of whole records", _NAME_A_COLUMN
        case _:
            called, hint = "key_by(function)", _NAME_A_COLUMN
    raise UnsupportedByRunner(
        f"{called} makes columns of which Spark knows nothing beforehand", where=called, hint=hint
    )


def _differ_by_case(names: list[str]) -> bool:
    return len({name.casefold() for name in names}) < len({*names})


def _no_records(schema: pa.Schema) -> Records:
    arrays = [pa.array([], type=field.type) for field in schema]
    return Records.from_arrow(pa.RecordBatch.from_arrays(arrays, names=schema.names))


Types: TypeAlias = Mapping[str, pa.DataType]

_COMPARE: dict[str, Callable[[Column, Column], Column]] = {
    "__eq__": lambda a, b: a == b,
    "__ne__": lambda a, b: a != b,
    "__lt__": lambda a, b: a < b,
    "__le__": lambda a, b: a <= b,
    "__gt__": lambda a, b: a > b,
    "__ge__": lambda a, b: a >= b,
}
_COMPUTE: dict[str, Callable[[Column, Column], Column]] = {
    "__add__": lambda a, b: a + b,
    "__radd__": lambda a, b: b + a,
    "__sub__": lambda a, b: a - b,
    "__rsub__": lambda a, b: b - a,
    "__mul__": lambda a, b: a * b,
    "__rmul__": lambda a, b: b * a,
}
_LOGIC: dict[str, Callable[[Column, Column], Column]] = {
    "__and__": lambda a, b: a & b,
    "__rand__": lambda a, b: a & b,
    "__or__": lambda a, b: a | b,
    "__ror__": lambda a, b: a | b,
}
_BOOLEAN, _INTEGER, _FLOAT, _TEXT = "boolean", "integer", "float", "text"
_INT64 = range(-(2**63), 2**63)


class _NotTranslated(Exception):
    """An expression, or a part of one, is not among those that mean the same in Spark."""


@final
@dataclass(frozen=True, slots=True)
class _Part:
    """A translated part: the column, what kind of values it has, its name."""

    column: Column
    kind: str
    name: str
    as_float: bool = False  # whether it is an integer, and a float64 holds it whatever it is


def translated(expression: Any, types: Types) -> tuple[str, Column] | None:
    """Return an expression's name and Spark's column; ``None`` if Spark would give another thing.

    Args:
        expression: What a user wrote: an expression, or the name of a column.
        types: The Arrow types of the columns it may read.
    """
    if isinstance(expression, str):
        return (expression, quoted(expression)) if expression in types else None
    try:
        found = _of_nodes(expression, types)
    except _NotTranslated:
        return None
    return found.name, found.column


def condition(expression: Any, types: Types) -> Column | None:
    """Return the column of a condition; ``None`` if it is not translated."""
    try:
        found = _of_nodes(expression, types)
    except _NotTranslated:
        return None
    return found.column if found.kind == _BOOLEAN else None


def _of_nodes(expression: Any, types: Types) -> _Part:
    # Nodes are narwhals' own business: should they look otherwise one day, nothing is translated.
    nodes = getattr(expression, "_nodes", None)
    if not isinstance(nodes, Sequence) or not nodes:
        raise _NotTranslated
    made = _first(nodes[0], types)
    for node in nodes[1:]:
        made = _next(made, node, types)
    return made


def _first(node: Any, types: Types) -> _Part:
    if node.name == "lit":
        if node.kwargs.get("dtype") is not None:
            raise _NotTranslated
        return _literal(node.kwargs.get("value"))
    names: Sequence[str] = node.kwargs.get("names", []) if node.name == "col" else []
    if len(names) == 1 and names[0] in types:
        return _Part(quoted(names[0]), _kind(types[names[0]]), names[0])
    raise _NotTranslated


def _next(made: _Part, node: Any, types: Types) -> _Part:
    if node.name == "alias":
        return _Part(made.column, made.kind, node.kwargs["name"])
    if node.name == "is_null":
        return _Part(made.column.isNull(), _BOOLEAN, made.name)
    if node.name == "__invert__" and made.kind == _BOOLEAN:
        return _Part(~made.column, _BOOLEAN, made.name)
    if node.name == "is_in":
        return _Part(_among(made, node.kwargs.get("other")), _BOOLEAN, made.name)
    if len(node.exprs) != 1:
        raise _NotTranslated
    other = _operand(node.exprs[0], types)
    kinds = {made.kind, other.kind}
    if node.name in _LOGIC and kinds == {_BOOLEAN}:
        return _Part(_LOGIC[node.name](made.column, other.column), _BOOLEAN, made.name)
    floats = all(part.kind == _FLOAT or part.as_float for part in (made, other))
    if node.name in _COMPUTE and floats and _FLOAT in kinds:
        both = (made.column.cast("double"), other.column.cast("double"))
        return _Part(_COMPUTE[node.name](*both), _FLOAT, made.name)
    if node.name in _COMPARE and "" not in kinds and (len(kinds) == 1 or floats):
        return _Part(_compared(node.name, made, other), _BOOLEAN, made.name)
    raise _NotTranslated


def _compared(name: str, one: _Part, other: _Part) -> Column:
    plain = _COMPARE[name](one.column, other.column)
    floats = [part.column for part in (one, other) if part.kind == _FLOAT]
    if not floats:
        return plain
    either = one.column.isNull() | other.column.isNull()
    strange = F.isnan(floats[0]) if len(floats) == 1 else F.isnan(floats[0]) | F.isnan(floats[1])
    return F.when(~either & strange, F.lit(name == "__ne__")).otherwise(plain)


def _among(made: _Part, values: Any) -> Column:
    if not isinstance(values, (list, tuple)) or not values or made.kind not in (_INTEGER, _TEXT):
        raise _NotTranslated
    literals = [_literal(value) for value in values]
    if any(literal.kind != made.kind for literal in literals):
        raise _NotTranslated
    return made.column.isin([literal.column for literal in literals])


def _operand(given: Any, types: Types) -> _Part:
    return _of_nodes(given, types) if hasattr(given, "_nodes") else _literal(given)


def _literal(value: Any) -> _Part:
    if isinstance(value, bool):
        return _Part(F.lit(value), _BOOLEAN, "literal")
    if isinstance(value, int) and value in _INT64:
        return _Part(F.lit(value).cast("long"), _INTEGER, "literal", abs(value) <= 2**53)
    if isinstance(value, float):
        return _Part(F.lit(value).cast("double"), _FLOAT, "literal")
    if isinstance(value, str):
        return _Part(F.lit(value), _TEXT, "literal")
    raise _NotTranslated


def _kind(kind: pa.DataType) -> str:
    """Return what kind of values a column has, of those that mean the same; else its type."""
    if pa.types.is_boolean(kind):
        return _BOOLEAN
    if pa.types.is_signed_integer(kind):
        return _INTEGER
    if pa.types.is_float64(kind):
        return _FLOAT
    return _TEXT if pa.types.is_string(kind) else ""
