"""The trigger algebra of the scalar oracle: the table of S-R, one window at a time.

Where the contract leaves room, these decisions hold here and in the engine:

- ``AfterCount`` keeps a count, ``AfterProcessingTime`` a deadline that its first element sets;
  :func:`clear` resets a node and everything below it.
- ``AfterEach`` feeds all its parts in merging windows, else the one at its position; in merging
  windows a firing clears every part but the one that fired.
- ``AfterWatermark`` feeds ``early`` before its on-time firing and ``late`` after it; in merging
  windows ``early`` goes on being fed, since a merge may bring it back.
- A window that merges is one that has state: the new element of a bundle has no vote (S-R2). One
  window that grows counts as a merge of one.
- Each custom trigger of a tree has wake-up calls of its own, the earliest of those that lie ahead;
  one for a moment that has come already is ignored. They are forgotten when the trigger fires,
  before ``on_fire``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, assert_never, final

from lowwater.errors import InvalidArgument
from lowwater.time import saturating_add
from lowwater.triggers import (
    AfterAll,
    AfterAny,
    AfterCount,
    AfterEach,
    AfterProcessingTime,
    AfterWatermark,
    Always,
    CustomTrigger,
    Default,
    Never,
    OrFinally,
    Repeatedly,
    Trigger,
)
from lowwater.windows import Window


@final
@dataclass(frozen=True, slots=True)
class OracleMoment:
    """What a trigger can observe when it is fed, evaluated, fired or merged."""

    window: Window
    watermark: int
    clock: int
    merging: bool
    touched: bool = False

    @property
    def complete(self) -> bool:
        """Whether the watermark has passed the end of the window (S-T3)."""
        return self.watermark >= self.window.end


@final
@dataclass(slots=True)
class OracleNode:
    """One trigger of the tree, with its state for one window."""

    trigger: Trigger
    parts: list[OracleNode] = field(default_factory=list)
    count: int = 0
    deadline: int | None = None
    position: int = 0
    late_phase: bool = False
    state: Any = None
    wake_watermark: int | None = None


def build(trigger: Trigger) -> OracleNode:
    """Return a fresh tree of nodes."""
    match trigger:
        case Default():
            return build(trigger.expand())
        case AfterWatermark():
            return OracleNode(
                trigger, [build(trigger.early or Never()), build(trigger.late or Never())]
            )
        case AfterAny() | AfterAll() | AfterEach():
            return OracleNode(trigger, [build(part) for part in trigger.parts])
        case Repeatedly():
            return OracleNode(trigger, [build(trigger.trigger)])
        case OrFinally():
            return OracleNode(trigger, [build(trigger.main), build(trigger.until)])
        case AfterCount() | AfterProcessingTime() | Never() | Always() | CustomTrigger():
            return OracleNode(trigger)
        case _:
            assert_never(trigger)


def clear(node: OracleNode) -> None:
    """Reset a node and everything below it."""
    node.count, node.deadline, node.position, node.late_phase = 0, None, 0, False
    node.state, node.wake_watermark = None, None
    for part in node.parts:
        clear(part)


def feed(node: OracleNode, times: Sequence[int], now: OracleMoment) -> None:
    """Feed the trigger a bundle's elements of one window, by event time (S-R2)."""
    match node.trigger:
        case AfterCount():
            node.count += len(times)
        case AfterProcessingTime() as leaf:
            if node.deadline is None:
                due = saturating_add(now.clock, leaf.delay_us)
                align = leaf.align_us or 1
                node.deadline = saturating_add(due, -due % align)
        case CustomTrigger() as custom:
            for at in times:
                custom.logic.on_element(Context(node, now), at)
        case AfterEach() if not now.merging:
            feed(node.parts[node.position], times, now)
        case AfterWatermark():
            early, late = node.parts
            if not node.late_phase or now.merging:
                feed(early, times, now)
            if node.late_phase:
                feed(late, times, now)
        case (
            AfterAny() | AfterAll() | AfterEach() | Repeatedly() | OrFinally()
            | Never() | Always() | Default()
        ):  # fmt: skip
            for part in node.parts:
                feed(part, times, now)
        case _:
            assert_never(node.trigger)


def ready(node: OracleNode, now: OracleMoment) -> bool:
    """Return whether the trigger fires now; changes nothing."""
    match node.trigger:
        case AfterCount() as leaf:
            return node.count >= leaf.count
        case AfterProcessingTime():
            return node.deadline is not None and now.clock >= node.deadline
        case CustomTrigger() as custom:
            return bool(custom.logic.ready(Context(node, now)))
        case Always():
            return now.touched
        case AfterWatermark():
            early, late = node.parts
            return ready(late, now) if node.late_phase else now.complete or ready(early, now)
        case AfterEach():
            return ready(node.parts[node.position], now)
        case AfterAll():
            return all(ready(part, now) for part in node.parts)
        case AfterAny() | OrFinally() | Repeatedly() | Never() | Default():
            return any(ready(part, now) for part in node.parts)
        case _:
            assert_never(node.trigger)


def fire(node: OracleNode, now: OracleMoment) -> bool:
    """Fire a trigger that is ready, reset its pane-scoped state (S-R1); return if finished."""
    finished = _fire(node, now)
    if finished:
        clear(node)
    return finished


