"""Converts columns of event times and of gaps to int64 microseconds (S-T1, S-B1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias, final
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lowwater.engine.records.calls import said
from lowwater.engine.records.columns import Column
from lowwater.engine.records.problems import FailedCall, Problems, is_nan
from lowwater.errors import DataError, InvalidArgument, LowwaterError, describe
from lowwater.time import (
    DAY_US,
    END_OF_TIME,
    LAST_EVENT_TIME,
    START_OF_TIME,
    Instant,
    Int64Array,
    duration,
    format_duration,
    format_instant,
    instant,
)
from lowwater.watermark.limits import TOO_FAR_AHEAD, too_far_ahead

_PER_UNIT = {"s": 1_000_000, "ms": 1_000, "us": 1}
TimeUnit: TypeAlias = Literal["s", "ms", "us", "ns"]
"""What plain numbers count since 1970: seconds, milli-, micro- or nanoseconds."""
FRACTIONAL: tuple[TimeUnit, ...] = ("s", "ms")
"""The units in which floats are event times too: in the others they would lose digits."""


@final
@dataclass(frozen=True, slots=True)
class TimeFormat:
    """How a source writes times that do not say it themselves.

    Args:
        timezone: The time zone of naive times (an IANA name); ``None``: they are refused.
        unit: What plain numbers count; ``None``: microseconds. Floats are times in seconds and
            milliseconds only, rounded to the nearest microsecond.
    """

    timezone: str | None = None
    unit: TimeUnit | None = None


PLAIN = TimeFormat()
"""Times with a time zone, and numbers of microseconds."""

_UTC_MICROS = pa.timestamp("us", "UTC")
_NANOS_PER_UNIT = {"s": 10**9, "ms": 10**6, "us": 1_000, "ns": 1}
_NOT_IN_64_BITS = "the event time does not fit 64 bits"
_AT_THE_START = "the event time is the beginning of time, which stands for no time at all"
_OUT_OF_RANGE = "the event time lies beyond the end of time less a day (S-W4)"


def event_times(
    column: Column,
    name: str,
    problems: Problems,
    format: TimeFormat = PLAIN,
) -> Int64Array:
    """Convert event times to int64 microseconds, shape (n,); invalid rows hold arbitrary values.

    Args:
        column: The event times.
        name: The name of the column, for messages.
        problems: Where to record invalid rows.
        format: How times are written that do not say it themselves.

    Raises:
        InvalidArgument: Values of the column's type cannot be event times.
    """
    kind = column.type
    if kind is not None and pa.types.is_dictionary(kind):
        column = Column.from_arrow(column.to_arrow().dictionary_decode())
        kind = column.type
    if kind is None and column.data.dtype == object:
        times = _objects(column.data.tolist(), name, problems, format)
    elif kind is not None and (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        times = _texts(column.to_arrow(), name, problems, format)
    elif kind is not None and pa.types.is_null(kind):
        problems.add_all(np.arange(len(column)), "null_time", f"the event time {name!r} is null")
        return np.zeros(len(column), dtype=np.int64)
    else:
        times = _typed(column, name, problems, format)
    if times.size and int(times.max()) > LAST_EVENT_TIME:
        late = np.flatnonzero(times > LAST_EVENT_TIME)
        problems.add_all(late, "time_out_of_range", _OUT_OF_RANGE)
    if times.size and int(times.min()) == START_OF_TIME:
        early = np.flatnonzero(times == START_OF_TIME)
        problems.add_all(early, "time_out_of_range", _AT_THE_START)
    return times


def are_numbers(column: Column) -> bool:
    """Whether event times are plain numbers, as far as the first of them tells. O(1)."""
    kind = column.type
    if kind is None and column.data.dtype == object:
        first = column.data[0] if len(column) else None
        return isinstance(first, (int, float, np.number)) and not isinstance(
            first, (bool, np.timedelta64, Instant)
        )
    return bool(column.data.dtype.kind in "iuf") if kind is None else _is_number(kind)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def note_far_ahead(
    times: Int64Array, clock: int | Int64Array, max_ahead_us: int, problems: Problems
) -> None:
    """Record the elements whose event time is too far ahead of the clock.

    Args:
        times: Event times, int64 microseconds, shape (n,).
        clock: The clock, int microseconds, or int64, shape (n,), for each element.
        max_ahead_us: How far ahead of it they may be, microseconds.
        problems: Where to record them; rows that are already invalid keep their reason.
    """
    far = np.flatnonzero(too_far_ahead(times, clock, max_ahead_us))
    if not far.size:
        return
    clocks = np.broadcast_to(clock, times.shape)[far]
    ahead = format_duration(max_ahead_us)
    for row, at, now in zip(far.tolist(), times[far].tolist(), clocks.tolist(), strict=True):
        detail = f"the event time {format_instant(at)} is more than {ahead} ahead of "
        problems.add(row, TOO_FAR_AHEAD, detail + format_instant(now))


def gaps(column: Column, problems: Problems, name: str) -> Column:
    """Convert gaps to int64 microseconds; null, zero or negative is a ``bad_gap``.

    Raises:
        InvalidArgument: Values of the column's type cannot be durations.
    """
    kind = column.type
    if kind is not None and pa.types.is_duration(kind):
        _note_nulls(column, "bad_gap", f"the gap {name!r} is null", problems)
        micros, _ = _to_micros(column.data, kind.unit)
    elif column.data.dtype == np.int64 and (kind is None or pa.types.is_integer(kind)):
        _note_nulls(column, "bad_gap", f"the gap {name!r} is null", problems)
        micros = column.data
    elif column.data.dtype == object:
        micros = _object_gaps(column.to_list(), name, problems)
    else:
        raise InvalidArgument(
            f"the column of gaps {name!r} is {kind or column.data.dtype}, not of durations",
            hint="Use durations, or integers of microseconds",
        )
    if micros.size and int(micros.min()) <= 0:
        rows = np.flatnonzero(micros <= 0)
        problems.add_all(rows, "bad_gap", f"the gap {name!r} is not above zero")
        micros = np.maximum(micros, 1)
    return Column(micros)


def _typed(column: Column, name: str, problems: Problems, format: TimeFormat) -> Int64Array:
    kind, unit = column.type, format.unit
    if kind is not None and pa.types.is_timestamp(kind):
        if kind.tz is None:
            return _local_times(column, name, format.timezone, problems)
        _note_nulls(column, "null_time", f"the event time {name!r} is null", problems)
        return _in_range(column.data, kind.unit, problems)
    if kind is None or pa.types.is_integer(kind):
        if column.data.dtype == np.int64:
            _note_nulls(column, "null_time", f"the event time {name!r} is null", problems)
            return _in_range(column.data, unit or "us", problems)
        if column.data.dtype == object:  # uint64 beyond int64
            return _objects(column.to_list(), name, problems, format)
    floats = column.data.dtype.kind == "f"
    if floats and unit in FRACTIONAL:
        _note_nulls(column, "null_time", f"the event time {name!r} is null", problems)
        return _from_floats(column.data, name, unit, problems)
    hint = (
        'Name the unit of plain numbers, as in unit="s" for seconds since 1970. Or use timestamps '
        "with a time zone, ISO-8601 text with an offset, or integers of microseconds"
        if floats
        else "Use timestamps with a time zone, ISO-8601 text with an offset, or integers of "
        "microseconds since 1970"
    )
    raise InvalidArgument(
        f"the event time {name!r} is a column of {kind or column.data.dtype}, whose values are "
        "not instants",
        hint=hint,
    )


def _from_floats(
    data: np.ndarray[Any, np.dtype[np.floating[Any]]],
    name: str,
    unit: TimeUnit,
    problems: Problems,
) -> Int64Array:
    """Round to the nearest microsecond; NaN is null, and what does not fit 64 bits is invalid."""
    with np.errstate(over="ignore", invalid="ignore"):
        micros = np.rint(data.astype(np.float64) * _PER_UNIT[unit])
    unknown = np.isnan(micros)
    problems.add_all(np.flatnonzero(unknown), "null_time", f"the event time {name!r} is null")
    beyond = np.abs(micros) >= float(END_OF_TIME)
    problems.add_all(np.flatnonzero(beyond), "time_out_of_range", _NOT_IN_64_BITS)
    times: Int64Array = np.where(unknown | beyond, 0.0, micros).astype(np.int64)
    return times


def _local_times(column: Column, name: str, timezone: str | None, problems: Problems) -> Int64Array:
    if timezone is None:
        raise InvalidArgument(
            f"the event time {name!r} is a column of {column.type} without a time zone, whose "
            "values are not instants",
            hint='Name the time zone, as in timezone="UTC" or timezone="Europe/Berlin"',
        )
    if timezone == "UTC":
        _note_nulls(column, "null_time", f"the event time {name!r} is null", problems)
        return _in_range(column.data, column.to_arrow().type.unit, problems)
    array = column.to_arrow()
    try:
        zoned = pc.assume_timezone(array, timezone)
    except pa.ArrowInvalid:  # an hour that clocks skip or repeat, or an unknown time zone
        zoned, unclear = _unclear_times(array, timezone)
        detail = f"the local time {name!r} does not exist or exists twice in {timezone}"
        problems.add_all(unclear, "bad_time", detail)
    made = Column.from_arrow(zoned)
    _note_nulls(made, "null_time", f"the event time {name!r} is null", problems)
    _note_wrapped(column.data, array.type.unit, problems)
    return _in_range(made.data, array.type.unit, problems)


def _note_wrapped(local: Int64Array, unit: str, problems: Problems) -> None:
    """Record the local times so near the ends of 64 bits that Arrow's offset may wrap around."""
    limit = END_OF_TIME - DAY_US * 1000 // _NANOS_PER_UNIT[unit]
    if local.size and (int(local.max()) > limit or int(local.min()) < -limit):
        rows = np.flatnonzero((local > limit) | (local < -limit))
        problems.add_all(rows, "time_out_of_range", _NOT_IN_64_BITS)


