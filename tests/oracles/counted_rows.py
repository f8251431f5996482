"""Windows of a number of records, computed record by record.

It is a second, obvious implementation of the rules C-1 to C-4: the records of each key in a list,
and every window that could be cut from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, final

END = 1 << 60


@final
@dataclass(frozen=True)
class Came:
    """A record, with its key, event time in microseconds, and values."""

    key: Any
    time: int
    values: dict[str, Any]


@final
@dataclass(frozen=True)
class Filled:
    """A pane: key, timestamp, the least event time and the greatest plus one, and the results."""

    key: Any
    timestamp: int
    start: int
    end: int
    results: tuple[Any, ...]


@final
@dataclass
class CountedRun:
    """A run over records, a step at a time.

    Args:
        count: How many records a window has.
        every: How many records after one window the next one starts.
        compute: Compute the results of the records of a window.
    """

    count: int
    every: int
    compute: Sequence[Callable[[list[Came]], Any]]
    watermark: int = -END
    came: dict[Any, list[Came]] = field(default_factory=dict)
    numbers: dict[tuple[Any, int], int] = field(default_factory=dict)

    def add(self, record: Came) -> list[Filled]:
        """Take a record; return the pane of the window that it fills, if there is one."""
        of_key = self.came.setdefault(record.key, [])
        of_key.append(record)
        if (len(of_key) - 1) % self.every == 0:
            self.numbers[record.key, len(of_key) - 1] = len(self.numbers)
        first = len(of_key) - self.count
        if first < 0 or first % self.every:
            return []
        return [self._pane(of_key[first:])]

    def end(self) -> list[Filled]:
        """Return the panes of windows that are not full, by their ends, then by arrival."""
        rest = []
        for key, of_key in self.came.items():
            for first in range(0, len(of_key), self.every):
                if first + self.count > len(of_key):
                    pane = self._pane(of_key[first:])
                    rest.append((pane.end, self.numbers[key, first], pane))
        return [pane for _, _, pane in sorted(rest, key=lambda one: one[:2])]

    def open_windows(self) -> int:
        """Return how many windows have begun and are not full."""
        return sum(
            first + self.count > len(of_key)
            for of_key in self.came.values()
            for first in range(0, len(of_key), self.every)
        )

    def _pane(self, records: list[Came]) -> Filled:
        times = [record.time for record in records]
        return Filled(
            records[0].key,
            max(times[-1], self.watermark),
            min(times),
            max(times) + 1,
            tuple(compute(records) for compute in self.compute),
        )
