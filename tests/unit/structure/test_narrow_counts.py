"""A browser counts in 32 bits, and ``np.repeat`` refuses counts of 64 bits there."""

from __future__ import annotations

import ast

from tests.unit.structure.package import Nodes, OfEachFile


@OfEachFile
def repeats(nodes: Nodes) -> list[int]:
    """Return the lines of a file that name ``np.repeat``."""
    return [
        node.lineno
        for node in nodes.of(ast.Attribute)
        if node.attr == "repeat" and isinstance(node.value, ast.Name) and node.value.id == "np"
    ]


def test_elements_are_repeated_by_counts_of_any_size() -> None:
    calling = {path for path, lines in repeats().items() if lines}
    assert calling == {"kernels/positions.py", "testing/conformance.py"}
