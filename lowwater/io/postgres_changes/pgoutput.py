"""The messages of ``pgoutput`` (protocol version 1) as records, a column at a time.

The messages of a batch lie in one buffer. All rows of one layout are taken apart together: the
first column of every row, then the second, so that the work in Python is per column, not per value.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lowwater.engine.records.batch import Records
from lowwater.errors import DataError, InternalError
from lowwater.io.postgres_changes.table_definition import TableDefinition
from lowwater.kernels.positions import repeated
from lowwater.time import Int64Array

BEGIN, COMMIT, RELATION, INSERT, UPDATE, DELETE, TRUNCATE = b"BCRIUDT"
_OLD_KEY, _OLD_ROW, _NEW_ROW = b"KON"
_NULL, _UNCHANGED, _TEXT = b"nut"
_EPOCH_US = 946_684_800_000_000
"""2000-01-01, from which PostgreSQL counts, in microseconds since 1970."""
_UINT64 = struct.Struct(">Q")
_BEGIN = struct.Struct(">QqI")

Bytes = NDArray[np.uint8]


@final
@dataclass(frozen=True, slots=True)
class Relation:
    """A Relation message: the layout of the rows that follow.

    Args:
        id: The OID of the table.
        schema: The name of its schema.
        name: Its name.
        columns: Pairs of a column's name and the OID of its type.
    """

    id: int
    schema: str
    name: str
    columns: tuple[tuple[str, int], ...]


def relation_of(message: bytes) -> Relation:
    """Return what a Relation message says."""
    (number,) = struct.unpack_from(">I", message, 1)
    schema, at = _text_at(message, 5)
    name, at = _text_at(message, at)
    (count,) = struct.unpack_from(">H", message, at + 1)
    at += 3
    columns = []
    for _ in range(count):
        column, at = _text_at(message, at + 1)
        type_id, _ = struct.unpack_from(">Ii", message, at)
        at += 8
        columns.append((column, type_id))
    return Relation(number, schema or "pg_catalog", name, tuple(columns))


def _text_at(message: bytes, at: int) -> tuple[str, int]:
    end = message.index(b"\0", at)
    return message[at:end].decode(), end + 1


def commit_end(message: bytes) -> int:
    """Return the position after a transaction, from its Commit message."""
    return int(_UINT64.unpack_from(message, 10)[0])


def begin_at(message: bytes) -> int:
    """Return where a transaction's commit begins, from its Begin message."""
    return int(_UINT64.unpack_from(message, 1)[0])


def truncates(message: bytes, relation: bytes) -> bool:
    """Return whether a Truncate message is about a table, given by the four bytes of its OID."""
    return any(message[at : at + 4] == relation for at in range(6, len(message), 4))


@final
@dataclass(frozen=True, slots=True)
class _Values:
    """One column of some rows: what each value is, and where its text lies."""

    kinds: Bytes
    starts: Int64Array
    lengths: Int64Array

    def fill(self, where: NDArray[np.bool_], others: _Values) -> None:
        """Replace some values by those of another column."""
        self.kinds[where] = others.kinds[where]
        self.starts[where] = others.starts[where]
        self.lengths[where] = others.lengths[where]


