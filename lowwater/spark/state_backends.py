"""State backends: where the state of a key group is kept between micro-batches.

Spark stores one cell of bytes per level and key group. The backend decides what the bytes are: the
state itself, the name of a version of it stored elsewhere, or either by size. The cell is
authoritative: a worker reuses what it still holds only if the stamps of the two match.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from struct import Struct
from typing import Any, ClassVar, Generic, Protocol, TypeVar, final
from zlib import crc32

import msgspec

from lowwater.errors import InvalidArgument, StateError, describe
from lowwater.state.formats import FORMATS, check_format, damaged
from lowwater.state.memory import MemoryContents, MemoryStore
from lowwater.state.store import Batch, StateStore

_LIVE_AT_MOST = 256


class KeptState(Protocol):
    """The stored state of one key group of a level."""

    @property
    def stored_bytes(self) -> int:
        """The size of all that is stored, in bytes, at the last save."""
        ...

    @property
    def is_apart(self) -> bool:
        """Whether it is in a store of its own: windows may then leave memory for it."""
        ...

    def opened(self) -> AbstractContextManager[StateStore]:
        """Open the state for one call, to be read and then saved."""
        ...

    def save(self, batch: Batch) -> bytes:
        """Store changes while it is open; return the content of the cell."""
        ...


class StateBackend(Protocol):
    """Stores the state of key groups; a value that Spark ships to the workers."""

    @property
    def name(self) -> str:
        """The name of the backend, stored in cells and used in messages."""
        ...

    def keep(self, level: int, key_group: int, content: bytes | None) -> KeptState:
        """Return the state that the ``content`` of a cell stands for; ``None``: no state yet.

        Raises:
            StateError: The stored state is damaged, missing or from another pipeline.
        """
        ...


@final
class InlineBackend:
    """Stores the whole state in Spark's own state store: all rows in the cell."""

    name = "inline"

    def keep(self, level: int, key_group: int, content: bytes | None) -> KeptState:
        return _Inline(content)


@final
class _Inline:
    is_apart = False

    def __init__(self, content: bytes | None) -> None:
        self._contents = MemoryContents()
        self._store = MemoryStore(self._contents)
        if content is not None:
            self._contents.rows.update(_rows(content))
        self.stored_bytes = 0

    @contextmanager
    def opened(self) -> Iterator[StateStore]:
        yield self._store

    @property
    def rows(self) -> Mapping[bytes, bytes]:
        """All that is stored."""
        return self._contents.rows

    def save(self, batch: Batch) -> bytes:
        self._store.commit(batch)
        rows = self._contents.rows
        packed = msgspec.msgpack.encode([list(rows.keys()), list(rows.values())])
        content = _CHECK.pack(crc32(packed)) + packed
        self.stored_bytes = len(content)
        return content


_CHECK = Struct("<I")
_DECODER = msgspec.msgpack.Decoder(tuple[list[bytes], list[bytes]])


