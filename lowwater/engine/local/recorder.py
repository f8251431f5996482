"""Builds the trace of a run from what the runner and its stages report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, final

import numpy as np
import pyarrow as pa

from lowwater.engine.graph.graph import Graph, Joined, Read, Stage
from lowwater.engine.graph.trace import (
    ElementOutcome,
    StageTrace,
    Trace,
    TracedElement,
    TracedMerge,
    TracedMove,
    TracedPair,
    TracedSide,
    TracedSource,
)
from lowwater.engine.local.source_reader import SourceReader
from lowwater.engine.records.batch import HIDDEN, TRACED, ArrowColumns, Records
from lowwater.engine.records.columns import Column
from lowwater.engine.records.panes import ErrorRecord, Pane
from lowwater.engine.records.steps import (
    REASONS,
    Bundle,
    LateBatch,
    MergedWindows,
    PaneBatch,
    key_values,
)
from lowwater.engine.window.windowing import Windowing
from lowwater.time import Instant, Int64Array
from lowwater.windows import Window


@final
@dataclass(frozen=True, slots=True)
class TakenBundle:
    """A bundle that a stage has processed.

    Args:
        bundle: The elements that arrived, duplicates included.
        kept: Indices of the elements that are not duplicates, int64; ``None`` for all.
        late: The elements that were dropped, by index among those kept.
        records: The batch that contains the elements.
        rows: Row of each element in ``records``, int64, shape (n,).
        watermark: The input watermark when they arrived.
        clock: The clock when they arrived.
        side: The side of a join that they came to.
    """

    bundle: Bundle
    kept: Int64Array | None
    late: LateBatch | None
    records: Records
    rows: Int64Array
    watermark: int
    clock: int
    side: TracedSide | None = None


@final
class StageRecorder:
    """Records the input and output of one stage.

    Keeps columns during the run and converts them to Python values only when a trace is asked for,
    so that tracing does not slow down the run itself.

    Args:
        name: The stage's name.
        stage: The stage.
        inputs: Names of the sources and stages it reads.
        order: Numbers the events of the run, across all stages.
        sources: Names of the sources, for the origins of elements.
        stages: Names of the stages, for the same purpose.
    """

    def __init__(
        self,
        name: str,
        stage: Stage,
        inputs: tuple[str, ...],
        order: count[int],
        sources: Sequence[str],
        stages: Sequence[str] = (),
    ) -> None:
        self._name = name
        self._stage = stage
        self._inputs = inputs
        self._order = order
        self._sources = sources
        self._origins = (*sources, *stages)
        self._handed = 0
        self._taken: list[tuple[int, TakenBundle]] = []
        self._shown: list[tuple[int, PaneBatch]] = []
        self._elements: list[TracedElement] = []
        self._panes: list[Pane] = []
        self._pane_orders: list[int] = []
        self._merges: list[TracedMerge] = []
        self._moves: list[TracedMove] = []
        self._counted = 0
        self._pairs: list[TracedPair] = []

    def took(self, taken: TakenBundle, merges: MergedWindows | None = None) -> int:
        """Record a processed bundle and the window merges it caused.

        Returns:
            The index of its first element in the trace.
        """
        first, self._counted = self._counted, self._counted + len(taken.bundle)
        self._taken.append((next(self._order), taken))
        merged = {} if merges is None else _merged(merges)
        if merges is not None and merged:  # do not use up an order number for nothing
            self._merges.extend(_traced_merges(merges, merged, taken.clock, next(self._order)))
        return first

    def paired(self, pairs: Iterable[TracedPair]) -> None:
        """Record what a join emitted in one step."""
        order = next(self._order)
        self._pairs.extend(replace(pair, order=order) for pair in pairs)

    def showed(self, panes: PaneBatch) -> None:
        """Record emitted panes."""
        self._shown.append((next(self._order), panes))

    def handed(self, records: Records) -> Records:
        """Number the panes that go to downstream stages, in a hidden column.

        Must be called with all panes emitted since the last call, in order: the numbers are their
        indices in the trace.
        """
        first, self._handed = self._handed, self._handed + records.length
        return _numbered(records, first, self._origins.index(self._name), len(self._origins))

    def moved(
        self,
        clock: int,
        input_watermark: int,
        output: int,
        held_by: str | None,
        sides: tuple[int, int] | None = None,
    ) -> None:
        """Record the stage's clock and watermarks if they changed; of a join those of its sides."""
        move = TracedMove(
            Instant(clock), Instant(input_watermark), Instant(output), held_by, next(self._order),
            None if sides is None else (Instant(sides[0]), Instant(sides[1])),
        )  # fmt: skip
        if not self._moves or replace(move, order=self._moves[-1].order) != self._moves[-1]:
            self._moves.append(move)

    def trace(self) -> StageTrace:
        """Return the trace so far. O(events since the last call + size of the copy)."""
        work = self._stage.work
        for order, taken in self._taken:
            self._elements.extend(self._traced(order, taken))
        self._taken.clear()
        for order, batch in self._shown:
            self._panes.extend(batch)
            self._pane_orders.extend([order] * len(batch))
        self._shown.clear()
        return StageTrace(
            name=self._name,
            key_names=self._stage.key_names,
            windowing=work.windowing,
            aggregates=work.aggregates,
            elements=tuple(self._elements),
            moves=tuple(self._moves),
            panes=tuple(self._panes),
            merges=tuple(self._merges),
            pane_orders=tuple(self._pane_orders),
            inputs=self._inputs,
            joining=work.joining if isinstance(work, Joined) else None,
            pairs=tuple(self._pairs),
        )

    def _traced(self, order: int, taken: TakenBundle) -> list[TracedElement]:
        bundle = taken.bundle
        number = len(bundle)
        places = np.arange(number) if taken.kept is None else taken.kept
        windows = _windows_of(self._stage.work.windowing, bundle)
        dropped, reasons = _dropped(taken.late, places, number)
        first_ones = set(places.tolist())
        records = taken.records.rows(taken.rows)
        values = _values(bundle, records)
        if not self._stage.work.emits_panes:  # a process may read any column
            values = [one if isinstance(one, dict) else {"value": one} for one in records]
        origins = self._origins_of(taken)
        signs = [1] * number if bundle.signs is None else bundle.signs.tolist()
        clock, watermark = Instant(taken.clock), Instant(taken.watermark)
        found = []
        for at, (key, time) in enumerate(
            zip(key_values(bundle.keys, number), bundle.times.tolist(), strict=True)
        ):
            gone = dropped[at]
            went = tuple(window for window in windows[at] if window not in gone)
            of = origins[at]
            outcome: ElementOutcome = "kept"
            if at not in first_ones:
                outcome, went = "duplicate", ()
            elif reasons[at] is not None:
                outcome = "partly late" if went else "late"
            found.append(
                TracedElement(
                    key=key, time=Instant(time), clock=clock, watermark=watermark,
                    values=values[at], outcome=outcome, reason=reasons[at], windows=went,
                    retract=signs[at] < 0, record=records[at], dropped=gone, order=order,
                    origins=(of,) if of is not None and of[0] in self._sources else (),
                    pane=of if of is not None and of[0] not in self._sources else None,
                    side=taken.side,
                )
            )  # fmt: skip
        return found

    def _origins_of(self, taken: TakenBundle) -> list[tuple[str, int] | None]:
        """Return each element's origin: (source or stage, number of its record or pane)."""
        column = taken.records.columns.get(TRACED)
        if column is None:
            return [None] * len(taken.rows)
        many = len(self._origins)
        found = column.data[taken.rows].tolist()
        return [(self._origins[code % many], code // many) for code in found]


@final
class Recorder:
    """Records the trace of a run of a graph.

    Args:
        graph: The graph.
    """

    def __init__(self, graph: Graph) -> None:
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
            )
            for stage in graph.stages
        ]
        self._read: list[list[Records]] = [[] for _ in graph.reads]
        self._counts = [0 for _ in graph.reads]
        self._stood: dict[str, list[TracedSource]] = {name: [] for name in self._sources}
        self._errors: list[ErrorRecord] = []

    def stage(self, number: int) -> StageRecorder:
        """Return the recorder of a stage."""
        return self._stages[number]

    def read(self, read: Read, records: Records) -> Records:
        """Record a source's batch and number its records in a hidden column."""
        if not records.length:
            return records
        at = self._graph.reads.index(read)
        self._read[at].append(records)
        first = self._counts[at]
        self._counts[at] += records.length
        return _numbered(records, first, at, len(self._graph.names))

    def failed(self, errors: Sequence[ErrorRecord]) -> None:
        """Record dead letters."""
        self._errors.extend(errors)

    def stood(self, reader: SourceReader, clock: int, *, idle: bool) -> None:
        """Record a source's clock and watermark if they changed."""
        heard = reader.mark.heard_at
        stands = TracedSource(
            Instant(clock),
            Instant(reader.watermark()),
            idle,
            "the input has ended" if reader.ended else reader.mark.holder(clock),
            None if heard is None else Instant(heard),
            reader.ended,
            next(self._order),
        )
        known = self._stood[self._graph.name_of(reader.read)]
        if not known or replace(stands, order=known[-1].order) != known[-1]:
            known.append(stands)

    def trace(self) -> Trace:
        """Return the trace so far."""
        return Trace(
            stages=tuple(stage.trace() for stage in self._stages),
            errors=tuple(self._errors),
            sources={name: tuple(stood) for name, stood in self._stood.items()},
            read={
                name: tuple(row for part in parts for row in part.rows(np.arange(part.length)))
                for name, parts in zip(self._sources, self._read, strict=True)
            },
            reads=dict(zip(self._sources, self._graph.reads, strict=True)),
        )


