"""Runs one key group of one level in one micro-batch: the function that Spark's operators call.

It knows nothing of Spark, and reads no clock: it takes messages and the state of the last
micro-batch, and gives messages, output rows and the next state. In each call, for each node of the
level in topological order: the clock moves to the micro-batch's time, the elements of each input
arrive as one bundle, and the watermark moves to the lowest that is upstream (S-O8, S-H3).

The file is long because the order of all that happens in a micro-batch is the meaning of a run on
Spark, and is read in one place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, final

import numpy as np

from lowwater.engine.graph.graph import Flow, Read, admission_of, is_signed
from lowwater.engine.graph.metrics import StageMetrics
from lowwater.engine.local.compatibility import differences
from lowwater.engine.local.duplicates import DuplicateFilter
from lowwater.engine.local.estimator_input import ObservedBatch
from lowwater.engine.local.health.conservation import (
    Differences,
    InputCounts,
    stage_difference,
)
from lowwater.engine.local.key_order import AT, WHOSE, minds_order, with_order
from lowwater.engine.local.outcomes import Outcome, refusal_of
from lowwater.engine.local.source_watermark import SourceWatermark, followed
from lowwater.engine.local.stage_input import StageAdmission
from lowwater.engine.local.stage_run import StageRun
from lowwater.engine.records.admission import Admitted, OnError
from lowwater.engine.records.stage_bundle import StageBundle
from lowwater.engine.records.stateless import set_aside
from lowwater.engine.records.stepping import applied
from lowwater.errors import DataError, StateError
from lowwater.spark.levels import Edge, LevelNode, Levels, is_split, rank
from lowwater.spark.messages import Elements, Message, Port, observed_records
from lowwater.state.codec import decode, encode
from lowwater.state.key_layout import StoredPlace
from lowwater.state.store import Batch, StateStore
from lowwater.time import END_OF_TIME, START_OF_TIME
from lowwater.watermark import Hold

FACTS = bytes(4) + b"\x03"
"""The key of what a key group knows besides the rows of its stages. No stage's keys begin so."""


@final
@dataclass(frozen=True, slots=True)
class LevelOptions:
    """How all levels of a query run.

    Args:
        key_groups: How many key groups there are.
        ends: The stages whose output leaves the pipeline, by number of their node.
        on_error: How invalid records are handled; ``None``: they are dead letters, but a function
            that fails stops the query.
        keep_records: Whether late elements leave the pipeline too, with their records.
        carries_clock: Whether records carry the clock, which then stands still without records.
        memory: About how many bytes the state of a stage in a key group may take; ``None``: any
            number.
    """

    key_groups: int
    ends: frozenset[int]
    on_error: OnError | None = None
    keep_records: bool = False
    carries_clock: bool = False
    memory: int | None = None


@final
@dataclass(slots=True)
class NodeCounts:
    """What a node did in one call.

    Args:
        events: The elements it took.
        metrics: What it emitted and dropped.
        sent: The elements that it sent to the nodes downstream.
        dead_letters: The records that it emitted and that cannot be held, or read downstream.
        hold: What holds its output watermark, if anything.
    """

    events: int = 0
    sent: int = 0
    metrics: StageMetrics = field(default_factory=StageMetrics)
    dead_letters: int = 0
    hold: Hold | None = None


@final
@dataclass(slots=True)
class LevelOutput:
    """What one call gave.

    Args:
        messages: What is sent: the level, the key group and the message; one object to several
            key groups if they get the same.
        outcomes: What leaves the pipeline, with the node that it is of.
        counts: What each node did, by its number.
    """

    messages: list[tuple[int, int, Message]] = field(default_factory=list)
    outcomes: list[tuple[LevelNode, Outcome]] = field(default_factory=list)
    counts: dict[int, NodeCounts] = field(default_factory=dict)


