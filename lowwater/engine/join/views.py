"""What leaves a run of a table: its net changes, for tables by primary key outside (T-4)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import pyarrow as pa

from lowwater.engine.join.changes import net_changes
from lowwater.engine.records.batch import HIDDEN, Records
from lowwater.engine.records.columns import Column
from lowwater.engine.records.json_rows import json_text
from lowwater.engine.records.pane_table import (
    MICROS_UTC,
    columns_to_table,
    instants_to_arrow,
    kinds_to_arrow,
    records_of,
)
from lowwater.engine.records.panes import ErrorRecord
from lowwater.engine.records.stage_output import RECORDS, TIME, Emitted, emitted_records
from lowwater.engine.records.stepping import Step, apply_steps
from lowwater.engine.records.steps import PaneBatch
from lowwater.time import Int64Array

KEY = b"lowwater.key"
"""Metadata of a table of net changes: the columns of the primary key, as a JSON list."""
ROW_KEY = "row_key"
"""The primary key outside where columns of the key may be null: the key as JSON text."""


@final
@dataclass(frozen=True, slots=True)
class View:
    """How a table leaves a run: which steps follow its stage, and its primary key.

    Args:
        key: The columns of the primary key; hidden ones only if it may hold nulls.
        nullable: Whether they may hold nulls, as those of outer joins may.
        steps: The steps between the stage and the table.
        signed: Whether the stage retracts.
    """

    key: tuple[str, ...]
    nullable: bool
    steps: tuple[Step, ...]
    signed: bool = True

    def records(
        self,
        parts: Sequence[Emitted | PaneBatch],
        keys: Sequence[str],
        set_aside: Callable[[Sequence[ErrorRecord]], None],
    ) -> Records:
        """Return what a stage emitted as changes of the table.

        Args:
            parts: What it emitted, at least one part.
            keys: The names of the stage's key columns.
            set_aside: Called with the rows for which a step fails: they do not reach the table.
        """
        panes = [part for part in parts if isinstance(part, PaneBatch)]
        emitted = [part for part in parts if isinstance(part, Emitted)]
        if panes:
            records = records_of(PaneBatch.concat(panes), keys, signed=self.signed)
        else:
            records = emitted_records(emitted, keys)
        stepped = apply_steps(self.steps, records)
        if stepped.rejected:
            set_aside(stepped.errors)
        return stepped.records

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
            columns = {ROW_KEY: self._row_keys(records, net.latest), **columns}
        return columns_to_table(columns).replace_schema_metadata(self._metadata())

    def empty(self, schema: pa.Schema | None, names: Sequence[str]) -> pa.Table:
        """Return net changes without rows.

        Args:
            schema: The columns, if their types are known.
            names: The columns, if only their names are; those of the key at least.
        """
        known = dict.fromkeys([*self._public_key, *names], pa.null())
        if schema is not None:
            known = {name: schema.field(name).type for name in known}
        if self.nullable:
            known = {ROW_KEY: pa.string(), **known}
        known.setdefault("timestamp", MICROS_UTC)
        known["kind"] = pa.string()
        return pa.Table.from_batches([], pa.schema(list(known.items()), self._metadata()))

    @property
    def _public_key(self) -> list[str]:
        return [name for name in self.key if not name.startswith(HIDDEN)]

    def _row_keys(self, records: Records, places: Int64Array) -> Column:
        """Return keys as JSON text: equal for equal keys, also where integers became floats."""
        public, hidden = (
            [records.columns[name].take(places).to_list(exact=True) for name in names]
            for names in (self._public_key, [n for n in self.key if n.startswith(HIDDEN)])
        )
        rows = zip(*public, strict=True)
        keys: list[list[object]] = [[_plain(value) for value in row] for row in rows]
        for at, sides in enumerate(zip(*hidden, strict=True)):  # of most rows all are false
            last = max(
                (place for place, side in enumerate(sides, 1) if side is not False), default=0
            )
            keys[at] += sides[:last]
        return Column.of_objects([json_text(key) for key in keys])

    def _metadata(self) -> dict[bytes, bytes]:
        key = [ROW_KEY] if self.nullable else list(self.key)
        return {**RECORDS, KEY: json.dumps(key).encode()}

    def _columns(self, records: Records, places: Int64Array) -> dict[str, Column]:
        names = dict.fromkeys((*self._public_key, *records.names))
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


def _plain(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value
