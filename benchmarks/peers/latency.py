"""``python -m benchmarks.peers.latency``: from a record to the panes that it completes.

A process of its own writes 10,000 JSON lines a second, ten each millisecond, whose event time is
the wall clock. Sums of ten keys in windows of a tenth of a second, without a delay: so a pane is
complete with the first record behind its window, and its latency is what the wall clock shows as
the pane is there, less the end of the window. Each peer reads by what it has for lines that come:
lowwater and clink read a pipe, Flink a socket. lowwater's and clink's panes count as they are in
Python, Flink's as its SQL emits them. Warming up does not count.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import IO, Any

PER_SECOND = 10_000
KEYS = 10
WINDOW_MS = 100
WARM_S = 10.0
_TICK_S = 0.001
_ROOT = Path(__file__).parents[2]

Latencies = Iterator[tuple[float, float]]
"""(The end of a window, when its pane was there): seconds of the wall clock."""


def main() -> None:
    """Measure the peers of the command line, each in a process of its own."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers.latency", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--python", nargs="+", default=[], help="PEER=INTERPRETER")
    parser.add_argument("--seconds", type=float, default=30.0, help="after warming up")
    parser.add_argument("--one", choices=PEERS, help="measure this one here, print JSON")
    args = parser.parse_args()
    if args.one:
        print("\n" + json.dumps(measured(args.one, args.seconds)))
        return
    pythons = dict(each.split("=", 1) for each in args.python)
    print("| peer | panes | p50 ms | p99 ms | longest ms |\n|---|---|---|---|---|")
    for peer in args.only:
        command = [pythons.get(peer, sys.executable), "-m", "benchmarks.peers.latency"]
        done = subprocess.run(
            [*command, "--one", peer, "--seconds", str(args.seconds)], cwd=_ROOT,
            env={**os.environ, "PYTHONPATH": str(_ROOT)}, capture_output=True, text=True,
            check=False, timeout=10 * (args.seconds + WARM_S),
        )  # fmt: skip
        if done.returncode:
            print(f"| {peer} | failed: {(done.stderr.splitlines() or ['?'])[-1]} | | | |")
            continue
        found = json.loads(done.stdout.splitlines()[-1])
        print(
            f"| {peer} | {found['panes']:,} | {found['p50']:.1f} | {found['p99']:.1f} "
            f"| {found['longest']:.0f} |",
            flush=True,
        )


def measured(peer: str, seconds: float) -> dict[str, float]:
    """Return the percentiles of a peer's latencies, in milliseconds.

    Raises:
        ValueError: Windows are missing.
    """
    with tempfile.TemporaryDirectory() as folder:
        panes = list(PEERS[peer](Path(folder) / "lines", seconds + WARM_S))
    begin = min(end for end, _ in panes) + WARM_S
    counted = [1_000 * (there - end) for end, there in panes if end >= begin]
    wanted = (seconds - 1) * KEYS * 1_000 / WINDOW_MS
    if len(counted) < wanted:
        raise ValueError(f"{peer} emitted {len(counted)} panes of {wanted:.0f} at least")
    cuts = statistics.quantiles(counted, n=100)
    return {"panes": len(counted), "p50": cuts[49], "p99": cuts[98], "longest": max(counted)}


def _write(open_: _Into, seconds: float) -> None:
    """Write lines at their rate, to the millisecond; what was missed is made up for."""
    every = PER_SECOND * _TICK_S
    with open_() as target:
        began = time.time()
        number = 0
        while (now := time.time()) - began < seconds:
            due = int((now - began) / _TICK_S * every)
            at = int(now * 1_000)
            lines = [
                b'{"at":%d,"key":"k%d","value":1}\n' % (at, one % KEYS)
                for one in range(number, due)
            ]
            target.write(b"".join(lines))
            target.flush()
            number = max(number, due)
            time.sleep(_TICK_S)


class _Into:
    """Opens what is written to, in the process of the writer: a pipe, or who connects to a port.

    Args:
        path: The pipe; without a port.
        port: The port, of this machine.
    """

    def __init__(self, path: Path, port: int = 0) -> None:
        self.path, self.port = path, port

    def __call__(self) -> IO[bytes]:
        if not self.port:
            return self.path.open("wb", buffering=0)
        with socket.create_server(("127.0.0.1", self.port)) as server:
            connection, _ = server.accept()
        return connection.makefile("wb")


def _writer(into: _Into, seconds: float) -> Any:
    process = get_context("spawn").Process(target=_write, args=(into, seconds), daemon=True)
    process.start()
    return process


