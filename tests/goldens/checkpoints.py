"""Goldens of Spark: checkpoints of queries of one level and of several, for each way to keep state.

The query that is resumed reads its further files from another folder than the one that was stopped:
in Spark's checkpoint are the paths of the files that were read, all of which are committed.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import tarfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import lowwater as lw
from lowwater.engine.graph.graph import Graph
from lowwater.engine.local.compatibility import describe_stages
from lowwater.spark.session import CHECKS
from lowwater.spark.versioned import RocksBackend
from lowwater.state.codec import encode
from tests.goldens.golden import packed
from tests.goldens.rows import FIRST, LATER, SCHEMA, rows
from tests.goldens.windows import NO_NAN, OFTEN, SECOND, Range, Total, read

CHECKPOINTS = Path(__file__).parent / "checkpoints"
_ZONE = "spark.sql.session.timeZone"
TYPES = {
    "range": "array<bigint>", "own": "bigint", "count": "bigint", "text": "string", "due": "bigint",
}  # fmt: skip


class Small:
    """Keeps something in each kind of cell, and has timers of both clocks."""

    count = lw.value_cell(0)
    real = lw.value_cell(dtype="float64")
    names = lw.list_cell()
    by_name = lw.map_cell()
    seen = lw.set_cell()
    total = lw.combining_cell(lw.sum())
    history = lw.ordered_cell()
    alarm = lw.timer()
    look = lw.timer(domain="processing")

    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        ctx.count.set(ctx.count.get() + 1)
        ctx.real.set(ctx.count.get() / 8)
        ctx.names.append(record["s"])
        ctx.by_name[record["d"]] = record["dec"]
        ctx.seen.add((record["by"], record["b"]))
        ctx.total.add(record["id"])
        ctx.history.add(ctx.time, record["id"])
        ctx.alarm.set(ctx.time + 25 * SECOND, output_time=ctx.time, tag=record["id"] % 2)
        ctx.look.set(ctx.clock + 31 * SECOND, output_time=ctx.time)
        ctx.emit({"count": ctx.count.get(), "text": "record"})

    def on_timer(self, name: str, ctx: lw.ProcessContext) -> None:
        text = (
            name, ctx.tag, ctx.real.get(), ctx.names.get(), sorted(ctx.by_name.items()),
            sorted(ctx.seen, key=str), ctx.total.get(), list(ctx.history.range()),
        )  # fmt: skip
        ctx.emit({"count": ctx.count.get(), "text": str(text), "due": ctx.due})


def one_level() -> list[Any]:
    """Stages of the kinds that read sources, in one operator of Spark's."""
    left, right = read("left"), read("right")
    narrow = [side.select("at", "arrived", "key", "v") for side in (left, right)]
    keyed = left.filter(NO_NAN).key_by("key")
    often: Any = {"trigger": OFTEN, "allowed_lateness": "20s"}
    return [
        keyed.window(lw.Sessions("9s"), accumulation="retracting", **often)
        .aggregate(
            n=lw.count(), total=lw.sum("v"), texts=lw.collect("s"), last_dec=lw.last("dec"),
            most_d=lw.max("d"), range=lw.combine(Range(), "id"),
        )
        .named("sessions"),
        keyed.window(lw.FixedWindows("40s"), accumulation="accumulating", **often)
        .aggregate(
            n=lw.count(), mean_f=lw.mean("f"), std_f=lw.std("f"), least=lw.min("s"),
            distinct=lw.count_distinct("dec"), first_t=lw.first("t"), some=lw.any("b"),
        )
        .named("fixed"),
        left.key_by("big", "d")
        .window(lw.SlidingWindows("60s", "20s"), accumulation="discarding", **often)
        .aggregate(n=lw.count(), total=lw.sum("v"), own=lw.combine(Total(), "id"))
        .named("sliding"),
        left.key_by("key").process(Small()).named("process"),
        left.key_by("key").process(Small(), order="event_time").named("ordered"),
        narrow[0]
        .join(narrow[1], on="key", within="20s", how="outer", unmatched="early")
        .named("pairs"),
        narrow[0].join(narrow[1], on="key", within=lw.FixedWindows("40s"), how="left").named("met"),
        narrow[0]
        .join_as_of(narrow[1], on="key", late_versions="correct", keep="70s")
        .named("valued"),
    ]  # fmt: skip


