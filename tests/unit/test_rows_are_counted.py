"""What holds rows counts rows: the ``len`` of a named tuple is how many fields it has.

``len(records)`` of a named tuple of columns is right for a bundle of three rows and wrong for all
others, without an error. So what holds rows is a dataclass: without ``__len__`` it has no length.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import lowwater

ROOT = Path(lowwater.__file__).parent
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


@cache
def named_tuples() -> dict[str, str]:
    """Return the named tuples of the package, and the types of their fields."""
    return {
        f"{path.relative_to(ROOT).as_posix()}: {node.name}": " ".join(
            ast.unparse(each.annotation) for each in node.body if isinstance(each, ast.AnnAssign)
        )
        for path in sorted(ROOT.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
        and any(ast.unparse(base).endswith("NamedTuple") for base in node.bases)
    }


def test_no_named_tuple_holds_rows() -> None:
    assert len(named_tuples()) > 10
    holding = {name for name, types in named_tuples().items() if ROWS.search(types)}
    assert holding == set(SEVERAL)


def test_named_tuples_are_classes() -> None:
    """None is made by a call, which the test above would not see."""
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                assert not ast.unparse(node.func).lower().endswith("namedtuple"), path