def _numbered(records: Records, first: int, origin: int, origins: int) -> Records:
    """Add a hidden column that encodes each record's number together with its origin."""
    numbers = np.arange(first, first + records.length, dtype=np.int64) * origins + origin
    columns = records.columns
    if isinstance(columns, ArrowColumns):
        batch = columns.batch.append_column(TRACED, pa.array(numbers))
        return replace(records, columns=ArrowColumns(batch))
    return replace(records, columns={**columns, TRACED: Column(numbers)})


def _windows_of(windowing: Windowing | None, bundle: Bundle) -> list[list[Window]]:
    """Return each element's windows before drops and merges, by running AssignWindows again."""
    found: list[list[Window]] = [[] for _ in range(len(bundle))]
    if windowing is None:
        return found
    windows = windowing.windows
    columns = {name: bundle.values[name].data for name in windows.columns}
    assigned = windows.assign(bundle.times, columns)
    of = range(len(bundle)) if assigned.element is None else assigned.element.tolist()
    for at, start, end in zip(of, assigned.start.tolist(), assigned.end.tolist(), strict=True):
        found[at].append(Window(Instant(start), Instant(end)))
    return found


def _dropped(
    late: LateBatch | None, places: Int64Array, number: int
) -> tuple[list[tuple[Window, ...]], list[str | None]]:
    """Return the windows that each element was dropped from, and the first drop reason."""
    windows: list[tuple[Window, ...]] = [()] * number
    reasons: list[str | None] = [None] * number
    if late is None:
        return windows, reasons
    for element, window, reason in zip(
        places[late.element].tolist(), late.windows(), late.reason.tolist(), strict=True
    ):
        if window is not None:
            windows[element] = (*windows[element], window)
        reasons[element] = reasons[element] or REASONS[reason]
    return windows, reasons


