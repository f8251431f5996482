"""What is said where stored bytes are not what was written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lowwater.errors import StateError

MEND = "The state is damaged, or of another version: restore a copy of it, or reset it"


@contextmanager
def decoding(what: str) -> Iterator[None]:
    """Tell of any error inside as of damage: what is decoded was written by this library.

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
    return StateError(f"{what} cannot be read: {why.rstrip('.')}", hint=MEND)
