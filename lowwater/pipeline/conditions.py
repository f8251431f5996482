"""Puts the conditions of aggregates (``where=``) in front of them, as hidden columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import pyarrow as pa

from lowwater.engine.aggregates import AggregateSpec
from lowwater.engine.aggregates._conditions import WHERE, with_condition_columns
from lowwater.engine.records.expressions import Expressions
from lowwater.engine.records.stateless import WithColumns
from lowwater.errors import InvalidArgument
from lowwater.pipeline.stages import StreamParts

StreamT = TypeVar("StreamT", bound=StreamParts)


def with_conditions(
    stream: StreamT, aggregates: Mapping[str, AggregateSpec]
) -> tuple[StreamT, dict[str, AggregateSpec]]:
    """Return a stream with the columns of conditions, and the aggregates, which read these.

    Raises:
        InvalidArgument: A condition reads a column that is missing, or its result is not bool.
    """
    ready, columns = with_condition_columns(aggregates)
    if not columns:
        return stream, ready
    stream = stream._with(WithColumns(Expressions((), columns), WHERE))
    for name, spec in ready.items():
        where = getattr(spec, "where", None)
        if where is None or stream._schema is None:
            continue
        kind = stream._schema.field(where.column).type
        if not (pa.types.is_boolean(kind) or pa.types.is_null(kind)):
            raise InvalidArgument(
                f"the condition of {name}={spec!r} has type {kind}, not bool",
                where=WHERE,
                hint='Compare something, as in where=lw.col("price") < 10',
            )
    return stream, ready
