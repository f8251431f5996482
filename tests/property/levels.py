"""Graphs run in micro-batches: embedded, and level by level as on Spark but without it."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

import pyarrow as pa

import lowwater as lw
from lowwater.engine.graph.clocks import ArrivalClock
from lowwater.engine.graph.graph import Graph
from lowwater.engine.keyed.operator import KeyedOperator
from lowwater.engine.local.outcomes import Outcome
from lowwater.engine.local.runner import LocalRun
from lowwater.engine.local.source_reader import SourceCut
from lowwater.engine.local.stage_run import StageRun
from lowwater.engine.records.batch import Records
from lowwater.pipeline.outcomes import Outcomes
from lowwater.spark.level import DuplicatesRun, LevelOptions, LevelRun
from lowwater.spark.levels import Levels
from lowwater.spark.messages import Message
from lowwater.spark.signals import ArrivalSignals, NoSignals, Signals
from lowwater.spark.source_packer import NOW, SourcePacker
from lowwater.spark.state_backends import InlineBackend, KeptState
from lowwater.state.store import Batch
from lowwater.time import START_OF_TIME
from tests.property.graphs import Drawn


@final
@dataclass(frozen=True)
class Told:
    """What is compared of one micro-batch.

    Args:
        panes: The rows that each stage gave, by its number, in any order.
        late: The elements it dropped.
        watermarks: Of each stage, the input and the output watermark.
    """

    panes: dict[int, list[str]]
    late: dict[int, list[str]]
    watermarks: dict[int, tuple[int, int]]


@final
@dataclass
class _Shown:
    panes: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    late: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))

    def add(self, stage: int, outcome: Outcome) -> None:
        if outcome.panes is not None:
            self.panes[stage] += map(repr, outcome.panes.to_panes())
        for tag, emitted in outcome.emitted.items():
            keys = zip(*(key.to_list() for key in emitted.keys), strict=True)
            rows = zip(emitted.times.tolist(), keys, map(_plain, emitted.to_list()), strict=True)
            self.panes[stage] += [f"{tag} {time} {key} {row}" for time, key, row in rows]
        if outcome.late is not None:
            late = outcome.late.to_records()
            self.late[stage] += [repr(replace(one, value=_plain(one.value))) for one in late]

    def told(self, watermarks: dict[int, tuple[int, int]]) -> Told:
        panes = {stage: sorted(rows) for stage, rows in self.panes.items() if rows}
        late = {stage: sorted(rows) for stage, rows in self.late.items() if rows}
        return Told(panes, late, watermarks)


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with its times in UTC: messages know instants, and no zones of Python's."""
    return {
        name: value.astimezone(dt.UTC) if isinstance(value, dt.datetime) else value
        for name, value in row.items()
    }


def micro_batches(case: Drawn) -> list[list[Records]]:
    """Return what each source gives in each micro-batch; nothing once it has ended."""
    graph = graph_of(case)
    every = [list(read.source.batches(1 << 30, ())) for read in graph.reads]
    length = max(map(len, every), default=0)
    nothing = Records({}, 0)
    return [
        [batches[at] if at < len(batches) else nothing for batches in every] for at in range(length)
    ]


def graph_of(case: Drawn) -> Graph:
    return Graph.of(dict.fromkeys(end._stage for end in case.ends))


def clocks(case: Drawn) -> list[int]:
    """Return the clock of each micro-batch."""
    found: list[int] = []
    now = START_OF_TIME
    for batches in micro_batches(case):
        clock = case.clock
        if isinstance(clock, ArrivalClock):
            for records in batches:
                if records.length:
                    ticks = records.columns[clock.column].data.max() // clock.tick_us
                    now = max(now, int(ticks + 1) * clock.tick_us)
        else:
            now = clock.now()
        found.append(now)
    return found


def embedded(case: Drawn) -> Iterator[Told]:
    """Run a micro-batch as one bundle of each source, and say what came out; then the end."""
    for turn in turns(case):
        shown = _Shown()
        for outcome in turn.outcomes:
            shown.add(outcome.stage, outcome)
        yield shown.told(turn.watermarks)


@final
@dataclass(frozen=True)
class Turn:
    """What the embedded runner gave in a micro-batch, and the watermarks after it.

    Args:
        outcomes: What it gave.
        watermarks: Of each stage, the input and the output watermark.
    """

    outcomes: list[Outcome]
    watermarks: dict[int, tuple[int, int]]


def turns(case: Drawn) -> Iterator[Turn]:
    """Run a micro-batch as one bundle of each source, embedded; then the end."""
    manual = lw.ManualClock()
    stages = tuple(dict.fromkeys(end._stage for end in case.ends))
    options: Any = {
        "progress": False, "on_error": "raise", "clock": manual, "bundle_size": 1 << 30,
    }  # fmt: skip
    run = Outcomes(stages, options).local
    for batches, now in zip(micro_batches(case), clocks(case), strict=True):
        manual.advance_to(now)
        run._move_clock(now)
        for reader, records in zip(run.readers, batches, strict=True):
            if not records.length:
                reader.rest(0, now)
                continue
            taken = False
            for cut in reader.cuts(records):
                if isinstance(cut, SourceCut):
                    taken = True
                    for bundle in cut.bundles:
                        run._waiting[bundle.stage].append(bundle)
                    reader.observe(cut, now)
            if not taken:
                reader.rest(0, now)
        yield _turn(run)
    for reader in run.readers:
        reader.ended = True
    yield _turn(run)


