"""Runs what a test built on the inputs of a scenario, step by step: embedded, or in Spark's levels.

Each step of the scenario is a turn of the run: elements come as one bundle, watermarks and the
clock move, and what comes out of it is collected. Nothing else decides when an input is read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, assert_never, final

import pyarrow as pa

from lowwater.engine.graph.clocks import ManualClock
from lowwater.engine.graph.graph import Graph
from lowwater.engine.graph.trace import Trace
from lowwater.engine.local.outcomes import Outcome
from lowwater.engine.local.runner import LocalRun
from lowwater.engine.records.batch import HIDDEN, Records
from lowwater.engine.records.panes import ErrorRecord, LateRecord
from lowwater.engine.stages.passed import Passed
from lowwater.errors import InvalidArgument
from lowwater.pipeline.outcomes import Outcomes, RunOptions
from lowwater.spark.level import DuplicatesRun, LevelOptions, LevelRun
from lowwater.spark.levels import Levels
from lowwater.spark.messages import Message
from lowwater.spark.signals import CarriedSignals, CarriedTime
from lowwater.spark.source_packer import SourcePacker
from lowwater.spark.state_backends import InlineBackend
from lowwater.state.codec import decode, encode
from lowwater.state.memory import MemoryContents, MemoryStore
from lowwater.state.store import Batch
from lowwater.testing._arrivals import Add, Arrivals, ClockMove, InputEnd, Step, WatermarkMove
from lowwater.testing._inputs import TIME, Build, BuiltPipeline, ScenarioInput, built_on, inputs_of
from lowwater.time import END_OF_TIME, START_OF_TIME, Instant
from lowwater.watermark import External

_UNKNOWN = Instant(START_OF_TIME)
_GROUPS = 3
# Hidden from the pipeline: elements do not have them on other runners.
_CLOCK, _MARK = HIDDEN + "clock", HIDDEN + "watermark"


@final
@dataclass
class Taken:
    """What one step of a scenario gave.

    Args:
        items: The panes or elements that came out, in order.
        late: What was dropped as late, by any stage.
        errors: The dead letters.
        watermark: The input watermark of the last stage after it.
        output_watermark: Its output watermark.
        state_rows: How many rows of state there are after it, of all stages.
    """

    items: list[Any] = field(default_factory=list)
    late: list[LateRecord] = field(default_factory=list)
    errors: list[ErrorRecord] = field(default_factory=list)
    watermark: Instant = _UNKNOWN
    output_watermark: Instant = _UNKNOWN
    state_rows: int = 0

    def add(self, built: BuiltPipeline, outcome: Outcome) -> None:
        """Collect what an outcome of the run has."""
        batch = built.form.batch_of(outcome)
        if batch is not None:
            self.items.extend(built.form.items(batch))
        if outcome.late is not None:
            self.late.extend(outcome.late.to_records())
        self.errors.extend(outcome.errors)


@final
class Moves:
    """Where the clock and the watermark of each input are, and which elements come.

    Args:
        scenario: The scenario.
        inputs: Its inputs.
    """

    def __init__(self, scenario: Arrivals, inputs: Sequence[ScenarioInput]) -> None:
        self.clock = int(scenario.start)
        self.watermarks = [int(scenario.watermark_at_start)] * len(inputs)
        self.ended = [False] * len(inputs)
        self._inputs = inputs
        self._taken = [0] * len(inputs)

    def take(self, step: Step, number: int) -> tuple[int, int, int]:
        """Apply a step; return the input to which elements come, and which: their first and stop.

        Raises:
            InvalidArgument: Elements come to an input that has ended.
        """
        if step.at is not None:
            self.clock = max(self.clock, int(step.at))
        match step:
            case Add(elements, of=of):
                (at,) = self._of(of)
                if self.ended[at]:
                    raise InvalidArgument(
                        f"step {number} of the scenario comes after the end of its input",
                        where="run_pipeline",
                        hint="Call end() last",
                    )
                first = self._taken[at]
                self._taken[at] += len(elements)
                if step.watermark is not None:
                    self.watermarks[at] = max(self.watermarks[at], int(step.watermark))
                return at, first, self._taken[at]
            case WatermarkMove(to, of=of):
                for at in self._of(of):
                    self.watermarks[at] = max(self.watermarks[at], int(to))
            case InputEnd(of=of):
                for at in self._of(of):
                    self.watermarks[at], self.ended[at] = END_OF_TIME, True
            case ClockMove():
                pass
            case _:
                assert_never(step)
        return 0, 0, 0

    def _of(self, name: str | None) -> list[int]:
        if name is None:
            return list(range(len(self._inputs)))
        return [at for at, one in enumerate(self._inputs) if one.name == name]


# -- embedded ------------------------------------------------------------------------------------


@final
class Embedded:
    """The runner of this process, perhaps restarted between steps.

    Args:
        scenario: The scenario.
        build: Builds what is run, for each life of the run anew.
        restarts: After which steps, by number, the run is stopped and resumed; ``None``: it is not
            durable.
        trace: Whether to record a trace.
    """

    def __init__(
        self, scenario: Arrivals, build: Build, restarts: Collection[int] | None, *, trace: bool
    ) -> None:
        self._scenario = scenario
        self._build = build
        self._restarts = restarts
        self._inputs = inputs_of(scenario, build)
        self._contents = MemoryContents()
        self._clock = ManualClock(scenario.start)
        self._traces = trace
        self._begin()

    def steps(self) -> Iterator[Taken]:
        """Yield what came before the first step, and with each step."""
        moves = Moves(self._scenario, self._inputs)
        yield self._taken(self._give(moves, 0, 0, 0))
        for number, step in enumerate(self._scenario.steps):
            ended = list(moves.ended)
            coming = moves.take(step, number)
            self._clock.advance_to(moves.clock)
            over = [at for at, is_over in enumerate(moves.ended) if is_over and not ended[at]]
            yield self._taken(self._end(over) if over else self._give(moves, *coming))
            if self._restarts is not None and number in self._restarts:
                self._restart()

    @property
    def trace(self) -> Trace:
        """The trace of the run."""
        return self._outcomes.trace()

    def _begin(self, known: Any = None) -> None:
        self._marks = [External() for _ in self._inputs]
        self.built = built_on(self._build, self._inputs, self._marks)
        longest = max((len(one.elements) for one in self._inputs), default=1)
        options: RunOptions = {
            "clock": self._clock,
            "on_error": "dead_letter",  # a scenario may be all about invalid elements
            "progress": False,
            "bundle_size": max(50_000, longest),
            "trace": self._traces,
        }
        durable = self._restarts is not None
        self._outcomes = Outcomes((self.built.stage,), options, durable=durable, tells_late=False)
        self._run: LocalRun = self._outcomes.local
        self._source = source_numbers(self._run.graph, self._inputs)
        self._store = MemoryStore(self._contents)
        if durable:
            self._run.resume(self._store, known)

    def _restart(self) -> None:
        batch = Batch()
        known = encode(self._run.save(batch))
        self._store.commit(batch)
        self._begin(decode(known))

    def _give(self, moves: Moves, at: int, first: int, stop: int) -> Iterator[Outcome]:
        for mark, to in zip(self._marks, moves.watermarks, strict=True):
            if to != END_OF_TIME:
                mark.advance_to(Instant(to))
        records = self._inputs[at].records(first, stop) if stop > first else Records({}, 0)
        return self._run.give(self._source[at], records)

    def _end(self, over: Iterable[int]) -> Iterator[Outcome]:
        return self._run.end_of(*(self._source[at] for at in over))

    def _taken(self, outcomes: Iterator[Outcome]) -> Taken:
        taken = Taken()
        for outcome in outcomes:
            taken.add(self.built, outcome)
        stands = self._run.watermarks()[-1]
        taken.watermark, taken.output_watermark = stands.input, stands.output
        taken.state_rows = self._run.state_rows
        return taken


# -- Spark's levels ------------------------------------------------------------------------------


@final
class InLevels:
    """The functions that Spark calls for each key group, without Spark; state is read each time.

    A step is a micro-batch, in which each input has its elements, if any come, and a heartbeat that
    carries the clock and its watermark.

    Args:
        scenario: The scenario.
        build: Builds what is run.
    """

    def __init__(self, scenario: Arrivals, build: Build) -> None:
        self._scenario = scenario
        self._inputs = inputs_of(scenario, build)
        carried = CarriedTime(_MARK, clock=_CLOCK)
        self.built = built_on(build, self._inputs, [carried for _ in self._inputs])
        if isinstance(self.built.stage.work, Passed):
            raise InvalidArgument(
                "the last step of the pipeline is not a stage, and Spark runs stages",
                where='run_pipeline(runner="levels")',
                hint="End it with a join, a table, aggregate(...) or process(...), or use "
                'runner="embedded"',
            )
        graph = Graph.of([self.built.stage])
        self._levels = Levels(graph)
        source = source_numbers(graph, self._inputs)
        ends = frozenset({self._levels.node_of(self._levels.graph.stages[-1]).number})
        self._options = LevelOptions(
            _GROUPS, ends, "dead_letter", keep_records=True, carries_clock=True
        )
        self._packers = [
            SourcePacker(
                self._levels, source[at], CarriedSignals(carried, TIME), _GROUPS, "dead_letter",
                keep_records=True,
            )
            for at in range(len(self._inputs))
        ]  # fmt: skip
        self._tables = [table_of(one) for one in self._inputs]
        self._cells: dict[tuple[int, int], bytes] = {}

    def steps(self) -> Iterator[Taken]:
        """Yield what came before the first step, and with each step."""
        moves = Moves(self._scenario, self._inputs)
        yield self._micro_batch(moves, 0, 0, 0)
        for number, step in enumerate(self._scenario.steps):
            yield self._micro_batch(moves, *moves.take(step, number))

    def _micro_batch(self, moves: Moves, at: int, first: int, stop: int) -> Taken:
        taken = Taken()
        sent: dict[tuple[int, int], list[bytes]] = defaultdict(list)
        for number, packer in enumerate(self._packers):
            rows = (first, stop) if number == at else (0, 0)
            batch = self._batch(moves, number, *rows)
            for packed in packer.pack([batch], 0):
                taken.errors.extend(packed.dead_letters)
                for level, group, message in packed.messages:
                    sent[level, group].append(message.to_bytes())
        ended = all(moves.ended)
        last = self._levels.graph.stages[-1]
        stood: list[tuple[int, int]] = []
        for level in range(1, self._levels.depth + 1):
            for group in range(_GROUPS):
                messages = [Message.of_bytes(data) for data in sent.pop((level, group), [])]
                run = self._call(level, group, messages, ended and level == 1, sent, taken)
                for node, one in zip(self._levels.at(level), run.runs, strict=True):
                    if isinstance(one, DuplicatesRun):
                        continue
                    taken.state_rows += one.operator.state_rows
                    if node.stage is last:
                        stood.append((one.operator.watermark, one.operator.output_watermark))
        taken.watermark = Instant(min(into for into, _ in stood))
        taken.output_watermark = Instant(min(out for _, out in stood))
        return taken

    def _call(
        self,
        level: int,
        group: int,
        messages: Sequence[Message],
        ended: bool,
        sent: dict[tuple[int, int], list[bytes]],
        taken: Taken,
    ) -> LevelRun:
        kept = InlineBackend().keep(level, group, self._cells.get((level, group)))
        run = LevelRun(self._levels, level, group, self._options)
        with kept.opened() as store:
            run.resume(store)
            output = run.step(messages, None, ended=ended)
            batch = Batch()
            run.save(batch)
            self._cells[level, group] = kept.save(batch)
        for to, to_group, message in output.messages:
            sent[to, to_group].append(message.to_bytes())
        for node, outcome in output.outcomes:
            is_end = node.number in self._options.ends
            shown = outcome if is_end else Outcome(late=outcome.late, errors=outcome.errors)
            taken.add(self.built, shown)
        return run

    def _batch(self, moves: Moves, at: int, first: int, stop: int) -> pa.RecordBatch:
        """Return the elements of a micro-batch of one input, and its heartbeat."""
        part = self._tables[at].slice(first, stop - first)
        heartbeat = pa.RecordBatch.from_pylist([{}], schema=part.schema)
        whole = pa.concat_batches([*part.to_batches(), heartbeat])
        watermark = moves.watermarks[at]
        mark = None if watermark == START_OF_TIME else watermark
        whole = whole.append_column(_CLOCK, pa.array([moves.clock] * len(whole), pa.int64()))
        marks = [*[None] * (len(whole) - 1), mark]
        return whole.append_column(_MARK, pa.array(marks, pa.int64()))


def table_of(one: ScenarioInput) -> pa.Table:
    """Return the elements of an input as Arrow.

    Raises:
        InvalidArgument: An event time is unreadable, or a column has no type in Arrow.
    """
    if not all(isinstance(element.time, Instant) for element in one.elements):
        raise InvalidArgument(
            "an event time of the scenario is unreadable, and Spark's records have typed columns",
            where='run_pipeline(runner="levels")',
            hint='Test invalid event times with runner="embedded"',
        )
    try:
        return pa.table({name: column.to_arrow() for name, column in one.columns.items()})
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InvalidArgument(
            f"a column of the scenario has no type in Arrow: {error}",
            where='run_pipeline(runner="levels")',
            hint="Give all its values one type",
        ) from None


def source_numbers(graph: Graph, inputs: Sequence[ScenarioInput]) -> list[int]:
    """Return the number of each input among the sources of a graph.

    Raises:
        InvalidArgument: The graph does not read one of them, or reads another source.
    """
    sources = [read.source for read in graph.reads]
    for one in inputs:
        if one not in sources:
            raise InvalidArgument(
                f"the pipeline does not read the input {one.name!r}",
                where="run_pipeline",
                hint="Use every stream that the function is given",
            )
    if len(sources) > len(inputs):
        raise InvalidArgument(
            f"the pipeline reads {len(sources) - len(inputs)} more sources than the scenario has",
            where="run_pipeline",
            hint="Build it on the streams that the function is given, and on nothing else",
        )
    return [sources.index(one) for one in inputs]
