"""A watermark that learns how far out of order elements come."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from math import ceil
from typing import Any, final

import numpy as np

from lowwater.errors import InvalidArgument, describe
from lowwater.time import (
    END_OF_TIME,
    START_OF_TIME,
    DurationLike,
    Int64Array,
    as_micros,
    duration,
    format_duration,
    meant,
    saturating_add,
)
from lowwater.watermark.estimators import EstimatorState
from lowwater.watermark.observed import Observed

_PARTS = 8
"""Bins per power of two, so a learned delay is at most an eighth too long."""
_BINS = 1 + 64 * _PARTS


@final
@dataclass(frozen=True, slots=True, repr=False)
class Quantile:
    """Learns a delay from a quantile of the observed disorder.

    The lag of each element behind the latest earlier one is counted in a histogram of 513 bins,
    eight per power of two. The delay is the upper edge of the bin that contains the quantile, so
    it is at least that quantile and at most an eighth (and a microsecond) more. About
    ``1 - quantile`` of the elements arrive below the watermark, or fewer, because it advances only
    at the end of a bundle.

    Old observations fade: when ``2 * memory`` elements are counted, every count is halved, rounded
    down. The histogram thus describes about the last ``memory`` to ``2 * memory`` elements, with
    older ones weighted by a half, a quarter and so on. Halving happens at exact elements, so the
    result does not depend on how the stream is split into bundles.

    An element far in the future drags the watermark along and makes the others late; reject such
    elements with ``max_ahead``.

    Args:
        quantile: The share of the elements to wait for, above 0 and at most 1.
        least: The shortest delay.
        most: The longest delay; ``None``: no limit.
        warm_up: Until this many elements have arrived, the delay is ``most``; without ``most`` the
            watermark does not advance.
        memory: How many elements to learn from, as above.

    >>> Quantile(0.999, most="1h")
    Quantile(0.999, most='1h')
    """

    quantile: float
    _: KW_ONLY
    least: DurationLike = 0
    most: DurationLike | None = None
    warm_up: int = 1_000
    memory: int = 1_000_000

    def __post_init__(self) -> None:
        quantile, least, most = self.quantile, self.least, self.most
        if isinstance(quantile, bool) or not isinstance(quantile, (int, float)):
            raise _bad_quantile(quantile)
        if not 0 < quantile <= 1:
            raise _bad_quantile(quantile)
        low = duration(least, name="least")
        high = None if most is None else duration(most, name="most")
        if low < 0:
            raise InvalidArgument(
                f"{describe('least', least)} must not be negative", hint='Use, say, "0s"'
            )
        if high is not None and high < low:
            raise InvalidArgument(
                f"{describe('most', most)} is below {describe('least', least)}",
                hint="Give a most that is no shorter than least",
            )
        _check_count("warm_up", self.warm_up, 0)
        _check_count("memory", self.memory, 1)
        object.__setattr__(self, "quantile", float(quantile))
        object.__setattr__(self, "least", meant(low))
        object.__setattr__(self, "most", None if high is None else meant(high))

    def telling(self, observed: Observed) -> Int64Array:
        return np.arange(len(observed.times), dtype=np.int64)

    def start(self) -> EstimatorState:
        return _Learned(self)

    def __repr__(self) -> str:
        parts = [repr(self.quantile)]
        if self.least:
            parts.append(f"least={format_duration(as_micros(self.least))!r}")
        if self.most is not None:
            parts.append(f"most={format_duration(as_micros(self.most))!r}")
        if self.warm_up != 1_000:
            parts.append(f"warm_up={self.warm_up}")
        if self.memory != 1_000_000:
            parts.append(f"memory={self.memory}")
        return f"Quantile({', '.join(parts)})"


@final
class _Learned:
    """The latest event time, and a histogram of the lags behind it."""

    __slots__ = ("_at", "_counted", "_counts", "_latest", "_least", "_most", "_observed", "_value")

    def __init__(self, value: Quantile) -> None:
        self._value = value
        self._least = as_micros(value.least)
        self._most = END_OF_TIME if value.most is None else as_micros(value.most)
        self._counts = np.zeros(_BINS, dtype=np.int64)
        self._counted = 0
        self._observed = 0
        self._latest = START_OF_TIME
        self._at = START_OF_TIME

    def observe(self, observed: Observed) -> None:
        times = observed.times
        if not times.size:
            return
        latest = np.maximum.accumulate(np.concatenate(([self._latest], times)))[1:]
        self._latest = int(latest[-1])
        self._observed += times.size
        bins = _bins(latest - times)
        done = 0
        # Usually one iteration. Split the bundle where the counts must be halved, so that halving
        # happens at the same element however the stream is split.
        while done < bins.size:
            part = bins[done : done + 2 * self._value.memory - self._counted]
            self._counts += np.bincount(part, minlength=_BINS)
            self._counted += part.size
            done += part.size
            if self._counted == 2 * self._value.memory:
                self._counts //= 2
                self._counted = int(self._counts.sum())

    def current(self, clock: int) -> int:
        if self._latest != START_OF_TIME:
            delay = self._delay()
            if delay is not None:
                self._at = max(self._at, saturating_add(self._latest, -delay))
        return self._at

    def remember(self) -> Any:
        used = np.flatnonzero(self._counts)
        return {
            "quantile": [self._latest, self._at, self._observed],
            "bins": used.tolist(),
            "counts": self._counts[used].tolist(),
        }

    def resume(self, known: Any) -> None:
        if not isinstance(known, dict) or "quantile" not in known:
            return
        self._latest, self._at, self._observed = known["quantile"]
        self._counts[:] = 0
        self._counts[np.array(known["bins"], dtype=np.int64)] = known["counts"]
        self._counted = int(self._counts.sum())

    def holder(self) -> str:
        if self._observed < self._value.warm_up:
            return (
                f"it has seen {self._observed} of the {self._value.warm_up} records it learns from"
            )
        return f"it waits {format_duration(self._delay() or 0)} for records that are out of order"

    def _delay(self) -> int | None:
        """Return the delay; ``None`` if it is not known yet."""
        if self._observed < self._value.warm_up or not self._counted:
            return None if self._value.most is None else self._most
        rank = max(1, ceil(self._value.quantile * self._counted))
        bin = int(np.searchsorted(np.cumsum(self._counts), rank))
        return max(self._least, min(self._most, int(_EDGES[min(bin, _BINS - 1)])))


def _bins(lags: Int64Array) -> Int64Array:
    """Return the bin of each lag, int64; a lag beyond 64 bits goes to the last bin."""
    lags = np.where(lags < 0, END_OF_TIME, lags)  # negative: the subtraction overflowed
    mantissa, exponent = np.frexp(lags.astype(np.float64))
    parts = ((mantissa - 0.5) * (2 * _PARTS)).astype(np.int64)
    bins: Int64Array = np.where(lags == 0, 0, 1 + (exponent.astype(np.int64) - 1) * _PARTS + parts)
    return np.minimum(bins, _BINS - 1)


def _edges() -> Int64Array:
    """Return the largest lag of each bin, int64 microseconds, shape (_BINS,)."""
    edges = [0]
    for power in range(64):
        for part in range(1, _PARTS + 1):
            above = (2**power * (_PARTS + part)) // _PARTS  # the first whole number not below it
            above += bool((2**power * (_PARTS + part)) % _PARTS)
            edges.append(min(END_OF_TIME, max(above - 1, 2**power)))
    return np.array(edges, dtype=np.int64)


_EDGES = _edges()


def _check_count(name: str, value: object, lowest: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < lowest:
        raise InvalidArgument(
            f"{describe(name, value)} must be an int of at least {lowest}",
            hint="Use a number of elements, such as 1_000",
        )


def _bad_quantile(value: object) -> InvalidArgument:
    return InvalidArgument(
        f"{describe('quantile', value)} must be a number above 0 and at most 1",
        hint="Use, say, 0.999",
    )
