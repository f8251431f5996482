"""A child that is forked amid a run over servers: it ends as it likes, and its parent reads on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.unit.io.kafka.broker import Broker, running_broker
from tests.unit.io.postgresql import running_server

psycopg = pytest.importorskip("psycopg", reason="needs the extra postgres")
pytestmark = pytest.mark.long(reason="needs a server")

PROGRAM = """
import os, signal, sys
import lowwater as lw
from lowwater.errors import StateError
from lowwater.io.sinks import Callback, JsonLinesFolder, KafkaTopic, PostgresTable

kind, how, at, folder = sys.argv[1:]
ends, seen = [], 0

def forks(row):
    global seen
    seen += 1
    if seen in (3, 700):
        child = os.fork()
        if not child:
            signal.alarm(60)  # a child that hangs is killed
            if how == "exits":
                sys.exit(5)
            if how == "runs":
                own = lw.from_iterable([{"t": 1, "k": 1}], time="t", unit="s").key_by("k")
                own.window(lw.GlobalWindow()).aggregate(n=lw.count()).write_jsonl(
                    f"{folder}/child-{seen}"
                ).run()
                sys.exit(5)
            return row  # goes on with its parent's run
        ends.append(child)
    return row

if kind == "kafka":
    servers, source, target = at.split()
    stream = lw.read_kafka(servers, source, time="t", unit="s", end={0: 400, 1: 400})
    sink = KafkaTopic(servers, target)
else:
    stream = lw.read_postgres_changes(at, "t", publication="p", slot="s", end="latest")
    stream = stream.map(lambda row: {"committed_at": row["committed_at"], **row["after"]})
    sink = PostgresTable(at, "out")
pipeline = stream.map(forks).key_by("k").window(lw.FixedWindows("1m")).aggregate(n=lw.count())
parent = os.getpid()
try:
    pipeline.write_to(sink).run(
        state=f"{folder}/state", bundle_size=100, commit_every="bundle", progress=False
    )
except StateError as error:
    if os.getpid() == parent:
        raise
    sys.exit(5 if "forked amid a run" in error.what else 6)
statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in ends]
print(sorted(statuses))
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with running_broker() as broker:
        yield broker


@pytest.fixture(scope="module")
def dsn() -> Iterator[str]:
    with running_server() as dsn:
        yield dsn


def program(kind: str, how: str, at: str, folder: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, kind, how, at, str(folder)],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
        timeout=180, check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout) == (0, "[5, 5]\n"), ended.stderr


@pytest.mark.parametrize("how", ["exits", "runs", "goes on"])
def test_amid_a_run_from_topic_to_topic(how: str, broker: Broker, tmp_path: Path) -> None:
    source, target = broker.topic(2), broker.topic()
    values = [json.dumps({"t": n, "k": n % 5}).encode() for n in range(400)]
    broker.produce(source, {number: [(None, value) for value in values] for number in range(2)})
    program("kafka", how, f"{broker.servers} {source} {target}", tmp_path)
    found = [json.loads(value or b"") for _, value in broker.consume(target, {0: 35})]
    assert sum(row["n"] for row in found) == 800


@pytest.mark.parametrize("how", ["exits", "runs", "goes on"])
def test_amid_a_run_from_table_to_table(how: str, dsn: str, tmp_path: Path) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS t, out, lowwater_outputs")
        connection.execute("DROP PUBLICATION IF EXISTS p")
        connection.execute("CREATE TABLE t (id int PRIMARY KEY, k int)")
        connection.execute("CREATE PUBLICATION p FOR TABLE t")
        connection.execute("INSERT INTO t SELECT n, n % 5 FROM generate_series(1, 500) AS n")
        connection.execute("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
        connection.execute("INSERT INTO t SELECT n, n % 5 FROM generate_series(501, 900) AS n")
        try:
            program("postgres", how, dsn, tmp_path)
            ((total,),) = connection.execute("SELECT sum(n) FROM out").fetchall()
        finally:
            connection.execute("SELECT pg_drop_replication_slot('s')")
    assert total == 1_300  # the rows as they are, and the changes since the slot began
