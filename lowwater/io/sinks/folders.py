"""Folders of files named by delivery, so that a delivery that comes again overwrites itself."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import ClassVar, final

import pyarrow as pa

from lowwater.display.secrets import redacted
from lowwater.engine.local.delivery import Delivery, Held, Place, Writer
from lowwater.engine.records.json_lines import json_lines
from lowwater.errors import DataWarning, InvalidArgument, describe, warn
from lowwater.io.paths import is_remote
from lowwater.io.sinks.compaction import Compaction
from lowwater.io.sinks.file_forms import (
    FileForm,
    LineFiles,
    ParquetFiles,
    has_null_type,
    settled_schema,
)
from lowwater.io.sinks.folder_names import HIDDEN, PREFIXES
from lowwater.io.sinks.output_owner import check_closed, check_overwrite
from lowwater.io.sinks.owned_folder import OwnedFolder
from lowwater.io.uris import RemotePlace

_ONE_SLASH = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+:)/(?!/)")


@dataclass(frozen=True, slots=True)
class _Folder:
    """What folders of files have in common, whatever the format of the files of panes."""

    path: str
    overwrite: bool = False
    _: KW_ONLY
    compact: Compaction | None = None
    _open: list[OwnedFolder] = field(default_factory=list, init=False, repr=False, compare=False)
    _seen: list[OwnedFolder] = field(default_factory=list, init=False, repr=False, compare=False)

    _known: list[pa.Schema] = field(default_factory=list, init=False, repr=False, compare=False)
    _told: set[str] = field(default_factory=set, init=False, repr=False, compare=False)
    _untold: set[str] = field(default_factory=set, init=False, repr=False, compare=False)

    _form: ClassVar[FileForm]

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", checked_path(self.path))
        check_overwrite(self.overwrite)
        if self.compact is not None and not isinstance(self.compact, Compaction):
            raise InvalidArgument(
                f"{describe('compact', self.compact)} is not a Compaction",
                hint='Write compact=Compaction(size="128MB", age="1h")',
            )

    def places(self) -> Iterable[Place]:
        patterns = (*(f"{one}*" for one in PREFIXES), *HIDDEN)
        if not is_remote(self.path):
            return [Place(Path(self.path), patterns=patterns)]
        place = RemotePlace.of(self.path)
        return [Place(place.at, place.name, patterns=patterns)]

    def look(self, writer: Writer) -> None:
        self._seen[:] = [self._found(writer)]

    def open(self, writer: Writer) -> None:
        # What has collected was read when it was looked at, and is not read again.
        seen = [one for one in self._seen if one.writer == writer]
        self._seen.clear()
        check_closed(self, self._open)
        found = seen[0] if seen else self._found(writer)
        found.take()
        self._known.clear()
        self._open.append(found)

    def __repr__(self) -> str:
        """Return the call that makes it, without what is secret in the options of a URI."""
        path = redacted(self.path)
        return (
            f"{type(self).__name__}(path={path!r}, overwrite={self.overwrite!r}, "
            f"compact={self.compact!r})"
        )

    def deliver(self, delivery: Delivery) -> None:
        if not self._open:
            raise InvalidArgument(f"{self!r} is not open", hint="Call open() first")
        waits = False
        if isinstance(self._form, ParquetFiles) and delivery.panes.num_rows:
            panes = self._with_types(delivery.panes)
            delivery = replace(delivery, panes=panes)
            untold = {f.name for f in panes.schema if has_null_type(f.type)}
            waits = not untold <= self._told
            self._untold.clear()
            self._untold.update(untold)
        self._open[0].deliver(*files_of(delivery, self._form), waits=waits)
        self._tell()

    def _with_types(self, panes: pa.Table) -> pa.Table:
        """Return panes in which a column without a value has the type of those before.

        A part with a column of a null type cannot be read together with others.
        """
        given = panes.schema
        missing = [column.name for column in given if has_null_type(column.type)]
        if missing and not self._known:  # this run has written none
            self._known.append(self._open[0].schema_of_last() or pa.schema([]))
        before = self._known[0] if self._known else pa.schema([])
        schema = settled_schema(given, before)
        names = {column.name for column in schema}
        further = [column for column in before if column.name not in names]
        self._known[:] = [pa.schema([*settled_schema(schema, before), *further])]
        return panes if schema.equals(given) else panes.cast(schema)

    def _tell(self) -> None:
        """Warn of columns without a type in what was published, once."""
        if any(folder.has_collected for folder in self._open):
            return  # a type may still come
        for name in sorted(self._untold - self._told):
            self._told.add(name)
            warn(
                DataWarning,
                f"the column {name!r} has had no value yet, so that no type of it is known: with "
                "parts in which it has values, pyarrow and polars read this one only by a schema",
                where=self.path,
                hint="lw.read_parquet reads them all; for pyarrow, unify the schemas of the parts",
            )

    def unpublished(self) -> Held | None:
        for folder in (*self._open, *self._seen):
            return folder.unpublished
        return None

    def publish_due(self) -> None:
        for folder in self._open:
            folder.publish_due()
            self._tell()

    def close(self, *, complete: bool) -> None:
        while self._open:
            self._open.pop().close(complete=complete)

    def _found(self, writer: Writer) -> OwnedFolder:
        check_closed(self, self._open)
        return OwnedFolder(
            self.path, self._form.name, writer, overwrite=self.overwrite, compaction=self.compact
        )


@final
@dataclass(frozen=True, slots=True, repr=False)
class ParquetFolder(_Folder):
    """A folder with Parquet files of panes, one for each delivery.

    Guarantee: exactly once for a run with a state directory. Files are staged in ``.staging``,
    synced, and published by rename; in an object store they appear when their upload is complete.
    Their names are made of epoch, output and piece:
    ``part-<id>.parquet``, and beside it ``late-<id>.jsonl`` and ``errors-<id>.jsonl`` if there are
    any. A delivery that comes again has no effect while its files are there. A reader never sees
    half a file, and where it sees a part, the late elements and dead letters of that delivery are
    there too. Deliveries without panes leave no part. A program that moves files away must
    remember their names, as the last ones may appear again.

    ``.lowwater.json`` says whose output the folder holds, and whether that run is complete. The
    output of another run or state directory is never mixed with this one's: it is refused, or
    removed with ``overwrite=True``. No file is removed whose name is not one that this sink gives.

    The rows are all inserts and retractions as they came. Values that Parquet has no type for are
    JSON text. A column without a value has the type that it had before. As long as it has had none,
    deliveries wait for it, as durable as published ones, for up to a minute or 16 MB, or until the
    run ends; with those behind they become one file.

    Args:
        path: The folder; made if it is not there. In an object store its URI, such as
            ``s3://bucket/folder``. Read it as ``part-*.parquet``.
        overwrite: Whether the output of another run or state directory is to be replaced.
        compact: When deliveries become a file, so that a run that commits often publishes few
            files; a reader sees a row when its file is published. ``None``: each delivery at once.
    """

    _form: ClassVar[FileForm] = ParquetFiles()


@final
@dataclass(frozen=True, slots=True, repr=False)
class JsonLinesFolder(_Folder):
    """A folder with files of one JSON object per pane, one for each delivery.

    Guarantee: exactly once, as for :class:`ParquetFolder`; the files are ``part-<id>.jsonl``,
    ``late-<id>.jsonl`` and ``errors-<id>.jsonl``.

    Args:
        path: The folder; made if it is not there. In an object store its URI, such as
            ``s3://bucket/folder``. Read it as ``part-*.jsonl``.
        overwrite: Whether the output of another run or state directory is to be replaced.
        compact: When deliveries become a file, so that a run that commits often publishes few
            files; a reader sees a row when its file is published. ``None``: each delivery at once.
    """

    _form: ClassVar[FileForm] = LineFiles()


def files_of(delivery: Delivery, form: FileForm) -> tuple[dict[str, bytes], dict[str, int]]:
    """Return the files of a delivery, panes last, and how many rows they have, by name."""
    tables = {"errors": delivery.errors, "late": delivery.late}
    files, rows = {}, {}
    for kind, table in tables.items():
        if table is not None and table.num_rows:
            name = f"{kind}-{delivery.id}.jsonl"
            files[name], rows[name] = json_lines(table), table.num_rows
    if delivery.panes.num_rows:
        name = f"part-{delivery.id}{form.suffix}"
        files[name], rows[name] = form.encode(delivery.panes), delivery.panes.num_rows
    return files, rows


def checked_path(path: object, name: str = "path") -> str:
    """Return a path, or the URI of a remote store, as text.

    Raises:
        InvalidArgument: It is none, or a URI that names no place in a store.
    """
    if not isinstance(path, (str, os.PathLike)) or not isinstance(os.fspath(path), str):
        raise InvalidArgument(f"{describe(name, path)} is not a path", hint="Name a folder")
    text: str = os.fspath(path)
    if is_remote(text):
        RemotePlace.of(text)
    elif (found := _ONE_SLASH.match(text)) and not Path(found[1]).exists():
        raise InvalidArgument(
            f"{text!r} has one slash after {found[1]!r}: a Path keeps no more of a URI",
            hint=f"Write {f'{found[1]}//{text[found.end() :]}'!r} as text",
        )
    return text