def _turn(run: LocalRun) -> Turn:
    outcomes = list(run._turn(0.0))
    return Turn(
        outcomes,
        {
            one.number: (one.operator.watermark, one.operator.output_watermark)
            for one in run._stages
        },
    )


@final
class InLevels:
    """A graph that runs in levels, in this process, with its state in cells.

    Args:
        case: The graph.
        key_groups: How many key groups there are.
        partitions: Into how many a source's records are split.
        forgets: After which micro-batches everything but the cells is forgotten.
        memory: About how many bytes the state of a stage in a key group may take in memory;
            ``None``: any number.
    """

    def __init__(
        self,
        case: Drawn,
        key_groups: int,
        partitions: int,
        forgets: frozenset[int] = frozenset(),
        *,
        memory: int | None = None,
    ) -> None:
        self.case = case
        self.graph = graph_of(case)
        self.levels = Levels(self.graph)
        self._partitions = partitions
        self._forgets = forgets
        stages = [end._stage for end in case.ends]
        by_name = {self.graph.name_of(stage) for stage in stages}
        self._nodes = {
            self.levels.node_of(stage).number: at
            for at, stage in enumerate(self.levels.graph.stages)
        }
        ends = frozenset(
            self.levels.node_of(stage).number
            for stage in self.levels.graph.stages
            if self.levels.graph.name_of(stage) in by_name
        )
        carries = isinstance(case.clock, ArrivalClock)
        self.options = LevelOptions(key_groups, ends, "raise", True, carries, memory)
        signals: Signals = NoSignals()
        if isinstance(case.clock, ArrivalClock):
            signals = ArrivalSignals(case.clock)
        self._packers = [
            SourcePacker(self.levels, at, signals, key_groups, "raise", True)
            for at in range(len(self.graph.reads))
        ]
        self._cells: dict[tuple[int, int], bytes] = {}
        self._live: dict[tuple[int, int], tuple[KeptState, LevelRun]] = {}

    def told(self) -> Iterator[Told]:
        """Run to the end; say what came out of each micro-batch."""
        for at, (batches, now) in enumerate(
            zip(micro_batches(self.case), clocks(self.case), strict=True)
        ):
            if at in self._forgets:
                self._live.clear()
            yield self._step(self._packed(batches, now), now, ended=False)
        yield self._step(defaultdict(list), None, ended=True)

    def rows_left(self) -> int:
        """How many rows of state all stages have."""
        return sum(
            run.operator.state_rows
            for _, one in self._live.values()
            for run in one.runs
            if hasattr(run, "operator")
        )

    def rows_away(self) -> int:
        """How many rows of joins and tables are in the cells alone."""
        return sum(
            run.operator.spilled_rows
            for _, one in self._live.values()
            for run in one.runs
            if isinstance(run, StageRun) and isinstance(run.operator, KeyedOperator)
        )

    def _packed(self, batches: Sequence[Records], now: int) -> dict[tuple[int, int], list[bytes]]:
        sent: dict[tuple[int, int], list[bytes]] = defaultdict(list)
        for packer, records in zip(self._packers, batches, strict=True):
            if not records.length:
                continue
            batch = records.to_arrow(tuple(records.columns))
            batch = batch.append_column(NOW, pa.array([now] * len(batch), pa.int64()))
            for partition in range(self._partitions):
                low, high = (
                    len(batch) * edge // self._partitions for edge in (partition, partition + 1)
                )
                for packed in packer.pack([batch.slice(low, high - low)], partition):
                    for level, group, message in packed.messages:
                        sent[level, group].append(message.to_bytes())
        return sent

    def _step(
        self, sent: dict[tuple[int, int], list[bytes]], now: int | None, *, ended: bool
    ) -> Told:
        shown = _Shown()
        watermarks: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for level in range(1, self.levels.depth + 1):
            for group in range(self.options.key_groups):
                messages = [Message.of_bytes(data) for data in sent.pop((level, group), [])]
                # An upstream group's order of arrival says nothing on Spark.
                run = self._call(level, group, list(reversed(messages)), now, ended, sent, shown)
                for node, one in zip(self.levels.at(level), run.runs, strict=True):
                    into = run.input_watermark(node)
                    if not isinstance(one, DuplicatesRun):
                        into = one.operator.watermark
                    watermarks[node.number].append((into, run.output_watermark(one)))
        assert not sent
        return shown.told(
            {
                self._nodes[number]: (_only(into for into, _ in found), min(o for _, o in found))
                for number, found in watermarks.items()
                if number in self._nodes
            }
        )

    def _call(
        self,
        level: int,
        group: int,
        messages: Sequence[Message],
        now: int | None,
        ended: bool,
        sent: dict[tuple[int, int], list[bytes]],
        shown: _Shown,
    ) -> LevelRun:
        held = self._live.get((level, group))
        if held is None:
            kept = InlineBackend().keep(level, group, self._cells.get((level, group)))
            run = LevelRun(self.levels, level, group, self.options)
        else:
            kept, run = held
        with kept.opened() as store:
            if held is None:
                run.resume(store)
            output = run.step(messages, now, ended=ended and level == 1)
            batch = Batch()
            run.save(batch)
            self._cells[level, group] = kept.save(batch)
        self._live[level, group] = kept, run
        for to, to_group, message in output.messages:
            sent[to, to_group].append(message.to_bytes())
        for node, outcome in output.outcomes:
            shown.add(self._nodes[node.number], outcome)
        return run


def _only(values: Iterator[int]) -> int:
    (value,) = set(values)
    return value
