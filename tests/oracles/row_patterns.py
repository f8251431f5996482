"""The scalar oracle of row patterns: a backtracking search over all admitted rows, for tests only.

It is written to be read beside the rules rather than to be fast, and never releases a row. A match
is SQL:2016's: from each start the preferred parse, where the left branch of an alternative comes
first, and more iterations of a repeat (fewer, if it is reluctant). Where rules leave room, these
decisions hold here:

- The preferred parse decides. If it takes no row, the start has no match, even if another parse
  would take some.
- An iteration of a repeat beyond its least number that takes no row does not count.
- ``within`` bounds the search: a row later than the first row plus ``within`` is never taken, nor
  asked for.
- A search *asks* for a row when it would test one that is not there yet. What it finds is decided
  if it did not ask before it ended; at the end of the input nothing can be asked for.
- ``skip`` to a variable that took no row, or that took the first row of the match, goes on at the
  row behind the first, as ``skip="next"`` does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, final

END = float("inf")


# --- patterns as trees ---------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Variable:
    """One row for which the condition of a variable is true."""

    name: str


@final
@dataclass(frozen=True)
class AnyRow:
    """One row, whatever it is: what ``..`` repeats, as few times as possible."""


@final
@dataclass(frozen=True)
class Concatenation:
    """Parts one after the other; without parts, no row."""

    parts: tuple[Node, ...]


@final
@dataclass(frozen=True)
class Choice:
    """One of several branches, the left one first."""

    branches: tuple[Node, ...]


@final
@dataclass(frozen=True)
class Repeat:
    """A part several times; ``most=None``: any number of times."""

    part: Node
    least: int
    most: int | None
    greedy: bool


Node: TypeAlias = Variable | AnyRow | Concatenation | Choice | Repeat

_TOKEN = re.compile(
    r"\s*(?:(?P<gap>\.\.)|(?P<name>[A-Za-z_]\w*)|(?P<count>\{\s*\d*\s*(?:,\s*\d*\s*)?\})"
    r"|(?P<sign>[|()*+?]))"
)
_COUNTS = {"*": (0, None), "+": (1, None), "?": (0, 1)}


def parsed(text: str) -> Node:
    """Return the tree of a pattern.

    >>> parsed("a | b")
    Choice(branches=(Variable(name='a'), Variable(name='b')))
    """
    tokens: list[tuple[str, str]] = []
    at = 0
    while text[at:].strip():
        token = _TOKEN.match(text, at)
        if token is None:
            raise ValueError(f"{text!r} has no token at {at}")
        tokens.append((str(token.lastgroup), token[0].strip()))
        at = token.end()
    node, rest = _choice(tokens)
    if rest:
        raise ValueError(f"{text!r} does not end where it should: {rest}")
    return node


_Tokens: TypeAlias = list[tuple[str, str]]


def _choice(tokens: _Tokens) -> tuple[Node, _Tokens]:
    branches = []
    while True:
        node, tokens = _sequence(tokens)
        branches.append(node)
        if not tokens or tokens[0][1] != "|":
            return (branches[0] if len(branches) == 1 else Choice(tuple(branches))), tokens
        tokens = tokens[1:]


def _sequence(tokens: _Tokens) -> tuple[Node, _Tokens]:
    parts: list[Node] = []
    while tokens and tokens[0][1] not in "|)":
        (kind, text), *tokens = tokens
        if kind == "gap":
            parts.append(Repeat(AnyRow(), 0, None, greedy=False))
            continue
        if kind == "name":
            node: Node = Variable(text)
        elif text == "(":
            node, tokens = _choice(tokens)
            if not tokens or tokens[0][1] != ")":
                raise ValueError("a group is not closed")
            tokens = tokens[1:]
        else:
            raise ValueError(f"{text!r} repeats nothing")
        while tokens and (tokens[0][0] == "count" or tokens[0][1] in _COUNTS):
            count, tokens = tokens[0][1], tokens[1:]
            greedy = not (tokens and tokens[0][1] == "?")
            tokens = tokens if greedy else tokens[1:]
            node = Repeat(node, *_bounds(count), greedy=greedy)
        parts.append(node)
    return (parts[0] if len(parts) == 1 else Concatenation(tuple(parts))), tokens


def _bounds(count: str) -> tuple[int, int | None]:
    if count in _COUNTS:
        return _COUNTS[count]
    low, comma, high = count[1:-1].partition(",")
    least = int(low) if low.strip() else 0
    if not comma:
        return least, least
    return least, int(high) if high.strip() else None


# --- matches -------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Row:
    """A row of one key.

    Args:
        time: Its event time.
        values: Its columns.
        order: What orders rows of one time, before their arrival; ``None`` comes first.
        arrival: Its place in the order of arrival.
    """

    time: int
    values: Mapping[str, Any]
    order: Any = None
    arrival: int = 0

    @property
    def place(self) -> tuple[Any, ...]:
        """What sorts the rows of a key (P-1)."""
        return self.time, self.order is not None, self.order or 0, self.arrival


@final
@dataclass(frozen=True)
class MatchSoFar:
    """What a condition or a measure can read.

    Args:
        rows: All rows of the key, in order.
        start: The place of the first row of the match.
        labels: The variable of each row that was taken, the row under test included; "" for rows
            of a gap.
    """

    rows: Sequence[Row]
    start: int
    labels: tuple[str, ...]

    @property
    def row(self) -> Mapping[str, Any]:
        """The row under test, or the last one."""
        return self.rows[self.start + len(self.labels) - 1].values

    def prev(self, column: str, k: int = 1) -> Any:
        """Return a value of the row ``k`` places before, of the match or not."""
        at = self.start + len(self.labels) - 1 - k
        return self.rows[at].values[column] if 0 <= at < len(self.rows) else None

    def values(self, variable: str | None, column: str | None) -> list[Any]:
        """Return what the rows of a variable have in a column."""
        return [
            None if column is None else self.rows[self.start + at].values[column]
            for at, label in enumerate(self.labels)
            if variable is None or label == variable
        ]

    def first(self, variable: str | None, column: str, k: int = 0) -> Any:
        """Return the value of the ``k``-th row of a variable."""
        found = self.values(variable, column)
        return found[k] if k < len(found) else None

    def last(self, variable: str | None, column: str, k: int = 0) -> Any:
        """Return the value of the ``k``-th last row of a variable."""
        found = self.values(variable, column)
        return found[-1 - k] if k < len(found) else None

    def count(self, variable: str | None = None, column: str | None = None) -> int:
        """Return how many rows a variable has, or how many of them have a value."""
        found = self.values(variable, column)
        return len(found) if column is None else sum(one is not None for one in found)

    def present(self, variable: str | None, column: str) -> list[Any]:
        """Return the values of a variable's rows that are not null."""
        return [one for one in self.values(variable, column) if one is not None]


