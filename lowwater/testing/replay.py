"""Runs a pipeline on a scenario instead of its source: exact bundles, clock and watermark.

Elements become records with the columns ``time``, ``key`` and ``value``, and more columns where the
scenario gives some; a value that is a mapping becomes a column per field instead. The event time is
also in the column that the pipeline reads it from, and the key in the one it groups by, if that is
a single one which the scenario does not give.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar, TypeAlias, assert_never, final

import pyarrow as pa

from lowwater.engine.graph.clocks import ManualClock
from lowwater.engine.graph.graph import Flow, Graph, Read
from lowwater.engine.records.admit_times import TimeFormat
from lowwater.engine.records.batch import Records
from lowwater.engine.records.columns import Column
from lowwater.errors import InvalidArgument, describe
from lowwater.pipeline import Pipeline, Result, Stream
from lowwater.pipeline.fluent import Processed
from lowwater.pipeline.outcomes import RunOptions
from lowwater.testing._arrivals import Add, ClockMove, InputEnd, WatermarkMove
from lowwater.testing._drive import column_of
from lowwater.testing._inputs import columns_of, times_of, with_other_sources
from lowwater.testing.scenario import Scenario, of_one_input
from lowwater.watermark import External

Testable: TypeAlias = Pipeline | Callable[[Stream], Pipeline]
"""A pipeline whose source a scenario takes the place of, or a function that builds one on a stream
of the scenario's elements: ``lambda stream: stream.key_by("key").window(...).aggregate(...)``."""

_TIME = "time"
_MICROS = TimeFormat(unit="us")


def replay(pipeline: Testable, scenario: Scenario) -> Result:
    """Run a scenario through a pipeline; the input ends after the last step.

    Args:
        pipeline: A built pipeline with one source, or a function from a stream to a pipeline.
        scenario: What arrives when. Its bundles, watermark and clock replace those of the source.

    Raises:
        InvalidArgument: The pipeline reads several sources, or the scenario continues after its
            end.

    >>> import lowwater as lw
    >>> from lowwater.testing import Scenario, replay
    >>> scenario = Scenario().add((5, "12:00:26", "A"), (3, "12:01:00", "A")).watermark("12:02")
    >>> sums = lambda stream: (
    ...     stream.key_by("key").window(lw.FixedWindows("2m")).aggregate(lw.sum("value"))
    ... )
    >>> [(pane.key, pane.value) for pane in replay(sums, scenario).panes]
    [('A', 8)]
    """
    grounded = ground(as_pipeline(pipeline), scenario)
    return grounded.pipeline.collect(**grounded.options)


def as_pipeline(testable: Testable) -> Pipeline:
    """Return the pipeline to test, on an empty source."""
    if not isinstance(testable, (Pipeline, Processed)) and callable(testable):
        source = ScenarioSource(Scenario(), External(), ManualClock(), (), ())
        stream = Stream((Flow(Read(source, _TIME, _MICROS), (), _TIME),))
        testable = testable(stream)
    if isinstance(testable, Processed):
        raise InvalidArgument(
            "the pipeline ends in process(), which has no panes",
            where="lowwater.testing",
            hint="Test a pipeline that ends in aggregate(...) or group()",
        )
    if not isinstance(testable, Pipeline):
        raise InvalidArgument(
            f"{describe('pipeline', testable)} is neither a pipeline nor a function that builds "
            "one from a stream",
            hint='Write lambda stream: stream.key_by("key").window(...).aggregate(...)',
        )
    return testable


@final
@dataclass(frozen=True, slots=True)
class Grounded:
    """A pipeline on a scenario, to be run once: its clock and watermark are driven by the source.

    Args:
        pipeline: The pipeline.
        options: How to run it.
        watermark: The watermark that is driven.
    """

    pipeline: Pipeline
    options: RunOptions
    watermark: External


