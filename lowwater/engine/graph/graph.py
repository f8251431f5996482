"""A pipeline as a graph of sources and stages: immutable values without state.

A stage holds the flows it reads, and a flow the source or stage it comes from. Values are built
bottom-up, so there can be no cycle. Two flows from the same value form a branch.

The file is long because these values contain one another, and each checks what it is built from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, final

import pyarrow as pa

from lowwater.engine.aggregates import AggregateSpec
from lowwater.engine.aggregates._base import Needs
from lowwater.engine.graph.clocks import ClockLike
from lowwater.engine.graph.finding import Finding, Upstream
from lowwater.engine.graph.input_types import InputTypes
from lowwater.engine.graph.operator import Operator
from lowwater.engine.graph.sources import Source
from lowwater.engine.join.joining import AsOf, Joining
from lowwater.engine.records.admission import Admission, Check, OnError
from lowwater.engine.records.admit_bounds import PartnerBounds
from lowwater.engine.records.admit_times import PLAIN, TimeFormat
from lowwater.engine.records.deduplicate import Deduplication
from lowwater.engine.records.stage_bundle import StageBundle
from lowwater.engine.records.stage_output import MAIN as MAIN
from lowwater.engine.records.stateless import AddWhole, Filter
from lowwater.engine.records.stepping import Step
from lowwater.engine.records.steps import Bundle
from lowwater.engine.window.windowing import Windowing
from lowwater.errors import InvalidArgument
from lowwater.time import Int64Array
from lowwater.watermark import WatermarkEstimator

if TYPE_CHECKING:
    from lowwater.engine.match.rules import Matching
    from lowwater.engine.over.rules import Over
    from lowwater.windows import CountWindows


@final
@dataclass(frozen=True, slots=True, eq=False)
class Read:
    """A source as a pipeline reads it.

    Args:
        source: The source of records.
        time: The column of event times.
        times: How times are written that do not say it themselves.
        watermark: The watermark estimator; ``None``: no watermark until the input ends.
        clock: The clock for processing time, if the source brings one.
        name: The name that the user gave it, if any.
        max_ahead_us: How far ahead of the clock an event time may be; ``None``: any distance.
        idle_after_us: After this long without elements, by the clock, other sources stop waiting
            for this one; ``None``: never.
        ends: Whether its input ends with what is there, in runs up to what is available too.
        arrives: Whether event times are the clock at arrival, in a column that the reader adds.
    """

    source: Source
    time: str
    times: TimeFormat = PLAIN
    watermark: WatermarkEstimator | None = None
    clock: ClockLike | None = None
    name: str | None = None
    max_ahead_us: int | None = None
    idle_after_us: int | None = None
    ends: bool = False
    arrives: bool = False


class Work(Protocol):
    """What a stage does: each kind of stage is a module of :mod:`lowwater.engine.stages`.

    Everything that differs from kind to kind is asked here, so that nothing else need know which
    kinds there are. The facts that most kinds share have defaults in
    :class:`lowwater.engine.stages.kind.StageKind`, which also says what they mean.
    """

    @property
    def stored_as(self) -> str: ...
    @property
    def windowing(self) -> Windowing | None: ...
    @property
    def aggregates(self) -> Mapping[str, AggregateSpec]: ...
    @property
    def outputs(self) -> tuple[str, ...]: ...
    @property
    def retracts(self) -> bool: ...
    @property
    def emits_panes(self) -> bool: ...
    @property
    def passes_signs(self) -> bool: ...
    @property
    def fires(self) -> bool: ...
    @property
    def spills(self) -> bool: ...
    @property
    def keeps_rows(self) -> bool: ...
    @property
    def makes_table(self) -> bool: ...
    @property
    def takes_null_keys(self) -> bool: ...
    @property
    def takes_whole_records(self) -> bool: ...
    @property
    def keys_are_ids(self) -> bool: ...
    @property
    def reads_right(self) -> bool: ...
    @property
    def join_rules(self) -> Joining | AsOf | None: ...
    @property
    def match_rules(self) -> Matching | None: ...
    @property
    def over_rules(self) -> Over | None: ...
    @property
    def count_windows(self) -> CountWindows | None: ...
    @property
    def noun(self) -> str: ...
    @property
    def lateness_option(self) -> str: ...

    def inputs_on_left(self, count: int) -> int:
        """Return how many of a stage's inputs are not a join's right side."""
        ...

    def side_name(self, nth: int) -> str:
        """Return what an input of a join is called; empty for other stages."""
        ...

    def keys_of(self, nth: int, keys: tuple[str, ...]) -> tuple[str, ...]:
        """Return the key columns of an input, given those of the stage."""
        ...

    def lateness_behind(self, upstream_us: Callable[[], int]) -> int:
        """Return how far below its output watermark it may emit, in microseconds.

        Args:
            upstream_us: Returns how far upstream stages may: without windows it accepts late
                records.
        """
        ...

    def needs(self) -> dict[str, Needs]:
        """Return what it needs of columns that its operator computes with, by name."""
        ...

    def readers(self) -> Mapping[str, str]:
        """Return columns that an argument of the user's names, with the argument."""
        ...

    def orders(self, nth: int) -> Mapping[str, str]:
        """Return the columns by which it orders what comes by an input, with the argument."""
        ...

    def checks(self, nth: int) -> Mapping[str, Check]:
        """Return how columns of an input are checked that its operator reads as they are."""
        ...

    def partners(self, nth: int) -> PartnerBounds | None:
        """Return which columns of an input bound the records that its own meet, if some do."""
        ...

    def operator(self, stage: Stage) -> Operator:
        """Make the operator."""
        ...

    def step(
        self, stage: Stage, incoming: StageBundle, kept: Int64Array | None
    ) -> tuple[Bundle, Any]:
        """Return a bundle with the columns that the operator reads, and the operator's step.

        Args:
            stage: The stage.
            incoming: The bundle.
            kept: The places of its elements that are no duplicates; ``None`` for all.
        """
        ...

    def advance(self, to: int, right: int) -> Any:
        """Return the step that advances the operator's watermark.

        Args:
            to: The watermark of all inputs, int microseconds.
            right: That of the right side, where it matters by itself (``reads_right``).
        """
        ...

    def described(self) -> dict[str, Any]:
        """Return what state directories and checkpoints know of it, besides keys and windows.

        Runs compare it with what an earlier run stored, so an entry that came later is left out
        where it has its default.
        """
        ...

    def outline(self, stage: Stage) -> str:
        """Format the stage and everything upstream of it on one line, as in a repr."""
        ...

    def summary(self, stage: Stage) -> Iterator[str]:
        """Yield lines that say what it does, besides windows and triggers, as in pictures."""
        ...

    def lines(self, stage: Stage) -> Iterator[str]:
        """Yield the lines of its explanation, besides keys, windows and triggers."""
        ...

    def emitted_types(
        self, stage: Stage, types: InputTypes
    ) -> dict[str, pa.DataType | None] | None:
        """Return the types of what it emits besides keys; ``None`` in place of unknown ones.

        Of a process, whose fields are not known at all, return ``None``.
        """
        ...

    def findings(self, stage: Stage, where: str, upstream: Sequence[Upstream]) -> Iterator[Finding]:
        """Yield likely mistakes.

        Args:
            stage: The stage.
            where: Its name.
            upstream: What is known of the sources behind each of its inputs.
        """
        ...


