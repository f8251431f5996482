"""Resolves files, folders and globs to a sorted list of files."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeAlias, final

from lowwater.errors import InvalidArgument, describe, nearest
from lowwater.state.filesystems import without_secrets

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.:-]+")  # a drive of Windows has one letter

_SEPARATOR = os.sep
_NOT_READ = (f"{_SEPARATOR}_", f"{_SEPARATOR}.")

PathLike: TypeAlias = str | os.PathLike[str]
PathsLike: TypeAlias = PathLike | Iterable[PathLike]


def as_paths(paths: PathsLike, name: str = "paths", *, writes: bool = False) -> tuple[str, ...]:
    """Convert one path or several to a tuple of strings.

    Args:
        paths: The path or the paths.
        name: What error messages call them.
        writes: Whether something is written there, for messages.

    Raises:
        InvalidArgument: The value is neither a path nor a non-empty collection of paths.

    >>> as_paths("data/*.csv")
    ('data/*.csv',)
    """
    found = as_texts(paths, name)
    for path in found:
        require_local(path, writes=writes)
    return found


def as_texts(paths: PathsLike, name: str = "paths") -> tuple[str, ...]:
    """Convert one path or URI, or several, to a tuple of strings.

    Raises:
        InvalidArgument: The value is neither a path nor a non-empty collection of paths.
    """
    given = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    hint = "Give a file, a folder or a glob"
    try:
        found = tuple(os.fspath(path) for path in given)
    except TypeError:
        raise InvalidArgument(f"{describe(name, paths)} is not a path", hint=hint) from None
    if not found:
        raise InvalidArgument(f"{describe(name, paths)} names no file", hint=hint)
    return found


def is_remote(name: str) -> bool:
    """Return whether a name is a URI and not a path of this machine.

    >>> is_remote("s3://bucket/a"), is_remote("a:b/c"), is_remote("C://a")
    (True, False, False)
    """
    scheme, found, _ = name.partition("://")
    return bool(found) and _SCHEME.fullmatch(scheme) is not None


def require_local(path: str, *, writes: bool = False) -> None:
    """Raise ``InvalidArgument`` for a URL where only files of this machine will do.

    Args:
        path: The path.
        writes: Whether something is written there, for the hint.

    >>> require_local("file:///data/clicks")
    Traceback (most recent call last):
    lowwater.errors.InvalidArgument: path='file:///data/clicks' (str) is a URL, not a path. Write
    '/data/clicks'
    """
    if not is_remote(str(path)):
        return
    scheme, _, rest = str(path).partition("://")
    if scheme.lower() == "file":
        raise InvalidArgument(
            f"{describe('path', path)} is a URL, not a path",
            hint=f"Write {'/' + rest.lstrip('/')!r}",
        )
    raise InvalidArgument(
        f"{describe('path', without_secrets(path))} is in a remote store, and only local files "
        "will do here",
        hint="Write to a local path and copy it there afterwards, or mount the store"
        if writes
        else "Copy or mount it; from a store, lw.read_parquet, lw.read_csv and lw.read_jsonl read",
    )


def files_at(text: str, suffixes: tuple[str, ...], *, maybe_none: bool = False) -> list[str]:
    """Return the files that a path matches, sorted, by their names.

    A folder matches the files below it with one of the ``suffixes``, except files and folders
    whose name begins with ``_`` or ``.``.

    Args:
        text: A file, a folder or a glob.
        suffixes: The suffixes of the files to read from a folder.
        maybe_none: Whether it may match no file.

    Raises:
        InvalidArgument: It matches no file.
    """
    path = Path(text)
    if path.is_file():
        return [str(path)]
    if path.is_dir():
        in_folder = _in_folder(path, suffixes)
        if not in_folder and not maybe_none:
            raise none_in(str(path), suffixes)
        return in_folder
    matches = [Path(match) for match in sorted(glob.glob(text, recursive=True))]  # noqa: PTH207
    files = [str(match) for match in matches if match.is_file()]
    if not files and not maybe_none:
        raise _nothing_at(path)
    return files


@final
class RealPaths:
    """Resolves the paths of files; each folder is resolved once."""

    def __init__(self) -> None:
        self._folders: dict[str, str] = {}

    def of_name(self, name: str) -> str:
        """Return the same for the name of a file; that of an object, which has but one name."""
        return name if is_remote(name) else self.of(name)

    # Text, not paths: this is done for each of many files, and to make a Path takes longer.
    def of(self, path: str) -> str:
        """Return a file's path without symbolic links and ``..``; the file may be gone."""
        if os.path.islink(path):  # noqa: PTH114
            return os.path.realpath(path)
        folder, name = os.path.split(path)
        if folder not in self._folders:
            self._folders[folder] = os.path.realpath(folder)
        return os.path.join(self._folders[folder], name)  # noqa: PTH118


def would_match(paths: tuple[str, ...], suffixes: tuple[str, ...], path: Path) -> bool:
    """Return whether :func:`files_at` would return a file if it were there."""
    file = Path(os.path.realpath(path))
    for text in paths:
        if glob.has_magic(text) and not Path(text).exists():
            if _glob_matches(Path(text), file):
                return True
            continue
        root = Path(os.path.realpath(text))
        if file == root:
            return True
        if root in file.parents and not root.is_file() and file.name.endswith(suffixes):
            below = file.relative_to(root).parts
            if not any(part.startswith(("_", ".")) for part in below):
                return True
    return False


