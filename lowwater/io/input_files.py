"""The files that a source reads: those that its paths match, here and in object stores."""

from __future__ import annotations

import glob
import re
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from lowwater.errors import DataWarning, InvalidArgument, describe, nearest
from lowwater.io.paths import (
    PathsLike,
    RealPaths,
    as_texts,
    files_at,
    is_remote,
    none_in,
    parts_match,
    require_local,
    require_places,
    unread_among,
    unread_in,
    would_match,
)
from lowwater.io.stores import (
    LOCAL,
    InputFile,
    LocalFile,
    RemoteFile,
    Stat,
    Store,
    Stores,
    told,
)
from lowwater.state.filesystems import (
    filesystem_at,
    filesystem_of,
    require_plain,
    split_uri,
    without_secrets,
)

_COMMON = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "hdfs", "memory"}
_SCHEMES_OF_BUCKETS = {"s3": "s3", "gcs": "gs", "gs": "gs", "abfs": "abfs"}
_SAME = {"gcs": "gs", "abfss": "abfs"}


@final
@dataclass(frozen=True, slots=True)
class InputFiles:
    """Files, folders and globs, and the stores that some of them are in.

    Args:
        paths: Paths of this machine, and URIs without credentials and options.
        stores: What opens the URIs.
    """

    paths: tuple[str, ...]
    stores: Stores = field(default=LOCAL, repr=False, compare=False)

    def find(self, suffixes: tuple[str, ...], *, maybe_none: bool = False) -> list[InputFile]:
        """Return the files that the paths match, sorted within each path.

        A folder matches the files below it with one of the ``suffixes``, except files and folders
        whose name begins with ``_`` or ``.``. A file that several paths match, or several symbolic
        links lead to, comes once: where it is matched first.

        Args:
            suffixes: The suffixes of the files to read from a folder.
            maybe_none: Whether a path may match no file.

        Raises:
            InvalidArgument: A path matches no file.
            DataError: A store fails.
        """
        return self._found(suffixes, {}, maybe_none=maybe_none)

    def _found(
        self, suffixes: tuple[str, ...], unread: dict[str, list[str]], *, maybe_none: bool
    ) -> list[InputFile]:
        """Return the files; note in ``unread`` what is not read of folders in stores, by URI."""
        real, distinct = RealPaths(), dict[str, InputFile]()
        for text in self.paths:
            if is_remote(text):
                store, path = self.stores.place(text)
                unread[text] = []
                objects = _objects_at(store, path, suffixes, unread[text], maybe_none=maybe_none)
                for object_ in objects:
                    distinct.setdefault(object_.name, object_)
            else:
                for name in files_at(text, suffixes, maybe_none=maybe_none):
                    distinct.setdefault(real.of(name), LocalFile(name))
        return list(distinct.values())

    def readable(self, suffixes: tuple[str, ...], *, maybe_none: bool = False) -> list[InputFile]:
        """Return what :meth:`find` does, without objects whose names keep them from being opened.

        Warns of files in folders that are not read, although they end in something like it.

        Args:
            suffixes: The suffixes of the files to read from a folder.
            maybe_none: Whether a path may match no file.

        Raises:
            InvalidArgument: A path matches no file.
            DataError: A store fails.
        """
        unread: dict[str, list[str]] = {}
        found = self._found(suffixes, unread, maybe_none=maybe_none)
        for text in self.paths:
            if not is_remote(text) and Path(text).is_dir():
                unread[text] = unread_in(Path(text), suffixes)
        for text, names in unread.items():
            _warn_of_unread(text, names, suffixes)
        return [file for file in found if refusal_of(file) is None]

    def would_match(self, suffixes: tuple[str, ...], path: Path | str) -> bool:
        """Return whether :meth:`find` would return a file if it were there.

        Args:
            suffixes: The suffixes of the files to read from a folder.
            path: A path of this machine, or the name of an object.
        """
        if isinstance(path, str) and is_remote(path):
            name, texts = _comparable(path), map(_comparable, filter(is_remote, self.paths))
            return any(_matches(text, name, suffixes) for text in texts)
        local = tuple(text for text in self.paths if not is_remote(text))
        return would_match(local, suffixes, Path(path))

    def is_anything_there(self) -> bool:
        """Return whether each path is that of a file or a folder."""
        return all(
            _is_there(*self.stores.place(text)) if is_remote(text) else Path(text).exists()
            for text in self.paths
        )

    def require_places(self) -> None:
        """Raise ``InvalidArgument`` for a path that can never match: there is no such place.

        Folders of object stores come with their first object; but their bucket must be there.
        """
        require_places(tuple(text for text in self.paths if not is_remote(text)))
        for text in self.paths:
            if is_remote(text):
                store, path = self.stores.place(text)
                if not store.exists():
                    raise _no_root(store, path)


