"""Finds the filesystem that a URI names: object stores, HDFS, and whatever fsspec knows."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from lowwater.errors import InvalidArgument, cause, describe

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")  # a drive of Windows has one letter
_KEYS_BEFORE_BUCKETS = {"s3", "gs", "gcs"}
_CONTAINERS_BEFORE_HOSTS = {"abfs", "abfss"}
_HADOOP = re.compile(r"s3[an](?=:)")


def is_uri(place: str) -> bool:
    """Return whether text names a place by a scheme, such as ``s3://bucket/folder``."""
    return _SCHEME.match(place) is not None


class Uri(NamedTuple):
    """The parts of a URI.

    Args:
        root: Scheme and authority without credentials: what is common to what lies there.
        authority: The authority without credentials, such as a bucket.
        path: The path within, as written: nothing in it is decoded.
        connection: The URI without its path, with credentials and options: never shown.
    """

    root: str
    authority: str
    path: str
    connection: str

    @property
    def name(self) -> str:
        """The URI without credentials and options, for people and for states."""
        return f"{self.root}/{self.path}" if self.path else self.root


def split_uri(uri: str) -> Uri:
    """Split a URI with an authority into its parts; what follows a ``?`` are options.

    >>> split_uri("s3a://id:secret@bucket/a/b.csv?region=eu-west-1").name
    's3://bucket/a/b.csv'
    """
    scheme, _, rest = uri.partition("://")
    scheme = _HADOOP.sub("s3", f"{scheme.lower()}:", count=1).removesuffix(":")
    before, _, options = rest.partition("?")
    given, _, path = before.partition("/")
    if scheme in _KEYS_BEFORE_BUCKETS and ":" in given and "@" in path and "@" not in given:
        # A key with a slash, which nothing can open: the more reason not to take it for a path.
        user, _, rest = before.rpartition("@")
        host, _, path = rest.partition("/")
        given = f"{user}@{host}"
    user, at, host = given.rpartition("@")
    kept = user.partition(":")[0] if scheme in _CONTAINERS_BEFORE_HOSTS else ""
    authority = f"{kept}{at}{host}" if kept else host
    connection = f"{scheme}://{given}" + (f"?{options}" if options else "")
    return Uri(f"{scheme}://{authority}", authority, path, connection)


def require_plain(name: str, path: str) -> None:
    """Raise ``InvalidArgument`` for a path with ``.`` or ``..`` as a part.

    The libraries that send requests resolve these in some of them, so that an object would be
    written, or looked for, elsewhere than its name says.

    Args:
        name: What error messages call it.
        path: The path within a store.
    """
    for part in path.split("/"):
        if part in (".", ".."):
            raise InvalidArgument(
                f"{name!r} has {part!r} as a part, which stores do not resolve",
                hint="Write where it leads to",
            )


def below(place: str, *names: str) -> str:
    """Return the place of something below a path or URI, which may have options.

    >>> below("s3://bucket/state?region=eu-west-1", "a", "b"), below("state/", "a")
    ('s3://bucket/state/a/b?region=eu-west-1', 'state/a')
    """
    path, mark, options = place.partition("?") if is_uri(place) else (place, "", "")
    return "/".join([path.rstrip("/"), *names]) + mark + options


def without_secrets(text: str) -> str:
    """Return a URI without credentials and options; a path as it is."""
    return split_uri(text).name if "://" in text else text


def filesystem_of(given: Any) -> Any:
    """Return the filesystem that a user gives, as Arrow's; ``None`` for that of this machine.

    Args:
        given: A ``pyarrow.fs.FileSystem``, or a filesystem of fsspec.

    Raises:
        InvalidArgument: It is none of these.
    """
    from pyarrow.fs import FileSystem, FSSpecHandler, LocalFileSystem, PyFileSystem

    if isinstance(given, FileSystem):
        return None if isinstance(given, LocalFileSystem) else given
    protocol = getattr(given, "protocol", None)
    if protocol is None or not callable(getattr(given, "find", None)):
        raise InvalidArgument(
            f"{describe('filesystem', given)} is not a filesystem",
            hint="Give one of pyarrow.fs, such as S3FileSystem(...), or of fsspec",
        )
    local = {protocol} if isinstance(protocol, str) else {*protocol}
    return None if "file" in local else PyFileSystem(FSSpecHandler(given))


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
        filesystem, path = _resolved(_bounded(_HADOOP.sub("s3", place, count=1)))
    return (None if isinstance(filesystem, LocalFileSystem) else filesystem), path


def _bounded(uri: str) -> str:
    """Return a URI of which no operation is repeated for long: by default, Google's are for 15 min.

    >>> _bounded("gs://bucket?anonymous=true"), _bounded("gs://b?retry_limit_seconds=5")
    ('gs://bucket?anonymous=true&retry_limit_seconds=60', 'gs://b?retry_limit_seconds=5')
    """
    if not uri.startswith(("gs://", "gcs://")) or "retry_limit_seconds=" in uri:
        return uri
    return f"{uri}{'&' if '?' in uri else '?'}retry_limit_seconds=60"


def _resolved(uri: str) -> tuple[Any, str]:
    import pyarrow as pa
    from pyarrow.fs import FileSystem, FSSpecHandler, PyFileSystem

    described = describe("path", without_secrets(uri))
    try:
        return FileSystem.from_uri(uri)
    except pa.ArrowInvalid as error:
        if "Unrecognized filesystem type" not in str(error):
            said = str(error).replace(uri, without_secrets(uri))
            raise InvalidArgument(
                f"{described} cannot be opened: {said}",
                hint="Write scheme://bucket/path?option=value&..., with % codes for what is "
                "special in credentials and options",
            ) from None
        try:
            from fsspec.core import url_to_fs
        except ImportError:
            raise InvalidArgument(
                f"{described}: Arrow does not know this filesystem",
                hint="Install fsspec and its package for this filesystem, or pass filesystem=",
            ) from cause(error)
    if "?" in uri:
        raise InvalidArgument(
            f"{described} has options (after the question mark), which only Arrow's filesystems do",
            hint="Pass filesystem=, made with the options",
        )
    try:
        filesystem, path = url_to_fs(uri)
    except (ValueError, ImportError) as error:
        raise InvalidArgument(
            f"{described}: neither Arrow nor fsspec can open it: {error}",
            hint="Install what it names, or pass filesystem=",
        ) from cause(error)
    return PyFileSystem(FSSpecHandler(filesystem)), path
