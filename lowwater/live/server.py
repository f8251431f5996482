"""Serves a run over HTTP: the page, its data as events, and metrics for machines.

It only reads what :class:`~lowwater.live.feed.Feed` has, and asks the run what
:class:`Questions` names; every answer is a GET, and nothing changes the run.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Protocol, cast, final
from urllib.parse import parse_qs, urlsplit
from weakref import WeakSet

from lowwater.display.html import escaped
from lowwater.display.palette import THEMES, Theme
from lowwater.errors import InvalidArgument, LowwaterError, UnsupportedByRunner, describe
from lowwater.live.feed import Feed
from lowwater.live.guard import Address, Guard
from lowwater.live.page import live_page
from lowwater.live.prometheus import CONTENT_TYPE, exposition

_READ_S = 10.0
_WRITE_S = 5.0
_ALIVE_S = 2.0
_FRESH_S = 1.0
_FAREWELL_S = 1.0
_CONNECTIONS = 32
_EVENTS = 16
_LONGEST = 8_192
_POLICY = (
    "default-src 'none'; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; "
    "connect-src 'self'; frame-src 'self'; img-src 'self' data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'self'"
)
# Of a diagram, which has its own script, and stands in a frame that may do nothing else.
_SANDBOX = (
    "sandbox allow-scripts; default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'"
)


class Busy(Exception):
    """The run does not answer now: it is in the middle of a bundle, or waits for its source."""


class Questions(Protocol):
    """What a run answers besides its snapshots. Each may raise :class:`Busy`."""

    def graph(self, theme: Theme) -> str:
        """Return the graph as SVG."""
        ...

    def keys(self, stage: str) -> list[dict[str, Any]]:
        """Return the keys of a stage that can be drawn, and how many elements each has."""
        ...

    def diagram(self, stage: str, key: str, theme: Theme) -> str:
        """Return a diagram as an HTML document."""
        ...

    def explain(self, stage: str, key: str, at: str) -> str:
        """Explain a window."""
        ...


class Answer(NamedTuple):
    """What is sent back."""

    status: int
    kind: str
    body: bytes
    policy: str = "default-src 'none'"


@final
class PageServer:
    """A server in threads of its own.

    Args:
        address: Where to listen. It does so at once, and answers after :meth:`start`.
        feed: What it shows.
        questions: Whom it asks for the rest.

    Raises:
        InvalidArgument: It cannot listen there.
    """

    def __init__(self, address: Address, feed: Feed, questions: Questions) -> None:
        guard = Guard.of(address)
        self._server = _listening(address)
        self._server.set_up(feed, questions, guard)
        self._feed = feed
        self._thread: threading.Thread | None = None
        self.link = guard.link(replace(address, port=self._server.server_address[1]))

    def start(self) -> None:
        """Begin to answer.

        Raises:
            UnsupportedByRunner: There are no threads here.
        """
        if self._thread is not None:
            return
        thread = threading.Thread(
            target=self._server.serve_forever, name="lowwater page", daemon=True,
            kwargs={"poll_interval": 0.1},
        )  # fmt: skip
        try:
            thread.start()
        except RuntimeError as error:
            raise _no_server(error) from error
        self._thread = thread  # not before: close() waits for one that runs

    def close(self) -> None:
        """Stop, after readers of events have got the last one; waits for them a second at most."""
        if self._thread is not None:
            until = time.monotonic() + _FAREWELL_S
            while self._server.streams and time.monotonic() < until:
                self._server.left.wait(until - time.monotonic())
                self._server.left.clear()
            self._server.shutdown()
            self._thread.join()
            self._thread = None
        self._server.server_close()


def _listening(address: Address) -> _Server:
    try:
        return _Server(address)
    except (TypeError, UnicodeError) as error:  # a host that no name can be
        raise InvalidArgument(
            f"{describe('serve', address.host)} is not the name of a host",
            where="run(serve=)",
            hint='Use an address of this machine: "0.0.0.0:8000"',
        ) from error
    except OSError as error:
        if sys.platform == "emscripten":
            raise _no_server(error) from error
        if error.errno == errno.EADDRINUSE and not address.is_fixed:
            return _Server(replace(address, port=0))
        raise InvalidArgument(
            f"{address.host}:{address.port} cannot be listened on: {error.strerror or error}",
            where="run(serve=)",
            hint="serve=True takes a port that is free"
            if error.errno == errno.EADDRINUSE
            else "Use an address of this machine, and a port from 1024 on",
        ) from error


def _no_server(error: Exception) -> UnsupportedByRunner:
    return UnsupportedByRunner(
        f"the page needs a server in a thread of its own, and there is none here: {error}",
        where="run(serve=)",
        hint='Write the page when the run has ended: collect().report("run.html")',
    )


class _Server(ThreadingHTTPServer):
    """Has a bounded number of connections: one more is closed at once."""

    daemon_threads = True
    block_on_close = False
    feed: Feed
    questions: Questions
    guard: Guard

    def __init__(self, address: Address) -> None:
        if ":" in address.host:
            self.address_family = socket.AF_INET6
        self._free = threading.BoundedSemaphore(_CONNECTIONS)
        self.streams: set[socket.socket] = set()
        self.left = threading.Event()
        self.counting = threading.Lock()
        # With when the request must have come; infinity once it has.
        self._connections: dict[socket.socket, float] = {}
        super().__init__((address.host, address.port), _Handler)
        _SERVERS.add(self)

    def set_up(self, feed: Feed, questions: Questions, guard: Guard) -> None:
        """Take what the handlers of requests need."""
        self.feed, self.questions, self.guard = feed, questions, guard

    def server_bind(self) -> None:
        # Without the look-up of its own name, which may take seconds.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "", self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        self._connections[request] = time.monotonic() + _READ_S
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread can be started
            self._connections.pop(request, None)
            self._free.release()
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._connections.pop(request, None)
            self._free.release()

    def received(self, request: socket.socket) -> None:
        """Note that a request has come: its connection may stay open."""
        self._connections[request] = float("inf")

    def service_actions(self) -> None:
        """Drop connections whose request takes too long, however steadily it drips in."""
        now = time.monotonic()
        for request, until in list(self._connections.items()):
            if now > until:
                with suppress(OSError):  # it has gone meanwhile
                    request.shutdown(socket.SHUT_RDWR)

    def leave_to_parent(self) -> None:
        """Close what a process that was forked has inherited; the parent goes on with its own."""
        for inherited in (self.socket, *self._connections):
            # Not close(): handlers have files over their sockets, and would keep them open.
            number = inherited.detach()
            if number >= 0:
                os.close(number)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keep silent about readers that went away."""


