"""The scalar oracle of joins with a history: rules J-8 to J-12 a second time, for tests only.

A fact waits as long as a version that the *versions'* watermark has not passed could be met instead
of the one that it would meet now. That is asked of the best version that may still come, as if it
had come. ``W`` is the lower of both inputs' watermarks: it decides what is late and what is still
remembered.

Where the contract leaves room, these decisions hold here:

- What is late: a fact or a version below ``W - keep``, and a retraction likewise. It is dropped,
  even a version newer than all that are remembered, or one that a waiting fact would meet. So
  ``keep`` is the allowed lateness of both inputs, and with ``"correct"`` the net output is the
  batch join of all elements that were not dropped.
- When a fact is joined: as a watermark advances, also where a late version has settled it before;
  or with the bundle that brought it, if its version is settled whatever versions there are.
- A waiting fact holds the output watermark, which only an advance raises. That has no effect where
  facts look back: ``W`` is at most the versions' watermark, which has not passed the fact.
- What is remembered of versions, per key: all at or above ``W - keep``, and the newest *below*
  that. The contract says "at or before"; but a retraction of a version exactly at ``W - keep`` is
  not late, and brings back the version before it. That one is kept until the input ends, whatever
  ``tolerance`` is. With ``"nearest"`` it is kept until W passes its time plus ``keep`` and twice
  the tolerance, and so is the one before it if facts do not meet versions of their own time. With
  ``"forward"`` nothing below ``W - keep`` is remembered.
- What is remembered of facts: those that wait; and where facts may be corrected or retracted,
  those emitted, as long as they may be retracted, or a version that is not late could be met
  instead. A retraction of a fact retracts the row that was emitted, even where the history has
  changed since.
- A version's retraction removes it from the history. With ``"ignore"`` this changes facts that
  come after it and no other, as a late version does.
- ``tolerance`` counts from the fact: a version at ``t - tolerance`` is within it, and where facts
  look ahead, one at ``t + tolerance``.
- Of the versions of one time, the last in the order of the history counts, on either side of the
  fact. Of two at one distance, the earlier.
- With ``"correct"``, changes of the history are judged at the end of each bundle, and a fact whose
  row stays equal is neither retracted nor emitted again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, final

from lowwater.time import END_OF_TIME, START_OF_TIME
from tests.oracles.joins import Answer, JoinElement, JoinOutput, remaining

AsOfKind: TypeAlias = Literal["inner", "left"]
AsOfSide: TypeAlias = Literal["facts", "versions"]
LateVersions: TypeAlias = Literal["ignore", "correct"]
Direction: TypeAlias = Literal["backward", "forward", "nearest"]

INFINITY: Any = float("inf")


@final
class AsOfOracle:
    """A join of facts with the history of versions, as of event time (J-8 to J-12).

    Args:
        how: ``"inner"`` drops a fact without a version, ``"left"`` emits it with ``None``.
        tolerance: How far from the fact its version may be, in microseconds; included.
        late_versions: Whether a late version corrects the facts that were emitted without it.
        keep: How far back facts and versions are remembered, in microseconds.
        signed: Whether an input may contain retractions.
        direction: Where the version is, as seen from the fact.
        allow_equal: Whether a fact may meet a version of its own time.

    Attributes:
        watermark: The lower of both inputs' watermarks.
        versions_watermark: The versions' own.
        output_watermark: The lower of the watermark and the waiting facts. It never goes back.
        signed_output: Whether the output may contain retractions (J-9).
        late: The elements that were dropped, each with its side, in order of arrival.
    """

    def __init__(
        self,
        how: AsOfKind,
        *,
        tolerance: int | None = None,
        late_versions: LateVersions = "ignore",
        keep: int = 0,
        signed: bool = False,
        direction: Direction = "backward",
        allow_equal: bool = True,
    ) -> None:
        assert tolerance is not None or direction == "backward", "a fact would wait for ever"
        self.direction: Direction = direction
        self.allow_equal = allow_equal
        self.how: AsOfKind = how
        self.tolerance = tolerance
        self.late_versions: LateVersions = late_versions
        self.keep = keep
        self.signed = signed
        self.signed_output = signed or late_versions == "correct"
        self.watermark = self.versions_watermark = self.output_watermark = START_OF_TIME
        self.late: list[tuple[AsOfSide, JoinElement]] = []
        self._facts: list[_Fact] = []  # in order of arrival, as are the versions
        self._versions: list[_Version] = []
        self._arrivals = 0

    @property
    def rows(self) -> int:
        """The number of facts and versions that remain."""
        return len(self._facts) + len(self._versions)

    def take(self, side: AsOfSide, elements: Sequence[JoinElement]) -> list[JoinOutput]:
        """Take in a bundle of one side, and return what it changes."""
        outputs: list[JoinOutput] = []
        for element in elements:
            assert self.signed or element.sign > 0, f"a retraction in unsigned input: {element}"
            if self._passed(element.time + self.keep):
                self.late.append((side, element))
            elif side == "versions":
                self._change_history(element)
            elif element.sign > 0:
                self._facts.append(_Fact(element))
            else:
                outputs += self._retract_fact(element)
        outputs += self._correct() + self._join(versions=())
        self._release()
        return outputs

    def advance(self, to: int, versions_to: int) -> list[JoinOutput]:
        """Advance both watermarks, and return the facts that waited for that.

        Args:
            to: The lower of both inputs' watermarks.
            versions_to: The versions' watermark.
        """
        assert to <= versions_to
        if to <= self.watermark and versions_to <= self.versions_watermark:
            return []
        self.watermark = max(self.watermark, to)
        self.versions_watermark = max(self.versions_watermark, versions_to)
        outputs = self._join(self._versions)
        self._release()  # only now: a fact that is due may need a version that is too old
        waiting = [fact.element.time for fact in self._facts if not fact.is_joined]
        self.output_watermark = max(self.output_watermark, min([self.watermark, *waiting]))
        return outputs

    def end(self) -> list[JoinOutput]:
        """End both inputs, and return the facts that still waited."""
        return self.advance(END_OF_TIME, END_OF_TIME)

    # -- elements ---------------------------------------------------------------------------

    def _change_history(self, element: JoinElement) -> None:
        self._arrivals += 1
        if element.sign > 0:
            self._versions.append(_Version(element, self._arrivals))
            return
        wanted = replace(element, sign=1)
        equal = [version for version in self._versions if version.element == wanted]
        assert equal, f"no version for the retraction {element}"
        self._versions = [version for version in self._versions if version is not equal[-1]]

    def _retract_fact(self, element: JoinElement) -> list[JoinOutput]:
        wanted = replace(element, sign=1)
        equal = [fact for fact in self._facts if fact.element == wanted]
        assert equal, f"no fact for the retraction {element}"
        self._facts = [fact for fact in self._facts if fact is not equal[-1]]
        out = equal[-1].out
        return [] if out is None else [replace(out, sign=-1)]

    # -- facts meet versions ----------------------------------------------------------------

    def _correct(self) -> list[JoinOutput]:
        """Correct the facts that were joined, at the end of a bundle."""
        if self.late_versions == "ignore":
            return []
        return [one for fact in self._facts if fact.is_joined for one in self._meet(fact)]

    def _join(self, versions: Sequence[_Version]) -> list[JoinOutput]:
        """Join facts that no version to come can change, if there are these."""
        outputs: list[JoinOutput] = []
        for fact in self._facts:
            since = self.versions_watermark
            if not fact.is_joined and not self._may_change(fact, since, versions):
                outputs += self._meet(fact)
        return outputs

    def _meet(self, fact: _Fact) -> list[JoinOutput]:
        before, fact.out, fact.is_joined = fact.out, self._joined(fact.element), True
        if before == fact.out:
            return []
        retracted = [] if before is None else [replace(before, sign=-1)]
        return retracted if fact.out is None else [*retracted, fact.out]

    def _joined(self, fact: JoinElement) -> JoinOutput | None:
        """Return the row of a fact with its version, if it has one."""
        met = self._met(fact, self._versions)
        if met is None:
            alone = JoinOutput(fact.key, fact.time, fact.value, None)
            return alone if self.how == "left" else None
        return JoinOutput(fact.key, fact.time, fact.value, met.element.value)

    def _met(self, fact: JoinElement, versions: Sequence[_Version]) -> _Version | None:
        """Return the version that a fact meets, of these."""
        found = [
            version
            for version in versions
            if version.element.key == fact.key
            and is_in_reach(
                version.element.time - fact.time, self.direction, self.tolerance, self.allow_equal
            )
        ]

        def place(version: _Version) -> tuple[Any, ...]:
            distance = version.element.time - fact.time  # the least is met, the earlier of two
            return -abs(distance), -distance, version.rank

        return max(found, key=place, default=None)

    def _may_change(self, fact: _Fact, since: int, versions: Sequence[_Version]) -> bool:
        """Whether a version at or after an instant could be met by a fact, rather than these."""
        if since == END_OF_TIME:
            return False
        at = fact.element.time
        times = [at if self.allow_equal else at - 1, max(since, at if self.allow_equal else at + 1)]
        for time in times:
            best = _Version(JoinElement(fact.element.key, time, "best", order=INFINITY), INFINITY)
            if time >= since and self._met(fact.element, [*versions, best]) is best:
                return True
        return False

    # -- what remains (J-9, J-12) -------------------------------------------------------------

    def _release(self) -> None:
        self._facts = [fact for fact in self._facts if not fact.is_joined or self._is_kept(fact)]
        old: dict[Any, list[_Version]] = {}  # those below W - keep, by key
        for version in self._versions:
            if self._passed(version.element.time + self.keep):
                old.setdefault(version.element.key, []).append(version)
        keeps = {id(version) for versions in old.values() for version in self._kept_of(versions)}
        self._versions = [
            version
            for version in self._versions
            if id(version) in keeps or not self._passed(version.element.time + self.keep)
        ]
        if self.watermark == END_OF_TIME:
            self._versions = []

    def _is_kept(self, fact: _Fact) -> bool:
        """Whether a fact that was joined may still be corrected or retracted."""
        if not (self.signed or self.late_versions == "correct"):
            return False
        if not self._passed(fact.element.time + self.keep):
            return True
        if self.direction == "backward":
            return False
        ends = self.watermark == END_OF_TIME
        since = END_OF_TIME if ends else self.watermark - self.keep
        return self._may_change(fact, since, self._versions)

    def _kept_of(self, old: list[_Version]) -> list[_Version]:
        """Return which versions of a key below W - keep are kept."""
        if self.direction == "forward":
            return []
        newest = max(old, key=lambda version: version.rank)
        if self.direction == "backward":
            return [newest]
        before = [version for version in old if version.element.time < newest.element.time]
        kept = [newest]
        if before and not self.allow_equal:
            kept.append(max(before, key=lambda version: version.rank))
        longest = self.keep + 2 * (self.tolerance or 0)
        return [one for one in kept if not self._passed(one.element.time + longest)]

    def _passed(self, moment: int) -> bool:
        """Whether the watermark passes a moment; at the end of the input it passes all."""
        return self.watermark > moment or self.watermark == END_OF_TIME


@dataclass(slots=True)
class _Fact:
    """A fact that waits, or that may still be corrected or retracted."""

    element: JoinElement
    is_joined: bool = False
    out: JoinOutput | None = None  # the row of it that stands


@dataclass(slots=True)
class _Version:
    """A version in the history."""

    element: JoinElement
    arrival: Any

    @property
    def rank(self) -> tuple[int, Any, int]:
        """Its place in the history of its key."""
        order = self.arrival if self.element.order is None else self.element.order
        return self.element.time, order, self.arrival


def is_in_reach(later: int, direction: Direction, tolerance: int | None, allow_equal: bool) -> bool:
    """Whether a fact may meet a version that is so much later than it; below zero: earlier."""
    if later == 0:
        return allow_equal
    if direction == ("backward" if later > 0 else "forward"):
        return False
    return tolerance is None or abs(later) <= tolerance


def batch_join_as_of(
    facts: Sequence[JoinElement],
    versions: Sequence[JoinElement],
    how: AsOfKind,
    tolerance: int | None = None,
    direction: Direction = "backward",
    allow_equal: bool = True,
) -> Answer:
    """Return the join of complete inputs as a multiset of rows.

    Args:
        facts: The facts, in any order.
        versions: The versions in order of arrival, which decides where ``order`` does not.
        how: Whether facts without a version are dropped.
        tolerance: How far from the fact its version may be, in microseconds; included.
        direction: Where the version is, as seen from the fact.
        allow_equal: Whether a fact may meet a version of its own time.
    """
    answer: Answer = Counter()
    standing = remaining(versions)
    order = {id(one): at if one.order is None else one.order for at, one in enumerate(standing)}
    for fact in remaining(facts):
        met: JoinElement | None = None
        for version in standing:  # by arrival
            later = version.time - fact.time
            if version.key != fact.key or not is_in_reach(later, direction, tolerance, allow_equal):
                continue
            nearer = met is None or abs(later) < abs(met.time - fact.time)
            earlier = met is not None and later == fact.time - met.time and later < 0
            if met is not None and met.time == version.time:
                nearer = order[id(version)] >= order[id(met)]
            if nearer or earlier:
                met = version
        if met is not None:
            answer[fact.key, fact.time, fact.value, met.value] += 1
        elif how == "left":
            answer[fact.key, fact.time, fact.value, None] += 1
    return answer
