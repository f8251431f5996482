"""The Dataflow model for Python: windows, triggers, watermarks and accumulation modes.

>>> import lowwater as lw
>>> clicks = [{"at": "2000-01-01T12:00:10Z", "page": "home"}]
>>> pipeline = (
...     lw.from_iterable(clicks, time="at")
...     .key_by("page")
...     .window(lw.FixedWindows("1m"))
...     .aggregate(clicks=lw.count())
... )
>>> for pane in pipeline.run():
...     print(pane.key, pane.window, pane.value, pane.timing)
home [2000-01-01T12:00:00Z, 2000-01-01T12:01:00Z) 1 ON_TIME
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lowwater.engine.aggregates import AggregateSpec as AggregateSpec
    from lowwater.engine.aggregates import Combiner as Combiner
    from lowwater.engine.aggregates import all as all
    from lowwater.engine.aggregates import any as any
    from lowwater.engine.aggregates import collect as collect
    from lowwater.engine.aggregates import collect_set as collect_set
    from lowwater.engine.aggregates import combine as combine
    from lowwater.engine.aggregates import count as count
    from lowwater.engine.aggregates import count_distinct as count_distinct
    from lowwater.engine.aggregates import first as first
    from lowwater.engine.aggregates import last as last
    from lowwater.engine.aggregates import max as max
    from lowwater.engine.aggregates import max_by as max_by
    from lowwater.engine.aggregates import mean as mean
    from lowwater.engine.aggregates import min as min
    from lowwater.engine.aggregates import min_by as min_by
    from lowwater.engine.aggregates import std as std
    from lowwater.engine.aggregates import sum as sum
    from lowwater.engine.aggregates import var as var
    from lowwater.engine.aggregates.ranked_specs import (
        approx_count_distinct as approx_count_distinct,
    )
    from lowwater.engine.aggregates.ranked_specs import approx_quantile as approx_quantile
    from lowwater.engine.aggregates.ranked_specs import median as median
    from lowwater.engine.aggregates.ranked_specs import most_frequent as most_frequent
    from lowwater.engine.aggregates.ranked_specs import quantile as quantile
    from lowwater.engine.aggregates.ranked_specs import top as top
    from lowwater.engine.graph.clocks import ArrivalClock as ArrivalClock
    from lowwater.engine.graph.clocks import ManualClock as ManualClock
    from lowwater.engine.graph.clocks import WallClock as WallClock
    from lowwater.engine.graph.clocks import arrival as arrival
    from lowwater.engine.graph.metrics import Metrics as Metrics
    from lowwater.engine.graph.sources import CommitListener as CommitListener
    from lowwater.engine.graph.sources import GrowingSource as GrowingSource
    from lowwater.engine.graph.sources import ReplayableSource as ReplayableSource
    from lowwater.engine.graph.sources import Source as Source
    from lowwater.engine.graph.trace import Trace as Trace
    from lowwater.engine.graph.trace import TracedElement as TracedElement
    from lowwater.engine.graph.trace import Tracing as Tracing
    from lowwater.engine.join.joining import Between as Between
    from lowwater.engine.join.joining import between as between
    from lowwater.engine.local.arrival_log import Recording as Recording
    from lowwater.engine.match.absence import Absent as Absent
    from lowwater.engine.match.absence import absent as absent
    from lowwater.engine.match.references import Matched as Matched
    from lowwater.engine.match.references import matched as matched
    from lowwater.engine.match.references import prev as prev
    from lowwater.engine.match.so_far import MatchedRows as MatchedRows
    from lowwater.engine.match.so_far import MatchSoFar as MatchSoFar
    from lowwater.engine.over.row_numbers import Rank as Rank
    from lowwater.engine.over.row_numbers import RowNumber as RowNumber
    from lowwater.engine.over.row_numbers import rank as rank
    from lowwater.engine.over.row_numbers import row_number as row_number
    from lowwater.engine.process import ProcessContext as ProcessContext
    from lowwater.engine.process import ProcessOperator as ProcessOperator
    from lowwater.engine.process import combining_cell as combining_cell
    from lowwater.engine.process import list_cell as list_cell
    from lowwater.engine.process import map_cell as map_cell
    from lowwater.engine.process import ordered_cell as ordered_cell
    from lowwater.engine.process import output as output
    from lowwater.engine.process import set_cell as set_cell
    from lowwater.engine.process import timer as timer
    from lowwater.engine.process import value_cell as value_cell
    from lowwater.engine.records.batch import Records as Records
    from lowwater.engine.records.column_expressions import Expr as Expr
    from lowwater.engine.records.column_expressions import col as col
    from lowwater.engine.records.column_expressions import lit as lit
    from lowwater.engine.records.column_expressions import when as when
    from lowwater.engine.records.panes import ErrorRecord as ErrorRecord
    from lowwater.engine.records.panes import LateRecord as LateRecord
    from lowwater.engine.records.panes import Pane as Pane
    from lowwater.engine.records.stage_output import Emitted as Emitted
    from lowwater.engine.records.steps import PaneBatch as PaneBatch
    from lowwater.engine.window.fill import until_idle as until_idle
    from lowwater.engine.window.windowing import Windowing as Windowing
    from lowwater.errors import DataError as DataError
    from lowwater.errors import DataWarning as DataWarning
    from lowwater.errors import InternalError as InternalError
    from lowwater.errors import InternalWarning as InternalWarning
    from lowwater.errors import InvalidArgument as InvalidArgument
    from lowwater.errors import LowwaterError as LowwaterError
    from lowwater.errors import LowwaterWarning as LowwaterWarning
    from lowwater.errors import PipelineWarning as PipelineWarning
    from lowwater.errors import StateError as StateError
    from lowwater.errors import UnitWarning as UnitWarning
    from lowwater.errors import UnsafeTrigger as UnsafeTrigger
    from lowwater.errors import UnsupportedByRunner as UnsupportedByRunner
    from lowwater.explain import Difference as Difference
    from lowwater.explain import DisorderProfile as DisorderProfile
    from lowwater.explain import Explanation as Explanation
    from lowwater.explain import Finding as Finding
    from lowwater.explain import Findings as Findings
    from lowwater.explain import LatenessProfile as LatenessProfile
    from lowwater.explain import check as check
    from lowwater.explain import diff as diff
    from lowwater.exploration import Exploration as Exploration
    from lowwater.exploration import explore as explore
    from lowwater.pipeline import Element as Element
    from lowwater.pipeline import FinalPanes as FinalPanes
    from lowwater.pipeline import GroupedTable as GroupedTable
    from lowwater.pipeline import Info as Info
    from lowwater.pipeline import JoinedStream as JoinedStream
    from lowwater.pipeline import KeyedStream as KeyedStream
    from lowwater.pipeline import MatchedStream as MatchedStream
    from lowwater.pipeline import Pipeline as Pipeline
    from lowwater.pipeline import Processed as Processed
    from lowwater.pipeline import RangedStream as RangedStream
    from lowwater.pipeline import Result as Result
    from lowwater.pipeline import Run as Run
    from lowwater.pipeline import RunHandle as RunHandle
    from lowwater.pipeline import Stream as Stream
    from lowwater.pipeline import Table as Table
    from lowwater.pipeline import WindowedStream as WindowedStream
    from lowwater.pipeline import changelog as changelog
    from lowwater.pipeline import debezium as debezium
    from lowwater.pipeline import from_arrow as from_arrow
    from lowwater.pipeline import from_frame as from_frame
    from lowwater.pipeline import from_iterable as from_iterable
    from lowwater.pipeline import from_pandas as from_pandas
    from lowwater.pipeline import from_source as from_source
    from lowwater.pipeline import from_spark as from_spark
    from lowwater.pipeline import info as info
    from lowwater.pipeline import read_csv as read_csv
    from lowwater.pipeline import read_jsonl as read_jsonl
    from lowwater.pipeline import read_kafka as read_kafka
    from lowwater.pipeline import read_log as read_log
    from lowwater.pipeline import read_parquet as read_parquet
    from lowwater.pipeline import read_postgres_changes as read_postgres_changes
    from lowwater.pipeline import run as run
    from lowwater.pipeline import start as start
    from lowwater.pipeline import to_spark as to_spark
    from lowwater.pipeline.profiling import profile as profile
    from lowwater.time import END_OF_TIME as END_OF_TIME
    from lowwater.time import START_OF_TIME as START_OF_TIME
    from lowwater.time import Instant as Instant
    from lowwater.time import duration as duration
    from lowwater.time import instant as instant
    from lowwater.triggers import AfterAll as AfterAll
    from lowwater.triggers import AfterAny as AfterAny
    from lowwater.triggers import AfterCount as AfterCount
    from lowwater.triggers import AfterEach as AfterEach
    from lowwater.triggers import AfterProcessingTime as AfterProcessingTime
    from lowwater.triggers import AfterWatermark as AfterWatermark
    from lowwater.triggers import Always as Always
    from lowwater.triggers import CustomTrigger as CustomTrigger
    from lowwater.triggers import Default as Default
    from lowwater.triggers import Never as Never
    from lowwater.triggers import OrFinally as OrFinally
    from lowwater.triggers import Repeatedly as Repeatedly
    from lowwater.triggers import Trigger as Trigger
    from lowwater.triggers import TriggerContext as TriggerContext
    from lowwater.triggers import TriggerLogic as TriggerLogic
    from lowwater.viz import Diagram as Diagram
    from lowwater.viz import GraphDiagram as GraphDiagram
    from lowwater.watermark import Ascending as Ascending
    from lowwater.watermark import BoundedDisorder as BoundedDisorder
    from lowwater.watermark import External as External
    from lowwater.watermark import FinishedFiles as FinishedFiles
    from lowwater.watermark import ManualWatermark as ManualWatermark
    from lowwater.watermark import PerPartition as PerPartition
    from lowwater.watermark import Punctuated as Punctuated
    from lowwater.watermark import Quantile as Quantile
    from lowwater.watermark import StageWatermark as StageWatermark
    from lowwater.watermark import WatermarkEstimator as WatermarkEstimator
    from lowwater.windows import CalendarWindows as CalendarWindows
    from lowwater.windows import ColumnWindows as ColumnWindows
    from lowwater.windows import CountWindows as CountWindows
    from lowwater.windows import CumulativeWindows as CumulativeWindows
    from lowwater.windows import CustomWindows as CustomWindows
    from lowwater.windows import FixedWindows as FixedWindows
    from lowwater.windows import GlobalWindow as GlobalWindow
    from lowwater.windows import Sessions as Sessions
    from lowwater.windows import SlidingWindows as SlidingWindows
    from lowwater.windows import Window as Window

_PLACES = {
    "lowwater.engine.records.column_expressions": "Expr col lit when",
    "lowwater.engine.aggregates": (
        "AggregateSpec Combiner all any collect collect_set combine count count_distinct first "
        "last max max_by mean min min_by std sum var"
    ),
    "lowwater.engine.aggregates.ranked_specs": (
        "approx_count_distinct approx_quantile median most_frequent quantile top"
    ),
    "lowwater.engine.graph.clocks": "ArrivalClock ManualClock WallClock arrival",
    "lowwater.engine.graph.metrics": "Metrics",
    "lowwater.engine.local.arrival_log": "Recording",
    "lowwater.engine.records.panes": "ErrorRecord LateRecord Pane",
    "lowwater.engine.join.joining": "Between between",
    "lowwater.engine.match.absence": "Absent absent",
    "lowwater.engine.match.references": "Matched matched prev",
    "lowwater.engine.match.so_far": "MatchSoFar MatchedRows",
    "lowwater.engine.over.row_numbers": "Rank RowNumber rank row_number",
    "lowwater.engine.process": (
        "ProcessContext ProcessOperator combining_cell list_cell map_cell ordered_cell output "
        "set_cell timer value_cell"
    ),
    "lowwater.engine.records.stage_output": "Emitted",
    "lowwater.engine.records.batch": "Records",
    "lowwater.engine.graph.sources": "CommitListener GrowingSource ReplayableSource Source",
    "lowwater.engine.records.steps": "PaneBatch",
    "lowwater.engine.graph.trace": "Trace TracedElement Tracing",
    "lowwater.engine.window.fill": "until_idle",
    "lowwater.engine.window.windowing": "Windowing",
    "lowwater.errors": (
        "DataError DataWarning InternalError InternalWarning InvalidArgument LowwaterError "
        "LowwaterWarning PipelineWarning StateError UnitWarning UnsafeTrigger UnsupportedByRunner"
    ),
    "lowwater.explain": (
        "Difference DisorderProfile Explanation Finding Findings LatenessProfile check diff"
    ),
    "lowwater.exploration": "Exploration explore",
    "lowwater.pipeline": (
        "Element FinalPanes GroupedTable Info JoinedStream KeyedStream MatchedStream Pipeline "
        "Processed RangedStream Result Run RunHandle Stream Table WindowedStream changelog "
        "debezium from_arrow from_frame from_iterable from_pandas from_source from_spark info "
        "read_csv read_jsonl read_kafka read_log read_parquet read_postgres_changes run start "
        "to_spark"
    ),
    "lowwater.pipeline.profiling": "profile",
    "lowwater.time": "END_OF_TIME START_OF_TIME Instant duration instant",
    "lowwater.triggers": (
        "AfterAll AfterAny AfterCount AfterEach AfterProcessingTime AfterWatermark Always "
        "CustomTrigger Default Never OrFinally Repeatedly Trigger TriggerContext TriggerLogic"
    ),
    "lowwater.watermark": (
        "Ascending BoundedDisorder External FinishedFiles ManualWatermark PerPartition Punctuated "
        "Quantile StageWatermark WatermarkEstimator"
    ),
    "lowwater.viz": "Diagram GraphDiagram",
    "lowwater.windows": (
        "CalendarWindows ColumnWindows CountWindows CumulativeWindows CustomWindows FixedWindows "
        "GlobalWindow Sessions SlidingWindows Window"
    ),
}
_PLACE_OF = {name: place for place, names in _PLACES.items() for name in names.split()}

__version__ = "0.1.0"

# A library says nothing unless its user sets logging up: docs/howto/see.md.
logging.getLogger("lowwater").addHandler(logging.NullHandler())


if not TYPE_CHECKING:  # or a type checker would take every name to be there

    def __getattr__(name: str) -> Any:
        """Load a public name when it is first asked for (PEP 562): importing costs nothing."""
        place = _PLACE_OF.get(name)
        if place is None:
            raise _unknown(name)
        value = getattr(import_module(place), name)
        globals()[name] = value
        return value


def _unknown(name: str) -> Exception:
    """Return the error for a name that the package does not have."""
    from difflib import get_close_matches

    from lowwater.errors import UnknownName
    from lowwater.pipeline.vocabulary import name_elsewhere

    what = f"module 'lowwater' has no attribute {name!r}"
    if name.startswith("__"):  # Python's own, such as __wrapped__: nothing to suggest
        return AttributeError(what)
    if (meant := name_elsewhere(name)) is not None:
        return UnknownName(what, hint=meant)
    close = get_close_matches(name, _PLACE_OF, n=1, cutoff=0.7)
    hint = f"Did you mean lw.{close[0]}?" if close else "dir(lowwater) lists the names"
    return UnknownName(what, hint=hint)


def __dir__() -> list[str]:
    return sorted({*_PLACE_OF, *(name for name in globals() if name.startswith("__"))})
