"""Joins as operators that are given what a scalar oracle is given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias, final
from unittest import mock

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lowwater.engine.keyed import operator, spilled
from lowwater.engine.keyed.inspect import verify_records
from lowwater.engine.keyed.operator import SideBundle, SidesAdvance
from lowwater.engine.keyed.sides import LEFT, RIGHT, Side
from lowwater.engine.records import stored_keys
from lowwater.engine.records.admit_bounds import HIGH, LOW
from lowwater.engine.records.columns import Column
from lowwater.engine.records.key_hash import hash_keys
from lowwater.engine.records.stage_output import MAIN, StageOutput
from lowwater.engine.records.steps import Bundle, EndOfInput, WatermarkAdvance, key_values
from lowwater.state.key_layout import StoredPlace, stage_range
from lowwater.state.memory import MemoryStore
from lowwater.state.store import Batch
from lowwater.time import END_OF_TIME
from tests.kernels import alternating
from tests.oracles.joins import JoinElement

SIDES: Mapping[str, Side] = {"left": LEFT, "right": RIGHT, "facts": LEFT, "versions": RIGHT}


def bundle_of(elements: Sequence[JoinElement], *, arrow: bool, ordered: bool = False) -> Bundle:
    """Return elements as columns; their values are text in Arrow, or Python objects."""
    values = [one.value for one in elements]
    column = Column.from_arrow(pa.array(values, pa.string())) if arrow else None
    signs = np.array([one.sign for one in elements], dtype=np.int8)
    columns = {"value": column or Column.of_objects(values)}
    if any(one.bounds for one in elements):
        for at, name in enumerate((LOW, HIGH)):
            columns[name] = Column(np.array([one.bounds[at] for one in elements if one.bounds]))
    if ordered:
        columns["order"] = Column.of_objects([one.order for one in elements])
    return Bundle(
        np.array([one.time for one in elements], dtype=np.int64),
        (Column.of_objects([one.key for one in elements]),),
        columns,
        None if (signs > 0).all() else signs,
    )


Row: TypeAlias = tuple[Any, int, dict[str, Any], int]
"""Key, time, columns and sign."""


def rows_of(output: StageOutput) -> list[Row]:
    """Return what an output emits, in its order."""
    if output.panes is not None:
        return [
            (pane.key, int(pane.timestamp), {"window": pane.window, **pane.values}, 1)
            for pane in output.panes
        ]
    emitted = output.emitted.get(MAIN)
    if emitted is None:
        return []
    signs = [1] * len(emitted) if emitted.signs is None else emitted.signs.tolist()
    keys, times = key_values(emitted.keys), emitted.times.tolist()
    return list(zip(keys, times, emitted.to_list(), signs, strict=True))


@final
class Driven:
    """An operator, perhaps with its state in a store.

    Args:
        make: Returns a new operator.
        groups: How many key groups its state is stored in; 0: it is not stored.
        spills: Whether nothing stays in memory that can be done without, most of the time. Another
            operator, all of whose state stays there, then gets the same steps and restarts, or is
            never stored; it must emit the same in the same order.
        memory: About how many bytes stay in memory then.
    """

    def __init__(
        self, make: Callable[[], Any], groups: int, *, spills: bool = False, memory: int = 0
    ) -> None:
        self._make = make
        self.step = alternating(self.step)  # type: ignore[method-assign]
        self._store = MemoryStore()
        self._groups = groups
        self._spills = spills and groups > 0
        self._starts = 0
        self._memory = memory
        self.operator = self._made()
        self._twin = Driven(make, groups - 1) if self._spills else None
        self.late: list[tuple[str, JoinElement]] = []
        self._last_late: Any = None
        self.superseded = 0

    @property
    def operators(self) -> list[Any]:
        """The operator, and the other one that gets the same steps."""
        return [self.operator, *([] if self._twin is None else self._twin.operators)]

    @property
    def is_stored(self) -> bool:
        """Whether its state is in a store."""
        return self._groups > 0

    @property
    def _place(self) -> StoredPlace:
        return StoredPlace("join", 0, self._groups)

    def _made(self) -> Any:
        operator = self._make()
        if self._groups:
            memory = self._memory if self._spills and self._starts % 4 != 3 else None
            operator.keep_in_store(self._place, memory)
        self._starts += 1
        return operator

    def save(self) -> None:
        """Save, and check what is stored."""
        batch = Batch()
        self.operator.save(batch)
        self._store.commit(batch)
        verify_records(self._store, self._place)

    def restart(self) -> None:
        """Save, and take the state up in another operator."""
        self.save()
        self.operator = self._made()
        assert self.operator.restore(self._store)
        if self._twin is not None and self._twin.is_stored:
            self._twin.restart()

    def stored_rows(self) -> int:
        """Return how many rows of the store are its own."""
        return sum(1 for _ in self._store.scan(*stage_range("join")))

    def step(self, step: Any) -> list[Row]:
        """Make a step as a runner does; return what is emitted."""
        operator, rows = self.operator, []
        match step:
            case SideBundle(bundle=bundle):
                operator.load(self._store, bundle)
            case Bundle():
                operator.load(self._store, step)
            case WatermarkAdvance() | SidesAdvance() | EndOfInput():
                to = END_OF_TIME if isinstance(step, EndOfInput) else step.to
                right = step.right if isinstance(step, SidesAdvance) else to
                while (portion := operator.load_due(self._store, to, right)) is not None:
                    rows += rows_of(operator.step(portion))
        output = operator.step(step)
        operator.load_holder(self._store)
        self.superseded += output.superseded
        self._last_late = output.late
        rows += rows_of(output)
        if self._twin is not None:
            assert self._twin.step(step) == rows
            assert self._twin._late_rows() == self._late_rows()
            assert self._twin.operator.output_watermark == operator.output_watermark
            assert self._twin.operator.state_rows == operator.state_rows
            operator._stored._spared = 0.0
            if operator.is_over:
                self.save()
                assert self._memory or not any(map(len, operator.sides))
        return rows

    def take(
        self, side: str, elements: Sequence[JoinElement], *, arrow: bool, ordered: bool = False
    ) -> Counter[Any]:
        """Take a bundle; return what it changes."""
        bundle = bundle_of(elements, arrow=arrow, ordered=ordered)
        rows = self.step(SideBundle(SIDES[side], bundle))
        self.late += [(side, elements[at]) for at in self._late_rows()]
        return changes(rows)

    def _late_rows(self) -> list[int]:
        return [] if self._last_late is None else self._last_late.element.tolist()


def changes(rows: Sequence[Row]) -> Counter[Any]:
    """Return by how much rows of output change each row of a join."""
    found: Counter[Any] = Counter()
    for key, time, row, sign in rows:
        found[key, time, row["value"], row.get("value_right")] += sign
    return Counter({row: count for row, count in found.items() if count})


def few_hashes(columns: Sequence[Column]) -> NDArray[np.uint64]:
    """Return one of five numbers for each key."""
    return hash_keys(columns) % np.uint64(5)


@contextmanager
def colliding() -> Iterator[None]:
    """Have all keys in few hashes, forgotten soon, and what comes back in portions of one."""
    with (
        mock.patch.object(spilled, "AT_ONCE", 1),
        mock.patch.object(spilled, "_CHUNK", 1),
        mock.patch.object(operator, "_FEW_KEYS", 0),
        mock.patch.object(spilled, "hash_keys", few_hashes),
        mock.patch.object(stored_keys, "hash_keys", few_hashes),
    ):
        yield
