"""Conservation: what enters a stage is counted again by what became of it (S-B2).

The two sides of each equation are counted in different places, or the equation could not fail: what
enters where batches are read, cut and queued; what became of it by the operators that handle it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any, Protocol, TypeAlias, final

from lowwater.engine.graph.graph import Graph, Read, Stage
from lowwater.engine.graph.metrics import StageMetrics, StepMetrics
from lowwater.engine.local.outcomes import Outcome
from lowwater.engine.records.stage_bundle import StageBundle
from lowwater.engine.records.stepping import Step, StepCount
from lowwater.errors import InternalError, InternalWarning, warn

Input: TypeAlias = tuple[int, int]
"""An input of a stage: the number of the stage, and which of its inputs it is."""

_HINT = (
    "This is a bug in lowwater, and results may lack records: please report this message. The "
    "variable LOWWATER_CHECK=1 has the run stop where it happens"
)


def is_strict() -> bool:
    """Whether records that are nowhere stop a run: in tests, and where a user asks for it."""
    return os.environ.get("LOWWATER_CHECK") == "1"


@final
class Differences:
    """Reports records that are nowhere: raises if that is asked for, else warns once a place."""

    def __init__(self) -> None:
        self.is_strict = is_strict()
        self._warned: set[str] = set()

    def report(self, place: str, difference: str) -> None:
        """Report a difference.

        Args:
            place: The stage, input or step.
            difference: What the two sides are.

        Raises:
            InternalError: :func:`is_strict`.
        """
        if self.is_strict:
            raise InternalError(difference, where=place, hint=_HINT)
        if place not in self._warned:
            self._warned.add(place)
            warn(InternalWarning, difference, where=place, hint=_HINT)

    def compare(self, place: str, expected: int, found: int, what: str) -> None:
        """Report two counts of the same thing that differ."""
        if expected != found:
            self.report(place, f"there should be {expected:,} {what}, and there are {found:,}")


class Counting(Protocol):
    """What conservation reads of an operator.

    ``admitted`` counts records since the operator was made, ``partly`` those of them that were
    dropped from another of their windows; ``waiting`` is how many are still to be admitted, and
    ``state_rows`` how much it keeps.
    """

    @property
    def admitted(self) -> int: ...
    @property
    def partly(self) -> int: ...
    @property
    def waiting(self) -> int: ...
    @property
    def state_rows(self) -> int: ...


@final
class AdmittedCounter:
    """Adds to metrics what an operator has admitted since the last time."""

    __slots__ = ("_admitted", "_partly")

    def __init__(self) -> None:
        self._admitted = self._partly = 0

    def settle(self, operator: Counting, metrics: StageMetrics) -> None:
        """Bring metrics up to date with an operator. O(1)."""
        admitted, partly = operator.admitted, operator.partly
        metrics.admitted += admitted - self._admitted
        metrics.dropped -= partly - self._partly  # they are admitted to another window
        metrics.waiting = operator.waiting
        self._admitted, self._partly = admitted, partly


@final
@dataclass(slots=True)
class InputCounts:
    """The records of one input of a stage, from its origin to the bundles of the stage.

    Args:
        steps: The steps in front of the stage.
        since: How many records the origin had given when the input began to read it.
        read: The records that came from the origin.
        undated: The records that became dead letters because of their times, before all that read
            a source got their shares of it; by how many steps had been applied.
        rejected: The records that one of its own steps made dead letters of.
        taken: Those that left the last step, and came to validation.
        shared: How many of these have their dead letter at another input, which shares the step.
        invalid: Those that validation made dead letters of.
        sound: Those that it admitted.
        cut: Those that were cut into bundles.
        handed: Those in bundles that came to the runner.
        is_known: Whether an earlier run has stored these counts.
    """

    steps: list[StepMetrics] = field(default_factory=list)
    since: int = 0
    read: int = 0
    undated: dict[int, int] = field(default_factory=dict)
    rejected: int = 0
    shared: int = 0
    taken: int = 0
    invalid: int = 0
    sound: int = 0
    cut: int = 0
    handed: int = 0
    is_known: bool = False

    @classmethod
    def of(cls, steps: Iterable[Step]) -> InputCounts:
        """Return counts of nothing, for an input with these steps."""
        return cls([StepMetrics(step.method) for step in steps])

    def set_aside(self, after: int, count: int) -> None:
        """Count records whose times cannot be read, before all that read a source got theirs.

        Args:
            after: How many steps had been applied.
            count: How many records.
        """
        if count:
            self.undated[after] = self.undated.get(after, 0) + count

    @property
    def dead(self) -> int:
        """How many of its records became dead letters at this input alone."""
        return self.rejected - self.shared + self.invalid

    def apply(self, first: int, counts: Sequence[StepCount]) -> None:
        """Count what steps did with a batch.

        Args:
            first: The number of the first of them.
            counts: The counts of each step that was applied.
        """
        for step, count in zip(self.steps[first:], counts, strict=False):
            step.add(count)

    def remember(self) -> dict[str, Any]:
        """Return the counts to store."""
        steps = [list(astuple(step)) for step in self.steps]
        counts = {name: getattr(self, name) for name in _COUNTS}
        return {**counts, "undated": list(self.undated.items()), "steps": steps}

    def resume(self, known: Mapping[str, Any] | None) -> None:
        """Continue from what an earlier run has stored; ``None``: it did not count."""
        if known is None:
            return
        names = [name for name, *_ in known["steps"]]
        if names != [step.step for step in self.steps]:
            return  # other steps were in front of the stage: count from here
        self.is_known = True
        for name in _COUNTS:
            setattr(self, name, known.get(name, 0))
        self.undated = dict(known["undated"])
        for step, (_, *counts) in zip(self.steps, known["steps"], strict=True):
            step.add(counts)

    def differences(self, given: int, *, whole: bool) -> Iterator[str]:
        """Return where records were lost between an origin and a stage.

        Args:
            given: How many records the origin has given.
            whole: Whether all that was validated has been cut into bundles, too.
        """
        if given - self.since != self.read:
            yield _unequal(given - self.since, "records of its input", self.read, "came to it")
        left = self.read
        for number, step in enumerate(self.steps):
            left -= self.undated.get(number, 0)
            if step.taken != left:
                yield _unequal(left, "records", step.taken, f"came to {self._name(number)}")
            found = step.passed + step.filtered + step.dead
            if step.taken != found:
                parts = f"{step.passed:,} passed, {step.filtered:,} filtered, {step.dead:,} dead"
                what = f"records that came to {self._name(number)}"
                yield _unequal(step.taken, what, found, f"are accounted for ({parts})")
            left = step.made
        left -= self.undated.get(len(self.steps), 0)
        if self.taken != left:
            yield _unequal(left, "records", self.taken, "came to validation")
        checked = self.sound + self.invalid
        if self.taken != checked:
            yield _unequal(self.taken, "records that came to validation", checked, "left it")
        if self.cut > self.sound or (whole and self.cut != self.sound):
            yield _unequal(self.sound, "valid records", self.cut, "were cut into bundles")
        if self.handed > self.cut or (whole and self.handed != self.cut):
            yield _unequal(self.cut, "records in bundles", self.handed, "came to the runner")

    def _name(self, number: int) -> str:
        return f"its step {number + 1}, {self.steps[number].step}"


_COUNTS = ("since", "read", "rejected", "shared", "taken", "invalid", "sound", "cut", "handed")


def stage_difference(metrics: StageMetrics) -> str | None:
    """Return which records of a stage are unaccounted for; ``None`` if there are none."""
    parts = {
        "admitted": metrics.admitted,
        "dropped": metrics.dropped,
        "duplicates": metrics.duplicates,
        "superseded": metrics.superseded,
        "waiting": metrics.waiting,
    }
    found = sum(parts.values())
    if found == metrics.arrived:
        return None
    named = ", ".join(f"{count:,} {name}" for name, count in parts.items() if count) or "none"
    return _unequal(metrics.arrived, "records that arrived", found, f"are accounted for ({named})")


def _unequal(expected: int, what: str, found: int, did: str) -> str:
    short = expected - found
    by = f"{short:,} are missing" if short > 0 else f"{-short:,} are too many"
    return f"of {expected:,} {what}, {found:,} {did}: {by}"


class _Run(Protocol):
    """A stage of a run."""

    stage: Stage
    number: int
    metrics: StageMetrics

    @property
    def operator(self) -> Any: ...


class _Reader(Protocol):
    """A source of a run."""

    read: Read

    @property
    def delivered(self) -> int:
        """How many records it has given to the stages that read it."""
        ...

    @property
    def invalid(self) -> int:
        """How many of them became dead letters before all stages, since the process has begun."""
        ...

    @property
    def is_between_batches(self) -> bool:
        """Whether all that it has delivered was cut into bundles."""
        ...

    @property
    def is_resuming(self) -> bool:
        """Whether it is in a batch that an earlier run had begun."""
        ...


@final
class Ledger:
    """Checks, at commits and at the end of a run, that every record is somewhere (S-B2).

    Args:
        graph: The graph of the run.
        runs: Its stages.
        readers: Its sources.
        inputs: The counts of each input that is read.
        ends: The numbers of the stages whose output leaves the pipeline.
    """

    def __init__(
        self,
        graph: Graph,
        runs: Sequence[_Run],
        readers: Sequence[_Reader],
        inputs: Mapping[Input, InputCounts],
        ends: frozenset[int],
    ) -> None:
        self._graph = graph
        self._runs = runs
        self._readers = readers
        self._inputs = inputs
        self._ends = ends
        self._inputs_of = [
            [counts for (stage, _), counts in inputs.items() if stage == run.number] for run in runs
        ]
        for run, counts in zip(runs, self._inputs_of, strict=True):
            run.metrics.steps = [step for one in counts for step in one.steps]
        self._differences = Differences()
        self._handed = [
            [inputs.get((run.number, nth), InputCounts()) for nth in range(len(run.stage.inputs))]
            for run in runs
        ]
        self._queued = [0] * len(runs)
        self._arrived_before = [0] * len(runs)
        self._left_late = self._left_rows = self._reported = 0
        self._late_before = self._rows_before = self._dead_before = 0

    @property
    def is_strict(self) -> bool:
        """Whether a record that is nowhere stops the run."""
        return self._differences.is_strict

    def resume(self, known: Mapping[str, Mapping[str, Any]]) -> None:
        """Continue after a restart; what an earlier version has not counted counts from here.

        Args:
            known: The stored metrics of stages, by name.
        """
        compare = self._differences.compare
        for run in self._runs:
            name = self._graph.name_of(run.stage)
            metrics, operator = run.metrics, run.operator
            stored = known.get(name, {})
            if "admitted" in stored:
                compare(name, metrics.waiting, operator.waiting, "waiting records")
                compare(name, stored["rows"], operator.state_rows, "rows of state")
            metrics.waiting = operator.waiting
            if "admitted" not in stored:
                metrics.arrived = metrics.duplicates + metrics.superseded + metrics.waiting
            for nth, flow in enumerate(run.stage.inputs):
                counts = self._inputs.get((run.number, nth))
                if counts is not None and not counts.is_known:
                    counts.since = self._given(flow.origin, flow.output)
        self._settle()
        self._arrived_before = [run.metrics.arrived for run in self._runs]
        self._late_before, self._rows_before = self._late(), self._rows()
        self._dead_before = self._dead()

    def hand(self, bundles: Iterable[StageBundle], *, done: bool = False) -> None:
        """Count records that are about to be queued for stages.

        Args:
            bundles: The bundles.
            done: Whether an earlier run has processed them.
        """
        for bundle in bundles:
            count = len(bundle.bundle)
            self._handed[bundle.stage][bundle.nth].handed += count
            if not done:
                self._queued[bundle.stage] += count

    def report(self, count: int) -> None:
        """Count records of inputs that are reported as dead letters, or were by an earlier run."""
        self._reported += count
        if count:
            self._settle()

    def leave(self, outcome: Outcome) -> None:
        """Count what leaves the run."""
        if outcome.late is not None:
            self._left_late += len(outcome.late)
        self._left_rows += sum(map(len, outcome.outputs.values()))

    def _settle(self) -> None:
        """Bring the dead letters of stages up to date. O(inputs)."""
        for run, inputs in zip(self._runs, self._inputs_of, strict=True):
            run.metrics.dead = sum([counts.invalid for counts in inputs])

    def note_rows(self) -> None:
        """Note how much state is stored, which a restart must find."""
        for run in self._runs:
            run.metrics.rows = run.operator.state_rows

    def check(self, *, ended: bool = False) -> None:
        """Compare both sides of each equation; call it between bundles only. O(inputs).

        Args:
            ended: Whether the input has ended and all was emitted, so that nothing may be kept.

        Raises:
            InternalError: A record is nowhere, and :func:`is_strict`.
        """
        compare, report = self._differences.compare, self._differences.report
        resuming = any(reader.is_resuming for reader in self._readers)
        settled = {reader.read: reader.is_between_batches for reader in self._readers}
        for run in self._runs:
            name = self._graph.name_of(run.stage)
            arrived = run.metrics.arrived - self._arrived_before[run.number]
            compare(name, self._queued[run.number], arrived, "records taken from its queue")
            if (difference := stage_difference(run.metrics)) is not None:
                report(name, difference)
            for nth, flow in enumerate(run.stage.inputs):
                if resuming:
                    continue
                origin = flow.origin
                counts = self._inputs.get((run.number, nth), InputCounts())
                place = name if len(run.stage.inputs) == 1 else f"{name}, input {nth + 1}"
                whole = settled[origin] if isinstance(origin, Read) else True
                for difference in counts.differences(self._given(origin, flow.output), whole=whole):
                    report(place, difference)
            if ended:
                compare(name, 0, run.operator.waiting, "records waiting at the end")
                compare(name, 0, run.operator.state_rows, "rows of state at the end")
        compare("the run", self._late() - self._late_before, self._left_late, "late elements")
        compare("the run", self._rows() - self._rows_before, self._left_rows, "output rows")
        if not resuming:
            dead = self._dead() - self._dead_before
            compare("the run", dead, self._reported, "dead letters")

    def _given(self, origin: Read | Stage, output: str) -> int:
        """Return how many records an origin has given to those that read it."""
        if isinstance(origin, Read):
            return next(reader.delivered for reader in self._readers if reader.read is origin)
        run = next(run for run in self._runs if run.stage is origin)
        metrics = run.metrics
        if run.stage.work.emits_panes:
            return metrics.panes.total() + metrics.retractions
        return metrics.emitted[output]

    def _late(self) -> int:
        return sum(run.metrics.late.total() for run in self._runs)

    def _rows(self) -> int:
        ends = [run.metrics for run in self._runs if run.number in self._ends]
        return sum(of.panes.total() + of.retractions + of.emitted.total() for of in ends)

    def _dead(self) -> int:
        inputs = sum(counts.dead for counts in self._inputs.values())
        return inputs + sum(reader.invalid for reader in self._readers)
