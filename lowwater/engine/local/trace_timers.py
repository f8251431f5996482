"""Keeps what became of the timers of a stage, for its trace."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import final

from lowwater.engine.graph.trace import TracedTimer
from lowwater.engine.records.steps import TimerEvent
from lowwater.time import Instant
from lowwater.windows import Window


@final
class TracedTimers:
    """What became of timers; beyond the limit, of those of some keys.

    Args:
        limit: The most events to keep; ``None`` for all.
    """

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._thinning = 0
        self._events: list[tuple[int, TimerEvent]] = []

    def add(self, order: int, events: Sequence[TimerEvent]) -> None:
        """Add what became of timers in one step."""
        self._events += [(order, event) for event in events if self._is_kept(event)]
        while self._limit is not None and len(self._events) > self._limit and self._thinning < 32:
            self._thinning += 1
            self._events = [one for one in self._events if self._is_kept(one[1])]

    def _is_kept(self, event: TimerEvent) -> bool:
        """Return whether a key is one of those that are kept: about one in ``2 ** thinning``."""
        if not self._thinning:
            return True
        return not zlib.crc32(repr(event.key).encode()) & ((1 << self._thinning) - 1)

    def trace(self) -> tuple[TracedTimer, ...]:
        """Return them as values. O(events)."""
        return tuple(
            TracedTimer(
                event.what, event.name, event.tag, event.key,
                None if event.window is None
                else Window(Instant(event.window[0]), Instant(event.window[1])),
                Instant(event.at), Instant(event.time), Instant(event.watermark),
                Instant(event.clock), order,
            )
            for order, event in self._events
        )  # fmt: skip