@final
class DuplicatesRun:
    """A node that drops duplicates, and nothing else (S-D1).

    Args:
        node: The node.
    """

    def __init__(self, node: LevelNode) -> None:
        self.node = node
        self.watermark = START_OF_TIME
        self._duplicates = DuplicateFilter(node.stage.deduplication)

    def keep_in_store(self, place: StoredPlace) -> None:
        """Keep ids in the store."""
        self._duplicates.keep_in_store(place)

    def save(self, batch: Batch) -> None:
        """Add the changes since the last save to a batch."""
        self._duplicates.save(batch, self.watermark)

    def resume(self, store: StateStore) -> None:
        """Use the store from now on."""
        self._duplicates.restore(store)

    def take(self, elements: Elements, metrics: StageMetrics) -> Elements:
        """Return the elements whose id was not seen."""
        times = elements.bundle.times
        kept = self._duplicates.kept(elements.ids, times, self.watermark, metrics)
        return elements if kept is None else elements.take(kept)


def require_same(stored: bytes, now: bytes) -> None:
    """Raise if state is that of another pipeline, given the descriptions of both.

    Raises:
        StateError: It is, with what differs.
    """
    differs = [] if stored == now else list(differences(decode(stored), decode(now)))
    if differs:
        raise StateError(
            f"the checkpoint belongs to another pipeline: {'; '.join(differs)}",
            where="to_spark",
            hint="Run the pipeline as it was, or begin with a new checkpoint",
        )


NodeRun: TypeAlias = DuplicatesRun | StageRun


