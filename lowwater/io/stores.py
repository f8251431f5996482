"""Files of this machine and objects of other filesystems, which readers read alike.

A name tells which: that of an object is a URI, ``s3://bucket/folder/file``, without credentials or
options. It is what positions, dead letters and errors contain.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import IO, Any, NamedTuple, Protocol, cast, final

from lowwater.errors import DataError, LowwaterError, cause
from lowwater.io.paths import is_remote

_BUFFER = 8 << 20
_MESSAGE = 300
_RETRY = "See that this machine reaches it, with credentials that may read and list; then run again"
_AGAIN = "Run again; if the same object fails, make it readable, or name the others without it"
# What stores say of the whole of a request, as against what is wrong with one object.
_OF_ACCESS = re.compile(
    r"ACCESS_DENIED|AccessDenied|Forbidden|Unauthorized|HTTP status 40[13]|credential|permission"
    r"|SignatureDoesNotMatch|InvalidAccessKeyId|INVALID_ACCESS_KEY_ID|ExpiredToken|TokenRefresh"
    r"|NETWORK_CONNECTION|curlCode|connect|timed? ?out|resolve host",
    re.IGNORECASE,
)
# What filesystems call a number of an object's content. Those that depend on the way in which it
# was written are as good: whoever puts the former object back that way is recognised.
_ETAGS = ("etag", "md5hash", "content_md5", "checksum", "generation")
_TIMES = ("mtime", "lastmodified", "last_modified", "updated", "modified", "created")
# How Arrow begins what a store told it, as against what is wrong with a file's content.
_OF_STORES = re.compile(r"AWS Error|google::cloud|GOOGLE_CLOUD|Azure|HDFS|libcurl|curlCode")


class Stat(NamedTuple):
    """What a filesystem tells of a file without reading it.

    Args:
        size: Its size in bytes.
        facts: Numbers that are others once it was written again; nothing if there are none.
        changed_ns: When it was last changed, in nanoseconds since 1970.
        fine: Whether the times among the facts are so fine that no two changes have the same.
    """

    size: int
    facts: tuple[int, ...]
    changed_ns: int
    fine: bool


class InputFile(Protocol):
    """One file, for readers. Where it is not there, everything raises ``FileNotFoundError``."""

    @property
    def name(self) -> str:
        """What positions, dead letters and errors call it."""
        ...

    def stat(self) -> Stat:
        """Ask for its size and its times."""
        ...

    def open(self) -> IO[bytes]:
        """Open it for reading from its beginning to its end."""
        ...

    def for_arrow(self) -> Any:
        """Return what Arrow reads any part of: a path, or an open file."""
        ...


@final
class LocalFile:
    """A file of this machine.

    Args:
        name: Its path, as ``str(Path(...))`` writes it. It stays text, as there may be very many.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def stat(self) -> Stat:
        return stat_of_local(os.stat(self.name))  # noqa: PTH116

    def open(self) -> IO[bytes]:
        return open(self.name, "rb")  # noqa: PTH123

    def for_arrow(self) -> str:
        return self.name


def stat_of_local(found: os.stat_result) -> Stat:
    """Return what this machine tells of one of its files."""
    times = (found.st_mtime_ns, found.st_ctime_ns)
    return Stat(found.st_size, (found.st_ino, *times), max(times), fine=True)


@final
class RemoteFile:
    """An object.

    Args:
        name: Its name.
        store: Where it is.
        path: Its path there.
        listed: What the listing told that it was found in.
    """

    __slots__ = ("_path", "_store", "listed", "name")

    def __init__(self, name: str, store: Store, path: str, listed: Stat | None = None) -> None:
        self.name = name
        self.listed = listed
        self._store = store
        self._path = path

    def stat(self) -> Stat:
        found = self._store.stat(self._path)
        if found is None:
            raise FileNotFoundError(self.name)
        return found

    def etag(self) -> str | None:
        """Return what the store calls the content, if it has a name for it."""
        return self._store.etag(self._path)

    @property
    def refusal(self) -> str | None:
        """Why its name alone keeps it from being opened; ``None`` if it does not."""
        return self._store.refusal(self._path)

    def open(self) -> IO[bytes]:
        file = self._store.stream(self._path)
        return io.BufferedReader(file, min(_BUFFER, max(1, file.size())))

    def for_arrow(self) -> Any:
        return self._store.open(self._path)


