"""Stateless steps on Spark: as native columns where the results are equal, else in workers."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame
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
from lowwater.spark.spark_expressions import condition, translated
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
