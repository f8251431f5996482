"""A server of S3's protocol in this process, for tests of object stores."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest


@dataclass(frozen=True)
class S3Server:
    """Where the server listens. Its buckets live as long as the process."""

    port: int
    _numbers: Iterator[int] = field(default_factory=itertools.count, repr=False)

    @property
    def query(self) -> str:
        """Return what a URI of Arrow needs to find the server."""
        return f"?endpoint_override=127.0.0.1%3A{self.port}&scheme=http&region=us-east-1"

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def filesystem(self) -> Any:
        """Return Arrow's filesystem of the server; paths on it begin with a bucket."""
        from pyarrow.fs import FileSystem

        return FileSystem.from_uri(
            f"s3://any{self.query}&allow_bucket_creation=true&allow_delayed_open=true"
        )[0]

    def bucket(self) -> str:
        """Make an empty bucket and return its name."""
        name = f"bucket-{next(self._numbers)}"
        self.filesystem().create_dir(name)
        return name

    def uri(self, path: str) -> str:
        """Return the URI of a path that begins with a bucket."""
        return f"s3://{path}{self.query}"


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """A server of S3's protocol; the environment has credentials that it accepts."""
    from tests.unit.io.watched_s3 import running_s3  # slow to import, and few tests need it

    with running_s3() as s3:
        yield S3Server(s3.server.server_port)
