"""Random patterns, rows and conditions, as arrays for the engine and as rows for the oracle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import hypothesis.strategies as st
import numpy as np
from numpy.typing import NDArray

from lowwater.engine.match import pattern as engine
from lowwater.engine.match.program import compile_pattern
from lowwater.kernels.pattern_tables import (
    PAST_LAST,
    TO_FIRST,
    TO_LAST,
    TO_NEXT,
    Matches,
    Program,
    Search,
)
from lowwater.time import END_OF_TIME, Int64Array
from tests.examples import is_campaign
from tests.oracles import row_patterns as oracle
from tests.oracles.row_patterns import (
    END,
    Absent,
    AnyRow,
    Choice,
    Concatenation,
    Condition,
    MatchSoFar,
    Node,
    Pattern,
    Repeat,
    Row,
    Skip,
    Variable,
)

NAMES = "abcd"
LABELS = {name: number for number, name in enumerate(NAMES)}
BITS = {name: number for name, number in LABELS.items() if name != "d"}
"""The last variable has no condition."""
ABSENT = 9
SKIPS: list[Skip] = ["past_last", "next", ("first", "a"), ("first", "b"), ("last", "b")]
_HORIZONS = 4
_CODES = {"past_last": PAST_LAST, "next": TO_NEXT, "first": TO_FIRST, "last": TO_LAST}


@st.composite
def trees(draw: st.DrawFn, size: int = 8) -> Node:
    """Patterns of few nodes: loops within loops, bounds, what may be empty."""
    kind = draw(st.sampled_from("vvcchrrrrg")) if size > 1 else draw(st.sampled_from("vvvvg"))
    if kind == "v":
        return Variable(draw(st.sampled_from(NAMES)))
    if kind == "g":
        return AnyRow() if size == 1 else Repeat(AnyRow(), 0, None, greedy=False)
    if kind == "r":
        least = draw(st.sampled_from([0, 0, 0, 1, 1, 2, 3]))
        most = draw(st.none() | st.integers(max(least, 1), least + 2))
        return Repeat(draw(trees(size - 1)), least, most, draw(st.booleans()))
    if size < 3:
        return Concatenation(())
    first = draw(st.integers(1, size - 2))
    sizes = [first, size - 1 - first]
    parts = tuple(draw(trees(one)) for one in sizes)
    return Concatenation(parts) if kind == "c" else Choice(parts)


def as_engine(node: Node) -> engine.Node:
    """Return the engine's tree for one of the oracle."""
    match node:
        case Variable(name):
            return engine.Variable(name)
        case AnyRow():
            return engine.AnyRow()
        case Concatenation(parts):
            return engine.Concatenation(tuple(map(as_engine, parts)))
        case Choice(branches):
            return engine.Choice(tuple(map(as_engine, branches)))
    return engine.Repeat(as_engine(node.part), node.least, node.most, node.greedy)


def written(node: Node) -> str:
    """Return the text of a pattern."""
    match node:
        case Variable(name):
            return name
        case Concatenation(parts):
            return "(" + " ".join(map(written, parts)) + ")"
        case Choice(branches):
            return "(" + " | ".join(map(written, branches)) + ")"
        case Repeat(AnyRow(), 0, None, False):
            return ".."
        case Repeat():
            most = "" if node.most is None else node.most
            count = f"{{{node.least},{most}}}" if node.most != node.least else f"{{{most}}}"
            return f"({written(node.part)}){count}{'' if node.greedy else '?'}"
    raise ValueError(f"{node} has no text")


def has_bit(name: str) -> Condition:
    return lambda match: match.row["bits"] >> BITS[name] & 1


def _above_mean(match: MatchSoFar) -> Any:
    present = match.present("a", "n")
    return match.row["n"] * len(present) > sum(present) if present else False


def _first_or_above_last(match: MatchSoFar) -> Any:
    last = match.last("b", "n", 1)
    return last is None or match.row["n"] >= last


def _at_most_two(match: MatchSoFar) -> Any:
    return match.count("a") <= 2


DEPENDENT = {"a": _at_most_two, "b": _first_or_above_last, "c": _above_mean}
"""Conditions on the match so far."""


