"""Imports point one way: rooms stand in a total order, and no files form a circle."""

from __future__ import annotations

import ast
import sys
from functools import cache
from pathlib import Path

import lowwater.time

PACKAGE = Path(lowwater.time.__file__).parent
# From the ground up. A file may import its own room and those before it.
ROOMS = [
    "_on_use",
    "display",
    "errors",
    "time",
    "kernels",
    "windows",
    "triggers",
    "watermark",
    "state",
    "engine.records",
    "engine.aggregates",
    "engine.window",
    "engine.keyed",
    "engine.process",
    "engine.join",
    "engine.match",
    "engine.over",
    "engine.counted",
    "engine.graph",
    "engine.stages",
    "engine.local",
    "io",
    "spark",
    "explain",
    "viz",
    "live",
    "pipeline",
    "exploration",
    "",  # the front door: lowwater/__init__.py
    "testing",
    "cli",
    "__main__",
]
VALUES = {"display", "errors", "time", "windows", "triggers"}
HEAVY = {"numba", "pandas", "polars", "pyspark", "matplotlib", "pyarrow"}


def name_of(path: Path) -> str:
    names = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(names).removesuffix(".__init__")


FILES = {name_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def room_of(module: str) -> str | None:
    """Return the room of a dotted name; ``None`` for one that belongs to no room."""
    inner = module.removeprefix("lowwater").removeprefix(".")
    if not inner:
        return ""
    return next((r for r in ROOMS if r and (inner == r or inner.startswith(f"{r}."))), None)


@cache
def imports(path: Path) -> set[str]:
    """Return the dotted names a file imports anywhere, in functions and for types alone too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            module = node.module or ""
            for alias in node.names:
                inner = f"{module}.{alias.name}"
                found.add(inner if inner in FILES else module)
    return found


def own_imports(module: str) -> set[str]:
    return {name for name in imports(FILES[module]) if name.split(".")[0] == "lowwater"}


def test_every_file_is_in_a_room() -> None:
    # lowwater/engine/__init__.py is empty: it only makes the rooms below it a package.
    assert [name for name in FILES if room_of(name) is None] == ["lowwater.engine"]
    assert not FILES["lowwater.engine"].read_text(encoding="utf-8").strip()


def test_imports_go_down_only() -> None:
    up = [
        f"{module} imports {other}"
        for module in FILES
        if (own := room_of(module)) is not None
        for other in own_imports(module)
        if (room := room_of(other)) is not None and ROOMS.index(room) > ROOMS.index(own)
    ]
    assert up == []


def test_no_files_import_each_other_in_a_circle() -> None:
    left = {module: own_imports(module) & FILES.keys() - {module} for module in FILES}
    # What remains once files whose imports are all gone are taken away, again and again.
    while free := {module for module, others in left.items() if not others}:
        left = {m: others - free for m, others in left.items() if m not in free}
    while free := set(left) - {other for others in left.values() for other in others}:
        left = {m: others for m, others in left.items() if m not in free}
    assert left == {}


def test_only_the_spark_runner_imports_pyspark() -> None:
    assert {
        module
        for module, path in FILES.items()
        if {name.split(".")[0] for name in imports(path)} & {"pyspark", "py4j"}
        and room_of(module) != "spark"
    } == set()


def test_values_need_nothing_but_numpy() -> None:
    """windows and triggers import neither pandas, pyarrow nor anything else that is heavy."""
    for module, path in FILES.items():
        if room_of(module) in VALUES:
            tops = {name.split(".")[0] for name in imports(path)}
            assert not tops & HEAVY, module
            assert tops <= {"numpy", "lowwater", *sys.stdlib_module_names}, module
