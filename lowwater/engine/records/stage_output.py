"""What a stage emits in one step: panes, records by output, and what it dropped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lowwater.engine.records.batch import HIDDEN, Records, columns_of, is_name
from lowwater.engine.records.columns import Column
from lowwater.engine.records.pane_table import (
    MICROS_UTC,
    SIGN,
    columns_to_table,
    instants_to_arrow,
    kinds_to_arrow,
    panes_to_table,
    records_of,
)
from lowwater.engine.records.steps import Bundle, LateBatch, MergedWindows, PaneBatch, TimerEvent
from lowwater.engine.records.unchecked import dicts
from lowwater.errors import DataError
from lowwater.time import Int64Array

MAIN = "main"
"""The output that every stage has."""

UNFIT = "__lw_unfit"
"""The output of a process whose records are dead letters; no process can declare it."""


@final
@dataclass(frozen=True, slots=True)
class Emitted:
    """The records of one output, in the order they were emitted; each part has length n.

    Args:
        times: Event times, int64 microseconds, shape (n,).
        keys: The key columns.
        values: The records as Python values, or the columns that a vectorised process emitted.
        start, end: The windows, int64; ``None`` for a process without windows.
        signs: +1 for an insert, -1 for a retraction (S-C1), int8, shape (n,); ``None`` where the
            stage retracts nothing.
        is_plain: Whether records with a column ``value`` alone are plain values.
        places: What had each emitted, int64, rising; of a per-record process only. See
            :class:`~lowwater.engine.process.cell.ScopeCursor`.
        parts: The part of the key of each, int64; ``None`` where keys are not in parts.
        is_odd: Whether some values, of those that are no columns, may be of any type; else each is
            of a type that can be held.
    """

    times: Int64Array
    keys: tuple[Column, ...]
    values: Sequence[Any] | Mapping[str, Column]
    start: Int64Array | None = None
    end: Int64Array | None = None
    signs: NDArray[np.int8] | None = None
    is_plain: bool = False
    places: Int64Array | None = None
    parts: Int64Array | None = None
    is_odd: bool = False

    def __len__(self) -> int:
        return len(self.times)

    def slice(self, start: int, stop: int) -> Emitted:
        """Return records ``start`` to ``stop`` (exclusive)."""

        def cut(array: NDArray[Any] | None) -> Any:
            return None if array is None else array[start:stop]

        return replace(
            self,
            times=cut(self.times),
            keys=tuple(key.slice(start, stop) for key in self.keys),
            values={name: column.slice(start, stop) for name, column in self.values.items()}
            if isinstance(self.values, Mapping)
            else self.values[start:stop],
            start=cut(self.start),
            end=cut(self.end),
            signs=cut(self.signs),
            places=cut(self.places),
            parts=cut(self.parts),
        )

    def columns(self) -> Mapping[str, Column]:
        """Return the records as columns by name; plain values are a column ``value``.

        Raises:
            DataError: A record has a field whose name cannot be a column's.
        """
        return self.values if isinstance(self.values, Mapping) else columns_of(self.values)

    def in_columns(self) -> Emitted:
        """Return the same with the records as columns, if all have the same fields."""
        values = self.values
        if isinstance(values, Mapping) or set(map(type, values)) != {dict}:
            return self
        names, *others = {tuple(each) for each in values}
        if not names or others or not all(map(is_name, names)):
            return self
        return replace(self, values=columns_of(values))

    def to_list(self) -> list[Any]:
        """Return the records as Python values: those of a vectorised process as dicts."""
        if not isinstance(self.values, Mapping):
            return list(self.values)
        names = [name for name in self.values if not name.startswith(HIDDEN)]
        columns = [self.values[name].to_list() for name in names]
        if self.is_plain and names == ["value"]:
            return columns[0]
        return dicts(names, columns, len(self))


Output: TypeAlias = PaneBatch | Emitted
"""What leaves a stage by one of its outputs: records, or panes, which have labels besides."""


class HasOutputs:
    """The panes, or the records by output, of what left a stage in ``outputs``."""

    __slots__ = ()

    outputs: Mapping[str, Output]

    @property
    def panes(self) -> PaneBatch | None:
        """The panes of a windowed stage; ``None`` for none."""
        panes = self.outputs.get(MAIN)
        return panes if isinstance(panes, PaneBatch) else None

    @property
    def emitted(self) -> dict[str, Emitted]:
        """The records of another stage, by output."""
        return {tag: part for tag, part in self.outputs.items() if isinstance(part, Emitted)}


def only(emitted: Output | None) -> dict[str, Output]:
    """Return what a stage with one output emitted, by output."""
    return {} if emitted is None else {MAIN: emitted}


@final
@dataclass(frozen=True, slots=True)
class StageOutput(HasOutputs):
    """What one step of an operator emitted and dropped.

    Args:
        outputs: What it emitted, by output: panes of a windowed stage, or records; only outputs
            with some.
        late: The elements that were dropped (S-O3, S-K11, S-K13); ``None`` for none.
        late_of: The bundle that these are elements of; ``None``: the one that was given.
        superseded: How many upserts a table ignored, because it knows newer ones (T-1).
        merges: The window merges, if the operator was asked to report them.
        replaced: The windows with panes that merged into windows of which this step emits the
            first pane.
        timers: What became of timers, in order, if the operator was asked to report it.
    """

    outputs: Mapping[str, Output] = field(default_factory=dict)
    late: LateBatch | None = None
    late_of: Bundle | None = None
    superseded: int = 0
    merges: MergedWindows | None = None
    replaced: tuple[MergedWindows, ...] = ()
    timers: Sequence[TimerEvent] = ()


NOTHING = StageOutput()


TIME = HIDDEN + "time"
"""The event time of a record that a process emitted."""

RECORDS = {b"lowwater.records": b"1"}
"""Metadata of a table of records that are not panes."""


def output_records(parts: Sequence[Output], keys: Sequence[str], *, signed: bool) -> Records:
    """Return what left a stage as records for the next one.

    Args:
        parts: The parts of one output, at least one.
        keys: The names of the key columns.
        signed: Whether the stage retracts.
    """
    panes = [part for part in parts if isinstance(part, PaneBatch)]
    if panes:
        return records_of(PaneBatch.concat(panes), keys, signed=signed)
    return emitted_records([part for part in parts if isinstance(part, Emitted)], keys)


def output_table(parts: Sequence[Output], keys: Sequence[str]) -> pa.Table:
    """Return what left a stage as a table: see ``panes_to_table`` and :func:`emitted_table`.

    Args:
        parts: The parts of one output, at least one.
        keys: The names of the key columns.
    """
    panes = [part for part in parts if isinstance(part, PaneBatch)]
    if panes:
        return panes_to_table(PaneBatch.concat(panes), keys)
    return emitted_table([part for part in parts if isinstance(part, Emitted)], keys)


def emitted_records(parts: Sequence[Emitted], keys: Sequence[str]) -> Records:
    """Return emitted records for the next stage: the keys, the fields emitted, and the signs.

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
    signs = [part.signs for part in parts if part.signs is not None]
    if signs:
        columns[SIGN] = Column(np.concatenate(signs).astype(np.int64))
    return Records(columns, len(times))


