"""What a query has done, from its progress reports: the metrics of an embedded run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from lowwater.engine.graph.metrics import Metrics, StageMetrics
from lowwater.engine.local.health.conservation import Differences
from lowwater.engine.records.steps import REASONS, TIMINGS
from lowwater.errors import InvalidArgument, describe
from lowwater.spark.observed_counts import METRICS, counts
from lowwater.time import START_OF_TIME, Instant
from lowwater.watermark import Hold, LowWatermarks, StageWatermark

_OF = f"{METRICS}: "


def progress(query: Any) -> Metrics:
    """Return what a streaming query has done, as the metrics of an embedded run.

    Counts are sums over the micro-batches whose reports Spark keeps: the last 100 of this start of
    the query, or ``spark.sql.streaming.numRecentProgressUpdates``. Watermarks and open windows are
    those of the last one. Dead letters are not counted by reason.

    Args:
        query: What ``writeStream...start()`` returned, of a DataFrame that ``to_spark`` made.

    Raises:
        InvalidArgument: It is no streaming query, or one without a pipeline of this library.
    """
    reports = getattr(query, "recentProgress", None)
    if reports is None:
        raise InvalidArgument(
            f"{describe('query', query)} is not a streaming query",
            where="progress",
            hint="Give what writeStream...start() returned",
        )
    return of_reports(reports)


def of_reports(reports: Sequence[Mapping[str, Any]]) -> Metrics:
    """Return the metrics of a query's progress reports, in their order.

    Raises:
        InvalidArgument: There are reports, and none is of a pipeline of this library.
    """
    metrics = Metrics()
    reads: dict[str, list[str]] = {}
    holds: dict[str, Hold | None] = {}
    found = False
    differences = Differences()
    for report in reports:
        seen = counts(report)
        total = seen.get(METRICS)
        if total is None:
            continue
        found = True
        # What one call sends another receives, in the same micro-batch (S-B2).
        differences.compare("the query", total["sent"], total["received"], "records received")
        _add_total(metrics, total, report)
        for name, row in seen.items():
            if name.startswith(_OF):
                stage = name.removeprefix(_OF)
                _add_stage(metrics, stage, row, reads, holds)
    if any(map(_is_of_another, reports)) and not found:
        raise InvalidArgument(
            "the query has no pipeline of lowwater in it",
            where="progress",
            hint="Give a query over what to_spark returned",
        )
    inputs = {name: metrics.stages[name].watermark for name in reads if not reads[name]}
    metrics.reporter = lambda: _watermarks(metrics, reads, inputs, holds)
    for name in inputs:  # sources are no stages
        metrics.stages.pop(name)
    places = {name: at for at, name in enumerate(LowWatermarks(reads).stages)}
    metrics.stages = dict(sorted(metrics.stages.items(), key=lambda one: places.get(one[0], -1)))
    return metrics


def _is_of_another(report: Mapping[str, Any]) -> bool:
    """Whether a micro-batch ran without a pipeline; a query that waits reports nothing at all."""
    seen = report["observedMetrics"]
    return METRICS not in seen and bool(seen or report.get("numInputRows"))


def _add_total(metrics: Metrics, row: Mapping[str, Any], report: Mapping[str, Any]) -> None:
    metrics.bundles += 1
    metrics.events += row["events"]
    metrics.retractions += row["retractions"]
    metrics.emitted += row["emitted"]
    metrics.duplicates += row["duplicates"]
    metrics.superseded += row["superseded"]
    metrics.admitted += row["admitted"]
    metrics.dropped += row["dropped"]
    metrics.waiting = row["waiting"]
    metrics.panes += _panes(row)
    metrics.late += _late(row)
    if row["dead_letters"]:
        metrics.errors["dead_letter"] += row["dead_letters"]
    metrics.open_windows = row["open_windows"]
    metrics.watermark = _later(metrics.watermark, row["watermark"])
    metrics.clock = _later(metrics.clock, row["clock"])
    metrics.elapsed += report.get("durationMs", {}).get("triggerExecution", 0) / 1000


def _add_stage(
    metrics: Metrics,
    name: str,
    row: Mapping[str, Any],
    reads: dict[str, list[str]],
    holds: dict[str, Hold | None],
) -> None:
    stage = metrics.stages.setdefault(name, StageMetrics())
    stage.panes += _panes(row)
    stage.late += _late(row)
    stage.retractions += row["retractions"]
    stage.duplicates += row["duplicates"]
    stage.superseded += row["superseded"]
    stage.arrived += row["events"]
    stage.admitted += row["admitted"]
    stage.dropped += row["dropped"]
    stage.waiting = row["waiting"]
    if row["emitted"]:
        stage.emitted["all"] += row["emitted"]
    stage.open_windows = row["open_windows"]
    stage.watermark = _later(stage.watermark, row["watermark"])
    stage.output_watermark = _later(stage.output_watermark, row["output_watermark"])
    reads[name] = row["reads"]
    held, at = row["held_by"], row["output_watermark"]
    holds[name] = None if held is None or at is None else Hold(at, held)


def _watermarks(
    metrics: Metrics,
    reads: Mapping[str, Sequence[str]],
    inputs: Mapping[str, Instant],
    holds: Mapping[str, Hold | None],
) -> list[StageWatermark]:
    low = LowWatermarks(reads)
    for name in low.stages:
        hold = holds.get(name)
        if name in inputs:
            low.enter(name, [hold or Hold(int(inputs[name]), "its latest elements")])
            low.leave(name)
            continue
        stage = metrics.stages[name]
        low.resume({name: [int(stage.watermark), int(stage.output_watermark)]})
        low.enter(name)
        low.leave(name, [] if hold is None else [hold])
    return low.report(int(metrics.clock))


def _panes(row: Mapping[str, Any]) -> Counter[str]:
    return +Counter[str]({name: row[name.lower()] for name in TIMINGS})


def _late(row: Mapping[str, Any]) -> Counter[str]:
    return +Counter[str]({reason: row[reason] for reason in REASONS})


def _later(one: Instant, other: int | None) -> Instant:
    return max(one, Instant(START_OF_TIME if other is None else other))
