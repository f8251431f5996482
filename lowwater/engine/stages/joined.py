"""A join of two streams by time, or of two tables (J-1 to J-6, T-3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, final

from lowwater.engine.graph.finding import Finding, Upstream
from lowwater.engine.graph.graph import Stage
from lowwater.engine.graph.operator import Operator
from lowwater.engine.join.joining import Joining
from lowwater.engine.join.pairs import JoinedColumns
from lowwater.engine.keyed.sides import LEFT, RIGHT, Side
from lowwater.engine.records.admit_bounds import PartnerBounds
from lowwater.engine.stages.join_kind import StreamJoinKind
from lowwater.time import DAY_US, format_duration, saturating_add

_LONG_US = 30 * DAY_US
_SIDES = {LEFT: "left", RIGHT: "right"}


@final
@dataclass(frozen=True, slots=True)
class Joined(StreamJoinKind):
    """The work of a join of two streams by time, or of two tables.

    Args:
        joining: The rules.
        left: How many of the stage's inputs are the left side; the others are the right.
        right_keys: The key columns of the right side; the stage's own are those of the left.
        columns: The columns of both sides, and their names in the output.
    """

    joining: Joining
    left: int
    right_keys: tuple[str, ...]
    columns: JoinedColumns

    @property
    def makes_table(self) -> bool:
        return self.joining.within is None

    def partners(self, nth: int) -> PartnerBounds | None:
        within = self.joining.within
        return None if within is None or self.side_of(nth) == RIGHT else within.bounds

    def operator(self, stage: Stage) -> Operator:
        from lowwater.engine.join.interval_join import JoinOperator

        return JoinOperator(self.joining, self.columns, signed=stage.signed)

    def described(self) -> dict[str, Any]:
        return self.described_sides(self.joining.how) | {
            "within": repr(self.joining.within),
            "unmatched": self.joining.unmatched,
            "allowed_lateness": self.joining.lateness_us,
        }

    def outline(self, stage: Stage) -> str:
        joining = self.joining
        if joining.within is None:
            return self.outline_of(stage, "join", f"how={joining.how!r}")
        options = [f"within={joining.within!r}", f"how={joining.how!r}"]
        if joining.unmatched != "final":
            options.append(f"unmatched={joining.unmatched!r}")
        if joining.lateness_us:
            options.append(f"allowed_lateness={format_duration(joining.lateness_us)!r}")
        return self.outline_of(stage, "join", *options)

    def summary(self, stage: Stage) -> Iterator[str]:
        joining = self.joining
        if joining.within is None:
            yield f"{joining.how} join of tables"
            return
        yield f"{joining.how} join within {joining.within!r}"
        if joining.is_alone(LEFT) or joining.is_alone(RIGHT):
            yield f"unmatched {joining.unmatched}"
        if joining.lateness_us:
            yield f"allowed lateness: {format_duration(joining.lateness_us)}"

    def lines(self, stage: Stage) -> Iterator[str]:
        if self.joining.within is not None:
            left, right = (format_duration(self._kept_us(side)) for side in (LEFT, RIGHT))
            yield f"keeps: left records for {left}, right records for {right}"
        yield from self.summary(stage)

    def findings(self, stage: Stage, where: str, upstream: Sequence[Upstream]) -> Iterator[Finding]:
        # What a join of tables keeps is up to the tables.
        if self.joining.within is None or not any(one.is_endless for one in upstream):
            return
        sides = {"left": upstream[: self.left], "right": upstream[self.left :]}
        blind = [name for name, side in sides.items() if any(flow.is_blind for flow in side)]
        if blind:
            which = "each side" if len(blind) > 1 else f"the {blind[0]} side"
            yield Finding(
                "warning",
                f"records are released when the watermark passes their horizon, and {which} has a "
                "source without a watermark: the records of both sides are kept forever",
                where,
                "Give the source a watermark",
            )
            return
        kept = {name: self._kept_us(side) for side, name in _SIDES.items()}
        long = [name for name, horizon in kept.items() if horizon >= _LONG_US]
        if long:
            spans = ", ".join(f"{format_duration(kept[name])} of the {name} side" for name in long)
            yield Finding(
                "note",
                f"the horizon is long: it keeps {spans} in memory, in event time",
                where,
                "Narrow within= or allowed_lateness= if partners come sooner",
            )

    def _kept_us(self, side: Side) -> int:
        """Return how long it keeps the records of a side, in microseconds (J-3)."""
        return saturating_add(self.joining.horizon_us(side), self.joining.lateness_us)
