"""The shipped strategies with what a user could add: windows, triggers and a column of gaps.

Each element's value is its place in the order of arrival, so that a pane shows which elements it
holds.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import hypothesis.strategies as st

import lowwater as lw
from lowwater.engine.window.windowing import Windowing
from lowwater.testing import Scenario, oracle, strategies
from lowwater.triggers import CustomTrigger, Trigger
from lowwater.windows import CustomWindows, WindowFunction
from tests.property.custom_windows import (
    ClockAlarm,
    ParitySum,
    WatermarkAlarm,
    assign_column,
    assign_growing,
    assign_many,
    merge_blocks,
    merge_bounded,
    merge_crowded,
    merge_shrinking,
)

SECOND = 1_000_000


def seconds(low: int, high: int) -> st.SearchStrategy[int]:
    """Durations of whole seconds, in microseconds."""
    return strategies.durations(least=low, most=high)


def fixed() -> st.SearchStrategy[WindowFunction]:
    """Fixed windows of a few seconds, with any offset."""
    return strategies.fixed_windows()


def sliding() -> st.SearchStrategy[WindowFunction]:
    """Sliding windows; some with gaps between them."""
    return strategies.sliding_windows()


def cumulative() -> st.SearchStrategy[WindowFunction]:
    """Windows that share their start."""
    return strategies.cumulative_windows()


def sessions() -> st.SearchStrategy[WindowFunction]:
    """Sessions with one gap or a gap per element, merging when they touch or not."""
    return strategies.sessions(gap_column="gap")


NOT_MERGING_CUSTOM: st.SearchStrategy[WindowFunction] = st.sampled_from(
    [
        CustomWindows(assign_many, name="assign_many"),
        CustomWindows(assign_column=assign_column, name="assign_column"),
    ]
)
MERGING_CUSTOM: st.SearchStrategy[WindowFunction] = st.sampled_from(
    [
        CustomWindows(assign_growing, merge_active=merge_bounded, name="merge_bounded"),
        CustomWindows(assign_growing, merge_active=merge_shrinking, name="merge_shrinking"),
        CustomWindows(assign_growing, merge_active=merge_blocks, name="merge_blocks"),
        CustomWindows(assign_growing, merge_active=merge_crowded, name="merge_crowded"),
        CustomWindows(assign_many, merge_active=merge_shrinking, name="merge_many"),
    ]
)


@cache
def not_merging() -> st.SearchStrategy[WindowFunction]:
    """Windows that do not merge."""
    return strategies.windows(merging=False) | NOT_MERGING_CUSTOM


@cache
def window_functions() -> st.SearchStrategy[WindowFunction]:
    """Window functions of every kind."""
    return not_merging() | sessions() | MERGING_CUSTOM


@cache
def custom_triggers() -> st.SearchStrategy[Trigger]:
    """The user's own logic: state alone, calls of the clock, calls of the watermark."""
    return st.one_of(
        st.builds(CustomTrigger, st.builds(ParitySum, st.integers(1, 3), st.just(False))),
        st.builds(
            CustomTrigger,
            st.builds(ParitySum, st.integers(1, 3), st.just(True)),
            st.just("anytime"),
        ),
        st.builds(CustomTrigger, st.builds(ClockAlarm, seconds(0, 10))),
        st.builds(CustomTrigger, st.builds(WatermarkAlarm, seconds(-3, 10))),
    )


@cache
def triggers(depth: int = 3) -> st.SearchStrategy[Trigger]:
    """Triggers of every kind, the user's own too, nested up to ``depth``."""
    return strategies.triggers(depth=depth, leaves=custom_triggers())


@cache
def windowings(
    windows: st.SearchStrategy[WindowFunction] | None = None,
    trigger: st.SearchStrategy[Trigger] | None = None,
    **fixed_fields: Any,
) -> st.SearchStrategy[Windowing]:
    """Windowings of every kind, unsafe triggers included; any field may be given."""
    return strategies.windowings(
        windows=window_functions() if windows is None else windows,
        triggers=triggers() if trigger is None else trigger,
        safe=False,
        **fixed_fields,
    )


@st.composite
def filling(draw: st.DrawFn) -> Windowing:
    """A windowing that fills."""
    early, late = draw(triggers(1)), draw(triggers(1))
    trigger = draw(
        st.just(lw.Default())
        | st.sampled_from(
            [lw.AfterWatermark(), lw.AfterWatermark(early=early), lw.AfterWatermark(late=late)]
        )
    )
    fill = draw(
        st.sampled_from(["1 window", "2 windows", "7 windows"])
        | st.integers(1, 60).map(lambda seconds: lw.until_idle(f"{seconds}s"))
    )
    return draw(
        windowings(
            fixed() | sliding() | st.just(lw.CalendarWindows(days=1)),
            st.just(trigger),
            on_time="always",
            fill=fill,
        )
    )


# Aggregates that pick a value by another column, and the same for the oracle. Ranks and names are
# few, so that often two are equal, and some are null.
RANKED = {
    "rank": st.sampled_from([None, None, None, -1, 0, 1, 0.5]),
    "name": st.sampled_from([None, None, "a", "b"]),
}
PICKED = {
    "last by rank": lw.last("name", by="rank"),
    "first by name": lw.first(by="name"),
    "name of the most": lw.max_by("name", "rank"),
    "rank of the least": lw.min_by("rank", "name"),
    "most by name": lw.max_by("value", "name"),
}
PICKED_PLAIN = {
    "last by rank": oracle.Picked("name", "rank", last=True),
    "first by name": oracle.Picked("value", "name", last=False),
    "name of the most": oracle.Picked("name", "rank", last=True, nulls=True),
    "rank of the least": oracle.Picked("rank", "name", last=False, nulls=True),
    "most by name": oracle.Picked("value", "name", last=True, nulls=True),
}


@cache
def scenarios(
    *, ends: bool = True, gaps: bool = True, max_steps: int = 14, ranked: bool = False
) -> st.SearchStrategy[Scenario]:
    """Scenarios full of disorder, with late elements.

    Args:
        ends: Whether the input ends at the end.
        gaps: Whether elements have a gap of their own.
        max_steps: How many steps there may be before the end.
        ranked: Whether elements have the columns that ``PICKED`` reads.
    """
    columns = ({"gap": seconds(1, 9)} if gaps else {}) | (RANKED if ranked else {})
    return strategies.scenarios(disorder="40s", columns=columns, ends=ends, max_steps=max_steps)


@st.composite
def cases(
    draw: st.DrawFn, /, windowing: st.SearchStrategy[Windowing] | None = None, **how: Any
) -> Any:
    """A windowing and a scenario for it."""
    chosen = draw(windowing if windowing is not None else windowings())
    return chosen, draw(scenarios(gaps=bool(chosen.windows.columns), **how))
