"""What the hooks of a per-record process see: the current key, its cells and timers, and emit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NoReturn, final

from lowwater.engine.process.cell import ScopeCursor, own
from lowwater.engine.process.outputs import OutputBuffer, sign_of
from lowwater.engine.process.refusals import Refusals
from lowwater.engine.process.timers import Timers
from lowwater.engine.records.panes import Kind
from lowwater.engine.records.stage_output import MAIN
from lowwater.engine.records.steps import TimerEvent
from lowwater.engine.records.storable import fault_of
from lowwater.errors import InvalidArgument, UnitWarning, UnknownName, describe, nearest, warn
from lowwater.time import (
    DAY_US,
    END_OF_TIME,
    LAST_EVENT_TIME,
    START_OF_TIME,
    Instant,
    InstantLike,
    format_instant,
    instant,
    looks_like_seconds,
)
from lowwater.windows import Window


class ProcessContext:
    """The current key (in windows: the key and window), as the hooks of a process see it.

    One object serves all keys, so what it returns is valid only within the hook. The cells and
    timers of the process are attributes, by name.

    Attributes:
        key: The key: a plain value for one key column, a tuple for several.
        time: Event time, int microseconds: that of the record; of a timer, its output time or else
            its own (of a processing-time timer, the output watermark); of an expiring window, its
            last instant or the output watermark, whichever is later; in ``on_end``, the output
            watermark.
        due: The time that the firing timer was set for, int microseconds; in other hooks ``time``.
        tag: The tag of the firing timer.
        watermark: The input watermark, int microseconds.
        clock: The clock, int microseconds.
        window: The window; ``None`` for a process without windows.
    """

    __slots__ = (
        "_bounds",
        "_buffers",
        "_cursor",
        "_refusals",
        "clock",
        "due",
        "key",
        "tag",
        "time",
        "watermark",
        "window",
    )  # fmt: skip

    key: Any
    tag: Any
    due: int
    time: int
    watermark: int
    clock: int
    window: Window | None

    def __init__(
        self,
        cursor: ScopeCursor,
        bounds: HookBounds,
        buffers: Mapping[str, OutputBuffer],
        refusals: Refusals,
    ) -> None:
        self._cursor = cursor
        self._bounds = bounds
        self._buffers = buffers
        self._refusals = refusals

    @property
    def ended(self) -> bool:
        """Whether the input has ended: timers that are set now fire at once, at any time."""
        return self.watermark == END_OF_TIME

    def emit(
        self,
        value: Any,
        *,
        time: InstantLike | None = None,
        tag: str = MAIN,
        kind: Kind | None = None,
    ) -> None:
        """Emit a record to an output.

        Args:
            value: The record: a mapping, a dataclass or a named tuple gives columns; anything else
                a column ``value``.
            time: Its event time; ``ctx.time`` if left out.
            tag: A declared output; the main one by default.
            kind: ``"retract"`` cancels an equal record of the same key and time that was emitted
                before; only a process that declares ``retracts = True`` may say it (S-K12).

        Raises:
            InvalidArgument: The output is not declared, the output watermark may have passed the
                time (S-K6), or ``kind`` is not allowed.
        """
        buffer = self._buffers.get(tag)
        if buffer is None:
            raise InvalidArgument(
                f"{describe('tag', tag)} is no output that is declared",
                where=self._bounds.place,
                hint=nearest(str(tag), self._buffers),
            )
        at = self.time if time is None else micros(time, "time")
        bounds = self._bounds
        if (
            (at < bounds.floor and at < bounds.lowest)
            or at > LAST_EVENT_TIME
            or at == START_OF_TIME
        ):
            raise self._wrong(at, min(bounds.floor, bounds.lowest))
        if kind is not None or buffer.signed:
            buffer.signs.append(sign_of(kind, signed=buffer.signed, place=bounds.place))
        buffer.scopes.append(self._cursor.scope)
        buffer.places.append(self._cursor.place)
        buffer.times.append(at)
        buffer.values.append(own(value, buffer.odd, tag))

    def late(self, reason: str) -> None:
        """Send the record at hand to the late output, with the reason ``refused`` (S-K11).

        The hook goes on. In windows the record is refused in the window at hand only. A record is
        refused once: a second call does nothing.

        Args:
            reason: Why: the ``detail`` of the late record.

        Raises:
            InvalidArgument: No record is at hand, as in ``on_timer``; or the reason is no text.
        """
        self._refusals.refuse_one(reason)

    def _wrong(self, at: int, floor: int) -> InvalidArgument:
        if at == START_OF_TIME:
            return InvalidArgument(
                "there is no event time for this record yet, as there is no watermark",
                where=f"emit of {self._bounds.place}",
                hint="Use emit(..., time=...), or set the timer with an output_time; for on_end, "
                "give the source a watermark, or keep the time of the key's last record in a cell",
            )
        if at < floor:
            return InvalidArgument(
                f"{describe('time', Instant(at))} is earlier than {format_instant(floor)}: the "
                "output watermark may have passed it, and the record would be late",
                where=f"emit of {self._bounds.place}",
                hint="Emit at ctx.time or later; set a timer with output_time= to hold the output "
                "watermark for what comes later",
            )
        return InvalidArgument(
            f"{describe('time', Instant(at))} is beyond the last event time",
            where=f"emit of {self._bounds.place}",
            hint=f"Use at most {format_instant(LAST_EVENT_TIME)}",
        )

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    else:

        def __getattr__(self, name: str) -> NoReturn:
            raise not_declared(self, name, self._bounds.place)


def not_declared(context: object, name: str, place: str) -> AttributeError:
    """Return the error for a cell or timer that a context does not have."""
    if hasattr(type(context), name):  # a slot that is empty
        return AttributeError(name)
    declared = [each for each in vars(type(context)) if not each.startswith("_")]
    return UnknownName(
        f"ctx has no {name!r}; declared are {', '.join(map(repr, declared)) or 'no cells'}",
        where=place,
        hint=f"Declare it in the body of the class, as in {name} = lw.value_cell()",
    )


def context_type(bound: Mapping[str, Any]) -> type[ProcessContext]:
    """Return the type of a context with these cells and timers.

    They are attributes of the type: as quick to read as slots, and read-only.
    """
    return type("ProcessContext", (ProcessContext,), {**bound, "__slots__": ()})


_A_YEAR_US = 365 * DAY_US


@final
class TimerState:
    """One declared timer of the current key, as hooks see it.

    Args:
        name: What the process calls it.
        number: Its number among those declared.
        timers: All timers.
        cursor: The current scope.
        bounds: What bounds it.
    """

    __slots__ = ("_bounded", "_bounds", "_cursor", "_number", "_timers", "name")

    def __init__(
        self, name: str, number: int, timers: Timers, cursor: ScopeCursor, bounds: HookBounds
    ) -> None:
        self._bounded = timers.is_event(number)
        self.name = name
        self._number = number
        self._timers = timers
        self._cursor = cursor
        self._bounds = bounds

    def set(
        self, time: InstantLike, *, output_time: InstantLike | None = None, tag: Any = None
    ) -> None:
        """Call ``on_timer`` once at a time; a timer that is set already moves.

        Args:
            time: When; at or below the watermark (or clock): as soon as the hook has returned.
            output_time: Event time of what it will emit: until it has fired or is cleared, the
                output watermark does not pass it. Without one, nothing is held.
            tag: Distinguishes timers of one name; a hashable plain value.

        Raises:
            InvalidArgument: The time or the output time is not allowed (S-K4, S-K6), or the tag
                has no hash or cannot be stored (S-B1).
        """
        if tag is not None:
            self._check_tag(tag)
        at = micros(time, "time")
        held = None if output_time is None else micros(output_time, "output_time")
        bounds = self._bounds
        if type(time) is int and bounds.context is not None:
            context = bounds.context
            now = context.time if self._bounded else context.clock
            # Counts that begin at zero, as in tests, are of any unit.
            if at > now > _A_YEAR_US and looks_like_seconds(at - now):
                self._warn_of_unit(at - now)
        if held is not None and held < bounds.floor:
            raise InvalidArgument(
                f"{describe('output_time', Instant(held))} is earlier than "
                f"{format_instant(bounds.floor)}, below which the output watermark may have gone",
                where=f"the timer {self.name!r} of {bounds.place}",
                hint="Use ctx.time or later",
            )
        if self._bounded and bounds.expiry is not None and at > bounds.expiry:
            raise InvalidArgument(
                f"{describe('time', Instant(at))} is after the expiry of its window, "
                f"{format_instant(bounds.expiry)}: it would never fire",
                where=f"the timer {self.name!r} of {bounds.place}",
                hint="Use on_window_expired, or min(time, ctx.window.end)",
            )
        self._timers.set(self._cursor.scope, (self._number, tag), at, held)
        if self._timers.log is not None:
            self._note("set", tag, at)

    def _check_tag(self, tag: Any) -> None:
        try:
            hash(tag)
        except TypeError:
            cause: str | None = "it has no hash"
        else:
            fault = fault_of(tag, wide=True)
            cause = None if fault is None else fault[1]
        if cause is not None:
            raise InvalidArgument(
                f"{describe('tag', tag)} cannot distinguish timers: {cause}",
                where=f"the timer {self.name!r} of {self._bounds.place}",
                hint="Use text, an int or a tuple of them",
            )

    def _warn_of_unit(self, ahead: int) -> None:
        """Warn of a time so close ahead that its distance was most likely meant in seconds."""
        now = "ctx.time" if self._bounded else "ctx.clock"
        warn(
            UnitWarning,
            f"the timer {self.name!r} is set {ahead:,} µs ahead of {now}: plain numbers are "
            "microseconds",
            where=self._bounds.place,
            hint=f'Write {now} + lw.duration("{ahead}s") for seconds',
        )

    def clear(self, *, tag: Any = None) -> None:
        """Clear it, if it is set; its hold is released."""
        if self._timers.log is not None and (at := self.get(tag=tag)) is not None:
            self._note("cleared", tag, at)
        self._timers.clear(self._cursor.scope, (self._number, tag))

    def _note(self, what: Literal["set", "cleared"], tag: Any, at: int) -> None:
        """Note what becomes of it, for a trace."""
        context = self._bounds.context
        assert context is not None, "a hook is running"
        assert self._timers.log is not None, "a trace has asked"
        self._timers.log.append(timer_event(what, self.name, tag, at, context))

    def get(self, *, tag: Any = None) -> int | None:
        """Return when it fires, or ``None`` if it is not set."""
        held = self._timers.held.get(self._cursor.scope)
        setting = None if held is None else held.get((self._number, tag))
        return None if setting is None else setting.time


def timer_event(
    what: Literal["set", "cleared", "fired"], name: str, tag: Any, at: int, context: ProcessContext
) -> TimerEvent:
    """Return what becomes of a timer in the hook that is running.

    Args:
        what: What becomes of it.
        name: Its name.
        tag: Its tag.
        at: When it is due, int microseconds.
        context: What the hook has.
    """
    window = context.window
    between = None if window is None else (int(window.start), int(window.end))
    return TimerEvent(
        what, name, tag, context.key, between, at,
        int(context.time), int(context.watermark), int(context.clock),
    )  # fmt: skip


@final
class HookBounds:
    """What bounds times in the hook that is running.

    ``floor``: no output may be earlier (S-K6), nor a hold; ``lowest``: output may be as early as
    that all the same (S-K12). ``expiry``: of the current window; ``None`` without windows.

    Args:
        place: The process, in words.
    """

    __slots__ = ("context", "expiry", "floor", "lowest", "place")

    def __init__(self, place: str) -> None:
        self.place = place
        self.floor = 0
        self.lowest = END_OF_TIME
        self.expiry: int | None = None
        self.context: ProcessContext | None = None


def micros(value: InstantLike, name: str) -> int:
    """Return an instant as a plain int; ints, which most are, take the short way."""
    if type(value) is int and START_OF_TIME <= value <= END_OF_TIME:
        return value
    return int(instant(value, name=name))
