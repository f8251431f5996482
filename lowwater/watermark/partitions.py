"""One watermark from many partitions: the minimum of the partitions' estimates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Protocol, final

import numpy as np

from lowwater.errors import InvalidArgument, constructor, describe
from lowwater.time import (
    START_OF_TIME,
    DurationLike,
    Int64Array,
    as_micros,
    format_duration,
    format_instant,
    meant,
    saturating_add,
    saturating_add_array,
)
from lowwater.watermark._grouping import Grouping
from lowwater.watermark.estimators import (
    Ascending,
    BoundedDisorder,
    EstimatorState,
    WatermarkEstimator,
    columns_read,
    holder_of,
)
from lowwater.watermark.external import External
from lowwater.watermark.observed import PARTITION, Observed
from lowwater.windows._base import positive_duration


class Estimates(Protocol):
    """The estimates of several partitions. Each partition has a slot."""

    def observe(self, slots: Int64Array, grouping: Grouping, observed: Observed) -> None:
        """Observe a bundle whose i-th partition has slot ``slots[i]``; -1 means to ignore it."""
        ...

    def current(self, clock: int) -> Int64Array:
        """Return each slot's estimate, int64 microseconds."""
        ...

    def grow(self, slots: int) -> None:
        """Extend to ``slots`` slots."""
        ...

    def slot(self, slot: int) -> EstimatorState:
        """Return the estimator state of one slot."""
        ...


