"""How a source guesses its watermark: no further element is expected below it (S-T3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, final, runtime_checkable

from lowwater.errors import InvalidArgument, describe
from lowwater.time import (
    START_OF_TIME,
    DurationLike,
    duration,
    format_duration,
    saturating_add,
)
from lowwater.watermark.observed import Observed


class EstimatorState(Protocol):
    """A watermark in the making: it is shown every bundle and never goes back."""

    def observe(self, observed: Observed) -> None:
        """Take note of a bundle."""
        ...

    def current(self, clock: int) -> int:
        """Return the watermark (int microseconds): no further element is expected below it.

        Args:
            clock: The clock now, int microseconds.
        """
        ...

    def remember(self) -> Any:
        """Return what it knows, as plain values that :mod:`lowwater.state.codec` can store."""
        ...

    def resume(self, known: Any) -> None:
        """Take up what another run's estimator knew.

        What an estimator of another kind knew is passed over: the run's own watermark, which is
        stored apart, does not go back all the same.
        """
        ...


@runtime_checkable
class Holder(Protocol):
    """An estimator's state that can tell what holds its watermark where it is."""

    def holder(self) -> str | None:
        """Return it in words, such as ``"partition 3 has not been seen"``; ``None``: nothing."""
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
                f"{describe('delay', self.delay)} must not be negative", hint='Use, say, "5m"'
            )
        object.__setattr__(self, "delay", delay)

    def start(self) -> EstimatorState:
        return _DisorderState(duration(self.delay))

    def __repr__(self) -> str:
        return f"BoundedDisorder({format_duration(duration(self.delay))!r})"


@final
@dataclass(frozen=True, slots=True)
class Ascending:
    """Elements come in the order of their event times; several may share one."""

    def start(self) -> EstimatorState:
        return _DisorderState(0)


def columns_read(estimator: WatermarkEstimator) -> tuple[str, ...]:
    """Return the columns of the records that an estimator reads, beside the event time.

    An estimator says so in ``columns``, a tuple of names, if it has that; else it reads none.
    """
    columns: tuple[str, ...] = getattr(estimator, "columns", ())
    return columns


def holder_of(state: EstimatorState) -> str | None:
    """Return what holds an estimator's watermark, if it can tell (see :class:`Holder`)."""
    return state.holder() if isinstance(state, Holder) else None


def excuse_silence(state: EstimatorState, clock: int) -> None:
    """Have an estimator count silence from this instant on, if silence means something to it.

    For a run by the machine's clock that goes on where another one stopped: nobody listened then.
    """
    excuse = getattr(state, "excuse", None)
    if excuse is not None:
        excuse(clock)


@final
class _DisorderState:
    """The latest event time, less a delay."""

    __slots__ = ("_delay", "_latest")

    def __init__(self, delay: int) -> None:
        self._delay = delay
        self._latest = START_OF_TIME

    def observe(self, observed: Observed) -> None:
        if observed.times.size:
            self._latest = max(self._latest, int(observed.times.max()))

    def current(self, clock: int) -> int:
        if self._latest == START_OF_TIME:
            return START_OF_TIME
        return saturating_add(self._latest, -self._delay)

    def remember(self) -> int:
        return self._latest

    def resume(self, known: Any) -> None:
        if isinstance(known, int):
            self._latest = known
