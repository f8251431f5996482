"""Pipelines: fluent, immutable values from a source to panes."""

from lowwater.pipeline.final import FinalPanes as FinalPanes
from lowwater.pipeline.fluent import JoinedStream as JoinedStream
from lowwater.pipeline.fluent import KeyedStream as KeyedStream
from lowwater.pipeline.fluent import Pipeline as Pipeline
from lowwater.pipeline.fluent import Processed as Processed
from lowwater.pipeline.fluent import Stream as Stream
from lowwater.pipeline.fluent import WindowedStream as WindowedStream
from lowwater.pipeline.forms import Element as Element
from lowwater.pipeline.handle import RunHandle as RunHandle
from lowwater.pipeline.outputs import Writing as Writing
from lowwater.pipeline.outputs import run as run
from lowwater.pipeline.outputs import start as start
from lowwater.pipeline.readers import from_arrow as from_arrow
from lowwater.pipeline.readers import from_frame as from_frame
from lowwater.pipeline.readers import from_iterable as from_iterable
from lowwater.pipeline.readers import from_pandas as from_pandas
from lowwater.pipeline.readers import from_source as from_source
from lowwater.pipeline.readers import from_spark as from_spark
from lowwater.pipeline.readers import read_csv as read_csv
from lowwater.pipeline.readers import read_jsonl as read_jsonl
from lowwater.pipeline.readers import read_log as read_log
from lowwater.pipeline.readers import read_parquet as read_parquet
from lowwater.pipeline.result import Result as Result
from lowwater.pipeline.result import Run as Run
from lowwater.pipeline.run import RunOptions as RunOptions
from lowwater.pipeline.runnable import to_spark as to_spark
