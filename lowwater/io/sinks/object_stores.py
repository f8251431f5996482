"""How files appear whole in remote stores, which have no rename, or none that replaces a file.

An object store shows an object once its upload is complete: what a process that dies has uploaded
of it is never seen. A stream that is closed completes the upload, however, also when an error is
the reason. So each file is handed over in one piece.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from posixpath import basename
from threading import current_thread, main_thread
from typing import Any, Protocol, final

from lowwater.errors import DataError, InvalidArgument, LowwaterError
from lowwater.io.sinks.folder_files import Entry
from lowwater.io.sinks.folder_names import STAGING
from lowwater.io.uris import RemotePlace
from lowwater.state.filesystems import filesystem_at, split_uri

_ATTEMPTS, _CONNECT_S, _SILENT_S = 4, 3, 5
_SMALL = 4 << 20  # bytes; Arrow puts up to 5 MB in one request
# What shows an object once its upload is complete. Arrow's own filesystem for Azure makes an
# empty object before it uploads, and HDFS shows a file while it is written.
_WHOLE_IN_ARROW = frozenset({"s3", "gcs"})
_WHOLE_IN_FSSPEC = frozenset(
    {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "oss", "oci", "r2", "memory"}
)
_HADOOP = ("hdfs:", "viewfs:")
_CANNOT_REPLACE = frozenset({"hdfs", "webhdfs", "webHDFS", "ftp", "smb"})
_DENIED = ("access_denied", "forbidden", "credential", "access_key", "signature", "expiredtoken")
_OUT_OF_REACH = ("network_connection", "could not connect", "connection", "timed out", "timeout")


class ObjectStore(Protocol):
    """Files by path. Each method raises ``DataError`` if the store refuses."""

    def entries(self, folder: str) -> Mapping[str, Entry]:
        """Return what is in a folder, by name; nothing if it is not there.

        Raises:
            NotADirectoryError: It is a file.
        """
        ...

    def read(self, path: str) -> bytes:
        """Return a file.

        Raises:
            FileNotFoundError: It is not there.
        """
        ...

    def put(self, path: str, data: bytes) -> None:
        """Make a file appear whole, in place of one of that name."""
        ...

    def delete(self, path: str) -> None:
        """Remove a file; if it is gone already, do nothing."""
        ...


def store_at(uri: str) -> tuple[ObjectStore, str]:
    """Return the store that a URI names, and the path of the folder in it.

    Raises:
        InvalidArgument: Nothing here knows this kind of URI, or files would not appear whole there.
        DataError: The store is out of reach.
    """
    from pyarrow.fs import FSSpecHandler, PyFileSystem

    place = RemotePlace.of(uri).name
    if uri.lower().startswith(_HADOOP):
        raise _not_whole(place, "hdfs")
    parts = split_uri(uri)
    try:
        with _told(place):
            if parts.authority:  # nothing in the path of an object is decoded
                filesystem, base = filesystem_at(parts.connection)
                path = f"{base.rstrip('/')}/{parts.path.strip('/')}".rstrip("/")
            else:
                filesystem, path = filesystem_at(uri)
    except InvalidArgument as error:
        raise InvalidArgument(
            f"{place!r} cannot be opened: {error.what}",
            hint="Correct the URI, or install the package that fsspec needs for it",
        ) from error
    path = path.rstrip("/")
    if isinstance(filesystem, PyFileSystem) and isinstance(filesystem.handler, FSSpecHandler):
        return _in_fsspec(filesystem.handler.fs, path, place), path
    if filesystem is None:
        raise InvalidArgument(
            f"{place!r} is on this machine, not in a store", hint=f"Write {path!r}"
        )
    kind = filesystem.type_name
    if kind not in _WHOLE_IN_ARROW:
        raise _not_whole(place, kind)
    if kind != "s3":
        return _ArrowStore(filesystem, place), path
    # An upload in parts that failed is never completed if its stream was opened with the upload,
    # and writes in the background: otherwise its close makes an object of what there is.
    large = _bounded(filesystem, background_writes=True, allow_delayed_open=False)
    return _ArrowStore(large, place, _bounded(filesystem, allow_delayed_open=True)), path


def _in_fsspec(filesystem: Any, path: str, place: str) -> ObjectStore:
    from fsspec import AbstractFileSystem

    protocol = filesystem.protocol
    names = {protocol} if isinstance(protocol, str) else {*protocol}
    if names & _WHOLE_IN_FSSPEC:
        return _FsspecStore(filesystem, place)
    # What it inherits copies, and then deletes.
    if names & _CANNOT_REPLACE or type(filesystem).mv is AbstractFileSystem.mv:
        raise _not_whole(place, "/".join(sorted(names)))
    return _FsspecStore(filesystem, place, staging=f"{path}/{STAGING}")


def _bounded(filesystem: Any, **options: Any) -> Any:
    """Return the same S3 filesystem, which tells of a server that does not answer in time.

    That of a URI would try for minutes.
    """
    from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem

    _, (given,) = filesystem.__reduce__()
    limits = {
        "connect_timeout": _CONNECT_S,
        "request_timeout": _SILENT_S,
        "retry_strategy": AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS),
    }
    return S3FileSystem(**{**given, **limits, **options})


@final
@dataclass(frozen=True, slots=True)
class RemoteEntry:
    """A file as a store lists it."""

    size: int
    modified: float
    is_plain: bool


@final
class _ArrowStore:
    """A store that Arrow knows by itself.

    Args:
        filesystem: The ``pyarrow`` filesystem.
        place: What errors call it.
        small: The same for what is put in one request, if that takes another one.
    """

    def __init__(self, filesystem: Any, place: str, small: Any = None) -> None:
        self._filesystem = filesystem
        self._place = place
        self._small = filesystem if small is None else small

    def entries(self, folder: str) -> Mapping[str, Entry]:
        from pyarrow.fs import FileSelector, FileType

        with _told(self._place, NotADirectoryError):
            found = self._filesystem.get_file_info(FileSelector(folder, allow_not_found=True))
            if not found and self._filesystem.get_file_info(folder).type == FileType.File:
                raise NotADirectoryError(folder)
            return {
                one.base_name: RemoteEntry(
                    one.size or 0, _seconds(one.mtime), one.type == FileType.File
                )
                for one in found
            }

    def read(self, path: str) -> bytes:
        with (
            _told(self._place, FileNotFoundError, NotADirectoryError),
            self._filesystem.open_input_file(path) as file,
        ):
            return bytes(file.read())

    def put(self, path: str, data: bytes) -> None:
        with _told(self._place):
            if current_thread() is not main_thread():
                self._put(path, data)
                return
            # A stream that is dropped is closed, which makes an empty object if nothing was
            # written. Control-C, which would come between, waits for the end of another thread.
            with ThreadPoolExecutor(1) as apart:
                apart.submit(self._put, path, data).result()

    def _put(self, path: str, data: bytes) -> None:
        filesystem = self._small if len(data) <= _SMALL else self._filesystem
        stream = filesystem.open_output_stream(path)
        try:
            stream.write(data)
        finally:
            stream.close()

    def delete(self, path: str) -> None:
        with _told(self._place), suppress(FileNotFoundError):
            self._filesystem.delete_file(path)


@final
class _FsspecStore:
    """A store that fsspec knows.

    Args:
        filesystem: The ``fsspec`` filesystem.
        place: What errors call it.
        staging: Where files are written before they are moved to their place; empty for a store
            that shows files only when they are whole.
    """

    def __init__(self, filesystem: Any, place: str, *, staging: str = "") -> None:
        self._filesystem = filesystem
        self._place = place
        self._staging = staging

    def entries(self, folder: str) -> Mapping[str, Entry]:
        with _told(self._place, NotADirectoryError):
            self._filesystem.invalidate_cache()  # other processes write there, too
            try:
                found = self._filesystem.ls(folder, detail=True)
            except FileNotFoundError:
                return {}
            if any(_same(one["name"], folder) and one["type"] == "file" for one in found):
                raise NotADirectoryError(folder)
            return {
                basename(one["name"].rstrip("/")): RemoteEntry(
                    one.get("size") or 0, _modified(one), one["type"] == "file"
                )
                for one in found
                if not _same(one["name"], folder)
            }

    def read(self, path: str) -> bytes:
        with _told(self._place, FileNotFoundError, NotADirectoryError):
            data: bytes = self._filesystem.cat_file(path)
            return data

    def put(self, path: str, data: bytes) -> None:
        with _told(self._place):
            if not self._staging:
                self._filesystem.pipe_file(path, data)
                return
            self._filesystem.makedirs(self._staging, exist_ok=True)
            self._filesystem.makedirs(path.rpartition("/")[0], exist_ok=True)
            passing = f"{self._staging}/{basename(path)}.{secrets.token_hex(8)}"
            self._filesystem.pipe_file(passing, data)
            self._filesystem.mv(passing, path)

    def delete(self, path: str) -> None:
        with _told(self._place), suppress(FileNotFoundError):
            self._filesystem.rm_file(path)


def _same(name: str, folder: str) -> bool:
    return name.strip("/") == folder.strip("/")


def _modified(entry: Mapping[str, Any]) -> float:
    """Return when a file was written, whatever the filesystem calls that."""
    names = ("mtime", "LastModified", "last_modified", "modified", "updated", "created")
    return _seconds(next((entry[name] for name in names if entry.get(name) is not None), None))


def _seconds(at: object) -> float:
    match at:
        case datetime():
            return at.timestamp()
        case int() | float():
            return float(at)
        case str():
            return datetime.fromisoformat(at).timestamp()
        case _:
            return 0.0  # unknown: it may have waited for long


def _not_whole(place: str, kind: str) -> InvalidArgument:
    return InvalidArgument(
        f"{place!r} is in a filesystem ({kind}) where a reader could see half a file, or that "
        "cannot replace one in one step",
        hint="Write to a local folder and copy it, or to an object store: s3://, gs://, or az:// "
        "with the package adlfs",
    )


@contextmanager
def _told(place: str, *but: type[OSError]) -> Iterator[None]:
    """Translate what a store refuses into the user's words. They raise errors of any kind.

    Raises:
        DataError: In place of any error but ``but`` and those of this library.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, (LowwaterError, *but)):
            raise
        raise DataError(
            f"{place!r} cannot be read or written: {type(error).__name__}: {error}",
            hint=f"{_fix(error)} and start again: with a state directory nothing is lost",
        ) from error


def _fix(error: Exception) -> str:
    said = f"{type(error).__name__} {error}".lower()
    if "bucket" in said and ("no_such_bucket" in said or "not exist" in said):
        return "Make the bucket, which is never made for you, or correct its name"
    if isinstance(error, PermissionError) or any(word in said for word in _DENIED):
        return (
            "Give this process credentials that may list, read, write and delete there (for S3 in "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, or the machine's role)"
        )
    if isinstance(error, (ConnectionError, TimeoutError)) or any(
        word in said for word in _OUT_OF_REACH
    ):
        return "See that this machine reaches the store, and that the URI names the right one"
    return "See that the store is in order"
