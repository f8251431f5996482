"""The pictures on pages: drawn by a page's own code when the site is built.

A mark such as ``<!-- figure: run.diagram() -->`` is on a line of its own. The Python blocks before
it run, and the value of the expression replaces the mark, as SVG.
"""

from __future__ import annotations

import contextlib
import io
import re
import tempfile
from typing import Any

_PART = re.compile(
    r"```python\n(?P<code>.*?)```|^<!-- figure: (?P<shown>[^\n]*) -->$", re.DOTALL | re.M
)


def with_figures(markdown: str) -> str:
    """Return a page with its marks replaced by pictures."""
    marks = [part.end() for part in _PART.finditer(markdown) if part["shown"] is not None]
    if not marks:
        return markdown
    head, rest = markdown[: marks[-1]], markdown[marks[-1] :]
    names: dict[str, Any] = {"__name__": "page"}
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.chdir(folder),
        contextlib.redirect_stdout(io.StringIO()),
    ):
        return _PART.sub(lambda part: _replaced(part, names), head) + rest


def _replaced(part: re.Match[str], names: dict[str, Any]) -> str:
    if part["code"] is not None:
        exec(compile(part["code"], "page", "exec"), names)  # noqa: S102  # our own page
        return part[0]
    svg = eval(part["shown"], names).to_svg()  # noqa: S307  # our own page
    lines = "\n".join(line for line in svg.splitlines() if line.strip())
    return f'<div class="figure">\n{lines}\n</div>'
