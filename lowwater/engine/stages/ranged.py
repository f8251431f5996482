"""Computes values over the rows before each row: a stage of ``over`` (O-1 to O-8)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import pyarrow as pa

from lowwater.engine.aggregates import AggregateSpec
from lowwater.engine.aggregates._base import Needs, strictest_needs
from lowwater.engine.graph.described import repr_text
from lowwater.engine.graph.finding import Finding, Severity, Upstream
from lowwater.engine.graph.graph import MAIN, Stage
from lowwater.engine.graph.input_types import InputTypes
from lowwater.engine.graph.operator import Operator
from lowwater.engine.graph.outline import outline, spec_text
from lowwater.engine.match.columns_read import expression_type
from lowwater.engine.match.references import plain_columns, references_in
from lowwater.engine.over.row_numbers import Rank
from lowwater.engine.over.rules import Over
from lowwater.engine.records.columns import Types
from lowwater.engine.records.stage_bundle import StageBundle
from lowwater.engine.records.steps import Bundle
from lowwater.engine.stages.kind import NO_AGGREGATES, StageKind
from lowwater.engine.window.aggregation import result_type
from lowwater.errors import InvalidArgument
from lowwater.time import Int64Array, format_duration


@final
@dataclass(frozen=True, slots=True)
class Ranged(StageKind):
    """The work of a stage that computes values over the rows before each row.

    Args:
        rules: The rules.
        columns: The columns of its input, as far as they are known, with their types.
    """

    rules: Over
    columns: Types

    stored_as: ClassVar[str] = "over"
    noun: ClassVar[str] = "over"
    windowing: ClassVar[None] = None
    passes_signs: ClassVar[bool] = True
    keeps_rows: ClassVar[bool] = True
    outputs: ClassVar[tuple[str, ...]] = (MAIN,)
    aggregates: ClassVar[Mapping[str, AggregateSpec]] = NO_AGGREGATES

    @property
    def over_rules(self) -> Over:
        return self.rules

    @property
    def retracts(self) -> bool:
        """Whether it takes back what it emitted, even if its input never does (O-5)."""
        return self.rules.corrects

    def lateness_behind(self, upstream_us: Callable[[], int]) -> int:
        return self.rules.lateness_us

    def needs(self) -> dict[str, Needs]:
        rules = self.rules
        needs: dict[str, Needs] = {}
        for expression in rules.expressions.values():
            needs |= dict.fromkeys(plain_columns(expression) or (), "anything")
            for reference in references_in(expression):
                if reference.column is not None:
                    needs[reference.column] = "anything"
        for number in rules.numbers.values():
            if isinstance(number, Rank):
                needs[number.by] = "anything"
        for name, need in strictest_needs(rules.aggregates).items():
            # Rows come out as they are, and expressions read them: none becomes a float.
            needs[name] = "exact numbers" if need == "numbers" else need
        return needs

    def orders(self, nth: int) -> Mapping[str, str]:
        orders = {number.by: "over(rank)" for number in self._ranks()}
        return orders if self.rules.order is None else {**orders, self.rules.order: "over(order=)"}

    def operator(self, stage: Stage) -> Operator:
        from lowwater.engine.over.operator import OverOperator

        return OverOperator(self.rules, self.columns, signed=stage.signed)

    def step(
        self, stage: Stage, incoming: StageBundle, kept: Int64Array | None
    ) -> tuple[Bundle, Any]:
        bundle, step = StageKind.step(self, stage, incoming, kept)
        # Where the columns were not known, only the records can tell that a name is taken.
        for name in self.rules.names:
            if name in bundle.values:
                raise name_taken(name)
        return bundle, step

    def described(self) -> dict[str, Any]:
        rules = self.rules
        return {
            "results": {name: repr_text(self._result(name)) for name in rules.names},
            "length": rules.length_us,
            "rows": rules.rows,
            "order": rules.order,
            "keep": rules.keep_us,
            "allowed_lateness": rules.lateness_us,
            "late": rules.late,
        }

    def outline(self, stage: Stage) -> str:
        before = outline(stage.inputs, stage.key_names, deduplication=stage.deduplication)
        return f"{before} → over({', '.join(self._options())})"

    def _options(self) -> Iterator[str]:
        rules = self.rules
        if rules.length_us is not None:
            yield repr(format_duration(rules.length_us))
        else:
            yield f"rows={rules.rows}"
        for name in rules.names:
            yield f"{name}={self._text(name)}"
        if rules.order is not None:
            yield f"order={rules.order!r}"
        if rules.keep_us is not None:
            yield f"keep={format_duration(rules.keep_us)!r}"
        if rules.lateness_us:
            yield f"allowed_lateness={format_duration(rules.lateness_us)!r}"
        if rules.late != "correct":
            yield f"late={rules.late!r}"

    def summary(self, stage: Stage) -> Iterator[str]:
        rules = self.rules
        if rules.length_us is not None:
            yield f"over the {format_duration(rules.length_us)} up to each row"
        else:
            yield f"over {rules.rows} rows up to each row"
        for name in rules.names:
            yield f"{name} = {self._text(name)}"
        if rules.order is not None:
            yield f"rows of one time in order of {rules.order}"
        if rules.keep_us is not None:
            yield f"rows up to {format_duration(rules.keep_us)} older count"
        if rules.lateness_us:
            yield f"allowed lateness: {format_duration(rules.lateness_us)}, late rows correct"
        elif rules.late == "drop":
            yield "late rows are dropped"

    def emitted_types(self, stage: Stage, types: InputTypes) -> dict[str, pa.DataType | None]:
        columns = types.visible({**self.columns, **types.left}, stage.keys)
        results = result_types(self.rules, types.left)
        return {**columns, **{n: types.given.get(n) or kind for n, kind in results.items()}}

    def findings(self, stage: Stage, where: str, upstream: Sequence[Upstream]) -> Iterator[Finding]:
        rules = self.rules
        severity: Severity = "warning" if any(flow.is_endless for flow in upstream) else "note"
        if any(flow.is_blind for flow in upstream):
            yield Finding(
                severity,
                "a row comes out once the watermark has passed it, and a source has no watermark: "
                "all rows are kept until the input ends",
                where,
                "Give the source a watermark",
            )
        elif rules.rows_before and rules.keep_us is None:
            yield Finding(
                severity,
                f"the last rows of each key, {rules.rows_before} of them, are kept as long as "
                "the run lasts, also of keys that never come back",
                where,
                'If old rows need not count, say so: over(rows=..., keep="30d")',
            )

    def _ranks(self) -> list[Rank]:
        return [number for number in self.rules.numbers.values() if isinstance(number, Rank)]

    def _result(self, name: str) -> Any:
        rules = self.rules
        for results in (rules.aggregates, rules.numbers, rules.expressions):
            if name in results:
                return results[name]
        raise KeyError(name)

    def _text(self, name: str) -> str:
        result = self._result(name)
        return spec_text(result) if name in self.rules.aggregates else repr(result)


def result_types(rules: Over, columns: Mapping[str, pa.DataType]) -> dict[str, pa.DataType | None]:
    """Return the types of the results, as far as those of the columns are known."""
    types: dict[str, pa.DataType | None] = {}
    for name in rules.names:
        if name in rules.numbers:
            types[name] = pa.int64()
        elif name in rules.expressions:
            types[name] = expression_type(rules.expressions[name], columns, "over")
        else:
            spec = rules.aggregates[name]
            where = getattr(spec, "where", None)
            known = dict(columns)
            if where is not None and where.column is not None:
                known[where.column] = pa.bool_()
            types[name] = result_type(spec, known)
    return types


def name_taken(name: str) -> InvalidArgument:
    """Return the error for a result that is called as a column of the records is."""
    return InvalidArgument(
        f"the records have a column {name!r} already",
        where="over",
        hint=f"Give the result another name, as in over(..., my_{name}=...)",
    )
