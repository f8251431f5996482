"""A durable run that gains and loses sources, stages and outputs at a restart, and what refuses."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lowwater as lw
from lowwater.errors import InvalidArgument, PipelineWarning, StateError
from lowwater.pipeline.state_tools import state_info, verify_state
from tests.unit.engine.local.durable_runs import Stopped, stopping, write_file, write_files

CLOCK = lw.ManualClock(0)


def read(folder: Path, name: str = "in") -> lw.Stream:
    place = folder / name
    if not place.exists():
        write_files(place)
    return lw.read_parquet(
        place, time="at", watermark=lw.BoundedDisorder("5s"), clock=CLOCK, unit="us"
    ).named(name)


def sums(stream: Any, name: str, column: str = "value") -> lw.Pipeline:
    windows = stream.key_by("key").window(lw.FixedWindows("50s"))
    made: lw.Pipeline = windows.aggregate(total=lw.sum(column)).named(name)
    return made


def out(pipeline: Any, folder: Path, name: str) -> Any:
    return pipeline.write_jsonl(folder / "out" / name)


def run(ends: list[Any], folder: Path, **options: Any) -> Any:
    options = {"commit_every": "bundle", "bundle_size": 10, "progress": False, **options}
    return lw.run(*ends, state=folder / "state", **options)


def stopped(ends: list[Any], folder: Path, commits: int = 8, **options: Any) -> None:
    with stopping("before forgetting", commits), pytest.raises(Stopped):
        run(ends, folder, **options)


def rows(folder: Path, name: str, kind: str = "part") -> list[Any]:
    files = sorted((folder / "out" / name).glob(f"{kind}-*.jsonl"))
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return [(line.get("key"), line.get("window_start"), line.get("total")) for line in lines]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Return what an undisturbed run writes."""
    folder = tmp_path_factory.mktemp("whole")
    run([out(sums(read(folder), "A"), folder, "a")], folder)
    return rows(folder, "a")


def test_a_stage_with_a_new_source_and_output(tmp_path: Path, whole: list[Any]) -> None:
    a = out(sums(read(tmp_path), "A"), tmp_path, "a")
    stopped([a], tmp_path)
    b = out(sums(read(tmp_path, "more"), "B"), tmp_path, "b")
    stopped([a, b], tmp_path)
    run([a, b], tmp_path)
    assert rows(tmp_path, "a") == rows(tmp_path, "b") == whole


def test_what_is_lost_must_be_named_and_leaves_nothing(tmp_path: Path, whole: list[Any]) -> None:
    a = out(sums(read(tmp_path), "A"), tmp_path, "a")
    b = out(sums(read(tmp_path, "more"), "B"), tmp_path, "b")
    stopped([a, b], tmp_path, 45)
    assert all(at and at["done"] for at in state_info(tmp_path / "state").positions.values())
    assert any(size.stage == "B" for size in state_info(tmp_path / "state").sizes)
    with pytest.raises(StateError) as raised:
        run([a], tmp_path)
    assert "the source 'more' is gone; the stage 'B' is gone" in raised.value.what
    assert "remove=['more', 'B']" in (raised.value.hint or "")
    gone = {"remove": ["more", "B"], "drop_undelivered": True}
    bundles: list[Any] = []
    stopped([a], tmp_path, 1, progress=bundles.append, **gone)
    assert not bundles  # the change is a commit of its own, before anything is read
    info = state_info(tmp_path / "state")
    assert {size.stage for size in info.sizes} == {"pipeline", "A"}
    assert list(info.positions) == ["in"]
    verify_state(tmp_path / "state")
    run([a], tmp_path, **gone)  # the names may stay
    assert rows(tmp_path, "a") == whole


