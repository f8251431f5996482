"""Builds the stages of joins, and checks them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from lowwater.engine.graph.graph import Flow, Read, Stage, is_signed
from lowwater.engine.join.joining import (
    HOWS,
    UNMATCHED,
    AsOf,
    How,
    Joining,
    interval_of,
)
from lowwater.engine.join.pairs import JoinedColumns
from lowwater.engine.join.window_join import WINDOW
from lowwater.engine.records.batch import HIDDEN
from lowwater.engine.records.columns import Types
from lowwater.engine.records.pane_table import MICROS_UTC
from lowwater.engine.records.stateless import Filter, require_names
from lowwater.engine.stages.join_kind import JoinKind
from lowwater.engine.stages.joined import Joined
from lowwater.engine.stages.joined_as_of import JoinedAsOf
from lowwater.engine.stages.passed import Passed
from lowwater.engine.stages.queried import Queried
from lowwater.engine.stages.window_joined import WindowJoined
from lowwater.engine.window.windowing import Windowing
from lowwater.errors import InvalidArgument, describe, nearest
from lowwater.io.in_memory import IterableSource
from lowwater.pipeline.checks import (
    check_adds_up,
    check_no_table,
    check_retracted_in_time,
    inherited_lateness,
    require_distinct,
    require_names_of_join,
)
from lowwater.pipeline.stages import StreamParts, emitted_as_records, public_names
from lowwater.pipeline.window_options import WindowOptions
from lowwater.time import DurationLike, duration, format_duration
from lowwater.windows import WindowFunction

On = str | Sequence[str]

_HOWS_ELSEWHERE = {
    **dict.fromkeys(("full", "full_outer", "fullouter"), "outer"),
    **dict.fromkeys(("left_outer", "leftouter"), "left"),
    **dict.fromkeys(("right_outer", "rightouter"), "right"),
    **dict.fromkeys(("left_semi", "leftsemi"), "semi"),
    **dict.fromkeys(("left_anti", "leftanti"), "anti"),
}


@dataclass(frozen=True, slots=True)
class JoinInputs:
    """The two streams of a join, and how they go together.

    Args:
        left: The left side.
        right: The right side.
        keys: The key columns of the left side.
        right_keys: Those of the right side.
        suffixes: What is appended to the name of a column that both sides have.
        where: The method, for messages.
        left_known: The columns of the left side, with their types if these are known; ``None`` if
            the columns are not. Looking at elements in memory costs O(elements).
        right_known: Those of the right side.
    """

    left: StreamParts
    right: StreamParts
    keys: tuple[str, ...]
    right_keys: tuple[str, ...]
    suffixes: tuple[str, str]
    where: str
    left_known: Types | None
    right_known: Types | None

    @classmethod
    def of(
        cls,
        left: StreamParts,
        right: StreamParts,
        *,
        on: On | None,
        left_on: On | None,
        right_on: On | None,
        suffixes: object,
        where: str,
    ) -> JoinInputs:
        """Return two streams that can be joined.

        Raises:
            InvalidArgument: A column is not named as it must be, or an input cannot be joined.
        """
        keys, right_keys = _keys(on, left_on, right_on, where)
        left, right = (without_duplicates(side) for side in (left, right))
        arguments = ("on", "on") if on is not None else ("left_on", "right_on")
        known = (known_columns(left), known_columns(right))
        sides = zip(known, (keys, right_keys), arguments, strict=True)
        for columns, names, argument in sides:
            require_columns(names, columns, f"{where}({argument}=)")
            require_distinct(names, f"{where}({argument}=)")
        require_names_of_join(keys, f"{where}({arguments[0]}=)")
        _check_comparable(*known, tuple(zip(keys, right_keys, strict=True)), where)
        check_adds_up((*left._flows, *right._flows))
        check_retracted_in_time((*left._flows, *right._flows))
        checked = checked_suffixes(suffixes, where)
        return cls(left, right, keys, right_keys, checked, where, *known)

    @property
    def flows(self) -> tuple[Flow, ...]:
        """The inputs of the stage."""
        return (*self.left._flows, *self.right._flows)

    @property
    def columns(self) -> JoinedColumns:
        """The columns of both sides, and their names in the output."""
        left = _types(self.left_known, self.keys)
        right = _types(self.right_known, self.right_keys)
        return JoinedColumns(left, right, self.keys, self.suffixes)

    def lateness(self, given: DurationLike | None, argument: str) -> int:
        """Return the lateness that was given, at least that of the upstream stages.

        Raises:
            InvalidArgument: It is shorter.
        """
        least = inherited_lateness(self.flows)
        found = least if given is None else duration(given, name=argument)
        if found < 0:
            raise InvalidArgument(
                f"{describe(argument, given)} is below zero",
                where=f"{self.where}({argument}=)",
                hint=f'Write, say, {argument}="1h"',
            )
        if found < least:
            raise InvalidArgument(
                f"{argument}={format_duration(found)!r} is shorter than the lateness of the "
                f"upstream stage, {format_duration(least)!r}, so what it emits late would be "
                "dropped here",
                where=f"{self.where}({argument}=)",
                hint=f"Leave {argument} out, or make it as long",
            )
        return found

    def stage(self, joining: Joining | AsOf, columns: JoinedColumns | None = None) -> Stage:
        """Return the stage of a join.

        Args:
            joining: The rules.
            columns: The columns, if there are hidden ones.

        Raises:
            InvalidArgument: The columns are not known, or two would have one name.
        """
        if joining.emits_pairs:
            require_known(self.left_known, "left", self.where)
            require_known(self.right_known, "right", self.where)
        left, columns = len(self.left._flows), columns or self.columns
        if isinstance(joining, AsOf):
            return self.checked_stage(JoinedAsOf(joining, left, self.right_keys, columns))
        return self.checked_stage(Joined(joining, left, self.right_keys, columns))

    def window_stage(self, windowing: Windowing, how: How) -> Stage:
        """Return the stage of a join within windows.

        Raises:
            InvalidArgument: The columns are not known, or two would have one name.
        """
        require_known(self.left_known, "left", self.where)
        if how not in ("semi", "anti"):
            require_known(self.right_known, "right", self.where)
        columns = replace(self.columns, labels=WINDOW)
        left = len(self.left._flows)
        return self.checked_stage(WindowJoined(windowing, how, left, self.right_keys, columns))

    def checked_stage(
        self,
        work: Joined | JoinedAsOf | Queried | WindowJoined,
        key_names: tuple[str, ...] | None = None,
    ) -> Stage:
        """Return the stage of a join.

        Args:
            work: What it does.
            key_names: What the output calls the keys, if not as the left side does.

        Raises:
            InvalidArgument: Two columns of the output would have one name.
        """
        of_both = work.emits_pairs
        names = _output_names(work.columns, of_both=of_both)
        if work.output_names_are_new:
            _check_names(names, self.where)
        stage = Stage(self.flows, self.keys, key_names or self.keys, work)
        if stage.retracts and "kind" in names:
            raise InvalidArgument(
                "a column of the output would be called 'kind', which says which records are "
                "retractions",
                where=self.where,
                hint="Leave it out, or rename it, in a select in front of the join",
            )
        return stage


def join_stage(
    inputs: JoinInputs,
    *,
    within: object,
    how: str,
    unmatched: str,
    allowed_lateness: DurationLike | None,
) -> Stage:
    """Return the stage of a join by time, checked as far as can be without running.

    Raises:
        InvalidArgument: An argument is wrong.
    """
    check_choice("how", how, HOWS, "join")
    check_choice("unmatched", unmatched, UNMATCHED, "join")
    if unmatched != "final" and how in ("inner", "semi"):
        raise InvalidArgument(
            f"unmatched={unmatched!r} says when records without a partner come out, and with "
            f"how={how!r} none does",
            where="join(unmatched=)",
            hint='Leave it out, or use how="left"',
        )
    check_no_table(inputs.flows, "join")
    lateness = inputs.lateness(allowed_lateness, "allowed_lateness")
    interval = interval_of(within)
    if inputs.left_known is not None:
        require_names(interval.columns, (*inputs.left_known, *inputs.keys), "join(within=)")
    return inputs.stage(Joining(interval, how, unmatched, lateness))  # type: ignore[arg-type]  # checked above


def window_join_stage(
    inputs: JoinInputs,
    *,
    within: WindowFunction | Windowing,
    how: str,
    unmatched: str,
    options: WindowOptions,
) -> Stage:
    """Return the stage of a join within windows, checked as far as can be without running.

    Raises:
        InvalidArgument: An argument is wrong, or retractions come in that cannot be applied.
    """
    check_choice("how", how, HOWS, "join")
    check_choice("unmatched", unmatched, UNMATCHED, "join")
    if unmatched != "final":
        raise InvalidArgument(
            f"unmatched={unmatched!r} is for a join by time: within windows, records without a "
            "partner come with each firing",
            where="join(unmatched=)",
            hint="Leave it out; trigger= and accumulation= say when a window fires, and whether it "
            "retracts what it emitted",
        )
    windowing = options.windowing(within, inputs.flows, "join")
    if windowing.fill is not None:
        raise InvalidArgument(
            "a window without records joins nothing, so there is nothing to fill",
            where="join(within=)",
            hint="Leave fill= out, or fill the windows of an aggregate upstream",
        )
    for known in (inputs.left_known, inputs.right_known):
        if known is not None:
            require_names(windowing.windows.columns, tuple(known), "join(within=)")
    if windowing.shows_differences and any(is_signed(flow) for flow in inputs.flows):
        raise InvalidArgument(
            "an input retracts records, and discarding panes with only what is new cannot correct "
            "the pairs of earlier ones",
            where="join(accumulation='discarding')",
            hint='Use accumulation="retracting"',
        )
    return inputs.window_stage(windowing, how)  # type: ignore[arg-type]  # checked above


def joined_as_records(stage: Stage, inputs: JoinInputs) -> dict[str, Any]:
    """Return the parts of the stream of a join's output: its flow, and what is known of it."""
    work = stage.work
    assert isinstance(work, JoinKind)
    of_both = work.emits_pairs
    known = inputs.left_known
    if known is None or (of_both and inputs.right_known is None):
        return emitted_as_records(stage, None)
    columns = work.columns
    types = work.key_types(stage.keys, known, inputs.right_known or {})
    types |= dict.fromkeys(columns.labels, MICROS_UTC)
    right = columns.right if of_both else {}
    of_left, of_right = columns.names(tuple(columns.left), tuple(right))
    types |= {of_left[name]: kind for name, kind in columns.left.items()}
    types |= {of_right[name]: kind for name, kind in right.items()}
    public = {name: kind for name, kind in types.items() if not name.startswith(HIDDEN)}
    return emitted_as_records(stage, public)


