"""Watermark estimators: each predicts that no further element arrives below an instant (S-T3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, final, runtime_checkable

import numpy as np

from lowwater.errors import InvalidArgument, constructor, describe
from lowwater.time import (
    START_OF_TIME,
    DurationLike,
    Int64Array,
    as_micros,
    duration,
    format_duration,
    meant,
    saturating_add,
)
from lowwater.watermark.observed import Observed


class EstimatorState(Protocol):
    """The running state of an estimator: observes every bundle; its watermark never goes back."""

    def observe(self, observed: Observed, /) -> None:
        """Observe a bundle."""
        ...

    def current(self, clock: int, /) -> int:
        """Return the watermark (int microseconds): no further element is expected below it.

        Args:
            clock: The clock now, int microseconds.
        """
        ...

    def remember(self) -> Any:
        """Return the state to store, as plain values that :mod:`lowwater.state.codec` encodes."""
        ...

    def resume(self, known: Any, /) -> None:
        """Restore the state that an earlier run stored.

        Must ignore the state of a different estimator, so that a pipeline may change estimators.
        The watermark does not go back even then, because the run stores it separately.
        """
        ...


@runtime_checkable
class Holder(Protocol):
    """An estimator state that can say what holds its watermark."""

    def holder(self) -> str | None:
        """Describe it, as in ``"partition 3 has not been seen"``; ``None`` if nothing holds it."""
        ...


@runtime_checkable
class WatermarkEstimator(Protocol):
    """A value that defines how a source's watermark is estimated; each run calls ``start()``."""

    def start(self) -> EstimatorState:
        """Return the initial state, with a watermark at the start of time."""
        ...


@constructor(
    bound="delay",
    lateness="delay",
    max_delay="delay",
    max_out_of_orderness="delay",
    out_of_orderness="delay",
)
@final
@dataclass(frozen=True, slots=True, repr=False)
class BoundedDisorder:
    """The watermark trails the latest event time by ``delay``.

    Exact if no element arrives more than ``delay`` out of order; elements that do may be late.

    Args:
        delay: How far out of order elements may arrive; zero or more.

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
        object.__setattr__(self, "delay", meant(delay))

    def start(self) -> EstimatorState:
        return _DisorderState(as_micros(self.delay))

    def telling(self, observed: Observed) -> Int64Array:
        return latest_row(observed.times)

    def __repr__(self) -> str:
        return f"BoundedDisorder({format_duration(as_micros(self.delay))!r})"


@final
@dataclass(frozen=True, slots=True)
class Ascending:
    """Elements arrive in order of event time; several may share an instant.

    >>> state = Ascending().start()
    >>> state.current(0) == START_OF_TIME
    True
    """

    def start(self) -> EstimatorState:
        return _DisorderState(0)

    def telling(self, observed: Observed) -> Int64Array:
        return latest_row(observed.times)


@runtime_checkable
class Telling(Protocol):
    """An estimator that learns all it can from a few of the elements."""

    def telling(self, observed: Observed, /) -> Int64Array:
        """Return the rows of a bundle, int64, ascending, of which it learns the same."""
        ...


def telling(estimator: WatermarkEstimator | None, observed: Observed) -> Int64Array | None:
    """Return the rows of a bundle that matter to an estimator; ``None`` for all of them.

    A runner that has to tell an estimator what others have read sends these rows alone.
    """
    if estimator is None:
        return np.zeros(min(1, len(observed.times)), dtype=np.int64)
    return estimator.telling(observed) if isinstance(estimator, Telling) else None


def latest_row(times: Int64Array) -> Int64Array:
    """Return the row of the latest event time, int64, of shape (1,), or (0,) if there is none."""
    return np.array([times.argmax()] if len(times) else [], dtype=np.int64)


def columns_read(estimator: WatermarkEstimator) -> tuple[str, ...]:
    """Return the columns that an estimator reads in addition to the event time.

    An estimator lists them in an optional attribute ``columns``, a tuple of names.
    """
    columns: tuple[str, ...] = getattr(estimator, "columns", ())
    return columns


def holder_of(state: EstimatorState) -> str | None:
    """Return what holds an estimator's watermark, if the estimator reports it (:class:`Holder`)."""
    holder = getattr(state, "holder", None)  # a check against the protocol costs ten times as much
    return None if holder is None else holder()


def announce_partitions(state: EstimatorState, partitions: Sequence[Any]) -> None:
    """Announce the partitions of a source to an estimator that tracks partitions."""
    announce = getattr(state, "announce", None)
    if announce is not None:
        announce(partitions)


def excuse_silence(state: EstimatorState, clock: int) -> None:
    """Restart an estimator's measurement of silence at this instant, if it has one.

    Needed when a run on the wall clock resumes: the time while it was stopped is not silence.
    """
    excuse = getattr(state, "excuse", None)
    if excuse is not None:
        excuse(clock)


def count_silence(state: EstimatorState) -> None:
    """Undo :func:`excuse_silence` for what has had no element since, if an estimator measures it.

    Needed when a run has read all that was there: the time while nothing ran was silence, then.
    """
    count = getattr(state, "count_silence", None)
    if count is not None:
        count()


@final
class _DisorderState:
    """The latest event time minus a delay."""

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
