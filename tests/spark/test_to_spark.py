"""``to_spark`` gives what the embedded runner gives, from DataFrames, files and memory."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lowwater as lw
from lowwater.errors import InvalidArgument, UnsupportedByRunner
from lowwater.spark import METRICS, CarriedTime, counts, query
from lowwater.spark.session import CHECKS
from tests.docs.test_pages import pages, run_page
from tests.unit.engine.local.thirty_runs import ROUNDS, rows_of, windows

SECOND = 1_000_000
START = 946_728_000 * SECOND  # 2000-01-01T12:00:00Z
Rows = list[dict[str, Any]]


def table(rows: int, *, seed: int = 1, disorder: int = 5) -> pa.Table:
    """Return records of some keys, a little out of order, with nulls among the values."""
    random = np.random.default_rng(seed)
    times = START + np.arange(rows) * SECOND // 4
    times += random.integers(-disorder * SECOND, disorder * SECOND, rows)
    values = random.integers(-100, 100, rows)
    return pa.table(
        {
            "at": pa.array(times).cast(pa.timestamp("us", "UTC")),
            "key": pa.array([f"key {n}" for n in random.integers(0, 20, rows)]),
            "part": pa.array(random.integers(0, 3, rows), pa.int32()),
            "value": pa.array(values, mask=random.random(rows) < 0.1),
            "score": pa.array(random.random(rows), mask=random.random(rows) < 0.1),
            "day": pa.array(values % 9).cast(pa.int32()).cast(pa.date32()),
        }
    )


def write(folder: Path, *tables: pa.Table) -> Path:
    """Write tables as files, which Spark reads one after the other."""
    folder.mkdir(exist_ok=True)
    first = len(list(folder.iterdir()))
    for at, one in enumerate(tables, first):
        path = folder / f"{at:03}.parquet"
        pq.write_table(one, path)
        os.utime(path, (1_000_000_000 + at, 1_000_000_000 + at))
    return folder


def cut(whole: pa.Table, size: int) -> list[pa.Table]:
    return [whole.slice(at, size) for at in range(0, len(whole), size)]


def stream(spark: Any, folder: Path) -> Any:
    schema = spark.read.parquet(str(folder)).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


def run(frame: Any, checkpoint: Path) -> tuple[Rows, Any]:
    """Run a streaming DataFrame to where its source ends; return its rows and its progress."""
    rows: Rows = []

    def keep(part: Any, _: int) -> None:
        rows.extend(part.toArrow().to_pylist())

    query = (
        frame.writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(300)  # a bound for hangs: machines are busy
    return rows, query.recentProgress


NOT_COMPARED = ("emitted_at",)


def plain(rows: Iterable[dict[str, Any]], *, but: tuple[str, ...] = NOT_COMPARED) -> list[str]:
    """Return rows as sorted text, without what depends on the machine's clock.

    Tables of results have a column ``weight``, and null for a watermark beyond all times.
    """
    return sorted(
        repr([(k, _plain(v)) for k, v in row.items() if k not in (*but, "weight")]) for row in rows
    )


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 9)
    return None if isinstance(value, datetime) and value.year in (1, 9999) else value


def embedded(pipeline: Any, **options: Any) -> Rows:
    shown: Rows = pipeline.to_arrow(**options).to_pylist()
    return shown


class Range:
    """A combiner: the least and the greatest value, one after the other as text."""

    def create_accumulator(self) -> Any:
        return None

    def add_input(self, accumulator: Any, value: int) -> Any:
        low, high = accumulator or (value, value)
        return (min(low, value), max(high, value))

    def merge_accumulators(self, accumulators: Iterable[Any]) -> Any:
        held = [one for one in accumulators if one is not None]
        return (min(low for low, _ in held), max(high for _, high in held)) if held else None

    def extract_output(self, accumulator: Any) -> str:
        return "" if accumulator is None else f"{accumulator[0]} to {accumulator[1]}"


EVERY = {
    "n": lw.count(), "values": lw.count("value"), "total": lw.sum("value"),
    "mean": lw.mean("score"), "spread": lw.std("score"), "least": lw.min("value"),
    "most": lw.max("score"), "earliest": lw.min("day"), "least_key": lw.min("key"),
    "kinds": lw.count_distinct("day"), "reach": lw.combine(Range(), "value"),
}  # fmt: skip


def everything(begun: lw.Stream) -> lw.Pipeline:
    return (
        begun.key_by("key", "part")
        .window(
            lw.Sessions("2s"),
            trigger=lw.AfterWatermark(early=lw.AfterCount(3), late=lw.AfterCount(1)),
            accumulation="retracting",
            allowed_lateness="1s",
        )
        .aggregate(**EVERY)
    )


TYPES = {"reach": "string"}


def test_a_static_frame_gives_the_batch_answer(spark: Any) -> None:
    data = table(2_000)
    frame = spark.createDataFrame(data).repartition(3)
    shown = everything(lw.from_spark(frame, time="at", watermark="10s")).to_spark(
        spark, types=TYPES
    )
    assert not shown.isStreaming
    wanted = embedded(everything(lw.from_arrow(data, time="at")), bundle_size=10_000)
    assert plain(shown.toArrow().to_pylist()) == plain(wanted)


def test_a_stream_gives_what_bundles_give(spark: Any, tmp_path: Path) -> None:
    """A micro-batch is a bundle; and where it ends nothing is lost, drained as embedded."""
    data = table(1_200)
    folder = write(tmp_path / "in", *cut(data, 600))
    begun = lw.from_spark(stream(spark, folder), time="at", watermark=lw.BoundedDisorder("1s"))
    shown = everything(begun).to_spark(spark, types=TYPES, drain=True, key_groups=3)
    assert shown.isStreaming
    rows, progress = run(shown, tmp_path / "checkpoint")
    begun = lw.from_arrow(data, time="at", watermark=lw.BoundedDisorder("1s"))
    wanted = everything(begun).collect(bundle_size=600)
    assert plain(rows) == plain(wanted.to_arrow().to_pylist())
    seen = [found[METRICS] for found in map(counts, progress) if found]
    assert sum(one["events"] for one in seen) == 1_200
    assert sum(one["expired"] for one in seen) == len(wanted.late) > 0
    assert sum(one["on_time"] for one in seen) == wanted.metrics.panes["ON_TIME"]
    assert seen[-1]["open_windows"] == 0


def test_a_batch_answer_becomes_a_pandas_frame(spark: Any) -> None:
    """Its watermark is infinite, which pandas has no instant for: it is null."""
    begun = lw.from_spark(spark.createDataFrame(table(20)), time="at")
    shown = begun.key_by("key").window(lw.FixedWindows("1h")).aggregate(n=lw.count())
    panes = shown.to_spark(spark).toPandas()
    assert panes["n"].sum() == 20
    assert panes["watermark"].isna().all()
    assert panes["emitted_at"].notna().all()


def test_available_now_gives_all_that_the_final_watermark_allows(
    spark: Any, tmp_path: Path
) -> None:
    """Started again with more files, it goes on; without any, it gives nothing more."""
    parts = cut(table(500), 250)
    folder = write(tmp_path / "in", parts[0])

    def once(key_groups: int = 4) -> Rows:
        begun = lw.from_spark(stream(spark, folder), time="at", watermark="6s")
        pipeline = begun.key_by("key").window(lw.FixedWindows("10s")).aggregate(n=lw.count())
        rows, _ = run(pipeline.to_spark(spark, key_groups=key_groups), tmp_path / "checkpoint")
        return rows

    def wanted(upto: int) -> Rows:
        read = pa.concat_tables(parts[:upto])
        begun = lw.from_arrow(read, time="at", watermark=lw.BoundedDisorder("6s"))
        pipeline = begun.key_by("key").window(lw.FixedWindows("10s")).aggregate(n=lw.count())
        shown = embedded(pipeline, bundle_size=250)
        return [row for row in shown if row["watermark"] is not None]

    rows = once()
    assert plain(rows) == plain(wanted(1))
    assert not once()
    write(folder, parts[1])
    rows += once()
    assert plain(rows) == plain(wanted(2))
    write(folder, parts[1])
    with pytest.raises(Exception, match="in 4 key groups, not 5"):
        once(key_groups=5)


@pytest.mark.long(reason="proves again on Spark")
def test_thirty_runs_over_what_is_available_give_what_one_run_over_everything_gives(
    spark: Any, tmp_path: Path
) -> None:
    """A file before each run, every fifth with rows that are too late; no window closes early."""
    options: dict[str, Any] = {"time": "t", "unit": "us", "watermark": lw.BoundedDisorder("5s")}
    folder = tmp_path / "in"
    rows: Rows = []
    for number in range(ROUNDS):
        write(folder, pa.Table.from_pylist(rows_of(number)))
        pipeline = windows(lw.read_parquet(str(folder), **options))
        shown = pipeline.to_spark(spark, outputs="all", files_per_batch=1)
        more, _ = run(shown, tmp_path / "checkpoint")
        rows += more
    wanted = windows(lw.read_parquet(str(folder), **options)).collect(bundle_size=1_000)
    panes = [row for row in rows if row["output"] == "pane"]
    assert [(row["k"], row["n"], row["total"], row["values"], row["timing"]) for row in panes] == [
        (pane.key, *pane.values.values(), pane.timing)
        for pane in wanted.panes
        if not pane.is_drained
    ]
    late = [json.loads(row["record"])["v"] for row in rows if row["output"] == "late"]
    assert sorted(late) == sorted(one.value["v"] for one in wanted.late)
    assert late


def test_late_records_and_dead_letters_are_rows(spark: Any, tmp_path: Path) -> None:
    first: Any = {"at": "2000-01-01T12:00:30Z", "key": "A", "value": 1}
    out_of_order: Any = {"at": "2000-01-01T12:00:01Z", "key": "A", "value": 2}
    unusable: list[Any] = [
        {"at": None, "key": "A", "value": 3},
        {"at": "2000-01-01T12:00:31Z", "key": None, "value": 4},
        {"at": "2999-01-01T00:00:00Z", "key": "B", "value": 5},
        "{not json",
    ]
    folder = tmp_path / "in"
    folder.mkdir()
    for at, records in enumerate(([first], [out_of_order, *unusable])):
        texts = [one if isinstance(one, str) else json.dumps(one) for one in records]
        path = folder / f"{at}.jsonl"
        path.write_text("\n".join(texts) + "\n")
        os.utime(path, (1_000_000_000 + at, 1_000_000_000 + at))
    pipeline = (
        lw.read_jsonl(str(folder / "*.jsonl"), time="at", watermark=lw.Ascending())
        .key_by("key")
        .window(lw.FixedWindows("10s"))
        .aggregate(total=lw.sum("value"))
    )
    shown = pipeline.to_spark(spark, outputs="all", max_ahead="1d", drain=True, files_per_batch=1)
    rows, _ = run(shown, tmp_path / "checkpoint")
    panes = [row for row in rows if row["output"] == "pane"]
    assert [(row["key"], row["total"]) for row in panes] == [("A", 1)]
    (late,) = [row for row in rows if row["output"] == "late"]
    assert (late["reason"], late["key"]) == ("expired", "A")
    assert json.loads(late["record"])["value"] == 2
    letters = {row["reason"]: row["record"] for row in rows if row["output"] == "dead_letter"}
    assert set(letters) == {"null_time", "null_key", "too_far_ahead", "malformed_json"}
    assert json.loads(letters["null_key"])["value"] == 4
    assert "not json" in letters["malformed_json"]


class Hours:
    """A process that shows what hour it sees in records, in their lists and in its context."""

    def on_record(self, record: Any, ctx: Any) -> None:
        ctx.emit({"seen": record["at"].hour, "inner": record["more"][0]["then"].hour})


def test_user_code_sees_instants_in_utc_whatever_the_zone_of_the_session(
    spark: Any, tmp_path: Path
) -> None:
    at = [START + 55_800 * SECOND + n * 3600 * SECOND for n in range(6)]  # 03:30 UTC, and later
    instants = pa.array(at).cast(pa.timestamp("us", "UTC"))
    inner = pa.StructArray.from_arrays([instants], ["then"])
    more = pa.ListArray.from_arrays(pa.array(range(7), pa.int32()), inner)
    read = pa.table({"at": instants, "more": more, "n": pa.array(range(6))})
    folder = write(tmp_path / "in", read)

    def seen(begun: Any) -> list[Any]:
        return [
            begun.with_columns(by_column=lw.col("at").dt.hour())
            .filter(lambda r: r["at"].hour < 8)
            .map(lambda r: {**r, "by_function": r["at"].hour, "nested": r["more"][0]["then"].hour})
            .key_by(lambda r: r["at"].hour)
            .window(lw.FixedWindows("1h"))
            .aggregate(
                a=lw.max("by_column"), b=lw.max("by_function"), c=lw.max("nested"), n=lw.sum("n")
            ),
            begun.key_by("n").process(Hours()),
        ]

    assert spark.conf.get("spark.sql.session.timeZone") != "UTC"
    options: Any = {"time": "at", "watermark": lw.BoundedDisorder("1d")}
    static = lw.from_spark(spark.read.parquet(str(folder)), **options)
    here, there = seen(lw.from_arrow(read, **options)), seen(static)
    for number, (one, other) in enumerate(zip(here, there, strict=True)):
        kinds = (("seen", "inner"), ("key", "b", "c", "a", "n"))[number == 0]
        shown = other.to_spark(spark, types=dict.fromkeys(kinds, "long"))
        assert plain(shown.toArrow().to_pylist()) == plain(embedded(one))
    assert plain(embedded(there[0])) == plain(embedded(here[0]))


def odd_seconds(time: int) -> list[tuple[int, int]]:
    start = time // (3 * SECOND) * 3 * SECOND
    return [(start, start + 3 * SECOND)]


def test_custom_windows_and_memory_sources(spark: Any) -> None:
    """Functions are shipped as Spark ships them, those that are no module's among them."""
    double: Callable[[int], int] = lambda factor: factor * 2  # noqa: E731

    def doubled(time: int) -> list[tuple[int, int]]:
        return [(start, start + double(3 * SECOND)) for start, _ in odd_seconds(time)]

    rides = [{"at": START + n * SECOND, "team": "AB"[n % 2], "points": n} for n in range(50)]
    pipeline = (
        lw.from_iterable(rides, time="at", key="team")
        .window(lw.CustomWindows(doubled, name="doubled"))
        .aggregate(points=lw.sum("points"), all=lw.collect_set("points"))
    )
    shown = pipeline.to_spark(spark).toArrow().to_pylist()
    assert plain(shown) == plain(embedded(pipeline))


