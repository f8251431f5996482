"""Imports point one way, from the values of the model up to its front door."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import lowwater.time

PACKAGE = Path(lowwater.time.__file__).parent
LAYERS = [
    {"time", "errors"},
    {"windows", "triggers", "watermark"},
    {"state"},
    {"engine"},
    {
        "io",
        "testing",
        "viz",
        "pipeline",
        "explain",
        "demo",
        "demo_spark",
        "cli",
        "cli_diagram",
        "cli_explain",
        "__main__",
        "lowwater",
    },
]
RANK = {part: rank for rank, parts in enumerate(LAYERS) for part in parts}
# Within a layer, too: each imports nothing of what stands after it.
ORDER = ["errors", "time", "windows", "triggers"]
HEAVY = {"pandas", "polars", "pyspark", "matplotlib", "pyarrow"}
MODULES = sorted(PACKAGE.rglob("*.py"))


def part_of(module: str) -> str:
    """Return the part of the package a dotted name belongs to; `lowwater` for its front door."""
    names = module.split(".")
    return names[1] if len(names) > 1 else "lowwater"


def name_of(path: Path) -> str:
    names = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(names).removesuffix(".__init__")


def imports(path: Path) -> Iterator[str]:
    """Yield the dotted names a file imports anywhere, in functions and for types alone too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            module = node.module or ""
            for alias in node.names:
                inner = f"{module}.{alias.name}"
                inside = module == "lowwater" and part_of(inner) in RANK
                yield inner if inside else module


def test_every_part_of_the_package_has_a_layer() -> None:
    assert {part_of(name_of(path)) for path in MODULES} <= set(RANK)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_point_one_way(path: Path) -> None:
    own = part_of(name_of(path))
    for module in imports(path):
        if module.split(".")[0] != "lowwater":
            continue
        other = part_of(module)
        assert RANK[other] <= RANK[own], f"{own} must not import {module}"
        if own in ORDER and other in ORDER:
            assert ORDER.index(other) <= ORDER.index(own), f"{own} must not import {module}"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_only_the_spark_runner_imports_pyspark(path: Path) -> None:
    if path.is_relative_to(PACKAGE / "engine" / "spark"):
        return
    assert not [m for m in imports(path) if m.split(".")[0] in {"pyspark", "py4j"}]


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_values_need_nothing_but_numpy(path: Path) -> None:
    """windows and triggers import neither pandas, pyarrow nor anything else that is heavy."""
    if part_of(name_of(path)) not in {"errors", "time", "windows", "triggers"}:
        return
    tops = {module.split(".")[0] for module in imports(path)}
    assert not tops & HEAVY
    assert tops <= {"numpy", "lowwater", *sys.stdlib_module_names}
