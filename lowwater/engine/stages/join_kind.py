"""What all joins have in common: two sides, each with its keys and columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import pyarrow as pa

from lowwater.engine.aggregates import AggregateSpec
from lowwater.engine.graph.graph import MAIN, Stage
from lowwater.engine.graph.input_types import InputTypes
from lowwater.engine.graph.outline import key_options, outline
from lowwater.engine.join.joining import AsOf, Joining
from lowwater.engine.join.pairs import JoinedColumns
from lowwater.engine.keyed.operator import SideBundle
from lowwater.engine.keyed.sides import LEFT, RIGHT, Side
from lowwater.engine.records.columns import Types
from lowwater.engine.records.pane_table import MICROS_UTC
from lowwater.engine.records.stage_bundle import StageBundle
from lowwater.engine.records.steps import Bundle
from lowwater.engine.stages.kind import NO_AGGREGATES, StageKind
from lowwater.time import Int64Array


class JoinKind(StageKind):
    """A kind that has a left and a right side.

    Args:
        left: How many of the stage's inputs are the left side; the others are the right.
        right_keys: The key columns of the right side; the stage's own are those of the left.
        columns: The columns of both sides, and their names in the output.
    """

    __slots__ = ()

    left: int
    right_keys: tuple[str, ...]
    columns: JoinedColumns

    noun = "join"

    @property
    def emits_pairs(self) -> bool:
        """Whether pairs come out, rather than rows of the left side."""
        return True

    @property
    def output_names_are_new(self) -> bool:
        """Whether its output has columns that no input has, so that names may be taken twice."""
        return self.emits_pairs

    def side_of(self, nth: int) -> Side:
        """Return the side that an input of the stage belongs to."""
        return LEFT if nth < self.left else RIGHT

    def inputs_on_left(self, count: int) -> int:
        return self.left

    def side_name(self, nth: int) -> str:
        return "left" if self.side_of(nth) == LEFT else "right"

    def keys_of(self, nth: int, keys: tuple[str, ...]) -> tuple[str, ...]:
        return self.right_keys if self.side_of(nth) == RIGHT else keys

    def key_types(
        self, keys: tuple[str, ...], left: Types, right: Types
    ) -> dict[str, pa.DataType | None]:
        """Return the keys of the output with their types, given the columns of both sides."""
        return {key: left.get(key) for key in keys}

    def described_sides(self, how: str) -> dict[str, Any]:
        """Return what state directories know of its sides."""
        return {
            "right keys": list(self.right_keys),
            "left inputs": self.left,
            "how": how,
            "suffixes": list(self.columns.suffixes),
        }

    def outline_of(self, stage: Stage, method: str, *options: str) -> str:
        """Format the stage on one line, given the method's name and its options but for keys."""
        right = outline(stage.right_inputs)
        said = ", ".join((right, *key_options(stage.keys, self.right_keys), *options))
        return f"{outline(stage.left_inputs)} → {method}({said})"

    def emitted_types(self, stage: Stage, types: InputTypes) -> dict[str, pa.DataType | None]:
        left = types.visible({**self.columns.left, **types.left}, stage.keys)
        right = types.visible({**self.columns.right, **types.right}, self.right_keys)
        if not self.emits_pairs:
            right = {}
        of_left, of_right = self.columns.names(tuple(left), tuple(right))
        return {
            **dict.fromkeys(self.columns.labels, MICROS_UTC),
            **{of_left[name]: kind for name, kind in left.items()},
            **{of_right[name]: kind for name, kind in right.items()},
        }


class StreamJoinKind(JoinKind):
    """A join that keeps the records of both sides: by time, of tables, or with a history.

    Args:
        joining: The rules.
    """

    __slots__ = ()

    joining: Joining | AsOf

    stored_as: ClassVar[str] = "join"
    windowing: ClassVar[None] = None
    passes_signs: ClassVar[bool] = True
    keeps_rows: ClassVar[bool] = True
    outputs: ClassVar[tuple[str, ...]] = (MAIN,)
    aggregates: ClassVar[Mapping[str, AggregateSpec]] = NO_AGGREGATES

    @property
    def join_rules(self) -> Joining | AsOf:
        return self.joining

    @property
    def retracts(self) -> bool:
        """Whether it retracts what it emitted, even if its inputs never do (J-5, J-9)."""
        return self.joining.retracts

    @property
    def emits_pairs(self) -> bool:
        return self.joining.emits_pairs

    def lateness_behind(self, upstream_us: Callable[[], int]) -> int:
        return self.joining.emits_late_us or upstream_us()

    def step(
        self, stage: Stage, incoming: StageBundle, kept: Int64Array | None
    ) -> tuple[Bundle, SideBundle]:
        """Return a bundle with the columns of its side, and the join's step."""
        side = self.side_of(incoming.nth)
        keys, hidden = stage.keys_of(incoming.nth), self.columns.hidden[side]
        columns = incoming.columns(without=keys, hidden=hidden)
        bundle = incoming.with_values({**columns, **incoming.bundle.values}, kept)
        return bundle, SideBundle(side, bundle)
