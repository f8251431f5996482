"""Who may read the page of a run, and where it is shown."""

from __future__ import annotations

from typing import Any

import pytest

from lowwater.errors import InvalidArgument
from lowwater.live.guard import PORT, TOKEN, Address, Guard, is_loopback

LOCAL = Guard("secret-of-the-run", is_local=True)
NAMED = Guard("secret-of-the-run", is_local=False)


@pytest.mark.parametrize(
    ("serve", "host", "port"),
    [
        (True, "127.0.0.1", PORT),
        (8000, "127.0.0.1", 8000),
        (0, "127.0.0.1", 0),
        ("0.0.0.0:8000", "0.0.0.0", 8000),
        ("[::1]:80", "::1", 80),
        ("[::]:8000", "::", 8000),
        ("localhost:0", "localhost", 0),
    ],
)
def test_an_address_is_read(serve: Any, host: str, port: int) -> None:
    found = Address.of(serve)
    assert found is not None
    assert (found.host, found.port) == (host, port)
    # Where a port was named, another one would not be found by who looks for it.
    assert found.is_fixed == (serve is not True and port > 0)


@pytest.mark.parametrize("serve", [False, None])
def test_nothing_is_shown_unless_asked_for(serve: Any) -> None:
    assert Address.of(serve) is None


@pytest.mark.parametrize(
    "serve", [-1, 65_536, "8000", ":8000", "host", "host:", "host:x", "host:99999", "h:\u0663", 1.5]
)
def test_what_is_no_address_is_refused(serve: Any) -> None:
    with pytest.raises(InvalidArgument, match="does not say where to show the run"):
        Address.of(serve)


@pytest.mark.parametrize(
    "host", ["127.0.0.1:4410", "localhost:4410", "LOCALHOST", "[::1]:4410", "127.1.2.3:9"]
)
def test_who_is_on_the_machine_needs_no_token(host: str) -> None:
    assert LOCAL.refusal({"Host": host}, None, page=False) is None
    assert NAMED.refusal({"Host": host}, None, page=False) is not None


@pytest.mark.parametrize(
    "host",
    [
        "evil.example:4410", "127.0.0.1.evil.example:4410", "localhost.evil.example", "", "[::1",
        "0.0.0.0:4410", "evil.example@127.0.0.1.nip.io", "10.0.0.7:4410", "127.0.0.1:x@evil",
    ],
)  # fmt: skip
def test_a_foreign_name_that_leads_here_needs_the_token(host: str) -> None:
    assert LOCAL.refusal({"Host": host}, None, page=True) is not None
    assert LOCAL.refusal({"Host": host}, "secret-of-the-run", page=False) is None


@pytest.mark.parametrize("guard", [LOCAL, NAMED])
@pytest.mark.parametrize(
    "token",
    ["", "wrong", "secret-of-the-run ", "\udcff", "s" * 10_000],
    ids=["none", "wrong", "longer", "half a character", "long"],
)
def test_a_wrong_token_is_refused_everywhere(guard: Guard, token: str) -> None:
    refusal = guard.refusal({"Host": "127.0.0.1:4410"}, token, page=True)
    assert refusal == "the token is not that of this run"


@pytest.mark.parametrize("token", [None, "secret-of-the-run"])
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:8888"},  # another server on this machine
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
    ],
)
def test_another_site_gets_nothing(headers: dict[str, str], token: str | None) -> None:
    given = {"Host": "127.0.0.1:4410", **headers}
    assert LOCAL.refusal(given, token, page=True) == "another site asks"


def test_a_link_on_another_site_leads_to_the_page_and_to_nothing_else() -> None:
    followed = {
        "Host": "127.0.0.1:4410",
        "Sec-Fetch-Site": "cross-site",
        "Sec-Fetch-Mode": "navigate",
        "Sec-Fetch-Dest": "document",
    }
    assert LOCAL.refusal(followed, None, page=True) is None
    assert LOCAL.refusal(followed, None, page=False) == "another site asks"


def test_its_own_page_is_answered() -> None:
    own = {
        "Host": "127.0.0.1:4410",
        "Origin": "http://127.0.0.1:4410",
        "Sec-Fetch-Site": "same-origin",
    }
    assert LOCAL.refusal(own, None, page=False) is None


def test_the_link_has_the_token_where_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN, raising=False)
    local, named = (Address("127.0.0.1", 4410, False), Address("0.0.0.0", 8000, True))
    assert Guard.of(local).link(local) == "http://127.0.0.1:4410/"
    guard = Guard.of(named)
    assert guard.link(named) == f"http://0.0.0.0:8000/?token={guard.token}"
    assert len(guard.token) >= 20
    assert Guard.of(named).token != guard.token
    monkeypatch.setenv(TOKEN, "one that I chose")
    assert Guard.of(named).link(named) == "http://0.0.0.0:8000/?token=one%20that%20I%20chose"
    monkeypatch.setenv(TOKEN, "short")
    with pytest.raises(InvalidArgument, match="can be guessed"):
        Guard.of(named)


def test_loopback_is_told_from_names_that_look_like_it() -> None:
    assert is_loopback("localhost.")
    assert not is_loopback("localhost.evil.example")
    assert not is_loopback("127.0.0.1.evil.example")
    assert not is_loopback("")
