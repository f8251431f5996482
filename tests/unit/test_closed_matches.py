"""Every ``match`` ends in ``assert_never``: what a new trigger still owes is a type error."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import get_args

import lowwater
from lowwater.engine.process.cells import CELLS
from lowwater.engine.process.declarations import CellKind

ROOT = Path(lowwater.__file__).parent
OPEN = {
    "display/text.py": "any value of the user's may be shown",
    "engine/graph/described.py": "any value of the user's may be an argument of a combiner",
    "io/sinks/object_stores.py": "stores say when a file was written in values of any type",
    "pipeline/relocation.py": "a stored value is of any plain type",
    "engine/local/covered_records.py": "stateless steps are a protocol: others may make the time",
    "testing/_oracle_windows.py": "window functions are a protocol",
}
"""Where the subject is not of a closed set of types, and why."""


@cache
def matches() -> list[tuple[str, ast.Match]]:
    return [
        (path.relative_to(ROOT).as_posix(), node)
        for path in sorted(ROOT.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Match)
    ]


def is_closed(match: ast.Match) -> bool:
    """Whether the last arm takes whatever is left, and says that nothing may be."""
    last = match.cases[-1]
    wildcard = isinstance(last.pattern, ast.MatchAs) and last.pattern.pattern is None
    (said, *more) = last.body
    never = (
        isinstance(said, ast.Expr)
        and isinstance(said.value, ast.Call)
        and isinstance(said.value.func, ast.Name)
        and said.value.func.id == "assert_never"
    )
    return wildcard and not more and (never or isinstance(said, ast.Raise))


def test_every_match_is_closed() -> None:
    open_ends = {f"{path}:{match.lineno}" for path, match in matches() if not is_closed(match)}
    assert {place.split(":")[0] for place in open_ends} == set(OPEN), open_ends


def test_there_are_matches_to_judge() -> None:
    assert sum(path.startswith("triggers/") for path, _ in matches()) >= 6


def test_every_kind_of_cell_has_a_class() -> None:
    assert set(CELLS) == set(get_args(CellKind))
    assert all(made.kind == kind for kind, made in CELLS.items())
