"""What arrives in a run is written to a folder, and read as a scenario that repeats the run."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

import lowwater as lw
from lowwater.testing import Scenario, incident, recorded
from tests.examples import sampled
from tests.property.incident_pipelines import PIPELINES, questions
from tests.unit.testing.test_incidents import PLAYS, game, run_code

SUMS = game().window(lw.FixedWindows("2m")).aggregate(total=lw.sum("points"))


def outputs(run: Any) -> list[Any]:
    if isinstance(run, lw.Result):
        return run.panes if run._stage.work.emits_panes else run.elements()
    found: list[Any] = run.outputs
    return found


@pytest.mark.parametrize("name", sampled(PIPELINES, every=2))
def test_the_scenario_repeats_the_run(name: str, tmp_path: Path) -> None:
    """Pane by pane, with clocks and watermarks; and what was asked of the run becomes a test."""
    pick = random.Random(name)
    pipeline = PIPELINES[name](pick)
    result = pipeline.collect(record=tmp_path, bundle_size=pick.choice([1, 5]))
    run = recorded(tmp_path, pipeline).run_pipeline(pipeline)
    assert repr(outputs(run)) == repr(outputs(result))
    late = [(one.time, one.window, one.reason) for one in result.late]
    assert [(one.time, one.window, one.reason) for one in run.late] == late
    for key, window in questions(result, pick, 1):
        found = incident(run, key, window)
        run_code(found, *([pipeline] if "(pipeline)" in found.code else []))


def test_it_is_written_beside_a_trace_and_in_durable_runs(tmp_path: Path) -> None:
    traced = SUMS.collect(record=tmp_path / "a", trace=True, bundle_size=2)
    file = tmp_path / "plays.jsonl"
    file.write_text("\n".join(map(json.dumps, PLAYS)))
    read = lw.read_jsonl(file, time="at", watermark=lw.BoundedDisorder("30s")).key_by("team")
    sums = read.window(lw.FixedWindows("2m")).aggregate(total=lw.sum("points"))
    sums.write_jsonl(tmp_path / "out.jsonl").run(
        state=tmp_path / "state", record=tmp_path / "b", bundle_size=2
    )
    one, other = (recorded(tmp_path / name, SUMS) for name in "ab")
    assert [element.value for element in one.elements] == PLAYS_OF_NO_TEAM
    assert one.elements == other.elements
    found = incident(one.run_pipeline(SUMS), "A", "2024-05-01T12:00:00Z")
    expected = traced.scenario("A", "2024-05-01T12:00:00Z")
    assert found.scenario == expected.scenario


PLAYS_OF_NO_TEAM = [{n: v for n, v in play.items() if n != "team"} for play in PLAYS]


def test_some_keys_are_enough(tmp_path: Path) -> None:
    SUMS.collect(record=lw.Recording(tmp_path, keys=["B"]), bundle_size=1)
    scenario = recorded(tmp_path, SUMS)
    assert {element.key for element in scenario.elements} == {"B"}
    found = incident(scenario.run_pipeline(SUMS), "B")
    assert [pane.value for pane in found.outputs] == [4]


def test_the_oldest_arrivals_go_when_there_are_too_many(tmp_path: Path) -> None:
    many = [{"at": n * 1_000_000, "k": n % 7, "text": "x" * 100} for n in range(1, 5_001)]
    counts = (
        lw.from_iterable(many, time="at", unit="us", watermark=lw.Ascending())
        .key_by("k")
        .window(lw.FixedWindows("10s"))
        .aggregate(n=lw.count())
    )
    result = counts.collect(record=lw.Recording(tmp_path, size="128KiB"), bundle_size=100)
    assert sum(path.stat().st_size for path in tmp_path.rglob("arrivals-*")) <= 128 * 1024 + 20_000
    scenario = recorded(tmp_path, counts)
    assert 200 < len(scenario.elements) < 2_000
    first = scenario.steps[0]
    assert first.to > lw.instant(0)  # type: ignore[union-attr]  # the watermark stands where it was
    found = incident(scenario.run_pipeline(counts), 3, result.panes[-9].window)
    run_code(found)


def test_each_run_is_kept_and_a_killed_one_is_read(tmp_path: Path) -> None:
    for size in (1, 5):
        SUMS.collect(record=tmp_path, bundle_size=size)
    assert len([s for s in recorded(tmp_path, SUMS, run=1).steps if hasattr(s, "elements")]) == 5
    assert len([s for s in recorded(tmp_path, SUMS).steps if hasattr(s, "elements")]) == 1
    (path,) = (tmp_path / "run-000001").iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    before = recorded(tmp_path, SUMS, run=1)
    assert isinstance(before, Scenario)
    assert before.elements == recorded(tmp_path, SUMS).elements
    path.write_bytes(whole[:9])
    with pytest.raises(lw.InvalidArgument, match="not part of a recording"):
        recorded(tmp_path, SUMS, run=1)
    path.write_bytes(whole[:6] + b"\xc1" * 20 + whole[26:])
    with pytest.raises(lw.InvalidArgument, match=r"damaged|not part of a recording"):
        recorded(tmp_path, SUMS, run=1)


def test_invalid_records_are_left_out(tmp_path: Path) -> None:
    records = [*PLAYS, {"team": "A", "points": object(), "at": PLAYS[0]["at"]}]
    records += [{"team": "A", "points": 1, "at": "soon"}]
    pipeline = game(records).window(lw.FixedWindows("2m")).aggregate(total=lw.sum("points"))
    result = pipeline.collect(record=tmp_path, on_error="dead_letter")
    assert len(result.errors) == 2
    assert (
        repr(outputs(recorded(tmp_path, pipeline).run_pipeline(pipeline)))[:60]
        == repr(outputs(result))[:60]
    )
    assert len(recorded(tmp_path, pipeline).elements) == len(PLAYS)


def test_a_record_without_a_key_takes_none_from_others(tmp_path: Path) -> None:
    records = [*PLAYS[:2], {"team": None, "points": 1, "at": PLAYS[0]["at"]}, *PLAYS[2:]]
    pipeline = game(records).window(lw.FixedWindows("2m")).aggregate(total=lw.sum("points"))
    result = pipeline.collect(
        record=tmp_path, on_error="dead_letter", bundle_size=5, progress=False
    )
    run = recorded(tmp_path, pipeline).run_pipeline(pipeline)
    assert repr(outputs(run)) == repr(outputs(result))
    assert [one.reason for one in run.errors] == ["null_key"]


def test_what_cannot_be_written_or_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for record, said in (
        (5, "neither a folder nor a Recording"),
        (tmp_path / "file", "not a folder|cannot be written"),
        ("", "neither a folder nor a Recording"),
    ):
        with pytest.raises(lw.InvalidArgument, match=said):
            SUMS.collect(record=record)  # type: ignore[arg-type]
    with pytest.raises(lw.InvalidArgument, match="too little"):
        lw.Recording(tmp_path, size="1KB")
    with pytest.raises(lw.InvalidArgument, match="not a collection of keys"):
        lw.Recording(tmp_path, keys="A")
    with pytest.raises(lw.InvalidArgument, match="there is no recording"):
        recorded(tmp_path, SUMS)
    SUMS.collect(record=tmp_path / "a")
    with pytest.raises(lw.InvalidArgument, match="no recording of a run 7"):
        recorded(tmp_path / "a", SUMS, run=7)
    other = lw.from_iterable(PLAYS, time="at").named("other").key_by("team")
    with pytest.raises(lw.InvalidArgument, match="recording is of the sources source 1"):
        recorded(tmp_path / "a", other.window(lw.FixedWindows("1m")).aggregate(lw.count()))


@pytest.mark.parametrize("kind", ["values", "json lines"])
def test_times_of_arrival_are_the_clock_of_the_bundle(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "plays.jsonl"
    rows = [{"team": play["team"], "points": play["points"]} for play in PLAYS]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    stream = (
        lw.from_iterable(rows, time=lw.arrival())
        if kind == "values"
        else lw.read_jsonl(str(path), time=lw.arrival())
    )
    counts = stream.key_by("team").window(lw.FixedWindows("1h")).aggregate(lw.sum("points"))
    clock = lw.ManualClock("2024-05-01T12:00:00Z")
    result = counts.collect(
        trace=True, record=tmp_path / "arrivals", bundle_size=2, clock=clock, progress=False
    )
    pane = result.panes[0]
    for found in (
        result.scenario(pane.key, pane.window),
        incident(
            recorded(tmp_path / "arrivals", counts).run_pipeline(counts), pane.key, pane.window
        ),
    ):
        assert [one.value for one in found.outputs] == [pane.value]
        run_code(found)
