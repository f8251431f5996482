"""What a whole run gave, held in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, final

import pyarrow as pa

from lowwater.engine.graph.graph import Graph
from lowwater.engine.graph.metrics import Metrics
from lowwater.engine.graph.trace import Trace
from lowwater.engine.local.outcomes import LateElements
from lowwater.engine.records.pane_table import panes_to_arrow
from lowwater.engine.records.panes import ErrorRecord, LateRecord, Pane
from lowwater.engine.records.steps import PaneBatch
from lowwater.pipeline.traced import Traced

if TYPE_CHECKING:
    import pandas as pd

    from lowwater.viz import GraphDiagram


@final
class Result(Traced):
    """The panes, late elements and dead letters of a run that has ended.

    Args:
        keys: The names of the key columns.
        nothing: The table to show if there are no panes.
        metrics: The run's metrics.
        trace: Gives what was recorded of the run, or raises.
        graph: The sources and stages that ran.
    """

    def __init__(
        self,
        keys: Sequence[str],
        nothing: pa.Table,
        metrics: Metrics,
        trace: Callable[[], Trace],
        graph: Graph,
    ) -> None:
        self._keys = keys
        self._nothing = nothing
        self._metrics = metrics
        self._recorded = trace
        self._graph = graph
        self._trace: Trace | None = None
        self._batches: list[PaneBatch] = []
        self._late: list[LateElements] = []
        self._errors: list[ErrorRecord] = []
        self._panes: list[Pane] | None = None
        self._late_records: list[LateRecord] | None = None

    @property
    def panes(self) -> list[Pane]:
        """The panes, in the order they were emitted."""
        if self._panes is None:
            self._panes = [pane for batch in self._batches for pane in batch]
        return self._panes

    @property
    def late(self) -> list[LateRecord]:
        """The elements dropped from one of their windows, with the reason."""
        if self._late_records is None:
            self._late_records = [late for part in self._late for late in part.to_records()]
        return self._late_records

    @property
    def errors(self) -> list[ErrorRecord]:
        """The dead letters (S-B1)."""
        return self._errors

    @property
    def metrics(self) -> Metrics:
        """What the run did, in numbers."""
        return self._metrics

    @property
    def trace(self) -> Trace:
        """What the run did, step by step; needs ``collect(trace=True)``."""
        if self._trace is None:
            self._trace = self._recorded()
        return self._trace

    def graph(self) -> GraphDiagram:
        """Return sources and stages as a picture, with their watermarks at the end."""
        from lowwater.viz import GraphDiagram

        return GraphDiagram.of(self._graph, self.metrics)

    def to_arrow(self) -> pa.Table:
        """Return the panes as an Arrow table, one row each (see ``panes_to_arrow``)."""
        if not self._batches:
            return self._nothing
        batches = [panes_to_arrow(batch, self._keys) for batch in self._batches]
        if all(batch.schema == batches[0].schema for batch in batches):
            return pa.Table.from_batches(batches)
        tables = [pa.Table.from_batches([batch]) for batch in batches]
        try:
            return pa.concat_tables(tables, promote_options="permissive")
        except (pa.ArrowInvalid, pa.ArrowTypeError):  # types with nothing in common
            return panes_table(PaneBatch.concat(self._batches), self._keys)

    def to_pandas(self) -> pd.DataFrame:
        """Return the panes as a pandas DataFrame, one row each."""
        frame: pd.DataFrame = self.to_arrow().to_pandas()
        return frame

    def __repr__(self) -> str:
        metrics = self._metrics
        panes = ", ".join(f"{number} {timing}" for timing, number in metrics.panes.items())
        return (
            f"Result({metrics.events} events, panes: {panes or 'none'}, "
            f"{metrics.late.total()} late, {metrics.errors.total()} errors)"
        )

    def _add(
        self, panes: PaneBatch | None, late: LateElements | None, errors: Sequence[ErrorRecord]
    ) -> None:
        if panes is not None:
            self._batches.append(panes)
        if late is not None:
            self._late.append(late.compact())
        self._errors.extend(errors)


def panes_table(panes: PaneBatch, keys: Sequence[str]) -> pa.Table:
    """Return panes as an Arrow table."""
    return pa.Table.from_batches([panes_to_arrow(panes, keys)])