def _warn_of_unread(folder: str, names: list[str], suffixes: tuple[str, ...]) -> None:
    if not names:
        return
    shown = ", ".join(map(repr, names[:3])) + (f" and {len(names) - 3} more" if names[3:] else "")
    warnings.warn(
        DataWarning(
            f"not read in the folder {folder!r}: {shown}; what is read there ends in "
            f"{' or '.join(suffixes)}. Rename these files, name them as paths, or move them away"
        ),
        stacklevel=2,
    )


def refusal_of(file: InputFile) -> str | None:
    """Return why the name of an object keeps it from being opened; ``None`` if it does not."""
    return file.refusal if isinstance(file, RemoteFile) else None


def input_files(paths: PathsLike, filesystem: Any = None) -> InputFiles:
    """Return the files that the paths given to a reader lead to.

    Args:
        paths: Paths and URIs; with a filesystem, paths on it.
        filesystem: A ``pyarrow.fs.FileSystem`` or one of fsspec; ``None``: the URIs say.

    Raises:
        InvalidArgument: One is neither a path nor a URI of a filesystem that is known here.
        DataError: A filesystem cannot be reached.
    """
    texts = as_texts(paths)
    on = None if filesystem is None else filesystem_of(filesystem)
    if filesystem is not None and on is None:
        return InputFiles(texts)  # that of this machine
    stores: dict[str, Store] = {}
    names = []
    for text in texts:
        if on is None and not is_remote(text):
            _refuse_lost_slash(text)
            names.append(text)
            continue
        if on is None and text[:5].lower() == "file:":
            require_local(text)
        store, path = _store_of(text, on)
        known = stores.setdefault(store.name, store)
        if known.filesystem != store.filesystem:
            raise InvalidArgument(
                f"two paths name {store.name!r} with other credentials or options",
                hint="Give both the same, or use a reader for each",
            )
        names.append(store.name_of(path))
    return InputFiles(tuple(names), Stores(stores))


def _store_of(text: str, on: Any) -> tuple[Store, str]:
    """Return the store of a path, and the path in it.

    Args:
        text: A URI, or a path on ``on``.
        on: The filesystem; ``None``: the URI says.
    """
    if on is not None and not is_remote(text):
        kind = re.findall(r"[a-z0-9]+", re.split(r"::|\+", on.type_name)[-1])[0]
        if kind not in _SCHEMES_OF_BUCKETS:
            return Store(f"{kind}:/", on, "/" * text.startswith("/")), text.strip("/")
        bucket, _, path = text.partition("/")
        return Store(f"{_SCHEMES_OF_BUCKETS[kind]}://{bucket}", on, bucket), path.strip("/")
    if "::" in text.partition("://")[0]:
        raise InvalidArgument(
            f"{describe('path', without_secrets(text))} is a chain of filesystems",
            hint="Make the filesystem, and pass it as filesystem=",
        )
    uri = split_uri(text)
    require_plain(uri.name, uri.path)
    with told(uri.name):
        if on is not None:
            store = Store(uri.root, on, uri.authority or "/")
        else:
            store = Store(uri.root, *filesystem_at(uri.connection))
    # One slash at the end is that of a folder; any other empty part would name another object.
    path = uri.path.removesuffix("/")
    if uri.authority and path and (why := store.refusal(path)) is not None:
        raise InvalidArgument(
            f"{uri.name!r} names no object that can be read: {why}",
            hint="Rename the object, or pass filesystem= of fsspec, such as s3fs.S3FileSystem()",
        )
    return store, uri.path.strip("/")


