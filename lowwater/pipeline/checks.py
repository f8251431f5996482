"""Checks a pipeline while it is built, and formats the errors."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from lowwater.display.text import shown
from lowwater.engine.aggregates import AggregateSpec
from lowwater.engine.aggregates._base import columns_read
from lowwater.engine.aggregates.built_in import check_no_variable
from lowwater.engine.graph.graph import Flow, Stage, is_signed
from lowwater.engine.records.elementwise import check_within_row
from lowwater.engine.records.expressions import Expressions
from lowwater.engine.records.stateless import require_names
from lowwater.engine.window.windowing import Windowing
from lowwater.errors import InvalidArgument, PipelineWarning, describe, warn
from lowwater.time import format_duration, meant
from lowwater.triggers import outlook
from lowwater.windows import ColumnWindows, WindowFunction

STEPS = (
    "filter", "with_columns", "select", "map", "map_async", "flat_map", "explode", "lookup",
    "map_batches", "changelog", "changes",
)  # fmt: skip
"""The methods that make the stateless steps of a stream."""
OF_TABLES = frozenset({"timestamp", "kind"})
"""The columns that the rows of a table get: their event time, and whether they are retracted."""


def require_no_bounds(windows: WindowFunction, aggregates: Mapping[str, AggregateSpec]) -> None:
    """Raise if an aggregate reads a column of bounds: all records of a window have the same."""
    if not isinstance(windows, ColumnWindows):
        return
    label = {windows.start: "window_start", windows.end: "window_end"}
    for name, spec in aggregates.items():
        for column, _ in columns_read(spec):
            if column in label:
                raise InvalidArgument(
                    f"{name}={shown(spec)} reads {column!r}, which is a bound of the windows: all "
                    "records of one have the same",
                    where="aggregate",
                    hint=f"Read {label[column]} of its panes, or lw.count() its records",
                )


def checked_aggregate(name: str, spec: object, *, of_match: bool = False) -> AggregateSpec:
    """Return an aggregate that a user has given, or raise.

    Args:
        name: What messages call it.
        spec: What was given.
        of_match: Whether it is a measure of a match, which alone may have ``of=``.
    """
    if all(hasattr(spec, part) for part in ("bind", "needs", "column", "name")):
        if not of_match:
            check_no_variable(spec, "aggregate")
        return spec  # type: ignore[return-value]  # it has all that the Protocol asks for
    if callable(spec):
        hint = f"Call it: lw.{getattr(spec, '__name__', 'sum')}(...)"
    else:
        hint = 'Use, say, lw.sum("delay") or lw.count()'
    raise InvalidArgument(f"{describe(name, spec)} is not an aggregate", hint=hint)


def checked_aggregates(
    unnamed: Sequence[AggregateSpec],
    named: Mapping[str, AggregateSpec],
    *,
    of_match: bool = False,
) -> dict[str, AggregateSpec]:
    """Return aggregates by name, as a user has given them, or raise.

    Args:
        unnamed: Those that have the name of their function.
        named: The others.
        of_match: Whether they are the measures of a match, which alone may have ``of=``.
    """
    aggregates: dict[str, AggregateSpec] = {}
    for spec in unnamed:
        name = checked_aggregate("an aggregate", spec, of_match=of_match).name
        if name in aggregates or name in named:
            raise InvalidArgument(
                f"two aggregates are named {name!r}",
                where="aggregate",
                hint=f"Name them: aggregate(first_{name}=..., second_{name}=...)",
            )
        aggregates[name] = spec
    for name, spec in named.items():
        aggregates[name] = checked_aggregate(name, spec, of_match=of_match)
    return aggregates


def checked_expressions(
    step: str, unnamed: tuple[Any, ...], named: Mapping[str, Any]
) -> Expressions:
    """Return the expressions that a user has given to a step, or raise."""
    for name, value in (*(("expression", each) for each in unnamed), *named.items()):
        if isinstance(value, str):
            continue
        if _is_expression(value):
            check_within_row(value, step)
            continue
        given = describe(name, value)
        if callable(value):
            hint = "Use .map(...) for Python functions"
        elif isinstance(value, (list, tuple)):
            hint = f"Give each by itself: {step}({', '.join(map(repr, value))})"
        elif type(value).__module__.partition(".")[0] == "polars":
            hint = 'Write it with lw.col("...") instead of polars.col'
        else:
            hint = f"Write lw.lit({value!r}) if it is meant as it is"
        raise InvalidArgument(f"{given} is not an expression over columns", where=step, hint=hint)
    return Expressions(unnamed, named)


def _is_expression(value: object) -> bool:
    import narwhals as nw  # a pipeline without expressions never loads it

    return isinstance(value, nw.Expr)


def checked_function(step: str, function: Any) -> Any:
    """Return a function that a user has given to a step, or raise."""
    if not callable(function):
        raise InvalidArgument(
            f"{describe('function', function)} is not a function",
            where=step,
            hint="Give a Python function"
            if not hasattr(function, "over")
            else "Compute columns with with_columns(name=expression) or select(...)",
        )
    if _is_async(function):
        raise InvalidArgument(
            f"the function of {step} is async, so that calling it computes nothing by itself",
            where=step,
            hint="Use .map_async(function), which runs many calls side by side"
            if step == "map"
            else "Give a plain function, or call the outside before, with .map_async(function)",
        )
    return function


def checked_async(step: str, function: Any) -> Any:
    """Return an ``async`` function that a user has given to a step, or raise."""
    if not callable(function):
        return checked_function(step, function)
    if not _is_async(function):
        raise InvalidArgument(
            f"{describe('function', function)} is not async",
            where=step,
            hint="Write async def; or use .map(function) for a function that waits for nothing",
        )
    return function


def _is_async(function: Any) -> bool:
    plain = function.func if isinstance(function, functools.partial) else function
    return inspect.iscoroutinefunction(plain) or inspect.iscoroutinefunction(
        getattr(plain, "__call__", None)  # noqa: B004  # whether it is async, not whether it is there
    )


def at_least(name: str, value: object, least: int) -> int:
    """Return an int that is at least a bound, or raise."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidArgument(
            f"{describe(name, value)} is not an int of at least {least}",
            hint=f"Write {name}={least or 3}",
        )
    return value


