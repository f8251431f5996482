"""Maps between Arrow and Spark types for a stage's input and output; collects its output rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as every user of Spark calls it
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructField, StructType

from lowwater.engine.aggregates import AggregateSpec
from lowwater.engine.records.pane_table import (
    EMISSION,
    MICROS_UTC,
    PANE_FIELDS,
    instants_to_arrow,
    known_instants,
    panes_to_arrow,
)
from lowwater.engine.records.steps import REASONS, UNWINDOWED, LateBatch, PaneBatch
from lowwater.engine.window.aggregation import result_type
from lowwater.errors import DataError, UnsupportedByRunner
from lowwater.spark.shuffle import ShuffledElements, record_text

SIDE_FIELDS = (
    pa.field("output", pa.string()),
    pa.field("reason", pa.string()),
    pa.field("detail", pa.string()),
    pa.field("record", pa.string()),
)
"""Columns that are added to those of panes when late records and dead letters are included."""


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema in which Spark passes a DataFrame to Python.

    Raises:
        UnsupportedByRunner: Spark cannot pass a column to Python.
    """
    fields: list[pa.Field] = []
    for field in schema.fields:
        try:
            fields += to_arrow_schema(StructType([field]), timezone="UTC")
        except Exception as error:
            raise UnsupportedByRunner(
                f"the column {field.name!r} is {field.dataType.simpleString()}, which Spark cannot "
                "hand to Python",
                hint="Drop or convert it on the DataFrame before from_spark",
            ) from error
    return pa.schema(fields)


def spark_schema(schema: pa.Schema) -> StructType:
    """Convert an Arrow schema to Spark's; instants are truncated to microseconds.

    Raises:
        UnsupportedByRunner: Spark has no equivalent of a type.
    """
    fields: list[StructField] = []
    for field in schema:
        kind = spark_like(field.type)
        try:
            # Naive times stay naive (timestamp_ntz): Spark would apply the session's time zone.
            made = from_arrow_schema(pa.schema([field.with_type(kind)]), prefer_timestamp_ntz=True)
        except Exception as error:
            raise UnsupportedByRunner(
                f"the column {field.name!r} is {field.type}, which Spark has nothing like",
                hint="Leave it out, or convert it before",
            ) from error
        fields += made.fields
    return StructType(fields)


def spark_like(kind: pa.DataType) -> pa.DataType:
    """Return the closest Arrow type that Spark accepts from Python."""
    if pa.types.is_dictionary(kind):
        return spark_like(kind.value_type)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_unsigned_integer(kind):
        return pa.int64()
    if pa.types.is_float16(kind):
        return pa.float32()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if pa.types.is_duration(kind):
        return pa.duration("us")
    if pa.types.is_date64(kind):
        return pa.date32()
    if pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(spark_like(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(spark_like(field.type)) for field in kind])
    return kind


def quoted(name: str) -> Column:
    """Return a column by its name, whatever characters are in it."""
    return F.col("`" + name.replace("`", "``") + "`")


def numbered(frame: DataFrame, columns: Mapping[str, Column]) -> DataFrame:
    """Rename the columns of a DataFrame to their numbers.

    For ``mapInArrow``, which fails on dots or backticks in column names.
    """
    return frame.select(*(column.alias(f"_{at}") for at, column in enumerate(columns.values())))


def pane_schema(
    keys: Mapping[str, pa.DataType], values: Mapping[str, pa.DataType], *, tagged: bool
) -> pa.Schema:
    """Return the schema of panes on Spark.

    Args:
        keys: The key columns.
        values: The aggregates.
        tagged: Whether late records and dead letters are included.
    """
    fields = [pa.field(name, spark_like(kind)) for name, kind in keys.items()]
    fields += [pa.field("window_start", MICROS_UTC), pa.field("window_end", MICROS_UTC)]
    fields += [pa.field(name, spark_like(kind)) for name, kind in values.items()]
    fields += [field.with_type(spark_like(field.type)) for field in PANE_FIELDS]
    return pa.schema([*SIDE_FIELDS[:1], *fields, *SIDE_FIELDS[1:]] if tagged else fields)


