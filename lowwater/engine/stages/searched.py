"""Finds row patterns: a stage of ``match`` (P-1 to P-14)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import pyarrow as pa

from lowwater.display.text import shown
from lowwater.engine.aggregates import AggregateSpec
from lowwater.engine.aggregates._base import Needs
from lowwater.engine.graph.described import described, repr_text
from lowwater.engine.graph.finding import Finding, Upstream
from lowwater.engine.graph.graph import MAIN, Stage
from lowwater.engine.graph.input_types import InputTypes
from lowwater.engine.graph.operator import Operator
from lowwater.engine.graph.outline import outline, spec_text
from lowwater.engine.match.columns_read import (
    columns_needed,
    keeps_all,
    kept_columns,
    measure_types,
)
from lowwater.engine.match.measures import is_aggregate
from lowwater.engine.match.rules import END, START, VARIABLE, Matching
from lowwater.engine.records.columns import Types
from lowwater.engine.records.pane_table import MICROS_UTC
from lowwater.engine.records.stage_bundle import StageBundle
from lowwater.engine.records.steps import Bundle
from lowwater.engine.stages.kind import NO_AGGREGATES, StageKind
from lowwater.errors import InvalidArgument
from lowwater.time import Int64Array, format_duration


@final
@dataclass(frozen=True, slots=True)
class Searched(StageKind):
    """The work of a stage that finds row patterns.

    Args:
        rules: The rules.
        columns: The columns of its input, as far as they are known, with their types.
    """

    rules: Matching
    columns: Types

    stored_as: ClassVar[str] = "match"
    noun: ClassVar[str] = "match"
    windowing: ClassVar[None] = None
    passes_signs: ClassVar[bool] = True
    keeps_rows: ClassVar[bool] = True
    outputs: ClassVar[tuple[str, ...]] = (MAIN,)
    aggregates: ClassVar[Mapping[str, AggregateSpec]] = NO_AGGREGATES

    @property
    def match_rules(self) -> Matching:
        return self.rules

    @property
    def retracts(self) -> bool:
        """Whether it takes back what it emitted, even if its input never does (P-13)."""
        return self.rules.corrects

    def lateness_behind(self, upstream_us: Callable[[], int]) -> int:
        return self.rules.emits_late_us

    def needs(self) -> dict[str, Needs]:
        return columns_needed(self.rules)

    def orders(self, nth: int) -> Mapping[str, str]:
        order = self.rules.order
        return {} if order is None else {order: "match(order=)"}

    def operator(self, stage: Stage) -> Operator:
        from lowwater.engine.match.operator import MatchOperator

        names, every = kept_columns(self.rules), keeps_all(self.rules)
        kept = {n: t for n, t in self.columns.items() if every or n in names}
        return MatchOperator(self.rules, kept, signed=stage.signed)

    def step(
        self, stage: Stage, incoming: StageBundle, kept: Int64Array | None
    ) -> tuple[Bundle, Any]:
        bundle, step = StageKind.step(self, stage, incoming, kept)
        if self.rules.rows == "all":
            # Where the columns were not known, only the records can tell that a name is taken.
            for name in (START, VARIABLE, *self.rules.measures):
                if name in bundle.values and name not in self.columns:
                    raise name_taken(name)
        return bundle, step

    def described(self) -> dict[str, Any]:
        rules = self.rules
        found: dict[str, Any] = {
            "pattern": rules.text,
            "define": {
                name: described(rules.functions[name]) if name in rules.functions else text
                for name, text in rules.texts.items()
            },
            "measures": {name: repr_text(one) for name, one in rules.measures.items()},
            "within": rules.within_us,
            "skip": rules.skip if isinstance(rules.skip, str) else list(rules.skip),
            "rows": rules.rows,
            "emit": rules.emit,
            "allowed_lateness": rules.lateness_us,
            "order": rules.order,
        }
        if rules.absence is not None:
            found["without"] = [rules.absence.text, rules.absence.within_us]
        return found

    def outline(self, stage: Stage) -> str:
        before = outline(stage.inputs, stage.key_names, deduplication=stage.deduplication)
        return f"{before} → match({', '.join(self._options())})"

    def _options(self) -> Iterator[str]:
        rules = self.rules
        yield repr(rules.text)
        if rules.within_us is not None:
            yield f"within={format_duration(rules.within_us)!r}"
        if rules.skip != "past_last":
            yield f"skip={rules.skip!r}"
        if rules.rows != "one":
            yield f"rows={rules.rows!r}"
        if rules.emit != "on_time":
            yield f"emit={rules.emit!r}"
        if rules.lateness_us:
            yield f"allowed_lateness={format_duration(rules.lateness_us)!r}"
        if rules.order is not None:
            yield f"order={rules.order!r}"
        if rules.absence is not None:
            within = format_duration(rules.absence.within_us)
            yield f"without=absent({rules.absence.text}, within={within!r})"

    def summary(self, stage: Stage) -> Iterator[str]:
        rules = self.rules
        yield f"match {shown(rules.text)}"
        for name, text in rules.texts.items():
            yield f"{name}: {text}"
        if rules.within_us is not None:
            yield f"within {format_duration(rules.within_us)} of its first row"
        if rules.absence is not None:
            within = format_duration(rules.absence.within_us)
            yield f"without {rules.absence.text} for {within} after its last row"
        for name, one in rules.measures.items():
            text = spec_text(one) if is_aggregate(one) else repr(one)
            yield f"{name} = {text}"
        yield {
            "on_time": "emitted once the watermark has passed what it depends on",
            "final": "emitted once no late row can change it",
            "early": "emitted after each bundle, and corrected",
        }[rules.emit]
        if rules.lateness_us:
            yield f"allowed lateness: {format_duration(rules.lateness_us)}"

    def emitted_types(self, stage: Stage, types: InputTypes) -> dict[str, pa.DataType | None]:
        rules = self.rules
        measures = measure_types(rules, types.left)
        found: dict[str, pa.DataType | None] = {START: MICROS_UTC}
        if rules.rows == "one":
            found[END] = MICROS_UTC
        else:
            found[VARIABLE] = pa.string()
            found |= types.visible({**self.columns, **types.left}, stage.keys)
        return {**found, **{n: types.given.get(n) or kind for n, kind in measures.items()}}

    def findings(self, stage: Stage, where: str, upstream: Sequence[Upstream]) -> Iterator[Finding]:
        from lowwater.engine.stages.pattern_advice import match_findings

        yield from match_findings(self.rules, where, upstream)


def name_taken(name: str) -> InvalidArgument:
    """Return the error for a column of the input that is called as one of the output is."""
    return InvalidArgument(
        f"the output has a column {name!r} of its own beside those of the rows",
        where="match(rows='all')",
        hint="Rename it in a step in front of the match, or rename the measure",
    )
