"""The metrics of a query are those of an embedded run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import lowwater as lw
from lowwater.errors import InvalidArgument
from lowwater.spark import counts
from lowwater.spark.query_progress import of_reports, progress
from lowwater.spark.rows import counted_bytes
from lowwater.time import START_OF_TIME
from tests.spark.test_to_spark import cut, run, table, write


def told(at: int, out: int, **counted: int) -> dict[str, int]:
    return {"tells": True, "watermark": at, "output_watermark": out, "clock": 100, **counted}


def report(*rows: bytes, **reads: list[str]) -> dict[str, Any]:
    """A report of a source ``s`` and stages, the last of which is the output."""
    places: list[Any] = [
        ["s", -1, []],
        *([name, n, r] for n, (name, r) in enumerate(reads.items())),
    ]
    graph = json.dumps({"places": places, "ends": [len(reads) - 1]})
    ours = {"counted": [row.decode() for row in rows], "graph": graph}
    return {
        "observedMetrics": {"lowwater": ours, "another": {"n": 1}},
        "durationMs": {"triggerExecution": 1500},
    }


def test_counts_add_up_and_what_is_there_is_the_last() -> None:
    reports = []
    for at, out, late in ((50, 20, 2), (70, 70, 1)):
        rows = [
            counted_bytes(-1, {"events": 3, "dead_letters": 1}, None),
            counted_bytes(-1, told(70, 70), "partition 3"),
            counted_bytes(0, told(at, out, late=late, on_time=2, open_windows=3), None),
            counted_bytes(0, told(at, out, expired=1, open_windows=1), None),
        ]
        reports.append(report(*rows, a=["s"]))
    metrics = of_reports(reports)
    assert (metrics.events, metrics.bundles, metrics.open_windows) == (6, 2, 4)
    assert metrics.panes == {"ON_TIME": 4, "LATE": 3}
    assert metrics.late == {"expired": 2}
    assert metrics.errors == {"dead_letter": 2}
    assert (metrics.elapsed, int(metrics.clock), int(metrics.watermark)) == (3.0, 100, 70)
    assert list(metrics.stages) == ["a"]
    assert metrics.stages["a"].panes == {"ON_TIME": 4, "LATE": 3}
    found = {one.stage: one for one in metrics.watermarks()}
    assert (int(found["s"].output), int(found["a"].input), int(found["a"].output)) == (70, 70, 70)
    assert found["a"].held_by == "s: partition 3"


def test_panes_of_a_pipeline_are_those_of_its_outputs() -> None:
    """Those between stages are not; what is late, refused or open is of all stages."""
    below = counted_bytes(0, told(9, 8, on_time=5, expired=2, open_windows=1, events=7), "a key")
    above = counted_bytes(1, told(8, 7, on_time=3, expired=1, open_windows=6, events=5), None)
    found = counts(report(below, above, counted_bytes(-1, {"events": 9}, None), a=["s"], b=["a"]))
    total = found["lowwater"]
    assert {name for name in total if total[name]} == {
        *("events", "on_time", "expired", "open_windows", "watermark", "clock"),
    }
    assert (total["events"], total["on_time"], total["expired"]) == (9, 3, 3)
    assert (total["open_windows"], total["watermark"], total["clock"]) == (7, 8, 100)
    assert found["lowwater: a"]["on_time"] == 5
    assert found["lowwater: a"]["held_by"] == "a key"
    assert found["lowwater: b"]["reads"] == ["a"]


def test_a_stage_is_held_by_the_key_group_that_is_lowest() -> None:
    """Rows come in any order; what was not told counts for no watermark."""
    rows = [
        counted_bytes(0, told(70, 60), "key 'x'"),
        counted_bytes(0, told(90, 65), "key 'y'"),
        counted_bytes(0, {"events": 1}, "nothing"),
    ]
    for given in (rows, rows[::-1]):
        stage = counts(report(*given, a=["s"]))["lowwater: a"]
        assert (stage["watermark"], stage["output_watermark"]) == (90, 60)
        assert stage["held_by"] == "key 'x'"
        source = counted_bytes(-1, told(70, 70), None)
        assert of_reports([report(source, *given, a=["s"])]).watermarks()[1].held_by == "a: key 'x'"


def test_stages_are_in_the_order_of_the_graph() -> None:
    metrics = of_reports([report(counted_bytes(0, told(1, 1), None), b=["s"], a=["b"])])
    assert list(metrics.stages) == ["b", "a"]


def test_a_micro_batch_that_counted_nothing_has_no_counts() -> None:
    assert counts(report(a=["s"])) == {}
    assert counts({"observedMetrics": {}}) == {}
    assert of_reports([report(a=["s"])]).bundles == 0


def test_counts_are_of_a_report() -> None:
    with pytest.raises(InvalidArgument, match="no progress report"):
        counts(7)


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
    folder = write(tmp_path / "in", *cut(data, 200))

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
    wanted = made(begun).collect(bundle_size=200).metrics
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
