"""Warns of event times that look like another unit, by the first row of a static DataFrame."""

from __future__ import annotations

from typing import Any

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql.types import IntegralType

from lowwater.engine.local.unit_check import warn_of_unit
from lowwater.spark.types import quoted

# A first row of these takes one task, which reads little. Others may compute everything for it.
_CHEAP = {"LocalRelation", "LogicalRDD", "LogicalRelation", "Project", "Range"}


def warn_of_first_time(frame: DataFrame, column: str, where: str) -> None:
    """Warn if the first event time looks like another unit; O(1) rows, in one small job.

    Nothing is read of a stream, over Spark Connect (which does not say how it would compute a
    row), or if a first row may cost much: after a filter, a join, a sort or an aggregation.

    Args:
        frame: The DataFrame, whose event times have no unit.
        column: The column of event times.
        where: The name of the source.
    """
    if not isinstance(frame.schema[column].dataType, IntegralType) or frame.isStreaming:
        return
    times = frame.select(quoted(column))
    made = getattr(times, "_jdf", None)
    if made is None or not _is_cheap(made.queryExecution().optimizedPlan()):
        return
    first = times.head()
    if first is not None and first[0]:  # 0 says nothing about the unit
        warn_of_unit(np.array([first[0]], dtype=np.int64), column, where)


def _is_cheap(plan: Any) -> bool:
    if plan.getClass().getSimpleName() not in _CHEAP:
        return False
    children = plan.children()
    return all(_is_cheap(children.apply(at)) for at in range(children.size()))
