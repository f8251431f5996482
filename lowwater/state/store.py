"""What a state store is: sorted rows of bytes, changed by batches that are atomic and durable."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, Self, assert_never, final, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from lowwater.errors import InvalidArgument, describe
from lowwater.state.key_layout import END
from lowwater.time import Int64Array

_ROWS_AT_ONCE = 8192


@final
@dataclass(frozen=True, slots=True)
class Put:
    """Rows to write: the value of each key becomes the one at its place."""

    keys: list[bytes]
    values: list[bytes]


@final
@dataclass(frozen=True, slots=True)
class Delete:
    """Keys to delete; one that is not there is fine."""

    keys: list[bytes]


@final
@dataclass(frozen=True, slots=True)
class DeleteRange:
    """Delete all rows with ``start <= key < stop``."""

    start: bytes
    stop: bytes


@final
@dataclass(frozen=True, slots=True)
class _Columns:
    keys: NDArray[np.uint8]
    values: NDArray[np.uint8]


Change = Put | Delete | DeleteRange


@final
class Batch:
    """Changes that a store makes all together or not at all, in the order they were added.

    >>> batch = Batch()
    >>> batch.delete_range(b"a", b"b")
    >>> batch.put([b"a1", b"a2"], [b"one", b"two"])
    >>> len(batch), batch.size_bytes
    (2, 12)
    """

    __slots__ = ("_changes", "_size_bytes")

    def __init__(self) -> None:
        self._changes: list[Change | _Columns] = []
        self._size_bytes = 0

    def __len__(self) -> int:
        """Return the number of changes added; rows added together count as one."""
        return len(self._changes)

    @property
    def size_bytes(self) -> int:
        """Bytes of all keys and values added: near what the commit writes to the log."""
        return self._size_bytes

    def put(self, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        """Write rows. Of equal keys, the last one counts.

        Args:
            keys: Below :data:`~lowwater.state.key_layout.END`, of any length and in any order.
            values: As many, of any length.
        """
        if len(keys) != len(values):
            raise InvalidArgument(f"{len(keys)} keys do not go with {len(values)} values")
        keys, values = list(keys), list(values)
        _check_keys(keys)
        _check_bytes("values", values)
        if keys:
            self._changes.append(Put(keys, values))
            self._size_bytes += sum(map(len, keys)) + sum(map(len, values))

    def put_columns(
        self,
        prefix: bytes,
        keys: NDArray[np.uint8] | NDArray[np.void],
        values: NDArray[np.uint8],
    ) -> None:
        """Write rows of fixed width, from columns. Of equal keys, the last one counts.

        The arrays are copied. The cost is a few array operations, and two short-lived objects per
        row when it is committed: no store takes less.

        Args:
            prefix: What every key begins with.
            keys: The rest of the keys: uint8 of shape (n, width), or np.void of shape (n,).
            values: uint8, shape (n, width); either width may be 0.
        """
        if keys.dtype.kind == "V":
            keys = np.ascontiguousarray(keys).view(np.uint8).reshape(len(keys), -1)
        for name, column in (("keys", keys), ("values", values)):
            if column.ndim != 2 or column.dtype != np.uint8:
                shape = f"{column.dtype} of shape {column.shape}"
                raise InvalidArgument(f"{name} must be uint8 of shape (n, width), not {shape}")
        if len(keys) != len(values):
            raise InvalidArgument(f"{len(keys)} keys do not go with {len(values)} values")
        if not len(keys):
            return
        whole = _whole_keys(prefix, keys)
        self._changes.append(_Columns(whole, np.array(values, order="C")))
        self._size_bytes += whole.size + values.size

    def delete(self, keys: Sequence[bytes]) -> None:
        """Delete rows; a key that is not there is fine."""
        keys = list(keys)
        _check_keys(keys)
        if keys:
            self._changes.append(Delete(keys))
            self._size_bytes += sum(map(len, keys))

    def delete_columns(self, prefix: bytes, keys: NDArray[np.uint8]) -> None:
        """Delete rows whose keys are of fixed width; one that is not there is fine.

        Args:
            prefix: What every key begins with.
            keys: The rest of the keys, uint8 of shape (n, width).
        """
        if len(keys):
            whole = _whole_keys(prefix, keys)
            self._changes.append(Delete(_as_bytes(whole)))
            self._size_bytes += whole.size

    def delete_range(self, start: bytes, stop: bytes) -> None:
        """Delete all rows with ``start <= key < stop``, at a cost that does not grow with them."""
        _check_bytes("range", [start, stop])
        if stop > END:
            _refuse_reserved(stop)
        if start < stop:
            self._changes.append(DeleteRange(start, stop))
            self._size_bytes += len(start) + len(stop)

    def add(self, changes: Iterable[Change]) -> None:
        """Add changes of another batch, which are not checked again."""
        for change in changes:
            self._changes.append(change)
            match change:
                case Put(keys, values):
                    self._size_bytes += sum(map(len, keys)) + sum(map(len, values))
                case Delete(keys):
                    self._size_bytes += sum(map(len, keys))
                case DeleteRange(start, stop):
                    self._size_bytes += len(start) + len(stop)
                case _:
                    assert_never(change)

    def changes(self) -> Iterator[Change]:
        """Yield the changes in order, columns as lists of some thousand rows: for stores.

        Rows from columns come sorted by key: a store takes them in two to three times as fast.
        """
        for change in self._changes:
            if isinstance(change, _Columns):
                order = _order(change.keys)
                for at in range(0, len(order), _ROWS_AT_ONCE):
                    rows = order[at : at + _ROWS_AT_ONCE]
                    yield Put(_as_bytes(change.keys[rows]), _as_bytes(change.values[rows]))
            else:
                yield change


@runtime_checkable
class StateStore(Protocol):
    """Rows of bytes, sorted by key, that outlive the process (or, in memory, the runner).

    One owner at a time: opening what another live process has open raises ``StateError``; and
    where a store is taken over all the same, the former owner's commits raise it ("fenced").
    ``lowwater.testing.check_state_store`` checks all that is said here.

    A store is a context manager that closes itself. Everything raises ``StateError`` when the
    store is closed, or what it holds is damaged or out of reach.
    """

    def get(self, keys: Sequence[bytes], /) -> list[bytes | None]:
        """Return the value of each key, in the order asked; None where there is no such row."""

    def scan(self, start: bytes, stop: bytes, /) -> Iterator[tuple[bytes, bytes]]:
        """Return the rows with ``start <= key < stop`` by key, as of this call.

        Commits made while the rows are read do not change them. ``scan(b"", END)`` is everything.
        """

    def commit(self, batch: Batch, /) -> object:
        """Make all changes of a batch, or none: they are durable when this returns.

        What it returns, if anything, is the store's own. After an error the outcome of this one
        commit is open until the store is opened again: it is there whole, or not at all. Further
        commits raise ``StateError`` until then.
        """

    def close(self) -> None:
        """Release the store; a second call does nothing."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...


