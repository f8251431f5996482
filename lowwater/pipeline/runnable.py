"""What every fluent value that can be run offers: it is drawn, run, collected and written."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, Unpack

import pyarrow as pa

from lowwater.engine.graph.graph import Graph
from lowwater.engine.local.delivery import Sink
from lowwater.errors import UnsupportedByRunner
from lowwater.explain.graph_text import explain_graph, mermaid_graph
from lowwater.io.paths import PathLike
from lowwater.pipeline.outputs import Writing, jsonl_sink, parquet_sink
from lowwater.pipeline.result import (
    BatchT,
    Form,
    ItemT,
    Result,
    Run,
    arrow_batches_of,
    batches_of,
    items_of,
)
from lowwater.pipeline.run import Outcomes, RunOptions

if TYPE_CHECKING:
    import pandas as pd

    from lowwater.viz import GraphDiagram


class Runnable(ABC, Generic[ItemT, BatchT]):
    """A value with an output: something to run, collect, write and draw."""

    __slots__ = ()

    @abstractmethod
    def _to(self, *sinks: Sink) -> Writing:
        """Return the output that is meant, written to sinks."""

    @abstractmethod
    def _form(self) -> Form[ItemT, BatchT]:
        """Return how this output is read."""

    def _graph(self) -> Graph:
        return Graph.of([self._to()._stage])

    def explain(self) -> str:
        """Return the stages in words: windows, triggers, lateness, and where data is exchanged."""
        return explain_graph(self._graph())

    def to_mermaid(self) -> str:
        """Return the graph of stages as Mermaid text, for Markdown and notebooks."""
        return mermaid_graph(self._graph())

    def graph(self) -> GraphDiagram:
        """Return the graph of stages as a picture; that of a run shows watermarks too."""
        from lowwater.viz import GraphDiagram

        return GraphDiagram.of(self._graph())

    def run(self, **options: Unpack[RunOptions]) -> Run[ItemT]:
        """Run, and return an iterator over the panes, or over what a process emits to this output.

        The iterator also has ``metrics``, ``explain``, ``diagram`` and others. Sources are closed
        when it ends or is garbage-collected.
        """
        outcomes = self._outcomes(options)
        return Run(outcomes, items_of(outcomes, self._form()))

    def run_batches(self, **options: Unpack[RunOptions]) -> Run[BatchT]:
        """Run, and return an iterator over the same in batches of columns: no object for each."""
        outcomes = self._outcomes(options)
        return Run(outcomes, batches_of(outcomes, self._form()))

    def to_arrow_batches(self, **options: Unpack[RunOptions]) -> Run[pa.RecordBatch]:
        """Run, and return an iterator over the same as Arrow batches."""
        outcomes = self._outcomes(options)
        return Run(outcomes, arrow_batches_of(outcomes, self._form()))

    def collect(self, **options: Unpack[RunOptions]) -> Result:
        """Run to the end and keep everything: of a process, what it emits to all its outputs."""
        outcomes, output = self._outcomes(options), self._to()
        result = Result(output._stage, outcomes, output._empty)
        for outcome in outcomes:
            result._add(outcome)
        return result

    def to_arrow(self, **options: Unpack[RunOptions]) -> pa.Table:
        """Run to the end and return panes, or what is emitted to this output, as an Arrow table."""
        return self.collect(**options).to_arrow(self._to()._tag)

    def to_pandas(self, **options: Unpack[RunOptions]) -> pd.DataFrame:
        """Run to the end and return the same as a pandas DataFrame."""
        return self.collect(**options).to_pandas(self._to()._tag)

    def _outcomes(self, options: RunOptions) -> Outcomes:
        return Outcomes((self._to()._stage,), options)

    def write_parquet(self, folder: PathLike, *, overwrite: bool = False) -> Writing:
        """Return it with a folder of Parquet files as its output; call ``run`` on that.

        The files are ``part-<epoch>-<output>-<piece>.parquet``. Late elements and dead letters go
        to ``late-*.jsonl`` and ``errors-*.jsonl`` in the folder: see
        :class:`lowwater.io.sinks.ParquetFolder`.

        Args:
            folder: The folder; made if it is not there.
            overwrite: Whether to replace the output of another run or state directory, which is
                refused otherwise.
        """
        return self._to(parquet_sink(folder, overwrite=overwrite))

    def write_jsonl(self, path: PathLike, *, overwrite: bool = False) -> Writing:
        """Return it with JSON lines as its output; call ``run`` on that.

        A name that ends in ``.jsonl`` is one file's: for ``out.jsonl``, late elements and dead
        letters go to ``out.late.jsonl`` and ``out.errors.jsonl`` (see
        :class:`lowwater.io.sinks.JsonLinesFile`). Any other name is a folder's, with the files of
        ``write_parquet`` as JSON lines; but ``out.json``, ``out.JSONL`` and other names of files
        are refused.

        Args:
            path: The file or the folder; made if it is not there.
            overwrite: Whether to replace the output of another run or state directory, which is
                refused otherwise.
        """
        return self._to(jsonl_sink(path, overwrite=overwrite))

    def write_to(self, *sinks: Sink) -> Writing:
        """Return it with sinks as its output, each of which gets everything; call ``run`` on that.

        See :mod:`lowwater.io.sinks` for what there is; a user's own is a
        :class:`lowwater.io.sinks.Sink`. Tables with a row per window take no output of a process.
        """
        return self._to(*sinks)

    def to_spark(self, spark: Any, **options: Any) -> Any:
        """Return panes as a Spark DataFrame: streaming if the source is, else the batch answer.

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
        return panes_on_spark(spark, self._graph(), options_of(options))
