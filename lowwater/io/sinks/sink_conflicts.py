"""Where ends write to: no two of them to one place, nor one into what is another's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import final

from lowwater.engine.local.delivery import DurableSink
from lowwater.errors import InvalidArgument
from lowwater.io.sinks.folders import JsonLinesFolder, ParquetFolder
from lowwater.io.sinks.plain import json_lines_files
from lowwater.io.sinks.postgres import PostgresTable
from lowwater.io.sinks.sqlite import SqliteTable
from lowwater.io.sinks.staging import MARKER, PREFIXES, STAGING
from lowwater.io.sinks.upserts import tables_of

_OF_RUN = ("panes-*.parquet", "late.jsonl", "errors.jsonl")
_OF_DELIVERIES = (*(f"{prefix}*" for prefix in PREFIXES), STAGING, MARKER)
_MEND = 'Give each its own place, such as "first/" and "second/"'


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
                hint="Give each end sinks of its own",
            )
        if isinstance(sink, PostgresTable):
            for one in sinks:
                if isinstance(one, PostgresTable) and one.dsn == sink.dsn:
                    _check_tables(tables_of(one.table), tables_of(sink.table), repr(sink))
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
        tables: The tables in it, if it is a database.
    """

    path: Path
    said: str
    outputs: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()


def _places(sink: DurableSink, *, durable: bool) -> Iterator[_Place]:
    if isinstance(sink, SqliteTable):
        yield _Place(Path(sink.path).resolve(), sink.path, tables=tables_of(sink.table.lower()))
    elif isinstance(sink, JsonLinesFolder) and not durable:
        for file in json_lines_files(sink.path):
            yield _Place(file.resolve(), sink.path)
    elif isinstance(sink, (ParquetFolder, JsonLinesFolder)):
        outputs = _OF_DELIVERIES if durable else _OF_RUN
        yield _Place(Path(sink.path).resolve(), sink.path, outputs)


def _check_two(one: _Place, other: _Place) -> None:
    if one.path == other.path:
        if not one.tables or not other.tables:
            raise InvalidArgument(f"two ends write to {other.said!r}", where="run", hint=_MEND)
        _check_tables(one.tables, other.tables, repr(other.said))
    for outer, inner in ((one, other), (other, one)):
        if outer.path in inner.path.parents and not _may_be_within(inner, outer):
            raise InvalidArgument(
                f"two ends write to {outer.said!r}: {inner.said!r} lies within it",
                where="run",
                hint=_MEND,
            )


def _may_be_within(inner: _Place, outer: _Place) -> bool:
    """Whether a file is none of those that are the outer folder's own."""
    if inner.outputs or not outer.outputs:
        return False
    name = inner.path.relative_to(outer.path).parts[0]
    return not any(fnmatchcase(name, pattern) for pattern in outer.outputs)


def _check_tables(one: Sequence[str], other: Sequence[str], where: str) -> None:
    """Raise if two sinks have a table in common: that of panes, or one of what goes beside it."""
    for table in one:
        if table in other:
            raise InvalidArgument(
                f"two ends write to the table {table!r} in {where}",
                where="run",
                hint="Give each a table of its own, such as one that does not end in _late or "
                "_errors",
            )