@pytest.mark.parametrize("point", ["after the announcement", "before the write", "after the write"])
@pytest.mark.parametrize("again", ["new", "old"])
def test_a_change_that_dies_leaves_the_former_pipeline_or_the_new_one(
    point: str, again: str, tmp_path: Path, whole: list[Any]
) -> None:
    source = read(tmp_path)
    a = out(sums(source, "A"), tmp_path, "a")
    b = out(sums(read(tmp_path, "more"), "B"), tmp_path, "b")
    c = out(sums(source, "C"), tmp_path, "c")
    stopped([a, b], tmp_path, 12)
    gone: Any = {"remove": ["more", "B"], "drop_undelivered": True}
    with stopping(point, 1), pytest.raises(Stopped):
        run([a, c], tmp_path, **gone)
    if again == "old" and point == "after the write":
        with pytest.raises(StateError, match="the stage 'C' is gone"):
            run([a, b], tmp_path)
    elif again == "old":
        run([a, b], tmp_path)
        assert rows(tmp_path, "b") == whole
    if again == "new":
        run([a, c], tmp_path, **gone)
        assert set(rows(tmp_path, "c")[-3:]) <= set(whole)
    if again == "new" or point != "after the write":
        assert rows(tmp_path, "a") == whole


def test_outputs_keep_their_numbers(tmp_path: Path) -> None:
    """So files keep their names, and no number is given twice."""
    source = read(tmp_path)
    pipelines = [sums(source, name) for name in "AB"]
    first, second = (out(each, tmp_path, name) for each, name in zip(pipelines, "ab", strict=True))
    stopped([first, second], tmp_path, 6)
    stopped([second], tmp_path, 3, remove="A", drop_undelivered=True)
    third = out(sums(source, "C"), tmp_path, "c")
    run([second, third], tmp_path)
    numbers = {
        name: {file.name.split("-")[2] for file in (tmp_path / "out" / name).glob("part-*")}
        for name in "abc"
    }
    assert numbers == {"a": {"000"}, "b": {"001"}, "c": {"002"}}


def test_an_output_of_a_stage_that_stays(tmp_path: Path) -> None:
    """It is named by its stage; one of several outputs of a stage by its place."""
    a = sums(read(tmp_path), "A")
    behind = out(sums(a.to_stream(), "behind", "total"), tmp_path, "behind")
    one, two = out(a, tmp_path, "one"), out(a, tmp_path, "two")
    stopped([behind, one, two], tmp_path, 6)
    with pytest.raises(StateError, match=r"the output of 'A' to .*one' is gone") as raised:
        run([behind, two], tmp_path)
    place = str(tmp_path / "out" / "one")
    assert f"remove=[{place!r}]" in (raised.value.hint or "")
    stopped([behind, two], tmp_path, 3, remove=place, drop_undelivered=True)
    assert rows(tmp_path, "two")
    run([behind], tmp_path, remove="A", drop_undelivered=True)
    alone = tmp_path / "alone"
    run([out(sums(a.to_stream(), "behind", "total"), alone, "behind")], alone)
    assert rows(tmp_path, "behind") == rows(alone, "behind")


def test_an_output_of_a_stage_whose_name_looks_like_an_output_of_another(tmp_path: Path) -> None:
    source = read(tmp_path)
    a, other = sums(source, "A"), sums(source, "A[b]")
    behind = out(sums(other.to_stream(), "behind", "total"), tmp_path, "behind")
    ends = [out(a, tmp_path, "a"), out(other, tmp_path, "b"), behind]
    stopped(ends, tmp_path, 6)
    with pytest.raises(StateError, match=r"the output of 'A\[b\]' to .*b' is gone"):
        run([behind], tmp_path, remove="A", drop_undelivered=True)


def test_what_may_not_have_been_delivered_is_dropped_on_request(tmp_path: Path) -> None:
    source = read(tmp_path)
    a, b = (out(sums(source, name), tmp_path, name) for name in "AB")
    with stopping("before publishing", 1), pytest.raises(Stopped):
        run([a, b], tmp_path)
    with pytest.raises(StateError, match=r"the output of 'B' is gone, and its last \d+ rows") as e:
        run([a], tmp_path, remove="B")
    assert "drop_undelivered=True" in (e.value.hint or "")
    run([a], tmp_path, remove="B", drop_undelivered=True)
    assert rows(tmp_path, "A")
    assert not rows(tmp_path, "B")