@final
class Store:
    """A bucket, or another root of a filesystem, whose objects have names that begin alike.

    Everything raises ``DataError`` where the filesystem fails.

    Args:
        name: What the names of the objects begin with, such as ``s3://bucket``.
        filesystem: A ``pyarrow.fs.FileSystem``.
        base: The root's path on it.
    """

    def __init__(self, name: str, filesystem: Any, base: str) -> None:
        from pyarrow.fs import FSSpecHandler

        self.name = name
        self.filesystem = filesystem
        self._prefix = base if not base or base.endswith("/") else f"{base}/"
        handler = getattr(filesystem, "handler", None)
        # Arrow does not pass on the times and the ETags that it knows, and it caches listings.
        self._fsspec: Any = handler.fs if isinstance(handler, FSSpecHandler) else None

    def name_of(self, path: str) -> str:
        """Return the name of what is at a path below the root; of the root if it is empty."""
        return f"{self.name}/{path}" if path or self.name.endswith(":/") else self.name

    def file(self, path: str, listed: Stat | None = None) -> RemoteFile:
        """Return the object at a path below the root; it need not be there."""
        return RemoteFile(self.name_of(path), self, path, listed)

    def refusal(self, path: str) -> str | None:
        """Why no object at a path can be opened; ``None`` if one can.

        Stores take any text as a key. Arrow's filesystems take it for a path: they refuse empty
        parts, and what sends their requests resolves ``.`` and ``..``, so that another object would
        be read.
        """
        if self._fsspec is not None:
            return None
        parts = path.split("/")
        if "" in parts:
            return "its key has an empty part (two slashes in a row, or one at its beginning)"
        for part in (".", ".."):
            if part in parts:
                return f"its key has {part!r} as a part, which would be resolved to another key"
        return None

    def exists(self) -> bool:
        """Whether the root is there."""
        from pyarrow.fs import FileType

        with told(self.name):
            found = self.filesystem.get_file_info(self._at(""))
            return bool(found.type != FileType.NotFound)

    def stat(self, path: str) -> Stat | None:
        """Ask for an object; ``None`` if there is none at the path."""
        from pyarrow.fs import FileType

        with told(self.name_of(path)):
            if self._fsspec is not None:
                try:
                    self._fsspec.invalidate_cache(self._at(path))
                    found = self._fsspec.info(self._at(path))
                except FileNotFoundError:
                    return None
                return _stat_of(found) if found["type"] == "file" else None
            info = self.filesystem.get_file_info(self._at(path))
            return _stat_of_info(info) if info.type == FileType.File else None

    def files(self, folder: str, *, deep: bool) -> Iterator[tuple[str, Stat]]:
        """Yield the objects in a folder, by their paths below the root; none if it is not there.

        Args:
            folder: The path of the folder.
            deep: Whether to also yield those in folders within it.
        """
        from pyarrow.fs import FileSelector, FileType

        at = self._at(folder)
        with told(self.name_of(folder)):
            if self._fsspec is not None:
                files = {path: _stat_of(info) for path, info in self._found(at, deep).items()}
            else:
                selector = FileSelector(at, allow_not_found=True, recursive=deep)
                files = {
                    info.path: _stat_of_info(info)
                    for info in self.filesystem.get_file_info(selector)
                    if info.type == FileType.File
                }
        for path, stat in files.items():
            # Some filesystems return absolute paths, whatever they were asked for.
            yield path.lstrip("/").removeprefix(self._prefix.lstrip("/")), stat

    def etag(self, path: str) -> str | None:
        """Return what the store calls an object's content, if it has a name for it."""
        known: Mapping[str, Any] | None = None
        with told(self.name_of(path)):
            if self._fsspec is not None:
                known = self._fsspec.info(self._at(path))
            else:
                with self.filesystem.open_input_file(self._at(path)) as file:
                    known = file.metadata()
        return _etag_of(known or {})

    def open(self, path: str) -> Any:
        """Open an object for Arrow, which reads any part of it."""
        import pyarrow as pa

        if getattr(self.filesystem, "handler", None) is None:
            with told(self.name_of(path)):
                return self.filesystem.open_input_file(self._at(path))
        # It is Python that reads: so what fails there is told apart from what is in the file.
        return pa.PythonFile(self.stream(path), mode="r")

    def stream(self, path: str) -> Guarded:
        """Open an object for Python."""
        name = self.name_of(path)
        with told(name):
            if self._fsspec is not None:
                return Guarded(self._fsspec.open(self._at(path), "rb"), name)
            return Guarded(self.filesystem.open_input_file(self._at(path)), name)

    def _found(self, at: str, deep: bool) -> dict[str, Any]:
        """Return what fsspec tells of the files in a folder, by their paths."""
        self._fsspec.invalidate_cache(at)
        try:
            found = self._fsspec.find(at, maxdepth=None if deep else 1, detail=True)
        except FileNotFoundError:
            return {}
        return {path: info for path, info in found.items() if path.strip("/") != at.strip("/")}

    def _at(self, path: str) -> str:
        return f"{self._prefix}{path}".rstrip("/") or self._prefix


