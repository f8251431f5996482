"""Constructs many Python values from columns that are already valid, without checking each again.

A constructor of a frozen dataclass stores each field through ``object.__setattr__``, and one of an
``Instant`` or a ``Window`` checks its arguments. For a run that emits a million panes this takes
far longer than the run. What is constructed here is equal to what the constructors return.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import Any, TypeVar

import numpy as np

from lowwater.time import Instant, Int64Array
from lowwater.windows import Window

ValueT = TypeVar("ValueT")


def draft_of(kind: type[Any]) -> Any:
    """Return a class with the slots of a frozen dataclass, but whose attributes can be assigned.

    Once all are, ``draft.__class__ = kind`` makes the draft a value of ``kind``. Python allows
    this between classes with the same slots. Loops do so inline, because a call per value would
    take longer than the assignments.
    """
    return type(f"{kind.__name__}Draft", (), {"__slots__": kind.__slots__})


_WindowDraft = draft_of(Window)


def instants(at: Int64Array) -> Iterable[Instant]:
    """Return instants, int64, shape (n,), as Python values; equal ones may be one object. O(n)."""
    runs = _runs(at)
    if runs is None:
        return _instants(at.tolist())
    return _repeated(_instants(at[runs].tolist()), runs, len(at))


def windows(start: Int64Array, end: Int64Array) -> Iterable[Window]:
    """Return windows as Python values; equal ones may be one object. O(n).

    Args:
        start: The start of each, int64, shape (n,).
        end: The end of each, int64, shape (n,).

    Raises:
        InvalidArgument: A window does not end after it starts.
    """
    if not (start < end).all():
        bounds = zip(start.tolist(), end.tolist(), strict=True)
        return [Window(Instant(low), Instant(high)) for low, high in bounds]
    runs = _runs(start, end)
    if runs is None:
        return _windows(start.tolist(), end.tolist())
    found = _windows(start[runs].tolist(), end[runs].tolist())
    return _repeated(found, runs, len(start))


def dicts(names: Sequence[str], columns: Sequence[list[Any]], number: int) -> list[dict[str, Any]]:
    """Return a dict for each of ``number`` rows of columns, which have these names. O(n)."""
    if not names:
        return [{} for _ in range(number)]
    if len(names) == 1:  # twice as fast as the general case
        (name,), (column,) = names, columns
        return [{name: value} for value in column]
    return list(map(dict, map(zip, repeat(names), zip(*columns, strict=True))))


def _runs(*columns: Int64Array) -> Int64Array | None:
    """Return where runs of equal rows begin, int64; ``None`` if there are about as many as rows.

    Panes come by window, and those of one bundle have one clock and watermark.
    """
    changes = columns[0][1:] != columns[0][:-1]
    for column in columns[1:]:
        changes |= column[1:] != column[:-1]
    if not len(changes) or 2 * np.count_nonzero(changes) > len(changes):
        return None
    return np.concatenate([[0], np.flatnonzero(changes) + 1])


def _repeated(values: Iterable[ValueT], runs: Int64Array, number: int) -> list[ValueT]:
    lengths = np.diff(runs, append=number).tolist()
    return list(chain.from_iterable(map(repeat, values, lengths)))


def _windows(starts: list[int], ends: list[int]) -> Iterable[Window]:
    # Of the starts alone, as thousands of pairs set off the garbage collector.
    if not _are_few(set(starts), starts):
        return _constructed(_unchecked(starts), _unchecked(ends))
    bounds = list(zip(starts, ends, strict=True))
    distinct = dict.fromkeys(bounds)
    lows, highs = zip(*distinct, strict=True)
    found = dict(zip(distinct, _constructed(_instants(lows), _instants(highs)), strict=True))
    return list(map(found.__getitem__, bounds))


def _constructed(starts: Iterable[Instant], ends: Iterable[Instant]) -> Iterator[Window]:
    for start, end in zip(starts, ends, strict=True):
        window = _WindowDraft()
        window.start = start
        window.end = end
        window.__class__ = Window
        yield window


def _instants(micros: Sequence[int]) -> Iterable[Instant]:
    distinct = set(micros)
    if _are_few(distinct, micros):
        found = dict(zip(distinct, _unchecked(distinct), strict=True))
        return list(map(found.__getitem__, micros))
    return _unchecked(micros)


def _unchecked(micros: Iterable[int]) -> Iterable[Instant]:
    return map(int.__new__, repeat(Instant), micros)


def _are_few(distinct: set[Any], values: Sequence[Any]) -> bool:
    """Return whether looking values up takes less time than constructing each."""
    return 2 * len(distinct) < len(values)
