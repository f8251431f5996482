"""Every ``match`` ends in ``assert_never``: what a new trigger still owes is a type error."""

from __future__ import annotations

import ast
from typing import get_args

from lowwater.engine.process.cells import CELLS
from lowwater.engine.process.declarations import CellKind
from tests.unit.structure.package import Nodes, OfEachFile

OPEN = {
    "display/text.py": "any value of the user's may be shown",
    "engine/graph/described.py": "any value of the user's may be an argument of a combiner",
    "io/sinks/object_stores.py": "stores say when a file was written in values of any type",
    "pipeline/relocation.py": "a stored value is of any plain type",
    "engine/local/covered_records.py": "stateless steps are a protocol: others may make the time",
    "testing/_oracle_windows.py": "window functions are a protocol",
}
"""Where the subject is not of a closed set of types, and why."""


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


@OfEachFile
def closed(nodes: Nodes) -> dict[int, bool]:
    """Return whether each ``match`` of a file is closed, by its line."""
    return {match.lineno: is_closed(match) for match in nodes.of(ast.Match)}


def test_every_match_is_closed() -> None:
    open_ends = {
        path: [line for line, is_closed in matches.items() if not is_closed]
        for path, matches in closed().items()
        if not all(matches.values())
    }
    assert open_ends.keys() == OPEN.keys(), open_ends


def test_there_are_matches_to_judge() -> None:
    of_triggers = (found for path, found in closed().items() if path.startswith("triggers/"))
    assert sum(map(len, of_triggers)) >= 6


def test_every_kind_of_cell_has_a_class() -> None:
    assert set(CELLS) == set(get_args(CellKind))
    assert all(made.kind == kind for kind, made in CELLS.items())
