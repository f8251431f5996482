"""Converts docstrings to Markdown, for the reference.

Docstrings are written for readers of the source: roles such as ``:class:`Pane``` name other
objects, examples are unfenced, and tables are drawn. Markdown has its own syntax for each.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_ROLE = re.compile(r":(?:class|meth|func|mod|data|attr|exc):`(~?)([\w.]+)`")
_RULE = re.compile(r"^\s*=+(\s+=+)*\s*$")


def as_markdown(text: str) -> str:
    """Return a docstring with its roles, examples and drawings in Markdown syntax."""
    return _ROLE.sub(_named, "\n".join(_fenced(text.splitlines())))


def _named(role: re.Match[str]) -> str:
    short, name = role.groups()
    return f"`{name.rsplit('.', 1)[-1] if short else name}`"


def _fenced(lines: list[str]) -> list[str]:
    """Put fences around examples, which end with a blank line, and around drawn tables."""
    out: list[str] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        indent = line[: len(line) - len(line.lstrip())]
        if line.lstrip().startswith(">>>"):
            end = _where(lines, at, lambda each: not each.strip())
            out += [f"{indent}```pycon", *lines[at:end], f"{indent}```"]
        elif _RULE.match(line):
            rules = [n for n in range(at, len(lines)) if _RULE.match(lines[n])]
            end = rules[-1] + 1
            out += [f"{indent}```text", *lines[at:end], f"{indent}```"]
        elif line.strip() == "::":  # what is indented below is code in Markdown too
            end = at + 1
        else:
            out.append(line)
            end = at + 1
        at = end
    return out


def _where(lines: list[str], start: int, found: Callable[[str], bool]) -> int:
    """Return the first line from ``start`` on of which ``found`` is true, or where they end."""
    return next((n for n in range(start, len(lines)) if found(lines[n])), len(lines))
