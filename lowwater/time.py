"""Instants and durations: signed 64-bit integers of microseconds (S-T1).

Instants count from 1970-01-01T00:00:00Z. User input is converted once, at the public API, by
:func:`instant` and :func:`duration`; all internal code uses plain integers. Arithmetic near the
ends of time saturates (:func:`saturating_add`) and never wraps.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any, Self, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from lowwater.errors import InvalidArgument, UnitWarning, describe, warn

__all__ = [
    "END_OF_TIME",
    "LAST_EVENT_TIME",
    "START_OF_TIME",
    "DurationLike",
    "Instant",
    "InstantLike",
    "Int64Array",
    "as_micros",
    "duration",
    "earliest",
    "format_duration",
    "format_instant",
    "instant",
    "latest",
    "meant",
    "saturating_add",
    "saturating_add_array",
]

Int64Array: TypeAlias = NDArray[np.int64]

START_OF_TIME = -(2**63)
"""The earliest instant, and the watermark before anything is known."""
END_OF_TIME = 2**63 - 1
"""The latest instant. A watermark at this value means that the input has ended."""
DAY_US = 86_400_000_000
LAST_EVENT_TIME = END_OF_TIME - DAY_US - 1
"""The latest event time an element may carry: the end of the global window, less one (S-W4)."""

_SUSPICIOUS_US = 1_000  # nobody writes 500 for half a millisecond, but many do for seconds
_MINUTES_BELOW_US = 1_000_000  # 3600, 86400: whole minutes in seconds, but odd below a second

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_UNITS = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": DAY_US,
    "w": 7 * DAY_US,
}
_DURATION_PART = re.compile(r"(\d{1,30}(?:\.\d{1,30})?)\s*(us|ms|s|m|h|d|w)\s*", re.ASCII)
_LOOSE_PART = re.compile(r"(\d{1,30}(?:\.\d{1,30})?)[\s,]*([a-zµ]*)")
_UNIT_WORDS = {
    word: unit
    for unit, words in {
        "us": "us µs usec usecs micro micros microsecond microseconds",
        "ms": "ms msec msecs milli millis millisecond milliseconds",
        "s": "s sec secs second seconds",
        "m": "m min mins minute minutes t",
        "h": "h hr hrs hour hours",
        "d": "d day days",
        "w": "w week weeks",
    }.items()
    for word in words.split()
}
_RAW_MICROS = re.compile(r"-?\d{1,19}us", re.ASCII)


class Instant(int):
    """An integer of microseconds since 1970-01-01T00:00:00Z that prints as a time.

    It behaves as an ``int`` except for ``repr`` and ``str``, and for ``format`` with a ``%``
    directive, which formats it as ``datetime.strftime`` does, in UTC. Construct it from an
    ``int``, from anything :func:`instant` accepts, or from its own text.

    >>> Instant(946728000000000)
    Instant('2000-01-01T12:00:00Z')
    >>> Instant('2000-01-01T12:00:00Z') == 946728000000000
    True
    >>> f"{Instant(946728000000000):%H:%M}"
    '12:00'
    """

    __slots__ = ()

    def __new__(cls, value: InstantLike) -> Self:
        return super().__new__(cls, value if isinstance(value, int) else _read_instant(value))

    def to_datetime(self) -> datetime:
        """Return an aware ``datetime`` in UTC.

        Raises:
            InvalidArgument: The instant lies outside the years 1 to 9999.
        """
        try:
            return _EPOCH + timedelta(microseconds=int(self))
        except OverflowError:
            raise InvalidArgument(
                f"the instant {int(self)} us lies outside the years 1 to 9999",
                hint="Use the integer itself",
            ) from None

    def __repr__(self) -> str:
        return f"Instant({format_instant(self)!r})"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Print the time: Hypothesis would print the expression that a strategy evaluated."""
        printer.text(repr(self))

    def __str__(self) -> str:
        return format_instant(self)

    def __format__(self, spec: str) -> str:
        return self.to_datetime().strftime(spec) if "%" in spec else super().__format__(spec)


class _Meant(int):
    """Microseconds that :func:`meant` marks: an ``int`` in all else, also when pickled."""

    __slots__ = ()

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        return int, (int(self),)


DurationLike: TypeAlias = int | str | timedelta | np.timedelta64
InstantLike: TypeAlias = int | str | datetime | np.datetime64