@final
@dataclass(frozen=True, slots=True, eq=False)
class Flow:
    """One input of a stage: records from an origin, through stateless steps.

    Args:
        origin: The source or stage that the records come from.
        steps: The stateless steps, which run fused.
        time: The column of event times, after the steps.
        times: How times are written that do not say it themselves.
        output: Which output of the origin is read.
    """

    origin: Origin
    steps: tuple[Step, ...]
    time: str
    times: TimeFormat = PLAIN
    output: str = MAIN


@final
@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """A stage with keyed state.

    Args:
        inputs: The flows that it reads; several form a union.
        keys: The key columns.
        key_names: The names of the key columns in its output.
        work: What it does: windows and aggregates, a process, a join, a table.
        deduplication: How duplicates are dropped before grouping; ``None``: they are kept.
        name: The name that the user gave it, if any.
    """

    inputs: tuple[Flow, ...]
    keys: tuple[str, ...]
    key_names: tuple[str, ...]
    work: Work
    deduplication: Deduplication | None = None
    name: str | None = None

    @property
    def windowing(self) -> Windowing | None:
        """Its windows, trigger and lateness; ``None`` for a process without windows."""
        return self.work.windowing

    @property
    def fires(self) -> bool:
        """Whether it has a trigger: a process in windows has none."""
        return self.work.fires

    @property
    def spills(self) -> bool:
        """Whether its state obeys a limit of memory: windows, joins and tables do."""
        return self.work.spills

    @property
    def right_inputs(self) -> tuple[Flow, ...]:
        """The inputs of a join that are its right side; none of another stage."""
        return self.inputs[self.work.inputs_on_left(len(self.inputs)) :]

    @property
    def left_inputs(self) -> tuple[Flow, ...]:
        """The inputs of a join that are its left side; all of another stage."""
        return self.inputs[: self.work.inputs_on_left(len(self.inputs))]

    @property
    def reads_right(self) -> bool:
        """Whether the right side's watermark matters by itself, as in joins as of time (J-8)."""
        return self.work.reads_right

    @property
    def lateness_us(self) -> int:
        """How far below its output watermark it may still emit, in microseconds."""
        return self.work.lateness_behind(self._upstream_lateness)

    def _upstream_lateness(self) -> int:
        origins = [flow.origin for flow in self.inputs]
        stages = (origin for origin in origins if isinstance(origin, Stage))
        return max((stage.lateness_us for stage in stages), default=0)

    @property
    def retracts(self) -> bool:
        """Whether its output contains retractions."""
        return self.work.retracts or (self.work.passes_signs and self.signed)

    @property
    def makes_table(self) -> bool:
        """Whether its output is the changes of a table, which may be of any time (T-2)."""
        return self.work.makes_table

    @property
    def takes_null_keys(self) -> bool:
        """Whether a key may be null, as in joins and groups of tables (T-3)."""
        return self.work.takes_null_keys

    @property
    def signed(self) -> bool:
        """Whether its input contains retractions."""
        return any(is_signed(flow) for flow in self.inputs)

    def keys_of(self, nth: int) -> tuple[str, ...]:
        """Return the key columns of one of its inputs."""
        return self.work.keys_of(nth, self.keys)


