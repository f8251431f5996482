"""A Spark session in this process and its threads."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession as SparkSession

from lowwater.spark.settings import configure


@contextmanager
def local_session(name: str, folder: Path, *, cores: int = 2) -> Iterator[SparkSession]:
    """Start a session that is told all that :func:`configure` tells, and stop it at the end.

    It has no web interface, logs nothing and opens no port to other machines.

    Args:
        name: What the application is called.
        folder: Where it may leave files.
        cores: How many tasks run at once.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYTHONWARNINGS", "ignore::FutureWarning")  # pyspark's, in each worker
    builder = (
        SparkSession.builder.master(f"local[{cores}]")
        .appName(name)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
    )
    configure(builder, partitions=cores)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    try:
        yield session
    finally:
        session.stop()
