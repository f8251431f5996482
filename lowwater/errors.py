"""The tree of errors that lowwater raises, and the helpers that build their messages.

::

    LowwaterError
    ├── InvalidArgument (also ValueError)   a value given to the API is wrong
    ├── UnsafeTrigger                       the trigger could lose admitted data (S-R3)
    ├── UnsupportedByRunner                 a runner cannot do this; names the nearest that can
    ├── DataError                           an element, file or column cannot be used
    ├── StateError                          stored state is corrupt, locked or incompatible
    └── InternalError                       a bug in lowwater: please report

Every message says what happened in the user's words, where it happened, and one concrete fix.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches

__all__ = [
    "DataError",
    "InternalError",
    "InvalidArgument",
    "LowwaterError",
    "StateError",
    "UnsafeTrigger",
    "UnsupportedByRunner",
]


class LowwaterError(Exception):
    """Base class of every error that lowwater raises on purpose.

    Args:
        what: What happened, in the user's words.
        where: The place: a step of the pipeline, a file, a path such as ``$.window.period``.
        hint: One concrete fix.

    >>> str(InvalidArgument("size=0 (int) must be longer than zero", where="window", hint="Use 1"))
    'size=0 (int) must be longer than zero (at window). Use 1'
    """

    def __init__(self, what: str, *, where: str | None = None, hint: str | None = None) -> None:
        self.what = what
        self.where = where
        self.hint = hint
        text = what if where is None else f"{what} (at {where})"
        super().__init__(text if hint is None else f"{text}. {hint}")


class InvalidArgument(LowwaterError, ValueError):
    """A value given to the API is wrong."""


class UnsafeTrigger(LowwaterError):
    """The trigger may finish while elements are still admitted, so data could be lost (S-R3)."""


class UnsupportedByRunner(LowwaterError):
    """The runner does not support a feature of the pipeline."""


class DataError(LowwaterError):
    """An element, file or column cannot be used."""


class StateError(LowwaterError):
    """Stored state is corrupt, locked by another process, or does not fit the pipeline."""


class InternalError(LowwaterError):
    """A bug in lowwater itself: please report it, with the message."""


@contextmanager
def user_code(what: str) -> Iterator[None]:
    """Turn any exception from a user's function into a ``DataError`` that names the function.

    lowwater's own errors pass through unchanged: they already say what, where and the fix.

    Raises:
        DataError: The code inside raised anything other than a ``LowwaterError``.
    """
    try:
        yield
    except LowwaterError:
        raise
    except Exception as error:
        raise DataError(
            f"{what} failed: {type(error).__name__}: {error}",
            hint="Fix it; the error above this one shows the place",
        ) from error


def describe(name: str, value: object) -> str:
    """Return ``name=value (type)``, the form in which error messages quote an argument.

    >>> describe("size", "2x")
    "size='2x' (str)"
    """
    return f"{name}={value!r} ({type(value).__name__})"


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint that suggests the closest known name, or lists the known names.

    >>> nearest("delya", ["delay", "key"])
    "Did you mean 'delay'?"
    """
    names = sorted(known)
    close = get_close_matches(name, names, n=1)
    return f"Did you mean {close[0]!r}?" if close else f"Known: {', '.join(map(repr, names))}"
