"""Checks text that arrives as Arrow arrays: nobody has looked at the bytes in a Parquet file."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from lowwater.engine.records.batch import Records
from lowwater.engine.records.panes import ErrorRecord
from lowwater.errors import DataError
from lowwater.io.csv_values import cast_rows
from lowwater.time import Int64Array


def checked_records(
    batch: pa.RecordBatch, origin: str | None = None, first_row: int | None = None
) -> Records:
    """Wrap a batch; a row with text that is not valid UTF-8 becomes a dead letter. O(bytes).

    Args:
        batch: The batch.
        origin: The file that it comes from, for messages.
        first_row: Row of the first element in ``origin``, from 0.

    Raises:
        DataError: Text inside lists or structs is not valid UTF-8, or a column cannot be used.
    """
    details: dict[int, str] = {}
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if not holds_text(field.type):
            continue
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            if pa.types.is_nested(field.type):
                raise DataError(
                    f"the column {field.name!r} is damaged: {str(error).rstrip('.')}",
                    where=origin,
                    hint="Write the data again, or leave the column out",
                ) from None
            for row in _invalid_rows(column).tolist():
                details.setdefault(row, f"{field.name!r} is not valid UTF-8")
    records = Records.from_arrow(batch, origin, first_row)
    if not details:
        return records
    bad = np.array(sorted(details), dtype=np.int64)
    letters = tuple(
        ErrorRecord(record, "wrong_type", details[row], records.place(row))
        for record, row in zip(records.rows(bad, exact=True), bad.tolist(), strict=True)
    )
    sound = np.setdiff1d(np.arange(records.length), bad)
    return replace(records.take(sound), unreadable=letters)


def holds_text(kind: pa.DataType) -> bool:
    """Return whether values of a type are text, or contain some."""
    if pa.types.is_dictionary(kind):
        return holds_text(kind.value_type)
    if pa.types.is_nested(kind):
        return any(holds_text(kind.field(at).type) for at in range(kind.num_fields))
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _invalid_rows(column: pa.Array) -> Int64Array:
    if pa.types.is_dictionary(column.type):
        _, values = cast_rows(_as_bytes(column.dictionary), column.type.value_type)
        indices = column.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        return np.flatnonzero(np.isin(indices, values))
    _, rows = cast_rows(_as_bytes(column), column.type)
    return rows


def _as_bytes(column: pa.Array) -> pa.Array:
    wide = pa.types.is_large_string(column.type)
    return column.cast(pa.large_binary() if wide else pa.binary())
