"""A pipeline as a graph of sources and stages: immutable values without state.

A stage holds the flows it reads, and a flow the source or stage it comes from. Values are built
bottom-up, so there can be no cycle. Two flows from the same value form a branch.

The file is long because these values contain one another, and each checks what it is built from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, TypeAlias, final

from lowwater.engine.aggregates import AggregateSpec
from lowwater.engine.aggregates._base import strictest_needs
from lowwater.engine.graph.clocks import ClockLike
from lowwater.engine.graph.sources import Source
from lowwater.engine.join.changes import DebeziumForm, UpsertForm
from lowwater.engine.join.joining import LEFT, RIGHT, AsOf, How, Joining, Side
from lowwater.engine.join.pairs import JoinedColumns, Types
from lowwater.engine.join.tables import DELETED, Upserting
from lowwater.engine.process.output import Order
from lowwater.engine.records.admission import Admission, OnError
from lowwater.engine.records.admit_times import PLAIN, TimeFormat
from lowwater.engine.records.deduplicate import Deduplication
from lowwater.engine.records.stage_output import MAIN as MAIN
from lowwater.engine.records.stateless import AddWhole, Filter
from lowwater.engine.records.stepping import Step
from lowwater.engine.window.windowing import Windowing
from lowwater.errors import InvalidArgument
from lowwater.watermark import WatermarkEstimator


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
    """

    source: Source
    time: str
    times: TimeFormat = PLAIN
    watermark: WatermarkEstimator | None = None
    clock: ClockLike | None = None
    name: str | None = None
    max_ahead_us: int | None = None
    idle_after_us: int | None = None


class StageKind:
    """What a kind of stage is, as far as it does not depend on the stage; each states what differs.

    ``stored_as`` is what state directories call the form of its rows; ``emits_panes`` says that
    panes come out, not records; ``passes_signs`` that retractions come out if any come in;
    ``fires`` that it has a trigger; ``spills`` that its state obeys a limit of memory;
    ``keeps_rows`` that it keeps records as they came; ``makes_table`` that its output is the
    changes of a table, which may be of any time (T-2); ``takes_null_keys`` that a key may be null
    (T-3); and ``reads_right`` that the watermark of a join's right side matters by itself (J-8).
    """

    __slots__ = ()

    stored_as: ClassVar[str]
    emits_panes: ClassVar[bool] = False
    passes_signs: ClassVar[bool] = False
    fires: ClassVar[bool] = False
    spills: ClassVar[bool] = True
    keeps_rows: ClassVar[bool] = False

    @property
    def makes_table(self) -> bool:
        return False

    @property
    def takes_null_keys(self) -> bool:
        return self.makes_table

    @property
    def reads_right(self) -> bool:
        return False

    def side_name(self, nth: int) -> str:
        """Return what an input of a join is called; empty for other stages."""
        return ""

    def lateness_behind(self, upstream_us: Callable[[], int]) -> int:
        """Return how far below its output watermark it may emit, in microseconds.

        Args:
            upstream_us: Returns how far upstream stages may: without windows it accepts late
                records.
        """
        return upstream_us()

    def keys_of(self, nth: int, keys: tuple[str, ...]) -> tuple[str, ...]:
        """Return the key columns of an input, given those of the stage."""
        return keys


@final
@dataclass(frozen=True, slots=True)
class Windowed(StageKind):
    """The work of a windowed stage: group by key and window, aggregate, emit panes."""

    windowing: Windowing
    aggregates: Mapping[str, AggregateSpec]

    stored_as: ClassVar[str] = "windows"
    emits_panes: ClassVar[bool] = True
    fires: ClassVar[bool] = True
    outputs: ClassVar[tuple[str, ...]] = (MAIN,)

    def lateness_behind(self, upstream_us: Callable[[], int]) -> int:
        return self.windowing.lateness_us

    @property
    def retracts(self) -> bool:
        """Whether it emits retractions."""
        return self.windowing.mode == "retracting"


