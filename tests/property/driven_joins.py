"""Joins as operators that are given what a scalar oracle is given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import numpy as np
import pyarrow as pa

from lowwater.engine.join.joining import LEFT, RIGHT, Side
from lowwater.engine.join.keyed_operator import SideBundle
from lowwater.engine.process.output import MAIN, ProcessOutput
from lowwater.engine.records.columns import Column
from lowwater.engine.records.steps import Bundle, key_values
from lowwater.state.key_layout import StoredPlace
from lowwater.state.memory import MemoryStore
from lowwater.state.store import Batch
from lowwater.testing._oracle_joins import JoinElement

SIDES: Mapping[str, Side] = {"left": LEFT, "right": RIGHT, "facts": LEFT, "versions": RIGHT}


def bundle_of(elements: Sequence[JoinElement], *, arrow: bool, ordered: bool = False) -> Bundle:
    """Return elements as columns; their values are text in Arrow, or Python objects."""
    values = [one.value for one in elements]
    column = Column.from_arrow(pa.array(values, pa.string())) if arrow else None
    signs = np.array([one.sign for one in elements], dtype=np.int8)
    columns = {"value": column or Column.of_objects(values)}
    if ordered:
        columns["order"] = Column.of_objects([one.order for one in elements])
    return Bundle(
        np.array([one.time for one in elements], dtype=np.int64),
        (Column.of_objects([one.key for one in elements]),),
        columns,
        None if (signs > 0).all() else signs,
    )


@final
class Driven:
    """An operator, perhaps with its state in a store.

    Args:
        make: Returns a new operator.
        groups: How many key groups its state is stored in; 0: it is not stored.
    """

    def __init__(self, make: Callable[[], Any], groups: int) -> None:
        self._make = make
        self._store = MemoryStore()
        self._groups = groups
        self.operator = self._made()
        self.late: list[tuple[str, JoinElement]] = []

    def _made(self) -> Any:
        operator = self._make()
        if self._groups:
            operator.keep_in_store(StoredPlace("join", 0, self._groups))
        return operator

    def restart(self) -> None:
        """Save, and take the state up in another operator."""
        batch = Batch()
        self.operator.save(batch)
        self._store.commit(batch)
        self.operator = self._made()
        assert self.operator.restore(self._store)

    def take(
        self, side: str, elements: Sequence[JoinElement], *, arrow: bool, ordered: bool = False
    ) -> Counter[Any]:
        """Take a bundle; return what it changes."""
        bundle = bundle_of(elements, arrow=arrow, ordered=ordered)
        output = self.operator.step(SideBundle(SIDES[side], bundle))
        if output.late is not None:
            self.late += [(side, elements[at]) for at in output.late.element.tolist()]
        return changes(output)


def changes(output: ProcessOutput) -> Counter[Any]:
    """Return by how much an output changes each row."""
    found: Counter[Any] = Counter()
    emitted = output.outputs.get(MAIN)
    if emitted is not None:
        signs = [1] * len(emitted) if emitted.signs is None else emitted.signs.tolist()
        rows = zip(
            key_values(emitted.keys), emitted.times.tolist(), emitted.to_list(), signs, strict=True
        )
        for key, time, row, sign in rows:
            found[key, time, row["value"], row.get("value_right")] += sign
    return Counter({row: count for row, count in found.items() if count})
