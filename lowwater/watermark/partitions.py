"""One watermark of many partitions: the least of what each of them says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Any, final

from lowwater.errors import InvalidArgument, describe
from lowwater.time import DurationLike, duration, format_duration
from lowwater.watermark._per_partition import (
    DisorderEstimates,
    Estimates,
    PartitionsState,
    SeparateEstimates,
)
from lowwater.watermark.estimators import (
    Ascending,
    BoundedDisorder,
    EstimatorState,
    WatermarkEstimator,
    columns_read,
)
from lowwater.watermark.external import External
from lowwater.watermark.observed import PARTITION
from lowwater.windows._base import positive_duration


@final
@dataclass(frozen=True, slots=True, repr=False)
class PerPartition:
    """The watermark is the minimum of the partitions', each guessed from its own elements.

    A partition that is expected and was never seen holds the watermark at the start of time,
    however long it takes: its elements may be of any time. Without ``expected``, the partitions
    seen so far count, and the elements of one that comes later may be late. The watermark never
    goes back (S-T3), whichever partitions come or speak again.

    A partition that has had no element for ``idle_after`` is left out until it has one again.
    Idleness is judged by the clock of the run. The partition that spoke last is never left out:
    where all are idle, it alone holds the watermark.

    Args:
        estimator: How each partition's watermark is guessed.
        by: The column that says which partition an element is from; ``None``: the source knows
            (as a log does). Null is a partition like another.
        expected: The partitions that count; elements of others neither move nor hold the
            watermark. ``None``: those seen so far.
        idle_after: How long a partition may be silent, above zero; ``None``: for ever.

    ``BoundedDisorder`` and ``Ascending`` cost O(n) per bundle in numpy, and O(partitions) per look
    at the watermark; another estimator costs a call per partition of the bundle besides.

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
            object.__setattr__(self, "idle_after", positive_duration(self.idle_after, "idle_after"))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it reads."""
        own = () if self.by is None else (self.by,)
        return (*own, *(name for name in columns_read(self.estimator) if name != self.by))

    def start(self) -> EstimatorState:
        estimator = self.estimator
        estimates: Estimates
        if isinstance(estimator, (BoundedDisorder, Ascending)):
            delay = duration(estimator.delay) if isinstance(estimator, BoundedDisorder) else 0
            estimates = DisorderEstimates(delay)
        else:
            estimates = SeparateEstimates(estimator)
        expected = None if self.expected is None else tuple(self.expected)
        idle_after = None if self.idle_after is None else duration(self.idle_after)
        return PartitionsState(estimates, self.by or PARTITION, expected, idle_after)

    def __repr__(self) -> str:
        parts = [repr(self.estimator)]
        if self.by is not None:
            parts.append(f"by={self.by!r}")
        if self.expected is not None:
            parts.append(f"expected={self.expected!r}")
        if self.idle_after is not None:
            parts.append(f"idle_after={format_duration(duration(self.idle_after))!r}")
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
            f"{describe('expected', expected)} holds what can be no partition",
            hint="Use plain values such as numbers or text",
        ) from None
    if not partitions:
        raise InvalidArgument("no partition is expected", hint="Name one at least, or leave it out")
    return partitions
