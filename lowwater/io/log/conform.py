"""Prepares records for a log: one Arrow batch with the log's schema, split by partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from lowwater.engine.records.batch import MOST_NESTED, is_too_deep
from lowwater.engine.records.columns import Column
from lowwater.engine.records.key_hash import hash_keys
from lowwater.errors import DataError, InvalidArgument, describe, nearest
from lowwater.io.valid_text import holds_text
from lowwater.time import Int64Array


def as_batch(records: Any, schema: pa.Schema | None) -> pa.RecordBatch:
    """Convert records to one Arrow batch.

    Columns may be in any order. A key missing from a mapping becomes null. Dictionary-encoded
    columns are decoded.

    Args:
        records: An Arrow table or batch, an object that exports itself as one, or mappings.
        schema: The log's schema; ``None`` if it has none yet.

    Raises:
        InvalidArgument: The records are none of these, or their columns cannot be stored.
        DataError: Their schema differs from the log's; the message says how.
    """
    if isinstance(records, pa.RecordBatch):
        batch = records
    elif isinstance(records, pa.Table):
        batch = _in_one(records)
    elif isinstance(records, Sequence) and not isinstance(records, (str, bytes)):
        batch = _of_mappings(records, schema)
    elif hasattr(records, "__arrow_c_stream__"):
        batch = _in_one(pa.table(records))
    else:
        raise InvalidArgument(
            f"{describe('records', type(records).__name__)} are no records",
            hint="Give a pyarrow Table or RecordBatch, or a list of mappings",
        )
    batch = _plain(batch)
    return batch if schema is None else _of_schema(batch, schema)


def difference(schema: pa.Schema, known: pa.Schema) -> str:
    """Describe how a schema differs from a known one; empty if they are equal.

    >>> old, new = pa.schema([("a", pa.int64())]), pa.schema([("a", pa.string())])
    >>> difference(new, old)
    "column 'a' is string, not int64"
    """
    found: list[str] = []
    for field in known:
        if field.name not in schema.names:
            found.append(f"column {field.name!r} is missing")
            continue
        own = schema.field(field.name)
        if own.type != field.type:
            found.append(f"column {field.name!r} is {own.type}, not {field.type}")
        elif own.nullable != field.nullable:
            may, must = "may be null", "may not be null"
            said = (may, must) if own.nullable else (must, may)
            found.append(f"column {field.name!r} {said[0]}, not: {said[1]}")
    found += [f"column {name!r} is new" for name in schema.names if name not in known.names]
    return "; ".join(found)


def _of_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    if batch.schema.equals(schema):
        return batch
    what = difference(batch.schema, schema)
    if what:
        raise DataError(
            f"the records have another schema than the log: {what}",
            hint="Cast them to the log's schema, or append them to another log",
        )
    return batch.select(schema.names)


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Normalise a batch for storage: named columns, no dictionaries, no pandas metadata."""
    names = batch.schema.names
    if not names:
        raise InvalidArgument("the records have no columns", hint="Give them at least one")
    if len(set(names)) < len(names):
        raise InvalidArgument("two columns have one name", hint="Rename one")
    fields: list[pa.Field] = []
    arrays: list[pa.Array] = []
    for field, array in zip(batch.schema, batch.columns, strict=True):
        decoded = array.dictionary_decode() if pa.types.is_dictionary(field.type) else array
        if _has_dictionary(decoded.type):
            raise InvalidArgument(
                f"column {field.name!r} has a dictionary inside: {field.type}",
                hint="Cast it to its plain type",
            )
        if is_too_deep(decoded.type):
            raise InvalidArgument(
                f"column {field.name!r} is nested more than {MOST_NESTED} deep",
                hint="Leave it out, or store its values as text",
            )
        if holds_text(decoded.type):
            _require_text(field.name, decoded)
        fields.append(pa.field(field.name, decoded.type, field.nullable, field.metadata))
        arrays.append(decoded)
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _require_text(name: str, array: pa.Array) -> None:
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        raise DataError(
            f"column {name!r} cannot be stored: {str(error).rstrip('.')}",
            hint="Decode its values again, or store them as binary",
        ) from None


