"""The columns that a trace is kept in while a run goes on, and their conversion to values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import groupby
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from lowwater.engine.graph.graph import Stage
from lowwater.engine.graph.trace import ElementOutcome, TracedElement, TracedMerge
from lowwater.engine.graph.traced_parts import TracedPart, drawn_at, sample_hashes
from lowwater.engine.local.taken_bundles import TakenBundle, mask_of, plain, take_together
from lowwater.engine.records.batch import HIDDEN, TRACED, Records
from lowwater.engine.records.panes import Pane
from lowwater.engine.records.steps import (
    REASONS,
    Bundle,
    LateBatch,
    MergedWindows,
    PaneBatch,
    key_values,
)
from lowwater.engine.window.windowing import Windowing
from lowwater.time import Instant, Int64Array
from lowwater.windows import Window


@final
@dataclass(frozen=True, slots=True)
class TracedStage:
    """What the elements of a stage are converted with.

    Args:
        stage: The stage.
        sources: Names of the sources, for the origins of elements.
        origins: Names of the sources and stages, in the order of the numbers in ``TRACED``.
    """

    stage: Stage
    sources: Sequence[str]
    origins: Sequence[str]


@final
class ElementPart(TracedPart[TracedElement]):
    """The elements of a bundle, or a sample of them.

    Args:
        of: The stage.
        order: Position of the bundle in the order of events.
        taken: The elements.
        first: The number of the first element among all that arrived at the stage.
        merging: Indices of the elements whose windows merged with others, int64.
        latest: The latest event time at the stage before the bundle.

    ``latest`` is then the latest event time before each element, of those that are neither
    duplicates nor retractions.
    """

    __slots__ = (
        "_hashes", "_of", "_rows", "_taken",
        "latest", "latest_after", "notable", "numbers", "order",
    )  # fmt: skip

    def __init__(
        self,
        of: TracedStage,
        order: int,
        taken: TakenBundle,
        first: int,
        merging: Int64Array | None,
        latest: int,
    ) -> None:
        super().__init__()
        self._of = of
        self.order, self._taken = order, taken
        # Selected but not copied yet: see ``release``.
        self._rows: Int64Array | None = None
        self._hashes: NDArray[np.uint64] | None = None
        self.numbers = np.arange(first, first + len(taken), dtype=np.int64)
        self.notable = _notable(taken, merging)
        times = np.empty(len(taken) + 1, dtype=np.int64)
        times[0], times[1:] = latest, taken.bundle.times
        if taken.kept is not None or taken.bundle.signs is not None:
            times[1:][~_is_profiled(taken)] = latest
        np.maximum.accumulate(times, out=times)
        self.latest, self.latest_after = times[:-1], int(times[-1])

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def taken(self) -> TakenBundle:
        """The elements."""
        if self._rows is not None:
            self._taken, self._rows = self._taken.take(self._rows), None
        return self._taken

    @property
    def ordinary(self) -> int:
        """How many elements a sample need not contain."""
        return len(self) - int(np.count_nonzero(self.notable))

    def drawn(self, thinning: int) -> NDArray[np.bool_]:
        """Return which elements are in a sample, by the number of what they derive from."""
        if self._hashes is None:
            codes = self.codes()
            many = len(self._of.origins)
            self._hashes = sample_hashes(self.numbers if codes is None else codes // many)
        return drawn_at(self._hashes, thinning)

    def codes(self) -> Int64Array | None:
        """Return the number and origin of each element's record or pane; ``None``: not known."""
        column = self._taken.records.columns.get(TRACED)
        if column is None:
            return None
        rows = self._taken.rows
        return column.data[rows if self._rows is None else rows[self._rows]]

    def at(self, rows: Int64Array) -> ElementPart:
        """Return the elements at ``rows``, int64, ascending.

        It refers to the others until it is released (:func:`release`).
        """
        part: ElementPart = object.__new__(ElementPart)  # each bundle comes here: copy() is slow
        part._of, part._taken, part.order = self._of, self._taken, self.order
        part.latest_after = self.latest_after
        part._rows = rows if self._rows is None else self._rows[rows]
        part.numbers, part.notable = self.numbers[rows], self.notable[rows]
        part.latest = self.latest[rows]
        part._hashes = None if self._hashes is None else self._hashes[rows]
        part._made = _some(self._made, rows)
        return part

    def all_keys(self) -> list[Any]:
        return key_values(self.taken.bundle.keys, len(self))

    def make(self, rows: Int64Array | None) -> list[TracedElement]:
        of, order = self._of, self.order
        taken = self.taken if rows is None else self.taken.take(rows)
        bundle = taken.bundle
        number = len(bundle)
        places = np.arange(number) if taken.kept is None else taken.kept
        windows = _windows_of(of.stage.work.windowing, bundle)
        dropped, reasons = _dropped(taken.late, places, number)
        first_ones = set(places.tolist())
        records = taken.records.rows(taken.rows)
        values = _values(bundle, records)
        if not of.stage.work.emits_panes:  # a process may read any column
            values = [one if isinstance(one, dict) else {"value": one} for one in records]
        origins = _origins_of(taken, of.origins)
        signs = [1] * number if bundle.signs is None else bundle.signs.tolist()
        clock, watermark = Instant(taken.clock), Instant(taken.watermark)
        found = []
        for at, (key, time) in enumerate(
            zip(key_values(bundle.keys, number), bundle.times.tolist(), strict=True)
        ):
            gone = dropped[at]
            lost = frozenset(gone)
            went = tuple(window for window in windows[at] if window not in lost)
            origin = origins[at]
            outcome: ElementOutcome = "kept"
            if at not in first_ones:
                outcome, went = "duplicate", ()
            elif reasons[at] is not None:
                outcome = "partly late" if went else "late"
            found.append(
                TracedElement(
                    key=key, time=Instant(time), clock=clock, watermark=watermark,
                    values=values[at], outcome=outcome, reason=reasons[at], windows=went,
                    retract=signs[at] < 0, record=records[at], dropped=gone, order=order,
                    origins=(origin,) if origin is not None and origin[0] in of.sources else (),
                    pane=origin if origin is not None and origin[0] not in of.sources else None,
                    side=taken.side,
                )
            )  # fmt: skip
        return found


