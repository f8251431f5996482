"""The trace of a run as values: elements, panes, merges, clocks and watermarks, in order.

A trace is recorded only with ``trace=True``. It is meant for inspection and tests: it holds a
Python value for each element.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, final

from lowwater.engine.aggregates import AggregateSpec
from lowwater.engine.graph.graph import Read
from lowwater.engine.join.joining import AsOf, Joining
from lowwater.engine.records.panes import ErrorRecord, Pane
from lowwater.engine.window.windowing import Windowing
from lowwater.errors import InvalidArgument, nearest
from lowwater.time import Instant
from lowwater.windows import Window

ElementOutcome: TypeAlias = Literal["kept", "late", "partly late", "duplicate"]
TracedSide: TypeAlias = Literal["left", "right"]


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
        origins: The source record it derives from, as (source, index into ``Trace.read[source]``);
            empty if it derives from another stage's output.
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
        left: The index of the left record in the stage's ``elements``; ``None`` for none.
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
        pairs: What a join emitted; without pairs of records that arrived before a restart.
    """

    name: str
    key_names: tuple[str, ...]
    windowing: Windowing | None
    aggregates: Mapping[str, AggregateSpec]
    elements: tuple[TracedElement, ...] = ()
    moves: tuple[TracedMove, ...] = ()
    panes: tuple[Pane, ...] = ()
    merges: tuple[TracedMerge, ...] = ()
    pane_orders: tuple[int, ...] = ()
    inputs: tuple[str, ...] = ()
    joining: Joining | AsOf | None = None
    pairs: tuple[TracedPair, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class Trace:
    """The trace of a whole run.

    Args:
        stages: The stages, each after those it reads.
        errors: The dead letters.
        sources: The watermark changes of each source, by name.
        read: The records of each source, by name, before any step.
        reads: The sources as the pipeline defines them, by name.
    """

    stages: tuple[StageTrace, ...]
    errors: tuple[ErrorRecord, ...] = ()
    sources: Mapping[str, tuple[TracedSource, ...]] = field(default_factory=dict)
    read: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    reads: Mapping[str, Read] = field(default_factory=dict)

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
