"""Scenarios: what arrives when, as one value for tests, notebooks, docs and every runner."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, final, overload

from lowwater.engine.graph.trace import Trace
from lowwater.engine.records.admission import OnError
from lowwater.engine.records.panes import ErrorRecord, LateRecord, Pane
from lowwater.engine.window.windowing import Accumulation, Closing, OnTime, TimestampRule, Windowing
from lowwater.errors import InvalidArgument, describe
from lowwater.pipeline.traced import Traced
from lowwater.testing import _text
from lowwater.testing._arrivals import Arrivals
from lowwater.testing._drive import Aggregates, drive
from lowwater.testing._inputs import Build
from lowwater.testing._moments import moment
from lowwater.testing.pipeline_run import PipelineRun, ScenarioRunner, run_pipeline
from lowwater.time import DurationLike
from lowwater.triggers import Default, Trigger
from lowwater.windows import WindowFunction

if TYPE_CHECKING:
    from lowwater.engine.window.fill import Fill
    from lowwater.explain import Explanation
    from lowwater.explain.window import WindowLike
    from lowwater.pipeline.fluent import KeyedStream, MatchedStream


@final
@dataclass(frozen=True, slots=True, repr=False, init=False)
class Scenario(Arrivals):
    """What arrives when: bundles of elements, advances of the clock and the watermark (S-O1).

    Each method returns a new scenario. Times of day such as ``"12:00:26"`` mean 2000-01-01, UTC;
    any form of S-T1 works too. The clock advances only by a step's ``at``, before the step, and by
    :meth:`clock`.

    A scenario with several inputs names them. Each has elements and a watermark of its own, and
    :meth:`run_pipeline` runs joins, tables and unions of them:

    >>> Scenario("left", "right", start="12:00").add((5, "12:00", "A"), to="right").end(of="left")
    Scenario('left', 'right', start='12:00:00').add((5, '12:00:00', 'A'), to='right').end(of='left')

    Args:
        *inputs: The names of the inputs, if there are several.
        start: The clock at the start.
        watermark: The watermark at the start, of all inputs; unknown by default.

    >>> Scenario(start="12:00").add((5, "12:00:26", "A"), at="12:05:19").watermark("12:02").end()
    Scenario(start='12:00:00').add((5, '12:00:26', 'A'), at='12:05:19').watermark('12:02:00').end()
    """

    @overload
    def run(
        self, *, match: Callable[[KeyedStream], MatchedStream], trace: bool = ...
    ) -> PipelineRun: ...

    @overload
    def run(
        self,
        windows: WindowFunction,
        *,
        trigger: Trigger = ...,
        accumulation: Accumulation | None = ...,
        allowed_lateness: DurationLike = ...,
        aggregate: Aggregates | None = ...,
        closing: Closing = ...,
        on_time: OnTime = ...,
        timestamps: TimestampRule = ...,
        allow_data_loss: str | None = ...,
        fill: Fill | None = ...,
        on_error: OnError = ...,
        trace: bool = ...,
    ) -> ScenarioRun: ...

    def run(
        self,
        windows: WindowFunction | None = None,
        *,
        match: Callable[[KeyedStream], MatchedStream] | None = None,
        trigger: Trigger = Default(),
        accumulation: Accumulation | None = None,
        allowed_lateness: DurationLike = 0,
        aggregate: Aggregates | None = None,
        closing: Closing = "if_new",
        on_time: OnTime = "always",
        timestamps: TimestampRule = "end",
        allow_data_loss: str | None = None,
        fill: Fill | None = None,
        on_error: OnError = "dead_letter",
        trace: bool = False,
    ) -> ScenarioRun | PipelineRun:
        """Run the scenario through the engine; see :class:`Windowing` for most arguments.

        >>> import lowwater as lw
        >>> scenario = Scenario().add((1, "12:00", "A"), (3, "12:02", "A")).end()
        >>> up = {"up": lw.col("value") > lw.prev("value")}
        >>> len(scenario.run(match=lambda keyed: keyed.match("low up+", define=up)).elements)
        1

        Args:
            windows: Where in event time elements are grouped.
            match: In place of windows: finds a row pattern in the elements by key, which have the
                columns ``time``, ``key`` and ``value``. All other options are those of ``match``.
            trigger: When a window emits a pane.
            accumulation: How panes of one window relate.
            allowed_lateness: How long after its end a window still accepts late elements.
            aggregate: An aggregate (the pane's only value is named ``value``), or a mapping of
                them by name; ``collect()`` if left out. One that names no column reads ``value``.
            closing: Whether an expiring window emits a final pane with nothing new.
            on_time: Whether the on-time pane is emitted even with nothing new.
            timestamps: The event time of a pane.
            allow_data_loss: Why it is fine that the trigger may lose data.
            fill: How long windows without elements emit panes for a key that had some.
            on_error: ``"dead_letter"`` keeps bad elements in ``errors``; ``"raise"`` stops (S-B1).
            trace: Whether to record what happens to each element, in ``trace``.

        Returns:
            The panes; of a match, the run of its pipeline, with its records as ``elements``.

        Raises:
            InvalidArgument: There are both windows and a match, or neither.
        """
        if match is not None and windows is None:
            find = match
            return self.run_pipeline(lambda stream: find(stream.key_by("key")), trace=trace)
        if match is not None or windows is None:
            raise InvalidArgument(
                "a scenario runs through windows or through a match, one of the two",
                where="Scenario.run",
                hint='Write run(lw.FixedWindows("1m")), or run(match=lambda keyed: keyed.match('
                '"low up+"))',
            )
        windowing = Windowing(
            windows=windows,
            trigger=trigger,
            accumulation=accumulation,
            allowed_lateness=allowed_lateness,
            closing=closing,
            on_time=on_time,
            timestamps=timestamps,
            allow_data_loss=allow_data_loss,
            fill=fill,
        )
        return self.run_windowing(windowing, aggregate=aggregate, on_error=on_error, trace=trace)

    def run_windowing(
        self,
        windowing: Windowing,
        *,
        aggregate: Aggregates | None = None,
        on_error: OnError = "dead_letter",
        trace: bool = False,
    ) -> ScenarioRun:
        """Run the scenario through the engine with a given :class:`Windowing`."""
        return self._run(windowing, aggregate, on_error, trace=trace)

    def run_pipeline(
        self,
        build: Build,
        *,
        runner: ScenarioRunner = "embedded",
        restarts: Iterable[int] | Literal["all"] | None = None,
        trace: bool = False,
    ) -> PipelineRun:
        """Run the scenario through a pipeline that a function builds on its inputs.

        Each input is a stream with the columns ``time``, ``key`` and ``value``, or one per field
        where values are mappings. Or give a pipeline that is built already: the inputs take the
        place of its sources, by their names (``named``), and an element's event time and key go to
        the columns that the pipeline reads them from. A step is one bundle. The input ends only
        where the scenario says so, so that ``state_rows`` tells what remains before the end.

        Args:
            build: A function from one stream for each input to whatever can be run, or a table; or
                such a pipeline.
            runner: ``embedded``, or ``levels``: the functions that Spark calls for each key group,
                without Spark, with the state read again at each step.
            restarts: After which steps, by number, the run stops, and another one resumes from what
                it has stored; ``"all"``: after each. Only of the embedded runner.
            trace: Whether to record what happens to each element, in ``trace``.

        Raises:
            InvalidArgument: The function returns nothing that can be run, or does not read exactly
                the inputs of the scenario.

        >>> run = (
        ...     Scenario("left", "right")
        ...     .add(("boots", "12:00", "s1"), to="left")
        ...     .add(("click", "12:05", "s1"), ("click", "12:11", "s1"), to="right")
        ...     .run_pipeline(lambda left, right: left.join(right, on="key", within="10m"))
        ... )
        >>> [(one.key, one.value["value"], one.value["value_right"]) for one in run.elements]
        [('s1', 'boots', 'click')]
        """
        return run_pipeline(self, build, runner=runner, restarts=restarts, trace=trace)

    def _run(
        self,
        windowing: Windowing,
        aggregate: Aggregates | None,
        on_error: OnError,
        signs: Sequence[int] | None = None,
        *,
        trace: bool = False,
    ) -> ScenarioRun:
        driven = drive(of_one_input(self), windowing, aggregate, on_error, signs, trace=trace)
        return ScenarioRun(self, windowing, **driven._asdict(), aggregate=aggregate)

    def to_markdown(self) -> str:
        """Return a Markdown table that :meth:`from_markdown` reads back.

        A step begins where the ``at`` column is not empty: a time moves the clock, ``.`` does not.
        """
        return _text.to_markdown(self)

    @staticmethod
    def from_markdown(text: str) -> Scenario:
        """Return the scenario of a Markdown table.

        Raises:
            InvalidArgument: The text is not such a table; the message names the line.
        """
        return _text.from_markdown(text, Scenario)

    def to_yaml(self) -> str:
        """Return YAML that :meth:`from_yaml` reads back; needs the ``testing`` extra."""
        return _text.to_yaml(self)

    @staticmethod
    def from_yaml(text: str) -> Scenario:
        """Return the scenario of a YAML text; needs the ``testing`` extra.

        Raises:
            InvalidArgument: The text is not such YAML.
        """
        return _text.from_yaml(text, Scenario)

    def __repr__(self) -> str:
        return _text.to_code(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Print a call per line, as Hypothesis and IPython show a value."""
        first, *steps = _text.calls_of(self)
        with printer.group(4):
            printer.text(first)
            for step in steps:
                if len(steps) > 1:
                    printer.break_()
                printer.text(step)


def of_one_input(value: object) -> Scenario:
    """Return a scenario of one input, with each advance of the watermark as a step of its own.

    For one stage, that makes no difference.

    Raises:
        InvalidArgument: It is something else, such as the next argument, or has several inputs.
    """
    if not isinstance(value, Scenario):
        raise InvalidArgument(
            f"{describe('scenario', value)} is not a Scenario",
            where="lowwater.testing",
            hint='Write Scenario().add((5, "12:00:26", "A")); the order of arguments is in the '
            "help of the function",
        )
    if len(value.inputs) > 1:
        raise InvalidArgument(
            f"the scenario has {len(value.inputs)} inputs, and this takes one",
            where="lowwater.testing",
            hint="Use scenario.run_pipeline(lambda left, right: ...), or a scenario of one input",
        )
    return value.apart()


@final
@dataclass(frozen=True, slots=True)
class ScenarioRun(Traced):
    """The output of a scenario.

    Args:
        scenario: What arrived when.
        windowing: The windowing that was run.
        panes: All panes, in the order they were emitted.
        late: Elements dropped from one of their windows, in order.
        errors: Dead letters, in order.
        open_windows: Windows still open at the end.
        state_rows: Windows that still have state: the open ones, and the finished, unexpired ones.
        recorded: The trace, if the run was traced.
        aggregate: What was aggregated.
    """

    scenario: Scenario
    windowing: Windowing
    panes: list[Pane]
    late: list[LateRecord]
    errors: list[ErrorRecord]
    open_windows: int
    state_rows: int
    recorded: Trace | None = field(default=None, compare=False, repr=False)
    aggregate: Aggregates | None = field(default=None, compare=False, repr=False)

    def _repr_html_(self) -> str:
        from lowwater.viz.output_html import Rejected, panes_html

        kinds = (pane.timing if pane.kind == "insert" else "retract" for pane in self.panes)
        rejected = Rejected.of(self.late, self.errors)
        return panes_html("Run of a scenario", self.panes, Counter(kinds), rejected)

    @property
    def trace(self) -> Trace:
        """The trace of the run; needs ``run(trace=True)``."""
        if self.recorded is None:
            raise InvalidArgument("the scenario was not traced", hint="Run it with trace=True")
        return self.recorded

    def explain(self, key: Any, window: WindowLike, *, stage: str | None = None) -> Explanation:
        """Explain why a window fired or did not; needs ``run(trace=True)``.

        Args:
            key: The key: a plain value.
            window: The window, a ``(start, end)`` pair, or an instant inside; also as times of day.
            stage: The name of the stage; the last one by default.
        """
        if isinstance(window, (tuple, list)) and len(window) == 2:
            window = (moment(window[0], name="start"), moment(window[1], name="end"))
        elif isinstance(window, str):
            window = moment(window, name="window")
        return Traced.explain(self, key, window, stage=stage)