Condition: TypeAlias = Callable[[MatchSoFar], Any]
"""Null and errors of comparing with null count as false (P-3)."""
Skip: TypeAlias = Literal["past_last", "next"] | tuple[Literal["first", "last"], str]
Emit: TypeAlias = Literal["on_time", "final", "early"]


@final
@dataclass(frozen=True)
class Absent:
    """No row for which a condition is true comes for some time after the last row (P-12)."""

    condition: Callable[[Mapping[str, Any]], Any]
    within: int


@final
@dataclass(frozen=True)
class Pattern:
    """What is searched for.

    Args:
        tree: The pattern.
        define: The conditions of variables; a variable without one takes any row.
        within: How much later than its first row a row of a match may be; ``None``: any.
        skip: Where the search goes on behind a match.
        without: What must not come behind the last row.
    """

    tree: Node
    define: Mapping[str, Condition] = field(default_factory=dict)
    within: int | None = None
    skip: Skip = "past_last"
    without: Absent | None = None


@final
@dataclass(frozen=True)
class Match:
    """A match.

    Args:
        start: The place of its first row among those of the key.
        labels: The variable of each of its rows.
        time: Its event time (P-10).
    """

    start: int
    labels: tuple[str, ...]
    time: int

    @property
    def stop(self) -> int:
        """The place behind its last row."""
        return self.start + len(self.labels)


