"""Starts Spark's Python workers with everything imported, where Spark would import it in each.

Spark also collects garbage after each task, which looks at every object of every module: most of
what a small task costs. What is imported here is frozen, so that the collector leaves it alone.
"""

from __future__ import annotations

import gc

import pandas as pd  # noqa: F401
import pyspark.daemon
import pyspark.worker

import lowwater.spark  # noqa: F401

if __name__ == "__main__":
    gc.collect()
    gc.freeze()
    pyspark.daemon.manager()
