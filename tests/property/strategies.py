"""Hypothesis strategies: windowings of every kind, and scenarios full of disorder.

Times are whole seconds near one instant, so that things collide: windows share ends, deadlines
fall on watermarks, sessions touch. Each element's value is its place in the order of arrival, so
that a pane shows which elements it holds.
"""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st

from lowwater.engine.windowing import Windowing
from lowwater.testing import Scenario
from lowwater.testing._moments import DAY
from lowwater.time import START_OF_TIME, Instant
from lowwater.triggers import (
    AfterAll,
    AfterAny,
    AfterCount,
    AfterEach,
    AfterProcessingTime,
    AfterWatermark,
    Always,
    CustomTrigger,
    Default,
    Never,
    OrFinally,
    Repeatedly,
    Trigger,
)
from lowwater.windows import (
    CustomWindows,
    FixedWindows,
    GlobalWindow,
    Sessions,
    SlidingWindows,
    WindowFunction,
)
from tests.property.custom import (
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
HORIZON = 40
KEYS = ("A", "B", "C")


def seconds(low: int, high: int) -> st.SearchStrategy[int]:
    """Durations of whole seconds, in microseconds."""
    return st.integers(low, high).map(lambda n: n * SECOND)


def fixed() -> st.SearchStrategy[WindowFunction]:
    """Fixed windows of a few seconds, with any offset."""
    return st.builds(FixedWindows, seconds(1, 15), st.just(0) | seconds(-5, 5))


def sliding() -> st.SearchStrategy[WindowFunction]:
    """Sliding windows; some with gaps between them."""
    return st.builds(SlidingWindows, seconds(1, 12), seconds(2, 15), st.just(0) | seconds(0, 5))


def sessions() -> st.SearchStrategy[WindowFunction]:
    """Sessions with one gap or a gap per element, merging when they touch or not."""
    touching = st.booleans()
    return st.builds(Sessions, seconds(1, 10), merge_touching=touching) | st.builds(
        Sessions, gap_column=st.just("gap"), merge_touching=touching
    )


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


def not_merging() -> st.SearchStrategy[WindowFunction]:
    """Windows that do not merge."""
    return fixed() | sliding() | st.just(GlobalWindow()) | NOT_MERGING_CUSTOM


def window_functions() -> st.SearchStrategy[WindowFunction]:
    """Window functions of every kind."""
    return not_merging() | sessions() | MERGING_CUSTOM


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


def leaves() -> st.SearchStrategy[Trigger]:
    """Triggers without parts."""
    return st.one_of(
        st.builds(AfterCount, st.integers(1, 4)),
        st.builds(AfterProcessingTime, seconds(0, 10), st.none() | seconds(1, 7)),
        st.sampled_from([AfterWatermark(), Never(), Always(), Default()]),
        custom_triggers(),
    )


def triggers(depth: int = 3) -> st.SearchStrategy[Trigger]:
    """Triggers of every kind, nested up to ``depth``."""
    if depth <= 1:
        return leaves()
    part = st.deferred(lambda: triggers(depth - 1))
    several = st.lists(part, min_size=2, max_size=3)
    return st.one_of(
        leaves(),
        st.builds(AfterWatermark, st.none() | part, st.none() | part),
        several.map(lambda parts: AfterAny(*parts)),
        several.map(lambda parts: AfterAll(*parts)),
        several.map(lambda parts: AfterEach(*parts)),
        st.builds(Repeatedly, part),
        st.builds(OrFinally, part, part),
    )


def windowings(
    windows: st.SearchStrategy[WindowFunction] | None = None,
    trigger: st.SearchStrategy[Trigger] | None = None,
    **fixed_fields: Any,
) -> st.SearchStrategy[Windowing]:
    """Windowings of every kind, unsafe triggers included; any field may be given."""
    fields = {
        "accumulation": st.sampled_from(["discarding", "accumulating", "retracting"]),
        "allowed_lateness": st.just(0) | seconds(1, 20),
        "closing": st.sampled_from(["if_new", "always"]),
        "on_time": st.sampled_from(["always", "if_new"]),
        "timestamps": st.sampled_from(["end", "earliest", "latest"]),
        "allow_data_loss": st.just("test"),
    }
    fields |= {name: st.just(value) for name, value in fixed_fields.items()}
    windows = window_functions() if windows is None else windows
    trigger = triggers() if trigger is None else trigger
    return st.builds(Windowing, windows=windows, trigger=trigger, **fields)


@st.composite
def scenarios(
    draw: st.DrawFn, *, ends: bool = True, gaps: bool = True, max_steps: int = 14
) -> Scenario:
    """Scenarios: bundles of disordered elements between moves of the clock and the watermark.

    Args:
        draw: Given by Hypothesis.
        ends: Whether the input ends at the end.
        gaps: Whether elements have a gap of their own.
        max_steps: How many steps there may be before the end.
    """
    base = draw(st.sampled_from([int(DAY), -HORIZON // 2 * SECOND]))
    clock = watermark = 0
    first_mark = Instant(draw(st.sampled_from([START_OF_TIME, base])))
    scenario = Scenario(start=Instant(base), watermark=first_mark)
    arrived = 0
    for _ in range(draw(st.integers(1, max_steps))):
        at = None
        if draw(st.booleans()):
            clock += draw(st.integers(0, 8))
            at = Instant(base + clock * SECOND)
        kind = draw(st.sampled_from(["add", "add", "add", "watermark", "clock"]))
        if kind == "add":
            bundle = []
            for _ in range(draw(st.integers(1, 4))):
                late_or_early = draw(
                    st.integers(0, HORIZON) | st.integers(watermark, watermark + 8)
                )
                time = Instant(base + late_or_early * SECOND)
                columns = ({"gap": draw(seconds(1, 9))},) if gaps else ()
                bundle.append((arrived, time, draw(st.sampled_from(KEYS)), *columns))
                arrived += 1
            scenario = scenario.add(*bundle, at=at)
        elif kind == "watermark":
            watermark += draw(st.integers(-3, 12))
            scenario = scenario.watermark(Instant(base + watermark * SECOND), at=at)
        elif at is not None:
            scenario = scenario.clock(at)
    return scenario.end() if ends else scenario


@st.composite
def cases(
    draw: st.DrawFn, /, windowing: st.SearchStrategy[Windowing] | None = None, **how: Any
) -> Any:
    """A windowing and a scenario for it."""
    chosen = draw(windowing if windowing is not None else windowings())
    return chosen, draw(scenarios(gaps=bool(chosen.windows.columns), **how))
