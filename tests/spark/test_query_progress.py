"""The metrics of a query are those of an embedded run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lowwater as lw
from lowwater.errors import InvalidArgument
from lowwater.spark.query_progress import of_reports, progress
from lowwater.spark.rows import COUNTS
from lowwater.time import START_OF_TIME
from tests.spark.test_to_spark import cut, run, table, write

ROW = {**dict.fromkeys(COUNTS, 0), "watermark": None, "clock": 100}
STAGE = {**ROW, "output_watermark": None, "held_by": None}


def report(**stages: dict[str, Any]) -> dict[str, Any]:
    total = {**ROW, "events": 3, "on_time": 2, "expired": 1, "dead_letters": 1, "open_windows": 4}
    named = {f"lowwater: {name}": {**STAGE, **row} for name, row in stages.items()}
    return {
        "observedMetrics": {"lowwater": total, "another": {"n": 1}, **named},
        "durationMs": {"triggerExecution": 1500},
    }


def test_counts_add_up_and_what_is_there_is_the_last() -> None:
    first = report(a={"watermark": 50, "output_watermark": 20, "reads": '["s"]', "late": 2})
    second = report(a={"watermark": 70, "output_watermark": 70, "reads": '["s"]', "late": 1})
    source = {"watermark": 70, "output_watermark": 70, "reads": "[]", "held_by": "partition 3"}
    for one in (first, second):
        one["observedMetrics"]["lowwater: s"] = {**STAGE, **source}
    metrics = of_reports([first, second])
    assert (metrics.events, metrics.bundles, metrics.open_windows) == (6, 2, 4)
    assert metrics.panes == {"ON_TIME": 4}
    assert metrics.late == {"expired": 2}
    assert metrics.errors == {"dead_letter": 2}
    assert metrics.elapsed == 3.0
    assert list(metrics.stages) == ["a"]
    assert metrics.stages["a"].panes == {"LATE": 3}
    told = {one.stage: one for one in metrics.watermarks()}
    assert (int(told["s"].output), int(told["a"].input), int(told["a"].output)) == (70, 70, 70)
    assert told["a"].held_by == "s: partition 3"


def test_stages_are_in_the_order_of_the_graph() -> None:
    """Spark's reports name them in an order of their own."""
    below, above = {"reads": '["b"]'}, {"reads": '["s"]'}
    metrics = of_reports([report(a=below, b=above, s={"reads": "[]"})])
    assert list(metrics.stages) == ["b", "a"]


def test_a_hold_of_a_stage_is_named() -> None:
    source = {"watermark": 70, "output_watermark": 70, "reads": "[]"}
    held = {"watermark": 70, "output_watermark": 60, "reads": '["s"]', "held_by": "key 'x'"}
    metrics = of_reports([report(s=source, a=held)])
    assert metrics.watermarks()[1].held_by == "a: key 'x'"


def test_nothing_is_known_before_the_first_micro_batch() -> None:
    assert of_reports([]).events == 0
    assert of_reports([]).watermark == START_OF_TIME


def test_a_query_that_found_nothing_to_do_has_done_nothing() -> None:
    """As one that is started again although no files have come."""
    idle = {"observedMetrics": {}, "numInputRows": 0, "durationMs": {"triggerExecution": 5}}
    assert of_reports([idle]).events == 0


def test_a_query_of_something_else_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="no pipeline of lowwater"):
        of_reports([{"observedMetrics": {}, "numInputRows": 3}])
    with pytest.raises(InvalidArgument, match="no pipeline of lowwater"):
        of_reports([{"observedMetrics": {"another": {"n": 1}}}])
    with pytest.raises(InvalidArgument, match="not a streaming query"):
        progress(7)


@pytest.mark.usefixtures("chains")
def test_it_is_what_an_embedded_run_says(spark: Any, tmp_path: Path) -> None:
    data = table(400)
    folder = write(tmp_path / "in", *cut(data, 100))

    def made(begun: lw.Stream) -> lw.Pipeline:
        first = begun.key_by("key").window(
            lw.FixedWindows("1m"),
            accumulation="retracting",
            trigger=lw.Repeatedly(lw.AfterCount(3)),
        )
        counts = first.aggregate(n=lw.count()).named("counts")
        again = counts.to_stream().key_by("key").window(lw.FixedWindows("10m"))
        return again.aggregate(most=lw.sum("n")).named("sums")

    begun = lw.read_parquet(folder, time="at", watermark=lw.BoundedDisorder("5s"))
    wanted = made(begun).collect(bundle_size=100).metrics
    frame = made(begun).to_spark(spark, drain=True, files_per_batch=1)
    _, reports = run(frame, tmp_path / "checkpoint")
    found = of_reports(reports)
    assert (found.events, found.panes, found.late) == (wanted.events, wanted.panes, wanted.late)
    for name, stage in wanted.stages.items():
        assert (found.stages[name].panes, found.stages[name].retractions) == (
            stage.panes,
            stage.retractions,
        )
        assert found.stages[name].watermark == stage.watermark
    assert [one.stage for one in found.watermarks()] == ["source 1", "counts", "sums"]
