"""A watermark that something outside the run drives by hand."""

from __future__ import annotations

from threading import Lock
from typing import Any, final

from lowwater.time import START_OF_TIME, Instant, InstantLike, format_instant, instant
from lowwater.watermark.estimators import EstimatorState
from lowwater.watermark.observed import Observed


@final
class External:
    """A watermark driven by hand, from another thread too; a run reads it after every bundle.

    ``ManualWatermark`` is another name of it, which goes with ``ManualClock``.

    >>> watermark = External()
    >>> watermark.advance_to("2000-01-01T12:00:00Z")
    >>> watermark.at
    Instant('2000-01-01T12:00:00Z')
    """

    __slots__ = ("_at", "_lock")

    def __init__(self) -> None:
        self._at = START_OF_TIME
        self._lock = Lock()  # of two threads that move it, neither takes the other's back

    @property
    def at(self) -> Instant:
        """Where it stands."""
        return Instant(self._at)

    def advance_to(self, to: InstantLike) -> None:
        """Move it forward; an earlier instant changes nothing (S-T3)."""
        at = instant(to, name="to")
        with self._lock:
            self._at = max(self._at, at)

    def start(self) -> EstimatorState:
        return self

    def observe(self, observed: Observed) -> None:
        """Event times do not move it."""

    def current(self, clock: int) -> int:
        """Return where it stands."""
        return self._at

    def remember(self) -> Any:
        """Return where it stands."""
        return {"external": int(self._at)}

    def resume(self, known: Any) -> None:
        """Move it to where it stood, unless it is further."""
        if isinstance(known, dict) and "external" in known:
            self.advance_to(known["external"])

    def holder(self) -> str:
        """Return that it is driven by hand."""
        return "it is driven by hand" + (
            ", and was not moved yet" if self._at == START_OF_TIME else ""
        )

    def __repr__(self) -> str:
        return f"<External at {format_instant(self._at)}>"


ManualWatermark = External
