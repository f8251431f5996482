"""The examples for Spark run; and what is said of Spark Connect holds."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from examples import spark_standalone
from lowwater.cli import demo, demo_spark
from tests.paths import ROOT


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


@pytest.mark.slow
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
    assert done.stdout.split() == ["static", "5", "inline", "4", "rocksdb", "4", "refused"]


@pytest.mark.slow
def test_the_demo_gives_the_same_on_spark(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    first = demo.load_flights().slice(0, 20_000)
    monkeypatch.setattr(demo_spark, "load_flights", lambda: first)
    out = io.StringIO()
    assert demo_spark.demo_spark(out, spark)
    text = out.getvalue()
    assert "20,000 flights" in text
    assert "equal in every value" in text
    assert "DIFFERENT" not in text