class _Search:
    """One attempt: the parses from one start, in order of preference."""

    def __init__(self, pattern: Pattern, rows: Sequence[Row], start: int, horizon: float) -> None:
        self._pattern = pattern
        self._rows = rows
        self._start = start
        self._horizon = horizon
        self.asked = False

    def parses(self, node: Node, labels: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        """Yield the labels behind a node, one tuple for each parse."""
        match node:
            case Variable(name):
                yield from self._taken(labels, name)
            case AnyRow():
                yield from self._taken(labels, "")
            case Concatenation(parts):
                yield from self._in_turn(parts, labels)
            case Choice(branches):
                for branch in branches:
                    yield from self.parses(branch, labels)
            case Repeat():
                yield from self._repeated(node, 0, labels)

    def _in_turn(
        self, parts: tuple[Node, ...], labels: tuple[str, ...]
    ) -> Iterator[tuple[str, ...]]:
        if not parts:
            yield labels
            return
        for longer in self.parses(parts[0], labels):
            yield from self._in_turn(parts[1:], longer)

    def _repeated(
        self, node: Repeat, done: int, labels: tuple[str, ...]
    ) -> Iterator[tuple[str, ...]]:
        may_stop = done >= node.least
        if may_stop and not node.greedy:
            yield labels
        if node.most is None or done < node.most:
            for longer in self.parses(node.part, labels):
                if len(longer) == len(labels) and may_stop:
                    continue  # an iteration that takes no row
                yield from self._repeated(node, done + 1, longer)
        if may_stop and node.greedy:
            yield labels

    def _taken(self, labels: tuple[str, ...], name: str) -> Iterator[tuple[str, ...]]:
        at = self._start + len(labels)
        last = END
        if self._pattern.within is not None:
            last = self._rows[self._start].time + self._pattern.within
        if at >= len(self._rows) or self._rows[at].time >= self._horizon:
            # No row to come counts behind the end of the input, or beyond what is admitted (P-5).
            self.asked |= self._horizon <= last and self._horizon < END
            return
        if self._rows[at].time > last:
            return
        longer = (*labels, name)
        condition = self._pattern.define.get(name)
        if condition is None or is_true(condition, MatchSoFar(self._rows, self._start, longer)):
            yield longer


def is_true(condition: Callable[[Any], Any], argument: Any) -> bool:
    """Return whether a condition is true; comparing with null gives null, which is not."""
    try:
        found = condition(argument)
    except TypeError:
        return False
    return found is not None and bool(found)


def decided(pattern: Pattern, rows: Sequence[Row], horizon: float) -> tuple[list[Match], list[int]]:
    """Return the matches that are decided, and the starts that are not.

    Args:
        pattern: The pattern.
        rows: The rows of one key, sorted (P-1). Those at or above the horizon are not there yet.
        horizon: The horizon; ``END`` at the end of the input.
    """
    matches: list[Match] = []
    open_: list[int] = []
    start = 0
    count = sum(row.time < horizon for row in rows)
    while start < count:
        search = _Search(pattern, rows, start, horizon)
        labels = next(search.parses(pattern.tree, ()), None)
        found, is_open = _judged(pattern, rows, start, labels, horizon)
        if search.asked or is_open:
            open_.append(start)
            if pattern.skip != "next":
                return matches, open_  # P-9: what comes behind may be no start at all
            start += 1
            continue
        if found is None:
            start += 1
            continue
        matches.append(found)
        start = _next_start(pattern.skip, found)
    return matches, open_


def _judged(
    pattern: Pattern,
    rows: Sequence[Row],
    start: int,
    labels: tuple[str, ...] | None,
    horizon: float,
) -> tuple[Match | None, bool]:
    """Return the match, if there is one, and whether what must be absent may still come."""
    if not labels:
        return None, False
    last = rows[start + len(labels) - 1]
    without = pattern.without
    if without is None:
        return Match(start, labels, last.time), False
    until = last.time + without.within
    for row in rows[start + len(labels) :]:
        if row.time <= until and row.time < horizon and is_true(without.condition, row.values):
            return None, False
    return Match(start, labels, until), until >= horizon


def _next_start(skip: Skip, match: Match) -> int:
    if skip == "past_last":
        return match.stop
    if skip == "next":
        return match.start + 1
    which, name = skip
    places = [match.start + at for at, label in enumerate(match.labels) if label == name]
    target = places[0 if which == "first" else -1] if places else match.start
    return max(target, match.start + 1)
