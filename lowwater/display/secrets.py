"""Hides secrets in text for people: passwords in URIs, connection strings, and options.

The texts of errors and warnings go through :func:`redacted`, so that what a library quotes of its
input is hidden too. It depends on shapes and names. Where a secret is known, :func:`without` hides
it wherever it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote

HIDDEN = "***"

_NAME = (
    r"[\w.-]*(?:passw(?:or)?d|passphrase|pwd|secret|token|credential|signature|jaas\.config|"
    r"(?:api|access|account|private|shared|storage)[_.-]?key(?!s?\.location|[_.-]?id)|key\.pem|"
    r"authorization|sas[_.-]?(?:key|url))[\w.-]*|sig|pass"
)
_IS_SECRET = re.compile(_NAME, re.IGNORECASE)
_HINT_OF_SECRET = re.compile(
    r":/|\w//|:.*@|pass|pwd|secret|token|credential|sig|jaas|key|authorization|sas", re.IGNORECASE
)
# Up to the last @ of the authority; of all that follows, where a password may have broken it.
_USER_INFO = re.compile(
    r"(?<=://)(?:[^\s/'\"<>]*|[^\s'\"<>]*:[^\s'\"<>]*)@"
    r"|(?<=\w:/)[^\s'\"<>/]*:[^\s'\"<>]*@"  # a slash is missing, as in what Path makes of a URI
    r"|(?<=\w//)[^\s'\"<>/]*:[^\s'\"<>]*@"  # or the colon
    r"|(?<=s3/)[^\s'\"<>/]*:[^\s'\"<>]*@"
    r"|(?<=\w:)(?!/)[^\s'\"<>/:]+:[^\s'\"<>]*@"  # or both slashes
)
# A host with a port that is none: the @ and what follows it are missing.
_NO_PORT = re.compile(r"(?<=://)([^\s/'\":@\[]+):(?!\d*(?:[/,?#\s'\").]|$))[^\s/'\"]+")
_OPTION = re.compile(
    rf"(?P<before>(?<![\w.-])(?P<quote>['\"]?)(?:{_NAME})(?P=quote)\s*(?P<mark>=|:(?!//))\s*)"
    r"(?P<value>b?'(?:[^'\\]|\\.)*'|b?\"(?:[^\"\\]|\\.)*\"|[^\s&;,'\"(){}\[\]]+)",
    re.IGNORECASE,
)
_SHORTEST = 3


def redacted(text: str) -> str:
    """Return a text with the values of secrets hidden.

    >>> redacted("postgresql://ann:pa@ss@db/shop?sslmode=require")
    'postgresql://***@db/shop?sslmode=require'
    >>> redacted("s3://bucket/a?region=eu&secret_key=abc"), redacted("host=db password='a b'")
    ('s3://bucket/a?region=eu&secret_key=***', 'host=db password=***')
    >>> redacted("{'sasl.username': 'ann', 'sasl.password': 'abc'}")
    "{'sasl.username': 'ann', 'sasl.password': ***}"
    """
    if _HINT_OF_SECRET.search(text) is None:
        return text
    text = _NO_PORT.sub(rf"\1:{HIDDEN}", _USER_INFO.sub(f"{HIDDEN}@", text))
    return _OPTION.sub(_hidden, text)


def _hidden(match: re.Match[str]) -> str:
    value = match["value"]
    # What says nothing: `password=...`, `token= is ...`, and the name of a type or an option.
    if value.strip("'\".…*") in ("", "None", "None."):
        return match[0]
    if match["mark"] == ":" and not match["quote"]:
        return match[0]  # prose, as in "no password: the server asks for one"
    return f"{match['before']}{HIDDEN}"


def is_secret(name: str) -> bool:
    """Whether an option of this name holds a secret.

    >>> is_secret("sasl.password"), is_secret("session_token"), is_secret("sasl.username")
    (True, True, False)
    """
    return _IS_SECRET.fullmatch(name) is not None


def secrets_of(options: Mapping[str, Any]) -> list[str]:
    """Return the values of the options that hold secrets, as text."""
    return [
        value.decode(errors="replace") if isinstance(value, bytes) else str(value)
        for name, value in options.items()
        if isinstance(name, str) and is_secret(name) and value
    ]


def without(text: str, secrets: Iterable[str]) -> str:
    """Return a text without secrets that are known, and redacted besides.

    Secrets of one or two characters stay where they are parts of words: they are in every text.
    """
    for secret in secrets:
        for form in {secret, unquote(secret)}:
            if len(form) >= _SHORTEST:
                text = text.replace(form, HIDDEN)
            elif form:
                text = re.sub(rf"(?<!\w){re.escape(form)}(?!\w)", HIDDEN, text)
    return redacted(text)
