"""Turns what a run emitted of a window into a test that repeats it, with the fewest elements.

The trace of a run says which bundles arrived and where the watermarks then stood. That is a
scenario; the pipeline of the run is run over ever smaller parts of it, for as long as the window
emits the same. The result is printed as a test in Python.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, final

from lowwater.engine.graph.graph import Graph, Stage
from lowwater.engine.graph.trace import Trace
from lowwater.engine.graph.traced_parts import TracedRecords
from lowwater.errors import InternalError, InvalidArgument, LowwaterError, describe
from lowwater.explain.incident import Incident as Incident
from lowwater.pipeline.forms import ElementForm, PaneForm
from lowwater.pipeline.result import Result
from lowwater.pipeline.traced import Traced
from lowwater.testing._inputs import Build, BuiltPipeline, built_on, inputs_of
from lowwater.testing._program import GIVEN, Call, imported, program, windowed, windows
from lowwater.testing._recorded import records_behind, scenario_of
from lowwater.testing._selected import Selected, Selection, WindowLike
from lowwater.testing._shrunk import shrunk
from lowwater.testing.assertions import is_same
from lowwater.testing.orders import only_elements
from lowwater.testing.pipeline_run import PipelineRun
from lowwater.testing.scenario import Scenario, ScenarioRun
from lowwater.watermark import External

Ran: TypeAlias = ScenarioRun | PipelineRun
_HERE = "scenario"


def incident(
    run: Traced, key: Any, window: WindowLike | None = None, *, of: str | None = None
) -> Incident:
    """Return a test that repeats what a run emitted of a window; see ``Result.scenario``.

    Raises:
        InvalidArgument: The run emitted nothing of the window, and dropped nothing; or it cannot be
            repeated from what is known of it.
    """
    if of is not None and (not isinstance(of, str) or not _is_place(of)):
        raise InvalidArgument(
            f"{describe('of', of)} does not name a pipeline",
            where=_HERE,
            hint='Write where it can be imported from: of="module:pipeline"',
        )
    if isinstance(run, ScenarioRun):
        subject = _of_scenario(run)
    elif isinstance(run, PipelineRun):
        subject = _of_pipeline(run)
    elif isinstance(run, Result):
        subject = _of_result(run)
    else:
        raise InvalidArgument(
            f"{describe('run', run)} keeps nothing of what it emitted",
            where=_HERE,
            hint="Use pipeline.collect(trace=True)",
        )
    if of is not None:
        subject = replace(subject, calls=(imported(of),))
    return _shrunk_incident(subject, Selection.of(key, window, subject.outputs, subject.late))


def _is_place(of: str) -> bool:
    module, colon, name = of.rpartition(":")
    parts = [*module.split("."), name.removesuffix("()")]
    return bool(colon) and all(part.isidentifier() for part in parts)


@final
@dataclass(frozen=True, slots=True)
class _Subject:
    """A run that is asked about, and how to run smaller scenarios in the same way.

    Args:
        outputs: What it emitted.
        late: What it dropped.
        before: How many records it read.
        run: Runs a scenario.
        calls: How a test may run one: the first that gives the same is used.
        scenarios: What arrived, smaller ones first, with the records that a window is made of.
        refuse: Returns the error if none of them gives the same.
    """

    outputs: list[Any]
    late: list[Any]
    before: int
    run: Callable[[Scenario], Ran]
    calls: tuple[Call, ...]
    scenarios: Callable[[Selection], Iterator[Scenario]]
    refuse: Callable[[], InvalidArgument]


def _shrunk_incident(subject: _Subject, selection: Selection) -> Incident:
    wanted = selection.take(subject.outputs, subject.late)
    if not wanted.outputs and not wanted.late:
        raise InvalidArgument(
            f"the run emitted nothing of {selection}, and dropped nothing from it",
            where=_HERE,
            hint="explain(key, window) says why a window has not fired, and which there are",
        )
    essence = wanted.essence

    def holds(scenario: Scenario) -> bool:
        ran = _try(subject.run, scenario)
        return ran is not None and _taken(selection, ran).essence == essence

    found = next(filter(holds, subject.scenarios(selection)), None)
    if found is None:
        raise subject.refuse()
    scenario = shrunk(found, holds)
    ran = subject.run(scenario)
    taken = _taken(selection, ran)
    is_alone = len(taken.outputs) == len(_outputs(ran)), len(taken.late) == len(ran.late)
    for call in subject.calls:
        code = program(scenario, call, selection, taken, is_alone=is_alone, before=subject.before)
        if call.parameters or call is subject.calls[-1] or _passes(code):
            return Incident(scenario, code, taken.outputs, taken.late, subject.before)
    raise InternalError("a test of an incident has no call")


def _passes(code: str) -> bool:
    """Return whether a test that needs nothing of the user's passes: it was just written here."""
    names: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(code, names)  # noqa: S102  # made of this library's own calls, and of literals
        try:
            names["test_incident"]()
        except (AssertionError, LowwaterError):
            return False
    return True


