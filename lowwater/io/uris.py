"""Compares and names places in remote stores."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import final
from urllib.parse import parse_qs

from lowwater.errors import InvalidArgument
from lowwater.io.paths import is_remote, require_local
from lowwater.state.filesystems import require_plain, split_uri

_HINT = 'Use, say, "s3://bucket/folder"'
_SAME = {"gcs": "gs"}
_SERVERS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")


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
        's3://bucket/out'
        >>> RemotePlace.of("s3://bucket/out/x").at.is_relative_to(RemotePlace.of("s3://bucket").at)
        True
        """
        if "::" in uri:
            raise InvalidArgument(f"{uri!r} is a chain of filesystems", hint=_HINT)
        if uri[:5].lower() == "file:":
            require_local(uri, writes=True)
        parts = split_uri(uri)
        connection, _, options = parts.connection.partition("?")
        if ":" in connection.partition("://")[2].rpartition("@")[0]:
            raise InvalidArgument(
                f"the URI of {parts.name!r} holds a password, which would be stored and printed",
                hint="Leave it out and use the store's own settings, such as the environment "
                "variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
            )
        if not is_remote(uri) or not (parts.authority or parts.path.strip("/")):
            raise InvalidArgument(f"{uri!r} names no place in a store", hint=_HINT)
        require_plain(parts.name, parts.path)
        if "" in parts.path.strip("/").split("/")[1:]:
            raise InvalidArgument(
                f"{parts.name!r} has two slashes in a row", hint="Leave one of them out"
            )
        # The same bucket of another server is another place.
        scheme = connection.partition(":")[0]
        server = parse_qs(options).get("endpoint_override", [""])[-1]
        if scheme == "s3" and not server:
            server = next(filter(None, map(os.environ.get, _SERVERS)), "")
        server = server.rpartition("://")[2].rstrip("/")
        at = PurePosixPath(f"{_SAME.get(scheme, scheme)}:{server}", parts.authority)
        return cls(parts.name.rstrip("/"), at.joinpath(*parts.path.split("/")))
