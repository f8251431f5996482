"""Connection strings of PostgreSQL, which may hold a password: checked, and never shown."""

from __future__ import annotations

from typing import Any

from lowwater.display.secrets import without
from lowwater.errors import InvalidArgument, cause

_HINT = (
    'Escape what is special in user and password, urllib.parse.quote(password, safe=""), or give '
    "them as words: \"host=db dbname=shop user=ann password='...'\""
)


def checked_dsn(dsn: object) -> str:
    """Return a connection string; one that libpq would take apart elsewhere than was meant raises.

    It would look for a host that is called like a part of the password, and say so in its errors.

    Raises:
        InvalidArgument: It is no text, or a URI with a character in its password, not escaped, that
            ends the password.
    """
    if not isinstance(dsn, str):
        raise InvalidArgument(
            f"dsn is {type(dsn).__name__}, not text",
            hint='Use text such as "host=db dbname=counts"',
        )
    scheme, mark, rest = dsn.partition("://")
    if not mark or "=" in scheme:
        return dsn
    before = rest.partition("?")[0]
    authority = before.partition("/")[0]
    if before.count("@") > 1 or before.count("@") != authority.count("@"):
        raise InvalidArgument(
            "dsn has a character in its user or password that has to be escaped, such as @, : or /",
            hint=_HINT,
        )
    return dsn


def said_of(error: BaseException, dsn: str) -> tuple[str, BaseException | None]:
    """Return what the client library says, without secrets, and what to raise from.

    libpq quotes pieces of a connection string that it cannot read.

    Raises:
        InvalidArgument: It cannot read this one.
    """
    from psycopg import conninfo

    try:
        parts: dict[str, Any] = conninfo.conninfo_to_dict(dsn)
    except Exception:
        raise InvalidArgument(
            "dsn is no connection string that libpq can read", hint=_HINT
        ) from None
    secrets = [str(parts[name]) for name in ("password", "sslpassword") if parts.get(name)]
    port = str(parts.get("port") or "")
    if not all(one.isdigit() for one in port.split(",") if one):
        raise InvalidArgument("the port of dsn is no number", hint=_HINT) from None
    text = str(error).strip() or type(error).__name__
    shown = without(text, secrets)
    return shown, cause(error) if shown == text else None
