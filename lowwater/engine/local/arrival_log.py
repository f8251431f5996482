"""What arrives at a run's sources, written to a folder while it runs: :class:`Recording`.

A run has a folder of its own, of segments ``arrivals-000001`` and so on. A segment is a sequence of
frames: the length of each in four bytes, then its value (:mod:`lowwater.state.codec`). The first
says what the sources are and where clock and watermarks stood; each other one is a turn. A process
that is killed leaves at most one frame that is cut off, which readers skip.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Collection
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, final

from lowwater.engine.graph.graph import Graph, Read
from lowwater.engine.local.memory_budget import SizeLike, size_bytes
from lowwater.engine.local.recorder import numbered, record_span
from lowwater.engine.local.source_reader import SourceCut
from lowwater.engine.records.admit_times import event_times
from lowwater.engine.records.batch import Records
from lowwater.engine.records.problems import Problems
from lowwater.errors import InvalidArgument, StateError, describe
from lowwater.state.codec import Encoded, encode
from lowwater.time import START_OF_TIME

LENGTH = struct.Struct("<I")
FORMAT = 1
_SEGMENTS = 8
_LEAST = 64 * 1024


@final
@dataclass(frozen=True, slots=True)
class Recording:
    """Where a run writes what arrives, and how much; ``record="dir"`` is ``Recording("dir")``.

    Args:
        directory: The folder. Each run adds one of its own to it.
        size: The most that a run keeps there, in bytes or as ``"100MB"``: the latest arrivals.
        keys: The keys whose records are kept; ``None`` for all. Records of sources without a single
            key column are all kept.

    >>> Recording("arrivals", size="10MB", keys=("A", "B"))
    Recording(directory='arrivals', size='10MB', keys=('A', 'B'))
    """

    directory: str | os.PathLike[str]
    size: SizeLike = "100MB"
    keys: Collection[Any] | None = None

    def __post_init__(self) -> None:
        if size_bytes(self.size, name="size") < _LEAST:
            raise InvalidArgument(
                f"{describe('size', self.size)} is too little for arrivals",
                where="Recording",
                hint='Use, say, "100MB"; at least "64KiB"',
            )
        if isinstance(self.keys, (str, bytes)) or not isinstance(
            self.keys, (Collection, type(None))
        ):
            raise InvalidArgument(
                f"{describe('keys', self.keys)} is not a collection of keys",
                where="Recording",
                hint='Write keys=["A"]',
            )


@final
class ArrivalLog:
    """Writes the turns of a run.

    Args:
        recording: Where, and how much.
        graph: The graph of the run.

    Raises:
        InvalidArgument: The folder cannot be made.
    """

    def __init__(self, recording: Recording, graph: Graph) -> None:
        self._graph = graph
        self._wanted = recording.keys
        self._limit = size_bytes(recording.size, name="size")
        self._folder = _new_folder(Path(recording.directory))
        self._read = [0 for _ in graph.reads]
        self._batches: list[tuple[int, Records]] = [(0, Records({}, 0)) for _ in graph.reads]
        self._keys = [_key_of(graph, read) for read in graph.reads]
        self._coming: tuple[int, int, int] | None = None
        self._stood: tuple[Any, ...] = (
            START_OF_TIME,
            [START_OF_TIME for _ in graph.reads],
            [False for _ in graph.reads],
        )
        self._file: Any = None
        self._segments: list[tuple[Path, int]] = []

    def read(self, read: Read, records: Records, *, is_numbered: bool) -> Records:
        """Take a batch of a source; return it with the number of each record.

        ``is_numbered``: a trace has numbered the records already, and counts as this does.
        """
        if not records.length:
            return records
        at = self._graph.reads.index(read)
        first = self._read[at]
        self._read[at] += records.length
        self._batches[at] = first, records
        if is_numbered:
            return records
        return numbered(records, first, at, len(self._graph.names))

    def cut(self, read: Read, cut: SourceCut) -> None:
        """Note which records come in the next turn."""
        at = self._graph.reads.index(read)
        span = record_span(cut, self._batches[at][0], len(self._graph.names))
        if span is not None:
            self._coming = at, *span

    def turned(self, clock: int, watermarks: tuple[int, ...], ended: tuple[bool, ...]) -> None:
        """Write a turn, if anything arrived or moved."""
        stood = clock, list(watermarks), list(ended)
        if self._coming is None and stood == self._stood:
            return
        source, first, stop = (None, 0, 0) if self._coming is None else self._coming
        rows = [] if source is None else self._rows(source, first, stop)
        self._write(encode([clock, source, _storable(rows), *stood[1:]]))
        self._coming, self._stood = None, stood

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _rows(self, source: int, first: int, stop: int) -> list[tuple[Any, Any]]:
        """Return the event times and records of what is kept of a bundle.

        Without records that have no event time: they become dead letters.
        """
        begin, records = self._batches[source]
        part = records.slice(max(first - begin, 0), stop - begin)
        read, key = self._graph.reads[source], self._keys[source]
        column = part.columns.get(read.time)
        problems = Problems()
        times: list[Any] = [None] * part.length
        if column is not None and not read.arrives:  # else it is the clock of the turn
            times = event_times(column, read.time, problems, read.times).tolist()
        bad = set(problems.rows().tolist()) if problems.found else set()
        return [
            (time, record)
            for at, (time, record) in enumerate(zip(times, part.rows(), strict=True))
            if at not in bad and self._is_wanted(record, key)
        ]

    def _is_wanted(self, record: Any, key: str | None) -> bool:
        if self._wanted is None or key is None or not isinstance(record, dict):
            return True
        return key not in record or record[key] in self._wanted

    def _write(self, data: bytes) -> None:
        size = self._segments[-1][1] if self._segments else self._limit
        if self._file is None or size >= self._limit // _SEGMENTS:
            self._begin()
        self._file.write(LENGTH.pack(len(data)) + data)
        path, size = self._segments[-1]
        self._segments[-1] = path, size + LENGTH.size + len(data)

    def _begin(self) -> None:
        """Begin a segment, and remove the oldest ones that are too much."""
        self.close()
        number = 1 + (int(self._segments[-1][0].name[-6:]) if self._segments else 0)
        path = self._folder / f"arrivals-{number:06}"
        self._file = path.open("xb", buffering=0)
        head = encode(
            {
                "format": FORMAT,
                "sources": [self._graph.name_of(read) for read in self._graph.reads],
                "stood": list(self._stood),
            }
        )
        self._file.write(LENGTH.pack(len(head)) + head)
        self._segments.append((path, 0))
        room = self._limit - self._limit // _SEGMENTS  # the rest is for the new one
        while len(self._segments) > 1 and sum(size for _, size in self._segments) > room:
            self._segments.pop(0)[0].unlink(missing_ok=True)


def _storable(rows: list[tuple[Any, Any]]) -> Encoded:
    """Return rows, encoded, without those that cannot be stored: they become dead letters."""
    try:
        return Encoded(rows)
    except StateError:
        return Encoded([row for row in rows if _can_be_stored(row)])


def _can_be_stored(row: tuple[Any, Any]) -> bool:
    try:
        encode(row)
    except StateError:
        return False
    return True


def arrival_log(value: Any, graph: Graph) -> ArrivalLog | None:
    """Return what ``record=`` stands for.

    Raises:
        InvalidArgument: It is neither a folder nor a :class:`Recording`.
    """
    if value is None:
        return None
    if not isinstance(value, Recording):
        if not isinstance(value, (str, os.PathLike)) or not str(value):
            raise InvalidArgument(
                f"{describe('record', value)} is neither a folder nor a Recording",
                where="run(record=)",
                hint='Write record="arrivals", or record=lw.Recording("arrivals", size="1GB")',
            )
        value = Recording(value)
    return ArrivalLog(value, graph)


def _new_folder(directory: Path) -> Path:
    for number in count(1):
        folder = directory / f"run-{number:06}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            if directory.is_dir():
                continue
            raise InvalidArgument(
                f"{str(directory)!r} is not a folder", where="run(record=)", hint="Name a new one"
            ) from None
        except OSError as error:
            raise InvalidArgument(
                f"{str(directory)!r} cannot be written: {error.strerror or error}",
                where="run(record=)",
                hint="Name a folder on a disk with room, which this process may write",
            ) from None
        return folder
    raise AssertionError("there is always another number")


def _key_of(graph: Graph, read: Read) -> str | None:
    """Return the first single column that stages group a source's records by."""
    keys = (graph.stages[at].keys_of(nth) for at, nth in graph.into(read))
    return next((names[0] for names in keys if len(names) == 1), None)
