"""Text of CSV fields as values of settled types, exactly: what Arrow's fast conversion refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from lowwater.engine.records.columns import Mask
from lowwater.io.settled_types import EXACT, Values, is_beyond
from lowwater.time import Int64Array

_NUMBER = r"^\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*$"
_WORDS = pa_csv.ConvertOptions().null_values
"""What stands for a null in columns that are not of text, as Arrow has it."""
_MOST = 0.9
"""Which part of the texts of a column must be numbers, so that others are wrong."""


def is_number(kind: pa.DataType) -> bool:
    """Return whether a type was settled by numbers: of these, none is rounded."""
    return bool(pa.types.is_int64(kind) or pa.types.is_uint64(kind) or pa.types.is_float64(kind))


def settled_kind(
    inferred: pa.DataType, raw: Callable[[], pa.Array], *, has_hexadecimal: bool
) -> pa.DataType:
    """Return the type of a column whose first values Arrow takes for a type.

    Integers beyond int64 are uint64, not floats. Where nine texts of ten are numbers, which those
    with hexadecimal digits are not, it is one of numbers. Times have microseconds, because later
    ones may have fractions.

    Args:
        inferred: What Arrow takes them for.
        raw: Returns the first values as bytes, null where there is none.
        has_hexadecimal: Whether some field begins with ``0x``, which Arrow takes for an integer.
    """
    if pa.types.is_timestamp(inferred) and inferred.unit in ("s", "ms"):
        return pa.timestamp("us", inferred.tz)
    if pa.types.is_time(inferred):
        return pa.time64("us")
    if pa.types.is_float64(inferred):
        texts = _texts(raw())
        if not _all_match(texts, r"^\s*[0-9]+\s*$"):
            return inferred
        most = max(map(int, texts.to_pylist()))
        return pa.uint64() if 2**63 <= most < 2**64 else inferred
    hexadecimal = has_hexadecimal and pa.types.is_integer(inferred)
    if hexadecimal or pa.types.is_string(inferred) or pa.types.is_binary(inferred):
        texts = _texts(raw())
        numbers = pc.sum(pc.match_substring_regex(texts, _NUMBER)).as_py() or 0
        if not len(texts) or numbers < _MOST * len(texts):
            return pa.string()
        of_numbers = texts.filter(pc.match_substring_regex(texts, _NUMBER))
        return pa.int64() if _all_match(of_numbers, r"^\s*-?[0-9]+\s*$") else pa.float64()
    return inferred


def first_odd(raw: pa.Array) -> tuple[int, str] | None:
    """Return the row and the text of the first value that is neither a number nor null."""
    texts, _ = cast_rows(raw, pa.string())
    is_odd = pc.invert(pc.match_substring_regex(texts, _NUMBER)).fill_null(False)
    row = pc.index(is_odd, True).as_py()
    return None if row < 0 else (row, texts[row].as_py())


def first_kind(raw: pa.Array) -> pa.DataType:
    """Return the type of a column's first value; a null type if there is none."""
    first = _texts(raw)[:1]
    if not len(first):
        return pa.null()
    return next((kind for kind in _KINDS if not convert(first, kind, strict=True)[1].size), _TEXT)


_TEXT = pa.string()
_KINDS = (
    pa.int64(),
    pa.uint64(),
    pa.float64(),
    pa.bool_(),
    pa.date32(),
    pa.timestamp("us"),
    pa.timestamp("us", "UTC"),
    pa.time64("us"),
)
"""Types that a value may be of, in the order in which Arrow tries them."""


def _texts(raw: pa.Array) -> pa.Array:
    """Return the values that are valid text and stand for no null."""
    texts, _ = cast_rows(raw, _TEXT)
    return _without_words(texts).drop_null()


def _without_words(texts: pa.Array) -> pa.Array:
    """Return texts without white space around them, and null for words that stand for it."""
    trimmed = pc.utf8_trim_whitespace(texts)
    words = pc.is_in(trimmed, pa.array(_WORDS))
    return pc.if_else(words, None, trimmed) if pc.any(words).as_py() else trimmed


def _all_match(texts: pa.Array, pattern: str) -> bool:
    return bool(len(texts) and pc.all(pc.match_substring_regex(texts, pattern)).as_py())


def is_of_text(kind: pa.DataType) -> bool:
    """Return whether values of a type are text or bytes, of which only empty ones are null."""
    if pa.types.is_dictionary(kind):
        return is_of_text(kind.value_type)
    return any(is_one(kind) for is_one in _OF_TEXT)


_OF_TEXT = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
)


def can_be(kind: pa.DataType) -> bool:
    """Return whether fields of CSV can be of a type."""
    if pa.types.is_null(kind):
        return False
    try:
        pa_csv.read_csv(
            pa.BufferReader(b"c\n1\n"),
            convert_options=pa_csv.ConvertOptions(column_types={"c": kind}),
        )
    except pa.ArrowNotImplementedError:
        return False
    except pa.ArrowInvalid:  # this one is not of the type
        pass
    return True


def convert(raw: pa.Array, kind: pa.DataType, *, strict: bool) -> tuple[Values, Int64Array]:
    """Convert texts to a settled type; return null where that fails, and the rows where it does.

    O(n), and O(log n) more for each wrong text of a column that is neither of numbers nor of text.

    Args:
        raw: The texts, bytes; null where the field is empty.
        kind: The type.
        strict: Whether the type was given: then a fraction is no integer.
    """
    made: Values
    if is_of_text(kind):
        if pa.types.is_dictionary(kind):  # to which bytes are not cast
            made, bad = cast_rows(raw, kind.value_type)
            return made.dictionary_encode(), bad
        return cast_rows(raw, kind)
    texts, no_text = cast_rows(raw, _TEXT)
    texts = _without_words(texts)
    if is_number(kind):
        made, bad = _numbers(texts, kind, strict=strict)
    else:
        made, bad = _others(texts, kind)
    return made, np.union1d(bad, no_text)


