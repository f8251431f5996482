"""The rules of a stage that finds row patterns (P-1 to P-14)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, final

from lowwater.engine.aggregates import AggregateSpec
from lowwater.engine.match.pattern import Node, variables
from lowwater.engine.match.program import is_open_ended
from lowwater.time import saturating_add

Skip: TypeAlias = Literal["past_last", "next"] | tuple[Literal["first", "last"], str]
RowsOut: TypeAlias = Literal["one", "all"]
Emit: TypeAlias = Literal["on_time", "final", "early"]

EMITS: tuple[Emit, ...] = ("on_time", "final", "early")
ROWS_OUT: tuple[RowsOut, ...] = ("one", "all")

START, END, VARIABLE = "match_start", "match_end", "variable"
"""Columns of the output beside the keys and the measures."""

Condition: TypeAlias = Any
"""An expression, or a function of a :class:`~lowwater.engine.match.so_far.MatchSoFar`."""


@final
@dataclass(frozen=True, slots=True)
class Absence:
    """What must not come behind a match (P-12).

    Args:
        column: The hidden column with the result of the condition.
        text: The condition as text.
        within_us: How long after the last row, in microseconds.
    """

    column: str
    text: str
    within_us: int


@final
@dataclass(frozen=True, slots=True)
class Matching:
    """What is searched for, and what comes out when.

    Args:
        text: The pattern as it was written.
        pattern: Its tree.
        columns: The hidden columns with the results of the conditions that depend on their own row
            alone, by variable.
        before: The conditions that depend on rows before, too, by variable: expressions.
        so_far: Those that depend on the match so far: expressions, or functions.
        texts: All conditions as text, by variable.
        measures: What is emitted of a match: aggregates over its rows, or expressions at its last.
        within_us: How much later than its first row a row of a match may be, in microseconds;
            ``None``: any time.
        skip: Where the search goes on behind a match.
        rows: Whether a match comes out as one record, or each of its rows does.
        emit: When matches come out (P-6).
        lateness_us: How far below the watermark a row may be, in microseconds.
        order: The column that orders rows of one time; ``None``: as they arrive.
        absence: What must not come behind a match.
        keys: The key columns of the input.
    """

    text: str
    pattern: Node
    columns: Mapping[str, str] = field(default_factory=dict)
    before: Mapping[str, Condition] = field(default_factory=dict)
    so_far: Mapping[str, Condition] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    measures: Mapping[str, AggregateSpec | Any] = field(default_factory=dict)
    within_us: int | None = None
    skip: Skip = "past_last"
    rows: RowsOut = "one"
    emit: Emit = "on_time"
    lateness_us: int = 0
    order: str | None = None
    absence: Absence | None = None
    keys: tuple[str, ...] = ()

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables, in order of appearance: their numbers are their labels."""
        return variables(self.pattern)

    @property
    def is_open_ended(self) -> bool:
        """Whether a late row may lengthen a match that ended long ago (P-11)."""
        return self.rows == "all" or is_open_ended(self.pattern)

    @property
    def corrects(self) -> bool:
        """Whether it may take back what it emitted, even if its input retracts nothing (P-13)."""
        return self.emit == "early" or (self.lateness_us > 0 and self.emit != "final")

    @property
    def emits_late_us(self) -> int:
        """How far below its output watermark it may emit, in microseconds (P-11)."""
        if self.lateness_us and self.corrects and self.is_open_ended:
            return saturating_add(self.lateness_us, self.within_us or 0)
        return self.lateness_us

    @property
    def functions(self) -> dict[str, Callable[..., Any]]:
        """The conditions that are functions, by variable."""
        return {name: one for name, one in self.so_far.items() if callable(one)}
