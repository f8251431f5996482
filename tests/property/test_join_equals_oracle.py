"""J-1 to J-6: the columnar join equals the scalar oracle, step by step, and after restarts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, final

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
from hypothesis import given

from lowwater.engine.join.joining import LEFT, RIGHT, Between, Joining
from lowwater.engine.join.operator import JoinOperator
from lowwater.engine.join.pairs import JoinedColumns
from lowwater.engine.join.two_sided import SideBundle
from lowwater.engine.process.output import MAIN, ProcessOutput
from lowwater.engine.records.columns import Column
from lowwater.engine.records.steps import Bundle, EndOfInput, WatermarkAdvance, key_values
from lowwater.state.key_layout import StoredPlace
from lowwater.state.memory import MemoryStore
from lowwater.state.store import Batch
from lowwater.testing._join_scenarios import JoinCase, drive, join_cases
from lowwater.testing._oracle_joins import JoinElement, net
from tests.examples import examples

SIDES = {"left": LEFT, "right": RIGHT}


def bundle_of(elements: Sequence[JoinElement], *, arrow: bool) -> Bundle:
    """Return elements as columns; their values are text in Arrow, or Python objects."""
    values = [one.value for one in elements]
    column = Column.from_arrow(pa.array(values, pa.string())) if arrow else None
    signs = np.array([one.sign for one in elements], dtype=np.int8)
    return Bundle(
        np.array([one.time for one in elements], dtype=np.int64),
        (Column.of_objects([one.key for one in elements]),),
        {"value": column or Column.of_objects(values)},
        None if (signs > 0).all() else signs,
    )


@final
class Driven:
    """An operator that is given what the oracle is given.

    Args:
        case: The join.
        groups: How many key groups its state is stored in; 0: it is not stored.
    """

    def __init__(self, case: JoinCase, groups: int) -> None:
        self._case = case
        self._store = MemoryStore()
        self._groups = groups
        self.operator = self._made()
        self.late: list[tuple[str, JoinElement]] = []

    def _made(self) -> JoinOperator:
        case = self._case
        within = Between(f"{case.low}us", f"{case.high}us")
        operator = JoinOperator(
            Joining(within, case.how, case.unmatched, case.lateness),
            JoinedColumns({"value": None}, {"value": None}, ("key",)),
            signed=case.signed,
        )
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

    def step(self, step: tuple[Any, ...], *, arrow: bool) -> Counter[Any]:
        """Take a step; return what it changes."""
        kind, given = step
        if kind == "watermark":
            return changes(self.operator.step(WatermarkAdvance(given)))
        output = self.operator.step(SideBundle(SIDES[kind], bundle_of(given, arrow=arrow)))
        if output.late is not None:
            self.late += [(kind, given[at]) for at in output.late.element.tolist()]
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


@given(join_cases(), st.integers(0, 3), st.frozensets(st.integers(0, 12)), st.booleans())
@examples(10)
def test_the_join_equals_the_oracle(
    case: JoinCase, groups: int, restarts: frozenset[int], arrow: bool
) -> None:
    oracle, driven = case.oracle(), Driven(case, groups)
    for at, step in enumerate(case.schedule):
        if groups and at in restarts:
            driven.restart()
        wanted = net(drive(oracle, step))
        assert driven.step(step, arrow=arrow) == wanted, at
        operator = driven.operator
        assert (operator.watermark, operator.output_watermark) == (
            oracle.watermark,
            oracle.output_watermark,
        )
        assert operator.state_rows == oracle.rows
        assert operator.retracts == oracle.signed_output
        operator._check()
        hold = operator.hold()
        assert (hold is None) == (min(operator._held()[0], operator.watermark) == oracle.watermark)
    wanted = net(oracle.end())
    assert changes(driven.operator.step(EndOfInput())) == wanted
    assert driven.late == oracle.late
    assert driven.operator.state_rows == 0
