"""The pictures on pages: what a page's own code gives, drawn when the site is built.

A mark such as ``<!-- figure: run.diagram() -->`` stands on a line of its own. The Python blocks
before it run, and what the expression gives is put in its place, as SVG.
"""

from __future__ import annotations

import contextlib
import io
import os
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
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        os.chdir(folder)
        try:
            return _PART.sub(lambda part: _replaced(part, names), head) + rest
        finally:
            os.chdir(before)


def _replaced(part: re.Match[str], names: dict[str, Any]) -> str:
    if part["code"] is not None:
        exec(compile(part["code"], "page", "exec"), names)
        return part[0]
    svg = eval(part["shown"], names).to_svg()
    lines = "\n".join(line for line in svg.splitlines() if line.strip())
    return f'<div class="figure">\n{lines}\n</div>'