def test_times_that_are_numbers_have_a_unit(spark: Any, tmp_path: Path) -> None:
    rows = [{"at": START / SECOND + at / 4, "key": "a"} for at in range(9)]

    def counted(stream: lw.Stream) -> lw.Pipeline:
        made = stream.key_by("key").window(lw.FixedWindows("1s")).aggregate(n=lw.count())
        assert isinstance(made, lw.Pipeline)
        return made

    expected = plain(embedded(counted(lw.from_iterable(rows, time="at", unit="s"))))
    assert len(expected) == 3
    frame = spark.createDataFrame(pa.Table.from_pylist(rows))
    begun = lw.from_spark(frame, time="at", unit="s")
    assert plain(counted(begun).to_spark(spark).toArrow().to_pylist()) == expected
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text(text, encoding="utf-8")
    read = lw.read_jsonl(tmp_path / "in", time="at", unit="s", watermark=lw.Ascending())
    found, _ = run(counted(read).to_spark(spark, drain=True), tmp_path / "checkpoint")
    but = (*NOT_COMPARED, "watermark")
    assert plain(found, but=but) == plain(embedded(counted(read)), but=but)


def test_steps_are_taken_as_embedded(spark: Any) -> None:
    data = table(500)

    def steps(begun: lw.Stream) -> lw.Pipeline:
        return (
            begun.filter(lw.col("score") > 0.25)
            .with_columns(twice=lw.col("value") * 2, ratio=lw.col("value") / lw.col("part"))
            .filter(lambda record: record["part"] != 1)
            .select("key", "twice", "ratio")
            .key_by("key")
            .window(lw.FixedWindows("20s"))
            .aggregate(twice=lw.sum("twice"), most=lw.count("ratio"))
        )

    frame = spark.createDataFrame(data)
    shown = steps(lw.from_spark(frame, time="at")).to_spark(spark).toArrow().to_pylist()
    assert plain(shown) == plain(embedded(steps(lw.from_arrow(data, time="at"))))