def several_levels() -> list[Any]:
    """Stages over stages: duplicates, retractions, a process, and tables."""
    left, right = read("left"), read("right")
    sessions = (
        left.deduplicate(id="id", within="60s")
        .key_by("key")
        .window(lw.Sessions("9s"), trigger=OFTEN, accumulation="retracting", allowed_lateness="20s")
        .aggregate(n=lw.count(), total=lw.sum("v"), most=lw.max("id"))
        .named("sessions")
    )
    sums = (
        sessions.key_by(parity=lw.col("n") % 2)
        .window(lw.FixedWindows("60s"), trigger=OFTEN, accumulation="retracting")
        .aggregate(sessions=lw.count(), total=lw.sum("total"), mosts=lw.collect("most"))
        .named("sums")
    )
    newest = sums.key_by("sessions").process(Counting()).named("counting")
    people = left.select("at", "arrived", "key", "v").table(key="key", order="v").named("people")
    kept = right.select("at", "arrived", "key", "id").table(key="id").named("kept")
    groups = (
        kept.join(people, left_on="key", right_on="key", how="left")
        .named("both")
        .group_by("v")
        .aggregate(rows=lw.count(), most=lw.max("id"))
        .named("groups")
    )
    return [sessions, sums, newest, groups.changes()]


def two_levels() -> list[Any]:
    """Sessions, and windows and a process over them."""
    sessions = (
        read("left")
        .key_by("key")
        .window(lw.Sessions("9s"), trigger=OFTEN, accumulation="retracting", allowed_lateness="20s")
        .aggregate(n=lw.count(), total=lw.sum("v"), most=lw.max("id"))
        .named("sessions")
    )
    sums = (
        sessions.key_by(parity=lw.col("n") % 2)
        .window(lw.FixedWindows("60s"), trigger=OFTEN, accumulation="retracting")
        .aggregate(sessions=lw.count(), total=lw.sum("total"), mosts=lw.collect("most"))
        .named("sums")
    )
    counts = sessions.key_by("n").process(Counting()).named("counting")
    return [sessions, sums, counts]


def matches() -> list[Any]:
    """Row patterns in one operator of Spark's."""
    keyed = read("left").select("at", "arrived", "id", "key", "v", "s").key_by("key")
    rises = {"up": lw.col("v") > lw.prev("v")}
    measures: dict[str, Any] = {
        "ups": lw.count(of="up"), "texts": lw.collect("s"), "last": lw.matched().last("id"),
    }  # fmt: skip
    options: dict[str, Any] = {"define": rises, "within": "70s", "allowed_lateness": "50s"}
    return [
        keyed.match("low up+", measures=measures, **options).named("rising"),
        keyed.match("low .. up", measures=measures, rows="all", order="id", **options).named("all"),
    ]


def matches_between() -> list[Any]:
    """Row patterns over windows, and windows over row patterns."""
    sessions = (
        read("left")
        .key_by("key")
        .window(lw.Sessions("9s"), trigger=OFTEN, accumulation="retracting", allowed_lateness="20s")
        .aggregate(n=lw.count(), most=lw.max("id"))
        .named("sessions")
    )
    grown = (
        sessions.key_by("key")
        .match(
            "some more",
            define={"more": lw.col("n") > lw.prev("n")},
            measures={"n": lw.last("n"), "most": lw.max("most")},
            within="80s",
        )
        .named("grown")
    )
    sums = (
        grown.key_by("n")
        .window(lw.FixedWindows("60s"), trigger=OFTEN, accumulation="retracting")
        .aggregate(times=lw.count(), mosts=lw.collect("most"))
        .named("sums")
    )
    return [grown, sums]


class Counting:
    """Counts what a stage inserts and retracts."""

    count = lw.value_cell(0)

    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        ctx.count.set(ctx.count.get() + (1 if record["kind"] == "insert" else -1))
        ctx.emit({"count": ctx.count.get()})


