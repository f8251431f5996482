"""What graphs of stages cost: a boundary, many partitions; and how far watermarks lag in them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import lowwater as lw
from benchmarks.events import DISORDER_US, events_file
from examples.session_leaders import leaders
from lowwater.engine.local.stage_run import StageRun
from lowwater.pipeline.outcomes import Outcomes

BOUNDARY_TARGET = 0.15
PARTITIONS_TARGET = 0.05
BUNDLE = 50_000
_DISORDER = lw.BoundedDisorder(3 * DISORDER_US)


@final
@dataclass(frozen=True, slots=True)
class Boundary:
    """What a boundary between two stages takes, in one and the same run as they do.

    Args:
        case: What the first stage does.
        events: How many records that takes.
        crossing: How many panes go over the boundary.
        of_before: Time at the boundary against that of the stage before it with its source.
        of_behind: The same, against that of the stage behind it.
    """

    case: str
    events: int
    crossing: int
    of_before: float
    of_behind: float


def boundaries(count: int, rounds: int, folder: Path) -> Iterator[Boundary]:
    """Time the boundary of two stages and the stages, in the same runs; medians of the rounds."""
    stream = lw.read_parquet(events_file(count, folder), time="at", watermark=_DISORDER)
    minutes = stream.key_by("key")
    cases = {
        "sums per minute, then per ten": minutes.window(lw.FixedWindows("1m")),
        "differences of each bundle, then per ten": minutes.window(
            lw.FixedWindows("1m"),
            trigger=lw.Repeatedly(lw.AfterCount(1)),
            accumulation="discarding",
        ),
        "sums of each bundle taken back, then per ten": minutes.window(
            lw.FixedWindows("1m"),
            trigger=lw.Repeatedly(lw.AfterCount(1)),
            accumulation="retracting",
        ),
    }
    for case, windowed in cases.items():
        chain = (
            windowed.aggregate(value=lw.sum("value"))
            .key_by("key")
            .window(lw.FixedWindows("10m"))
            .aggregate(value=lw.sum("value"))
        )
        found = [_Shares.of(chain) for _ in range(rounds)]
        yield Boundary(
            case,
            count,
            found[0].crossing,
            median(one.boundary / one.before for one in found),
            median(one.boundary / one.behind for one in found),
        )


@final
@dataclass(frozen=True, slots=True)
class _Shares:
    boundary: float
    before: float
    behind: float
    crossing: int

    @classmethod
    def of(cls, chain: lw.Pipeline) -> _Shares:
        """Run a chain of two stages with stopwatches at the boundary and in the second stage."""
        outcomes = Outcomes((chain._stage,), {"progress": False, "bundle_size": BUNDLE})
        run = outcomes.local
        first, second = run._stages
        spent = {"boundary": 0.0, "behind": 0.0}
        hand_on = run._hand_on

        def handed(stage: StageRun) -> Iterator[Any]:
            if stage is not first:
                yield from hand_on(stage)
                return
            began = time.perf_counter()
            yield from hand_on(stage)
            spent["boundary"] += time.perf_counter() - began

        run._hand_on = handed  # type: ignore[assignment, method-assign]
        for name in ("tick", "take", "advance"):
            setattr(second, name, _timed(getattr(second, name), spent))
        began = time.perf_counter()
        for _ in outcomes:
            pass
        total = time.perf_counter() - began
        shown = first.metrics
        return cls(
            spent["boundary"],
            total - spent["boundary"] - spent["behind"],
            spent["behind"],
            sum(shown.panes.values()) + shown.retractions,
        )


def _timed(method: Callable[..., Iterator[Any]], spent: dict[str, float]) -> Any:
    def timed(*args: Any) -> Iterator[Any]:
        began = time.perf_counter()
        yield from method(*args)
        spent["behind"] += time.perf_counter() - began

    return timed


def partitions(count: int, rounds: int, folder: Path) -> Iterator[tuple[int, float, float]]:
    """Yield how many partitions, events/s, and what that costs against one; in turn, paired."""
    table = pq.read_table(events_file(count, folder))
    numbers = np.arange(len(table)) * 7919 % 1_000
    runs: dict[int, list[float]] = {1: [], 1_000: []}
    tables = {n: table.append_column("part", pa.array(numbers % n)) for n in runs}
    for _ in range(rounds):
        for n, given in tables.items():
            source = lw.from_arrow(
                given, time="at", watermark=lw.PerPartition(_DISORDER, by="part")
            )
            sums = source.key_by("key").window(lw.FixedWindows("1m")).aggregate(v=lw.sum("value"))
            began = time.perf_counter()
            for _ in sums.run_batches(bundle_size=BUNDLE, progress=False):
                pass
            runs[n].append(time.perf_counter() - began)
    for n, spent in runs.items():
        cost = median(many / one for many, one in zip(spent, runs[1], strict=True)) - 1
        yield n, count / min(spent), cost


@final
@dataclass(frozen=True, slots=True)
class Lag:
    """How far a stage's output watermark is behind the newest event, in seconds of event time."""

    stage: str
    mean: float
    most: float
    panes: int


def lags(count: int, folder: Path) -> list[Lag]:
    """Run the example of three stages, and look at the watermarks behind each bundle."""
    events = pq.read_table(events_file(count, folder), columns=["at"])
    events = events.take(np.arange(0, min(count, 1_000_000), 10))  # a hundred a second
    users = np.random.default_rng(1).integers(0, 5_000, len(events))
    visits = lw.from_arrow(
        pa.table({"at": events["at"], "user": users}), time="at", watermark=_DISORDER
    )
    seen: dict[str, list[float]] = {}
    metrics: Any = None
    outcomes: Outcomes

    def look(found: lw.Metrics) -> None:
        nonlocal metrics
        metrics = found
        (reader,) = outcomes.local.readers
        newest = reader.watermark() + 3 * DISORDER_US
        if not reader.ended:
            seen.setdefault("the source", []).append((newest - reader.watermark()) / 1e6)
            for name, stage in found.stages.items():
                seen.setdefault(name, []).append((newest - stage.output_watermark) / 1e6)

    stages = (leaders(visits)._stage,)
    outcomes = Outcomes(stages, {"progress": look, "bundle_size": 1_000})
    for _ in outcomes:
        pass
    return [
        Lag(
            name,
            float(np.mean(each)),
            max(each),
            sum(metrics.stages[name].panes.values()) if name in metrics.stages else 0,
        )
        for name, each in seen.items()
    ]
