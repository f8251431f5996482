"""Scenarios in which elements are taken back, and what aggregates show of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from statistics import variance
from typing import Any, TypeAlias

import hypothesis.strategies as st

import lowwater as lw
from lowwater.engine.records.panes import Pane
from lowwater.engine.window.windowing import Windowing
from lowwater.testing import Scenario
from lowwater.testing._arrivals import Add, ScenarioElement, Step
from lowwater.triggers import AfterWatermark, Repeatedly
from tests.property import strategies as own

Case: TypeAlias = tuple[Windowing, Scenario, list[int]]


class Longest:
    """A combiner of numbers that cannot subtract: the largest distance between two of them."""

    def create_accumulator(self) -> list[int]:
        return []

    def add_input(self, accumulator: list[int], value: int) -> list[int]:
        both = [*accumulator, value]
        return [min(both), max(both)]

    def merge_accumulators(self, accumulators: Any) -> list[int]:
        both = [value for accumulator in accumulators for value in accumulator]
        return [min(both), max(both)] if both else []

    def extract_output(self, accumulator: list[int]) -> int | None:
        return accumulator[1] - accumulator[0] if accumulator else None


class Tally:
    """A combiner that can subtract: how often each value came, in place."""

    def create_accumulator(self) -> dict[int, int]:
        return {}

    def add_input(self, accumulator: dict[int, int], value: int) -> dict[int, int]:
        accumulator[value] = accumulator.get(value, 0) + 1
        return accumulator

    def remove_input(self, accumulator: dict[int, int], value: int) -> dict[int, int]:
        accumulator[value] = accumulator.get(value, 0) - 1
        return accumulator

    def merge_accumulators(self, accumulators: Any) -> dict[int, int]:
        merged: dict[int, int] = {}
        for accumulator in accumulators:
            for value, count in accumulator.items():
                merged[value] = merged.get(value, 0) + count
        return merged

    def extract_output(self, accumulator: dict[int, int]) -> list[tuple[int, int]]:
        return sorted((value, count) for value, count in accumulator.items() if count)


def tally(values: list[int]) -> list[tuple[int, int]]:
    """What :class:`Tally` shows."""
    return sorted((value, values.count(value)) for value in set(values))


def length(values: list[int]) -> int | None:
    """What :class:`Longest` shows."""
    return max(values) - min(values) if values else None


SUBTRACTED = {"count": lw.count(), "some": lw.count("value"), "sum": lw.sum()}
SUBTRACTED_PLAIN: dict[str, Callable[[list[Any]], Any]] = {"count": len, "some": len, "sum": sum}
KEPT = {
    "list": lw.collect(),
    "set": lw.collect_set(),
    "distinct": lw.count_distinct(),
    "least": lw.min(),
    "most": lw.max(),
    "length": lw.combine(Longest()),
}
KEPT_PLAIN: dict[str, Callable[[list[Any]], Any]] = {
    "list": list,
    "set": lambda values: list(dict.fromkeys(values)),
    "distinct": lambda values: len(set(values)),
    "least": lambda values: min(values, default=None),
    "most": lambda values: max(values, default=None),
    "length": length,
}
COUNTED = {"tally": lw.combine(Tally()), "mean": lw.mean(), "var": lw.var()}
COUNTED_PLAIN: dict[str, Callable[[list[Any]], Any]] = {
    "tally": tally,
    "mean": lambda values: sum(values) / len(values) if values else None,
    "var": lambda values: float(variance(values)) if len(values) > 1 else None,
}


def about(pane: Pane, *, orders: bool) -> Pane:
    """Return a pane to compare: floats to a few digits, lists sorted unless ``orders`` counts."""

    def plain(value: Any) -> Any:
        if isinstance(value, float):
            return round(value, 6) if math.isfinite(value) else repr(value)
        if isinstance(value, list) and not orders:
            return sorted(value)
        return value

    return replace(pane, values={name: plain(value) for name, value in pane.values.items()})


@st.composite
def signed_scenarios(draw: st.DrawFn, *, gaps: bool) -> tuple[Scenario, list[int]]:
    """Scenarios with small values, some elements in which take back one that came before."""
    scenario = draw(own.scenarios(gaps=gaps, ranked=True))
    signs: list[int] = []
    there: list[ScenarioElement] = []
    steps: list[Step] = []
    for step in scenario.steps:
        if not isinstance(step, Add):
            steps.append(step)
            continue
        elements = []
        for element in step.elements:
            takes_back: bool = draw(st.booleans())
            if there and takes_back:
                elements.append(there.pop(draw(st.integers(0, len(there) - 1))))
                signs.append(-1)
            else:
                elements.append(replace(element, value=draw(st.integers(-2, 2))))
                there.append(elements[-1])
                signs.append(1)
        steps.append(replace(step, elements=tuple(elements)))
    signed = Scenario(start=scenario.start, watermark=scenario.watermark_at_start)
    for step in steps:
        signed = signed._with(step)
    return signed, signs


@st.composite
def cases(draw: st.DrawFn, windowing: st.SearchStrategy[Windowing] | None = None) -> Case:
    """A windowing, a scenario for it, and the signs of the elements."""
    chosen = draw(windowing if windowing is not None else own.windowings())
    scenario, signs = draw(signed_scenarios(gaps=bool(chosen.windows.columns)))
    return chosen, scenario, signs


def safe_windowings() -> st.SearchStrategy[Windowing]:
    """Windowings under which each retraction finds what it takes back, and that show content."""
    repeated = st.builds(Repeatedly, own.triggers(2))
    late = st.builds(AfterWatermark, st.none() | own.triggers(2), own.triggers(2))
    windows = own.fixed() | own.sliding() | own.sessions() | st.just(lw.GlobalWindow())
    modes = st.sampled_from(["accumulating", "retracting"])
    return modes.flatmap(lambda mode: own.windowings(windows, repeated | late, accumulation=mode))
