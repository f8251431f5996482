"""Every format that outlives a process, by name and version, and the errors for what differs.

A change that an older lowwater could not read raises the version here. There are no migrations:
what is stored in an earlier version is read as it is, or refused, with what to do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

from lowwater.errors import StateError

FORMATS: Mapping[str, int] = MappingProxyType(
    {
        "the run record": 8,
        "window state": 6,
        "process state": 4,
        "join state": 4,
        "passed records": 1,
        "record ids": 3,
        "Spark cells": 5,
        "Spark cell files": 1,
        "state versions": 1,
        "undelivered outputs": 1,
    }
)
"""Name and version of each stored format."""

_READ_TOO: Mapping[str, frozenset[int]] = MappingProxyType(
    {
        "window state": frozenset({5}),
        "process state": frozenset({3}),
        "join state": frozenset({3}),
        "Spark cells": frozenset({4}),
    }
)
"""Earlier versions that are read too: what is written from then on is of the version of today."""

DAMAGED = "The state is damaged, or of another version: restore a copy of it, or reset it"


def check_format(
    name: str, found: object, *, where: str | None = None, hint: str | None = None
) -> None:
    """Raise unless what is stored is in the version of its format that this lowwater reads.

    Args:
        name: The format, a key of :data:`FORMATS`.
        found: The version that was written beside it.
        where: The state directory or checkpoint, if it is known.
        hint: The way out, where it is not to reset a state directory.

    Raises:
        StateError: The versions differ.
    """
    version = FORMATS[name]
    if type(found) is int and (found == version or found in _READ_TOO.get(name, ())):
        return
    place = "DIR" if where is None else where
    raise StateError(
        f"the state was written in layout {found} of {name}; this lowwater reads layout {version}",
        where=where,
        hint=hint
        or "Run it with the lowwater that wrote it, or reset the state: "
        f"python -m lowwater state reset --yes {place}",
    )


@contextmanager
def decoding(what: str) -> Iterator[None]:
    """Report any error inside as damage: what is decoded was written by this library.

    Args:
        what: What is being decoded, in the user's words.

    Raises:
        StateError: Something inside failed.
    """
    try:
        yield
    except StateError:
        raise
    except Exception as error:  # whatever damaged values lead to
        raise damaged(what, f"{type(error).__name__}: {error}") from error


def damaged(what: str, why: str) -> StateError:
    """Return the error for something that cannot be what was written.

    >>> damaged("a row", "it is its own parent").what
    'a row cannot be read: it is its own parent'
    """
    return StateError(f"{what} cannot be read: {why.rstrip('.')}", hint=DAMAGED)
