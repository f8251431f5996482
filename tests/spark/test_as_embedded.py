"""What the steps and the files of a pipeline mean embedded, they mean on Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import narwhals as nw
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lowwater as lw
from lowwater.errors import DataError
from lowwater.spark import counts
from tests.examples import sampled
from tests.spark.test_to_spark import (
    SECOND,
    START,
    Rows,
    cut,
    embedded,
    plain,
    run,
    stream,
    table,
    write,
)

MINUTE = lw.FixedWindows("1m")
NO_DATA = "spark.sql.streaming.noDataMicroBatches.enabled"
KEYED: dict[str, Callable[[lw.Stream], Any]] = {
    "replaced": lambda s: s.with_columns(key=lw.col("key").str.to_uppercase()).key_by("key"),
    "named": lambda s: s.key_by("part", first=lw.col("key").str.slice(0, 1)),
    "selected": lambda s: s.select(
        "value", "score", key=lw.col("key").str.slice(4, 1), part=lw.col("part") % 2
    ).key_by("key", "part"),
    "made before a function": lambda s: (
        s.with_columns(half=lw.col("value") // 2)
        .filter(lambda record: record["part"] != 1)
        .key_by("half")
    ),
    "native": lambda s: s.with_columns(again=lw.col("key")).key_by("again"),
}


def shown(keyed: Any) -> Any:
    windowed = keyed.window(MINUTE, allowed_lateness="1m", accumulation="accumulating")
    return windowed.aggregate(n=lw.count(), total=lw.sum("value"), mean=lw.mean("score"))


@pytest.mark.parametrize("name", sampled(KEYED, every=2))
def test_keys_that_steps_make_are_grouped_as_they_come_out(spark: Any, name: str) -> None:
    """A key is in one key group, whatever it was before the steps."""
    data = table(400)
    frame = spark.createDataFrame(data).repartition(3)
    made = shown(KEYED[name](lw.from_spark(frame, time="at", watermark="5s")))
    rows = made.to_spark(spark, key_groups=16).toArrow().to_pylist()
    assert plain(rows) == plain(embedded(shown(KEYED[name](lw.from_arrow(data, time="at")))))


@pytest.mark.long(reason="repeats the proof in a stream")
def test_so_they_are_in_streams(spark: Any, tmp_path: Path) -> None:
    data = table(400)
    kept = lw.from_arrow(data, time="at", watermark=lw.BoundedDisorder("5s"))
    wanted = embedded(shown(KEYED["replaced"](kept)), bundle_size=200)
    folder = write(tmp_path / "in", *cut(data, 200))
    begun = lw.from_spark(stream(spark, folder), time="at", watermark="5s")
    made = shown(KEYED["replaced"](begun)).to_spark(spark, key_groups=16, drain=True)
    rows, _ = run(made, tmp_path / "checkpoint")
    assert plain(rows) == plain(wanted)


def test_columns_have_whatever_names(spark: Any) -> None:
    """Spark takes names that differ by case for one; dots and backticks mean something to it."""
    data = pa.table({"at": [START] * 3, "a`b": ["x", "y", "x"], "c.d": [1, 2, 3], "v": [1.0, 2, 3]})

    def made(begun: lw.Stream) -> lw.Pipeline:
        more = begun.with_columns(V=lw.col("v") * 2.0).filter(lambda record: record["c.d"] > 0)
        windowed = more.key_by("a`b").window(MINUTE)
        return windowed.aggregate(total=lw.sum("c.d"), v=lw.sum("v"), twice=lw.sum("V"))

    begun = lw.from_arrow(data, time="at")
    rows = made(begun).to_spark(spark).toArrow().to_pylist()
    assert plain(rows) == plain(embedded(made(begun)))
    by_length = (
        begun.key_by(n=lw.col("a`b").str.len_chars()).window(MINUTE).aggregate(n2=lw.count())
    )
    assert [row["n2"] for row in by_length.to_spark(spark).collect()] == [3]


@pytest.mark.parametrize("native", sampled([False, True], every=2))
def test_unreadable_lines_pass_the_steps(spark: Any, tmp_path: Path, native: bool) -> None:
    """They are dead letters, not records for which a condition does not hold."""
    folder = tmp_path / "in"
    folder.mkdir()
    record = {"at": "2000-01-01T12:00:00Z", "key": "a", "v": 5}
    lines = [json.dumps(record), "{'not': 1}", json.dumps(record | {"v": 0})]
    (folder / "a.jsonl").write_text("\n".join(lines))
    begun = lw.read_jsonl(folder, time="at", watermark=lw.Ascending())
    if native:
        kept = begun.filter(lw.col("v") > 1)
    else:
        kept = begun.filter(lambda one: one["v"] > 1).with_columns(
            key=lw.col("key").str.to_uppercase()
        )
    made = kept.key_by("key").window(MINUTE).aggregate(n=lw.count())
    assert [error.reason for error in made.collect().errors] == ["malformed_json"]
    rows, progress = run(made.to_spark(spark, outputs="all", drain=True), tmp_path / "checkpoint")
    panes = [(row["key"], row["n"]) for row in rows if row["output"] == "pane"]
    assert panes == [("a" if native else "A", 1)]
    (letter,) = [row for row in rows if row["output"] == "dead_letter"]
    assert (letter["reason"], json.loads(letter["record"])) == ("malformed_json", "{'not': 1}")
    assert sum(counts(one)["lowwater"]["dead_letters"] for one in progress) == 1


@pytest.mark.parametrize("carried", sampled([True, False], every=2))
def test_a_source_says_how_far_ahead_times_may_be(
    spark: Any, tmp_path: Path, carried: bool
) -> None:
    """Of the clock that the records carry, where they do: of what is replayed, all is long ago."""
    wrong = START + 3_600 * SECOND if carried else 32_503_680_000 * SECOND
    data = pa.table(
        {"at": [START, wrong, START + SECOND], "key": ["A"] * 3, "came": [START + SECOND] * 3}
    )
    made = shown_count(
        lw.read_parquet(
            write(tmp_path / "in", data),
            time="at",
            watermark=lw.Ascending(),
            max_ahead="1m",
            clock=lw.ArrivalClock("came") if carried else None,
        )
    )
    wanted = made.collect()
    assert [error.reason for error in wanted.errors] == ["too_far_ahead"]
    rows, _ = run(made.to_spark(spark, outputs="all", drain=True), tmp_path / "checkpoint")
    assert [(row["output"], row["n"] or row["reason"]) for row in rows] == [
        ("dead_letter", "too_far_ahead"),
        ("pane", 2),
    ]


def shown_count(begun: lw.Stream) -> lw.Pipeline:
    return begun.key_by("key").window(MINUTE).aggregate(n=lw.count())


@pytest.mark.long(reason="test_to_spark has another arrival clock")
def test_arrival_times_without_a_zone_mean_what_event_times_do(spark: Any, tmp_path: Path) -> None:
    local = pa.timestamp("us")
    parts = [
        pa.table({"at": pa.array([START], local), "key": ["A"],
                  "came": pa.array([START + at * SECOND], local)})
        for at in (1, 7)
    ]  # fmt: skip
    begun = lw.read_parquet(
        write(tmp_path / "in", *parts),
        time="at",
        watermark=lw.BoundedDisorder("1h"),
        clock=lw.ArrivalClock("came", tick="5s"),
        timezone="UTC",
    )
    made = (
        begun.key_by("key")
        .window(
            lw.FixedWindows("1d"),
            trigger=lw.AfterWatermark(early=lw.AfterProcessingTime("5s")),
            accumulation="accumulating",
        )
        .aggregate(n=lw.count())
    )
    rows, _ = run(made.to_spark(spark, files_per_batch=1, drain=True), tmp_path / "checkpoint")
    assert plain(rows, but=()) == plain(embedded(made), but=())
    assert {row["timing"] for row in rows} == {"EARLY", "ON_TIME"}


@pytest.mark.parametrize("files", [True, False])
def test_times_without_a_zone_mean_what_they_mean_embedded(
    spark: Any, tmp_path: Path, files: bool
) -> None:
    """Spark's session has a time zone of its own: it plays no part, in keys and values neither."""
    local = pa.array([START + at * 600 * SECOND for at in range(20)], pa.timestamp("us"))
    data = pa.table({"at": local, "key": local, "value": local})
    options: dict[str, Any] = {"time": "at", "timezone": "Europe/Berlin"}
    begun = lw.from_arrow(data, **options)
    if files:
        begun = lw.read_parquet(write(tmp_path / "in", data), **options)
    windowed = begun.key_by("key").window(lw.FixedWindows("1h"))
    made = windowed.aggregate(n=lw.count(), most=lw.max("value"))
    rows = made.to_spark(spark, drain=files)
    given = run(rows, tmp_path / "checkpoint")[0] if files else rows.toArrow().to_pylist()
    assert plain(given) == plain(embedded(made))


