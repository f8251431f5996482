"""What every fluent value that can be run offers: it is drawn, run, collected and written."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from lowwater.engine.graph.graph import Graph
from lowwater.engine.local.delivery import DurableSink
from lowwater.errors import InvalidArgument, describe
from lowwater.explain.graph_text import explain_graph, mermaid_graph
from lowwater.io.paths import PathLike, as_paths
from lowwater.io.sinks import JsonLinesFolder, ParquetFolder
from lowwater.io.sinks.plain import JsonLinesSink, ParquetSink
from lowwater.pipeline.outputs import Delivering, End, Writing

if TYPE_CHECKING:
    from lowwater.viz import GraphDiagram


class Runnable(ABC):
    """A value with an output: something to run, collect, write and draw."""

    __slots__ = ()

    @abstractmethod
    def _end(self) -> End:
        """Return the output that is meant."""

    def _graph(self) -> Graph:
        return Graph.of([self._end().stage])

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

    def write_parquet(self, folder: PathLike) -> Writing:
        """Return it with a folder of Parquet files as its output; call ``run`` on that.

        Late elements and dead letters go to ``late.jsonl`` and ``errors.jsonl`` in the folder.
        """
        (path,) = as_paths(folder)
        return Writing(self._end(), lambda: ParquetSink(path), ParquetFolder(path))

    def write_jsonl(self, path: PathLike) -> Writing:
        """Return it with a file of JSON lines as its output; call ``run`` on that.

        For ``out.jsonl``, late elements and dead letters go to ``out.late.jsonl`` and
        ``out.errors.jsonl``.
        """
        (target,) = as_paths(path)
        return Writing(self._end(), lambda: JsonLinesSink(target), JsonLinesFolder(target))

    def write_to(self, *sinks: DurableSink) -> Delivering:
        """Return it with durable sinks as its outputs; call ``run(state=...)`` on that.

        See :mod:`lowwater.io.sinks` for what there is; a user's own is a
        :class:`lowwater.engine.local.delivery.DurableSink`. Tables with a row per window take no
        output of a process.
        """
        for sink in sinks:
            if not isinstance(sink, DurableSink):
                raise InvalidArgument(
                    f"{describe('sink', sink)} has no open, deliver and close",
                    hint="Use, say, lowwater.io.sinks.SqliteTable",
                )
        return Delivering(self._end(), sinks)
