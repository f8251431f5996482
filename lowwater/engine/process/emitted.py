"""What a process emits as the records of the next stage, and as a table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from lowwater.engine.process import Emitted
from lowwater.engine.records.batch import HIDDEN, Records
from lowwater.engine.records.columns import Column
from lowwater.engine.records.pane_table import MICROS_UTC, instants_to_arrow
from lowwater.engine.records.tagged import columns_to_table

TIME = HIDDEN + "time"
"""The event time of a record that a process emitted."""

RECORDS = {b"lowwater.records": b"1"}
"""Metadata of a table of records that are not panes."""


def emitted_records(parts: Sequence[Emitted], keys: Sequence[str]) -> Records:
    """Return emitted records for the next stage: the keys, and the fields emitted.

    A field that is called as a key is takes its place.

    Args:
        parts: What was emitted, at least one part.
        keys: The names of the key columns.
    """
    tables = [_columns(part, keys) for part in parts]
    names = dict.fromkeys(name for table in tables for name in table)
    columns = {
        name: Column.concat(
            [
                table[name] if name in table else Column.of_objects([None] * len(part))
                for table, part in zip(tables, parts, strict=True)
            ]
        )
        for name in names
    }
    times = np.concatenate([part.times for part in parts])
    columns[TIME] = Column(times, None, MICROS_UTC)
    return Records(columns, len(times))


def emitted_table(parts: Sequence[Emitted], keys: Sequence[str]) -> pa.Table:
    """Return emitted records as a table: the keys, the fields, and ``timestamp``.

    A field that is called so takes the place of the event time.

    Args:
        parts: What was emitted; without any, the table has no fields.
        keys: The names of the key columns.
    """
    if not parts:
        fields = [*(pa.field(key, pa.null()) for key in keys), pa.field("timestamp", MICROS_UTC)]
        return pa.schema(fields, RECORDS).empty_table()
    records = emitted_records(parts, keys)
    columns = {n: c for n, c in records.columns.items() if n != TIME}
    if "timestamp" not in columns:
        times = instants_to_arrow(records.columns[TIME].data)
        columns["timestamp"] = Column.from_arrow(times)
    return columns_to_table(columns).replace_schema_metadata(RECORDS)


def _columns(part: Emitted, keys: Sequence[str]) -> dict[str, Column]:
    return {**dict(zip(keys, part.keys, strict=True)), **part.columns()}
