"""The nine-event example of *Streaming Systems*, exact, on the engine and on the oracle."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lowwater as lw
from lowwater.testing import Scenario, assert_late, assert_panes, oracle
from tests.paths import read_yaml

DATA = read_yaml(Path(__file__).parent / "goldens/streaming102.yaml")
NAMES = ("AfterCount", "AfterProcessingTime", "AfterWatermark", "Repeatedly")
NAMESPACE = {name: getattr(lw, name) for name in NAMES}


def scenario(marks: list[list[str]]) -> Scenario:
    """Return the events and watermarks in order; at one clock reading watermarks come first."""
    moves: list[Any] = [(at, 0, to) for at, to in marks]
    arrivals = [(at, 1, (value, time, DATA["key"])) for value, time, at in DATA["events"]]
    built = Scenario(start="12:00:00", watermark="12:00:00")
    for at, is_element, what in sorted(moves + arrivals, key=lambda entry: entry[:2]):
        built = built.add(what, at=at) if is_element else built.watermark(what, at=at)
    return built.end()


def run_engine(given: Scenario, windowing: lw.Windowing) -> Any:
    return given.run_windowing(windowing, aggregate=lw.sum())


def run_oracle(given: Scenario, windowing: lw.Windowing) -> Any:
    return oracle.run(given, windowing, sum)


@pytest.mark.parametrize("run", [run_engine, run_oracle])
@pytest.mark.parametrize("case", DATA["cases"], ids=lambda case: case["name"])
def test_golden(case: dict[str, Any], run: Callable[[Scenario, lw.Windowing], Any]) -> None:
    windowing = lw.Windowing(
        windows=lw.FixedWindows(DATA["window"]["fixed"]),
        trigger=eval(case["trigger"], NAMESPACE),
        accumulation=case["accumulation"],
        allowed_lateness=case["allowed_lateness"],
    )
    result = run(scenario(DATA["watermarks"].get(case["watermark"], [])), windowing)
    windows = DATA["windows"]
    assert_panes(result.panes, [(at, windows[name], *rest) for at, name, *rest in case["panes"]])
    assert_late(result.late, [(value, windows[name], why) for value, name, why in case["late"]])