def _objects_at(
    store: Store, path: str, suffixes: tuple[str, ...], unread: list[str], *, maybe_none: bool
) -> list[RemoteFile]:
    """Return the objects that a path matches; note in ``unread`` others that seem to be alike."""
    if glob.has_magic(path) and (matched := _globbed(store, path)):
        return matched
    stat = store.stat(path) if path else None
    if stat is not None:
        return [store.file(path, stat)]
    below = dict(store.files(path, deep=True))
    found = sorted(
        (one for one in below if _is_in_folder(one, path, suffixes)), key=lambda one: one.split("/")
    )
    if not found and not maybe_none:
        raise _nothing_in(store, path, below, suffixes)
    inside = len(path) + 1 if path else 0
    unread += unread_among((one[inside:] for one in below), suffixes)
    return [store.file(one, below[one]) for one in found]


def _is_there(store: Store, path: str) -> bool:
    return bool(path and store.stat(path)) or any(True for _ in store.files(path, deep=True))


def _globbed(store: Store, pattern: str) -> list[RemoteFile]:
    folder, rest = _split(pattern)
    found = store.files("/".join(folder), deep=len(rest) > 1 or rest[0] == "**")
    matched: dict[str, Stat] = {
        path: stat for path, stat in found if parts_match(rest, path.split("/")[len(folder) :])
    }
    return [store.file(path, matched[path]) for path in sorted(matched)]


def _split(pattern: str) -> tuple[list[str], list[str]]:
    """Return the parts of a pattern before the first that has magic, and from there on."""
    parts = pattern.split("/")
    first = next(at for at, part in enumerate(parts) if glob.has_magic(part))
    return parts[:first], parts[first:]


def _is_in_folder(path: str, folder: str, suffixes: tuple[str, ...]) -> bool:
    below = path[len(folder) + 1 :] if folder else path
    # "." and ".." are no hidden names but parts of keys that cannot be opened, which is said.
    hidden = any(
        part.startswith(("_", ".")) and part not in (".", "..") for part in below.split("/")
    )
    return path.endswith(suffixes) and not hidden


def _comparable(name: str) -> str:
    """Return the name of an object in one form, whichever of several its store accepts."""
    scheme, _, rest = name.partition("://")
    return f"{_SAME.get(scheme, scheme)}:/{rest.strip('/')}".rstrip("/")


def _matches(text: str, name: str, suffixes: tuple[str, ...]) -> bool:
    """Whether a URI that a source reads would match an object if it were there."""
    if glob.has_magic(text):
        folder, rest = _split(text)
        parts = name.split("/")
        return parts[: len(folder)] == folder and parts_match(rest, parts[len(folder) :])
    return name == text or (name.startswith(f"{text}/") and _is_in_folder(name, text, suffixes))


def _nothing_in(
    store: Store, path: str, below: dict[str, Stat], suffixes: tuple[str, ...]
) -> InvalidArgument:
    name = store.name_of(path)
    if below:
        return none_in(name, suffixes)
    if not store.exists():
        return _no_root(store, path)
    if glob.has_magic(path):
        return InvalidArgument(f"no file matches {name!r}", hint="Check the pattern")
    folder, _, last = path.rpartition("/")
    known = [one.rpartition("/")[2] for one, _ in store.files(folder, deep=False)]
    hint = nearest(last, known) if 0 < len(known) <= 20 else "Check the path"
    return InvalidArgument(f"there is no file {name!r}, nor any below it", hint=hint)


def _no_root(store: Store, path: str) -> InvalidArgument:
    return InvalidArgument(
        f"there is no {store.name!r}, of which {path!r} is to be read",
        hint="Check the name, and the endpoint and region: there may be others of that name",
    )


def _refuse_lost_slash(text: str) -> None:
    """Raise for a URI that was made a path: ``Path("s3://bucket")`` is ``s3:/bucket``."""
    scheme, _, rest = text.partition(":/")
    if scheme in _COMMON and not Path(text).exists():
        raise InvalidArgument(
            f"{describe('path', text)} has one slash after the scheme, as a URI that was made a "
            "Path",
            hint=f"Give it as text: {f'{scheme}://{rest}'!r}",
        )