_SERVERS: WeakSet[_Server] = WeakSet()


def _leave_to_parent() -> None:
    for server in _SERVERS:
        server.leave_to_parent()


# Worker processes are forked. With a copy of a socket they would keep the port of a run that has
# ended, and let its readers wait.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)


class _Handler(BaseHTTPRequestHandler):
    timeout = _READ_S
    server_version = "lowwater"
    sys_version = ""

    def do_GET(self) -> None:
        server = cast("_Server", self.server)
        server.received(self.connection)
        try:
            parts = urlsplit(self.path[:_LONGEST])
        except ValueError:  # brackets that do not match
            self._send(_text(400, "this is no address"))
            return
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        refusal = server.guard.refusal(
            cast("Mapping[str, str]", self.headers),
            query.get("token", _bearer(self.headers.get("Authorization"))),
            page=parts.path == "/",
        )
        if refusal is not None:
            self._send(_text(403, refusal))
            return
        # A reader that takes nothing is dropped.
        self.connection.settimeout(_WRITE_S)
        if parts.path == "/events":
            self._events(server)
        else:
            self._send(_answer(server, parts.path, query))

    def _events(self, server: _Server) -> None:
        with server.counting:
            is_full = len(server.streams) >= _EVENTS
            if not is_full:
                server.streams.add(self.connection)
        if is_full:
            self._send(_text(503, f"{_EVENTS} pages are open already"))
            return
        try:
            self._head(200, "text/event-stream", None, "default-src 'none'")
            self.wfile.write(b"retry: 1000\n\n")
            feed, number = server.feed, 0
            while True:
                found = feed.wait(number, _ALIVE_S)
                if found is not None:
                    number = found.number
                    self.wfile.write(b"event: snapshot\ndata: " + found.text + b"\n\n")
                    if found.snapshot["state"] != "running":
                        self.wfile.write(b"event: end\ndata: {}\n\n")
                        return
                waited = round(time.monotonic() - feed.seen_at, 1)
                self.wfile.write(b'event: alive\ndata: {"waited":%.1f}\n\n' % waited)
        finally:
            with server.counting:
                server.streams.discard(self.connection)
            server.left.set()

    def _send(self, answer: Answer) -> None:
        self._head(answer.status, answer.kind, len(answer.body), answer.policy)
        self.wfile.write(answer.body)

    def _head(self, status: int, kind: str, length: int | None, policy: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if length is not None:
            self.send_header("Content-Length", str(length))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Security-Policy", policy)
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Referrer-Policy", "no-referrer")  # the token stays here
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Write no log of requests."""


def _bearer(authorization: str | None) -> str | None:
    """Return the token of an ``Authorization`` header: who sends one need not write it in a URL."""
    kind, _, token = (authorization or "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else None


def _answer(server: _Server, path: str, query: Mapping[str, str]) -> Answer:
    try:
        return _found(server, path, query)
    except Busy as error:
        status, text = 503, str(error)
    except LowwaterError as error:
        status, text = 400, str(error)
    if path == "/diagram":  # for the frame that would show it
        return Answer(status, "text/html; charset=utf-8", f"<p>{escaped(text)}</p>".encode())
    return _json(status, {"error": text})


def _found(server: _Server, path: str, query: Mapping[str, str]) -> Answer:
    feed, questions = server.feed, server.questions
    theme = cast("Theme", query.get("theme")) if query.get("theme") in THEMES else "auto"
    stage, key = query.get("stage", ""), query.get("key", "")
    if path == "/":
        nonce = secrets.token_urlsafe(12)
        page = live_page(nonce, theme)
        return Answer(200, "text/html; charset=utf-8", page.encode(), _POLICY.format(nonce=nonce))
    if path == "/health":
        return _health(feed, query.get("within"))
    if path in ("/metrics", "/snapshot.json"):
        found = _fresh(feed)
        if path == "/snapshot.json":
            return Answer(200, "application/json", found)
        shown = feed.latest()
        assert shown is not None  # as _fresh has found one
        return Answer(200, CONTENT_TYPE, exposition(shown.snapshot).encode())
    if path == "/graph.svg":
        drawn = questions.graph(theme)
        policy = "default-src 'none'; style-src 'unsafe-inline'"
        return Answer(200, "image/svg+xml", drawn.encode(), policy)
    if path == "/keys":
        return _json(200, questions.keys(stage))
    if path == "/diagram":
        document = questions.diagram(stage, key, theme)
        return Answer(200, "text/html; charset=utf-8", document.encode(), _SANDBOX)
    if path == "/explain":
        return _json(200, {"text": questions.explain(stage, key, query.get("at", ""))})
    return _text(404, "there is nothing here")


def _fresh(feed: Feed) -> bytes:
    """Return a snapshot made now, if the run is between two bundles; else the latest one.

    Raises:
        Busy: There is none yet.
    """
    latest = feed.latest()
    if not feed.is_over:
        latest = feed.wait(0 if latest is None else latest.number, _FRESH_S) or latest
    if latest is None:
        raise Busy("the run has not finished its first bundle")
    return latest.text


def _health(feed: Feed, within: str | None) -> Answer:
    shown = feed.latest()
    state = "running" if shown is None else shown.snapshot["state"]
    waited = round(time.monotonic() - feed.seen_at, 1)
    try:
        bound = float("inf") if within is None else float(within)
    except ValueError:
        return _json(400, {"error": "within= is a number of seconds"})
    is_well = state != "failed" and not waited > bound
    body = {"state": state, "waited": waited, "healthy": is_well}
    return _json(200 if is_well else 503, body)


def _text(status: int, text: str) -> Answer:
    return Answer(status, "text/plain; charset=utf-8", f"{text}\n".encode())


def _json(status: int, value: Any) -> Answer:
    return Answer(status, "application/json", json.dumps(value).encode())