Origin: TypeAlias = Read | Stage


def is_signed(flow: Flow) -> bool:
    """Whether the records of a flow may be retractions."""
    if any(step.removes_signs for step in flow.steps):
        return False
    return isinstance(flow.origin, Stage) and flow.origin.retracts


@final
@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """The sources and stages that the outputs of a pipeline depend on, in topological order.

    Args:
        reads: The sources, in order of discovery.
        stages: The stages, each after those it reads.
        names: The name of each, sources first; all are distinct.
    """

    reads: tuple[Read, ...]
    stages: tuple[Stage, ...]
    names: tuple[str, ...]

    @classmethod
    def of(cls, ends: Iterable[Stage]) -> Graph:
        """Return the graph of everything upstream of some stages. O(stages + flows).

        Raises:
            InvalidArgument: Two sources or stages have the same name, or one that of an output.
        """
        reads: dict[Read, None] = {}
        stages: dict[Stage, None] = {}
        for end in ends:
            _visit(end, reads, stages)
        found = tuple(_names([read.name for read in reads], [stage.name for stage in stages]))
        for name, stage in zip(found[len(reads) :], stages, strict=True):
            for tag in stage.work.outputs:
                if tag != MAIN and name_of_output(name, tag) in found:
                    raise InvalidArgument(
                        f"a part of the pipeline is named {name_of_output(name, tag)!r}, which is "
                        f"what the output {tag!r} of {name!r} is called",
                        where="named",
                        hint="Give it another name",
                    )
        return cls(tuple(reads), tuple(stages), found)

    def name_of(self, origin: Origin) -> str:
        """Return the name of a source or stage."""
        if isinstance(origin, Read):
            return self.names[self.reads.index(origin)]
        return self.names[len(self.reads) + self.stages.index(origin)]

    def into(self, origin: Origin) -> Iterator[tuple[int, int]]:
        """Yield (stage number, flow number) for each flow that reads an origin, in order."""
        for at, stage in enumerate(self.stages):
            for nth, flow in enumerate(stage.inputs):
                if flow.origin is origin:
                    yield at, nth

    def behind(self, end: Stage) -> frozenset[Stage]:
        """Return a stage and all stages upstream of it."""
        reads: dict[Read, None] = {}
        stages: dict[Stage, None] = {}
        _visit(end, reads, stages)
        return frozenset(stages)


