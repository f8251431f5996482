"""Blocks of JSON objects as columns: with Arrow, and one by one where that is not exact."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

import numpy as np
import pyarrow as pa
import pyarrow.json as pa_json

from lowwater.engine.records.batch import HIDDEN, Records, is_too_deep
from lowwater.engine.records.columns import Column
from lowwater.engine.records.panes import ErrorRecord
from lowwater.io.json_objects import columns_of_objects, is_deep, is_time, object_of
from lowwater.io.settled_types import (
    EXACT,
    Values,
    as_values,
    extended,
    has_decimals,
    has_nulls,
    has_numbers,
    is_alike,
    is_beyond,
    joined_exactly,
    kind_of_most,
    kind_of_times,
    plain_floats,
    taken,
    with_texts,
)
from lowwater.time import Int64Array

_MAY_OVERFLOW = 500
"""Lines of at most this many bytes cannot nest values so deeply that Arrow overflows the stack."""
_NEWLINE, _RETURN, _OPENING, _CLOSING = b"\n\r{}"


_LINES, _FEW = 8_192, 128
"""How many lines are parsed at once, and how many are looked at one by one if one is odd."""
_LONG_INTEGER = re.compile(rb"(?<![\w.+-])-?\d{16,}(?![\w.])")
ODD = HIDDEN + "odd"
"""Hidden column of a parsed block: where in its odd columns the values of an object are."""


@final
@dataclass(frozen=True, slots=True)
class ParsedBlock:
    """What a block of lines holds.

    Args:
        batch: The objects as columns; ``None`` if no line holds a usable one. With odd columns it
            has a column :data:`ODD`, int64.
        lines: Which line each object is from, int64, ascending; ``None``: as many as there are
            lines.
        letters: Dead letters, in order of line.
        odd: Values of columns that no Arrow type holds exactly, such as integers above 2^53 beside
            fractions, in the order of :data:`ODD`; in the batch these columns are null.
    """

    batch: pa.RecordBatch | None
    lines: Int64Array | None = None
    letters: tuple[ErrorRecord, ...] = ()
    odd: Mapping[str, Sequence[Any]] = field(default_factory=dict)


def with_odd(records: Records, odd: Mapping[str, Sequence[Any]]) -> Records:
    """Return the records of a parsed block's batch, with the values of its odd columns."""
    if not odd:
        return records
    places = records.columns[ODD].data.tolist()
    columns = {
        name: Column.of_objects([odd[name][at] for at in places]) if name in odd else column
        for name, column in records.columns.items()
        if name != ODD
    }
    return replace(records, columns=columns)


