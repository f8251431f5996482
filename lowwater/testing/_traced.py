"""Records what becomes of a scenario's elements, as a run of a pipeline does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import final

import numpy as np

from lowwater.engine.aggregates._base import AggregateSpec
from lowwater.engine.columns import Column
from lowwater.engine.graph import Stage, Windowed
from lowwater.engine.operator import WindowOperator
from lowwater.engine.recorder import StageRecorder, Taken
from lowwater.engine.records import Records
from lowwater.engine.steps import Bundle, StepInput, StepOutput
from lowwater.engine.trace import StageTrace
from lowwater.engine.windowing import Windowing
from lowwater.testing.scenario import Element


@final
class ScenarioRecorder:
    """Records the steps of one operator.

    Args:
        windowing: Where, when and how.
        specs: What panes show.
        operator: The operator, not yet stepped.
    """

    def __init__(
        self, windowing: Windowing, specs: Mapping[str, AggregateSpec], operator: WindowOperator
    ) -> None:
        stage = Stage((), ("key",), ("key",), Windowed(windowing, specs))
        self._stage = StageRecorder("scenario", stage, (), count(), ())
        self._operator = operator
        operator.report_merges()
        self._moved()

    def stepped(self, step: StepInput, elements: Sequence[Element], output: StepOutput) -> None:
        """Record a step that the operator has made."""
        operator = self._operator
        if isinstance(step, Bundle):
            rows = np.arange(len(elements), dtype=np.int64)
            values = Column.of_objects([element.record for element in elements])
            records = Records({"value": values}, len(elements))
            taken = Taken(
                step, None, output.late, records, rows, operator.watermark, operator.clock
            )
            self._stage.took(taken, output.merges)
        if output.panes is not None:
            self._stage.showed(output.panes)
        self._moved()

    def trace(self) -> StageTrace:
        """Return what was recorded."""
        return self._stage.trace()

    def _moved(self) -> None:
        operator = self._operator
        watermark = operator.watermark
        self._stage.moved(operator.clock, watermark, operator.output_watermark, None)
