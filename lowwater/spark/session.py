"""Configures Spark sessions for lowwater, and starts local ones."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession as SparkSession

from lowwater.errors import InvalidArgument, UnsupportedByRunner, describe

ConfiguredT = TypeVar("ConfiguredT", SparkSession, SparkSession.Builder)

_STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_STORE = "spark.sql.streaming.stateStore"
_ARROW = "spark.sql.execution.arrow"
_LOOPBACK = "127.0.0.1"
_LINES_OF_LOG = 5
CHECKS = "spark.sql.streaming.unsupportedOperationCheck"
"""The session's setting that has Spark refuse chains of ``applyInPandasWithState``."""
PROVIDER = f"{_STORE}.providerClass"
"""The session's setting that names the class of Spark's state store."""
_DAEMON = "spark.python.daemon.module"
_PRELOADED = "lowwater.spark.worker_daemon"


def recommended(*, partitions: int = 8, rows_per_batch: int = 100_000) -> dict[str, str]:
    """Return the settings of :func:`configure`, by name.

    Args:
        partitions: The number of tasks that share the key groups: at most the number of key groups,
            ideally the number of cores. A checkpoint keeps its initial number.
        rows_per_batch: How many rows Spark passes to Python at a time. Nothing else bounds their
            memory, so use fewer for rows of many kilobytes.
    """
    if isinstance(partitions, bool) or not isinstance(partitions, int) or partitions < 1:
        raise InvalidArgument(
            f"{describe('partitions', partitions)} must be an int of at least 1",
            hint="Use the number of cores",
        )
    return {
        "spark.sql.shuffle.partitions": str(partitions),
        PROVIDER: _STATE_STORE,
        f"{_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
        f"{_STORE}.rocksdb.trackTotalNumberOfRows": "false",
        # What Spark takes for stateless, as operator="mapInArrow", it would plan stage by stage:
        # 0.1 s of a processor in each micro-batch, and nothing to gain where rows are few.
        "spark.sql.adaptive.streaming.stateless.enabled": "false",
        # Otherwise Spark reads several files of a few megabytes in one task, on one core.
        "spark.sql.files.openCostInBytes": "65536",
        f"{_ARROW}.pyspark.enabled": "true",
        f"{_ARROW}.maxRecordsPerBatch": str(rows_per_batch),
        # With any lower limit Spark measures the size of a batch's columns after every row.
        f"{_ARROW}.maxBytesPerBatch": str(2**31 - 1),
    }


def configure(
    spark: ConfiguredT,
    *,
    partitions: int = 8,
    rows_per_batch: int = 100_000,
    chains: bool = False,
    preload: bool = False,
) -> ConfiguredT:
    """Apply the recommended settings to a session, or to its builder; return it.

    Unless ``PYSPARK_PYTHON`` says otherwise, workers run the Python that runs this.

    Args:
        spark: ``SparkSession.builder``, or a session in which no query has started yet.
        partitions: See :func:`recommended`.
        rows_per_batch: See :func:`recommended`.
        chains: Whether graphs of several levels may run on ``applyInPandasWithState``, which costs
            less than ``transformWithStateInPandas``. Spark allows that only without its checks of
            streaming plans, so this switches them off **for all queries of the session**, yours
            included: Spark then no longer refuses plans that it cannot run rightly.
        preload: Whether Python workers are forked from a process that has imported lowwater,
            pandas and pyarrow, where each worker would take about a second of a processor for that
            in its first task. Only for a builder, and where lowwater is **installed** in the
            Python of the workers: if it is sent with ``addPyFile``, no worker starts.

    Raises:
        InvalidArgument: ``preload`` is given with a session, whose workers start as it was built.
    """
    settings = recommended(partitions=partitions, rows_per_batch=rows_per_batch)
    if chains:
        settings[CHECKS] = "false"
    if preload:
        if not isinstance(spark, SparkSession.Builder):
            raise InvalidArgument(
                "preload=True says how Python workers start, and this session has started already",
                where="configure(preload=)",
                hint="Give SparkSession.builder, before getOrCreate()",
            )
        settings[_DAEMON] = _PRELOADED
    _use_this_python(spark)
    for name, value in settings.items():
        if isinstance(spark, SparkSession.Builder):
            spark.config(name, value)  # changes the builder in place
        else:
            spark.conf.set(name, value)
    return spark


def _use_this_python(spark: SparkSession | SparkSession.Builder) -> None:
    """Set the workers' Python to the running one, if nobody has said which."""
    if "PYSPARK_PYTHON" in os.environ:
        return
    if isinstance(spark, SparkSession.Builder):
        os.environ["PYSPARK_PYTHON"] = sys.executable
    elif isinstance(spark, SparkSession):  # Connect's session is another class, and knows its own
        context: Any = spark.sparkContext
        context.pythonExec = sys.executable


@contextmanager
def local_session(
    name: str, folder: Path, *, cores: int = 2, chains: bool = False
) -> Iterator[SparkSession]:
    """Start a local session with the settings of :func:`configure`; stop it on exit.

    It has no web interface, and listens on the loopback address only. What the JVM and the Python
    workers log goes to the file ``spark.log`` in the folder, unless this process already has a JVM.

    Args:
        name: The name of the application.
        folder: A folder for its temporary files.
        cores: How many tasks run at once.
        chains: See :func:`configure`.

    Raises:
        UnsupportedByRunner: The JVM did not start.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYTHONWARNINGS", "ignore::FutureWarning")  # pyspark's, in each worker
    os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    settings = {
        **recommended(partitions=cores),
        **({CHECKS: "false"} if chains else {}),
        _DAEMON: _PRELOADED,  # workers run the Python that runs this, here
        # It does not live for long enough to repay what more compilation costs.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.codegen.wholeStage": "false",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": _LOOPBACK,
        "spark.driver.host": _LOOPBACK,
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    conf = SparkConf().setMaster(f"local[{cores}]").setAppName(name).setAll(list(settings.items()))
    with warnings.catch_warnings():
        # pyspark warns in many places that it does not know the latest pandas.
        warnings.filterwarnings("ignore", category=FutureWarning, module=r"pyspark\.")
        if SparkContext._gateway is None:
            folder.mkdir(parents=True, exist_ok=True)
            SparkContext(conf=conf, gateway=_launched(conf, folder / "spark.log"))
        session = SparkSession.builder.config(conf=conf).getOrCreate()
        try:
            yield session
        finally:
            session.stop()


def _launched(conf: SparkConf, log: Path) -> Any:
    """Launch a JVM whose output, and that of its Python workers, goes to a file.

    No configuration of log4j achieves that: the JVM and ``spark-submit`` write lines before they
    read one, and the workers write to the JVM's standard error. Errors of a query still reach the
    caller, as exceptions.
    """
    with log.open("wb") as stream:
        try:
            launch: Any = launch_gateway  # it has no types
            return launch(conf, {"stdout": stream, "stderr": stream})
        except PySparkRuntimeError as error:
            lines = log.read_text(errors="replace").splitlines()
            raise UnsupportedByRunner(
                "Spark's JVM did not start: " + " / ".join(lines[-_LINES_OF_LOG:]),
                hint="Install Java 17 or 21: a JRE will do",
            ) from error
