"""The scalar oracle of joins with a history: rules J-8 and J-9 a second time, for tests only.

A fact at time ``t`` waits until the *versions'* watermark passes ``t``. Then it meets the version
with the greatest (event time, order, arrival) at or before ``t``. ``W`` is the lower of both
inputs' watermarks: it decides what is late and what is still remembered.

Where the contract leaves room, these decisions hold here:

- What is late: a fact or a version below ``W - keep``, and a retraction likewise. It is dropped,
  even a version newer than all that are remembered, or one that a waiting fact would meet. So
  ``keep`` is the allowed lateness of both inputs, and with ``"correct"`` the net output is the
  batch join of all elements that were not dropped.
- What waits: only facts that are not late. One that is late (below ``W``) is below the versions'
  watermark too, and so is joined with the bundle that brought it. A waiting fact holds the output
  watermark, but that has no effect: ``W`` is at most the versions' watermark, which has not passed
  the fact.
- What is remembered of versions, per key: all at or above ``W - keep``, and the newest *below*
  that. The contract says "at or before"; but a retraction of a version exactly at ``W - keep`` is
  not late, and brings back the version before it. That one is kept until the input ends, whatever
  ``tolerance`` is.
- What is remembered of facts: those that wait; and where facts may be corrected or retracted,
  those emitted, until ``W - keep`` passes their time. A retraction of a fact retracts the row that
  was emitted, even where the history has changed since.
- A version's retraction removes it from the history. With ``"ignore"`` this changes facts that
  come after it and no other, as a late version does.
- ``tolerance`` counts from the fact: a version at ``t - tolerance`` is within it. Only the newest
  version at or before ``t`` is considered.
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


@final
class AsOfOracle:
    """A join of facts with the history of versions, as of event time (J-8, J-9).

    Args:
        how: ``"inner"`` drops a fact without a version, ``"left"`` emits it with ``None``.
        tolerance: How much older than the fact its version may be, in microseconds; included.
        late_versions: Whether a late version corrects the facts that were emitted without it.
        keep: How far back facts and versions are remembered, in microseconds.
        signed: Whether an input may contain retractions.

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
    ) -> None:
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
        return outputs + self._settle()

    def advance(self, to: int, versions_to: int) -> list[JoinOutput]:
        """Advance both watermarks, and return the facts that waited for that.

        Args:
            to: The lower of both inputs' watermarks.
            versions_to: The versions' watermark.
        """
        assert to <= versions_to
        self.watermark = max(self.watermark, to)
        self.versions_watermark = max(self.versions_watermark, versions_to)
        return self._settle()

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

    def _settle(self) -> list[JoinOutput]:
        """Join the facts that are due, correct others, and release what is too old."""
        outputs: list[JoinOutput] = []
        for fact in self._facts:
            waits = self.versions_watermark <= fact.element.time
            if not waits and (not fact.is_joined or self.late_versions == "correct"):
                outputs += self._meet(fact)
        self._release()  # only now: a fact that is due may need a version that is too old
        waiting = [fact.element.time for fact in self._facts if not fact.is_joined]
        self.output_watermark = max(self.output_watermark, min([self.watermark, *waiting]))
        return outputs

    def _meet(self, fact: _Fact) -> list[JoinOutput]:
        before, fact.out, fact.is_joined = fact.out, self._joined(fact.element), True
        if before == fact.out:
            return []
        retracted = [] if before is None else [replace(before, sign=-1)]
        return retracted if fact.out is None else [*retracted, fact.out]

    def _joined(self, fact: JoinElement) -> JoinOutput | None:
        """Return the row of a fact with its version, if it has one."""
        met = None
        for version in self._versions:
            if version.element.key == fact.key and version.element.time <= fact.time:
                met = version if met is None or version.rank > met.rank else met
        if met is not None and self.tolerance is not None:
            met = met if met.element.time >= fact.time - self.tolerance else None
        if met is None:
            alone = JoinOutput(fact.key, fact.time, fact.value, None)
            return alone if self.how == "left" else None
        return JoinOutput(fact.key, fact.time, fact.value, met.element.value)

    # -- what remains (J-9) -----------------------------------------------------------------

    def _release(self) -> None:
        remembers = self.signed or self.late_versions == "correct"
        self._facts = [
            fact
            for fact in self._facts
            if not fact.is_joined or (remembers and not self._passed(fact.element.time + self.keep))
        ]
        newest: dict[Any, _Version] = {}  # of those below W - keep, by key
        for version in self._versions:
            if self._passed(version.element.time + self.keep):
                best = newest.get(version.element.key)
                if best is None or version.rank > best.rank:
                    newest[version.element.key] = version
        self._versions = [
            version
            for version in self._versions
            if not self._passed(version.element.time + self.keep)
            or newest[version.element.key] is version
        ]
        if self.watermark == END_OF_TIME:
            self._versions = []

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
    arrival: int

    @property
    def rank(self) -> tuple[int, Any, int]:
        """Its place in the history of its key."""
        order = self.arrival if self.element.order is None else self.element.order
        return self.element.time, order, self.arrival


def batch_join_as_of(
    facts: Sequence[JoinElement],
    versions: Sequence[JoinElement],
    how: AsOfKind,
    tolerance: int | None = None,
) -> Answer:
    """Return the join of complete inputs as a multiset of rows.

    Args:
        facts: The facts, in any order.
        versions: The versions in order of arrival, which decides where ``order`` does not.
        how: Whether facts without a version are dropped.
        tolerance: How much older than the fact its version may be, in microseconds; included.
    """
    answer: Answer = Counter()
    for fact in remaining(facts):
        history = [
            (version.time, arrival if version.order is None else version.order, arrival, version)
            for arrival, version in enumerate(remaining(versions))
            if version.key == fact.key
            and version.time <= fact.time
            and (tolerance is None or fact.time - version.time <= tolerance)
        ]
        if history:
            *_, newest = max(history, key=lambda entry: entry[:3])
            answer[fact.key, fact.time, fact.value, newest.value] += 1
        elif how == "left":
            answer[fact.key, fact.time, fact.value, None] += 1
    return answer