@final
@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A query, and how it keeps its state.

    Args:
        name: The name of the golden.
        outputs: Returns the outputs of the query.
        state: The state backend.
        operator: The option of that name.
        chains: Whether graphs of several levels run on ``applyInPandasWithState``.
    """

    name: str
    outputs: Callable[[], list[Any]]
    state: str = "inline"
    operator: Literal["mapInArrow"] | None = None
    chains: bool = False

    @property
    def archive(self) -> Path:
        """The archive of its files."""
        return CHECKPOINTS / f"{self.name}.tar.xz"

    def described(self) -> bytes:
        """Return what is stored in each cell to describe the pipelines; their input is there."""
        graph = Graph.of(dict.fromkeys(output._stage for output in self.outputs()))
        return encode(describe_stages(graph))

    def frame(self, spark: SparkSession) -> DataFrame:
        """Return the query over the files in the current folder."""
        location = Path("state").absolute() if self.operator or self.state != "inline" else None
        state: Any = self.state
        if self.state != "inline" and self.operator is None:
            state, location = RocksBackend(str(location), cache=str(Path("cache").absolute())), None
        frame: DataFrame = lw.to_spark(
            spark, *self.outputs(), state=state, state_location=location, key_groups=3,
            operator=self.operator, files_per_batch=1, outputs="all", types=TYPES,
        )  # fmt: skip
        return frame

    def run(self, spark: SparkSession) -> list[str]:
        """Run the query in the current folder over the files that are there; return its rows."""
        given: list[str] = []

        def keep(frame: DataFrame, number: int) -> None:
            given.extend(sorted(f"{number} {_row(row)}" for row in frame.toArrow().to_pylist()))

        # In the zone of the session are the times of rows, and of the records of dead letters.
        settings = {CHECKS: str(not self.chains).lower(), _ZONE: "UTC"}
        with _settings(spark, settings):
            query = (
                self.frame(spark)
                .writeStream.foreachBatch(keep)
                .option("checkpointLocation", str(Path("checkpoint").absolute()))
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
        return given


def feed(later: bool) -> None:
    """Write the files of both sides, the first parts or those that come later."""
    for side, folder in enumerate(("left", "right")):
        Path(folder).mkdir(exist_ok=True)
        for part in LATER if later else FIRST:
            path = Path(folder, f"{part}.parquet")
            pq.write_table(pa.Table.from_pylist(rows(part, side), SCHEMA), path)
            os.utime(path, (1_700_000_000 + part, 1_700_000_000 + part))


def freeze(golden: Checkpoint, spark: SparkSession, scratch: Path) -> None:
    """Write a golden: run its query, then resume a copy of it over what comes later."""
    folders = [scratch / name for name in (golden.name, "resumed")]
    for folder in folders:
        folder.mkdir(parents=True)
    with contextlib.chdir(folders[0]):
        feed(later=False)
        golden.run(spark)
        Path("stages").write_bytes(golden.described())
    data = packed(folders[0], _is_kept)
    _extract(data, folders[1])
    with contextlib.chdir(folders[1]):
        feed(later=True)
        expected = golden.run(spark)
    (folders[0] / _EXPECTED).write_text(json.dumps(expected, indent=0))
    golden.archive.parent.mkdir(exist_ok=True)
    golden.archive.write_bytes(packed(folders[0], _is_kept))


_EXPECTED = "expected.json"


def _is_kept(name: str) -> bool:
    """Return whether a file of the run is in the archive: the input and caches are not."""
    return name.partition("/")[0] in ("checkpoint", "state", "stages", _EXPECTED)


def unpack(golden: Checkpoint, folder: Path) -> list[str]:
    """Unpack a golden into a folder; return the rows to expect."""
    _extract(golden.archive.read_bytes(), folder)
    _move_metadata(folder)
    expected: list[str] = json.loads((folder / _EXPECTED).read_text())
    return expected


def _move_metadata(folder: Path) -> None:
    """Tell Spark's metadata of operators where the checkpoint is now.

    Those of ``transformWithState`` name the files of Spark's own schemas by absolute paths. Nothing
    of ours is in there.
    """
    for path in (folder / "checkpoint" / "state").glob("*/_metadata/*/*"):
        if path.suffix == ".crc":
            path.unlink()
            continue
        text = path.read_text()
        path.write_text(re.sub(r"file:[^\"]*?/checkpoint/", f"file:{folder}/checkpoint/", text))


def _extract(data: bytes, folder: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        archive.extractall(folder, filter="data")


def _row(row: Mapping[str, Any]) -> str:
    """Return a row as text; columns without a value are left out, and so are details."""
    return str({n: v for n, v in sorted(row.items()) if v is not None and n != "detail"})


@contextlib.contextmanager
def _settings(spark: SparkSession, given: Mapping[str, str]) -> Iterator[None]:
    before = {name: spark.conf.get(name, None) for name in given}
    for name, value in given.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


QUERIES: Mapping[str, Checkpoint] = {
    golden.name: golden
    for golden in (
        Checkpoint(name="one-level-inline", outputs=one_level),
        Checkpoint(name="one-level-rocksdb", outputs=one_level, state="rocksdb"),
        Checkpoint(name="levels-pandas", outputs=several_levels, chains=True),
        Checkpoint(name="levels-transform-rocksdb", outputs=two_levels, state="rocksdb"),
        Checkpoint(
            name="levels-arrow-rocksdb", outputs=several_levels, operator="mapInArrow",
            state="rocksdb",
        ),
        Checkpoint(name="matches-inline", outputs=matches),
        Checkpoint(name="matches-rocksdb", outputs=matches, state="rocksdb"),
        Checkpoint(name="matches-between-pandas", outputs=matches_between, chains=True),
        Checkpoint(
            name="matches-between-arrow-rocksdb", outputs=matches_between, operator="mapInArrow",
            state="rocksdb",
        ),
    )
}  # fmt: skip