@final
class JsonBlocks:
    """Parses blocks of lines, each with a JSON object, and remembers the types of the fields.

    A field's type is the one that most of the first objects show, but for nulls; it is settled
    then. A field that was null in all of them is settled by its first value. Numbers are of one
    type: an integer stays exact beside fractions, and each value is what it is alone, whichever
    lines are parsed with it. What is no JSON object is a dead letter (``malformed_json``), as is an
    object with a value that is not of its field's type (``wrong_type``). Times are text.

    Args:
        time: The field of event times, integers or text; ``None``: objects have none.
        fractions: Whether event times may be floats.
        skips_blank: Whether blank lines do not count; otherwise they are no JSON objects.
        only: The fields that are read; ``None`` for all. Others may hold anything.
        given: The types of fields that are not to be settled. They are strict: a fraction is no
            integer, and an integer beside fractions is one.
        option: The option of the reader by which users name types.
        is_settled: Whether ``given`` has the types of all fields that the first objects have.
    """

    def __init__(
        self,
        time: str | None,
        fractions: bool,
        *,
        skips_blank: bool,
        only: frozenset[str] | None = None,
        given: Mapping[str, pa.DataType] | None = None,
        option: str = "types",
        is_settled: bool = False,
    ) -> None:
        self._option = option
        self._is_settled = is_settled
        self._given = dict(given or {})
        self.types: dict[str, pa.DataType] = dict(self._given)
        self._time = time
        self._fractions = fractions
        self._skips_blank = skips_blank
        self._only = only

    @property
    def is_settled(self) -> bool:
        """Whether the types of the first lines' fields are settled."""
        if self._is_settled:
            return True
        if self._only is not None and self._given.keys() >= self._only:
            return True
        return len(self.types) > len(self._given)

    def parse(self, lines: Sequence[bytes], place: Callable[[int], str]) -> ParsedBlock:
        """Parse lines, each with its line feed. O(bytes), and O(log n) more for each odd line.

        Args:
            lines: The lines.
            place: Says where a line is, given its number in the block: for dead letters.
        """
        self._settle(lines)
        parts: list[_Part] = []
        for start in range(0, len(lines), _LINES):
            self._parse_part(start, lines[start : start + _LINES], place, parts)
        letters = tuple(letter for part in parts for letter in part.letters)
        usable = [part for part in parts if part.length]
        if not usable:  # no column is missing from lines that are all unusable
            return ParsedBlock(None, letters=letters)
        self._is_settled = True
        rows = np.concatenate([part.lines for part in usable])
        whole = len(rows) == len(lines)
        batch, odd = self._joined(usable)
        return ParsedBlock(batch, None if whole else rows, letters, odd)

    def together(self, texts: Sequence[Sequence[bytes]]) -> list[pa.RecordBatch] | None:
        """Parse several texts, each of lines with their line feeds; return a batch of each.

        ``None`` if they may not be what :meth:`parse` makes of each: every line has to be an object
        of no other fields and types than are known, so that nothing is learned from any.
        """
        kinds = {n: k for n, k in self.types.items() if self._only is None or n in self._only}
        if not (self._time is None or self._time in kinds) or any(map(has_nulls, kinds.values())):
            return None
        lines = [line for text in texts for line in text]
        block = b"".join(lines)
        if _count_objects(block, lines, False) != len(lines) or not is_utf8(block):
            return None
        try:
            table = self._read(block, len(lines), self.types)
        except _NOT_FOR_ARROW:
            return None
        if table is None or table.schema != pa.schema(list(kinds.items())):
            return None
        batch, _ = batch_of({name: _in_one(table.column(name)) for name in kinds})
        ends = np.cumsum([len(text) for text in texts]).tolist()
        return [
            batch.slice(end - len(text), len(text)) for text, end in zip(texts, ends, strict=True)
        ]

    def _settle(self, lines: Sequence[bytes]) -> None:
        """Settle the types of the fields by the first lines, where Arrow cannot infer them."""
        if self.is_settled or self._parse(lines[:_LINES]) is not None:
            return  # Arrow infers them
        objects = [found for line in lines if (found := object_of(line)[0]) is not None]
        for name in dict.fromkeys(name for row in objects for name in row):
            if name not in self._given and (self._only is None or name in self._only):
                values = [row.get(name) for row in objects]
                if name == self._time:
                    kind = kind_of_times(values, fractions=self._fractions)
                else:
                    kind = kind_of_most(values)
                if not pa.types.is_null(kind):
                    self.types[name] = kind

    def _parse_part(
        self,
        start: int,
        lines: Sequence[bytes],
        place: Callable[[int], str],
        parts: list[_Part],
    ) -> None:
        """Parse lines with Arrow, by halves where some of them cannot be parsed so."""
        table = self._parse(lines)
        if table is not None:
            parts.append(self._sound(start, lines, table))
        elif len(lines) > _FEW:
            middle = len(lines) // 2
            self._parse_part(start, lines[:middle], place, parts)
            self._parse_part(start + middle, lines[middle:], place, parts)
        else:
            parts.append(self._line_by_line(start, lines, place))

    def _sound(self, start: int, lines: Sequence[bytes], table: pa.Table) -> _Part:
        arrays = {name: _in_one(table.column(name)) for name in table.column_names}
        self._learn(arrays)
        numbers = np.arange(start, start + len(lines), dtype=np.int64)
        if table.num_rows < len(lines):
            numbers = numbers[[not line.isspace() for line in lines]]
        return _Part(arrays, table.num_rows, numbers)

    def _learn(self, arrays: Mapping[str, pa.Array]) -> None:
        """Settle the types of fields that had no value before; add fields of nested ones."""
        for name, array in arrays.items():
            known = self.types.get(name)
            if known is None or pa.types.is_null(known):
                self.types[name] = array.type
            elif pa.types.is_nested(known) and known != array.type:
                self.types[name] = extended(known, array.type)

    def _joined(self, parts: Sequence[_Part]) -> tuple[pa.RecordBatch, dict[str, list[Any]]]:
        """Return the columns of all parts; event times are null where no part has any."""
        names = dict.fromkeys(name for part in parts for name in part.arrays)
        if self._time is not None:
            names.setdefault(self._time)
        if not names:
            return without_columns(sum(part.length for part in parts)), {}
        columns: dict[str, Values] = {}
        for name in names:
            pieces = [part.column(name) for part in parts]
            joined = joined_exactly(pieces, self.types.get(name, pa.null()))
            if joined is None:
                joined = [v for piece in pieces for v in as_values(piece)]
            columns[name] = joined
        return batch_of(columns)

    def _parse(self, lines: Sequence[bytes]) -> pa.Table | None:
        """Parse lines with Arrow; ``None`` if the result would not be exact."""
        block = b"".join(lines)
        expected = _count_objects(block, lines, self._skips_blank)
        if not expected:
            return None
        if not is_utf8(block):
            return None
        try:
            return self._read(block, expected, self.types)
        except _NOT_FOR_ARROW:
            pass
        # Numbers may be of another width in these lines: Arrow infers it.
        fixed = {
            name: kind
            for name, kind in self.types.items()
            if name in self._given or not has_numbers(kind)
        }
        if len(fixed) == len(self.types):
            return None
        try:
            table = self._read(block, expected, fixed)
        except _NOT_FOR_ARROW:
            return None
        if table is None:
            return None
        found = {field.name: field.type for field in table.schema}
        same = all(
            is_alike(self.types[name], found.get(name, pa.null()))
            for name in self.types
            if name not in fixed
        )
        return table if same else None

    def _read(
        self, block: bytes, expected: int, types: Mapping[str, pa.DataType]
    ) -> pa.Table | None:
        table = self._columns_of(block, types)
        if table.num_rows != expected or not self._is_sound(table.schema):
            return None
        texts = {f.name: kind for f in table.schema if (kind := with_texts(f.type)) != f.type}
        if texts:  # JSON has no times: keep text that Arrow would parse as one
            table = self._columns_of(block, {**types, **texts})
        # Arrow leaves out nulls at the beginning of a list whose type it infers (51305).
        table.validate()
        may_be_rounded = any(is_beyond(column, EXACT) for column in table.columns)
        return None if may_be_rounded and _LONG_INTEGER.search(block) else table

    def _columns_of(self, block: bytes, types: Mapping[str, pa.DataType]) -> pa.Table:
        """Return the fields that are read, of types that are known and others."""
        if self._only is None:
            return _read_json(block, types)
        known = {name: kind for name, kind in types.items() if not pa.types.is_null(kind)}
        if known.keys() >= self._only:  # what else there is need not be looked at
            return _read_json(block, {n: known[n] for n in known if n in self._only}, infer=False)
        table = _read_json(block, types)
        return table.select([name for name in table.column_names if name in self._only])

    def _is_sound(self, schema: pa.Schema) -> bool:
        """Return whether fields have usable names, depths and event times."""
        if any(field.name.startswith(HIDDEN) or is_too_deep(field.type) for field in schema):
            return False
        place = -1 if self._time is None else schema.get_field_index(self._time)
        return place < 0 or is_time(schema.field(place).type, self._fractions)

    def _line_by_line(
        self, start: int, lines: Sequence[bytes], place: Callable[[int], str]
    ) -> _Part:
        objects: list[dict[str, Any]] = []
        numbers: list[int] = []
        letters: list[tuple[int, ErrorRecord]] = []
        decimals = any(map(has_decimals, self.types.values()))
        for number, line in enumerate(lines, start):
            if self._skips_blank and line.isspace():
                continue
            found, failure = object_of(line, decimals=decimals)
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
        if decimals:
            kinds = pa.struct(list(self.types.items()))
            wanted = [plain_floats(row, kinds) for row in wanted]
        columns, wrong = columns_of_objects(
            wanted,
            self.types,
            self._time,
            self._fractions,
            strict=self._given,
            option=self._option,
        )
        for index, detail in wrong.items():
            number = numbers[index]
            letter = ErrorRecord(objects[index], "wrong_type", detail, place(number))
            letters.append((number, letter))
        letters.sort(key=lambda letter: letter[0])
        rows = np.array(numbers, dtype=np.int64)
        arrays = columns
        if wrong:
            kept = [i for i in range(len(objects)) if i not in wrong]
            rows = rows[kept]
            arrays = {name: taken(column, kept) for name, column in columns.items()}
        return _Part(arrays, len(rows), rows, tuple(letter for _, letter in letters))


