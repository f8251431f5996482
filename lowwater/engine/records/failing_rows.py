"""Finds the rows of a batch for which an expression fails.

Arrow stops at the first value that it cannot work with, and says of no other whether it could. So
rows are tried: all that look alike together, then those that failed individually. Equal rows are
tried once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lowwater.engine.records.calls import said
from lowwater.engine.records.sure_failures import sure_failures
from lowwater.time import Int64Array

Evaluate: TypeAlias = Callable[[pa.Table], dict[str, pa.Array]]
"""Evaluates an expression over a table; raises if it fails for any row."""

Bad: TypeAlias = dict[int, str]
"""Rows for which an expression fails, each with the text of the exception."""

_SAMPLE = 16
"""How many rows of a part that failed are tried before it is decided how to search it."""
_MANY = 8
"""Where at least one in so many sampled rows fails, all rows are tried individually."""
_CLASSES = 64
"""The most classes of rows that look alike which are tried separately."""
_OUT_OF_RANGE = re.compile(r"Integer value (-?\d+) not in range: (-?\d+) to (-?\d+)")


@final
class RowSearch:
    """Searches tables for the rows for which one expression fails.

    Args:
        expression: The expression.
        evaluate: Evaluates it.
        probe: Tells whether it fails for a table of one row, faster than ``evaluate``; ``None``:
            there is no faster way.
    """

    def __init__(
        self,
        expression: Any,
        evaluate: Evaluate,
        probe: Callable[[pa.Table], object] | None,
    ) -> None:
        self._expression = expression
        self._evaluate = evaluate
        self._probe = probe

    def failing(self, table: pa.Table) -> Bad:
        """Return the rows of a table for which the expression fails."""
        if len(table) <= _SAMPLE:
            return self._one_by_one(table, range(len(table)))
        groups = _equal_rows(table)
        if groups is None:
            return self._failing(table)
        first, of = groups
        bad = self._failing(table.take(pa.array(first)))
        if not bad:
            return {}
        is_bad = np.zeros(len(first), dtype=np.bool_)
        is_bad[list(bad)] = True
        rows = np.flatnonzero(is_bad[of])
        return {
            row: bad[group] for row, group in zip(rows.tolist(), of[rows].tolist(), strict=True)
        }

    def why(self, table: pa.Table) -> str | None:
        """Return the text of the exception if the expression fails for a table, else ``None``."""
        try:
            self._evaluate(table)
        except MemoryError:
            raise
        except Exception as error:
            return said(error)
        return None

    def _failing(self, table: pa.Table) -> Bad:
        bad = self._surely_failing(table)
        if not bad:
            return self._failing_parts(table)
        left = np.ones(len(table), dtype=np.bool_)
        left[list(bad)] = False
        rows = np.flatnonzero(left)
        rest = table.take(pa.array(rows))
        if len(rows) and self.why(rest) is not None:
            bad.update((int(rows[row]), text) for row, text in self._failing_parts(rest).items())
        return bad

    def _surely_failing(self, table: pa.Table) -> Bad:
        """Return rows for which some operation must fail; none where a sample contradicts."""
        for fails, texts in sure_failures(self._expression, table):
            rows = np.flatnonzero(fails)
            tried = rows[:: max(1, len(rows) // _SAMPLE)]
            sample = self._one_by_one(table, tried.tolist())
            if len(sample) < len(tried):
                continue
            first = int(tried[0])
            why = sample[first]
            if texts is None:
                return dict.fromkeys(rows.tolist(), why)
            before, quoted, after = why.partition(f"'{texts[first].as_py()}'")
            if not quoted:
                return dict.fromkeys(rows.tolist(), why)
            values = texts.take(pa.array(rows)).to_pylist()
            return {
                row: f"{before}'{value}'{after}"
                for row, value in zip(rows.tolist(), values, strict=True)
            }
        return {}

    def _failing_parts(self, table: pa.Table) -> Bad:
        bad: Bad = {}
        for rows in _alike(table):
            part = table if len(rows) == len(table) else table.take(pa.array(rows))
            if len(rows) == len(table) or self.why(part) is not None:
                found = self._searched(part)
                bad.update((int(rows[row]), text) for row, text in found.items())
        return bad

    def _searched(self, part: pa.Table) -> Bad:
        """Return the failing rows of a table of which at least one fails."""
        length = len(part)
        if length <= _SAMPLE:
            return self._one_by_one(part, range(length))
        sample = sorted(set(np.linspace(0, length - 1, _SAMPLE).astype(np.int64).tolist()))
        bad = self._one_by_one(part, sample)
        if (outside := _outside_of_range(part, bad)) is not None:
            rest = np.flatnonzero(~outside)
            found = {row: bad.get(row, _RANGE) for row in np.flatnonzero(outside).tolist()}
            left = part.take(pa.array(rest))
            if len(rest) and self.why(left) is not None:
                found.update((int(rest[row]), text) for row, text in self._searched(left).items())
            return found
        if len(bad) * _MANY >= len(sample):
            return self._one_by_one(part, range(length))
        middle = length // 2
        found = {}
        for start, half in ((0, part.slice(0, middle)), (middle, part.slice(middle))):
            if self.why(half) is not None:
                found.update((start + row, text) for row, text in self._searched(half).items())
        return found

    def _one_by_one(self, table: pa.Table, rows: Sequence[int]) -> Bad:
        bad: Bad = {}
        for row in rows:
            one = table.slice(row, 1)
            if self._probe is not None:
                try:
                    self._probe(one)
                except MemoryError:
                    raise
                except Exception as error:
                    text = said(error)
                    # The probe is a shortcut: what it says first is checked.
                    if not bad and self.why(one) is None:
                        self._probe = None
                        continue
                    bad[row] = text
            elif (why := self.why(one)) is not None:
                bad[row] = why
        return bad


_RANGE = "an integer is too large to be exact as a float"


def _outside_of_range(part: pa.Table, bad: Bad) -> np.ndarray[Any, np.dtype[np.bool_]] | None:
    """Return which rows have an integer outside of the range that Arrow names, or ``None``.

    Arrow refuses to convert an integer to a float that cannot hold it, and names the bounds. If
    that is why all sampled rows fail, for the value in the only column, it is why all rows outside
    of the bounds fail.
    """
    if not bad or part.num_columns != 1 or not pa.types.is_integer(part.column(0).type):
        return None
    column = part.column(0)
    bounds = set()
    for row, text in bad.items():
        match = _OUT_OF_RANGE.search(text)
        if match is None or int(match[1]) != column[row].as_py():
            return None
        bounds.add((int(match[2]), int(match[3])))
    if len(bounds) != 1:
        return None
    ((low, high),) = bounds
    if pa.types.is_unsigned_integer(column.type):
        low = 0
    inside = pc.and_(pc.greater_equal(column, low), pc.less_equal(column, high)).fill_null(True)
    found: np.ndarray[Any, np.dtype[np.bool_]] = ~inside.to_numpy()
    return found


def _equal_rows(table: pa.Table) -> tuple[Int64Array, Int64Array] | None:
    """Return one row of each group of equal rows, and the group of each row.

    ``None`` if some column cannot be compared, or if all rows differ.
    """
    codes: Int64Array | None = None
    for column in table.columns:
        try:
            encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
        except (pa.ArrowException, TypeError):  # structs and lists cannot be hashed
            return None
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.unify_dictionaries().combine_chunks()
        own = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        codes = own if codes is None else codes * len(encoded.dictionary) + own
        _, codes = np.unique(codes, return_inverse=True)
    if codes is None:
        return None
    _, first, of = np.unique(codes, return_index=True, return_inverse=True)
    return None if len(first) == len(codes) else (first.astype(np.int64), of)


def _alike(table: pa.Table) -> list[Int64Array]:
    """Return the rows of a table in parts that look alike: such rows often fail together."""
    codes = np.zeros(len(table), dtype=np.int64)
    for column in table.columns:
        own = _look(column)
        if own is not None:
            _, codes = np.unique(codes * (int(own.max()) + 1) + own, return_inverse=True)
    count = int(codes.max()) + 1
    if count == 1 or count > _CLASSES:
        return [np.arange(len(table))]
    order = np.argsort(codes, kind="stable")
    bounds = np.flatnonzero(np.diff(codes[order])) + 1
    return np.split(order, bounds)


def _look(column: pa.ChunkedArray) -> Int64Array | None:
    """Return a class for each value, from 0: the shape of a text, the size of a number."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        shape = pc.replace_substring_regex(column, "[0-9]+", "0")
        shape = pc.replace_substring_regex(shape, r"[^\W0-9_]+", "a")
        encoded = shape.combine_chunks().dictionary_encode(null_encoding="encode")
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.unify_dictionaries().combine_chunks()
        indices: Int64Array = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        return indices
    if pa.types.is_integer(kind):
        values = column.fill_null(0).to_numpy()
        size = (values == 0) + 2 * (values > 2**53) + 4 * (values < 0)
        return (size + 8 * (values < -(2**53))).astype(np.int64)
    if pa.types.is_floating(kind):
        floats = column.fill_null(0.0).to_numpy()
        whole = np.isfinite(floats) & (np.trunc(floats) == floats)
        size = whole + 2 * np.isfinite(floats) + 4 * (floats < 0)
        return (size + 8 * (np.abs(floats) >= 2.0**63)).astype(np.int64)
    return None
