"""What Hypothesis prints of values from our strategies, when it has found a falsifying example."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lowwater as lw
from lowwater.testing import strategies as lws


def _printed(strategy: st.SearchStrategy[Any], holds: Any) -> str:
    """Return the note of the smallest example for which something does not hold."""

    @settings(database=None, derandomize=True, max_examples=200)
    @given(strategy)
    def check(drawn: Any) -> None:
        if not holds(drawn):
            raise LookupError("found")

    with pytest.raises(LookupError) as raised:
        check()
    return "\n".join(raised.value.__notes__)


def test_a_scenario_is_printed_call_by_call() -> None:
    printed = _printed(lws.scenarios(start="12:00"), lambda scenario: len(scenario.elements) < 2)
    calls = [line.strip() for line in printed.splitlines()]
    assert "drawn=Scenario(start='12:00:00'" in printed
    assert ".end()," in calls
    assert any(call.startswith(".add((0, ") for call in calls)
    assert "steps=" not in printed


@pytest.mark.long(reason="shrinks a value as the scenario above")
def test_a_windowing_is_printed_without_its_defaults() -> None:
    printed = _printed(lws.windowings(), lambda windowing: False)
    assert "drawn=Windowing(windows=" in printed
    assert "allow_data_loss" not in printed


def test_instants_and_windows_are_printed_as_values() -> None:
    assert "drawn=Instant('" in _printed(lws.timestamps(), lambda at: False)
    assert "drawn=Window(start=Instant('" in _printed(st.from_type(lw.Window), lambda window: False)


@pytest.mark.parametrize(
    "windowing",
    [
        lw.Windowing(windows=lw.FixedWindows("1m")),
        lw.Windowing(windows=lw.Sessions("1m"), accumulation="retracting"),
        lw.Windowing(
            windows=lw.SlidingWindows("2m", "1m"),
            trigger=lw.AfterWatermark(late=lw.AfterCount(1)),
            accumulation="discarding",
            allowed_lateness="1h",
            closing="always",
        ),
    ],
)
def test_the_short_form_makes_the_same_windowing(windowing: lw.Windowing) -> None:
    assert (
        eval(repr(windowing), vars(lw) | {name: getattr(lw, name) for name in dir(lw)}) == windowing
    )