def inherited_lateness(flows: tuple[Flow, ...]) -> int:
    """Return how long upstream stages may still emit late panes, in microseconds (S-C7)."""
    stages = [flow.origin for flow in flows if isinstance(flow.origin, Stage)]
    return meant(max((stage.lateness_us for stage in stages), default=0))


def check_lateness(given_us: int, flows: tuple[Flow, ...], where: str) -> None:
    """Raise if a stage would drop late panes that an upstream stage still emits (S-C7)."""
    least = inherited_lateness(flows)
    if given_us < least:
        raise InvalidArgument(
            f"allowed_lateness={format_duration(given_us)!r} is shorter than that of the upstream "
            f"stage, {format_duration(least)!r}, so its late panes would be dropped here",
            where=f"{where}(allowed_lateness=)",
            hint="Leave it out to use that of the upstream stage",
        )


def check_no_table(flows: tuple[Flow, ...], where: str) -> None:
    """Raise if what comes in are the changes of a table (T-2).

    They retract old rows at the times of these, of which no watermark tells.
    """
    for flow in flows:
        if is_signed(flow) and isinstance(flow.origin, Stage) and flow.origin.makes_table:
            raise InvalidArgument(
                "these are the changes of a table: old rows are retracted at their own times, "
                "however old",
                where=where,
                hint="Aggregate the table with group_by(...).aggregate(...), join it with another "
                'table, or use the stream that it is made of, or changes(form="upsert")',
            )


