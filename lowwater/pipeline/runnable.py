"""What every fluent value that can be run offers: it is drawn, run, collected and written."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from lowwater.engine.graph.graph import Graph
from lowwater.engine.local.delivery import Sink
from lowwater.explain.graph_text import explain_graph, mermaid_graph
from lowwater.io.paths import PathLike
from lowwater.pipeline.outputs import Writing, jsonl_sink, parquet_sink

if TYPE_CHECKING:
    from lowwater.viz import GraphDiagram


class Runnable(ABC):
    """A value with an output: something to run, collect, write and draw."""

    __slots__ = ()

    @abstractmethod
    def _to(self, *sinks: Sink) -> Writing:
        """Return the output that is meant, written to sinks."""

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
        ``write_parquet`` as JSON lines.

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
