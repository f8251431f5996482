"""Whose state a checkpoint holds, looked up before a query starts.

The first micro-batch of a query would say it, too. But a restart that has nothing to read runs
none, and a pipeline that was changed would seem to be taken.
"""

from __future__ import annotations

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lowwater.errors import StateError
from lowwater.spark.chains import CELL, Adapter
from lowwater.spark.level import FACTS, require_same
from lowwater.spark.levels import Levels
from lowwater.spark.options import SparkOptions
from lowwater.spark.state_backends import GroupCell, StateBackend
from lowwater.state.codec import decode

_NEW = "STDS_COMMITTED_BATCH_UNAVAILABLE", "STDS_OFFSET_LOG_UNAVAILABLE"
_VALUES = "value.groupState.*"


def require_own(
    spark: SparkSession,
    levels: Levels,
    adapter: Adapter,
    backend: StateBackend,
    options: SparkOptions,
) -> None:
    """Raise if a checkpoint that is named has state of another pipeline, key groups or backend.

    One cell is read, in one small job. Of state in a store of its own the pipeline is not known.

    Args:
        spark: The session.
        levels: The pipeline.
        adapter: The operator of the levels.
        backend: The state backend.
        options: What names the checkpoint, of which there may be none yet.

    Raises:
        StateError: It has; or it cannot be read.
    """
    checkpoint = options.checkpoint
    if checkpoint is None:
        return
    reader = spark.read.format("statestore").option("path", str(checkpoint))
    values = _VALUES
    if adapter == "transformWithStateInPandas":
        reader, values = reader.option("stateVarName", CELL), "value.*"
    try:
        rows = reader.load().select(values).limit(1).collect()
    except PySparkException as error:
        if any(name in str(error) for name in _NEW):
            return
        raise StateError(
            f"the checkpoint cannot be read: {str(error).splitlines()[0]}",
            where=f"to_spark(checkpoint={str(checkpoint)!r})",
            hint="Leave checkpoint= out: the first micro-batch says whether it can be resumed",
        ) from error
    for row in rows:
        cell = GroupCell.from_row(tuple(row), key_groups=options.key_groups, backend=backend.name)
        kept = backend.keep(1, 0, cell.content)
        if kept.is_apart:
            return
        with kept.opened() as store:
            (facts,) = store.get([FACTS])
        if facts is not None:
            require_same(decode(facts)["pipeline"], levels.described)
