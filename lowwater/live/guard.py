"""Says where a run is shown, and who may read it.

A page on the loopback interface is for those who are logged in on the machine. Any web page that
they visit can send requests there, too: under a foreign name that leads to it (DNS rebinding), or
from another site. Both are refused. Everything else needs the token of the link.
"""

from __future__ import annotations

import ipaddress
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias, final
from urllib.parse import quote, urlsplit

from lowwater.errors import InvalidArgument, describe

Serve: TypeAlias = bool | int | str
"""``True``: on 127.0.0.1; a number: on that port there; or ``"host:port"``."""

PORT = 4410
TOKEN = "LOWWATER_SERVE_TOKEN"  # noqa: S105  # the name of a variable
_LARGEST_PORT = 65_535
_LEAST_TOKEN = 12
_FOREIGN = ("cross-site", "same-site")


@final
@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen.

    Args:
        host: An address or a name of this machine.
        port: The port; 0 for any that is free.
        is_fixed: Whether another port will not do.
    """

    host: str
    port: int
    is_fixed: bool

    @classmethod
    def of(cls, serve: object) -> Address | None:
        """Return what ``serve=`` asks for; ``None`` for nothing.

        Raises:
            InvalidArgument: It is no address.

        >>> Address.of("0.0.0.0:8000")
        Address(host='0.0.0.0', port=8000, is_fixed=True)
        """
        if serve is None or serve is False:
            return None
        if serve is True:
            return cls("127.0.0.1", PORT, is_fixed=False)
        if isinstance(serve, int) and 0 <= serve <= _LARGEST_PORT:
            return cls("127.0.0.1", serve, is_fixed=serve > 0)
        if isinstance(serve, str):
            host, colon, port = serve.strip().rpartition(":")
            host = host.removeprefix("[").removesuffix("]")
            is_number = port.isascii() and port.isdecimal() and len(port) <= len(str(_LARGEST_PORT))
            if colon and host and is_number and int(port) <= _LARGEST_PORT:
                return cls(host, int(port), is_fixed=int(port) > 0)
        raise InvalidArgument(
            f"{describe('serve', serve)} does not say where to show the run",
            where="run(serve=)",
            hint='Use True for 127.0.0.1, a port such as 8000, or an address: "0.0.0.0:8000"',
        )

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.host)


@final
@dataclass(frozen=True, slots=True)
class Guard:
    """Decides about requests.

    Args:
        token: What a link from elsewhere has to carry.
        is_local: Whether requests under a name of this machine need no token.
    """

    token: str
    is_local: bool

    @classmethod
    def of(cls, address: Address) -> Guard:
        """Return the guard of an address.

        Raises:
            InvalidArgument: ``LOWWATER_SERVE_TOKEN`` is too short to be a secret.
        """
        given = os.environ.get(TOKEN)
        if given is not None and len(given) < _LEAST_TOKEN:
            raise InvalidArgument(
                f"{TOKEN} has fewer than {_LEAST_TOKEN} characters, which can be guessed",
                where="run(serve=)",
                hint='Make one: python -c "import secrets; print(secrets.token_urlsafe())"',
            )
        return cls(given or secrets.token_urlsafe(16), address.is_loopback)

    def link(self, address: Address) -> str:
        """Return the link to the page, with the token if it is needed."""
        host = f"[{address.host}]" if ":" in address.host else address.host
        query = "" if self.is_local else f"?token={quote(self.token)}"
        return f"http://{host}:{address.port}/{query}"

    def refusal(self, headers: Mapping[str, str], token: str | None, *, page: bool) -> str | None:
        """Return why a request is refused; ``None`` if it is not.

        Args:
            headers: Its headers.
            token: The token that it carries.
            page: Whether it asks for the page itself, which has no data in it: links lead there
                from other sites.
        """
        host = headers.get("Host") or ""
        by_token = token is not None and secrets.compare_digest(
            token.encode(errors="replace"), self.token.encode(errors="replace")
        )
        if token is not None and not by_token:
            return "the token is not that of this run"
        if not by_token and not (self.is_local and is_loopback(_name_of(host))):
            return "open the link that the run has printed: it has a token"
        origin = headers.get("Origin")
        if origin is not None and _place_of(origin) != host:
            return "another site asks"
        if headers.get("Sec-Fetch-Site") in _FOREIGN:
            follows_link = headers.get("Sec-Fetch-Mode") == "navigate"
            if not (page and follows_link and headers.get("Sec-Fetch-Dest") == "document"):
                return "another site asks"
        return None


def is_loopback(host: str) -> bool:
    """Whether a name or address is that of the loopback interface."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _place_of(origin: str) -> str | None:
    """Return the host and port of an ``Origin`` header; ``None`` if it has none."""
    try:
        return urlsplit(origin).netloc
    except ValueError:  # brackets that do not match
        return None


def _name_of(host: str) -> str:
    """Return the name in a ``Host`` header, without the port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:  # brackets that do not match
        return ""
