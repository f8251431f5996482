"""The server of a run: what it answers, and what it costs to ask."""

from __future__ import annotations

import http.client
import json
import multiprocessing
import socket
import threading
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from lowwater.engine.graph.metrics import Metrics
from lowwater.errors import InvalidArgument, UnsupportedByRunner
from lowwater.live import server as served
from lowwater.live.feed import Feed
from lowwater.live.guard import TOKEN, Address
from lowwater.live.server import Busy, PageServer
from lowwater.live.snapshot import Snapshot, counters_of, totals_of

LOCAL = Address("127.0.0.1", 0, is_fixed=False)


class Fake:
    """Answers what is asked with what was asked."""

    def graph(self, theme: str) -> str:
        return f"<svg><!-- {theme} --></svg>"

    def keys(self, stage: str) -> list[dict[str, Any]]:
        return [{"key": f"'{stage}'", "count": 1}]

    def diagram(self, stage: str, key: str, theme: str) -> str:
        raise InvalidArgument(f"the key {key} does not occur in {stage}")

    def explain(self, stage: str, key: str, at: str) -> str:
        raise Busy("the run is in the middle of a bundle")


def snapshot(state: Any = "running", title: str = "a → b") -> Snapshot:
    metrics = Metrics(events=7)
    return {
        "title": title, "state": state, "error": None, "at": 1.0, "began": 0.0, "elapsed": 1.0,
        "totals": totals_of(metrics, 0.0), "parts": [], "late": [], "lateness": None,
        "dead_letters": [], "commits": None, "outputs": [], "workers": 0, "traced": True,
        "history": [], "counters": counters_of(metrics),
    }  # fmt: skip


@contextmanager
def serving(feed: Feed, address: Address = LOCAL) -> Iterator[PageServer]:
    server = PageServer(address, feed, Fake())
    server.start()
    try:
        yield server
    finally:
        server.close()


def port_of(server: PageServer) -> int:
    return int(server.link.rpartition(":")[2].partition("/")[0])


def get(
    server: PageServer, path: str, headers: dict[str, str] | None = None
) -> tuple[int, dict[str, str], bytes]:
    with closing(http.client.HTTPConnection("127.0.0.1", port_of(server), timeout=10)) as asked:
        asked.request("GET", path, headers=headers or {})
        answer = asked.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()


def shown(*, last: bool = False, **given: Any) -> Feed:
    feed = Feed()
    feed.put(snapshot(**given), last=last)
    return feed


def test_the_page_loads_nothing_from_elsewhere_and_has_no_data() -> None:
    with serving(shown(title="a secret title")) as server:
        status, headers, body = get(server, "/")
        again = get(server, "/")[1]
    assert status == 200
    assert b"secret title" not in body
    assert b"http://" not in body.replace(b"http://www.w3.org", b"")
    assert b"https://" not in body
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert policy != again["Content-Security-Policy"], "the nonce is used once"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"


def test_a_snapshot_and_metrics_are_answered() -> None:
    with serving(shown(last=True, state="ended")) as server:
        assert json.loads(get(server, "/snapshot.json")[2])["totals"]["events"] == 7
        status, headers, body = get(server, "/metrics")
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert b"lowwater_" in body


def test_metrics_wait_for_a_snapshot_that_is_made_for_them() -> None:
    feed = shown()

    def run() -> None:
        while not feed.is_wanted:
            pass
        feed.put(snapshot(title="new"))

    maker = threading.Thread(target=run)
    maker.start()
    with serving(feed) as server:
        assert json.loads(get(server, "/snapshot.json")[2])["title"] == "new"
    maker.join()


def test_errors_of_questions_are_said() -> None:
    with serving(shown()) as server:
        assert get(server, "/keys?stage=s")[2] == b'[{"key": "\'s\'", "count": 1}]'
        assert get(server, "/graph.svg?theme=dark")[2] == b"<svg><!-- dark --></svg>"
        assert get(server, "/graph.svg?theme=%3Cscript%3E")[2] == b"<svg><!-- auto --></svg>"
        status, headers, body = get(server, "/diagram?stage=s&key=%3Cb%3E")
        assert status == 400
        assert headers["Content-Type"].startswith("text/html"), "it is shown in a frame"
        assert b"the key &lt;b&gt; does not occur" in body
        status, _, body = get(server, "/explain?stage=s&key=1&at=x")
        assert status == 503
        assert get(server, "/nothing")[0] == 404
        assert get(server, "/../etc/passwd")[0] == 404


