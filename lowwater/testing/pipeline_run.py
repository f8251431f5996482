"""What a scenario gave when it was run through a pipeline, step by step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, final

from lowwater.engine.graph.graph import MAIN
from lowwater.engine.graph.trace import Trace
from lowwater.engine.records.panes import ErrorRecord, LateRecord, Pane
from lowwater.errors import InvalidArgument, describe, nearest
from lowwater.pipeline.forms import Element
from lowwater.pipeline.traced import Traced
from lowwater.testing._arrivals import Arrivals
from lowwater.testing._inputs import Build
from lowwater.testing._pipeline_drivers import Embedded, InLevels, Taken
from lowwater.time import Instant

ScenarioRunner: TypeAlias = Literal["embedded", "levels"]
"""What runs a scenario: the embedded runner, or the functions that Spark calls, without Spark."""

_RUNNERS = ("embedded", "levels")


@final
@dataclass(frozen=True, slots=True)
class StepRun:
    """What one step of a scenario gave.

    Args:
        outputs: The panes or elements that came out, in order.
        late: What was dropped as late, by any stage.
        errors: The dead letters.
        watermark: The input watermark of the last stage after the step.
        output_watermark: Its output watermark.
        state_rows: How many rows of state remain after the step, of all stages.
    """

    outputs: tuple[Any, ...]
    late: tuple[LateRecord, ...]
    errors: tuple[ErrorRecord, ...]
    watermark: Instant
    output_watermark: Instant
    state_rows: int

    @classmethod
    def of(cls, taken: Taken) -> StepRun:
        """Return what a runner collected, as a value."""
        return cls(
            tuple(taken.items),
            tuple(taken.late),
            tuple(taken.errors),
            taken.watermark,
            taken.output_watermark,
            taken.state_rows,
        )


@final
@dataclass(frozen=True, slots=True, repr=False)
class PipelineRun(Traced):
    """The output of a scenario that was run through a pipeline.

    Args:
        scenario: What arrived when.
        steps: What each step of the scenario gave, in order.
        key_names: The names of the keys of the output.
        recorded: The trace, if the run was traced.
        build: What was run.
    """

    scenario: Arrivals
    steps: tuple[StepRun, ...]
    key_names: tuple[str, ...]
    recorded: Trace | None = field(default=None, compare=False, repr=False)
    build: Build | None = field(default=None, compare=False, repr=False)

    @property
    def outputs(self) -> list[Any]:
        """All panes or elements, in the order they came out."""
        return [one for step in self.steps for one in step.outputs]

    @property
    def panes(self) -> list[Pane]:
        """The panes of a windowed stage, in order.

        Raises:
            InvalidArgument: The last stage emits records, not panes.
        """
        found = self.outputs
        if any(not isinstance(one, Pane) for one in found):
            raise InvalidArgument(
                "the last stage emits records, not panes", where="panes", hint="Use .elements"
            )
        return found

    @property
    def elements(self) -> list[Element]:
        """The records that a join, a table, a process or a stream emitted, in order.

        Raises:
            InvalidArgument: The last stage emits panes.
        """
        found = self.outputs
        if any(isinstance(one, Pane) for one in found):
            raise InvalidArgument("the last stage emits panes", where="elements", hint="Use .panes")
        return found

    @property
    def rows(self) -> list[Any]:
        """The records that stand, with their keys: those that were emitted and not retracted.

        In the order they came. A retraction cancels the last equal record with the same key and
        event time (S-C1).
        """
        standing: list[Element] = []
        for one in self.elements:
            if one.kind == "insert":
                standing.append(one)
                continue
            same = [at for at, other in enumerate(standing) if _is_same(one, other)]
            if not same:
                raise AssertionError(f"a record was retracted that does not stand: {one}")
            del standing[same[-1]]
        return [self._with_key(one) for one in standing]

    def _with_key(self, one: Element) -> Any:
        if not isinstance(one.value, Mapping) or not self.key_names:
            return one.value
        key = (one.key,) if len(self.key_names) == 1 else one.key
        return {**dict(zip(self.key_names, key, strict=True)), **one.value}

    @property
    def late(self) -> list[LateRecord]:
        """What was dropped as late, by any stage, in order."""
        return [one for step in self.steps for one in step.late]

    @property
    def errors(self) -> list[ErrorRecord]:
        """The dead letters, in order."""
        return [one for step in self.steps for one in step.errors]

    @property
    def output_watermark(self) -> Instant:
        """The output watermark of the last stage at the end."""
        return self.steps[-1].output_watermark if self.steps else self.scenario.watermark_at_start

    @property
    def state_rows(self) -> int:
        """How many rows of state remain at the end, of all stages."""
        return self.steps[-1].state_rows if self.steps else 0

    def _repr_html_(self) -> str:
        from lowwater.viz.output_html import Rejected, elements_html, panes_html

        rejected = Rejected.of(self.late, self.errors)
        found = self.outputs
        if any(isinstance(one, Pane) for one in found):
            kinds = (pane.timing if pane.kind == "insert" else "retract" for pane in found)
            return panes_html("Run of a scenario", found, Counter(kinds), rejected)
        rows = ((one.key, one.value, one.timestamp) for one in found)
        outputs = {MAIN: (rows, len(found))}
        return elements_html("Run of a scenario", outputs, rejected, keys=self.key_names)

    def __repr__(self) -> str:
        return (
            f"<run of {len(self.scenario.elements)} elements in {len(self.steps)} steps: "
            f"{len(self.outputs)} emitted, {len(self.late)} late, {len(self.errors)} errors, "
            f"{self.state_rows} rows kept>"
        )

    @property
    def trace(self) -> Trace:
        """The trace of the run; needs ``run_pipeline(trace=True)``."""
        if self.recorded is None:
            raise InvalidArgument("the scenario was not traced", hint="Run it with trace=True")
        return self.recorded


def run_pipeline(
    scenario: Arrivals,
    build: Build,
    *,
    runner: ScenarioRunner,
    restarts: Iterable[int] | Literal["all"] | None,
    trace: bool,
) -> PipelineRun:
    """Run a scenario through what a function builds; see ``Scenario.run_pipeline``."""
    if runner not in _RUNNERS:
        raise InvalidArgument(
            f"{describe('runner', runner)} is not known",
            where="run_pipeline",
            hint=nearest(str(runner), _RUNNERS),
        )
    driver: Embedded | InLevels
    if runner == "levels":
        if restarts is not None or trace:
            raise InvalidArgument(
                'runner="levels" reads its state again at each step, and records no trace',
                where="run_pipeline",
                hint='Leave out restarts= and trace=, or use runner="embedded"',
            )
        driver = InLevels(scenario, build)
    else:
        after = None if restarts is None else _restarts(restarts, len(scenario.steps))
        if after is not None and trace:
            raise InvalidArgument(
                "a run that is restarted has no trace of the whole",
                where="run_pipeline",
                hint="Leave out restarts= or trace=",
            )
        driver = Embedded(scenario, build, after, trace=trace)
    _, *steps = driver.steps()  # before the first step nothing has arrived
    recorded = driver.trace if trace and isinstance(driver, Embedded) else None
    return PipelineRun(scenario, tuple(map(StepRun.of, steps)), driver.built.keys, recorded, build)


def _restarts(given: Iterable[int] | Literal["all"], steps: int) -> Collection[int]:
    if given == "all":
        return range(steps)
    after = frozenset(given)
    if not all(isinstance(at, int) and 0 <= at < steps for at in after):
        raise InvalidArgument(
            f"{describe('restarts', given)} are not numbers of steps",
            where="run_pipeline",
            hint=f'Give some of 0 to {steps - 1}, or "all"',
        )
    return after


def _is_same(one: Element, other: Element) -> bool:
    return (one.key, one.timestamp, one.value) == (other.key, other.timestamp, other.value)
