"""Folders of files named by delivery, so that a delivery that comes again overwrites itself."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import pyarrow as pa
import pyarrow.parquet as pq

from lowwater.engine.local.delivery import Delivery
from lowwater.engine.records.json_rows import as_json, json_text, rows_of, without_tags
from lowwater.errors import InvalidArgument, describe
from lowwater.io.sinks import staging as _staging


@final
@dataclass(frozen=True, slots=True)
class ParquetFolder:
    """A folder with a Parquet file of panes for each delivery.

    Guarantee: exactly once. Files are staged in ``.staging``, synced, and published by rename
    under names made of epoch and sequence: ``part-<id>.parquet``, and beside it
    ``late-<id>.jsonl`` and ``errors-<id>.jsonl`` if there are any. A delivery that comes again
    replaces its files with the same bytes, if by the same version of pyarrow. A reader never sees
    half a file, and where it sees a part, the late elements and dead letters of that delivery are
    there too. Deliveries without panes leave no part. Who takes files away must know them by
    name, as the last ones may appear again.

    What the panes show is all inserts and retractions as they came. Values that Parquet has no
    type for are JSON text.

    Args:
        path: The folder; made if it is not there. Read it as ``part-*.parquet``.
    """

    path: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", _path(self.path))

    def open(self, description: Mapping[str, object]) -> None:
        _staging.open_folder(self.path, "Parquet", description)

    def deliver(self, delivery: Delivery) -> None:
        files = _sidecars(delivery)
        if delivery.panes.num_rows:
            files[f"part-{delivery.id}.parquet"] = _to_parquet(delivery.panes)
        _staging.publish(self.path, files)

    def close(self) -> None:
        pass


@final
@dataclass(frozen=True, slots=True)
class JsonLinesFolder:
    """A folder with a file of one JSON object per pane for each delivery.

    Guarantee: exactly once, as for :class:`ParquetFolder`; the files are ``part-<id>.jsonl``,
    ``late-<id>.jsonl`` and ``errors-<id>.jsonl``.

    Args:
        path: The folder; made if it is not there. Read it as ``part-*.jsonl``.
    """

    path: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", _path(self.path))

    def open(self, description: Mapping[str, object]) -> None:
        _staging.open_folder(self.path, "JSON lines", description)

    def deliver(self, delivery: Delivery) -> None:
        files = _sidecars(delivery)
        if delivery.panes.num_rows:
            files[f"part-{delivery.id}.jsonl"] = _to_lines(delivery.panes)
        _staging.publish(self.path, files)

    def close(self) -> None:
        pass


def _path(path: object) -> str:
    if not isinstance(path, (str, os.PathLike)) or not isinstance(os.fspath(path), str):
        raise InvalidArgument(f"{describe('path', path)} is not a path", hint="Name a folder")
    text: str = os.fspath(path)
    return text


def _sidecars(delivery: Delivery) -> dict[str, bytes]:
    given = {"errors": delivery.errors, "late": delivery.late}
    return {
        f"{name}-{delivery.id}.jsonl": _to_lines(table)
        for name, table in given.items()
        if table is not None and table.num_rows
    }


def _to_lines(table: pa.Table) -> bytes:
    lines = io.BytesIO()
    lines.writelines(f"{json_text(row)}\n".encode() for row in rows_of(table))
    return lines.getvalue()


def _to_parquet(panes: pa.Table) -> bytes:
    # How the rows are cut into chunks, and dictionaries with them, must not show in the file.
    table = without_tags(panes).unify_dictionaries().combine_chunks()
    try:
        return _written(table)
    except pa.ArrowNotImplementedError:
        for place, field in enumerate(table.schema):
            if not _is_writable(field):
                table = as_json(table, place)
        return _written(table)


def _is_writable(field: pa.Field) -> bool:
    try:
        _written(pa.schema([field]).empty_table())
    except pa.ArrowNotImplementedError:
        return False
    return True


def _written(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    data: bytes = sink.getvalue().to_pybytes()
    return data
