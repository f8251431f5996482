"""The protocols of sources: what a runner reads from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Protocol, TypeAlias, TypeGuard, final, runtime_checkable

import pyarrow as pa

from lowwater.engine.records.batch import Records

READ_ROWS = 131_072
"""Approximate rows to read, validate and convert at a time, where a source is free to choose."""

BUNDLE_SIZE = 50_000
"""The largest number of elements in a bundle, unless the options of a run say otherwise."""

QUIET = "quiet"
"""In the metadata of an option of a source: state directories tell it only where it is given.

So an option that came later leaves the descriptions of older sources as they were.
"""

Position: TypeAlias = dict[str, Any]
"""A position in a source: plain values that :mod:`lowwater.state.codec` can encode, by name.

A value that only ever gets more entries, such as the files that were read, should be a
:class:`GrowingMap`: a commit then stores just the entries that are new.
"""


@final
class GrowingMap(Mapping[str, Any]):
    """A mapping that can be extended but not changed; an extension shares what it has in common.

    Args:
        entries: Its entries, in order; the values are plain.

    >>> first = GrowingMap({"a": 1})
    >>> second = first.extended("b", 2)
    >>> dict(first), dict(second), second.since(1)
    ({'a': 1}, {'a': 1, 'b': 2}, [['b', 2]])
    """

    __slots__ = ("_length", "_names", "_values")

    def __init__(self, entries: Mapping[str, Any] | Iterable[tuple[str, Any]] = ()) -> None:
        # Both are shared with extensions, which only append: this map is what comes before.
        self._values: dict[str, tuple[int, Any]] = {
            name: (number, value) for number, (name, value) in enumerate(dict(entries).items())
        }
        self._names = list(self._values)
        self._length = len(self._names)

    def extended(self, name: str, value: Any) -> GrowingMap:
        """Return the mapping with one more entry. Constant time, unless extended before.

        Raises:
            KeyError: The name is there already.
        """
        if name in self:
            raise KeyError(name)
        if len(self._names) > self._length:
            return GrowingMap([*self.items(), (name, value)])
        longer = object.__new__(GrowingMap)
        longer._values, longer._names = self._values, self._names
        longer._values[name] = (self._length, value)
        longer._names.append(name)
        longer._length = self._length + 1
        return longer

    def since(self, count: int) -> list[list[Any]]:
        """Return the entries after the first ``count`` as pairs. Linear in their number."""
        names = self._names[count : self._length]
        return [[name, self._values[name][1]] for name in names]

    def continues(self, other: GrowingMap) -> bool:
        """Whether this mapping is another one, or an extension of it. Constant time."""
        return self._names is other._names and self._length >= other._length

    def __getitem__(self, name: str) -> Any:
        number, value = self._values[name]
        if number >= self._length:
            raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        return islice(self._names, self._length)

    def __len__(self) -> int:
        return self._length

    def __repr__(self) -> str:
        return f"GrowingMap({dict(self)!r})"


@runtime_checkable
class Source(Protocol):
    """A stream of records; each run reads it from the start, if the data behind it allows that."""

    @property
    def schema(self) -> pa.Schema | None:
        """The columns and their types, if they are known without reading records."""
        ...

    def batches(self, size: int, keys: tuple[str, ...], /) -> Iterator[Records]:
        """Yield the records in order, in batches.

        While it waits for new records, a source yields empty batches, so that the clock of the run
        advances.

        Args:
            size: The largest number of elements in a bundle. Batches may be longer, unless
                elements arrive while the pipeline runs.
            keys: The key columns; read strings among them as dictionaries if possible.
        """
        ...


@runtime_checkable
class ReplayableSource(Source, Protocol):
    """A source that can be read again, in another process, from where an earlier run stopped."""

    def batches_from(
        self, position: Position | None, size: int, keys: tuple[str, ...], /
    ) -> Iterator[tuple[Records, Position]]:
        """Yield the records after a position, split into batches as :meth:`batches` does.

        The next batch after a position must always be the same, even if more data has arrived
        since. A source that grows can fix the extent of its next batch by first yielding an empty
        batch whose position records it, as :mod:`lowwater.io.foretold` does. While it waits for a
        batch that is fixed, it may yield empty batches with ``rest_seconds`` and the same position.

        Args:
            position: The position of the last batch that was read; ``None`` for the beginning.
            size: As for :meth:`batches`; the same as in the earlier run.
            keys: As for :meth:`batches`.

        Yields:
            Each batch, and the position after it.

        Raises:
            DataError: Data that was read before has disappeared or changed.
        """
        ...


@runtime_checkable
class CommitListener(ReplayableSource, Protocol):
    """A replayable source that is told what a durable run has committed.

    What follows the run's progress elsewhere can then be moved without ever being ahead of the
    state: the offsets of a consumer group, acknowledgements to a queue, a replication slot.
    """

    def committed(self, position: Position, /) -> None:
        """Note that a run over a state directory has durably stored a position.

        Called after each commit, and when a run resumes, because the run before may have been
        killed between its commit and this call: so it may be called again with one position, and
        it must then have no further effect. Runs without a state directory do not call it.

        Args:
            position: The run will not read anything before it again.
        """
        ...


@runtime_checkable
class GrowingSource(ReplayableSource, Protocol):
    """A replayable source that can be read up to what is there now: ``run(until="available")``.

    A source that ends by itself needs none of this: its end is what is there.
    """

    def up_to_now(self) -> ReplayableSource:
        """Return a source with the same positions, which ends with what is there when it is read.

        What arrives while it is read is for the next run.
        """
        ...


def up_to_now(source: Source) -> Source | None:
    """Return a source that ends with what is there now; ``None`` for one that cannot say."""
    bounded = getattr(source, "up_to_now", None)
    if bounded is not None:
        ending: Source = bounded()
        return ending
    is_open = getattr(source, "follow", False) or getattr(source, "endless", False) is True
    return None if is_open else source


def is_replayable(source: Source) -> TypeGuard[ReplayableSource]:
    """Return whether a source can be read again from a position.

    Unlike ``isinstance``, this does not ask for its ``schema``, which may list a remote folder.
    """
    return callable(getattr(source, "batches_from", None))


def hears_commits(source: Source) -> TypeGuard[CommitListener]:
    """Return whether a source is told of commits; as :func:`is_replayable`, without its schema."""
    return is_replayable(source) and callable(getattr(source, "committed", None))


def option_to_wait(source: Source) -> str | None:
    """Return the option with which a source's reader waits for more, as users write it, if any."""
    if hasattr(source, "follow"):
        return "follow=True"
    return 'end="never"' if hasattr(source, "end") else None


def options_to_end(source: Source) -> str | None:
    """Return the options with which an endless source's reader ends, as users write them, if any.

    A reader of files takes the time to wait; that of a log only ever waits or does not.
    """
    if hasattr(source, "end"):
        return 'end="latest"'
    follow = getattr(source, "follow", None)
    if follow is None:
        return None
    return "follow=False" if follow is True else 'follow=True, max_idle="10s"'


def read_rows(size: int) -> int:
    """Return how many rows to read at a time: a multiple of ``size`` near ``READ_ROWS``."""
    return size * max(1, READ_ROWS // size)
