"""Runs a pipeline with every combination of some settings, to compare them by sliders."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np

from lowwater.display.palette import Theme
from lowwater.engine.aggregates import AggregateSpec
from lowwater.engine.aggregates.specs import count
from lowwater.engine.graph.clocks import ManualClock
from lowwater.engine.graph.graph import Graph
from lowwater.engine.graph.trace import StageTrace, Tracing
from lowwater.engine.local.traced_columns import TraceColumns, hashable
from lowwater.engine.records.column_expressions import lit
from lowwater.errors import (
    DataWarning,
    InvalidArgument,
    PipelineWarning,
    describe,
    explained,
    load_extra,
)
from lowwater.exploration.grid import Grid, Settings, with_reads
from lowwater.exploration.page import page_of, whole_page
from lowwater.exploration.point import Frame, Point, limits_of, wait_text
from lowwater.exploration.remembered import RememberedSource
from lowwater.io.paths import PathLike, as_paths
from lowwater.io.terminal import table
from lowwater.pipeline.fluent import Pipeline
from lowwater.pipeline.outcomes import RunOptions, refuse_endless
from lowwater.pipeline.profiling import stream_of
from lowwater.time import DurationLike, duration, format_duration
from lowwater.triggers import Trigger
from lowwater.viz.compose import Axes
from lowwater.viz.svg import check_theme
from lowwater.windows import WindowFunction

if TYPE_CHECKING:
    import pandas as pd


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Exploration:
    """Runs of one pipeline with all combinations of some settings.

    Notebooks display a page with a slider for each setting: the diagram, the first panes, the
    elements that were dropped, how complete the answer was how early, and the code. The page is one
    piece of HTML that needs no kernel and loads nothing.

    Args:
        points: The numbers of each combination; delays change fastest, then latenesses, triggers
            and windows.
        theme: ``light``, ``dark``, or ``auto``, which follows the system of the reader.
    """

    points: tuple[Point, ...]
    grid: Grid = field(repr=False)
    theme: Theme
    _html: str = field(repr=False)

    def point(
        self,
        *,
        delay: DurationLike | None = None,
        lateness: DurationLike | None = None,
        trigger: str | None = None,
        windows: str | None = None,
    ) -> Point:
        """Return the point with these settings; what is left out must have one value.

        Raises:
            InvalidArgument: There is no such point, or there are several.
        """
        given = {"delay": delay, "lateness": lateness, "trigger": trigger, "windows": windows}
        wanted: dict[str, Any] = {
            "delay": None if delay is None else duration(delay, name="delay"),
            "lateness": None if lateness is None else duration(lateness, name="lateness"),
            "trigger": trigger,
            "windows": windows,
        }
        found = [
            point
            for point in self.points
            if all(
                value is None or getattr(point.settings, name) == value
                for name, value in wanted.items()
            )
        ]
        if len(found) == 1:
            return found[0]
        many = "several points have" if found else "no point has"
        said = ", ".join(f"{name}={value!r}" for name, value in given.items() if value is not None)
        raise InvalidArgument(
            f"{many} {said or 'any settings'}",
            where="Exploration.point",
            hint=f"The settings are {_choices(self.grid)}",
        )

    def pipeline(self, point: Point) -> Pipeline:
        """Return the pipeline with the settings of a point."""
        return self.grid.pipeline_of(point.settings)

    def code(self, point: Point) -> str:
        """Return the settings of a point as code."""
        return self.grid.code(point.settings)

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each point as a pandas DataFrame; durations become timedeltas."""
        load_extra("pandas", extra="pandas", purpose="to_frame")
        import pandas as pd

        rows = [
            {
                **{name: getattr(point.settings, name) for name in _SETTINGS},
                **{name: getattr(point, name) for name in _NUMBERS},
                "complete": point.complete,
            }
            for point in self.points
        ]
        frame = pd.DataFrame(rows)
        for name in ("delay", "lateness", "median_wait", "p99_wait"):
            frame[name] = pd.to_timedelta(frame[name], unit="us")
        return frame

    def to_html(self) -> str:
        """Return the page as one self-contained file."""
        return whole_page(self._html, "lowwater: explore", self.theme)

    def save(self, path: PathLike) -> None:
        """Write the page to an ``.html`` file.

        Raises:
            InvalidArgument: The file has another suffix, or cannot be written.
        """
        (place,) = as_paths(path, writes=True)
        if Path(place).suffix != ".html":
            raise InvalidArgument(
                f"{describe('path', str(path))} does not end in .html",
                where="Exploration.save",
                hint='Write, say, save("explore.html")',
            )
        Path(place).write_text(self.to_html(), encoding="utf-8")

    def _repr_html_(self) -> str:
        return self._html

    def __repr__(self) -> str:
        some_before = any(point.dropped_before for point in self.points)
        before = ["dropped before"] if some_before else []
        head = ["windows", "trigger", "lateness", "delay", "panes", "late", "dropped", *before,
                "complete", "median wait"]  # fmt: skip
        lines = [
            [
                point.settings.windows, point.settings.trigger,
                format_duration(point.settings.lateness), _delay_text(point.settings.delay),
                point.early + point.on_time + point.late, point.late, point.dropped,
                *([point.dropped_before] if some_before else []), point.complete_text,
                wait_text(point.median_wait),
            ]
            for point in self.points
        ]  # fmt: skip
        return table(head, lines)