@final
class ChangeDecoder:
    """Turns messages into records.

    Args:
        table: The table whose changes are wanted; those of others are left out.
        keep_truncates: Whether a truncate is a record, not an error.

    Attributes:
        nothing: No records, with their columns.
    """

    def __init__(self, table: TableDefinition, *, keep_truncates: bool) -> None:
        self.nothing = Records.from_arrow(empty_batch(table.arrow_schema), table.shown)
        self._table = table
        self._keep_truncates = keep_truncates
        self._relation: Relation | None = None

    def records(self, messages: Sequence[bytes]) -> Records:
        """Return the changes as records, in order. O(bytes).

        Args:
            messages: Transactions, or a part of one that begins with its Begin message; they
                follow those of the last call.

        Raises:
            DataError: The table's columns have changed, a value is missing or does not fit its
                type here, or the table was truncated.
        """
        data = np.frombuffer(b"".join([*messages, bytes(8)]), np.uint8)
        lengths = np.fromiter(map(len, messages), np.int64, len(messages))
        starts = np.cumsum(lengths) - lengths
        kinds = data[starts]
        is_row = (kinds == INSERT) | (kinds == UPDATE) | (kinds == DELETE)
        ids = np.zeros(len(kinds), np.int64)
        ids[is_row] = _uint32(data, starts[is_row] + 1)
        transactions = np.cumsum(kinds == BEGIN) - 1
        opened = np.flatnonzero(kinds == BEGIN).tolist()
        begins = [_BEGIN.unpack_from(messages[at], 1) for at in opened]
        made: list[pa.RecordBatch] = []
        for first, last, relation in self._layouts(messages, kinds):
            wanted = is_row & (ids == relation.id)
            for at in np.flatnonzero(kinds == TRUNCATE).tolist():
                wanted[at] = truncates(messages[at], relation.id.to_bytes(4))
            wanted[:first] = wanted[last:] = False
            rows = np.flatnonzero(wanted)
            if rows.size:
                of = [begins[at] for at in transactions[rows].tolist()]
                made.append(self._batch(data, starts[rows], kinds[rows], of, relation))
        schema = self._table.arrow_schema
        table = pa.Table.from_batches(made, schema).combine_chunks()
        whole = table.to_batches()[0] if table.num_rows else empty_batch(schema)
        lsns = whole.column("lsn").to_numpy()

        def place_of(row: int) -> str:
            return f"{self._table.shown}, {lsn_text(int(lsns[row]))}"

        records = Records.from_arrow(whole, self._table.shown)
        return replace(records, row_numbers=np.arange(len(lsns)), place_of=place_of)

    def _layouts(self, messages: Sequence[bytes], kinds: Bytes) -> list[tuple[int, int, Relation]]:
        """Return from where to where the table's rows have which layout."""
        found: list[tuple[int, int, Relation]] = []
        first = 0
        for at in np.flatnonzero(kinds == RELATION).tolist():
            relation = relation_of(messages[at])
            is_of = self._table.is_of(relation.id, relation.schema, relation.name)
            if not is_of or relation == self._relation:
                continue
            if self._relation is not None:
                found.append((first, at, self._relation))
            first, self._relation = at, relation
        if self._relation is not None:
            found.append((first, len(messages), self._relation))
        return found

    def _batch(
        self,
        data: Bytes,
        starts: Int64Array,
        kinds: Bytes,
        begins: Sequence[tuple[int, int, int]],
        relation: Relation,
    ) -> pa.RecordBatch:
        """Return records for messages of one layout."""
        is_row = kinds != TRUNCATE
        if not self._keep_truncates and not is_row.all():
            raise self._truncated(begins[int(np.argmin(is_row))][0])
        places, count = self._places(relation), len(relation.columns)
        tags = np.where(is_row, data[starts + 5], 0)
        old = np.flatnonzero((tags == _OLD_KEY) | (tags == _OLD_ROW))
        was, ends = _tuples(data, starts[old] + 6, count)
        after = np.array(starts + 5)
        after[old] = ends
        new = np.flatnonzero(is_row & (kinds != DELETE))
        if (data[after[new]] != _NEW_ROW).any():
            raise InternalError("a message of the replication slot has no new row")
        now, _ = _tuples(data, after[new] + 1, count)
        whole = tags[old] == _OLD_ROW
        befores, afters = [], []
        for column, place in zip(self._table.columns, places, strict=True):
            before = _spread(was[place], old, len(starts))
            present = _spread(now[place], new, len(starts))
            lacking = present.kinds == _UNCHANGED
            if lacking.any():
                known = np.zeros(len(starts), np.bool_)
                known[old[whole]] = True
                if (lacking & ~known).any():
                    lsn = begins[int(np.argmax(lacking & ~known))][0]
                    raise self._left_out(column.name, lsn)
                present.fill(lacking, before)
            befores.append(_texts(data, before))
            afters.append(_texts(data, present))
        codes = np.searchsorted(_KINDS, kinds)
        committed = np.array([at for _, at, _ in begins], np.int64) + _EPOCH_US
        return pa.RecordBatch.from_arrays(
            [
                pa.array(_CODES).take(pa.array(codes)),
                self._table.rows(befores, _absent(old, len(starts))),
                self._table.rows(afters, _absent(new, len(starts))),
                pa.array([lsn for lsn, _, _ in begins], pa.int64()),
                pa.array([xid for _, _, xid in begins], pa.int64()),
                pa.array(committed, pa.int64()).cast(pa.timestamp("us", "UTC")),
            ],
            schema=self._table.arrow_schema,
        )

    def _places(self, relation: Relation) -> list[int]:
        """Return where the columns that are read are in a layout.

        Raises:
            DataError: One is not there, has another type, or there are more.
        """
        found = {name: (at, kind) for at, (name, kind) in enumerate(relation.columns)}
        known = {column.name: column.type_id for column in self._table.columns}
        changes = [f"{name!r} is gone" for name in known if name not in found]
        changes += [
            f"{name!r} has another type"
            for name, type_id in known.items()
            if name in found and found[name][1] != type_id
        ]
        if not self._table.any_columns:
            changes += [f"{name!r} is new" for name in found if name not in known]
        if changes:
            raise DataError(
                f"the columns of {self._table.shown} have changed: {', '.join(changes)}",
                where=self._table.shown,
                hint="Begin with a state directory and a slot of their own, so that the table is "
                "read with its new columns; or name the columns to read with columns=, so that "
                "others may come and go. One that the publication stops or begins to publish, as "
                "a generated column, counts as gone or new",
            )
        return [found[name][0] for name in known]

    def _truncated(self, lsn: int) -> DataError:
        return DataError(
            f"{self._table.shown} was truncated at {lsn_text(lsn)}, and a truncate does not say "
            "which rows went",
            where=self._table.shown,
            hint="Begin with a state directory and a slot of their own, and empty tables with "
            'DELETE in future; or use truncate="record" to get a record with op "t"',
        )

    def _left_out(self, column: str, lsn: int) -> DataError:
        return DataError(
            f"an update at {lsn_text(lsn)} does not say what the column {column!r} holds: a large "
            "value that does not change is left out",
            where=self._table.shown,
            hint=f"ALTER TABLE {self._table.shown} REPLICA IDENTITY FULL, and begin with a state "
            "directory and a slot of their own; or leave the column out with columns=",
        )


def empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch without rows."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, one.type) for one in schema], schema=schema)


def lsn_text(lsn: int) -> str:
    """Return a position in the write-ahead log as PostgreSQL writes it.

    >>> lsn_text(24_211_496)
    '0/1717028'
    """
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_of(text: str) -> int:
    """Return a position in the write-ahead log from PostgreSQL's text.

    >>> lsn_of("0/1717028")
    24211496
    """
    high, low = text.split("/")
    return int(high, 16) << 32 | int(low, 16)


_KINDS = np.array(sorted([INSERT, UPDATE, DELETE, TRUNCATE]), np.uint8)
_CODES = [{INSERT: "c", UPDATE: "u", DELETE: "d", TRUNCATE: "t"}[kind] for kind in _KINDS.tolist()]


def _uint32(data: Bytes, at: Int64Array) -> Int64Array:
    """Return the big-endian numbers at some places."""
    found = np.zeros(len(at), np.int64)
    for nth in range(4):
        found = found << 8 | data[at + nth]
    return found


def _tuples(data: Bytes, at: Int64Array, count: int) -> tuple[list[_Values], Int64Array]:
    """Parse rows of one layout; return their columns, and where each row ends."""
    counts = data[at].astype(np.int64) << 8 | data[at + 1]
    if (counts != count).any():
        raise InternalError(f"a row in the replication slot has not {count} columns")
    at = at + 2
    columns = []
    for _ in range(count):
        kinds = data[at]
        is_text = kinds == _TEXT
        if not (is_text | (kinds == _NULL) | (kinds == _UNCHANGED)).all():
            raise InternalError("a row in the replication slot has a value of unknown form")
        lengths = np.zeros(len(at), np.int64)
        lengths[is_text] = _uint32(data, at[is_text] + 1)
        columns.append(_Values(kinds, at + 5, lengths))
        at = at + 1 + np.where(is_text, 4 + lengths, 0)
    return columns, at


def _spread(values: _Values, rows: Int64Array, length: int) -> _Values:
    """Return the values at their rows among so many; nulls elsewhere."""
    kinds = np.full(length, _NULL, np.uint8)
    starts, lengths = np.zeros(length, np.int64), np.zeros(length, np.int64)
    kinds[rows], starts[rows], lengths[rows] = values.kinds, values.starts, values.lengths
    return _Values(kinds, starts, lengths)


def _texts(data: Bytes, values: _Values) -> pa.Array:
    """Return the text of values as one array."""
    is_text = values.kinds == _TEXT
    ends = np.cumsum(values.lengths)
    offsets = np.concatenate(([0], ends))
    total = int(offsets[-1])
    shifts = repeated(values.starts - offsets[:-1], values.lengths)
    text = data[shifts + np.arange(total)]
    validity = np.packbits(is_text, bitorder="little")
    return pa.Array.from_buffers(
        pa.large_binary(),
        len(offsets) - 1,
        [pa.py_buffer(one.tobytes()) for one in (validity, offsets, text)],
    )


def _absent(rows: Int64Array, length: int) -> pa.Array:
    """Return a mask that is true where no row is."""
    mask = np.ones(length, np.bool_)
    mask[rows] = False
    return pa.array(mask)
