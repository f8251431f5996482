"""Maps between Arrow and Spark types, and names of columns that Spark takes for syntax."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as every user of Spark calls it
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructField, StructType

from lowwater.errors import InvalidArgument, UnsupportedByRunner, describe


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


def arrow_type(name: str, kind: str | pa.DataType) -> pa.DataType:
    """Return a type that the user has said for a column, as Spark or Arrow writes it.

    Raises:
        InvalidArgument: It is no type.
    """
    if isinstance(kind, pa.DataType):
        return kind
    from pyspark.errors import PySparkException
    from pyspark.sql.types import _parse_datatype_string

    try:
        return arrow_schema(StructType([StructField(name, _parse_datatype_string(kind))]))[0].type
    except PySparkException:
        raise InvalidArgument(
            f"{describe(f'types[{name!r}]', kind)} is not a type of Spark's",
            hint='Use, say, "double", "bigint" or "array<string>"',
        ) from None
