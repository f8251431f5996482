"""A join of facts with the versions of a history (J-8 to J-12)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

from lowwater.engine.graph.finding import Finding, Upstream
from lowwater.engine.graph.graph import Stage
from lowwater.engine.graph.operator import Operator
from lowwater.engine.join.joining import AsOf
from lowwater.engine.join.pairs import JoinedColumns
from lowwater.engine.keyed.operator import SidesAdvance
from lowwater.engine.keyed.sides import LEFT, RIGHT
from lowwater.engine.stages.join_kind import StreamJoinKind
from lowwater.time import DAY_US, format_duration

_LONG_US = DAY_US


@final
@dataclass(frozen=True, slots=True)
class JoinedAsOf(StreamJoinKind):
    """The work of a join with a history: the left side is facts, the right their versions.

    Args:
        joining: The rules.
        left: How many of the stage's inputs are the left side; the others are the right.
        right_keys: The key columns of the right side; the stage's own are those of the left.
        columns: The columns of both sides, and their names in the output.
    """

    joining: AsOf
    left: int
    right_keys: tuple[str, ...]
    columns: JoinedColumns

    reads_right: ClassVar[bool] = True
    lateness_option: ClassVar[str] = "keep"

    def side_name(self, nth: int) -> str:
        return "facts" if self.side_of(nth) == LEFT else "versions"

    def orders(self, nth: int) -> Mapping[str, str]:
        order = self.joining.order
        is_version = self.side_of(nth) == RIGHT
        return {order: "join_as_of(order=)"} if is_version and order is not None else {}

    def operator(self, stage: Stage) -> Operator:
        from lowwater.engine.join.as_of import AsOfOperator

        return AsOfOperator(self.joining, self.columns, signed=stage.signed)

    def advance(self, to: int, right: int) -> SidesAdvance:
        return SidesAdvance(to, right)

    def described(self) -> dict[str, Any]:
        joining = self.joining
        described = self.described_sides(joining.how) | {
            "as of": True,
            "order": joining.order,
            "tolerance": joining.tolerance_us,
            "late_versions": joining.late_versions,
            "keep": joining.keep_us,
        }
        # Only what is not the default, so that what runs stored before still is the same join.
        if joining.looks_ahead:
            described["direction"] = joining.direction
        if not joining.allow_equal:
            described["allow_equal"] = False
        return described

    def outline(self, stage: Stage) -> str:
        joining = self.joining
        options = [f"how={joining.how!r}"]
        if joining.order is not None:
            options.append(f"order={joining.order!r}")
        if joining.looks_ahead:
            options.append(f"direction={joining.direction!r}")
        if not joining.allow_equal:
            options.append("allow_equal=False")
        if joining.tolerance_us is not None:
            options.append(f"tolerance={format_duration(joining.tolerance_us)!r}")
        options.append(f"late_versions={joining.late_versions!r}")
        options.append(f"keep={format_duration(joining.keep_us)!r}")
        return self.outline_of(stage, "join_as_of", *options)

    def summary(self, stage: Stage) -> Iterator[str]:
        joining = self.joining
        yield f"{joining.how} join {joining.text}, late versions {joining.late_versions}"
        yield f"remembers {format_duration(joining.keep_us)}"
        if joining.looks_ahead:
            yield f"a fact waits for {format_duration(joining.ahead_us)} at most"

    def findings(self, stage: Stage, where: str, upstream: Sequence[Upstream]) -> Iterator[Finding]:
        facts, versions = upstream[: self.left], upstream[self.left :]
        if any(flow.is_blind for flow in versions):
            yield Finding(
                "error",
                "a fact waits until the watermark of the versions passes it, and their source has "
                "no watermark: no fact is ever emitted",
                where,
                "Give the source of the versions a watermark",
            )
        elif any(flow.is_blind for flow in facts):
            yield Finding(
                "warning",
                "old versions are dropped when the watermark of both sides passes, and the source "
                "of the facts has no watermark: all versions are kept",
                where,
                "Give the source of the facts a watermark",
            )
        elif any(flow.is_endless for flow in versions) and not self.joining.looks_ahead:
            yield Finding(
                "note",
                "the newest version of each key is kept for good, whatever keep= is",
                where,
                "Use keys of a bounded number",
            )
        if self.joining.ahead_us >= _LONG_US and any(flow.is_endless for flow in upstream):
            yield Finding(
                "note",
                "a fact that no version follows waits for "
                f"{format_duration(self.joining.ahead_us)}, in event time, and holds the output "
                "watermark meanwhile",
                where,
                "Shorten tolerance= if versions come sooner",
            )
