"""What is worth knowing about a pattern before it runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from lowwater.engine.graph.finding import Finding, Severity, Upstream
from lowwater.engine.match.pattern import (
    Node,
    is_unbounded,
    may_be_empty,
    optional_variables,
    variables,
)
from lowwater.engine.match.program import compile_pattern
from lowwater.engine.match.references import references_in
from lowwater.engine.match.rules import Matching
from lowwater.engine.records.other_rows import MatchedValue


def match_findings(rules: Matching, where: str, upstream: Sequence[Upstream]) -> Iterator[Finding]:
    """Yield likely mistakes in a pattern.

    Args:
        rules: The rules.
        where: The name of the stage.
        upstream: What is known of the sources behind each of its inputs.
    """
    endless = any(flow.is_endless for flow in upstream)
    if any(flow.is_blind for flow in upstream):
        yield Finding(
            "warning" if endless else "note",
            "a match comes out once the watermark has passed what it depends on, and a source has "
            "no watermark: all rows are kept until the input ends",
            where,
            "Give the source a watermark",
        )
    elif is_unbounded(rules.pattern) and rules.within_us is None:
        yield Finding(
            "warning" if endless else "note",
            "the pattern repeats without bound, and there is no within=: a key whose match never "
            "ends keeps its rows for ever, and holds the output watermark",
            where,
            'Set within=, as in within="1h"',
        )
    if may_be_empty(rules.pattern):
        yield Finding(
            "note",
            "the pattern can also match no row at all; such a match is not emitted",
            where,
            "Have it take a row: a+ in place of a*",
        )
    needed = frozenset(rules.variables) - optional_variables(rules.pattern)
    for name, why, hint in _impossible(rules):
        so = ", so nothing can match the pattern" if name in needed else ""
        severity: Severity = "error" if name in needed else "warning"
        yield Finding(severity, f"no row can be {name!r}: {why}{so}", where, hint)


def _impossible(rules: Matching) -> Iterator[tuple[str, str, str]]:
    """Yield variables that no row can be, with the reason and what to do."""
    before = _before(rules.pattern)
    for name, text in rules.texts.items():
        if text.startswith(_NEVER):
            yield name, f"its condition is {text}", "Give it a condition that some row can meet"
        elif text.endswith(_OF_NULL):
            hint = "Use .is_null(), or ~….is_null()"
            yield name, f"its condition, {text}, compares with null, which is never true", hint
        condition = rules.so_far.get(name)
        if condition is None or callable(condition) or not _is_comparison(text):
            continue
        for reference in references_in(condition):
            if not isinstance(reference, MatchedValue) or reference.function in ("count", "sum"):
                continue
            other = reference.variable
            if other is not None and other != name and other not in before[name]:
                why = f"its condition reads rows of {other!r}, and none can come before it"
                yield name, why, f"Read a variable that comes before {name!r} in the pattern"


_NEVER = ("lit(value=False,", "lit(value=None,")
_OF_NULL = tuple(f".__{name}__(None)" for name in ("eq", "ne", "lt", "le", "gt", "ge"))
_COMPARISON = re.compile(r"\.__(eq|ne|lt|le|gt|ge)__\(")


def _is_comparison(text: str) -> bool:
    """Whether a condition is one comparison, which is null if either side is."""
    return len(_COMPARISON.findall(text)) == 1 and not re.search(
        r"__(or|and|invert)__|is_null|fill_null|is_in", text
    )


def _before(pattern: Node) -> Mapping[str, frozenset[str]]:
    """Return the variables of which rows may come before a row of each one, in a match."""
    names = variables(pattern)
    program = compile_pattern(pattern, {name: at for at, name in enumerate(names)})
    states = range(len(program.x))
    reached: list[set[int]] = [set() for _ in states]  # the variables behind each state
    while True:
        before = [len(some) for some in reached]
        for state in states:
            for target in {int(program.x[state]), int(program.y[state])}:
                if state and target >= 0:
                    label = int(program.label[target])
                    own = {label} if 0 < target <= program.variables and label >= 0 else set()
                    reached[state] |= own | reached[target]
        if before == [len(some) for some in reached]:
            break
    found: dict[str, frozenset[str]] = {}
    for at, name in enumerate(names):
        takers = range(1, program.variables + 1)
        found[name] = frozenset(
            names[int(program.label[state])]
            for state in takers
            if at in reached[state] and program.label[state] >= 0
        )
    return found