def _rows(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    packed = content[_CHECK.size :]
    if content[: _CHECK.size] != _CHECK.pack(crc32(packed)):
        raise damaged("the cell of a key group", "its checksum is wrong")
    try:
        keys, values = _DECODER.decode(packed)
        return iter(list(zip(keys, values, strict=True)))
    except (msgspec.MsgspecError, ValueError) as error:
        raise damaged("the cell of a key group", str(error)) from error


MOST_IN_CELL = 4 << 20
"""The bytes of a cell beyond which :class:`GrowingBackend` moves its state, if nothing is said."""
_IN_CELL, _APART = b"\0", b"\1"


@final
@dataclass(frozen=True, slots=True)
class GrowingBackend:
    """Stores the state of a key group in its cell, and in another backend once it has grown.

    The move is part of a save: the cell either has the state, or names the first version of it
    elsewhere. An attempt whose cell Spark does not take leaves a version that nothing names, as
    every save of such an attempt does. State does not move back when it shrinks.

    Args:
        large: The other backend.
        most_in_cell: The size of a cell's content, in bytes, beyond which its state moves.

    Raises:
        InvalidArgument: The size is less than 0.
    """

    name: ClassVar[str] = "auto"

    large: StateBackend
    most_in_cell: int = MOST_IN_CELL

    def __post_init__(self) -> None:
        if self.most_in_cell < 0:
            raise InvalidArgument(
                f"{describe('most_in_cell', self.most_in_cell)} must be at least 0 bytes",
                hint="Leave it out for 4 MiB",
            )

    def keep(self, level: int, key_group: int, content: bytes | None) -> KeptState:
        if content is not None and content[:1] not in (_IN_CELL, _APART):
            raise damaged("the cell of a key group", "it does not say where its state is")
        return _Growing(self, level, key_group, content)


@final
class _Growing:
    def __init__(
        self, backend: GrowingBackend, level: int, key_group: int, content: bytes | None
    ) -> None:
        self._backend = backend
        self._level = level
        self._key_group = key_group
        self._kept: KeptState
        if content is not None and content[:1] == _APART:
            self._kept = backend.large.keep(level, key_group, content[1:])
        else:
            self._kept = _Inline(None if content is None else content[1:])

    @property
    def stored_bytes(self) -> int:
        return self._kept.stored_bytes

    @property
    def is_apart(self) -> bool:
        return self._kept.is_apart

    def opened(self) -> AbstractContextManager[StateStore]:
        return self._kept.opened()

    def save(self, batch: Batch) -> bytes:
        content = self._kept.save(batch)
        if not isinstance(self._kept, _Inline):
            return _APART + content
        if len(content) <= self._backend.most_in_cell:
            return _IN_CELL + content
        rows, everything = self._kept.rows, Batch()
        everything.put(list(rows.keys()), list(rows.values()))
        self._kept = self._backend.large.keep(self._level, self._key_group, None)
        with self._kept.opened():
            return _APART + self._kept.save(everything)


LiveT = TypeVar("LiveT")


@final
class Live(Generic[LiveT]):
    """What a Python worker still holds of key groups, by level, key group and stamp.

    Reusing it saves restoring the state. A retried task, a zombie task, or a query restarted from
    an older checkpoint presents a cell with a different stamp, and gets nothing from here.
    """

    def __init__(self, at_most: int = _LIVE_AT_MOST) -> None:
        self._at_most = at_most
        self._held: OrderedDict[tuple[str, int, int], tuple[bytes, LiveT]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def holds(self, query: str, level: int, key_group: int, stamp: bytes) -> bool:
        """Whether :meth:`take` would return something."""
        found = self._held.get((query, level, key_group))
        return found is not None and found[0] == stamp

    def take(self, query: str, level: int, key_group: int, stamp: bytes) -> LiveT | None:
        """Remove and return what is held of a key group; ``None`` if its stamp differs."""
        found = self._held.pop((query, level, key_group), None)
        return found[1] if found is not None and found[0] == stamp else None

    def put(self, query: str, level: int, key_group: int, stamp: bytes, held: LiveT) -> None:
        """Hold something for the next micro-batch; drop the least recently used."""
        self._held[query, level, key_group] = (stamp, held)
        while len(self._held) > self._at_most:
            self._held.popitem(last=False)

    def clear(self) -> None:
        """Hold nothing any more."""
        self._held.clear()


_FORMAT = "Spark cells"
_HINT = "Start a new checkpoint, or finish with the lowwater that wrote this one"
CELL_DDL = "layout int, key_groups int, backend string, stamp binary, content binary"


@final
@dataclass(frozen=True, slots=True)
class GroupCell:
    """What is stored of a key group.

    Args:
        key_groups: How many key groups there are.
        backend: The name of the backend that ``content`` belongs to.
        stamp: Differs from that of every other cell ever written.
        content: What the backend saved.
    """

    key_groups: int
    backend: str
    stamp: bytes
    content: bytes

    def to_row(self) -> tuple[Any, ...]:
        """Return the cell as a row for Spark."""
        layout = FORMATS[_FORMAT]
        return (layout, self.key_groups, self.backend, self.stamp, self.content)

    @classmethod
    def from_row(cls, row: tuple[Any, ...], *, key_groups: int, backend: str) -> GroupCell:
        """Return the cell of a row, if it goes with the pipeline as it is now.

        Raises:
            StateError: It was written with another layout, number of key groups or backend.
        """
        layout, stored_groups, stored_backend, stamp, *_, content = row
        check_format(_FORMAT, layout, where="the checkpoint", hint=_HINT)
        if stored_groups != key_groups:
            raise StateError(
                f"the checkpoint's state is in {stored_groups} key groups, not {key_groups}",
                where="to_spark(key_groups=)",
                hint=f"Use key_groups={stored_groups}, or begin with a new checkpoint",
            )
        if (stored_backend, backend) == (InlineBackend.name, GrowingBackend.name):
            stored_backend, content = backend, _IN_CELL + bytes(content)  # it may grow from now on
        if stored_backend != backend:
            raise StateError(
                f"the checkpoint's state is kept by {stored_backend!r}, not {backend!r}",
                where="to_spark(state=)",
                hint=f"Use state={stored_backend!r}, or begin with a new checkpoint",
            )
        return cls(stored_groups, stored_backend, bytes(stamp), bytes(content))
