"""The oracle of row patterns and the search give what other engines' published tests expect.

``tests/oracles/published_patterns.yaml`` has the facts: rows, patterns, conditions and results.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest

from lowwater.engine.match.careful import find_matches_carefully
from lowwater.engine.match.pattern import variables
from lowwater.engine.match.program import compile_pattern
from lowwater.engine.match.reading import parse_pattern
from lowwater.kernels import plain as in_numpy
from lowwater.kernels.pattern_tables import PAST_LAST, TO_FIRST, TO_LAST, TO_NEXT, Search
from tests.kernels import compiled
from tests.oracles import row_patterns
from tests.oracles.pattern_rows import columns
from tests.oracles.row_patterns import (
    END,
    Match,
    MatchSoFar,
    Pattern,
    Row,
    decided,
    is_true,
    parsed,
)
from tests.paths import read_yaml

FILE = Path(row_patterns.__file__).parent / "published_patterns.yaml"
CASES = read_yaml(FILE)


class Null:
    """A null, with which every comparison and computation is null."""

    def _null(self, *_: Any) -> Null:
        return self

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = _null
    __lt__ = __le__ = __gt__ = __ge__ = __rtruediv__ = __mod__ = __rmod__ = _null

    def __eq__(self, other: object) -> Any:
        return self

    def __ne__(self, other: object) -> Any:
        return self

    def __bool__(self) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]  # nothing looks one up


NULL = Null()


def known(value: Any) -> Any:
    return NULL if value is None else value


def plain(value: Any) -> Any:
    return None if isinstance(value, Null) else value


def names(match: MatchSoFar, number: int, subset: Mapping[str, list[str]]) -> dict[str, Any]:
    """Return what the expressions of a case can name."""

    def values(variable: str | None, column: str | None) -> list[Any]:
        wanted = None if variable is None else subset.get(variable, [variable])
        return [
            None if column is None else match.rows[match.start + at].values[column]
            for at, label in enumerate(match.labels)
            if wanted is None or label in wanted
        ]

    def present(variable: str | None, column: str) -> list[Any]:
        return [one for one in values(variable, column) if one is not None]

    def nth(variable: str | None, column: str, place: int) -> Any:
        found = values(variable, column)
        return known(found[place]) if -len(found) <= place < len(found) else NULL

    return {
        "row": {name: known(value) for name, value in match.row.items()},
        "prev": lambda column, k=1: known(match.prev(column, k)),
        "next": lambda column, k=1: known(match.prev(column, -k)),
        "first": lambda variable, column, k=0: nth(variable, column, k),
        "last": lambda variable, column, k=0: nth(variable, column, -1 - k),
        "count": lambda variable=None, column=None: len(
            values(variable, None) if column is None else present(variable, column)
        ),
        "sum": lambda variable, column: sum(present(variable, column) or [NULL]),
        "min": lambda variable, column: min(present(variable, column), default=NULL),
        "max": lambda variable, column: max(present(variable, column), default=NULL),
        "avg": lambda variable, column: (
            sum(present(variable, column)) / len(present(variable, column))
            if present(variable, column)
            else NULL
        ),
        "classifier": lambda: match.labels[-1] if match.labels else NULL,
        "match_number": lambda: number,
        "len": len, "abs": abs, "str": str, "plain": plain,
    }  # fmt: skip


class _IsNone(ast.NodeTransformer):
    """Lets ``x is None`` be true of a null."""

    def visit_Compare(self, node: ast.Compare) -> ast.AST:  # the visitor's name
        self.generic_visit(node)
        if isinstance(node.ops[0], (ast.Is, ast.IsNot)):
            node.left = ast.Call(ast.Name("plain", ast.Load()), [node.left], [])
        return node


@cache
def code_of(text: str) -> Any:
    tree = _IsNone().visit(ast.parse(text, mode="eval"))
    return compile(ast.fix_missing_locations(tree), "<case>", "eval")


Matcher: TypeAlias = Callable[[Mapping[str, Any], list[Row], Pattern], list[Match]]


def found_by(case: Mapping[str, Any], search: Matcher) -> list[dict[str, Any]]:
    """Return the rows of the result, by partition."""
    subset = case.get("subset", {})

    def condition(text: str) -> Any:
        code = code_of(text)
        return lambda match: bool(eval(code, names(match, 0, subset)))

    skip: Any = case["skip"] if isinstance(case["skip"], str) else tuple(case["skip"])
    pattern = Pattern(
        parsed(case["pattern"]),
        {name: condition(text) for name, text in case["define"].items()},
        skip=skip,
    )
    parts: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for given in case["rows"]:
        values = dict(zip(case["columns"], given, strict=True))
        parts.setdefault(tuple(values[name] for name in case["partition"]), []).append(values)
    result = []
    for key, given in parts.items():
        given.sort(key=lambda values: [(values[n] is not None, values[n]) for n in case["order"]])
        rows = [Row(at, values, arrival=at) for at, values in enumerate(given)]
        for number, match in enumerate(search(case, rows, pattern), 1):
            is_one = case["rows_per_match"] == "one"
            for length in range(len(match.labels) if is_one else 1, len(match.labels) + 1):
                so_far = MatchSoFar(rows, match.start, match.labels[:length])
                scope = names(so_far, number, subset)
                made = {
                    n: plain(eval(code_of(text), scope)) for n, text in case["measures"].items()
                }
                own = dict(zip(case["partition"], key, strict=True)) if is_one else so_far.row
                result.append({**own, **made})
    return result


DIFFERENT = {
    "skip to a union of which one variable never matches": "skip names one variable, not a union",
}
"""Cases with another result here, and why."""


EXPONENTIAL = "nested quantifiers over twenty equal rows"
"""Begins the name of the case that backtracking without memory takes minutes for."""
QUICK = [case for case in CASES if not case["name"].startswith(EXPONENTIAL)]


@pytest.mark.parametrize("case", QUICK, ids=lambda case: case["name"])
def test_published_results(case: Mapping[str, Any]) -> None:
    assert is_as_published(case, by_oracle) != (case["name"] in DIFFERENT)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_published_results_of_the_search(case: Mapping[str, Any]) -> None:
    """Conditions on the match so far are asked for, the others are bits of rows."""
    assert is_as_published(case, by_search) != (case["name"] in DIFFERENT)


def is_as_published(case: Mapping[str, Any], search: Matcher) -> bool:
    def of(row: Mapping[str, Any]) -> str:
        return repr([row[name] for name in case["partition"]])

    # The order of partitions is no fact of a case.
    return sorted(found_by(case, search), key=of) == sorted(case["expected"], key=of)


OF_THE_MATCH = re.compile(r"\b(first|last|count|sum|min|max|avg|classifier|match_number)\(")
"""What a condition names that depends on the match so far."""


def by_oracle(case: Mapping[str, Any], rows: list[Row], pattern: Pattern) -> list[Match]:
    return decided(pattern, rows, END)[0]


def by_search(case: Mapping[str, Any], rows: list[Row], pattern: Pattern) -> list[Match]:
    tree = parse_pattern(case["pattern"])
    labels = {name: number for number, name in enumerate(variables(tree))}
    names = list(labels)
    depends = {
        labels[name]
        for name, text in case["define"].items()
        if name in labels and OF_THE_MATCH.search(text)
    }
    bits = np.zeros(len(rows), dtype=np.uint64)
    of_rows = {name: at for name, at in labels.items() if name in pattern.define}
    of_rows = {name: at for name, at in of_rows.items() if at not in depends}
    for at in range(len(rows)):
        for name, bit in of_rows.items():
            if is_true(pattern.define[name], MatchSoFar(rows, at, (name,))):
                bits[at] |= np.uint64(1 << bit)

    def test(
        label: int, starts: Any, places: Any, taken: Any, depth: Any
    ) -> np.ndarray[Any, np.dtype[np.bool_]]:
        met = []
        for start, own, count in zip(starts.tolist(), taken.tolist(), depth.tolist(), strict=True):
            so_far = tuple(names[one] for one in own[:count])
            met.append(is_true(pattern.define[names[label]], MatchSoFar(rows, start, so_far)))
        return np.array(met, dtype=np.bool_)

    code = {"past_last": PAST_LAST, "next": TO_NEXT, "first": TO_FIRST, "last": TO_LAST}
    skip = pattern.skip if isinstance(pattern.skip, str) else pattern.skip[0]
    skip_label = -1 if isinstance(pattern.skip, str) else labels.get(pattern.skip[1], len(labels))
    arguments = (
        compile_pattern(tree, labels, of_rows),
        Search(skip=code[skip], skip_label=skip_label),
        np.array([0, len(rows)]),
        np.array([0]),
        np.array([row.time for row in rows], dtype=np.int64),
        bits,
    )
    found = find_matches_carefully(*arguments, depends, test)
    if not depends:
        for kind in (in_numpy, compiled):
            assert columns(kind.find_matches(*arguments)) == columns(found)
    matches, used = [], 0
    for start, stop in zip(found.start.tolist(), found.stop.tolist(), strict=True):
        own = tuple(names[one] for one in found.labels[used : used + stop - start].tolist())
        used += stop - start
        matches.append(Match(start, own, rows[stop - 1].time))
    return matches


def test_several_engines_are_there() -> None:
    engines = {case["source"].split(",")[0] for case in CASES}
    assert len(engines) >= 5
    assert len(CASES) >= 160
    assert len(QUICK) == len(CASES) - 1
