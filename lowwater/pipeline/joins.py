"""Builds the stage of a join by time, and checks it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from lowwater.engine.graph.graph import Flow, Joined, Read, Stage
from lowwater.engine.join.joining import HOWS, UNMATCHED, Joining, interval_of
from lowwater.engine.join.pairs import JoinedColumns, Types
from lowwater.engine.process.output import TIME
from lowwater.engine.records.pane_table import MICROS_UTC, SIGN
from lowwater.errors import InvalidArgument, describe, nearest
from lowwater.pipeline.checks import (
    check_adds_up,
    check_retracted_in_time,
    inherited_lateness,
    names_after,
)
from lowwater.pipeline.stages import StreamParts, check_keys, public_names
from lowwater.time import DurationLike, duration, format_duration

On = str | Sequence[str]


def join_stage(
    left: StreamParts,
    right: StreamParts,
    *,
    on: On | None,
    left_on: On | None,
    right_on: On | None,
    within: object,
    how: str,
    unmatched: str,
    allowed_lateness: DurationLike | None,
    suffixes: tuple[str, str],
) -> Stage:
    """Return the stage of a join by time, checked as far as can be without running.

    Raises:
        InvalidArgument: An argument is wrong, or an input cannot be joined.
    """
    keys, right_keys = _keys(on, left_on, right_on)
    for side, names in ((left, keys), (right, right_keys)):
        if side._deduplication is not None:
            raise InvalidArgument(
                "a join does not drop duplicates",
                where="deduplicate(...).join",
                hint="Put deduplicate in front of a stage that the join reads",
            )
        check_keys(names, names, side)
    _check_choice("how", how, HOWS)
    _check_choice("unmatched", unmatched, UNMATCHED)
    if unmatched != "final" and how in ("inner", "semi"):
        raise InvalidArgument(
            f"unmatched={unmatched!r} says when records without a partner come out, and with "
            f"how={how!r} none does",
            where="join(unmatched=)",
            hint='Leave it out, or use how="left"',
        )
    flows = (*left._flows, *right._flows)
    check_adds_up(flows)
    check_retracted_in_time(flows)
    least = inherited_lateness(flows)
    lateness = (
        least if allowed_lateness is None else duration(allowed_lateness, name="allowed_lateness")
    )
    if lateness < least:
        raise InvalidArgument(
            f"allowed_lateness={format_duration(lateness)!r} is shorter than that of the upstream "
            f"stage, {format_duration(least)!r}, so what it emits late would be dropped here",
            where="join(allowed_lateness=)",
            hint="Leave it out to use that of the upstream stage",
        )
    joining = Joining(interval_of(within), how, unmatched, lateness)  # type: ignore[arg-type]  # checked above
    if joining.emits_pairs:
        _require_known(left, "left")
        _require_known(right, "right")
    columns = JoinedColumns(
        _types(left, keys), _types(right, right_keys), keys, _checked_suffixes(suffixes)
    )
    _check_names(columns, joining)
    return Stage(flows, keys, keys, Joined(joining, len(left._flows), right_keys, columns))


def joined_as_records(stage: Stage, left: StreamParts, right: StreamParts) -> dict[str, Any]:
    """Return the parts of the stream of a join's output: its flow, and what is known of it."""
    work = stage.work
    assert isinstance(work, Joined)
    flows = (Flow(stage, (), TIME),)
    of_both = work.joining.emits_pairs
    if _known_names(left) is None or (of_both and _known_names(right) is None):
        return {"_flows": flows}
    columns = work.columns
    of_left, of_right = columns.names(tuple(columns.left), tuple(columns.right))
    types: dict[str, pa.DataType | None] = {
        key: left._schema.field(key).type if left._schema is not None else None
        for key in stage.keys
    }
    if of_both:
        types |= {of_left[name]: kind for name, kind in columns.left.items()}
        types |= {of_right[name]: kind for name, kind in columns.right.items()}
    else:
        types |= columns.left
    types[TIME] = MICROS_UTC
    if stage.retracts:
        types[SIGN] = pa.int64()
    if any(kind is None for kind in types.values()):
        return {"_flows": flows, "_names": tuple(types)}
    return {"_flows": flows, "_schema": pa.schema(list(types.items()))}


