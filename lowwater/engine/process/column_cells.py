"""Cells and timers of a vectorised process: columns that are read and written by arrays of ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lowwater.engine.process.column_state import NO_HOLD, UNSET, ColumnState
from lowwater.engine.process.declarations import Cell
from lowwater.engine.records.steps import TimerEvent
from lowwater.errors import DataError, InvalidArgument
from lowwater.kernels import kernels
from lowwater.state.deadlines import Deadlines
from lowwater.time import END_OF_TIME, START_OF_TIME, Int64Array, format_instant

_BITS = 2.0**63


@final
class ColumnCell:
    """A value per key, in a column.

    Args:
        name: What the process calls it.
        declared: The declaration.
        state: The rows.
    """

    __slots__ = ("_column", "_default", "_dtype", "_state", "name")

    def __init__(self, name: str, declared: Cell, state: ColumnState) -> None:
        self.name = name
        self._column = f"cell:{name}"
        self._default = declared.default
        self._dtype = np.dtype(declared.dtype)
        self._state = state

    def __getitem__(self, ids: Int64Array) -> NDArray[Any]:
        """Return the values of keys, the default where nothing was set; shape (n,)."""
        return self._state.table[self._column][self._state.check(ids)]

    def __setitem__(self, ids: Int64Array, values: ArrayLike) -> None:
        """Set values (or one for all); of a key that comes twice the last."""
        rows = self._state.check(ids)
        given = self._values(values)
        self._state.table[self._column][rows] = given
        self._state.touch(rows)

    def add(self, ids: Int64Array, values: ArrayLike) -> None:
        """Add values (or one to all) to what keys hold; a key may come any number of times.

        Raises:
            DataError: A sum does not fit 64 bits (S-B1).
        """
        rows, given = self._state.check(ids), self._values(values)
        column = self._state.table[self._column]
        if self._dtype.kind == "b":
            raise self._refused("add", "is of dtype bool")
        if self._dtype.kind == "i" and rows.size:
            most = float(np.abs(given.astype(np.float64)).max()) * len(rows)
            if most + float(np.abs(column[rows].astype(np.float64)).max()) >= _BITS * 0.99:
                self._add_exactly(rows, np.broadcast_to(given, rows.shape))
                return
        kernels().add_at(column, rows, given)
        self._state.touch(rows)

    def minimum(self, ids: Int64Array, values: ArrayLike) -> None:
        """Set the smaller of what keys hold and values; a key without a value holds the default."""
        rows = self._state.check(ids)
        kernels().min_at(self._state.table[self._column], rows, self._values(values))
        self._state.touch(rows)

    def maximum(self, ids: Int64Array, values: ArrayLike) -> None:
        """Set the larger of what keys hold and values; a key without a value holds the default."""
        rows = self._state.check(ids)
        kernels().max_at(self._state.table[self._column], rows, self._values(values))
        self._state.touch(rows)

    def clear(self, ids: Int64Array) -> None:
        """Set the default again, which means no value."""
        self[ids] = self._default

    def _values(self, values: ArrayLike) -> NDArray[Any]:
        given = np.asarray(values)
        if given.dtype == self._dtype:
            return given
        if given.size and not np.can_cast(given.dtype, self._dtype, "same_kind"):
            raise self._refused(f"values of dtype {given.dtype}", f"is of dtype {self._dtype}")
        if given.dtype == np.uint64 and given.size and int(given.max()) >= 2**63:
            raise self._refused(f"the value {given.max()}", f"is of dtype {self._dtype}")
        return given.astype(self._dtype)

    def _add_exactly(self, rows: Int64Array, given: NDArray[Any]) -> None:
        column = self._state.table[self._column]
        for row, value in zip(rows.tolist(), given.tolist(), strict=True):
            total = int(column[row]) + value
            if not -(2**63) <= total < 2**63:
                raise DataError(
                    f"a sum in the cell {self.name!r} does not fit 64 bits: {total}",
                    hint='Use value_cell(dtype="float64"), or a per-record process',
                )
            column[row] = total
        self._state.touch(rows)

    def _refused(self, what: str, why: str) -> InvalidArgument:
        return InvalidArgument(
            f"{what} cannot go into the cell {self.name!r}, which {why}",
            hint="Convert the values, or declare the cell with another dtype",
        )


@final
class ColumnTimer:
    """A timer per key, in columns.

    Args:
        name: What the process calls it.
        state: The rows.
        queue: Where rows wait for their times.
        holds: Rows by the output times that hold the output watermark.
        bounds: What bounds times in the hook that is running.
        log: Takes what becomes of it, for a trace.
        event: Whether it is of event time.
    """

    __slots__ = (
        *("_bounds", "_event", "_hold", "_holds", "_log", "_queue", "_state", "_time"),
        "name",
    )

    def __init__(
        self,
        name: str,
        state: ColumnState,
        queue: Deadlines,
        holds: Deadlines,
        bounds: ColumnBounds,
        log: ColumnTimerLog,
        *,
        event: bool,
    ) -> None:
        self.name = name
        self._time, self._hold = f"time:{name}", f"hold:{name}"
        self._state = state
        self._queue = queue
        self._holds = holds
        self._bounds = bounds
        self._log = log
        self._event = event

    def set(
        self, ids: Int64Array, times: ArrayLike, *, output_times: ArrayLike | None = None
    ) -> None:
        """Call ``on_timers`` for keys at times; a timer that is set already moves.

        Args:
            ids: The keys, int64, shape (n,); of one that comes twice the last counts.
            times: When, int64 microseconds, shape (n,) or one for all.
            output_times: Where each holds the output watermark until it has fired or is cleared;
                none if left out.

        Raises:
            InvalidArgument: A time or an output time that it may not have (S-K4, S-K6).
        """
        state = self._state
        rows = state.check(ids)
        if not rows.size:
            return
        # Of a key that comes twice the last: both columns are written in the same order.
        at = np.broadcast_to(instants(times, "times"), rows.shape)
        self._bounds.check_expiry(self.name, state, rows, at, event=self._event)
        holds = np.full(len(rows), NO_HOLD, dtype=np.int64)
        if output_times is not None:
            holds[:] = instants(output_times, "output_times")
            self._bounds.check_held(holds, self.name)
        before = state.table[self._time][rows]
        state.table[self._time][rows] = at
        new = (before != at) & (state.table[self._time][rows] == at)
        if new.any():
            self._queue.push(at[new], rows[new])
        held = state.table[self._hold][rows]
        state.table[self._hold][rows] = holds
        new = (held != holds) & (holds != NO_HOLD)
        if new.any():
            self._holds.push(holds[new], rows[new])
        state.touch(rows)
        if self._log.is_open:
            self._log.note("set", self.name, rows, at)

    def clear(self, ids: Int64Array) -> None:
        """Clear it for keys, where it is set; their holds are released."""
        rows = self._state.check(ids)
        if self._log.is_open:
            times = self._state.table[self._time][rows]
            was_set = times != UNSET
            self._log.note("cleared", self.name, rows[was_set], times[was_set])
        self._state.table[self._time][rows] = UNSET
        self._state.table[self._hold][rows] = NO_HOLD
        self._state.touch(rows)

    def is_set(self, ids: Int64Array) -> NDArray[np.bool_]:
        """Return for which keys it is set."""
        return self._state.table[self._time][self._state.check(ids)] != UNSET

    def get(self, ids: Int64Array) -> Int64Array:
        """Return when it fires, int64; where it is not set, ``START_OF_TIME``."""
        return self._state.table[self._time][self._state.check(ids)]


@final
class ColumnTimerLog:
    """Takes what becomes of timers, for a trace; nothing unless that ``is_open``.

    Args:
        state: The rows.
        windowed: Whether there are windows.
    """

    def __init__(self, state: ColumnState, *, windowed: bool) -> None:
        self.is_open = False
        self._windowed = windowed
        self._state = state
        self._events: list[TimerEvent] = []
        self._times: dict[int, int] = {}
        self._at = (START_OF_TIME, START_OF_TIME)

    def begin(self, rows: Int64Array, times: Int64Array, watermark: int, clock: int) -> None:
        """Note which hook runs: for which rows, and at which event times. O(rows) if open."""
        if self.is_open:
            self._times = dict(zip(rows.tolist(), times.tolist(), strict=True))
            self._at = watermark, clock

    def fired(
        self,
        name: str,
        rows: Int64Array,
        due: Int64Array,
        times: Int64Array,
        watermark: int,
        clock: int,
    ) -> None:
        """Note that timers of rows are about to fire."""
        if self.is_open:
            self.begin(rows, times, watermark, clock)
            self.note("fired", name, rows, due)

    def note(
        self,
        what: Literal["set", "cleared", "fired"],
        name: str,
        rows: Int64Array,
        due: Int64Array,
    ) -> None:
        """Note what becomes of a timer of rows; of a row that comes twice the last counts."""
        table = self._state.table
        last = dict(zip(rows.tolist(), due.tolist(), strict=True))
        rows = np.array(list(last), dtype=np.int64)
        keys = [column.to_list(exact=True) for column in self._state.decode(table["key"][rows])]
        starts: list[tuple[int, int] | None] = [None] * len(rows)
        if self._windowed:
            ends = table["end"][rows].tolist()
            starts = list(zip(table["start"][rows].tolist(), ends, strict=True))
        for row, key, window, at in zip(
            rows.tolist(), zip(*keys, strict=True), starts, last.values(), strict=True
        ):
            whole = key[0] if len(key) == 1 else key
            time = self._times.get(row, at)
            self._events.append(TimerEvent(what, name, None, whole, window, at, time, *self._at))

    def take(self) -> Sequence[TimerEvent]:
        """Return what was noted since the last call."""
        if not self._events:
            return ()
        taken, self._events = self._events, []
        return taken


@final
class ColumnBounds:
    """What bounds times in the hook that is running.

    ``floor``: no output may be earlier (S-K6), nor a hold; ``lowest``: output may be as early as
    that all the same (S-K12).

    Args:
        place: The process, in words.
        lateness: Of its windows, int microseconds; ``None`` without windows.
    """

    __slots__ = ("_lateness", "floor", "lowest", "place")

    def __init__(self, place: str, lateness: int | None) -> None:
        self.place = place
        self._lateness = lateness
        self.floor = UNSET
        self.lowest = END_OF_TIME

    def check_emitted(self, times: Int64Array) -> None:
        """Raise ``InvalidArgument`` if output would be too early."""
        self._check(times, min(self.floor, self.lowest), "emit", "times")

    def check_held(self, times: Int64Array, name: str) -> None:
        """Raise ``InvalidArgument`` if an output time of a timer is too early."""
        self._check(times, self.floor, f"the timer {name!r}", "output_times")

    def _check(self, times: Int64Array, floor: int, what: str, name: str) -> None:
        if times.size and int(times.min()) < floor:
            raise InvalidArgument(
                f"{name} has {format_instant(int(times.min()))}, earlier than "
                f"{format_instant(floor)}, which the output watermark may have passed",
                where=f"{what} of {self.place}",
                hint="Use batch.times or later; hold the output watermark with output_times=",
            )

    def check_expiry(
        self, name: str, state: ColumnState, rows: Int64Array, times: Int64Array, *, event: bool
    ) -> None:
        """Raise ``InvalidArgument`` if a timer would come after the expiry of its window."""
        if int(times.min()) == UNSET:
            raise InvalidArgument(
                "times has the start of time, which stands for a timer that is not set",
                where=f"the timer {name!r} of {self.place}",
                hint="Use clear, or a later time",
            )
        if self._lateness is None or not event:
            return
        late = times - self._lateness > state.table["end"][rows]
        if late.any():
            raise InvalidArgument(
                f"times has {format_instant(int(times[late].min()))}, after the expiry of its "
                "window: it would never fire",
                where=f"the timer {name!r} of {self.place}",
                hint="Use on_windows_expired, or np.minimum(times, ctx.ends(ids))",
            )


def instants(values: ArrayLike, name: str) -> Int64Array:
    """Return instants as int64 microseconds; raise ``InvalidArgument`` if they are not ints."""
    given = np.asarray(values)
    if given.dtype.kind == "M":
        given = given.astype("datetime64[us]").astype(np.int64)
    if given.dtype.kind not in "iu" and given.size:
        raise InvalidArgument(
            f"{name} is of dtype {given.dtype}, not int64 microseconds",
            hint='Convert it, say with .astype("datetime64[us]").astype("int64")',
        )
    return given.astype(np.int64, copy=False)
