"""The scalar oracle of interval joins: rules J-1 to J-6 stated a second time, for tests only.

It shares no code with the engine, handles one element at a time, and compares it with every row of
the other side. Property tests hold the engine equal to it.

Everything follows from three questions about a row at time ``t`` and the watermark ``W``. With
``h`` the row's *horizon* (``max(high, 0)`` on the left, ``max(-low, 0)`` on the right) and ``L``
the allowed lateness:

- An element is dropped as late once W passes ``t + L``.
- A row is released once W passes ``t + h + L``: every later partner or retraction is dropped.
- A null row comes out at once (``early``), once W passes ``t + h`` (``on_time``), or when its row
  is released (``final``), provided that the row has no match at that moment.

Where the contract leaves room, these decisions hold here:

- A retraction below ``W - L`` is dropped as late, even while its row remains, and so the row
  stays (S-C6). One at or above it whose row is not there is an error in the input.
- A retraction cancels the equal row that came last (S-C1). Equal rows have the same partners.
- Pairs come out element by element. The rows that come out by themselves (null rows, and the left
  rows of semi and anti joins) are compared with what is out at the end of each bundle. So a null
  row never comes for a row that finds its match in the bundle that brought it.
- Matches are counted, not looked up: a partner may be released before the row is.
- Semi and inner joins have no unmatched rows, and ``unmatched`` does not apply to them.
- A matched row remains until it is released, also where it can have no effect any more.
- After the end of the input nothing remains, and anything that arrives is late.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, final

from lowwater.time import END_OF_TIME, START_OF_TIME

JoinKind: TypeAlias = Literal["inner", "left", "right", "outer", "semi", "anti"]
JoinSide: TypeAlias = Literal["left", "right"]
Unmatched: TypeAlias = Literal["final", "on_time", "early"]
Answer: TypeAlias = "Counter[tuple[Any, int, Any, Any]]"  # (key, time, left, right)

_WITH_PAIRS = ("inner", "left", "right", "outer")
# The sides whose rows may come out by themselves.
_BY_ITSELF: dict[JoinKind, tuple[JoinSide, ...]] = {
    "inner": (),
    "left": ("left",),
    "right": ("right",),
    "outer": ("left", "right"),
    "semi": ("left",),
    "anti": ("left",),
}


@final
@dataclass(frozen=True, slots=True)
class JoinElement:
    """An element of one input of a join.

    Attributes:
        key: The join key.
        time: The event time, in microseconds.
        value: The rest of the record; not ``None``, which stands for a row that is not there.
        sign: +1 for an insertion, -1 for the retraction of an equal element.
        order: For versions of :class:`~tests.oracles.as_of.AsOfOracle`: which of those
            with one event time is the newest. ``None`` for the number of the arrival.
        bounds: Of a left element, between which instants its partners are (J-14); ``None`` for
            those of the join.
    """

    key: Any
    time: int
    value: Any
    sign: int = 1
    order: Any = None
    bounds: tuple[int, int] | None = None


@final
@dataclass(frozen=True, slots=True)
class JoinOutput:
    """A row that a join emits (+1) or retracts (-1); ``None`` where a side has no row."""

    key: Any
    time: int
    left: Any
    right: Any
    sign: int = 1


@final
class JoinOracle:
    """An interval join of two inputs (J-1 to J-6).

    Args:
        how: Which rows come out.
        low: The least ``right.time - left.time`` of a pair, in microseconds; included.
        high: The greatest; included.
        unmatched: When null rows come out.
        lateness: The allowed lateness, in microseconds.
        signed: Whether an input may contain retractions.

    Attributes:
        watermark: The lower of both inputs' watermarks.
        output_watermark: The lower of the watermark and the holds (J-4). It never goes back.
        signed_output: Whether the output may contain retractions (J-5).
        late: The elements that were dropped, each with its side, in order of arrival.
    """

    def __init__(
        self,
        how: JoinKind,
        low: int,
        high: int,
        *,
        unmatched: Unmatched = "final",
        lateness: int = 0,
        signed: bool = False,
    ) -> None:
        assert low <= high
        self.how: JoinKind = how
        self.low, self.high = low, high
        self.unmatched: Unmatched = unmatched
        self.lateness = lateness
        self.signed = signed
        has_unmatched = how in ("left", "right", "outer", "anti")
        self.signed_output = signed or (has_unmatched and unmatched != "final")
        self.watermark = self.output_watermark = START_OF_TIME
        self.late: list[tuple[JoinSide, JoinElement]] = []
        self._rows: list[_Row] = []  # of both sides, in order of arrival

    @property
    def rows(self) -> int:
        """The number of rows that remain, of both sides."""
        return len(self._rows)

    def take(self, side: JoinSide, elements: Sequence[JoinElement]) -> list[JoinOutput]:
        """Take in a bundle of one side, and return what it changes."""
        outputs: list[JoinOutput] = []
        for element in elements:
            assert self.signed or element.sign > 0, f"a retraction in unsigned input: {element}"
            if self._passed(element.time + self.lateness):
                self.late.append((side, element))
            elif element.sign > 0:
                outputs += self._insert(side, element)
            else:
                outputs += self._retract(side, element)
        return outputs + self._settle()

    def advance(self, to: int) -> list[JoinOutput]:
        """Advance the watermark, and return what that makes due. It never goes back."""
        self.watermark = max(self.watermark, to)
        return self._settle()

    def end(self) -> list[JoinOutput]:
        """End both inputs, and return what is left to emit."""
        return self.advance(END_OF_TIME)

    # -- elements (J-2, J-5) ----------------------------------------------------------------

    def _insert(self, side: JoinSide, element: JoinElement) -> Iterator[JoinOutput]:
        row = _Row(side, element)
        for partner in self._partners(row):
            row.matches += 1
            partner.matches += 1
            if self.how in _WITH_PAIRS:
                yield _pair(row, partner, sign=1)
        self._rows.append(row)

    def _retract(self, side: JoinSide, element: JoinElement) -> Iterator[JoinOutput]:
        wanted = replace(element, sign=1)
        equal = [row for row in self._rows if (row.side, row.element) == (side, wanted)]
        assert equal, f"no {side} row for the retraction {element}"
        row = equal[-1]
        self._rows = [other for other in self._rows if other is not row]
        for partner in self._partners(row):
            partner.matches -= 1
            if self.how in _WITH_PAIRS:
                yield _pair(row, partner, sign=-1)
        if row.is_out:
            yield _by_itself(row, sign=-1)

    def _partners(self, row: _Row) -> list[_Row]:
        return [
            other
            for other in self._rows
            if other.side != row.side
            and other.element.key == row.element.key
            and self._meet(row, other)
        ]

    def _meet(self, one: _Row, other: _Row) -> bool:
        left, right = (one, other) if one.side == "left" else (other, one)
        if left.element.bounds is not None:  # J-14
            earliest, latest = left.element.bounds
            return earliest <= right.element.time <= latest
        return self.low <= _right_minus_left(one, other) <= self.high  # J-1

    # -- rows that come out by themselves (J-4, J-6) ------------------------------------------

    def _settle(self) -> list[JoinOutput]:
        """Emit and retract rows by themselves, so that those are out that should be; release."""
        outputs = []
        for row in self._rows:
            if row.is_out != self._should_be_out(row):
                row.is_out = not row.is_out
                outputs.append(_by_itself(row, sign=1 if row.is_out else -1))
        self._rows = [row for row in self._rows if not self._is_released(row)]
        holds = [row.element.time for row in self._rows if self._holds(row)]
        self.output_watermark = max(self.output_watermark, min([self.watermark, *holds]))
        return outputs

    def _should_be_out(self, row: _Row) -> bool:
        if row.side not in _BY_ITSELF[self.how]:
            return False
        if self.how == "semi":
            return row.matches > 0
        return row.matches == 0 and self._null_row_is_due(row)

    def _null_row_is_due(self, row: _Row) -> bool:
        if self.unmatched == "early":
            return True
        if self.unmatched == "on_time":
            return self._passed(row.element.time + self._horizon(row))
        return self._is_released(row)

    def _holds(self, row: _Row) -> bool:
        """Whether a row that remains holds the output watermark at its time."""
        undecided = self.signed_output or row.matches == 0
        return row.side in _BY_ITSELF[self.how] and undecided

    def _is_released(self, row: _Row) -> bool:  # J-3
        return self._passed(row.element.time + self._horizon(row) + self.lateness)

    def _horizon(self, row: _Row) -> int:
        return max(self.high, 0) if row.side == "left" else max(-self.low, 0)

    def _passed(self, moment: int) -> bool:
        """Whether the watermark passes a moment; at the end of the input it passes all."""
        return self.watermark > moment or self.watermark == END_OF_TIME


@dataclass(slots=True)
class _Row:
    """A row that remains."""

    side: JoinSide
    element: JoinElement
    matches: int = 0
    is_out: bool = False  # by itself


def _right_minus_left(one: _Row, other: _Row) -> int:
    left, right = (one, other) if one.side == "left" else (other, one)
    return right.element.time - left.element.time


def _pair(one: _Row, other: _Row, *, sign: int) -> JoinOutput:
    left, right = (one, other) if one.side == "left" else (other, one)
    time = max(left.element.time, right.element.time)  # J-2
    return JoinOutput(left.element.key, time, left.element.value, right.element.value, sign)


def _by_itself(row: _Row, *, sign: int) -> JoinOutput:
    key, time, value = row.element.key, row.element.time, row.element.value
    if row.side == "left":
        return JoinOutput(key, time, value, None, sign)
    return JoinOutput(key, time, None, value, sign)


# -- the batch answer -----------------------------------------------------------------------------


def batch_join(
    left: Sequence[JoinElement],
    right: Sequence[JoinElement],
    how: JoinKind,
    low: int,
    high: int,
) -> Answer:
    """Return the join of two complete inputs, in any order of arrival, as a multiset of rows."""
    answer: Answer = Counter()
    lefts, rights = remaining(left), remaining(right)
    for one in lefts:
        matched = False
        for other in rights:
            if one.key == other.key and low <= other.time - one.time <= high:
                matched = True
                if how in _WITH_PAIRS:
                    answer[one.key, max(one.time, other.time), one.value, other.value] += 1
        if matched if how == "semi" else (not matched and how in ("left", "outer", "anti")):
            answer[one.key, one.time, one.value, None] += 1
    for other in rights:
        matched = any(
            one.key == other.key and low <= other.time - one.time <= high for one in lefts
        )
        if not matched and how in ("right", "outer"):
            answer[other.key, other.time, None, other.value] += 1
    return answer


def remaining(elements: Sequence[JoinElement]) -> list[JoinElement]:
    """Return the insertions that no retraction cancels, in order of arrival (S-C1)."""
    kept: list[JoinElement] = []
    for element in elements:
        if element.sign > 0:
            kept.append(element)
            continue
        wanted = replace(element, sign=1)
        assert wanted in kept, f"nothing to cancel for {element}"
        last = max(number for number, one in enumerate(kept) if one == wanted)
        del kept[last]
    return kept


def net(outputs: Sequence[JoinOutput]) -> Answer:
    """Return how often each row stands once all of the outputs are applied; only non-zero ones.

    A negative count is a retraction of something that was emitted before these outputs.
    """
    total: Answer = Counter()
    for one in outputs:
        total[one.key, one.time, one.left, one.right] += one.sign
    return Counter({row: count for row, count in total.items() if count})
