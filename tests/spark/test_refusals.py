"""What cannot run on Spark is refused before it starts, says what can, and is in the docs."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

import lowwater as lw
from lowwater.errors import InvalidArgument, UnsupportedByRunner
from lowwater.io import Log
from lowwater.spark import CarriedTime, configure
from lowwater.spark.chains import streamed
from lowwater.spark.session import PROVIDER
from tests.paths import ROOT
from tests.spark.test_to_spark import SECOND, START, table, write

LIMITS = (ROOT / "docs" / "spark.md").read_text().partition("## What does not run here")[2]


class OwnSource:
    """A source of a user's own."""

    @property
    def schema(self) -> pa.Schema | None:
        return pa.schema([("at", pa.int64()), ("key", pa.string())])

    def batches(self, size: int, keys: tuple[str, ...]) -> Iterator[lw.Records]:
        yield from ()


def begun(**options: Any) -> lw.Stream:
    return lw.from_arrow(table(5), time="at", **options)


def counted(stream: Any, *keys: Any) -> Any:
    return stream.key_by(*(keys or ("key",))).window(lw.FixedWindows("1m")).aggregate(n=lw.count())


def logged(folder: Path) -> lw.Stream:
    with Log(folder / "log", partitions=1) as log:
        log.append([{"at": START, "key": "A"}])
    return lw.read_log(folder / "log", time="at")


def nanoseconds(folder: Path) -> lw.Stream:
    times = pa.array([START * 1_000], pa.timestamp("ns", "UTC"))
    return lw.read_parquet(write(folder / "in", pa.table({"at": times, "key": ["A"]})), time="at")


def no_file_yet(folder: Path) -> lw.Stream:
    (folder / "empty").mkdir()
    return lw.read_jsonl(folder / "empty", time="at", follow=True)


MANUAL = lw.ManualWatermark()
Build = Callable[[Path], Any]
REFUSED: dict[str, tuple[str, Build]] = {
    "read_log": ("cannot be read by Spark", lambda folder: counted(logged(folder))),
    "from_source": ("cannot be read", lambda _: counted(lw.from_source(OwnSource(), time="at"))),
    "nanoseconds": ("cannot read from Parquet", lambda folder: counted(nanoseconds(folder))),
    "no file": ("no file yet", lambda folder: counted(no_file_yet(folder))),
    "a stream without a stage": ("has no state", lambda _: begun().filter(lw.col("key") == "A")),
    "ManualClock": ("this process", lambda _: counted(begun(clock=lw.ManualClock()))),
    "External": ("by this process", lambda _: counted(begun(watermark=lw.External()))),
    "ManualWatermark": ("by this process", lambda _: counted(begun(watermark=MANUAL))),
    "a union of data at rest and a stream": (
        "data at rest",
        lambda folder: counted(
            begun() | lw.read_parquet(write(folder / "in", table(5)), time="at")
        ),
    ),
}
EMBEDDED = (
    "bundle_size", "clock", "commit_every", "max_skew", "on_dead_letter", "on_late", "progress",
    "trace", "workers",
)  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_with_a_mend_and_documented(spark: Any, tmp_path: Path, name: str) -> None:
    match, build = REFUSED[name]
    pipeline = build(tmp_path)
    with pytest.raises(UnsupportedByRunner, match=match) as caught:
        pipeline.to_spark(spark)
    assert caught.value.hint
    assert name in LIMITS


UNTYPED: dict[str, tuple[str, Build]] = {
    "map": ("key", lambda _: counted(begun().map(lambda record: record))),
    "flat_map": ("key", lambda _: counted(begun().flat_map(lambda one: [one]))),
    "map_batches": ("key", lambda _: counted(begun().map_batches(lambda one: one))),
    "group": ("records", lambda _: begun().key_by("key").window(lw.FixedWindows("1m")).group()),
    "key_by(function)": ("key", lambda _: counted(begun(), lambda record: 1)),
    "a stage behind them": (
        "n",
        lambda _: (
            counted(begun().map(lambda record: record))
            .key_by("n")
            .window(lw.FixedWindows("1h"))
            .aggregate(windows=lw.count())
        ),
    ),
}


@pytest.mark.parametrize("name", UNTYPED)
def test_types_that_functions_make_are_asked_for(spark: Any, tmp_path: Path, name: str) -> None:
    column, build = UNTYPED[name]
    with pytest.raises(UnsupportedByRunner, match=f"the type of '{column}'") as caught:
        build(tmp_path).to_spark(spark)
    assert f'types={{"{column}":' in (caught.value.hint or "")


