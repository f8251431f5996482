"""Pipelines that are packed and stepped in one task: which these are, and what they give."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lowwater as lw
from lowwater.engine.graph.graph import Graph
from lowwater.spark import CarriedTime, counts
from lowwater.spark.one_task import is_order_free
from lowwater.watermark import PerPartition, Quantile
from tests.examples import is_campaign
from tests.spark.restarted_graphs import settings
from tests.spark.stepped import Stepped
from tests.spark.test_to_spark import cut, embedded, plain, run, stream, table, write
from tests.unit.triggers.test_values import EveryOther

PARTITIONS = "spark.sql.shuffle.partitions"
DISORDER = lw.BoundedDisorder("2s")
MINUTE = lw.FixedWindows("1m")
SCHEMA = table(1).schema
EXACT = {
    "n": lw.count(),
    "valued": lw.count("value"),
    "total": lw.sum("value"),
    "least": lw.min("at"),
    "most": lw.max("day"),
}
KEPT: dict[str, dict[str, Any]] = {
    "fixed": {"windows": MINUTE},
    "sessions": {"windows": lw.Sessions("3s")},
    "sliding": {"windows": lw.SlidingWindows("1m", period="20s")},
    "retracting": {
        "windows": MINUTE,
        "accumulation": "retracting",
        "trigger": lw.Repeatedly(lw.AfterCount(3)),
        "allowed_lateness": "20s",
    },
}


def begun(watermark: Any = DISORDER, **options: Any) -> lw.Stream:
    return lw.from_arrow(SCHEMA.empty_table(), time="at", watermark=watermark, **options)


def windowed(stream: lw.Stream, windows: Any = MINUTE, **options: Any) -> Any:
    return stream.key_by("key").window(windows, **options)


def fits(made: lw.Pipeline) -> bool:
    return is_order_free(Graph.of([made._stage]), SCHEMA)


def standing(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(repr({k: v for k, v in row.items() if k != "output"}) for row in rows)


@pytest.mark.parametrize("name", KEPT)
def test_what_is_free_of_order_has_one_state_for_all_orders(name: str) -> None:
    """What goes on from a state gives the same, in whatever order its records came."""
    made = windowed(begun(), **KEPT[name]).aggregate(**EXACT)
    assert fits(made)
    batches = cut(table(400, disorder=20), 100)
    for seed in range(4 if is_campaign() else 1):
        random = np.random.default_rng(seed)
        mixed = [batch.take(random.permutation(len(batch))) for batch in batches]
        one, other = (Stepped(made, SCHEMA) for _ in range(2))
        for at, (batch, shuffled) in enumerate(zip(batches, mixed, strict=True)):
            left = one.step([batch], at)
            assert standing(other.step([shuffled], at)) == standing(left)
            # A worker that holds nothing goes on from the other's cells.
            one = Stepped(made, SCHEMA, dict(other.cells), one.rows)
        assert standing(other.end(9)) == standing(one.end(9))
        assert len(one.rows) > 40


def test_what_depends_on_the_order_of_records_does_not_fit() -> None:
    assert fits(windowed(begun(None)).aggregate(n=lw.count()))
    assert fits(windowed(begun(lw.Ascending())).aggregate(n=lw.count()))
    for aggregate in (
        *(lw.sum("score"), lw.max("score"), lw.mean("value"), lw.collect("value")),
        *(lw.first("value"), lw.max("key"), lw.count_distinct("value")),
    ):
        assert not fits(windowed(begun()).aggregate(n=lw.count(), other=aggregate))
    for watermark in (
        *(Quantile(0.9), PerPartition(lw.BoundedDisorder("1s"), by="part"), CarriedTime("at")),
    ):
        assert not fits(windowed(begun(watermark)).aggregate(n=lw.count()))
    jump = lw.CustomTrigger(EveryOther())
    for trigger in (jump, lw.AfterWatermark(early=jump)):
        assert not fits(
            windowed(begun(), trigger=trigger, accumulation="discarding").aggregate(n=lw.count())
        )
    days = lw.CustomWindows(lambda at: [(at, at + 1)])
    assert not fits(windowed(begun(), days).aggregate(n=lw.count()))
    clock = lw.ArrivalClock("at")
    assert not fits(windowed(begun(clock=clock)).aggregate(n=lw.count()))
    assert not fits(windowed(begun().filter(lw.col("part") > 0)).aggregate(n=lw.count()))
    once = begun().deduplicate(id=("key", "at"), within="1m")
    assert not fits(windowed(once).aggregate(n=lw.count()))
    assert not fits(windowed(begun() | begun()).aggregate(n=lw.count()))
    below = windowed(begun()).aggregate(n=lw.count())
    assert not fits(windowed(below.to_stream()).aggregate(n=lw.sum("n")))


def functions(frame: Any) -> int:
    """How many Python functions the plan of a DataFrame has."""
    return str(frame._jdf.queryExecution().analyzed().toString()).count("MapInArrow")


def of_one_level(source: lw.Stream) -> lw.Pipeline:
    kept = windowed(source, allowed_lateness="5s", accumulation="retracting")
    made: lw.Pipeline = kept.aggregate(**EXACT)
    return made


def of_two_levels(source: lw.Stream) -> lw.Pipeline:
    above = (
        of_one_level(source)
        .to_stream()
        .key_by("valued")
        .window(lw.FixedWindows("2m"), accumulation="retracting")
    )
    return above.aggregate(key=lw.max("key"), total=lw.sum("total"))


@pytest.mark.long(reason="proves again on Spark")
@pytest.mark.parametrize(("made", "expected"), [(of_one_level, 1), (of_two_levels, 2)])
def test_it_goes_on_with_other_partitions(
    spark: Any, tmp_path: Path, made: Callable[[lw.Stream], lw.Pipeline], expected: int
) -> None:
    """In one task, then in more functions, and again in one; late records and counts too."""
    data = table(900, disorder=40)
    parts = cut(data, 100)
    folder = tmp_path / "in"
    rows: list[Any] = []
    reports: list[Any] = []
    for at, partitions in enumerate(("1", "2", "1")):
        write(folder, *parts[3 * at : 3 * at + 3])
        source = lw.from_spark(stream(spark, folder), time="at", watermark="2s")
        with settings(spark, {PARTITIONS: partitions}):
            frame = made(source).to_spark(
                spark, operator="mapInArrow", key_groups=4, state_location=tmp_path / "state"
            )
            assert functions(frame) == (expected if partitions == "1" else expected + 1)
            found, progress = run(frame, tmp_path / "checkpoint")
        rows += found
        reports += progress
    wanted = made(lw.from_arrow(data, time="at", watermark=DISORDER))
    due = [row for row in embedded(wanted, bundle_size=100) if row["watermark"] is not None]
    assert len(rows) > 30
    assert plain(rows) == plain(due)
    totals = [counts(report)["lowwater"] for report in reports]
    assert sum(one["events"] for one in totals) == len(data)
    assert sum(one["expired"] for one in totals) == len(wanted.collect(bundle_size=100).late) > 0
