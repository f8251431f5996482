"""What is doubtful about a pipeline, found without running it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, cycle, repeat
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lowwater as lw
from lowwater.io.sinks import JsonLinesFolder, SqliteTable


def following(path: Path, **options: Any) -> Any:
    return lw.read_jsonl(path, time="at", follow=True, **options)


def windowed(stream: Any, windows: Any = None, **how: Any) -> lw.Pipeline:
    keyed = stream.key_by(lambda record: record["k"])
    made: lw.Pipeline = keyed.window(windows or lw.FixedWindows("1m"), **how).aggregate(
        n=lw.count()
    )
    return made


ASCENDING = lw.Ascending()


def bounded(watermark: Any = ASCENDING) -> Any:
    return lw.from_iterable([{"at": 0, "k": "a"}], time="at", watermark=watermark)


def test_a_sound_pipeline_has_no_findings() -> None:
    found = lw.check(windowed(bounded()))
    assert not found
    assert repr(found) == "no problems found"


@pytest.mark.parametrize(
    ("how", "severity", "what"),
    [
        ({"trigger": lw.Never()}, "warning", "never fires"),
        (
            {"trigger": lw.AfterCount(99_999), "allow_data_loss": "that many are enough"},
            "note",
            "that many are enough",
        ),
        (
            {
                "trigger": lw.AfterWatermark(late=lw.AfterCount(50_000)),
                "accumulation": "accumulating",
            },
            "warning",
            "because allowed_lateness is 0s",
        ),
        (
            {"trigger": lw.Repeatedly(lw.AfterCount(50_000)), "accumulation": "discarding"},
            "note",
            "ignores the watermark",
        ),
        ({"accumulation": "discarding", "allowed_lateness": "1h"}, "note", "in separate panes"),
        ({"windows": lw.GlobalWindow()}, "note", "fires only when the input ends"),
    ],
)
def test_doubtful_windowings(how: dict[str, Any], severity: str, what: str) -> None:
    (finding,) = lw.check(windowed(bounded(), **how))
    assert finding.severity == severity
    assert what in finding.what
    assert finding.where == "stage 1"
    assert str(finding).startswith(f"{severity}: stage 1: ")


def generated() -> Iterator[dict[str, Any]]:
    yield {"at": 0, "k": "a"}


@pytest.mark.parametrize(
    ("items", "ends"),
    [
        (generated(), None),
        (map(str, count()), None),
        (zip(range(3), count(), strict=False), None),
        (iter([1, 2]), True),
        (range(3), True),
        (range(10**30), True),
        ({1, 2}, True),
        (repeat(1, 3), True),
        (repeat(1), False),
        (count(), False),
        (cycle([1]), False),
    ],
)
def test_whether_elements_end_is_said_as_far_as_it_is_known(items: Any, ends: bool | None) -> None:
    found = lw.check(windowed(lw.from_iterable(items, time="value")))
    assert found[0].severity == ("error" if ends is False else "note")
    assert ("which may be endless" in found[0].what) == (ends is None)
    assert ("which may never happen" in found[0].what) == (ends is False)
    assert not lw.check(windowed(lw.from_iterable(items, time="value", watermark=ASCENDING)))


def test_a_reader_of_batches_does_not_say_how_many_there_are() -> None:
    table = pa.table({"at": [0], "k": ["a"]})
    (note,) = lw.check(windowed(lw.from_arrow(table, time="at")))
    assert note.severity == "note"
    assert "right for a batch" in note.hint
    (note,) = lw.check(windowed(lw.from_arrow(table.to_reader(), time="at")))
    assert note.severity == "note"
    assert "Pass a list or a table if the input ends" in note.hint


def test_sources_without_end(tmp_path: Path) -> None:
    assert [f.severity for f in lw.check(windowed(bounded(None)))] == ["note"]
    found = lw.check(windowed(following(tmp_path)))
    assert [finding.severity for finding in found] == ["error", "warning"]
    assert "no window expires" in repr(found)
    assert not lw.check(windowed(following(tmp_path, watermark=lw.Ascending())))
    sessions = lw.check(windowed(following(tmp_path), lw.Sessions("1m")))
    assert [finding.severity for finding in sessions] == ["error", "error"]
    early = lw.Repeatedly(lw.AfterCount(10))
    counted = windowed(
        following(tmp_path), lw.Sessions("1m"), trigger=early, accumulation="discarding"
    )
    assert lw.check(counted)[0].severity == "warning"  # its panes do come
    everything = following(tmp_path, watermark=lw.Ascending())
    assert lw.check(windowed(everything, lw.GlobalWindow()))[0].severity == "error"
    repeated = lw.check(
        windowed(
            everything, lw.GlobalWindow(), trigger=lw.Repeatedly(lw.AfterCount(9)),
            accumulation="discarding",
        )
    )  # fmt: skip
    assert [finding.severity for finding in repeated] == ["note", "note"]
    assert "judged at the end of each bundle" in repeated[0].what


def test_an_early_trigger_without_a_watermark_emits_all_the_same(tmp_path: Path) -> None:
    """Only what the watermark alone would emit is never emitted: that is an error."""
    counted = lw.Repeatedly(lw.AfterCount(50_000))
    found = lw.check(windowed(following(tmp_path), trigger=counted, accumulation="discarding"))
    assert [finding.severity for finding in found] == ["warning", "note", "note"]
    assert "no window expires" in found[0].what


@pytest.mark.parametrize("ends", [{"max_idle": "1s"}, {"stop": lambda: True}])
def test_a_folder_that_is_followed_for_a_while_does_end(
    tmp_path: Path, ends: dict[str, Any]
) -> None:
    assert [f.severity for f in lw.check(windowed(following(tmp_path, **ends)))] == ["note"]


@pytest.mark.parametrize(
    "trigger",
    [
        lw.AfterWatermark(early=lw.AfterCount(7)),
        lw.Repeatedly(lw.AfterAny(lw.AfterCount(7), lw.AfterCount(99_999))),
        lw.OrFinally(lw.AfterEach(lw.Always(), lw.AfterCount(7)), lw.AfterWatermark()),
    ],
)
def test_counts_below_the_size_of_a_bundle(trigger: lw.Trigger) -> None:
    reason = "seven are enough"
    found = lw.check(
        windowed(bounded(), trigger=trigger, accumulation="accumulating", allow_data_loss=reason)
    )
    (said,) = [finding for finding in found if "AfterCount(7) is judged" in finding.what]
    assert said.severity == "note"
    assert "bundle_size=1" in said.hint


def runs(tmp_path: Path) -> list[Any]:
    return [
        lambda pipeline: pipeline.run(),
        lambda pipeline: pipeline.run_batches(),
        lambda pipeline: pipeline.to_arrow_batches(),
        lambda pipeline: pipeline.collect(),
        lambda pipeline: pipeline.to_arrow(),
        lambda pipeline: pipeline.to_pandas(),
        lambda pipeline: pipeline.write_jsonl(tmp_path / "out.jsonl").run(),
        lambda pipeline: pipeline.write_jsonl(tmp_path / "out.jsonl").start(),
        lambda pipeline: lw.run(pipeline.write_jsonl(tmp_path / "out.jsonl")),
    ]


def test_what_is_an_error_is_raised_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    followed, items = following(tmp_path / "in"), lw.from_iterable(cycle([1]), time="value")
    stuck = windowed(followed), windowed(items)
    for pipeline in stuck:
        for run in runs(tmp_path):
            with pytest.raises(lw.InvalidArgument, match="never"):
                run(pipeline)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_collect_refuses_a_source_that_never_ends(tmp_path: Path) -> None:
    pipeline = windowed(following(tmp_path, watermark=ASCENDING))
    for step in ("collect", "to_arrow", "to_pandas"):
        with pytest.raises(lw.InvalidArgument, match=f"{step} returns at the end of the input"):
            getattr(pipeline, step)()
    endless = windowed(lw.from_iterable(count(), time="value", watermark=ASCENDING))
    with pytest.raises(lw.InvalidArgument, match="never ends"):
        endless.collect()


def test_what_is_a_warning_is_warned_about_where_it_runs() -> None:
    late = lw.AfterWatermark(late=lw.AfterCount(50_000))
    pipeline = windowed(bounded(), trigger=late, accumulation="discarding")
    with pytest.warns(lw.PipelineWarning, match="never fires") as warned:
        pipeline.collect()
    assert len(warned) == 1
    assert warned[0].filename == __file__


def test_ids_that_are_never_forgotten(tmp_path: Path) -> None:
    stream = following(tmp_path).deduplicate(id="id", within="1h")
    assert "keeps ids until" in repr(lw.check(windowed(stream)))


def test_sources_that_wait_for_one_another(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()

    def both(**options: Any) -> lw.Findings:
        a, b = (
            following(tmp_path / name, watermark=lw.Ascending(), **options) for name in ("a", "b")
        )
        return lw.check(windowed(a | b))

    assert [finding.where for finding in both()] == ["source 1", "source 2"]
    assert "idle_after" in both()[0].hint
    assert {finding.severity for finding in both()} == {"note"}  # nothing to be told at every run
    assert not both(idle_after="1m")


def test_panes_that_are_counted_twice(tmp_path: Path) -> None:
    first = windowed(
        bounded(),
        trigger=lw.AfterWatermark(early=lw.AfterCount(50_000)),
        accumulation="accumulating",
    )
    assert not lw.check(first)
    for doubtful in (
        first.write_jsonl(tmp_path / "out.jsonl"),
        first.write_parquet(tmp_path / "out"),
        first.write_to(JsonLinesFolder(str(tmp_path / "out"))),
    ):
        assert "more than once" in repr(lw.check(doubtful))
    assert not lw.check(first.write_to(SqliteTable(str(tmp_path / "out.sqlite"), "counts")))


def test_only_pipelines_are_checked() -> None:
    with pytest.raises(lw.InvalidArgument, match="is not a pipeline"):
        lw.check(bounded().key_by("k"))


def clicks(path: Path, watermark: Any = ASCENDING, **options: Any) -> Any:
    path.mkdir(exist_ok=True)
    stream = following(path, watermark=watermark, idle_after="1m", **options)
    return stream.select("at", "k", "v")


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda a, b: a().join(b(), on="k", within="10m"), []),
        (
            lambda a, b: a().join(b(watermark=None), on="k", within="10m"),
            [("warning", "the right side has a source without a watermark: the records of both")],
        ),
        (
            lambda a, b: a(watermark=None).join(b(watermark=None), on="k", within="10m"),
            [("warning", "each side has a source without")],
        ),
        (lambda a, b: a().join(b(), on="k", within="29d"), []),
        (
            lambda a, b: a().join(b(), on="k", within=lw.between("-1d", "1m"),
                                  allowed_lateness="29d"),
            [("note", "it keeps 30d of the right side in memory")],
        ),
        (
            lambda a, b: a().join_as_of(b(), on="k"),
            [("note", "the newest version of each key is kept for good")],
        ),
        (
            lambda a, b: a().join_as_of(b(watermark=None), on="k"),
            [("error", "no fact is ever emitted")],
        ),
        (
            lambda a, b: a(watermark=None).join_as_of(b(), on="k"),
            [("warning", "all versions are kept")],
        ),
        (lambda a, b: a().join_as_of(b(), on="k", direction="nearest", tolerance="5m"), []),
        (
            lambda a, b: a().join_as_of(b(), on="k", direction="forward", tolerance="2d"),
            [("note", "a fact that no version follows waits for 2d, in event time, and holds")],
        ),
        (
            lambda a, b: (a() | b()).table(key="k").changes(),
            [("note", "nothing deletes a row")],
        ),
        (lambda a, b: (a() | b()).table(key="k", ttl="1d").changes(), []),
        (lambda a, b: (a() | b()).table(key="k", deleted=lw.col("v") == 0).changes(), []),
        (
            lambda a, b: a(watermark=None).table(key="k", ttl="1d").changes(),
            [("warning", "ttl deletes rows when the watermark passes, and")],
        ),
    ],
)  # fmt: skip
def test_state_of_joins_and_tables_that_is_never_released(
    tmp_path: Path, build: Any, expected: list[tuple[str, str]]
) -> None:
    sides = (
        lambda **how: clicks(tmp_path / "a", **how),
        lambda **how: clicks(tmp_path / "b", **how),
    )
    found = [one for one in lw.check(build(*sides)) if "no watermark until" not in one.what]
    assert [one.severity for one in found] == [severity for severity, _ in expected]
    for one, (_, what) in zip(found, expected, strict=True):
        assert what in one.what, one.what


def test_joins_of_what_ends_keep_nothing_forever() -> None:
    left = lw.from_iterable([{"at": 0, "k": "a", "v": 1}], time="at")
    for made in (
        left.join(left, on="k", within="900d"),
        left.join_as_of(left, on="k"),
        left.table(key="k").changes(),
    ):
        assert [one.where for one in lw.check(made)] == ["source 1"]  # which has no watermark


def test_a_silent_side_holds_a_join_behind_a_stage_too(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    counted = windowed(following(tmp_path / "a", watermark=ASCENDING)).to_stream()
    other = clicks(tmp_path / "b").select("at", "k", "v")
    joined = counted.select("key", "n").join(other, left_on="key", right_on="k", within="1m")
    (note,) = lw.check(joined)
    assert (note.where, note.severity) == ("source 2", "note")
    assert "it holds their watermark while it is silent" in note.what


def test_a_table_can_be_checked_and_drawn(tmp_path: Path) -> None:
    table = clicks(tmp_path / "a").table(key="k")
    (note,) = lw.check(table)
    assert "nothing deletes a row" in note.what
    assert "stage 1" in str(table.graph())
    assert "stage 1" in table.to_mermaid()


def test_what_spark_may_make_of_files_is_said_on_request(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("at,k\n1,a\n")
    (tmp_path / "a.jsonl").write_text('{"at": 1, "k": "a"}\n')
    pq.write_table(pa.table({"at": [1], "k": ["a"]}), tmp_path / "a.parquet")
    options: dict[str, Any] = {"time": "at", "watermark": ASCENDING}
    for read, word in (
        (lw.read_csv, "a fraction in a column of integers is a dead letter there"),
        (lw.read_jsonl, "a fraction in a column of integers is a dead letter there"),
        (lw.read_parquet, "stops the query"),
    ):
        pipeline = windowed(read(tmp_path, **options))
        assert not [one for one in lw.check(pipeline) if "Spark" in one.what]
        (note,) = [one for one in lw.check(pipeline, runner="spark") if "Spark" in one.what]
        assert (note.severity, word in note.what) == ("note", True)
    assert not lw.check(windowed(bounded()), runner="spark")
    wrong: Any = "flink"
    with pytest.raises(lw.InvalidArgument, match="neither 'embedded' nor 'spark'"):
        lw.check(windowed(bounded()), runner=wrong)
