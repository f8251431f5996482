"""Goldens of the edges: readers and their positions, watermarks, sinks, and limits of memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final
from unittest import mock

import pyarrow as pa

import lowwater as lw
from lowwater.engine.graph.sources import Position
from lowwater.engine.local import memory_budget
from lowwater.engine.records.batch import Records
from lowwater.engine.window import spilling
from lowwater.io.sinks import (
    Compaction,
    JsonLinesFile,
    JsonLinesFolder,
    ParquetFolder,
    SqliteTable,
)
from lowwater.pipeline import Pipeline, Stream
from lowwater.pipeline.outputs import Writing
from lowwater.windows import WindowFunction
from tests.goldens.golden import Golden
from tests.goldens.rows import (
    FIRST,
    LATER,
    START,
    feed_csv,
    feed_far,
    feed_jsonl,
    feed_log,
    feed_parquet,
    feed_sides,
    plain,
)
from tests.goldens.windows import CLOCK, NO_NAN, OFTEN, SUMS, read, written

STILL = lw.ManualClock(START)
_PLAIN = pa.schema({"at": pa.string(), "key": pa.string(), "v": pa.int64(), "s": pa.string()})


@final
@dataclass(frozen=True)
class Counted:
    """A source of a user's own: a number of parts of the input, and a position of its own kind.

    Args:
        parts: How many parts there are; more of them later is no other source.
        size: The rows of a batch.
    """

    parts: Any = None
    size: int = 7
    schema = _PLAIN

    def batches(self, size: int, keys: tuple[str, ...]) -> Iterator[Records]:
        return (records for records, _ in self.batches_from(None, size, keys))

    def batches_from(
        self, position: Position | None, size: int, keys: tuple[str, ...]
    ) -> Iterator[tuple[Records, Position]]:
        everything = [row for part in (*FIRST, *LATER) for row in plain(part)]
        start: int = 0 if position is None else position["row"]
        for at in range(start, len(everything), self.size):
            some = everything[at : at + self.size]
            table = pa.Table.from_pylist(some, _PLAIN).combine_chunks()
            after = {
                "row": at + len(some),
                "of": ["rows", (len(everything), None)],
                "seen": {"x": at},
            }
            yield Records.from_arrow(table.to_batches()[0]), after


def feed_readers(later: bool) -> None:
    """Write the input of every reader."""
    feed_jsonl(later, "lines")
    feed_jsonl(later, "zipped", zipped=True)
    feed_csv(later, "csv")
    feed_log(later, "log")


def _sums(stream: Stream, name: str) -> Pipeline:
    often = lw.AfterWatermark(early=lw.AfterCount(4), late=lw.AfterCount(1))
    return (
        stream.key_by("key")
        .window(
            lw.FixedWindows("40s"),
            trigger=often,
            accumulation="accumulating",
            allowed_lateness="20s",
        )
        .aggregate(n=lw.count(), v=lw.sum("v"), values=lw.collect("v"))
        .named(name)
    )


def readers() -> list[Writing]:
    """Every reader that needs no server, alone and united with others."""
    patient = lw.BoundedDisorder("8s")
    lines = lw.read_jsonl("lines", time="at", watermark=patient).named("lines")
    zipped = lw.read_jsonl("zipped/*.gz", time="at", watermark=patient).named("zipped")
    csv = lw.read_csv(["csv"], time="at", types={"v": "int64"}, watermark=patient).named("csv")
    log = lw.read_log(
        "log", time="at", watermark=lw.PerPartition(patient, expected=range(2))
    ).named("log")
    part = lw.read_log("log", time="at", partitions=1, start=2, watermark=patient).named("part")
    own = lw.from_source(Counted(), time="at", watermark=patient).named("own")
    of = {"lines": lines, "zipped": zipped, "csv": csv, "log": log, "part": part, "own": own}
    every = [each.select("at", "key", "v") for each in (lines, csv, log)]
    united = (
        every[0]
        .union(*every[1:])
        .key_by("key")
        .window(lw.Sessions("9s"), trigger=lw.Always(), accumulation="retracting")
        .aggregate(n=lw.count(), v=lw.sum("v"))
        .named("united")
    )
    return written(*(_sums(stream, f"of {name}") for name, stream in of.items()), united)


def watermarks() -> list[Writing]:
    """Every estimator of watermarks, with idle sources and a limit to the future."""
    minima = {f"in/{part}.parquet": START for part in (*FIRST, *LATER)}
    estimators: dict[str, tuple[lw.WatermarkEstimator, dict[str, Any]]] = {
        "ascending": (lw.Ascending(), {}),
        "idle": (lw.BoundedDisorder("8s"), {"idle_after": "10s", "max_ahead": "5s"}),
        "partitions": (lw.PerPartition(lw.BoundedDisorder("8s"), by="part", idle_after="40s"), {}),
        "learned": (lw.PerPartition(lw.Quantile(0.8, warm_up=5, most="30s"), by="key"), {}),
        "quantile": (lw.Quantile(0.9, warm_up=10, memory=20, least="1s"), {}),
        "punctuated": (lw.Punctuated("complete"), {}),
        "files": (lw.FinishedFiles(minima), {}),
    }
    found = []
    for name, (estimator, more) in estimators.items():
        stream = lw.read_parquet("in", time="at", watermark=estimator, clock=CLOCK, **more)
        keyed = (
            stream.named(name)
            .key_by("key")
            .window(
                lw.FixedWindows("20s"),
                trigger=OFTEN,
                accumulation="discarding",
                allowed_lateness="5s",
            )
        )
        found.append(keyed.aggregate(n=lw.count()).named(f"with {name}"))
    return written(*found)


def _panes(records: Stream) -> Pipeline:
    return (
        records.filter(NO_NAN)
        .key_by("key")
        .window(lw.FixedWindows("20s"), trigger=OFTEN, accumulation="accumulating")
        .aggregate(n=lw.count(), f=lw.sum("f"), s=lw.collect("s"), d=lw.max("d"), dec=lw.min("dec"))
        .named("panes")
    )


def sinks() -> list[Writing]:
    """Every sink that needs no server, of which some have the last delivery and others do not."""
    Path("out").mkdir(exist_ok=True)
    everything = read()
    panes = _panes(everything)
    records = everything.select("at", "id", "v").with_columns(twice=lw.col("v") * 2)
    return [
        panes.write_to(
            ParquetFolder("out/parquet"),
            JsonLinesFolder("out/lines"),
            JsonLinesFile("out/one.jsonl"),
            SqliteTable("out/tables.sqlite", "panes"),
        ),
        panes.filter(lw.col("n") > 1).key_by("n").process(Passing()).write_jsonl("out/many.jsonl"),
        records.write_to(JsonLinesFile("out/records.jsonl"), ParquetFolder("out/records")),
    ]


class Passing:
    """Emits what it receives."""

    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        ctx.emit({"n": record["n"], "f": record["f"]})


def compacted() -> list[Writing]:
    """Folders in which deliveries collect until they are worth a file."""
    never = Compaction(size="1GB", age="36500d")
    records = read()
    panes = _panes(records)
    ids = records.key_by("key").process(Ids()).named("ids")
    return [
        panes.write_jsonl("out/lines", compact=never),
        ids.write_parquet("out/parquet", compact=never),
    ]


class Ids:
    """Emits the id of each record."""

    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        ctx.emit({"id": record["id"]})


def followed() -> list[Writing]:
    """Folders that are followed."""
    files = lw.read_parquet(
        "in", time="at", watermark=lw.BoundedDisorder("8s"), follow=True, stop=lambda: True,
        clock=CLOCK,
    ).named("followed")  # fmt: skip
    lines = lw.read_jsonl(
        "lines", time="at", watermark=lw.BoundedDisorder("8s"), follow=True, stop=lambda: True,
        clock=CLOCK,
    ).named("lines")  # fmt: skip
    return written(_sums(files, "of files"), _sums(lines, "of lines"))


def feed_followed(later: bool) -> None:
    """Write files to be followed."""
    feed_parquet(later)
    feed_jsonl(later, "lines")


def far() -> list[Writing]:
    """Files of which more than one batch is read, and nothing has a name."""
    found = []
    for reader, folder in ((lw.read_parquet, "in"), (lw.read_csv, "csv"), (lw.read_jsonl, "lines")):
        watermark = None if reader is lw.read_csv else lw.Ascending()
        stream = reader(folder, time="at", watermark=watermark)
        windows = stream.key_by("k").window(lw.FixedWindows("60s"))
        found.append(windows.aggregate(n=lw.count()).write_jsonl(f"out/{folder}"))
    return found


def little_memory() -> AbstractContextManager[Any]:
    """Have windows, joins and tables leave memory at once, and come back a few at a time."""
    patched = ExitStack()
    patched.enter_context(mock.patch.object(memory_budget, "_LEAST", 0))
    patched.enter_context(mock.patch.object(spilling, "AT_ONCE", 9))
    return patched


def spilled() -> list[Writing]:
    """Windows, sessions, joins and tables that have left memory."""
    left, right = (
        read(name).select("at", "id", "key", "v", "s", "big") for name in ("left", "right")
    )
    kinds: tuple[WindowFunction, ...] = (
        lw.FixedWindows("20s"), lw.FixedWindows("20s"), lw.Sessions("9s"), lw.Sessions("30s"),
    )  # fmt: skip
    windows: list[Any] = [
        left.key_by("id" if at % 2 else "key")
        .window(kind, trigger=OFTEN, accumulation="retracting", allowed_lateness="40s")
        .aggregate(**SUMS)
        .named(f"spilled {at}")
        for at, kind in enumerate(kinds)
    ]
    windows.append(
        left.key_by("key")
        .window(
            lw.FixedWindows("20s"), trigger=lw.Repeatedly(lw.AfterProcessingTime("200s")),
            accumulation="discarding", allowed_lateness="40s", timestamps="earliest",
        )
        .aggregate(n=lw.count())
        .named("spilled with timers")
    )  # fmt: skip
    joined = left.join(right, on="key", within="60s", how="outer", unmatched="early").named(
        "joined"
    )
    valued = left.join_as_of(right, on="key", late_versions="correct").named("valued")
    in_windows = left.join(right, on="key", within=lw.FixedWindows("40s"), how="left").named("met")
    table = left.table(key="id", order="v", ttl="5m").named("rows")
    groups = (
        table.join(right.table(key="id").named("others"), on="id", how="outer")
        .named("both")
        .group_by("key")
        .aggregate(n=lw.count(), v=lw.sum("v"))
        .named("groups")
    )
    tables = [each.write_to(JsonLinesFolder(f"out/{each._stage.name}")) for each in (table, groups)]
    return [*written(*windows, joined, valued, in_windows), *tables]


def waiting() -> list[Writing]:
    """Records that wait for the watermark, of which some have been processed."""
    records = lw.read_parquet("in", time="at", watermark=lw.BoundedDisorder("50s"), clock=CLOCK)
    records = records.named("in")
    return written(
        records.key_by("part").process(Ids(), order="event_time").named("one by one"),
        records.key_by("part").process(Taking(), order="event_time").named("as columns"),
        records.key_by("part")
        .window(lw.FixedWindows("40s"), accumulation="discarding")
        .process(Ids(), order="event_time")
        .named("in windows"),
    )


class Taking:
    """Emits the id of each record, as columns."""

    def on_records(self, batch: Any, ctx: Any) -> None:
        ctx.emit({"id": batch["id"]}, ids=batch.ids, times=batch.times)


def advancing() -> list[Writing]:
    """Windows that are all due at once, of which some have been emitted."""
    records = lw.read_parquet("in", time="at", watermark=lw.BoundedDisorder("2h"), clock=CLOCK)
    windows = records.named("in").key_by("key").window(lw.FixedWindows("5s"))
    panes = windows.aggregate(n=lw.count(), v=lw.collect("v")).named("panes")
    above = panes.key_by("n").window(lw.FixedWindows("60s")).aggregate(m=lw.count()).named("above")
    return written(panes, above)


def feed_once(later: bool) -> None:
    """Write input to which nothing is added later."""
    if not later:
        feed_parquet(later)


GOLDENS = [
    Golden(name="readers", feed=feed_readers, outputs=readers, clock=STILL, stop=14),
    Golden(name="watermarks", feed=feed_parquet, outputs=watermarks, clock=CLOCK, stop=12),
    Golden(
        name="sinks", feed=feed_parquet, outputs=sinks, clock=CLOCK, stop=9, point="between sinks",
    ),
    Golden(name="compacted", feed=feed_parquet, outputs=compacted, clock=CLOCK, killed=False),
    Golden(
        name="compacted-killed", feed=feed_parquet, outputs=compacted, clock=CLOCK,
        point="after the write",
    ),
    Golden(name="followed", feed=feed_followed, outputs=followed, clock=CLOCK, stop=5),
    Golden(
        name="far", feed=feed_far, outputs=far, clock=STILL, stop=5,
        options={"bundle_size": 50_000},
    ),
    Golden(
        name="spilled", feed=feed_sides, outputs=spilled, clock=CLOCK, stop=6, killed=False,
        options={"memory_limit": "16MiB"}, first={"memory_limit": 4096}, setting=little_memory,
    ),
    Golden(
        name="spilled-with-headers", feed=feed_sides, outputs=spilled, clock=CLOCK, stop=6,
        killed=False, options={"memory_limit": "16MiB"}, first={"memory_limit": 4096},
        setting=little_memory,
    ),
    Golden(
        name="advancing", feed=feed_once, outputs=advancing, clock=CLOCK, stop=9,
        options={"memory_limit": "16MiB"}, first={"memory_limit": 4096}, setting=little_memory,
    ),
    Golden(name="waiting", feed=feed_parquet, outputs=waiting, clock=CLOCK, stop=4),
    Golden(name="ended", feed=feed_once, outputs=advancing, clock=CLOCK, stop=None),
]  # fmt: skip
