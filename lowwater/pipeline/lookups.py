"""Builds the step of ``lookup``: reads a fixed table once, and checks it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lowwater.engine.graph.graph import is_signed
from lowwater.engine.keyed.operator import record_hashes
from lowwater.engine.records.columns import Column
from lowwater.engine.records.lookup import LOOKUP_HOWS, FixedTable, Lookup, name_taken
from lowwater.engine.records.stateless import require_names
from lowwater.engine.records.steps import Bundle
from lowwater.errors import InvalidArgument, describe, nearest
from lowwater.pipeline.stages import StreamParts, public_names

LookupOn: TypeAlias = str | Sequence[str] | Mapping[str, str]
"""The columns with the key: of both, or those of the records with those of the table."""

_WHERE = "lookup"


def lookup_step(
    stream: StreamParts, table: object, on: LookupOn, how: object, *, reload: object
) -> Lookup:
    """Return the step, with the table loaded.

    Args:
        stream: The records.
        table: A frame of any library that narwhals knows, or Arrow data.
        on: The columns with the key.
        how: What happens to records without a row.
        reload: Whether the content may be another one when a run resumes.

    Raises:
        InvalidArgument: An argument is wrong, the table lacks a column, or has a key twice.
    """
    if how not in LOOKUP_HOWS:
        raise InvalidArgument(
            f"{describe('how', how)} is not known",
            where="lookup(how=)",
            hint=nearest(str(how), LOOKUP_HOWS),
        )
    if not isinstance(reload, bool):
        raise InvalidArgument(
            f"{describe('reload', reload)} is neither True nor False",
            where="lookup(reload=)",
            hint="Use reload=True if the table may be another one when a run resumes",
        )
    if reload and any(map(is_signed, stream._flows)):
        raise InvalidArgument(
            "the records may be retracted, and with other content their retractions would not "
            "equal what was emitted",
            where="lookup(reload=)",
            hint="Leave reload=True out, or look up behind what retracts nothing",
        )
    pairs = _checked_on(on)
    arrow = _in_arrow(table)
    twice = next((name for name in arrow.column_names if arrow.column_names.count(name) > 1), None)
    if twice is not None:
        raise InvalidArgument(
            f"the table has two columns {twice!r}", where=_WHERE, hint="Rename one of them"
        )
    require_names(list(pairs.values()), arrow.column_names, "lookup(on=), in the table")
    for name in pairs.values():
        kind = arrow.schema.field(name).type
        if pa.types.is_nested(kind):
            raise InvalidArgument(
                f"the column {name!r} of the table is {kind}, which cannot be a key",
                where="lookup(on=)",
                hint="Use columns of numbers, text or times, several if need be",
            )
    names = [name for name in arrow.column_names if name not in pairs.values()]
    if not names:
        raise InvalidArgument(
            "the table has no columns beside the key",
            where=_WHERE,
            hint='To keep the records that have a row, add a column, and use how="inner"',
        )
    if stream._known is not None:
        public = public_names(stream._known)
        require_names(list(pairs), public, "lookup(on=)")
        taken = next((name for name in names if name in public), None)
        if taken is not None:
            raise name_taken(taken)
    digest = "" if reload else _digest(arrow)
    fixed = _fixed(arrow, tuple(pairs.values()), names, digest)
    return Lookup(tuple(pairs), fixed, how)


def _checked_on(on: LookupOn) -> dict[str, str]:
    """Return the columns of the records with those of the table."""
    if isinstance(on, Mapping):
        pairs = dict(on)
    else:
        listed = [on] if isinstance(on, str) else on
        if not isinstance(listed, Sequence) or not all(isinstance(one, str) for one in listed):
            raise _bad_on(on)
        pairs = {name: name for name in listed}
    every = [*pairs, *pairs.values()]
    if not pairs or not all(isinstance(name, str) and name for name in every):
        raise _bad_on(on)
    return pairs


def _bad_on(on: object) -> InvalidArgument:
    return InvalidArgument(
        f"{describe('on', on)} does not name columns",
        where="lookup(on=)",
        hint='Write on="user", on=["shop", "user"], or on={"user_id": "id"} where names differ',
    )


def _in_arrow(table: object) -> pa.Table:
    if isinstance(table, pa.RecordBatch):
        return pa.Table.from_batches([table])
    if isinstance(table, pa.Table):
        return table
    import narwhals as nw

    frame: Any = nw.from_native(table, pass_through=True)
    if isinstance(frame, nw.LazyFrame):
        frame = frame.collect()
    if isinstance(frame, nw.DataFrame):
        return pa.table(frame.to_arrow())
    if hasattr(table, "__arrow_c_stream__") and not isinstance(frame, nw.Series):
        with suppress(pa.ArrowInvalid, TypeError):  # a stream of something else
            return pa.table(table)
    raise InvalidArgument(
        f"{describe('table', table)} is not a table",
        where=_WHERE,
        hint="Give a fixed table of Arrow, pandas, polars or another library that narwhals knows; "
        "join a stream of changes with join or join_as_of",
    )


def _fixed(arrow: pa.Table, keys: tuple[str, ...], names: Sequence[str], digest: str) -> FixedTable:
    columns = tuple(_column(arrow, key) for key in keys)
    present = np.ones(arrow.num_rows, dtype=np.bool_)
    for column in columns:
        nulls = column.nulls()
        if nulls is not None:
            present &= ~nulls
        if pa.types.is_floating(column.type):
            present &= ~np.isnan(column.data)
    if not present.all():  # a null key is equal to nothing, so such a row is never found
        arrow = arrow.filter(pa.array(present))
        columns = tuple(_column(arrow, key) for key in keys)
    values = {name: _one_chunk(arrow.column(name)) for name in names}
    fixed = FixedTable(columns, values, digest)
    row = fixed.duplicate()
    if row is not None:
        key = {name: arrow.column(name)[row].as_py() for name in keys}
        raise InvalidArgument(
            f"the table has several rows for the key {key!r}",
            where=_WHERE,
            hint="Keep one row of each key, or join a stream of them: stream.join(...)",
        )
    return fixed


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    if pa.types.is_string_view(column.type) or pa.types.is_binary_view(column.type):
        plain = pa.string() if pa.types.is_string_view(column.type) else pa.binary()
        column = column.cast(plain)
    elif pa.types.is_run_end_encoded(column.type):
        column = pa.chunked_array([pc.run_end_decode(chunk) for chunk in column.chunks])
    array = column.combine_chunks()
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _column(arrow: pa.Table, name: str) -> Column:
    return Column.from_arrow(_one_chunk(arrow.column(name)))


def _digest(arrow: pa.Table) -> str:
    """Return what is equal for tables with the same columns and rows, in any order of rows."""
    columns = {name: _column(arrow, name) for name in arrow.column_names}
    none = np.zeros(arrow.num_rows, dtype=np.int64)
    content = np.sort(record_hashes(Bundle(none, (), columns))) if arrow.num_rows else none
    digest = hashlib.sha256(content.tobytes())
    for field in arrow.schema:
        digest.update(f"{field.name!r} {field.type}".encode())
    return digest.hexdigest()[:32]
