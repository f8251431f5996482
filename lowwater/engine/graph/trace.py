"""The trace of a run as values: elements, panes, merges, clocks and watermarks, in order.

A trace is recorded only with ``trace=``. It is meant for inspection and tests. A run records
columns; elements and panes become Python values when they are first read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from lowwater.engine.aggregates import AggregateSpec
from lowwater.engine.graph.graph import Read
from lowwater.engine.join.joining import AsOf, Joining
from lowwater.engine.records.panes import ErrorRecord, Pane
from lowwater.engine.window.windowing import Windowing
from lowwater.errors import InvalidArgument, describe, nearest
from lowwater.time import Instant, Int64Array
from lowwater.windows import CountWindows, Window

if TYPE_CHECKING:
    from lowwater.engine.match.rules import Matching
    from lowwater.engine.over.rules import Over

ElementOutcome: TypeAlias = Literal["kept", "late", "partly late", "duplicate"]
TracedSide: TypeAlias = Literal["left", "right"]

NOT_KEPT = -1
"""Stands for a record of a pair that the sample does not contain."""
_LIMIT = 50_000


@final
@dataclass(frozen=True, slots=True)
class Tracing:
    """How much of a run a trace keeps; ``trace=True`` is ``trace=Tracing()``.

    With more elements than ``limit`` at a stage, the trace keeps a sample of them. Elements that
    were dropped (late ones and duplicates) and elements whose windows merged with others are always
    kept, beyond the limit. So are all panes, merges and watermarks. Which others are kept depends
    only on the number of the record, or pane, that an element derives from, so two runs over the
    same input keep the same elements.

    Args:
        limit: The most other elements to keep at each stage, and the most records of each source
            to keep beside those that kept elements derive from; ``None`` for all.

    >>> Tracing(limit=100_000)
    Tracing(limit=100000)
    """

    limit: int | None = _LIMIT

    def __post_init__(self) -> None:
        limit = self.limit
        if limit is None:
            return
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise InvalidArgument(
                f"{describe('limit', limit)} must be an int of at least 1, or None",
                where="Tracing",
                hint="Use, say, 100_000; None keeps every element",
            )


@final
@dataclass(frozen=True, slots=True)
class TracedElement:
    """One element as it arrived at one stage.

    Args:
        key: Its key: a plain value for one key column, a tuple for several.
        time: Its event time.
        clock: The clock at arrival.
        watermark: The stage's input watermark at arrival.
        values: The columns that aggregates read; of a plain element ``{"value": ...}``.
        outcome: ``kept``, ``late`` (dropped from every window), ``partly late`` (from some) or
            ``duplicate``.
        reason: Why it was dropped, as in :class:`LateRecord`; ``None`` if it was not.
        windows: The windows that accepted it, before any merging.
        retract: Whether it is a retraction.
        record: The whole element as it arrived: a value, or a mapping of its columns.
        origins: The source record it derives from, as (source, number of the record); the number
            is its index in ``Trace.read[source]`` unless that is a sample. Empty if it derives from
            another stage's output.
        side: The side of a join that it came to.
        pane: The pane it derives from, as (stage, index into the stage's ``panes``); ``None`` if it
            comes from a source or a process, or if a ``map_batches`` function may have reordered
            rows so that the origin is unknown.
        dropped: The windows it was dropped from, before any merging.
        order: Position in the order of events across all stages; equal within one bundle.
    """

    key: Any
    time: Instant
    clock: Instant
    watermark: Instant
    values: Mapping[str, Any]
    outcome: ElementOutcome
    reason: str | None
    windows: tuple[Window, ...]
    retract: bool = False
    record: Any = None
    origins: tuple[tuple[str, int], ...] = ()
    dropped: tuple[Window, ...] = ()
    order: int = 0
    pane: tuple[str, int] | None = None
    side: TracedSide | None = None


@final
@dataclass(frozen=True, slots=True)
class TracedMove:
    """The clock and watermarks of a stage after a turn that changed them.

    Args:
        clock: Its clock.
        input_watermark: Its input watermark.
        output_watermark: Its output watermark.
        held_by: What holds the output watermark, in words, if known.
        order: Position in the order of events.
        sides: Of a join, the watermark of the left and of the right side.
    """

    clock: Instant
    input_watermark: Instant
    output_watermark: Instant
    held_by: str | None = None
    order: int = 0
    sides: tuple[Instant, Instant] | None = None


@final
@dataclass(frozen=True, slots=True)
class TracedMerge:
    """Windows of one key that merged into one.

    Args:
        clock: The clock at the merge.
        key: The key.
        into: The resulting window.
        of: The merged windows: those of the bundle's elements, and open ones.
        order: Position in the order of events.
    """

    clock: Instant
    key: Any
    into: Window
    of: tuple[Window, ...]
    order: int = 0


@final
@dataclass(frozen=True, slots=True)
class TracedPair:
    """What a join emitted: two records that make a pair, or one without a partner.

    Args:
        left: The index of the left record in the stage's ``elements``; ``None`` for none,
            ``NOT_KEPT`` for one that is not in the sample.
        right: That of the right record.
        time: The event time of the pair.
        clock: The clock when it was emitted.
        watermark: The stage's input watermark then.
        retract: Whether it was retracted, rather than emitted.
        order: Position in the order of events.
    """

    left: int | None
    right: int | None
    time: Instant
    clock: Instant
    watermark: Instant
    retract: bool = False
    order: int = 0


@final
@dataclass(frozen=True, slots=True)
class TracedTimer:
    """What became of a timer of a process.

    Args:
        what: ``set`` (also if it was set already, and moved), ``cleared`` or ``fired``.
        name: What the process calls it.
        tag: Its tag; ``None`` without one.
        key: The key.
        window: The window; ``None`` for a process without windows.
        at: When it is due.
        time: The event time of the hook: that of the record which set it, or of the timer.
        watermark: The stage's input watermark then.
        clock: The clock then.
        order: Position in the order of events.
    """

    what: Literal["set", "cleared", "fired"]
    name: str
    tag: Any
    key: Any
    window: Window | None
    at: Instant
    time: Instant
    watermark: Instant
    clock: Instant
    order: int = 0


@final
@dataclass(frozen=True, slots=True)
class TracedSource:
    """The watermark of a source after a turn that changed it.

    Args:
        clock: The clock.
        watermark: The source's watermark.
        is_idle: Whether other sources no longer wait for it (``idle_after``).
        holder: What holds its watermark, in words.
        heard_at: The clock at its last element; ``None`` before the first.
        ended: Whether the source has ended.
        order: Position in the order of events.
    """

    clock: Instant
    watermark: Instant
    is_idle: bool
    holder: str
    heard_at: Instant | None = None
    ended: bool = False
    order: int = 0


class TracedTurn(NamedTuple):
    """One turn of a run: what arrived from a source, and where the sources then stood.

    Turns in which nothing arrived and nothing moved are left out. A scenario that repeats the run
    is made of these (:mod:`lowwater.testing.recorded`).

    Args:
        clock: The clock, int microseconds.
        source: The number of the source that a bundle came from; ``None``: no bundle came.
        first: The number of the first record of the bundle.
        stop: The number behind that of its last record.
        watermarks: The watermark of each source as stages see it: one that is idle follows others.
        ended: Whether each source has ended.
    """

    clock: int
    source: int | None
    first: int
    stop: int
    watermarks: tuple[int, ...]
    ended: tuple[bool, ...]


@final
@dataclass(frozen=True, slots=True)
class StageSample:
    """What the elements of a stage are a sample of.

    Args:
        arrived: How many elements arrived.
        thinning: The sample has about one in ``2 ** thinning`` of the elements that are not always
            kept: those whose number :func:`~lowwater.engine.graph.traced_parts.is_sampled`.
        drawn: Which of the kept elements have such a number, bool, shape (elements,).
        latest: The latest event time before each kept element, int64, of all that had arrived and
            were neither duplicates nor retractions.
        bundles: The ``order`` of each bundle that arrived, kept or not.
    """

    arrived: int
    thinning: int
    drawn: NDArray[np.bool_]
    latest: Int64Array
    bundles: Sequence[int]


@final
@dataclass(frozen=True, slots=True)
class StageTrace:
    """The input and output of one stage, each in order.

    Args:
        name: The stage's name.
        key_names: The names of the key columns in its panes.
        windowing: Windows, trigger and lateness; ``None`` for a process without windows.
        aggregates: Its aggregates by name; empty for a process.
        elements: The elements that arrived.
        moves: The changes of its clock and watermarks.
        panes: The panes it emitted, retractions included.
        merges: The windows that merged.
        pane_orders: The ``order`` of each pane.
        inputs: The names of the sources and stages it reads.
        joining: The rules, if it is a join.
        pairs: What a join emitted; without pairs of records that arrived before a restart, and of
            a sample only those with at least one kept record.
        sample: What ``elements`` is a sample of; ``None`` if it has all elements.
        timers: What became of the timers of a process, in order; beyond the limit of the trace, of
            those of some keys. Empty where workers call the process.
        matching: The rules, if it finds row patterns. What it found is not recorded: it is found
            again in the elements when it is asked for.
        ranging: The rules, if it computes values over rows; likewise computed again.
        counting: Its windows, if they are of a number of records.
        is_resumed: Whether it had state of an earlier run, of which the trace has no elements.
    """

    name: str
    key_names: tuple[str, ...]
    windowing: Windowing | None
    aggregates: Mapping[str, AggregateSpec]
    elements: Sequence[TracedElement] = ()
    moves: Sequence[TracedMove] = ()
    panes: Sequence[Pane] = ()
    merges: Sequence[TracedMerge] = ()
    pane_orders: Sequence[int] = ()
    inputs: tuple[str, ...] = ()
    joining: Joining | AsOf | None = None
    pairs: tuple[TracedPair, ...] = ()
    sample: StageSample | None = field(default=None, compare=False, repr=False)
    timers: tuple[TracedTimer, ...] = ()
    matching: Matching | None = None
    ranging: Over | None = None
    counting: CountWindows | None = None
    is_resumed: bool = False

    @property
    def arrived(self) -> int:
        """How many elements arrived: more than ``elements`` has, if that is a sample."""
        return len(self.elements) if self.sample is None else self.sample.arrived


@final
@dataclass(frozen=True, slots=True)
class Trace:
    """The trace of a whole run.

    Args:
        stages: The stages, each after those it reads.
        errors: The dead letters.
        sources: The watermark changes of each source, by name.
        read: The records of each source, by name, before any step; a sample if there are many.
        reads: The sources as the pipeline defines them, by name.
        turns: The turns of the run, in order; the numbers of sources are places in ``reads``.
    """

    stages: tuple[StageTrace, ...]
    errors: tuple[ErrorRecord, ...] = ()
    sources: Mapping[str, tuple[TracedSource, ...]] = field(default_factory=dict)
    read: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    reads: Mapping[str, Read] = field(default_factory=dict)
    turns: Sequence[TracedTurn] = field(default=(), compare=False, repr=False)

    def stage(self, name: str | None = None) -> StageTrace:
        """Return the trace of a stage by name; of the last stage by default.

        Raises:
            InvalidArgument: There is no such stage.
        """
        if name is None:
            return self.stages[-1]
        for stage in self.stages:
            if stage.name == name:
                return stage
        names = [stage.name for stage in self.stages]
        raise InvalidArgument(f"there is no stage {name!r}", hint=nearest(str(name), names))
