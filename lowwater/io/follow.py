"""How readers wait for files that appear later."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import final

from lowwater.errors import InvalidArgument, describe
from lowwater.time import DurationLike
from lowwater.windows._base import positive_duration

HEARTBEAT_US = 1_000_000
"""The longest time between heartbeats of a waiting source, in microseconds."""

POLL_US = 1_000_000
"""The time between polls, unless a reader is told otherwise, in microseconds."""

wait: Callable[[float], object] = time.sleep
"""Called with the seconds to wait; tests replace it and add files instead."""

stopwatch: Callable[[], float] = time.monotonic
"""Returns monotonic seconds; tests replace it."""


@final
@dataclass(frozen=True, slots=True)
class Follow:
    """How often to poll for new files, and when to stop.

    Args:
        poll_us: Time between polls, above zero.
        max_idle_us: The input ends after this time without new files; ``None``: never.
        stop: Called before each poll; once it returns true, the input ends after that poll.
            ``None``: never.
        once: Whether the input ends with the files of the first poll, once they are complete.
    """

    poll_us: int
    max_idle_us: int | None = None
    stop: Callable[[], bool] | None = None
    once: bool = field(default=False, repr=False)

    @classmethod
    def of(
        cls,
        follow: bool,
        poll_every: DurationLike,
        max_idle: DurationLike | None,
        stop: Callable[[], bool] | None,
    ) -> Follow | None:
        """Build it from the options of a reader; ``None`` if the reader is not to follow.

        Raises:
            InvalidArgument: An option is invalid, or is given without ``follow=True``.
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

    @classmethod
    def up_to_now(cls, follow: Follow | None) -> Follow:
        """Return how to read the files that are there now, and those only.

        A file that is still being written is waited for, as following does.
        """
        return replace(cls(POLL_US) if follow is None else follow, once=True)

    def is_idle(self, idle_us: int) -> bool:
        """Return whether to end after this many microseconds without new files."""
        return self.max_idle_us is not None and idle_us >= self.max_idle_us

    def is_stopped(self) -> bool:
        """Ask whether to end; call it before a poll, so that the poll finds what came before."""
        return self.once or (self.stop is not None and bool(self.stop()))

    def beats(self) -> Iterator[float]:
        """Wait for the next poll in steps of at most a heartbeat; yield the length of each step.

        Time that passes before the next step is requested counts as waited, so that a source does
        not wait again while the run has been reading others.
        """
        for start in range(0, self.poll_us, HEARTBEAT_US):
            seconds = min(HEARTBEAT_US, self.poll_us - start) / 1e6
            asked = stopwatch()
            yield seconds
            left = seconds - (stopwatch() - asked)
            if left > 0:
                wait(left)