def emitted_table(parts: Sequence[Emitted], keys: Sequence[str]) -> pa.Table:
    """Return emitted records as a table: the keys, the fields, ``kind`` and ``timestamp``.

    A field that is called ``timestamp`` takes the place of the event time. There is a ``kind``,
    ``insert`` or ``retract``, where the stage retracts.

    Args:
        parts: What was emitted; without any, the table has no fields.
        keys: The names of the key columns.

    Raises:
        DataError: The stage retracts, and a field is called ``kind``.
    """
    if not parts:
        fields = [*(pa.field(key, pa.null()) for key in keys), pa.field("timestamp", MICROS_UTC)]
        return pa.Table.from_batches([], pa.schema(fields, RECORDS))
    records = emitted_records(parts, keys)
    if SIGN in records.columns and "kind" in records.columns:
        raise DataError(
            "a field is named 'kind', but where records are retracted this name says whether a "
            "record is an insert or a retract",
            hint="Rename the field",
        )
    columns = {n: c for n, c in records.columns.items() if not n.startswith(HIDDEN)}
    if SIGN in records.columns:
        columns["kind"] = Column.from_arrow(kinds_to_arrow(records.columns[SIGN].data))
    if "timestamp" not in columns:
        times = instants_to_arrow(records.columns[TIME].data)
        columns["timestamp"] = Column.from_arrow(times)
    return columns_to_table(columns).replace_schema_metadata(RECORDS)


def _columns(part: Emitted, keys: Sequence[str]) -> dict[str, Column]:
    return {**dict(zip(keys, part.keys, strict=True)), **part.columns()}
