"""A server of S3's protocol that notes all that was ever visible, and fails when it is told to."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, final

import pytest
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.moto_server.werkzeug_app import create_backend_app
from moto.s3.models import s3_backends
from werkzeug.serving import WSGIRequestHandler, make_server

BUCKET = "bucket"
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "of-a-test",
    "AWS_SECRET_ACCESS_KEY": "of-a-test",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@final
class S3:
    """The server, seen from the tests.

    Attributes:
        fails: Which requests, by method and path with query, are answered with an error.
        versions: For each object all contents that it ever had, in the order of its uploads.
        requests: The methods and paths of all requests.
    """

    def __init__(self) -> None:
        self.fails: Callable[[str, str], bool] = lambda method, path: False
        self.versions: dict[str, list[bytes]] = defaultdict(list)
        self.requests: list[tuple[str, str]] = []
        self._moto = create_backend_app("s3")  # not by way of what asks which service is meant
        self._lock = threading.Lock()
        if BUCKET not in _buckets():  # all servers of a process have the same buckets
            s3_backends[DEFAULT_ACCOUNT_ID]["aws"].create_bucket(BUCKET, "us-east-1")
        self.server = make_server(
            "127.0.0.1", 0, self._answer, threaded=True, request_handler=_Quiet
        )

    def uri(self, folder: str, bucket: str = BUCKET) -> str:
        """Return the URI of a folder, as users of such servers write it."""
        server = f"127.0.0.1%3A{self.server.server_port}"
        return f"s3://{bucket}/{folder}?endpoint_override={server}&scheme=http&region=us-east-1"

    def objects(self, folder: str = "") -> dict[str, bytes]:
        """Return the objects below a folder, by what follows it; not those that mark folders."""
        kept = _buckets()[BUCKET].keys
        below = f"{folder}/" if folder else ""
        return {
            name[len(below) :]: kept[name].value
            for name in sorted(kept)
            if name.startswith(below) and not name.endswith("/")
        }

    def _answer(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        method = environ["REQUEST_METHOD"]
        path = f"{environ['PATH_INFO']}?{environ.get('QUERY_STRING', '')}"
        self.requests.append((method, path))
        if self.fails(method, path):
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            start("403 Forbidden", [("Content-Length", "0")])
            return [b""]
        # One at a time: so nothing is visible that is not noted.
        with self._lock:
            answer = list(self._moto(environ, start))
            if method in {"PUT", "POST"}:
                self._note(environ["PATH_INFO"].removeprefix(f"/{BUCKET}/"))
            return answer

    def _note(self, name: str) -> None:
        kept = _buckets()[BUCKET].keys if BUCKET in _buckets() else {}
        if name in kept and not name.endswith("/"):
            self.versions[name].append(kept[name].value)


class _Quiet(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: Any) -> None:  # as it is called
        pass


def _buckets() -> dict[str, Any]:
    found: dict[str, Any] = s3_backends[DEFAULT_ACCOUNT_ID]["aws"].buckets
    return found


def _remove_bucket() -> None:
    backend = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
    if BUCKET in _buckets():
        for name in list(_buckets()[BUCKET].keys):
            backend.delete_object(BUCKET, name)
        backend.delete_bucket(BUCKET)


@contextmanager
def running_s3() -> Iterator[S3]:
    """Run a server with one bucket, and let this process and its children know how to log in."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        s3 = S3()
        thread = threading.Thread(target=s3.server.serve_forever, daemon=True)
        thread.start()
        try:
            yield s3
        finally:
            s3.server.shutdown()
            thread.join()
            s3.server.server_close()
            _remove_bucket()
