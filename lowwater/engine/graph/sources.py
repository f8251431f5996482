"""The protocols of sources: what a runner reads from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, TypeAlias, runtime_checkable

import pyarrow as pa

from lowwater.engine.records.batch import Records

READ_ROWS = 131_072
"""Approximate rows to read, validate and convert at a time, where a source is free to choose."""


Position: TypeAlias = dict[str, Any]
"""A position in a source: plain values that :mod:`lowwater.state.codec` can encode."""


@runtime_checkable
class Source(Protocol):
    """A stream of records; each run reads it from the start, if the data behind it allows that."""

    @property
    def schema(self) -> pa.Schema | None:
        """The columns and their types, if they are known without reading records."""
        ...

    def batches(self, size: int, keys: tuple[str, ...]) -> Iterator[Records]:
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
        self, position: Position | None, size: int, keys: tuple[str, ...]
    ) -> Iterator[tuple[Records, Position]]:
        """Yield the records after a position, split into batches as :meth:`batches` does.

        The next batch after a position must always be the same, even if more data has arrived
        since. A source that grows can fix the extent of its next batch by first yielding an empty
        batch whose position records it.

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


def read_rows(size: int) -> int:
    """Return how many rows to read at a time: a multiple of ``size`` near ``READ_ROWS``."""
    return size * max(1, READ_ROWS // size)
