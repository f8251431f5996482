"""The values of a log's API: batches of records, start positions, and recovered damage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias, final

import numpy as np
import pyarrow as pa

from lowwater.errors import InvalidArgument, describe
from lowwater.io.log.frame_format import LAST_OFFSET
from lowwater.time import Instant, Int64Array, instant

Offsets: TypeAlias = Mapping[str, int]
"""The next offset of each partition, by the partition's number as text, so that it is JSON."""

Start: TypeAlias = (
    Literal["earliest", "latest"] | str | int | datetime | np.datetime64 | Mapping[str, int]
)
"""Where to start: ``"earliest"``, ``"latest"``, an offset (a plain int), a time of append (an
``Instant``, an aware ``datetime``, a ``datetime64`` or ISO-8601 text), or a position."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class LogBatch:
    """Records of one partition that were appended together, or some of them.

    Args:
        partition: The partition.
        offset: Offset of the first record.
        time: When they were appended.
        records: The records.
        sparse: The offset of each record, int64, rising, where compaction may have removed some
            between them; ``None``: they follow ``offset`` one by one.
    """

    partition: int
    offset: int
    time: Instant
    records: pa.RecordBatch
    sparse: Int64Array | None = None

    def __len__(self) -> int:
        return int(self.records.num_rows)

    @property
    def next_offset(self) -> int:
        """The offset after that of the last record."""
        return self.offset + len(self) if self.sparse is None else int(self.sparse[-1]) + 1

    def slice(self, start: int, count: int) -> LogBatch:
        """Return ``count`` of the records, from the ``start``-th on, without copying."""
        if count == len(self):
            return self
        sparse = None if self.sparse is None else self.sparse[start : start + count]
        offset = self.offset + start if sparse is None else int(sparse[0])
        records = self.records.slice(start, count)
        return LogBatch(self.partition, offset, self.time, records, sparse)

    @property
    def offsets(self) -> Int64Array:
        """The offset of each record, int64, rising."""
        if self.sparse is not None:
            return self.sparse
        return np.arange(self.offset, self.offset + len(self), dtype=np.int64)


@final
@dataclass(frozen=True, slots=True)
class Recovered:
    """A damaged tail that was cut off when a log was opened for writing.

    Args:
        partition: The partition.
        file: Its last segment.
        position: The byte at which it was cut.
        offset: The offset that the next record will have.
        cut: The number of bytes that were cut.
        reason: What was wrong there.
        kept: A file with the bytes that were cut, if they appear to contain valid frames.
    """

    partition: int
    file: str
    position: int
    offset: int
    cut: int
    reason: str
    kept: str | None = None


@final
@dataclass(frozen=True, slots=True)
class Compacted:
    """What a compaction did to the closed segments of a log; the last one of each is not counted.

    Args:
        records_before: The number of records that they had.
        records_after: The number that they have now.
        bytes_before: The size of their files.
        bytes_after: The size of the files now.
    """

    records_before: int
    records_after: int
    bytes_before: int
    bytes_after: int

    def __add__(self, other: Compacted) -> Compacted:
        return Compacted(
            self.records_before + other.records_before,
            self.records_after + other.records_after,
            self.bytes_before + other.bytes_before,
            self.bytes_after + other.bytes_after,
        )


@final
@dataclass(frozen=True, slots=True)
class Erased:
    """What an erasure removed from a log.

    Args:
        partitions: The number of records that were removed, by partition; only of those that had
            some.
    """

    partitions: dict[int, int]

    @property
    def records(self) -> int:
        """The number of records that were removed."""
        return sum(self.partitions.values())


def as_offsets(given: Mapping[str, int], partitions: int, name: str = "position") -> Offsets:
    """Validate a position.

    Raises:
        InvalidArgument: The value is not a mapping of partitions to offsets.
    """
    if not isinstance(given, Mapping):
        raise InvalidArgument(
            f"{describe(name, given)} is no position", hint='Give, say, {"0": 17, "1": 4}'
        )
    found: dict[str, int] = {}
    for key, offset in given.items():
        number = str(key)
        if not (number.isascii() and number.isdigit() and int(number) < partitions):
            raise InvalidArgument(
                f"{describe(name, given)} names a partition {key!r}",
                hint=f"Partitions are 0 to {partitions - 1}",
            )
        found[str(int(number))] = as_offset(offset, f"{name}[{key!r}]")
    return found


def as_offset(value: object, name: str) -> int:
    """Validate an offset.

    Raises:
        InvalidArgument: The value is not an offset.
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise InvalidArgument(f"{describe(name, value)} is no offset", hint="Give an int")
    if not 0 <= value <= LAST_OFFSET:
        raise InvalidArgument(
            f"{describe(name, value)} is no offset", hint="Offsets are 0 and above"
        )
    return int(value)


def as_time(start: Start) -> Instant | None:
    """Return the time of append that a start names; ``None`` if it is an offset or a word.

    Raises:
        InvalidArgument: The value is not a valid start.
    """
    if start in ("earliest", "latest"):
        return None
    if isinstance(start, Instant):
        return start
    if isinstance(start, (int, np.integer)) and not isinstance(start, (bool, np.timedelta64)):
        return None
    if isinstance(start, (str, datetime, np.datetime64)):
        return instant(start, name="start")
    raise InvalidArgument(
        f"{describe('start', start)} is no place to start",
        hint='Use "earliest", "latest", an offset, a time of append, or a position such as '
        '{"0": 17}',
    )
