"""A trace read as columns equals its elements and panes, over any scenario and windowing."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
from hypothesis import given

import lowwater as lw
from lowwater.engine.graph.trace import StageTrace
from lowwater.engine.local.traced_columns import OUTCOMES, TraceColumns
from lowwater.engine.window.windowing import Windowing
from lowwater.testing import Scenario
from lowwater.viz._window_history import WindowHistory
from tests.property.strategies import scenarios, windowings


def stage_of(scenario: Scenario, windowing: Windowing) -> StageTrace:
    return scenario.run_windowing(windowing, aggregate=lw.collect(), trace=True).trace.stage()


def same(one: Any, other: Any) -> None:
    for field in fields(one):
        np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name))


@given(scenarios(), windowings())
def test_columns_equal_the_values(scenario: Scenario, windowing: Windowing) -> None:
    stage = stage_of(scenario, windowing)
    columns = TraceColumns.of(stage)
    values = replace(stage, elements=tuple(stage.elements), panes=tuple(stage.panes))
    of_values = TraceColumns.of(values)
    assert columns.keys == of_values.keys
    same(columns.elements, of_values.elements)
    same(columns.panes, of_values.panes)
    windows = columns.windows, of_values.windows
    ends = [
        sorted(zip(w.element.tolist(), w.start.tolist(), w.end.tolist(), strict=True))
        for w in windows
    ]
    assert ends[0] == ends[1]
    outcomes = [OUTCOMES[code] for code in columns.elements.outcome.tolist()]
    assert outcomes == [element.outcome for element in stage.elements]


@given(scenarios(), windowings())
def test_a_stretch_has_its_elements_and_the_windows_that_touch_it(
    scenario: Scenario, windowing: Windowing
) -> None:
    stage = stage_of(scenario, windowing)
    columns = TraceColumns.of(stage)
    low, high = (
        (int(np.quantile(columns.elements.time, share)) for share in (0.25, 0.75))
        if len(columns.elements)
        else (0, 1)
    )
    part = columns.within(low, high)
    inside = [at for at, e in enumerate(stage.elements) if low <= e.time < high]
    assert part.elements.place.tolist() == inside
    assert set(part.windows.element.tolist()) == {at for at in inside if stage.elements[at].windows}
    touching = [
        at
        for at, pane in enumerate(stage.panes)
        if pane.window.start < high and pane.window.end > low
    ]
    assert part.panes.place.tolist() == touching


@given(scenarios(), windowings())
def test_histories_of_windows_that_stay_apart_are_the_same_with_and_without_merges(
    scenario: Scenario, windowing: Windowing
) -> None:
    stage = stage_of(scenario, windowing)
    columns = TraceColumns.of(stage)
    if stage.merges:
        return
    for key in range(len(columns.keys)):
        elements = columns.elements.take(columns.elements.key == key)
        panes = columns.panes.take((columns.panes.key == key) & ~columns.panes.is_retraction)
        history = WindowHistory(panes, panes.order, columns.windows.of(elements), elements.order)
        since, waiting = history.apart()
        also_since, also_waiting = history.merging([])
        assert since.tolist() == also_since.tolist()
        assert sorted(waiting) == sorted(also_waiting)
