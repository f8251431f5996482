"""A watermark that code outside the run advances."""

from __future__ import annotations

from threading import Lock
from typing import Any, final

from lowwater.time import START_OF_TIME, Instant, InstantLike, format_instant, instant
from lowwater.watermark.estimators import EstimatorState
from lowwater.watermark.observed import Observed


@final
class External:
    """A watermark that user code advances, from any thread; a run reads it after every bundle.

    ``ManualWatermark`` is an alias, to go with ``ManualClock``.

    >>> watermark = External()
    >>> watermark.advance_to("2000-01-01T12:00:00Z")
    >>> watermark.at
    Instant('2000-01-01T12:00:00Z')
    """

    __slots__ = ("_at", "_lock")

    def __init__(self) -> None:
        self._at = START_OF_TIME
        self._lock = Lock()  # so that of two threads the slower cannot move it back

    @property
    def at(self) -> Instant:
        """The current watermark."""
        return Instant(self._at)

    def advance_to(self, to: InstantLike) -> None:
        """Advance the watermark; an earlier instant changes nothing (S-T3)."""
        at = instant(to, name="to")
        with self._lock:
            self._at = max(self._at, at)

    def start(self) -> EstimatorState:
        return self

    def observe(self, observed: Observed) -> None:
        """Ignore the bundle: only user code advances this watermark."""

    def current(self, clock: int) -> int:
        """Return the current watermark."""
        return self._at

    def remember(self) -> Any:
        """Return the current watermark, to be stored."""
        return {"external": int(self._at)}

    def resume(self, known: Any) -> None:
        """Advance to the stored watermark, unless it is already past it."""
        if isinstance(known, dict) and "external" in known:
            self.advance_to(known["external"])

    def holder(self) -> str:
        """Describe what holds the watermark: the code that advances it."""
        return "external code advances it" + (
            ", and has not done so yet" if self._at == START_OF_TIME else ""
        )

    def __repr__(self) -> str:
        return f"<External at {format_instant(self._at)}>"


ManualWatermark = External