def duration(value: DurationLike, *, name: str = "duration") -> int:
    """Convert a duration to microseconds (S-T1).

    An ``int`` below a millisecond, except 0, gives a ``UnitWarning``: it was most likely meant as
    seconds. So does one below a second that would be whole minutes in seconds, but is no whole
    number of milliseconds, such as 3600. Text or a ``timedelta`` of the same length does not.

    Args:
        value: An ``int`` of microseconds, text such as ``"250ms"``, ``"10s"``, ``"1h30m"``,
            ``"1d"``, a ``timedelta`` or a ``numpy.timedelta64``.
        name: What error messages call the value.

    Raises:
        InvalidArgument: The value is none of these, or does not fit 64 bits.

    >>> duration("1h30m")
    5400000000
    """
    # np.timedelta64 is a subclass of np.signedinteger, not of int, so the order is free.
    if isinstance(value, bool):
        raise _bad_duration(name, value)
    if isinstance(value, (int, np.integer)) and not isinstance(value, np.timedelta64):
        result = int(value)
        if looks_like_seconds(abs(result)) and not isinstance(value, _Meant):
            warn(
                UnitWarning,
                f"{describe(name, value)} is {result:,} µs: plain numbers are microseconds",
                hint=f'Write "{result}s" for seconds, or "{result}us" if this is meant',
            )
    elif isinstance(value, timedelta):
        result = value // _MICROSECOND
    elif isinstance(value, np.timedelta64):
        if np.datetime_data(value.dtype)[0] in ("Y", "M", "generic") and not np.isnat(value):
            raise _bad_duration(name, value)  # no fixed length, or no unit at all
        result = _numpy_micros(value, np.dtype("timedelta64[us]"), name)
    elif isinstance(value, str):
        result = _parse_duration(value, name)
    else:
        raise _bad_duration(name, value)
    return _fits(result, name, value)


def looks_like_seconds(micros: int) -> bool:
    """Whether a number of microseconds was most likely meant in seconds; see :func:`duration`."""
    if micros < _SUSPICIOUS_US:
        return micros > 0
    return micros < _MINUTES_BELOW_US and micros % 60 == 0 and micros % 1_000 != 0


def meant(micros: int) -> int:
    """Return microseconds to store in a value's field that took a duration.

    :func:`duration` accepts them again without a ``UnitWarning``, as ``dataclasses.replace`` and
    the fields of other values need: what the user gave had a unit, or was warned about.
    """
    return _Meant(micros) if looks_like_seconds(abs(micros)) else micros


def as_micros(value: DurationLike) -> int:
    """Return a duration that :func:`duration` has converted before. O(1), without a check."""
    return int(cast(int, value))


def instant(value: InstantLike, *, name: str = "instant") -> Instant:
    """Convert an instant to microseconds since the epoch (S-T1).

    Args:
        value: An ``int`` of microseconds, an aware ``datetime`` (``pandas.Timestamp`` is one), a
            ``numpy.datetime64`` or ISO-8601 text with an offset.
        name: What error messages call the value.

    Raises:
        InvalidArgument: The value is none of these. Naive datetimes and floats are refused: the
            former name no instant, the latter lose microseconds.

    >>> instant("2000-01-01T12:00:00Z")
    Instant('2000-01-01T12:00:00Z')
    """
    if isinstance(value, Instant):
        return value
    if isinstance(value, bool):
        raise _bad_instant(name, value)
    if isinstance(value, (int, np.integer)):
        return Instant(_fits(int(value), name, value))
    if isinstance(value, datetime):
        return _from_datetime(value, name)
    if isinstance(value, np.datetime64):
        return Instant(_numpy_micros(value, np.dtype("datetime64[us]"), name))
    if isinstance(value, str):
        try:
            parsed = datetime.fromisoformat(value)
        except ValueError:
            raise _bad_instant(name, value) from None
        return _from_datetime(parsed, name)
    raise _bad_instant(name, value)


def saturating_add(at: int, delta: int) -> int:
    """Return ``at + delta``, kept within the ends of time (S-T1)."""
    return max(START_OF_TIME, min(END_OF_TIME, at + delta))


def earliest(at: Int64Array) -> int:
    """Return the earliest of one or more instants."""
    return at.item() if at.size == 1 else int(at.min())


def latest(at: Int64Array) -> int:
    """Return the latest of one or more instants."""
    return at.item() if at.size == 1 else int(at.max())


def saturating_add_array(at: Int64Array, delta: int | Int64Array) -> Int64Array:
    """Return ``at + delta`` elementwise, kept within the ends of time (S-T1).

    Args:
        at: Instants, int64, any shape.
        delta: Durations of either sign, an int or int64 of the same shape.
    """
    if isinstance(delta, int) and (
        not at.size
        or (delta >= 0 and latest(at) <= END_OF_TIME - delta)
        or (delta < 0 and earliest(at) >= START_OF_TIME - delta)
    ):
        return at + delta
    with np.errstate(over="ignore"):
        total: Int64Array = at + delta
    if isinstance(delta, int):
        if delta >= 0:
            total[total < at] = END_OF_TIME
        else:
            total[total > at] = START_OF_TIME
        return total
    total[(delta >= 0) & (total < at)] = END_OF_TIME
    total[(delta < 0) & (total > at)] = START_OF_TIME
    return total


def format_instant(value: int) -> str:
    """Format an instant as ISO-8601 in UTC; ``-inf`` and ``+inf`` for the ends of time.

    Instants outside the years 1 to 9999 have no ISO-8601 form and print as microseconds.

    >>> format_instant(0), format_instant(END_OF_TIME)
    ('1970-01-01T00:00:00Z', '+inf')
    """
    if value == END_OF_TIME:
        return "+inf"
    if value == START_OF_TIME:
        return "-inf"
    try:
        at = _EPOCH + timedelta(microseconds=int(value))
    except OverflowError:
        return f"{int(value)}us"
    return at.replace(tzinfo=None).isoformat() + "Z"


