"""The least and the greatest integers that operations can come to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import pyarrow as pa
import pyarrow.compute as pc

LOW, HIGH = -(2**63), 2**63 - 1


@final
@dataclass(frozen=True, slots=True)
class Span:
    """What integers an operation can come to.

    Args:
        low: The least.
        high: The greatest.
    """

    low: int
    high: int

    @property
    def fits(self) -> bool:
        return self.low >= LOW and self.high <= HIGH


def span_of_literal(value: Any) -> Span | None:
    """Return an integer as a span; ``None`` for other values."""
    return Span(value, value) if type(value) is int else None


def span_of(array: pa.ChunkedArray) -> Span | None:
    """Return what a column of integers has, 0 for nulls alone; ``None`` for other columns. O(n)."""
    if not pa.types.is_integer(array.type):
        return None
    span = pc.min_max(array).as_py()
    return Span(0, 0) if span["min"] is None else Span(span["min"], span["max"])


def joined(spans: list[Span | None]) -> Span | None:
    """Return what one of several may have; ``None`` if one of them may be no integers."""
    known = [span for span in spans if span is not None]
    if not known or len(known) < len(spans):
        return None
    return Span(min(span.low for span in known), max(span.high for span in known))


def clipped(span: Span) -> Span:
    """Return what is left where results that leave 64 bits are set apart."""
    return Span(max(span.low, LOW), min(span.high, HIGH))


def negated(span: Span) -> Span:
    """Return what the negated integers have."""
    return Span(-span.high, -span.low)


def absolute(span: Span) -> Span:
    """Return what the absolute values have."""
    return Span(0, max(abs(span.low), abs(span.high)))


def of_quotient(name: str, span: Span | None, arguments: list[Span | None]) -> Span | None:
    """Return what a whole quotient, or a remainder, has; ``None`` if it may be no integer."""
    if span is None or not arguments or arguments[0] is None:
        return None
    over, under = (arguments[0], span) if name.startswith("__r") else (span, arguments[0])
    bound = under if name.endswith("mod__") else over
    most = max(abs(bound.low), abs(bound.high))
    return clipped(Span(-most - 1, most))


def _added(left: Span, right: Span) -> Span:
    return Span(left.low + right.low, left.high + right.high)


def _subtracted(left: Span, right: Span) -> Span:
    return Span(left.low - right.high, left.high - right.low)


def _multiplied(left: Span, right: Span) -> Span:
    ends = [one * other for one in (left.low, left.high) for other in (right.low, right.high)]
    return Span(min(ends), max(ends))


def _raised(base: Span, exponent: Span) -> Span | None:
    if exponent.low < 0:  # which fails for these rows
        return None
    most = max(abs(base.low), abs(base.high))
    if most <= 1:
        return Span(-1, 1)
    if exponent.high > _BITS:
        return Span(LOW - 1, HIGH + 1)
    return Span(-(most**exponent.high) if base.low < 0 else 0, most**exponent.high)


_BITS = 64
OPERATIONS = {"add": _added, "sub": _subtracted, "mul": _multiplied, "pow": _raised}
