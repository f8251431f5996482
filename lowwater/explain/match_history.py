"""The searches of a stage of ``match``, repeated from its trace for some keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from lowwater.engine.graph.trace import StageTrace, TracedElement
from lowwater.engine.graph.traced_parts import TracedParts, keys_of
from lowwater.engine.local.trace_parts import ElementPart
from lowwater.engine.match.attempts import Attempt, Attempts
from lowwater.engine.match.replay import Change, Event, FoundMatch, Replay
from lowwater.engine.records.batch import HIDDEN
from lowwater.engine.records.steps import Bundle
from lowwater.time import Int64Array


@final
class KeyHistory:
    """What was found in the rows of one key, and when. O(elements), the searches apart.

    Args:
        stage: The trace of the stage, of all elements.
        key: The key.
    """

    def __init__(self, stage: StageTrace, key: Any) -> None:
        assert stage.matching is not None
        self._stage = stage
        self._places: list[int] = []  # of each row: which element of the stage it is
        self._replay: Replay | None = None
        self._attempts: Attempts | None = None
        self._fates: dict[int, Attempt] = {}
        self._keys = keys_of(stage.elements)
        parts, events = self._collected(key)
        if parts:
            self._replay = Replay(stage.matching, joined_rows(parts))
            for event in sorted(events, key=lambda one: one.order):
                self._replay.follow(event)
            self._attempts = self._replay.attempts()
            self._fates = {one.row: one for one in self._attempts}

    def _collected(self, key: Any) -> tuple[list[Bundle], list[Event]]:
        """Return the rows of the key, bundle by bundle, and the events that its searches follow."""
        stage = self._stage
        names = frozenset(stage.key_names)
        events = [Event(move.order, move.clock, move.input_watermark) for move in stage.moves]
        bundles: list[Bundle] = []
        assert isinstance(stage.elements, TracedParts)
        first = 0
        for part in stage.elements.parts:
            assert isinstance(part, ElementPart)
            taken, keys = part.taken, self._keys[first : first + len(part)]
            own = [at for at in taken.places.tolist() if keys[at] == key]
            if taken.late is not None:
                late = set(taken.places[taken.late.element].tolist())
                own = [at for at in own if at not in late]
            if own:
                numbers = range(len(self._places), len(self._places) + len(own))
                events.append(Event(part.order, taken.clock, taken.watermark, tuple(numbers)))
                self._places += [first + at for at in own]
                bundles.append(_rows_of(part, np.array(own, dtype=np.int64), names))
            first += len(part)
        return bundles, events

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
        return self._stage.elements[self._places[row]]

    def place(self, row: int) -> int:
        """Return the index of a row among the elements of the stage."""
        return self._places[row]

    def row_of(self, element: TracedElement) -> int | None:
        """Return the number of the row that an element is; ``None`` if it is none of them."""
        for row, place in enumerate(self._places):
            if self._stage.elements[place] is element:
                return row
        return next((row for row in range(len(self._places)) if self.element(row) == element), None)


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


def _rows_of(part: ElementPart, rows: Int64Array, keys: frozenset[str]) -> Bundle:
    """Return some elements of a bundle with the columns that the operator received."""
    taken = part.taken
    bundle = taken.bundle.take(rows)
    columns = {
        name: column.take(taken.rows[rows])
        for name, column in taken.records.columns.items()
        if not name.startswith(HIDDEN) and name not in keys
    }
    return Bundle(bundle.times, bundle.keys, {**columns, **bundle.values}, bundle.signs)


def joined_rows(bundles: Sequence[Bundle]) -> Bundle:
    """Return bundles one behind the other, with signs if any has signs."""
    joined = Bundle.concat([Bundle(one.times, one.keys, one.values) for one in bundles])
    if all(one.signs is None for one in bundles):
        return joined
    signs = [
        np.ones(len(one), dtype=np.int8) if one.signs is None else one.signs for one in bundles
    ]
    return Bundle(joined.times, joined.keys, joined.values, np.concatenate(signs))
