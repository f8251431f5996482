"""Blocks of JSON objects as columns: with Arrow, and one by one where that is not exact."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any, final

import numpy as np
import pyarrow as pa
import pyarrow.json as pa_json

from lowwater.engine.records.batch import HIDDEN, is_too_deep
from lowwater.engine.records.panes import ErrorRecord
from lowwater.io.json_objects import columns_of_objects, is_deep, is_time, object_of
from lowwater.time import Int64Array

_MAY_OVERFLOW = 500
"""Lines of at most this many bytes cannot nest values so deeply that Arrow overflows the stack."""
_NEWLINE, _RETURN, _OPENING, _CLOSING = b"\n\r{}"


@final
@dataclass(frozen=True, slots=True)
class ParsedBlock:
    """What a block of lines holds.

    Args:
        batch: The objects as columns; ``None`` if no line holds a usable one.
        lines: Which line each object is from, int64, ascending; ``None``: as many as there are
            lines.
        letters: Dead letters, in order of line.
    """

    batch: pa.RecordBatch | None
    lines: Int64Array | None = None
    letters: tuple[ErrorRecord, ...] = ()


@final
class JsonBlocks:
    """Parses blocks of lines, each with a JSON object, and remembers the types of the fields.

    A field's type is the one that most of the first objects show; integers become floats where a
    fraction turns up, except in the field of event times. What is no JSON object is a dead letter
    (``malformed_json``), as is an object with a value that is not of its field's type
    (``wrong_type``).

    Args:
        time: The field of event times, integers or text; ``None``: objects have none.
        fractions: Whether event times may be floats.
        skips_blank: Whether blank lines do not count; otherwise they are no JSON objects.
        only: The fields that are read; ``None`` for all. Others may hold anything.
    """

    def __init__(
        self,
        time: str | None,
        fractions: bool,
        *,
        skips_blank: bool,
        only: frozenset[str] | None = None,
    ) -> None:
        self.types: dict[str, pa.DataType] = {}
        self._time = time
        self._fractions = fractions
        self._skips_blank = skips_blank
        self._only = only

    def parse(self, lines: Sequence[bytes], place: Callable[[int], str]) -> ParsedBlock:
        """Parse lines, each with its line feed.

        Args:
            lines: The lines.
            place: Says where a line is, given its number in the block: for dead letters.
        """
        table = self._parse(lines)
        if table is None:
            return self._line_by_line(lines, place)
        arrays = {name: _in_one(table.column(name)) for name in table.column_names}
        for name, array in arrays.items():
            known = self.types.get(name)
            if known is None or pa.types.is_null(known) or pa.types.is_nested(known):
                self.types[name] = array.type
        batch = self._with_time(arrays, table.num_rows)
        if table.num_rows == len(lines):
            return ParsedBlock(batch)
        full = [number for number, line in enumerate(lines) if not line.isspace()]
        return ParsedBlock(batch, np.array(full, dtype=np.int64))

    def _with_time(self, arrays: dict[str, pa.Array], length: int) -> pa.RecordBatch:
        """Return a batch that has event times, null where no line of the block has any."""
        if self._time is not None and self._time not in arrays:
            arrays[self._time] = pa.nulls(length, self.types.get(self._time, pa.null()))
        return pa.RecordBatch.from_pydict(arrays) if arrays else without_columns(length)

    def _parse(self, lines: Sequence[bytes]) -> pa.Table | None:
        """Parse a block of lines with Arrow; ``None`` if the result would not be exact."""
        block = b"".join(lines)
        expected = _count_objects(block, lines, self._skips_blank)
        if not expected:
            return None
        try:
            block.decode()
            table = _read_json(block, self.types, self._only)
            unknown = [f for f in table.schema if f.name not in self.types]
            texts = {f.name: pa.string() for f in unknown if pa.types.is_temporal(f.type)}
            if texts:  # JSON has no times: keep text that Arrow would parse as one
                table = _read_json(block, {**self.types, **texts}, self._only)
            # Arrow leaves out nulls at the beginning of a list whose type it infers (51305).
            table.validate()
        except (
            pa.ArrowInvalid,
            pa.ArrowNotImplementedError,
            UnicodeDecodeError,
            OverflowError,  # a block of 2 GB
        ):
            return None
        return table if table.num_rows == expected and self._is_sound(table.schema) else None

    def _is_sound(self, schema: pa.Schema) -> bool:
        """Return whether fields have usable names, depths and event times."""
        if any(field.name.startswith(HIDDEN) or is_too_deep(field.type) for field in schema):
            return False
        place = -1 if self._time is None else schema.get_field_index(self._time)
        return place < 0 or is_time(schema.field(place).type, self._fractions)

    def _line_by_line(self, lines: Sequence[bytes], place: Callable[[int], str]) -> ParsedBlock:
        objects: list[dict[str, Any]] = []
        numbers: list[int] = []
        letters: list[tuple[int, ErrorRecord]] = []
        for number, line in enumerate(lines):
            if self._skips_blank and line.isspace():
                continue
            found, failure = object_of(line)
            if found is None:
                text = line.decode(errors="replace").rstrip("\r\n")
                letter = ErrorRecord(text, "malformed_json", failure, place(number))
                letters.append((number, letter))
            else:
                objects.append(found)
                numbers.append(number)
        wanted = objects
        if self._only is not None:
            wanted = [{n: row[n] for n in row if n in self._only} for row in objects]
        arrays, wrong = columns_of_objects(wanted, self.types, self._time, self._fractions)
        self.types.update((name, array.type) for name, array in arrays.items())
        for index, detail in wrong.items():
            number = numbers[index]
            letter = ErrorRecord(objects[index], "wrong_type", detail, place(number))
            letters.append((number, letter))
        letters.sort(key=lambda letter: letter[0])
        in_order = tuple(letter for _, letter in letters)
        if len(wrong) == len(objects):  # no column is missing from lines that are all unusable
            return ParsedBlock(None, letters=in_order)
        batch = self._with_time(arrays, len(objects))
        rows = np.array(numbers, dtype=np.int64)
        if wrong:
            kept = np.array([i for i in range(len(objects)) if i not in wrong], dtype=np.int64)
            batch, rows = batch.take(pa.array(kept)), rows[kept]
        return ParsedBlock(batch, rows, in_order)


def without_columns(length: int) -> pa.RecordBatch:
    """Return a batch of so many rows that has no columns."""
    return pa.RecordBatch.from_struct_array(pa.array([{}] * length, pa.struct([])))


def _count_objects(block: bytes, lines: Sequence[bytes], skips_blank: bool) -> int | None:
    """Return how many lines are not blank; ``None`` if one does not look like an object.

    Arrow reads values from a block whatever lines they are on, and a ``null`` that precedes all
    objects ends the process (47409). If each line begins and ends with a brace, no object spans two
    lines, as neither may follow the other inside an object. As many objects as lines then means one
    on each.
    """
    lengths = np.fromiter(map(len, lines), np.int64, len(lines))
    bytes_ = np.frombuffer(block, np.uint8)
    ends = np.cumsum(lengths)
    last = ends - 1
    last = last - (bytes_[last] == _NEWLINE)
    last = last - (bytes_[last] == _RETURN)
    odd = (bytes_[ends - lengths] != _OPENING) | (bytes_[last] != _CLOSING)
    blank = 0
    for at in np.flatnonzero(odd).tolist():
        line = lines[at].strip()
        if line and not (line.startswith(b"{") and line.endswith(b"}")):
            return None
        if not line and not skips_blank:
            return None
        blank += not line
    long = np.flatnonzero(lengths > _MAY_OVERFLOW).tolist()
    if any(is_deep(lines[at], _MAY_OVERFLOW) for at in long):
        return None
    return len(lines) - blank


def _read_json(
    block: bytes, types: dict[str, pa.DataType], only: frozenset[str] | None
) -> pa.Table:
    known = {name: kind for name, kind in types.items() if not pa.types.is_null(kind)}
    return pa_json.read_json(
        BytesIO(block),
        # A single block, because Arrow infers the types of each block separately.
        read_options=pa_json.ReadOptions(block_size=len(block) + 1, use_threads=True),
        parse_options=pa_json.ParseOptions(
            explicit_schema=pa.schema(list(known.items())),
            unexpected_field_behavior="infer" if only is None else "ignore",
        ),
    )


def _in_one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
