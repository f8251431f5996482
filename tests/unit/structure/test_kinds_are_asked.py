"""The structure that CONTRIBUTING promises: long files say why, and no one asks for a kind."""

from __future__ import annotations

import ast
import re

from tests.stage_kinds import every_kind
from tests.unit.structure.package import FILES, Nodes, OfEachFile

LONG, TOO_LONG = 500, 1_000
KINDS = {kind.__name__ for kind in every_kind()}

# Where a kind of stage is told from others, and why that cannot be asked of the kind itself.
TOLD_APART = {
    "cli/explain_commands.py": "a scenario is run through windows and aggregates alone",
    "engine/local/stage_operators.py": "workers have parts of a process, or combiners of windows",
    "pipeline/worker_option.py": "the same, to say whether workers= changes anything",
    "testing/_pipeline_drivers.py": "records that pass have no operator on Spark",
    "testing/_probe.py": "a scenario ends in panes",
    "testing/_settled.py": "the same",
}


@OfEachFile
def docstrings(nodes: Nodes) -> str:
    return ast.get_docstring(nodes.module) or ""


@OfEachFile
def dispatches(nodes: Nodes) -> list[int]:
    """Return the lines on which a file asks whether something is of a kind."""
    asked: list[list[ast.expr]] = [
        call.args[1:]
        for call in nodes.of(ast.Call)
        if isinstance(call.func, ast.Name) and call.func.id in ("isinstance", "issubclass")
    ]
    asked += [[match.cls] for match in nodes.of(ast.MatchClass)]
    return [
        parts[0].lineno
        for parts in asked
        if {name.id for part in parts for name in ast.walk(part) if isinstance(name, ast.Name)}
        & KINDS
    ]


def test_long_files_say_why() -> None:
    lengths = {name: path.read_text(encoding="utf-8").count("\n") for name, path in FILES.items()}
    assert [name for name, length in lengths.items() if length > TOO_LONG] == []
    unexplained = [
        name
        for name, length in lengths.items()
        if length > LONG
        and not re.search(r"The file is long because|in one file\s+because", docstrings()[name])
    ]
    assert unexplained == []


def test_what_depends_on_a_stage_is_asked_of_its_kind() -> None:
    assert len(KINDS) >= 8
    found = {name: lines for name, lines in dispatches().items() if lines}
    assert found.keys() == TOLD_APART.keys()
    assert sum(map(len, found.values())) <= 10