def _keys(
    on: On | None, left_on: On | None, right_on: On | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if on is not None and (left_on is not None or right_on is not None):
        raise InvalidArgument(
            "join takes on=, or left_on= and right_on=, not both",
            where="join",
            hint="Use on= where both sides call the columns alike",
        )
    if on is not None:
        names = _names("on", on)
        return names, names
    if left_on is None or right_on is None:
        raise InvalidArgument(
            "join needs the columns that must be equal",
            where="join",
            hint='Write on="user", or left_on="user", right_on="customer"',
        )
    left, right = _names("left_on", left_on), _names("right_on", right_on)
    if len(left) != len(right):
        raise InvalidArgument(
            f"left_on names {len(left)} columns, and right_on {len(right)}",
            where="join",
            hint="Name the columns pair by pair",
        )
    return left, right


def _names(argument: str, given: On) -> tuple[str, ...]:
    names = (given,) if isinstance(given, str) else given
    if not isinstance(names, (tuple, list)) or not names:
        names = ()
    if not names or not all(isinstance(name, str) for name in names):
        raise InvalidArgument(
            f"{describe(argument, given)} is neither the name of a column nor several names",
            where="join",
            hint=f'Write {argument}="user", or {argument}=("user", "shop")',
        )
    return tuple(names)


def _check_choice(argument: str, given: object, known: Sequence[str]) -> None:
    if given not in known:
        raise InvalidArgument(
            f"{describe(argument, given)} is not known",
            where="join",
            hint=nearest(str(given), known),
        )


def _checked_suffixes(given: object) -> tuple[str, str]:
    if (
        not isinstance(given, (tuple, list))
        or len(given) != 2
        or not all(isinstance(one, str) for one in given)
        or given[0] == given[1]
    ):
        raise InvalidArgument(
            f"{describe('suffixes', given)} are not two different texts",
            where="join(suffixes=)",
            hint='Write, say, suffixes=("", "_right")',
        )
    return (given[0], given[1])


def _types(side: StreamParts, keys: tuple[str, ...]) -> Types:
    """Return the columns of a side without its keys, as far as they are known."""
    if side._schema is not None:
        types: Types = {field.name: field.type for field in side._schema}
    else:
        types = dict.fromkeys(_known_names(side) or ())
    public = public_names(tuple(types))
    return {name: types[name] for name in public if name not in keys}


def _known_names(side: StreamParts) -> tuple[str, ...] | None:
    """Return the names of a side's columns, of elements in memory too."""
    if side._known is not None:
        return side._known
    found: dict[str, None] = {}
    for flow in side._flows:
        names = (
            getattr(flow.origin.source, "names", None) if isinstance(flow.origin, Read) else None
        )
        for step in flow.steps:
            names = names_after(step, names)
        if names is None:
            return None
        found.update(dict.fromkeys(names))
    return tuple(found)


def _require_known(side: StreamParts, which: str) -> None:
    """Raise if the columns of a side are not known: the names in the output depend on them."""
    if _known_names(side) is None:
        raise InvalidArgument(
            f"the columns of the {which} side are not known before the pipeline runs",
            where="join",
            hint='Name those that are needed in front of the join: .select("user", "amount")',
        )


def _check_names(columns: JoinedColumns, joining: Joining) -> None:
    """Raise if two columns of the output would have one name, or a name is not there."""
    if not joining.emits_pairs:
        return
    left, right = columns.names(tuple(columns.left), tuple(columns.right))
    names = [*columns.keys, *left.values(), *right.values()]
    for name in names:
        if names.count(name) > 1:
            raise InvalidArgument(
                f"two columns of the output would be called {name!r}",
                where="join(suffixes=)",
                hint="Use other suffixes, or rename a column with with_columns and select",
            )