def format_duration(value: int) -> str:
    """Format a duration as the shortest text that :func:`duration` parses back.

    >>> format_duration(5_400_000_000)
    '1h30m'
    """
    if value <= 0:
        return "0s" if value == 0 else "-" + format_duration(-value)
    parts = []
    for unit in ("d", "h", "m", "s", "ms", "us"):
        count, value = divmod(value, _UNITS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


def _parse_duration(text: str, name: str) -> int:
    body = text.strip().removeprefix("-")
    total, at = Fraction(0), 0
    for part in _DURATION_PART.finditer(body):
        if part.start() != at:
            break
        number, unit = part.groups()
        total += Fraction(number) * _UNITS[unit]
        at = part.end()
    if at == 0 or at != len(body):
        raise _bad_duration(name, text)
    result = round(total)
    return -result if text.strip().startswith("-") else result


def _read_instant(value: InstantLike) -> int:
    """Parse an instant, including the forms that only ``format_instant`` writes."""
    if value == "+inf":
        return END_OF_TIME
    if value == "-inf":
        return START_OF_TIME
    if isinstance(value, str) and _RAW_MICROS.fullmatch(value):
        return _fits(int(value.removesuffix("us")), "instant", value)
    return instant(value)


def _from_datetime(value: datetime, name: str) -> Instant:
    if value != value:  # pandas.NaT is a datetime that differs from itself
        raise _bad_instant(name, value)
    if value.tzinfo is None or value.utcoffset() is None:
        raise InvalidArgument(
            f"{describe(name, value)} has no time zone, so it is not an instant",
            hint='Add one: .replace(tzinfo=datetime.UTC), or "Z" at the end of the text',
        )
    return Instant((value - _EPOCH) // _MICROSECOND)


def _numpy_micros(
    value: np.datetime64 | np.timedelta64, unit: np.dtype[np.generic], name: str
) -> int:
    if np.isnat(value):
        raise InvalidArgument(f"{describe(name, value)} is not a time", hint="Leave it out")
    micros = value.astype(unit)
    back = micros.astype(value.dtype)
    coarser = np.datetime_data(value.dtype)[0] not in ("ns", "ps", "fs", "as")
    if coarser and back != value:
        raise InvalidArgument(
            f"{describe(name, value)} does not fit 64 bits of microseconds",
            hint="Use a time nearer to the present",
        )
    return int(micros.astype(np.int64))


def _fits(result: int, name: str, value: object) -> int:
    if START_OF_TIME <= result <= END_OF_TIME:
        return result
    raise InvalidArgument(
        f"{describe(name, value)} does not fit 64 bits of microseconds",
        hint="Use a value nearer to the present",
    )


def _bad_duration(name: str, value: object) -> InvalidArgument:
    hint = 'Use text such as "10s", "1h30m" or "250ms", a timedelta, or an int of microseconds'
    meant = _meant_duration(str(value)) if isinstance(value, (str, float)) else None
    return InvalidArgument(
        f"{describe(name, value)} is not a duration",
        hint=hint if meant is None else f"{meant} {hint}",
    )


def _meant_duration(text: str) -> str | None:
    """Return what to write for a duration in words, in ISO 8601, or without a unit."""
    found = _LOOSE_PART.findall(text.strip().lower().removeprefix("pt"))
    if not found or "".join(map("".join, found)) != re.sub(
        r"[\s,]|\band\b", "", text.strip().lower().removeprefix("pt")
    ):
        return None
    if any(word.startswith(("month", "year", "quarter", "mon", "yr")) for _, word in found):
        return "Months and years have no fixed length: see lw.CalendarWindows(months=1)."
    parts = [(number, _UNIT_WORDS.get(word)) for number, word in found]
    if all(unit is not None for _, unit in parts):
        return f"Did you mean {''.join(f'{number}{unit}' for number, unit in parts)!r}?"
    if len(parts) == 1 and not found[0][1]:
        return f'It has no unit: "{found[0][0]}s" is seconds.'
    return None


def _bad_instant(name: str, value: object) -> InvalidArgument:
    return InvalidArgument(
        f"{describe(name, value)} is not an instant",
        hint="Use an aware datetime, a numpy.datetime64, ISO-8601 text with an offset such as "
        '"2000-01-01T12:00:00Z", or an int of microseconds since 1970',
    )


_STEPS = (
    1_000, 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000,
)  # fmt: skip


def rounded_up(micros: int) -> str:
    """Round a duration up to whole units, so that it is easy to read.

    >>> rounded_up(70_000_001)
    '2m'
    """
    for step, above in zip(_STEPS, (*_STEPS[1:], None), strict=True):
        whole = -(-micros // step) * step
        if above is None or whole < above:
            return format_duration(whole)
    return format_duration(micros)