def _of_lowwater(path: Path, seconds: float) -> Latencies:
    import lowwater as lw

    os.mkfifo(path)
    writer = _writer(_Into(path), seconds)
    lines = lw.from_source(_pipe(path), time="at", unit="ms", watermark=lw.BoundedDisorder("0s"))
    sums = lines.key_by("key").window(lw.FixedWindows(f"{WINDOW_MS}ms"))
    for batch in sums.aggregate(total=lw.sum("value")).to_arrow_batches(progress=False):
        there = time.time()
        ends_at = batch.column("window_end").cast("int64").to_pylist()
        if not writer.is_alive():
            break
        yield from ((end / 1e6, there) for end in ends_at)


def _pipe(path: Path) -> Any:
    """Return a source of the JSON lines in a pipe: a bundle is what is there."""
    import pyarrow as pa
    import pyarrow.json

    from lowwater.engine.records.batch import Records

    class Lines:
        schema = pa.schema([("at", pa.int64()), ("key", pa.string()), ("value", pa.int64())])

        def batches(self, size: int, keys: tuple[str, ...]) -> Iterator[Records]:
            options = pyarrow.json.ParseOptions(explicit_schema=self.schema)
            rest = b""
            with path.open("rb", buffering=0) as pipe:
                while data := pipe.read(1 << 16):
                    whole, _, rest = (rest + data).rpartition(b"\n")
                    if whole:
                        table = pyarrow.json.read_json(io.BytesIO(whole), parse_options=options)
                        yield Records.from_arrow(table.combine_chunks().to_batches()[0])

    return Lines()


def _of_clink(path: Path, seconds: float) -> Latencies:
    import pyclink

    os.mkfifo(path)
    writer = _writer(_Into(path), seconds)
    with pyclink.Engine() as engine:
        engine.execute(f"""
            CREATE TABLE lines (at BIGINT, key VARCHAR, value BIGINT) WITH (
                connector='file', format='json', path='{path}',
                event_time_column='at', watermark_lag_ms='0');
            CREATE TABLE sums (until BIGINT, total BIGINT)
                WITH (connector='collect', format='json');
            INSERT INTO sums SELECT window_end AS until, SUM(value) AS total FROM lines
                GROUP BY TUMBLE(at, {WINDOW_MS}), key
        """)
        for batch in engine.collect("sums"):
            there = time.time()
            if not writer.is_alive():
                break
            yield from ((end / 1e3, there) for end in batch.column("until").to_pylist())
        engine.cancel_all()


def _of_flink(path: Path, seconds: float) -> Latencies:
    from pyflink.datastream import DataStream, StreamExecutionEnvironment
    from pyflink.table import StreamTableEnvironment

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    _writer(_Into(path, port), seconds)
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    env.set_buffer_timeout(1)
    env.get_config().set_auto_watermark_interval(1)
    java = env._j_stream_execution_environment
    tables = StreamTableEnvironment.create(env)
    tables.get_config().set("table.local-time-zone", "UTC")
    time.sleep(3)  # for the writer, which waits for who connects
    lines = tables.from_data_stream(DataStream(java.socketTextStream("127.0.0.1", port)))
    tables.create_temporary_view("texts", lines.alias("line"))
    from pyflink.table import DataTypes, Schema

    parsed = tables.sql_query("""
        SELECT TO_TIMESTAMP_LTZ(CAST(JSON_VALUE(line, '$.at') AS BIGINT), 3) AS `at`,
            JSON_VALUE(line, '$.key') AS `key`,
            CAST(JSON_VALUE(line, '$.value') AS BIGINT) AS `value` FROM texts
    """)
    timed = Schema.new_builder().column("at", DataTypes.TIMESTAMP_LTZ(3))
    timed = timed.column("key", "STRING").column("value", "BIGINT").watermark("at", "`at`")
    stream = tables.to_data_stream(parsed)
    tables.create_temporary_view("lines", tables.from_data_stream(stream, timed.build()))
    rows = tables.execute_sql(f"""
        SELECT CAST(UNIX_TIMESTAMP(CAST(window_end AS STRING)) AS BIGINT) * 1000
                + EXTRACT(MILLISECOND FROM window_end) AS until,
            UNIX_TIMESTAMP(CAST(CURRENT_ROW_TIMESTAMP() AS STRING)) * 1000
                + EXTRACT(MILLISECOND FROM CURRENT_ROW_TIMESTAMP()) AS there,
            SUM(`value`) AS total
        FROM TABLE(TUMBLE(TABLE lines, DESCRIPTOR(`at`), INTERVAL '{WINDOW_MS / 1_000}' SECOND))
        GROUP BY `key`, window_start, window_end
    """).collect()
    for until, there, _total in rows:
        yield until / 1e3, there / 1e3


PEERS: dict[str, Callable[[Path, float], Latencies]] = {
    "lowwater": _of_lowwater,
    "clink": _of_clink,
    "flink": _of_flink,
}

if __name__ == "__main__":
    main()
