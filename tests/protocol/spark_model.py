"""State on Spark, as a model that is checked: which version of it a micro-batch builds on.

A micro-batch is planned (its input is fixed in Spark's log), attempts at its task each read the
state of the micro-batch before, and write a version; one of them counts; then the micro-batch is
committed. A driver may be killed at any time, and its tasks live on as zombies. The content of a
state is the plans that it was made of, in order: so a state of another past is told apart.

``cell``: the cell of Spark's state store has the name of the version that counts. ``own``: state of
``mapInArrow``, of which no cell knows; the files of the latest run count. ``docs/spark.md`` tells
the same in words.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias, final

from tests.protocol.checker import Model

Content: TypeAlias = tuple[int, ...]
Kind: TypeAlias = Literal["cell", "own"]


class Name(NamedTuple):
    """The name of a version: the micro-batch, the run of the query, and the attempt."""

    batch: int
    run: int
    attempt: int


class Task(NamedTuple):
    """An attempt at the task of a micro-batch, which may outlive its driver.

    Attributes:
        name: What it will write.
        read: The state that it has read.
        plan: The input of its micro-batch.
        wrote: Whether its version is written.
    """

    name: Name
    read: Content
    plan: int
    wrote: bool = False


class State(NamedTuple):
    """All there is.

    Attributes:
        planned: The plan of each micro-batch in Spark's log of offsets.
        committed: How many micro-batches are in its log of commits.
        plans: How many plans there ever were.
        run: The run of the driver that is alive; 0 for none.
        runs: How many runs there were.
        tasks: The attempts that are alive, zombies among them.
        versions: What was written.
        cells: The version that Spark's state store names for each micro-batch.
        worker: What a Python worker still holds: of which version, and its content.
        done: The content that counts of the micro-batch that is under way.
        older: A copy of the checkpoint: (planned, committed, cells).
        faults: What may still go wrong: kills, retries, copies.
        refused: Whether the query stopped, in words.
    """

    planned: Content = ()
    committed: int = 0
    plans: int = 0
    run: int = 0
    runs: int = 0
    tasks: frozenset[Task] = frozenset()
    versions: frozenset[tuple[Name, Content]] = frozenset()
    cells: tuple[Name, ...] = ()
    worker: tuple[Name, Content] | None = None
    done: Content | None = None
    older: tuple[Content, int, tuple[Name, ...]] | None = None
    faults: tuple[int, int, int] = (0, 0, 0)
    refused: bool = False


@final
@dataclass(frozen=True)
class SparkBounds:
    """How much is visited: micro-batches, runs, and how often something goes wrong."""

    kind: Kind
    batches: int = 2
    plans: int = 4
    runs: int = 3
    kills: int = 2
    retries: int = 1
    copies: int = 0
    kept: int = 2


Told: TypeAlias = tuple[str, State]


@final
class SparkProtocol(Model[State]):
    """What can happen next, and what must never be.

    Args:
        bounds: How much is visited.
        without: The name of a rule that is left out.
    """

    def __init__(self, bounds: SparkBounds, without: str = "") -> None:
        super().__init__(without)
        self.bounds = bounds

    def first(self) -> State:
        """Return the state before anything has happened."""
        bounds = self.bounds
        return State(faults=(bounds.kills, bounds.retries, bounds.copies))

    def steps(self, state: State) -> Iterator[Told]:
        """Yield what can happen next, in words, and what is afterwards."""
        kills, retries, copies = state.faults
        if state.run:
            yield from self._driver(state)
            if kills:
                yield (
                    "the driver is killed, and its tasks live on",
                    state._replace(run=0, done=None, faults=(kills - 1, retries, copies)),
                )
        elif state.runs < self.bounds.runs and not state.refused:
            yield (
                f"run {state.runs + 1} starts",
                state._replace(run=state.runs + 1, runs=state.runs + 1),
            )
        if copies and state.older is None and state.committed:
            kept = (state.planned, state.committed, state.cells)
            yield "a copy of the checkpoint is put aside", state._replace(older=kept)
        if copies and state.older is not None and not state.run:
            planned, committed, cells = state.older
            yield "the older checkpoint is put back", state._replace(
                planned=planned, committed=committed, cells=cells,
                faults=(kills, retries, copies - 1),
            )  # fmt: skip
        for task in state.tasks:
            if not task.wrote:
                yield self._written(state, task)
            else:
                yield from self._finished(state, task)

    def _driver(self, state: State) -> Iterator[Told]:
        batch = state.committed
        if batch == len(state.planned):
            if batch < self.bounds.batches and state.plans < self.bounds.plans:
                yield (
                    f"micro-batch {batch} is planned",
                    state._replace(
                        planned=(*state.planned, state.plans + 1), plans=state.plans + 1
                    ),
                )
            return
        if state.done is not None:
            yield (
                f"micro-batch {batch} is committed",
                self._cleaned(state._replace(committed=batch + 1, done=None)),
            )
            return
        mine = [one for one in state.tasks if one.name[:2] == (batch, state.run)]
        kills, retries, copies = state.faults
        if mine and not retries:
            return
        after = state if not mine else state._replace(faults=(kills, retries - 1, copies))
        name = Name(batch, state.run, len(mine))
        read = self._read(state, batch)
        if read is None:
            yield (
                "the query stops: there is no state of the micro-batch before",
                state._replace(run=0, refused=True),
            )
            return
        task = Task(name, read, state.planned[batch])
        yield (
            f"attempt {len(mine)} at micro-batch {batch} of run {state.run} reads {read}",
            (after._replace(tasks=state.tasks | {task})),
        )

    def _read(self, state: State, batch: int) -> Content | None:
        """Return the state that a task of a micro-batch begins with; ``None`` if there is none."""
        if not batch:
            return ()
        found = dict(state.versions)
        if self.bounds.kind == "cell":
            name = state.cells[batch - 1]
        else:
            names = [one for one in found if one.batch == batch - 1]
            if not names:
                return None
            latest = self.holds("the files of the latest run count")
            name = max(names) if latest else min(names)
        if state.worker is not None and state.worker[0].batch == batch - 1:
            held, content = state.worker
            if held == name or not self.holds("a worker's memory counts only with the right stamp"):
                return content
        return found.get(name)

    def _written(self, state: State, task: Task) -> Told:
        """Let an attempt write its version, whether its driver lives or not."""
        content = (*task.read, task.plan)
        name = task.name
        if not self.holds("each attempt writes under a name of its own"):
            name = Name(name.batch, 0, 0)
        others = frozenset(one for one in state.versions if one[0] != name)
        wrote = task._replace(wrote=True, name=name if name.run else task.name)
        who = "a zombie" if task.name.run != state.run else "an attempt"
        return f"{who} of run {task.name.run} writes {content}", state._replace(
            tasks=state.tasks - {task} | {wrote},
            versions=others | {(name, content)},
            worker=(task.name, content),
        )

    def _finished(self, state: State, task: Task) -> Iterator[Told]:
        """Let an attempt that has written count, if it is the first of its micro-batch."""
        batch, run, _ = task.name
        is_current = run == state.run and batch == state.committed
        if not is_current and self.holds("a task of another run does not count"):
            return
        if not state.run or state.done is not None or batch != state.committed:
            return
        named = self.holds("each attempt writes under a name of its own")
        name = task.name if named else Name(batch, 0, 0)
        cells = (*state.cells[:batch], name)
        yield (
            f"the attempt of run {run} counts",
            state._replace(cells=cells, done=(*task.read, task.plan), tasks=state.tasks - {task}),
        )

    def _cleaned(self, state: State) -> State:
        """Delete versions that Spark cannot ask for any more."""
        kept = self.bounds.kept if self.holds("versions are kept that may be run again") else 0
        oldest = state.committed - kept
        left = frozenset(one for one in state.versions if one[0].batch >= oldest)
        return state._replace(versions=left)

    def wrong(self, state: State) -> str | None:
        """Return what is wrong with a state, if anything is."""
        if state.done is not None and state.done != state.planned[: state.committed + 1]:
            return f"micro-batch {state.committed} builds on a state of another past"
        if state.refused and state.faults[2] == self.bounds.copies:
            return "the query stopped, and nothing had happened but kills"
        return None
