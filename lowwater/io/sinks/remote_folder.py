"""A folder of output in a remote store: each file is put whole under its final name.

There are no locks there. What keeps two runs apart is the marker, which each delivery reads first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from typing import BinaryIO, final

from lowwater.errors import InvalidArgument
from lowwater.io.sinks.file_forms import form_of
from lowwater.io.sinks.folder_files import Entry, FileSet
from lowwater.io.sinks.folder_names import PENDING, STAGED, STAGING
from lowwater.io.sinks.object_stores import ObjectStore, store_at
from lowwater.io.uris import RemotePlace


@final
class RemoteFolder:
    """A folder at a URI; see :class:`~lowwater.io.sinks.folder_files.OutputFolder`.

    Args:
        uri: The folder.

    Raises:
        InvalidArgument: Nothing here knows this kind of URI, or files would not appear whole there.
        DataError: The store is out of reach.
    """

    is_there = True

    def __init__(self, uri: str) -> None:
        self.name = RemotePlace.of(uri).name
        store, path = store_at(uri)
        self.published = _RemoteFiles(store, path)
        self.collected = _RemoteFiles(store, f"{path}/{PENDING}")
        self._staged = _RemoteFiles(store, f"{path}/{STAGING}")

    def check(self, examine: Callable[[], object]) -> None:
        try:
            examine()
        except NotADirectoryError as error:
            raise InvalidArgument(
                f"{self.name!r} is a file, but output goes into a folder",
                hint="Give the name of a folder",
            ) from error

    @contextmanager
    def taking(self, examine: Callable[[], object]) -> Iterator[None]:
        examine()
        self._staged.delete([name for name in self._staged.entries() if STAGED.fullmatch(name)])
        yield

    def join(self, source: FileSet, names: Sequence[str], name: str) -> None:
        joined = BytesIO()
        form_of(name).join(source, names, joined)
        self.published.put({name: joined.getvalue()})

    def publish(self, name: str, data: bytes) -> None:
        self.published.put({name: data})

    def release(self) -> None:
        pass  # nothing was locked


@final
class _RemoteFiles:
    """The files of a folder in a store."""

    def __init__(self, store: ObjectStore, path: str) -> None:
        self._store = store
        self._path = path

    def entries(self) -> Mapping[str, Entry]:
        return dict(sorted(self._store.entries(self._path).items()))

    def open(self, name: str) -> BinaryIO:
        return BytesIO(self._store.read(f"{self._path}/{name}"))

    def put(self, files: Mapping[str, bytes]) -> None:
        for name, data in files.items():
            self._store.put(f"{self._path}/{name}", data)

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self._store.delete(f"{self._path}/{name}")
