"""One small Spark session for all tests that need one."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.paths import ROOT
from tests.spark.light import FAST, LIGHT
from tests.spark.query_to_kill import ZONE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use the session."""
    for item in items:
        if not item.nodeid.startswith("tests/spark/"):
            continue
        for warning in ("FutureWarning", "DeprecationWarning", "ResourceWarning"):  # pyspark's own
            item.add_marker(pytest.mark.filterwarnings(f"ignore::{warning}"))
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session of two threads; its Python workers import lowwater and the tests from here.

    A task may fail three times, so that tests can kill Python workers. The JVM compiles little: no
    query here is large enough to repay what C2 and generated code cost.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pyspark.sql import SparkSession

        from lowwater.spark import configure

        place = tmp_path_factory.mktemp("spark")
        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        builder = (
            SparkSession.builder.master("local[2,4]")
            .appName("lowwater tests")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.extraJavaOptions", FAST)
            .config("spark.driver.memory", "1g")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.connect.grpc.binding.address", "127.0.0.1")
            .config("spark.connect.grpc.binding.port", "0")  # any; a test starts this server
            .config("spark.sql.session.timeZone", ZONE)  # nothing may depend on it
            .config("spark.sql.warehouse.dir", str(place / "warehouse"))
            .config("spark.local.dir", str(place / "local"))
            .config("spark.sql.streaming.checkpointLocation", str(place / "checkpoints"))
        )
        for name, value in LIGHT.items():
            builder.config(name, value)
        configure(builder, partitions=2)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        _spare_checksums(session)
        yield session
        session.stop()


def _spare_checksums(session: SparkSession) -> None:
    """Have Hadoop write no file of checksums beside each file, with two ``chmod`` for each.

    They are a sixth of what a micro-batch costs.
    """
    context: Any = session.sparkContext
    files = context._jvm.org.apache.hadoop.fs.FileSystem
    local = files.getLocal(context._jsc.hadoopConfiguration())  # the JVM has one
    local.setWriteChecksum(False)
    local.setVerifyChecksum(False)


@pytest.fixture
def chains(spark: SparkSession) -> Iterator[None]:
    """Run graphs of several levels on the operator that costs less.

    For tests of what is the same on each; those of the operators name them.
    """
    from lowwater.spark.session import CHECKS

    spark.conf.set(CHECKS, "false")
    yield
    spark.conf.unset(CHECKS)
