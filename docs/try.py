"""Runs a block of code in the reader's browser, and returns what to show of it: see ``try.js``."""

from __future__ import annotations

import ast
import contextlib
import io
import traceback
from typing import Any

_NAME = "<block>"


def run_block(code: str, names: dict[str, Any]) -> dict[str, str]:
    """Run a block as a notebook does, the value of a last expression shown.

    Args:
        code: The block.
        names: The names that blocks share; ``_`` is the last value.

    Returns:
        What it printed as ``text``, then its value, as ``html`` or ``value``, or its ``error``.
    """
    printed = io.StringIO()
    shown: dict[str, str] = {}
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            shown = _value(code, names)
        except BaseException as error:  # SystemExit too: it must not end the page's Python
            frames = error.__traceback__
            while frames is not None and frames.tb_frame.f_code.co_filename != _NAME:
                frames = frames.tb_next  # those of this file say nothing
            lines = traceback.format_exception(type(error), error, frames)
            shown = {"error": "".join(lines)}
    return {"text": printed.getvalue(), **shown}


def _value(code: str, names: dict[str, Any]) -> dict[str, str]:
    tree = ast.parse(code, _NAME)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, _NAME, "exec"), names)  # noqa: S102  # the reader's own code
    if last is None:
        return {}
    expression = ast.Expression(last.value)
    value = eval(compile(expression, _NAME, "eval"), names)  # noqa: S307  # likewise
    if value is None:
        return {}
    names["_"] = value
    html = getattr(value, "_repr_html_", None)
    made = None if html is None or isinstance(value, type) else html()
    return {"value": repr(value)} if made is None else {"html": made}