def test_csv_goes_by_its_header(spark: Any, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    at = "2000-01-01T12:00:00Z"
    text = f'at,key,v\n{at},A,5\n{at},,6\n{at},"",7\n{at},A,\n{at},"B ""b"", \\\nc",8\n'
    (folder / "a.csv").write_text(text)
    made = lw.read_csv(folder, time="at", watermark=lw.Ascending()).key_by("key")
    pipeline = made.window(MINUTE).aggregate(n=lw.count(), total=lw.sum("v"))
    wanted = pipeline.collect()
    assert [(pane.key, pane.values["total"]) for pane in wanted.panes] == [
        ("A", 5),
        ("", 7),
        ('B "b", \\\nc', 8),
    ]
    options: dict[str, Any] = {"outputs": "all", "drain": True, "files_per_batch": 1}
    rows, _ = run(pipeline.to_spark(spark, **options), tmp_path / "checkpoint")
    panes = [(row["key"], row["n"], row["total"]) for row in rows if row["output"] == "pane"]
    assert sorted(panes) == [("", 1, 7), ("A", 2, 5), ('B "b", \\\nc', 1, 8)]
    reasons = [row["reason"] for row in rows if row["output"] == "dead_letter"]
    assert reasons == [error.reason for error in wanted.errors] == ["null_key"]
    (folder / "b.csv").write_text(f"at,v,key\n{at},1,2\n")  # by place, all would be well
    with pytest.raises(Exception, match="CSV header does not conform"):
        run(pipeline.to_spark(spark, **options), tmp_path / "another")


@pytest.mark.parametrize(
    "places",
    sampled([["one", "two"], ["one/000.parquet"], ["one"]], every=3),
)
def test_paths_lead_to_the_files_they_lead_to_embedded(
    spark: Any, tmp_path: Path, places: list[str]
) -> None:
    """All below a folder, but what is called otherwise; one file; several places at once."""
    first = write(tmp_path / "one", table(20), table(30, seed=2))
    write(first / "below", table(40, seed=3))
    (first / "notes.txt").write_text("no table")
    write(tmp_path / "two", table(50, seed=4))
    paths: Any = [tmp_path / place for place in places]
    read = paths if len(paths) > 1 else paths[0]
    made = shown_count(lw.read_parquet(read, time="at", watermark=lw.BoundedDisorder("1d")))
    rows, _ = run(made.to_spark(spark, drain=True), tmp_path / "checkpoint")
    assert sorted((r["key"], r["n"]) for r in rows) == sorted(
        (pane.key, pane.value) for pane in made.run()
    )


def test_integers_do_not_wrap_on_their_way(spark: Any) -> None:
    data = pa.table({"at": [START], "key": ["A"], "v": pa.array([2**63 + 5], pa.uint64())})
    made = lw.from_arrow(data, time="at").key_by("key").window(MINUTE).aggregate(v=lw.max("v"))
    with pytest.raises(DataError, match="no int64"):
        made.to_spark(spark)


def test_an_end_that_a_dead_driver_missed_comes_with_an_empty_file(
    spark: Any, tmp_path: Path
) -> None:
    """Between the last records and the micro-batch that ends the input, nothing is to be done."""
    folder = write(tmp_path / "in", table(100))

    def made() -> Any:
        begun = lw.from_spark(stream(spark, folder), time="at", watermark="1h")
        return shown_count(begun).to_spark(spark, drain=True)

    def once() -> Rows:
        return run(made(), tmp_path / "checkpoint")[0]

    begun = made()
    spark.conf.set(NO_DATA, "false")  # as if the driver had died
    try:
        assert not run(begun, tmp_path / "checkpoint")[0]
    finally:
        spark.conf.unset(NO_DATA)
    assert not once()
    write(folder, table(0))
    assert sum(row["n"] for row in once()) == 100


def failing_record(record: Any) -> Any:
    if record["n"] % 10 == 7:
        raise ValueError(record["n"])
    return record


def test_records_for_which_steps_fail_are_the_same_dead_letters(spark: Any) -> None:
    """Expressions always; Python functions where the option says that they are set aside."""
    size = 60
    data = pa.table(
        {
            "at": [START + n * SECOND for n in range(size)],
            "key": ["A", "B"] * (size // 2),
            "n": list(range(size)),
            "v": [f"x{n}" if n % 3 == 1 else str(n) for n in range(size)],
        }
    )

    def sums(source: Any) -> Any:
        steps = source.map(failing_record).with_columns(i=lw.col("v").cast(nw.Int64))
        kept = steps.filter(2 ** lw.col("i") > -1).key_by("key")
        return kept.window(lw.FixedWindows("1h")).aggregate(n=lw.count(), total=lw.sum("i"))

    wanted = sums(lw.from_arrow(data, time="at")).collect(on_error="dead_letter")
    assert {error.reason for error in wanted.errors} == {"bad_expression", "function_failed"}
    made = sums(lw.from_spark(spark.createDataFrame(data), time="at"))
    types = {"key": "string", "total": "bigint"}
    rows = made.to_spark(spark, outputs="all", on_error="dead_letter", types=types)
    found = rows.toArrow().to_pylist()
    letters = sorted(
        (json.loads(row["record"])["n"], row["reason"], row["detail"])
        for row in found
        if row["output"] == "dead_letter"
    )
    assert letters == sorted((e.record["n"], e.reason, e.detail) for e in wanted.errors)
    panes = sorted((r["key"], r["n"], r["total"]) for r in found if r["output"] == "pane")
    assert panes == sorted((p.key, p.values["n"], p.values["total"]) for p in wanted.panes)
    with pytest.raises(Exception, match="the function of map failed"):
        made.to_spark(spark, outputs="all", types=types).toArrow()


def test_files_of_parquet_that_differ_are_read_alike(spark: Any, tmp_path: Path) -> None:
    """Wider integers in a later file, a column that one lacks, and columns in the path."""
    parts = [
        {"at": pa.array([START, START + SECOND]), "v": pa.array([1, 2**31 - 1], pa.int32())},
        {"at": pa.array([START + 2 * SECOND]), "v": pa.array([2**40]), "w": ["x"]},
    ]
    for number, part in enumerate(parts):
        folder = tmp_path / f"in/day={number}/city=U%20{number}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table(part), folder / f"{number}.parquet")
    begun = lw.read_parquet(tmp_path / "in", time="at", watermark=lw.Ascending())
    made = (
        begun.with_columns(x=lw.col("v") * 4)
        .key_by("day", "city")
        .window(MINUTE)
        .aggregate(s=lw.sum("x"), m=lw.mean("v"), d=lw.var("v"), w=lw.collect("w"))
    )
    wanted = embedded(made)
    assert sorted((row["day"], row["city"], row["s"]) for row in wanted) == [
        (0, "U 0", 4 + 4 * (2**31 - 1)), (1, "U 1", 2**42),
    ]  # fmt: skip
    rows, _ = run(made.to_spark(spark, drain=True), tmp_path / "checkpoint")
    assert plain(rows) == plain(wanted)
    globbed = lw.read_parquet(f"{tmp_path}/in/*/*/*.parquet", time="at", watermark=lw.Ascending())
    with pytest.raises(lw.errors.UnsupportedByRunner, match=r"names of folders.*Give the folder"):
        globbed.key_by("day").window(MINUTE).aggregate(n=lw.count()).to_spark(spark)


def test_decimals_and_integers_are_exact_on_spark(spark: Any, tmp_path: Path) -> None:
    cents = [Decimal("1.10"), Decimal("0.05"), Decimal("-0.01")]
    data = pa.table({
        "at": [START + at * SECOND for at in range(3)], "key": ["A"] * 3,
        "price": pa.array(cents, pa.decimal128(9, 2)), "big": [2**53 + 1, 1, -(2**53)],
        "wide": [2**62, 2**62, -(2**62)],
    })  # fmt: skip
    begun = lw.read_parquet(write(tmp_path / "in", data), time="at", watermark=lw.Ascending())
    made = begun.key_by("key").window(MINUTE).aggregate(
        s=lw.sum("price"), m=lw.mean("price"), b=lw.mean("big"), v=lw.var("big"), w=lw.sum("wide")
    )  # fmt: skip
    rows, _ = run(made.to_spark(spark, drain=True), tmp_path / "checkpoint")
    (row,) = rows
    assert (row["s"], row["m"]) == (Decimal("1.14"), Decimal("0.380000"))
    assert (row["b"], row["w"]) == (2 / 3, 2**62)
    assert plain(rows) == plain(embedded(made))
