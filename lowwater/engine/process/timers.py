"""Timers of a process: set and cleared per key, due in time order, each with its own hold.

Timers may set timers; a guard stops those that would never come to an end.
"""

from __future__ import annotations

import heapq
from typing import Any, NamedTuple, TypeAlias, final

from lowwater.engine.process.key_parts import SHIFT, Dealt
from lowwater.engine.records.steps import TimerEvent
from lowwater.errors import DataError
from lowwater.time import END_OF_TIME, format_instant

Slot: TypeAlias = tuple[int, Any]
"""Number of the timer among those declared, and the tag."""

_TIMER, _EXPIRY = range(2)
_FEW = 64
_NEVER = END_OF_TIME + 1
AT_ONE_INSTANT = 1_000
AFTER_THE_END = 100_000


@final
class Setting:
    """A timer that is set: when it fires, its place among all that were ever set, its hold.

    ``queued`` is the time and turn of its valid entry in its queue, ``hold_queued`` the time of the
    one for its hold. A timer that moves later leaves its entry where it is: the entry is moved when
    it comes up, so that setting a timer later costs nothing.

    Args:
        time: When it fires.
        turn: Its place among all of its part that were ever set.
        output_time: Where it holds the output watermark; ``None`` for nowhere.
    """

    __slots__ = ("hold_queued", "output_time", "queued", "time", "turn")

    def __init__(self, time: int, turn: int, output_time: int | None) -> None:
        self.time = time
        self.turn = turn
        self.output_time = output_time
        self.queued = (_NEVER, 0)
        self.hold_queued = _NEVER

    def __lt__(self, other: Setting) -> bool:
        return False  # a heap compares settings where entries are equal in all else


class Due(NamedTuple):
    """An entry of a queue. It may be stale: that is checked when it comes up.

    Entries of one time come part by part, there in order of setting, and after them the windows
    that expire then: ``rank`` says so.
    """

    time: int
    rank: int
    turn: int
    scope: int
    slot: Slot | None
    setting: Setting | None


@final
class Timers:
    """The timers that are set, of all scopes.

    Setting and firing one is O(log n), amortised; moving one later, and clearing, O(1). ``turns``
    are the next turn of each part, ``counts`` how many of its timers are set. ``log`` takes what
    becomes of them, for a trace; ``None``: nobody asks.

    Args:
        domains: Of each declared timer, whether it is one of event time.
    """

    def __init__(self, domains: list[bool]) -> None:
        self._domains = domains
        self.held: dict[int, dict[Slot, Setting]] = {}
        self.changed: set[tuple[int, Slot]] = set()
        self.turns = Dealt()
        self.counts: dict[int, int] = {}
        self.log: list[TimerEvent] | None = None
        self._event = _Queue()
        self._clock = _Queue()
        self._holds = _Queue()

    def is_event(self, number: int) -> bool:
        """Return whether a declared timer is one of event time."""
        return self._domains[number]

    def is_of_event(self, due: Due) -> bool:
        """Return whether an entry is of event time: a timer of it, or a window that expires."""
        return due.slot is None or self._domains[due.slot[0]]

    def set(self, scope: int, slot: Slot, time: int, output_time: int | None) -> None:
        """Set a timer; one that is set already is moved."""
        part = scope >> SHIFT
        turn = self.turns[part]
        self.turns[part] = turn + 1
        held = self.held.get(scope)
        setting = None if held is None else held.get(slot)
        if setting is None:
            self.put(scope, slot, Setting(time, turn, output_time))
        else:
            setting.time, setting.turn, setting.output_time = time, turn, output_time
            self._queue(scope, slot, setting)
        self.changed.add((scope, slot))

    def put(self, scope: int, slot: Slot, setting: Setting) -> None:
        """Hold a timer as it was set before; its setting is no other's."""
        held = self.held.setdefault(scope, {})
        if slot not in held:
            self._count(scope, 1)
        held[slot] = setting
        self._queue(scope, slot, setting)

    def clear(self, scope: int, slot: Slot) -> None:
        """Clear a timer, if it is set."""
        held = self.held.get(scope)
        if held is None or held.pop(slot, None) is None:
            return
        self._count(scope, -1)
        self.changed.add((scope, slot))
        if not held:
            del self.held[scope]

    def drop(self, scope: int) -> None:
        """Clear all timers of a scope."""
        held = self.held.pop(scope, {})
        self._count(scope, -len(held))
        self.changed.update((scope, slot) for slot in held)

    def merge(self, into: int, sources: list[int]) -> None:
        """Move timers to one scope; of one name and tag the one that was set last stays."""
        for scope in sources:
            if scope == into:
                continue
            moved = self.held.get(scope, {})
            self.drop(scope)
            for slot, was in moved.items():
                there = self.held.get(into, {}).get(slot)
                if there is None or there.turn < was.turn:
                    self.put(into, slot, Setting(was.time, was.turn, was.output_time))
                    self.changed.add((into, slot))

    def expire_at(self, time: int, turn: int, scope: int) -> None:
        """Queue a window for its expiry, after the timers due at that time."""
        self._push(self._event, Due(time, _rank(scope, _EXPIRY), turn, scope, None, None))

    def pop(self, upto: int, clock: int, part: int, reached: int) -> Due | None:
        """Remove and return what is due next: a timer, which is no longer set, or a window.

        What the hooks of a part have made due comes before what is due of other parts: first timers
        of event time that are no later than what has fired, then those of processing time, and then
        later ones of event time.

        Args:
            upto: The watermark.
            clock: The clock.
            part: The part of what has fired, or arrived, last.
            reached: The latest event time that has fired of it, since another part's.
        """
        event, timed = self._first(self._event, upto), self._first(self._clock, clock)
        if event is not None and timed is not None:
            of_part = event.scope >> SHIFT == part
            if (of_part and event.time <= reached) or (timed.scope >> SHIFT != part and of_part):
                timed = None
            else:
                event = None
        due, queue = (event, self._event) if event is not None else (timed, self._clock)
        if due is not None:
            heapq.heappop(queue.entries)
            if due.slot is not None:
                self.clear(due.scope, due.slot)
        return due

    def event_due(self, upto: int) -> bool:
        """Return whether something may be due at or before a watermark. O(1)."""
        entries = self._event.entries
        return bool(entries) and entries[0].time <= upto

    @property
    def first_event(self) -> int:
        """Before this watermark nothing is due; the end of time for none. O(1)."""
        entries = self._event.entries
        return entries[0].time if entries else END_OF_TIME

    def clock_due(self, upto: int) -> bool:
        """Return whether something may be due at or before a clock. O(1)."""
        entries = self._clock.entries
        return bool(entries) and entries[0].time <= upto

    @property
    def next_clock(self) -> Due | None:
        """The timer of processing time that is due next."""
        return self._first(self._clock)

    @property
    def hold(self) -> Due | None:
        """The timer with the earliest output time, which is its ``time`` here."""
        queue = self._holds
        while queue.entries:
            due = queue.entries[0]
            setting = due.setting
            if setting is not None and self._is_set(due) and due.time == setting.hold_queued:
                if setting.output_time == due.time:
                    return due
                heapq.heappop(queue.entries)
                setting.hold_queued = _NEVER
                self._queue_hold(due.scope, due.slot, setting)
            else:
                heapq.heappop(queue.entries)
        return None

    def _count(self, scope: int, more: int) -> None:
        part = scope >> SHIFT
        self.counts[part] = self.counts.get(part, 0) + more

    def _first(self, queue: _Queue, upto: int = END_OF_TIME) -> Due | None:
        """Return the first valid entry, if it is due; remove or move the stale ones before it."""
        while queue.entries:
            due = queue.entries[0]
            if due.time > upto:
                return None
            setting = due.setting
            if due.slot is None or setting is None:
                return due  # whether the window still exists, the caller knows
            if self._is_set(due) and setting.queued == (due.time, due.turn):
                if setting.turn == due.turn:
                    return due
                heapq.heappop(queue.entries)
                setting.queued = (_NEVER, 0)
                self._queue(due.scope, due.slot, setting)
            else:
                heapq.heappop(queue.entries)
        return None

    def _is_set(self, due: Due) -> bool:
        if due.slot is None:
            return True
        held = self.held.get(due.scope)
        return held is not None and held.get(due.slot) is due.setting

    def _queue(self, scope: int, slot: Slot, setting: Setting) -> None:
        """Make sure a timer has a valid entry at its time or before, and one for its hold."""
        if setting.time < setting.queued[0]:
            setting.queued = (setting.time, setting.turn)
            queue = self._event if self._domains[slot[0]] else self._clock
            self._push(queue, Due(setting.time, _rank(scope), setting.turn, scope, slot, setting))
        if setting.output_time is not None:
            self._queue_hold(scope, slot, setting)

    def _queue_hold(self, scope: int, slot: Slot | None, setting: Setting) -> None:
        at = setting.output_time
        if at is not None and at < setting.hold_queued:
            setting.hold_queued = at
            self._push(self._holds, Due(at, _rank(scope), setting.turn, scope, slot, setting))

    def _push(self, queue: _Queue, due: Due) -> None:
        heapq.heappush(queue.entries, due)
        if len(queue.entries) > queue.room:
            queue.entries = [each for each in queue.entries if self._is_set(each)]
            heapq.heapify(queue.entries)
            queue.room = 2 * len(queue.entries) + _FEW