@final
@dataclass(frozen=True, slots=True)
class Computed(StageKind):
    """The work of a process stage: user-defined state and timers, per key or per key and window.

    Args:
        process: The user's object.
        windowing: The windows and their lateness; ``None`` for a process without windows.
        outputs: The tags of its outputs, the main one first.
        retracts: Whether it emits retractions (S-K12).
        lateness_us: How far below the output watermark it may emit by itself, in microseconds.
        order: Whether records come in order of arrival or of event time (S-K13).
    """

    process: object
    windowing: Windowing | None
    outputs: tuple[str, ...]
    retracts: bool = False
    lateness_us: int = 0
    order: Order = "arrival"

    stored_as: ClassVar[str] = "process"
    spills: ClassVar[bool] = False
    aggregates: ClassVar[Mapping[str, AggregateSpec]] = MappingProxyType({})

    def lateness_behind(self, upstream_us: Callable[[], int]) -> int:
        if self.order == "event_time":
            return self.lateness_us  # it accepts no late records
        accepted = upstream_us() if self.windowing is None else self.windowing.lateness_us
        return max(accepted, self.lateness_us)


@final
@dataclass(frozen=True, slots=True)
class Joined(StageKind):
    """The work of a join: of two streams by time, or with a history (J-1 to J-6, J-8, J-9).

    Args:
        joining: The rules.
        left: How many of the stage's inputs are the left side; the others are the right.
        right_keys: The key columns of the right side; the stage's own are those of the left.
        columns: The columns of both sides, and their names in the output.
    """

    joining: Joining | AsOf
    left: int
    right_keys: tuple[str, ...]
    columns: JoinedColumns

    stored_as: ClassVar[str] = "join"
    windowing: ClassVar[None] = None
    passes_signs: ClassVar[bool] = True
    keeps_rows: ClassVar[bool] = True
    outputs: ClassVar[tuple[str, ...]] = (MAIN,)
    aggregates: ClassVar[Mapping[str, AggregateSpec]] = MappingProxyType({})

    @property
    def retracts(self) -> bool:
        """Whether it retracts even if its inputs never do (J-5)."""
        return self.joining.retracts

    @property
    def makes_table(self) -> bool:
        return isinstance(self.joining, Joining) and self.joining.within is None

    @property
    def reads_right(self) -> bool:
        return isinstance(self.joining, AsOf)

    def side_name(self, nth: int) -> str:
        names = ("facts", "versions") if isinstance(self.joining, AsOf) else ("left", "right")
        return names[self.side_of(nth) == RIGHT]

    @property
    def emits_pairs(self) -> bool:
        """Whether pairs come out, rather than rows of the left side."""
        return self.joining.emits_pairs

    def lateness_behind(self, upstream_us: Callable[[], int]) -> int:
        return self.joining.emits_late_us or upstream_us()

    def keys_of(self, nth: int, keys: tuple[str, ...]) -> tuple[str, ...]:
        return self.right_keys if self.side_of(nth) == RIGHT else keys

    def side_of(self, nth: int) -> Side:
        """Return the side that an input of the stage belongs to."""
        return LEFT if nth < self.left else RIGHT


@final
@dataclass(frozen=True, slots=True)
class WindowJoined(StageKind):
    """The work of a join within windows: both sides are grouped together, then paired (J-7).

    Args:
        windowing: The windows of both sides, and when they fire.
        how: Which rows come out.
        left: How many of the stage's inputs are the left side; the others are the right.
        right_keys: The key columns of the right side; the stage's own are those of the left.
        columns: The columns of both sides, and their names in the output.
    """

    windowing: Windowing
    how: How
    left: int
    right_keys: tuple[str, ...]
    columns: JoinedColumns

    stored_as: ClassVar[str] = "windows"
    fires: ClassVar[bool] = True
    outputs: ClassVar[tuple[str, ...]] = (MAIN,)
    aggregates: ClassVar[Mapping[str, AggregateSpec]] = MappingProxyType({})

    def lateness_behind(self, upstream_us: Callable[[], int]) -> int:
        return self.windowing.lateness_us

    def keys_of(self, nth: int, keys: tuple[str, ...]) -> tuple[str, ...]:
        return self.right_keys if self.side_of(nth) == RIGHT else keys

    def side_name(self, nth: int) -> str:
        return "right" if self.side_of(nth) == RIGHT else "left"

    @property
    def emits_pairs(self) -> bool:
        """Whether pairs come out, rather than rows of the left side."""
        return self.how not in ("semi", "anti")

    @property
    def retracts(self) -> bool:
        """Whether it emits retractions."""
        return self.windowing.mode == "retracting"

    def side_of(self, nth: int) -> Side:
        """Return the side that an input of the stage belongs to."""
        return LEFT if nth < self.left else RIGHT


