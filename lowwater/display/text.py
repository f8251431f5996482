"""Formats values in few words: numbers are rounded, long lists cut, functions named.

Explanations, tables, diagrams and reprs use it. None of it is read back: ``repr`` of a value that
users write stays exact.
"""

from __future__ import annotations

import datetime as dt
import functools
import inspect
import re
from collections.abc import Callable, Iterable, Sized
from itertools import islice
from pathlib import PurePath
from typing import Any

MOST_ITEMS = 10
"""The most items of a list or mapping to show."""
LONGEST = 200
"""The longest text of a value, in characters."""
_DIGITS = 6
_DEEPEST = 5
_MOST_BITS = 256
_FUNCTION = re.compile(r"<(?:function|bound method) (\S+)(?: of .+)? at 0x[0-9a-fA-F]+>")
_OBJECT = re.compile(r"<(?:[\w<>]+\.)*(\w+) object at 0x[0-9a-fA-F]+>")
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def shown(value: Any, *, exact: bool = False) -> str:
    """Format a value as in code, in few words.

    Args:
        value: Any value.
        exact: Whether to keep all digits of numbers, and times as in code, as errors do.

    >>> shown(0.1 + 0.2), shown(["a"] * 12), shown(len)
    ('0.3', "['a', 'a', 'a', 'a', 'a', 'a', 'a', 'a', 'a', 'a', … 2 more]", 'len')
    """
    try:
        return cut(_shown(value, exact, _DEEPEST))
    except MemoryError:
        raise
    except Exception as error:  # a class of the user
        return f"<{type(value).__name__}, which raises {type(error).__name__} when it is read>"


def plain(value: Any) -> str:
    """Format a value for a cell of a table: texts without quotes, unless they are blank.

    >>> plain("JFK"), plain(" "), plain(None), plain(2 / 3)
    ('JFK', "' '", '-', '0.666667')
    """
    if value is None:
        return "-"
    if isinstance(value, str) and value.strip():
        return cut(printable(value))
    if isinstance(value, tuple) and value and type(value) is tuple:
        return cut(", ".join(map(plain, value)))
    return shown(value)


def number(value: float) -> str:
    """Format a float with six significant digits, and all digits before the point.

    >>> number(0.1 + 0.2), number(2.0), number(1234567.891), number(1.23456789e-7)
    ('0.3', '2.0', '1234567.9', '1.23457e-07')
    """
    value = float(value)
    if value == 0 or value - value != 0:  # nothing to round: zero, infinite or no number
        return repr(value)
    exponent = int(f"{value:e}".partition("e")[2])
    return repr(round(value, max(1, _DIGITS - 1 - exponent)))


def function_name(function: Callable[..., Any]) -> str:
    """Return a function's name; for a lambda, the file and line where it stands.

    >>> function_name(dict.get), function_name(functools.partial(int, base=2))
    ('dict.get', 'partial(int, base=2)')
    """
    if isinstance(function, functools.partial):
        options = [f"{name}={shown(given)}" for name, given in function.keywords.items()]
        arguments = [function_name(function.func), *map(shown, function.args), *options]
        return f"partial({', '.join(arguments)})"
    name = getattr(function, "__qualname__", None) or getattr(function, "__name__", None)
    if not isinstance(name, str):
        return readable(repr_of(function))
    if not name.endswith("<lambda>"):
        return _own_name(name)
    code = getattr(function, "__code__", None)
    if code is None:
        return "lambda"
    path = PurePath(code.co_filename)
    if "ipykernel" in path.parent.name:  # a notebook's cell, which has no file that anyone knows
        return f"lambda at line {code.co_firstlineno} of a cell"
    return f"lambda at {path.name}:{code.co_firstlineno}"


def printable(text: str) -> str:
    r"""Return a text on one line, with control characters and lone surrogates as escapes.

    >>> printable("two\nlines")
    'two\\nlines'
    """
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)


def visible(text: str) -> str:
    r"""Return a text whose lines are :func:`printable`: what a terminal shows, and does not obey.

    Everything goes through it that is printed for people: keys, names and messages of others may
    hold escape sequences, which clear screens, forge lines or set titles, or turn text around.

    >>> visible("gone:\x1b[2J\nnext line")
    'gone:\\x1b[2J\nnext line'
    """
    if text.isprintable():
        return text
    return "\n".join(map(_line, text.split("\n")))