def _rank(scope: int, kind: int = _TIMER) -> int:
    return 2 * (scope >> SHIFT) + kind


@final
class _Queue:
    """A heap, and the length at which its stale entries are removed."""

    __slots__ = ("entries", "room")

    def __init__(self) -> None:
        self.entries: list[Due] = []
        self.room = _FEW


class Depth(NamedTuple):
    """The length of a chain of timers that set each other in one step.

    ``still`` counts those since time last advanced.
    """

    time: int
    still: int
    whole: int


@final
class Chains:
    """Tracks which timer was set by which within a step, to stop those that never end (S-K4).

    Args:
        place: The process, in words.
    """

    def __init__(self, place: str) -> None:
        self._place = place
        self._set_by: dict[int, Depth] = {}

    def enter(self, due: Due, name: str, ended: bool) -> Depth:
        """Return how deep in a chain a timer is that is about to fire.

        Raises:
            DataError: Too deep: time stands still, or the input has ended (S-K4).
        """
        before = self._set_by.pop(due.turn, None)
        if before is None:
            return Depth(due.time, 0, 0)
        still = before.still + 1 if due.time <= before.time else 0
        depth = Depth(max(due.time, before.time), still, before.whole + 1)
        if still >= AT_ONE_INSTANT:
            raise DataError(
                f"timers set each other {still:,} times at {format_instant(depth.time)}, the last "
                f"of them {name!r}, and time does not move on",
                where=self._place,
                hint="Set it for later than ctx.due",
            )
        if ended and depth.whole >= AFTER_THE_END:
            raise DataError(
                f"the input has ended, and timers have set each other {depth.whole:,} times since, "
                f"the last of them {name!r} at {format_instant(due.time)}",
                where=self._place,
                hint="Do not set it again once ctx.ended is true",
            )
        return depth

    def leave(self, due: Due, depth: Depth, turns: range) -> None:
        """Record which timers were set while one fired."""
        for turn in turns:
            self._set_by[turn] = depth

    def clear(self) -> None:
        """Begin a new step."""
        if self._set_by:
            self._set_by = {}
