"""What is emitted of matches: aggregates over their rows, and expressions at their last row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, final

from lowwater.engine.aggregates import AggregateSpec
from lowwater.engine.aggregates._conditions import Condition
from lowwater.engine.match.references import references_in
from lowwater.engine.match.taken import Taken, Values, counted
from lowwater.engine.records.columns import Column
from lowwater.engine.records.other_rows import MatchedValue, Prev
from lowwater.time import Int64Array

_AT_ONCE = 1_000_000  # rows that are taken, counted for each row of a match

MEASURES = "match(measures=)"
"""What messages call it."""


def is_aggregate(measure: object) -> bool:
    """Return whether a measure is an aggregate, and not an expression."""
    return hasattr(measure, "bind")


def over_rows(spec: AggregateSpec) -> AggregateSpec:
    """Return an aggregate that reads the variable whose rows it counts as a condition."""
    variable: str | None = getattr(spec, "of", None)
    if variable is None:
        return spec
    where: Condition | None = getattr(spec, "where", None)
    column = counted(variable, "" if where is None else where.column or "")
    condition = Condition(None, f"of={variable}", (), column)
    return replace(spec, of=None, where=condition)  # type: ignore[type-var]  # dataclasses, all


@final
class Measures:
    """The measures of a stage.

    Args:
        measures: By output name.
    """

    def __init__(self, measures: Mapping[str, AggregateSpec | Any]) -> None:
        self.names = tuple(measures)
        self._specs = {name: over_rows(one) for name, one in measures.items() if is_aggregate(one)}
        self._expressions = {name: one for name, one in measures.items() if not is_aggregate(one)}

    @property
    def reads_before(self) -> bool:
        """Whether one reads rows that are not of the match."""
        return any(
            isinstance(reference, Prev)
            for one in self._expressions.values()
            for reference in references_in(one)
        )

    def of_matches(self, values: Values, taken: Taken) -> dict[str, Column]:
        """Return the measures of whole matches."""
        found = values.aggregated(self._specs, taken) if self._specs else {}
        if self._expressions:
            last, _ = taken.picked(0, last=True)
            found |= self._computed(values, last, taken)
        return {name: found[name] for name in self.names}

    def of_rows(self, values: Values, taken: Taken) -> dict[str, Column]:
        """Return the measures of matches up to each of their rows."""
        found = values.running(self._specs, taken) if self._specs else {}
        for name, one in self._expressions.items():
            found[name] = self._of_each_row(values, one, taken)
        return {name: found[name] for name in self.names}

    def _of_each_row(self, values: Values, expression: Any, taken: Taken) -> Column:
        if not any(isinstance(one, MatchedValue) for one in references_in(expression)):
            return values.computed(expression, taken.places, None, MEASURES)
        # As many rows as the squares of the lengths of matches, so not all at once.
        parts = [
            values.computed(expression, taken.places[low:high], prefixes, MEASURES)
            for low, high, prefixes in taken.prefixes(_AT_ONCE)
        ]
        return Column.concat_as_is(parts)

    def _computed(self, values: Values, at: Int64Array, taken: Taken) -> dict[str, Column]:
        return {
            name: values.computed(one, at, taken, MEASURES)
            for name, one in self._expressions.items()
        }
