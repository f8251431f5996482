"""What open windows cost that a batch does not touch: time, a change of workers, memory.

Each query opens windows, one for each of many keys, none of which ends; then each of its batches
touches some of them, chosen at random.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, final

from benchmarks.spark_events import touching_folder
from benchmarks.spark_runs import (
    NONE,
    PROVIDERS,
    Plan,
    Rounds,
    Run,
    Task,
    heading,
    line,
    named,
    ratio,
    seconds,
)

GROWTH, OTHER_WORKERS = 1.3, 1.5
"""The most that is wanted of what more windows, or other workers, cost."""
_FILLING_S = 2_000
"""About how long a query may take to open its windows and touch them."""


@final
@dataclass(frozen=True, slots=True)
class Touching:
    """How to measure.

    Args:
        plan: How often, how long and with what.
        rows: How many windows a batch opens, before windows are touched.
    """

    plan: Plan
    rows: int

    def growth(self, touched: int, sizes: Sequence[int]) -> None:
        """Print what a batch takes that touches some windows of more and more; Spark's own too."""
        sides = {named(way): ("lowwater-growing", way) for way in self.plan.ways}
        for provider, settings in PROVIDERS.items():
            sides[f"Spark's own, {provider}"] = ("spark-growing", settings)
        queries = {
            f"{name}, {size:,} open": self._query(query, settings, size, touched)
            for name, (query, settings) in sides.items()
            for size in sizes
        }
        heading(
            f"batches that touch {touched:,} windows",
            *(f"{size:,} open, s" for size in sizes),
            *("growth (least to most)", "wanted", "load before"),
        )
        rounds = Rounds(queries, self.plan.rounds).run()
        for name, (query, _) in sides.items():
            taken = [
                rounds.figures(f"{name}, {size:,} open", partial(self._warm, size))
                for size in sizes
            ]
            wanted = f"≤ {GROWTH}" if query.startswith("lowwater") else ""
            growth = ratio(taken[-1], taken[0])
            line(name, *map(seconds, taken), growth, wanted, f"{rounds.load:.1f}")

    def workers(self, size: int, touched: Iterable[int]) -> None:
        """Print what batches take whose key groups meet the workers that they met before, or not.

        Each Python step has as many workers as there are cores, which Spark hands to the tasks of
        the next batch in the order in which they became idle. So which task meets which is decided
        by which of them ended first before, and a run has batches of both kinds.
        """
        heading(
            *("lowwater", "open windows", "touched", "same workers, s (batches)"),
            *("other workers, s (batches)", "ratio", "wanted", "load before"),
        )
        for rows in touched:
            queries = {
                named(way): self._query(
                    "lowwater-growing", way, size, rows, record=True, own_workers=True
                )
                for way in self.plan.ways
            }
            rounds = Rounds(queries, self.plan.rounds).run()
            for name in queries:
                runs = [] if name in rounds.failed else rounds.runs[name]
                same, other = (
                    [took for run in runs for took in self._of_kind(run, size, kind)]
                    for kind in ("same", "other")
                )
                both = bool(same and other)
                line(
                    *(name, f"{size:,}", f"{rows:,}"),
                    *(f"{seconds(each)} ({len(each)})" for each in (same, other)),
                    f"{statistics.median(other) / statistics.median(same):.2f}" if both else NONE,
                    *(f"≤ {OTHER_WORKERS}", f"{rounds.load:.1f}"),
                )

    def memory(self, size: int, touched: int, limit: str) -> None:
        """Print how large Python workers are, with a limit to the windows in memory and without."""
        ways = [*self.plan.ways, {"state": "rocksdb", "memory_limit": limit}]
        queries = {
            named(way): self._query("lowwater-growing", way, size, touched, record=True)
            for way in ways
        }
        heading(
            *(f"lowwater, {size:,} windows open", "largest worker at the end, MB"),
            *("the most any had, MB", "all workers at the end, MB (workers)", "s a batch"),
            "load before",
        )
        rounds = Rounds(queries, self.plan.rounds).run()
        for name in queries:
            if name in rounds.failed:
                continue
            last = [list(_last_of_each(run.tasks)) for run in rounds.runs[name]]
            line(
                name,
                _megabytes(max(task.resident_bytes for task in each) for each in last),
                _megabytes(max(task.peak_bytes for task in run.tasks) for run in rounds.runs[name]),
                _megabytes(sum(task.resident_bytes for task in each) for each in last)
                + f" ({statistics.median(map(len, last)):.0f})",
                seconds(rounds.figures(name, partial(self._warm, size))),
                f"{rounds.load:.1f}",
            )

    def _query(
        self, query: str, settings: dict[str, Any], size: int, touched: int, **more: Any
    ) -> Callable[[], Run]:
        folder = touching_folder(size, self.rows, touched, self.plan.batches, self.plan.data)
        # However many windows there are, the JVM and the workers have run as many batches.
        few = min(size, 4 * touched, self.rows)
        before = touching_folder(few, few, touched, 4 * self.plan.warm_up, self.plan.data)
        return partial(
            self.plan.measure,
            query,
            folder,
            settings,
            most_seconds=_FILLING_S,
            before=before,
            **more,
        )

    def _first(self, size: int) -> int:
        return -(-size // self.rows) + self.plan.warm_up

    def _warm(self, size: int, run: Run) -> float:
        return run.median(self._first(size))

    def _of_kind(self, run: Run, size: int, kind: str) -> list[float]:
        met = meetings(run.tasks)
        later = run.batches[self._first(size) :]
        return [each.seconds for each in later if met.get(each.number) == kind]


def meetings(tasks: Iterable[Task]) -> dict[int, Literal["same", "other", "some"]]:
    """Return of batches whether their key groups met the workers that they met one batch before.

    What keeps state is the first Python step of a batch's last stage. A batch without one before it
    is left out.
    """
    batches: dict[int, list[Task]] = {}
    for task in tasks:
        batches.setdefault(task.batch, []).append(task)
    workers: dict[int, dict[int, int]] = {}
    for batch, ran in batches.items():
        last = max(task.stage for task in ran)
        step = min(task.step for task in ran if task.stage == last)
        workers[batch] = {
            task.partition: task.pid for task in ran if (task.stage, task.step) == (last, step)
        }
    found: dict[int, Literal["same", "other", "some"]] = {}
    for batch, now in workers.items():
        before = workers.get(batch - 1)
        if before is not None and now.keys() == before.keys():
            kept = sum(before[partition] == pid for partition, pid in now.items())
            found[batch] = "same" if kept == len(now) else "some" if kept else "other"
    return found


def _last_of_each(tasks: Iterable[Task]) -> Iterable[Task]:
    return {task.pid: task for task in tasks}.values()


def _megabytes(sizes: Iterable[int]) -> str:
    return f"{statistics.median(sizes) / 1e6:,.0f}"
