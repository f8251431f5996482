"""Reads what a process declares from the user's object, and checks it once."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, final

from lowwater.display.text import shown
from lowwater.engine.process.column_context import ColumnContext
from lowwater.engine.process.context import ProcessContext
from lowwater.engine.process.declarations import Cell, Output, Timer
from lowwater.engine.records.stage_output import MAIN
from lowwater.engine.window.windowing import Windowing
from lowwater.errors import InvalidArgument, describe
from lowwater.time import END_OF_TIME, duration, saturating_add
from lowwater.triggers import Default

_HOOKS = {
    False: ("on_record", "on_timer", "on_window_expired", "on_end"),
    True: ("on_records", "on_timers", "on_windows_expired", "on_keys_end"),
}
_OPTIONS = ("retracts", "lateness")
_RESERVED = frozenset(
    name
    for name in (*dir(ProcessContext), *dir(ColumnContext), *_OPTIONS)
    if not name.startswith("_")
)


_LAZY = (inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction)

# What a windowing says of panes, and where it says nothing. (Discarding is what earlier versions
# demanded of windows that accept late records.)
_OF_PANES = {
    "accumulation": "discarding",
    "closing": "if_new",
    "on_time": "always",
    "fill": None,
    "timestamps": "end",
    "allow_data_loss": None,
}


@final
@dataclass(frozen=True, slots=True)
class Definition:
    """A process and what it declares.

    Args:
        process: The user's object.
        name: Its name in messages.
        vectorised: Whether it takes bundles as columns.
        cells, timers: The declarations by name, in order.
        outputs: The tags it may emit to, the main one first.
        retracts: Whether it may emit retractions.
        lateness_us: How far below the output watermark it may emit, in microseconds.
    """

    process: Any
    name: str
    vectorised: bool
    cells: dict[str, Cell]
    timers: dict[str, Timer]
    outputs: tuple[str, ...]
    retracts: bool = False
    lateness_us: int = 0

    @classmethod
    def of(cls, process: object, windowing: Windowing | None) -> Definition:
        """Return what an object declares.

        Raises:
            InvalidArgument: It is no process, or not one for these windows.
        """
        if isinstance(process, type):
            raise InvalidArgument(
                f"{describe('process', process)} is a class", hint=f"Use {process.__name__}()"
            )
        name = f"process({type(process).__name__})"
        vectorised = _has(process, "on_records")
        if vectorised == _has(process, "on_record"):
            both = "both on_record and on_records" if vectorised else "no method on_record"
            raise InvalidArgument(
                f"{describe('process', process)} has {both}",
                hint="Give it on_record(record, ctx), or on_records(batch, ctx) for columns",
            )
        found: dict[str, Any] = {}
        for base in reversed(type(process).__mro__):
            found.update(vars(base))
        declared = {n: v for n, v in found.items() if isinstance(v, (Cell, Timer, Output))}
        definition = cls(
            process,
            name,
            vectorised,
            {n: v for n, v in declared.items() if isinstance(v, Cell)},
            {n: v for n, v in declared.items() if isinstance(v, Timer)},
            (MAIN, *(n for n, v in declared.items() if isinstance(v, Output))),
            _retracts(process, name),
            _lateness_us(process, name),
        )
        definition._check_names(declared)
        definition._check_hooks(windowing)
        if vectorised:
            definition._check_columns()
        if windowing is not None:
            definition._check_windowing(windowing)
        return definition

    def hook(self, name: str) -> Any:
        """Return a method of the process, ``None`` if it has none of that name."""
        return getattr(self.process, name) if _has(self.process, name) else None

    def lowest(self, output_watermark: int) -> int:
        """Return the earliest time that it may emit at by its ``lateness`` (S-K12)."""
        if not self.lateness_us:
            return END_OF_TIME  # what causes an emission decides alone (S-K6)
        return saturating_add(output_watermark, -self.lateness_us)

    def _check_names(self, declared: dict[str, Any]) -> None:
        for name in declared:
            if not name.isidentifier():  # set with setattr, or in a class made by type()
                raise InvalidArgument(
                    f"{name!r} cannot be the name of a cell, timer or output: it is no name in "
                    "Python",
                    where=self.name,
                    hint="Use letters, digits and underscores, such as 'rejected'",
                )
            if name in _RESERVED or name.startswith("_") or name == MAIN:
                raise InvalidArgument(
                    f"{name!r} cannot be the name of a cell, timer or output: it means something "
                    "else in a context",
                    where=self.name,
                    hint="Choose another name",
                )

    def _check_hooks(self, windowing: Windowing | None) -> None:
        mine, others = _HOOKS[self.vectorised], _HOOKS[not self.vectorised]
        for name, other in zip(mine, others, strict=True):
            if _has(self.process, other):
                raise InvalidArgument(
                    f"it has {other} beside {mine[0]}, and {other} would never be called",
                    where=self.name,
                    hint=f"Call it {name}",
                )
        for name in mine:
            hook = self.hook(name)
            if any(lazy(hook) for lazy in _LAZY):
                raise InvalidArgument(
                    f"{name} is a generator or a coroutine: calling it would do nothing",
                    where=self.name,
                    hint="Write ctx.emit(x) instead of yield x, and no async",
                )
        _, on_timer, expired, end = mine
        if self.timers and not _has(self.process, on_timer):
            raise InvalidArgument(
                f"it declares the timer {next(iter(self.timers))!r}, but has no method {on_timer}",
                where=self.name,
                hint=f"Give it {on_timer}, or leave the timer out",
            )
        if windowing is None and _has(self.process, expired):
            raise InvalidArgument(
                f"it has {expired}, but no windows",
                where=self.name,
                hint=f"Put it into windows, or use {end}",
            )
        if windowing is not None and _has(self.process, end):
            raise InvalidArgument(
                f"it has {end}, but in windows, all of which expire before the end",
                where=self.name,
                hint=f"Use {expired}",
            )

    def _check_columns(self) -> None:
        for name, cell in self.cells.items():
            if cell.kind != "value" or cell.dtype is None:
                raise InvalidArgument(
                    f"the cell {name!r} is no column: a vectorised process takes value cells with "
                    "a dtype",
                    where=self.name,
                    hint=f'Write {name} = lw.value_cell(dtype="int64"), or use on_record',
                )

    def _check_windowing(self, windowing: Windowing) -> None:
        if windowing.trigger != Default():
            raise InvalidArgument(
                f"{describe('trigger', windowing.trigger)} has no meaning for a process, which "
                "decides by itself when to emit",
                where=self.name,
                hint="Leave the trigger out, and use timers",
            )
        for name, default in _OF_PANES.items():
            value = getattr(windowing, name)
            if value != default:
                raise InvalidArgument(
                    f"{describe(name, value)} is about panes, and a process has none: it has no "
                    "effect there",
                    where=self.name,
                    hint=f"Leave {name}= out",
                )
        if windowing.merging is None:
            return
        if self.vectorised:
            raise InvalidArgument(
                f"the windows of {shown(windowing.windows)} merge, and a vectorised process has no "
                "way to merge its cells",
                where=self.name,
                hint="Use on_record, or windows that do not merge",
            )
        for name, cell in self.cells.items():
            if cell.kind in ("value", "map") and cell.merge is None:
                raise InvalidArgument(
                    f"the windows of {shown(windowing.windows)} merge, and nothing says how two of "
                    f"the cell {name!r} become one",
                    where=self.name,
                    hint=f"Write {name} = lw.{cell.kind}_cell(merge=...), a function of two values",
                )


def gave_back(hook: str, returned: object, process: str) -> InvalidArgument:
    """Return the error for a hook that returned a value, which would be lost."""
    return InvalidArgument(
        f"{hook} returned {describe('value', returned)}, and what hooks return goes nowhere",
        where=process,
        hint="Use ctx.emit(value), and return nothing",
    )


def hint_of(error: Exception) -> str:
    """Return the hint for an exception that a hook raised."""
    if isinstance(error, AttributeError) and "is read-only" in str(error):
        return "Cells and timers are not assigned to: write ctx.name.set(value)"
    return "Fix it; the error above this one shows the place"


def _retracts(process: object, where: str) -> bool:
    given = _option(process, "retracts", False)
    if not isinstance(given, bool):
        raise InvalidArgument(
            f"{describe('retracts', given)} is neither True nor False",
            where=where,
            hint="Write retracts = True in the body of the class, or leave it out",
        )
    return given


def _lateness_us(process: object, where: str) -> int:
    given = _option(process, "lateness", 0)
    try:
        lateness = duration(given, name="lateness")
    except InvalidArgument as error:
        raise InvalidArgument(
            error.what, where=where, hint='Write, say, lateness = "1h" in the body of the class'
        ) from None
    if lateness < 0:
        raise InvalidArgument(
            f"{describe('lateness', given)} is below zero",
            where=where,
            hint="Say how far below the output watermark it may emit",
        )
    return lateness


def _option(process: object, name: str, default: Any) -> Any:
    given = getattr(process, name, default)
    return default if isinstance(given, (Cell, Timer, Output)) else given


def _has(process: object, name: str) -> bool:
    return callable(getattr(process, name, None))
