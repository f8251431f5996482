"""What the hooks of a vectorised process receive: batches of keys, and a context."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lowwater.engine.process.column_cells import ColumnBounds, instants
from lowwater.engine.process.column_state import ColumnState
from lowwater.engine.process.outputs import sign_of
from lowwater.engine.process.refusals import Refusals
from lowwater.engine.records.columns import Column
from lowwater.engine.records.stage_output import MAIN, Emitted
from lowwater.errors import InvalidArgument, describe, nearest
from lowwater.time import END_OF_TIME, LAST_EVENT_TIME, START_OF_TIME, Int64Array, format_instant


@final
@dataclass(frozen=True, slots=True)
class KeyedBatch:
    """Records, fired timers or ending keys as columns of length n.

    Args:
        ids: A number for each one's key (in windows: key and window), int64; good for indexing
            cells and timers within the hook.
        times: Event times of records, the output times of timers or else their own, the last
            instants of windows; int64 microseconds.
        due: When timers were set for, int64; otherwise ``times``.
        name: Which timer; ``None`` for all else.
        columns: The columns of records by name.
    """

    ids: Int64Array
    times: Int64Array
    due: Int64Array
    name: str | None
    columns: Mapping[str, Column]

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Return the values of a column as numpy has them; where it is null, anything.

        Python ints, floats and bools become int64, float64 and bool.

        Raises:
            InvalidArgument: There is no such column.
        """
        column = self.column(name)
        if column.data.dtype == object and column.type is None:
            return _inferred(column.data)
        return column.data

    def column(self, name: str) -> Column:
        """Return a column with its type and its nulls.

        Raises:
            InvalidArgument: There is no such column.
        """
        found = self.columns.get(name)
        if found is None:
            raise InvalidArgument(
                f"there is no column {name!r}", hint=nearest(str(name), self.columns)
            )
        return found


class ColumnContext:
    """The state of all keys: cells and timers are attributes, by name.

    Attributes:
        watermark: The input watermark, int microseconds.
        clock: The clock, int microseconds.
    """

    __slots__ = ("_bounds", "_emitted", "_refusals", "_signed", "_state", "clock", "watermark")

    watermark: int
    clock: int

    def __init__(
        self,
        state: ColumnState,
        bounds: ColumnBounds,
        tags: tuple[str, ...],
        refusals: Refusals,
        *,
        signed: bool,
    ) -> None:
        self._signed = signed
        self._state = state
        self._bounds = bounds
        self._refusals = refusals
        self._emitted: dict[str, list[_Part]] = {tag: [] for tag in tags}

    @property
    def ended(self) -> bool:
        """Whether the input has ended: timers that are set now fire at once, at any time."""
        return self.watermark == END_OF_TIME

    def starts(self, ids: Int64Array) -> Int64Array:
        """Return where the windows of ids start; 0 without windows."""
        return self._state.table["start"][self._state.check(ids)]

    def ends(self, ids: Int64Array) -> Int64Array:
        """Return where the windows of ids end; 0 without windows."""
        return self._state.table["end"][self._state.check(ids)]

    def keys(self, ids: Int64Array) -> tuple[Column, ...]:
        """Return the key columns of ids."""
        return self._state.decode(self._state.table["key"][self._state.check(ids)])

    def emit(
        self,
        columns: Mapping[str, ArrayLike | Column],
        *,
        ids: Int64Array,
        times: ArrayLike,
        tag: str = MAIN,
        kind: ArrayLike | None = None,
    ) -> None:
        """Give records to an output.

        Args:
            columns: The columns by name, each of length n.
            ids: Whose they are, int64, shape (n,).
            times: Their event times, int64 microseconds, shape (n,) or one for all.
            tag: Which output.
            kind: ``"insert"`` or ``"retract"``, one for all or an array of shape (n,). A retraction
                cancels an equal record of the same key and time that was emitted before; only a
                process that declares ``retracts = True`` may say it (S-K12).

        Raises:
            InvalidArgument: The output is not declared, lengths differ, a time is earlier than it
                may be (S-K6), or ``kind`` is not allowed.
        """
        parts = self._emitted.get(tag)
        if parts is None:
            raise InvalidArgument(
                f"{describe('tag', tag)} is no output that is declared",
                hint=nearest(str(tag), self._emitted),
            )
        rows = self._state.check(ids)
        at = np.array(np.broadcast_to(instants(times, "times"), rows.shape))
        self._bounds.check_emitted(at)
        signs = self._signs(kind, len(rows))
        for bad, why in ((at > LAST_EVENT_TIME, "beyond"), (at == START_OF_TIME, "before")):
            if bad.any():
                raise InvalidArgument(
                    f"times has {format_instant(int(at[bad][0]))}, {why} all event times",
                    hint="Give each record the event time it stands for",
                )
        made = {name: _column(name, values) for name, values in columns.items()}
        for name, column in made.items():
            if len(column) != len(rows):
                raise InvalidArgument(
                    f"the column {name!r} has {len(column)} values for {len(rows)} ids",
                    hint="Give as many values as ids",
                )
        if parts and set(parts[0].columns) != set(made):
            raise InvalidArgument(
                f"columns={sorted(made)} differ from those emitted before, "
                f"{sorted(parts[0].columns)}",
                hint="Emit the same columns to an output each time, or declare another output",
            )
        if len(rows):
            table = self._state.table
            key, start, end = (table[name][rows] for name in ("key", "start", "end"))
            parts.append(_Part(at, key, start, end, signs, made))

    def late(self, rows: ArrayLike, reason: str) -> None:
        """Send records of the batch to the late output, with the reason ``refused`` (S-K11).

        A record is refused once: a second call does nothing.

        Args:
            rows: Which of the batch: a mask, bool, shape (len(batch),); or their numbers, int64.
            reason: Why: the ``detail`` of the late records.

        Raises:
            InvalidArgument: No records are at hand, as in ``on_timers``; or there are no such
                rows, or the reason is no text.
        """
        self._refusals.refuse(rows, reason)

    def drain(self) -> dict[str, Emitted]:
        """Return what was emitted since the last time, by output."""
        given: dict[str, Emitted] = {}
        for tag, parts in self._emitted.items():
            if not parts:
                continue
            times, key, start, end, signs = (
                np.concatenate([getattr(part, name) for part in parts])
                for name in ("times", "key", "start", "end", "signs")
            )
            names = parts[0].columns
            given[tag] = Emitted(
                times,
                self._state.decode(key),
                {name: Column.concat([part.columns[name] for part in parts]) for name in names},
                start if self._state.windowed else None,
                end if self._state.windowed else None,
                signs if self._signed else None,
            )
            self._emitted[tag] = []
        return given

    def _signs(self, kind: ArrayLike | None, number: int) -> NDArray[np.int8]:
        place = self._bounds.place
        if kind is None or isinstance(kind, str):
            sign = sign_of(kind, signed=self._signed, place=place)
            return np.full(number, sign, dtype=np.int8)
        kinds = np.asarray(kind).astype(object)
        if kinds.shape != (number,):
            raise InvalidArgument(
                f"kind has the shape {kinds.shape}, for {number} ids",
                where=f"emit of {place}",
                hint='Give one kind per id, or "retract" for all',
            )
        known, places = np.unique(kinds.astype(str), return_inverse=True)
        signs = [sign_of(str(one), signed=self._signed, place=place) for one in known]
        found: NDArray[np.int8] = np.array(signs, dtype=np.int8)[places]
        return found

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