_SETTINGS = ("windows", "trigger", "lateness", "delay")
_NUMBERS = (
    "records", "early", "on_time", "late", "retractions", "dropped", "dropped_before", "dead",
    "expected", "emitted", "median_wait", "p99_wait",
)  # fmt: skip


@explained()
def explore(
    records: Any,
    *,
    delay: Sequence[DurationLike] | None = None,
    lateness: Sequence[DurationLike] | None = None,
    trigger: Mapping[str, Trigger] | None = None,
    windows: Mapping[str, WindowFunction] | None = None,
    time: str | None = None,
    key: Any = None,
    aggregates: Mapping[str, AggregateSpec] | None = None,
    draw: Any = None,
    column: str | None = None,
    bundle_size: int = 1000,
    theme: Theme = "auto",
) -> Exploration:
    """Run a pipeline with every combination of some settings, and compare them by sliders.

    Each combination is a run over the same records in the same bundles, so all that differs is due
    to the settings. Without a clock of the source, processing time stands still: the picture counts
    the records that have arrived instead, waits are measured by the latest event time, and triggers
    of processing time do not fire.

    Args:
        records: A pipeline that ends in ``.window(...).aggregate(...)``; its last stage, and the
            watermarks of all its sources, are changed. Or the records: an iterable of mappings, or
            what :func:`lowwater.profile` takes.
        delay: The delays of the watermark (:class:`BoundedDisorder`) to try.
        lateness: The allowed latenesses to try.
        trigger: The triggers to try, by name.
        windows: The windows to try, by name.
        time: Of records: the column of event times.
        key: Of records: the key column, or a list of them; all records are one group without it.
        aggregates: Of records: aggregates by name; ``count()`` by default.
        draw: The key to draw; the one with the most elements by default.
        column: The aggregate to draw, the first by default.
        bundle_size: The most records of a bundle. A watermark moves between bundles: in a single
            bundle nothing would be late.
        theme: ``light``, ``dark``, or ``auto``, which follows the system of the reader.

    Every combination is a run over all records, because a part of them would have other
    watermarks. The page draws one key and counts all of them, so it does not grow with the input.

    Raises:
        InvalidArgument: A setting makes no sense, the input never ends, or there are more than 400
            combinations.
        UnsafeTrigger: A trigger may lose data with one of the latenesses.

    >>> import lowwater as lw
    >>> taps = [
    ...     {"at": f"2024-05-01T12:{minute:02}:00Z", "card": "x"} for minute in (0, 3, 1, 5, 9)
    ... ]
    >>> found = lw.explore(
    ...     taps, time="at", key="card", windows={"2m": lw.FixedWindows("2m")},
    ...     delay=["0s", "3m"], bundle_size=1,
    ... )
    >>> [(point.settings.delay, point.dropped, point.complete) for point in found.points]
    [(0, 1, 0.8), (180000000, 0, 1.0)]
    """
    check_theme(theme)
    pipeline = _pipeline_of(records, time, key, aggregates, windows)
    refuse_endless(pipeline._graph(), "explore")
    grid = Grid.of(pipeline, delay=delay, lateness=lateness, trigger=trigger, windows=windows)
    runs = _Runs(grid, bundle_size)
    frames = list(runs.frames(draw, column))
    html = page_of(grid, frames, runs.axes, theme)
    return Exploration(tuple(frame.point for frame in frames), grid, theme, html)