def release(parts: Sequence[ElementPart]) -> None:
    """Copy the elements of parts, so that they no longer refer to others, dropped ones.

    Args:
        parts: In order. Those that are cut from one batch are copied together.
    """
    for _, group in groupby(parts, key=lambda part: id(part._taken.records)):
        pending = [(part, part._rows) for part in group if part._rows is not None]
        if not pending:
            continue
        taken = take_together([part._taken for part, _ in pending], [rows for _, rows in pending])
        for (part, _), own in zip(pending, taken, strict=True):
            part._taken, part._rows = own, None


@final
class PanePart(TracedPart[Pane]):
    """The panes of one step.

    Args:
        order: Position of the step in the order of events.
        batch: The panes.
    """

    __slots__ = ("batch", "order")

    def __init__(self, order: int, batch: PaneBatch) -> None:
        super().__init__()
        self.order = order
        self.batch = batch

    def __len__(self) -> int:
        return len(self.batch)

    def all_keys(self) -> list[Any]:
        return key_values(self.batch.keys)

    def make(self, rows: Int64Array | None) -> list[Pane]:
        return list(self.batch if rows is None else self.batch.take(rows))


@final
class MergePart(TracedPart[TracedMerge]):
    """The merges of one bundle, of which at least one changed a window.

    Args:
        order: Position of the bundle in the order of events.
        merges: The windows that merged, as :func:`merged_elements` returns them.
        clock: The clock.
    """

    __slots__ = ("_clock", "_merges", "order")

    def __init__(self, order: int, merges: MergedWindows, clock: int) -> None:
        super().__init__()
        self.order = order
        self._merges = merges
        self._clock = clock

    def __len__(self) -> int:
        return len(self._merges.start)

    def all_keys(self) -> list[Any]:
        return key_values(self._merges.keys)

    def make(self, rows: Int64Array | None) -> list[TracedMerge]:
        made = _traced_merges(self._merges, self._clock, self.order)
        return made if rows is None else [made[row] for row in rows.tolist()]


@final
class ReadPart(TracedPart[Any]):
    """The records of one batch of a source, or a sample of them.

    Args:
        records: The records.
        first: The number of the first of them.
    """

    __slots__ = ("numbers", "records")

    def __init__(self, records: Records, first: int) -> None:
        super().__init__()
        self.records = records
        self.numbers = np.arange(first, first + records.length, dtype=np.int64)

    def __len__(self) -> int:
        return self.records.length

    def all_keys(self) -> list[Any]:
        return [None] * len(self)

    def at(self, rows: Int64Array) -> ReadPart:
        """Return the records at ``rows``, int64, ascending, without a reference to the others."""
        part = copy(self)
        part.records = plain(self.records.take(rows))
        part.numbers = self.numbers[rows]
        part._made = _some(self._made, rows)
        return part

    def make(self, rows: Int64Array | None) -> list[Any]:
        return self.records.rows(rows)


def merged_elements(merges: MergedWindows) -> tuple[MergedWindows | None, Int64Array]:
    """Return the merges that changed a window, and the elements that took part in one.

    Returns:
        The merges, numbered anew; ``None`` for none. The index of each element, int64, ascending.
    """
    of = merges.group
    changes = (merges.part_start != merges.start[of]) | (merges.part_end != merges.end[of])
    changed = np.zeros(len(merges.start), dtype=np.bool_)
    changed[of[changes]] = True
    parts = np.flatnonzero(changed[of])
    if not parts.size:
        return None, parts
    groups, first = np.unique(of[parts], return_index=True)
    groups = groups[np.argsort(first)]
    number = np.zeros(len(changed), dtype=np.int64)
    number[groups] = np.arange(len(groups))
    element = merges.element
    came = np.zeros(0, dtype=np.int64)
    if element is not None:
        came = np.unique(element[parts])
        came = came[came >= 0]  # the others were open before
    return (
        MergedWindows(
            number[of[parts]], merges.part_start[parts], merges.part_end[parts],
            tuple(key.take(groups) for key in merges.keys),
            merges.start[groups], merges.end[groups],
        ),
        came,
    )  # fmt: skip


