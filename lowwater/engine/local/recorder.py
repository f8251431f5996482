"""Builds the trace of a run from what the runner and its stages report."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any, final

import numpy as np
import pyarrow as pa

from lowwater.engine.graph.graph import Graph, Read, Stage
from lowwater.engine.graph.trace import (
    StageSample,
    StageTrace,
    Trace,
    TracedMove,
    TracedSource,
    TracedTurn,
    Tracing,
)
from lowwater.engine.graph.traced_parts import (
    TracedParts,
    TracedRecords,
    drawn_at,
    sample_hashes,
)
from lowwater.engine.local.source_reader import SourceCut, SourceReader
from lowwater.engine.local.taken_bundles import TakenBundle
from lowwater.engine.local.trace_pairs import PairColumns, TracedPairs
from lowwater.engine.local.trace_parts import (
    ElementPart,
    MergePart,
    PanePart,
    ReadPart,
    TracedStage,
    merged_elements,
    release,
)
from lowwater.engine.local.trace_timers import TracedTimers
from lowwater.engine.records.batch import TRACED, ArrowColumns, Records
from lowwater.engine.records.columns import Column
from lowwater.engine.records.panes import ErrorRecord
from lowwater.engine.records.steps import MergedWindows, PaneBatch, TimerEvent
from lowwater.time import START_OF_TIME, Instant, Int64Array

_NO_NUMBERS: Int64Array = np.zeros(0, dtype=np.int64)


@final
class StageRecorder:
    """Records the input and output of one stage.

    Keeps columns, which become Python values when the trace is read, so that tracing hardly slows
    down the run. With more elements than the limit it keeps a sample of them, which it thins to the
    half each time that it exceeds the limit again.

    Args:
        name: The stage's name.
        stage: The stage.
        inputs: Names of the sources and stages it reads.
        order: Numbers the events of the run, across all stages.
        sources: Names of the sources, for the origins of elements.
        stages: Names of the stages, for the same purpose.
        limit: The most elements to keep that need not be kept; ``None`` for all.
    """

    def __init__(
        self,
        name: str,
        stage: Stage,
        inputs: tuple[str, ...],
        order: count[int],
        sources: Sequence[str],
        stages: Sequence[str] = (),
        *,
        limit: int | None = None,
    ) -> None:
        self._name = name
        self._stage = stage
        self._inputs = inputs
        self._order = order
        self._origins = (*sources, *stages)
        self._limit = limit
        self._of = TracedStage(stage, sources, self._origins)
        self._handed = 0
        self._arrived = 0
        self._latest = START_OF_TIME
        self._thinning = 0
        self._ordinary = 0  # how many of the kept elements need not be kept
        self._held = 0  # elements that were dropped, but are not released
        self._bundles = array("q")
        self._elements: list[ElementPart] = []
        self._panes: list[PanePart] = []
        self._merges: list[MergePart] = []
        self._moves: list[TracedMove] = []
        self._moved: tuple[Any, ...] | None = None
        self._pairs = TracedPairs(limit)
        self._timers = TracedTimers(limit)
        self.is_resumed = False
        """Whether it had state of an earlier run, of which the trace has no records."""

    def took(self, taken: TakenBundle, merges: MergedWindows | None = None) -> int:
        """Record a processed bundle and the window merges it caused.

        Returns:
            The number of its first element among all that have arrived.
        """
        first, self._arrived = self._arrived, self._arrived + len(taken)
        changed, merging = (None, None) if merges is None else merged_elements(merges)
        order = next(self._order)
        self._bundles.append(order)
        part = ElementPart(self._of, order, taken, first, merging, self._latest)
        self._latest = part.latest_after
        self._add(part)
        if changed is not None:  # do not use up an order number for nothing
            self._merges.append(MergePart(next(self._order), changed, taken.clock))
        return first

    def _add(self, part: ElementPart) -> None:
        """Keep the elements of a bundle, and thin out all of them if they are too many."""
        if self._thinning:
            part = self._thinned(part)
        if len(part):
            self._elements.append(part)
            self._ordinary += part.ordinary
        while self._limit is not None and self._ordinary > self._limit:
            self._thinning += 1
            thinned = map(self._thinned, self._elements)
            self._elements = [part for part in thinned if len(part)]
            self._ordinary = sum(part.ordinary for part in self._elements)
        # Not at once: the bundles of a batch are released together, which costs less.
        if self._limit is not None and self._held > self._limit:
            release(self._elements)
            self._held = 0
        if self._thinning:
            self._pairs.thin(self._numbers)

    def _thinned(self, part: ElementPart) -> ElementPart:
        rows = np.flatnonzero(part.notable | part.drawn(self._thinning))
        if len(rows) == len(part):
            return part
        self._held += len(part) - len(rows)
        return part.at(rows)

    def paired(self, pairs: PairColumns) -> None:
        """Record what a join emitted in one step."""
        self._pairs.add(next(self._order), pairs)

    def timed(self, events: Sequence[TimerEvent], *, of_bundle: bool) -> None:
        """Record what became of timers in one step.

        Args:
            events: What became of them.
            of_bundle: Whether the step is that of the bundle that was recorded last.
        """
        if events:
            order = self._bundles[-1] if of_bundle else next(self._order)
            self._timers.add(order, events)

    def showed(self, panes: PaneBatch) -> None:
        """Record emitted panes."""
        self._panes.append(PanePart(next(self._order), panes))

    def handed(self, records: Records) -> Records:
        """Number the panes that go to downstream stages, in a hidden column.

        Must be called with all panes emitted since the last call, in order: the numbers are their
        indices in the trace.
        """
        first, self._handed = self._handed, self._handed + records.length
        return numbered(records, first, self._origins.index(self._name), len(self._origins))

    def moved(
        self,
        clock: int,
        input_watermark: int,
        output: int,
        held_by: str | None,
        sides: tuple[int, int] | None = None,
    ) -> None:
        """Record the stage's clock and watermarks if they changed; of a join those of its sides."""
        order = next(self._order)
        now = (clock, input_watermark, output, held_by, sides)
        if now == self._moved:
            return
        self._moved = now
        self._moves.append(
            TracedMove(
                Instant(clock), Instant(input_watermark), Instant(output), held_by, order,
                None if sides is None else (Instant(sides[0]), Instant(sides[1])),
            )
        )  # fmt: skip

    def numbers_from(self, origin: int) -> Int64Array:
        """Return the numbers of the records that kept elements derive from, of one source."""
        many = len(self._origins)
        codes = [found for part in self._elements if (found := part.codes()) is not None]
        if not codes:
            return _NO_NUMBERS
        every = np.concatenate(codes)
        return every[every % many == origin] // many

    def trace(self) -> StageTrace:
        """Return the trace so far. O(bundles + panes)."""
        work = self._stage.work
        release(self._elements)
        return StageTrace(
            name=self._name,
            key_names=self._stage.key_names,
            windowing=work.windowing,
            aggregates=work.aggregates,
            elements=TracedParts(self._elements),
            moves=tuple(self._moves),
            panes=TracedParts(self._panes),
            merges=TracedParts(self._merges),
            pane_orders=tuple(part.order for part in self._panes for _ in range(len(part))),
            inputs=self._inputs,
            joining=work.join_rules,
            pairs=self._pairs.of(self._numbers()),
            sample=self._sample(),
            timers=self._timers.trace(),
            matching=work.match_rules,
            ranging=work.over_rules,
            counting=work.count_windows,
            is_resumed=self.is_resumed,
        )

    def _numbers(self) -> Int64Array:
        """Return the numbers of the kept elements, ascending."""
        return np.concatenate([_NO_NUMBERS, *(part.numbers for part in self._elements)])

    def _sample(self) -> StageSample | None:
        if not self._thinning:
            return None
        parts, thinning = self._elements, self._thinning
        return StageSample(
            self._arrived,
            thinning,
            np.concatenate([np.zeros(0, np.bool_), *(part.drawn(thinning) for part in parts)]),
            np.concatenate([_NO_NUMBERS, *(part.latest for part in parts)]),
            array("q", self._bundles),
        )