def name_of_output(stage: str, output: str) -> str:
    """Return the name of an output of a stage, as errors, ``remove=`` and stored runs have it."""
    return stage if output == MAIN else f"{stage}[{output!r}]"


def admission_of(
    stage: Stage, nth: int, on_error: OnError, max_ahead_us: int | None = None
) -> Admission:
    """Return what admits the records of an input to a stage: it knows what the stage can take.

    Args:
        stage: The stage.
        nth: Which of its inputs.
        on_error: How invalid records are handled.
        max_ahead_us: How far beyond the clock an event time may be, in microseconds.
    """
    work, flow = stage.work, stage.inputs[nth]
    windows = None if work.windowing is None else work.windowing.windows
    own = () if windows is None else windows.columns
    return Admission(
        time=flow.time,
        keys=stage.keys_of(nth),
        needs={name: need for name, need in work.needs().items() if name not in own},
        windows=windows,
        partners=work.partners(nth),
        on_error=on_error,
        times=flow.times,
        ids=() if stage.deduplication is None else stage.deduplication.columns,
        max_ahead_us=max_ahead_us,
        sound_keys=_sound_keys(stage, flow),
        null_keys=stage.takes_null_keys,
        readers=dict(work.readers()),
        orders=dict(work.orders(nth)),
        checks=dict(work.checks(nth)),
        is_whole=work.takes_whole_records or any(isinstance(step, AddWhole) for step in flow.steps),
    )


def _sound_keys(stage: Stage, flow: Flow) -> tuple[str, ...]:
    """Return columns that need no check: keys from before that no step has touched, and ids."""
    origin = flow.origin
    if stage.work.keys_are_ids:
        return stage.keys  # ids are checked already
    if not isinstance(origin, Stage) or not origin.work.emits_panes:
        return ()
    return origin.key_names if all(isinstance(step, Filter) for step in flow.steps) else ()


def _visit(stage: Stage, reads: dict[Read, None], stages: dict[Stage, None]) -> None:
    """Collect the upstream of a stage, then the stage; iterative, because chains may be long."""
    waiting: list[tuple[Stage, bool]] = [(stage, False)]
    while waiting:
        one, inputs_done = waiting.pop()
        if one in stages:
            continue
        if inputs_done:
            stages[one] = None
            continue
        waiting.append((one, True))
        origins = [flow.origin for flow in reversed(one.inputs)]
        waiting.extend((origin, False) for origin in origins if isinstance(origin, Stage))
        for flow in one.inputs:
            if isinstance(flow.origin, Read):
                reads.setdefault(flow.origin)


def _names(reads: Sequence[str | None], stages: Sequence[str | None]) -> Iterator[str]:
    given = [name for name in (*reads, *stages) if name is not None]
    for name in given:
        if given.count(name) > 1:
            raise InvalidArgument(
                f"two parts of the pipeline are named {name!r}",
                where="named",
                hint="Give each its own name",
            )
    taken = set(given)
    for kind, names in (("source", reads), ("stage", stages)):
        for at, said in enumerate(names):
            yield said if said is not None else _free(kind, at + 1, taken)


def _free(kind: str, number: int, taken: set[str]) -> str:
    name = f"{kind} {number}"
    while name in taken:
        name += "'"
    taken.add(name)
    return name
