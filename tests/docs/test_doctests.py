"""Every example in a docstring of the package runs and shows what it says."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import lowwater.time

PACKAGE = Path(lowwater.time.__file__).parent
# `python -m lowwater` runs on import; it holds one line and no examples.
MODULES = sorted(
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
    for path in PACKAGE.rglob("*.py")
    if path.name != "__main__.py"
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name: str) -> None:
    if name.startswith("lowwater.spark"):
        pytest.importorskip("pyspark")
    module = importlib.import_module(name)
    result = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0


def test_there_are_examples_at_all() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = finder.find(lowwater.time)
    assert sum(len(test.examples) for test in found) >= 5
