"""What the messages of a topic hold: columns out of their values, keys, headers and timestamps.

The file is long because each format fails in its own way, and every message has to become a record
or a dead letter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, final

import numpy as np
import pyarrow as pa

from lowwater.engine.records.batch import Records
from lowwater.engine.records.columns import Column
from lowwater.engine.records.panes import ErrorRecord
from lowwater.errors import DataError, InvalidArgument, describe
from lowwater.io.csv_values import as_csv, cast_rows
from lowwater.io.json_blocks import JsonBlocks, batch_of, with_odd, without_columns
from lowwater.io.json_objects import columns_of_objects
from lowwater.io.settled_types import taken
from lowwater.kernels.positions import repeated
from lowwater.time import Int64Array
from lowwater.watermark.observed import PARTITION

Decoder: TypeAlias = Callable[[bytes], Mapping[str, Any]]
ValueFormat: TypeAlias = Literal["json", "arrow", "bytes"] | Decoder
"""How values are encoded; or a function that returns the record of a value."""

KeyFormat: TypeAlias = Literal["text", "bytes"] | Callable[[bytes], Any]
"""How keys are encoded; or a function that returns what a key means."""

Types: TypeAlias = dict[str, pa.DataType]
_Decoded: TypeAlias = tuple[
    pa.RecordBatch | None, Int64Array, list[tuple[int, ErrorRecord]], Mapping[str, Sequence[Any]]
]

_MILLIS = pa.timestamp("ms", "UTC")
_HEADERS = pa.map_(pa.string(), pa.binary())
_UNFIT = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError)
_NEVER_LONG = 200
"""How many bytes of a value a dead letter shows."""


@final
@dataclass(frozen=True, slots=True)
class MessageColumns:
    """The names of the columns that messages have beside those of their values.

    Args:
        key: The column of keys; ``None`` for none.
        headers: The column of headers, maps of text to bytes; ``None`` for none.
        timestamp: The column of timestamps, milliseconds in UTC; ``None`` for none.
        tombstone: The column, bool, that says whether a message has no value; ``None``: such
            messages are dead letters.

    Raises:
        InvalidArgument: One is no name, or two are the same.
    """

    key: str | None = None
    headers: str | None = None
    timestamp: str | None = None
    tombstone: str | None = None

    def __post_init__(self) -> None:
        for option in ("key", "headers", "timestamp", "tombstone"):
            name = getattr(self, option)
            if name is not None and (not isinstance(name, str) or not name):
                raise InvalidArgument(
                    f"{describe(option, name)} is not the name of a column",
                    hint=f'Name the column to make, as in {option}="{option}"',
                )
        names = self.names()
        for name in names:
            if names.count(name) > 1:
                raise InvalidArgument(
                    f"two columns would be called {name!r}", hint="Give each a name of its own"
                )

    def names(self) -> list[str]:
        """Return the names that are given."""
        every = (self.key, self.headers, self.timestamp, self.tombstone)
        return [name for name in every if name is not None]

    def types(self, key: KeyFormat = "text") -> Types:
        """Return the types of the columns that are named; of a key that a function makes, null."""
        of_keys = pa.null() if callable(key) else pa.binary() if key == "bytes" else pa.string()
        kinds = (of_keys, _HEADERS, _MILLIS, pa.bool_())
        every = (self.key, self.headers, self.timestamp, self.tombstone)
        return {name: kind for name, kind in zip(every, kinds, strict=True) if name is not None}


@final
class MessageDecoder:
    """Converts messages to records; of JSON and Arrow without a step of Python for each.

    Args:
        topic: The topic, for messages.
        value: How values are encoded.
        columns: The other columns.
        time: The column of event times.
        fractions: Whether event times may be floats.
        types: The types of columns so far; extended by what is decoded.
        known: The columns of values that are wanted, and their types; ``None`` for all.
        only: The columns of values that are wanted, of any type; ``None`` for all.
        key: How keys are decoded.
    """

    def __init__(
        self,
        topic: str,
        value: ValueFormat,
        columns: MessageColumns,
        time: str,
        fractions: bool,
        types: Mapping[str, pa.DataType],
        known: Sequence[tuple[str, pa.DataType]] | None,
        only: Sequence[str] | None = None,
        key: KeyFormat = "text",
    ) -> None:
        self._topic = topic
        self._known = None if known is None else pa.schema(list(known))
        self._value = value
        self._columns = columns
        self._fractions = fractions
        # Where messages have the event times, values need not: no column is added for them.
        self._time = None if time in columns.names() else time
        self._given = _given_types(self._known, value)
        wanted = only if self._known is None else self._known.names
        self._only = None if wanted is None else frozenset(wanted)
        self._key = key
        self._keys: dict[int, Any] = {}
        self._json = JsonBlocks(
            self._time,
            fractions,
            skips_blank=False,
            only=self._only,
            given=self._given,
            option="schema",
        )
        self._json.types.update(types or self._given)

    @property
    def types(self) -> Types:
        """The types of the columns of values so far."""
        return self._json.types

    def records(self, messages: Sequence[Any]) -> Records:
        """Return the records of messages, and dead letters of those that are none."""
        if not messages:
            return Records({}, 0)
        values = [message.value() for message in messages]
        empty = np.fromiter((value is None for value in values), np.bool_, len(values))
        letters: list[tuple[int, ErrorRecord]] = []
        if empty.any() and self._columns.tombstone is None:
            letters += [
                (row, self._letter(messages[row], "tombstone", "the message has no value"))
                for row in np.flatnonzero(empty).tolist()
            ]
        full = np.flatnonzero(~empty)
        batch, rows, unreadable, odd = self._decoded(messages, values, full)
        letters += unreadable
        if self._known is not None:
            if batch is not None:
                batch, rows = self._as_given(batch, rows, messages, self._known, letters)
            # No value may widen what was given.
            self.types.clear()
            self.types.update(self._given)
        if self._columns.tombstone is not None and empty.any():
            batch, rows = _with_tombstones(batch, rows, np.flatnonzero(empty))
        if batch is None or not len(rows):
            return Records({}, 0, self._topic, unreadable=_in_order(letters))
        batch, rows = self._with_columns(batch, rows, messages, empty, letters)
        if not batch.num_rows:
            return Records({}, 0, self._topic, unreadable=_in_order(letters))
        numbers = np.fromiter((one.partition() for one in messages), np.int64, len(messages))
        if len(rows) > len(messages):
            # Otherwise the first bundles may have one partition only, which makes the others late.
            order = _in_turn(numbers[rows])
            batch, rows = batch.take(pa.array(order)), rows[order]
        placed = batch.append_column(PARTITION, pa.array(numbers[rows]))

        def place_of(row: int) -> str:
            return _place(messages[row])

        records = with_odd(Records.from_arrow(placed, self._topic), odd)
        if self._columns.key is not None and callable(self._key):
            made = Column.of_objects([self._keys[row] for row in rows.tolist()])
            records = records.replaced({**records.columns, self._columns.key: made})
            self._keys = {}
        return replace(records, row_numbers=rows, place_of=place_of, unreadable=_in_order(letters))

    def _decoded(
        self, messages: Sequence[Any], values: Sequence[Any], full: Int64Array
    ) -> _Decoded:
        """Return the columns of values, the message that each row is from, and dead letters.

        The last are odd columns (see ``ParsedBlock``).
        """
        if not len(full):
            return None, full, [], {}
        every = len(full) == len(values)
        given = list(values) if every else [values[row] for row in full.tolist()]
        if self._value == "bytes":
            column = pa.array(given, type=pa.binary())
            return pa.RecordBatch.from_arrays([column], ["value"]), full, [], {}
        if self._value == "arrow":
            return *self._of_arrow(messages, given, full), {}
        if callable(self._value):
            return self._of_decoder(self._value, messages, given, full)
        found = self._json.parse(
            [value + b"\n" for value in given], lambda number: _place(messages[full[number]])
        )
        rows = full if found.lines is None else full[found.lines]
        if found.batch is None:
            rows = full[:0]
        return found.batch, rows, [(0, letter) for letter in found.letters], found.odd

    def _of_arrow(
        self, messages: Sequence[Any], values: Sequence[bytes], full: Int64Array
    ) -> tuple[pa.RecordBatch | None, Int64Array, list[tuple[int, ErrorRecord]]]:
        """Decode values that are Arrow streams, each with any number of rows."""
        found: list[tuple[int, pa.Table]] = []
        letters: list[tuple[int, ErrorRecord]] = []
        common = pa.schema([] if self._known is not None else list(self.types.items()))
        for row, value in zip(full.tolist(), values, strict=True):
            try:
                with pa.ipc.open_stream(value) as stream:
                    table = stream.read_all()
                table.validate(full=True)  # otherwise corrupt offsets end the process later
                table = _without_twins(table).replace_schema_metadata(None)
                if self._only is not None:
                    table = table.select([n for n in table.column_names if n in self._only])
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
                detail = f"the value is not an Arrow stream: {error}"
                letters.append((row, self._letter(messages[row], "malformed_arrow", detail)))
                continue
            if self._known is None and table.schema != common:
                try:
                    common = _in_common(common, table.schema)
                except _UNFIT as error:
                    detail = f"its columns have other types than those before: {error}"
                    letters.append((row, self._letter(messages[row], "wrong_type", detail)))
                    continue
            found.append((row, table))
        tables, rows = [], []
        for row, table in found:
            (batch,) = table.combine_chunks().to_batches() or [_no_rows(table.schema)]
            numbers = np.full(table.num_rows, row, dtype=np.int64)
            wanted = common if self._known is None else self._known
            batch, numbers = self._as_given(batch, numbers, messages, wanted, letters)
            tables.append(pa.Table.from_batches([batch]))
            rows.append(numbers)
        if self._known is None:
            self.types.update((field.name, field.type) for field in common)
        if not tables:
            return None, full[:0], letters
        batches = pa.concat_tables(tables).combine_chunks().to_batches()
        batch = batches[0] if batches else None
        return batch, np.concatenate(rows), letters

    def _of_decoder(
        self, decoder: Decoder, messages: Sequence[Any], values: Sequence[bytes], full: Int64Array
    ) -> _Decoded:
        objects: list[Mapping[str, Any]] = []
        rows: list[int] = []
        letters: list[tuple[int, ErrorRecord]] = []
        for row, value in zip(full.tolist(), values, strict=True):
            try:
                found = decoder(value)
            except Exception as error:  # a poison message must not stop the others
                detail = f"the decoder raised {type(error).__name__}: {error}"
                letters.append((row, self._letter(messages[row], "undecodable", detail)))
                continue
            if not isinstance(found, Mapping) or not all(isinstance(name, str) for name in found):
                detail = f"the decoder returned {type(found).__name__}, not a mapping by name"
                letters.append((row, self._letter(messages[row], "undecodable", detail)))
                continue
            if self._only is not None:
                found = {name: value for name, value in found.items() if name in self._only}
            objects.append(found)
            rows.append(row)
        columns, wrong = columns_of_objects(
            objects,
            self.types,
            self._time,
            self._fractions,
            strict=self._given,
            option="schema",
        )
        for index, detail in wrong.items():
            letters.append((rows[index], self._letter(messages[rows[index]], "wrong_type", detail)))
        kept = [index for index in range(len(objects)) if index not in wrong]
        if not kept or not columns:
            return None, full[:0], letters, {}
        batch, odd = batch_of({name: taken(column, kept) for name, column in columns.items()})
        return batch, np.array(rows, dtype=np.int64)[kept], letters, odd

    def _as_given(
        self,
        batch: pa.RecordBatch,
        rows: Int64Array,
        messages: Sequence[Any],
        wanted: pa.Schema,
        letters: list[tuple[int, ErrorRecord]],
    ) -> tuple[pa.RecordBatch, Int64Array]:
        """Return the columns that are wanted, of their types; a missing one is null.

        A row with a value that cannot be of its type becomes a dead letter.
        """
        if batch.schema == wanted:
            return batch, rows
        if not len(wanted):
            return without_columns(batch.num_rows), rows
        wrong: dict[int, str] = {}
        arrays = []
        for field in wanted:
            at = batch.schema.get_field_index(field.name)
            if at < 0:
                arrays.append(pa.nulls(batch.num_rows, field.type))
            else:
                arrays.append(_cast(batch.column(at), field, wrong))
        batch = pa.RecordBatch.from_arrays(arrays, schema=wanted)
        if wrong:
            for at, detail in wrong.items():
                row = int(rows[at])
                letters.append((row, self._letter(messages[row], "wrong_type", detail)))
            kept = np.setdiff1d(np.arange(len(rows)), list(wrong))
            batch, rows = batch.take(pa.array(kept, pa.int64())), rows[kept]
        return batch, rows

    def _with_columns(
        self,
        batch: pa.RecordBatch,
        rows: Int64Array,
        messages: Sequence[Any],
        empty: np.ndarray[Any, np.dtype[np.bool_]],
        letters: list[tuple[int, ErrorRecord]],
    ) -> tuple[pa.RecordBatch, Int64Array]:
        """Add the columns that messages have beside their values."""
        columns = self._columns
        clash = [name for name in columns.names() if name in batch.schema.names]
        if clash:
            raise DataError(
                f"the values have a field {clash[0]!r}, as the messages' own column is called",
                where=f"the topic {self._topic!r}",
                hint=f"Give another name for it than {clash[0]!r} to read_kafka",
            )
        every = rows.tolist()
        if columns.key is not None:
            keys, bad = self._keys_of([messages[row].key() for row in every], every)
            if bad:
                for at, detail in bad.items():
                    letter = self._letter(messages[every[at]], "malformed_key", detail)
                    letters.append((every[at], letter))
                kept = np.setdiff1d(np.arange(len(rows)), list(bad))
                batch, rows = batch.take(pa.array(kept)), rows[kept]
                keys = keys.take(pa.array(kept))
                every = rows.tolist()
            batch = batch.append_column(columns.key, keys)
        if columns.headers is not None:
            found = [
                [(name, _as_bytes(value)) for name, value in messages[row].headers() or ()]
                for row in every
            ]
            batch = batch.append_column(columns.headers, pa.array(found, type=_HEADERS))
        if columns.timestamp is not None:
            millis = [_millis(messages[row]) for row in every]
            batch = batch.append_column(columns.timestamp, pa.array(millis, type=_MILLIS))
        if columns.tombstone is not None:
            batch = batch.append_column(columns.tombstone, pa.array(empty[rows]))
        return batch, rows

    def _keys_of(
        self, keys: list[bytes | None], rows: list[int]
    ) -> tuple[pa.Array, dict[int, str]]:
        """Return keys as a column, and what is wrong with others.

        What a function returns is kept by the row, as an Arrow type may not hold all of it.
        """
        if self._key == "bytes":
            return pa.array(keys, type=pa.binary()), {}
        if not callable(self._key):
            texts, bad = _texts(keys)
            return texts, dict.fromkeys(bad, "the key is not UTF-8 text")
        wrong: dict[int, str] = {}
        self._keys = {}
        for at, (key, row) in enumerate(zip(keys, rows, strict=True)):
            try:
                self._keys[row] = None if key is None else self._key(key)
            except MemoryError:
                raise
            except Exception as error:  # a poison message must not stop the others
                wrong[at] = f"key_format= raised {type(error).__name__}: {error}"
        return pa.nulls(len(keys)), wrong

    def _letter(self, message: Any, reason: str, detail: str) -> ErrorRecord:
        value = message.value()
        shown = None if value is None else value[:_NEVER_LONG].decode(errors="replace")
        key = message.key()
        record = {"key": None if key is None else key.decode(errors="replace"), "value": shown}
        return ErrorRecord(record, reason, detail, _place(message))


def checked_value(value: object) -> ValueFormat:
    """Return how values are encoded.

    Raises:
        InvalidArgument: It is no such thing.
    """
    if value in ("json", "arrow", "bytes") or (callable(value) and not isinstance(value, type)):
        return value
    raise InvalidArgument(
        f"{describe('value', value)} does not say how values are encoded",
        hint='Use "json", "arrow", "bytes", or a function of the bytes that returns a mapping',
    )


def checked_key(key: object) -> KeyFormat:
    """Return how keys are encoded.

    Raises:
        InvalidArgument: It is no such thing.
    """
    if key in ("text", "bytes") or (callable(key) and not isinstance(key, type)):
        return key
    raise InvalidArgument(
        f"{describe('key_format', key)} does not say how keys are encoded",
        hint='Use "text", "bytes", or a function of the bytes',
    )


def _place(message: Any) -> str:
    return f"{message.topic()}/{message.partition()}, offset {message.offset()}"


def _in_turn(partitions: Int64Array) -> Int64Array:
    """Return the order in which each partition has a row in turn, and its rows stay in order.

    >>> _in_turn(np.array([0, 0, 0, 1, 1]))
    array([0, 3, 1, 4, 2])
    """
    order = np.argsort(partitions, kind="stable")
    _, starts, counts = np.unique(partitions[order], return_index=True, return_counts=True)
    turns = np.arange(len(order)) - repeated(starts, counts)
    found: Int64Array = order[np.argsort(turns, kind="stable")]
    return found


def _in_order(letters: list[tuple[int, ErrorRecord]]) -> tuple[ErrorRecord, ...]:
    return tuple(letter for _, letter in sorted(letters, key=lambda one: one[0]))


def _given_types(known: pa.Schema | None, value: ValueFormat) -> Types:
    """Return the types that values are decoded to, before they become those that were given.

    JSON has dates and times as text.
    """
    types: Types = {} if known is None else {field.name: field.type for field in known}
    if value != "json":
        return types
    kinds = (pa.types.is_timestamp, pa.types.is_date, pa.types.is_time)
    return {
        name: pa.string() if any(is_one(kind) for is_one in kinds) else kind
        for name, kind in types.items()
    }


def _without_twins(table: pa.Table) -> pa.Table:
    """Return a table, if each of its columns has a name of its own.

    Raises:
        ArrowInvalid: Two have the same.
    """
    names = table.column_names
    for name in names:
        if names.count(name) > 1:
            raise pa.ArrowInvalid(f"two columns are called {name!r}")
    return table


def _in_common(one: pa.Schema, other: pa.Schema) -> pa.Schema:
    """Return a schema that has the columns of both.

    Raises:
        ArrowException: A column has types that have none in common.
    """
    try:
        return pa.unify_schemas([one, other], promote_options="permissive")
    except _UNFIT:
        return pa.unify_schemas([_plain(one), _plain(other)], promote_options="permissive")


def _plain(schema: pa.Schema) -> pa.Schema:
    """Return a schema without dictionaries."""
    return pa.schema(
        (field.name, field.type.value_type if pa.types.is_dictionary(field.type) else field.type)
        for field in schema
    )


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def _cast(column: pa.Array, field: pa.Field, wrong: dict[int, str], first: int = 0) -> pa.Array:
    """Return a column as another type; note rows whose value cannot be of it, which are null.

    Args:
        column: The column, or a part of it.
        field: The name and the type.
        wrong: What is wrong, by row; extended.
        first: The row at which the part begins.
    """
    if pa.types.is_time(field.type) and pa.types.is_string(column.type):  # which have no cast
        made, bad = cast_rows(column, field.type, as_csv)
        for row in bad.tolist():
            wrong.setdefault(row, f"{field.name}={column[row].as_py()!r} is not {field.type}")
        return made
    try:
        return column.cast(field.type)
    except _UNFIT:
        pass
    if len(column) == 1:
        wrong.setdefault(first, f"{field.name}={column[0].as_py()!r} is not {field.type}")
        return pa.nulls(1, field.type)
    half = len(column) // 2
    parts = ((column[:half], first), (column[half:], first + half))
    return pa.concat_arrays([_cast(part, field, wrong, at) for part, at in parts])


def _with_tombstones(
    batch: pa.RecordBatch | None, rows: Int64Array, empty: Int64Array
) -> tuple[pa.RecordBatch, Int64Array]:
    """Return a batch with rows of nulls for messages without a value, in order of message."""
    every = np.concatenate([rows, empty])
    order = np.argsort(every, kind="stable")
    if batch is None or not batch.num_columns:
        return without_columns(len(every)), every[order]
    nulls = pa.RecordBatch.from_arrays(
        [pa.nulls(len(empty), field.type) for field in batch.schema], schema=batch.schema
    )
    whole = pa.concat_batches([batch, nulls])
    return whole.take(pa.array(order)), every[order]


def _texts(keys: list[bytes | None]) -> tuple[pa.Array, list[int]]:
    """Return keys as text, null where there is none, and which are no text."""
    array = pa.array(keys, type=pa.binary())
    try:
        return array.cast(pa.string()), []
    except pa.ArrowInvalid:
        pass
    bad = []
    for at, key in enumerate(keys):
        try:
            (key or b"").decode()
        except UnicodeDecodeError:
            bad.append(at)
    wrong = set(bad)
    sound = [None if at in wrong else key for at, key in enumerate(keys)]
    return pa.array(sound, type=pa.binary()).cast(pa.string()), bad


def _millis(message: Any) -> int | None:
    kind, millis = message.timestamp()
    return millis if kind else None


def _as_bytes(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
