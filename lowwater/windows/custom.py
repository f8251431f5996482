"""Window functions written by the user (S-W6)."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import islice
from typing import Any, TypeAlias, final

import numpy as np

from lowwater.display.text import shown
from lowwater.errors import InvalidArgument, describe, user_code
from lowwater.time import END_OF_TIME, START_OF_TIME, Instant, Int64Array
from lowwater.windows._base import (
    MOST_WINDOWS,
    Assignment,
    Columns,
    Merged,
    MergeScope,
    Window,
)

AssignElement: TypeAlias = Callable[[int], Iterable[tuple[int, int]]]
AssignColumn: TypeAlias = Callable[[Int64Array], tuple[Any, ...]]
MergeActive: TypeAlias = Callable[
    [Sequence[Window]], Iterable[tuple[Sequence[Window], tuple[int, int] | Window]]
]


@final
@dataclass(frozen=True, slots=True, repr=False)
class CustomWindows:
    """Windows that your own functions assign and, optionally, merge (S-W6).

    >>> CustomWindows(lambda t: [(t - t % 10, t - t % 10 + 10)], name="tens").merge_scope
    'none'

    Args:
        assign_element: Called with one event time (int microseconds); yields ``(start, end)``
            pairs of int microseconds, at most 10,000. If it yields none, the element goes to the
            late output with reason ``unwindowed``. A repeated pair counts once.
        assign_column: The vectorised alternative to ``assign_element``: called with int64 event
            times of shape (n,); returns ``(start, end)`` of shape (n,), or ``(start, end,
            element)`` of shape (m,) where ``element`` is the non-decreasing index of each
            window's element.
        merge_active: Called with the active windows of one key, sorted; yields
            ``(windows, merged)`` for each set to merge. A merge may also shrink windows. Each
            window may be in at most one set; the result is one of the set or a new window.
        name: The name in errors and diagrams.

    Raises:
        InvalidArgument: Not exactly one of ``assign_element`` and ``assign_column`` was given;
            later, what a function returned breaks one of the rules above.
    """

    assign_element: AssignElement | None = None
    assign_column: AssignColumn | None = None
    merge_active: MergeActive | None = None
    name: str = "CustomWindows"

    def __post_init__(self) -> None:
        for name in ("assign_element", "assign_column", "merge_active"):
            function = getattr(self, name)
            if function is not None and not callable(function):
                raise InvalidArgument(
                    f"{describe(name, function)} is not a function",
                    hint="Write CustomWindows(lambda t: [(t - t % 10, t - t % 10 + 10)])",
                )
        if (self.assign_element is None) == (self.assign_column is None):
            raise InvalidArgument(
                f"{self.name} takes either assign_element or assign_column",
                hint="Write CustomWindows(lambda t: [(t - t % 10, t - t % 10 + 10)])",
            )

    def __repr__(self) -> str:
        given = [
            f"{each.name}={shown(getattr(self, each.name), exact=True)}"
            for each in fields(self)
            if getattr(self, each.name) != each.default
        ]
        return f"CustomWindows({', '.join(given)})"

    @property
    def columns(self) -> tuple[str, ...]:
        """None: only the event time is read."""
        return ()

    @property
    def merge_scope(self) -> MergeScope:
        """``"key"`` with a merge function: it sees all active windows of a key."""
        return "none" if self.merge_active is None else "key"

    def assign(self, times: Int64Array, columns: Columns) -> Assignment:
        """Return each element's windows, as the user's function gives them."""
        if self.assign_column is not None:
            result = self._assign_column(self.assign_column, times)
        else:
            result = self._assign_each(times)
        if (result.start >= result.end).any():
            at = int(np.argmax(result.start >= result.end))
            raise InvalidArgument(
                f"{self.name} gave a window that does not end after it starts: "
                f"[{result.start[at]}, {result.end[at]})",
                hint="Give an end later than the start",
            )
        return result

    def merge(self, keys: Int64Array, start: Int64Array, end: Int64Array) -> Merged:
        """Return how the user's function merges each key's windows; Python per key."""
        group = np.empty(len(keys), dtype=np.int64)
        starts: list[int] = []
        ends: list[int] = []
        bounds = np.flatnonzero(np.diff(keys)) + 1
        for low, high in zip([0, *bounds.tolist()], [*bounds.tolist(), len(keys)], strict=True):
            if low < high:
                self._merge_key(start[low:high], end[low:high], group[low:high], starts, ends)
        return Merged(group, self._bounds(starts), self._bounds(ends))

    def _assign_each(self, times: Int64Array) -> Assignment:
        if self.assign_element is None:
            raise InvalidArgument(f"{self.name} has no assign_element")
        start: list[int] = []
        end: list[int] = []
        element: list[int] = []
        unwindowed: list[int] = []
        for index, at in enumerate(times.tolist()):
            with user_code(f"assign_element of {self.name}"):
                given = self.assign_element(at)
                if isinstance(given, Iterator):  # a generator runs, and fails, when it is read
                    given = list(islice(given, MOST_WINDOWS + 1))  # and may never end
            windows = self._pairs(given)
            start.extend(s for s, _ in windows)
            end.extend(e for _, e in windows)
            element.extend([index] * len(windows))
            if not windows:
                unwindowed.append(index)
        return Assignment(
            self._bounds(start),
            self._bounds(end),
            np.array(element, dtype=np.int64),
            np.array(unwindowed, dtype=np.int64) if unwindowed else None,
        )

    def _bounds(self, bounds: list[int]) -> Int64Array:
        """Return bounds as an array; the first that is beyond the ends of time is an error."""
        try:
            return np.array(bounds, dtype=np.int64)
        except OverflowError:
            beyond = next(at for at in bounds if not START_OF_TIME <= at <= END_OF_TIME)
            raise _beyond_time(self.name, beyond) from None

    def _pairs(self, given: object) -> list[tuple[int, int]]:
        try:
            some = islice(given, MOST_WINDOWS + 1)  # type: ignore[call-overload]
            # operator.index takes whole numbers alone: int() would cut the fraction off a float.
            pairs = [(operator.index(s), operator.index(e)) for s, e in some]
        except (TypeError, ValueError) as error:
            _refuse_floats(self.name, given)
            raise InvalidArgument(
                f"{self.name} must give (start, end) pairs of int microseconds for each element, "
                f"but gave {shown(given, exact=True)}",
                hint="Return a list such as [(0, 10)]; use assign_column= for whole columns",
            ) from error
        if len(pairs) > MOST_WINDOWS:
            raise _too_many(self.name)
        return sorted(set(pairs))

    def _assign_column(self, assign: AssignColumn, times: Int64Array) -> Assignment:
        with user_code(f"assign_column of {self.name}"):
            made: object = assign(times)
        try:
            parts = tuple(np.asarray(part) for part in made)  # type: ignore[attr-defined]
        except (TypeError, ValueError):
            parts = ()
        for part in parts:
            if part.size and part.dtype.kind in "fmM":
                raise _not_micros(self.name, f"an array of {part.dtype}")
        try:
            given = tuple(
                self._bounds(part.tolist()) if part.dtype.kind in "uO" else part.astype(np.int64)
                for part in parts
            )
        except InvalidArgument:
            raise
        except (TypeError, ValueError):
            given = ()
        if len(given) == 2 and given[0].shape == given[1].shape == times.shape:
            return Assignment(given[0], given[1])
        if len(given) != 3 or not given[0].shape == given[1].shape == given[2].shape:
            raise InvalidArgument(
                f"{self.name} must return (start, end) with one row per element, or "
                "(start, end, element) of one length",
                hint="Return int64 arrays of those shapes",
            )
        start, end, element = given
        if element.size and (
            (np.diff(element) < 0).any() or element[0] < 0 or element[-1] >= len(times)
        ):
            raise InvalidArgument(
                f"{self.name} must return element indices that never go down and stay within "
                f"0..{len(times) - 1}",
                hint="Sort the windows by element",
            )
        if element.size > MOST_WINDOWS and int(np.bincount(element).max()) > MOST_WINDOWS:
            raise _too_many(self.name)
        found = np.zeros(len(times), dtype=np.bool_)
        found[element] = True
        return Assignment(start, end, element, None if found.all() else np.flatnonzero(~found))

    def _merge_key(
        self,
        start: Int64Array,
        end: Int64Array,
        group: Int64Array,
        starts: list[int],
        ends: list[int],
    ) -> None:
        pairs = zip(start.tolist(), end.tolist(), strict=True)
        windows = [Window(Instant(s), Instant(e)) for s, e in pairs]
        active = list(dict.fromkeys(windows))
        target: dict[Window, int] = {}
        results: set[Window] = set()
        with user_code(f"merge_active of {self.name}"):
            sets = list(self.merge_active(active)) if self.merge_active else []
        for given, merged in sets:
            merging = list(given)
            result = merged if isinstance(merged, Window) else Window(*map(Instant, merged))
            if result in results:
                raise InvalidArgument(
                    f"{self.name} merged two sets into one window, {result}",
                    hint="Put them into one set",
                )
            results.add(result)
            self._check_merge(merging, result, active, target)
            target.update(dict.fromkeys(merging, len(starts)))
            starts.append(result.start)
            ends.append(result.end)
        for window in active:
            if window not in target:
                target[window] = len(starts)
                starts.append(window.start)
                ends.append(window.end)
        group[:] = [target[window] for window in windows]

    def _check_merge(
        self,
        merging: Sequence[Window],
        result: Window,
        active: Sequence[Window],
        target: dict[Window, int],
    ) -> None:
        for window in merging:
            if window not in active:
                raise InvalidArgument(
                    f"{self.name} merged {window}, which is not an active window",
                    hint="Merge only windows that were given",
                )
            if window in target:
                raise InvalidArgument(
                    f"{self.name} put {window} into two merge sets",
                    hint="Put each window into at most one",
                )
        if result in active and result not in merging:
            raise InvalidArgument(
                f"{self.name} merged {', '.join(map(str, merging))} into {result}, an active "
                "window outside the set",
                hint="Put it into the set, or return a new window",
            )
        if not merging:
            raise InvalidArgument(
                f"{self.name} gave a merge set with no windows, {describe('merged', result)}",
                hint="Leave it out",
            )


def _refuse_floats(name: str, given: object) -> None:
    """Raise if the pairs that a function gave would be valid but for floats among them."""
    try:
        for pair in given:  # type: ignore[attr-defined]
            for bound in pair:
                if isinstance(bound, (float, np.floating)):
                    raise _not_micros(name, repr(bound))
    except TypeError:  # not even pairs
        return


def _too_many(name: str) -> InvalidArgument:
    return InvalidArgument(
        f"{name} put an element into more than {MOST_WINDOWS:,} windows, each with state and panes "
        "of its own",
        hint="Give fewer: longer windows, or fewer that overlap",
    )


def _beyond_time(name: str, bound: int) -> InvalidArgument:
    return InvalidArgument(
        f"{name} gave the bound {int(bound)}, which does not fit 64 bits of microseconds",
        hint="Keep bounds within lw.START_OF_TIME and lw.END_OF_TIME",
    )


def _not_micros(name: str, shown: str) -> InvalidArgument:
    return InvalidArgument(
        f"{name} gave {shown} as bounds of windows; bounds are int microseconds, and a fraction "
        "or another unit would be lost",
        hint='Use // instead of /, and lw.duration("1h") for lengths',
    )