def _unclear_times(array: pa.Array, timezone: str) -> tuple[pa.Array, Int64Array]:
    try:
        early = pc.assume_timezone(array, timezone, ambiguous="earliest", nonexistent="earliest")
        late = pc.assume_timezone(array, timezone, ambiguous="latest", nonexistent="latest")
    except pa.ArrowInvalid as error:
        raise InvalidArgument(
            f"{describe('timezone', timezone)} is not usable: {error}",
            hint='Use an IANA name, such as "Europe/Berlin"',
        ) from None
    differ = pc.fill_null(pc.not_equal(early, late), False).to_numpy(zero_copy_only=False)
    return early, np.flatnonzero(differ)


def _in_range(data: Int64Array, unit: str, problems: Problems) -> Int64Array:
    times, beyond = _to_micros(data, unit)
    if beyond is not None:
        problems.add_all(beyond, "time_out_of_range", _NOT_IN_64_BITS)
    return times


def _to_micros(data: Int64Array, unit: str) -> tuple[Int64Array, Int64Array | None]:
    """Convert to microseconds; also return the rows that do not fit 64 bits (they hold 1 unit)."""
    if unit == "us":
        return data, None
    if unit == "ns":
        return data // 1000, None
    factor = _PER_UNIT[unit]
    limit = END_OF_TIME // factor
    if data.size and (int(data.max()) > limit or int(data.min()) < -limit):
        beyond = (data > limit) | (data < -limit)
        return np.where(beyond, 1, data) * factor, np.flatnonzero(beyond)
    return data * factor, None


