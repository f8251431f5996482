"""What became of every record is in the metrics, and survives restarts, also of older states."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import lowwater as lw
from lowwater.engine.graph.metrics import StageMetrics
from lowwater.engine.local.health.conservation import InputCounts, stage_difference
from lowwater.engine.local.run_record import read_run, rewrite_run
from lowwater.state.rocks import RocksStore
from lowwater.state.store import Batch
from tests.unit.engine.local.durable_runs import Stopped, pipeline, write_files

ROWS = 10_000
SECOND = 1_000_000


class Refusing:
    """Emits most records, and refuses some."""

    def on_record(self, record: Any, ctx: Any) -> None:
        if record["n"] % 10 == 3:
            ctx.late("a three")
        else:
            ctx.emit(record)


def stream(rows: int = ROWS) -> lw.Stream:
    records = [
        {"at": None if n % 100 == 99 else n, "k": n % 7, "n": n, "id": n // 2} for n in range(rows)
    ]
    return lw.from_iterable(records, time="at", unit="s", watermark=lw.BoundedDisorder("0s"))


def the_stage(built: Any, **options: Any) -> StageMetrics:
    metrics = built.collect(on_error="dead_letter", progress=False, **options).metrics
    (stage,) = metrics.stages.values()
    assert stage_difference(stage) is None
    assert json.loads(json.dumps(stage.to_dict()))["arrived"] == stage.arrived
    return stage


@pytest.mark.parametrize("order", ["arrival", "event_time"])
@pytest.mark.parametrize(
    "windows", [None, lw.SlidingWindows("60s", "30s")], ids=["keys", "windows"]
)
def test_a_refused_record_is_dropped_once(order: Any, windows: Any) -> None:
    keyed = stream().key_by("k")
    scoped = keyed if windows is None else keyed.window(windows)
    stage = the_stage(scoped.process(Refusing(), order=order))
    sound = ROWS * 99 // 100
    assert (stage.arrived, stage.dropped) == (sound, ROWS // 10)
    assert stage.admitted == sound - ROWS // 10
    assert stage.late.total() == stage.dropped * (1 if windows is None else 2)


def test_a_record_in_one_of_its_windows_is_admitted() -> None:
    times = [100, 70, 20]  # of the second, one window of two is over; of the third, both are
    records = [{"at": at, "n": at} for at in times]
    late = lw.from_iterable(records, time="at", unit="s", watermark=lw.BoundedDisorder("0s"))
    windows = lw.SlidingWindows("60s", "30s")
    counted = late.key_by(all=lw.lit(1)).window(windows).aggregate(rows=lw.count())
    stage = the_stage(counted, bundle_size=1)
    assert (stage.arrived, stage.admitted, stage.dropped) == (3, 2, 1)
    assert stage.late["expired"] == 3


def test_steps_say_what_they_did() -> None:
    def several(record: Any) -> Any:
        if record["n"] % 50 == 7:
            raise ValueError("no")
        return [record] * (record["n"] % 3)

    steps = stream().filter(lw.col("n") % 4 != 1).flat_map(several)
    stage = the_stage(steps.key_by("k").process(Refusing()))
    kept, flat = stage.steps
    assert (kept.step, flat.step) == ("filter", "flat_map")
    # A record whose time cannot be read is a dead letter before a step that drops records.
    assert kept.taken == kept.passed + kept.filtered == kept.made + ROWS // 4 == ROWS * 99 // 100
    assert flat.taken == flat.passed + flat.dead
    assert flat.dead == sum(n % 4 != 1 and n % 50 == 7 for n in range(ROWS))
    made = [n for n in range(ROWS) if n % 4 != 1 and n % 50 != 7 and n % 100 != 99]
    assert flat.made == sum(n % 3 for n in made) == stage.arrived + stage.dead


def test_duplicates_and_what_waits_are_counted() -> None:
    unique = stream().deduplicate(id="id", within="1h").key_by("k")
    stage = the_stage(unique.process(Refusing(), order="event_time"))
    assert stage.duplicates + stage.admitted + stage.dropped == stage.arrived
    assert stage.waiting == 0
    waiting: list[int] = []
    stream().key_by("k").process(Refusing(), order="event_time").collect(
        on_error="dead_letter",
        bundle_size=1_000,
        progress=lambda metrics: waiting.append(metrics.waiting),
    )
    assert max(waiting) > 0


@pytest.mark.parametrize("older", [False, True])
def test_counts_survive_a_restart(tmp_path: Path, older: bool) -> None:
    source, out, state = write_files(tmp_path / "in"), tmp_path / "out", tmp_path / "state"
    built = pipeline(source).named("it")

    def stop(metrics: lw.Metrics) -> None:
        if metrics.bundles == 4:
            raise Stopped

    options: dict[str, Any] = {"bundle_size": 30, "commit_every": "bundle", "state": state}
    with pytest.raises(Stopped):
        built.write_jsonl(out).run(progress=stop, **options)
    if older:
        forget_counts(state)
    metrics = built.write_jsonl(out).run(progress=False, **options)
    stage = metrics.stages["it"]
    assert stage_difference(stage) is None
    if not older:
        assert stage.arrived == metrics.events == 300
    else:
        assert 0 < stage.arrived < metrics.events == 300


def forget_counts(state: Path) -> None:
    """Make a state one of a version that did not count."""
    with RocksStore(state) as store:
        record = read_run(store, str(state))
        assert record is not None
        run = record["run"]
        for stage in run["metrics"]["stages"].values():
            for name in ("arrived", "admitted", "dropped", "waiting", "dead", "rows"):
                del stage[name]
        for source in run["sources"].values():
            del source["learned"]["delivered"]
            for *_, learned in source["learned"]["ingest"]["entries"]:
                del learned["counts"]
        batch = Batch()
        rewrite_run(batch, record)
        store.commit(batch)


def test_a_difference_says_how_many_are_missing() -> None:
    metrics = StageMetrics(arrived=10_000, admitted=4_000, duplicates=96)
    said = stage_difference(metrics)
    assert said is not None
    assert "4,096 are accounted for (4,000 admitted, 96 duplicates): 5,904 are missing" in said
    metrics.waiting = 6_000
    assert "96 are too many" in str(stage_difference(metrics))
    counts = InputCounts(read=5, taken=5, invalid=1, sound=3, cut=3, handed=3)
    assert list(counts.differences(5, whole=True)) == [
        "of 5 records that came to validation, 4 left it: 1 are missing"
    ]
