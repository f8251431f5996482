"""Flink: its SQL window functions through PyFlink, on a cluster inside the process.

What PyPI ships reads no Parquet: the events are in a CSV file, written before time counts. The
windows that count go to Flink's black hole; the run before that sums them up, to be checked.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow.csv
import pyarrow.parquet as pq
from pyflink.table import EnvironmentSettings, TableEnvironment

from benchmarks.peers.job import DELAY_S, Answer, Timed

DISTRIBUTION = "apache-flink"
COUNTED = 5_000_000
_SUMS = """
    SELECT window_end, SUM(`value`) AS total FROM {windows}
    GROUP BY `key`, window_start, window_end
"""
_WINDOWS = {
    "fixed": "TABLE(TUMBLE(TABLE events, DESCRIPTOR(`at`), INTERVAL '1' MINUTE))",
    "sessions": "TABLE(SESSION(TABLE events PARTITION BY `key`, DESCRIPTOR(`at`),"
    " INTERVAL '30' SECOND))",
}


def run(path: Path, windows: str) -> Timed:
    """Sum per key and window: once to be checked, once timed."""
    source = _csv(path)
    sums = _SUMS.format(windows=_WINDOWS[windows])
    checked = _tables(source)
    rows = checked.execute_sql(
        f"SELECT COUNT(*), SUM(total), SUM(total * total) FROM ({sums})"
    ).collect()
    *_, last = rows
    tables = _tables(source)
    tables.execute_sql(
        "CREATE TABLE hole (window_end TIMESTAMP(3), total BIGINT) WITH ('connector' = 'blackhole')"
    )
    began = time.perf_counter()
    tables.execute_sql(f"INSERT INTO hole {sums}").wait()
    seconds = time.perf_counter() - began
    return Timed(Answer(*last), seconds)


def _tables(source: Path) -> TableEnvironment:
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    config = tables.get_config()
    config.set("parallelism.default", str(os.cpu_count()))
    config.set("table.local-time-zone", "UTC")
    config.set("taskmanager.memory.managed.size", "512m")
    config.set("taskmanager.memory.network.max", "256m")
    config.set("pipeline.object-reuse", "true")
    config.set("table.exec.mini-batch.enabled", "true")
    config.set("table.exec.mini-batch.allow-latency", "1 s")
    config.set("table.exec.mini-batch.size", "50000")
    tables.execute_sql(f"""
        CREATE TABLE events (
            `at` TIMESTAMP(3), `key` STRING, `value` BIGINT,
            WATERMARK FOR `at` AS `at` - INTERVAL '{DELAY_S}' SECOND
        ) WITH ('connector' = 'filesystem', 'path' = '{source.resolve()}', 'format' = 'csv')
    """)
    return tables


def _csv(path: Path) -> Path:
    target = path.with_suffix(".csv")
    if not target.exists():
        table = pq.read_table(path)
        # Flink's SQL keeps milliseconds in a watermark column, so they are cut off here.
        at = table["at"].cast(pyarrow.timestamp("ms"), safe=False)
        half = path.with_suffix(".half")
        options = pyarrow.csv.WriteOptions(include_header=False, quoting_style="none")
        pyarrow.csv.write_csv(table.set_column(0, "at", at), half, options)
        half.replace(target)
    return target
