"""The searches of a stage of ``match``, repeated from its trace for some keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

from lowwater.engine.graph.trace import StageTrace, TracedElement
from lowwater.engine.match.attempts import Attempt, Attempts
from lowwater.engine.match.replay import Change, FoundMatch, Replay
from lowwater.explain.traced_rows import TracedRows


@final
class KeyHistory:
    """What was found in the rows of one key, and when. O(elements), the searches apart.

    Args:
        stage: The trace of the stage, of all elements.
        key: The key.
    """

    def __init__(self, stage: StageTrace, key: Any) -> None:
        assert stage.matching is not None
        self._rows = TracedRows(stage, key)
        self._replay: Replay | None = None
        self._attempts: Attempts | None = None
        self._fates: dict[int, Attempt] = {}
        if self._rows.bundle is not None:
            self._replay = Replay(stage.matching, self._rows.bundle)
            for event in self._rows.events:
                self._replay.follow(event)
            self._attempts = self._replay.attempts()
            self._fates = {one.row: one for one in self._attempts}

    @property
    def changes(self) -> Sequence[Change]:
        """What was emitted and retracted, in order."""
        return () if self._replay is None else self._replay.changes

    @property
    def standing(self) -> Sequence[FoundMatch]:
        """The matches that stand, by start."""
        return () if self._replay is None else self._replay.standing

    @property
    def attempts(self) -> Sequence[Attempt]:
        """What became of each row as a start, in the order of rows (P-1)."""
        return tuple(self._fates.values())

    @property
    def search(self) -> Attempts:
        """What knows how far attempts came; there must be rows."""
        assert self._attempts is not None
        return self._attempts

    def is_final(self, match: FoundMatch) -> bool:
        """Return whether no late row can change a match any more."""
        assert self._replay is not None
        return self._replay.is_final(match)

    def attempt(self, row: int) -> Attempt | None:
        """Return what became of a row as a start; ``None`` if it was taken back."""
        return self._fates.get(row)

    def element(self, row: int) -> TracedElement:
        """Return the element that a row is."""
        return self._rows.element(row)

    def place(self, row: int) -> int:
        """Return the index of a row among the elements of the stage."""
        return self._rows.place(row)

    def row_of(self, element: TracedElement) -> int | None:
        """Return the number of the row that an element is; ``None`` if it is none of them."""
        return self._rows.row_of(element)


@final
class MatchHistories:
    """The histories of the keys of a stage, each made once.

    Args:
        stage: The trace of the stage.
    """

    def __init__(self, stage: StageTrace) -> None:
        self._stage = stage
        self._of: dict[Any, KeyHistory] = {}

    def of(self, key: Any) -> KeyHistory:
        """Return the history of a key."""
        name = repr(key)
        if name not in self._of:
            self._of[name] = KeyHistory(self._stage, key)
        return self._of[name]
