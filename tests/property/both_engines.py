"""The two engines behind one function: laws hold for both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import lowwater as lw
from lowwater.engine.records.panes import LateRecord, Pane
from lowwater.engine.window.windowing import Windowing
from lowwater.testing import Scenario, oracle

Run: TypeAlias = Callable[[Scenario, Windowing], tuple[list[Pane], list[LateRecord]]]


def by_engine(scenario: Scenario, windowing: Windowing) -> tuple[list[Pane], list[LateRecord]]:
    """Return what the engine gives when panes show their elements."""
    run = scenario.run_windowing(windowing, aggregate=lw.collect())
    return run.panes, run.late


def by_oracle(scenario: Scenario, windowing: Windowing) -> tuple[list[Pane], list[LateRecord]]:
    """Return what the oracle gives when panes show their elements."""
    run = oracle.run(scenario, windowing, list)
    return run.panes, run.late


BOTH = (by_engine, by_oracle)


def plain(record: LateRecord) -> Any:
    """Return the value of a late record, without its other columns."""
    return record.value["value"] if isinstance(record.value, dict) else record.value


def shown(panes: Iterable[Pane]) -> Counter[Any]:
    """Return how often each value is shown."""
    return Counter(value for pane in panes for value in pane.value)
