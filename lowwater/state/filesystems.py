"""Finds the filesystem that a URI names: object stores, HDFS, and whatever fsspec knows."""

from __future__ import annotations

import re
from typing import Any

from lowwater.errors import InvalidArgument, describe

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")  # a drive of Windows has one letter
_HADOOP = re.compile(r"s3[an](?=:)")


def is_uri(place: str) -> bool:
    """Return whether text names a place by a scheme, such as ``s3://bucket/folder``."""
    return _SCHEME.match(place) is not None


def filesystem_at(place: str, filesystem: Any = None) -> tuple[Any, str]:
    """Return the filesystem of a place, and the path there.

    Args:
        place: A URI that Arrow or fsspec knows; ``s3a:`` and ``s3n:`` are read as ``s3:``. With a
            filesystem, a path on it.
        filesystem: A ``pyarrow.fs.FileSystem`` for what a URI cannot say, such as credentials.

    Returns:
        A ``pyarrow.fs.FileSystem``, or ``None`` for the local one, and the path on it.

    Raises:
        InvalidArgument: Nothing here knows this kind of URI.
        OSError: The filesystem is out of reach.
    """
    from pyarrow.fs import LocalFileSystem

    path = place
    if filesystem is None:
        filesystem, path = _resolved(_HADOOP.sub("s3", place, count=1))
    return (None if isinstance(filesystem, LocalFileSystem) else filesystem), path


def _resolved(uri: str) -> tuple[Any, str]:
    import pyarrow as pa
    from pyarrow.fs import FileSystem, FSSpecHandler, PyFileSystem

    try:
        return FileSystem.from_uri(uri)
    except pa.ArrowInvalid as error:
        if "Unrecognized filesystem type" not in str(error):
            raise
        try:
            from fsspec.core import url_to_fs
        except ImportError:
            raise InvalidArgument(
                f"{describe('path', uri)}: Arrow does not know this filesystem",
                hint="Install fsspec and its package for this filesystem, or pass filesystem=",
            ) from error
    try:
        filesystem, path = url_to_fs(uri)
    except (ValueError, ImportError) as error:
        raise InvalidArgument(
            f"{describe('path', uri)}: neither Arrow nor fsspec can open it: {error}",
            hint="Install what it names, or pass filesystem=",
        ) from error
    return PyFileSystem(FSSpecHandler(filesystem)), path
