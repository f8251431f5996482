"""The structure that CONTRIBUTING promises: long files say why, and no one asks for a kind."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import lowwater.time
from tests.stage_kinds import every_kind

PACKAGE = Path(lowwater.time.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
LONG, TOO_LONG = 500, 1_000

# Where a kind of stage is told from others, and why that cannot be asked of the kind itself.
TOLD_APART = {
    "cli/explain_commands.py": "a scenario is run through windows and aggregates alone",
    "engine/local/stage_operators.py": "workers have parts of a process, or combiners of windows",
    "pipeline/worker_option.py": "the same, to say whether workers= changes anything",
    "testing/_pipeline_drivers.py": "records that pass have no operator on Spark",
    "testing/_probe.py": "a scenario ends in panes",
    "testing/_settled.py": "the same",
}


def dispatches(path: Path, kinds: set[str]) -> list[int]:
    """Return the lines on which a file asks whether something is of a kind."""
    lines = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        asked: list[ast.expr] = []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            asked = [*node.args[1:]] if node.func.id in ("isinstance", "issubclass") else []
        elif isinstance(node, ast.MatchClass):
            asked = [node.cls]
        names = {name.id for part in asked for name in ast.walk(part) if isinstance(name, ast.Name)}
        if names & kinds:
            lines += [part.lineno for part in asked[:1]]
    return lines


def test_long_files_say_why() -> None:
    lengths = {path: path.read_text(encoding="utf-8").count("\n") for path in FILES}
    assert [path for path, length in lengths.items() if length > TOO_LONG] == []
    unexplained = [
        str(path.relative_to(PACKAGE))
        for path, length in lengths.items()
        if length > LONG
        and not re.search(
            r"The file is long because|in one file\s+because",
            ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "",
        )
    ]
    assert unexplained == []


def test_what_depends_on_a_stage_is_asked_of_its_kind() -> None:
    kinds = {kind.__name__ for kind in every_kind()}
    assert len(kinds) >= 8
    found = {
        str(path.relative_to(PACKAGE)): lines
        for path in FILES
        if (lines := dispatches(path, kinds))
    }
    assert found.keys() == TOLD_APART.keys()
    assert sum(map(len, found.values())) <= 10
