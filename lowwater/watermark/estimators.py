"""How a source guesses its watermark: no further element is expected below it (S-T3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, final, runtime_checkable

from lowwater.errors import InvalidArgument, describe
from lowwater.time import (
    START_OF_TIME,
    DurationLike,
    Instant,
    InstantLike,
    Int64Array,
    duration,
    format_duration,
    instant,
    saturating_add,
)


class EstimatorState(Protocol):
    """A watermark in the making: it is shown every bundle and never goes back."""

    def observe(self, times: Int64Array) -> None:
        """Take note of the event times of a bundle (int64 microseconds, shape (n,))."""
        ...

    def current(self) -> int:
        """Return the watermark (int microseconds): no further element is expected below it."""
        ...

    def remember(self) -> int:
        """Return what it knows, as one int, to be stored."""
        ...

    def resume(self, known: int) -> None:
        """Take up what another run's estimator knew."""
        ...


@runtime_checkable
class WatermarkEstimator(Protocol):
    """A value that says how a source's watermark is guessed; each run starts it anew."""

    def start(self) -> EstimatorState:
        """Return the state before anything was seen: at the start of time."""
        ...


@final
@dataclass(frozen=True, slots=True, repr=False)
class BoundedDisorder:
    """Elements come at most ``delay`` behind the latest one: the watermark is that far behind it.

    Args:
        delay: How far out of order elements may come; zero or more.

    >>> BoundedDisorder("5m")
    BoundedDisorder('5m')
    """

    delay: DurationLike

    def __post_init__(self) -> None:
        delay = duration(self.delay, name="delay")
        if delay < 0:
            raise InvalidArgument(
                f"{describe('delay', self.delay)} must not be negative", mend='Use, say, "5m"'
            )
        object.__setattr__(self, "delay", delay)

    def start(self) -> EstimatorState:
        return _Behind(duration(self.delay))

    def __repr__(self) -> str:
        return f"BoundedDisorder({format_duration(duration(self.delay))!r})"


@final
@dataclass(frozen=True, slots=True)
class Ascending:
    """Elements come in the order of their event times; several may share one."""

    def start(self) -> EstimatorState:
        return _Behind(0)


@final
class ManualWatermark:
    """A watermark driven by hand; the runner reads it after every bundle.

    >>> watermark = ManualWatermark()
    >>> watermark.advance_to("2000-01-01T12:00:00Z")
    >>> watermark.at
    Instant('2000-01-01T12:00:00Z')
    """

    def __init__(self) -> None:
        self._at = START_OF_TIME

    @property
    def at(self) -> Instant:
        """Where it stands."""
        return Instant(self._at)

    def advance_to(self, to: InstantLike) -> None:
        """Move it forward; an earlier instant changes nothing (S-T3)."""
        self._at = max(self._at, instant(to, name="to"))

    def start(self) -> EstimatorState:
        return self

    def observe(self, times: Int64Array) -> None:
        """Event times do not move it."""

    def current(self) -> int:
        return self._at

    def remember(self) -> int:
        """Return where it stands."""
        return self._at

    def resume(self, known: int) -> None:
        """Move it to where it stood, unless it is further."""
        self._at = max(self._at, known)


@final
class _Behind:
    """The latest event time, less a delay."""

    __slots__ = ("_delay", "_latest")

    def __init__(self, delay: int) -> None:
        self._delay = delay
        self._latest = START_OF_TIME

    def observe(self, times: Int64Array) -> None:
        if times.size:
            self._latest = max(self._latest, int(times.max()))

    def current(self) -> int:
        if self._latest == START_OF_TIME:
            return START_OF_TIME
        return saturating_add(self._latest, -self._delay)

    def remember(self) -> int:
        return self._latest

    def resume(self, known: int) -> None:
        self._latest = known
