"""Quantiles of values, and of the bins of a log histogram."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lowwater.engine.aggregates._base import or_null
from lowwater.engine.aggregates._column_values import lists_of
from lowwater.engine.aggregates._tally import Counts
from lowwater.engine.records.columns import Column
from lowwater.errors import InvalidArgument
from lowwater.time import Int64Array

_MOST_BINS = 65_536
_LIMIT = 2**63


@final
@dataclass(frozen=True, slots=True)
class QuantilesOf:
    """Picks the values at fractions of their number, by nearest rank: number ``ceil(q * n)``.

    Args:
        fractions: Each from 0 to 1; 0 picks the smallest value.
        listed: Whether a result is a list with one value per fraction.
        type: The Arrow type of the values, if known.
        bins: What counted bins stand for; ``None``: values are counted.
    """

    fractions: tuple[Fraction, ...]
    listed: bool
    type: pa.DataType | None = None
    bins: LogBins | None = None

    def __call__(self, counts: Counts, rows: int) -> Column:
        """Return the quantiles of each row; null for a row without values."""
        upto = np.cumsum(counts.counts)
        begins = np.searchsorted(counts.owner, np.arange(rows + 1))
        before = np.concatenate(([0], upto))[begins]
        totals = np.diff(before)
        there = totals > 0
        some = np.flatnonzero(there)
        picked = [
            np.searchsorted(upto, before[some] + _nearest_rank(fraction, totals[some]))
            for fraction in self.fractions
        ]
        values = counts.values if self.bins is None else self.bins.values(counts.values)
        if not self.listed:
            result = np.zeros(rows, dtype=values.dtype)
            result[some] = values[picked[0]]
            return or_null(result, there, self.type)
        each = values[np.stack(picked, axis=1).ravel()] if len(some) else values[:0]
        lengths = np.full(len(some), len(self.fractions), dtype=np.int64)
        lists = lists_of(each, np.ones(len(each), dtype=np.bool_), lengths, self.type)
        if there.all():
            return lists
        place = np.cumsum(there) - 1
        array = lists.to_arrow().take(pa.array(place, mask=~there)) if len(some) else None
        return Column(arrow=pa.nulls(rows, lists.to_arrow().type) if array is None else array)


def _nearest_rank(fraction: Fraction, totals: Int64Array) -> Int64Array:
    """Return ``ceil(fraction * n)``, at least 1, exactly: ``0.1 * 30`` is above 3 as floats."""
    over, under = fraction.numerator, fraction.denominator
    if not len(totals) or over * int(totals.max()) + under < _LIMIT:
        return np.maximum(-(-totals * over // under), 1)
    return np.array([max(-(-n * over // under), 1) for n in totals.tolist()], dtype=np.int64)


@final
@dataclass(frozen=True, slots=True, eq=False)
class LogBins:
    """The bins of a log histogram: each ``(1 + e) / (1 - e)`` times as wide as the one before.

    Bin 0 is zero, bins 1 to ``len(bounds) - 1`` are positive, and negative bins mirror them. The
    value of a bin is within ``e`` of every value in it, relative to that value, as in Masson, Rim
    and Lee, "DDSketch" (2019). The bounds come from additions and multiplications alone, so they
    are the same bits on every machine, and a retracted value meets its bin.

    Args:
        bounds: The upper bounds of the bins, float64, rising; the first is the lower bound of bin
            1. Values beyond them count in the first or the last bin.
        middles: The value of each positive bin, float64, shape (len(bounds),); [0] is 0.
    """

    bounds: NDArray[np.float64]
    middles: NDArray[np.float64]

    def of(self, values: NDArray[Any]) -> NDArray[np.int32]:
        """Return the bin of each number, int32. O(n log bins)."""
        numbers = values.astype(np.float64, copy=False)
        bins = np.searchsorted(self.bounds, np.abs(numbers)).astype(np.int32)
        np.clip(bins, 1, len(self.bounds) - 1, out=bins)
        bins[numbers == 0] = 0
        return np.where(numbers < 0, -bins, bins)

    def values(self, bins: NDArray[np.int32]) -> NDArray[np.float64]:
        """Return the value that stands for each bin."""
        return np.copysign(self.middles[np.abs(bins)], bins)


@lru_cache(maxsize=64)
def log_bins(error: float, low: float, high: float) -> LogBins:
    """Return the bins for numbers from ``low`` to ``high`` and a relative error.

    Raises:
        InvalidArgument: There would be too many bins.
    """
    growth = (1 + error) / (1 - error)
    bounds = [low]
    while bounds[-1] < high:
        bounds.append(bounds[-1] * growth)
        if len(bounds) > _MOST_BINS:
            raise InvalidArgument(
                f"error={error!r} between {low!r} and {high!r} takes more than {_MOST_BINS:,} bins",
                where="approx_quantile",
                hint="Allow a larger error, or a narrower range: error=0.01, between=(0.001, 1e6)",
            )
    edges = np.array(bounds)
    middles = np.concatenate(([0.0], edges[:-1] * (2 * growth / (growth + 1))))
    return LogBins(edges, middles)


def fractions_of(quantiles: Sequence[float]) -> tuple[Fraction, ...]:
    """Return quantiles as the fractions that they are written as: 0.1 is one tenth."""
    return tuple(Fraction(repr(float(one))) for one in quantiles)
