"""Late elements and dead letters as Arrow tables, and tables as rows of JSON."""

from __future__ import annotations

import datetime as dt
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from lowwater.engine.records.panes import ErrorRecord, LateRecord
from lowwater.engine.records.tagged import JSON, encoding_of, tag, to_values
from lowwater.time import format_instant

ROWS_AT_ONCE = 16_384
"""Of how many rows Python values are made at a time: they take many times what a table takes."""

_ANYTHING = tag(pa.field("", pa.string()), JSON)
_LATE = pa.schema(
    [
        pa.field("reason", pa.string()),
        pa.field("time", pa.string()),
        _ANYTHING.with_name("key"),
        pa.field("window_start", pa.string()),
        pa.field("window_end", pa.string()),
        pa.field("watermark", pa.string()),
        _ANYTHING.with_name("record"),
    ]
)
_ERRORS = pa.schema(
    [
        pa.field("reason", pa.string()),
        pa.field("detail", pa.string()),
        pa.field("where", pa.string()),
        _ANYTHING.with_name("record"),
    ]
)


def late_to_table(records: Iterable[LateRecord]) -> pa.Table:
    """Return late elements as a table with the fields that ``late-*.jsonl`` has.

    The columns ``key`` and ``record``, which can be anything, are JSON.
    """
    return _table(map(late_to_json, records), _LATE)


def errors_to_table(records: Iterable[ErrorRecord]) -> pa.Table:
    """Return dead letters as a table with the fields that ``errors-*.jsonl`` has."""
    return _table(map(error_to_json, records), _ERRORS)


def rows_of(table: pa.Table) -> Iterator[dict[str, Any]]:
    """Yield a table's rows as JSON takes them."""
    names = table.schema.names
    for start in range(0, table.num_rows, ROWS_AT_ONCE):
        part = table.slice(start, ROWS_AT_ONCE)
        columns = [
            _instants(column) if pa.types.is_timestamp(field.type) else to_values(field, column)
            for field, column in zip(part.schema, part.columns, strict=True)
        ]
        for row in zip(*columns, strict=True):
            yield dict(zip(names, row, strict=True))


def json_lines(table: pa.Table) -> bytes:
    """Return a table's rows as JSON, one to a line, in UTF-8."""
    lines = io.BytesIO()
    lines.writelines(f"{json_text(row)}\n".encode() for row in rows_of(table))
    return lines.getvalue()


def json_text(value: Any) -> str:
    """Return a value as JSON that UTF-8 can hold: what it cannot comes out as an escape."""
    return _sound(to_json(value))


def without_tags(table: pa.Table) -> pa.Table:
    """Return a table whose encoded columns are text that anyone can read: JSON."""
    for place, field in enumerate(table.schema):
        if encoding_of(field) is not None:
            table = as_json(table, place)
    return table


def as_json(table: pa.Table, place: int) -> pa.Table:
    """Return a table with the values of one column as JSON text."""
    field = table.schema.field(place)
    texts = [
        None if value is None else json_text(value)
        for value in to_values(field, table.column(place))
    ]
    return table.set_column(
        place, pa.field(field.name, pa.string()), pa.array(texts, type=pa.string())
    )


def _instants(column: pa.ChunkedArray) -> list[Any]:
    """Return instants as text; few of those that panes have differ, and text is slow to make."""
    if not len(column):
        return []
    codes = pa.concat_arrays(column.chunks).dictionary_encode()
    distinct = pa.chunked_array([codes.dictionary])
    known = to_values(pa.field("", codes.dictionary.type), distinct)
    texts = [json.loads(to_json(value)) for value in known]
    return [None if code is None else texts[code] for code in codes.indices.to_pylist()]


def _table(rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    given = list(rows)
    columns = []
    for field in schema:
        values = [row[field.name] for row in given]
        if encoding_of(field) is None:
            texts = [None if value is None else _sound(value) for value in values]
        else:
            texts = [json_text(value) for value in values]
        columns.append(pa.array(texts, type=pa.string()))
    return pa.Table.from_arrays(columns, schema=schema)


def _sound(text: str) -> str:
    """Return text with lone surrogates as escapes, which in JSON mean just these."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode()
    return text


def late_to_json(late: LateRecord) -> dict[str, Any]:
    """Return a late element as a JSON object's fields."""
    window = late.window
    return {
        "reason": late.reason,
        "time": format_instant(late.time),
        "key": late.key,
        "window_start": None if window is None else format_instant(window.start),
        "window_end": None if window is None else format_instant(window.end),
        "watermark": format_instant(late.watermark),
        "record": late.value,
    }


def error_to_json(error: ErrorRecord) -> dict[str, Any]:
    """Return a dead letter as a JSON object's fields."""
    return {
        "reason": error.reason,
        "detail": error.detail,
        "where": error.where,
        "record": error.record,
    }


def to_json(row: Any) -> str:
    """Return a value as JSON: instants as ISO-8601, NaN as null, what else JSON lacks as text."""
    try:
        return json.dumps(row, ensure_ascii=False, allow_nan=False, default=_plain)
    except (TypeError, ValueError):  # NaN, or keys that are no text
        return json.dumps(_plainest(row), ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        text = value.isoformat()
        return text.replace("+00:00", "Z")
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=repr)
    if isinstance(value, (dt.date, dt.time)):
        return value.isoformat()
    return str(value)


def _plainest(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plainest(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plainest(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
