"""Takes the rows of several outputs apart, in ``foreachBatch``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as every user of Spark calls it

from lowwater.errors import InvalidArgument, nearest
from lowwater.spark.output_schema import OUTPUTS
from lowwater.spark.types import quoted


@contextmanager
def split(frame: DataFrame) -> Iterator[Mapping[str, DataFrame]]:
    """Return the rows of each output, by its name, with its own columns; computed once.

    The rows are kept in Spark's memory and disks until the block ends, so that writing several
    outputs does not run the micro-batch several times::

        def write(frame, epoch):
            with lowwater.spark.split(frame) as rows:
                rows["counts"].write.mode("append").parquet("counts")
                rows["top"].write.mode("append").parquet("top")

        made.writeStream.foreachBatch(write).start()

    Args:
        frame: What ``foreachBatch`` gives of a DataFrame that ``to_spark`` made of several outputs,
            or with ``outputs="all"``.

    Raises:
        InvalidArgument: The rows do not say which output they are of.
    """
    names = _names(frame)
    kept = frame.persist()
    try:
        yield _Parts(kept, names)
    finally:
        kept.unpersist()


class _Parts(dict[str, DataFrame]):
    def __init__(self, frame: DataFrame, names: list[str]) -> None:
        super().__init__({name: _only(frame, name) for name in names})

    def __missing__(self, name: str) -> DataFrame:
        raise InvalidArgument(f"there is no output {name!r}", hint=nearest(name, list(self)))


def _names(frame: DataFrame) -> list[str]:
    fields = frame.schema.fields
    if not fields or OUTPUTS not in fields[0].metadata:
        raise InvalidArgument(
            "the rows do not say which output they are of",
            where="split",
            hint='Give what foreachBatch gives of to_spark(spark, one, other), or of outputs="all"',
        )
    names: list[str] = fields[0].metadata[OUTPUTS]
    return names


def _only(frame: DataFrame, name: str) -> DataFrame:
    rest: list[Any] = frame.schema.fields[1:]
    own = [quoted(one.name) for one in rest if name in one.metadata.get(OUTPUTS, [name])]
    return frame.where(F.col(frame.columns[0]) == name).select(*own)
