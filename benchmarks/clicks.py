"""A whole pipeline on Spark: two million clicks, four levels, PostgreSQL, a driver killed twice.

::

    python -m benchmarks.clicks DIR
    python -m benchmarks.clicks DIR --operator transformWithStateInPandas

Clicks come in 24 files, a hundredth of them twice, and one in 200 up to 40 minutes late. They are
enriched (``map_batches``), deduplicated, made sessions of a user with an advertiser, and these into
what each advertiser spent in an hour, and that into the top of each hour. Sessions have early and
late panes; each stage retracts what the next ones have read. ``foreachBatch`` writes the outputs to
PostgreSQL in one transaction with the number of the micro-batch. The driver is killed twice. At the
end the tables must be what Polars makes of all clicks at once.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import lowwater as lw

FILES, BURSTS, LENGTH = 24, 200_000, 11
HOUR = 3_600_000_000
START = 472_222 * HOUR
ADVERTISERS = 40
GAP = "20m"
TABLES = {
    "sessions": ["visitor", "advertiser", "window_start", "window_end", "n", "spent"],
    "spending": ["advertiser", "window_start", "window_end", "sessions", "spent"],
    "top": ["place", "window_start", "window_end", "spent"],
}


def write_clicks(folder: Path, bursts: int = BURSTS) -> int:
    """Write the files, in order by their times of change; return how many clicks."""
    rng = np.random.default_rng(14)
    begin = np.sort(rng.integers(0, 6 * HOUR, bursts))
    at = (begin[:, None] + np.cumsum(rng.integers(0, 60_000_000, (bursts, LENGTH)), 1)).ravel()
    arrived = at + rng.integers(0, 30_000_000, at.size)
    late = rng.random(at.size) < 0.005
    arrived[late] += rng.integers(0, 40 * 60_000_000, int(late.sum()))
    visitor = np.repeat(rng.integers(0, 30_000, bursts), LENGTH)
    campaign = np.repeat(rng.integers(0, 10 * ADVERTISERS, bursts), LENGTH)
    cost = rng.integers(1, 500, at.size)
    id = np.arange(at.size)
    twice = rng.random(at.size) < 0.01
    rows = np.concatenate((id, id[twice]))
    again = arrived[twice] + rng.integers(0, 60_000_000, int(twice.sum()))
    order = np.argsort(np.concatenate((arrived, again)), kind="stable")
    rows = rows[order]
    clicks = pa.table(
        {
            "id": rows,
            "at": pa.array(START + at[rows]).view(pa.timestamp("us", "UTC")),
            "visitor": visitor[rows],
            "campaign": campaign[rows],
            "cost": cost[rows],
        }
    )
    folder.mkdir(parents=True)
    for number in range(FILES):
        low, high = (len(clicks) * edge // FILES for edge in (number, number + 1))
        path = folder / f"{number:02}.parquet"
        pq.write_table(clicks.slice(low, high - low), path)
        os.utime(path, (START // 1_000_000 + number,) * 2)
    return len(clicks)


def enriched(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Add the advertiser of each campaign, and what the click costs it."""
    advertiser = batch.column("campaign").to_numpy() // 10
    spent = batch.column("cost").to_numpy() * (1 + advertiser % 3)
    return batch.append_column("advertiser", pa.array(advertiser)).append_column(
        "spent", pa.array(spent)
    )


def pipelines(folder: Path) -> tuple[lw.Pipeline, ...]:
    """Return the outputs: sessions, spending by the hour, and the top of each hour."""
    clicks = lw.read_parquet(folder, time="at", watermark=lw.BoundedDisorder("1m"))
    patient: dict[str, Any] = {"accumulation": "retracting", "allowed_lateness": "45m"}
    sessions = (
        clicks.map_batches(enriched)
        .deduplicate(id="id", within="3h")
        .key_by("visitor", "advertiser")
        .window(
            lw.Sessions(GAP),
            trigger=lw.AfterWatermark(early=lw.AfterCount(8), late=lw.AfterCount(1)),
            **patient,
        )
        .aggregate(n=lw.count(), spent=lw.sum("spent"))
        .named("sessions")
    )
    spending = (
        sessions.key_by("advertiser")
        .window(lw.FixedWindows("1h"), trigger=lw.AfterWatermark(late=lw.AfterCount(1)), **patient)
        .aggregate(sessions=lw.count(), spent=lw.sum("spent"))
        .named("spending")
    )
    top = (
        spending.with_columns(place=lw.lit("everywhere"))
        .key_by("place")
        .window(lw.FixedWindows("1h"), trigger=lw.AfterWatermark(late=lw.AfterCount(1)), **patient)
        .aggregate(spent=lw.max("spent"))
        .named("top")
    )
    return sessions, spending, top