@final
class PartitionsState:
    """The minimum watermark over all expected partitions, or all that are known so far.

    A partition is known once its source has announced it, or it was seen.

    Args:
        estimates: The estimate of each partition.
        by: The column of partitions; those of the source are announced.
        expected: The partitions that count; ``None`` for those that are known.
        idle_after: A partition without elements for this long is ignored, in microseconds of the
            clock; ``None``: never.
    """

    def __init__(
        self, estimates: Estimates, by: str, expected: Sequence[Any] | None, idle_after: int | None
    ) -> None:
        self._estimates = estimates
        self._by = by
        self._idle_after = idle_after
        self._fixed = expected is not None
        self._partitions: list[Any] = []
        self._slots: dict[Any, int] = {}
        self._heard = np.zeros(0, dtype=np.bool_)
        # Where nothing was heard: when it was announced, or the start of time before a clock is.
        self._heard_at = np.zeros(0, dtype=np.int64)
        # Where silence was excused, and nothing was heard since: when it was heard before.
        self._excused: dict[int, int] = {}
        self._clock = START_OF_TIME
        self._at = START_OF_TIME
        self._add(expected or ())

    def announce(self, partitions: Sequence[Any]) -> None:
        """Wait for partitions of the source from which elements may come. O(partitions)."""
        if self._by == PARTITION and not self._fixed:
            self._add(p for p in partitions if p not in self._slots)

    def observe(self, observed: Observed) -> None:
        """Observe a bundle. O(n + partitions in it) if the estimates are vectorised."""
        self._move_clock(observed.clock)
        n = len(observed.times)
        if not n:
            return
        grouping = Grouping(observed.column(self._by, "watermark=PerPartition(...)"), n)
        if not self._fixed:
            self._add(p for p in grouping.partitions if p not in self._slots)
        found = [self._slots.get(partition, -1) for partition in grouping.partitions]
        slots = np.array(found, dtype=np.int64)
        self._estimates.observe(slots, grouping, observed)
        slots = slots[slots >= 0]
        self._heard[slots] = True
        self._heard_at[slots] = self._clock
        for slot in slots.tolist() if self._excused else ():
            self._excused.pop(slot, None)

    def current(self, clock: int) -> int:
        """Return the watermark. O(partitions)."""
        self._move_clock(clock)
        if self._heard.any() and not self._missing().any():
            estimates = self._estimates.current(self._clock)
            self._at = max(self._at, int(estimates[self._active()].min()))
        return self._at

    def remember(self) -> Any:
        slots = np.flatnonzero(self._heard).tolist()
        unheard = [] if self._fixed else np.flatnonzero(~self._heard).tolist()
        heard_at = self._heard_at.copy()
        heard_at[list(self._excused)] = list(self._excused.values())
        return {
            "at": self._at,
            "clock": self._clock,
            "partitions": [self._partitions[slot] for slot in slots],
            "heard_at": heard_at[slots].tolist(),
            "estimates": [self._estimates.slot(slot).remember() for slot in slots],
            "announced": [[self._partitions[n], int(heard_at[n])] for n in unheard],
        }

    def resume(self, known: Any) -> None:
        if not isinstance(known, dict) or "partitions" not in known:
            return
        self._at = max(self._at, known["at"])
        self._clock = max(self._clock, known["clock"])
        partitions = known["partitions"]
        if not self._fixed:
            self._add(p for p in partitions if p not in self._slots)
        stored = zip(partitions, known["heard_at"], known["estimates"], strict=True)
        for partition, heard_at, estimate in stored:
            slot = self._slots.get(partition)
            if slot is not None:
                self._heard[slot] = True
                self._heard_at[slot] = heard_at
                self._estimates.slot(slot).resume(estimate)
        for partition, announced_at in known.get("announced", ()):  # earlier versions had none
            self.announce([partition])
            slot = self._slots.get(partition)
            if slot is not None and not self._heard[slot]:
                self._heard_at[slot] = announced_at

    def excuse(self, clock: int) -> None:
        """Measure silence from this instant on, because nothing was read before.

        Needed when a run on the wall clock resumes: otherwise every partition would look idle at
        once, and the first one to be read would pull the watermark past the others.
        """
        self._move_clock(clock)
        self._excused = dict(enumerate(self._heard_at.tolist())) | self._excused
        self._heard_at[:] = self._clock

    def count_silence(self) -> None:
        """Count all the time without an element again, where there was none since the excuse."""
        self._heard_at[list(self._excused)] = list(self._excused.values())
        self._excused = {}

    def holder(self) -> str:
        """Return which partition holds the watermark, and why."""
        if not self._heard.size:
            return "no partition has been seen"
        missing = np.flatnonzero(self._missing() if self._heard.any() else ~self._heard)
        if missing.size:
            others = f", nor have {missing.size - 1} others" if missing.size > 1 else ""
            return f"partition {self._partitions[missing[0]]!r} has not been seen{others}"
        active = self._active()
        slots = np.flatnonzero(active)
        slot = int(slots[np.argmin(self._estimates.current(self._clock)[slots])])
        text = f"partition {self._partitions[slot]!r}"
        since = int(self._heard_at[slot])
        if self._idle(since):
            text += f" idle since {format_instant(since)}, the last one to fall idle"
        elif since < self._clock:
            text += f" silent since {format_instant(since)}"
        else:
            text += " is behind the others" if self._heard.size > 1 else ", the only one"
        inner = holder_of(self._estimates.slot(slot))
        return text if inner is None else f"{text}: {inner}"

    def left_out(self) -> list[Any]:
        """Return the partitions that are ignored as idle, in the order in which they were known."""
        if not self._heard.any() or (self._fixed and not self._heard.all()):
            return []
        return [self._partitions[slot] for slot in np.flatnonzero(~self._active()).tolist()]

    def _missing(self) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        """Return which partitions are waited for that were not heard yet, bool."""
        return ~self._heard if self._fixed else ~self._heard & self._active()

    def _active(self) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        """Return which partitions count, bool; at least one does if any was heard.

        The partitions heard last always count, so the watermark does not depend on whether it was
        read between the moments at which one partition and then the next became idle.
        """
        heard_at = self._heard_at
        if self._idle_after is None:
            return np.ones(heard_at.size, dtype=np.bool_)
        due = self._clock - self._idle_after
        if due < START_OF_TIME:
            return np.ones(heard_at.size, dtype=np.bool_)
        active: np.ndarray[tuple[int, ...], np.dtype[np.bool_]] = heard_at > due
        last = heard_at[self._heard].max(initial=START_OF_TIME)
        return active | (self._heard & (heard_at == last))

    def _idle(self, since: int) -> bool:
        return self._idle_after is not None and self._clock - since >= self._idle_after

    def _move_clock(self, clock: int) -> None:
        if clock > self._clock:
            if self._clock == START_OF_TIME:  # what was announced before there was a clock
                self._heard_at[~self._heard & (self._heard_at == START_OF_TIME)] = clock
            self._clock = clock

    def _add(self, partitions: Any) -> None:
        for partition in partitions:
            self._slots[partition] = len(self._partitions)
            self._partitions.append(partition)
        more = len(self._partitions) - self._heard.size
        if more:
            self._heard = np.concatenate((self._heard, np.zeros(more, dtype=np.bool_)))
            since = np.full(more, self._clock, dtype=np.int64)
            self._heard_at = np.concatenate((self._heard_at, since))
            self._estimates.grow(len(self._partitions))


