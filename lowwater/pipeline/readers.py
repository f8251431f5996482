"""Where streams begin: ``lw.read_parquet`` and its like."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, overload
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa

from lowwater.engine.graph.clocks import ArrivalClock, ClockLike
from lowwater.engine.graph.graph import Flow, Read
from lowwater.engine.graph.sources import Source
from lowwater.engine.records.batch import HIDDEN
from lowwater.engine.records.stateless import require_names
from lowwater.errors import InvalidArgument, describe
from lowwater.io.csv import CsvSource
from lowwater.io.follow import Follow
from lowwater.io.in_memory import IterableSource, arrow_source, pandas_source
from lowwater.io.jsonl import JsonLinesSource
from lowwater.io.parquet import ParquetSource
from lowwater.io.paths import PathsLike, as_paths, require_places
from lowwater.pipeline.fluent import Key, KeyedStream, Stream
from lowwater.time import DurationLike
from lowwater.watermark import WatermarkEstimator, columns_read
from lowwater.windows._base import positive_duration

if TYPE_CHECKING:
    import pandas as pd

FieldOf: TypeAlias = str | Callable[[Any], Any]

_TIME = HIDDEN + "time"
_KEY = HIDDEN + "key"


@overload
def from_iterable(
    items: Iterable[Any],
    *,
    time: FieldOf,
    key: None = None,
    watermark: WatermarkEstimator | None = None,
    timezone: str | None = None,
    clock: ClockLike | None = None,
    max_ahead: DurationLike | None = None,
    idle_after: DurationLike | None = None,
) -> Stream: ...


@overload
def from_iterable(
    items: Iterable[Any],
    *,
    time: FieldOf,
    key: FieldOf | tuple[str, ...],
    watermark: WatermarkEstimator | None = None,
    timezone: str | None = None,
    clock: ClockLike | None = None,
    max_ahead: DurationLike | None = None,
    idle_after: DurationLike | None = None,
) -> KeyedStream: ...


def from_iterable(
    items: Iterable[Any],
    *,
    time: FieldOf,
    key: FieldOf | tuple[str, ...] | None = None,
    watermark: WatermarkEstimator | None = None,
    timezone: str | None = None,
    clock: ClockLike | None = None,
    max_ahead: DurationLike | None = None,
    idle_after: DurationLike | None = None,
) -> Stream | KeyedStream:
    """Begin with elements that Python holds or makes; they are taken as the pipeline needs them.

    Mappings, dataclasses and named tuples have a column per field; anything else is a column
    ``value``.

    Args:
        items: The elements. A generator can be read once.
        time: The field that holds the event time, or a function of an element.
        key: The field that holds the key, a function of an element, or a tuple of fields; with it
            the stream is keyed already.
        watermark: How the watermark is guessed; left out, there is none until the input ends.
        timezone: What times without a time zone mean, e.g. ``"UTC"``; else they are refused.
        clock: Where processing time comes from.
        max_ahead: How far beyond the clock an event time may be; records further ahead are dead
            letters and do not move the watermark. Any distance unless given.
        idle_after: After how long without elements other sources of the same pipeline do not wait
            for this one any more, by the clock; they do for ever unless given.

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
            f"{describe('items', items)} is not a series of elements", hint="Give a list"
        )
    computed: dict[str, Callable[[Any], Any]] = {}
    if callable(time):
        computed[_TIME] = time
    if callable(key):
        computed[_KEY] = key
    source = IterableSource(items, computed)
    time_column = _TIME if callable(time) else time
    stream = _stream(source, time_column, watermark, timezone, clock, max_ahead, idle_after)
    if key is None:
        return stream
    if callable(key):
        return stream._keyed((_KEY,), ("key",))
    names: tuple[Key, ...] = key if isinstance(key, tuple) else (key,)
    return stream.key_by(*names)