def test_sources_have_one_clock(spark: Any) -> None:
    """As embedded; one that a source names is that of all."""
    arrivals = lw.ArrivalClock("at")
    one, other = begun(clock=arrivals), begun(clock=lw.ArrivalClock("at", tick="5s"))
    for streams in (one | other, other | one):
        with pytest.raises(InvalidArgument, match="different clocks") as caught:
            counted(streams).to_spark(spark)
        assert "the same clock" in (caught.value.hint or "")
    with pytest.raises(InvalidArgument, match="no column 'landed'"):
        counted(begun() | begun(clock=lw.ArrivalClock("landed"))).to_spark(spark)
    with pytest.raises(UnsupportedByRunner, match="ManualClock is an object of this process"):
        counted(begun() | begun(clock=lw.ManualClock())).to_spark(spark)
    assert counted(begun() | begun(clock=arrivals)).to_spark(spark).count() > 0


class Counting:
    """A process: emits a field."""

    def on_record(self, record: Any, ctx: Any) -> None:
        ctx.emit({"seen": 1})


def test_a_memory_limit_needs_a_store_and_windows(spark: Any, tmp_path: Path) -> None:
    folder = write(tmp_path / "in", table(5))
    stream = lw.read_parquet(folder, time="at", watermark=lw.Ascending())
    stored: dict[str, Any] = {"state": "rocksdb", "state_location": tmp_path / "state"}
    assert counted(stream).to_spark(spark, memory_limit="16MiB", **stored).isStreaming
    with pytest.raises(InvalidArgument, match="too little"):
        counted(stream).to_spark(spark, memory_limit="1MB", **stored)
    with pytest.raises(InvalidArgument, match="needs a store") as caught:
        counted(stream).to_spark(spark, memory_limit="1GB")
    assert "state_location=" in (caught.value.hint or "")
    process = stream.key_by("key").process(Counting())
    with pytest.raises(InvalidArgument, match="there are none"):
        process.to_spark(spark, types={"seen": "int"}, memory_limit="1GB", **stored)


@pytest.mark.parametrize("name", EMBEDDED)
def test_options_of_the_embedded_runner_say_what_is_nearest(spark: Any, name: str) -> None:
    with pytest.raises(UnsupportedByRunner, match=f"^{name}= is for the embedded") as caught:
        counted(begun()).to_spark(spark, **{name: None})
    assert caught.value.hint
    assert f"`{name}`" in LIMITS


def test_the_embedded_runner_cannot_read_streams(spark: Any, tmp_path: Path) -> None:
    frame = spark.readStream.schema("at long, key string").json(str(tmp_path))
    with pytest.raises(UnsupportedByRunner, match="streaming DataFrame"):
        counted(lw.from_spark(frame, time="at")).collect()


def test_a_stream_without_a_watermark_is_refused_unless_it_is_drained(
    spark: Any, tmp_path: Path
) -> None:
    frame = spark.readStream.schema("at long, key string").json(str(tmp_path))
    folder = write(tmp_path / "in", pa.table({"at": [START], "key": ["A"]}))
    for reading in (lw.from_spark(frame, time="at"), lw.read_parquet(folder, time="at")):
        with pytest.raises(InvalidArgument, match=r"no watermark.*may never happen.*source 1"):
            counted(reading).to_spark(spark)
        assert counted(reading).to_spark(spark, drain=True).isStreaming
    assert lw.check(counted(lw.from_spark(frame, time="at")))[0].severity == "error"


def test_what_check_warns_of_is_a_warning_of_to_spark(spark: Any) -> None:
    pipeline = begun().key_by("key").window(lw.FixedWindows("1m"), trigger=lw.Never())
    with pytest.warns(lw.PipelineWarning, match="never fires"):
        pipeline.aggregate(n=lw.count()).to_spark(spark)


