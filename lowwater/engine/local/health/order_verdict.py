"""Judges the order of upserts: whether most of what a table is given is superseded (T-1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import final

from lowwater.engine.graph.graph import Stage
from lowwater.engine.graph.metrics import StageMetrics
from lowwater.engine.records.batch import HIDDEN
from lowwater.engine.records.problems import JUDGED, Tally
from lowwater.errors import DataWarning, warn


@final
class OrderVerdicts:
    """Judges each table with ``order=`` once, when it has had 1,000 upserts.

    If more than half of them were superseded, the column probably goes back where rows get newer,
    and a ``DataWarning`` says so.

    Args:
        stages: The stages of the run.
        names: Their names.
        metrics: Their counts.
        tallies: The counts of what was admitted to them, by number of the stage.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        names: Sequence[str],
        metrics: Sequence[StageMetrics],
        tallies: Mapping[int, Sequence[Tally]],
    ) -> None:
        self._open = [
            _OrderVerdict(order, names[number], metrics[number], tallies[number])
            for number, stage in enumerate(stages)
            if stage.makes_table
            for order in stage.work.orders(0)
            if not order.startswith(HIDDEN)
        ]

    def resume(self) -> None:
        """Close what an earlier run has judged; call it once the counts are restored."""
        self._open = [one for one in self._open if not one.is_due]

    def judge(self) -> None:
        """Judge what is due. O(tables that are not judged yet)."""
        if self._open and any(one.is_due for one in self._open):
            for one in self._open:
                if one.is_due:
                    one.judge()
            self.resume()


@final
class _OrderVerdict:
    def __init__(
        self, order: str, name: str, metrics: StageMetrics, tallies: Iterable[Tally]
    ) -> None:
        self._order = order
        self._name = name
        self._metrics = metrics
        self._tallies = tuple(tallies)

    @property
    def _admitted(self) -> int:
        return sum(tally.admitted for tally in self._tallies)

    @property
    def is_due(self) -> bool:
        return self._admitted >= JUDGED

    def judge(self) -> None:
        admitted, superseded = self._admitted, self._metrics.superseded
        if superseded * 2 > admitted:
            warn(
                DataWarning,
                f"{superseded:,} of the first {admitted:,} upserts were superseded and ignored: "
                f"{self._order!r} was lower than before for the same key",
                where=self._name,
                hint="Give order= a column that grows with each change of a row, such as a version "
                "or the time of the change",
            )
