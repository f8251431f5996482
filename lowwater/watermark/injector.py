"""Gathers what workers report of their low watermarks, and hands back the minimum of each stage.

The injector of MillWheel (Akidau et al., VLDB 2013, section 4.2): the keys of a stage are dealt out
in parts, each to one worker at a time, and a sequencer says which worker's turn it is. Reports may
come late, in any order, more than once or never. A lower watermark than the true one is always
right, so what is missing holds, and what is in doubt is passed over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, final

from lowwater.errors import InvalidArgument, describe, nearest
from lowwater.time import START_OF_TIME, Instant, format_instant

Part: TypeAlias = int | str
"""A part of a stage's keys: a key group, or whatever else is dealt out."""
Verdict: TypeAlias = Literal["taken", "repeated", "stale"]
"""What became of a report; ``"stale"`` tells a worker that its part was given to another."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a worker says of one part of a stage.

    ``watermark`` is the minimum of ``oldest_work`` and of the *injected* watermarks of the stages
    before, as the worker knew them **before** it looked for its oldest work. That order matters: a
    worker that sends an element on counts it as its own work until it is taken, so whoever has
    taken it knows of no watermark beyond it before it is in its own work. And work is done once it
    is committed, under the same sequencer: what a zombie could not write it does not report.

    Args:
        worker: Who reports, for messages.
        sequencer: Whose turn it is: it grows each time the part is given to a worker.
        number: Grows with each report of that turn, so that reports can overtake one another.
        stage: The stage.
        part: Which of its parts.
        oldest_work: The event time of the oldest thing the part has not done, int microseconds;
            the end of time for none.
        watermark: The part's low watermark, int microseconds.
    """

    worker: str
    sequencer: int
    number: int
    stage: str
    part: Part
    oldest_work: int
    watermark: int

    def __post_init__(self) -> None:
        if self.watermark > self.oldest_work:
            raise InvalidArgument(
                f"{describe('watermark', self.watermark)} is beyond "
                f"{describe('oldest_work', self.oldest_work)}",
                hint="Report the minimum of the oldest work and the inputs' low watermarks",
            )


@final
class Injector:
    """The low watermark of each stage, as far as the reports of its workers show it.

    - It is at most the minimum of what the parts' workers last reported, and never goes back.
    - A part that has not been reported freezes it where it is.
    - A report with a sequencer that is not the latest one known of the part changes nothing: its
      worker is a zombie, whose work another one has taken over.

    It does no I/O: reports are handed to it, and the minima asked for. All this is checked by
    ``tests/property/test_injector.py``, which loses, delays, repeats and reorders reports.

    Args:
        expected: The parts of each stage; at least one each.

    >>> injector = Injector({"counts": range(2)})
    >>> def report(part, watermark, number=1):
    ...     return Report(worker="w", sequencer=1, number=number, stage="counts", part=part,
    ...                   oldest_work=watermark, watermark=watermark)
    >>> injector.take(report(0, 30)), injector.holder("counts")
    ('taken', 'part 1 has not been reported')
    >>> injector.take(report(1, 20)), int(injector.watermark("counts"))
    ('taken', 20)
    """

    def __init__(self, expected: Mapping[str, Iterable[Part]]) -> None:
        self._parts: dict[str, dict[Part, _Turn]] = {}
        self._at: dict[str, int] = {}
        for stage, parts in expected.items():
            self._at[stage] = START_OF_TIME
            self._parts[stage] = {}
            self.expect(stage, parts)

    def expect(self, stage: str, parts: Iterable[Part]) -> None:
        """Change the parts of a stage, as when keys are dealt out anew.

        A new part freezes the watermark until it is reported; one that is no more is forgotten.
        Its keys must be in others by then, with their work.
        """
        known = self._known(stage)
        parts = tuple(parts)
        if not parts:
            raise InvalidArgument(
                f"the stage {stage!r} has no parts", hint="Name one at least, such as range(1)"
            )
        self._parts[stage] = {part: known.get(part) or _Turn() for part in parts}

    def grant(self, stage: str, part: Part, sequencer: int) -> None:
        """Note that a part was given to a worker: from now on earlier ones' reports are stale.

        It must be noted, and remembered where the injector is, before the worker takes any work:
        the one before it may live on, and would not know of that. What was reported of the part so
        far still holds, since its work passes on whole. A sequencer that is not above the one
        known changes nothing.
        """
        turn = self._turn(stage, part)
        if sequencer > turn.sequencer:
            turn.sequencer = sequencer
            turn.number = None

    def take(self, report: Report) -> Verdict:
        """Take a report; return what became of it. O(1).

        Raises:
            InvalidArgument: There is no such stage, or it has no such part.
        """
        turn = self._turn(report.stage, report.part)
        if report.sequencer < turn.sequencer:
            return "stale"
        if report.sequencer > turn.sequencer:
            self.grant(report.stage, report.part, report.sequencer)
        if turn.number is not None and report.number <= turn.number:
            return "repeated"
        turn.number = report.number
        turn.watermark = report.watermark
        turn.worker = report.worker
        return "taken"

    def watermark(self, stage: str) -> Instant:
        """Return a stage's low watermark. O(parts)."""
        turns = self._known(stage).values()
        found = [turn.watermark for turn in turns if turn.watermark is not None]
        if len(found) == len(turns):
            self._at[stage] = max(self._at[stage], min(found))
        return Instant(self._at[stage])

    def watermarks(self) -> dict[str, Instant]:
        """Return the low watermark of every stage."""
        return {stage: self.watermark(stage) for stage in self._parts}

    def holder(self, stage: str) -> str:
        """Return which part holds a stage's watermark, in words."""
        turns = self._known(stage)
        missing = [part for part, turn in turns.items() if turn.watermark is None]
        if missing:
            others = f", nor have {len(missing) - 1} others" if len(missing) > 1 else ""
            return f"part {missing[0]!r} has not been reported{others}"
        part, turn = min(turns.items(), key=lambda item: item[1].at)
        return f"part {part!r}, as {turn.worker} reported it at {format_instant(turn.at)}"

    def remember(self) -> Any:
        """Return all it knows, as plain values to be stored."""
        return {
            stage: {
                "at": int(self.watermark(stage)),
                "parts": [
                    [part, turn.worker, turn.sequencer, turn.number, turn.watermark]
                    for part, turn in turns.items()
                ],
            }
            for stage, turns in self._parts.items()
        }

    def resume(self, known: Mapping[str, Any]) -> None:
        """Take up what another injector knew of the stages and parts that are expected here."""
        for stage, turns in self._parts.items():
            if stage not in known:
                continue
            self._at[stage] = max(self._at[stage], known[stage]["at"])
            for part, *told in known[stage]["parts"]:
                if part in turns:
                    turns[part] = _Turn(*told)

    def _known(self, stage: str) -> dict[Part, _Turn]:
        turns = self._parts.get(stage)
        if turns is None:
            raise InvalidArgument(f"there is no stage {stage!r}", hint=nearest(stage, self._parts))
        return turns

    def _turn(self, stage: str, part: Part) -> _Turn:
        turns = self._known(stage)
        turn = turns.get(part)
        if turn is None:
            raise InvalidArgument(
                f"the stage {stage!r} has no part {part!r}",
                hint=nearest(str(part), map(str, turns)),
            )
        return turn


@final
@dataclass(slots=True)
class _Turn:
    """Who has a part, and what was last reported of it; ``None``: nothing yet."""

    worker: str = ""
    sequencer: int = -1
    number: int | None = None
    watermark: int | None = None

    @property
    def at(self) -> int:
        return START_OF_TIME if self.watermark is None else self.watermark
