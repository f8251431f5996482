"""What stands of a run's panes, as one value: panes, Arrow, pandas or polars."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, final

import numpy as np
import pyarrow as pa

from lowwater.engine.aggregates import AggregateSpec
from lowwater.engine.records.pane_table import readable_table
from lowwater.engine.records.panes import Pane
from lowwater.engine.records.steps import TIMINGS, PaneBatch
from lowwater.engine.window.standing import Replaced, standing
from lowwater.engine.window.windowing import Windowing
from lowwater.pipeline.forms import PaneForm, as_pandas, as_polars

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FinalPanes:
    """The panes that stand: one for each key and window, in the order in which they were emitted.

    :meth:`lowwater.Result.final` returns it. Each row is the last pane of its window; where panes
    contain only what was new, its aggregates are those of all panes of the window.
    """

    _batches: tuple[PaneBatch, ...]
    _keys: tuple[str, ...]
    _nothing: pa.Table

    @classmethod
    def of(
        cls,
        batches: Sequence[PaneBatch],
        replaced: Sequence[Replaced],
        windowing: Windowing | None,
        aggregates: Mapping[str, AggregateSpec],
        keys: tuple[str, ...],
        nothing: pa.Table,
    ) -> Self:
        """Return what stands of the panes of a stage.

        Args:
            batches: All of its panes, in order of emission.
            replaced: Which windows merged, if their panes are not retracted.
            windowing: Its windows and accumulation; ``None``: each pane is all of its window (C-3).
            aggregates: Its aggregates.
            keys: The names of the key columns.
            nothing: The table without rows.
        """
        if windowing is not None:
            batches = standing(batches, replaced, windowing, aggregates)
        return cls(tuple(batches), keys, nothing)

    @property
    def panes(self) -> list[Pane]:
        """The panes as Python values."""
        return list(self)

    def to_arrow(self) -> pa.Table:
        """Return the panes as an Arrow table, with the columns of :meth:`lowwater.Result.to_arrow`.

        ``kind`` is ``insert`` and ``weight`` 1 in each row.
        """
        if not self._batches:
            return readable_table(self._nothing)
        return PaneForm(self._keys).table(self._batches)

    def to_pandas(self) -> pd.DataFrame:
        """Return the same as a pandas DataFrame."""
        return as_pandas(self.to_arrow())

    def to_polars(self) -> pl.DataFrame:
        """Return the same as a polars DataFrame; needs ``pip install "lowwater[polars]"``."""
        return as_polars(self.to_arrow())

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Export :meth:`to_arrow`, so that ``pa.table(final)`` and polars and DuckDB read it."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def __iter__(self) -> Iterator[Pane]:
        for batch in self._batches:
            yield from batch

    def __len__(self) -> int:
        return sum(map(len, self._batches))

    def _repr_html_(self) -> str:
        from lowwater.viz.output_html import Rejected, panes_html

        counts = Counter[str]()
        for batch in self._batches:  # as arrays: only the panes in the table are made
            numbers = np.bincount(batch.timing, minlength=len(TIMINGS)).tolist()
            counts.update(dict(zip(TIMINGS, numbers, strict=True)))
        return panes_html("What stands", self, counts, Rejected({}, {}), keys=self._keys)

    def __repr__(self) -> str:
        return f"FinalPanes({len(self)} windows)"