def _values(bundle: Bundle, records: list[Any]) -> list[dict[str, Any]]:
    names = [name for name in bundle.values if not name.startswith(HIDDEN)]
    columns = [bundle.values[name].to_list() for name in names]
    rows: list[dict[str, Any]] = [{} for _ in records]
    if columns:
        rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    if not names:
        whole = len(bundle.values) > 0  # group() of whole records: the element is its own value
        for row, record in zip(rows, records, strict=True):
            if whole or not isinstance(record, dict):
                row["value"] = record
    return rows


def _merged(merges: MergedWindows) -> dict[int, set[tuple[int, int]]]:
    """Return the windows that merged in each group, for groups where a merge changed something."""
    of: dict[int, set[tuple[int, int]]] = {}
    for group, start, end in zip(
        merges.group.tolist(), merges.part_start.tolist(), merges.part_end.tolist(), strict=True
    ):
        of.setdefault(group, set()).add((start, end))
    return {group: parts for group, parts in of.items() if parts != {_into(merges, group)}}


def _traced_merges(
    merges: MergedWindows, of: dict[int, set[tuple[int, int]]], clock: int, order: int
) -> list[TracedMerge]:
    keys = key_values(merges.keys)
    return [
        TracedMerge(
            Instant(clock),
            keys[group],
            _window(_into(merges, group)),
            tuple(_window(part) for part in sorted(parts)),
            order,
        )
        for group, parts in of.items()
    ]


def _into(merges: MergedWindows, group: int) -> tuple[int, int]:
    return int(merges.start[group]), int(merges.end[group])


def _window(ends: tuple[int, int]) -> Window:
    return Window(Instant(ends[0]), Instant(ends[1]))