@final
@dataclass(frozen=True, slots=True)
class _Part:
    """What some of the lines of a block hold.

    Args:
        arrays: The columns: arrays, or lists of values that no Arrow type holds exactly.
        length: How many objects there are.
        lines: Which line of the block each is from, int64.
        letters: Dead letters, in order of line.
    """

    arrays: Mapping[str, Values]
    length: int
    lines: Int64Array
    letters: tuple[ErrorRecord, ...] = ()

    def column(self, name: str) -> Values:
        found = self.arrays.get(name)
        return pa.nulls(self.length) if found is None else found


_NOT_FOR_ARROW = (
    pa.ArrowInvalid,
    pa.ArrowNotImplementedError,
    OverflowError,  # a block of 2 GB
)


def batch_of(columns: Mapping[str, Values]) -> tuple[pa.RecordBatch, dict[str, list[Any]]]:
    """Return columns as a batch, and those that are odd (see :class:`ParsedBlock`)."""
    odd = {name: column for name, column in columns.items() if isinstance(column, list)}
    arrays = {n: pa.nulls(len(c)) if isinstance(c, list) else c for n, c in columns.items()}
    if odd:
        length = len(next(iter(odd.values())))
        arrays[ODD] = pa.array(np.arange(length, dtype=np.int64))
    return pa.RecordBatch.from_pydict(arrays), odd


def without_columns(length: int) -> pa.RecordBatch:
    """Return a batch of so many rows that has no columns."""
    return pa.RecordBatch.from_struct_array(pa.array([{}] * length, pa.struct([])))


def is_utf8(block: bytes) -> bool:
    """Return whether bytes are valid UTF-8; Arrow replaces what is not."""
    try:
        block.decode()
    except UnicodeDecodeError:
        return False
    return True


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


def _read_json(block: bytes, types: Mapping[str, pa.DataType], *, infer: bool = True) -> pa.Table:
    known = {n: with_texts(kind) for n, kind in types.items() if not pa.types.is_null(kind)}
    return pa_json.read_json(
        pa.BufferReader(block),
        # A single block, because Arrow infers the types of each block separately. Threads have
        # nothing to share then, and a file of one line would wait for one.
        read_options=pa_json.ReadOptions(block_size=len(block) + 1, use_threads=False),
        parse_options=pa_json.ParseOptions(
            explicit_schema=pa.schema(list(known.items())),
            unexpected_field_behavior="infer" if infer else "ignore",
        ),
    )


def _in_one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