def _note_nulls(column: Column, reason: str, detail: str, problems: Problems) -> None:
    valid = column.valid
    if valid is not None:
        problems.add_all(np.flatnonzero(~valid), reason, detail)


_CastTexts: TypeAlias = Callable[[pa.Array], pa.Array]


def _texts(array: pa.Array, name: str, problems: Problems, format: TimeFormat) -> Int64Array:
    times = np.zeros(len(array), dtype=np.int64)
    casts: list[_CastTexts] = [lambda part: part.cast(_UTC_MICROS)]
    zone = format.timezone
    if zone is not None:
        casts.append(
            lambda part: pc.assume_timezone(part.cast(pa.timestamp("us")), zone).cast(_UTC_MICROS)
        )
    if array.null_count:
        rows = np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))
        problems.add_all(rows, "null_time", f"the event time {name!r} is null")
    # Arrow's cast fails as a whole. Bisect until the bad values stand alone: O(log n) casts per
    # bad value, where checking each value in Python would cost n calls.
    pending = [(0, len(array))]
    while pending:
        low, high = pending.pop()
        part = array.slice(low, high - low)
        done = _try_casts(part, casts)
        if done is not None:
            times[low:high] = done.view(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        elif high - low > 1:
            middle = (low + high) // 2
            pending += [(middle, high), (low, middle)]
        else:
            times[low] = _one(part[0].as_py(), low, name, problems, format)
    return times


def _try_casts(part: pa.Array, casts: list[_CastTexts]) -> pa.Array | None:
    for cast in casts:
        try:
            return cast(part)
        except pa.ArrowInvalid:
            continue
    return None


def _objects(values: list[Any], name: str, problems: Problems, format: TimeFormat) -> Int64Array:
    kinds, unit = set(map(type, values)), format.unit
    if kinds == {int}:
        try:
            return _in_range(np.array(values, dtype=np.int64), unit or "us", problems)
        except OverflowError:
            pass
    if kinds == {float} and unit in FRACTIONAL:
        return _from_floats(np.array(values), name, unit, problems)
    times = np.zeros(len(values), dtype=np.int64)
    for row, value in enumerate(values):
        times[row] = _one(value, row, name, problems, format)
    return times


def _one(value: Any, row: int, name: str, problems: Problems, format: TimeFormat) -> int:
    """Convert one event time; record an invalid value and return 0 for it."""
    try:
        return _micros(value, row, name, problems, format)
    except LowwaterError as error:
        problems.add(row, "bad_time", str(error))
    except MemoryError:
        raise
    except Exception as error:  # a class of the user, such as that of the time zone
        problems.add(row, "bad_time", f"{describe(name, value)} is no time: {said(error)}")
    return 0


def _micros(value: Any, row: int, name: str, problems: Problems, format: TimeFormat) -> int:
    unit = format.unit
    if value is None or is_nan(value):
        problems.add(row, "null_time", f"the event time {name!r} is null")
        return 0
    if unit in FRACTIONAL and isinstance(value, (float, np.floating)):
        micros = float(value) * _PER_UNIT[unit]
        if abs(micros) >= END_OF_TIME:
            problems.add(row, "time_out_of_range", _NOT_IN_64_BITS)
            return 0
        return round(micros)
    if isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.timedelta64)):
        if unit is not None and not isinstance(value, Instant):
            value = int(value) // 1000 if unit == "ns" else int(value) * _PER_UNIT[unit]
        if int(value) > LAST_EVENT_TIME or int(value) < -END_OF_TIME - 1:
            problems.add(row, "time_out_of_range", _OUT_OF_RANGE)
            return 0
        return int(value)
    if isinstance(value, FailedCall):
        problems.add(row, "bad_time", f"the function {name}= failed: {value.failure}")
        return 0
    if format.timezone is not None:
        value = _localized(value, name, format.timezone)
    return instant(value, name=name)


