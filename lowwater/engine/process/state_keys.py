"""What state belongs to: keys, or keys and windows, as small numbers that are recycled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from lowwater.engine.records.columns import Column
from lowwater.engine.records.keys import KeyDictionary
from lowwater.errors import InternalError
from lowwater.time import Instant, Int64Array
from lowwater.windows import Window

_GARBAGE = 64


@final
class StateKeys:
    """The keys (in windows: keys and windows) that have state, each as a number: its scope.

    ``born`` maps a live scope to its rank in the order in which they came to hold state;
    ``changed`` are the scopes that became live or ceased to be since state was saved, ``left`` the
    keys of those that ceased; ``on_forgetting`` is called with the key ids that are kept before
    the others are recycled.

    Args:
        windowed: Whether there are windows.
    """

    def __init__(self, *, windowed: bool) -> None:
        self.windowed = windowed
        self.keys: KeyDictionary | None = None
        self.born: dict[int, int] = {}
        self.births = 0
        self.changed: set[int] = set()
        self.left: set[int] = set()
        self.on_forgetting: Callable[[NDArray[np.bool_]], None] | None = None
        self._value: dict[int, Any] = {}
        self._places: dict[int, tuple[int, int, int]] = {}
        self.top = 0
        self._windows: dict[tuple[int, int, int], int] = {}
        self._of_key: dict[int, dict[int, None]] = {}
        self._free: list[int] = []
        self._freed: list[int] = []

    def __len__(self) -> int:
        """Return how many scopes are live."""
        return len(self.born)

    def encode(self, columns: tuple[Column, ...]) -> list[int]:
        """Return the key id of each element."""
        if self.keys is None:
            self.keys = KeyDictionary(len(columns))
        return self.keys.encode(columns).tolist()

    def key(self, scope: int) -> Any:
        """Return the key of a live scope, as Python values."""
        return self._value[scope]

    def key_id(self, scope: int) -> int:
        """Return the id of a scope's key."""
        return self._places[scope][0] if self.windowed else scope

    def window(self, scope: int) -> Window | None:
        """Return the window of a scope."""
        if not self.windowed:
            return None
        _, start, end = self._places[scope]
        return Window(Instant(start), Instant(end))

    def place(self, scope: int) -> tuple[int, int, int]:
        """Return key id, start and end; the latter 0 without windows."""
        return self._places[scope] if self.windowed else (scope, 0, 0)

    def find(self, key: int, start: int, end: int) -> int | None:
        """Return the live scope of a key and window."""
        return self._windows.get((key, start, end))

    def of_key(self, key: int) -> list[int]:
        """Return the live scopes of a key, the oldest first; in windows only."""
        return list(self._of_key.get(key, ()))

    def open(self, key: int, start: int, end: int, value: Any) -> int:
        """Make a key and window live, and return its scope."""
        place = (key, start, end)
        if self._free:
            scope = self._free.pop()
        else:
            scope = self.top
            self.top += 1
        self._places[scope] = place
        self._windows[place] = scope
        self._of_key.setdefault(key, {})[scope] = None
        self.bear(scope, value)
        return scope

    def bear(self, scope: int, value: Any) -> None:
        """Make a scope live, of a key with this value."""
        self.born[scope] = self.births
        self.births += 1
        self._value[scope] = value
        self.changed.add(scope)

    def bury(self, scope: int) -> None:
        """Make a scope no longer live."""
        del self.born[scope], self._value[scope]
        self.changed.add(scope)
        self.left.add(self.key_id(scope))
        if self.windowed:
            place = self._places[scope]
            del self._windows[place]
            mine = self._of_key[place[0]]
            del mine[scope]
            if not mine:
                del self._of_key[place[0]]
            self._freed.append(scope)

    def restore(self, scope: int, place: tuple[int, int, int], born: int, value: Any) -> None:
        """Make a scope live as it was."""
        self.born[scope] = born
        self._value[scope] = value
        if self.windowed:
            self.top = max(self.top, scope + 1)
            self._places[scope] = place
            self._windows[place] = scope
            self._of_key.setdefault(place[0], {})[scope] = None

    def in_order(self) -> list[int]:
        """Return the live scopes in the order in which they came to hold state."""
        return sorted(self.born, key=self.born.__getitem__)

    def has_key(self, key: int) -> bool:
        """Return whether a key has a live scope."""
        return key in (self._of_key if self.windowed else self.born)

    def describe(
        self, scopes: Int64Array
    ) -> tuple[tuple[Column, ...], Int64Array | None, Int64Array | None]:
        """Return key columns, starts and ends of scopes, live or of this step."""
        if self.keys is None:
            raise InternalError("a key was asked for before any was seen")
        if not self.windowed:
            return self.keys.decode(scopes), None, None
        places = np.array([self._places[scope] for scope in scopes.tolist()], dtype=np.int64)
        return self.keys.decode(places[:, 0]), places[:, 1].copy(), places[:, 2].copy()

    def tidy(self) -> None:
        """After a step: recycle numbers, and the ids of keys once they are many. Amortised."""
        if self._freed:
            self._free += self._freed
            self._freed = []
        live = self._of_key if self.windowed else self.born
        if self.keys is None or len(self.keys) <= 2 * len(live) + _GARBAGE:
            return
        kept = np.zeros(self.keys.capacity, dtype=np.bool_)
        kept[np.fromiter(live, dtype=np.int64, count=len(live))] = True
        if self.on_forgetting is not None:
            self.on_forgetting(kept)
        self.keys.retain(kept)
