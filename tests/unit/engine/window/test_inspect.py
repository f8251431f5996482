"""Stored windows can be inspected whatever types their columns have had."""

from __future__ import annotations

import pytest

import lowwater as lw
from lowwater.testing import Scenario
from tests.property.stored_operator import SAVED, stored


@pytest.mark.parametrize("spills", [False, True])
def test_a_type_guessed_of_nulls_and_the_type_that_came(spills: bool) -> None:
    """Some windows are stored in a layout with numbers, and later ones in a layout with text."""
    windowing = lw.Windowing(windows=lw.FixedWindows("1m"))
    scenario = (
        Scenario()
        .add((1, "00:00:00", "A", {"name": None}))
        .add((2, "00:01:00", "A", {"name": "a"}))
        .add((3, "00:00:30", "B", {"name": "b"}))
        .end()
    )
    with stored([SAVED], spills=spills):  # inspects and verifies after each step
        run = scenario.run_windowing(windowing, aggregate=lw.max("name"))
    assert [(pane.key, pane.value) for pane in run.panes] == [("A", None), ("B", "b"), ("A", "a")]
