"""Compares and names places in remote stores."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import final
from urllib.parse import parse_qs, urlsplit

from lowwater.errors import InvalidArgument

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.:-]+://")  # a drive of Windows has one letter
_HINT = 'Use, say, "s3://bucket/folder"'
_SAME = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}


def is_remote(path: str) -> bool:
    """Return whether text is the URI of a place in a store, and not a path on this machine.

    >>> is_remote("s3://bucket/out"), is_remote("file:///out"), is_remote("12:30/out")
    (True, False, False)
    """
    return _SCHEME.match(path) is not None and not path.lower().startswith("file:")


@final
@dataclass(frozen=True, slots=True)
class RemotePlace:
    """A file or folder in a remote store.

    Args:
        name: The URI without options, as messages and state directories have it.
        at: The same to compare: one place lies within another as paths do. It is never an absolute
            path, and so is within no local one.
    """

    name: str
    at: PurePosixPath

    @classmethod
    def of(cls, uri: str) -> RemotePlace:
        """Return the place that a URI names.

        Raises:
            InvalidArgument: The URI holds a password, is a chain, names no place, or is none.

        >>> RemotePlace.of("s3a://bucket/out/?region=eu-west-1").name
        's3a://bucket/out'
        >>> RemotePlace.of("s3://bucket/out/x").at.is_relative_to(RemotePlace.of("s3://bucket").at)
        True
        """
        if "::" in uri:
            raise InvalidArgument(f"{uri!r} is a chain of filesystems", hint=_HINT)
        try:
            parts = urlsplit(uri)
        except ValueError as error:
            raise InvalidArgument(f"{uri!r} is no URI: {error}", hint=_HINT) from error
        shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}".rstrip("/")
        if parts.password is not None:
            raise InvalidArgument(
                f"the URI of {shown!r} holds a password, which would be stored and printed",
                hint="Leave it out and use the store's own settings, such as the environment "
                "variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
            )
        if not is_remote(uri) or not (parts.netloc or parts.path.strip("/")):
            raise InvalidArgument(f"{uri!r} names no place in a store", hint=_HINT)
        # The same bucket of another server is another place.
        server = parse_qs(parts.query).get("endpoint_override", [""])[-1]
        scheme = f"{_SAME.get(parts.scheme, parts.scheme)}:{server}"
        return cls(shown, PurePosixPath(scheme, parts.netloc, *parts.path.split("/")))
