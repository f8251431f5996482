"""Kits for those who extend: what is right passes, and each broken promise is named."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest

import lowwater as lw
from lowwater.testing import check_runner, check_trigger, check_window_function
from lowwater.testing.runner_kit import runner_cases
from lowwater.time import Int64Array
from lowwater.windows import Assignment, Merged
from tests.property import custom_windows as custom

MINUTE = 60_000_000


@dataclass(frozen=True)
class Minutes:
    """Windows of a minute, with one thing wrong."""

    wrong: str = ""
    columns: ClassVar[tuple[str, ...]] = ()
    merge_scope: ClassVar[Any] = "none"

    def assign(self, times: Int64Array, columns: Any) -> Assignment:
        start = times - times % MINUTE
        end = start + MINUTE
        match self.wrong:
            case "floats":
                end = end.astype(np.float64)
            case "empty":
                end = np.where(times % 2 == 1, start, end)
            case "together":
                end = np.full(len(times), end.max(initial=0))
            case "few":
                return Assignment(start[:-1], end[:-1])
            case "unsaid":
                return Assignment(start[1:], end[1:], np.arange(1, max(1, len(times))))
            case "moves":
                times += 1
        return Assignment(start, end)


@dataclass(frozen=True)
class Joined:
    """Sessions of ten seconds, with one thing wrong about their merging."""

    wrong: str = ""
    columns: ClassVar[tuple[str, ...]] = ()
    merge_scope: ClassVar[Any] = "overlapping"

    def assign(self, times: Int64Array, columns: Any) -> Assignment:
        return lw.Sessions("10s").assign(times, columns)

    def merge(self, keys: Int64Array, start: Int64Array, end: Int64Array) -> Merged:
        if self.wrong == "keys":
            keys = np.zeros_like(keys)
        right = lw.Sessions("10s").merge(keys, start, end)
        if self.wrong == "grows":
            return Merged(right.group, right.start, right.end + 3_000_000)
        if self.wrong == "groups":
            return Merged(right.group + 1, right.start, right.end)
        if self.wrong == "all":
            first = np.searchsorted(keys, np.unique(keys))
            last = np.append(first[1:], len(keys)) - 1
            group = np.searchsorted(np.unique(keys), keys)
            return Merged(group, start[first], np.maximum.accumulate(end)[last])
        return right


@dataclass(frozen=True)
class Sliced:
    """Windows of a minute that start each half, with one thing wrong about their slices."""

    wrong: str = ""
    columns: ClassVar[tuple[str, ...]] = ()
    merge_scope: ClassVar[Any] = "none"

    @property
    def slice_us(self) -> int:
        return 0 if self.wrong == "zero" else MINUTE // 2

    def assign(self, times: Int64Array, columns: Any) -> Assignment:
        return lw.SlidingWindows("1m", "30s").assign(times, columns)

    def slice_starts(self, times: Int64Array) -> Any:
        match self.wrong:
            case "none":
                return None
            case "long":
                return times - times % MINUTE
            case "floats":
                return times * 1.0
            case "few":
                return times[:1]
            case "apart":
                return times
        return times - times % self.slice_us


def test_right_window_functions() -> None:
    check_window_function(Minutes())
    check_window_function(Sliced())
    check_window_function(Sliced("none"))
    check_window_function(lw.SlidingWindows("1m", "10s"), times=[])
    check_window_function(Joined())
    for windows in (
        lw.FixedWindows("10s", "3s"), lw.SlidingWindows("10s", "4s"), lw.GlobalWindow(),
        lw.SlidingWindows("3s", "5s"), lw.Sessions("10s", merge_touching=True),
        lw.CalendarWindows(months=1, timezone="Europe/Berlin"),
        lw.CustomWindows(custom.assign_many), lw.CustomWindows(assign_column=custom.assign_column),
    ):  # fmt: skip
        check_window_function(windows)
    gaps = {"gap": [3, 5, 1, 40, 9]}
    check_window_function(lw.Sessions(gap_column="gap"), times=[0, 5, 9, 30, -7], columns=gaps)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("floats", "end must be int64"),
        ("empty", "must end after it starts"),
        ("together", "must not depend on the rest of its bundle"),
        ("few", "exactly one window"),
        ("unsaid", "unwindowed= must name"),
        ("moves", "must not change the times"),
    ],
)
def test_wrong_assignment(wrong: str, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        check_window_function(Minutes(wrong))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("long", "must be in the windows of its slice"),
        ("floats", "slice_starts must be int64"),
        ("few", "one entry per element"),
        ("apart", "multiples of slice_us apart"),
        ("zero", "slice_us must be above zero, not 0"),
    ],
)
def test_wrong_slices(wrong: str, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        check_window_function(Sliced(wrong))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("keys", "several keys"),
        ("grows", "order of merging must not matter"),
        ("groups", "numbered from 0"),
        ("all", "they do not overlap"),
    ],
)
def test_wrong_merging(wrong: str, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        check_window_function(Joined(wrong))


def test_a_merge_that_depends_on_the_order_may_be_meant() -> None:
    windows = lw.CustomWindows(custom.assign_growing, merge_active=custom.merge_bounded)
    check_window_function(windows, confluent=False)
    with pytest.raises(AssertionError, match="confluent=False"):
        check_window_function(windows)


def test_what_is_no_window_function_is_refused() -> None:
    with pytest.raises(lw.InvalidArgument, match="merge_scope and assign"):
        check_window_function(lw.FixedWindows)  # type: ignore[arg-type]
    with pytest.raises(lw.InvalidArgument, match="column 'gap'"):
        check_window_function(lw.Sessions(gap_column="gap"))


@dataclass(frozen=True)
class Pairs:
    """Fires for each second element, with one thing wrong."""

    wrong: str = ""

    def on_element(self, context: Any, at: int) -> None:
        context.state = (context.state or 0) + 1
        if self.wrong == "unstorable":
            context.state = object()

    def ready(self, context: Any) -> bool:
        if self.wrong == "changes":
            context.state = (context.state or 0) + 1
        return context.state == 2 if self.wrong == "unstorable" else (context.state or 0) >= 2

    def on_fire(self, context: Any) -> bool:
        if self.wrong != "again":
            context.state = 0
        return self.wrong == "finishes"

    def on_merge(self, context: Any, states: list[Any]) -> None:
        if self.wrong == "order":
            context.state = states[0]
            return
        context.state = sum(state or 0 for state in states) + (self.wrong == "steps")


def test_right_triggers() -> None:
    check_trigger(Pairs())
    check_trigger(lw.CustomTrigger(custom.ParitySum(2, True), "anytime"))
    check_trigger(custom.ClockAlarm(3_000_000))
    check_trigger(custom.WatermarkAlarm(2_000_000))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("unstorable", "cannot be stored"),
        ("changes", "ready must change nothing"),
        ("again", "must start from the beginning"),
        ("finishes", "finished"),
        ("order", "order of the states"),
        ("steps", "in one step and in several"),
    ],
)
def test_wrong_triggers(wrong: str, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        check_trigger(Pairs(wrong))


def test_a_trigger_that_cannot_merge_is_refused_if_it_shall() -> None:
    @dataclass(frozen=True)
    class Alone:
        wrong: str = ""
        on_element, ready, on_fire = Pairs.on_element, Pairs.ready, Pairs.on_fire

    check_trigger(Alone(), merging=False)  # type: ignore[arg-type]
    with pytest.raises(lw.InvalidArgument, match="no on_merge"):
        check_trigger(Alone(), merging=True)  # type: ignore[arg-type]


def embedded(scenario: Any, windowing: Any) -> Any:
    run = scenario.run_windowing(windowing, aggregate=lw.collect())
    return run.panes, run.late


def test_the_engine_is_a_runner() -> None:
    check_runner(embedded)


def test_the_cases_show_all_that_panes_may_be() -> None:
    runs = [embedded(*case) for case in runner_cases()]
    panes = [pane for found, _ in runs for pane in found]
    assert {pane.timing for pane in panes} == {"EARLY", "ON_TIME", "LATE"}
    assert {pane.kind for pane in panes} == {"insert", "retract"}
    late = [record for _, dropped in runs for record in dropped]
    assert {record.reason for record in late} == {"expired", "closed", "unwindowed"}


@pytest.mark.parametrize("field", ["index", "timestamp", "watermark", "is_last"])
def test_a_runner_that_is_wrong_in_one_field_is_found_out(field: str) -> None:
    def wrong(scenario: Any, windowing: Any) -> Any:
        panes, late = embedded(scenario, windowing)
        changed = [replace(p, **{field: not getattr(p, field)}) for p in panes[-1:]]
        return [*panes[:-1], *changed], late

    with pytest.raises(AssertionError, match="scenario = ") as broken:
        check_runner(wrong)
    assert "windowing = Windowing(" in str(broken.value)


def test_a_runner_that_forgets_what_is_late_is_found_out() -> None:
    with pytest.raises(AssertionError, match="late records differ"):
        check_runner(lambda scenario, windowing: (embedded(scenario, windowing)[0], []))


def test_the_tools_need_no_hypothesis() -> None:
    """Scenarios, laws and kits work without the extra; strategies alone want it."""
    code = (
        "import sys; sys.modules['hypothesis'] = None; import lowwater.testing as t; t.Scenario()"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    code += "; import lowwater.testing.strategies"
    failed = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True
    )
    assert failed.returncode == 1
    assert 'pip install "lowwater[testing]"' in failed.stderr
