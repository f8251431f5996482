"""Builds the stages of joins with a history, and checks them."""

from __future__ import annotations

from lowwater.engine.graph.graph import Stage, is_signed
from lowwater.engine.join.joining import AS_OF_HOWS, DIRECTIONS, LATE_VERSIONS, AsOf
from lowwater.errors import InvalidArgument, describe
from lowwater.pipeline.checks import check_no_table, inherited_lateness
from lowwater.pipeline.joins import JoinInputs, check_choice, require_columns, require_known
from lowwater.time import DurationLike, duration

_KEEP = "1h"
_DIRECTIONS_ELSEWHERE = {
    **dict.fromkeys(("back", "past", "before", "previous", "prev", "last", ">=", ">"), "backward"),
    **dict.fromkeys(("ahead", "future", "after", "next", "following", "<=", "<"), "forward"),
    **dict.fromkeys(("closest", "both", "near"), "nearest"),
}


def as_of_stage(
    inputs: JoinInputs,
    *,
    order: str | None,
    how: str,
    tolerance: DurationLike | None,
    late_versions: str,
    keep: DurationLike | None,
    direction: str,
    allow_equal: object,
) -> Stage:
    """Return the stage of a join with a history, checked as far as can be without running.

    Raises:
        InvalidArgument: An argument is wrong, or retractions come in that cannot be applied.
    """
    where = "join_as_of"
    check_no_table(inputs.flows, where)
    check_choice("how", how, AS_OF_HOWS, where)
    check_choice("late_versions", late_versions, LATE_VERSIONS, where)
    check_choice("direction", direction, DIRECTIONS, where, _DIRECTIONS_ELSEWHERE)
    if not isinstance(allow_equal, bool):
        raise InvalidArgument(
            f"{describe('allow_equal', allow_equal)} is neither True nor False",
            where=f"{where}(allow_equal=)",
            hint="Write allow_equal=False if a fact must not meet a version of its own time",
        )
    if order is not None:
        if not isinstance(order, str):
            raise InvalidArgument(
                f"{describe('order', order)} is not the name of a column",
                where=f"{where}(order=)",
                hint='Write, say, order="revision"',
            )
        require_known(inputs.right_known, "right", where)
        require_columns([order], inputs.right_known, f"{where}(order=)")
    distance = _tolerance(tolerance, direction, allow_equal, where)
    if late_versions == "ignore" and any(is_signed(flow) for flow in inputs.flows):
        raise InvalidArgument(
            'an input retracts records, but late_versions="ignore" corrects nothing it has emitted',
            where=where,
            hint='Use late_versions="correct"',
        )
    least = inherited_lateness(inputs.flows)
    given = max(least, duration(_KEEP)) if keep is None else keep
    lateness = inputs.lateness(given, "keep")
    rules = (how, order, distance, late_versions, lateness, direction, allow_equal)
    return inputs.stage(AsOf(*rules))  # type: ignore[arg-type]  # checked above


def _tolerance(
    tolerance: DurationLike | None, direction: str, allow_equal: bool, where: str
) -> int | None:
    """Return how far from the fact its version may be, in microseconds; ``None`` for any distance.

    Raises:
        InvalidArgument: It is missing where a fact looks ahead, below zero, or met by no version.
    """
    if tolerance is None:
        if direction == "backward":
            return None
        raise InvalidArgument(
            f"with direction={direction!r} and no tolerance, a fact that no version follows would "
            "wait until the input ends",
            where=f"{where}(tolerance=)",
            hint=f'Say how far ahead a version may be: direction={direction!r}, tolerance="10m"',
        )
    distance = duration(tolerance, name="tolerance")
    if distance < 0:
        raise InvalidArgument(
            f"{describe('tolerance', tolerance)} is below zero",
            where=f"{where}(tolerance=)",
            hint="Give how far from the fact its version may be, before or after it; direction= "
            "says which",
        )
    if not distance and not allow_equal:
        raise InvalidArgument(
            f"{describe('tolerance', tolerance)} admits only versions of the fact's own time, and "
            "allow_equal=False excludes them: no fact could meet a version",
            where=f"{where}(tolerance=)",
            hint='Leave allow_equal out, or give a longer tolerance, such as "10m"',
        )
    return distance
