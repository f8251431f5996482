"""The cells of a process as its hooks see them: each reads and writes what the current key holds.

A cell keeps what all keys hold in one dictionary, by scope: the number of a key, or of a key and
window. A hook may change a value that it has read in place. Nothing reports that, so whatever was
read and is mutable counts as changed when state is saved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Any, final

from sortedcontainers import SortedKeyList

from lowwater.engine.process.cell import (
    FIXED,
    SURE,
    CollectionCell,
    RecordCell,
    ScopeCursor,
    SingleCell,
    own,
)
from lowwater.engine.process.declarations import Cell, CellKind, checked
from lowwater.engine.records.storable import NESTED
from lowwater.errors import InvalidArgument, describe
from lowwater.state.formats import damaged
from lowwater.time import END_OF_TIME, START_OF_TIME, InstantLike, instant

_time_of = itemgetter(0)


@final
class ValueState(SingleCell):
    """One value."""

    __slots__ = ("_default", "_dtype", "_merge")

    kind = "value"

    def __init__(self, name: str, declared: Cell, cursor: ScopeCursor) -> None:
        super().__init__(name, declared, cursor)
        self._default = declared.default
        self._dtype = declared.dtype
        self._merge = declared.merge

    def get(self) -> Any:
        """Return the value, or the default where there is none."""
        scope = self._cursor.scope
        value = self.held.get(scope, self._default)
        if type(value) not in FIXED and scope in self.held:
            self.changed.add(scope)  # it may be about to change in place
        return value

    def set(self, value: Any) -> None:
        """Set the value; ``None`` is one too.

        Raises:
            InvalidArgument: It does not fit the cell's dtype, or cannot be stored (S-B1).
        """
        scope = self._cursor.scope
        if self._dtype is not None:
            value = checked(value, self._dtype, "value", f"cell {self.name!r}")
        elif type(value) not in SURE and value is not self.held.get(scope):  # else it was read
            self._require(value)
        self.held[scope] = value
        self.changed.add(scope)

    def _loaded(self, value: Any) -> Any:
        if self._dtype is None:
            return value
        try:
            return checked(value, self._dtype, "value", f"cell {self.name!r}")
        except InvalidArgument as error:
            raise damaged(f"the cell {self.name!r}", error.what) from None

    def _merged(self, left: Any, right: Any) -> Any:
        assert self._merge is not None, "definitions see to it"
        merged = self._merge(left, right)
        return merged if self._dtype is None else checked(merged, self._dtype, "merged", self.name)


@final
class ListState(CollectionCell):
    """A list."""

    __slots__ = ()

    kind = "list"

    def append(self, value: Any) -> None:
        """Add a value at the end; one that cannot be stored is an ``InvalidArgument`` (S-B1)."""
        self._require(value)
        self._own().append(value)

    def extend(self, values: Iterable[Any]) -> None:
        """Add values at the end."""
        added = list(values)
        for value in added:
            self._require(value)
        if added:
            self._own().extend(added)

    def get(self) -> list[Any]:
        """Return the values, as a list of its own. O(n)."""
        held = self.held.get(self._cursor.scope)
        if held is None:
            return []
        self.changed.add(self._cursor.scope)  # values in it may be about to change in place
        return list(held)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.get())

    def _own(self) -> list[Any]:
        scope = self._cursor.scope
        self.changed.add(scope)
        held: list[Any] = self.held.setdefault(scope, [])
        return held

    def _loaded(self, value: Any) -> Any:
        return self._filled(value, list)

    def _merged(self, left: Any, right: Any) -> Any:
        return left + right


@final
class MapState(CollectionCell):
    """A mapping."""

    __slots__ = ()

    kind = "map"

    def __getitem__(self, key: Any) -> Any:
        return self._seen()[key]

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the value of a key of the mapping, or the default."""
        return self._seen().get(key, default)

    def __setitem__(self, key: Any, value: Any) -> None:
        """Set the value of a key of the mapping.

        Raises:
            InvalidArgument: The key has no hash, or one of them cannot be stored (S-B1).
        """
        _require_hashable(self.name, key)
        scope = self._cursor.scope
        held = self.held.get(scope)
        if held is None or key not in held:
            self._require(key)
        if held is None or held.get(key, self) is not value:
            self._require(value)
        self.changed.add(scope)
        self.held.setdefault(scope, {})[key] = value

    def __delitem__(self, key: Any) -> None:
        del self._seen()[key]
        if not self.held[self._cursor.scope]:
            self.clear()

    def pop(self, key: Any, default: Any = None) -> Any:
        """Remove a key and return its value, or the default."""
        if key not in self:
            return default
        value = self[key]
        del self[key]
        return value

    def items(self) -> list[tuple[Any, Any]]:
        """Return keys and values, in order of first setting. O(n)."""
        return list(self._seen().items())

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._seen()))

    def __contains__(self, key: Any) -> bool:
        return key in self.held.get(self._cursor.scope, ())

    def _seen(self) -> dict[Any, Any]:
        scope = self._cursor.scope
        held: dict[Any, Any] | None = self.held.get(scope)
        if held is None:
            return {}
        self.changed.add(scope)
        return held

    def _loaded(self, value: Any) -> Any:
        return self._filled(value, dict)

    def _merged(self, left: Any, right: Any) -> Any:
        merge = self.declared.merge
        assert merge is not None, "definitions see to it"
        both = {k: merge(left[k], v) if k in left else v for k, v in right.items()}
        return {**left, **both}