@final
@dataclass(frozen=True, slots=True)
class Upserted(StageKind):
    """The work of a table that is made from upserts (T-1).

    Args:
        rules: What makes an upsert newer than another, and how long rows are kept.
        columns: The columns, without the primary key, as far as they are known, with their types.
        deletes: Whether the hidden column ``DELETED`` says which records delete their row.
    """

    rules: Upserting
    columns: Types
    deletes: bool = False

    stored_as: ClassVar[str] = "table"
    windowing: ClassVar[None] = None
    keeps_rows: ClassVar[bool] = True
    retracts: ClassVar[bool] = True
    outputs: ClassVar[tuple[str, ...]] = (MAIN,)
    aggregates: ClassVar[Mapping[str, AggregateSpec]] = MappingProxyType({})

    @property
    def makes_table(self) -> bool:
        return True

    @property
    def takes_null_keys(self) -> bool:
        return False


@final
@dataclass(frozen=True, slots=True)
class Passed(StageKind):
    """The work of a stream whose records leave as they came.

    It is run by itself, without keys; or its duplicates are dropped before a join, and its keys are
    the ids.
    """

    stored_as: ClassVar[str] = "records"
    windowing: ClassVar[None] = None
    passes_signs: ClassVar[bool] = True
    spills: ClassVar[bool] = False
    retracts: ClassVar[bool] = False
    outputs: ClassVar[tuple[str, ...]] = (MAIN,)
    aggregates: ClassVar[Mapping[str, AggregateSpec]] = MappingProxyType({})


@final
@dataclass(frozen=True, slots=True)
class Grouped(StageKind):
    """The work of a table that aggregates the rows of another (T-3)."""

    aggregates: Mapping[str, AggregateSpec]

    stored_as: ClassVar[str] = "table"
    windowing: ClassVar[None] = None
    retracts: ClassVar[bool] = True
    outputs: ClassVar[tuple[str, ...]] = (MAIN,)
    keeps_rows: ClassVar[bool] = True

    @property
    def makes_table(self) -> bool:
        return True


Work: TypeAlias = Windowed | Computed | Joined | WindowJoined | Passed | Upserted | Grouped


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
        work: The windowing and aggregates, the process, or the join; or records pass as they are.
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
        left: int = getattr(self.work, "left", len(self.inputs))
        return self.inputs[left:]

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
        return max((one.lateness_us for one in origins if isinstance(one, Stage)), default=0)

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
    if any(isinstance(step, (UpsertForm, DebeziumForm)) for step in flow.steps):
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
    durations = () if work.windowing is None else work.windowing.windows.columns
    needs = strictest_needs(work.aggregates)
    readers: dict[str, str] = {}
    if isinstance(work, Upserted) and work.deletes:
        needs[DELETED] = "booleans"
        readers[DELETED] = "table(deleted=)"
    return Admission(
        time=flow.time,
        keys=stage.keys_of(nth),
        needs={name: need for name, need in needs.items() if name not in durations},
        durations=durations,
        on_error=on_error,
        times=flow.times,
        ids=() if stage.deduplication is None else stage.deduplication.columns,
        max_ahead_us=max_ahead_us,
        sound_keys=_sound_keys(stage, flow),
        null_keys=stage.takes_null_keys,
        readers=readers,
        orders=_orders(work, nth),
        is_whole=not isinstance(work, (Windowed, Grouped))
        or any(isinstance(step, AddWhole) for step in flow.steps),
    )


def _orders(work: Work, nth: int) -> dict[str, str]:
    """Return the columns by which a stage orders what comes by an input, and its argument."""
    if isinstance(work, Upserted) and isinstance(work.rules, Upserting):
        order, argument = work.rules.order, "table(order=)"
    elif isinstance(work, Joined) and isinstance(work.joining, AsOf) and work.side_of(nth) == RIGHT:
        order, argument = work.joining.order, "join_as_of(order=)"
    else:
        return {}
    return {} if order is None else {order: argument}


def _sound_keys(stage: Stage, flow: Flow) -> tuple[str, ...]:
    """Return columns that need no check: keys from before that no step has touched, and ids."""
    origin = flow.origin
    if isinstance(stage.work, Passed):
        return stage.keys  # they are checked as ids
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
