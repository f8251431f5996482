"""The inputs and outputs of one operator step, as columns (S-O1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import chain
from typing import Any, Literal, NamedTuple, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from lowwater.engine.records.columns import Column
from lowwater.engine.records.panes import Kind, LateReason, Pane, Timing
from lowwater.engine.records.unchecked import dicts, draft_of, instants, windows
from lowwater.state.xxh64 import UInt64Array
from lowwater.time import START_OF_TIME, Int64Array
from lowwater.windows import Window

TIMINGS: tuple[Timing, ...] = ("EARLY", "ON_TIME", "LATE")
KINDS: tuple[Kind, ...] = ("insert", "retract")
REASONS: tuple[LateReason, ...] = ("expired", "closed", "unwindowed", "too_late", "refused")

PANES_AT_ONCE = 4096
"""Panes or records converted to Python values at a time: they take more memory than columns."""

EARLY, ON_TIME, LATE = range(3)
INSERT, RETRACT = range(2)
EXPIRED, CLOSED, UNWINDOWED, TOO_LATE, REFUSED = range(5)


@final
@dataclass(frozen=True, slots=True)
class Bundle:
    """Elements that arrive together: the unit at which triggers are evaluated.

    Every row is already validated: a time of at most ``LAST_EVENT_TIME``, keys that are not null,
    values that the aggregates accept (see :mod:`lowwater.engine.records.admission`).

    Args:
        times: Event times, int64 microseconds, shape (n,).
        keys: The key columns, each of length n; none of their rows is null.
        values: The columns that aggregates and windows read, by name, each of length n.
        signs: +1 for an insert, -1 for a retraction (S-C1), int8, shape (n,); ``None`` if all are
            inserts.
        hashes: The hash of each key (:func:`~lowwater.engine.records.key_hash.hash_keys`), uint64,
            shape (n,), where it is known; ``None`` where it is not.
    """

    times: Int64Array
    keys: tuple[Column, ...]
    values: Mapping[str, Column]
    signs: NDArray[np.int8] | None = None
    hashes: UInt64Array | None = None

    def __len__(self) -> int:
        return len(self.times)

    def take(self, rows: Int64Array) -> Bundle:
        """Select the elements at ``rows``, in that order."""
        return _picked(self, lambda column: column.take(rows), rows)

    @classmethod
    def concat(cls, bundles: Sequence[Bundle]) -> Bundle:
        """Concatenate bundles without signs; a column that one does not have is null there.

        Values of several types stay what they are.
        """
        if len(bundles) == 1:
            return bundles[0]
        names = dict.fromkeys(name for bundle in bundles for name in bundle.values)
        every = {name: [_column(bundle, name) for bundle in bundles] for name in names}
        return cls(
            np.concatenate([bundle.times for bundle in bundles]),
            tuple(
                Column.concat_as_is(columns)
                for columns in zip(*(bundle.keys for bundle in bundles), strict=True)
            ),
            {name: Column.concat_as_is(columns) for name, columns in every.items()},
        )

    def slice(self, start: int, stop: int) -> Bundle:
        """Return elements ``start`` to ``stop`` (exclusive) without copying."""
        if start == 0 and stop >= len(self):
            return self
        return _picked(self, lambda column: column.slice(start, stop), slice(start, stop))


def _picked(bundle: Bundle, pick: Callable[[Column], Column], rows: Int64Array | slice) -> Bundle:
    """Return some elements of a bundle; ``pick`` takes them from a column."""
    keys = {id(key): pick(key) for key in bundle.keys}  # which may be among the values
    values = bundle.values.items()
    return Bundle(
        bundle.times[rows],
        tuple(keys[id(key)] for key in bundle.keys),
        {name: keys.get(id(column)) or pick(column) for name, column in values},
        None if bundle.signs is None else bundle.signs[rows],
        None if bundle.hashes is None else bundle.hashes[rows],
    )


def _column(bundle: Bundle, name: str) -> Column:
    if name in bundle.values:
        return bundle.values[name]
    return Column.of_objects([None] * len(bundle))


@final
@dataclass(frozen=True, slots=True)
class WatermarkAdvance:
    """Advances the watermark to ``to`` (int microseconds); an earlier one does nothing (S-T3).

    With ``due``, the step handles only windows due by then. Further steps handle the rest, the
    last of them without ``due``. Together they emit what a single step would.
    """

    to: int
    due: int | None = None


@final
@dataclass(frozen=True, slots=True)
class ClockAdvance:
    """Advances the clock to ``to`` (int microseconds); an earlier one does nothing (S-O8)."""

    to: int


@final
@dataclass(frozen=True, slots=True)
class EndOfInput:
    """Ends the input: the watermark advances to the end of time.

    Args:
        after: The time of the last record, int microseconds, where it may be of another operator:
            in event-time order the watermark stops there (S-K13).
    """

    after: int = START_OF_TIME


StepInput: TypeAlias = Bundle | WatermarkAdvance | ClockAdvance | EndOfInput


@final
@dataclass(frozen=True, slots=True)
class PaneBatch:
    """Panes as columns, in order of emission; each column has shape (n,).

    Args:
        keys: The key columns.
        start, end: The window, int64.
        values: The aggregates by name.
        timing: uint8 index into ``TIMINGS``.
        index, on_time_index: int64.
        is_first, is_last: bool.
        kind: uint8 index into ``KINDS``.
        timestamp: Event time of the pane, int64.
        emitted_at: The clock at emission, int64.
        watermark: The input watermark at emission, int64.
    """

    keys: tuple[Column, ...]
    start: Int64Array
    end: Int64Array
    values: Mapping[str, Column]
    timing: NDArray[np.uint8]
    index: Int64Array
    on_time_index: Int64Array
    is_first: NDArray[np.bool_]
    is_last: NDArray[np.bool_]
    kind: NDArray[np.uint8]
    timestamp: Int64Array
    emitted_at: Int64Array
    watermark: Int64Array

    def __len__(self) -> int:
        return len(self.start)

    def __iter__(self) -> Iterator[Pane]:
        if len(self) <= PANES_AT_ONCE:  # often a few panes, which take less time than a slice
            return self._panes()
        return chain.from_iterable(
            self.slice(start, start + PANES_AT_ONCE)._panes()
            for start in range(0, len(self), PANES_AT_ONCE)
        )

    def take(self, rows: Int64Array) -> PaneBatch:
        """Select the panes at ``rows``, in that order."""
        return self._mapped(lambda column: column.take(rows), lambda array: array[rows])

    def slice(self, start: int, stop: int) -> PaneBatch:
        """Return panes ``start`` to ``stop`` (exclusive) without copying."""
        return self._mapped(
            lambda column: column.slice(start, stop), lambda array: array[start:stop]
        )

    def _mapped(
        self, of_column: Callable[[Column], Column], of_array: Callable[[NDArray[Any]], Any]
    ) -> PaneBatch:
        return PaneBatch(
            keys=tuple(map(of_column, self.keys)),
            values={name: of_column(column) for name, column in self.values.items()},
            **{name: of_array(getattr(self, name)) for name in _PANE_ARRAYS},
        )

    @classmethod
    def concat(cls, batches: Sequence[PaneBatch]) -> PaneBatch:
        """Concatenate one or more batches."""
        if len(batches) == 1:
            return batches[0]
        return cls(
            keys=tuple(
                Column.concat(parts) for parts in zip(*(b.keys for b in batches), strict=True)
            ),
            values={
                n: Column.concat([batch.values[n] for batch in batches]) for n in batches[0].values
            },
            **{n: np.concatenate([getattr(b, n) for b in batches]) for n in _PANE_ARRAYS},
        )

    def to_panes(self) -> list[Pane]:
        """Convert the panes to Python values. O(n)."""
        return list(self._panes())

    def _panes(self) -> Iterator[Pane]:
        # Yielded one by one: thousands at once, even if released soon, make Python's garbage
        # collector walk the whole heap, which takes longer than all else.
        values = dicts(
            tuple(self.values), [column.to_list() for column in self.values.values()], len(self)
        )
        for (
            key, window, row, timing, index, on_time_index,
            first, last, kind, timestamp, emitted_at, watermark,
        ) in zip(
            key_values(self.keys), windows(self.start, self.end), values,
            self.timing.tolist(), self.index.tolist(), self.on_time_index.tolist(),
            self.is_first.tolist(), self.is_last.tolist(), self.kind.tolist(),
            instants(self.timestamp), instants(self.emitted_at), instants(self.watermark),
            strict=True,
        ):  # fmt: skip
            pane = _PaneDraft()
            pane.key = key
            pane.window = window
            pane.values = row
            pane.timing = TIMINGS[timing]
            pane.index = index
            pane.on_time_index = on_time_index
            pane.is_first = first
            pane.is_last = last
            pane.kind = KINDS[kind]
            pane.timestamp = timestamp
            pane.emitted_at = emitted_at
            pane.watermark = watermark
            pane.__class__ = Pane
            yield pane


_PaneDraft = draft_of(Pane)
_PANE_ARRAYS = tuple(f.name for f in fields(PaneBatch) if f.name not in ("keys", "values"))


@final
@dataclass(frozen=True, slots=True)
class LateBatch:
    """Elements of one bundle that were dropped from one of their windows, as columns.

    Args:
        element: Index into the bundle, int64, shape (n,).
        start, end: The (proto-)window, int64; both 0 for none.
        reason: uint8 index into ``REASONS``.
        watermark: The input watermark at the time.
        details: What a process said of each that it refused; ``None`` if there are no such ones.
    """

    element: Int64Array
    start: Int64Array
    end: Int64Array
    reason: NDArray[np.uint8]
    watermark: int
    details: Sequence[str | None] | None = None

    def __len__(self) -> int:
        return len(self.element)

    @property
    def windowed(self) -> NDArray[np.bool_]:
        """Which of them were dropped from a window; bool, shape (n,)."""
        return self.start < self.end

    def windows(self) -> list[Window | None]:
        """Return the window that each was dropped from."""
        windowed = self.windowed
        if windowed.all():
            return list(windows(self.start, self.end))
        found = iter(windows(self.start[windowed], self.end[windowed]))
        return [next(found) if has else None for has in windowed.tolist()]

    def all_details(self) -> Sequence[str | None]:
        """Return what a process said of each; ``None`` where it said nothing."""
        return [None] * len(self) if self.details is None else self.details


def without_late(
    bundle: Bundle, lowest: int, watermark: int
) -> tuple[LateBatch | None, Int64Array | None]:
    """Divide a bundle by time, for a stage without windows.

    Args:
        bundle: The bundle.
        lowest: The lowest event time that is accepted.
        watermark: The input watermark.

    Returns:
        The elements that are too late, and the places of the others; ``None`` twice if none are.
    """
    late = bundle.times < lowest
    if not late.any():
        return None, None
    element = np.flatnonzero(late)
    none = np.zeros(len(element), dtype=np.int64)
    reason = np.full(len(element), TOO_LATE, dtype=np.uint8)
    return LateBatch(element, none, none, reason, watermark), np.flatnonzero(~late)


class TimerEvent(NamedTuple):
    """What became of a timer of a process, for a trace.

    Args:
        what: ``set``, ``cleared`` or ``fired``.
        name: What the process calls it.
        tag: Its tag.
        key: The key: a plain value, or a tuple of several.
        window: The window, int microseconds; ``None`` without windows.
        at: When it is due, int microseconds.
        time: The event time of the hook that did it: of a record, the record's.
        watermark: The stage's input watermark then.
        clock: The clock then.
    """

    what: Literal["set", "cleared", "fired"]
    name: str
    tag: Any
    key: Any
    window: tuple[int, int] | None
    at: int
    time: int
    watermark: int
    clock: int


@final
@dataclass(frozen=True, slots=True)
class MergedWindows:
    """Windows that merged: those of a bundle for a trace, or those whose panes no longer stand.

    Args:
        group: Number of the resulting window for each merged window, int64, shape (n,).
        part_start: Start of each merged window (new and open ones), int64, shape (n,).
        part_end: End of each merged window.
        keys: The key columns of the resulting windows, by number.
        start: Start of each resulting window, int64, shape (groups,).
        end: End of each resulting window.
        element: Index into the bundle of the element that each merged window is of, int64, shape
            (n,); -1 for windows that were open. ``None`` if that was not asked for.
    """

    group: Int64Array
    part_start: Int64Array
    part_end: Int64Array
    keys: tuple[Column, ...]
    start: Int64Array
    end: Int64Array
    element: Int64Array | None = None


@final
@dataclass(frozen=True, slots=True)
class PlainRecords:
    """Elements as a process per record gets them: keys, event times (microseconds), records."""

    keys: list[Any]
    times: list[int]
    records: list[dict[str, Any]]

    def __len__(self) -> int:
        """Return how many records there are."""
        return len(self.records)

    @staticmethod
    def of(bundle: Bundle, names: Sequence[str] | None) -> PlainRecords:
        """Return the elements of a bundle, with the columns of these names; ``None`` for all."""
        names = tuple(bundle.values) if names is None else names
        columns = [bundle.values[name].to_list() for name in names]
        records = dicts(names, columns, len(bundle))
        return PlainRecords(key_values(bundle.keys), bundle.times.tolist(), records)


def key_values(keys: Sequence[Column], number: int | None = None) -> list[Any]:
    """Return each row's key: a plain value for one key column, a tuple for several.

    Args:
        keys: The key columns.
        number: How many rows there are, where there may be no key column: the key is ``None``.
    """
    if not keys and number is not None:
        return [None] * number
    columns = [column.to_list(exact=True) for column in keys]
    if len(columns) == 1:
        return columns[0]
    return list(zip(*columns, strict=True))
