"""A built pipeline: a value that can be run, as often as its sources can be read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Unpack, final

import pyarrow as pa

from lowwater.engine.graph.clocks import ClockLike
from lowwater.engine.graph.graph import Graph, Stage, Windowed
from lowwater.engine.graph.outline import stage_outline
from lowwater.engine.graph.plan import Plan
from lowwater.engine.local.delivery import Sink
from lowwater.engine.records.pane_table import empty_panes
from lowwater.engine.records.stateless import BatchFunction, RecordFunction
from lowwater.errors import InvalidArgument, UnsupportedByRunner, describe
from lowwater.explain.graph_text import explain_graph, mermaid_graph
from lowwater.io.paths import PathLike
from lowwater.pipeline.outputs import Writing, jsonl_sink, parquet_sink
from lowwater.pipeline.result import Result
from lowwater.pipeline.run import Outcomes, PaneBatches, Panes, RunOptions

if TYPE_CHECKING:
    import narwhals as nw
    import pandas as pd

    from lowwater.pipeline.keyed import KeyedStream
    from lowwater.pipeline.process_stage import Processed
    from lowwater.pipeline.streams import Key, Stream
    from lowwater.viz import GraphDiagram


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Pipeline:
    """All that leads from sources to the panes of a stage. Nothing runs until an end is called.

    Pipelines are made by :func:`lowwater.read_parquet` and its like, not by hand. Its panes can be
    the records of a further stage: ``filter``, ``key_by`` and the other steps of a stream go on
    from here.
    """

    _stage: Stage
    _clock: ClockLike | None = None
    _key_types: tuple[pa.DataType, ...] = ()
    _results: Mapping[str, pa.DataType | None] | None = None

    def __repr__(self) -> str:
        return f"Pipeline({stage_outline(self._stage)})"

    def named(self, name: str) -> Pipeline:
        """Return the same pipeline, its last stage called ``name`` in metrics and explanations."""
        if not isinstance(name, str) or not name:
            raise InvalidArgument(
                f"{describe('name', name)} is not a name", hint='Write, say, named("per minute")'
            )
        return replace(self, _stage=replace(self._stage, name=name))

    def explain(self) -> str:
        """Return the stages in words: windows, triggers, lateness, and where data is exchanged."""
        return explain_graph(Graph.of([self._stage]))

    def to_mermaid(self) -> str:
        """Return the graph of stages as Mermaid text, for Markdown and notebooks."""
        return mermaid_graph(Graph.of([self._stage]))

    def graph(self) -> GraphDiagram:
        """Return the graph of stages as a picture; that of a run shows watermarks too."""
        from lowwater.viz import GraphDiagram

        return GraphDiagram.of(Graph.of([self._stage]))

    def run(self, **options: Unpack[RunOptions]) -> Panes:
        """Run, and give the panes one by one as they come: see :class:`RunOptions`.

        What comes back is an iterator that also has ``metrics``.
        """
        return Panes(self._outcomes(options), self._stage.key_names)

    def run_batches(self, **options: Unpack[RunOptions]) -> PaneBatches:
        """Run, and give the panes as columns: what is fast for many of them."""
        return PaneBatches(self._outcomes(options), self._stage.key_names)

    def collect(self, **options: Unpack[RunOptions]) -> Result:
        """Run to the end and keep everything: panes, late elements, dead letters and metrics."""
        run = self._outcomes(options)
        result = Result(self._stage.key_names, self._no_panes(), run.metrics, run.trace, run.graph)
        for outcome in run:
            result._add(outcome.panes, outcome.late, outcome.errors)
        return result

    def to_arrow(self, **options: Unpack[RunOptions]) -> pa.Table:
        """Run to the end and return the panes as an Arrow table."""
        return self.collect(**options).to_arrow()

    def to_pandas(self, **options: Unpack[RunOptions]) -> pd.DataFrame:
        """Run to the end and return the panes as a pandas DataFrame."""
        return self.collect(**options).to_pandas()

    def write_parquet(self, folder: PathLike, *, overwrite: bool = False) -> Writing:
        """Return the pipeline with a folder of Parquet files as its output; ``run`` that.

        The files are ``part-<epoch>-<output>-<piece>.parquet``. Late elements and dead letters go
        to ``late-*.jsonl`` and ``errors-*.jsonl`` in the folder: see
        :class:`lowwater.io.sinks.ParquetFolder`.

        Args:
            folder: The folder; made if it is not there.
            overwrite: Whether the output of another run or state directory is to be replaced;
                otherwise it is refused.
        """
        return self._to(parquet_sink(folder, overwrite=overwrite))

    def write_jsonl(self, path: PathLike, *, overwrite: bool = False) -> Writing:
        """Return the pipeline with JSON lines as its output; ``run`` that.

        A name that ends in ``.jsonl`` is one file's: for ``out.jsonl``, late elements and dead
        letters go to ``out.late.jsonl`` and ``out.errors.jsonl`` (see
        :class:`lowwater.io.sinks.JsonLinesFile`). Any other is a folder's, as for
        ``write_parquet``.

        Args:
            path: The file or the folder; made if it is not there.
            overwrite: Whether the output of another run or state directory is to be replaced;
                otherwise it is refused.
        """
        return self._to(jsonl_sink(path, overwrite=overwrite))

    def write_to(self, *sinks: Sink) -> Writing:
        """Return the pipeline with sinks as its output, each of which gets all; ``run`` that.

        See :mod:`lowwater.io.sinks` for what there is; a user's own is a
        :class:`lowwater.io.sinks.Sink`.
        """
        return self._to(*sinks)

    def to_spark(self, spark: Any, **options: Any) -> Any:
        """Return the panes as a Spark DataFrame: streaming if the source is, else the batch answer.

        See :class:`lowwater.spark.SparkOptions` for the options, and ``docs/spark.md`` for
        the columns.

        Args:
            spark: The Spark session.
            **options: How to run there.

        Raises:
            UnsupportedByRunner: Spark is not there, or cannot do what the pipeline asks for.
        """
        try:
            from lowwater.spark.options import options_of
            from lowwater.spark.query import panes_on_spark
        except ImportError as error:
            raise UnsupportedByRunner(
                f"pyspark cannot be imported: {error}", hint="pip install 'lowwater[spark]'"
            ) from error
        plan = Plan.of(self._stage, "to_spark")
        return panes_on_spark(spark, plan, options_of(options), self._clock)

    def filter(self, condition: nw.Expr | Callable[[Any], bool]) -> Stream:
        """Go on with the panes as records: see :meth:`Stream.filter`."""
        return self.to_stream().filter(condition)

    def with_columns(self, *expressions: nw.Expr, **named: nw.Expr) -> Stream:
        """Go on with the panes as records: see :meth:`Stream.with_columns`."""
        return self.to_stream().with_columns(*expressions, **named)

    def select(self, *expressions: nw.Expr | str, **named: nw.Expr) -> Stream:
        """Go on with the panes as records: see :meth:`Stream.select`."""
        return self.to_stream().select(*expressions, **named)

    def map(self, function: RecordFunction) -> Stream:
        """Go on with the panes as records: see :meth:`Stream.map`."""
        return self.to_stream().map(function)

    def flat_map(self, function: Callable[[Any], Iterable[Any]]) -> Stream:
        """Go on with the panes as records: see :meth:`Stream.flat_map`."""
        return self.to_stream().flat_map(function)

    def map_batches(self, function: BatchFunction) -> Stream:
        """Go on with the panes as records: see :meth:`Stream.map_batches`."""
        return self.to_stream().map_batches(function)

    def key_by(self, *keys: Key, **named: nw.Expr) -> KeyedStream:
        """Go on with the panes as records: see :meth:`Stream.key_by`."""
        return self.to_stream().key_by(*keys, **named)

    def union(self, *others: Stream | Pipeline | Processed) -> Stream:
        """Bring the panes together with other streams: see :meth:`Stream.union`."""
        return self.to_stream().union(*others)

    def __or__(self, other: Stream | Pipeline | Processed) -> Stream:
        return self.to_stream().union(other)

    def to_stream(self) -> Stream:
        """Return the panes as the records of a stream, for a further stage.

        Their event time is the panes' timestamp (S-H1), a column ``timestamp``; the others are the
        keys, ``window_start``, ``window_end``, the aggregates, ``timing``, ``index``,
        ``on_time_index`` and ``is_first``. In retracting mode, the next stage's aggregates take
        back what was retracted.
        """
        from lowwater.pipeline.streams import as_stream  # streams lead to pipelines, and on

        return as_stream(self)

    def _outcomes(self, options: RunOptions) -> Outcomes:
        return Outcomes((self._stage,), options)

    def _to(self, *sinks: Sink) -> Writing:
        return Writing(self._stage, self._no_panes(), sinks)

    def _no_panes(self) -> pa.Table:
        names = self._stage.key_names
        types = self._key_types or (pa.null(),) * len(names)
        keys = list(zip(names, types, strict=True))
        work = self._stage.work
        return empty_panes(keys, list(work.aggregates) if isinstance(work, Windowed) else [])