def check_readable(keys: Sequence[bytes]) -> list[bytes]:
    """Return keys as a list; each must be one that a user of a store may write."""
    checked = list(keys)
    _check_keys(checked)
    return checked


def _check_keys(keys: list[bytes]) -> None:
    _check_bytes("keys", keys)
    if keys and max(keys) >= END:
        _refuse_reserved(max(keys))


def _check_bytes(name: str, parts: list[bytes]) -> None:
    others = set(map(type, parts)) - {bytes}
    if others:
        names = ", ".join(sorted(other.__name__ for other in others))
        raise InvalidArgument(f"{name} must be bytes, not {names}")


def _refuse_reserved(key: bytes) -> None:
    hint = f"Keys from {END!r} on are the store's own: use an operator number below 65535"
    raise InvalidArgument(describe("key", key), hint=hint)


def _whole_keys(prefix: bytes, keys: NDArray[np.uint8] | NDArray[np.void]) -> NDArray[np.uint8]:
    whole = np.empty((len(keys), len(prefix) + keys.shape[1]), dtype=np.uint8)
    whole[:, : len(prefix)] = np.frombuffer(prefix, dtype=np.uint8)
    whole[:, len(prefix) :] = keys
    if whole.shape[1] >= len(END) and (whole[:, : len(END)] == 0xFF).all(axis=1).any():
        _refuse_reserved(prefix)
    return whole


def _order(keys: NDArray[np.uint8]) -> Int64Array:
    """Return the order that sorts keys, of equal ones the first first."""
    count, width = keys.shape
    if not width:
        return np.arange(count)
    # Strings of one width compare as their bytes do: that numpy cuts zeros off changes nothing.
    return np.argsort(keys.view(f"S{width}").reshape(count), kind="stable")


def _as_bytes(rows: NDArray[np.uint8]) -> list[bytes]:
    """Return each row of a C-contiguous array as bytes."""
    count, width = rows.shape
    if not width:
        return [b""] * count
    whole: list[bytes] = rows.view(np.dtype((np.void, width))).reshape(count).tolist()
    return whole