def _fire(node: OracleNode, now: OracleMoment) -> bool:
    match node.trigger:
        case Always() | Never() | Default():
            return False
        case AfterCount() | AfterProcessingTime() | AfterAny() | AfterAll():
            return True
        case CustomTrigger() as custom:
            return _fire_custom(node, custom, now)
        case Repeatedly():
            fire(node.parts[0], now)
            return False
        case OrFinally():
            main, until = node.parts
            return ready(until, now) or fire(main, now)
        case AfterEach():
            fired = node.parts[node.position]
            node.position += fire(fired, now)
            for part in node.parts:
                if now.merging and part is not fired:
                    clear(part)
            return node.position == len(node.parts)
        case AfterWatermark() as watermark:
            return _fire_watermark(node, watermark, now)
        case _:
            assert_never(node.trigger)


def _fire_watermark(node: OracleNode, trigger: AfterWatermark, now: OracleMoment) -> bool:
    early, late = node.parts
    if node.late_phase:
        fire(late, now)
        if now.merging:
            clear(early)
    elif now.complete:
        clear(early)
        clear(late)
        node.late_phase = True
        return trigger.late is None
    else:
        fire(early, now)
    return False


def _fire_custom(node: OracleNode, trigger: CustomTrigger, now: OracleMoment) -> bool:
    node.deadline = node.wake_watermark = None
    finished = bool(trigger.logic.on_fire(Context(node, now)))
    allowed = trigger.finishes == "anytime" or (
        trigger.finishes == "at_completion" and now.complete
    )
    if finished and not allowed:
        raise InvalidArgument(
            f"{trigger.logic!r} finished, but it says that it finishes {trigger.finishes!r}",
            hint='Give CustomTrigger(..., finishes="anytime"), or return False from on_fire',
        )
    return finished


def merge(nodes: Sequence[OracleNode], now: OracleMoment) -> OracleNode:
    """Return the trigger of a merged window, from those of the windows that have state (S-R2).

    ``now.window`` is the merged window.
    """
    first = nodes[0]
    merged = OracleNode(first.trigger)
    merged.parts = [merge(parts, now) for parts in zip(*(n.parts for n in nodes), strict=True)]
    match first.trigger:
        case AfterCount():
            merged.count = sum(node.count for node in nodes)
        case AfterProcessingTime():
            merged.deadline = _earliest(node.deadline for node in nodes)
        case CustomTrigger() as custom:
            for node in nodes:
                merged.deadline = _sooner(merged.deadline, node.deadline, now.clock)
                merged.wake_watermark = _sooner(
                    merged.wake_watermark, node.wake_watermark, now.watermark
                )
            custom.logic.on_merge(Context(merged, now), [node.state for node in nodes])
        case AfterWatermark():
            merged.late_phase = now.complete and all(node.late_phase for node in nodes)
            if not merged.late_phase:
                clear(merged.parts[1])
        case AfterEach():
            merged.position = _merged_position(nodes, now)
            for part in merged.parts[merged.position + 1 :]:
                clear(part)
        case AfterAny() | AfterAll() | Repeatedly() | OrFinally() | Never() | Always() | Default():
            pass  # no state but that of their parts
        case _:
            assert_never(first.trigger)
    return merged


def _merged_position(nodes: Sequence[OracleNode], now: OracleMoment) -> int:
    """Return the earliest part that is unfinished in some window, or undone by the merge."""
    position = 0
    for part in nodes[0].parts:
        undone = _requires_completion(part) and not now.complete
        if undone or any(node.position <= position for node in nodes):
            break
        position += 1
    return position


def _requires_completion(node: OracleNode) -> bool:
    """Return whether the trigger cannot finish before its window is complete."""
    match node.trigger:
        case AfterWatermark():
            return True
        case AfterEach() | AfterAll():
            return any(map(_requires_completion, node.parts))
        case AfterAny() | OrFinally():
            return all(map(_requires_completion, node.parts))
        case (
            AfterCount() | AfterProcessingTime() | Repeatedly() | Never() | Always()
            | Default() | CustomTrigger()
        ):  # fmt: skip
            return False
        case _:
            assert_never(node.trigger)


def clock_deadlines(node: OracleNode) -> Iterator[int]:
    """Yield the clock readings at which the trigger must be evaluated."""
    if node.deadline is not None:
        yield node.deadline
    for part in node.parts:
        yield from clock_deadlines(part)


def watermark_wakes(node: OracleNode) -> Iterator[int]:
    """Yield the watermarks at which custom triggers must be evaluated."""
    if node.wake_watermark is not None:
        yield node.wake_watermark
    for part in node.parts:
        yield from watermark_wakes(part)


@final
class Context:
    """A custom trigger's view of one window: :class:`lowwater.triggers.TriggerContext`."""

    def __init__(self, node: OracleNode, now: OracleMoment) -> None:
        self._node = node
        self.window = now.window
        self.watermark = now.watermark
        self.clock = now.clock

    @property
    def state(self) -> Any:
        """The trigger's own value for this window."""
        return self._node.state

    @state.setter
    def state(self, value: Any) -> None:
        self._node.state = value

    def wake_at_clock(self, at: int) -> None:
        """Request evaluation when the clock reaches ``at``; the earliest request counts."""
        self._node.deadline = _sooner(self._node.deadline, at, self.clock)

    def wake_at_watermark(self, at: int) -> None:
        """Request evaluation when the watermark reaches ``at``."""
        self._node.wake_watermark = _sooner(self._node.wake_watermark, at, self.watermark)


def _sooner(kept: int | None, asked: int | None, passed: int) -> int | None:
    """Return the earlier of two moments that lie ahead of ``passed``."""
    return _earliest(at for at in (kept, asked) if at is not None and at > passed)


def _earliest(moments: Iterator[int | None]) -> int | None:
    return min((at for at in moments if at is not None), default=None)
