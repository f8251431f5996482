"""What a hook of a per-record process is given: the current key, its cells and timers, and emit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lowwater.engine.process.cell import Cursor, own
from lowwater.engine.process.output import MAIN, Sink
from lowwater.engine.process.timer_state import Moment, micros
from lowwater.errors import InvalidArgument, describe, nearest
from lowwater.time import (
    END_OF_TIME,
    LAST_EVENT_TIME,
    START_OF_TIME,
    Instant,
    InstantLike,
    format_instant,
)
from lowwater.windows import Window


class ProcessContext:
    """The current key (in windows: the key and window), as the hooks of a process see it.

    There is one, pointed at key after key: what it gives is only good within the hook. The cells
    and timers of the process are attributes, by name.

    Attributes:
        key: The key: a plain value for one key column, a tuple for several.
        time: Event time, int microseconds: of the record; of a timer its output time, else its
            own (of one in processing time: the output watermark); of an expiring window its last
            instant, and at the end the output watermark, but never less than that.
        due: When the timer that fires was set for, int microseconds; in other hooks ``time``.
        tag: Its tag.
        watermark: The input watermark, int microseconds.
        clock: The clock, int microseconds.
        window: The window; ``None`` for a process without windows.
    """

    __slots__ = (
        "_cursor", "_moment", "_sinks", "clock", "due", "key", "tag", "time", "watermark", "window",
    )  # fmt: skip

    key: Any
    tag: Any
    due: int
    time: int
    watermark: int
    clock: int
    window: Window | None

    def __init__(self, cursor: Cursor, moment: Moment, sinks: Mapping[str, Sink]) -> None:
        self._cursor = cursor
        self._moment = moment
        self._sinks = sinks

    @property
    def ended(self) -> bool:
        """Whether the input has ended: timers that are set now fire at once, at any time."""
        return self.watermark == END_OF_TIME

    def emit(self, value: Any, *, time: InstantLike | None = None, tag: str = MAIN) -> None:
        """Give a record to an output.

        Args:
            value: The record: a mapping, a dataclass or a named tuple gives columns; anything else
                a column ``value``.
            time: Its event time; ``ctx.time`` if left out.
            tag: Which output: one that is declared, or the main one.

        Raises:
            InvalidArgument: The output is not declared, or the time is earlier than it may be
                (S-K6).
        """
        sink = self._sinks.get(tag)
        if sink is None:
            raise InvalidArgument(
                f"{describe('tag', tag)} is no output that is declared",
                where=self._moment.place,
                hint=nearest(str(tag), self._sinks),
            )
        at = self.time if time is None else micros(time, "time")
        floor = self._moment.floor
        if at < floor or at > LAST_EVENT_TIME or at == START_OF_TIME:
            raise self._wrong(at, floor)
        sink.scopes.append(self._cursor.scope)
        sink.times.append(at)
        sink.values.append(own(value))

    def _wrong(self, at: int, floor: int) -> InvalidArgument:
        if at == START_OF_TIME:
            return InvalidArgument(
                "there is no event time for this record yet, as there is no watermark",
                where=f"emit of {self._moment.place}",
                hint="Use emit(..., time=...), or set the timer with an output_time; for on_end, "
                "give the source a watermark, or keep the time of the key's last record in a cell",
            )
        if at < floor:
            return InvalidArgument(
                f"{describe('time', Instant(at))} is earlier than {format_instant(floor)}: the "
                "output watermark may have passed it, and the record would be late",
                where=f"emit of {self._moment.place}",
                hint="Emit at ctx.time or later; set a timer with output_time= to hold the output "
                "watermark for what comes later",
            )
        return InvalidArgument(
            f"{describe('time', Instant(at))} is beyond the last event time",
            where=f"emit of {self._moment.place}",
            hint=f"Use at most {format_instant(LAST_EVENT_TIME)}",
        )

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


def context_type(bound: Mapping[str, Any]) -> type[ProcessContext]:
    """Return the type of a context with these cells and timers.

    They are attributes of the type: as quick to read as slots, and nobody can assign to them.
    """
    return type("ProcessContext", (ProcessContext,), {**bound, "__slots__": ()})
