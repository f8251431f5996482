"""What the changes of a table come to: at most one per primary key (T-4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import pyarrow as pa

from lowwater.engine.records.batch import HIDDEN, SIDE, Records
from lowwater.engine.records.columns import Column
from lowwater.engine.records.json_rows import json_text
from lowwater.engine.records.pane_table import SIGN
from lowwater.engine.records.stage_output import TIME
from lowwater.engine.records.stepping import StepKind, Stepped
from lowwater.engine.records.value_hash import hash_values
from lowwater.errors import DataError, InvalidArgument
from lowwater.state.arrays import mixed, run_starts
from lowwater.time import Int64Array

_DELETED = "deleted"


@final
@dataclass(frozen=True, slots=True)
class NetChanges:
    """What changes come to, by key: the row that went, and the one that stands.

    Args:
        before: The place of the retracted row of each key, -1 for none, int64, shape (n,).
        after: The place of the inserted row of each key, -1 for none, int64, shape (n,). A key has
            at least one of both.
    """

    before: Int64Array
    after: Int64Array

    @property
    def latest(self) -> Int64Array:
        """The place of the row that stands, or that went if none does."""
        return np.where(self.after >= 0, self.after, self.before)


def net_changes(records: Records, key: Sequence[str]) -> NetChanges:
    """Return what signed records come to, in the order in which keys changed for the last time.

    A row that is inserted and retracted counts for nothing, whatever the order of the two: within a
    batch a join may insert what replaces a row before it retracts the row. Rows are equal if
    the hashes of their columns and times are, as in joins. O(n log n).

    Args:
        records: The changes; without signs, all are inserts.
        key: The columns of the primary key; they may hold nulls.
    """
    if not len(records):
        none = np.zeros(0, dtype=np.int64)
        return NetChanges(none, none)
    sign = records.columns.get(SIGN)
    signs = np.ones(len(records), dtype=np.int64) if sign is None else sign.data.astype(np.int64)
    keys = hash_values([records.columns[name] for name in key]).view(np.int64)
    rows = _row_hashes(records)
    order = np.lexsort((rows, keys))  # stable: by arrival among equal rows
    starts = np.flatnonzero(run_starts(keys[order], rows[order]))
    net = np.add.reduceat(signs[order], starts)
    last = order[np.append(starts[1:], len(order)) - 1]
    distinct, of = np.unique(keys[last], return_inverse=True)
    before, after = (np.full(len(distinct), -1, dtype=np.int64) for _ in range(2))
    np.maximum.at(before, of[net < 0], last[net < 0])
    np.maximum.at(after, of[net > 0], last[net > 0])
    changed = np.flatnonzero((before >= 0) | (after >= 0))
    changed = changed[np.argsort(np.maximum(before, after)[changed], kind="stable")]
    return NetChanges(before[changed], after[changed])


@final
@dataclass(frozen=True, slots=True)
class UpsertForm(StepKind):
    """Turns the changes of a table into upserts: one record per batch and changed key (T-4).

    A record is the row that stands, with ``deleted`` false; or the key of a row that went, with
    ``deleted`` true and null in the other columns.
    """

    key: tuple[str, ...]

    method: ClassVar[str] = "changes"
    vectorised: ClassVar[bool] = True
    removes_signs: ClassVar[bool] = True

    def text(self) -> str:
        return "changes(form='upsert')"

    def names_after(self, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if names is None:
            return None
        return (*(name for name in names if name != SIGN), _DELETED)

    def apply(self, records: Records) -> Stepped:
        """Apply the step. O(n log n).

        Raises:
            InvalidArgument: The table has a column ``deleted``.
        """
        if _DELETED in records.columns:
            raise InvalidArgument(
                f"the table has a column {_DELETED!r}, which changes as upserts have themselves",
                where='changes(form="upsert")',
                hint="Rename the column with with_columns, and leave it out with select",
            )
        net = net_changes(records, self.key)
        deleted = net.after < 0
        kept = (*self.key, *(name for name in records.columns if name.startswith(HIDDEN)))
        columns = {
            name: (taken if name in kept else _where(taken, ~deleted))
            for name, taken in _taken(records, net.latest).items()
            if name != SIGN
        }
        columns[_DELETED] = Column(deleted)
        columns = {name: column for name, column in columns.items() if not name.startswith(SIDE)}
        made = records.derived(columns, net.latest)
        return Stepped(made, net.latest, filtered=len(records) - len(made))


@final
@dataclass(frozen=True, slots=True)
class DebeziumForm(StepKind):
    """Turns the changes of a table into records of Debezium's form: one per batch and key (T-4).

    ``op`` is ``c`` for a new row, ``u`` for a changed one and ``d`` for one that went; ``before``
    and ``after`` are the rows as structs, or null; ``ts_ms`` is the event time in milliseconds
    since 1970.
    """

    key: tuple[str, ...]

    method: ClassVar[str] = "changes"
    vectorised: ClassVar[bool] = True
    removes_signs: ClassVar[bool] = True

    def text(self) -> str:
        return "changes(form='debezium')"

    def names_after(self, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if names is None:
            return None
        hidden = (name for name in names if name.startswith(HIDDEN) and name != SIGN)
        return (*hidden, "op", "before", "after", "ts_ms")

    def apply(self, records: Records) -> Stepped:
        """Apply the step. O(n log n)."""
        net = net_changes(records, self.key)
        codes = np.where(net.before < 0, 0, np.where(net.after < 0, 2, 1)).astype(np.int8)
        hidden = {
            name: column
            for name, column in _taken(records, net.latest).items()
            if name.startswith(HIDDEN) and name != SIGN and not name.startswith(SIDE)
        }
        op = pa.DictionaryArray.from_arrays(pa.array(codes), ["c", "u", "d"]).dictionary_decode()
        columns = {
            "op": Column.from_arrow(op),
            "before": _structs(records, net.before),
            "after": _structs(records, net.after),
            "ts_ms": Column(_times(records)[net.latest] // 1000),
        }
        made = records.derived({**columns, **hidden}, net.latest)
        return Stepped(made, net.latest, filtered=len(records) - len(made))


ChangesForm = UpsertForm | DebeziumForm


def _times(records: Records) -> Int64Array:
    """Return the event times: hidden ones, or those of panes."""
    times: Int64Array = records.columns[TIME if TIME in records.columns else "timestamp"].data
    return times


def _taken(records: Records, places: Int64Array) -> dict[str, Column]:
    return {name: column.take(places) for name, column in records.columns.items()}


def _where(column: Column, keep: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Column:
    """Return a column with nulls where a row is not kept."""
    if keep.all():
        return column
    valid = keep if column.valid is None else column.valid & keep
    return Column(column.data, valid, column.type)


def _structs(records: Records, places: Int64Array) -> Column:
    """Return rows as structs of the columns that users see; null where there is no row.

    They are mappings where a column has values that have no Arrow type in common.
    """
    none = places < 0
    taken = _taken(records, np.maximum(places, 0)) if len(records) else dict(records.columns)
    arrays, fields = [], []
    for name in records.names:
        try:
            array = taken[name].to_arrow()
        except (pa.ArrowException, TypeError, OverflowError):
            values = [taken[name].to_list(exact=True) for name in records.names]
            rows = [dict(zip(records.names, row, strict=True)) for row in zip(*values, strict=True)]
            absent = none.tolist()
            return Column.of_objects(
                [None if gone else row for row, gone in zip(rows, absent, strict=True)]
            )
        arrays.append(array)
        fields.append(pa.field(name, array.type))
    return Column.from_arrow(pa.StructArray.from_arrays(arrays, fields=fields, mask=pa.array(none)))


def _row_hashes(records: Records) -> Int64Array:
    """Return a hash of each row with its time, int64: a null is like a column that is not there."""
    total = np.zeros(len(records), dtype=np.uint64)
    for name, column in records.columns.items():
        if name.startswith(HIDDEN) and name != TIME:
            continue
        salt = hash_values([Column.of_objects([name])]).view(np.int64)[0]
        hashes = mixed([_hashes(column).view(np.int64), np.full(len(records), salt)])
        if column.valid is not None:
            hashes = np.where(column.valid, hashes, np.uint64(0))
        total += hashes
    return total.view(np.int64)


def _hashes(column: Column) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    try:
        return hash_values([column])
    except (InvalidArgument, DataError, TypeError):  # a mapping: only its text has a hash
        texts = [json_text(value) for value in column.to_list(exact=True)]
        return hash_values([Column.of_objects(texts)])
