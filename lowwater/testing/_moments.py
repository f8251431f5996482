"""Parses and formats times in scenarios: times of day, and every form of S-T1."""

from __future__ import annotations

import re
from datetime import time
from typing import TypeAlias

from lowwater.errors import InvalidArgument
from lowwater.time import DAY_US, END_OF_TIME, START_OF_TIME, Instant, InstantLike, instant

MomentLike: TypeAlias = InstantLike
"""``"12:00:26"`` (on 2000-01-01, UTC), ``"-inf"``, ``"+inf"``, or any form of S-T1."""

DAY = instant("2000-01-01T00:00:00Z")
_TIME_OF_DAY = re.compile(r"([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d{1,6})?)?")
_ENDS = {"-inf": START_OF_TIME, "+inf": END_OF_TIME}


def moment(value: MomentLike, *, name: str = "time") -> Instant:
    """Return an instant; text such as ``"12:00:26"`` is a time of 2000-01-01, UTC.

    Raises:
        InvalidArgument: The value is not an instant.

    >>> moment("12:00:26")
    Instant('2000-01-01T12:00:26Z')
    """
    if not isinstance(value, str):
        return instant(value, name=name)
    text = value.strip()
    if text in _ENDS:
        return Instant(_ENDS[text])
    if _TIME_OF_DAY.fullmatch(text):
        at = time.fromisoformat(text)
        seconds = at.hour * 3600 + at.minute * 60 + at.second
        return Instant(DAY + seconds * 1_000_000 + at.microsecond)
    return instant(text, name=name)


def readable(value: object) -> Instant | object:
    """Parse an instant; return any other value unchanged, as invalid input to test (S-B1)."""
    try:
        return moment(value)  # type: ignore[arg-type]  # what it refuses comes back as it is
    except InvalidArgument:
        return value


def show(at: int) -> str | int:
    """Return the shortest form of an instant that :func:`moment` reads back.

    >>> show(moment("12:00:26")), show(moment("2020-02-02T00:00:00Z")), show(2**62)
    ('12:00:26', '2020-02-02T00:00:00Z', 4611686018427387904)
    """
    text = str(Instant(at))
    if DAY <= at < DAY + DAY_US:
        return text.removeprefix("2000-01-01T").removesuffix("Z")
    return int(at) if text.endswith("us") else text
