"""Text of CSV fields as values of settled types, exactly: what Arrow's fast conversion refuses."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from lowwater.io.json_types import Values
from lowwater.time import Int64Array

EXACT = 2**53
"""Up to here all integers are floats, too."""
_INTEGER = re.compile(rb"\s*[+-]?[0-9]+\s*")
_NUMBER = r"^\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*$"
_WORDS = pa_csv.ConvertOptions().null_values
"""What stands for a null in columns that are not of text, as Arrow has it."""
_MOST = 0.9
"""Which part of the texts of a column must be numbers, so that others are wrong."""


def is_number(kind: pa.DataType) -> bool:
    """Return whether a type was settled by numbers: of these, none is rounded."""
    return bool(pa.types.is_int64(kind) or pa.types.is_uint64(kind) or pa.types.is_float64(kind))


def settled_kind(inferred: pa.DataType, raw: Callable[[], pa.Array]) -> pa.DataType:
    """Return the type of a column whose first values Arrow takes for a type.

    Integers beyond int64 are uint64, not floats. Where nine texts of ten are numbers it is one of
    numbers. Times have microseconds, because later ones may have fractions.

    Args:
        inferred: What Arrow takes them for.
        raw: Returns the first values as bytes, null where there is none.
    """
    if pa.types.is_timestamp(inferred) and inferred.unit in ("s", "ms"):
        return pa.timestamp("us", inferred.tz)
    if pa.types.is_time(inferred):
        return pa.time64("us")
    if pa.types.is_float64(inferred):
        texts = _texts(raw())
        if not _all_match(texts, r"^\s*[0-9]+\s*$"):
            return inferred
        most = max((int(text) for text in texts.to_pylist() if len(text) < _LONGEST), default=0)
        return pa.uint64() if 2**63 <= most < 2**64 else inferred
    if pa.types.is_string(inferred) or pa.types.is_binary(inferred):
        texts = _texts(raw())
        numbers = pc.sum(pc.match_substring_regex(texts, _NUMBER)).as_py() or 0
        if not len(texts) or numbers < _MOST * len(texts):
            return pa.string()
        of_numbers = texts.filter(pc.match_substring_regex(texts, _NUMBER))
        return pa.int64() if _all_match(of_numbers, r"^\s*-?[0-9]+\s*$") else pa.float64()
    return inferred


def first_kind(raw: pa.Array) -> pa.DataType:
    """Return the type of a column's first value; a null type if there is none."""
    texts = _texts(raw)
    if not len(texts):
        return pa.null()
    first = texts[:1].cast(pa.binary())
    for kind in (pa.int64(), pa.float64(), pa.bool_(), pa.timestamp("us"), pa.time64("us")):
        if not cast_rows(first, kind, _as_csv)[1].size:
            return kind
    return pa.string()


def _texts(raw: pa.Array) -> pa.Array:
    """Return the values that are valid text and stand for no null."""
    given, _ = cast_rows(raw, pa.string())
    nulls = pc.is_in(pc.utf8_trim_whitespace(given), pa.array(_WORDS))
    return given.filter(pc.and_(given.is_valid(), pc.invert(nulls)))


def _all_match(texts: pa.Array, pattern: str) -> bool:
    return bool(len(texts) and pc.all(pc.match_substring_regex(texts, pattern)).as_py())


def convert(raw: pa.Array, kind: pa.DataType, *, strict: bool) -> tuple[Values, Int64Array]:
    """Convert texts to a settled type; return null where that fails, and the rows where it does.

    Args:
        raw: The texts, bytes; null where the field is empty.
        kind: The type.
        strict: Whether the type was given: then a fraction is no integer.
    """
    if pa.types.is_string(kind):
        return cast_rows(raw, kind)
    made, bad = cast_rows(raw, kind, _as_csv)
    if not is_number(kind) or strict:
        return made, bad
    if pa.types.is_float64(kind):
        span = pc.min_max(made).as_py()
        if span["min"] is None or max(-span["min"], span["max"]) < EXACT:
            return made, bad
    return _numbers(raw, made, bad)


