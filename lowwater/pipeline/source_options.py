"""The options that all readers share: checked, documented and added to signatures in one place.

A new option is a field here, with its default and its line of documentation. Readers take them as
``**options``; :func:`with_options` writes them out in the reader's signature and docstring, so that
``help()`` and editors show each by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, cast, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa

from lowwater.engine.graph.clocks import Arrival, ArrivalClock, ClockLike
from lowwater.engine.graph.graph import Flow, Read
from lowwater.engine.graph.sources import Source
from lowwater.engine.records.admit_times import TimeFormat, TimeUnit
from lowwater.engine.records.batch import HIDDEN
from lowwater.engine.records.pane_table import MICROS_UTC
from lowwater.engine.records.stateless import require_names
from lowwater.errors import InvalidArgument, describe, explained
from lowwater.io.follow import Follow
from lowwater.io.paths import PathsLike
from lowwater.pipeline.fluent import Stream
from lowwater.pipeline.vocabulary import READERS_ELSEWHERE, require_options
from lowwater.pipeline.written_options import written_out
from lowwater.time import DurationLike
from lowwater.watermark import WatermarkEstimator, columns_read
from lowwater.windows._base import positive_duration

if TYPE_CHECKING:
    from lowwater.io.input_files import InputFiles

ReaderT = TypeVar("ReaderT", bound=Callable[..., Any])


class SourceOptions(TypedDict, total=False):
    """The options of every reader.

    Args:
        watermark: Estimates the watermark; without it the watermark is unknown until the input
            ends.
        timezone: The time zone of times that have none, such as ``"UTC"``; without it such times
            are refused.
        unit: The unit of event times that are plain numbers since 1970: ``"s"``, ``"ms"``,
            ``"us"`` or ``"ns"``. In seconds and milliseconds they may be floats, which are rounded
            to microseconds. Columns of an ``ArrivalClock`` and of watermarks have the same unit.
            Without it they are integers of microseconds, and a ``UnitWarning`` says so if they lie
            in January 1970 or after the year 9999.
        clock: Where processing time comes from.
        max_ahead: How far ahead of the clock an event time may be. Records further ahead become
            dead letters and do not advance the watermark. Unlimited by default.
        idle_after: A source without elements for this long, by the clock, no longer holds the
            watermark until its next element. By default it always holds it.
        ends: Whether the source ends with what is there when a ``run(until="available")`` begins,
            as a file of reference data does; its watermark is then the end of time. By default more
            may come, and the next run reads it.
    """

    watermark: WatermarkEstimator | None
    timezone: str | None
    unit: TimeUnit | None
    clock: ClockLike | None
    max_ahead: DurationLike | None
    idle_after: DurationLike | None
    ends: bool


class FileOptions(SourceOptions, total=False):
    """The options of readers of files, in addition to :class:`SourceOptions`.

    Args:
        follow: Whether to also read files that appear during the run. Files found at the same time
            are read in order of name. They must appear complete: write them under a name that
            begins with ``.``, then rename them. Do not change a file that was read.
        poll_every: How often to look for new files.
        max_idle: The input ends when no file has appeared for this long; never by default.
        stop: Called before each look. When it returns true, the input ends with the files of that
            look: all files that were there before are read.
        filesystem: The filesystem that all paths are on, for what a URI cannot say: one of
            ``pyarrow.fs``, such as ``S3FileSystem(role_arn=...)``, or of fsspec. Paths are then
            those on it, ``"bucket/folder"``, or URIs.
    """

    follow: bool
    poll_every: DurationLike
    max_idle: DurationLike | None
    stop: Callable[[], bool] | None
    filesystem: Any


_DEFAULTS: dict[str, object] = {
    "ends": False,
    "follow": False,
    "poll_every": "1s",
}  # None unless said here


_DISORDER = (
    'how far out of order records may be is the watermark: watermark=lw.BoundedDisorder("30s"); '
    'how long a window still takes late ones is .window(..., allowed_lateness="1h")'
)
_OF_WINDOWS = {
    name: f"{name}= is no option of a reader: {_DISORDER}"
    for name in ("allowed_lateness", "delay", "lateness", "out_of_orderness")
} | {"key": 'The key is a column of the records: group by it, .key_by("...")'}


def with_options(options: type[SourceOptions]) -> Callable[[ReaderT], ReaderT]:
    """Return a decorator that shows options by name in a reader's signature and docstring.

    Args:
        options: :class:`SourceOptions`, or a class of it with more.
    """
    write_out = written_out(options, _DEFAULTS, SourceOptions)

    def decorate(reader: ReaderT) -> ReaderT:
        return cast(ReaderT, explained(**READERS_ELSEWHERE)(write_out(reader)))

    return decorate


def stream_of(
    source: Source, time: str | Arrival, options: SourceOptions, known: type = SourceOptions
) -> Stream:
    """Return the stream of a source, its options checked.

    Args:
        source: The source.
        time: The column of event times, or that they are times of arrival.
        options: What the reader was given.
        known: The class of options that the reader takes.

    Raises:
        InvalidArgument: One of them makes no sense, or the source lacks a column.
    """
    arrives = isinstance(time, Arrival)
    if isinstance(time, Arrival):
        options = _arriving(options, time)
        time = time.column
    if not isinstance(time, str):
        raise InvalidArgument(
            f"{describe('time', time)} is not the name of a column", hint='Write time="departed"'
        )
    require_options(options, known.__annotations__, _OF_WINDOWS)
    watermark, timezone = options.get("watermark"), options.get("timezone")
    clock, unit = options.get("clock"), options.get("unit")
    _check_watermark(watermark)
    require_unit(unit)
    if timezone is not None:
        _require_zone(timezone)
    schema = source.schema
    if schema is not None:
        _require_distinct(schema.names)
        if arrives and time in schema.names:
            raise InvalidArgument(
                f"the records have a column {time!r} already",
                where="time=",
                hint='Call that of the times of arrival otherwise: lw.arrival("came")',
            )
        if not arrives:
            require_names((time,), schema.names, "time=")
        if isinstance(clock, ArrivalClock):
            require_names((clock.column,), schema.names, "clock=")
        if watermark is not None:
            columns = (name for name in columns_read(watermark) if not name.startswith(HIDDEN))
            require_names(columns, schema.names, "watermark=")
    times = TimeFormat(timezone, unit)
    read = Read(
        source,
        time,
        times,
        watermark,
        clock,
        max_ahead_us=_positive("max_ahead", options.get("max_ahead")),
        idle_after_us=_positive("idle_after", options.get("idle_after")),
        ends=_flag("ends", options.get("ends", False)),
        arrives=arrives,
    )
    if schema is not None and arrives:
        schema = schema.append(pa.field(time, MICROS_UTC))
    return Stream((Flow(read, (), time, times),), schema)


def _arriving(options: SourceOptions, time: Arrival) -> SourceOptions:
    """Return the options of a reader whose event times are times of arrival."""
    from lowwater.watermark.arrived import ArrivedUntil

    for name in ("watermark", "max_ahead"):
        if options.get(name) is not None:
            raise InvalidArgument(
                f"{time!r} takes the time of arrival as the event time, and the clock is its "
                "watermark",
                where=f"{name}=",
                hint=f"Leave {name}= out",
            )
    return {**options, "watermark": ArrivedUntil()}


def require_unit(unit: object) -> None:
    """Raise if ``unit=`` is not the unit of a number."""
    if unit is not None and unit not in get_args(TimeUnit):
        raise InvalidArgument(
            f"{describe('unit', unit)} is not a unit of time",
            hint='Use "s", "ms", "us" or "ns": what event times that are numbers count since 1970',
        )


def files_of(paths: PathsLike, options: FileOptions) -> InputFiles:
    """Return the files that the paths given to a reader lead to.

    Raises:
        InvalidArgument: One is neither a path nor a URI of a filesystem that is known here.
        DataError: A filesystem cannot be reached.
    """
    from lowwater.io.input_files import input_files

    return input_files(paths, options.get("filesystem"))


def follow_of(files: InputFiles, options: FileOptions) -> Follow | None:
    """Return how to wait for new files; ``None`` if the reader is not to wait.

    Raises:
        InvalidArgument: One of the options makes no sense, or none without ``follow=True``.
    """
    given: Mapping[str, Any] = {**_DEFAULTS, **options}
    following = Follow.of(
        given["follow"], given["poll_every"], given.get("max_idle"), given.get("stop")
    )
    if following is not None:
        files.require_places()
    return following


def _check_watermark(watermark: object) -> None:
    if watermark is not None and not isinstance(watermark, WatermarkEstimator):
        raise InvalidArgument(
            f"{describe('watermark', watermark)} is not a watermark estimator",
            hint=_watermark_hint(watermark),
        )
    if isinstance(watermark, type):
        raise InvalidArgument(
            f"watermark={watermark.__name__} is a class",
            hint=f"Make one: {watermark.__name__}(...)",
        )


def _watermark_hint(given: object) -> str:
    if isinstance(given, (str, timedelta)):
        return f"Records up to so much out of order: watermark=lw.BoundedDisorder({given!r})"
    return 'Use, say, BoundedDisorder("5m") or Ascending()'


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidArgument(f"{describe(name, value)} is not a bool", hint=f"Write {name}=True")
    return value


def _positive(name: str, value: DurationLike | None) -> int | None:
    return None if value is None else positive_duration(value, name)


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
