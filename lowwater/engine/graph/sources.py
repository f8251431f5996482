"""What a runner reads from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, TypeAlias, runtime_checkable

import pyarrow as pa

from lowwater.engine.records.batch import Records

READ_ROWS = 131_072
"""About how many rows are read, checked and converted at a time where that is free to choose."""


Position: TypeAlias = dict[str, Any]
"""Where a source is: plain values that the codec of :mod:`lowwater.state.codec` can store."""


@runtime_checkable
class Source(Protocol):
    """A stream of records, read anew by each run (as far as what is behind it can be)."""

    @property
    def schema(self) -> pa.Schema | None:
        """The columns and their types, if they are known without running."""
        ...

    def batches(self, size: int, keys: tuple[str, ...]) -> Iterator[Records]:
        """Yield the records in order, never all at once.

        A source that waits for records yields batches without any meanwhile, so that the clock of
        its run moves.

        Args:
            size: How many elements a bundle will have at most; batches may be longer, unless
                elements come in while the pipeline runs.
            keys: The key columns; strings among them are best read as dictionaries.
        """
        ...


@runtime_checkable
class ReplayableSource(Source, Protocol):
    """A source that can be read again from where an earlier run stopped, in another process."""

    def batches_from(
        self, position: Position | None, size: int, keys: tuple[str, ...]
    ) -> Iterator[tuple[Records, Position]]:
        """Yield the records after a position, cut as :meth:`batches` cuts them.

        From each position the next batch must be the same whenever it is read, also if there is
        more to read by then: a batch without records may come first to foretell it.

        Args:
            position: What came with the last batch that was read; ``None`` for the beginning.
            size: As for :meth:`batches`; the same as before.
            keys: As for :meth:`batches`.

        Yields:
            Each batch, and the position behind it.

        Raises:
            DataError: What was read before is not there any more, or has changed.
        """
        ...


def read_rows(size: int) -> int:
    """Return how many rows to read at a time: whole bundles of ``size``, near ``READ_ROWS``."""
    return size * max(1, READ_ROWS // size)
