"""Starts Spark's Python workers with everything imported, where each would import it by itself.

Spark runs this as ``python -m``, if ``configure(preload=True)`` has said so, and forks workers.
"""

from __future__ import annotations

import pandas as pd  # noqa: F401  # what workers need is imported here
import pyarrow.compute as pc  # noqa: F401
import pyspark.daemon
import pyspark.sql.conversion
import pyspark.sql.pandas.serializers
import pyspark.worker

import lowwater.spark.chains
import lowwater.spark.level_call
import lowwater.spark.versioned  # noqa: F401
from lowwater.spark.worker_memory import spare_the_collector

if __name__ == "__main__":
    spare_the_collector()  # so workers share the memory of modules, too: nothing writes into it
    pyspark.daemon.manager()