@final
class SourceRecorder:
    """Records what a source delivers; beyond the limit a sample of it.

    The sample always contains the records that kept elements derive from.

    Args:
        limit: The most records to keep beside those; ``None`` for all.
    """

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._parts: list[ReadPart] = []
        self._total = 0
        self._thinning = 0
        self._checked_at = 0 if limit is None else limit

    def add(self, records: Records) -> int:
        """Record a batch, and return the number of its first record."""
        first, self._total = self._total, self._total + records.length
        self._parts.append(ReadPart(records, first))
        return first

    def thin(self, stages: Sequence[StageRecorder], origin: int) -> None:
        """Thin out the records if they are too many, except the last batch.

        Nothing is known yet about the elements that derive from the last batch. Earlier batches
        have reached all stages that read the source.
        """
        if self._limit is None or sum(map(len, self._parts[:-1])) <= self._checked_at:
            return
        before = self._parts[:-1]
        numbers = np.concatenate([part.numbers for part in before])
        needed = [stage.numbers_from(origin) for stage in stages]
        derived = np.isin(numbers, np.concatenate(needed))
        hashes = sample_hashes(numbers)
        while np.count_nonzero(drawn_at(hashes, self._thinning) & ~derived) > self._limit:
            self._thinning += 1
        kept = drawn_at(hashes, self._thinning) | derived
        stops = np.cumsum([len(part) for part in before])
        self._parts = [
            *(
                part.at(np.flatnonzero(chosen))
                for part, chosen in zip(before, np.split(kept, stops[:-1]), strict=True)
                if chosen.any()
            ),
            self._parts[-1],
        ]
        # A quarter more than now, so that the work is proportional to what is read.
        self._checked_at = max(self._limit, int(kept.sum()) * 5 // 4)

    def records(self) -> TracedRecords:
        """Return the records so far."""
        numbers = np.concatenate([_NO_NUMBERS, *(part.numbers for part in self._parts)])
        return TracedRecords(TracedParts(self._parts), numbers, self._total, self._thinning)


@final
class Recorder:
    """Records the trace of a run of a graph.

    Args:
        graph: The graph.
        tracing: How much to keep.
    """

    def __init__(self, graph: Graph, tracing: Tracing) -> None:
        self._graph = graph
        self._order = count()
        self._sources = [graph.name_of(read) for read in graph.reads]
        names = [graph.name_of(stage) for stage in graph.stages]
        self._stages = [
            StageRecorder(
                graph.name_of(stage),
                stage,
                tuple(dict.fromkeys(graph.name_of(flow.origin) for flow in stage.inputs)),
                self._order,
                self._sources,
                names,
                limit=tracing.limit,
            )
            for stage in graph.stages
        ]
        self._read = [SourceRecorder(tracing.limit) for _ in graph.reads]
        self._stood: dict[str, list[TracedSource]] = {name: [] for name in self._sources}
        self._stands: dict[str, tuple[Any, ...]] = {}
        self._errors: list[ErrorRecord] = []
        self._turns: list[TracedTurn] = []
        self._batch_first = [0 for _ in graph.reads]
        self._coming: tuple[int, int, int] | None = None  # source, first record, stop
        self._last: tuple[Any, ...] | None = None

    def stage(self, number: int) -> StageRecorder:
        """Return the recorder of a stage."""
        return self._stages[number]

    def read(self, read: Read, records: Records) -> Records:
        """Record a source's batch and number its records in a hidden column."""
        if not records.length:
            return records
        at = self._graph.reads.index(read)
        first = self._batch_first[at] = self._read[at].add(records)
        self._read[at].thin(self._stages, at)
        return numbered(records, first, at, len(self._graph.names))

    def cut(self, read: Read, cut: SourceCut) -> None:
        """Record which records the bundles of the next turn are made of."""
        at = self._graph.reads.index(read)
        span = record_span(cut, self._batch_first[at], len(self._graph.names))
        if span is not None:
            self._coming = at, *span

    def turned(self, clock: int, watermarks: tuple[int, ...], ended: tuple[bool, ...]) -> None:
        """Record the end of a turn, if anything arrived or moved."""
        now = clock, watermarks, ended
        if self._coming is None and now == self._last:
            return
        source, first, stop = (None, 0, 0) if self._coming is None else self._coming
        self._turns.append(TracedTurn(clock, source, first, stop, watermarks, ended))
        self._coming, self._last = None, now

    def failed(self, errors: Sequence[ErrorRecord]) -> None:
        """Record dead letters."""
        self._errors.extend(errors)

    def stood(self, reader: SourceReader, clock: int, *, idle: bool) -> None:
        """Record a source's clock and watermark if they changed."""
        order = next(self._order)
        name = self._graph.name_of(reader.read)
        mark = reader.mark
        held_by = "the input has ended" if reader.ended else mark.holder(clock)
        watermark, heard_at = reader.watermark(), mark.heard_at
        now = (clock, watermark, idle, held_by, heard_at, reader.ended)
        if now == self._stands.get(name):
            return
        self._stands[name] = now
        heard = None if heard_at is None else Instant(heard_at)
        self._stood[name].append(
            TracedSource(
                Instant(clock), Instant(watermark), idle, held_by, heard, reader.ended, order
            )
        )

    def trace(self) -> Trace:
        """Return the trace so far."""
        return Trace(
            stages=tuple(stage.trace() for stage in self._stages),
            errors=tuple(self._errors),
            sources={name: tuple(stood) for name, stood in self._stood.items()},
            read={
                name: read.records() for name, read in zip(self._sources, self._read, strict=True)
            },
            reads=dict(zip(self._sources, self._graph.reads, strict=True)),
            turns=tuple(self._turns),
        )


def record_span(cut: SourceCut, first: int, origins: int) -> tuple[int, int] | None:
    """Return the numbers of the first and behind the last record that bundles are made of.

    Args:
        cut: The bundles, of records that are :func:`numbered`.
        first: The number of the first record of their batch.
        origins: How many sources and stages the run has.

    Returns:
        The numbers; ``None`` if there are no bundles.
    """
    if not cut.bundles:
        return None
    low, stop = None, 0
    for one in cut.bundles:
        column = one.records.columns.get(TRACED)
        if column is None or column.data.dtype != np.int64:
            # A step lost the numbers; all records are admitted, as far as is known.
            return first + cut.start, first + cut.start + len(cut.times)
        kept, last = one.admitted.kept, one.start + len(one.bundle) - 1
        ends = (one.start, last) if kept is None else (int(kept[one.start]), int(kept[last]))
        # Ascending: steps that may reorder records lose their numbers.
        begin, end = (int(column.data[row]) // origins for row in ends)
        low = begin if low is None else min(low, begin)
        stop = max(stop, end + 1)
    return None if low is None else (low, stop)


def numbered(records: Records, first: int, origin: int, origins: int) -> Records:
    """Add a hidden column that encodes each record's number together with its origin."""
    numbers = np.arange(first, first + records.length, dtype=np.int64) * origins + origin
    columns = records.columns
    if isinstance(columns, ArrowColumns):
        batch = columns.batch.append_column(TRACED, pa.array(numbers))
        return replace(records, columns=ArrowColumns(batch))
    return replace(records, columns={**columns, TRACED: Column(numbers)})
