"""A table with the first rows of each group of another (T-6)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import pyarrow as pa

from lowwater.engine.aggregates import AggregateSpec
from lowwater.engine.graph.finding import Finding, Upstream
from lowwater.engine.graph.graph import MAIN, Stage
from lowwater.engine.graph.input_types import InputTypes
from lowwater.engine.graph.operator import Operator
from lowwater.engine.graph.outline import names_text, outline
from lowwater.engine.join.topping import Topping
from lowwater.engine.records.batch import HIDDEN
from lowwater.engine.records.columns import Types
from lowwater.engine.records.stage_bundle import StageBundle
from lowwater.engine.records.steps import Bundle
from lowwater.engine.stages.kind import NO_AGGREGATES, StageKind
from lowwater.errors import InvalidArgument
from lowwater.time import Int64Array


@final
@dataclass(frozen=True, slots=True)
class Topped(StageKind):
    """The work of a table with the first rows of each group of another.

    Args:
        rules: The rules.
        columns: The columns of the other table, without those that it is grouped by, as far as they
            are known, with their types.
    """

    rules: Topping
    columns: Types

    stored_as: ClassVar[str] = "table"
    noun: ClassVar[str] = "table"
    windowing: ClassVar[None] = None
    keeps_rows: ClassVar[bool] = True
    retracts: ClassVar[bool] = True
    outputs: ClassVar[tuple[str, ...]] = (MAIN,)
    aggregates: ClassVar[Mapping[str, AggregateSpec]] = NO_AGGREGATES

    @property
    def makes_table(self) -> bool:
        return True

    def orders(self, nth: int) -> Mapping[str, str]:
        return {self.rules.by: "top(by=)"}

    def operator(self, stage: Stage) -> Operator:
        from lowwater.engine.join.tops import TopOperator

        return TopOperator(self.rules, self.columns)

    def step(
        self, stage: Stage, incoming: StageBundle, kept: Int64Array | None
    ) -> tuple[Bundle, Any]:
        hidden = frozenset(name for name in self.rules.key if name.startswith(HIDDEN))
        columns = incoming.columns(without=stage.keys, hidden=hidden)
        # Where the columns were not known, only the records can tell that the name is taken.
        if self.rules.rank in columns:
            raise rank_taken(self.rules.rank)
        bundle = incoming.with_values(columns, kept)
        return bundle, bundle

    def described(self) -> dict[str, Any]:
        rules = self.rules
        return {
            "top": rules.most,
            "by": rules.by,
            "ties": list(rules.ties),
            "key": list(rules.key),
            "reverse": rules.reverse,
            "rank": rules.rank,
        }

    def outline(self, stage: Stage) -> str:
        return f"{outline(stage.inputs)} → {self._text(stage)}"

    def summary(self, stage: Stage) -> Iterator[str]:
        yield self._text(stage)

    def emitted_types(self, stage: Stage, types: InputTypes) -> dict[str, pa.DataType | None]:
        columns = types.visible({**self.columns, **types.left}, stage.keys)
        return columns if self.rules.is_whole else {self.rules.rank: pa.int64(), **columns}

    def findings(self, stage: Stage, where: str, upstream: Sequence[Upstream]) -> Iterator[Finding]:
        if any(flow.is_endless for flow in upstream):
            yield Finding(
                "note",
                f"all rows of the table are kept once more, not only the first {self.rules.most} "
                "of each group: any of these may be deleted or change",
                where,
                "If it is about the records of a stream, which are never deleted, aggregate "
                'windows with lw.top(3, by="price"), which keeps no others',
            )

    def _text(self, stage: Stage) -> str:
        rules = self.rules
        options = [str(rules.most)]
        if not rules.is_whole:
            options.append(f"per={names_text(stage.keys)}")
        options.append(f"by={rules.by!r}")
        if rules.ties:
            options.append(f"ties={names_text(rules.ties)}")
        if rules.reverse:
            options.append("reverse=True")
        if rules.rank != "rank":
            options.append(f"rank={rules.rank!r}")
        return f"top({', '.join(options)})"


def rank_taken(name: str) -> InvalidArgument:
    """Return the error for a rank that is called as a column of the table is."""
    return InvalidArgument(
        f"the table has a column {name!r} already",
        where="top(rank=)",
        hint=f'Call the rank otherwise, as in top(..., rank="my_{name}")',
    )
