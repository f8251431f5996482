"""The Arrow type of an aggregate's results, known before anything has run."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from lowwater.engine.aggregates import AggregateSpec
from lowwater.engine.aggregates._base import strictest_needs
from lowwater.engine.records.columns import Column
from lowwater.engine.records.steps import Bundle
from lowwater.engine.window.aggregation import Aggregation
from lowwater.state.table import Table


def result_type(spec: AggregateSpec, columns: Mapping[str, pa.DataType]) -> pa.DataType | None:
    """Return the type of an aggregate's results, found by adding up one made-up record.

    Args:
        spec: The aggregate.
        columns: The types of the columns there are, by name.

    Returns:
        The type; ``None`` if only running can tell, as for what users combine themselves.
    """
    if not hasattr(spec, "make") or spec.name == "combine" or _is_combiner(spec):
        return None
    table = Table([])
    aggregation = Aggregation({spec.name: spec}, table)
    values = {}
    for column in strictest_needs({spec.name: spec}):
        if column not in columns or pa.types.is_null(columns[column]):
            return None
        values[column] = Column.from_arrow(pa.array([_sample(columns[column])], columns[column]))
    rows = table.allocate(1)
    zeros = np.zeros(1, dtype=np.int64)
    aggregation.add(Bundle(zeros, (), values), None, rows, zeros)
    found: pa.DataType = aggregation.results(rows)[spec.name].to_arrow().type
    return found


def _is_combiner(spec: Any) -> bool:
    return any(option == "combiner" for option, _ in getattr(spec, "options", ()))


def _sample(kind: pa.DataType) -> Any:
    """Return some value of a type."""
    if pa.types.is_dictionary(kind):
        return _sample(kind.value_type)
    if pa.types.is_boolean(kind):
        return False
    if pa.types.is_integer(kind):
        return 0
    if pa.types.is_floating(kind):
        return 0.0
    if pa.types.is_decimal(kind):
        return Decimal(0)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return ""
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return b""
    if pa.types.is_date(kind):
        return dt.date(1970, 1, 1)
    if pa.types.is_time(kind):
        return dt.time()
    if pa.types.is_duration(kind):
        return dt.timedelta()
    if pa.types.is_timestamp(kind):
        return dt.datetime(1970, 1, 1, tzinfo=None if kind.tz is None else dt.UTC)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        return []
    if pa.types.is_struct(kind):
        return {field.name: _sample(field.type) for field in kind}
    return None