@pytest.mark.parametrize("panes", [True, False])
def test_items_of_lists_and_keys_with_other_names_are_as_embedded(spark: Any, panes: bool) -> None:
    """A key that is called as a column of panes is, here and in what Spark makes of it."""
    stream = lw.from_arrow(table(200), time="at").with_columns(
        index=lw.col("key").str.extract("([0-9]+)$"),
        items=lw.when(lw.col("part") > 0, lw.col("key").str.split(" ")),
    )
    with pytest.warns(lw.PipelineWarning, match="'index_key'"):
        keyed = stream.explode("items").key_by("index", "items")
    counted = keyed.window(lw.FixedWindows("1h")).aggregate(n=lw.count(), total=lw.sum("value"))
    built = counted
    if not panes:
        built = counted.key_by("index_key").window(lw.FixedWindows("1d")).aggregate(n=lw.sum("n"))
    found = built.to_spark(spark).toArrow().to_pylist()
    assert plain(found) == plain(embedded(built))
    assert found


def test_time_may_be_carried_in_the_records(spark: Any, tmp_path: Path) -> None:
    """A heartbeat moves the clock and the watermark; processing-time triggers see that clock."""

    def record(**columns: Any) -> dict[str, Any]:
        empty = {"at": None, "key": None, "value": None, "low": None, "clock": None}
        return empty | columns

    batches = [
        [record(at=START, key="A", value=1, low=START, clock=START)],
        [record(clock=START + 5 * SECOND)],
        [record(low=START + 60 * SECOND, clock=START + 6 * SECOND)],
    ]
    schema = pa.schema(
        [("at", pa.int64()), ("key", pa.string()), ("value", pa.int64()), ("low", pa.int64()),
         ("clock", pa.int64())]
    )  # fmt: skip
    tables = [pa.Table.from_pylist(batch, schema=schema) for batch in batches]
    folder = write(tmp_path / "in", *tables)
    carried = CarriedTime("low", clock="clock")
    pipeline = (
        lw.from_spark(stream(spark, folder), time="at", watermark=carried)
        .key_by("key")
        .window(
            lw.FixedWindows("1m"),
            trigger=lw.AfterWatermark(early=lw.AfterProcessingTime("5s")),
            accumulation="accumulating",
        )
        .aggregate(total=lw.sum("value"))
    )
    rows, _ = run(pipeline.to_spark(spark, timers="batches"), tmp_path / "checkpoint")
    assert [(row["timing"], row["emitted_at"].second, row["is_last"]) for row in rows] == [
        ("EARLY", 5, False),
        ("ON_TIME", 6, True),
    ]


