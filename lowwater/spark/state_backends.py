"""Where the state of a key group is kept from one micro-batch to the next.

Spark holds one cell of bytes per key group. A backend says what these bytes mean: the state itself,
or the name of a version of it elsewhere. The cell that Spark hands over is the truth: whatever else
a worker remembers is used only if it is stamped as the very thing that the cell speaks of.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol, final

from lowwater.engine.window.operator import WindowOperator

MakeOperator = Callable[[], WindowOperator]

_LIVE_AT_MOST = 64


class KeptOperator(Protocol):
    """An operator whose state is kept somewhere."""

    @property
    def operator(self) -> WindowOperator:
        """The operator, with the state it was opened with and whatever steps it took since."""
        ...

    @property
    def stored_bytes(self) -> int:
        """How many bytes all of its state had at the last save."""
        ...

    def save(self) -> bytes:
        """Keep what it has come to; return what :meth:`StateBackend.open` will find it by."""
        ...


class StateBackend(Protocol):
    """A way to keep the state of key groups: a value that is shipped to the workers."""

    @property
    def name(self) -> str:
        """What it is called, in the cell and in messages."""
        ...

    def open(self, make: MakeOperator, key_group: int, content: bytes | None) -> KeptOperator:
        """Return a key group's operator as it was when ``content`` was saved; ``None``: new.

        Raises:
            StateError: What was saved is damaged, gone or not this pipeline's.
        """
        ...


@final
class InlineBackend:
    """Keeps the whole state in Spark's own state store: a snapshot in the cell."""

    name = "inline"

    def open(self, make: MakeOperator, key_group: int, content: bytes | None) -> KeptOperator:
        operator = make()
        if content is not None:
            operator.restore_snapshot(content)
        return _Inline(operator)


@final
class _Inline:
    def __init__(self, operator: WindowOperator) -> None:
        self._operator = operator
        self._bytes = 0

    @property
    def operator(self) -> WindowOperator:
        return self._operator

    @property
    def stored_bytes(self) -> int:
        return self._bytes

    def save(self) -> bytes:
        snapshot = self._operator.snapshot()
        self._bytes = len(snapshot)
        return snapshot


@final
class LiveOperators:
    """The operators that a Python worker still has, by what their state was stamped with.

    A retried task, a zombie's, or a query that was started again from an older checkpoint hands
    over a cell with another stamp than the one that was left here, and gets nothing.
    """

    def __init__(self, at_most: int = _LIVE_AT_MOST) -> None:
        self._at_most = at_most
        self._held: OrderedDict[tuple[str, int], tuple[bytes, KeptOperator]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def take(self, stage: str, key_group: int, stamp: bytes) -> KeptOperator | None:
        """Take out the operator of a key group, if it is at the stamp; forget it otherwise."""
        found = self._held.pop((stage, key_group), None)
        return found[1] if found is not None and found[0] == stamp else None

    def put(self, stage: str, key_group: int, stamp: bytes, kept: KeptOperator) -> None:
        """Keep an operator for the next micro-batch; the ones unused for longest go."""
        self._held[stage, key_group] = (stamp, kept)
        while len(self._held) > self._at_most:
            self._held.popitem(last=False)


LIVE = LiveOperators()
"""Those of this process."""
