"""What a run did, step by step, as values: elements, panes, merges, clocks and watermarks.

A trace is recorded only where a run is asked for it (``trace=True``), and is for looking into: it
holds a Python value for each element.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, final

from lowwater.engine.aggregates import AggregateSpec
from lowwater.engine.graph.graph import Read
from lowwater.engine.records.panes import ErrorRecord, Pane
from lowwater.engine.window.windowing import Windowing
from lowwater.errors import InvalidArgument, nearest
from lowwater.time import Instant
from lowwater.windows import Window

ElementOutcome: TypeAlias = Literal["kept", "late", "partly late", "duplicate"]


@final
@dataclass(frozen=True, slots=True)
class TracedElement:
    """One element that was given to one stage.

    Args:
        key: Its key: a plain value for one key column, a tuple for several.
        time: Its event time.
        clock: The clock when it came.
        watermark: The input watermark of the stage then.
        values: The columns that aggregates read; of a plain element ``{"value": ...}``.
        outcome: ``kept``, ``late`` (dropped from every window), ``partly late`` (from some) or
            ``duplicate``.
        reason: Why it was dropped, as a :class:`LateRecord` says it; ``None`` for what was not.
        windows: The windows that took it, before any merging.
        retract: Whether it takes an element back.
        record: The whole element as it came to the stage: a value, or a mapping of its columns.
        origins: Which record of which source it is made of, as (source, index into
            ``Trace.read[source]``); empty for what another stage made.
        pane: Which pane of which stage it is made of, as (stage, index into the stage's ``panes``);
            ``None`` for what a source or a process gave, and where a function of ``map_batches``
            left no column by which its rows can be told to be those it was given.
        dropped: The windows it was dropped from, before any merging.
        order: What has a lower one happened earlier, over all stages; of one bundle all share one.
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


@final
@dataclass(frozen=True, slots=True)
class TracedMove:
    """Where a stage stands after a turn, if it stood elsewhere before.

    Args:
        clock: Its clock.
        input_watermark: Its input watermark.
        output_watermark: Its output watermark.
        held_by: What holds the output watermark, in words, if that is known.
        order: What has a lower one happened earlier.
    """

    clock: Instant
    input_watermark: Instant
    output_watermark: Instant
    held_by: str | None = None
    order: int = 0


@final
@dataclass(frozen=True, slots=True)
class TracedMerge:
    """Windows of one key became one.

    Args:
        clock: The clock then.
        key: The key.
        into: The window they became.
        of: The windows there were before: those of the bundle's elements, and those open.
        order: What has a lower one happened earlier.
    """

    clock: Instant
    key: Any
    into: Window
    of: tuple[Window, ...]
    order: int = 0


@final
@dataclass(frozen=True, slots=True)
class TracedSource:
    """Where a source stands after a turn, if it stood elsewhere before.

    Args:
        clock: The clock.
        watermark: How far event time is known to be complete, by what it has given.
        is_idle: Whether the others wait no more for it (``idle_after``).
        holder: What holds its watermark, in words.
        heard_at: The clock when it last gave an element; ``None`` before the first.
        ended: Whether it has nothing more to give.
        order: What has a lower one happened earlier.
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
    """What one stage took and gave, each in its order.

    Args:
        name: The stage's name.
        key_names: What its panes call the key columns.
        windowing: Windows, trigger and the rest; ``None`` for a process without windows.
        aggregates: What its panes show, by name; nothing for a process.
        elements: The elements it was given.
        moves: Its clock and watermarks.
        panes: The panes it showed, retractions among them.
        merges: The windows that became one.
        pane_orders: The ``order`` of each pane.
        inputs: The names of the sources and stages it reads.
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


@final
@dataclass(frozen=True, slots=True)
class Trace:
    """What a run did.

    Args:
        stages: The stages, each behind those it reads.
        errors: The dead letters.
        sources: Where each source stood, by its name.
        read: The records that each source gave, by its name, before any step.
        reads: The sources themselves, as the pipeline says them, by name.
    """

    stages: tuple[StageTrace, ...]
    errors: tuple[ErrorRecord, ...] = ()
    sources: Mapping[str, tuple[TracedSource, ...]] = field(default_factory=dict)
    read: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    reads: Mapping[str, Read] = field(default_factory=dict)

    def stage(self, name: str | None = None) -> StageTrace:
        """Return a stage by its name; the last one unless named.

        Raises:
            InvalidArgument: There is none of that name.
        """
        if name is None:
            return self.stages[-1]
        for stage in self.stages:
            if stage.name == name:
                return stage
        names = [stage.name for stage in self.stages]
        raise InvalidArgument(f"there is no stage {name!r}", hint=nearest(str(name), names))
