"""Estimators that are told: by the elements, by hand, by what is known of files."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lowwater as lw
from lowwater.engine.local.estimator_input import ObservedBatch
from lowwater.engine.records.admit_times import TimeFormat
from lowwater.engine.records.batch import HIDDEN, Records
from lowwater.engine.records.columns import Column
from lowwater.time import END_OF_TIME, START_OF_TIME
from lowwater.watermark import Observed, holder_of
from lowwater.watermark import observed as seen_module

NOON = datetime(2000, 1, 1, 12, tzinfo=UTC)


def shown(column: pa.Array, timezone: str | None = None) -> Observed:
    records = Records.from_arrow(pa.record_batch({"at": column}))
    batch = ObservedBatch(records, None, TimeFormat(timezone))
    return batch.bundle(np.zeros(len(column), dtype=np.int64), 0, 0)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([None, NOON, NOON - timedelta(days=1)], pa.timestamp(unit, "UTC"))
        for unit in ("s", "ms", "us", "ns")
    ]
    + [
        pa.array(["2000-01-01T13:00:00+01:00", None]),
        pa.array(["2000-01-01T12:00:00Z", None]).dictionary_encode(),
        pa.array([946728000000000, None]),
    ],
    ids=lambda column: str(column.type),
)
def test_a_column_of_any_form_is_a_watermark(column: pa.Array) -> None:
    state = lw.Punctuated("at").start()
    assert holder_of(state) == "no record has carried a watermark yet"
    state.observe(shown(column))
    assert lw.Instant(state.current(0)) == lw.instant(NOON)
    plain = lw.Punctuated("at").start()
    plain.observe(Observed(np.zeros(len(column), np.int64), {"at": Column.from_arrow(column)}, 0))
    assert plain.current(0) == state.current(0)


def test_a_zone_is_the_pipelines() -> None:
    naive = pa.array([NOON.replace(tzinfo=None, hour=13)], pa.timestamp("us"))
    with pytest.raises(lw.InvalidArgument, match="without a time zone"):
        lw.Punctuated("at").start().observe(shown(naive))
    state = lw.Punctuated("at").start()
    state.observe(shown(naive, "Europe/Berlin"))
    assert state.current(0) == lw.instant(NOON)


@pytest.mark.parametrize(
    "column", [pa.array(["soon"]), pa.array([END_OF_TIME]), pa.array([END_OF_TIME - 1])]
)
def test_what_is_no_watermark_is_told(column: pa.Array) -> None:
    with pytest.raises(lw.DataError, match="in the column 'at' cannot be read"):
        lw.Punctuated("at").start().observe(shown(column))


def test_a_function_is_called_with_each_record() -> None:
    asked: list[Any] = []

    def mark(record: Any) -> Any:
        asked.append(record)
        return record["at"]

    state = lw.Punctuated(mark).start()
    state.observe(shown(pa.array([NOON, None], pa.timestamp("us", "UTC"))))
    assert state.current(0) == lw.instant(NOON)
    assert asked == [{"at": NOON}, {"at": None}]
    with pytest.raises(lw.DataError, match="function of Punctuated failed: KeyError"):
        lw.Punctuated(lambda record: record["ta"]).start().observe(shown(pa.array([1])))
    with pytest.raises(lw.DataError, match="end of time"):
        lw.Punctuated(lambda record: END_OF_TIME).start().observe(shown(pa.array([1])))


def test_elements_that_were_set_aside_are_not_shown() -> None:
    rows = [{"t": 1, "at": 5}, {"t": None, "at": 9_999_999}, {"t": 2, "at": 6}]
    stream = lw.from_iterable(rows, time="t", watermark=lw.Punctuated("at"))
    pipeline = stream.key_by(lambda record: 1).window(lw.FixedWindows("1s")).aggregate(lw.count())
    found = pipeline.collect(bundle_size=1)
    assert [pane.timing for pane in found.panes] == ["ON_TIME"]
    assert found.metrics.errors["null_time"] == 1
    assert not found.late


def test_a_pipeline_ends_windows_by_punctuation() -> None:
    second = 1_000_000
    rows = [{"t": 0, "at": None}, {"t": 5, "at": second}, {"t": 3, "at": None}]
    stream = lw.from_iterable(rows, time="t", watermark=lw.Punctuated("at"))
    pipeline = stream.key_by(lambda record: 1).window(lw.FixedWindows("1s")).aggregate(lw.count())
    found = pipeline.collect(bundle_size=1)
    assert [pane.value for pane in found.panes] == [2]
    assert [late.value["t"] for late in found.late] == [3]


def test_it_is_a_value() -> None:
    assert lw.Punctuated("at") == lw.Punctuated("at")
    assert (lw.Punctuated("at").columns, lw.Punctuated(len).columns) == (("at",), ())
    with pytest.raises(lw.InvalidArgument, match="neither a column nor a function"):
        lw.Punctuated(5)  # type: ignore[arg-type]


def test_by_hand_from_several_threads() -> None:
    watermark = lw.External()

    def drive(first: int) -> None:
        for at in range(first, 2_000):
            watermark.advance_to(at)

    threads = [Thread(target=drive, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert watermark.at == 1_999
    assert repr(watermark) == "<External at 1970-01-01T00:00:00.001999Z>"
    assert lw.ManualWatermark is lw.External
    other = lw.External()
    assert other.holder() == "external code advances it, and has not done so yet"
    other.resume(watermark.remember())
    assert other.at == 1_999
    assert other.holder() == "external code advances it"


def test_the_prefix_of_hidden_columns_is_one() -> None:
    assert seen_module._HIDDEN == HIDDEN


def files_of(folder: Path) -> list[Path]:
    paths = [folder / name for name in ("a.parquet", "b.parquet", "c.parquet")]
    for path, times in zip(paths, ([30, 10], [20, 70], [65, 80]), strict=True):
        pq.write_table(pa.table({"t": [1_000_000 * t for t in times], "k": ["x", "x"]}), path)
    return paths


def test_finished_files_make_nothing_late_and_wait_for_nothing_else(tmp_path: Path) -> None:
    """The windows of ten seconds before 65 s are complete when the third file begins."""
    paths = files_of(tmp_path)
    minima = {str(path): 1_000_000 * at for path, at in zip(paths, (10, 20, 65), strict=True)}
    estimator = lw.FinishedFiles(minima)
    pipeline = (
        lw.read_parquet(tmp_path, time="t", watermark=estimator)
        .key_by("k")
        .window(lw.FixedWindows("10s"))
        .aggregate(lw.count())
    )
    found = pipeline.collect(bundle_size=1)
    assert not found.late
    marks = {int(pane.window.start) // 1_000_000: pane.watermark for pane in found.panes}
    assert marks[10] == 20_000_000
    assert marks[20] == marks[30] == 65_000_000
    assert marks[60] == marks[80] == END_OF_TIME


def test_finished_files_are_told_in_their_order() -> None:
    def file(name: str) -> Observed:
        return Observed(np.array([5]), {"file": Column.of_objects([name])}, 0)

    state = lw.FinishedFiles({"a": 1, "b": 2}, by="file").start()
    assert (state.current(0), holder_of(state)) == (1, "file 'a' or a later one")
    state.observe(file("b"))
    assert state.current(0) == 2
    with pytest.raises(lw.DataError, match="the file 'a' was read after 'b'"):
        state.observe(file("a"))
    with pytest.raises(lw.DataError, match="earliest event time of the file 'bb' is not known"):
        state.observe(file("bb"))
    with pytest.raises(lw.InvalidArgument, match="give the file of a record"):
        lw.FinishedFiles({"a": 1}).start().observe(file("a"))
    with pytest.raises(lw.InvalidArgument, match="does not give the earliest event time"):
        lw.FinishedFiles({})


def test_nothing_seen_says_nothing() -> None:
    for estimator in (lw.Punctuated("no such column"), lw.Quantile(0.5, warm_up=0)):
        state = estimator.start()
        state.observe(Observed(np.zeros(0, np.int64), {}, 0))
        assert state.current(0) == START_OF_TIME


def test_zones_of_objects() -> None:
    """Python values in a column without a type."""
    other = NOON.astimezone(timezone(timedelta(hours=5)))
    state = lw.Punctuated("at").start()
    state.observe(Observed(np.zeros(2, np.int64), {"at": Column.of_objects([other, None])}, 0))
    assert state.current(0) == lw.instant(NOON)
