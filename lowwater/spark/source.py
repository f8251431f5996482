"""Spark DataFrames as sources of a pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, final

import pyarrow as pa

from lowwater.engine.records.batch import Records
from lowwater.errors import InvalidArgument, UnsupportedByRunner, describe
from lowwater.spark.types import arrow_schema


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SparkSource:
    """A streaming or static DataFrame as a source.

    Args:
        frame: The DataFrame.
    """

    frame: Any

    def __repr__(self) -> str:
        kind = "streaming" if self.frame.isStreaming else "static"
        return f"from_spark({kind} DataFrame: {', '.join(self.frame.columns)})"

    @property
    def schema(self) -> pa.Schema | None:
        return arrow_schema(self.frame.schema)

    def batches(self, size: int, keys: tuple[str, ...]) -> Iterator[Records]:
        if self.frame.isStreaming:
            raise UnsupportedByRunner(
                "the embedded runner cannot read a streaming DataFrame",
                where="from_spark",
                hint="Call to_spark(spark) instead of run",
            )
        return (Records.from_arrow(batch) for batch in self.frame.toArrow().to_batches(size))


def spark_source(frame: Any) -> SparkSource:
    """Wrap a DataFrame as a source.

    Raises:
        InvalidArgument: The value is not a Spark DataFrame.
    """
    from pyspark.sql import DataFrame

    if not isinstance(frame, DataFrame):
        raise InvalidArgument(
            f"{describe('df', frame)} is not a Spark DataFrame",
            hint="Give what spark.read or spark.readStream returns",
        )
    return SparkSource(frame)
