"""What stages with windows and a trigger have in common."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lowwater.display.text import shown
from lowwater.engine.aggregates import AggregateSpec
from lowwater.engine.graph.described import repr_text
from lowwater.engine.graph.finding import Finding, Upstream
from lowwater.engine.graph.sources import BUNDLE_SIZE
from lowwater.engine.window.placement import nested_windows
from lowwater.engine.window.windowing import Windowing
from lowwater.time import format_duration
from lowwater.triggers import (
    AfterCount,
    AfterWatermark,
    Default,
    Moment,
    Trigger,
    looks_at_watermark,
    outlook,
)
from lowwater.triggers._machine import compile_trigger, walk
from lowwater.windows import GlobalWindow, NestedWindowFunction, Sessions, SlidingWindows


def described_windowing(windowing: Windowing) -> dict[str, Any]:
    """Return what state directories know of when windows fire, besides windows and lateness."""
    return {
        "trigger": repr_text(windowing.trigger),
        "accumulation": windowing.mode,
        "closing": windowing.closing,
        "on_time": windowing.on_time,
        "timestamps": windowing.timestamps,
        # Left out where there is none, as older states have none.
        **({} if windowing.fill is None else {"fill": str(windowing.fill)}),
    }


def aggregate_findings(aggregates: Mapping[str, AggregateSpec], where: str) -> Iterator[Finding]:
    """Yield what is worth knowing about aggregates: those whose state has a bounded alternative.

    Args:
        aggregates: The aggregates by output name.
        where: The name of the stage.
    """
    for name, spec in aggregates.items():
        advice: tuple[str, str] | None = getattr(spec, "advice", None)
        if advice is not None:
            what, hint = advice
            yield Finding("note", f"{name}={shown(spec)}: {what}", where, hint)


def windowing_findings(
    windowing: Windowing, where: str, upstream: Sequence[Upstream]
) -> Iterator[Finding]:
    """Yield likely mistakes in windows and triggers.

    Args:
        windowing: The windows, the trigger and the rest.
        where: The name of the stage.
        upstream: What is known of the sources behind each of its inputs.
    """
    endless = any(flow.is_endless for flow in upstream)
    blind = any(flow.is_blind for flow in upstream)
    trigger, lateness = windowing.trigger, windowing.lateness_us
    said = outlook(trigger, late_possible=lateness > 0)
    loses = said.finishes is Moment.ANYTIME or (
        said.finishes is Moment.AT_COMPLETION and lateness > 0
    )
    if loses:  # accepted in words, so there is nothing to warn about
        yield Finding(
            "note",
            f"{shown(trigger)} may finish before its window expires, and later elements are then "
            f"dropped (accepted by allow_data_loss={windowing.allow_data_loss!r})",
            where,
            f"Use Repeatedly({shown(trigger)}) unless this is intended",
        )
    if (count := _small_count(trigger)) is not None:
        yield Finding(
            "note",
            f"AfterCount({count}) is judged at the end of each bundle, of up to {BUNDLE_SIZE:,} "
            "elements by default: a window with more new elements than that fires once for all of "
            "them",
            where,
            "Use CountWindows(...) for windows of a number of records, or run(bundle_size=1) to "
            "judge it after each element",
        )
    if isinstance(windowing.windows, GlobalWindow):
        yield from _of_global(windowing, said.fires, where, endless=endless)
        return
    windows = windowing.windows
    if isinstance(windows, SlidingWindows) and windows.period_us > windows.size_us:
        size, period = map(format_duration, (windows.size_us, windows.period_us))
        gap = format_duration(windows.period_us - windows.size_us)
        yield Finding(
            "warning",
            f"{shown(windows)} leaves gaps of {gap} between windows: "
            "elements in a gap are dropped as 'unwindowed'",
            where,
            f'The size comes first: SlidingWindows("{period}", "{size}")',
        )
    if isinstance(windows, NestedWindowFunction) and nested_windows(windowing, {}) is None:
        yield Finding(
            "note",
            f"{shown(trigger)} may fire before a window is complete, so each of {shown(windows)} "
            "has state of its own: a record costs what it does in sliding windows",
            where,
            "Use AfterWatermark() or Default(), or one window with an early trigger: "
            "FixedWindows or CalendarWindows",
        )
    if isinstance(windowing.windows, Sessions) and blind:
        yield Finding(
            "warning" if said.fires is Moment.ANYTIME else "error",
            "only the watermark closes sessions, and the source has none: their number only grows",
            where,
            "Give the source a watermark",
        )
    elif blind:
        yield Finding(
            "warning",
            "without a watermark no window expires, so the state of every window is kept",
            where,
            "Give the source a watermark",
        )
    if said.fires is Moment.NEVER:
        yield Finding(
            "warning",
            f"{shown(trigger)} never fires: windows emit only when they expire",
            where,
            "Use AfterWatermark() unless this is intended",
        )
    elif not loses and not looks_at_watermark(trigger):
        yield Finding(
            "note",
            f"{shown(trigger)} ignores the watermark: no pane marks a window as complete, and "
            "remaining elements are emitted only when the window expires",
            where,
            "Use AfterWatermark(early=..., late=...) to get on-time panes",
        )
    late = trigger.late if isinstance(trigger, AfterWatermark) else None
    if late is not None and not lateness:
        yield Finding(
            "warning",
            f"late={shown(late)} never fires, because allowed_lateness is 0s",
            where,
            'Set allowed_lateness=, as in allowed_lateness="1h", or remove late=',
        )
    if (
        lateness
        and isinstance(trigger, (AfterWatermark, Default))
        and windowing.mode == ("discarding")
    ):
        yield Finding(
            "note",
            f"late elements are emitted in separate panes for {format_duration(lateness)}: a "
            "consumer that keeps only the last pane of a window loses the earlier ones",
            where,
            'Use accumulation="accumulating", or add up the panes in the consumer',
        )


def _of_global(
    windowing: Windowing, fires: Moment, where: str, *, endless: bool
) -> Iterator[Finding]:
    if fires is Moment.ANYTIME:
        if endless:
            yield Finding(
                "note",
                "the global window never expires: the state of every key is kept forever",
                where,
                "Use windows that end if the number of keys is unbounded",
            )
        return
    yield Finding(
        "error" if endless else "note",
        f"the global window ends at the end of time, so {shown(windowing.trigger)} fires only when "
        "the input ends" + (", which may never happen" if endless else ""),
        where,
        "Use a trigger that does not wait for the watermark, as in Repeatedly(AfterCount(100))",
    )


def _small_count(trigger: Trigger) -> int | None:
    """Return the smallest count below the size of a bundle that a trigger waits for, if any."""
    parts = [node.trigger for node in walk(compile_trigger(trigger, "t"))]
    counts = [part.count for part in parts if isinstance(part, AfterCount)]
    return min((count for count in counts if count < BUNDLE_SIZE), default=None)