def fixed_part(text: str) -> Path:
    """Return a path without symbolic links, up to the first part that is a pattern.

    That of an object lies in no folder of this machine, as ``//s3:/bucket`` does not either.
    """
    if is_remote(text):
        return Path(f"//{text}")
    path = Path(text)
    if not glob.has_magic(text) or path.exists():
        return Path(os.path.realpath(path))
    return Path(os.path.realpath(Path(*_split(path)[0])))


def _split(pattern: Path) -> tuple[list[str], list[str]]:
    """Return the parts of a pattern before the first that has magic, and from there on."""
    parts = list(pattern.parts)
    first = next(at for at, part in enumerate(parts) if glob.has_magic(part))
    return parts[:first], parts[first:]


def _glob_matches(pattern: Path, file: Path) -> bool:
    fixed, rest = _split(pattern)
    root = Path(os.path.realpath(Path(*fixed)))
    return root in file.parents and parts_match(rest, list(file.relative_to(root).parts))


def parts_match(patterns: list[str], parts: list[str]) -> bool:
    """Return whether the parts of a path match those of a pattern, as :mod:`glob` does it."""
    if not patterns or not parts:
        return not parts and all(pattern == "**" for pattern in patterns)
    first, *rest = patterns
    hidden = parts[0].startswith(".") and not first.startswith(".")
    if first == "**":
        below = not hidden and parts_match(patterns, parts[1:])
        return below or parts_match(rest, parts)
    return not hidden and fnmatchcase(parts[0], first) and parts_match(rest, parts[1:])


def require_places(paths: tuple[str, ...]) -> None:
    """Raise ``InvalidArgument`` for a path that does not exist and is no glob: it cannot match."""
    for text in paths:
        if not glob.has_magic(text) and not Path(text).exists():
            raise _nothing_at(Path(text))


def _in_folder(folder: Path, suffixes: tuple[str, ...]) -> list[str]:
    found = sorted(
        (
            name
            for name, entry in _below(str(folder))
            if name.endswith(suffixes) and _is_read(name) and _is_file(entry)
        ),
        key=lambda name: os.path.normcase(name).split(_SEPARATOR),  # as paths are sorted
    )
    start = "" if str(folder) == os.curdir else os.path.join(folder, "")  # noqa: PTH118
    return [start + name for name in found]


def _is_read(name: str) -> bool:
    """Whether no part of a path in a folder begins with a sign of what is not to be read."""
    return not (name.startswith(("_", ".")) or any(sign in name for sign in _NOT_READ))


def _below(folder: str, prefix: str = "") -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield what is below a folder, by its path there; links to folders are not followed.

    One look at each folder says which of its entries are files. To ask for each, as ``Path.rglob``
    makes one do, takes several times as long.
    """
    try:
        with os.scandir(folder) as entries:
            found = list(entries)
    except PermissionError:  # as it is for a glob
        return
    for entry in found:
        name = prefix + entry.name
        yield name, entry
        if entry.is_dir(follow_symlinks=False):
            yield from _below(entry.path, name + _SEPARATOR)


def _is_file(entry: os.DirEntry[str]) -> bool:
    # What an entry of itself says of links differs from what a path says, as of those in a circle.
    return Path(entry).is_file() if entry.is_symlink() else entry.is_file()


_ALIKE = (("csv", "tsv"), ("json", "jsonl", "ndjson"), ("parquet", "parq", "pq"))
"""What files of one kind may end in, before an ending for their compression."""


def unread_in(folder: Path, suffixes: tuple[str, ...]) -> list[str]:
    """Return the files below a folder that seem to be of the kind that is read, but are not."""
    below = (name.replace(_SEPARATOR, "/") for name, _ in _below(str(folder)))
    return [name for name in unread_among(below, suffixes) if (folder / name).is_file()]


def unread_among(names: Iterable[str], suffixes: tuple[str, ...]) -> list[str]:
    """Return names in a folder that seem to be of files of the kind that is read, but are not.

    Their endings are like ``suffixes``, as ``.CSV`` or ``.csv.zst`` are like ``.csv``.
    """
    wanted = {suffix.split(".")[1] for suffix in suffixes}
    alike = {one for kind in _ALIKE if wanted & set(kind) for one in kind}
    found = []
    for name in names:
        *_, last = parts = name.split("/")
        if last.endswith(suffixes) or not alike & set(last.lower().split(".")[1:][-2:]):
            continue
        if not any(part.startswith(("_", ".")) for part in parts):
            found.append(name)
    return sorted(found)


def none_in(folder: str, suffixes: tuple[str, ...]) -> InvalidArgument:
    """Return the error for a folder without files to read."""
    return InvalidArgument(
        f"the folder {folder!r} holds no files that end in {' or '.join(suffixes)}",
        hint="Give the files themselves, or a glob",
    )


def _nothing_at(path: Path) -> InvalidArgument:
    if glob.has_magic(str(path)):
        return InvalidArgument(f"no file matches {str(path)!r}", hint="Check the pattern")
    parent = path.parent
    if not parent.is_dir():
        return InvalidArgument(
            f"there is no file {str(path)!r}, nor a folder {str(parent)!r}", hint="Check the path"
        )
    known = [entry.name for entry in parent.iterdir()]
    hint = nearest(path.name, known) if 0 < len(known) <= 20 else "Check the path"
    return InvalidArgument(f"there is no file {str(path)!r}", hint=hint)
