"""Late elements and dead letters as Arrow tables, and the rows of tables as JSON values."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from typing import Any

import pyarrow as pa

from lowwater.display.text import shown
from lowwater.engine.records.pane_table import JSON, encoding_of, tag, to_values
from lowwater.engine.records.panes import ErrorRecord, LateRecord
from lowwater.time import format_instant

ROWS_AT_ONCE = 16_384
"""Rows converted to Python values at a time, because they take far more memory than a table."""

_MOST_BITS = 10_000
"""Of longer integers Python prints no digits, lest it take for ever."""
_ANYTHING = tag(pa.field("", pa.string()), JSON)
_LATE = pa.schema(
    [
        pa.field("reason", pa.string()),
        pa.field("detail", pa.string()),
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
    """Convert late elements to a table with the fields of ``late-*.jsonl``.

    The columns ``key`` and ``record`` are JSON, because they can be any value.
    """
    return _table(map(late_to_json, records), _LATE)


def errors_to_table(records: Iterable[ErrorRecord]) -> pa.Table:
    """Convert dead letters to a table with the fields of ``errors-*.jsonl``."""
    return _table(map(error_to_json, records), _ERRORS)


def rows_of(table: pa.Table) -> Iterator[dict[str, Any]]:
    """Yield a table's rows as dicts of JSON values."""
    names = table.schema.names
    for start in range(0, table.num_rows, ROWS_AT_ONCE):
        part = table.slice(start, ROWS_AT_ONCE)
        columns = [
            _instants(column) if pa.types.is_timestamp(field.type) else to_values(field, column)
            for field, column in zip(part.schema, part.columns, strict=True)
        ]
        for row in zip(*columns, strict=True):
            yield dict(zip(names, row, strict=True))


def json_text(value: Any) -> str:
    """Encode a value as JSON; text that UTF-8 cannot encode becomes escapes."""
    return _sound(to_json(value))


def without_tags(table: pa.Table) -> pa.Table:
    """Convert the encoded columns of a table to JSON text, readable without lowwater."""
    for place, field in enumerate(table.schema):
        if encoding_of(field) is not None:
            table = as_json(table, place)
    return table


def as_json(table: pa.Table, place: int) -> pa.Table:
    """Convert one column of a table to JSON text."""
    field = table.schema.field(place)
    texts = [
        None if value is None else json_text(value)
        for value in to_values(field, table.column(place))
    ]
    return table.set_column(
        place, pa.field(field.name, pa.string()), pa.array(texts, type=pa.string())
    )


def _instants(column: pa.ChunkedArray) -> list[Any]:
    """Format instants as text, each distinct one once: panes share few, and formatting is slow."""
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
    """Escape lone surrogates, so that the text can be encoded; JSON reads the escapes back."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode()
    return text


def late_to_json(late: LateRecord) -> dict[str, Any]:
    """Return the fields of a late element's JSON object."""
    window = late.window
    return {
        "reason": late.reason,
        "detail": late.detail,
        "time": format_instant(late.time),
        "key": late.key,
        "window_start": None if window is None else format_instant(window.start),
        "window_end": None if window is None else format_instant(window.end),
        "watermark": format_instant(late.watermark),
        "record": late.value,
    }


def error_to_json(error: ErrorRecord) -> dict[str, Any]:
    """Return the fields of a dead letter's JSON object."""
    return {
        "reason": error.reason,
        "detail": error.detail,
        "where": error.where,
        "record": error.record,
    }


def to_json(row: Any) -> str:
    """Encode a value as JSON: instants as ISO-8601, NaN as null, unsupported types as text."""
    try:
        return json.dumps(row, ensure_ascii=False, allow_nan=False, default=_plain)
    except MemoryError:
        raise
    except Exception:  # NaN, keys that are no text, endless digits; or a class of the user raises
        return json.dumps(_plainest(row), ensure_ascii=False, default=_plain)


def _or_shown(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a conversion that shows, as an error does, what raises while it is read."""

    @wraps(convert)
    def converted(value: Any) -> Any:
        try:
            return convert(value)
        except MemoryError:
            raise
        except Exception:  # a class of the user
            return shown(value, exact=True)

    return converted


@_or_shown
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


@_or_shown
def _plainest(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {_name(key): _plainest(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plainest(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > _MOST_BITS:
        return shown(value)
    return value


def _name(key: Any) -> str:
    return key if isinstance(key, str) else str(_plain(key))
