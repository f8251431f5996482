"""What leaves a run of a table: its net changes, for tables by primary key outside (T-4)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import pyarrow as pa

from lowwater.engine.join.changes import net_changes
from lowwater.engine.process.output import RECORDS, TIME, Emitted, emitted_records
from lowwater.engine.records.batch import Records
from lowwater.engine.records.columns import Column
from lowwater.engine.records.json_rows import json_text
from lowwater.engine.records.pane_table import (
    MICROS_UTC,
    columns_to_table,
    instants_to_arrow,
    kinds_to_arrow,
    records_of,
)
from lowwater.engine.records.stateless import Step, apply_steps
from lowwater.engine.records.steps import PaneBatch

KEY = b"lowwater.key"
"""Metadata of a table of net changes: the columns of the primary key, as a JSON list."""
ROW_KEY = "row_key"
"""The primary key outside where columns of the key may be null: the key as JSON text."""


@final
@dataclass(frozen=True, slots=True)
class View:
    """How a table leaves a run: which steps follow its stage, and its primary key.

    Args:
        key: The columns of the primary key.
        nullable: Whether they may hold nulls, as those of outer joins may.
        steps: The steps between the stage and the table.
        signed: Whether the stage retracts.
    """

    key: tuple[str, ...]
    nullable: bool
    steps: tuple[Step, ...]
    signed: bool = True

    def records(self, parts: Sequence[Emitted | PaneBatch], keys: Sequence[str]) -> Records:
        """Return what a stage emitted as changes of the table.

        Args:
            parts: What it emitted, at least one part.
            keys: The names of the stage's key columns.
        """
        panes = [part for part in parts if isinstance(part, PaneBatch)]
        emitted = [part for part in parts if isinstance(part, Emitted)]
        if panes:
            records = records_of(PaneBatch.concat(panes), keys, signed=self.signed)
        else:
            records = emitted_records(emitted, keys)
        return apply_steps(self.steps, records)[0]

    def rows(self, records: Records) -> pa.Table:
        """Return the rows that stand after changes, in order of their last change. O(n log n).

        Returns:
            The columns of the table, and ``timestamp``, the event time of a row.
        """
        net = net_changes(records, self.key)
        return columns_to_table(self._columns(records, net.after[net.after >= 0]))

    def changes(self, records: Records) -> pa.Table:
        """Return the net changes, at most one per key, in order. O(n log n).

        Returns:
            The key's columns first, then the others, then ``kind``: ``insert`` for a row that
            stands, ``retract`` for one that went. Where the key may be null, a column ``row_key``
            comes before all, and is the primary key. Metadata ``lowwater.key`` names the key.
        """
        net = net_changes(records, self.key)
        columns = self._columns(records, net.latest)
        signs = np.where(net.after >= 0, 1, -1)
        columns["kind"] = Column.from_arrow(kinds_to_arrow(signs))
        if self.nullable:
            columns = {ROW_KEY: _row_keys([columns[name] for name in self.key]), **columns}
        return columns_to_table(columns).replace_schema_metadata(self._metadata())

    def empty(self, schema: pa.Schema | None, names: Sequence[str]) -> pa.Table:
        """Return net changes without rows.

        Args:
            schema: The columns, if their types are known.
            names: The columns, if only their names are; those of the key at least.
        """
        known = dict.fromkeys([*self.key, *names], pa.null())
        if schema is not None:
            known = {n: schema.field(n).type for n in (*self.key, *names)}
        if self.nullable:
            known = {ROW_KEY: pa.string(), **known}
        known.setdefault("timestamp", MICROS_UTC)
        known["kind"] = pa.string()
        return pa.schema(list(known.items()), self._metadata()).empty_table()

    def _metadata(self) -> dict[bytes, bytes]:
        key = [ROW_KEY] if self.nullable else list(self.key)
        return {**RECORDS, KEY: json.dumps(key).encode()}

    def _columns(
        self, records: Records, places: np.ndarray[tuple[int], np.dtype[np.int64]]
    ) -> dict[str, Column]:
        names = dict.fromkeys((*self.key, *records.names))
        columns = {name: records.columns[name].take(places) for name in names}
        if "timestamp" not in columns and TIME in records.columns:
            times = instants_to_arrow(records.columns[TIME].data[places])
            columns["timestamp"] = Column.from_arrow(times)
        return columns


def key_of(table: pa.Table) -> tuple[str, ...] | None:
    """Return the primary key of a table of net changes; ``None`` if it is none.

    >>> key_of(pa.table({"id": [1]})) is None
    True
    """
    data = (table.schema.metadata or {}).get(KEY)
    return None if data is None else tuple(json.loads(data))


def _row_keys(columns: Sequence[Column]) -> Column:
    """Return keys as JSON text: equal for equal keys, also where integers have become floats."""
    rows = zip(*(column.to_list(exact=True) for column in columns), strict=True)
    return Column.of_objects([json_text([_plain(value) for value in row]) for row in rows])


def _plain(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value
