"""A state store in memory: for tests, and for restarts of a runner within one process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self, assert_never, final

from sortedcontainers import SortedDict

from lowwater.errors import StateError
from lowwater.state.key_layout import END
from lowwater.state.store import Batch, Delete, DeleteRange, Put, check_readable


@final
class MemoryContents:
    """What a :class:`MemoryStore` holds, apart from the store: it outlives being closed."""

    def __init__(self) -> None:
        self.rows: SortedDict = SortedDict()
        self.sequencer = 0


@final
class MemoryStore:
    """Rows in memory.

    Getting and writing a row is O(log rows), a scan O(log rows + rows it returns).

    Args:
        contents: What another store has held, or nothing to begin with. Opening a second store
            over the same contents fences the first: its commits raise ``StateError``.

    >>> contents = MemoryContents()
    >>> with MemoryStore(contents) as store:
    ...     batch = Batch()
    ...     batch.put([b"key"], [b"value"])
    ...     store.commit(batch)
    >>> MemoryStore(contents).get([b"key", b"other"])
    [b'value', None]
    """

    def __init__(self, contents: MemoryContents | None = None) -> None:
        self._contents = MemoryContents() if contents is None else contents
        self._contents.sequencer += 1
        self._sequencer = self._contents.sequencer
        self._closed = False

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self._check_open()
        return [self._contents.rows.get(key) for key in check_readable(keys)]

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        self._check_open()
        rows = self._contents.rows
        # A list, and made now: what is committed while it is read does not show.
        return iter([(key, rows[key]) for key in self._keys(start, stop)])

    def commit(self, batch: Batch) -> None:
        self._check_open()
        if self._sequencer != self._contents.sequencer:
            newer = self._contents.sequencer
            raise StateError(
                f"fenced: opening {newer} of this state took over from opening {self._sequencer}",
                hint="Close this store; the new owner repeats what it had not committed",
            )
        rows = self._contents.rows
        for change in batch.changes():
            match change:
                case Put(keys, values):
                    rows.update(zip(keys, values, strict=True))
                case Delete(keys):
                    for key in keys:
                        rows.pop(key, None)
                case DeleteRange(start, stop):
                    for key in self._keys(start, stop):
                        del rows[key]
                case _:
                    assert_never(change)

    def close(self) -> None:
        self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _keys(self, start: bytes, stop: bytes) -> list[bytes]:
        if start >= stop:
            return []
        return list(self._contents.rows.irange(start, min(stop, END), inclusive=(True, False)))

    def _check_open(self) -> None:
        if self._closed:
            raise StateError("the state store is closed", hint="Open it again")
