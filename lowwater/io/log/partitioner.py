"""Which partition a key belongs to: the hash that places keys on every runner, modulo partitions.

It is part of a log's layout: see :mod:`lowwater.engine.records.key_hash`, which pins it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from lowwater.engine.records.columns import Column
from lowwater.engine.records.key_hash import hash_keys
from lowwater.errors import InvalidArgument, nearest
from lowwater.time import Int64Array


def partitions_of(batch: pa.RecordBatch, key: Sequence[str], partitions: int) -> Int64Array:
    """Return the partition of each record, int64: the hash of its key modulo their number. O(n).

    Nulls are one key, and so are the NaN.

    Raises:
        InvalidArgument: There is no such column, or its type cannot be a key.
    """
    columns = [_column(batch, name) for name in key]
    if not columns:
        raise InvalidArgument("key= names no column", hint='Write, say, key="user"')
    return (hash_keys(columns) % np.uint64(partitions)).astype(np.int64)


def _column(batch: pa.RecordBatch, name: str) -> Column:
    if name not in batch.schema.names:
        raise InvalidArgument(
            f"there is no column {name!r} for key=", hint=nearest(name, batch.schema.names)
        )
    column = batch.column(batch.schema.get_field_index(name))
    if pa.types.is_nested(column.type):
        raise InvalidArgument(
            f"the column {name!r} is {column.type}, which cannot be a key",
            hint="Use text, bytes, numbers, dates or times",
        )
    return Column.from_arrow(column)


def split_by_key(
    batch: pa.RecordBatch, key: Sequence[str], partitions: int
) -> dict[int, pa.RecordBatch]:
    """Return the records that go to each partition, in the order they came in.

    Raises:
        InvalidArgument: A key column is not there, or cannot be a key.
    """
    numbers = partitions_of(batch, key, partitions)
    order = np.argsort(numbers, kind="stable")
    found, starts = np.unique(numbers[order], return_index=True)
    if len(found) <= 1:
        return {int(number): batch for number in found}
    stops = [*starts.tolist()[1:], len(order)]
    rows = batch.take(pa.array(order))
    return {
        number: rows.slice(start, stop - start)
        for number, start, stop in zip(found.tolist(), starts.tolist(), stops, strict=True)
    }