def test_an_arrival_clock_goes_along(spark: Any, tmp_path: Path) -> None:
    """A micro-batch is at the end of its last arrival's tick; and at the end it stays there."""
    arrivals = [[1, 3], [7, 8], [19]]
    tables = [
        pa.table({"at": [START] * len(some), "key": ["A"] * len(some),
                  "arrived": [START + at * SECOND for at in some]})
        for some in arrivals
    ]  # fmt: skip
    folder = write(tmp_path / "in", *tables)

    def pipeline(begun: lw.Stream) -> lw.Pipeline:
        return (
            begun.key_by("key")
            .window(
                lw.FixedWindows("1d"),
                trigger=lw.AfterWatermark(early=lw.AfterProcessingTime("5s")),
                accumulation="accumulating",
            )
            .aggregate(n=lw.count())
        )

    clock = lw.ArrivalClock("arrived", tick="10s")
    reading = lw.read_parquet(
        str(folder), time="at", watermark=lw.BoundedDisorder("1h"), clock=clock
    )
    shown = pipeline(reading).to_spark(spark, files_per_batch=1, drain=True)
    rows, _ = run(shown, tmp_path / "checkpoint")
    emitted = [(row["timing"], row["n"], row["emitted_at"].second) for row in rows]
    assert emitted == [("EARLY", 4, 15), ("ON_TIME", 5, 20)]
    assert plain(rows) == plain(embedded(pipeline(reading)))