def _line(line: str) -> str:
    return "\t".join(map(printable, line.split("\t")))


def readable(text: str) -> str:
    """Return a repr on one line, with functions and objects by their names.

    >>> readable("<__main__.Weighted object at 0x7f3c5a0>")
    'Weighted'
    """
    text = " ".join(text.split()) if "\n" in text else text
    if " at 0x" not in text:
        return text
    text = _FUNCTION.sub(lambda found: _own_name(found[1]), text)
    return _ADDRESS.sub("", _OBJECT.sub(r"\1", text))


def without_addresses(text: str) -> str:
    """Return a text without the addresses of objects, which are others in each run.

    >>> without_addresses("no <object object at 0x7f3c5a0> here")
    'no <object object> here'
    """
    return _ADDRESS.sub("", text) if " at 0x" in text else text


def cut(text: str, longest: int = LONGEST) -> str:
    """Cut a text that is longer than a number of characters.

    >>> cut("a long text", 7)
    'a long…'
    """
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _shown(value: Any, exact: bool, depth: int) -> str:
    if depth == 0:
        return "…"
    by_name = (functools.partial,) if exact else (functools.partial, type)
    if inspect.isroutine(value) or isinstance(value, by_name):
        return function_name(value)
    if type(value).__module__ == "numpy":
        return _of_numpy(value, exact, depth)
    inner = functools.partial(_shown, exact=exact, depth=depth - 1)
    match value:
        case float() if not exact:
            return number(value)
        case int() if not isinstance(value, bool) and value.bit_length() > _MOST_BITS:
            return f"an int of {value.bit_length():,} bits"  # too long for Python to print
        case str() if len(value) > LONGEST:
            return f"{value[: LONGEST // 2]!r}… {len(value) - LONGEST // 2:,} more characters"
        case dt.datetime() | dt.date() | dt.time() if not exact:
            return value.isoformat().replace("+00:00", "Z")
        case dict():
            pairs = islice(value.items(), MOST_ITEMS)
            return f"{{{_items((f'{inner(k)}: {inner(v)}' for k, v in pairs), value)}}}"
        case list():
            return f"[{_items(map(inner, islice(value, MOST_ITEMS)), value)}]"
        case tuple() if type(value) is tuple:
            items = _items(map(inner, islice(value, MOST_ITEMS)), value)
            return f"({items},)" if len(value) == 1 else f"({items})"
        case set() | frozenset() if value:
            # In the order of their texts, because the order of a set differs from run to run.
            items = _items(sorted(map(inner, value))[:MOST_ITEMS], value)
            return f"{{{items}}}" if type(value) is set else f"frozenset({{{items}}})"
    if isinstance(value, int) and not exact:
        return str(value)  # which of an Instant is its time
    return readable(repr_of(value))


def _items(shown: Iterable[str], items: Sized) -> str:
    more = len(items) - MOST_ITEMS
    return ", ".join((*shown, *([f"… {more:,} more"] if more > 0 else [])))


def _of_numpy(value: Any, exact: bool, depth: int) -> str:
    """Format a numpy scalar as Python's, and an array by its first items."""
    if getattr(value, "ndim", 0):
        items = (_shown(item, exact, depth - 1) for item in value[:MOST_ITEMS].tolist())
        return f"[{_items(items, value)}]"
    plain = value.item() if hasattr(value, "item") else value
    if type(plain).__module__ == "numpy" or not isinstance(plain, (bool, int, float, str)):
        return str(value) if hasattr(value, "item") else readable(repr_of(value))
    return _shown(plain, exact, depth)


def repr_of(value: Any) -> str:
    """Return a repr; if the user's own fails, one that says so."""
    try:
        return repr(value)
    except Exception as error:
        return f"<{type(value).__name__}, whose repr raises {type(error).__name__}>"


def _own_name(qualified: str) -> str:
    name = qualified.rpartition("<locals>.")[2]
    return name.replace("<lambda>", "lambda")


def counted(number: int, noun: str) -> str:
    """Format a count with its noun.

    >>> counted(1, "element"), counted(2, "element")
    ('1 element', '2 elements')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
