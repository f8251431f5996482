"""`import lowwater` stays light: heavy, optional packages are loaded where they are used."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import lowwater
from tests.unit.structure.package import PACKAGE


def test_importing_loads_no_heavy_package() -> None:
    code = (
        "import sys\nimport lowwater.windows, lowwater.triggers, lowwater.engine\n"
        "heavy = {'numba', 'pandas', 'polars', 'pyspark', 'matplotlib', 'hypothesis', 'pytest'}\n"
        "print(*sorted(heavy & set(sys.modules)))\n"
    )
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == []


def test_each_public_name_of_type_checkers_can_be_loaded() -> None:
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


def test_a_run_in_memory_loads_no_connector() -> None:
    """Readers, sinks and the explanations of results are loaded where they are used."""
    code = """
import sys
import lowwater as lw

stream = lw.from_iterable([{"at": "2024-01-01T00:00:00Z", "k": 1}], time="at")
windows = stream.key_by("k").window(lw.FixedWindows("1m"))
windows.aggregate(n=lw.count()).collect(progress=False)
own = [name for name in sys.modules if name.split(".")[0] == "lowwater"]
apart = ("io.kafka", "io.log", "io.postgres", "io.csv", "io.json", "io.parquet", "io.sinks.kafka",
         "io.sinks.owned", "io.sinks.sqlite", "explain.window", "viz", "exploration", "spark",
         "cli")
print(*sorted(one for one in own if one.startswith(tuple(f"lowwater.{name}" for name in apart))
              and one != "lowwater.io.csv_values"))
print(len(own))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded, count = run.stdout.splitlines()
    assert loaded == ""
    assert int(count) <= 208


def test_no_name_imported_on_use_is_also_a_module() -> None:
    """Importing ``package.name`` would put the module in the place of what is called so."""
    place = re.compile(r'^    "lowwater[\w.]*": ([^:]*?),$', re.M | re.S)
    for path in PACKAGE.rglob("__init__.py"):
        places = place.findall(path.read_text("utf-8"))
        names = {name for names in places for name in re.findall(r"\w+", names)}
        modules = {one.stem for one in path.parent.glob("*.py")} | {
            one.name for one in path.parent.iterdir() if (one / "__init__.py").exists()
        }
        assert not names & modules, path
