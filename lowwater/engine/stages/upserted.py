"""A table that is made from upserts (T-1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import pyarrow as pa

from lowwater.engine.aggregates import AggregateSpec
from lowwater.engine.aggregates._base import Needs
from lowwater.engine.graph.finding import Finding, Upstream
from lowwater.engine.graph.graph import MAIN, Stage
from lowwater.engine.graph.input_types import InputTypes
from lowwater.engine.graph.operator import Operator
from lowwater.engine.graph.outline import names_text, outline
from lowwater.engine.join.upserting import DELETED, Upserting
from lowwater.engine.records.columns import Types
from lowwater.engine.records.stage_bundle import StageBundle
from lowwater.engine.records.steps import Bundle
from lowwater.engine.stages.kind import NO_AGGREGATES, StageKind
from lowwater.errors import InvalidArgument
from lowwater.time import Int64Array, format_duration


@final
@dataclass(frozen=True, slots=True)
class Upserted(StageKind):
    """The work of a table that keeps the newest upsert of each key.

    Args:
        rules: What makes an upsert newer than another, and how long rows are kept.
        columns: The columns, without the primary key, as far as they are known, with their types.
        deletes: Whether the hidden column ``DELETED`` says which records delete their row.
    """

    rules: Upserting
    columns: Types
    deletes: bool = False

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

    @property
    def takes_null_keys(self) -> bool:
        return False

    def needs(self) -> dict[str, Needs]:
        return {DELETED: "booleans"} if self.deletes else {}

    def readers(self) -> Mapping[str, str]:
        return {DELETED: "table(deleted=)"} if self.deletes else {}

    def orders(self, nth: int) -> Mapping[str, str]:
        order = self.rules.order
        return {} if order is None else {order: "table(order=)"}

    def operator(self, stage: Stage) -> Operator:
        from lowwater.engine.join.tables import UpsertOperator

        return UpsertOperator(self.rules, self.columns)

    def step(
        self, stage: Stage, incoming: StageBundle, kept: Int64Array | None
    ) -> tuple[Bundle, Any]:
        bundle, step = StageKind.step(self, stage, incoming, kept)
        # Where the columns were not known, only the records can tell that a new name is taken.
        for key, name in zip(stage.keys, stage.key_names, strict=True):
            if key != name and name in bundle.values:
                raise InvalidArgument(
                    f"a key cannot be called {key!r}: the rows of the table have a column of that "
                    f"name, and another one of the name {name!r}",
                    where="table(key=)",
                    hint="Rename it with with_columns",
                )
        return bundle, step

    def described(self) -> dict[str, Any]:
        return {
            "table": True,
            "order": self.rules.order,
            "keep_deleted": self.rules.keep_deleted_us,
            "ttl": self.rules.ttl_us,
        }

    def outline(self, stage: Stage) -> str:
        return f"{outline(stage.inputs)} → {self._text(stage)}"

    def summary(self, stage: Stage) -> Iterator[str]:
        yield self._text(stage)

    def emitted_types(self, stage: Stage, types: InputTypes) -> dict[str, pa.DataType | None]:
        return types.visible({**self.columns, **types.left}, stage.keys)

    def findings(self, stage: Stage, where: str, upstream: Sequence[Upstream]) -> Iterator[Finding]:
        if not any(flow.is_endless for flow in upstream):
            return
        ttl_us = self.rules.ttl_us
        # Windows that expire retract their panes, so that the table loses their rows.
        origins = [flow.origin for flow in stage.inputs]
        of_panes = any(isinstance(one, Stage) and one.work.emits_panes for one in origins)
        if ttl_us is None and not self.deletes and not of_panes:
            yield Finding(
                "note",
                "nothing deletes a row: the table keeps one for each key that ever came",
                where,
                'Set ttl=, as in ttl="30d", or deleted=, if there is no bound on the number of '
                "keys",
            )
        if any(flow.is_blind for flow in upstream) and (ttl_us is not None or self.deletes):
            what = "ttl deletes rows" if ttl_us is not None else "tombstones are dropped"
            yield Finding(
                "warning",
                f"{what} when the watermark passes, and a source has no watermark",
                where,
                "Give the source a watermark",
            )

    def _text(self, stage: Stage) -> str:
        options = [f"key={names_text(stage.keys)}"]
        if self.rules.order is not None:
            options.append(f"order={self.rules.order!r}")
        if self.rules.ttl_us is not None:
            options.append(f"ttl={format_duration(self.rules.ttl_us)!r}")
        return f"table({', '.join(options)})"
