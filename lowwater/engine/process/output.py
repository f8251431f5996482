"""What one step of a process emits: records by output, with their event times and keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from lowwater.engine.records.batch import columns_of
from lowwater.engine.records.columns import Column
from lowwater.engine.records.steps import LateBatch
from lowwater.time import Int64Array

MAIN = "main"
"""The output that every stage has."""


@final
@dataclass(frozen=True, slots=True)
class Emitted:
    """The records of one output, in the order they were emitted; each part has length n.

    Args:
        times: Event times, int64 microseconds, shape (n,).
        keys: The key columns.
        values: The records as Python values, or the columns that a vectorised process emitted.
        start, end: The windows, int64; ``None`` for a process without windows.
    """

    times: Int64Array
    keys: tuple[Column, ...]
    values: Sequence[Any] | Mapping[str, Column]
    start: Int64Array | None = None
    end: Int64Array | None = None

    def __len__(self) -> int:
        return len(self.times)

    def columns(self) -> Mapping[str, Column]:
        """Return the records as columns by name; plain values are a column ``value``.

        Raises:
            DataError: A record has a field whose name cannot be a column's.
        """
        return self.values if isinstance(self.values, Mapping) else columns_of(self.values)

    def to_list(self) -> list[Any]:
        """Return the records as Python values: those of a vectorised process as dicts."""
        if not isinstance(self.values, Mapping):
            return list(self.values)
        names = list(self.values)
        columns = [column.to_list() for column in self.values.values()]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


@final
@dataclass(frozen=True, slots=True)
class ProcessOutput:
    """What one step emitted and dropped.

    Args:
        outputs: What was emitted, by tag; only outputs with records.
        late: The elements that were dropped from their windows (S-O3); ``None`` for none.
    """

    outputs: Mapping[str, Emitted]
    late: LateBatch | None = None


NOTHING = ProcessOutput({})


@final
class OutputBuffer:
    """Collects what hooks emit to one output during a step."""

    __slots__ = ("scopes", "times", "values")

    def __init__(self) -> None:
        self.scopes: list[int] = []
        self.times: list[int] = []
        self.values: list[Any] = []

    def drain(self, describe: Callable[[Int64Array], _Scoped]) -> Emitted | None:
        """Return what was emitted since the last call, if anything.

        Args:
            describe: Returns key columns, starts and ends for the scopes emitted from.
        """
        if not self.times:
            return None
        keys, start, end = describe(np.array(self.scopes, dtype=np.int64))
        emitted = Emitted(np.array(self.times, dtype=np.int64), keys, self.values, start, end)
        self.scopes, self.times, self.values = [], [], []
        return emitted


_Scoped = tuple[tuple[Column, ...], Int64Array | None, Int64Array | None]