@final
class LevelRun:
    """What a key group of a level is while it runs, between two saves.

    Args:
        levels: The graph.
        level: The level.
        key_group: The key group.
        options: How all levels run.
    """

    def __init__(self, levels: Levels, level: int, key_group: int, options: LevelOptions) -> None:
        self.level = level
        self.key_group = key_group
        self._levels = levels
        self._options = options
        self._nodes = levels.at(level)
        self.runs = [_run_of(node, levels, options) for node in self._nodes]
        reads = levels.graph.reads if level in levels.levels_told() else ()
        self.sources = [SourceWatermark(read) for read in reads]
        self._above = {
            upstream: np.full(options.key_groups, START_OF_TIME, dtype=np.int64)
            for node in self._nodes
            for upstream in node.upstream
        }
        self._edges = {node.number: levels.out_of(node) for node in self._nodes}
        self._entries = {
            number: [
                entry_of(at, edge, edge.flow, options.on_error)
                for at, edge in enumerate(edges)
                if edge.flow is not None
            ]
            for number, edges in self._edges.items()
        }
        self._differences = Differences()
        self._emitted: Counter[tuple[int, str]] = Counter()
        self._waiting: Counter[int] = Counter()
        self._ranks = {node.number: levels.ports_into(node) for node in self._nodes}
        self.clock = START_OF_TIME
        for node, run in zip(self._nodes, self.runs, strict=True):
            place = StoredPlace(node.name, key_group)
            if isinstance(run, DuplicatesRun):
                run.keep_in_store(place)
            else:
                run.keep_in_store(place, options.memory)

    @property
    def next_deadline(self) -> int:
        """The earliest clock at which anything is to be done, int microseconds."""
        runs = (run for run in self.runs if not isinstance(run, DuplicatesRun))
        return min((run.operator.next_deadline for run in runs), default=END_OF_TIME)

    def input_watermark(self, node: LevelNode) -> int:
        """Return the lowest watermark upstream of a node (S-H3)."""
        low = END_OF_TIME
        for source in node.sources:
            low = min(low, self.source_watermark(source))
        for upstream in node.upstream:
            low = min(low, int(self._above[upstream].min()))
        return low

    def _set_right(self, node: LevelNode, run: StageRun) -> bool:
        """Set a join's right-side watermark if it uses one; return whether it is known."""
        if not run.reads_right:
            return False
        low = END_OF_TIME
        for flow in node.stage.right_inputs:
            origin = flow.origin
            if isinstance(origin, Read):
                low = min(low, self.source_watermark(self._levels.graph.reads.index(origin)))
            else:
                low = min(low, int(self._above[self._levels.node_of(origin).number].min()))
        run.right_watermark = low
        return low > START_OF_TIME

    def output_watermark(self, run: NodeRun) -> int:
        """Return the output watermark of a node in this key group."""
        return run.watermark if isinstance(run, DuplicatesRun) else run.operator.output_watermark

    def resume(self, store: StateStore) -> None:
        """Restore the state of the last micro-batch, or begin; call it before the first step.

        Raises:
            StateError: It is the state of another pipeline.
        """
        (data,) = store.get([FACTS])
        facts = None if data is None else decode(data)
        if facts is not None:
            require_same(facts["pipeline"], self._levels.described)
        for run in self.runs:
            if isinstance(run, DuplicatesRun):
                run.resume(store)
            else:
                run.resume(store, fresh=facts is None)
        if facts is None:
            return
        self.clock = facts["clock"]
        for mark, stored, carried in zip(
            self.sources, facts["sources"], facts["carried"], strict=True
        ):
            mark.resume(stored)
            mark.carried = carried
        for upstream, at in facts["above"].items():
            self._above[upstream][:] = at
        for number, learned in facts["entries"].items():
            for entry, remembered in zip(self._entries[number], learned, strict=True):
                entry.admission.resume(remembered)
        for node, run in zip(self._nodes, self.runs, strict=True):
            if isinstance(run, DuplicatesRun):
                run.watermark = facts["passed"][node.number]
            else:
                self._compare_stored(node, run, facts)

    def _compare_stored(self, node: LevelNode, run: StageRun, facts: Mapping[str, Any]) -> None:
        """Compare what was restored with what the last micro-batch had (S-B2)."""
        waiting, rows = run.operator.waiting, run.operator.state_rows
        self._waiting[node.number] = waiting
        if "kept" in facts:  # earlier versions did not count it
            was_waiting, had_rows = facts["kept"][node.number]
            compare = self._differences.compare
            compare(node.name, was_waiting, waiting, "waiting records")
            compare(node.name, had_rows, rows, "rows of state")

    def save(self, batch: Batch) -> None:
        """Add the changes since the last save to a batch."""
        for run in self.runs:
            run.save(batch)
        passed = {
            node.number: run.watermark
            for node, run in zip(self._nodes, self.runs, strict=True)
            if isinstance(run, DuplicatesRun)
        }
        facts = {
            "pipeline": self._levels.described,
            "clock": self.clock,
            "carried": [mark.carried for mark in self.sources],
            "sources": [mark.remember() for mark in self.sources],
            "above": {upstream: at.tolist() for upstream, at in self._above.items()},
            "entries": {
                number: [entry.admission.remember() for entry in entries]
                for number, entries in self._entries.items()
            },
            "passed": passed,
            "kept": {
                node.number: [run.operator.waiting, run.operator.state_rows]
                for node, run in zip(self._nodes, self.runs, strict=True)
                if not isinstance(run, DuplicatesRun)
            },
        }
        batch.put([FACTS], [encode(facts)])

    def step(self, messages: Sequence[Message], now: int | None, *, ended: bool) -> LevelOutput:
        """Process one micro-batch.

        Args:
            messages: What was sent here, in any order.
            now: The time of the micro-batch, int microseconds; ``None``: as the messages say.
            ended: Whether the input has ended: no message will come of any source.
        """
        output = LevelOutput()
        # Spark gives rows in any order; the order of senders makes output the same in every
        # attempt.
        messages = sorted(messages, key=lambda message: (message.origin, *message.order))
        self._move_clock(messages, now)
        self._hear(messages, ended=ended)
        arrived = _by_port(messages)
        for node, run in zip(self._nodes, self.runs, strict=True):
            counts = output.counts[node.number] = NodeCounts()
            tables_in = sorted(arrived.get(node.number, {}).items())
            bundles = [Elements.of_tables(tables) for _, tables in tables_in]
            counts.events = sum(map(len, bundles))
            # After the messages were heard: a watermark covers the elements that came with it.
            to = self.input_watermark(node)
            sent: list[tuple[Edge, Elements]] = []
            if isinstance(run, DuplicatesRun):
                (edge,) = self._edges[node.number]
                sent = [
                    # Each input stays a bundle of its own, in the order of their origins.
                    (replace(edge, nth=self._ranks[node.number].index(port)), taken)
                    for (port, _), one in zip(tables_in, bundles, strict=True)
                    if len(taken := run.take(one, counts.metrics))
                ]
                run.watermark = max(run.watermark, to)
            else:
                stage_bundles = [
                    _stage_bundle(node, one, self._input_of(node, nth))
                    for ((_, nth), _), one in zip(tables_in, bundles, strict=True)
                ]
                self._step_stage(node, run, stage_bundles, to, output)
                sent = list(self._handed_on(node, run, output))
                counts.hold = run.operator.hold()
            self._send(node, run, sent, output)
            came = [table.num_rows for _, tables in tables_in for table in tables]
            self._check(node, run, sum(came), counts, ended=to == END_OF_TIME)
        if ended:
            self._pass_on_the_end(output)
        return output

    def _check(
        self, node: LevelNode, run: NodeRun, arrived: int, counts: NodeCounts, *, ended: bool
    ) -> None:
        """Compare what a call was given with what became of it (S-B2).

        Args:
            node: The node.
            run: It.
            arrived: How many elements were sent to it.
            counts: What it did with them.
            ended: Whether its input has ended, so that it keeps nothing.
        """
        metrics, name = counts.metrics, node.name
        if isinstance(run, DuplicatesRun):
            metrics.admitted = counts.sent
        else:
            metrics.waiting = run.operator.waiting
        # What waited before this call arrives in it once more.
        if not isinstance(run, DuplicatesRun):
            self._differences.compare(name, arrived, metrics.arrived, "records that arrived")
        metrics.arrived = arrived + self._waiting[node.number]
        self._waiting[node.number] = metrics.waiting
        if (difference := stage_difference(metrics)) is not None:
            self._differences.report(name, difference)
        if isinstance(run, DuplicatesRun):
            return
        if ended:
            self._differences.compare(name, 0, run.operator.waiting, "records waiting at the end")
            self._differences.compare(name, 0, run.operator.state_rows, "rows of state at the end")
        emits_panes = node.stage.work.emits_panes
        shown = metrics.panes.total() + metrics.retractions
        for tag in node.stage.work.outputs:
            self._emitted[node.number, tag] += shown if emits_panes else metrics.emitted[tag]
        for edge, entry in zip(self._edges[node.number], self._entries[node.number], strict=True):
            emitted = self._emitted[node.number, entry.output]
            for difference in entry.counts.differences(emitted, whole=True):
                self._differences.report(f"{edge.to.name}, which reads {name}", difference)

    def source_watermark(self, source: int) -> int:
        """Return the watermark of a source, int microseconds."""
        return followed(self.sources[source], self.sources)

    def _input_of(self, node: LevelNode, nth: int) -> int:
        """Return which input of its stage a node's elements came by."""
        # Behind what drops duplicates, inputs are numbered in the order of their origins.
        return self._ranks[node.number][nth][1] if is_split(node.stage) else nth

    def _move_clock(self, messages: Sequence[Message], now: int | None) -> None:
        if self._options.carries_clock:
            told = [message.clock for message in messages if message.clock is not None]
        else:
            told = [message.now for message in messages if message.now is not None]
            told += [] if now is None else [now]
        self.clock = max([self.clock, *told])

    def _hear(self, messages: Sequence[Message], *, ended: bool) -> None:
        """Note what messages say of watermarks."""
        observed: dict[int, list[Message]] = {}
        carried: dict[int, int] = {}
        over = [mark.ended for mark in self.sources]
        for message in messages:
            source = message.source
            if source is None:
                if message.watermark is not None and message.origin in self._above:
                    above = self._above[message.origin]
                    above[message.part] = max(above[message.part], message.watermark)
                continue
            if over[source] and message.elements:
                raise DataError(
                    "more records came of a source after its input had ended",
                    where="to_spark(drain=True)",
                    hint="Begin with a new checkpoint and read everything again; and leave drain "
                    "out while more is still to come",
                )
            if message.ended:
                self.sources[source].ended = True
            if message.watermark is not None:
                carried[source] = max(carried.get(source, START_OF_TIME), message.watermark)
            if message.observed is not None and message.observed.num_rows:
                observed.setdefault(source, []).append(message)
        for source, mark in enumerate(self.sources):
            mark.ended = mark.ended or ended
            if source in observed:
                tables = [m.observed for m in observed[source] if m.observed is not None]
                times, records = observed_records(tables)
                batch = ObservedBatch(records, None, mark.read.times)
                mark.observe(batch.bundle(times, 0, self.clock))
            elif source not in carried and not mark.ended:
                mark.rest(self.clock)
            if source in carried:
                mark.carry(carried[source], self.clock)

    def _step_stage(
        self,
        node: LevelNode,
        run: StageRun,
        bundles: Sequence[StageBundle],
        to: int,
        output: LevelOutput,
    ) -> None:
        run.metrics = output.counts[node.number].metrics
        if self.clock > START_OF_TIME:
            self._collect(node, run.tick(self.clock), output)
        if bundles:
            self._collect(node, run.take(bundles), output)
        if self._set_right(node, run) or to > START_OF_TIME:
            self._collect(node, run.advance(to), output)
            while run.operator.is_advancing:
                self._collect(node, run.advance(to), output)

    def _collect(self, node: LevelNode, outcomes: Iterator[Outcome], output: LevelOutput) -> None:
        for outcome in outcomes:
            keeps_late = outcome.late is not None and self._options.keep_records
            if outcome.errors:  # what a process emitted and nothing can hold
                if self._options.on_error == "raise":
                    raise refusal_of(outcome.errors[0])
                output.counts[node.number].dead_letters += len(outcome.errors)
            if outcome.outputs or outcome.errors or keeps_late:
                output.outcomes.append((node, outcome))

    def _handed_on(
        self, node: LevelNode, run: StageRun, output: LevelOutput
    ) -> Iterator[tuple[Edge, Elements]]:
        """Yield what the nodes downstream get of a stage's output."""
        edges, entries = self._edges[node.number], self._entries[node.number]
        for tag, emitted in run.take_outputs().items():
            sorts = any(entry.minds_order and entry.output == tag for entry in entries)
            records = with_order(emitted, node.stage) if sorts else emitted
            for edge, entry in zip(edges, entries, strict=True):
                if entry.output != tag:
                    continue
                entry.counts.read += records.length
                admitted = entry.take(records)
                if admitted is None:
                    continue
                errors = admitted.admitted.errors
                if errors:
                    output.counts[node.number].dead_letters += len(errors)
                    output.outcomes.append((node, Outcome(errors=errors)))
                bundle = admitted.admitted.bundle
                entry.counts.cut += len(bundle)
                entry.counts.handed += len(bundle)
                if len(bundle):
                    elements = Elements.of(admitted.admitted, admitted.records, bundle, 0)
                    if entry.minds_order:
                        elements = elements.in_order(
                            *(elements.records.columns[column] for column in (AT, WHOSE))
                        )
                    if not needs_records(edge.to, self._options.keep_records):
                        elements = elements.without_records()
                    yield edge, elements

    def _send(
        self,
        node: LevelNode,
        run: NodeRun,
        sent: Sequence[tuple[Edge, Elements]],
        output: LevelOutput,
    ) -> None:
        """Send a node's output, and its watermark, to all key groups that read it."""
        # Sent to every key group: one that gets no elements would hold its readers otherwise.
        watermark = self.output_watermark(run)
        groups = self._options.key_groups
        packed: dict[tuple[int, int], dict[Port, Any]] = {
            (edge.to.level, group): {}
            for edge in self._edges[node.number]
            for group in range(groups)
        }
        for edge, elements in sent:
            for group, part in self._parts(edge, elements):
                output.counts[node.number].sent += len(part)
                packed[edge.to.level, group][edge.to.number, edge.nth] = part.to_table()
        told = Message(
            origin=node.number,
            part=self.key_group,
            watermark=watermark,
            now=self.clock if self.clock > START_OF_TIME else None,
            clock=self.clock if self._options.carries_clock else None,
        )
        for (level, group), tables in packed.items():
            # One object for all that get no elements, which is then sent once.
            message = replace(told, elements=tables) if tables else told
            output.messages.append((level, group, message))

    def _parts(self, edge: Edge, elements: Elements) -> Iterable[tuple[int, Elements]]:
        """Return elements by key group; those of a stage without keys stay where they are."""
        if edge.to.by_id or edge.to.stage.keys:
            return elements.by_group(self._options.key_groups, by_id=edge.to.by_id)
        return ((self.key_group, elements),)

    def _pass_on_the_end(self, output: LevelOutput) -> None:
        for level in self._levels.levels_told():
            if level > self.level:
                for source in range(len(self._levels.graph.reads)):
                    end = Message(origin=-1 - source, part=self.key_group, ended=True)
                    output.messages.append((level, self.key_group, end))


