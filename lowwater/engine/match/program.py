"""Compiles a pattern into the states of a search, as regular expressions are compiled.

A search stands in a state, before a row. Counts are unrolled, and an iteration of a loop always
takes a row, so (state, row) is all there is to know of it: no counters, no marks.

A part is compiled for two continuations, after Thompson ("Regular Expression Search Algorithm",
1968): one for parses of it that took a row, one for the parse that took none. The body of a loop
has the loop itself for the first, and failure for the second, because an iteration that takes no
row does not count (P-3). So no parse is tried that the rules do not count, and those that remain
are tried in the order of preference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import assert_never, final

import numpy as np

from lowwater.engine.match.pattern import (
    AnyRow,
    Choice,
    Concatenation,
    Node,
    Repeat,
    Variable,
    longest,
    may_be_empty,
    shortest,
)
from lowwater.errors import InvalidArgument
from lowwater.kernels.pattern_tables import Program

__all__ = ["MOST_STATES", "compile_pattern", "is_open_ended"]

MOST_STATES = 2_000
"""Patterns whose programs have more states are refused."""
_MOST_STEPS = 20 * MOST_STATES

_MATCH, _FAIL = 0, -1


def compile_pattern(
    node: Node, labels: Mapping[str, int], bits: Mapping[str, int] | None = None
) -> Program:
    """Return the program of a pattern.

    Args:
        node: The pattern.
        labels: The number that stands for each variable in the labels of a match, 0 or more.
        bits: The bit of a row, 0 to 63, that says whether a variable's condition is true; a
            variable that is not there takes any row. ``None``: the labels are the bits.

    Raises:
        InvalidArgument: The program would have more than ``MOST_STATES`` states.
    """
    compiler = _Compiler()
    start = compiler.entry(node, _MATCH, _MATCH)
    return _numbered(compiler.states, start, labels, labels if bits is None else bits)


def is_open_ended(node: Node) -> bool:
    """Return whether rows behind a match can decide it, so that a late one can change it (P-11).

    ``False`` only where a search that succeeds has never looked at a row behind the match: fixed
    numbers of rows with gaps between, and wherever what is preferred is no longer than the rest.
    """
    return not (_is_of_blocks(node) or _is_shortest_first(node))


def _is_of_blocks(node: Node) -> bool:
    """Whether a pattern is parts of fixed length with gaps between them.

    The first occurrence of each part behind the last one is in the match if there is a match at
    all: what failed before ended sooner.
    """
    parts = node.parts if isinstance(node, Concatenation) else (node,)
    gap = Repeat(AnyRow(), 0, None, greedy=False)
    last = parts[-1] if parts else gap
    return last != gap and all(part == gap or shortest(part) == longest(part) for part in parts)


def _is_shortest_first(node: Node) -> bool:
    """Whether, at every split, no preferred parse is longer than any of the others."""
    program = compile_pattern(node, _AnyLabel(), {})
    states, first_split = len(program.x), program.variables + 1
    least, most = np.full((2, states), np.inf)
    least[0] = most[0] = 0
    for _ in range(states):  # shortest ways to the end, as Bellman and Ford find them
        before = least.copy()
        least[1:first_split] = 1 + least[program.x[1:first_split]]
        for state in range(first_split, states):
            least[state] = min(least[program.x[state]], least[program.y[state]])
        if (least == before).all():
            break
    # The longest way from a state on a circle is infinite: it grows in each of `states` rounds.
    most[:] = 0
    for _ in range(states + 1):
        before = most.copy()
        most[1:first_split] = 1 + most[program.x[1:first_split]]
        for state in range(first_split, states):
            most[state] = max(most[program.x[state]], most[program.y[state]])
        if (most == before).all():
            break
    most[most > states] = np.inf
    splits = slice(first_split, None)
    return bool((most[program.x[splits]] <= least[program.y[splits]]).all())


class _AnyLabel(dict[str, int]):
    """Gives every name one label."""

    def __missing__(self, name: str) -> int:
        return 0


@final
class _Compiler:
    """Collects states: ``(name, x, -1)`` takes a row as a variable, ``(None, x, y)`` splits.

    The name of a state that takes any row is "". A state is made once, so parts that go on in the
    same way share it.
    """

    def __init__(self) -> None:
        self.states: list[tuple[str | None, int, int]] = [(None, _FAIL, _FAIL)]
        self._known: dict[tuple[str | None, int, int], int] = {}
        self._steps = 0

    def entry(self, node: Node, taken: int, untaken: int) -> int:
        """Return the state in which a node begins.

        Args:
            node: The node.
            taken: What follows a parse that took a row.
            untaken: What follows a parse that took none; may be failure.
        """
        self._steps += 1
        if self._steps > _MOST_STEPS or len(self.states) > _MOST_STEPS:
            _refuse()
        match node:
            case Variable(name):
                return self._state(name, taken, _FAIL)
            case AnyRow():
                return self._state("", taken, _FAIL)
            case Concatenation(parts):
                return self._in_turn(parts, taken, untaken)
            case Choice(branches):
                *others, entry = (self.entry(branch, taken, untaken) for branch in branches)
                for other in reversed(others):
                    entry = self._split(other, entry)
                return entry
            case Repeat():
                return self._repeated(node, taken, untaken)
            case _:
                assert_never(node)

    def _in_turn(self, parts: Sequence[Node], taken: int, untaken: int) -> int:
        for place in range(len(parts) - 1, -1, -1):
            part = parts[place]
            if taken == untaken or not may_be_empty(part):
                taken = untaken = self.entry(part, taken, taken)
                continue
            before = untaken
            untaken = self.entry(part, taken, before)
            if place:  # nothing comes before the first part that could have taken a row
                taken = self.entry(part, taken, taken)
        return untaken

    def _repeated(self, node: Repeat, taken: int, untaken: int) -> int:
        part, least = node.part, node.least
        if node.most is None and node.greedy and may_be_empty(part):
            least = 0  # iterations that take no row make up the least number
        full, empty = taken, untaken
        if node.most is None:
            full, empty = self._loop(node, taken, untaken)
        else:
            for _ in range(node.most - least):
                iteration = self.entry(part, full, _FAIL)
                full, empty = (self._ordered(node, iteration, after) for after in (taken, untaken))
        return self._in_turn((part,) * least, full, empty)

    def _loop(self, node: Repeat, taken: int, untaken: int) -> tuple[int, int]:
        loop = len(self.states)
        self.states.append((None, _FAIL, _FAIL))
        iteration = self.entry(node.part, loop, _FAIL)
        if iteration == _FAIL:
            return taken, untaken
        first, second = (iteration, taken) if node.greedy else (taken, iteration)
        self.states[loop] = (None, first, second)
        return loop, loop if taken == untaken else self._ordered(node, iteration, untaken)

    def _ordered(self, node: Repeat, iteration: int, after: int) -> int:
        pair = (iteration, after) if node.greedy else (after, iteration)
        return self._split(*pair)

    def _split(self, first: int, second: int) -> int:
        if _FAIL in (first, second):
            return max(first, second)
        return first if first == second else self._state(None, first, second)

    def _state(self, name: str | None, x: int, y: int) -> int:
        wanted = (name, x, y)
        if wanted not in self._known:
            self._known[wanted] = len(self.states)
            self.states.append(wanted)
        return self._known[wanted]


def _numbered(
    states: Sequence[tuple[str | None, int, int]],
    start: int,
    labels: Mapping[str, int],
    bits: Mapping[str, int],
) -> Program:
    """Number the states that can be reached: the match, those of rows, splits behind targets."""
    seen, waiting = {_MATCH, start}, [start]
    while waiting:
        name, x, y = states[waiting.pop()]
        for target in (x,) if name is not None else (x, y):
            if target not in seen and target != _FAIL:
                seen.add(target)
                waiting.append(target)
    takers = sorted(state for state in seen if states[state][0] is not None)
    if len(seen) > MOST_STATES:
        _refuse()
    order = [_MATCH, *takers]
    placed = set(order)
    for root in sorted(seen - placed):
        waiting = [root]
        while waiting:
            state = waiting[-1]
            ahead = [target for target in states[state][1:] if target not in placed]
            waiting += ahead
            if not ahead:
                waiting.pop()
                if state not in placed:
                    placed.add(state)
                    order.append(state)
    number = {state: place for place, state in enumerate(order)} | {_FAIL: -1}
    made = [states[state] for state in order]
    names = [name for name, _, _ in made]
    return Program(
        np.array([labels[name] if name else -1 for name in names], dtype=np.int64),
        np.array([bits.get(name, -1) if name else -1 for name in names], dtype=np.int64),
        np.array([number[x] for _, x, _ in made], dtype=np.int64),
        np.array([number[y] for _, _, y in made], dtype=np.int64),
        len(takers),
        number[start],
    )


def _refuse() -> None:
    raise InvalidArgument(
        f"the program of the pattern has more than {MOST_STATES:,} states",
        where="match(pattern)",
        hint="Use smaller numbers of iterations, or repeats without bounds and within=",
    )