def _notable(taken: TakenBundle, merging: Int64Array | None) -> NDArray[np.bool_]:
    """Return which elements a sample always contains: dropped ones, and those that merged."""
    found = np.zeros(len(taken), dtype=np.bool_)
    places = taken.places
    if taken.kept is not None:
        found = ~mask_of(taken.kept, len(taken))
    if taken.late is not None:
        found[places[taken.late.element]] = True
    if merging is not None:
        found[places[merging]] = True
    return found


def _is_profiled(taken: TakenBundle) -> NDArray[np.bool_]:
    """Return which elements are neither duplicates nor retractions."""
    first = mask_of(taken.places, len(taken))
    return first if taken.bundle.signs is None else first & (taken.bundle.signs > 0)


def _some(made: list[Any] | None, rows: Int64Array) -> list[Any] | None:
    return None if made is None else [made[row] for row in rows.tolist()]


def _origins_of(taken: TakenBundle, names: Sequence[str]) -> list[tuple[str, int] | None]:
    """Return each element's origin: (source or stage, number of its record or pane)."""
    column = taken.records.columns.get(TRACED)
    if column is None:
        return [None] * len(taken)
    found = column.data[taken.rows].tolist()
    return [(names[code % len(names)], code // len(names)) for code in found]


def _windows_of(windowing: Windowing | None, bundle: Bundle) -> list[list[Window]]:
    """Return each element's windows before drops and merges, by running AssignWindows again."""
    found: list[list[Window]] = [[] for _ in range(len(bundle))]
    if windowing is None:
        return found
    windows = windowing.windows
    columns = {name: bundle.values[name].data for name in windows.columns}
    assigned = windows.assign(bundle.times, columns)
    of = range(len(bundle)) if assigned.element is None else assigned.element.tolist()
    for at, window in zip(of, _windows(assigned.start, assigned.end), strict=True):
        if window is not None:
            found[at].append(window)
    return found


def _dropped(
    late: LateBatch | None, places: Int64Array, number: int
) -> tuple[list[tuple[Window, ...]], list[str | None]]:
    """Return the windows that each element was dropped from, and the first drop reason."""
    windows: list[tuple[Window, ...]] = [()] * number
    reasons: list[str | None] = [None] * number
    if late is None:
        return windows, reasons
    elements = places[late.element].tolist()
    dropped_from = _windows(late.start, late.end)
    for element, window, reason in zip(elements, dropped_from, late.reason.tolist(), strict=True):
        if window is not None:
            windows[element] = (*windows[element], window)
        reasons[element] = reasons[element] or REASONS[reason]
    return windows, reasons


def _windows(start: Int64Array, end: Int64Array) -> Iterator[Window | None]:
    """Yield windows, ``None`` for empty ones; equal ones are one object, since many recur."""
    made: dict[tuple[int, int], Window] = {}
    for ends in zip(start.tolist(), end.tolist(), strict=True):
        window = made.get(ends)
        if window is None and ends[0] < ends[1]:
            window = made[ends] = _window(ends)
        yield window


def _values(bundle: Bundle, records: list[Any]) -> list[dict[str, Any]]:
    names = [name for name in bundle.values if not name.startswith(HIDDEN)]
    columns = [bundle.values[name].to_list() for name in names]
    rows: list[dict[str, Any]] = [{} for _ in records]
    if columns:
        rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    if not names:
        whole = len(bundle.values) > 0  # group() of whole records: the element is its own value
        for row, record in zip(rows, records, strict=True):
            if whole or not isinstance(record, dict):
                row["value"] = record
    return rows


def _traced_merges(merges: MergedWindows, clock: int, order: int) -> list[TracedMerge]:
    of: list[set[tuple[int, int]]] = [set() for _ in merges.start]
    for group, start, end in zip(
        merges.group.tolist(), merges.part_start.tolist(), merges.part_end.tolist(), strict=True
    ):
        of[group].add((start, end))
    return [
        TracedMerge(
            Instant(clock),
            key,
            _window(into),
            tuple(_window(part) for part in sorted(parts)),
            order,
        )
        for key, into, parts in zip(
            key_values(merges.keys, len(of)),
            zip(merges.start.tolist(), merges.end.tolist(), strict=True),
            of,
            strict=True,
        )
    ]


def _window(ends: tuple[int, int]) -> Window:
    return Window(Instant(ends[0]), Instant(ends[1]))