@final
class SetState(CollectionCell):
    """A set. Its order of iteration is that of adding."""

    __slots__ = ()

    kind = "set"

    # A dictionary of nulls, because the order of a set of text differs from process to process.

    def add(self, value: Any) -> bool:
        """Add a value; return whether it is new.

        Raises:
            InvalidArgument: It has no hash, or cannot be stored (S-B1).
        """
        _require_hashable(self.name, value)
        scope = self._cursor.scope
        if value in self.held.get(scope, ()):
            return False
        self._require(value)
        self.held.setdefault(scope, {})[value] = None
        self.changed.add(scope)
        return True

    def discard(self, value: Any) -> None:
        """Remove a value, if it is there."""
        scope = self._cursor.scope
        held = self.held.get(scope)
        if held is None or value not in held:
            return
        del held[value]
        self.changed.add(scope)
        if not held:
            del self.held[scope]

    def get(self) -> set[Any]:
        """Return the values, as a set of its own. O(n)."""
        return set(self.held.get(self._cursor.scope, ()))

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self.held.get(self._cursor.scope, ())))

    def __contains__(self, value: Any) -> bool:
        return value in self.held.get(self._cursor.scope, ())

    def _stored(self, held: Any) -> Any:
        return list(held)

    def _loaded(self, value: Any) -> Any:
        return dict.fromkeys(self._filled(value, list))

    def _merged(self, left: Any, right: Any) -> Any:
        return {**left, **right}


@final
class CombiningState(SingleCell):
    """A value that others are added to."""

    __slots__ = ("_combiner",)

    kind = "combining"

    def __init__(self, name: str, declared: Cell, cursor: ScopeCursor) -> None:
        super().__init__(name, declared, cursor)
        assert declared.combiner is not None
        self._combiner = declared.combiner

    def add(self, value: Any) -> None:
        """Add a value.

        Raises:
            InvalidArgument: What they come to cannot be stored (S-B1).
        """
        scope, combiner = self._cursor.scope, self._combiner
        held = self.held.get(scope, self)
        if held is self:
            held = combiner.create_accumulator()
        added = combiner.add_input(held, value)
        if not isinstance(added, NESTED):  # else it may be long, and is looked at when it is stored
            self._require(added)
        self.held[scope] = added
        self.changed.add(scope)

    def get(self) -> Any:
        """Return the combined value; that of no values where none were added."""
        held = self.held.get(self._cursor.scope, self)
        if held is self:
            held = self._combiner.create_accumulator()
        return own(self._combiner.extract_output(held))

    def _merged(self, left: Any, right: Any) -> Any:
        return self._combiner.merge_accumulators([left, right])


