"""The readers, where streams begin: ``lw.read_parquet``, ``lw.from_iterable`` and the others.

The file is long because it is what users read of them: their options, and what these mean.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack, cast, overload

import pyarrow as pa

from lowwater.engine.graph.clocks import Arrival, ArrivalClock
from lowwater.engine.graph.sources import Source
from lowwater.engine.records.admit_times import FRACTIONAL, TimeUnit
from lowwater.engine.records.batch import HIDDEN
from lowwater.errors import InvalidArgument, describe, load_extra
from lowwater.io.in_memory import IterableSource, arrow_source, pandas_source
from lowwater.io.paths import PathsLike
from lowwater.pipeline.fluent import KeyedStream, Stream
from lowwater.pipeline.record_steps import Key
from lowwater.pipeline.runnable import Runnable
from lowwater.pipeline.source_options import (
    FileOptions,
    SourceOptions,
    files_of,
    follow_of,
    stream_of,
    with_options,
)
from lowwater.time import DurationLike
from lowwater.watermark import BoundedDisorder, WatermarkEstimator

if TYPE_CHECKING:
    import pandas as pd

    from lowwater.io.kafka.bounds import KafkaEnd, KafkaStart
    from lowwater.io.kafka.message_values import KeyFormat, ValueFormat
    from lowwater.io.log.values import Start
    from lowwater.io.postgres_changes.options import Truncates
    from lowwater.spark.signals import CarriedTime

FieldOf: TypeAlias = str | Callable[[Any], Any]

_TIME = HIDDEN + "time"
_KEY = HIDDEN + "key"


@overload
def from_iterable(
    items: Iterable[Any],
    *,
    time: FieldOf | Arrival,
    key: None = None,
    **options: Unpack[SourceOptions],
) -> Stream: ...


@overload
def from_iterable(
    items: Iterable[Any],
    *,
    time: FieldOf | Arrival,
    key: FieldOf | tuple[str, ...],
    **options: Unpack[SourceOptions],
) -> KeyedStream: ...


@with_options(SourceOptions)
def from_iterable(
    items: Iterable[Any],
    *,
    time: FieldOf | Arrival,
    key: FieldOf | tuple[str, ...] | None = None,
    **options: Unpack[SourceOptions],
) -> Stream | KeyedStream:
    """Read a Python iterable; elements are taken as the pipeline needs them.

    Mappings, dataclasses and named tuples have a column per field; anything else is a column
    ``value``.

    Args:
        items: The elements. A generator can be read only once.
        time: The field that holds the event time, a function of an element, or
            :func:`arrival` for the clock.
        key: The field that holds the key, a function of an element, or a tuple of fields; with it
            the returned stream is already keyed.

    >>> import lowwater as lw
    >>> rides = [{"at": "2000-01-01T12:00:26Z", "team": "A", "points": 5}]
    >>> pipeline = (
    ...     lw.from_iterable(rides, time="at", key="team")
    ...     .window(lw.FixedWindows("2m"))
    ...     .aggregate(points=lw.sum("points"))
    ... )
    >>> [(pane.key, pane.value) for pane in pipeline.run()]
    [('A', 5)]
    """
    if not isinstance(items, Iterable) or isinstance(items, (str, bytes, Mapping)):
        raise InvalidArgument(
            f"{describe('items', items)} is not an iterable of elements", hint=_items_hint(items)
        )
    if hasattr(items, "__arrow_c_stream__") and hasattr(items, "columns"):
        raise InvalidArgument(
            f"items= is a {type(items).__name__}, whose elements are columns and not records",
            where="from_iterable",
            hint="Use from_frame",
        )
    computed: dict[str, Callable[[Any], Any]] = {}
    if callable(time):
        computed[_TIME] = time
    if callable(key):
        computed[_KEY] = key
    source = IterableSource(items, computed)
    time_column = _TIME if callable(time) else time
    stream = stream_of(source, time_column, options)
    if key is None:
        return stream
    if callable(key):
        return stream._keyed(stream, (_KEY,), ("key",))
    names: tuple[Key, ...] = key if isinstance(key, tuple) else (key,)
    return stream.key_by(*names)


@with_options(SourceOptions)
def from_arrow(
    data: Any,
    *,
    time: str | Arrival,
    **options: Unpack[SourceOptions],
) -> Stream:
    """Read an Arrow table, batch or reader, or an object that exports Arrow data.

    Args:
        data: The data. A reader can be read only once.
        time: The column of event times, or :func:`arrival` for the clock.
    """
    return stream_of(arrow_source(data), time, options)


@with_options(SourceOptions)
def from_frame(
    frame: Any,
    *,
    time: str | Arrival,
    **options: Unpack[SourceOptions],
) -> Stream:
    """Read a DataFrame of pandas, polars, pyarrow, DuckDB or any other library narwhals knows.

    pandas DataFrames are read as by :func:`from_pandas`. Each run collects a lazy frame again:
    those of polars (1.34 and later) and DuckDB in batches, so that they need not fit into memory,
    and others as a whole. Spark DataFrames have their own reader, :func:`from_spark`.

    Args:
        frame: The data, eager or lazy; or an object that exports Arrow data
            (``__arrow_c_stream__``), such as a :class:`lowwater.Result`.
        time: The column of event times, or :func:`arrival` for the clock.

    Raises:
        InvalidArgument: The value is not a DataFrame.
        DataError: A lazy frame could not be collected.
    """
    if isinstance(frame, Runnable):
        raise InvalidArgument(
            "frame= is a pipeline that has not run",
            where="from_frame",
            hint='Its output is a stream already: pipeline.key_by("..."); or read what it emitted, '
            "pipeline.collect()",
        )
    from lowwater.io.frames import frame_source

    return stream_of(frame_source(frame, _column(time)), time, options)


@with_options(SourceOptions)
def from_pandas(
    frame: pd.DataFrame,
    *,
    time: str | Arrival,
    **options: Unpack[SourceOptions],
) -> Stream:
    """Read a pandas DataFrame; missing values, including NaN, become nulls.

    Args:
        frame: The data; named index levels become columns.
        time: The column of event times, or :func:`arrival` for the clock.
    """
    return stream_of(pandas_source(frame, _column(time)), time, options)


@with_options(SourceOptions)
def from_source(
    source: Source,
    *,
    time: str | Arrival,
    **options: Unpack[SourceOptions],
) -> Stream:
    """Read a source of your own.

    Args:
        source: An object with ``schema`` and ``batches`` (:class:`lowwater.Source`). Durable runs
            also need ``batches_from`` (:class:`lowwater.ReplayableSource`).
        time: The column of event times, or :func:`arrival` for the clock.
    """
    if isinstance(source, type) or not isinstance(source, Source):
        raise InvalidArgument(
            f"{describe('source', source)} is not a source",
            hint="Give an object with schema and batches(size, keys), which yields lw.Records",
        )
    return stream_of(source, time, options)


@with_options(FileOptions)
def read_parquet(
    paths: PathsLike,
    *,
    time: str | Arrival,
    columns: Iterable[str] | None = None,
    **options: Unpack[FileOptions],
) -> Stream:
    """Read Parquet files, in batches.

    A column that a file lacks and others have is null in its records. ``year=2024`` in the path of
    a file is a column, below the folder or the fixed part of the glob that is read: of integers if
    all of them are, and otherwise of text. So it is for all readers of files.

    Args:
        paths: Files, folders and globs, as paths or URIs (``s3://bucket/folder``); the files of
            each are read in sorted order.
        time: The column of event times, or :func:`arrival` for the clock.
        columns: The columns to read in addition to ``time``; all by default. Late elements and dead
            letters contain the columns that were read.
    """
    files = files_of(paths, options)
    chosen = _chosen(columns, time, options)
    from lowwater.io.parquet import ParquetSource

    source = ParquetSource(files.paths, chosen, follow_of(files, options), files.stores)
    return stream_of(source, time, options, FileOptions)


@with_options(FileOptions)
def read_csv(
    paths: PathsLike,
    *,
    time: str | Arrival,
    types: Mapping[str, Any] | None = None,
    delimiter: str = ",",
    columns: Iterable[str] | None = None,
    **options: Unpack[FileOptions],
) -> Stream:
    """Read CSV files with a header, in batches.

    A column's type is what its first values look like; one without any value is settled by the
    first that comes. Numbers are of one type, and none is rounded: an integer stays exact beside
    fractions and up to 2**64 - 1. Where nine texts of ten are numbers, the others are wrong. An
    unquoted empty field is null, and in columns that are not of text a word such as ``NA``,
    ``null`` or ``nan`` too. Rows of the wrong length, and rows with a value that is not of its
    column's type, become dead letters. Files may be compressed with gzip.

    Args:
        paths: Files, folders and globs, as paths or URIs (``s3://bucket/folder``); the files of
            each are read in sorted order.
        time: The column of event times: ISO-8601 text or integers of microseconds, whichever most
            of the first are; other numbers with ``unit=``.
        types: Types by column, such as ``{"delay": "float64"}``; other types are inferred. They are
            strict: a fraction is no ``int64``.
        delimiter: The character that separates fields.
        columns: The columns to read in addition to ``time``; all by default. Others may hold
            anything, but a row of another length is malformed all the same.
    """
    if not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '\r\n"':
        raise InvalidArgument(
            f"{describe('delimiter', delimiter)} is not one character",
            hint='Use, say, ";" or "\\t"',
        )
    from lowwater.io.csv_values import can_be

    named = {name: _arrow_type(name, arrow_type) for name, arrow_type in (types or {}).items()}
    for name, kind in named.items():
        if not can_be(kind):
            raise InvalidArgument(
                f"types= cannot say that {name!r} is {kind}: no field of CSV is read as that",
                where="read_csv",
                hint='Use, say, "int64", "float64", "string", "bool" or "timestamp[us]"',
            )
    files = files_of(paths, options)
    following = follow_of(files, options)
    fractions = options.get("unit") in FRACTIONAL
    from lowwater.io.csv import CsvSource

    source = CsvSource(
        files.paths, named, _column(time), delimiter, following, fractions, files.stores,
        _chosen(columns, time, options),
    )  # fmt: skip
    try:
        return stream_of(source, time, options, FileOptions)
    except InvalidArgument:
        _check_delimiter(replace(source, columns=None).schema, delimiter)
        raise


@with_options(FileOptions)
def read_jsonl(
    paths: PathsLike,
    *,
    time: str | Arrival,
    types: Mapping[str, Any] | None = None,
    columns: Iterable[str] | None = None,
    **options: Unpack[FileOptions],
) -> Stream:
    """Read files with one JSON object per line, in batches.

    A line that cannot be read becomes a dead letter that names the file and the line, and so does
    one with a value of another type than most of the first 4,096 lines have in that field; a field
    that is null in all of these is settled by its first value. Numbers are of one type, and none is
    rounded: an integer stays exact beside fractions. Times are text, inside of objects too. Files
    may be compressed with gzip.

    Args:
        paths: Files, folders and globs, as paths or URIs (``s3://bucket/folder``); the files of
            each are read in sorted order.
        time: The field of event times: ISO-8601 text or integers of microseconds; other numbers
            with ``unit=``.
        types: Types by field, such as ``{"price": "float64"}`` or ``{"price": pa.decimal128(9,
            2)}``: of numbers, text and bools, and lists and structs of them. They are strict: a
            fraction is no ``int64``.
        columns: The fields to read in addition to ``time``; all by default. Others may hold
            anything.

    Raises:
        InvalidArgument: An option is invalid, or JSON has no values of a type.
    """
    from lowwater.io.settled_types import is_of_json

    files = files_of(paths, options)
    fractions = options.get("unit") in FRACTIONAL
    following = follow_of(files, options)
    named = {name: _arrow_type(name, arrow_type) for name, arrow_type in (types or {}).items()}
    for name, kind in named.items():
        if name == time:
            raise InvalidArgument(
                f"types= cannot say that {name!r} is {kind}: it is the event time",
                where="read_jsonl",
                hint="Leave it out: unit= and timezone= say how times are written",
            )
        if not is_of_json(kind):
            raise InvalidArgument(
                f"types= cannot say that {name!r} is {kind}: JSON has no such values",
                where="read_jsonl",
                hint=f"Read it as text, and convert it: with_columns({name}=lw.col({name!r})...)",
            )
    from lowwater.io.jsonl import JsonLinesSource

    source = JsonLinesSource(
        files.paths, _column(time), following, fractions, files.stores,
        _chosen(columns, time, options), named,
    )  # fmt: skip
    return stream_of(source, time, options, FileOptions)


@with_options(SourceOptions)
def read_log(
    path: str | os.PathLike[str],
    *,
    time: str | Arrival,
    start: Start = "earliest",
    follow: bool = False,
    partitions: int | Iterable[int] | None = None,
    **options: Unpack[SourceOptions],
) -> Stream:
    """Read a log that :class:`lowwater.io.Log` writes, in the order of its appends.

    Args:
        path: The log's folder.
        time: The column of event times, or :func:`arrival` for the clock.
        start: Where to begin: ``"earliest"``, ``"latest"``, an offset, a time of append (an
            ``Instant``, an aware ``datetime`` or ISO-8601 text), or the position of a reader.
        follow: Whether to also read records appended during the run; such a run does not end.
        partitions: The number of a partition, or several; all by default.
    """
    from lowwater.io.log.layout import Layout
    from lowwater.io.log.source import LogSource
    from lowwater.io.log.values import as_time

    numbers = Layout.require(path).numbers(partitions)
    if not isinstance(start, dict):
        as_time(start)
    source = LogSource(os.fspath(path), start, follow, numbers)
    return stream_of(source, time, options)


@with_options(SourceOptions)
def read_kafka(
    servers: str | Sequence[str],
    topic: str,
    *,
    time: str | Arrival,
    value: ValueFormat = "json",
    schema: Mapping[str, Any] | None = None,
    columns: Iterable[str] | None = None,
    key: str | None = None,
    key_format: KeyFormat = "text",
    headers: str | None = None,
    timestamp: str | None = None,
    tombstone: str | None = None,
    start: KafkaStart = "earliest",
    end: KafkaEnd = "never",
    group: str | None = None,
    config: Mapping[str, Any] | None = None,
    **options: Unpack[SourceOptions],
) -> Stream:
    """Read a topic of Kafka, all its partitions, with positions in the state of the run.

    Only what was committed by its producers is read (``read_committed``). The run reads each
    partition at its own offsets, which its state directory holds; no consumer group shares them
    out. Partitions that are added to the topic are read within half a minute. A message that
    cannot be read becomes a dead letter that names partition and offset. While the brokers cannot
    be reached, the run waits.

    Use ``watermark=lw.PerPartition(...)``: disorder between partitions is what a topic has, and
    the source gives each record's partition. ``idle_after=`` of it keeps a silent partition from
    holding the watermark.

    Needs ``pip install "lowwater[kafka]"``.

    Args:
        servers: The brokers, such as ``"localhost:9092"``.
        topic: The topic.
        time: The column of event times: a field of the values, or the column of ``timestamp=``.
        value: ``"json"``: an object in each message. ``"arrow"``: an Arrow stream in each, of any
            number of rows. ``"bytes"``: a column ``value``. Or a function that takes the bytes of
            a message and returns a mapping; what it raises makes the message a dead letter.
        schema: The columns of the values that are wanted, and their types, as
            ``{"user": "string", "amount": "float64"}``; whatever else messages hold is passed
            over. Dates and times are ISO-8601 text in JSON. Joins and ``select`` by name need it
            where no step names the columns. By default all columns, as the messages show them.
        columns: The columns of the values that are wanted, of whatever types they are; all by
            default. Others may hold anything.
        key: The name of a column for the messages' keys.
        key_format: ``"text"``, in UTF-8; ``"bytes"``; or a function that takes the bytes of a key
            and returns what it means, such as ``lambda key: int.from_bytes(key, "big")``; what it
            raises makes the message a dead letter.
        headers: The name of a column for their headers (lists of pairs of a name and bytes).
        timestamp: The name of a column for their timestamps (milliseconds, UTC).
        tombstone: The name of a column that says whether a message has no value; all columns of
            the values are null then, so ``time`` must be the column of ``timestamp=``. For
            ``stream.table(key=..., deleted=lw.col(tombstone))``. By default messages without a
            value are dead letters.
        start: Where a run without stored positions begins: ``"earliest"``, ``"latest"``, the time
            of the first message (an ``Instant``, an aware ``datetime`` or ISO-8601 text), or
            offsets by partition, such as ``{0: 120, 1: 95}``; partitions that are left out begin
            at their earliest.
        end: Where the input ends: ``"never"``; ``"latest"``, with what is there when the run
            starts; before the first message at or after a time (if that has passed, a partition
            without such a message ends where it ends now); or before offsets by partition.
        group: A consumer group whose offsets follow the commits of a run with a state directory,
            for other tools to see. They are never ahead of the state. By default none.
        config: Further settings of the client library (librdkafka), such as those of security.

    Raises:
        InvalidArgument: An option is invalid, or the client library is not installed.
    """
    from lowwater.io.kafka.bounds import bound_of
    from lowwater.io.kafka.client import checked_config, checked_servers, checked_topic, client
    from lowwater.io.kafka.message_values import MessageColumns, checked_key, checked_value
    from lowwater.io.kafka.topic_source import KafkaSource

    client()
    own = MessageColumns(key, headers, timestamp, tombstone)
    if tombstone is not None and time != timestamp:
        raise InvalidArgument(
            "tombstone= keeps messages without a value, and those have no event time of their own",
            where="read_kafka",
            hint='Go by the timestamps of messages: timestamp="at", time="at"',
        )
    if group is not None and (not isinstance(group, str) or not group):
        raise InvalidArgument(
            f"{describe('group', group)} is not the name of a consumer group",
            hint='Use a name such as "billing"',
        )
    known: tuple[tuple[str, pa.DataType], ...] | None = None
    if value == "bytes":
        known = (("value", pa.binary()),)
    if schema is not None:
        if value == "bytes" or not isinstance(schema, Mapping) or not schema:
            raise InvalidArgument(
                f"{describe('schema', schema)} does not fit value={value!r}",
                hint='Use a dict such as {"user": "string"} with JSON, Arrow or a function',
            )
        known = tuple(
            (name, _arrow_type(name, column_type, "schema")) for name, column_type in schema.items()
        )
    if columns is not None and (value == "bytes" or schema is not None):
        raise InvalidArgument(
            "columns= picks columns of values that schema= or value='bytes' does not name already",
            where="read_kafka",
            hint="Give schema= or columns=, not both",
        )
    chosen = _chosen(columns, time, options)
    only = None if chosen is None else tuple(n for n in chosen if n not in own.names())
    source = KafkaSource(
        checked_servers(servers), checked_topic(topic), checked_value(value), own, _column(time),
        known,
        group, bound_of("start", start, ("earliest", "latest")),
        bound_of("end", end, ("never", "latest")), checked_config(config),
        options.get("unit") in FRACTIONAL, only,
        None if checked_key(key_format) == "text" else key_format,
    )  # fmt: skip
    return stream_of(source, time, options)


@with_options(SourceOptions)
def read_postgres_changes(
    dsn: str,
    table: str,
    *,
    publication: str,
    slot: str,
    time: str | Arrival = "committed_at",
    snapshot: bool = True,
    columns: Iterable[str] | None = None,
    types: Mapping[str, Any] | None = None,
    truncate: Truncates = "error",
    end: str = "never",
    **options: Unpack[SourceOptions],
) -> Stream:
    """Read the rows of a table in PostgreSQL, and then its changes, by logical decoding.

    ``lw.debezium(stream, key=...)`` makes a table of it that follows the other. A record has the
    columns ``op`` (``"r"``: a row that was there; ``"c"``, ``"u"``, ``"d"``: inserted, updated,
    deleted), ``before`` and ``after`` (rows as structs), ``lsn`` (where its transaction was
    committed), ``xid`` and ``committed_at``. A row that was there has the time of the snapshot.

    Rows are read as of the instant at which the slot begins, so nothing is missed or comes twice.
    A transaction of at most ``bundle_size`` changes is never split by a commit of the run; an
    update that comes with the row before it counts twice.

    The slot, which a run with a state directory creates, keeps what the run has not committed. A
    run without one uses a temporary slot. Needs PostgreSQL 15 or later with ``wal_level =
    logical``, a user with the attribute REPLICATION, two free replication slots, and
    ``pip install "lowwater[postgres]"``.

    Args:
        dsn: How to connect, as ``"host=db dbname=shop"`` or ``"postgresql://db/shop"``. It is not
            shown in errors, as it may hold a password.
        table: The table's name, or ``"schema.name"``.
        publication: The publication that the table is in: ``CREATE PUBLICATION ... FOR TABLE``.
        slot: The name of the replication slot; each run has its own.
        time: The column of event times, or :func:`arrival` for the clock.
        snapshot: Whether the rows come first; otherwise only changes from the slot's start on.
        columns: The columns to read; other ones may then come and go. By default all, and a new
            column is an error.
        types: Types by column, where they are not to follow the table's: ``{"price": "string"}``.
        truncate: ``"error"``, or ``"record"``: a record with the ``op`` ``"t"``.
        end: Where the input ends: ``"never"``; ``"latest"``, with what is committed when the run
            starts; or a position in the write-ahead log such as ``"0/1717028"``.

    Raises:
        InvalidArgument: An option is invalid, or the client library is not installed.
        DataError: The server, the table or the publication does not allow it.
    """
    given = {name: _arrow_type(name, column_type) for name, column_type in (types or {}).items()}
    from lowwater.io.postgres_changes.options import changes_of

    source = changes_of(
        dsn, table, publication=publication, slot=slot, snapshot=snapshot, columns=columns,
        types=given, truncate=truncate, end=end,
    )  # fmt: skip
    return stream_of(source, time, options)


def from_spark(
    df: Any,
    *,
    time: str | Arrival,
    watermark: DurationLike | WatermarkEstimator | CarriedTime | None = None,
    timezone: str | None = None,
    unit: TimeUnit | None = None,
) -> Stream:
    """Read a Spark DataFrame, streaming or static; run the pipeline with ``to_spark(spark)``.

    Args:
        df: The DataFrame. A watermark of its own (``withWatermark``) is ignored.
        time: The column of event times, or :func:`arrival` for the clock.
        watermark: Estimates the watermark; a duration stands for ``BoundedDisorder``. Or
            :class:`lowwater.spark.CarriedTime`. Without it the watermark is unknown until the input
            ends.
        timezone: The time zone of times that have none, such as ``"UTC"``; without it such times
            are refused.
        unit: The unit of event times that are plain numbers, as for the other readers.
    """
    load_extra("pyspark.sql", extra="spark", purpose="from_spark")
    from lowwater.spark.reading import spark_source

    if watermark is not None and not hasattr(watermark, "start"):
        watermark = BoundedDisorder(watermark)
    options: SourceOptions = {
        "watermark": cast(Any, watermark),
        "timezone": timezone,
        "unit": unit,
    }
    return stream_of(spark_source(df), time, options)


def _column(time: str | Arrival) -> str:
    """Return the column of event times, one that the records have not where they are arrivals."""
    return time.column if isinstance(time, Arrival) else time


def _chosen(
    columns: Iterable[str] | None, time: str | Arrival, options: Mapping[str, Any]
) -> tuple[str, ...] | None:
    """Return the columns to read: those of the time and of the clock, too."""
    if columns is None:
        return None
    chosen = () if isinstance(columns, str) else tuple(columns)
    if isinstance(columns, str) or not all(isinstance(name, str) for name in chosen):
        raise InvalidArgument(
            f"{describe('columns', columns)} are not the names of columns",
            hint='Use a list such as ["user", "amount"]',
        )
    clock = options.get("clock")
    always: tuple[str, ...] = () if isinstance(time, Arrival) else (time,)
    always += (clock.column,) if isinstance(clock, ArrivalClock) else ()
    return tuple(dict.fromkeys((*chosen, *always)))


def _check_delimiter(schema: pa.Schema | None, delimiter: str) -> None:
    """Raise if a header that is one column looks as if another character separates its fields."""
    names = [] if schema is None else schema.names
    for mark in ";\t|,":
        if len(names) == 1 and mark in names[0] and mark != delimiter:
            raise InvalidArgument(
                f"the header is one column, {names[0]!r}",
                where="read_csv",
                hint=f"Name the delimiter, as in delimiter={mark!r}",
            ) from None


_PYTHON_TYPES: Mapping[type, pa.DataType] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
}


def _arrow_type(
    name: str, column_type: pa.DataType | str | type, option: str = "types"
) -> pa.DataType:
    if isinstance(column_type, pa.DataType):
        return column_type
    try:
        if isinstance(column_type, type):  # those of Python, as users write them elsewhere
            return _PYTHON_TYPES[column_type]
        return pa.type_for_alias(column_type)
    except (ValueError, TypeError, KeyError, AttributeError):
        raise InvalidArgument(
            f"{describe(f'{option}[{name!r}]', column_type)} is not a type",
            hint='Use, say, "int64", "float64", "string" or "bool"',
        ) from None


def _items_hint(items: object) -> str:
    if isinstance(items, str) and items.endswith((".parquet", ".csv", ".jsonl", ".json")):
        kind = "jsonl" if "json" in items.rpartition(".")[2] else items.rpartition(".")[2]
        return f"Read a file with lw.read_{kind}({items!r}, time=...)"
    if isinstance(items, Mapping):
        return "Give a list of records: [{...}, {...}]"
    return "Give a list"
