"""Holds what runs announce against the protocol of the model, life by life.

A life is a process from its start to its death. What it announces are points between its steps
(:data:`lowwater.engine.local.durable.POINTS`), each with what it is about. The order of the points
is that of the methods of :class:`tests.protocol.model.Protocol`; the rest are its rules, as far as
announcements tell: which commit is taken up, and that all places get what it owes before the next.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, final

Announced: TypeAlias = tuple[str, object]
"""The name of a point, and what it is about."""
Delivered: TypeAlias = tuple[str, int, int]
"""The id of a delivery, its output, and the place among the sinks of that output."""

NEXT: dict[str, tuple[str, ...]] = {
    "": ("after taking up",),
    "after taking up": ("after the announcement",),
    "after the announcement": ("after opening",),
    "after opening": ("after telling",),
    "after telling": ("before publishing", "before forgetting", "before the write"),
    "before publishing": ("between sinks",),
    "between sinks": ("before publishing", "before forgetting", "before the write"),
    "before forgetting": ("before the write",),
    "before the write": ("after the write",),
    "after the write": ("after telling",),
}
"""What may come after a point; a death may come anywhere."""


@final
@dataclass
class Lives:
    """What all lives of one state directory have announced so far.

    Attributes:
        durable: The numbers of the last commit that may be durable: two, if a process died between
            the points around a write.
        owed: What each commit owes to which places, in order.
        wrong: What is not as the model has it.
    """

    durable: set[int] = field(default_factory=lambda: {0})
    owed: dict[int, tuple[Delivered, ...]] = field(default_factory=lambda: {0: ()})
    wrong: list[str] = field(default_factory=list)

    def live(self, announced: Sequence[Announced], *, died: bool) -> None:
        """Take in a life.

        Args:
            announced: What it announced, in order.
            died: Whether it was killed; else it has ended.
        """
        at, epoch = "", -1
        writing: int | None = None
        begun: Delivered | None = None
        came: list[Delivered] = []
        fact: Any
        for name, fact in announced:
            if name not in NEXT[at]:
                self._say(f"{name!r} comes after {at!r}")
            at = name
            match name, fact:
                case "after taking up", int():
                    if fact not in self.durable:
                        self._say(f"commit {fact} is taken up, and {self.durable} is durable")
                    epoch, self.durable = fact, {fact}
                case "before the write", (int() as writing, tuple() as owed):
                    if writing != epoch + 1:
                        self._say(f"commit {writing} comes after {epoch}")
                    if tuple(came) != self.owed.get(epoch, ()):
                        self._say(f"{epoch} owed {self.owed.get(epoch)}, and {came} came")
                    came, self.owed[writing] = [], owed
                    self.durable = {epoch, writing}
                case "after the write", int():
                    if fact != writing:
                        self._say(f"commit {fact} was written, and not {writing}")
                    epoch, writing, self.durable = fact, None, {fact}
                case "before publishing", (str(), int(), int()):
                    begun = fact
                    if int(fact[0][:12]) != epoch:
                        self._say(f"{fact[0]} is delivered, and {epoch} is the last commit")
                case "between sinks", (str(), int(), int()):
                    if fact != begun:
                        self._say(f"{fact} was delivered, and not {begun}")
                    came.append(fact)
                case (("after telling" | "before forgetting"), int()):
                    if fact != epoch:
                        self._say(f"{name} is about {fact}, and {epoch} is the last commit")
                case _:
                    pass
        if not died and at != "before forgetting":
            self._say(f"the run ended after {at!r}")

    def _say(self, what: str) -> None:
        self.wrong.append(what)


@final
class Announcements:
    """What the processes of one state directory have written into a file, a line for each point.

    Args:
        file: The file, which need not be there yet.
    """

    def __init__(self, file: Path) -> None:
        self.lives = Lives()
        self._file = file
        self._lines = 0

    def check(self, *, died: bool, outputs_change: bool = False) -> None:
        """Hold what was written since the last call against the protocol: that of one life.

        Args:
            died: Whether the process was killed, or failed; else it has ended.
            outputs_change: Whether outputs come and go: what a commit owed to one that is gone is
                then held against nobody.
        """
        lines = self._file.read_text().splitlines() if self._file.exists() else []
        announced = [(name, _fact(fact)) for name, fact in map(json.loads, lines[self._lines :])]
        self._lines = len(lines)
        self.lives.live(announced, died=died)
        assert outputs_change or not self.lives.wrong, f"{self._file}: {self.lives.wrong}"


def _fact(fact: Any) -> Any:
    return tuple(map(_fact, fact)) if isinstance(fact, list) else fact
