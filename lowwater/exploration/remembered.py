"""A source that is read once, for several runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import final

import pyarrow as pa

from lowwater.engine.graph.sources import Source
from lowwater.engine.records.batch import Records


@final
@dataclass(frozen=True, slots=True, eq=False)
class RememberedSource:
    """Another source, which is read at the first run and kept in memory for all others.

    Args:
        source: The source, which ends.
    """

    source: Source
    _batches: dict[tuple[int, tuple[str, ...]], list[Records]] = field(default_factory=dict)

    @property
    def schema(self) -> pa.Schema | None:
        return self.source.schema

    @property
    def endless(self) -> bool | None:
        """Whether the source never ends."""
        return getattr(self.source, "endless", None)

    def __repr__(self) -> str:
        return repr(self.source)

    def batches(self, size: int, keys: tuple[str, ...]) -> Iterator[Records]:
        held = self._batches.get((size, keys))
        if held is None:
            held = []
            for records in self.source.batches(size, keys):
                held.append(records)
                yield records
            self._batches[size, keys] = held  # only now: a run may stop before the end
            return
        yield from held
