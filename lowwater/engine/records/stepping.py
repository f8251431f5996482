"""Applies stateless steps in turn, and accounts for every record that enters them.

Each step says which records it passes on, rejects and drops, so that a record can be followed
through any number of steps: dead letters come out in the order of the records, and each with the
record as it was before the step that rejected it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import ClassVar, NamedTuple, Protocol, TypeAlias, final

import numpy as np

from lowwater.engine.records.batch import Records
from lowwater.engine.records.panes import ErrorRecord
from lowwater.errors import InvalidArgument
from lowwater.time import Int64Array

Rejected: TypeAlias = tuple[int, ErrorRecord]
"""The row of a record that a step rejected, in the batch that the step was given."""


@final
@dataclass(frozen=True, slots=True)
class Stepped:
    """What a step outputs for a batch of records.

    Args:
        records: What it passes on, or makes.
        rows: The row of the batch that each of these comes from, int64; ``None``: row for row.
        rejected: The records that it rejects, by row.
        filtered: How many records it drops without a dead letter.
        missing: What is wrong if it reads a column that none of the records has, by column. It took
            the column to be null, which is right for records that lack a field that others have.
        passed: How many records it neither rejects nor drops; ``None``: as many as it outputs.
    """

    records: Records
    rows: Int64Array | None = None
    rejected: Sequence[Rejected] = ()
    filtered: int = 0
    missing: Mapping[str, InvalidArgument] = field(default_factory=dict)
    passed: int | None = None


class Step(Protocol):
    """A stateless step: its output for a record depends on that record alone."""

    @property
    def method(self) -> str:
        """The method of streams that makes it."""
        ...

    @property
    def vectorised(self) -> bool:
        """Whether the step only evaluates column expressions, so its schema is known in advance."""
        ...

    @property
    def removes_signs(self) -> bool:
        """Whether what it outputs says by itself what was retracted, so that nothing else does."""
        ...

    def apply(self, records: Records) -> Stepped:
        """Apply the step to a batch of records."""
        ...

    def text(self) -> str:
        """Format the step as users write it; empty for one that they do not write."""
        ...

    def names_after(self, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """Return the names of the columns after it, given those before; ``None`` if unknown."""
        ...


class StepKind:
    """The facts that are the same for most steps."""

    __slots__ = ()

    vectorised: ClassVar[bool] = False
    removes_signs: ClassVar[bool] = False

    def text(self) -> str:
        return ""

    def names_after(self, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return None


Apply: TypeAlias = Callable[[Step, Records], Stepped]
"""Applies a step to records."""


def applied(step: Step, records: Records) -> Stepped:
    """Apply a step here, in this process."""
    return step.apply(records)


class StepCount(NamedTuple):
    """What became of the records that a step was given: ``taken`` is the sum of the next three.

    A run checks that (S-B2), so each is counted by itself.

    Args:
        taken: How many it was given.
        passed: How many of them passed; ``flat_map`` and ``explode`` may make any number of each.
        filtered: How many it dropped without a dead letter.
        dead: How many it rejected.
        made: How many records it output.
    """

    taken: int
    passed: int
    filtered: int
    dead: int
    made: int


@final
@dataclass(frozen=True, slots=True)
class Rejects:
    """The records of a batch that one step rejected.

    Args:
        step: The number of the step.
        rows: Their rows in the batch that the first step was given, int64, ascending.
        records: The records as the step was given them.
    """

    step: int
    rows: Int64Array
    records: Records


@final
@dataclass(frozen=True, slots=True)
class AppliedSteps:
    """The outcome of steps that were applied to a batch in turn.

    Args:
        records: What is left. Steps after one that leaves nothing are not applied, so the columns
            of an empty batch may be any.
        rejected: The dead letters of all steps, in the order of the records, each with its row in
            the batch that the first step was given.
        rejected_by: The number of the step that each of them is from.
        rejects: The rejected records, by step.
        counts: What became of the records in each step that was applied.
        maps: For each step that was applied, the row that each of its records comes from.
        missing: For each step that was applied, the columns that it reads and that none of the
            records had, as in :class:`Stepped`.
    """

    records: Records
    rejected: Sequence[Rejected]
    rejected_by: Sequence[int]
    rejects: Sequence[Rejects]
    counts: Sequence[StepCount]
    maps: Sequence[Int64Array | None]
    missing: Sequence[Mapping[str, InvalidArgument]] = ()

    @property
    def errors(self) -> list[ErrorRecord]:
        """The dead letters, in the order of the records."""
        return [error for _, error in self.rejected]

    def rows(self) -> Int64Array | None:
        """Return the row of the batch that each record left comes from; ``None``: row for row."""
        return _traced(self.maps)


def apply_steps(steps: Iterable[Step], records: Records, apply: Apply = applied) -> AppliedSteps:
    """Apply steps in turn. A record that one rejects is a dead letter; later steps do not see it.

    Args:
        steps: The steps.
        records: The records.
        apply: Applies a step.
    """
    counts: list[StepCount] = []
    maps: list[Int64Array | None] = []
    letters: list[Sequence[Rejected]] = []
    rejects: list[Rejects] = []
    missing: list[Mapping[str, InvalidArgument]] = []
    for number, step in enumerate(steps):
        if not records.length:
            break
        done = apply(step, records)
        taken, dead = records.length, len(done.rejected)
        made = done.records.length
        passed = made if done.passed is None else done.passed
        counts.append(StepCount(taken, passed, done.filtered, dead, made))
        if dead:
            rows = np.fromiter((row for row, _ in done.rejected), np.int64, dead)
            before = _traced(maps)
            rejects.append(
                Rejects(number, rows if before is None else before[rows], records.take(rows))
            )
        letters.append(done.rejected)
        maps.append(done.rows)
        records = done.records
        missing.append(done.missing)
    merged = _in_order(letters, maps) if rejects else []
    return AppliedSteps(
        records,
        [(row, error) for row, _, error in merged],
        [step for _, step, _ in merged],
        rejects,
        counts,
        maps,
        missing,
    )


def _traced(maps: Sequence[Int64Array | None]) -> Int64Array | None:
    """Return the row before all steps of each record after them; ``None``: row for row."""
    traced: Int64Array | None = None
    for rows in reversed(maps):
        if rows is not None:
            traced = rows if traced is None else rows[traced]
    return traced


def _in_order(
    letters: Sequence[Sequence[Rejected]], maps: Sequence[Int64Array | None]
) -> list[tuple[int, int, ErrorRecord]]:
    """Return the dead letters of all steps in the order of the records, with row and step.

    From the last step to the first, rows are traced back by one step. What one record became may be
    rejected by different steps (after ``flat_map``): such dead letters keep the order that the
    later steps gave them, because sorting is stable.
    """
    merged: list[tuple[int, int, ErrorRecord]] = []
    for step, own, rows in zip(
        reversed(range(len(letters))), reversed(letters), reversed(maps), strict=True
    ):
        if merged and rows is not None:
            merged = [(int(rows[row]), of, error) for row, of, error in merged]
        if own:
            mine = [(row, step, error) for row, error in own]
            merged = sorted([*merged, *mine], key=itemgetter(0)) if merged else mine
    return merged
