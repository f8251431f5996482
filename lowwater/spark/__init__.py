"""The Spark runner: runs the engine's operators in Structured Streaming, a call per key group."""

from lowwater.spark.options import SparkOptions as SparkOptions
from lowwater.spark.query import METRICS as METRICS
from lowwater.spark.query_progress import progress as progress
from lowwater.spark.session import configure as configure
from lowwater.spark.session import recommended as recommended
from lowwater.spark.signals import CarriedTime as CarriedTime
from lowwater.spark.split import split as split
from lowwater.spark.state_backends import InlineBackend as InlineBackend
from lowwater.spark.state_backends import KeptState as KeptState
from lowwater.spark.state_backends import StateBackend as StateBackend
from lowwater.spark.versioned import RocksBackend as RocksBackend
