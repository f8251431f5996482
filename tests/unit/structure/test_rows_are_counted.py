"""What holds rows counts rows: the ``len`` of a named tuple is how many fields it has.

``len(records)`` of a named tuple of columns is right for a bundle of three rows and wrong for all
others, without an error. So what holds rows is a dataclass: without ``__len__`` it has no length.
"""

from __future__ import annotations

import ast
import re

from tests.unit.structure.package import Nodes, OfEachFile

ROWS = re.compile(r"\b(\w*Array|Mask|NDArray|ndarray|list|Sequence|Column|Bundle|Records)\b")
"""The types of fields that have one entry for each row."""
SEVERAL = {
    "kernels/plain.py: Arrived": "three results, unpacked where they are returned",
    "kernels/plain.py: Claims": "five results of different lengths, unpacked",
    "kernels/pattern_tables.py: Found": "four results of different lengths, unpacked",
    "kernels/plain_merging.py: Gathered": "six results of different lengths, unpacked",
    "kernels/plain_merging.py: MergedRows": "seven results of different lengths, unpacked",
    "engine/records/stored_keys.py: StoredKey": "one key; its parts are no rows",
    "live/measures.py: Distribution": "one histogram; its buckets are no rows",
    "testing/_drive.py: Driven": "what a whole run returned, field by field",
}
"""Named tuples that hold sequences and are not rows, and why."""


def ends(node: ast.expr) -> str:
    """Return the last name of a dotted one."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


@OfEachFile
def named_tuples(nodes: Nodes) -> dict[str, str]:
    """Return the named tuples of a file, and the types of their fields."""
    return {
        node.name: " ".join(
            ast.unparse(each.annotation) for each in node.body if isinstance(each, ast.AnnAssign)
        )
        for node in nodes.of(ast.ClassDef)
        if any(ends(base).endswith("NamedTuple") for base in node.bases)
    }


@OfEachFile
def calls(nodes: Nodes) -> list[int]:
    """Return the lines of a file that make a named tuple by a call."""
    return [
        call.lineno for call in nodes.of(ast.Call) if ends(call.func).lower().endswith("namedtuple")
    ]


def test_no_named_tuple_holds_rows() -> None:
    found = {
        f"{path}: {name}": types
        for path, tuples in named_tuples().items()
        for name, types in tuples.items()
    }
    assert len(found) > 10
    assert {name for name, types in found.items() if ROWS.search(types)} == set(SEVERAL)


def test_named_tuples_are_classes() -> None:
    """None is made by a call, which the test above would not see."""
    assert {path: lines for path, lines in calls().items() if lines} == {}
