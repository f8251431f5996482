"""Panes as Arrow tables and as the input records of downstream stages: one row per pane."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lowwater.engine.records.batch import HIDDEN, Records
from lowwater.engine.records.columns import Column
from lowwater.engine.records.python_values import FIRST_DATETIME, LAST_DATETIME
from lowwater.engine.records.steps import INSERT, KINDS, TIMINGS, PaneBatch
from lowwater.time import Int64Array

MICROS_UTC = pa.timestamp("us", "UTC")
PANE_FIELDS = (
    pa.field("timing", pa.dictionary(pa.int8(), pa.string())),
    pa.field("index", pa.int64()),
    pa.field("on_time_index", pa.int64()),
    pa.field("is_first", pa.bool_()),
    pa.field("is_last", pa.bool_()),
    pa.field("kind", pa.dictionary(pa.int8(), pa.string())),
    pa.field("timestamp", MICROS_UTC),
    pa.field("emitted_at", MICROS_UTC),
    pa.field("watermark", MICROS_UTC),
)
RESERVED = frozenset({"window_start", "window_end", *(field.name for field in PANE_FIELDS)})

_NOT_FOR_ARROW = (
    pa.ArrowInvalid,
    pa.ArrowTypeError,
    pa.ArrowNotImplementedError,
    OverflowError,
    TypeError,
    ValueError,
)


def panes_to_arrow(panes: PaneBatch, keys: Sequence[str]) -> pa.RecordBatch:
    """Convert panes to an Arrow batch.

    Its columns are the keys, ``window_start``, ``window_end``, the aggregates, and then the other
    fields of a pane (S-P1). Instants become UTC timestamps, clipped to the years 1 to 9999.

    Args:
        panes: The panes.
        keys: The names of the key columns.
    """
    columns: dict[str, pa.Array] = {
        name: column_to_arrow(column) for name, column in zip(keys, panes.keys, strict=True)
    }
    columns["window_start"] = instants_to_arrow(panes.start)
    columns["window_end"] = instants_to_arrow(panes.end)
    for name, column in panes.values.items():
        columns[name] = column_to_arrow(column)
    columns["timing"] = _coded(panes.timing, TIMINGS)
    columns["index"] = pa.array(panes.index)
    columns["on_time_index"] = pa.array(panes.on_time_index)
    columns["is_first"] = pa.array(panes.is_first)
    columns["is_last"] = pa.array(panes.is_last)
    columns["kind"] = _coded(panes.kind, KINDS)
    columns["timestamp"] = instants_to_arrow(panes.timestamp)
    columns["emitted_at"] = instants_to_arrow(panes.emitted_at)
    columns["watermark"] = instants_to_arrow(panes.watermark)
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def empty_panes(keys: Sequence[tuple[str, pa.DataType]], values: Sequence[str]) -> pa.Table:
    """Return an empty table with the columns of :func:`panes_to_arrow`."""
    fields = [pa.field(name, kind) for name, kind in keys]
    fields += [pa.field("window_start", MICROS_UTC), pa.field("window_end", MICROS_UTC)]
    fields += [pa.field(name, pa.null()) for name in values]
    return pa.schema([*fields, *PANE_FIELDS]).empty_table()


def instants_to_arrow(instants: Int64Array) -> pa.Array:
    """Convert int64 microseconds to UTC timestamps, clipped to the years 1 to 9999."""
    if instants.size and (
        int(instants.max()) > LAST_DATETIME or int(instants.min()) < FIRST_DATETIME
    ):
        instants = np.clip(instants, FIRST_DATETIME, LAST_DATETIME)
    return pa.array(instants).view(MICROS_UTC)


def _coded(codes: NDArray[np.uint8], names: Sequence[str]) -> pa.Array:
    # Not a module constant: the first call of pa.array imports pandas if it is installed, and
    # `import lowwater` must not.
    return pa.DictionaryArray.from_arrays(pa.array(codes.view(np.int8)), pa.array(names))


def column_to_arrow(column: Column) -> pa.Array:
    """Convert a column to Arrow; values without an Arrow type become text."""
    try:
        return column.to_arrow()
    except _NOT_FOR_ARROW:
        return pa.array([_text(value) for value in column.to_list()], type=pa.string())


def _text(value: Any) -> str | None:
    """Return the text of a value that has no Arrow type, or none in common with the others."""
    return None if value is None else str(value).encode(errors="backslashreplace").decode()


SIGN = HIDDEN + "sign"
"""Hidden column: 1 for an insert, -1 for a retraction; only downstream of retracting stages."""

TIME = "timestamp"
"""The event time of a pane, as of a record (S-H1)."""

_CARRIED = ("timing", "index", "on_time_index", "is_first", "timestamp")


def records_of(panes: PaneBatch, keys: Sequence[str], *, signed: bool) -> Records:
    """Convert panes to records. O(columns): only labels are copied.

    A retraction must equal the record it retracts. The columns therefore leave out what differs
    between the two: ``is_last``, ``emitted_at`` and ``watermark``.

    Args:
        panes: The panes.
        keys: The names of the key columns.
        signed: Whether some may be retractions.
    """
    columns = dict(zip(keys, panes.keys, strict=True))
    columns["window_start"] = Column(panes.start, None, MICROS_UTC)
    columns["window_end"] = Column(panes.end, None, MICROS_UTC)
    columns.update(panes.values)
    names = pa.array(TIMINGS)
    columns["timing"] = Column.from_arrow(
        pa.DictionaryArray.from_arrays(pa.array(panes.timing.view(np.int8)), names)
    )
    columns["index"] = Column(panes.index)
    columns["on_time_index"] = Column(panes.on_time_index)
    columns["is_first"] = Column(panes.is_first)
    columns[TIME] = Column(panes.timestamp, None, MICROS_UTC)
    if signed:
        columns[SIGN] = Column(np.where(panes.kind == INSERT, 1, -1).astype(np.int64))
    return Records(columns, len(panes))


def records_schema(
    keys: Mapping[str, pa.DataType], values: Mapping[str, pa.DataType], *, signed: bool
) -> pa.Schema:
    """Return the Arrow schema of the records that :func:`records_of` makes.

    Args:
        keys: The types of the key columns, by name.
        values: The types of the aggregates, by name.
        signed: Whether some may be retractions.
    """
    fields = [pa.field(name, kind) for name, kind in keys.items()]
    fields += [pa.field("window_start", MICROS_UTC), pa.field("window_end", MICROS_UTC)]
    fields += [pa.field(name, kind) for name, kind in values.items()]
    fields += [field for field in PANE_FIELDS if field.name in _CARRIED]
    if signed:
        fields.append(pa.field(SIGN, pa.int64()))
    return pa.schema(fields)