def without_duplicates(side: StreamParts) -> StreamParts:
    """Return a side behind a stage that drops its duplicates, if they are to be dropped.

    Each side has a stage of its own, in which records meet by their id. In the join they meet by
    other columns, and the other side by another id or by none.
    """
    ids = side._deduplication
    if ids is None:
        return side
    known = known_columns(side)
    if known is not None:
        known = {name: known[name] for name in public_names(tuple(known))}
    stage = Stage(side._flows, ids.columns, ids.columns, Passed(), ids)
    return side._of(emitted_as_records(stage, known))


def _keys(
    on: On | None, left_on: On | None, right_on: On | None, where: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if on is not None and (left_on is not None or right_on is not None):
        raise InvalidArgument(
            f"{where} takes on=, or left_on= and right_on=, not both",
            where=where,
            hint="Use on= where both sides call the columns alike",
        )
    if on is not None:
        names = _names("on", on, where)
        return names, names
    if left_on is None or right_on is None:
        raise InvalidArgument(
            f"{where} needs the columns that must be equal",
            where=where,
            hint='Write on="user", or left_on="user", right_on="customer"',
        )
    left, right = _names("left_on", left_on, where), _names("right_on", right_on, where)
    if len(left) != len(right):
        raise InvalidArgument(
            f"left_on names {len(left)} columns, and right_on {len(right)}",
            where=where,
            hint="Name the columns pair by pair",
        )
    return left, right


def _names(argument: str, given: On, where: str) -> tuple[str, ...]:
    names = (given,) if isinstance(given, str) else given
    if not isinstance(names, (tuple, list)) or not names:
        names = ()
    if not names or not all(isinstance(name, str) for name in names):
        raise InvalidArgument(
            f"{describe(argument, given)} is neither the name of a column nor several names",
            where=where,
            hint=f'Write {argument}="user", or {argument}=("user", "shop")',
        )
    return tuple(names)


def check_choice(
    argument: str,
    given: object,
    known: Sequence[str],
    where: str,
    elsewhere: Mapping[str, str] = _HOWS_ELSEWHERE,
) -> None:
    """Raise unless a value is known; ``elsewhere`` has the names that other libraries use."""
    if given not in known:
        raise InvalidArgument(
            f"{describe(argument, given)} is not known",
            where=where,
            hint=nearest(str(given), known, elsewhere),
        )


def checked_suffixes(given: object, where: str) -> tuple[str, str]:
    """Return the suffixes for names that both sides have, or raise."""
    if (
        not isinstance(given, (tuple, list))
        or len(given) != 2
        or not all(isinstance(one, str) for one in given)
        or given[0] == given[1]
    ):
        raise InvalidArgument(
            f"{describe('suffixes', given)} are not two different texts",
            where=f"{where}(suffixes=)",
            hint='Write, say, suffixes=("", "_right")',
        )
    return (given[0], given[1])


def _types(known: Types | None, keys: tuple[str, ...]) -> Types:
    """Return the columns of a side without its keys, as far as they are known."""
    types = known or {}
    public = public_names(tuple(types))
    return {name: types[name] for name in public if name not in keys}


def known_columns(side: StreamParts) -> Types | None:
    """Return a side's columns, of elements in memory too, with their types if these are known."""
    if side._schema is not None:
        return {field.name: field.type for field in side._schema}
    if side._known is not None:
        return dict.fromkeys(side._known)
    found: dict[str, pa.DataType | None] = {}
    for flow in side._flows:
        source = flow.origin.source if isinstance(flow.origin, Read) else None
        types = source.looked_at() if isinstance(source, IterableSource) else None
        for step in flow.steps:
            names = step.names_after(None if types is None else tuple(types))
            same = types if isinstance(step, Filter) else None
            types = None if names is None else {name: (same or {}).get(name) for name in names}
        if types is None:
            return None
        for name, kind in types.items():
            found[name] = kind if found.get(name, kind) == kind else None
    return found


def require_known(known: Types | None, which: str, where: str) -> None:
    """Raise if the columns of a side are not known: the names in the output depend on them."""
    if known is None:
        raise InvalidArgument(
            f"the columns of the {which} side are not known before the pipeline runs",
            where=where,
            hint='Name those that are needed in front of the join: .select("user", "amount")',
        )


def _check_comparable(
    left: Types | None, right: Types | None, pairs: Sequence[tuple[str, str]], where: str
) -> None:
    """Raise if two keys can never be equal, one a number and the other text."""
    of_left, of_right = left or {}, right or {}
    for name, other in pairs:
        one, two = of_left.get(name), of_right.get(other)
        if one is None or two is None:
            continue
        if (_is_text(one) and _is_number(two)) or (_is_number(one) and _is_text(two)):
            raise InvalidArgument(
                f"the keys {name!r} ({one}) and {other!r} ({two}) are never equal: one is text and "
                "the other a number",
                where=where,
                hint="Convert one in front of the join: with_columns(name=lw.col(...).cast(...))",
            )


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def require_columns(names: Sequence[str], known: Types | None, where: str) -> None:
    """Raise if a side lacks a column, as far as its columns are known; an empty list has none."""
    if known:
        require_names(names, public_names(tuple(known)), where)


def _output_names(columns: JoinedColumns, *, of_both: bool) -> list[str]:
    """Return the names of the columns of the output, as far as they are known."""
    left, right = columns.names(tuple(columns.left), tuple(columns.right if of_both else ()))
    return [*columns.keys, *columns.labels, *left.values(), *right.values()]


def _check_names(names: Sequence[str], where: str) -> None:
    """Raise if two columns of the output would have one name."""
    for name in names:
        if names.count(name) > 1:
            raise InvalidArgument(
                f"two columns of the output would be called {name!r}",
                where=f"{where}(suffixes=)",
                hint="Use other suffixes, or rename a column with with_columns and select",
            )