@final
class DisorderEstimates:
    """``BoundedDisorder`` for all partitions, vectorised: one column of latest event times."""

    def __init__(self, delay: int) -> None:
        self._delay = delay
        self._latest = np.zeros(0, dtype=np.int64)

    def observe(self, slots: Int64Array, grouping: Grouping, observed: Observed) -> None:
        latest = grouping.latest(observed.times)
        known = slots >= 0
        # maximum.at rather than assignment: a dictionary may hold one partition twice, and then
        # a slot occurs twice too.
        np.maximum.at(self._latest, slots[known], latest[known])

    def current(self, clock: int) -> Int64Array:
        return saturating_add_array(self._latest, -self._delay)

    def grow(self, slots: int) -> None:
        more = np.full(slots - self._latest.size, START_OF_TIME, dtype=np.int64)
        self._latest = np.concatenate((self._latest, more))

    def slot(self, slot: int) -> EstimatorState:
        return _DisorderSlot(self._latest, slot, self._delay)


@final
class _DisorderSlot:
    def __init__(self, latest: Int64Array, slot: int, delay: int) -> None:
        self._latest = latest
        self._slot = slot
        self._delay = delay

    def observe(self, observed: Observed) -> None:
        if observed.times.size:
            self._latest[self._slot] = max(self._latest[self._slot], observed.times.max())

    def current(self, clock: int) -> int:
        return saturating_add(int(self._latest[self._slot]), -self._delay)

    def remember(self) -> Any:
        return int(self._latest[self._slot])

    def resume(self, known: Any) -> None:
        if isinstance(known, int):
            self._latest[self._slot] = known


@final
class SeparateEstimates:
    """Any other estimator, one per partition: a Python call per partition, not per element."""

    def __init__(self, estimator: WatermarkEstimator) -> None:
        self._estimator = estimator
        self._states: list[EstimatorState] = []

    def observe(self, slots: Int64Array, grouping: Grouping, observed: Observed) -> None:
        for slot, part in zip(slots.tolist(), grouping.parts(observed), strict=True):
            if slot >= 0:
                self._states[slot].observe(part)

    def current(self, clock: int) -> Int64Array:
        found = (state.current(clock) for state in self._states)
        return np.fromiter(found, dtype=np.int64, count=len(self._states))

    def grow(self, slots: int) -> None:
        self._states += [self._estimator.start() for _ in range(slots - len(self._states))]

    def slot(self, slot: int) -> EstimatorState:
        return self._states[slot]