def from_arrow(
    data: Any,
    *,
    time: str,
    watermark: WatermarkEstimator | None = None,
    timezone: str | None = None,
    clock: ClockLike | None = None,
    max_ahead: DurationLike | None = None,
    idle_after: DurationLike | None = None,
) -> Stream:
    """Begin with an Arrow table, batch or reader, or what can hand itself over as such.

    Args:
        data: The data. A reader can be read once.
        time: The column of event times.
        watermark: How the watermark is guessed; left out, there is none until the input ends.
        timezone: What times without a time zone mean, e.g. ``"UTC"``; else they are refused.
        clock: Where processing time comes from.
        max_ahead: How far beyond the clock an event time may be; records further ahead are dead
            letters and do not move the watermark. Any distance unless given.
        idle_after: After how long without elements other sources of the same pipeline do not wait
            for this one any more, by the clock; they do for ever unless given.
    """
    return _stream(arrow_source(data), time, watermark, timezone, clock, max_ahead, idle_after)


def from_pandas(
    frame: pd.DataFrame,
    *,
    time: str,
    watermark: WatermarkEstimator | None = None,
    timezone: str | None = None,
    clock: ClockLike | None = None,
    max_ahead: DurationLike | None = None,
    idle_after: DurationLike | None = None,
) -> Stream:
    """Begin with a pandas DataFrame; its missing values, NaN among them, are nulls.

    Args:
        frame: The data; named levels of its index are columns too.
        time: The column of event times.
        watermark: How the watermark is guessed; left out, there is none until the input ends.
        timezone: What times without a time zone mean, e.g. ``"UTC"``; else they are refused.
        clock: Where processing time comes from.
        max_ahead: How far beyond the clock an event time may be; records further ahead are dead
            letters and do not move the watermark. Any distance unless given.
        idle_after: After how long without elements other sources of the same pipeline do not wait
            for this one any more, by the clock; they do for ever unless given.
    """
    return _stream(pandas_source(frame), time, watermark, timezone, clock, max_ahead, idle_after)


def from_source(
    source: Source,
    *,
    time: str,
    watermark: WatermarkEstimator | None = None,
    timezone: str | None = None,
    clock: ClockLike | None = None,
    max_ahead: DurationLike | None = None,
    idle_after: DurationLike | None = None,
) -> Stream:
    """Begin with a source of your own.

    Args:
        source: Anything with ``schema`` and ``batches``, as :class:`lowwater.Source` says; with
            ``batches_from`` too (:class:`lowwater.ReplayableSource`) for durable runs.
        time: The column of event times.
        watermark: How the watermark is guessed; left out, there is none until the input ends.
        timezone: What times without a time zone mean, e.g. ``"UTC"``; else they are refused.
        clock: Where processing time comes from.
        max_ahead: How far beyond the clock an event time may be; records further ahead are dead
            letters and do not move the watermark. Any distance unless given.
        idle_after: After how long without elements other sources of the same pipeline do not wait
            for this one any more, by the clock; they do for ever unless given.
    """
    if isinstance(source, type) or not isinstance(source, Source):
        raise InvalidArgument(
            f"{describe('source', source)} is not a source",
            hint="Give an object with schema and batches(size, keys), which yields lw.Records",
        )
    return _stream(source, time, watermark, timezone, clock, max_ahead, idle_after)


