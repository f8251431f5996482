"""Runs the tests that a change can break: ``make changed``, or ``python -m tests.changed``.

A change is what differs from a revision (``--base``, by default the last commit), with files that
git does not track yet. It can break a test file that it touches or that imports what it touches in
``tests``, and one that executed a changed module when it was recorded (``tests/record.py``). A
module that was never executed or recorded breaks what executed its importers. If an operator
changes, the laws of every operator run.

What is not seen: what tests do in other processes (kills, Spark's workers, the command line), data
files, and a module that a test has begun to execute since the record. So this is for work in
progress; ``make test`` decides.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from tests.paths import ROOT
from tests.record import Recorded, recorded

LAWS = (
    "tests/conformance/test_scenarios.py",
    "tests/property/test_bundles_change_nothing.py",
    "tests/property/test_conservation.py",
    "tests/property/test_every_operator.py",
)
"""Tests of what every operator must do: they run whatever part of ``engine`` changes."""


def changed_files(base: str) -> set[str]:
    """Return the paths that differ from a revision, below the root."""
    commands = (
        ["git", "diff", "--name-only", base, "--"],
        ["git", "ls-files", "--others", "--exclude-standard"],
    )
    return {
        line
        for command in commands
        for line in subprocess.run(
            command, cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout.splitlines()
    }


def chosen(
    changed: Collection[str],
    record: Mapping[str, Recorded],
    importers: Mapping[str, Collection[str]],
) -> list[str]:
    """Return the test files that a change can break.

    Args:
        changed: Paths.
        record: What is recorded of each test file.
        importers: By the path of a file, those of the files that import it.
    """
    tests: set[str] = set()
    for path in changed:
        if path.startswith("tests/"):
            tests.update(each for each in _closure([path], importers) if _is_test(each))
        elif path.startswith("lowwater/"):
            tests.update(_executing(path, record, importers))
            if path.startswith("lowwater/engine/"):
                tests.update(LAWS)
        elif path.endswith((".md", ".ipynb")) or path.startswith(("docs/", "examples/")):
            tests.update(each for each in record if each.startswith("tests/docs/"))
    return sorted(test for test in tests if (ROOT / test).exists())


def _executing(
    module: str, record: Mapping[str, Recorded], importers: Mapping[str, Collection[str]]
) -> set[str]:
    """Return the tests that executed a module, or else those of its nearest importers."""
    met, nearest = {module}, [module]
    while nearest:
        found = {test for test, each in record.items() if not each.modules.isdisjoint(nearest)} | {
            each for at in nearest for each in importers.get(at, ()) if _is_test(each)
        }
        if found:
            return found
        nearest = [each for at in nearest for each in importers.get(at, ()) if each not in met]
        met.update(nearest)
    return set()


def _closure(paths: Iterable[str], importers: Mapping[str, Collection[str]]) -> set[str]:
    met: set[str] = set()
    left = list(paths)
    while left:
        path = left.pop()
        if path not in met:
            met.add(path)
            left += importers.get(path, ())
    return met


def _is_test(path: str) -> bool:
    return path.startswith("tests/") and Path(path).name.startswith("test_")


_IMPORT = re.compile(r"^ *(?:from ([\w.]+) )?import (\([^)]*\)|[^\n#]*)", re.MULTILINE)


@cache
def importers() -> Mapping[str, set[str]]:
    """Return which files of ``lowwater`` and ``tests`` import each, in functions too.

    Read by a pattern: to parse all of them takes ten times as long as the tests of many a change.
    """
    files = {
        str(path.relative_to(ROOT))
        for folder in ("lowwater", "tests")
        for path in (ROOT / folder).rglob("*.py")
    }
    found: dict[str, set[str]] = {}
    for file in files:
        for module, names in _IMPORT.findall((ROOT / file).read_text(encoding="utf-8")):
            for path in _imported(module, re.findall(r"[\w.]+", names), files):
                found.setdefault(path, set()).add(file)
    return found


def _imported(module: str, names: Iterable[str], files: Collection[str]) -> list[str]:
    whole = [module, *(f"{module}.{name}" for name in names)] if module else names
    paths = [name.replace(".", "/") for name in whole]
    return [end for path in paths for end in (f"{path}.py", f"{path}/__init__.py") if end in files]


def main(arguments: Sequence[str]) -> int:
    """Run the tests; return pytest's exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--base", default="HEAD", help="the revision to compare with")
    parser.add_argument("--list", action="store_true", help="name the tests, run nothing")
    options, further = parser.parse_known_args(arguments)
    tests = chosen(changed_files(options.base), recorded(), importers())
    if options.list or not tests:
        print("\n".join(tests) or "no test that is recorded can break")
        return 0
    seconds = sum(recorded()[test].seconds for test in tests if test in recorded())
    print(f"{len(tests)} test files, some {seconds / 2:.0f} s in two processes", flush=True)
    command = [sys.executable, "-m", "pytest", "-m", "not long", *further, *tests]
    return subprocess.run(command, cwd=ROOT, env={**os.environ}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
