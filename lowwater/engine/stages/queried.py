"""A search of stored queries for documents (J-15 to J-17)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, final

import pyarrow as pa

from lowwater.engine.aggregates import AggregateSpec
from lowwater.engine.graph.finding import Finding, Upstream
from lowwater.engine.graph.graph import MAIN, Stage
from lowwater.engine.graph.input_types import InputTypes
from lowwater.engine.graph.operator import Operator
from lowwater.engine.graph.outline import outline
from lowwater.engine.join.pairs import JoinedColumns
from lowwater.engine.join.searching import Searching
from lowwater.engine.keyed.operator import SideBundle, SidesAdvance
from lowwater.engine.keyed.sides import LEFT
from lowwater.engine.records.admission import Check, check_key
from lowwater.engine.records.admit_words import check_words
from lowwater.engine.records.columns import Types
from lowwater.engine.records.stage_bundle import StageBundle
from lowwater.engine.records.steps import Bundle
from lowwater.engine.stages.join_kind import JoinKind
from lowwater.engine.stages.kind import NO_AGGREGATES
from lowwater.time import Int64Array, format_duration


@final
@dataclass(frozen=True, slots=True)
class Queried(JoinKind):
    """The work of a search: the left side is documents, the right versions of queries.

    Args:
        rules: The rules.
        left: How many of the stage's inputs are the left side; the others are the right.
        right_keys: The key column of the right side: a hidden one, the same on both sides.
        columns: The columns of both sides but for the id of queries, and their names in the output.
    """

    rules: Searching
    left: int
    right_keys: tuple[str, ...]
    columns: JoinedColumns

    noun: ClassVar[str] = "search"
    stored_as: ClassVar[str] = "join"
    windowing: ClassVar[None] = None
    passes_signs: ClassVar[bool] = True
    keeps_rows: ClassVar[bool] = True
    reads_right: ClassVar[bool] = True
    lateness_option: ClassVar[str] = "keep"
    outputs: ClassVar[tuple[str, ...]] = (MAIN,)
    aggregates: ClassVar[Mapping[str, AggregateSpec]] = NO_AGGREGATES

    @property
    def retracts(self) -> bool:
        """Whether it retracts what it emitted, even if its inputs never do (J-17)."""
        return self.rules.retracts

    def lateness_behind(self, upstream_us: Callable[[], int]) -> int:
        return self.rules.keep_us

    def side_name(self, nth: int) -> str:
        return "documents" if self.side_of(nth) == LEFT else "queries"

    def key_types(
        self, keys: tuple[str, ...], left: Types, right: Types
    ) -> dict[str, pa.DataType | None]:
        return {self.rules.query: right.get(self.rules.query)}

    def checks(self, nth: int) -> Mapping[str, Check]:
        words, query = self.rules.words, self.rules.query
        of_words: dict[str, Check] = {words: partial(check_words, name=words)}
        if self.side_of(nth) == LEFT:
            return of_words
        return of_words | {query: partial(check_key, name=query, nulls=True)}

    def operator(self, stage: Stage) -> Operator:
        from lowwater.engine.join.search import SearchOperator

        return SearchOperator(self.rules, self.columns, signed=stage.signed)

    def step(
        self, stage: Stage, incoming: StageBundle, kept: Int64Array | None
    ) -> tuple[Bundle, SideBundle]:
        columns = incoming.columns(without=stage.keys_of(incoming.nth))
        bundle = incoming.with_values(columns, kept)
        return bundle, SideBundle(self.side_of(incoming.nth), bundle)

    def advance(self, to: int, right: int) -> SidesAdvance:
        return SidesAdvance(to, right)

    def described(self) -> dict[str, Any]:
        rules = self.rules
        return {
            "search": rules.match,
            "words": rules.words,
            "query": rules.query,
            "left inputs": self.left,
            "suffixes": list(self.columns.suffixes),
            "late_versions": rules.late_versions,
            "keep": rules.keep_us,
        }

    def outline(self, stage: Stage) -> str:
        rules = self.rules
        options = [
            outline(stage.right_inputs),
            f"on={rules.words!r}",
            f"key={rules.query!r}",
            f"match={rules.match!r}",
            f"late_versions={rules.late_versions!r}",
            f"keep={format_duration(rules.keep_us)!r}",
        ]
        return f"{outline(stage.left_inputs)} → search({', '.join(options)})"

    def summary(self, stage: Stage) -> Iterator[str]:
        rules = self.rules
        yield (
            f"documents that have {rules.match} of the {rules.words} of a query, as of event time, "
            f"late versions {rules.late_versions}"
        )
        yield f"remembers {format_duration(rules.keep_us)}"

    def emitted_types(self, stage: Stage, types: InputTypes) -> dict[str, pa.DataType | None]:
        query = self.rules.query
        left = types.visible({**self.columns.left, **types.left}, stage.keys)
        right = types.visible({**self.columns.right, **types.right}, (*self.right_keys, query))
        of_left, of_right = self.columns.names(tuple(left), tuple(right))
        return {
            query: types.given.get(query) or types.right.get(query),
            **{of_left[name]: kind for name, kind in left.items()},
            **{of_right[name]: kind for name, kind in right.items()},
        }

    def findings(self, stage: Stage, where: str, upstream: Sequence[Upstream]) -> Iterator[Finding]:
        documents, queries = upstream[: self.left], upstream[self.left :]
        if any(flow.is_blind for flow in queries):
            yield Finding(
                "error",
                "a document waits until the watermark of the queries passes it, and their source "
                "has no watermark: no document is ever emitted",
                where,
                "Give the source of the queries a watermark",
            )
        elif any(flow.is_blind for flow in documents):
            yield Finding(
                "warning",
                "old versions are dropped when the watermark of both sides passes, and the source "
                "of the documents has no watermark: all versions are kept",
                where,
                "Give the source of the documents a watermark",
            )
        elif any(flow.is_endless for flow in queries):
            yield Finding(
                "note",
                "the newest version of each query is kept until a version without words withdraws "
                "it",
                where,
                "Withdraw queries that nobody needs any more",
            )
