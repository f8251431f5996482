"""The trees of errors and warnings, and the helpers that build their messages.

::

    LowwaterError
    ├── InvalidArgument (also ValueError)   a value given to the API is wrong
    ├── UnsafeTrigger                       the trigger could lose admitted data (S-R3)
    ├── UnsupportedByRunner                 a runner cannot do this; names the nearest that can
    ├── DataError                           an element, file or column cannot be used
    ├── StateError                          stored state is corrupt, locked or incompatible
    └── InternalError                       a bug in lowwater: please report

    LowwaterWarning (a UserWarning)
    ├── UnitWarning                         a number that looks like another unit
    ├── DataWarning                         many records cannot be used
    └── PipelineWarning                     the pipeline runs, but likely not as was meant

Every message says what happened in the user's words, where it happened, and one concrete fix.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from types import ModuleType

from lowwater.display.text import readable, shown

__all__ = [
    "DataError",
    "DataWarning",
    "InternalError",
    "InvalidArgument",
    "LowwaterError",
    "LowwaterWarning",
    "PipelineWarning",
    "StateError",
    "UnitWarning",
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


class LowwaterWarning(UserWarning):
    """Base class of every warning that lowwater gives. Filter it, or one below, by its class."""


class UnitWarning(LowwaterWarning):
    """A plain number was taken in one unit and looks as if another was meant."""


class DataWarning(LowwaterWarning):
    """Many records of a source are dead letters."""


class PipelineWarning(LowwaterWarning):
    """The pipeline runs, but likely not as was meant: a finding of ``lw.check``."""


def warn(
    category: type[LowwaterWarning], what: str, *, where: str | None = None, hint: str
) -> None:
    """Give a Python warning, at the line of the user's code that led here.

    Python shows the same warning for the same line once, unless a filter says otherwise.

    Args:
        category: Which warning.
        what: What happened, in the user's words.
        where: The place, as in an error.
        hint: One concrete fix.
    """
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and _is_ours(frame.f_globals):
        level, frame = level + 1, frame.f_back
    warnings.warn(str(LowwaterError(what, where=where, hint=hint)), category, stacklevel=level)


def _is_ours(names: dict[str, object]) -> bool:
    return str(names.get("__name__", "")).split(".")[0] == "lowwater"


def load_extra(module: str, *, extra: str, purpose: str) -> ModuleType:
    """Import an optional package, or say how to install it.

    Args:
        module: The module to import.
        extra: The extra of lowwater that brings it.
        purpose: What needs it, as the start of a sentence: ``"to_pandas"``.

    Raises:
        InvalidArgument: It cannot be imported.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise InvalidArgument(
            f"{purpose} needs {module.partition('.')[0]}, which cannot be imported: {error}",
            hint=f'Install it: pip install "lowwater[{extra}]"',
        ) from error


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
            f"{readable(what)} failed: {type(error).__name__}: {error}",
            hint="Fix it; the error above this one shows the place",
        ) from error


def describe(name: str, value: object) -> str:
    """Return ``name=value (type)``, the form in which error messages quote an argument.

    Long lists and texts are cut, functions are named.

    >>> describe("size", "2x")
    "size='2x' (str)"
    """
    return f"{name}={shown(value, exact=True)} ({type(value).__name__})"


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint that suggests the closest known name, or lists the known names.

    >>> nearest("delya", ["delay", "key"])
    "Did you mean 'delay'?"
    """
    names = sorted(known)
    close = get_close_matches(name, names, n=1)
    return f"Did you mean {close[0]!r}?" if close else f"Known: {', '.join(map(repr, names))}"