def _try(run: Callable[[Scenario], Ran], scenario: Scenario) -> Ran | None:
    """Run a scenario; ``None`` if it fails, as functions of the user's may on other records."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return run(scenario)
        except Exception:  # whatever the user's functions raise: this scenario is not the one
            return None


def _outputs(ran: Ran) -> list[Any]:
    return ran.outputs if isinstance(ran, PipelineRun) else ran.panes


def _taken(selection: Selection, ran: Ran) -> Selected:
    return selection.take(_outputs(ran), ran.late)


def _of_key_or_all(scenario: Scenario) -> Callable[[Selection], Iterator[Scenario]]:
    """Return what yields a scenario, but first with the elements of the key alone."""

    def scenarios(selection: Selection) -> Iterator[Scenario]:
        elements = scenario.elements
        own = [at for at, one in enumerate(elements) if is_same(one.key, selection.key)]
        parts = [scenario]
        if 0 < len(own) < len(elements):
            parts.insert(0, only_elements(scenario, frozenset(own), keep_moves=True))
        for part in parts:
            yield part.apart()  # which reads better, and mostly gives the same
            yield part

    return scenarios


def _differs() -> InvalidArgument:
    return InvalidArgument(
        "the scenario, run again, gives something else",
        where=_HERE,
        hint="Look for what is not the same in each run: the time of day, random numbers, or a "
        "process that keeps something outside its cells",
    )


def _of_scenario(run: ScenarioRun) -> _Subject:
    windowing, aggregate = run.windowing, run.aggregate
    return _Subject(
        list(run.panes),
        run.late,
        len(run.scenario.elements),
        lambda scenario: scenario.run_windowing(windowing, aggregate=aggregate),
        (windows(windowing, aggregate),),
        _of_key_or_all(run.scenario),
        _differs,
    )


def _of_pipeline(run: PipelineRun) -> _Subject:
    build, scenario = run.build, run.scenario
    if build is None or not isinstance(scenario, Scenario):
        raise InvalidArgument(
            "the run does not know what was run",
            where=_HERE,
            hint="Ask the run that run_pipeline returned",
        )
    inputs = inputs_of(scenario, build)
    stage = built_on(build, inputs, [External() for _ in inputs]).stage
    return _Subject(
        run.outputs,
        run.late,
        len(scenario.elements),
        lambda other: other.run_pipeline(build),
        _calls(stage),
        _of_key_or_all(scenario),
        _differs,
    )


def _calls(stage: Stage) -> tuple[Call, ...]:
    own = windowed(stage)
    return (GIVEN,) if own is None else (own, GIVEN)


def _of_result(run: Result) -> _Subject:
    trace, stage = run.trace, run._stage
    keys = stage.key_names
    graph = Graph.of([stage])
    build: Build = BuiltPipeline(
        stage, PaneForm(keys) if stage.work.emits_panes else ElementForm(keys)
    )
    sources = [graph.name_of(read) for read in graph.reads]

    def scenarios(selection: Selection) -> Iterator[Scenario]:
        behind = records_behind(trace, sources, selection.key, selection.windows)
        for numbers in ([behind] if behind is not None else []) + [None]:
            for every_turn in (False, True):
                scenario = scenario_of(trace, graph, numbers, every_turn=every_turn)
                yield scenario.apart()  # see above
                yield scenario

    return _Subject(
        run.panes if stage.work.emits_panes else run.elements(),
        run.late,
        run.metrics.read,
        lambda scenario: scenario.run_pipeline(build),
        _calls(stage),
        scenarios,
        lambda: _not_repeated(trace),
    )


def _not_repeated(trace: Trace) -> InvalidArgument:
    """Return the error for a run whose trace does not give the same again."""
    if any(stage.is_resumed for stage in trace.stages):
        return InvalidArgument(
            "the run resumed from the state of an earlier one, whose records the trace does not "
            "have",
            where=_HERE,
            hint="Trace a run from the beginning: without state=, or with another state directory",
        )
    read = [one for one in trace.read.values() if isinstance(one, TracedRecords)]
    if any(one.total > len(one) for one in read):
        return InvalidArgument(
            f"the trace has {sum(map(len, read)):,} of the {sum(one.total for one in read):,} "
            "records that the run read, which do not give the same",
            where=_HERE,
            hint="Keep them all: run it with trace=lw.Tracing(limit=None)",
        )
    return InvalidArgument(
        "the records of the run, in the same bundles, do not give the same",
        where=_HERE,
        hint="Look for what is not the same in each run: the time of day, random numbers, or a "
        "step or process that keeps something outside its cells",
    )
