"""Plants random bugs in a checkout, one at a time, and counts those that its tests catch.

::

    python -m tests.mutants.plant --count 120 --seed 11             # this checkout
    python -m tests.mutants.plant --root ../other --out before.jsonl

A bug is one changed place in the code of the operator, merging, trigger machine, placement, row
codec, commit or delivery: an operator, a comparison, a constant or a call that is dropped, in
equal shares. Tests that concern the changed file run first and the run stops at the first failure;
only a bug that they miss meets the rest of ``make test`` (without Spark, which needs minutes).
A bug that makes a run hang is caught, as a run of the tests is limited in time.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

KINDS = ("operator", "comparison", "constant", "call")
# What is mutated, and the tests that concern it, as patterns that hold before and after the rooms
# were built; a pattern that matches nothing is skipped.
SUBJECTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "operator": (
        ("lowwater/engine/operator.py", "lowwater/engine/window/operator.py"),
        (
            "tests/conformance",
            "tests/unit/test_operator.py",
            "tests/unit/engine/window",
            "tests/property/test_engine_equals_oracle.py",
        ),
    ),
    "merging": (
        ("lowwater/engine/_merging.py", "lowwater/engine/window/merging.py"),
        (
            "tests/conformance",
            "tests/property/test_engine_equals_oracle.py",
            "tests/property/test_signed_equals_oracle.py",
        ),
    ),
    "trigger machine": (
        ("lowwater/triggers/_machine.py",),
        ("tests/conformance", "tests/unit/triggers", "tests/property/test_engine_equals_oracle.py"),
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
            "tests/property/test_process_windows.py",
        ),
    ),
    "row codec": (
        (
            "lowwater/engine/_frozen.py",
            "lowwater/state/journal.py",
            "lowwater/state/loose.py",
            "lowwater/state/side_columns.py",
            "lowwater/state/row_codec.py",
        ),
        (
            "tests/property/test_restore.py",
            "tests/unit/state",
            "tests/unit/test_stored_bags.py",
            "tests/property/test_cold_windows.py",
            "tests/property/test_decoders.py",
        ),
    ),
    "commit": (
        ("lowwater/pipeline/durable.py", "lowwater/engine/local/durable.py"),
        (
            "tests/unit/test_graphs_durable.py",
            "tests/unit/test_durable_faults.py",
            "tests/unit/engine/local",
            "tests/crash",
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
            "lowwater/io/sinks/folders.py",
            "lowwater/io/sinks/staging.py",
        ),
        (
            "tests/unit/test_delivery_outbox.py",
            "tests/unit/test_delivery_folders.py",
            "tests/unit/engine/local/test_outbox.py",
            "tests/unit/io",
            "tests/unit/engine/local",
        ),
    ),
}
REST = ("tests/unit", "tests/property", "tests/conformance", "tests/crash", "tests/mutants")
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
    before: str
    after: str
    caught_by: str | None = None
    seconds: float = 0.0


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

    # Annotations and defaults of types say nothing that a test could see.
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
        chosen.append(Planted(subject, kind, place, places.line, places.before, places.after))
        chosen[-1].caught_by = str(at)  # for now, which of the places it is
    return chosen


def _count(path: Path, kind: str) -> int:
    places = _Places(kind)
    places.visit(ast.parse(path.read_text(encoding="utf-8")))
    return places.count


def try_out(copy: Path, bug: Planted, seconds: int) -> None:
    """Plant a bug in a copy of the checkout, run its tests, and take it out again."""
    path, at = copy / bug.path, int(bug.caught_by or 0)
    right = path.read_text(encoding="utf-8")
    places = _Places(bug.kind, at)
    tree = ast.fix_missing_locations(places.visit(ast.parse(right)))
    path.write_text(ast.unparse(tree), encoding="utf-8")
    began = time.monotonic()
    try:
        bug.caught_by = None
        for tests in (SUBJECTS[bug.subject][1], REST):
            there = [name for name in tests if (copy / name).exists()]
            if (failed := _failure(copy, there, seconds)) is not None:
                bug.caught_by = failed
                break
    finally:
        path.write_text(right, encoding="utf-8")
        bug.seconds = round(time.monotonic() - began, 1)


def _failure(copy: Path, tests: list[str], seconds: int) -> str | None:
    """Return what failed first; ``None`` if all tests passed."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n0", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        run = subprocess.run(
            command,
            cwd=copy,
            env=environment,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no end within {seconds} s"
    if run.returncode == 0:
        return None
    lines = [line for line in run.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return lines[0] if lines else f"exit code {run.returncode}"


def main() -> None:
    """Plant the bugs that the arguments ask for, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2])
    parser.add_argument("--count", type=int, default=120)
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--seconds", type=int, default=900, help="for one run of the tests")
    parser.add_argument("--out", type=Path, help="a file that gets one JSON line per bug")
    options = parser.parse_args()
    bugs = choose(options.root, options.count, options.seed)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "checkout"
        ignored = shutil.ignore_patterns(".git", ".venv", "build", "__pycache__", ".mypy_cache")
        shutil.copytree(options.root, copy, ignore=ignored)
        for number, bug in enumerate(bugs, 1):
            try_out(copy, bug, options.seconds)
            verdict = "caught" if bug.caught_by else "SURVIVED"
            change = f"{bug.before} → {bug.after}".replace("\n", " ")
            where = f"{bug.subject}, {bug.path}:{bug.line}"
            print(
                f"{number:3d} {verdict} {bug.seconds:6.1f} s  {where}: {change[:120]}", flush=True
            )
            if options.out is not None:
                with options.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(bug)) + "\n")
    caught = sum(bug.caught_by is not None for bug in bugs)
    print(f"{caught} of {len(bugs)} caught")


if __name__ == "__main__":
    main()
