"""Windows of this library beside Spark's own: one table over sizes, cold and warm, and growth.

Spark's own windows run with each of its state store providers. The yardstick of a line is the
provider that is faster there.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, final

from benchmarks.spark_events import batches_folder, growing_folder, joining_folder
from benchmarks.spark_runs import (
    PROVIDERS,
    Plan,
    Rounds,
    Run,
    heading,
    line,
    named,
    ratio,
    seconds,
)

COLD = 5
"""How many batches are the first ones."""
_WANTED = {
    ("fixed", 250_000, 10_000): 1.4,
    ("fixed", 1_000_000, 10_000): 1.7,
    ("fixed", 20_000, 10_000): 0.8,
    ("sessions", 250_000, 10_000): 2.0,
    ("inner join", 250_000, 10_000): 1.0,
    ("left join", 250_000, 10_000): 1.0,
}
_WANTED_COLD, _WANTED_GROWTH = 0.8, 1.0


@final
@dataclass(frozen=True, slots=True)
class Sizes:
    """What to measure.

    Args:
        windows: ``"fixed"`` or ``"sessions"``; ``"inner join"`` or ``"left join"``.
        rows: Of a batch; in joins of each side of it.
        keys: From which each row has one at random.
    """

    windows: str
    rows: int
    keys: int


CASES = (
    Sizes("fixed", 20_000, 10_000),
    Sizes("fixed", 250_000, 10_000),
    Sizes("fixed", 1_000_000, 10_000),
    Sizes("fixed", 250_000, 1_000_000),
    Sizes("sessions", 250_000, 10_000),
)
JOINS = (
    Sizes("inner join", 20_000, 10_000),
    Sizes("inner join", 250_000, 10_000),
    Sizes("left join", 250_000, 10_000),
)


@final
@dataclass(frozen=True, slots=True)
class Beside:
    """How to measure.

    Args:
        plan: How often, how long and with what.
    """

    plan: Plan

    def heading(self) -> None:
        """Print the head of the table."""
        heading(
            *("windows", "rows a batch", "keys", "open windows", "batches"),
            *(f"Spark's own, {provider}, s" for provider in PROVIDERS),
            *("lowwater", "s", "ratio to the faster (least to most)", "wanted", "load before"),
        )

    def speed(self, case: Sizes) -> None:
        """Print the lines of a case: its first batches, and those when all is warm."""
        make = joining_folder if case.windows.endswith("join") else batches_folder
        folder = make(case.rows, case.keys, self.plan.batches, self.plan.data)
        rounds = self._rounds(case.windows, folder, self.plan.most_seconds)
        first = f"{case.windows} | {case.rows:,} | {case.keys:,} | few"
        cold = min(COLD, self.plan.batches)
        wanted = _WANTED.get((case.windows, case.rows, case.keys))
        self._lines(
            rounds, f"{first} | first {cold}, together", partial(_together, cold), _WANTED_COLD
        )
        warm = f"{first} | warm, from {self.plan.warm_up + 1} on{rounds.short(self.plan.warm_up)}"
        self._lines(rounds, warm, lambda run: run.median(self.plan.warm_up), wanted)

    def growth(self, rows: int, most: int) -> None:
        """Print lines for a quarter, a half and all of the most windows that are open.

        A figure is the median of the batches that begin with about so many: one batch fewer, and
        one more, are among them.
        """
        count = -(-most // rows) + 2
        folder = growing_folder(rows, count, self.plan.data)
        before = growing_folder(max(1, rows // 25), self.plan.warm_up, self.plan.data)
        rounds = self._rounds("growing", folder, 5 * self.plan.most_seconds, before=before)
        for size in (most // 4, most // 2, most):
            first = f"none ends | {rows:,} | new | {size:,} | {size - rows:,} to {size + rows:,}"
            first += rounds.short(size // rows)
            wanted = _WANTED_GROWTH if size == most else None
            self._lines(rounds, first, partial(_around, size, rows), wanted)

    def _rounds(self, windows: str, folder: Path, most: float, **more: Any) -> Rounds:
        queries: dict[str, Callable[[], Run]] = {}
        for provider, settings in PROVIDERS.items():
            queries[provider] = partial(
                self.plan.measure, f"spark-{windows}", folder, settings, most_seconds=most, **more
            )
        for way in self.plan.ways:
            queries[named(way)] = partial(
                self.plan.measure, f"lowwater-{windows}", folder, way, most_seconds=most, **more
            )
        return Rounds(queries, self.plan.rounds).run()

    def _lines(
        self, rounds: Rounds, first: str, figure: Callable[[Run], float], wanted: float | None
    ) -> None:
        theirs = {provider: rounds.figures(provider, figure) for provider in PROVIDERS}
        ran = [figures for figures in theirs.values() if figures]
        yardstick = min(ran, key=statistics.median, default=[])
        for way in map(named, self.plan.ways):
            ours = rounds.figures(way, figure)
            line(
                *(first, *map(seconds, theirs.values()), way, seconds(ours)),
                *(ratio(yardstick, ours), "" if wanted is None else f"≥ {wanted}"),
                f"{rounds.load:.1f}",
            )


def _together(count: int, run: Run) -> float:
    return sum(each.seconds for each in run.batches[:count])


def _around(size: int, rows: int, run: Run) -> float:
    """Return the median of the batches that begin with a number of open windows, or nearly so.

    Each batch opens a window for each of its rows. Of a query that did not come so far, the last
    batch stands for it.
    """
    near = [each for each in run.batches if abs(each.number * rows - size) <= rows]
    return statistics.median(each.seconds for each in near or run.batches[-1:])


ALTERNATIVES = ("per-key", "transform-with-state")
"""Spark's own operators with Python functions, with a group for each key."""


def report_alternatives(case: Sizes, beside: Beside) -> None:
    """Print what the same sums take in other ways that Spark has to run Python."""
    folder = batches_folder(case.rows, case.keys, beside.plan.batches, beside.plan.data)
    queries: dict[str, Callable[[], Run]] = {
        name: partial(beside.plan.measure, name, folder, {}, most_seconds=beside.plan.most_seconds)
        for name in ("lowwater-fixed", *ALTERNATIVES)
    }
    rounds = Rounds(queries, beside.plan.rounds).run()
    figures = {
        name: rounds.figures(name, lambda run: run.median(beside.plan.warm_up)) for name in queries
    }
    heading(f"{case.rows:,} rows a batch, {case.keys:,} keys", "s a batch", "times lowwater's")
    for name, taken in figures.items():
        line(name, seconds(taken), ratio(taken, figures["lowwater-fixed"]))