def _numbers(raw: pa.Array, made: pa.Array, bad: Int64Array) -> tuple[Values, Int64Array]:
    """Convert numbers one by one where their type does not hold them exactly.

    Args:
        raw: The texts.
        made: What they were converted to.
        bad: The rows where that failed.
    """
    values = made.to_pylist()
    rows = set(bad.tolist())
    if pa.types.is_float64(made.type):
        big = pc.greater_equal(pc.abs(made), float(EXACT)).fill_null(False)
        rows |= set(np.flatnonzero(big.to_numpy(zero_copy_only=False)).tolist())
    worse: list[int] = []
    for row in sorted(rows):
        text = raw[row].as_py()
        if _INTEGER.fullmatch(text) and len(text) < _LONGEST:
            values[row] = int(text)
        elif row in bad:
            found, failed = cast_rows(raw.slice(row, 1), pa.float64(), _as_csv)
            values[row] = found[0].as_py()
            worse += [row] if failed.size else []
    return _in_arrow(values, made.type), np.array(worse, dtype=np.int64)


_LONGEST = 1_000
"""Integers with more digits are no numbers here."""


def _in_arrow(values: list[Any], kind: pa.DataType) -> Values:
    """Return numbers as an array, if one holds them exactly."""
    given = [value for value in values if value is not None]
    fractions = any(type(value) is float for value in given)
    integers = [value for value in given if type(value) is int]
    if not fractions:
        for one in (kind, pa.int64(), pa.uint64()):
            if pa.types.is_integer(one):
                try:
                    return pa.array(values, one)
                except (OverflowError, pa.ArrowInvalid):
                    continue
        return values
    if any(abs(value) > EXACT for value in integers):
        return values
    return pa.array([None if v is None else float(v) for v in values], pa.float64())


def _as_text(raw: pa.Array, kind: pa.DataType) -> pa.Array:
    return raw.cast(kind)


def cast_rows(
    raw: pa.Array,
    kind: pa.DataType,
    cast: Callable[[pa.Array, pa.DataType], pa.Array] = _as_text,
) -> tuple[pa.Array, Int64Array]:
    """Cast text to a type; return null where that fails, and the rows where it does.

    Arrow's cast fails as a whole, so a failing range is bisected until the bad values stand alone.
    """
    parts: list[pa.Array] = []
    bad: list[int] = []
    pending = [(0, len(raw))] if len(raw) else []
    while pending:
        low, high = pending.pop()
        try:
            parts.append(cast(raw.slice(low, high - low), kind))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            if high - low == 1:
                parts.append(pa.nulls(1, kind))
                bad.append(low)
            else:
                middle = (low + high) // 2
                pending += [(middle, high), (low, middle)]
    made = pa.concat_arrays(parts) if parts else pa.nulls(0, kind)
    return made, np.array(bad, dtype=np.int64)


def _as_csv(raw: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert texts as a file of one column, so that they mean what they mean in one of several.

    Raises:
        ArrowInvalid: One of them is not of the type.
    """
    if pa.types.is_null(kind):
        if raw.null_count < len(raw):
            raise pa.ArrowInvalid("a column without a type has a value")
        return pa.nulls(len(raw))
    texts = raw.cast(pa.string()).fill_null("")
    if pc.any(pc.match_substring_regex(texts, r'[",\r\n]')).as_py():
        raise pa.ArrowInvalid("no value of another type than text has such characters")
    lines = pc.binary_join(pa.array([["c", *texts.to_pylist()]], pa.list_(pa.string())), "\n")
    table = pa_csv.read_csv(
        pa.BufferReader(lines[0].as_py().encode() + b"\n"),
        read_options=pa_csv.ReadOptions(use_threads=False, block_size=max(1 << 20, 2 * raw.nbytes)),
        parse_options=pa_csv.ParseOptions(ignore_empty_lines=False),
        convert_options=pa_csv.ConvertOptions(column_types={"c": kind}),
    )
    column = table.column(0)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
