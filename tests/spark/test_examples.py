"""The examples for Spark run; and what is said of Spark Connect holds."""

from __future__ import annotations

import io
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from examples import spark_graph, spark_standalone
from lowwater.cli import demo, demo_spark
from lowwater.spark import session
from lowwater.spark.rows import counted_bytes
from notebooks import execute
from tests.examples import sampled
from tests.paths import ROOT
from tests.unit.io.postgresql import running_server


@pytest.mark.long(reason="proves again on Spark")
def test_lowwater_runs_from_an_archive(tmp_path: Path) -> None:
    """As a cluster gets it; ``cluster_campaign.py`` sends it to one."""
    archive = spark_standalone.write_archive(tmp_path / "lowwater.zip")
    code = (
        "import lowwater as lw, lowwater.spark; assert '.zip' in lw.__file__;"
        "print(len(lw.from_iterable([{'at': 0, 'k': 1}], time='at').key_by('k')"
        ".window(lw.FixedWindows('1m')).aggregate(n=lw.count()).to_arrow()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(archive)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr


@pytest.fixture
def connect(spark: Any) -> Iterator[str]:
    """Serve Spark Connect from the session's JVM; return the URL."""
    package = spark.sparkContext._jvm.org.apache.spark.sql.connect.service
    service = getattr(getattr(package, "SparkConnectService$"), "MODULE$")
    service.start(spark.sparkContext._jsc.sc())
    try:
        yield f"sc://127.0.0.1:{service.localPort()}"
    finally:
        none = spark.sparkContext._jvm.scala.Option.empty()
        service.stop(none, none)


@pytest.mark.long(reason="proves again on Spark")
def test_it_works_over_spark_connect(connect: str, tmp_path: Path) -> None:
    """The client is a process of its own, as each has one kind of session."""
    pytest.importorskip("grpc")
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.connect_client", connect, str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert not done.returncode, done.stderr
    assert done.stdout.splitlines() == [
        "static 5", "told 50 4 4", "inline 4", "told 50 4 4", "rocksdb 4", "refused",
    ]  # fmt: skip


@pytest.mark.long(reason="proves again on Spark")
@pytest.mark.usefixtures("chains")
def test_the_demo_is_equal_to_the_embedded_engine(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``own_process_campaign.py`` asks what else is on the screen."""
    flights = demo.load_flights().slice(0, 6_000)
    monkeypatch.setattr(demo_spark, "load_flights", lambda: flights)
    out = io.StringIO()
    assert demo_spark.demo_spark(out, spark)
    assert out.getvalue().count("equal in every value") == 3
    assert "at the end" in out.getvalue()
    assert "retract  EARLY" in out.getvalue()


@pytest.mark.long(reason="proves again on Spark")
def test_the_notebook_holds(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that it asserts; ``own_process_campaign.py`` compares its output."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(session, "local_session", lambda *_: nullcontext(spark))
    names: dict[str, Any] = {"__name__": "notebook"}
    cells = execute.read(ROOT / "notebooks" / "6-on-spark.ipynb").cells
    for number, cell in enumerate(cells):
        if cell.cell_type == "code":
            source = cell.source
            for name in ("panes", "checkpoint"):  # the JVM is in the folder where it was started
                source = source.replace(f'"{name}"', repr(str(tmp_path / name)))
            exec(compile(source, f"cell {number}", "exec"), names)
    assert len(names["embedded"]) > 100


def test_a_micro_batch_is_a_line() -> None:
    out = io.StringIO()
    lines = demo_spark.ProgressLines(out)
    stage = {"early": 2, "on_time": 5, "retractions": 1, "open_windows": 4, "clock": 100}
    stage |= {"tells": True, "watermark": 60_000_000}
    rows = [counted_bytes(-1, {"events": 3}, None), counted_bytes(0, stage, None)]
    ours = {
        "counted": [row.decode() for row in rows],
        "graph": json.dumps({"places": [["s", -1, []], ["a", 0, ["s"]]], "ends": [0]}),
    }
    reports = [
        {
            "batchId": number,
            "observedMetrics": {"lowwater": ours} if number else {},
            "durationMs": {"triggerExecution": 1500},
        }
        for number in range(3)
    ]
    lines.write(reports[:2])
    lines.write(reports)  # Spark gives the former ones again
    headings, first, second = out.getvalue().splitlines()
    assert headings.split()[:3] == ["micro-batch", "flights", "panes"]
    assert first.split() == ["1", "3", "7", "1", "4", "1970-01-01", "00:01:00", "1.50"]
    assert second.split()[0] == "2"


@pytest.fixture(params=sampled(["sqlite", "postgresql"], every=2))
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Return what the example connects to."""
    if request.param == "sqlite":
        yield str(tmp_path / "rides.db")
        return
    with running_server() as dsn:
        yield dsn


def test_a_micro_batch_that_comes_again_is_not_stored_again(database: str) -> None:
    """And what is retracted in it is gone, and what replaces that is there."""
    spark_graph.writer(database)  # makes the tables
    window = datetime(2000, 1, 1, tzinfo=UTC)

    def best(most: int, kind: str) -> Any:
        return SimpleNamespace(window_start=window, most=most, teams=1, kind=kind)

    def score(team: str, points: int) -> Any:
        return SimpleNamespace(window_start=window, team=team, points=points, kind="insert")

    batches = [
        ([score("A", 5)], [best(5, "insert")]),
        ([score("B", 7)], [best(5, "retract"), best(7, "insert")]),
    ]
    for number in (0, 1, 1, 0):
        with closing(spark_graph.connect(database)) as connection, connection:
            spark_graph.store(connection, number, *batches[number])
    with closing(spark_graph.connect(database)) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT * FROM best")
        assert cursor.fetchall() == [("2000-01-01T00:00:00Z", 7, 1)]
        cursor.execute("SELECT team, points FROM scores ORDER BY team")
        assert cursor.fetchall() == [("A", 5), ("B", 7)]


@pytest.mark.long(reason="proves again on Spark")
@pytest.mark.usefixtures("chains")
def test_the_graph_is_written_once(spark: Any, tmp_path: Path) -> None:
    """Also if a checkpoint is lost, and all micro-batches come again under their numbers."""
    rides = tmp_path / "rides"
    spark_standalone.write_rides(rides)
    wanted: list[Any] = []
    for attempt, read in (("first", 360), ("first", 0), ("second", 360)):
        told = spark_graph.run(
            spark, str(rides), str(tmp_path / "rides.db"), str(tmp_path / attempt)
        )
        with closing(sqlite3.connect(tmp_path / "rides.db")) as database:
            found = database.execute("SELECT * FROM best ORDER BY start").fetchall()
            scores = database.execute("SELECT count(*), sum(points) FROM scores").fetchone()
        assert wanted in ([], found)
        wanted = found
        assert scores == (18, sum(range(120)) * 3)
        assert told.startswith(f"{read} rides")
    assert wanted[0] == ("2000-01-01T12:00:00Z", 610, 3)
    assert len(wanted) == 6
