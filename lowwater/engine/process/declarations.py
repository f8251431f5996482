"""What users declare in a process: cells of state, timers and outputs, as values.

They are class attributes; what an attribute is called is the name of the cell, timer or output.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias, final, get_args

import numpy as np

from lowwater.engine.aggregates import AggregateSpec, Combiner
from lowwater.engine.process.folds import fold_of
from lowwater.errors import InvalidArgument, UnknownName, describe

CellKind: TypeAlias = Literal["value", "list", "map", "set", "combining", "ordered"]
CellType: TypeAlias = Literal["int64", "float64", "bool"]
Domain: TypeAlias = Literal["event", "processing"]
Merge: TypeAlias = Callable[[Any, Any], Any]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A piece of state that each key (in windows: each key and window) has for itself.

    Made by :func:`value_cell`, :func:`list_cell`, :func:`map_cell`, :func:`set_cell`,
    :func:`combining_cell` and :func:`ordered_cell`.

    Args:
        kind: What it holds.
        default: What a value cell gives where nothing was set.
        dtype: Type of the value, ``None`` for any.
        combiner: How a combining cell adds up.
        merge: How two values become one where windows merge.
    """

    kind: CellKind
    default: Any = None
    dtype: CellType | None = None
    combiner: Combiner | None = None
    merge: Merge | None = None

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            hint = None if name.startswith("_") else f"In a hook, write ctx.NAME.{name}(...)"
            raise UnknownName(
                f"a declared cell has no {name!r}: its values belong to the context", hint=hint
            )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Timer:
    """A call of ``on_timer`` at an instant, once, set and cleared per key.

    Args:
        domain: ``"event"``: it fires when the watermark reaches its time; ``"processing"``: when
            the clock does.
    """

    domain: Domain = "event"


@final
@dataclass(frozen=True, slots=True)
class Output:
    """A further output beside the main one; its tag is the name of the attribute."""


def value_cell(
    default: Any = None, *, dtype: CellType | None = None, merge: Merge | None = None
) -> Cell:
    """Declare one value: ``get()``, ``set(value)``, ``clear()``.

    Args:
        default: The value that ``get`` returns before any ``set``; a value that can be changed in
            place is refused. With a ``dtype``, ``None`` means zero.
        dtype: ``"int64"``, ``"float64"`` or ``"bool"``; values of other types are refused. Required
            by a vectorised process, where the cell is a column and the default counts as empty.
        merge: A function that merges two values, for windows that merge.

    Raises:
        InvalidArgument: ``default`` or ``dtype`` is not allowed.
    """
    if dtype is not None:
        if dtype not in get_args(CellType):
            raise InvalidArgument(
                f"{describe('dtype', dtype)} is not known",
                where="value_cell",
                hint="Use one of: " + ", ".join(repr(name) for name in get_args(CellType)),
            )
        if default is None:
            default = np.dtype(dtype).type().item()
        default = checked(default, dtype, "default", "value_cell")
    elif not isinstance(default, (type(None), bool, int, float, str, bytes, tuple, frozenset)):
        raise InvalidArgument(
            f"{describe('default', default)} could be changed in place, for all keys at once",
            where="value_cell",
            hint="Use list_cell, map_cell or set_cell, or set the value when get gives None",
        )
    _check_merge(merge, "value_cell")
    return Cell(kind="value", default=default, dtype=dtype, merge=merge)


def list_cell() -> Cell:
    """Declare a list: ``append``, ``extend``, ``get``, ``len``, iteration, ``clear``.

    When windows merge, it holds the elements of the earlier window, then those of the later one.
    """
    return Cell(kind="list")


def map_cell(*, merge: Merge | None = None) -> Cell:
    """Declare a mapping: ``cell[key]``, ``get``, ``in``, ``del``, ``items``, ``clear``.

    Args:
        merge: A function that merges two values of one key, for windows that merge.
    """
    _check_merge(merge, "map_cell")
    return Cell(kind="map", merge=merge)


def set_cell() -> Cell:
    """Declare a set: ``add``, ``discard``, ``in``, ``len``, iteration, ``clear``."""
    return Cell(kind="set")


def combining_cell(combiner: Combiner | AggregateSpec) -> Cell:
    """Declare a value that others are added to: ``add(value)``, ``get()``, ``clear()``.

    Args:
        combiner: As :func:`lowwater.combine` takes it, or one of ``lw.count()``, ``lw.sum()``,
            ``lw.min()``, ``lw.max()`` and ``lw.mean()``, which name no column here.

    Raises:
        InvalidArgument: It is neither.
    """
    return Cell(kind="combining", combiner=fold_of(combiner))


def ordered_cell() -> Cell:
    """Declare values by event time: ``add(time, value)``, ``range``, ``delete``, ``first``.

    When windows merge, it holds the values of both; at equal times the earlier window's come first.
    """
    return Cell(kind="ordered")


def timer(*, domain: Domain = "event") -> Timer:
    """Declare a timer: ``set(time, output_time=None, tag=None)``, ``clear``, ``get``.

    Args:
        domain: ``"event"`` for the watermark, ``"processing"`` for the clock.

    Raises:
        InvalidArgument: It is neither of them.
    """
    if domain not in get_args(Domain):
        raise InvalidArgument(
            f"{describe('domain', domain)} is not known",
            where="timer",
            hint='Use "event" or "processing"',
        )
    return Timer(domain=domain)


def output() -> Output:
    """Declare an output in addition to the main one."""
    return Output()


def checked(value: Any, dtype: CellType, name: str, where: str) -> Any:
    """Return a value as a cell of a dtype holds it.

    Raises:
        InvalidArgument: It is of another type, or an int beyond 64 bits.
    """
    if isinstance(value, np.generic):
        value = value.item()
    kind = type(value)
    if dtype == "int64" and kind is int and -(2**63) <= value < 2**63:
        return value
    if dtype == "float64" and kind in (int, float):
        return float(value)
    if dtype == "bool" and kind is bool:
        return value
    raise InvalidArgument(
        f"{describe(name, value)} does not fit dtype={dtype!r}",
        where=where,
        hint="Convert it, or declare the cell without a dtype",
    )


def _check_merge(merge: object, where: str) -> None:
    if merge is not None and not callable(merge):
        raise InvalidArgument(
            f"{describe('merge', merge)} is not a function",
            where=where,
            hint="Give a function of two values that returns one, such as max",
        )