def read_parquet(
    paths: PathsLike,
    *,
    time: str,
    watermark: WatermarkEstimator | None = None,
    columns: Iterable[str] | None = None,
    timezone: str | None = None,
    clock: ClockLike | None = None,
    max_ahead: DurationLike | None = None,
    idle_after: DurationLike | None = None,
    follow: bool = False,
    poll_every: DurationLike = "1s",
    max_idle: DurationLike | None = None,
    stop: Callable[[], bool] | None = None,
) -> Stream:
    """Begin with Parquet files, read piece by piece.

    Args:
        paths: Files, folders and globs; each path's files come in sorted order.
        time: The column of event times.
        watermark: How the watermark is guessed; left out, there is none until the input ends.
        columns: Which columns to read, beside ``time``; all unless given. Late elements and dead
            letters show the columns that were read.
        timezone: What times without a time zone mean, e.g. ``"UTC"``; else they are refused.
        clock: Where processing time comes from.
        max_ahead: How far beyond the clock an event time may be; records further ahead are dead
            letters and do not move the watermark. Any distance unless given.
        idle_after: After how long without elements other sources of the same pipeline do not wait
            for this one any more, by the clock; they do for ever unless given.
        follow: Whether to go on with files that appear during the run. They are read in order of
            name among those found at a time, and should appear whole: write them under a name
            that begins with ``.`` and rename them. Each stays as it is once it was read.
        poll_every: How often to look for new files.
        max_idle: The input ends when nothing new has appeared for so long; never unless given.
        stop: Asked after each look; the input ends when it says so.
    """
    chosen = None
    if columns is not None:
        always = (time, clock.column) if isinstance(clock, ArrivalClock) else (time,)
        chosen = tuple(dict.fromkeys((*columns, *always)))
    at = as_paths(paths)
    source = ParquetSource(at, chosen, _follow(at, follow, poll_every, max_idle, stop))
    return _stream(source, time, watermark, timezone, clock, max_ahead, idle_after)


def read_csv(
    paths: PathsLike,
    *,
    time: str,
    watermark: WatermarkEstimator | None = None,
    types: Mapping[str, pa.DataType | str] | None = None,
    delimiter: str = ",",
    timezone: str | None = None,
    clock: ClockLike | None = None,
    max_ahead: DurationLike | None = None,
    idle_after: DurationLike | None = None,
    follow: bool = False,
    poll_every: DurationLike = "1s",
    max_idle: DurationLike | None = None,
    stop: Callable[[], bool] | None = None,
) -> Stream:
    """Begin with CSV files that have a header, read piece by piece.

    Rows of the wrong length, or with a value that is not of its column's type, are dead letters.

    Args:
        paths: Files, folders and globs; each path's files come in sorted order.
        time: The column of event times: ISO-8601 text, or integers of microseconds.
        watermark: How the watermark is guessed; left out, there is none until the input ends.
        types: Types by column, such as ``{"delay": "float64"}``; others are inferred.
        delimiter: What separates fields.
        timezone: What times without a time zone mean, e.g. ``"UTC"``; else they are refused.
        clock: Where processing time comes from.
        max_ahead: How far beyond the clock an event time may be; records further ahead are dead
            letters and do not move the watermark. Any distance unless given.
        idle_after: After how long without elements other sources of the same pipeline do not wait
            for this one any more, by the clock; they do for ever unless given.
        follow: Whether to go on with files that appear during the run. They are read in order of
            name among those found at a time, and should appear whole: write them under a name
            that begins with ``.`` and rename them. Each stays as it is once it was read.
        poll_every: How often to look for new files.
        max_idle: The input ends when nothing new has appeared for so long; never unless given.
        stop: Asked after each look; the input ends when it says so.
    """
    if not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '\r\n"':
        raise InvalidArgument(
            f"{describe('delimiter', delimiter)} is not one character",
            hint='Use, say, ";" or "\\t"',
        )
    named = {name: _arrow_type(name, given) for name, given in (types or {}).items()}
    at = as_paths(paths)
    following = _follow(at, follow, poll_every, max_idle, stop)
    source = CsvSource(at, named, time, delimiter, following)
    return _stream(source, time, watermark, timezone, clock, max_ahead, idle_after)