@constructor(
    key="by",
    column="by",
    partition_by="by",
    partitions="expected",
    idle="idle_after",
    idleness="idle_after",
    timeout="idle_after",
)
@final
@dataclass(frozen=True, slots=True, repr=False)
class PerPartition:
    """The minimum of the watermarks of all partitions, each estimated from its own elements.

    An expected partition without elements holds the watermark at the start of time indefinitely,
    because its elements may have any event time. Without ``expected``, all partitions count that
    the source has announced, as ``read_kafka`` and ``read_log`` do, or that were seen; elements of
    a partition that becomes known later may be late. The watermark never goes back (S-T3), even
    when a partition appears or resumes.

    A partition without elements for ``idle_after``, by the clock of the run, is ignored until its
    next element, also one that was announced and has had none. The partition heard last is never
    ignored: if all are idle, it alone holds the watermark.

    Args:
        estimator: Estimates the watermark of each partition.
        by: The column with each element's partition; ``None`` if the source knows it (as a log
            does). Null is a partition like any other.
        expected: The partitions that count; elements of others neither advance nor hold the
            watermark. ``None``: those that are known.
        idle_after: How long a partition may be silent, above zero; ``None``: indefinitely.

    ``BoundedDisorder`` and ``Ascending`` cost O(n) per bundle in numpy, and O(partitions) per read
    of the watermark. Other estimators cost one Python call more per partition in the bundle.

    >>> PerPartition(BoundedDisorder("5s"), by="sensor", idle_after="1m")
    PerPartition(BoundedDisorder('5s'), by='sensor', idle_after='1m')
    """

    estimator: WatermarkEstimator
    _: KW_ONLY
    by: str | None = None
    expected: Iterable[Any] | None = None
    idle_after: DurationLike | None = None

    def __post_init__(self) -> None:
        estimator = self.estimator
        if isinstance(estimator, type) or not isinstance(estimator, WatermarkEstimator):
            raise InvalidArgument(
                f"{describe('estimator', estimator)} is not a watermark estimator",
                hint='Use, say, PerPartition(BoundedDisorder("5s"))',
            )
        if isinstance(estimator, External):
            raise InvalidArgument(
                "External is one watermark, which all partitions would share",
                where="PerPartition",
                hint="Use External() alone",
            )
        if self.by is not None and not isinstance(self.by, str):
            raise InvalidArgument(
                f"{describe('by', self.by)} is not the name of a column", hint='Write by="sensor"'
            )
        if self.expected is not None:
            object.__setattr__(self, "expected", _distinct(self.expected))
        if self.idle_after is not None:
            idle_after = positive_duration(self.idle_after, "idle_after")
            object.__setattr__(self, "idle_after", meant(idle_after))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the estimator reads."""
        own = () if self.by is None else (self.by,)
        return (*own, *(name for name in columns_read(self.estimator) if name != self.by))

    def start(self) -> EstimatorState:
        estimator = self.estimator
        estimates: Estimates
        if isinstance(estimator, (BoundedDisorder, Ascending)):
            delay = as_micros(estimator.delay) if isinstance(estimator, BoundedDisorder) else 0
            estimates = DisorderEstimates(delay)
        else:
            estimates = SeparateEstimates(estimator)
        expected = None if self.expected is None else tuple(self.expected)
        idle_after = None if self.idle_after is None else as_micros(self.idle_after)
        return PartitionsState(estimates, self.by or PARTITION, expected, idle_after)

    def telling(self, observed: Observed) -> Int64Array:
        times = observed.times
        if not isinstance(self.estimator, (BoundedDisorder, Ascending)) or not len(times):
            return np.arange(len(times), dtype=np.int64)
        by = self.by or PARTITION
        return Grouping(observed.column(by, "watermark=PerPartition(...)"), len(times)).rows(times)

    def __repr__(self) -> str:
        parts = [repr(self.estimator)]
        if self.by is not None:
            parts.append(f"by={self.by!r}")
        if self.expected is not None:
            parts.append(f"expected={self.expected!r}")
        if self.idle_after is not None:
            parts.append(f"idle_after={format_duration(as_micros(self.idle_after))!r}")
        return f"PerPartition({', '.join(parts)})"


def _distinct(expected: Iterable[Any]) -> tuple[Any, ...]:
    if isinstance(expected, (str, bytes)) or not isinstance(expected, Iterable):
        raise InvalidArgument(
            f"{describe('expected', expected)} is not a set of partitions",
            hint='Write expected=["a", "b"] or expected=range(8)',
        )
    try:
        partitions = tuple(dict.fromkeys(expected))
    except TypeError:
        raise InvalidArgument(
            f"{describe('expected', expected)} contains a value that cannot be a partition",
            hint="Use plain values such as numbers or text",
        ) from None
    if not partitions:
        raise InvalidArgument(
            "expected= names no partition", hint="Name at least one, or leave expected= out"
        )
    return partitions
