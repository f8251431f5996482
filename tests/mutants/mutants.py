"""Bugs to plant in the window operator, each in one place, by replacing a method for a while."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from lowwater.engine.records.columns import Column
from lowwater.engine.window import emission as _emission
from lowwater.engine.window import merging as _merging
from lowwater.engine.window import operator
from lowwater.engine.window.aggregation import Aggregation
from lowwater.engine.window.operator import WindowOperator
from lowwater.engine.window.placement import Placement
from lowwater.engine.window.retractions import ShownPanes
from lowwater.engine.window.schedule import WatermarkHolds
from lowwater.time import END_OF_TIME

SECOND = 1_000_000
Plant = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Mutant:
    """A planted bug.

    Args:
        name: What is wrong.
        plant: Plants it.
        caught_by: The laws that must catch it.
    """

    name: str
    plant: Plant
    caught_by: tuple[str, ...]


MUTANTS: list[Mutant] = []


def mutant(name: str, *caught_by: str) -> Callable[[Plant], Plant]:
    def note(plant: Plant) -> Plant:
        MUTANTS.append(Mutant(name, plant, caught_by))
        return plant

    return note


@mutant("lateness is off by one", "check_no_loss")
def _(patch: pytest.MonkeyPatch) -> None:
    right = Placement.assign

    def assign(self: Any, bundle: Any, watermark: int, late: Any) -> Any:
        return right(self, bundle, watermark - 1, late)

    patch.setattr(Placement, "assign", assign)


@mutant("lateness is ignored: what is allowed is dropped", "check_no_loss")
def _(patch: pytest.MonkeyPatch) -> None:
    right = Placement.assign

    def assign(self: Any, bundle: Any, watermark: int, late: Any) -> Any:
        before = self.gone_until
        self.gone_until = max(before, watermark)
        try:
            return right(self, bundle, watermark, late)
        finally:
            self.gone_until = before

    patch.setattr(Placement, "assign", assign)


@mutant("a merge loses what one window held", "check_no_loss", "check_order_insensitive")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Aggregation, "merge", lambda self, into, rows: None)


@mutant("a window fires again with nothing new", "check_pane_labels")
def _(patch: pytest.MonkeyPatch) -> None:
    right = _emission._remember

    def remember(state: Any, firing: Any, batch: Any, on_time_index: Any) -> None:
        right(state, firing, batch, on_time_index)
        state.table["new"][firing.rows[~firing.released]] = 1

    patch.setattr(_emission, "_remember", remember)


@mutant("the watermark goes back", "check_no_loss", "check_pane_labels")
def _(patch: pytest.MonkeyPatch) -> None:
    right = WindowOperator._advance_watermark

    def advance(self: Any, to: int, upto: int | None = None) -> Any:
        output = right(self, to, upto)
        if to < END_OF_TIME:
            self.watermark = to - 4 * SECOND
        return output

    patch.setattr(WindowOperator, "_advance_watermark", advance)


@mutant("a hold is let go early", "check_order_insensitive")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WatermarkHolds, "lowest", lambda self, low: low)


@mutant("the accumulator is not reset in discarding mode", "check_no_loss")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Aggregation, "reset", lambda self, rows: None)


@mutant("a retraction has another value than was shown", "check_retractions_telescope")
def _(patch: pytest.MonkeyPatch) -> None:
    right = ShownPanes.values

    def values(self: Any, panes: Any, names: Any) -> Any:
        found = right(self, panes, names)
        total = found["total"]
        return found | {"total": Column(total.data + 1, total.valid, total.type)}

    patch.setattr(ShownPanes, "values", values)


@mutant("windows that merge forget the panes to take back", "check_retractions_telescope")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ShownPanes, "merge", lambda self, into, rows: None)


@mutant("a window is closed before its lateness is over", "check_no_loss", "check_pane_labels")
def _(patch: pytest.MonkeyPatch) -> None:
    right = WindowOperator._advance_watermark

    def advance(self: Any, to: int, upto: int | None = None) -> Any:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(Placement, "expiry", lambda self, end: end)
            return right(self, to, upto)

    patch.setattr(WindowOperator, "_advance_watermark", advance)


@mutant("a pane's index is repeated", "check_pane_labels")
def _(patch: pytest.MonkeyPatch) -> None:
    right = _emission._remember

    def remember(state: Any, firing: Any, batch: Any, on_time_index: Any) -> None:
        index = np.maximum(batch.index, 1) - 1
        right(state, firing, replace(batch, index=index), on_time_index)

    patch.setattr(_emission, "_remember", remember)


@mutant("what is late counts as on time", "check_pane_labels")
def _(patch: pytest.MonkeyPatch) -> None:
    right = WindowOperator._settle

    def settle(self: Any, rows: Any, moments: Any, **how: Any) -> Any:
        self._state.table["on_time_new"][rows] = True
        return right(self, rows, moments, **how)

    patch.setattr(WindowOperator, "_settle", settle)


@mutant("what no pane has shown is lost at expiry", "check_no_loss")
def _(patch: pytest.MonkeyPatch) -> None:
    right = WindowOperator._settle

    def settle(self: Any, rows: Any, moments: Any, *, expired: Any = None, **how: Any) -> Any:
        if expired is not None:
            self._state.table["new"][rows[expired]] = 0
        return right(self, rows, moments, expired=expired, **how)

    patch.setattr(WindowOperator, "_settle", settle)


@mutant(
    "of a bundle's elements one is forgotten", "check_no_loss", "check_bundle_insensitive",
    "check_batch_equal",
)  # fmt: skip
def _(patch: pytest.MonkeyPatch) -> None:
    right = Aggregation.add

    def add(self: Any, bundle: Any, element: Any, rows: Any, arrival: Any) -> None:
        if len(rows) > 1:
            element = np.arange(len(rows)) if element is None else element
            element, rows = element[:-1], rows[:-1]
        right(self, bundle, element, rows, arrival)

    patch.setattr(Aggregation, "add", add)


@mutant("elements are fed to the window of the next one's key", "check_batch_equal")
def _(patch: pytest.MonkeyPatch) -> None:
    right = _merging.place_plain

    def place(state: Any, keys: Any, start: Any, end: Any) -> Any:
        return right(state, np.roll(keys, 1), start, end)

    patch.setattr(operator, "place_plain", place)
