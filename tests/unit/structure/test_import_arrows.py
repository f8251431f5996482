"""Imports point one way: rooms stand in a total order, and no files form a circle."""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping
from functools import cache

from tests.unit.structure.package import FILES, Nodes, OfEachFile

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


def module_of(file: str) -> str:
    """Return the dotted name of a file below the package."""
    name = file.removesuffix("__init__.py").removesuffix(".py").strip("/").replace("/", ".")
    return f"lowwater.{name}".rstrip(".")


MODULES = {module_of(file) for file in FILES}


def room_of(module: str) -> str | None:
    """Return the room of a dotted name; ``None`` for one that belongs to no room."""
    inner = module.removeprefix("lowwater").removeprefix(".")
    if not inner:
        return ""
    return next((r for r in ROOMS if r and (inner == r or inner.startswith(f"{r}."))), None)


@OfEachFile
def imports_of_files(nodes: Nodes) -> set[str]:
    """Return the dotted names a file imports anywhere, in functions and for types alone too."""
    found = {alias.name for node in nodes.of(ast.Import) for alias in node.names}
    for node in nodes.of(ast.ImportFrom):
        module = "." * node.level + (node.module or "")
        inner = {f"{module}.{alias.name}" for alias in node.names}
        found |= inner & MODULES
        if inner - MODULES:
            found.add(module)
    return found


@cache
def imports() -> Mapping[str, set[str]]:
    return {module_of(file): names for file, names in imports_of_files().items()}


def own_imports(module: str) -> set[str]:
    return {name for name in imports()[module] if name.split(".")[0] == "lowwater"}


def test_imports_are_absolute() -> None:
    assert [name for names in imports().values() for name in names if name.startswith(".")] == []


def test_every_file_is_in_a_room() -> None:
    # lowwater/engine/__init__.py is empty: it only makes the rooms below it a package.
    assert [name for name in MODULES if room_of(name) is None] == ["lowwater.engine"]
    assert not FILES["engine/__init__.py"].read_text(encoding="utf-8").strip()


def test_imports_go_down_only() -> None:
    up = [
        f"{module} imports {other}"
        for module in MODULES
        if (own := room_of(module)) is not None
        for other in own_imports(module)
        if (room := room_of(other)) is not None and ROOMS.index(room) > ROOMS.index(own)
    ]
    assert up == []


def test_no_files_import_each_other_in_a_circle() -> None:
    left = {module: own_imports(module) & MODULES - {module} for module in MODULES}
    # What remains once files whose imports are all gone are taken away, again and again.
    while free := {module for module, others in left.items() if not others}:
        left = {m: others - free for m, others in left.items() if m not in free}
    while free := set(left) - {other for others in left.values() for other in others}:
        left = {m: others for m, others in left.items() if m not in free}
    assert left == {}


def test_only_the_spark_runner_imports_pyspark() -> None:
    assert {
        module
        for module, names in imports().items()
        if {name.split(".")[0] for name in names} & {"pyspark", "py4j"}
        and room_of(module) != "spark"
    } == set()


def test_values_need_nothing_but_numpy() -> None:
    """windows and triggers import neither pandas, pyarrow nor anything else that is heavy."""
    for module, names in imports().items():
        if room_of(module) in VALUES:
            tops = {name.split(".")[0] for name in names}
            assert not tops & HEAVY, module
            assert tops <= {"numpy", "lowwater", *sys.stdlib_module_names}, module
