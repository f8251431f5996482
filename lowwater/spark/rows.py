"""The output rows of a call: panes and, if requested, late records and dead letters."""

from __future__ import annotations

from typing import final

import numpy as np
import pyarrow as pa

from lowwater.engine.records.pane_table import instants_to_arrow, panes_to_arrow
from lowwater.engine.records.steps import REASONS, UNWINDOWED, LateBatch, PaneBatch
from lowwater.spark.shuffle import ShuffledElements, record_text
from lowwater.spark.types import fitted

PANE, LATE, DEAD_LETTER = "pane", "late", "dead_letter"


@final
class OutputRows:
    """Collects rows of one schema.

    Args:
        schema: See :func:`~lowwater.spark.types.pane_schema`; if it has a column
            ``output``, late records and dead letters are rows too.
        keys: The names of the key columns.
    """

    def __init__(self, schema: pa.Schema, keys: tuple[str, ...]) -> None:
        self._schema = schema
        self._keys = keys
        self._tagged = schema.names[:1] == ["output"]
        self._parts: list[pa.Table] = []

    def table(self) -> pa.Table:
        """Return all rows, in the order of addition."""
        return pa.concat_tables(self._parts) if self._parts else self._schema.empty_table()

    def add_panes(self, panes: PaneBatch) -> None:
        """Add panes."""
        batch = panes_to_arrow(panes, self._keys)
        self._add(PANE, dict(zip(batch.schema.names, batch.columns, strict=True)), len(batch))

    def add_late(self, late: LateBatch, elements: ShuffledElements) -> None:
        """Add late elements, with the records that contain them."""
        if not self._tagged or elements.records is None:
            return
        bundle, rows = elements.bundle, late.element
        columns = {
            name: key.take(rows).to_arrow()
            for name, key in zip(self._keys, bundle.keys, strict=True)
        }
        windowed = late.reason != UNWINDOWED
        for name, instants in (("window_start", late.start), ("window_end", late.end)):
            made = instants_to_arrow(instants)
            columns[name] = pa.compute.if_else(pa.array(windowed), made, None)
        columns["timestamp"] = instants_to_arrow(bundle.times[rows])
        columns["watermark"] = instants_to_arrow(np.full(len(rows), late.watermark))
        columns["reason"] = pa.array([REASONS[code] for code in late.reason.tolist()])
        columns["record"] = pa.array([record_text(r) for r in elements.records.rows(rows)])
        self._add(LATE, columns, len(rows))

    def add_dead_letters(self, dead_letters: pa.Table) -> int:
        """Add dead letters; return their number."""
        if self._tagged:
            columns = {name: dead_letters.column(name) for name in dead_letters.column_names}
            self._add(DEAD_LETTER, columns, len(dead_letters))
        return len(dead_letters)

    def _add(self, output: str, columns: dict[str, pa.Array], length: int) -> None:
        if self._tagged:
            columns["output"] = pa.array([output] * length)
        arrays = []
        for field in self._schema:
            made = columns.get(field.name)
            if made is None:
                arrays.append(pa.nulls(length, field.type))
                continue
            arrays.append(fitted(made, field))
        self._parts.append(pa.Table.from_arrays(arrays, schema=self._schema))