def _localized(value: Any, name: str, timezone: str) -> Any:
    """Attach the time zone to a naive datetime or to text of one; return other values unchanged."""
    local = value
    if isinstance(value, str):
        try:
            local = datetime.fromisoformat(value)
        except ValueError:
            return value
    if not isinstance(local, datetime) or local.tzinfo is not None:
        return value
    zoned = local.replace(tzinfo=ZoneInfo(timezone))
    if zoned.utcoffset() != zoned.replace(fold=1).utcoffset():
        raise DataError(
            f"{describe(name, value)} does not exist or exists twice in {timezone}",
            hint="Give it an offset",
        )
    try:
        return zoned.astimezone(UTC)
    except OverflowError:  # the local time is within the years 1 to 9999, the one in UTC is not
        return zoned


def _object_gaps(values: list[Any], name: str, problems: Problems) -> Int64Array:
    micros = np.ones(len(values), dtype=np.int64)
    for row, value in enumerate(values):
        if value is None or is_nan(value):
            problems.add(row, "bad_gap", f"the gap {name!r} is null")
            continue
        try:
            micros[row] = duration(value, name=name)
        except LowwaterError as error:
            problems.add(row, "bad_gap", str(error))
        except MemoryError:
            raise
        except Exception as error:  # a class of the user
            problems.add(row, "bad_gap", f"{describe(name, value)} is no gap: {said(error)}")
    return micros
