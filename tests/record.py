"""What is recorded of each test file: the modules of lowwater that it executes, and its seconds.

``make record`` runs the tests of ``make test`` under coverage.py and writes ``record.json``. The
order of a run (``tests/scheduling.py``), ``make changed`` (``tests/changed.py``) and ``make quick``
(``tests/long_tests.py``) read it.

A module counts as executed where a line inside one of its functions ran: what an import runs says
only which test came first. Processes that tests start are not seen.
"""

from __future__ import annotations

import ast
import json
import os
from collections import defaultdict
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, final

import pytest

from tests.paths import ROOT

FILE = Path(__file__).with_name("record.json")
SLOW_S = 0.2  # coverage.py makes this of some 0.08 s
_PARTS = "LOWWATER_RECORD"  # names the folder for what each worker records


@final
@dataclass(frozen=True, slots=True)
class Recorded:
    """What is recorded of a test file.

    Args:
        seconds: By the clock, all its tests of ``make test``, under coverage.py.
        modules: Paths below the root of the repository.
        slow: Names of its tests of which a case took longer than ``SLOW_S``.
    """

    seconds: float
    modules: frozenset[str]
    slow: frozenset[str] = frozenset()


@cache
def recorded(path: Path = FILE) -> Mapping[str, Recorded]:
    """Return what is recorded, by the path of the test file below the root."""
    data = json.loads(path.read_text(encoding="utf-8"))
    names: Sequence[str] = data["modules"]
    return {
        test: Recorded(
            each["seconds"],
            frozenset(names[bit] for bit in _bits(int(each["modules"], 16))),
            frozenset(each.get("slow", ())),
        )
        for test, each in data["tests"].items()
    }


def write(tests: Mapping[str, Recorded], path: Path = FILE) -> None:
    """Write a record: a line for each test file, its modules as the bits of a number."""
    names = sorted({name for each in tests.values() for name in each.modules})
    place = {name: bit for bit, name in enumerate(names)}
    lines = []
    for test, each in sorted(tests.items()):
        modules = format(sum(1 << place[name] for name in each.modules), "x")
        entry: dict[str, Any] = {"seconds": round(each.seconds, 1), "modules": modules}
        if each.slow:
            entry["slow"] = sorted(each.slow)
        lines.append(f"{json.dumps(test)}: {json.dumps(entry)}")
    text = f'{{"modules": {json.dumps(names)},\n"tests": {{\n' + ",\n".join(lines) + "\n}}\n"
    path.write_text(text, encoding="utf-8")


def _bits(number: int) -> Iterator[int]:
    while number:
        low = number & -number
        yield low.bit_length() - 1
        number ^= low


@final
class Recording:
    """A pytest plugin that measures which test file executes what, in each worker."""

    def __init__(self, folder: Path) -> None:
        from coverage import Coverage

        self._folder = folder
        self._seconds: dict[str, float] = defaultdict(float)  # of each case
        self._coverage = Coverage(
            data_file=str(folder / f"{os.getpid()}.coverage"), source=[str(ROOT / "lowwater")]
        )
        self._coverage.start()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        self._coverage.switch_context(item.nodeid.partition("::")[0])
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration

    def pytest_sessionfinish(self) -> None:
        self._coverage.stop()
        self._coverage.save()
        path = self._folder / f"{os.getpid()}.seconds"
        path.write_text(json.dumps(self._seconds))


def plugin_of_environment() -> Recording | None:
    """Return the plugin, where ``make record`` runs the tests; the controller needs none."""
    folder = os.environ.get(_PARTS)
    is_worker = "PYTEST_XDIST_WORKER" in os.environ
    return Recording(Path(folder)) if folder and is_worker else None


def main() -> None:
    """Make the record of what the workers have written."""
    folder = Path(os.environ[_PARTS])
    seconds: dict[str, float] = defaultdict(float)
    slow: dict[str, set[str]] = defaultdict(set)
    for path in folder.glob("*.seconds"):
        for case, spent in json.loads(path.read_text()).items():
            test, _, name = case.partition("[")[0].partition("::")
            seconds[test] += spent
            if spent > SLOW_S:
                slow[test].add(name)
    modules = _executed(folder)
    write(
        {
            test: Recorded(seconds[test], frozenset(modules.get(test, ())), frozenset(slow[test]))
            for test in seconds
        }
    )
    print(f"recorded {len(seconds)} test files in {FILE.relative_to(ROOT)}")


def _executed(folder: Path) -> Mapping[str, set[str]]:
    from coverage import CoverageData

    found: dict[str, set[str]] = {}
    for part in folder.glob("*.coverage"):
        data = CoverageData(str(part))
        data.read()
        for file in data.measured_files():
            inside = _lines_of_functions(Path(file))
            for line, contexts in data.contexts_by_lineno(file).items():
                if line in inside:
                    for test in filter(None, contexts):
                        found.setdefault(test, set()).add(str(Path(file).relative_to(ROOT)))
    return found


def _lines_of_functions(path: Path) -> set[int]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, kinds):
            body = node.body if isinstance(node.body, list) else [node.body]
            # Of a lambda on one line with what holds it, the line is the module's, too.
            lines.update(range(body[0].lineno, (body[-1].end_lineno or body[-1].lineno) + 1))
    return lines


if __name__ == "__main__":
    main()