def _others(texts: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Int64Array]:
    """Convert texts to a type of neither numbers nor text, each distinct one once."""
    encoded = texts.dictionary_encode()
    given = encoded.dictionary
    if pa.types.is_integer(kind) and (hexadecimal := _where(given, _HEX)).any():
        given = pc.if_else(pa.array(hexadecimal), "no digits", given)
    made, bad = cast_rows(given, kind, as_csv)
    rows = np.flatnonzero(pc.is_in(encoded.indices, pa.array(bad, encoded.indices.type)))
    return made.take(encoded.indices), rows.astype(np.int64)


def _numbers(texts: pa.Array, kind: pa.DataType, *, strict: bool) -> tuple[Values, Int64Array]:
    """Convert texts to numbers, of which none is rounded."""
    of_integers = not pa.types.is_float64(kind)
    try:
        if of_integers and _where(texts, _HEX).any():  # which Arrow reads as integers
            raise pa.ArrowInvalid("hexadecimal digits")
        made = texts.cast(kind)
        if strict or not pa.types.is_float64(kind) or not is_beyond(made, EXACT):
            return made, np.array([], dtype=np.int64)
    except pa.ArrowInvalid:
        pass
    is_integer = _where(texts, _DIGITS)
    is_fraction = _where(texts, f"{_NUMBER}|{_INFINITE}") & ~is_integer
    if strict and of_integers:
        is_fraction = np.zeros(len(texts), np.bool_)
    fractions, unread = cast_rows(texts.filter(pa.array(is_fraction)), pa.float64())
    is_fraction[np.flatnonzero(is_fraction)[unread]] = False
    wrong = _where(texts, "") & ~is_integer & ~is_fraction
    integers = _integers(texts.filter(pa.array(is_integer)), kind)
    if strict and of_integers:
        fitting = _fitting(integers, kind)
        wrong[np.flatnonzero(is_integer)[~fitting]] = True
        integers = [one for one, fits in zip(integers, fitting.tolist(), strict=True) if fits]
        is_integer &= ~wrong
    values = np.full(len(texts), None, dtype=object)
    values[is_integer] = integers
    values[is_fraction] = fractions.drop_null().to_pylist()
    return _in_arrow(values.tolist(), kind, strict=strict), np.flatnonzero(wrong).astype(np.int64)


_DIGITS = r"^[+-]?[0-9]{1,1000}$"
_HEX = r"^\s*[+-]?0[xX]"
_INFINITE = r"^[+-]?(inf|Inf|INF|infinity|Infinity|INFINITY)$"


def _where(texts: pa.Array, pattern: str) -> Mask:
    found: Mask = pc.match_substring_regex(texts, pattern).fill_null(False).to_numpy(False)
    return found.copy()


def _integers(texts: pa.Array, kind: pa.DataType) -> list[int]:
    try:
        found: list[int] = texts.cast(kind if pa.types.is_integer(kind) else pa.int64()).to_pylist()
    except pa.ArrowInvalid:  # beyond the type, or with a plus
        return [int(text) for text in texts.to_pylist()]
    return found


def _fitting(integers: list[int], kind: pa.DataType) -> Mask:
    low, high = (0, 2**64) if pa.types.is_uint64(kind) else (-(2**63), 2**63)
    return np.array([low <= one < high for one in integers], dtype=np.bool_)


def _in_arrow(values: list[Any], kind: pa.DataType, *, strict: bool) -> Values:
    """Return numbers as an array, if one holds them exactly."""
    kinds = set(map(type, values)) - {type(None)}
    if kinds == {float} or (pa.types.is_float64(kind) and strict):
        return pa.array([None if v is None else float(v) for v in values], pa.float64())
    if float not in kinds and pa.types.is_integer(kind):
        for one in (kind, pa.int64(), pa.uint64()):
            try:
                return pa.array(values, one)
            except (OverflowError, pa.ArrowInvalid):
                continue
        return values
    if any(type(value) is int and abs(value) > EXACT for value in values):
        return values
    return pa.array([None if v is None else float(v) for v in values], pa.float64())


def _as_is(raw: pa.Array, kind: pa.DataType) -> pa.Array:
    return raw.cast(kind)


def cast_rows(
    raw: pa.Array,
    kind: pa.DataType,
    cast: Callable[[pa.Array, pa.DataType], pa.Array] = _as_is,
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


def as_csv(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert texts as a file of one column, so that they mean what they mean in one of several.

    Raises:
        ArrowInvalid: One of them is not of the type.
    """
    if pa.types.is_null(kind):
        if texts.null_count < len(texts):
            raise pa.ArrowInvalid("a column without a type has a value")
        return pa.nulls(len(texts))
    if pc.any(pc.match_substring_regex(texts, r'[",\r\n]')).as_py():
        raise pa.ArrowInvalid("no value of another type than text has such characters")
    rows = pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts.fill_null(""))
    table = pa_csv.read_csv(
        pa.BufferReader(f"c\n{pc.binary_join(rows, chr(10))[0].as_py()}\n".encode()),
        read_options=pa_csv.ReadOptions(
            use_threads=False, block_size=max(1 << 20, 2 * texts.nbytes)
        ),
        parse_options=pa_csv.ParseOptions(ignore_empty_lines=False),
        convert_options=pa_csv.ConvertOptions(column_types={"c": kind}),
    )
    column = table.column(0)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
