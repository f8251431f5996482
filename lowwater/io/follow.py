"""Waiting for files that are still to come."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import final

from lowwater.errors import InvalidArgument, describe
from lowwater.time import DurationLike
from lowwater.windows._base import positive_duration

HEARTBEAT_US = 1_000_000
"""The longest a source that waits leaves its run without a heartbeat, in microseconds."""

wait: Callable[[float], object] = time.sleep
"""Called with the seconds to wait: where tests put files instead."""

stopwatch: Callable[[], float] = time.monotonic
"""Called for seconds since any moment."""


@final
@dataclass(frozen=True, slots=True)
class Follow:
    """How to look for new files, and until when.

    Args:
        poll_us: Time between two looks, above zero.
        max_idle_us: The input ends when there was nothing new for so long; ``None``: never.
        stop: Asked after each look; the input ends when it says so. ``None``: never.
    """

    poll_us: int
    max_idle_us: int | None = None
    stop: Callable[[], bool] | None = None

    @classmethod
    def of(
        cls,
        follow: bool,
        poll_every: DurationLike,
        max_idle: DurationLike | None,
        stop: Callable[[], bool] | None,
    ) -> Follow | None:
        """Return what the options of a reader stand for; ``None`` if it is not to follow.

        Raises:
            InvalidArgument: One of them makes no sense, or none without ``follow=True``.
        """
        if not isinstance(follow, bool):
            raise InvalidArgument(f"{describe('follow', follow)} is not a bool", hint="Say True")
        poll_us = positive_duration(poll_every, "poll_every")
        idle_us = None if max_idle is None else positive_duration(max_idle, "max_idle")
        if stop is not None and not callable(stop):
            raise InvalidArgument(
                f"{describe('stop', stop)} is not a function",
                hint="Give one that says whether to stop, such as the is_set of an event",
            )
        if follow:
            return cls(poll_us, idle_us, stop)
        if max_idle is not None or stop is not None:
            name = "stop" if max_idle is None else "max_idle"
            raise InvalidArgument(f"{name}= does nothing without follow=True", hint="Add it")
        return None

    def is_over(self, idle_us: int) -> bool:
        """Return whether to look no more, after so many microseconds with nothing new."""
        if self.max_idle_us is not None and idle_us >= self.max_idle_us:
            return True
        return self.stop is not None and bool(self.stop())

    def beats(self) -> Iterator[float]:
        """Yield the seconds to wait before the next look, cut so that a heartbeat fits between.

        What has passed until the next one is asked for, while other sources were read, counts.
        """
        for start in range(0, self.poll_us, HEARTBEAT_US):
            seconds = min(HEARTBEAT_US, self.poll_us - start) / 1e6
            asked = stopwatch()
            yield seconds
            left = seconds - (stopwatch() - asked)
            if left > 0:
                wait(left)
