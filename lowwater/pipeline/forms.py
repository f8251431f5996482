"""The forms in which an output is read: batches of columns, items, Arrow tables and DataFrames."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, final

import pyarrow as pa
import pyarrow.compute as pc

from lowwater.engine.graph.graph import MAIN
from lowwater.engine.local.outcomes import Outcome
from lowwater.engine.records.columns import EXACT
from lowwater.engine.records.pane_table import (
    encoding_of,
    panes_to_arrow,
    readable_table,
    to_values,
)
from lowwater.engine.records.panes import Kind, Pane
from lowwater.engine.records.stage_output import Emitted, emitted_table
from lowwater.engine.records.steps import PANES_AT_ONCE, PaneBatch, key_values
from lowwater.engine.records.unchecked import draft_of, instants
from lowwater.errors import load_extra
from lowwater.time import Instant

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

ItemT = TypeVar("ItemT")
ItemT_co = TypeVar("ItemT_co", covariant=True)
BatchT = TypeVar("BatchT")


@final
@dataclass(frozen=True, slots=True)
class Element:
    """A record that a process emitted, or one of a stream.

    Args:
        key: The key it was emitted for: a plain value, or a tuple of several; ``None`` for the
            records of a stream, which have no key.
        value: The emitted value.
        timestamp: Its event time.
        output: The tag of the output it was emitted to.
        kind: ``insert``, or ``retract`` for the retraction of an earlier one.
    """

    key: Any
    value: Any
    timestamp: Instant
    output: str
    kind: Kind = "insert"


_ElementDraft = draft_of(Element)


class Form(Protocol[ItemT_co, BatchT]):
    """Reads an output as batches of columns, as items, or as Arrow."""

    def batch_of(self, outcome: Outcome) -> BatchT | None:
        """Return the batch of this output; ``None`` if it has none."""

    def items(self, batch: BatchT) -> Iterable[ItemT_co]:
        """Return a batch's items as Python values."""

    def to_arrow(self, batch: BatchT) -> Iterable[pa.RecordBatch]:
        """Return a batch as Arrow."""

    def table(self, batches: Sequence[BatchT]) -> pa.Table:
        """Return one or more batches as one table."""


@final
@dataclass(frozen=True, slots=True)
class PaneForm:
    """Reads the panes of a windowed stage; ``keys`` are the names of the key columns."""

    keys: tuple[str, ...]

    def batch_of(self, outcome: Outcome) -> PaneBatch | None:
        return outcome.panes

    def items(self, batch: PaneBatch) -> Iterable[Pane]:
        return batch

    def to_arrow(self, batch: PaneBatch) -> Iterable[pa.RecordBatch]:
        return (readable_table(panes_to_arrow(batch, self.keys)),)

    def table(self, batches: Sequence[PaneBatch]) -> pa.Table:
        found = [panes_to_arrow(batch, self.keys) for batch in batches]
        if all(batch.schema == found[0].schema for batch in found):
            return readable_table(pa.Table.from_batches(found))
        try:
            tables = [pa.Table.from_batches([batch]) for batch in found]
            return readable_table(pa.concat_tables(tables, promote_options="permissive"))
        except (pa.ArrowInvalid, pa.ArrowTypeError):  # types with nothing in common
            whole = panes_to_arrow(PaneBatch.concat(list(batches)), self.keys)
            return readable_table(pa.Table.from_batches([whole]))


@final
@dataclass(frozen=True, slots=True)
class ElementForm:
    """Reads what a process emitted to one output."""

    keys: tuple[str, ...]
    output: str = MAIN

    def batch_of(self, outcome: Outcome) -> Emitted | None:
        return outcome.emitted.get(self.output)

    def items(self, batch: Emitted) -> Iterable[Element]:
        if len(batch) <= PANES_AT_ONCE:
            return self._elements(batch)
        return chain.from_iterable(
            self._elements(batch.slice(start, start + PANES_AT_ONCE))
            for start in range(0, len(batch), PANES_AT_ONCE)
        )

    def _elements(self, batch: Emitted) -> Iterator[Element]:
        keys = key_values(batch.keys, len(batch))
        signs = [1] * len(batch) if batch.signs is None else batch.signs.tolist()
        output = self.output
        for key, value, time, sign in zip(
            keys, batch.to_list(), instants(batch.times), signs, strict=True
        ):
            element = _ElementDraft()
            element.key = key
            element.value = value
            element.timestamp = time
            element.output = output
            element.kind = "insert" if sign > 0 else "retract"
            element.__class__ = Element
            yield element

    def to_arrow(self, batch: Emitted) -> Iterable[pa.RecordBatch]:
        return iter(emitted_table([batch], self.keys).to_batches())

    def table(self, batches: Sequence[Emitted]) -> pa.Table:
        return emitted_table(batches, self.keys)


def as_pandas(table: pa.Table) -> pd.DataFrame:
    """Return a table of an output as a pandas DataFrame; msgpack becomes Python values.

    Integers beyond 2**53 beside nulls are of pandas' own type ``Int64`` or ``UInt64``, as its plain
    columns would be of floats and round them.

    Raises:
        InvalidArgument: pandas is not installed.
    """
    pandas: Any = load_extra("pandas", extra="pandas", purpose="to_pandas")
    frame: pd.DataFrame = table.to_pandas()
    for column in table.schema.names:
        values = table.column(column)
        if pa.types.is_integer(values.type) and values.null_count and _are_wide(values):
            kind = "UInt64" if pa.types.is_uint64(values.type) else "Int64"
            frame[column] = pandas.array(values.to_pylist(), dtype=kind)
    for name, values in _decoded(table).items():  # as objects: a float would round an integer
        frame[name] = pandas.Series(values, dtype=object, index=frame.index)
    return frame


def _are_wide(integers: pa.ChunkedArray) -> bool:
    span = pc.min_max(integers).as_py()
    return span["max"] is not None and (span["max"] > EXACT or span["min"] < -EXACT)


def as_polars(table: pa.Table) -> pl.DataFrame:
    """Return a table of an output as a polars DataFrame; msgpack becomes Python values.

    Raises:
        InvalidArgument: polars is not installed.
    """
    polars: Any = load_extra("polars", extra="polars", purpose="to_polars")
    frame: pl.DataFrame = polars.DataFrame(table)
    decoded = _decoded(table).items()
    return frame.with_columns(
        polars.Series(name, values, dtype=polars.Object) for name, values in decoded
    )


def _decoded(table: pa.Table) -> dict[str, list[Any]]:
    """Return the values of the columns that Arrow can only hold encoded."""
    return {
        field.name: to_values(field, column)
        for field, column in zip(table.schema, table.columns, strict=True)
        if encoding_of(field) is not None
    }
