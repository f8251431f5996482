"""What all cells of a process share: whose state they read, what changed, how it is stored."""

from __future__ import annotations

import copy
import datetime as dt
from decimal import Decimal
from functools import reduce
from typing import Any, ClassVar, NoReturn, final
from uuid import UUID

from lowwater.engine.process.declarations import Cell, CellKind
from lowwater.engine.records.columns import is_missing_kind, of_numpy
from lowwater.engine.records.storable import MOST_NESTED, fault_of
from lowwater.errors import InvalidArgument, StateError, describe, user_code
from lowwater.state.codec import encode
from lowwater.state.formats import damaged
from lowwater.time import Instant

FIXED = frozenset(
    {
        type(None), bool, int, float, str, bytes, Instant, Decimal, UUID,
        dt.date, dt.time, dt.datetime, dt.timedelta,
    }
)  # fmt: skip
"""Types whose values are immutable, and so is all they contain."""
_DEEP = 8
_KNOWN = FIXED - {Decimal}
"""Those of them whose values can all be held, but for integers and text that are too much."""
SURE = _KNOWN - {str, dt.time, dt.datetime}
"""Those of them whose values can all be held."""


@final
class ScopeCursor:
    """The scope that cells and timers read and write: that of the key whose hook is running.

    ``place`` is what has the hook run: the number of a record in its bundle, or the time of an
    advance, microseconds (in event-time order twice that, and one more for a record). Over a step
    it never falls, and at one place the parts of keys come one after another, so that what several
    operators emit, each for keys of its own, can be put in one order.
    """

    __slots__ = ("place", "scope")

    def __init__(self) -> None:
        self.scope = -1
        self.place = 0


class RecordCell:
    """What all cells share: where they keep things, what changed, and how it is stored.

    Args:
        name: What the process calls it.
        declared: The declaration.
        cursor: The current scope.
    """

    __slots__ = ("_cursor", "changed", "declared", "held", "name")

    kind: ClassVar[CellKind]

    def __init__(self, name: str, declared: Cell, cursor: ScopeCursor) -> None:
        self.name = name
        self.declared = declared
        self.held: dict[int, Any] = {}
        self.changed: set[int] = set()
        self._cursor = cursor

    def clear(self) -> None:
        """Remove what the key holds here."""
        self.drop(self._cursor.scope)

    def drop(self, scope: int) -> None:
        """Remove what a scope holds here."""
        if self.held.pop(scope, self) is not self:
            self.changed.add(scope)

    def merge(self, into: int, sources: list[int]) -> None:
        """Move what scopes hold, in the order of their windows, to one (which may be of them)."""
        parts = [self.held.pop(scope) for scope in sources if scope in self.held]
        if parts:
            self.changed.update((into, *sources))
            with user_code(f"merge of the cell {self.name!r}"):
                self.held[into] = parts[0] if len(parts) == 1 else reduce(self._merged, parts)

    def _require(self, value: Any) -> None:
        """Check a value that is about to be held, before anything has changed.

        O(its parts); values without parts cost some ten nanoseconds.

        Raises:
            InvalidArgument: It cannot be stored (S-B1), whether the run has a state or not.
        """
        kind = type(value)
        if kind in SURE or (kind is str and value.isascii()):
            return
        if (fault := fault_of(value, wide=True)) is not None:
            raise InvalidArgument(
                f"{describe('value', value)} cannot go into the cell {self.name!r}: {fault[1]}",
                where=f"cell {self.name!r}",
                hint="Convert it, say to text, or keep the parts of it that are needed",
            )

    def encoded(self, scope: int) -> bytes | None:
        """Return what a scope holds as bytes; ``None`` for nothing.

        Raises:
            StateError: It cannot be stored.
        """
        return encode(self._stored(self.held[scope])) if scope in self.held else None

    def load(self, scope: int, value: Any) -> None:
        """Load what :meth:`encoded` returned, decoded.

        Raises:
            StateError: It is something else.
        """
        self.held[scope] = self._loaded(value)

    def _stored(self, held: Any) -> Any:
        return held

    def _loaded(self, value: Any) -> Any:
        return value

    def _merged(self, left: Any, right: Any) -> Any:
        raise NotImplementedError

    def _filled(self, value: Any, kind: type) -> Any:
        """Return a decoded value that must be of a type and hold something."""
        if type(value) is not kind or not value:
            raise damaged(f"the cell {self.name!r}", f"it holds a {type(value).__name__}")
        return value


class SingleCell(RecordCell):
    """A cell of one value."""

    __slots__ = ()

    @property
    def is_set(self) -> bool:
        """Whether the key has a value here: one was set or added, and not cleared since."""
        return self._cursor.scope in self.held

    def __bool__(self) -> NoReturn:
        raise InvalidArgument(
            f"the cell {self.name!r} is neither true nor false: it is where the value is kept",
            where=f"cell {self.name!r}",
            hint=f"Write ctx.{self.name}.get() for the value, or ctx.{self.name}.is_set",
        )


class CollectionCell(RecordCell):
    """A cell of several values."""

    __slots__ = ()

    def __len__(self) -> int:
        return len(self.held.get(self._cursor.scope, ()))


def own(value: Any, odd: set[str] | None = None, tag: str = "", depth: int = 0) -> Any:
    """Return a copy that shares no part with a cell: what was emitted must not change (S-K5).

    Args:
        value: The value.
        odd: Gets ``tag`` if a part of the value is of a type that perhaps cannot be held.
        tag: The output that it is emitted to.
        depth: How deep in another value it is.
    """
    kind = type(value)
    if kind in _KNOWN:
        return value
    if depth >= MOST_NESTED or (depth == _DEEP and fault_of(value) is not None):
        # Such a record becomes a dead letter, but for one of just that depth. A copy might have no
        # end: a list may be in itself, or in another one many times over.
        return _odd(value, odd, tag)
    below = depth + 1
    if kind is dict:
        return {k: v if type(v) in _KNOWN else own(v, odd, tag, below) for k, v in value.items()}
    if kind is list:
        return [v if type(v) in _KNOWN else own(v, odd, tag, below) for v in value]
    if kind is tuple:
        return tuple([v if type(v) in _KNOWN else own(v, odd, tag, below) for v in value])
    if kind is Decimal:
        return _odd(value, odd, tag) if value.is_snan() else value
    if is_missing_kind(kind):
        return None
    if (plain := of_numpy(value)) is not value:
        return own(plain, odd, tag, depth)
    try:
        copied = copy.deepcopy(value)
    except Exception:  # nor can what cannot be copied be held
        copied = value
    return _odd(copied, odd, tag)


def _odd(value: Any, odd: set[str] | None, tag: str) -> Any:
    if odd is not None:
        odd.add(tag)
    return value


def refused(error: StateError, cell: str, key: object, process: str) -> StateError:
    """Return the error for a value that cannot be stored, with the cell and the key."""
    return StateError(
        f"the cell {cell!r} of {describe('key', key)} cannot be stored: {error.what}",
        where=process,
        hint=error.hint,
    )
