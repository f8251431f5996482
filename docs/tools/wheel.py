"""The wheel of lowwater that the site carries, and the mark of pages whose blocks run there."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PYODIDE = "https://cdn.jsdelivr.net/pyodide/v314.0.7/full/"
"""Python for browsers, pinned: with numpy 2.4.6, pyarrow 22, and all else that is required."""
MARK = "<!-- try -->"


def with_mark(markdown: str, *, depth: int) -> str:
    """Return a page with its mark filled in.

    Args:
        markdown: The page.
        depth: How many folders it is below the site's own.
    """
    place = f'<div class="try" data-pyodide="{PYODIDE}" data-wheel="{"../" * depth}{name()}"></div>'
    return markdown.replace(MARK, place)


def name() -> str:
    """Return the name of the wheel."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return f"{project['name']}-{project['version']}-py3-none-any.whl"


def build(folder: Path) -> Path:
    """Build the wheel into a folder, and return its path. Needs no network."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    subprocess.run(  # noqa: S603  # our own build
        [*command, "--directory", str(folder)], cwd=ROOT, check=True, capture_output=True
    )
    return folder / name()
