"""Flink: its SQL window functions through PyFlink, on a cluster inside the process.

What PyPI ships reads no Parquet: the events are in a CSV file, to the millisecond, which is what
Flink's SQL keeps. What the windows give is summed up within Flink, in mini-batches. Starting the
cluster, a second or two, is within the time.
"""

from __future__ import annotations

import os
from pathlib import Path

from pyflink.table import EnvironmentSettings, TableEnvironment

from benchmarks.peers.csv_file import csv_file
from benchmarks.peers.job import DELAY_S, JOIN, PATTERN, WITHIN_S, Answer, Timed
from benchmarks.peers.stopwatch import Stopwatch

DISTRIBUTION = "apache-flink"
_SUMS = """
    SELECT window_end, SUM(`value`) AS total FROM {windows}
    GROUP BY `key`, window_start, window_end
"""
_PAIRS = f"""
    SELECT e.`value` * 1000 + o.`value` AS total FROM events e JOIN events o ON e.`key` = o.`key`
    AND o.`at` BETWEEN e.`at` AND e.`at` + INTERVAL '{WITHIN_S}' SECOND
    WHERE MOD(e.`value`, 2) = 0 AND MOD(o.`value`, 2) = 1
"""
_MATCHES = """
    SELECT low AS total FROM events MATCH_RECOGNIZE (
        PARTITION BY `key` ORDER BY `at`, `value`
        MEASURES LAST(down.`value`) AS low
        ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW
        PATTERN (first_row down+ up)
        DEFINE
            down AS (LAST(down.`value`, 1) IS NULL AND down.`value` < first_row.`value`)
                OR down.`value` < LAST(down.`value`, 1),
            up AS up.`value` > LAST(down.`value`)
    )
"""
_WINDOWS = {
    "fixed": "TABLE(TUMBLE(TABLE events, DESCRIPTOR(`at`), INTERVAL '1' MINUTE))",
    "sessions": "TABLE(SESSION(TABLE events PARTITION BY `key`, DESCRIPTOR(`at`),"
    " INTERVAL '30' SECOND))",
}


def run(path: Path, windows: str) -> Timed:
    """Sum per key and window, join, or find a pattern."""
    source = csv_file(path, unit="ms", header=False)
    others = {JOIN: _PAIRS, PATTERN: _MATCHES}
    sums = others.get(windows) or _SUMS.format(windows=_WINDOWS[windows])
    tables = _tables(source)
    answer = f"SELECT COUNT(*), SUM(total), SUM(total * total) FROM ({sums})"
    with Stopwatch() as watch:
        # Updates, as the sums of sums grow, of which mini-batches leave few; the last is whole.
        *_, last = tables.execute_sql(answer).collect()
    return Timed(Answer(*last), watch.seconds, watch.cpu)


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