def read_jsonl(
    paths: PathsLike,
    *,
    time: str,
    watermark: WatermarkEstimator | None = None,
    timezone: str | None = None,
    clock: ClockLike | None = None,
    max_ahead: DurationLike | None = None,
    idle_after: DurationLike | None = None,
    follow: bool = False,
    poll_every: DurationLike = "1s",
    max_idle: DurationLike | None = None,
    stop: Callable[[], bool] | None = None,
) -> Stream:
    """Begin with files of one JSON object per line, read piece by piece.

    A line that cannot be read is a dead letter that names the file and the line.

    Args:
        paths: Files, folders and globs; each path's files come in sorted order.
        time: The field of event times: ISO-8601 text, or integers of microseconds.
        watermark: How the watermark is guessed; left out, there is none until the input ends.
        timezone: What times without a time zone mean, e.g. ``"UTC"``; else they are refused.
        clock: Where processing time comes from.
        max_ahead: How far beyond the clock an event time may be; records further ahead are dead
            letters and do not move the watermark. Any distance unless given.
        idle_after: After how long without elements other sources of the same pipeline do not wait
            for this one any more, by the clock; they do for ever unless given.
        follow: Whether to go on with files that appear during the run. They are read in order of
            name among those found at a time, and should appear whole: write them under a name
            that begins with ``.`` and rename them. Each stays as it is once it was read.
        poll_every: How often to look for new files.
        max_idle: The input ends when nothing new has appeared for so long; never unless given.
        stop: Asked after each look; the input ends when it says so.
    """
    at = as_paths(paths)
    source = JsonLinesSource(at, _follow(at, follow, poll_every, max_idle, stop))
    return _stream(source, time, watermark, timezone, clock, max_ahead, idle_after)


def _follow(
    paths: tuple[str, ...],
    follow: bool,
    poll_every: DurationLike,
    max_idle: DurationLike | None,
    stop: Callable[[], bool] | None,
) -> Follow | None:
    following = Follow.of(follow, poll_every, max_idle, stop)
    if following is not None:
        require_places(paths)
    return following


def _stream(
    source: Source,
    time: str,
    watermark: WatermarkEstimator | None,
    timezone: str | None,
    clock: ClockLike | None,
    max_ahead: DurationLike | None = None,
    idle_after: DurationLike | None = None,
) -> Stream:
    if not isinstance(time, str):
        raise InvalidArgument(
            f"{describe('time', time)} is not the name of a column", hint='Write time="departed"'
        )
    if watermark is not None and not isinstance(watermark, WatermarkEstimator):
        raise InvalidArgument(
            f"{describe('watermark', watermark)} is not a watermark estimator",
            hint='Use, say, BoundedDisorder("5m") or Ascending()',
        )
    if isinstance(watermark, type):
        raise InvalidArgument(
            f"watermark={watermark.__name__} is a class",
            hint=f"Make one: {watermark.__name__}(...)",
        )
    if timezone is not None:
        _require_zone(timezone)
    schema = source.schema
    if schema is not None:
        _require_distinct(schema.names)
        require_names((time,), schema.names, "time=")
        if isinstance(clock, ArrivalClock):
            require_names((clock.column,), schema.names, "clock=")
        if watermark is not None:
            hidden = (name for name in columns_read(watermark) if not name.startswith(HIDDEN))
            require_names(hidden, schema.names, "watermark=")
    read = Read(
        source,
        time,
        timezone,
        watermark,
        clock,
        max_ahead_us=None if max_ahead is None else positive_duration(max_ahead, "max_ahead"),
        idle_after_us=None if idle_after is None else positive_duration(idle_after, "idle_after"),
    )
    return Stream((Flow(read, (), time, timezone),), clock, schema)


def _require_distinct(names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise InvalidArgument(f"two columns are called {name!r}", hint="Rename one")


def _require_zone(timezone: str) -> None:
    try:
        ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError):
        raise InvalidArgument(
            f"{describe('timezone', timezone)} is not known",
            hint='Use an IANA name, such as "UTC" or "Europe/Berlin"',
        ) from None


def _arrow_type(name: str, given: pa.DataType | str) -> pa.DataType:
    if isinstance(given, pa.DataType):
        return given
    try:
        return pa.type_for_alias(given)
    except (ValueError, TypeError):
        raise InvalidArgument(
            f"{describe(f'types[{name!r}]', given)} is not a type",
            hint='Use, say, "int64", "float64", "string" or "bool"',
        ) from None
