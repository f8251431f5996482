"""One point of an exploration: a run with some settings, reduced to what the page shows of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import numpy as np

from lowwater.engine.graph.trace import StageTrace
from lowwater.engine.graph.traced_parts import pick
from lowwater.engine.local.traced_columns import TraceColumns, hashable
from lowwater.engine.records.panes import Pane
from lowwater.engine.records.steps import TIMINGS
from lowwater.exploration.completeness import NO_END, latencies, revealed, total
from lowwater.exploration.grid import Settings
from lowwater.kernels.positions import repeated
from lowwater.time import Int64Array, format_duration
from lowwater.viz._panel import PanelLimits
from lowwater.viz.axes import short_text
from lowwater.viz.compose import Axes, compose
from lowwater.viz.scene import Scene, Span
from lowwater.viz.words import endless, reason_text, value_text
from lowwater.windows import Window

_UNITS = (60_000_000, 1_000_000, 1_000)
ROWS = 12
"""The most panes and late elements of a point that the page lists."""


def limits_of(points: int) -> PanelLimits:
    """Return how much each of some pictures shows, so that all of them fit into a page."""
    share = max(0.5, min(1.0, 60 / points))
    marks, dropped, boxes, retractions = (int(share * most) for most in (120, 60, 80, 40))
    return PanelLimits(
        marks=marks, dropped=dropped, boxes=boxes, open=10, retractions=retractions, merges=15,
        bands=20,
    )  # fmt: skip


@final
@dataclass(frozen=True, slots=True)
class Point:
    """What a run with some settings emitted.

    Args:
        settings: The settings.
        records: How many elements reached the stage.
        early, on_time, late: The number of emitted panes by timing.
        retractions: The number of retractions.
        dropped: How many elements were dropped from at least one window, or are in no window.
        dropped_before: How many elements earlier stages dropped, once for each of their windows;
            the stage that is explored, and so ``complete``, knows nothing of them.
        dead: How many records became dead letters, anywhere in the run.
        expected: The records of the final answer: of each element, one for each of its windows.
        emitted: How many of these were emitted in some pane.
        median_wait: How long after the end of its window half of the records had been emitted,
            microseconds; ``None`` if nothing was emitted, or half of it from windows without end.
        p99_wait: The same for 99 % of them.
    """

    settings: Settings
    records: int
    early: int
    on_time: int
    late: int
    retractions: int
    dropped: int
    dropped_before: int
    dead: int
    expected: int
    emitted: int
    median_wait: int | None
    p99_wait: int | None

    @property
    def complete(self) -> float:
        """The share of the final answer that was emitted, from 0 to 1; 1 of nothing."""
        return self.emitted / self.expected if self.expected else 1.0

    @property
    def complete_text(self) -> str:
        """The same in per cent; 100 % only if nothing lacks."""
        return (
            "100 %"
            if self.emitted == self.expected
            else f"{100 * min(self.complete, 0.9999):.2f} %"
        )


@final
@dataclass(frozen=True, slots=True)
class Frame:
    """What the page shows of a point.

    Args:
        point: Its numbers.
        scene: The diagram.
        panes: Cells of the rows of the first panes of the drawn key.
        dropped: Cells of the rows of some dropped elements.
        latency: How long after its window's end each pane was emitted, microseconds, int64.
        added: How many records each pane added to the answer, int64.
    """

    point: Point
    scene: Scene
    panes: tuple[tuple[str, ...], ...]
    dropped: tuple[tuple[str, ...], ...]
    latency: Int64Array
    added: Int64Array

    @classmethod
    def of(
        cls,
        settings: Settings,
        trace: StageTrace,
        lost: tuple[int, int],
        axes: Axes,
        key: object,
        column: str | None,
        limits: PanelLimits,
    ) -> Frame:
        """Return what a traced run shows.

        Args:
            settings: The settings of the run.
            trace: The trace of the stage, of all elements.
            lost: How many elements earlier stages dropped, and how many dead letters there were.
            axes: Those of all points.
            key: The key to draw.
            column: The aggregate to draw, the first by default.
            limits: How much of it to draw.
        """
        columns = TraceColumns.of(trace)
        places, added = revealed(trace, columns)
        latency = latencies(columns, places, by_clock=not axes.by_arrival)
        is_drawn = key is not None and hashable(key) in columns.keys
        keys = [key] if is_drawn else None
        scene = compose(trace, keys=keys, column=column, axes=axes, limits=limits)
        assert isinstance(scene, Scene)
        timings = columns.panes.timing[~columns.panes.is_retraction]
        early, on_time, late = np.bincount(timings, minlength=len(TIMINGS)).tolist()
        elements = columns.elements
        dropped = np.union1d(columns.dropped.element, elements.place[elements.is_unwindowed])
        waits, emitted = np.sort(repeated(latency, added)), int(added.sum())
        point = Point(
            settings, len(columns.elements), early, on_time, late,
            int(columns.panes.is_retraction.sum()), len(dropped), *lost, total(columns), emitted,
            _wait(waits, 0.5), _wait(waits, 0.99),
        )  # fmt: skip
        own = columns.panes
        if is_drawn:
            own = own.take(own.key == columns.keys.index(hashable(key)))
        return cls(
            point, scene, tuple(
                _pane_cells(pane, axes.x)
                for pane in pick(trace.panes, own.place[:ROWS].tolist())
            ),
            tuple(_dropped_rows(trace, axes.x, dropped)), latency, added,
        )  # fmt: skip


def _wait(waits: Int64Array, share: float) -> int | None:
    """Return the wait within which a share of the records had been emitted, if there is one."""
    wait = int(np.quantile(waits, share, method="higher")) if len(waits) else NO_END
    return None if wait >= NO_END else wait


def _pane_cells(pane: Pane, x: Span) -> tuple[str, ...]:
    values = ", ".join(f"{name} = {value_text(value, 24)}" for name, value in pane.values.items())
    timing = pane.timing.replace("_", " ")
    sign = "retracts" if pane.kind == "retract" else f"{timing} #{pane.index}"
    return _window_text(pane.window, x), sign, values


def _dropped_rows(trace: StageTrace, x: Span, dropped: Int64Array) -> Iterator[tuple[str, ...]]:
    spread = np.linspace(0, len(dropped) - 1, min(ROWS, len(dropped))).astype(np.int64)
    for element in pick(trace.elements, dropped[spread].tolist()):
        windows = ", ".join(_window_text(window, x) for window in element.dropped[:2])
        time = short_text(element.time, x, seconds=True).partition(".")[0]
        yield value_text(element.key, 24), time, windows, reason_text(element)


def _window_text(window: Window, x: Span) -> str:
    if endless(window.start) and endless(window.end):
        return "all time"
    return f"{short_text(window.start, x)} to {short_text(window.end, x)}"


def wait_text(micros: int | None) -> str:
    """Return a wait in three digits or so.

    >>> wait_text(234_931_402), wait_text(1_234_567), wait_text(-2_000), wait_text(None)
    ('3m55s', '1s235ms', '-2ms', '-')
    """
    if micros is None:
        return "-"
    unit = next((unit for unit in _UNITS if abs(micros) >= 60 * unit), 1)
    return format_duration(round(micros / unit) * unit)