def ground(pipeline: Pipeline, scenario: Scenario) -> Grounded:
    """Return a pipeline with a scenario in place of its source. O(stages)."""
    scenario = of_one_input(scenario)
    end = pipeline._stage
    graph = Graph.of([end])
    if len(graph.reads) != 1:
        raise InvalidArgument(
            f"the pipeline reads {len(graph.reads)} sources, but a scenario is one",
            where="lowwater.testing",
            hint='Use Scenario("left", "right") and its run_pipeline, '
            "or a function that builds the pipeline on one stream",
        )
    (read,) = graph.reads
    clock, watermark = ManualClock(), External()
    source = ScenarioSource(
        scenario, watermark, clock, (_TIME, read.time), _grouped_by(graph, read)
    )
    new_read = replace(
        read,
        source=source,
        watermark=watermark,
        clock=None,
        max_ahead_us=None,
        idle_after_us=None,
        times=replace(read.times, unit="us"),
    )
    largest = max((len(s.elements) for s in scenario.steps if isinstance(s, Add)), default=1)
    options: RunOptions = {
        "clock": clock,
        "progress": False,
        "on_error": "dead_letter",  # a scenario may be all about invalid elements
        "bundle_size": max(50_000, largest),
    }
    stage = with_other_sources(end, {read: new_read})
    return Grounded(replace(pipeline, _stage=stage), options, watermark)


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ScenarioSource:
    """The elements of a scenario as records, its other steps as moves of a watermark and a clock.

    It can be read once, since the watermark and the clock do not go back.

    Args:
        scenario: What arrives when.
        watermark: The watermark to drive.
        clock: The clock to drive.
        times: Columns that hold the event time.
        keys: Columns that hold the key where the scenario gives no column of that name.
    """

    scenario: Scenario
    watermark: External
    clock: ManualClock
    times: tuple[str, ...]
    keys: tuple[str, ...]
    _columns: dict[str, Column] = field(default_factory=dict)

    schema: ClassVar[pa.Schema | None] = None

    def __repr__(self) -> str:
        return f"ScenarioSource({len(self.scenario.elements)} elements)"

    def batches(self, size: int, keys: tuple[str, ...]) -> Iterator[Records]:
        self._columns.update(self._all_columns())
        self.clock.advance_to(self.scenario.start)
        self.watermark.advance_to(self.scenario.watermark_at_start)
        yield Records({}, 0)
        position, ended = 0, False
        for number, step in enumerate(self.scenario.steps):
            if ended:
                raise InvalidArgument(
                    f"step {number} of the scenario comes after its end",
                    hint="Call end() last",
                )
            if step.at is not None:
                self.clock.advance_to(step.at)
            match step:
                case Add(elements):
                    stop = position + len(elements)
                    part = {name: c.slice(position, stop) for name, c in self._columns.items()}
                    yield Records(part, len(elements), "the scenario", position)
                    position = stop
                    continue
                case WatermarkMove(to):
                    self.watermark.advance_to(to)
                case InputEnd():
                    ended = True
                case ClockMove():
                    pass
                case _:
                    assert_never(step)
            yield Records({}, 0)  # a heartbeat: clock and watermark move

    def _all_columns(self) -> dict[str, Column]:
        elements = self.scenario.elements
        rows = [columns_of(element.value, element.columns) for element in elements]
        names = dict.fromkeys(name for row in rows for name in row)
        columns = {"key": column_of([element.key for element in elements])}
        columns |= dict.fromkeys(self.keys, columns["key"])
        columns |= {name: column_of([row.get(name) for row in rows]) for name in names}
        times = times_of([element.time for element in elements])
        return columns | dict.fromkeys(self.times, times)


def _grouped_by(graph: Graph, read: Read) -> tuple[str, ...]:
    """Return the single columns that stages group the source's records by."""
    stages = [graph.stages[at] for at, _ in graph.into(read)]
    return tuple(stage.keys[0] for stage in stages if len(stage.keys) == 1)
