"""`import lowwater` stays light: heavy, optional packages are loaded where they are used."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    "statement",
    ["import lowwater", "import lowwater.windows, lowwater.triggers", "import lowwater.engine"],
)
def test_importing_loads_no_heavy_package(statement: str) -> None:
    code = (
        f"import sys\n{statement}\n"
        "heavy = {'numba', 'pandas', 'polars', 'pyspark', 'matplotlib', 'hypothesis', 'pytest'}\n"
        "print(*sorted(heavy & set(sys.modules)))\n"
    )
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == []


def test_each_public_name_of_type_checkers_can_be_loaded() -> None:
    import lowwater

    tree = ast.parse(Path(lowwater.__file__).read_text(encoding="utf-8"))
    typed = {
        alias.name
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert typed == {name for name in dir(lowwater) if not name.startswith("__")}
    assert all(getattr(lowwater, name) is not None for name in typed)
