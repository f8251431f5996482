"""Pipelines: fluent, immutable values from a source to panes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lowwater._on_use import on_use

if TYPE_CHECKING:
    from lowwater.pipeline.change_readers import changelog as changelog
    from lowwater.pipeline.change_readers import debezium as debezium
    from lowwater.pipeline.final import FinalPanes as FinalPanes
    from lowwater.pipeline.fluent import JoinedStream as JoinedStream
    from lowwater.pipeline.fluent import KeyedStream as KeyedStream
    from lowwater.pipeline.fluent import MatchedStream as MatchedStream
    from lowwater.pipeline.fluent import Pipeline as Pipeline
    from lowwater.pipeline.fluent import Processed as Processed
    from lowwater.pipeline.fluent import RangedStream as RangedStream
    from lowwater.pipeline.fluent import Stream as Stream
    from lowwater.pipeline.fluent import WindowedStream as WindowedStream
    from lowwater.pipeline.forms import Element as Element
    from lowwater.pipeline.handle import RunHandle as RunHandle
    from lowwater.pipeline.installation import Info as Info
    from lowwater.pipeline.installation import info as info
    from lowwater.pipeline.outcomes import RunOptions as RunOptions
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
    from lowwater.pipeline.readers import read_kafka as read_kafka
    from lowwater.pipeline.readers import read_log as read_log
    from lowwater.pipeline.readers import read_parquet as read_parquet
    from lowwater.pipeline.readers import read_postgres_changes as read_postgres_changes
    from lowwater.pipeline.result import Result as Result
    from lowwater.pipeline.result import Run as Run
    from lowwater.pipeline.runnable import to_spark as to_spark
    from lowwater.pipeline.tables import GroupedTable as GroupedTable
    from lowwater.pipeline.tables import Table as Table

_PLACES = {
    "lowwater.pipeline.change_readers": "changelog debezium",
    "lowwater.pipeline.final": "FinalPanes",
    "lowwater.pipeline.fluent": (
        "JoinedStream KeyedStream MatchedStream Pipeline Processed RangedStream Stream "
        "WindowedStream"
    ),
    "lowwater.pipeline.forms": "Element",
    "lowwater.pipeline.handle": "RunHandle",
    "lowwater.pipeline.installation": "Info info",
    "lowwater.pipeline.outputs": "Writing run start",
    "lowwater.pipeline.readers": (
        "from_arrow from_frame from_iterable from_pandas from_source from_spark read_csv "
        "read_jsonl read_kafka read_log read_parquet read_postgres_changes"
    ),
    "lowwater.pipeline.result": "Result Run",
    "lowwater.pipeline.outcomes": "RunOptions",
    "lowwater.pipeline.runnable": "to_spark",
    "lowwater.pipeline.tables": "GroupedTable Table",
}


if not TYPE_CHECKING:  # or a type checker would take every name to be there
    __getattr__, __dir__ = on_use(__name__, _PLACES)
