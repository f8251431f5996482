"""Panes as the records of the next stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from lowwater.engine.records.batch import HIDDEN, Records
from lowwater.engine.records.columns import Column
from lowwater.engine.records.pane_table import MICROS_UTC, PANE_FIELDS
from lowwater.engine.records.steps import INSERT, TIMINGS, PaneBatch

SIGN = HIDDEN + "sign"
"""1 for a record, -1 for one that takes an equal one back; only behind stages that retract."""

TIME = "timestamp"
"""The event time of a pane, as of a record (S-H1)."""

_CARRIED = ("timing", "index", "on_time_index", "is_first", "timestamp")


def records_of(panes: PaneBatch, keys: Sequence[str], *, signed: bool) -> Records:
    """Return panes as records. O(columns): nothing is copied but labels.

    A pane that is taken back has the columns it had when it was shown. What may differ (whether it
    was the last, the clock and the watermark then) is therefore not among them.

    Args:
        panes: The panes.
        keys: The names of the key columns.
        signed: Whether some may be taken back.
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
    """Return the columns of such records and their types.

    Args:
        keys: The types of the key columns, by name.
        values: The types of the aggregates, by name.
        signed: Whether some may be taken back.
    """
    fields = [pa.field(name, kind) for name, kind in keys.items()]
    fields += [pa.field("window_start", MICROS_UTC), pa.field("window_end", MICROS_UTC)]
    fields += [pa.field(name, kind) for name, kind in values.items()]
    fields += [field for field in PANE_FIELDS if field.name in _CARRIED]
    if signed:
        fields.append(pa.field(SIGN, pa.int64()))
    return pa.schema(fields)
