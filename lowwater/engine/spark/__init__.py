"""The Spark runner: the engine's own operator inside Structured Streaming, a call per key group."""

from lowwater.engine.spark.keepers import InlineKeeper as InlineKeeper
from lowwater.engine.spark.keepers import KeptOperator as KeptOperator
from lowwater.engine.spark.keepers import StateKeeper as StateKeeper
from lowwater.engine.spark.options import SparkOptions as SparkOptions
from lowwater.engine.spark.query import METRICS as METRICS
from lowwater.engine.spark.settings import configure as configure
from lowwater.engine.spark.settings import recommended as recommended
from lowwater.engine.spark.signals import CarriedTime as CarriedTime
from lowwater.engine.spark.versioned import RocksKeeper as RocksKeeper
