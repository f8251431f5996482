"""`import lowwater` stays light: heavy, optional packages are loaded where they are used."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "statement",
    ["import lowwater", "import lowwater.windows, lowwater.triggers", "import lowwater.engine"],
)
def test_importing_loads_no_heavy_package(statement: str) -> None:
    code = (
        f"import sys\n{statement}\n"
        "heavy = {'pandas', 'polars', 'pyspark', 'matplotlib', 'hypothesis', 'pytest'}\n"
        "print(*sorted(heavy & set(sys.modules)))\n"
    )
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == []
