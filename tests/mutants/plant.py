"""Plants random bugs in a checkout, one at a time, and counts those that its tests catch.

::

    python -m tests.mutants.plant --count 120 --seed 11             # this checkout
    python -m tests.mutants.plant --root ../other --out before.jsonl

A bug is one changed place in the code of the operator, merging, trigger machine, placement, row
codec, commit or delivery: an operator, a comparison, a constant or a call that is dropped, in
equal shares. Tests that concern the changed file run first and the run stops at the first failure.
The bugs that they miss meet the rest of ``make test`` (without Spark) together: most change nothing
that a test could see, and one run shows it for all of them. Tests that fail then are run for each
bug alone. A bug that makes a run hang is caught, as a run of the tests is limited in time.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

KINDS = ("operator", "comparison", "constant", "call")
KINDS_IN_ORDER = ("constant", "comparison", "operator", "call")
# What is mutated, and the tests that concern it, as patterns that hold before and after the rooms
# were built; a pattern that matches nothing is skipped.
SUBJECTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "operator": (
        ("lowwater/engine/operator.py", "lowwater/engine/window/operator.py"),
        (
            "tests/conformance",
            "tests/unit/test_operator.py",
            "tests/unit/engine/window",
        ),
    ),
    "merging": (
        ("lowwater/engine/_merging.py", "lowwater/engine/window/merging.py"),
        ("tests/conformance", "tests/unit/test_operator.py", "tests/unit/engine/window"),
    ),
    "trigger machine": (
        ("lowwater/triggers/_machine.py",),
        ("tests/conformance", "tests/unit/triggers", "tests/unit/test_triggers_values.py"),
    ),
    "placement": (
        (
            "lowwater/engine/_dropped.py",
            "lowwater/engine/process/placing.py",
            "lowwater/engine/window/placement.py",
        ),
        (
            "tests/conformance",
            "tests/unit/test_process_in_windows.py",
            "tests/unit/engine/process",
        ),
    ),
    "row codec": (
        (
            "lowwater/engine/_frozen.py",
            "lowwater/state/blocks.py",
            "lowwater/state/journal.py",
            "lowwater/state/loose.py",
            "lowwater/state/side_columns.py",
            "lowwater/state/row_codec.py",
        ),
        (
            "tests/unit/state",
            "tests/unit/test_stored_bags.py",
            "tests/unit/test_memory_limit.py",
            "tests/unit/engine/local/test_memory_limit.py",
            "tests/property/test_restore.py",
        ),
    ),
    "commit": (
        ("lowwater/pipeline/durable.py", "lowwater/engine/local/durable.py"),
        (
            "tests/unit/test_durable_faults.py",
            "tests/unit/engine/local/test_durable_faults.py",
        ),
    ),
    "delivery": (
        (
            "lowwater/engine/delivery.py",
            "lowwater/engine/outbox.py",
            "lowwater/io/delivery/folders.py",
            "lowwater/io/delivery/_staging.py",
            "lowwater/engine/local/delivery.py",
            "lowwater/engine/local/outbox.py",
            "lowwater/engine/local/direct.py",
            "lowwater/engine/local/pieces.py",
            "lowwater/io/sinks/folders.py",
            "lowwater/io/sinks/json_lines_file.py",
            "lowwater/io/sinks/output_owner.py",
            "lowwater/io/sinks/staging.py",
        ),
        (
            "tests/unit/test_delivery_outbox.py",
            "tests/unit/test_delivery_folders.py",
            "tests/unit/engine/local/test_outbox.py",
            "tests/unit/engine/local/test_same_output.py",
            "tests/unit/io/test_folders.py",
            "tests/unit/io/test_json_lines_file.py",
        ),
    ),
}
REST = ("tests/unit", "tests/property", "tests/conformance", "tests/crash")
SWAPS: dict[type, type] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.And: ast.Or, ast.Or: ast.And,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip


@dataclass
class Planted:
    """One changed place, and whether tests failed for it."""

    subject: str
    kind: str
    path: str
    line: int
    place: int
    before: str
    after: str
    caught_by: str | None = None
    seconds: float = 0.0

    def describe(self) -> str:
        """Return where the bug is and what it changes, in one line."""
        change = f"{self.before} → {self.after}".replace("\n", " ")
        return f"{self.subject}, {self.path}:{self.line}: {change[:120]}"


class _Places(ast.NodeTransformer):
    """Counts the places a kind of bug can go to; changes the one that was asked for."""

    def __init__(self, kind: str, chosen: int | None = None) -> None:
        self.kind = kind
        self.chosen = chosen
        self.count = 0
        self.line = 0
        self.before = self.after = ""

    def _is_chosen(self, node: ast.AST) -> bool:
        self.count += 1
        if self.chosen != self.count - 1:
            return False
        self.line, self.before = getattr(node, "lineno", 0), ast.unparse(node)
        return True

    def _done(self, node: ast.AST) -> ast.AST:
        self.after = ast.unparse(node)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if self.kind == "operator" and type(node.op) in SWAPS and self._is_chosen(node):
            node.op = SWAPS[type(node.op)]()
            return self._done(node)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        if self.kind == "operator" and self._is_chosen(node):
            node.op = SWAPS[type(node.op)]()
            return self._done(node)
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        dropped = isinstance(node.op, (ast.Not, ast.Invert))
        if self.kind == "operator" and dropped and self._is_chosen(node):
            return self._done(node.operand)
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        if self.kind == "comparison" and type(node.ops[0]) in SWAPS and self._is_chosen(node):
            node.ops[0] = SWAPS[type(node.ops[0])]()
            return self._done(node)
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if self.kind != "constant" or not isinstance(node.value, (bool, int)):
            return node
        if self._is_chosen(node):
            value = not node.value if isinstance(node.value, bool) else node.value + 1
            return self._done(ast.copy_location(ast.Constant(value), node))
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        self.generic_visit(node)
        if self.kind == "call" and isinstance(node.value, ast.Call) and self._is_chosen(node):
            return self._done(ast.copy_location(ast.Pass(), node))
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        self.generic_visit(node)
        if self.kind == "call" and self._is_chosen(node):
            return self._done(ast.copy_location(ast.Pass(), node))
        return node

    # Annotations say nothing that a test could see.
    def visit_arg(self, node: ast.arg) -> ast.AST:
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        returns, node.returns = node.returns, None
        self.generic_visit(node)
        node.returns = returns
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is not None:
            node.value = self.visit(node.value)
        return node


def choose(root: Path, count: int, seed: int) -> list[Planted]:
    """Return bugs to plant: spread over subjects and kinds alike, the same for the same seed."""
    # Not for secrets: the same seed has to choose the same places.
    chance = random.Random(seed)
    chosen: list[Planted] = []
    used: set[tuple[str, str, int]] = set()
    subjects = list(SUBJECTS)
    turn = 0
    while len(chosen) < count and turn < 50 * count:
        subject, kind = subjects[turn % len(subjects)], KINDS[(turn // len(subjects)) % 4]
        turn += 1
        files = [root / path for path in SUBJECTS[subject][0] if (root / path).is_file()]
        weights = [_count(path, kind) for path in files]
        if not sum(weights):
            continue
        (path,) = chance.choices(files, weights)
        at = chance.randrange(_count(path, kind))
        place = str(path.relative_to(root))
        if (place, kind, at) in used:
            continue
        used.add((place, kind, at))
        places = _Places(kind, at)
        places.visit(ast.parse(path.read_text(encoding="utf-8")))
        chosen.append(Planted(subject, kind, place, places.line, at, places.before, places.after))
    return chosen


def _count(path: Path, kind: str) -> int:
    places = _Places(kind)
    places.visit(ast.parse(path.read_text(encoding="utf-8")))
    return places.count


class Tests:
    """Runs the tests of a copy of a checkout, in a process that has the heavy imports."""

    def __init__(self, copy: Path, seconds: int) -> None:
        self.copy = copy
        self.seconds = seconds
        # The copy's own tests may be older than this script, so it is not run as a module.
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("forked.py"))],
            cwd=copy,
            env={**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def failures(self, tests: Sequence[str], *, first: bool = True) -> list[str]:
        """Return the tests that failed; one line that says so if the run did not end."""
        there = [name for name in tests if (self.copy / name.split("::")[0]).exists()]
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        asked = {"tests": there, "seconds": self.seconds, "first": first}
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if answer["code"] == 0:
            return []
        if answer["code"] is None:
            return [f"no end within {self.seconds} s"]
        lines = [line.split(" - ")[0] for line in answer["failed"]]
        return lines or [f"exit code {answer['code']}: {answer['end'][-300:]}"]


def _index(bug: Planted) -> tuple[int, int]:
    # Dropped calls take other places with them, and a place taken out moves those behind it.
    return KINDS_IN_ORDER.index(bug.kind), -bug.place


@contextlib.contextmanager
def planted(copy: Path, bugs: Sequence[Planted]) -> Iterator[None]:
    """Plant bugs in a copy of the checkout, and take them out again."""
    right = {name: (copy / name).read_text(encoding="utf-8") for name in {b.path for b in bugs}}
    try:
        for name, source in right.items():
            tree: ast.AST = ast.parse(source)
            for bug in sorted((bug for bug in bugs if bug.path == name), key=_index):
                tree = _Places(bug.kind, bug.place).visit(tree)
            changed = ast.unparse(ast.fix_missing_locations(tree))
            (copy / name).write_text(changed, encoding="utf-8")
        yield
    finally:
        for name, source in right.items():
            (copy / name).write_text(source, encoding="utf-8")


def try_alone(tests: Tests, bug: Planted) -> None:
    """Plant one bug and run the tests that concern its file."""
    began = time.monotonic()
    with planted(tests.copy, [bug]):
        failed = tests.failures(SUBJECTS[bug.subject][1])
    bug.caught_by = failed[0] if failed else None
    bug.seconds = round(time.monotonic() - began, 1)


def try_together(tests: Tests, bugs: list[Planted]) -> None:
    """Plant bugs at once, run what make test runs, and find which bug each failure belongs to."""
    left = bugs
    while left:
        with planted(tests.copy, left):
            failed = tests.failures(REST, first=False)
        if not failed:
            return
        if not failed[0].startswith(("FAILED ", "ERROR ")):  # it hung, or ended at once
            if len(left) == 1:
                left[0].caught_by = failed[0]
                return
            half = len(left) // 2
            try_together(tests, left[:half])
            try_together(tests, left[half:])
            return
        names = [line.split(" ", 1)[1] for line in failed]
        wrong_anyway = {line.split(" ", 1)[1] for line in tests.failures(names, first=False)}
        names = [name for name in names if name not in wrong_anyway]
        for bug in left:
            with planted(tests.copy, [bug]):
                found = tests.failures(names) if names else []
            bug.caught_by = found[0] if found else None
        if all(bug.caught_by is None for bug in left):
            return
        left = [bug for bug in left if bug.caught_by is None]


def main() -> None:
    """Plant the bugs that the arguments ask for, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2])
    parser.add_argument("--count", type=int, default=120)
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--seconds", type=int, default=300, help="for the tests of one file")
    parser.add_argument(
        "--together", type=int, default=3600, help="for one run of all but the long tests"
    )
    parser.add_argument("--out", type=Path, help="a file that gets one JSON line per bug")
    options = parser.parse_args()
    bugs = choose(options.root, options.count, options.seed)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "checkout"
        ignored = shutil.ignore_patterns(".git", ".venv", "build", "__pycache__", ".mypy_cache")
        shutil.copytree(options.root, copy, ignore=ignored)
        tests = Tests(copy, options.seconds)
        for subject, (_, concerned) in SUBJECTS.items():
            began = time.monotonic()
            if failed := tests.failures(concerned):
                parser.error(f"without a bug: {failed[0]}")
            print(f"{subject}: {time.monotonic() - began:.0f} s without a bug", flush=True)
        for number, bug in enumerate(bugs, 1):
            try_alone(tests, bug)
            verdict = "caught" if bug.caught_by else "missed"
            print(f"{number:3d} {verdict} {bug.seconds:6.1f} s  {bug.describe()}", flush=True)
        tests.seconds = options.together
        missed = [bug for bug in bugs if bug.caught_by is None]
        print(f"{len(missed)} of {len(bugs)} missed by the tests of their file", flush=True)
        try_together(tests, missed)
        tests.close()
        for bug in missed:
            verdict = "caught" if bug.caught_by else "SURVIVED"
            print(f"{verdict} {bug.describe()} {bug.caught_by or ''}", flush=True)
        if options.out is not None:
            lines = [json.dumps(asdict(bug)) + "\n" for bug in bugs]
            options.out.write_text("".join(lines), encoding="utf-8")
    caught = sum(bug.caught_by is not None for bug in bugs)
    print(f"{caught} of {len(bugs)} caught")


if __name__ == "__main__":
    main()
