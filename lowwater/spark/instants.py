"""Instants as user code sees them on Spark: in UTC, whatever the time zone of the session."""

from __future__ import annotations

from functools import cache

import pyarrow as pa


def in_utc(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch whose instants, nested ones too, are in UTC. Nothing is copied.

    Spark hands instants to Python in the time zone of its session, in which user code would see
    them: ``r["at"].hour`` would depend on a setting, or on the machine.
    """
    given = batch.schema.types
    kinds = [_in_utc(kind) for kind in given]
    if kinds == given:
        return batch
    fields = [field.with_type(kind) for field, kind in zip(batch.schema, kinds, strict=True)]
    return batch.cast(pa.schema(fields, batch.schema.metadata))


@cache
def _in_utc(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_in_utc(kind.value_type)))
    if pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_in_utc(kind.value_type)))
    if pa.types.is_map(kind):
        item = kind.item_field.with_type(_in_utc(kind.item_type))
        return pa.map_(kind.key_field.with_type(_in_utc(kind.key_type)), item)
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_in_utc(field.type)) for field in kind])
    return kind