def test_a_stage_that_gains_an_input(tmp_path: Path) -> None:
    """Its watermark stays: what the new source has from before is late."""
    one, two = read(tmp_path, "one"), read(tmp_path, "two")
    end = out(sums(one, "sums"), tmp_path, "sums")
    stopped([end], tmp_path, 20)
    before = state_info(tmp_path / "state").watermark
    with pytest.warns(PipelineWarning, match="the watermark of the stage stays at 1970") as told:
        run([out(sums(one | two, "sums"), tmp_path, "sums")], tmp_path)
    assert str(before) in str(told[0].message)
    late = len(rows(tmp_path, "sums", "late"))
    alone = tmp_path / "alone"
    run([out(sums(one, "sums"), alone, "sums")], alone)
    assert late > len(rows(alone, "sums", "late"))
    whole = dict.fromkeys(rows(alone, "sums"))
    closed = [row for row in rows(tmp_path, "sums") if row in whole]
    assert closed  # what was shown before stays as it was
    with pytest.raises(StateError, match="is complete: 'three', 'sums' would get nothing"):
        run([out(sums(one | two | read(tmp_path, "three"), "sums"), tmp_path, "sums")], tmp_path)


def test_a_stage_without_a_watermark_gains_an_input_without_a_word(tmp_path: Path) -> None:
    write_files(tmp_path / "one")
    given = lw.ManualWatermark()  # by nobody
    one = lw.read_parquet(
        tmp_path / "one", time="at", watermark=given, clock=CLOCK, unit="us"
    ).named("one")
    two = read(tmp_path, "two")
    stopped([out(sums(one, "sums"), tmp_path, "sums")], tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error", PipelineWarning)
        run([out(sums(one | two, "sums"), tmp_path, "sums")], tmp_path)
    assert rows(tmp_path, "sums")


def test_an_input_is_lost_with_its_source(tmp_path: Path) -> None:
    one, two = read(tmp_path, "one"), read(tmp_path, "two")
    stopped([out(sums(one | two, "sums"), tmp_path, "sums")], tmp_path, 20)
    end = out(sums(two, "sums"), tmp_path, "sums")
    with pytest.raises(StateError, match="the source 'one' is gone"):
        run([end], tmp_path)
    run([end], tmp_path, remove="one")
    assert list(state_info(tmp_path / "state").positions) == ["two"]


def test_a_stage_that_has_seen_the_end_gets_no_other_input(tmp_path: Path) -> None:
    one, two = read(tmp_path, "one"), read(tmp_path, "two")
    for number in range(3, 8):
        write_file(tmp_path / "two" / f"{number}.parquet", number)
    ends = [out(sums(one, "A"), tmp_path, "a"), out(sums(two, "B"), tmp_path, "b")]
    stopped(ends, tmp_path, 65)
    more = read(tmp_path, "more")
    ends = [out(sums(one | more, "A"), tmp_path, "a"), out(sums(two, "B"), tmp_path, "b")]
    with pytest.raises(StateError, match="'A' has seen the end of its input"):
        run(ends, tmp_path)


def test_other_changes_are_refused_as_before(tmp_path: Path) -> None:
    source = read(tmp_path)
    a = sums(source, "A")
    stopped([out(a, tmp_path, "a")], tmp_path)
    unnamed = source.key_by("key").window(lw.FixedWindows("50s")).aggregate(n=lw.count())
    with pytest.raises(StateError, match=r"'stage 2' is new and has no name .*\.named"):
        run([out(a, tmp_path, "a"), out(unnamed, tmp_path, "b")], tmp_path)
    with pytest.raises(StateError, match=r"aggregates was .*Run the pipeline as it was"):
        run([out(sums(source, "A", "at"), tmp_path, "a")], tmp_path)
    known = source | source.filter(lw.col("value") > 3)  # an input that is not new, but the stage's
    with pytest.raises(StateError, match="reads was"):
        run([out(sums(known, "A"), tmp_path, "a")], tmp_path)
    first = read(tmp_path, "other") | source
    with pytest.raises(StateError, match="new inputs come last"):
        run([out(sums(first, "A"), tmp_path, "a")], tmp_path)


def test_a_stage_named_as_a_source_was_is_refused(tmp_path: Path) -> None:
    more = sums(read(tmp_path, "more"), "B")
    source = read(tmp_path)
    a = out(sums(source, "A"), tmp_path, "a")
    stopped([a, out(more, tmp_path, "b")], tmp_path)
    ends = [a, out(sums(source, "more"), tmp_path, "c")]
    with pytest.raises(StateError, match="'more' is the name of a source and of a stage"):
        run(ends, tmp_path, remove=["B"])


def test_a_new_stage_behind_retractions_is_refused(tmp_path: Path) -> None:
    """It would get the retractions of panes that it never got."""
    windows = (
        read(tmp_path)
        .key_by("key")
        .window(lw.FixedWindows("50s"), accumulation="retracting", allowed_lateness="1m")
    )
    a = windows.aggregate(total=lw.sum("value")).named("A")
    stopped([out(a, tmp_path, "a")], tmp_path)
    behind = (
        a.to_stream()
        .key_by("key")
        .window(lw.FixedWindows("100s"), accumulation="retracting", allowed_lateness="1m")
    )
    b = behind.aggregate(n=lw.sum("total")).named("B")
    with pytest.raises(StateError, match="the new stage 'B' reads 'A', which retracts"):
        run([out(a, tmp_path, "a"), out(b, tmp_path, "b")], tmp_path)


def test_names_of_what_is_there_and_options_without_a_state_are_refused(tmp_path: Path) -> None:
    end = out(sums(read(tmp_path), "A"), tmp_path, "a")
    for name in ("A", "in", str(tmp_path / "out" / "a")):
        with pytest.raises(InvalidArgument, match="and the pipeline still has it"):
            run([end], tmp_path, remove=[name])
    with pytest.raises(InvalidArgument, match="there is none"):
        end.run(remove="B")
    with pytest.raises(InvalidArgument, match="is not a name"):
        run([end], tmp_path, remove=[1])


def test_a_batch_that_was_begun_is_cut_as_before_for_who_had_begun_it(tmp_path: Path) -> None:
    """Here null keys count where the stage alone reads the source, and not where several do."""
    place = tmp_path / "in"
    place.mkdir()
    keys = [None if n % 3 else f"k{n % 5}" for n in range(600)]
    times = pa.array([n * 1_000_000 for n in range(600)], pa.int64())
    table = pa.table({"at": times, "key": keys, "value": pa.array(range(600), pa.int64())})
    pq.write_table(table, place / "0.parquet")
    options: Any = {"on_error": "dead_letter"}
    source = read(tmp_path)
    whole = tmp_path / "whole"
    run([out(sums(source, "A"), whole, "a")], whole, **options)
    for commits in range(1, 16, 3):
        folder = tmp_path / f"{commits}"
        a = out(sums(source, "A"), folder, "a")
        stopped([a], folder, commits, **options)
        b = out(sums(source, "B"), folder, "b")
        run([a, b], folder, **options)
        run([a], folder, remove="B", **options)
        for kind in ("part", "errors", "late"):
            assert rows(folder, "a", kind) == rows(whole, "a", kind), kind


def test_who_replaces_the_only_stage_of_a_source_gets_the_batch_that_was_begun(
    tmp_path: Path, whole: list[Any]
) -> None:
    stopped([out(sums(read(tmp_path), "A"), tmp_path, "a")], tmp_path, 4)
    metrics = run(
        [out(sums(read(tmp_path), "B"), tmp_path, "b")], tmp_path, remove="A", drop_undelivered=True
    )
    assert rows(tmp_path, "b") == whole
    assert metrics.events == 300
