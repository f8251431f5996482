"""Every example in a docstring of the package runs and shows what it says."""

from __future__ import annotations

import doctest
import importlib
import linecache
from pathlib import Path

import pytest

import lowwater.time

PACKAGE = Path(lowwater.time.__file__).parent
MODULES = sorted(
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
    for path in PACKAGE.rglob("*.py")
    if ">>> " in path.read_text()
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name: str) -> None:
    if name.startswith("lowwater.spark"):
        pytest.importorskip("pyspark")
    module = importlib.import_module(name)
    linecache.clearcache()  # of each file in it a runner asks the system before each docstring
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    for test in doctest.DocTestFinder().find(module):
        if test.examples:
            runner.run(test)
    assert runner.failures == 0


def test_there_are_examples_at_all() -> None:
    assert sum(len(test.examples) for test in doctest.DocTestFinder().find(lowwater.time)) >= 5
