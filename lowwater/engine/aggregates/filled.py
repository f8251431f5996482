"""Whether a window has no elements: a result of panes of windows that are filled (S-F1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import numpy as np
import pyarrow as pa
from numpy.typing import DTypeLike

from lowwater.engine.aggregates import specs
from lowwater.engine.aggregates._base import (
    Aggregate,
    AggregateInput,
    AggregateSpec,
    Condensed,
    State,
    StateColumn,
)
from lowwater.engine.aggregates.built_in import IS_FILLED, BuiltIn
from lowwater.engine.records.columns import Column
from lowwater.state.arrays import NONE
from lowwater.time import START_OF_TIME, Int64Array

HAS_ELEMENTS = START_OF_TIME
"""The state of a window with elements; in one without, until when those behind it are filled."""


def is_filled() -> BuiltIn:
    """Return the aggregate that says whether a window has no elements."""
    return BuiltIn(
        IS_FILLED, None, "nothing", _filled, make_signed=_filled, differs=True, rejoins=specs.all,
        orderless=True,
    )  # fmt: skip


def with_is_filled(aggregates: Mapping[str, AggregateSpec]) -> dict[str, AggregateSpec]:
    """Return the aggregates with this one, by its name."""
    return {**aggregates, IS_FILLED: is_filled()}


@final
class _Filled:
    """The operator writes its state; elements add nothing to it, and a pane discards nothing."""

    stays = True
    condenses = True

    @property
    def columns(self) -> tuple[StateColumn, ...]:
        return (StateColumn("until", np.int64, HAS_ELEMENTS),)

    def add(self, state: State, batch: AggregateInput) -> None:
        """Add nothing."""

    def condense(self, batch: AggregateInput, groups: int) -> Condensed:
        return Condensed(NONE, None)

    def merge(self, state: State, into: Int64Array, rows: Int64Array) -> None:
        """Merge nothing: these windows do not merge."""

    def result(self, state: State, rows: Int64Array) -> Column:
        return Column(state["until"][rows] != HAS_ELEMENTS)


def _filled(_type: pa.DataType | None, _dtype: DTypeLike, **_more: Any) -> Aggregate:
    return _Filled()