def check_adds_up(flows: tuple[Flow, ...]) -> None:
    """Raise if an upstream stage emits elements again without retracting them (S-C8)."""
    for flow in flows:
        if isinstance(flow.origin, Stage) and (windowing := flow.origin.windowing) is not None:
            _check_counted_once(windowing)


def check_retracted_in_time(flows: tuple[Flow, ...]) -> None:
    """Raise if panes may be retracted when a window of the next stage has expired (S-C7)."""
    for flow in flows:
        windowing = flow.origin.windowing if isinstance(flow.origin, Stage) else None
        if windowing is None or windowing.mode != "retracting" or windowing.timestamps == "end":
            continue
        if emits_again(windowing):
            raise InvalidArgument(
                f"the upstream stage retracts panes, and its timestamps={windowing.timestamps!r}: "
                "an emitted pane no longer holds the watermark, so its window here may have "
                "expired before its retraction arrives",
                where="window",
                hint='Use timestamps="end" upstream, or accumulation="discarding"',
            )


def emits_again(windowing: Windowing) -> bool:
    """Whether a window may emit more than one pane."""
    return outlook(windowing.trigger, late_possible=windowing.lateness_us > 0).times > 1


def _check_counted_once(windowing: Windowing) -> None:
    if windowing.mode != "accumulating" or not emits_again(windowing):
        return
    raise InvalidArgument(
        "the upstream stage may emit several accumulating panes of a window: each contains the "
        "elements of the previous one again, so this stage would count them more than once",
        where="aggregate",
        hint='Use accumulation="retracting" upstream (each pane retracts the previous one) or '
        '"discarding" (each pane contains only new elements)',
    )


def key_names(
    names: Sequence[str], taken: Collection[str], *, others: Iterable[str] = (), where: str
) -> tuple[str, ...]:
    """Return what the output calls keys; where it is another name, the user is told.

    Args:
        names: What the keys are called.
        taken: The other columns that the output has in any case.
        others: Further columns that it has, as far as they are known.
        where: The method, for messages.

    Raises:
        InvalidArgument: Two keys have one name, or what a key would be called is taken, too.
    """
    require_distinct(names, where)
    found = tuple(f"{name}_key" if name in taken else name for name in names)
    others = {*others, *names}
    for name, new in zip(names, found, strict=True):
        if name != new and (new in taken or new in others):
            raise InvalidArgument(
                f"a key cannot be called {name!r}: the output has a column of that name, and "
                f"another one of the name {new!r}",
                where=where,
                hint="Rename it with with_columns",
            )
    for name, new in zip(names, found, strict=True):
        if name != new:
            warn(
                PipelineWarning,
                f"the key {name!r} is called {new!r} in tables, frames and records of the output, "
                f"which have a column {name!r} of their own",
                where=where,
                hint=_own_name(name, where),
            )
    return found


def _own_name(name: str, where: str) -> str:
    if where == "key_by":
        return f"Name it yourself, which ends this warning: key_by(my_{name}=lw.col({name!r}))"
    return (
        "Name it yourself, which ends this warning: "
        f"with_columns(my_{name}=lw.col({name!r})), and then 'my_{name}' here"
    )


def require_distinct(names: Sequence[str], where: str) -> None:
    """Raise if two keys have one name."""
    for name in names:
        if names.count(name) > 1:
            raise InvalidArgument(
                f"a key cannot be called {name!r}: there are two",
                where=where,
                hint="Rename it with with_columns",
            )


def require_names_of_join(names: Sequence[str], where: str) -> None:
    """Raise if a key of a join is called as the column of event times in its output."""
    if "timestamp" in names:
        raise InvalidArgument(
            "a key cannot be called 'timestamp': the output has the event times in a column of "
            "that name",
            where=where,
            hint="Rename it with with_columns, and name it in left_on=",
        )


def require_key_columns(columns: Iterable[str], known: Collection[str] | None, where: str) -> None:
    """Raise if the columns of a stream are known, and a key column is not among them."""
    if known is not None:
        require_names(columns, known, where)