def result_types(
    aggregates: Mapping[str, AggregateSpec],
    columns: Mapping[str, pa.DataType],
    given: Mapping[str, pa.DataType],
) -> dict[str, pa.DataType]:
    """Return the type of each aggregate's results, found by aggregating one synthetic record.

    Args:
        aggregates: The aggregates by name.
        columns: The types of the columns that they read.
        given: The types that the user declared.

    Raises:
        UnsupportedByRunner: A type is neither known in advance nor declared.
    """
    known: dict[str, pa.DataType] = {}
    for name, spec in aggregates.items():
        kind = given.get(name) or result_type(spec, columns)
        if kind is None:
            raise _unknown(name)
        known[name] = kind
    return known


def fitted(array: pa.Array, field: pa.Field) -> pa.Array:
    """Cast a column to the type that was declared to Spark.

    Raises:
        DataError: A value is not of that type.
    """
    if array.type == field.type:
        return array
    try:
        if pa.types.is_string(field.type) and not _is_text(array.type):
            return array.cast(field.type)
        return array.cast(field.type, safe=not pa.types.is_temporal(field.type))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise DataError(
            f"the column {field.name!r} came out as {array.type}, no {field.type}: {error}",
            where="to_spark(types=)",
            hint=f"Say what type {field.name!r} is: to_spark(spark, types=...)",
        ) from error


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _unknown(name: str) -> UnsupportedByRunner:
    return UnsupportedByRunner(
        f"the type of {name!r} is not known before the aggregate has run, but Spark must know it",
        where="to_spark",
        hint=f'Say it: to_spark(spark, types={{"{name}": "double"}})',
    )


PANE, LATE, DEAD_LETTER = "pane", "late", "dead_letter"


@final
class OutputRows:
    """Collects rows of one schema.

    Args:
        schema: See :func:`~lowwater.spark.types.pane_schema`; if it has a column
            ``output``, late records and dead letters are rows too.
        keys: The names of the key columns.
    """

    def __init__(self, schema: pa.Schema, keys: tuple[str, ...]) -> None:
        self._schema = schema
        self._keys = keys
        self._tagged = schema.names[:1] == ["output"]
        self._parts: list[pa.Table] = []

    def table(self) -> pa.Table:
        """Return all rows, in the order of addition."""
        return pa.concat_tables(self._parts) if self._parts else self._schema.empty_table()

    def add_panes(self, panes: PaneBatch) -> None:
        """Add panes."""
        batch = panes_to_arrow(panes, self._keys)
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        # pandas counts nanoseconds, so toPandas fails on the year 9999, which stands for infinity.
        columns |= {name: known_instants(columns[name]) for name in EMISSION}
        self._add(PANE, columns, len(batch))

    def add_late(self, late: LateBatch, elements: ShuffledElements) -> None:
        """Add late elements, with the records that contain them."""
        if not self._tagged or elements.records is None:
            return
        bundle, rows = elements.bundle, late.element
        columns = {
            name: key.take(rows).to_arrow()
            for name, key in zip(self._keys, bundle.keys, strict=True)
        }
        windowed = late.reason != UNWINDOWED
        for name, instants in (("window_start", late.start), ("window_end", late.end)):
            made = instants_to_arrow(instants)
            columns[name] = pa.compute.if_else(pa.array(windowed), made, None)
        columns["timestamp"] = instants_to_arrow(bundle.times[rows])
        columns["watermark"] = known_instants(instants_to_arrow(np.full(len(rows), late.watermark)))
        columns["reason"] = pa.array([REASONS[code] for code in late.reason.tolist()])
        columns["record"] = pa.array([record_text(r) for r in elements.records.rows(rows)])
        self._add(LATE, columns, len(rows))

    def add_dead_letters(self, dead_letters: pa.Table) -> int:
        """Add dead letters; return their number."""
        if self._tagged:
            columns = {name: dead_letters.column(name) for name in dead_letters.column_names}
            self._add(DEAD_LETTER, columns, len(dead_letters))
        return len(dead_letters)

    def _add(self, output: str, columns: dict[str, pa.Array], length: int) -> None:
        if self._tagged:
            columns["output"] = pa.array([output] * length)
        arrays = []
        for field in self._schema:
            made = columns.get(field.name)
            if made is None:
                arrays.append(pa.nulls(length, field.type))
                continue
            arrays.append(fitted(made, field))
        self._parts.append(pa.Table.from_arrays(arrays, schema=self._schema))
