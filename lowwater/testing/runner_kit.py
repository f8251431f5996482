"""The conformance check for runners: they must emit the panes of the scalar oracle."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from lowwater.engine.records.panes import LateRecord, Pane
from lowwater.engine.window.windowing import Accumulation, Windowing
from lowwater.testing import oracle
from lowwater.testing._broken import Broken
from lowwater.testing.assertions import assert_late, assert_panes
from lowwater.testing.scenario import Scenario
from lowwater.triggers import (
    AfterAll,
    AfterAny,
    AfterCount,
    AfterEach,
    AfterProcessingTime,
    AfterWatermark,
    Always,
    Default,
    Never,
    OrFinally,
    Repeatedly,
    Trigger,
)
from lowwater.windows import (
    FixedWindows,
    GlobalWindow,
    Sessions,
    SlidingWindows,
    WindowFunction,
)

Runner: TypeAlias = Callable[[Scenario, Windowing], tuple[list[Pane], list[LateRecord]]]
"""Runs a scenario and returns its panes, each with all its values as a list called ``value``, and
the late records, both in order."""

_WINDOWS: tuple[WindowFunction, ...] = (
    FixedWindows("10s"), SlidingWindows("10s", "4s"), SlidingWindows("3s", "5s"), GlobalWindow(),
    Sessions("4s"), Sessions("4s", merge_touching=True),
)  # fmt: skip
_TRIGGERS: tuple[Trigger, ...] = (
    Default(),
    AfterWatermark(),
    AfterWatermark(early=AfterCount(2), late=AfterCount(1)),
    AfterWatermark(early=AfterProcessingTime("3s"), late=AfterProcessingTime("2s", align="4s")),
    Always(),
    Never(),
    Repeatedly(AfterAny(AfterCount(3), AfterProcessingTime("4s"))),
    Repeatedly(AfterAll(AfterCount(2), AfterWatermark())),
    AfterEach(AfterCount(1), Repeatedly(AfterCount(2))),
    OrFinally(Repeatedly(AfterCount(1)), AfterCount(3)),
)


def check_runner(run: Runner, cases: Iterable[tuple[Scenario, Windowing]] | None = None) -> None:
    """Check a runner against the rules, pane by pane and field by field.

    The expected output is that of the scalar oracle: every field of every pane, every late record
    with its reason, and the order of both.

    Args:
        run: Runs a scenario and aggregates with ``lw.collect()``, the only value of the panes.
        cases: The scenarios and windowings to run; :func:`runner_cases` by default. Generate more
            with ``check_runner(run, [(scenario, windowing)])`` in a Hypothesis test.

    Raises:
        AssertionError: The output differs; the message shows where, and the scenario.

    >>> import lowwater as lw
    >>> def embedded(scenario, windowing):
    ...     run = scenario.run_windowing(windowing, aggregate=lw.collect())
    ...     return run.panes, run.late
    >>> check_runner(embedded)
    """
    for scenario, windowing in runner_cases() if cases is None else cases:
        wanted = oracle.run(scenario, windowing, list)
        panes, late = run(scenario, windowing)
        try:
            assert_panes(panes, wanted.panes)
            assert_late(late, wanted.late)
            assert panes == wanted.panes, "panes have values besides the list"
        except AssertionError as error:
            lines = [*str(error).splitlines(), f"windowing = {windowing!r}"]
            raise Broken(
                "the runner's output differs from the rules",
                lines,
                call="check_runner(run, [(scenario, windowing)])",
                scenario=scenario,
                panes=wanted.panes,
            ) from None


def runner_cases() -> Iterator[tuple[Scenario, Windowing]]:
    """Yield scenarios with windowings: each window function with each trigger, in all modes."""
    modes: tuple[Accumulation, ...] = ("discarding", "accumulating", "retracting")
    for at, windows in enumerate(_WINDOWS):
        for nth, trigger in enumerate(_TRIGGERS):
            turn = at + nth
            windowing = Windowing(
                windows=windows,
                trigger=trigger,
                accumulation=modes[turn % 3],
                allowed_lateness=(0, "5s")[turn % 2],
                closing=("if_new", "always")[turn // 2 % 2],
                on_time=("always", "if_new")[turn // 3 % 2],
                timestamps=("end", "earliest", "latest")[nth % 3],
                allow_data_loss="to see what is dropped",
            )
            yield _disorder(), windowing
            yield _alone(), windowing


def _disorder() -> Scenario:
    """Two keys; elements early, at the watermark, late and expired; timers in between."""
    return (
        Scenario(start="12:00:00")
        .add((1, "12:00:01", "A"), (2, "12:00:12", "A"), (3, "12:00:04", "B"), at="12:00:01")
        .add((4, "12:00:05", "A"), at="12:00:03")
        .watermark("12:00:08")
        .clock("12:00:06")
        .add((5, "12:00:08", "A"), (6, "12:00:07", "B"), (7, "12:00:16", "B"))
        .watermark("12:00:10", at="12:00:09")
        .add((8, "12:00:09", "A"), at="12:00:11")
        .add((9, "12:00:03", "B"), (10, "12:00:10", "B"))
        .watermark("12:00:15")
        .clock("12:00:20")
        .add((11, "12:00:02", "A"), (12, "12:00:14", "A"), (13, "12:00:15", "A"))
        .watermark("12:00:13")
        .add((14, "12:00:19", "B"), at="12:00:24")
        .end(at="12:00:40")
    )


def _alone() -> Scenario:
    """One key, before 1970: elements one by one, and late ones alone in their window."""
    return (
        Scenario(start=-60_000_000, watermark=-30_000_000)
        .add((1, -28_000_000, "A"))
        .add((2, -24_000_000, "A"))
        .add((3, -26_000_000, "A"), at=-50_000_000)
        .watermark(-12_000_000)
        .add((4, -14_000_000, "A"))
        .add((5, -30_000_000, "A"))
        .watermark(1)
        .add((6, -1, "A"), (7, 0, "A"), (8, 1, "A"), at=-40_000_000)
        .end()
    )
