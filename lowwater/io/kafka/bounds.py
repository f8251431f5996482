"""Where the reading of a topic begins and ends."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal, TypeAlias

import numpy as np

from lowwater.errors import InvalidArgument, describe
from lowwater.time import Instant, instant

KafkaStart: TypeAlias = (
    Literal["earliest", "latest"] | str | datetime | np.datetime64 | Instant | Mapping[int, int]
)
"""``"earliest"``, ``"latest"``, the time of the first message, or offsets by partition."""

KafkaEnd: TypeAlias = (
    Literal["never", "latest"] | str | datetime | np.datetime64 | Instant | Mapping[int, int]
)
"""``"never"``, ``"latest"``, the time of the first message that is not read, or offsets."""

GivenOffsets: TypeAlias = tuple[tuple[int, int], ...]
"""Pairs of a partition and an offset, by partition."""

Bound: TypeAlias = str | Instant | GivenOffsets
"""A start or an end as a source keeps it: a word, a time of messages, or offsets."""


def bound_of(option: str, given: KafkaStart | KafkaEnd, words: tuple[str, ...]) -> Bound:
    """Return a bound of the reading of a topic.

    Args:
        option: The name of the option, for errors.
        given: What was given.
        words: The words that it may be.

    Raises:
        InvalidArgument: It is none.

    >>> bound_of("end", {1: 95, 0: 120}, ("never",))
    ((0, 120), (1, 95))
    """
    if isinstance(given, str) and given in words:
        return given
    if isinstance(given, Mapping):
        counts = [*given, *given.values()]
        if given and all(type(one) is int and one >= 0 for one in counts):
            return tuple(sorted(given.items()))
    elif isinstance(given, (str, datetime, np.datetime64, Instant)):
        try:
            return Instant(instant(given))
        except InvalidArgument:
            pass
    raise InvalidArgument(
        f"{describe(option, given)} is no place in a topic",
        hint=f'Use {", ".join(map(repr, words))}, a time such as "2026-11-23T08:00Z", or offsets '
        "by partition such as {0: 120, 1: 95}",
    )
