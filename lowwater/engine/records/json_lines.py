"""Tables as lines of JSON, column by column."""

from __future__ import annotations

import json
import math
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lowwater.engine.records.json_rows import json_text
from lowwater.engine.records.pane_table import encoding_of, to_values

_ROWS_AT_ONCE = 16_384
"""Rows converted at a time, because as text they take more memory than in a table."""
_ESCAPED = '["\\\\\\x00-\\x1f]'
"""The characters that JSON escapes, as a regular expression."""
_YEAR_1, _YEAR_9999 = -62_135_596_800_000_000, 253_402_300_799_999_999
_NULL = pa.scalar("null")


def json_lines(table: pa.Table) -> bytes:
    """Return a table's rows as JSON objects, one to a line, in UTF-8.

    Instants are ISO-8601 text, NaN and infinities null, bytes in hexadecimal, and values of types
    that JSON lacks text.
    """
    if not table.num_columns:
        return b"{}\n" * table.num_rows
    return b"".join(
        _block(table.slice(start, _ROWS_AT_ONCE))
        for start in range(0, table.num_rows, _ROWS_AT_ONCE)
    )


def _block(table: pa.Table) -> bytes:
    parts: list[Any] = []
    before = "{"
    for field, column in zip(table.schema, table.columns, strict=True):
        parts += [pa.scalar(f"{before}{json.dumps(field.name, ensure_ascii=False)}: ")]
        parts += [_texts(field, column)]
        before = ", "
    lines = pc.binary_join_element_wise(*parts, pa.scalar("}\n"), "")
    return b"".join(map(_bytes, lines.chunks if isinstance(lines, pa.ChunkedArray) else [lines]))


def _bytes(lines: pa.Array) -> bytes:
    """Return texts one after the other."""
    if not len(lines):
        return b""
    _, offsets, data = lines.buffers()
    ends = memoryview(offsets).cast("i")
    first, last = ends[lines.offset], ends[lines.offset + len(lines)]
    return bytes(memoryview(data)[first:last])


def _texts(field: pa.Field, column: pa.ChunkedArray) -> pa.Array:
    """Return each value of a column as JSON; none is null."""
    array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    kind = array.type
    if encoding_of(field) is not None:
        return _one_by_one(field, column)
    if pa.types.is_dictionary(kind):
        words = _texts(pa.field("", kind.value_type), pa.chunked_array([array.dictionary]))
        return pc.coalesce(words.take(array.indices), _NULL)
    if pa.types.is_boolean(kind):
        return pc.coalesce(pc.if_else(array, "true", "false"), _NULL)
    if pa.types.is_integer(kind):
        return pc.coalesce(array.cast(pa.string()), _NULL)
    if pa.types.is_float64(kind):
        texts = [
            repr(value) if value is not None and math.isfinite(value) else "null"
            for value in array.to_pylist()
        ]
        return pa.array(texts, pa.string())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        if pc.any(pc.match_substring_regex(array, _ESCAPED)).as_py():
            return _distinct(field, array)
        quoted = pc.binary_join_element_wise('"', array.cast(pa.string()), '"', "")
        return pc.coalesce(quoted, _NULL)
    if pa.types.is_timestamp(kind):
        return _instants(field, array)
    return _one_by_one(field, column)


def _instants(field: pa.Field, array: pa.Array) -> pa.Array:
    kind = array.type
    if kind.unit != "us" or kind.tz not in (None, "UTC") or len(array) == array.null_count:
        return _distinct(field, array)
    edges = pc.min_max(array.cast(pa.int64()))
    if edges["min"].as_py() < _YEAR_1 or edges["max"].as_py() > _YEAR_9999:
        return _distinct(field, array)
    # Without the time zone: Arrow looks it up for each value, which takes five times as long.
    exact = pc.replace_substring(
        array.cast(pa.timestamp("us")).cast(pa.string()), " ", "T", max_replacements=1
    )
    whole = pc.replace_substring(exact, ".000000", "", max_replacements=1)
    after = '"' if kind.tz is None else 'Z"'
    return pc.coalesce(pc.binary_join_element_wise('"', whole, after, ""), _NULL)


def _distinct(field: pa.Field, array: pa.Array) -> pa.Array:
    """Encode each distinct value once."""
    codes = array.dictionary_encode()
    words = _one_by_one(field.with_type(array.type), pa.chunked_array([codes.dictionary]))
    return pc.coalesce(words.take(codes.indices), _NULL)


def _one_by_one(field: pa.Field, column: pa.ChunkedArray) -> pa.Array:
    return pa.array([json_text(value) for value in to_values(field, column)], pa.string())