def test_clocks_that_tasks_cannot_ask_are_refused(spark: Any, tmp_path: Path) -> None:
    folder = write(tmp_path / "in", table(4))

    def made(clock: Any, watermark: Any = None, **options: Any) -> Any:
        watermark = watermark or lw.BoundedDisorder("1s")
        begun = lw.read_parquet(str(folder), time="at", watermark=watermark, clock=clock)
        windowed = begun.key_by("key").window(lw.FixedWindows("1m"))
        return windowed.aggregate(n=lw.count()).to_spark(spark, **options)

    assert made(lw.WallClock()).isStreaming
    with pytest.raises(UnsupportedByRunner, match="an object of this process"):
        made(lw.ManualClock())
    with pytest.raises(UnsupportedByRunner, match=r"CarriedTime\(watermark='at', clock='day'\)"):
        made(lw.ArrivalClock("day"), CarriedTime("at"))
    with pytest.raises(InvalidArgument, match="the records carry time"):
        made(lw.ArrivalClock("day"), timers="clock")


@pytest.mark.parametrize("adapter", ["applyInPandasWithState", "transformWithStateInPandas"])
def test_the_clock_wakes_groups_that_get_nothing(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, adapter: str
) -> None:
    """With a processing-time trigger Spark goes on by itself: panes come though nothing arrives."""
    monkeypatch.setattr(query, "adapter_of", lambda *_: adapter)  # for one level it is the first
    folder = write(tmp_path / "in", table(40))
    pipeline = (
        lw.from_spark(stream(spark, folder), time="at", watermark="1h")
        .key_by("part")
        .window(
            lw.FixedWindows("1d"),
            trigger=lw.AfterWatermark(early=lw.AfterProcessingTime("100ms")),
            accumulation="accumulating",
        )
        .aggregate(n=lw.count())
    )
    rows: Rows = []
    all_came = threading.Event()

    def keep(part: Any, _: int) -> None:
        rows.extend(part.toArrow().to_pylist())
        if sum(row["n"] for row in rows) == 40:
            all_came.set()

    shown = pipeline.to_spark(spark, key_groups=2).writeStream.foreachBatch(keep)
    running = shown.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        assert all_came.wait(120)
    finally:
        running.stop()
    assert {row["timing"] for row in rows} == {"EARLY"}