def _has_dictionary(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return True
    if isinstance(kind, pa.BaseExtensionType):
        return _has_dictionary(kind.storage_type)
    return any(_has_dictionary(kind.field(at).type) for at in range(kind.num_fields))


def _in_one(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    if len(batches) == 1:
        return batches[0]
    if not batches:
        return pa.RecordBatch.from_pylist([], schema=table.schema)
    return pa.concat_batches(batches)


def _of_mappings(rows: Sequence[Any], schema: pa.Schema | None) -> pa.RecordBatch:
    names: dict[str, None] = {} if schema is None else dict.fromkeys(schema.names)
    for row in rows:
        if not isinstance(row, Mapping) or not all(isinstance(name, str) for name in row):
            raise InvalidArgument(
                f"{describe('record', row)} is no mapping of column names to values",
                hint="Give records such as {'user': 'ann', 'points': 5}",
            )
        if row.keys() <= names.keys():
            continue
        if schema is not None:
            new = next(name for name in row if name not in names)
            raise DataError(
                f"the records have another schema than the log: column {new!r} is new",
                hint=nearest(new, schema.names),
            )
        names.update(dict.fromkeys(row))
    if not rows and schema is not None:
        return pa.RecordBatch.from_pylist([], schema=schema)
    arrays = [
        _array(
            [row.get(name) for row in rows], name, None if schema is None else schema.field(name)
        )
        for name in names
    ]
    if schema is not None:
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
    return pa.RecordBatch.from_arrays(arrays, names=list(names))


def _array(values: list[Any], name: str, field: pa.Field | None) -> pa.Array:
    try:
        array = pa.array(values, type=None if field is None else field.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        wanted = "of one type" if field is None else str(field.type)
        raise DataError(
            f"the values of column {name!r} are not {wanted}: {str(error).rstrip('.')}",
            hint="Fix the values, or give an Arrow table",
        ) from None
    if field is None and pa.types.is_null(array.type):
        raise InvalidArgument(
            f"column {name!r} has nulls alone, so its type is not known",
            hint="Give the first records as an Arrow table, which says its types",
        )
    if field is not None and not field.nullable and array.null_count:
        raise DataError(f"column {name!r} has a null but may not", hint="Give it a value")
    return array


def partitions_of(batch: pa.RecordBatch, key: Sequence[str], partitions: int) -> Int64Array:
    """Return the partition of each record, int64: the hash of its key modulo their number. O(n).

    Nulls are one key, and so are the NaN. It is part of a log's layout:
    :mod:`lowwater.engine.records.key_hash` pins the hash, which places keys on every runner.

    Raises:
        InvalidArgument: There is no such column, or its type cannot be a key.
    """
    columns = [key_column(batch, name) for name in key]
    if not columns:
        raise InvalidArgument("key= names no column", hint='Write, say, key="user"')
    return (hash_keys(columns) % np.uint64(partitions)).astype(np.int64)


def key_column(batch: pa.RecordBatch, name: str) -> Column:
    """Return a column that keys are made of.

    Raises:
        InvalidArgument: There is no such column, or its type cannot be a key.
    """
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


def require_one_schema(schemas: Mapping[int, pa.Schema | None], where: str) -> None:
    """Check that all partitions that have records have the same schema.

    Raises:
        DataError: One has another.
    """
    known = [(number, schema) for number, schema in schemas.items() if schema is not None]
    for number, schema in known[1:]:
        what = difference(schema, known[0][1])
        if what:
            raise DataError(
                f"partition {number} has another schema than partition {known[0][0]}: {what}",
                where=where,
                hint="Put the partition back from a copy",
            )


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
