"""The methods of every value that can be run: run, collect, write and draw."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Unpack

import pyarrow as pa

from lowwater.engine.graph.graph import Graph
from lowwater.engine.local.delivery import Sink
from lowwater.errors import InvalidArgument, NoItems, describe, explained, explains
from lowwater.io.paths import PathLike
from lowwater.pipeline.forms import BatchT, Form, ItemT
from lowwater.pipeline.outcomes import (
    Outcomes,
    RunOptions,
    refuse_endless,
    with_run_options,
)
from lowwater.pipeline.result import (
    Result,
    Run,
    arrow_batches_of,
    batches_of,
    items_of,
)

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

    from lowwater.display.palette import Theme
    from lowwater.io.sinks.compaction import Compaction
    from lowwater.io.sinks.kafka import MessageFormat
    from lowwater.pipeline.outputs import Writing
    from lowwater.viz import GraphDiagram


@explains
class Runnable(ABC, Generic[ItemT, BatchT]):
    """A value with an output: something to run, collect, write and draw."""

    __slots__ = ()

    @abstractmethod
    def _to(self, *sinks: Sink) -> Writing:
        """Return this output, written to sinks."""

    @abstractmethod
    def _form(self) -> Form[ItemT, BatchT]:
        """Return the form in which this output is read."""

    def _graph(self) -> Graph:
        return Graph.of([self._to()._stage])

    def explain(self) -> str:
        """Describe the stages: windows, triggers, lateness, and where data is exchanged."""
        from lowwater.explain.graph_text import explain_graph

        return explain_graph(self._graph())

    def to_mermaid(self) -> str:
        """Return the graph of stages as Mermaid text, for Markdown and notebooks."""
        from lowwater.explain.graph_text import mermaid_graph

        return mermaid_graph(self._graph())

    def graph(self, *, theme: Theme = "auto") -> GraphDiagram:
        """Draw the graph of stages; the graph of a run or a result also has watermarks."""
        from lowwater.viz import GraphDiagram

        return GraphDiagram.of(self._graph(), theme=theme)

    def _repr_html_(self) -> str:
        from lowwater.viz.output_html import graph_html

        return graph_html(type(self).__name__, self.graph())

    if not TYPE_CHECKING:

        def __getitem__(self, at: object) -> NoReturn:  # and so it is for `for ... in pipeline`
            raise NoItems(
                "a pipeline has no items: it computes nothing before it runs",
                hint="Write for pane in pipeline.run(), or pipeline.collect().panes[0]",
            )

    @with_run_options
    def run(self, **options: Unpack[RunOptions]) -> Run[ItemT]:
        """Run, and return an iterator over the panes, or over the elements of this output.

        The iterator also has ``metrics``, ``explain``, ``diagram`` and others. Sources are closed
        when it ends or is garbage-collected.
        """
        outcomes = self._outcomes(options)
        return Run(outcomes, items_of(outcomes, self._form()))

    @with_run_options
    def run_batches(self, **options: Unpack[RunOptions]) -> Run[BatchT]:
        """Run, and return an iterator over batches of columns, without an object per pane."""
        outcomes = self._outcomes(options)
        return Run(outcomes, batches_of(outcomes, self._form()))

    @with_run_options
    def to_arrow_batches(self, **options: Unpack[RunOptions]) -> Run[pa.RecordBatch]:
        """Run, and return an iterator over Arrow batches."""
        outcomes = self._outcomes(options)
        return Run(outcomes, arrow_batches_of(outcomes, self._form()))

    @with_run_options
    def collect(self, **options: Unpack[RunOptions]) -> Result:
        """Run to the end and keep everything in memory, including all outputs of a process.

        Raises:
            InvalidArgument: A source never ends, or ``lw.check`` calls something an error.
        """
        if "final" in options:
            raise InvalidArgument(
                "collect keeps all panes, and has no final=",
                where="collect",
                hint="Write collect().final() or to_pandas(final=True)",
            )
        return self._collect("collect", options, final=True)

    def _collect(self, step: str, options: RunOptions, *, final: bool) -> Result:
        output = self._to()
        refuse_endless(Graph.of([output._stage]), step)
        kept = "the errors of the result" if step == "collect" else None
        outcomes = Outcomes(
            (output._stage,), options, dead_letters_in=kept, tells_late=step != "collect"
        )
        if final:
            outcomes.local.report_replaced()
        result = Result(output._stage, outcomes, output._empty)
        for outcome in outcomes:
            result._add(outcome)
        return result

    @with_run_options
    def to_arrow(self, *, final: bool = False, **options: Unpack[RunOptions]) -> pa.Table:
        """Run to the end and return the panes, or this output, as an Arrow table.

        Args:
            final: Whether to return only what stands at the end: see
                :meth:`lowwater.Result.final`.
            **options: See :class:`RunOptions`.
        """
        result = self._collect("to_arrow", options, final=final)
        return result.to_arrow(self._to()._tag, final=final)

    @with_run_options
    def to_pandas(self, *, final: bool = False, **options: Unpack[RunOptions]) -> pd.DataFrame:
        """Run to the end and return the same as a pandas DataFrame.

        Args:
            final: See :meth:`to_arrow`.
            **options: See :class:`RunOptions`.
        """
        result = self._collect("to_pandas", options, final=final)
        return result.to_pandas(self._to()._tag, final=final)

    @with_run_options
    def to_polars(self, *, final: bool = False, **options: Unpack[RunOptions]) -> pl.DataFrame:
        """Run to the end and return the same as a polars DataFrame.

        Needs ``pip install "lowwater[polars]"``.

        Args:
            final: See :meth:`to_arrow`.
            **options: See :class:`RunOptions`.
        """
        result = self._collect("to_polars", options, final=final)
        return result.to_polars(self._to()._tag, final=final)

    def _outcomes(self, options: RunOptions) -> Outcomes:
        return Outcomes((self._to()._stage,), options, dead_letters_in=None)

    def write_parquet(
        self, folder: PathLike, *, overwrite: bool = False, compact: Compaction | None = None
    ) -> Writing:
        """Return an output that writes Parquet files to a folder; call ``run`` on it.

        The files are ``part-<epoch>-<output>-<piece>.parquet``. Late elements and dead letters go
        to ``late-*.jsonl`` and ``errors-*.jsonl`` in the folder: see
        :class:`lowwater.io.sinks.ParquetFolder`.

        Args:
            folder: The folder, or its URI in an object store, such as ``s3://bucket/folder``;
                created if it does not exist.
            overwrite: Whether to replace the output of another run or state directory; otherwise it
                is refused.
            compact: When deliveries become a file: a run that commits every second then publishes a
                few large files instead of one per second. ``None``: each delivery at once.
        """
        from lowwater.pipeline.file_outputs import parquet_sink

        return self._to(parquet_sink(folder, overwrite=overwrite, compact=compact))

    def write_jsonl(
        self, path: PathLike, *, overwrite: bool = False, compact: Compaction | None = None
    ) -> Writing:
        """Return an output that writes JSON lines; call ``run`` on it.

        A name that ends in ``.jsonl`` means one file. Late elements and dead letters of
        ``out.jsonl`` go to ``out.late.jsonl`` and ``out.errors.jsonl`` (see
        :class:`lowwater.io.sinks.JsonLinesFile`). Any other name means a folder, with the files of
        ``write_parquet`` as JSON lines; but ``out.json``, ``out.JSONL`` and other names of files
        are refused.

        Args:
            path: The file or the folder; created if it does not exist. In an object store the URI
                of a folder, such as ``s3://bucket/folder``.
            overwrite: Whether to replace the output of another run or state directory; otherwise it
                is refused.
            compact: See :meth:`write_parquet`; for folders only.

        Raises:
            InvalidArgument: ``compact`` is given for one file, to which deliveries are appended.
        """
        from lowwater.pipeline.file_outputs import jsonl_sink

        return self._to(jsonl_sink(path, overwrite=overwrite, compact=compact))

    def write_kafka(
        self,
        servers: str,
        topic: str,
        *,
        key: str | tuple[str, ...] | None = None,
        value: MessageFormat = "json",
        late: str | None = None,
        errors: str | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> Writing:
        """Return an output that writes messages to a topic of Kafka; call ``run`` on it.

        With a state directory, consumers that read what is committed see each result once: see
        :class:`lowwater.io.sinks.KafkaTopic`. Needs ``pip install "lowwater[kafka]"``.

        Args:
            servers: The brokers, such as ``"localhost:9092"``.
            topic: The topic.
            key: The column, or columns, of the messages' keys; by default the key columns.
            value: ``"json"``, ``"arrow"``, or a function of a row that returns bytes.
            late: The topic of late elements; by default they are counted, not written.
            errors: The topic of dead letters; by default they are counted, not written.
            config: Further settings of the client library (librdkafka), such as those of security.
        """
        from lowwater.io.sinks.kafka import KafkaTopic

        return self._to(KafkaTopic(servers, topic, key, value, late, errors, config or {}))

    def write_to(self, *sinks: Sink) -> Writing:
        """Return an output that writes everything to each of the sinks; call ``run`` on it.

        :mod:`lowwater.io.sinks` has the built-in sinks, and :class:`lowwater.io.sinks.Sink` is the
        protocol for your own. Tables with a row per window refuse the output of a process.
        """
        if not sinks:
            raise InvalidArgument(
                "write_to needs at least one sink",
                hint='Write, say, write_to(lowwater.io.sinks.SqliteTable("counts.db", "counts"))',
            )
        return self._to(*sinks)

    def to_spark(self, spark: Any, **options: Any) -> Any:
        """Return the panes as a Spark DataFrame: streaming if the source is, otherwise static.

        ``docs/spark.md`` lists the columns.

        Args:
            spark: The Spark session.
            **options: See :class:`lowwater.spark.SparkOptions`.

        Raises:
            InvalidArgument: Spark is not installed, or ``lw.check`` calls something an error.
            UnsupportedByRunner: Spark does not support the pipeline.
        """
        from lowwater.pipeline.spark_outputs import on_spark

        return on_spark(spark, [self._to()], options)


@explained()
def to_spark(spark: Any, *outputs: Runnable[Any, Any], **options: Any) -> Any:
    """Return several outputs as one Spark DataFrame, so that no source is read twice.

    Rows say in the column ``output`` which output they are of: the name of its stage, and for a
    side output of a process ``stage.output``. The columns of all outputs stand side by side, and
    are null where an output has no such column. :func:`lowwater.spark.split` takes the rows of one
    output.

    Args:
        spark: The Spark session.
        *outputs: Pipelines and outputs of processes.
        **options: See :class:`lowwater.spark.SparkOptions`.

    Raises:
        InvalidArgument: There is no output, or something else; or two have the same name.
        UnsupportedByRunner: Spark does not support the pipeline.
    """
    from lowwater.pipeline.spark_outputs import on_spark

    if not outputs:
        raise InvalidArgument("to_spark needs an output", hint="Write to_spark(spark, counts)")
    for output in outputs:
        if not isinstance(output, Runnable):
            raise InvalidArgument(
                f"{describe('output', output)} is no output of a pipeline",
                where="to_spark",
                hint="Give what .aggregate(...), .group() or .process(...) returned",
            )
    return on_spark(spark, [output._to() for output in outputs], options)