TYPES = {"visitor": "bigint", "advertiser": "bigint", "n": "bigint", "spent": "bigint"}


def drive(folder: Path, dsn: str, operator: str, state: str) -> None:
    """Run the query to the end of the files."""
    import psycopg
    from pyspark.sql import SparkSession

    import lowwater.spark

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false").config(
        "spark.log.level", "ERROR"
    )
    builder = builder.config("spark.driver.memory", "3g")
    chains = operator == "applyInPandasWithState"
    session = lowwater.spark.configure(builder, partitions=2, chains=chains).getOrCreate()
    frame = lw.to_spark(
        session, *pipelines(folder / "clicks"), drain=True, files_per_batch=1, types=TYPES,
        state=state, state_location=str(folder / "state") if state == "rocksdb" else None,
    )  # fmt: skip

    def write(rows: Any, epoch: int) -> None:
        with psycopg.connect(dsn) as database, lowwater.spark.split(rows) as outputs:
            if database.execute("SELECT 1 FROM epochs WHERE epoch = %s", [epoch]).fetchone():
                return
            for table, columns in TABLES.items():
                apply(database, table, columns, outputs[table].select(*columns, "kind").toArrow())
            database.execute("INSERT INTO epochs VALUES (%s, now())", [epoch])

    query = (
        frame.writeStream.foreachBatch(write)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    times = [one["durationMs"]["triggerExecution"] / 1000 for one in query.recentProgress]
    print(lowwater.spark.progress(query), "seconds a micro-batch:", times, flush=True)
    session.stop()


def apply(database: Any, table: str, columns: list[str], rows: pa.Table) -> None:
    """Insert and delete what is left when panes that come and go in one micro-batch cancel out."""
    import polars as pl

    found: Any = pl.from_arrow(rows)
    sign = pl.when(pl.col("kind") == "insert").then(1).otherwise(-1).sum().alias("weight")
    net = found.group_by(columns).agg(sign).filter(pl.col("weight") != 0)
    gone, come = (net.filter(pl.col("weight") == one).drop("weight") for one in (-1, 1))
    if len(gone) + len(come) < len(net):
        raise ValueError(f"{table}: a row came or went twice in one micro-batch")
    with database.cursor() as cursor:
        cursor.execute(f"CREATE TEMP TABLE gone (LIKE {table}) ON COMMIT DROP")
        for place, part in (("gone", gone), (table, come)):
            if place == table:
                same = " AND ".join(f"{table}.{name} = gone.{name}" for name in columns)
                cursor.execute(f"DELETE FROM {table} USING gone WHERE {same}")
                if cursor.rowcount != len(gone):
                    raise ValueError(f"{table}: {cursor.rowcount} of {len(gone)} were there")
                cursor.execute("DROP TABLE gone")
            with cursor.copy(f"COPY {place} ({', '.join(columns)}) FROM STDIN") as copy:
                for row in part.iter_rows():
                    copy.write_row(row)


def wanted(folder: Path) -> dict[str, Any]:
    """Return the tables that Polars makes of all clicks at once."""
    import polars as pl

    clicks = pl.read_parquet(folder / "clicks/*.parquet").unique("id").with_columns(
        advertiser=pl.col("campaign") // 10,
    ).with_columns(spent=pl.col("cost") * (1 + pl.col("advertiser") % 3))  # fmt: skip
    keys = ["visitor", "advertiser"]
    gap = pl.duration(minutes=20)
    new = (pl.col("at").diff().over(keys) >= gap).fill_null(True)
    sessions = (
        clicks.sort("at")
        .with_columns(session=new.cum_sum().over(keys))
        .group_by(*keys, "session")
        .agg(
            window_start=pl.col("at").min(),
            window_end=pl.col("at").max() + gap,
            n=pl.len().cast(pl.Int64),
            spent=pl.col("spent").sum(),
        )
    )
    last = pl.col("window_end") - pl.duration(microseconds=1)
    hour = last.dt.truncate("1h")
    spending = (
        sessions.group_by("advertiser", hour.alias("window_start"))
        .agg(sessions=pl.len().cast(pl.Int64), spent=pl.col("spent").sum())
        .with_columns(window_end=pl.col("window_start") + pl.duration(hours=1))
    )
    top = spending.group_by("window_start", "window_end").agg(pl.col("spent").max())
    made = {
        "sessions": sessions,
        "spending": spending,
        "top": top.with_columns(place=pl.lit("everywhere")),
    }
    return {name: made[name].select(columns) for name, columns in TABLES.items()}


def main() -> None:
    """Run it all, and say whether the tables are equal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--operator", default="applyInPandasWithState")
    parser.add_argument("--state", default="inline", choices=["inline", "rocksdb"])
    parser.add_argument("--bursts", type=int, default=BURSTS, help="of eleven clicks each")
    parser.add_argument("--drive", metavar="DSN", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.drive:
        drive(options.folder, options.drive, options.operator, options.state)
        return
    from tests.unit.io.postgresql import running_server

    clicks = write_clicks(options.folder / "clicks", options.bursts)
    print(f"{clicks:,} clicks in {FILES} files", flush=True)
    with running_server() as dsn:
        _run(options, dsn)


def _run(options: argparse.Namespace, dsn: str) -> None:
    import polars as pl
    import psycopg

    with psycopg.connect(dsn) as database:
        database.execute("CREATE TABLE epochs (epoch bigint PRIMARY KEY, at timestamptz)")
        for table, columns in TABLES.items():
            types = {"place": "text", "window_start": "timestamptz", "window_end": "timestamptz"}
            named = ", ".join(f"{name} {types.get(name, 'bigint')}" for name in columns)
            database.execute(f"CREATE TABLE {table} ({named})")
            database.execute(f"CREATE INDEX ON {table} ({', '.join(columns[:3])})")
    arguments = [
        sys.executable, "-m", "benchmarks.clicks", str(options.folder), "--drive", dsn,
        "--operator", options.operator, "--state", options.state,
    ]  # fmt: skip
    began = time.perf_counter()
    for stop_at in (FILES // 4, FILES * 2 // 3, None):
        driver = subprocess.Popen(arguments, start_new_session=True)
        while driver.poll() is None:
            if stop_at is not None and _epochs(dsn) >= stop_at:
                os.killpg(driver.pid, signal.SIGKILL)
                print(f"killed after {_epochs(dsn)} micro-batches", flush=True)
            time.sleep(0.2)
        driver.wait()
    print(f"{_epochs(dsn)} micro-batches in {time.perf_counter() - began:.0f} s", flush=True)
    if driver.returncode:
        sys.exit("the query failed")
    equal = True
    for name, table in wanted(options.folder).items():
        with psycopg.connect(dsn) as database:
            rows = database.execute(f"SELECT {', '.join(TABLES[name])} FROM {name}").fetchall()
        found = pl.DataFrame(rows, schema=table.schema, orient="row")
        same = found.sort(found.columns).equals(table.sort(table.columns))
        equal = equal and same
        print(f"{name}: {len(found):,} rows, {'equal' if same else 'NOT equal'} to Polars")
    sys.exit(not equal)


def _epochs(dsn: str) -> int:
    import psycopg

    with psycopg.connect(dsn) as database:
        row = database.execute("SELECT count(*) FROM epochs").fetchone()
    return 0 if row is None else int(row[0])


if __name__ == "__main__":
    main()