def _run_of(node: LevelNode, levels: Levels, options: LevelOptions) -> NodeRun:
    if node.drops_duplicates:
        return DuplicatesRun(node)
    stage = node.stage
    # Its duplicates are dropped at a node of their own, where all records of an id meet.
    if is_split(stage):
        stage = replace(stage, deduplication=None)
    is_end, is_read = node.number in options.ends, bool(levels.out_of(node))
    return StageRun(stage, node.number, is_end=is_end, is_read=is_read)


def entry_of(
    at: int, edge: Edge, flow: Flow, on_error: OnError | None, max_ahead_us: int | None = None
) -> StageAdmission:
    """Return what admits records to a node; its bundles have the number of the edge."""
    admission = admission_of(edge.to.stage, edge.nth, on_error or "dead_letter", max_ahead_us)
    return StageAdmission(
        at,
        flow.steps,
        admission,
        flow.output,
        is_signed(flow),
        minds_order(flow, edge.to.stage),
        edge.nth,
        set_aside if on_error == "dead_letter" else applied,
        InputCounts.of(flow.steps),
    )


def needs_records(node: LevelNode, keeps_late: bool) -> bool:
    """Whether a node needs whole records: processes and joins do, and what keeps late ones."""
    return keeps_late or not node.stage.work.emits_panes


def _by_port(messages: Sequence[Message]) -> Mapping[int, Mapping[tuple[int, int], list[Any]]]:
    """Return the tables for each node, by origin and input; those of one sender are in order."""
    tables: dict[int, dict[tuple[int, int], list[Any]]] = {}
    for message in messages:
        for (to, nth), table in message.elements.items():
            port = (rank(message.origin), nth)
            tables.setdefault(to, {}).setdefault(port, []).append(table)
    return tables


def _stage_bundle(node: LevelNode, elements: Elements, nth: int) -> StageBundle:
    admitted = Admitted(elements.bundle, None, [], elements.ids)
    return StageBundle(node.number, elements.bundle, 0, elements.records, admitted, nth)