@final
class _Runs:
    """Runs the points of a grid, over records that are read once.

    Args:
        grid: The settings.
        bundle_size: The most records of a bundle.
    """

    def __init__(self, grid: Grid, bundle_size: int) -> None:
        end = with_reads(
            grid.pipeline._stage, lambda read: replace(read, source=RememberedSource(read.source))
        )
        self._grid = replace(grid, pipeline=replace(grid.pipeline, _stage=end))
        self._size = bundle_size
        self._has_warned = False
        reads = Graph.of([end]).reads
        self._by_arrival = all(read.clock is None for read in reads)
        first = {settings.windows: settings for settings in reversed(list(grid.settings()))}
        traces = [self._trace(settings)[0] for settings in reversed(first.values())]
        columns = [TraceColumns.of(trace) for trace in traces]
        self.axes = Axes.of(traces[0], columns[0], by_arrival=self._by_arrival)
        for trace, each in zip(traces[1:], columns[1:], strict=True):
            self.axes = self.axes.with_x_of(Axes.of(trace, each, by_arrival=self._by_arrival))
        self._columns = columns[0]

    def frames(self, draw: Any, column: str | None) -> Iterator[Frame]:
        """Yield what the page shows of each point."""
        keys, events = self._columns.keys, self._columns.events()
        if draw is not None and hashable(draw) not in keys:
            known = ", ".join(map(repr, keys[:6]))
            raise InvalidArgument(
                f"{describe('draw', draw)} is no key of the input",
                where="explore(draw=)",
                hint=f"Keys: {known}" if known else "There are no keys",
            )
        if draw is None and len(keys):
            draw = keys[int(np.argmax(events))]
        every = list(self._grid.settings())
        limits = limits_of(len(every))
        for settings in every:
            trace, lost = self._trace(settings)
            yield Frame.of(settings, trace, lost, self.axes, draw, column, limits)

    def _trace(self, settings: Settings) -> tuple[StageTrace, tuple[int, int]]:
        """Return the trace of the stage; the elements dropped before it, and the dead letters."""
        pipeline = self._grid.pipeline_of(settings)
        options: RunOptions = {
            "bundle_size": self._size,
            "trace": Tracing(limit=None),
            "progress": False,
        }
        if self._by_arrival:
            options["clock"] = ManualClock(0)
        with warnings.catch_warnings():
            # The whole grid has what is to be said of one point, such as that records are dropped.
            warnings.simplefilter("ignore", PipelineWarning)
            if self._has_warned:  # every run has the same dead letters
                warnings.simplefilter("ignore", DataWarning)
            result = pipeline.collect(**options)
        self._has_warned = True
        last = result.trace.stage()
        before = (of for name, of in result.metrics.stages.items() if name != last.name)
        return last, (sum(of.late.total() for of in before), len(result.errors))


def _pipeline_of(
    given: Any,
    time: str | None,
    key: Any,
    aggregates: Mapping[str, AggregateSpec] | None,
    windows: Mapping[str, WindowFunction] | None,
) -> Pipeline:
    if isinstance(given, Pipeline):
        if time is not None or key is not None or aggregates is not None:
            raise InvalidArgument(
                "time=, key= and aggregates= are of records, and a pipeline has its own",
                where="explore",
                hint="Leave them out",
            )
        return given
    if time is None or not windows:
        raise InvalidArgument(
            f"{describe('records', given)} is no pipeline, and records need time= and windows=",
            where="explore",
            hint='Write explore(records, time="at", key="card", '
            'windows={"a minute": lw.FixedWindows("1m")}), or explore a pipeline that ends in '
            ".window(...).aggregate(...)",
        )
    stream = stream_of(given, time)
    if key is None:
        stream, key = stream.with_columns(all=lit(True)), "all"
    keys = [key] if isinstance(key, str) else list(key)
    first = next(iter(windows.values()))
    return stream.key_by(*keys).window(first).aggregate(**(aggregates or {"n": count()}))


def _choices(grid: Grid) -> str:
    delays = ", ".join(_delay_text(delay) for delay in grid.delays)
    latenesses = ", ".join(map(format_duration, grid.latenesses))
    return (
        f"delay: {delays}; lateness: {latenesses}; trigger: {', '.join(grid.triggers)}; "
        f"windows: {', '.join(grid.windows)}"
    )


def _delay_text(delay: int | None) -> str:
    return "own" if delay is None else format_duration(delay)
