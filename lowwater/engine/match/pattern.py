"""Patterns of rows as trees, and what can be said of a pattern without looking at rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias, assert_never, final

__all__ = [
    "AnyRow",
    "Choice",
    "Concatenation",
    "Node",
    "Repeat",
    "Variable",
    "first_variables",
    "is_unbounded",
    "longest",
    "may_be_empty",
    "optional_variables",
    "shortest",
    "takes_no_row",
    "variables",
]


@final
@dataclass(frozen=True, slots=True)
class Variable:
    """One row for which the condition of a variable is true."""

    name: str


@final
@dataclass(frozen=True, slots=True)
class AnyRow:
    """One row, whatever it is: what ``..`` repeats, as few times as possible."""


@final
@dataclass(frozen=True, slots=True)
class Concatenation:
    """Parts one after the other; without parts, no row."""

    parts: tuple[Node, ...]


@final
@dataclass(frozen=True, slots=True)
class Choice:
    """One of several branches, the left one preferred."""

    branches: tuple[Node, ...]


@final
@dataclass(frozen=True, slots=True)
class Repeat:
    """A part several times.

    Args:
        part: The part.
        least: How often at least.
        most: How often at most; ``None``: any number of times.
        greedy: Whether more iterations are preferred to fewer.
    """

    part: Node
    least: int
    most: int | None
    greedy: bool


Node: TypeAlias = Variable | AnyRow | Concatenation | Choice | Repeat


def variables(node: Node) -> tuple[str, ...]:
    """Return the names in a pattern, in order of first appearance."""
    return tuple(dict.fromkeys(_names(node)))


def _names(node: Node) -> Iterator[str]:
    if isinstance(node, Variable):
        yield node.name
    for child in _children(node):
        yield from _names(child)


def _children(node: Node) -> tuple[Node, ...]:
    match node:
        case Concatenation(parts):
            return parts
        case Choice(branches):
            return branches
        case Repeat(part):
            return (part,)
        case Variable() | AnyRow():
            return ()
        case _:
            assert_never(node)


def shortest(node: Node) -> int:
    """Return the least number of rows that a parse takes."""
    match node:
        case Concatenation(parts):
            return sum(map(shortest, parts))
        case Choice(branches):
            return min(map(shortest, branches))
        case Repeat():
            return node.least * shortest(node.part)
        case Variable() | AnyRow():
            return 1
        case _:
            assert_never(node)


def longest(node: Node) -> float:
    """Return the largest number of rows that a parse takes; infinity where there is no bound."""
    match node:
        case Concatenation(parts):
            return sum(map(longest, parts))
        case Choice(branches):
            return max(map(longest, branches))
        case Repeat():
            of_part = longest(node.part)
            if not of_part or node.most == 0:
                return 0
            return float("inf") if node.most is None else node.most * of_part
        case Variable() | AnyRow():
            return 1
        case _:
            assert_never(node)


def may_be_empty(node: Node) -> bool:
    """Return whether some parse takes no row."""
    return shortest(node) == 0


def is_unbounded(node: Node) -> bool:
    """Return whether a match may take any number of rows."""
    return longest(node) == float("inf")


def takes_no_row(node: Node) -> bool:
    """Return whether the preferred parse takes no row whatever the rows are, as of ``a*?``.

    Such a pattern has no matches, because the preferred parse decides (P-3).
    """
    match node:
        case Concatenation(parts):
            return all(map(takes_no_row, parts))
        case Choice(branches):
            return takes_no_row(branches[0])
        case Repeat():
            may_go_on = node.most is None or node.most > node.least
            more_first = may_go_on and node.greedy and longest(node.part) > 0
            return not more_first and (node.least == 0 or takes_no_row(node.part))
        case Variable() | AnyRow():
            return False
        case _:
            assert_never(node)


def optional_variables(node: Node) -> frozenset[str]:
    """Return the variables that some parse has no row of."""
    return frozenset(_names(node)) - _needed(node)


def _needed(node: Node) -> frozenset[str]:
    match node:
        case Variable(name):
            return frozenset([name])
        case Concatenation(parts):
            return frozenset().union(*map(_needed, parts))
        case Choice(branches):
            return frozenset.intersection(*map(_needed, branches))
        case Repeat():
            return _needed(node.part) if node.least > 0 else frozenset()
        case AnyRow():
            return frozenset()
        case _:
            assert_never(node)


def first_variables(node: Node) -> frozenset[str]:
    """Return the variables that can take the first row of a match."""
    match node:
        case Variable(name):
            return frozenset([name])
        case Concatenation(parts):
            names: frozenset[str] = frozenset()
            for part in parts:
                names |= first_variables(part)
                if not may_be_empty(part):
                    break
            return names
        case Choice(branches):
            return frozenset().union(*map(first_variables, branches))
        case Repeat():
            return first_variables(node.part) if node.most != 0 else frozenset()
        case AnyRow():
            return frozenset()
        case _:
            assert_never(node)