def test_before_the_first_snapshot_there_is_nothing_to_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "_FRESH_S", 0.01)
    with serving(Feed()) as server:
        assert get(server, "/metrics")[0] == 503
        assert get(server, "/health")[0] == 200


@pytest.mark.parametrize(
    ("state", "query", "status"),
    [
        ("running", "", 200),
        ("running", "?within=1000000", 200),
        ("running", "?within=-1", 503),
        ("running", "?within=soon", 400),
        ("ended", "", 200),
        ("failed", "", 503),
    ],
)
def test_health(state: str, query: str, status: int) -> None:
    with serving(shown(state=state)) as server:
        assert get(server, f"/health{query}")[0] == status


def events(server: PageServer, after: str = "") -> Generator[tuple[str, Any], None, None]:
    """Yield the events of a stream until it ends."""
    with closing(socket.create_connection(("127.0.0.1", port_of(server)), timeout=10)) as reader:
        reader.sendall(f"GET /events{after} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        name = ""
        for line in reader.makefile("rb"):
            if line.startswith(b"event: "):
                name = line[7:].decode().strip()
            elif line.startswith(b"data: "):
                yield name, json.loads(line[6:])


def test_events_have_each_snapshot_and_then_the_end() -> None:
    feed = shown(title="first")
    found = []
    with serving(feed) as server:
        for name, data in events(server):
            found.append((name, data.get("title")))
            if found[-1] == ("snapshot", "first"):
                feed.put(snapshot(title="second"))
            elif found[-1] == ("snapshot", "second"):
                feed.put(snapshot(title="last", state="failed"), last=True)
    assert [one for one in found if one[0] != "alive"] == [
        ("snapshot", "first"), ("snapshot", "second"), ("snapshot", "last"), ("end", None),
    ]  # fmt: skip


def test_who_comes_after_the_end_gets_the_last_snapshot() -> None:
    with serving(shown(state="ended", last=True)) as server:
        assert [name for name, _ in events(server)] == ["snapshot", "end"]


def test_a_slow_reader_is_dropped_and_costs_the_run_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(served, "_WRITE_S", 0.2)
    feed = shown()
    with serving(feed) as server:
        with closing(socket.socket()) as reader:
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            reader.connect(("127.0.0.1", port_of(server)))
            reader.sendall(b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            # It reads nothing. Each snapshot is larger than all buffers between the two.
            large = "x" * 20_000_000
            while not server._server.streams:
                pass
            feed.put(snapshot(title=large))
            assert server._server.left.wait(10), "its thread is gone, though it is still connected"
        feed.put(snapshot(title="next"))
        assert next(events(server))[1]["title"] == "next"


def test_connections_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "_EVENTS", 2)
    with serving(shown()) as server:
        first, second = events(server), events(server)
        next(first)
        next(second)
        status, _, body = get(server, "/events")
        assert status == 503
        assert b"open already" in body
        first.close()
        second.close()
    monkeypatch.setattr(served, "_CONNECTIONS", 1)
    with serving(shown()) as server:
        one = events(server)
        next(one)
        with pytest.raises((ConnectionError, http.client.BadStatusLine)):
            get(server, "/health")
        one.close()


@pytest.mark.parametrize("path", ["/", "/events", "/metrics", "/health", "/snapshot.json", "/keys"])
@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Origin": "https://evil.example"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
    ],
)
def test_strangers_get_nothing(path: str, headers: dict[str, str]) -> None:
    with serving(shown(title="private")) as server:
        for query in ("", "?token=wrong"):
            status, given, body = get(server, path + query, headers)
            assert status == 403
            assert b"private" not in body
            assert "Access-Control-Allow-Origin" not in given


def test_another_address_needs_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN, "a-token-of-my-own")
    bearer = {"Authorization": "Bearer a-token-of-my-own"}
    with serving(shown(state="ended", last=True), Address("0.0.0.0", 0, is_fixed=False)) as server:
        assert server.link.endswith("/?token=a-token-of-my-own")
        assert int(server.link.split(":")[2].split("/")[0]) > 0
        port = int(server.link.split(":")[2].split("/")[0])
        for path, headers, status in (
            ("/metrics", {}, 403),
            ("/metrics?token=a-token-of-my-own", {}, 200),
            ("/metrics", bearer, 200),
            ("/metrics", {"Authorization": "Bearer wrong"}, 403),
            ("/metrics", {"Authorization": "Basic a-token-of-my-own"}, 403),
        ):
            with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as asked:
                asked.request("GET", path, headers=headers)
                assert asked.getresponse().status == status


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_can_be_changed(method: str) -> None:
    with serving(shown()) as server:
        asked = http.client.HTTPConnection("127.0.0.1", port_of(server), timeout=10)
        with closing(asked):
            asked.request(method, "/")
            assert asked.getresponse().status == 501


