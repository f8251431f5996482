"""Tracebacks that show the user's code, and not the frames of the library between its lines."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType

WHOLE = "LOWWATER_TRACEBACK"
"""With the value ``full`` this environment variable keeps all frames."""
_PACKAGE = __name__.partition(".")[0]
_PYTHON = f"{Path(os.__file__).parent}{os.sep}"
_INSTALLED = f"{os.sep}site-packages{os.sep}"


def shorten(error: BaseException) -> None:
    """Drop the frames of the library from the traceback of an error and of its causes.

    The frames of the user's code stay, in their order.

    Args:
        error: The error, which is changed.
    """
    if os.environ.get(WHOLE) == "full":
        return
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        each.__traceback__ = _without_library(each.__traceback__)
        each = each.__cause__ or _context(each)


def is_of_user(error: BaseException) -> bool:
    """Return whether an error was raised by code that is not that of a library, nor Python's."""
    at, last = error.__traceback__, None
    while at is not None:
        at, last = at.tb_next, at
    if last is None or _is_library(last):
        return False
    return _INSTALLED not in last.tb_frame.f_code.co_filename


def _context(error: BaseException) -> BaseException | None:
    """Return the exception that was handled when an error was raised, if it is to be shown.

    One that the library has handled on its own is not.
    """
    context = error.__context__
    if context is None or error.__suppress_context__:
        return None
    if _without_library(context.__traceback__) is None:
        error.__suppress_context__ = True
        return None
    return context


def _without_library(traceback: TracebackType | None) -> TracebackType | None:
    frames = []
    while traceback is not None:
        if not _is_library(traceback):
            frames.append(traceback)
        traceback = traceback.tb_next
    kept: TracebackType | None = None
    for one in reversed(frames):
        kept = TracebackType(kept, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return kept


def _is_library(traceback: TracebackType) -> bool:
    frame = traceback.tb_frame
    file = frame.f_code.co_filename
    if file.startswith(_PYTHON):
        return _INSTALLED not in file
    # What dataclasses generate is in no file, but in a module.
    module = str(frame.f_globals.get("__name__", ""))
    return file.startswith("<frozen ") or module.partition(".")[0] == _PACKAGE
