"""The rows of one key in a trace, with the columns that their stage read, and what it followed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from lowwater.engine.graph.trace import StageTrace, TracedElement
from lowwater.engine.graph.traced_parts import TracedParts, keys_of
from lowwater.engine.local.trace_parts import ElementPart
from lowwater.engine.records.batch import HIDDEN
from lowwater.engine.records.followed import Event
from lowwater.engine.records.steps import Bundle
from lowwater.time import Int64Array


@final
class TracedRows:
    """The rows of a key that were not dropped, in order of arrival. O(elements of the stage).

    A row's number is its index among them.

    Args:
        stage: The trace of the stage, of all elements.
        key: The key.
    """

    def __init__(self, stage: StageTrace, key: Any) -> None:
        self._stage = stage
        self._places: list[int] = []  # of each row: which element of the stage it is
        events = [Event(move.order, move.clock, move.input_watermark) for move in stage.moves]
        bundles: list[Bundle] = []
        keys, names = keys_of(stage.elements), frozenset(stage.key_names)
        assert isinstance(stage.elements, TracedParts)
        first = 0
        for part in stage.elements.parts:
            assert isinstance(part, ElementPart)
            taken, own_keys = part.taken, keys[first : first + len(part)]
            own = [at for at in taken.places.tolist() if own_keys[at] == key]
            if taken.late is not None:
                late = set(taken.places[taken.late.element].tolist())
                own = [at for at in own if at not in late]
            if own:
                numbers = range(len(self._places), len(self._places) + len(own))
                events.append(Event(part.order, taken.clock, taken.watermark, tuple(numbers)))
                self._places += [first + at for at in own]
                bundles.append(_rows_of(part, np.array(own, dtype=np.int64), names))
            first += len(part)
        self.bundle = joined_rows(bundles) if bundles else None
        """The rows, with signs if any has signs; ``None`` if there are none."""
        self.events = sorted(events, key=lambda event: event.order)
        """What the stage followed, in order."""

    def __len__(self) -> int:
        return len(self._places)

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
        return next((row for row in range(len(self)) if self.element(row) == element), None)


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