@pytest.mark.parametrize(
    "sent", [b"", b"\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\x00" * 100_000]
)
def test_what_is_no_request_harms_nobody(sent: bytes) -> None:
    with serving(shown()) as server:
        with closing(socket.create_connection(("127.0.0.1", port_of(server)))) as stranger:
            stranger.sendall(sent)
        assert get(server, "/health")[0] == 200


def test_a_port_that_is_taken() -> None:
    with serving(shown()) as server:
        port = port_of(server)
        with serving(shown(), Address("127.0.0.1", port, is_fixed=False)) as other:
            assert port_of(other) != port
        with pytest.raises(InvalidArgument, match="takes a port that is free"):
            PageServer(Address("127.0.0.1", port, is_fixed=True), shown(), Fake())
    with pytest.raises(InvalidArgument, match="an address of this machine"):
        PageServer(Address("203.0.113.1", 8000, is_fixed=True), shown(), Fake())


def test_nothing_is_left_after_the_end() -> None:
    before = threading.active_count()
    with serving(shown(state="ended", last=True)) as server:
        assert get(server, "/health")[0] == 200
        port = port_of(server)
    assert threading.active_count() <= before + 1  # of a request whose thread is about to end
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_a_forked_process_keeps_no_port_and_no_reader() -> None:
    """Worker processes outlive the server of another run of the same program."""
    feed, go = shown(), multiprocessing.get_context("fork").Event()
    with serving(feed) as server:
        port = port_of(server)
        reader = socket.create_connection(("127.0.0.1", port), timeout=10)
        with closing(reader), closing(reader.makefile("rb")) as file:
            reader.sendall(b"GET /events HTTP/1.0\r\nHost: localhost\r\n\r\n")
            while not file.readline().startswith(b"data:"):
                pass
            child = multiprocessing.get_context("fork").Process(target=go.wait)
            child.start()
            try:
                assert get(server, "/health")[0] == 200, "the parent goes on"
                feed.put(snapshot(state="ended"), last=True)
                assert file.read().endswith(b"event: end\ndata: {}\n\n")
                server.close()
                with pytest.raises(ConnectionRefusedError):
                    socket.create_connection(("127.0.0.1", port))
            finally:
                go.set()
                child.join()


def test_where_no_thread_can_be_started_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    server = PageServer(LOCAL, shown(), Fake())
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(UnsupportedByRunner, match="in a thread of its own"):
            server.start()
    server.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port_of(server)))


@pytest.mark.parametrize("host", ["a\0b", "é" * 80, "\ud800"])
def test_what_is_no_host_is_refused(host: str) -> None:
    with pytest.raises(InvalidArgument, match="is not the name of a host"):
        PageServer(Address(host, 0, is_fixed=False), shown(), Fake())


def test_a_request_that_drips_in_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes in time, and the request never does: 32 of these would shut others out."""
    monkeypatch.setattr(served, "_READ_S", 0.3)
    with serving(shown()) as server:
        with closing(socket.create_connection(("127.0.0.1", port_of(server)), timeout=0.05)) as s:
            assert any(is_closed_after(s, b"a") for _ in range(200))
        assert get(server, "/health")[0] == 200


def is_closed_after(reader: socket.socket, sent: bytes) -> bool:
    """Send something; return whether the other side has closed the connection."""
    try:
        reader.sendall(sent)
        return not reader.recv(1)
    except TimeoutError:
        return False
    except OSError:
        return True


@pytest.mark.parametrize(
    ("request_line", "status"), [("GET http://[/health", 400), ("GET /health", 403)]
)
def test_brackets_that_do_not_match_are_answered(request_line: str, status: int) -> None:
    sent = f"{request_line} HTTP/1.1\r\nHost: localhost\r\nOrigin: http://[\r\n\r\n".encode()
    with serving(shown()) as server:
        port = port_of(server)
        with closing(socket.create_connection(("127.0.0.1", port), timeout=10)) as asked:
            asked.sendall(sent)
            assert asked.recv(100).startswith(f"HTTP/1.0 {status} ".encode())