@final
@dataclass(frozen=True)
class Case:
    """Rows of several keys, a pattern and what bounds its search."""

    tree: Node
    keys: tuple[tuple[Row, ...], ...]
    first: tuple[int, ...]
    within: int | None
    absent: int | None
    skip: Skip
    depends: frozenset[str] = frozenset()

    @cached_property
    def program(self) -> Program:
        return compile_pattern(as_engine(self.tree), LABELS, BITS)

    @cached_property
    def pattern(self) -> Pattern:
        """The pattern for the oracle."""
        define: dict[str, Condition] = {}
        for name in NAMES:
            define[name] = _condition(name, name in self.depends)
        without = None
        if self.absent is not None:
            without = Absent(lambda values: values["bits"] >> ABSENT & 1, self.absent)
        return Pattern(self.tree, define, self.within, self.skip, without)

    def search(self, horizon: float) -> Search:
        name = self.skip if isinstance(self.skip, str) else self.skip[0]
        return Search(
            -1 if self.within is None else self.within,
            -1 if self.absent is None else ABSENT,
            self.absent or 0,
            END_OF_TIME if horizon == END else int(horizon),
            _CODES[name],
            -1 if isinstance(self.skip, str) else LABELS[self.skip[1]],
        )

    @cached_property
    def rows(self) -> list[Row]:
        return [row for key in self.keys for row in key]

    @cached_property
    def arrays(self) -> tuple[Int64Array, Int64Array, Int64Array, NDArray[np.uint64]]:
        """Begin, first, times, bits."""
        begin = np.cumsum([0, *map(len, self.keys)])
        return (
            begin,
            begin[:-1] + np.array(self.first, dtype=np.int64),
            np.array([row.time for row in self.rows], dtype=np.int64),
            np.array([row.values["bits"] for row in self.rows], dtype=np.uint64),
        )

    def horizons(self) -> list[float]:
        """Return instants at which what is decided can change: in a campaign, all of them."""
        times = {row.time for row in self.rows}
        steps = {0, self.within or 0, self.absent or 0, (self.within or 0) + (self.absent or 0)}
        ends = {time + step for time in times for step in steps}
        found = sorted({each + more for each in ends for more in (0, 1)} | {-(2**40)})
        every = 1 if is_campaign() else 1 + len(found) // _HORIZONS
        return [*found[len(self.rows) % every :: every], END]

    def decided(self, horizon: float) -> tuple[list[tuple[int, list[str]]], list[int]]:
        """Return (place and labels of each match, undecided starts) that the oracle gives."""
        matches, starts = [], []
        begin = 0
        for rows, first in zip(self.keys, self.first, strict=True):
            found, open_ = decided_from(self.pattern, rows, horizon, first)
            matches += [(begin + one.start, list(one.labels)) for one in found]
            starts += [begin + one for one in open_]
            begin += len(rows)
        return matches, starts


def _condition(name: str, depends: bool) -> Condition:
    def is_met(match: MatchSoFar) -> Any:
        is_row = name not in BITS or has_bit(name)(match)
        return is_row and (not depends or DEPENDENT[name](match))

    return is_met


def decided_from(
    pattern: Pattern, rows: Sequence[Row], horizon: float, first: int
) -> tuple[list[oracle.Match], list[int]]:
    """Return what the oracle decides where no match begins before a row."""
    found, open_ = oracle.decided(pattern, rows[first:], horizon)
    return (
        [oracle.Match(one.start + first, one.labels, one.time) for one in found],
        [one + first for one in open_],
    )


def columns(found: Matches) -> list[tuple[str, list[int]]]:
    """Return the type and the values of each array."""
    every: list[NDArray[Any]] = [
        found.reach, found.next_start, found.start, found.stop, found.match_reach, found.labels,
    ]  # fmt: skip
    return [(column.dtype.str, column.tolist()) for column in every]


def shown(found: Matches, horizon: float) -> list[tuple[int, list[str]]]:
    """Return the matches that are decided at a horizon, as :meth:`Case.decided` does."""
    matches = []
    at = 0
    columns = zip(
        found.start.tolist(), found.stop.tolist(), found.match_reach.tolist(), strict=True
    )
    for start, stop, reach in columns:
        labels = found.labels[at : at + stop - start].tolist()
        at += stop - start
        if reach < horizon:
            matches.append((start, [NAMES[label] if label >= 0 else "" for label in labels]))
    assert at == len(found.labels)
    return matches


_BITS = st.integers(0, 2**12 - 1)
_ROW = st.integers(0, 6 * 5 * 2**12 - 1)
"""Bits, ``n`` and the distance to the row before in one number, as each draw takes its time."""


@st.composite
def cases(draw: st.DrawFn, *, depends: bool = False, most_keys: int = 4, size: int = 8) -> Case:
    """Few keys, some of them long, with ties, times near both ends, and rows that begin nothing."""
    origin = draw(st.sampled_from([0, 0, 0, -(2**63) + 1, 2**63 - 40]))
    keys, first = [], []
    for _ in range(draw(st.integers(1, most_keys))):
        count = draw(st.sampled_from([0, 1, 2, 4, 9]))
        drawn = draw(st.lists(_ROW, min_size=count, max_size=count))
        more = [draw(_BITS) for _ in drawn] if draw(st.booleans()) else [0] * count
        rows, time = [], origin
        for number, extra in zip(drawn, more, strict=True):
            rest, bits = divmod(number, 2**12)
            step, n = divmod(rest, 5)
            time += (0, 0, 1, 1, 2, 4)[step]
            rows.append(Row(time, {"bits": bits | extra, "n": n}))
        keys.append(tuple(rows))
        first.append(draw(st.sampled_from([0, 0, 0, 1, 3])) if count > 3 else 0)
    names = st.frozensets(st.sampled_from(sorted(DEPENDENT)), min_size=1)
    return Case(
        draw(trees(draw(st.integers(1, size)))),
        tuple(keys),
        tuple(first),
        draw(st.none() | st.integers(0, 9)),
        draw(st.none() | st.integers(0, 5)),
        draw(st.sampled_from(SKIPS)),
        draw(names) if depends else frozenset(),
    )
