"""The sinks of ``write_parquet`` and ``write_jsonl``, from a name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lowwater.engine.local.delivery import Sink
from lowwater.errors import InvalidArgument, describe
from lowwater.io.paths import PathLike, is_remote

if TYPE_CHECKING:
    from lowwater.io.sinks.compaction import Compaction

_LIKE_FILES = (".json", ".jsonl", ".ndjson", ".json.gz", ".jsonl.gz", ".ndjson.gz")


def parquet_sink(folder: PathLike, *, overwrite: bool, compact: Compaction | None) -> Sink:
    """Return the sink of ``write_parquet``."""
    from lowwater.io.sinks.folders import ParquetFolder, checked_path

    return ParquetFolder(checked_path(folder, "folder"), overwrite, compact=compact)


def jsonl_sink(path: PathLike, *, overwrite: bool, compact: Compaction | None) -> Sink:
    """Return the sink of ``write_jsonl``: one file if the name ends in ``.jsonl``, or a folder."""
    from lowwater.io.sinks.folders import JsonLinesFolder, checked_path
    from lowwater.io.sinks.json_lines_file import JsonLinesFile, is_file_name
    from lowwater.io.uris import RemotePlace

    target = checked_path(path)
    name = RemotePlace.of(target).name if is_remote(target) else target
    if is_file_name(name):
        if compact is not None:
            raise InvalidArgument(
                f"compact= is for folders, and {target!r} is one file, to which all is appended",
                where="write_jsonl",
                hint='Leave it out, or name a folder, such as "out"',
            )
        return JsonLinesFile(target, overwrite)
    if name.lower().endswith(_LIKE_FILES) and not Path(target).is_dir():
        raise InvalidArgument(
            f"{describe('path', target)} looks like a file, but only a name that ends in '.jsonl' "
            "is one: this would be a folder",
            where="write_jsonl",
            hint='Use "out.jsonl" for one file, or a name such as "out/" for a folder',
        )
    return JsonLinesFolder(target, overwrite, compact=compact)
