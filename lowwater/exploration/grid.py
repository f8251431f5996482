"""The combinations of settings that an exploration runs, and the pipeline of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import Any, Self, TypeVar, final

from lowwater.display.text import shown
from lowwater.engine.graph.graph import Graph, Read, Stage
from lowwater.engine.window.windowing import Windowing
from lowwater.errors import InvalidArgument, describe
from lowwater.explain.lateness import candidates
from lowwater.explain.literals import Literals
from lowwater.pipeline.checks import check_lateness
from lowwater.pipeline.fluent import Pipeline
from lowwater.time import DurationLike, as_micros, format_duration
from lowwater.triggers import Trigger
from lowwater.watermark import Ascending, BoundedDisorder
from lowwater.windows import WindowFunction

MOST_POINTS = 400
"""The most combinations: each is a run, and a picture in the page."""
_EXPLORED = frozenset({"windows", "trigger", "accumulation", "allowed_lateness"})
_T = TypeVar("_T")


@final
@dataclass(frozen=True, slots=True)
class Settings:
    """One combination.

    Args:
        delay: How far the watermark is behind the latest event time, microseconds; ``None``: the
            pipeline's own watermarks.
        lateness: The allowed lateness, microseconds.
        trigger: The name of the trigger.
        windows: The name of the windows.
    """

    delay: int | None
    lateness: int
    trigger: str
    windows: str


@final
@dataclass(frozen=True, slots=True)
class Grid:
    """The settings to combine.

    Args:
        pipeline: The pipeline whose last stage is explored.
        delays: Microseconds, ascending; ``None`` alone: the pipeline's own watermarks.
        latenesses: Microseconds, ascending.
        triggers: Triggers by name.
        windows: Windows by name.
    """

    pipeline: Pipeline
    delays: tuple[int | None, ...]
    latenesses: tuple[int, ...]
    triggers: Mapping[str, Trigger]
    windows: Mapping[str, WindowFunction]

    @classmethod
    def of(
        cls,
        pipeline: Pipeline,
        *,
        delay: Sequence[DurationLike] | None,
        lateness: Sequence[DurationLike] | None,
        trigger: Mapping[str, Trigger] | None,
        windows: Mapping[str, WindowFunction] | None,
    ) -> Self:
        """Return a grid; what is left out is as in the pipeline.

        Raises:
            InvalidArgument: A setting makes no sense, or there are too many combinations.
        """
        own = _windowing_of(pipeline)
        grid = cls(
            pipeline,
            tuple(candidates("delay", delay, where="explore")) or (_delay_of(pipeline),),
            tuple(candidates("lateness", lateness, where="explore")) or (own.lateness_us,),
            _named("trigger", trigger, Trigger, own.trigger),
            _named("windows", windows, WindowFunction, own.windows),
        )
        many = len(list(grid.settings()))
        if many > MOST_POINTS:
            raise InvalidArgument(
                f"{many:,} combinations are more than the {MOST_POINTS} that fit into one page",
                where="explore",
                hint="Leave out some delays, latenesses, triggers or windows",
            )
        for settings in grid.settings():
            grid.pipeline_of(settings)  # refuses what is wrong before anything runs
        return grid

    def settings(self) -> Iterator[Settings]:
        """Yield all combinations; the windows change slowest, then triggers, latenesses, delays."""
        for windows, trigger, lateness, delay in product(
            self.windows, self.triggers, self.latenesses, self.delays
        ):
            yield Settings(delay, lateness, trigger, windows)

    def pipeline_of(self, settings: Settings) -> Pipeline:
        """Return the pipeline with some settings.

        Raises:
            InvalidArgument: The lateness is shorter than that of an upstream stage.
            UnsafeTrigger: The trigger may lose data with the lateness.
        """
        work: Any = self.pipeline._stage.work
        windowing = _windowing_of(self.pipeline).with_(
            windows=self.windows[settings.windows],
            trigger=self.triggers[settings.trigger],
            allowed_lateness=settings.lateness,
        )
        check_lateness(windowing.lateness_us, self.pipeline._stage.inputs, "window")
        stage = replace(self.pipeline._stage, work=replace(work, windowing=windowing))
        if settings.delay is not None:
            stage = _with_delay(stage, settings.delay)
        return replace(self.pipeline, _stage=stage)

    def code(self, settings: Settings) -> str:
        """Return the settings as code for a pipeline."""
        own = _windowing_of(self.pipeline)
        lines = [
            _argument("windows", self.windows[settings.windows]),
            _argument("trigger", self.triggers[settings.trigger]),
            f"accumulation={own.mode!r},",
            f"allowed_lateness={format_duration(settings.lateness)!r},",
            *(
                _argument(field.name, value)
                for field in fields(Windowing)
                if field.name not in _EXPLORED
                and (value := getattr(own, field.name)) != field.default
            ),
        ]
        inner = "\n".join(f"    {line}" for line in lines)
        window = f".window(\n{inner}\n)"
        if settings.delay is None:
            return window
        delay = format_duration(settings.delay)
        return f"watermark=lw.BoundedDisorder({delay!r})\n\n{window}"


def _argument(name: str, value: object) -> str:
    """Return an argument of ``window(...)`` as a line of code.

    What has no code, as it has functions of the user's, is a variable with a comment.
    """
    code = repr(value) if isinstance(value, str) else Literals().public(value)
    head = "" if name == "windows" else f"{name}="
    return f"{head}{code}," if code else f"{head}{name},  # {' '.join(shown(value).split())}"


def _windowing_of(pipeline: Pipeline) -> Windowing:
    work = pipeline._stage.work
    if work.windowing is None or not work.fires:
        raise InvalidArgument(
            f"the last stage of the pipeline is a {work.noun}, not one with windows of time",
            where="explore",
            hint="Explore a pipeline that ends in .window(...).aggregate(...)",
        )
    return work.windowing


def _named(name: str, given: Mapping[str, _T] | None, kind: Any, own: _T) -> Mapping[str, _T]:
    if given is None:
        return {str(own): own}
    is_named = isinstance(given, Mapping) and given
    if not is_named or not all(isinstance(key, str) for key in given):
        raise InvalidArgument(
            f"{describe(name, given)} is not a mapping of names to values",
            where=f"explore({name}=)",
            hint='Write, say, trigger={"at the end": lw.AfterWatermark()}, '
            'windows={"a minute": lw.FixedWindows("1m")}',
        )
    noun = "trigger" if name == "trigger" else "window function"
    for key, value in given.items():
        if not isinstance(value, kind):
            raise InvalidArgument(
                f"{describe(repr(key), value)} is no {noun}", where=f"explore({name}=)",
                hint='Write, say, {"a minute": lw.FixedWindows("1m")}'
                if name == "windows"
                else 'Write, say, {"at the end": lw.AfterWatermark()}',
            )  # fmt: skip
    return dict(given)


def _delay_of(pipeline: Pipeline) -> int | None:
    """Return the delay of the watermarks of all sources; ``None`` if there is no such one."""
    delays = {_own_delay(read) for read in Graph.of([pipeline._stage]).reads}
    return delays.pop() if len(delays) == 1 else None


def _own_delay(read: Read) -> int | None:
    if isinstance(read.watermark, BoundedDisorder):
        return as_micros(read.watermark.delay)
    return 0 if isinstance(read.watermark, Ascending) else None


def _with_delay(end: Stage, delay: int) -> Stage:
    estimator = BoundedDisorder(delay)
    return with_reads(end, lambda read: replace(read, watermark=estimator))


def with_reads(end: Stage, change: Callable[[Read], Read]) -> Stage:
    """Return a stage whose sources are changed, wherever upstream they are."""
    graph = Graph.of([end])
    reads = {read: change(read) for read in graph.reads}
    stages: dict[Stage, Stage] = {}
    for stage in graph.stages:
        flows = [
            replace(flow, origin=reads[flow.origin])
            if isinstance(flow.origin, Read)
            else replace(flow, origin=stages[flow.origin])
            for flow in stage.inputs
        ]
        stages[stage] = replace(stage, inputs=tuple(flows))
    return stages[end]