class Counted:
    """Emits how many records a key had, some time of the clock after the first."""

    count = lw.value_cell(0)
    since = lw.value_cell()
    later = lw.timer(domain="processing")

    def on_record(self, record: Any, ctx: Any) -> None:
        if not ctx.since.is_set:
            ctx.since.set(ctx.time)
            ctx.later.set(ctx.clock + SECOND // 10, output_time=ctx.time)
        ctx.count.set(ctx.count.get() + 1)

    def on_timer(self, name: str, ctx: Any) -> None:
        ctx.emit({"seen": ctx.count.get()}, time=ctx.since.get())


def test_timers_of_the_clock_wake_a_process(spark: Any, tmp_path: Path) -> None:
    """What a process will wait for is not known before: ``timers="clock"`` says that it does."""
    folder = write(tmp_path / "in", table(40))
    begun = lw.from_spark(stream(spark, folder), time="at", watermark="1h")
    made = begun.key_by("part").process(Counted())
    rows: Rows = []
    all_came = threading.Event()

    def keep(part: Any, _: int) -> None:
        rows.extend(part.toArrow().to_pylist())
        if sum(row["seen"] for row in rows) == 40:
            all_came.set()

    shown = made.to_spark(spark, key_groups=2, timers="clock", types={"seen": "bigint"})
    query = (
        shown.writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        assert all_came.wait(120)
    finally:
        query.stop()
    assert len(rows) == 3


@pytest.mark.long(reason="repeats the proof in a chain of operators")
@pytest.mark.parametrize("chains", [False, True])
def test_the_clock_wakes_every_level(spark: Any, tmp_path: Path, chains: bool) -> None:
    """On both of Spark's operators: nothing comes after the only file, no window completes."""
    folder = write(tmp_path / "in", table(40))
    early = lw.AfterWatermark(early=lw.AfterProcessingTime("100ms"))
    patient: dict[str, Any] = {"trigger": early, "accumulation": "discarding"}
    begun = lw.from_spark(stream(spark, folder), time="at", watermark="1h")
    counts = begun.key_by("part").window(lw.FixedWindows("1h"), **patient)
    again = counts.aggregate(n=lw.count()).key_by("part").window(lw.FixedWindows("1d"), **patient)
    rows: Rows = []
    all_came = threading.Event()

    def keep(part: Any, _: int) -> None:
        rows.extend(part.toArrow().to_pylist())
        if sum(row["total"] for row in rows) == 40:
            all_came.set()

    spark.conf.set(CHECKS, str(not chains).lower())
    try:
        shown = again.aggregate(total=lw.sum("n")).to_spark(spark, key_groups=2)
        query = (
            shown.writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
    finally:
        spark.conf.unset(CHECKS)
    try:
        assert all_came.wait(120)
    finally:
        query.stop()
    assert {row["timing"] for row in rows} == {"EARLY"}


@pytest.mark.filterwarnings("error::lowwater.errors.LowwaterWarning")  # as of tests/docs
@pytest.mark.long(reason="runs whole pages")
@pytest.mark.parametrize("page", pages(spark=True))
def test_the_pages_tell_the_truth(
    spark: Any, page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(page)


def test_it_must_be_said_what_combiners_give_and_what_excludes_what(spark: Any) -> None:
    begun = lw.from_spark(spark.createDataFrame(table(5)), time="at", watermark="1s")
    windowed = begun.key_by("key").window(lw.FixedWindows("1m"))
    with pytest.raises(UnsupportedByRunner, match="type of 'reach'") as caught:
        windowed.aggregate(reach=lw.combine(Range(), "value")).to_spark(spark)
    assert "types={" in (caught.value.hint or "")
    with pytest.raises(InvalidArgument, match="exclude each other"):
        windowed.aggregate(n=lw.count()).to_spark(spark, drain=True, timers="clock")


PANE_COLUMNS = [
    ("timing", "string"), ("index", "bigint"), ("on_time_index", "bigint"),
    ("is_first", "boolean"), ("is_last", "boolean"), ("kind", "string"),
    ("timestamp", "timestamp"), ("emitted_at", "timestamp"), ("watermark", "timestamp"),
]  # fmt: skip


def test_the_schema_is_the_documented_one(spark: Any, tmp_path: Path) -> None:
    """Before anything runs, and in what comes out; whether streaming or not."""
    aggregates = {
        "n": lw.count(), "total": lw.sum("value"), "mean": lw.mean("score"),
        "days": lw.collect_set("day"), "whole": lw.collect("value"), "most": lw.max("score"),
    }  # fmt: skip
    wanted = [
        ("key", "string"), ("part", "int"), ("window_start", "timestamp"),
        ("window_end", "timestamp"), ("n", "bigint"), ("total", "bigint"), ("mean", "double"),
        ("days", "array<date>"), ("whole", "array<bigint>"), ("most", "double"), *PANE_COLUMNS,
    ]  # fmt: skip
    side = [("reason", "string"), ("detail", "string"), ("record", "string")]
    folder = write(tmp_path / "in", table(50))
    for frame in (spark.createDataFrame(table(50)), stream(spark, folder)):
        begun = lw.from_spark(frame, time="at", watermark="1s")
        made = begun.key_by("key", "part").window(lw.FixedWindows("1m")).aggregate(**aggregates)
        assert made.to_spark(spark).dtypes == wanted
        every = made.to_spark(spark, outputs="all", drain=frame.isStreaming)
        assert every.dtypes == [("output", "string"), *wanted, *side]
        rows = (
            run(every, tmp_path / "checkpoint")[0]
            if frame.isStreaming
            else every.toArrow().to_pylist()
        )
        assert {tuple(row) for row in rows} == {tuple(name for name, _ in every.dtypes)}
        assert {row["timing"] for row in rows} <= {"EARLY", "ON_TIME", "LATE"}
        assert {row["kind"] for row in rows} == {"insert"}