@final
class OrderedState(CollectionCell):
    """Values by event time; of one time, in order of adding."""

    __slots__ = ()

    kind = "ordered"

    def add(self, time: InstantLike, value: Any) -> None:
        """Add a value at a time. O(log n).

        Raises:
            InvalidArgument: It is no instant, or the value cannot be stored (S-B1).
        """
        scope = self._cursor.scope
        at = time
        if type(at) is not int or not START_OF_TIME <= at <= END_OF_TIME:
            at = int(instant(time, name="time"))
        self._require(value)
        held = self.held.get(scope)
        if held is None:
            held = self.held[scope] = SortedKeyList(key=_time_of)
        held.add((at, value))
        self.changed.add(scope)

    def range(
        self, start: InstantLike | None = None, stop: InstantLike | None = None
    ) -> list[tuple[int, Any]]:
        """Return the (time, value) pairs with ``start <= time < stop``; ``None`` for no bound.

        O(log n + what it returns).
        """
        held = self.held.get(self._cursor.scope)
        if held is None:
            return []
        self.changed.add(self._cursor.scope)  # values may be about to change in place
        first, last = _bounds(held, start, stop)
        return list(held[first:last])

    def count(self, start: InstantLike | None = None, stop: InstantLike | None = None) -> int:
        """Return how many there are with ``start <= time < stop``. O(log n)."""
        held = self.held.get(self._cursor.scope)
        if held is None:
            return 0
        first, last = _bounds(held, start, stop)
        return max(0, last - first)

    def delete(self, start: InstantLike | None = None, stop: InstantLike | None = None) -> int:
        """Delete those with ``start <= time < stop``; return how many there were."""
        scope = self._cursor.scope
        held = self.held.get(scope)
        if held is None:
            return 0
        first, last = _bounds(held, start, stop)
        if last <= first:
            return 0
        del held[first:last]
        self.changed.add(scope)
        if not held:
            del self.held[scope]
        return last - first

    def first(self) -> tuple[int, Any] | None:
        """Return the earliest (time, value), or ``None``. O(log n)."""
        return self._end(0)

    def last(self) -> tuple[int, Any] | None:
        """Return the latest (time, value), or ``None``. O(log n)."""
        return self._end(-1)

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        return iter(self.range())

    def _end(self, at: int) -> tuple[int, Any] | None:
        held = self.held.get(self._cursor.scope)
        if held is None:
            return None
        self.changed.add(self._cursor.scope)
        found: tuple[int, Any] = held[at]
        return found

    def _stored(self, held: Any) -> Any:
        return [[at, value] for at, value in held]

    def _loaded(self, value: Any) -> Any:
        for entry in self._filled(value, list):
            if not (
                isinstance(entry, list)
                and len(entry) == 2
                and type(entry[0]) is int
                and START_OF_TIME <= entry[0] <= END_OF_TIME
            ):
                raise damaged(f"the cell {self.name!r}", f"it holds {entry!r}")
        return SortedKeyList([(at, each) for at, each in value], key=_time_of)

    def _merged(self, left: Any, right: Any) -> Any:
        return SortedKeyList([*left, *right], key=_time_of)


CELLS: dict[CellKind, type[RecordCell]] = {
    made.kind: made
    for made in (ValueState, ListState, MapState, SetState, CombiningState, OrderedState)
}


def _require_hashable(name: str, value: Any) -> None:
    """Raise before anything has changed: a hook may catch the error and continue."""
    try:
        hash(value)
    except TypeError:
        raise InvalidArgument(
            f"{describe('value', value)} cannot be looked up in the cell {name!r}: it has no hash",
            hint="Use a tuple for a list, or tuple(sorted(value.items())) for a mapping",
        ) from None


def _bounds(held: Any, start: InstantLike | None, stop: InstantLike | None) -> tuple[int, int]:
    first = 0 if start is None else held.bisect_key_left(int(instant(start, name="start")))
    last = len(held) if stop is None else held.bisect_key_left(int(instant(stop, name="stop")))
    return first, last
