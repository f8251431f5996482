"""Where ends write to: no two of them to one place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from lowwater.engine.delivery import DurableSink
from lowwater.errors import InvalidArgument
from lowwater.io.delivery import JsonLinesFolder, ParquetFolder
from lowwater.io.sinks import json_lines_files


def check_apart(ends: Iterable[Sequence[DurableSink]], *, durable: bool) -> None:
    """Raise if two sinks write to one place: what one has written would take the other's place.

    Args:
        ends: The sinks of each end.
        durable: Whether they write as deliveries do, each to a folder of its own.

    Raises:
        InvalidArgument: Two paths lead to one place, or a sink is given twice.
    """
    taken: set[Path] = set()
    sinks: set[int] = set()
    for sink in (sink for end in ends for sink in end):
        if id(sink) in sinks:
            raise InvalidArgument(
                f"the sink {sink!r} is given twice",
                where="run",
                mend="Give each end sinks of its own",
            )
        sinks.add(id(sink))
        places = {place.resolve() for place in _places(sink, durable=durable)}
        if places & taken:
            assert isinstance(sink, (ParquetFolder, JsonLinesFolder))
            raise InvalidArgument(
                f"two ends write to {sink.path!r}",
                where="run",
                mend='Give each its own place: write_parquet("first/"), write_parquet("second/")',
            )
        taken |= places


def _places(sink: DurableSink, *, durable: bool) -> Iterator[Path]:
    if isinstance(sink, JsonLinesFolder) and not durable:
        yield from json_lines_files(sink.path)
    elif isinstance(sink, (ParquetFolder, JsonLinesFolder)):
        yield Path(sink.path)
