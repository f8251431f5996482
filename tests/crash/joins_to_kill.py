"""Joins, tables and matches to kill: joins of two streams, two of them with a history, tables, and
row patterns with windows behind them.

The views are in files and in SQLite, and in PostgreSQL if the environment names a server.

::

    left ──┬─ pairs (outer, early) ── hours
           ├─ lone (anti) · met (semi) · valued (as of, corrected) · near (nearest)
           ├─ rises (row patterns) ── by rise
    right ─┴─ both (tables, joined) ── by name
"""

from __future__ import annotations

import os

import narwhals as nw

import lowwater as lw
from lowwater.engine.graph import sources
from lowwater.io.sinks import JsonLinesFolder, ParquetFolder, PostgresTable, Sink, SqliteTable
from tests.crash.killed_process import instructions

CLOCK = lw.ArrivalClock("arrived", tick="5s")


def main() -> None:
    """Run the joins over the files in the folder, until the end or death."""
    work = instructions()
    sources.READ_ROWS = 40  # so that the sources take turns
    place, out = work.folder / "in", work.folder / "out"
    left, right = (
        lw.read_parquet(
            str(place / side), time="at", watermark=lw.BoundedDisorder("8s"), clock=CLOCK
        ).named(side)
        for side in ("left", "right")
    )
    pairs = left.join(
        right, on="key", within=lw.between("-3s", "6s"), how="outer", unmatched="early",
        allowed_lateness="4s",
    ).named("pairs")  # fmt: skip
    hours = (
        pairs.key_by(all=lw.lit("all"))
        .window(lw.FixedWindows("30s"), accumulation="retracting")
        .aggregate(n=lw.count(), value=lw.sum("value"), other=lw.sum("value_right"))
        .named("hours")
    )
    lone = left.join(right, on="key", within="2s", how="anti").named("lone")
    met = left.join(right, on="key", within="2s", how="semi", allowed_lateness="3s").named("met")
    valued = left.join_as_of(
        right, on="key", order="value", late_versions="correct", keep="6s"
    ).named("valued")
    near = left.join_as_of(
        right, on="key", order="value", direction="nearest", tolerance="5s", keep="6s",
        late_versions="correct",
    ).named("near")  # fmt: skip
    rises = (
        left.key_by("key")
        .match(
            "low (up | again)+",
            define={
                "up": lw.col("value") > lw.prev("value"),
                "again": lw.col("value") >= lw.matched().first("value"),
            },
            measures={
                "ups": lw.count(of="up"), "names": lw.collect("name"), "most": lw.max("value"),
            },
            within="20s", allowed_lateness="5s", order="value",
        )
        .named("rises")
    )  # fmt: skip
    by_rise = (
        rises.key_by("ups")
        .window(lw.FixedWindows("30s"), accumulation="retracting")
        .aggregate(n=lw.count(), most=lw.max("most"))
        .named("by rise")
    )
    rows = left.table(key="name", order="value", ttl="60s").named("rows")
    rows = rows.with_columns(key=nw.when(lw.col("value") > -30).then(lw.col("key")))
    both = rows.join(right.table(key="key").named("keys"), on="key", how="left").named("both")
    by_key = both.group_by("key").aggregate(n=lw.count(), most=lw.max("value")).named("by key")
    both_in: list[Sink] = [SqliteTable(str(out / "view.sqlite"), "both")]
    by_key_in: list[Sink] = [SqliteTable(str(out / "view.sqlite"), "by_key")]
    if (dsn := os.environ.get("LOWWATER_DSN")) is not None:
        both_in.append(PostgresTable(dsn, f"both_{work.folder.name}"))
        by_key_in.append(PostgresTable(dsn, f"by_key_{work.folder.name}"))
    work.run(
        pairs.write_jsonl(out / "pairs"),
        hours.write_parquet(out / "hours"),
        lone.write_parquet(out / "lone"),
        met.write_jsonl(out / "met"),
        valued.write_jsonl(out / "valued"),
        near.write_jsonl(out / "near"),
        rises.write_jsonl(out / "rises"),
        by_rise.write_parquet(out / "by_rise"),
        both.write_to(JsonLinesFolder(str(out / "both")), *both_in),
        by_key.write_to(*by_key_in, ParquetFolder(str(out / "by_key"))),
        bundle_size=20,
    )


if __name__ == "__main__":
    main()