@final
@dataclass(frozen=True, slots=True)
class _Part:
    """What one call emitted."""

    times: Int64Array
    key: Int64Array
    start: Int64Array
    end: Int64Array
    signs: NDArray[np.int8]
    columns: Mapping[str, Column]


def column_context_type(bound: Mapping[str, Any]) -> type[ColumnContext]:
    """Return the type of a context with these cells and timers as read-only attributes."""
    return type("ColumnContext", (ColumnContext,), {**bound, "__slots__": ()})


def _inferred(values: NDArray[Any]) -> NDArray[Any]:
    """Return Python values as numbers or bools, if that is what they are, all of one kind."""
    items = values.tolist()
    kinds = set(map(type, items)) - {type(None)}
    dtype = _DTYPES.get(kinds.pop()) if len(kinds) == 1 else None
    if dtype is None:
        return values
    try:
        return np.array([0 if item is None else item for item in items], dtype=dtype)
    except OverflowError:  # ints beyond 64 bits
        return values


_DTYPES: Mapping[type, Any] = {int: np.int64, float: np.float64, bool: np.bool_}


def _column(name: str, values: ArrayLike | Column) -> Column:
    if isinstance(values, Column):
        return values
    given = np.asarray(values)
    if given.ndim != 1:
        raise InvalidArgument(
            f"the column {name!r} has the shape {given.shape}", hint="Give one value per id"
        )
    if given.dtype.kind == "b":
        return Column(given.copy())
    if given.dtype.kind in "iu" and (given.dtype != np.uint64 or not (given >= 2**63).any()):
        return Column(given.astype(np.int64))
    if given.dtype.kind == "f":
        return Column(given.astype(np.float64))
    if given.dtype.kind in "OUS":
        return Column.of_objects(given.tolist())
    raise InvalidArgument(
        f"the column {name!r} has dtype {given.dtype}",
        hint="Use int64, float64, bool or objects, or a Column with an Arrow type",
    )
