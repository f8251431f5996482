"""A pipeline's source as a Spark DataFrame."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from lowwater.engine.sources import Source
from lowwater.engine.spark.source import SparkSource
from lowwater.errors import UnsupportedByRunner

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BATCH_ROWS = 1 << 17


def frame_of_source(spark: SparkSession, source: Source) -> DataFrame:
    """Return the DataFrame that reads what a source reads.

    A source in memory is a static DataFrame; folders of files are streams.

    Raises:
        UnsupportedByRunner: Spark cannot read it.
    """
    if isinstance(source, SparkSource):
        return source.frame
    raise UnsupportedByRunner(
        f"{type(source).__name__} cannot be read by Spark",
        where="to_spark",
        mend="Read a folder of files, or begin with from_spark",
    )
