"""Runs for tests of diagrams: the nine events of Streaming 102 under several windowings."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import lowwater as lw
from lowwater.testing import Scenario
from lowwater.viz import Diagram
from tests.paths import read_yaml

GOLDENS = Path(__file__).parents[2] / "conformance" / "goldens"
DATA = read_yaml(GOLDENS / "streaming102.yaml")
_NAMES = ("AfterCount", "AfterProcessingTime", "AfterWatermark", "Repeatedly")
_NAMESPACE = {name: getattr(lw, name) for name in _NAMES}

EARLY_LATE = lw.AfterWatermark(early=lw.AfterProcessingTime("1m"), late=lw.AfterCount(1))
RETRACTING = lw.Windowing(
    windows=lw.FixedWindows("2m"),
    trigger=EARLY_LATE,
    accumulation="retracting",
    allowed_lateness="1d",
)
SESSIONS = RETRACTING.with_(windows=lw.Sessions("1m"))
SLIDING = RETRACTING.with_(
    windows=lw.SlidingWindows("2m", "1m"), accumulation="accumulating", allowed_lateness="1m"
)
GLOBAL = lw.Windowing(
    windows=lw.GlobalWindow(),
    trigger=lw.Repeatedly(lw.AfterCount(2)),
    accumulation="accumulating",
)
OTHERS = {"retracting": RETRACTING, "sessions": SESSIONS, "sliding": SLIDING, "global": GLOBAL}
CASES = {case["name"]: case for case in DATA["cases"]}
NAMES = (*CASES, *OTHERS)


def nine_events(watermark: str) -> Scenario:
    """Return the nine events with one of the watermarks; at one clock reading it comes first."""
    marks = DATA["watermarks"].get(watermark, [])
    moves: list[Any] = [(at, 0, to) for at, to in marks]
    arrivals = [(at, 1, (value, time, DATA["key"])) for value, time, at in DATA["events"]]
    built = Scenario(start="12:00:00", watermark="12:00:00")
    for at, is_element, what in sorted(moves + arrivals, key=lambda entry: entry[:2]):
        built = built.add(what, at=at) if is_element else built.watermark(what, at=at)
    return built.end()


def case_diagram(case: dict[str, Any]) -> Diagram:
    """Return the diagram of one of the book's cases."""
    windowing = lw.Windowing(
        windows=lw.FixedWindows(DATA["window"]["fixed"]),
        trigger=eval(case["trigger"], _NAMESPACE),
        accumulation=case["accumulation"],
        allowed_lateness=case["allowed_lateness"],
    )
    return diagram_of(windowing, case["watermark"])


def diagram_of(windowing: lw.Windowing, watermark: str = "heuristic") -> Diagram:
    """Return the diagram of the nine events under a windowing."""
    run = nine_events(watermark).run_windowing(windowing, aggregate=lw.sum(), trace=True)
    return run.diagram()


@cache
def named_diagram(name: str) -> Diagram:
    """Return one of the diagrams of ``NAMES``."""
    return case_diagram(CASES[name]) if name in CASES else diagram_of(OTHERS[name])
