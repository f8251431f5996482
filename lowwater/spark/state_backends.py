"""State backends: where the state of a key group is kept between micro-batches.

Spark stores one cell of bytes per key group. The backend decides what the bytes are: the state
itself, or the name of a version of it stored elsewhere. The cell is authoritative: a worker reuses
an operator that it still holds only if the stamps of the two match.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, final

from lowwater.engine.window.operator import WindowOperator
from lowwater.errors import StateError
from lowwater.state.formats import FORMATS, check_format

MakeOperator = Callable[[], WindowOperator]

_LIVE_AT_MOST = 64


class KeptOperator(Protocol):
    """An operator together with its stored state."""

    @property
    def operator(self) -> WindowOperator:
        """The operator, with the restored state and all steps since."""
        ...

    @property
    def stored_bytes(self) -> int:
        """The size of its whole state at the last save, in bytes."""
        ...

    def save(self) -> bytes:
        """Store the state; return the content of the cell, for :meth:`StateBackend.open`."""
        ...


class StateBackend(Protocol):
    """Stores the state of key groups; a value that Spark ships to the workers."""

    @property
    def name(self) -> str:
        """The name of the backend, stored in cells and used in messages."""
        ...

    def open(self, make: MakeOperator, key_group: int, content: bytes | None) -> KeptOperator:
        """Restore a key group's operator from the ``content`` of its cell; ``None``: a new one.

        Raises:
            StateError: The stored state is damaged, missing or from another pipeline.
        """
        ...


@final
class InlineBackend:
    """Stores the whole state in Spark's own state store, as a snapshot in the cell."""

    name = "inline"

    def open(self, make: MakeOperator, key_group: int, content: bytes | None) -> KeptOperator:
        operator = make()
        if content is not None:
            operator.restore_snapshot(content)
        return _Inline(operator)


@final
class _Inline:
    def __init__(self, operator: WindowOperator) -> None:
        self.operator = operator
        self.stored_bytes = 0

    def save(self) -> bytes:
        snapshot = self.operator.snapshot()
        self.stored_bytes = len(snapshot)
        return snapshot


@final
class LiveOperators:
    """The operators that a Python worker still holds, by key group and stamp.

    Reusing one saves restoring its state. A retried task, a zombie task, or a query restarted from
    an older checkpoint presents a cell with a different stamp, and gets no operator from here.
    """

    def __init__(self, at_most: int = _LIVE_AT_MOST) -> None:
        self._at_most = at_most
        self._held: OrderedDict[tuple[str, int], tuple[bytes, KeptOperator]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def take(self, stage: str, key_group: int, stamp: bytes) -> KeptOperator | None:
        """Remove and return the operator of a key group; ``None`` if its stamp differs."""
        found = self._held.pop((stage, key_group), None)
        return found[1] if found is not None and found[0] == stamp else None

    def put(self, stage: str, key_group: int, stamp: bytes, kept: KeptOperator) -> None:
        """Keep an operator for the next micro-batch; evict the least recently used ones."""
        self._held[stage, key_group] = (stamp, kept)
        while len(self._held) > self._at_most:
            self._held.popitem(last=False)


LIVE = LiveOperators()
"""The live operators of this process."""


_FORMAT = "Spark cells"
_HINT = "Start a new checkpoint, or finish with the lowwater that wrote this one"
CELL_DDL = "layout int, key_groups int, backend string, stamp binary, latest long, content binary"


@final
@dataclass(frozen=True, slots=True)
class GroupCell:
    """What is stored of a key group.

    Args:
        key_groups: How many key groups there are.
        backend: The name of the backend that ``content`` belongs to.
        stamp: Differs from that of every other cell ever written.
        latest: The latest event time seen, int microseconds; ``None`` before any.
        content: What the backend saved.
    """

    key_groups: int
    backend: str
    stamp: bytes
    latest: int | None
    content: bytes

    def to_row(self) -> tuple[Any, ...]:
        """Return the cell as a row for Spark."""
        layout = FORMATS[_FORMAT]
        return (layout, self.key_groups, self.backend, self.stamp, self.latest, self.content)

    @classmethod
    def from_row(cls, row: tuple[Any, ...], *, key_groups: int, backend: str) -> GroupCell:
        """Return the cell of a row, if it goes with the pipeline as it is now.

        Raises:
            StateError: It was written with another layout, number of key groups or backend.
        """
        layout, stored_groups, stored_backend, stamp, latest, content = row
        check_format(_FORMAT, layout, where="the checkpoint", hint=_HINT)
        if stored_groups != key_groups:
            raise StateError(
                f"the checkpoint's state is in {stored_groups} key groups, not {key_groups}",
                where="to_spark(key_groups=)",
                hint=f"Use key_groups={stored_groups}, or begin with a new checkpoint",
            )
        if stored_backend != backend:
            raise StateError(
                f"the checkpoint's state is kept by {stored_backend!r}, not {backend!r}",
                where="to_spark(state=)",
                hint=f"Use state={stored_backend!r}, or begin with a new checkpoint",
            )
        return cls(stored_groups, stored_backend, bytes(stamp), latest, bytes(content))