def test_seconds_as_event_times_of_a_static_frame_are_warned_of(spark: Any) -> None:
    frame = spark.createDataFrame(pa.table({"at": [START // SECOND], "key": ["A"]}))
    for reading in (
        lw.from_spark(frame, time="at"),
        lw.from_spark(frame.withColumn("n", frame["at"] + 1), time="at"),
        lw.from_iterable([{"at": START // SECOND, "key": "A"}], time="at"),
    ):
        with pytest.warns(lw.UnitWarning, match=r"'at' is 946728000, .*1970.*source 1.*unit=\"s\""):
            counted(reading).to_spark(spark)
    with warnings.catch_warnings():
        warnings.simplefilter("error", lw.LowwaterWarning)
        counted(lw.from_spark(frame, time="at", unit="s")).to_spark(spark)
        # The first row of a join or of an aggregation may cost as much as all of them.
        counted(lw.from_spark(frame.groupBy("key").min("at"), time="min(at)")).to_spark(spark)


@pytest.mark.parametrize(
    ("match", "options"),
    [
        ("key_groups", {"key_groups": True}),
        ("key_groups", {"key_groups": 5_000}),
        ("files_per_batch", {"files_per_batch": 0}),
        ("reads no files", {"files_per_batch": 1}),
        ("max_ahead", {"max_ahead": "-1d"}),
        ("outputs", {"outputs": "late"}),
        ("timers", {"timers": "never"}),
        ("on_error", {"on_error": "ignore"}),
        ("Did you mean 'key_groups'", {"key_group": 3}),
        ("not a type of Spark", {"types": {"n": "no type"}}),
        ("no key and no aggregate", {"types": {"m": "int"}}),
    ],
)
def test_options_are_checked(spark: Any, match: str, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match=match):
        counted(begun()).to_spark(spark, **options)


def test_columns_and_names_are_checked_before_anything_runs(spark: Any) -> None:
    records = [{"at": START, "key": "A", "Key": "a", "record": "r"}]

    def made(**options: Any) -> Any:  # a source of which no columns are known beforehand
        begun = lw.from_iterable(records, time=options.pop("time", "at"))
        keyed = begun.key_by(*options.pop("keys", ["key"])).window(lw.FixedWindows("1m"))
        aggregate = {options.pop("name", "n"): options.pop("spec", lw.count())}
        return keyed.aggregate(**aggregate).to_spark(spark, **options)

    assert made(keys=["record"]).columns[0] == "record"
    for match, wrong in (
        ("no column 'kex'", {"keys": ["kex"]}),
        ("no column 'a'", {"time": "a"}),
        ("no column 'points'", {"spec": lw.sum("points")}),
        ("the key 'record' is called as", {"keys": ["record"], "outputs": "all"}),
        ("the column 'reason' is called as", {"name": "reason", "outputs": "all"}),
        ("the key 'key' and the key 'Key'", {"keys": ["key", "Key"]}),
        ("the key 'key' and the column 'KEY'", {"name": "KEY"}),
    ):
        with pytest.raises(InvalidArgument, match=match):
            made(**wrong)
    with pytest.raises(InvalidArgument, match="no Spark session"):
        counted(begun()).to_spark("local[2]")
    with pytest.raises(InvalidArgument, match="no column 'lo'"):
        counted(lw.from_spark(spark.createDataFrame(table(3)), time="at",
                              watermark=CarriedTime("lo"))).to_spark(spark)  # fmt: skip


def test_a_graph_of_several_levels_says_that_it_needs_protobuf(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spark itself would say so in its workers, by the name of a module."""
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    none: Any = None
    with pytest.raises(InvalidArgument, match=r"needs google.*lowwater\[spark\]"):
        streamed(none, [], "transformWithStateInPandas", timers="batches", ends=False)
    assert streamed(none, [], "applyInPandasWithState", timers="batches", ends=False) is None


def test_a_graph_of_several_levels_needs_a_state_store_that_can_keep_it(
    spark: Any, tmp_path: Path
) -> None:
    """In the first micro-batch it would leave a checkpoint behind that fails for ever."""
    source = lw.read_parquet(write(tmp_path / "in", table(5)), time="at", watermark=lw.Ascending())
    twice = counted(counted(source))
    before = spark.conf.get(PROVIDER)
    spark.conf.unset(PROVIDER)  # as in a session that nobody has configured
    try:
        with pytest.raises(InvalidArgument, match="HDFSBacked") as raised:
            twice.to_spark(spark)
        assert "lowwater.spark.configure(spark)" in str(raised.value.hint)
        own = {"operator": "mapInArrow", "state_location": str(tmp_path / "state")}
        for sound in (counted(source).to_spark(spark), twice.to_spark(spark, **own)):
            assert sound.isStreaming
    finally:
        spark.conf.set(PROVIDER, before)
    assert twice.to_spark(spark).isStreaming


def test_files_in_stores_are_left_to_spark() -> None:
    from lowwater.io.parquet import ParquetSource
    from lowwater.spark.reading import frame_of_source, names_of_files

    source, nothing = ParquetSource(("in", "s3://bucket/in")), cast(Any, None)
    with pytest.raises(UnsupportedByRunner, match="'s3://bucket/in' is in a store") as raised:
        frame_of_source(nothing, source, (), None)
    assert "lw.from_spark(" in str(raised.value.hint)
    assert len(names_of_files(source)) == 1


def test_outputs_that_cannot_be_told_apart() -> None:
    counts = counted(lw.from_arrow(table(3), time="at"))
    with pytest.raises(InvalidArgument, match="the output 'stage 1' is given twice"):
        lw.to_spark(None, counts, counts)
    late = counts.key_by("key").window(lw.FixedWindows("1h")).aggregate(lw.count()).named("late")
    with pytest.raises(InvalidArgument, match="called 'late', as rows of another kind"):
        lw.to_spark(None, counts, late)
    with pytest.raises(InvalidArgument, match="needs an output"):
        lw.to_spark(None)


def test_a_session_that_has_started_cannot_preload(spark: Any) -> None:
    with pytest.raises(InvalidArgument, match="this session has started already"):
        configure(spark, preload=True)