@final
class Stores:
    """The stores that names begin with; a name that begins with none is a path of this machine.

    >>> Stores().file("data/clicks.csv").name
    'data/clicks.csv'
    """

    def __init__(self, stores: Mapping[str, Store] | None = None) -> None:
        self._stores = dict(stores or {})

    def file(self, name: str) -> InputFile:
        """Return the file of a name.

        Raises:
            FileNotFoundError: It is in a store of which nothing is known.
        """
        if not is_remote(name):
            return LocalFile(name)
        store, path = self.place(name)
        return store.file(path)

    def place(self, name: str) -> tuple[Store, str]:
        """Return the store of a name, and the path in it."""
        for root, store in self._stores.items():
            if name == root or name.startswith(f"{root}/"):
                return store, name[len(root) + 1 :]
        raise FileNotFoundError(name)


LOCAL = Stores()
"""No stores: all files are of this machine."""


@contextmanager
def told(name: str) -> Iterator[None]:
    """Translate errors of a filesystem, which may be of any kind, and name the path."""
    try:
        yield
    except (FileNotFoundError, LowwaterError):
        raise
    except Exception as error:
        raise store_failed(name, error) from cause(error)


def store_failed(name: str, error: BaseException) -> DataError:
    """Return the error for a store that does not do what it is asked."""
    first = (str(error) or repr(error)).splitlines()[0]
    text = first if len(first) <= _MESSAGE else f"{first[:_MESSAGE]} ..."
    said = f"{type(error).__name__}: {text.rstrip('.')}"
    is_access = isinstance(error, PermissionError) or _OF_ACCESS.search(said) is not None
    return DataError(f"the store failed: {said}", where=name, hint=_RETRY if is_access else _AGAIN)


def size_of(opened: io.BufferedReader) -> int:
    """Return how many bytes an open file has; 0 if that is not known, as of a pipe."""
    raw: Any = opened.raw
    return int(raw.size()) if isinstance(raw, Guarded) else os.fstat(opened.fileno()).st_size


def is_of_store(error: BaseException) -> bool:
    """Whether an error of Arrow is about a store, and not about a file's content."""
    return _OF_STORES.search(str(error)) is not None


@final
class Guarded(io.RawIOBase):
    """An open object that tells what fails."""

    def __init__(self, file: Any, name: str) -> None:
        super().__init__()
        self._file = file
        self._name = name

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def read(self, size: int = -1) -> bytes:
        with told(self._name):
            return cast(bytes, self._file.read(None if size < 0 else size))

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        with told(self._name):
            return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def size(self) -> int:
        """Return the size of the object in bytes."""
        place, end = self.tell(), self.seek(0, os.SEEK_END)
        self.seek(place)
        return end

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


def _stat_of_info(info: Any) -> Stat:
    """Return what Arrow tells of a file."""
    return _stat(info.size, info.mtime_ns)


def _stat_of(info: Mapping[str, Any]) -> Stat:
    """Return what fsspec tells of a file; each of its filesystems has names of its own."""
    lower = {key.lower(): value for key, value in info.items()}
    time: Any = next((lower[key] for key in _TIMES if lower.get(key) is not None), None)
    if isinstance(time, datetime):
        time = time.timestamp()
    known = isinstance(time, (int, float))
    return _stat(info["size"], int(time * 1e9) if known else None)


def _stat(size: int, mtime_ns: int | None) -> Stat:
    # Listings may have finer times than what is told of a single object: both have seconds.
    facts = () if mtime_ns is None else (mtime_ns // 10**9,)
    return Stat(size, facts, mtime_ns or 0, fine=False)


def _etag_of(known: Mapping[str, Any]) -> str | None:
    lower = {key.lower(): value for key, value in known.items()}
    found = next((lower[key] for key in _ETAGS if lower.get(key)), None)
    text = found.decode(errors="replace") if isinstance(found, bytes) else str(found)
    return None if found is None else text.strip('"')
