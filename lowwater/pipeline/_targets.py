"""Where ends write to: no two of them to one place, nor one into what is another's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import final

from lowwater.engine.delivery import DurableSink
from lowwater.errors import InvalidArgument
from lowwater.io.delivery import JsonLinesFolder, ParquetFolder, PostgresTable, SqliteTable
from lowwater.io.sinks import json_lines_files

_OF_RUN = ("panes-*.parquet", "late.jsonl", "errors.jsonl")
_OF_DELIVERIES = ("part-*", "late-*", "errors-*", ".staging", ".lowwater.json")
_MEND = 'Give each its own place: write_parquet("first/"), write_parquet("second/")'


def check_apart(ends: Iterable[Sequence[DurableSink]], *, durable: bool) -> None:
    """Raise if two sinks could disturb one another: what one has written would not stay as it was.

    Two may write to different tables of one SQLite file, and a file that is no output of a folder's
    may be in that folder. A folder within a folder is refused, as who reads the outer one reads
    both. What callbacks and sinks of the user's own write is not known.

    Args:
        ends: The sinks of each end.
        durable: Whether they write as deliveries do, each to a folder of its own.

    Raises:
        InvalidArgument: Two paths lead to one place, or one into the other's, whatever symbolic
            links are on the way; two write to one table; or a sink is given twice.
    """
    taken: list[_Place] = []
    sinks: list[DurableSink] = []
    for sink in (sink for end in ends for sink in end):
        if any(sink is one for one in sinks):
            raise InvalidArgument(
                f"the sink {sink!r} is given twice",
                where="run",
                mend="Give each end sinks of its own",
            )
        if isinstance(sink, PostgresTable) and sink in sinks:
            raise _same_table(f"{sink!r}")
        sinks.append(sink)
        places = list(_places(sink, durable=durable))
        for place in places:
            for other in taken:
                _check_two(other, place)
        taken += places


@final
@dataclass(frozen=True, slots=True)
class _Place:
    """What a sink writes.

    Args:
        path: The file or the folder, resolved.
        said: What the user calls it.
        outputs: Patterns of the names in it that the sink writes or removes, if it is a folder.
        table: The table in it, if it is a database.
    """

    path: Path
    said: str
    outputs: tuple[str, ...] = ()
    table: str | None = None


def _places(sink: DurableSink, *, durable: bool) -> Iterator[_Place]:
    if isinstance(sink, SqliteTable):
        yield _Place(Path(sink.path).resolve(), sink.path, table=sink.table.lower())
    elif isinstance(sink, JsonLinesFolder) and not durable:
        for file in json_lines_files(sink.path):
            yield _Place(file.resolve(), sink.path)
    elif isinstance(sink, (ParquetFolder, JsonLinesFolder)):
        outputs = _OF_DELIVERIES if durable else _OF_RUN
        yield _Place(Path(sink.path).resolve(), sink.path, outputs)


def _check_two(one: _Place, other: _Place) -> None:
    if one.path == other.path:
        if one.table is None or other.table is None:
            raise InvalidArgument(f"two ends write to {other.said!r}", where="run", mend=_MEND)
        if one.table == other.table:
            raise _same_table(f"the table {other.table!r} in {other.said!r}")
    for outer, inner in ((one, other), (other, one)):
        if outer.path in inner.path.parents and not _may_be_within(inner, outer):
            raise InvalidArgument(
                f"two ends write to {outer.said!r}: {inner.said!r} lies within it",
                where="run",
                mend=_MEND,
            )


def _may_be_within(inner: _Place, outer: _Place) -> bool:
    """Whether a file is none of those that are the outer folder's own."""
    if inner.outputs or not outer.outputs:
        return False
    name = inner.path.relative_to(outer.path).parts[0]
    return not any(fnmatchcase(name, pattern) for pattern in outer.outputs)


def _same_table(table: str) -> InvalidArgument:
    return InvalidArgument(
        f"two ends write to {table}: what the second delivers would be taken for what the first "
        "has delivered",
        where="run",
        mend="Give each a table of its own",
    )
