"""The ends of pipelines, and running several of them at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TypeAlias, Unpack, final

import pyarrow as pa

from lowwater.engine.graph.graph import MAIN, Graph, Stage, Windowed
from lowwater.engine.graph.metrics import Metrics
from lowwater.engine.local.delivery import DurableSink
from lowwater.engine.local.durable import CommitEvery, CommitPolicy, DurableEnd, DurableRun
from lowwater.engine.local.memory_budget import MemoryBudget, MemoryLimit
from lowwater.engine.local.outcomes import Outcome
from lowwater.engine.process.emitted import emitted_table
from lowwater.engine.records.pane_table import panes_to_arrow
from lowwater.errors import InvalidArgument, describe
from lowwater.io.paths import PathLike, as_paths
from lowwater.io.sinks.plain import Sink
from lowwater.io.sinks.sink_conflicts import check_apart
from lowwater.pipeline.run import Outcomes, RunOptions


@final
@dataclass(frozen=True, slots=True, eq=False)
class End:
    """Where panes leave a pipeline.

    Args:
        stage: The stage that shows them.
        no_panes: A table of them with none in it.
        output: Which output of the stage is meant, if it is a process.
    """

    stage: Stage
    no_panes: pa.Table
    output: str = MAIN


@final
@dataclass(frozen=True, slots=True, eq=False)
class Writing:
    """A pipeline that writes what it gives."""

    _end: End
    _open: Callable[[], Sink]
    _durable: DurableSink

    def run(
        self,
        *,
        state: PathLike | None = None,
        commit_every: CommitEvery = "1s",
        memory_limit: MemoryLimit | None = None,
        **options: Unpack[RunOptions],
    ) -> Metrics:
        """Run to the end, write everything, and return the metrics.

        Without ``state``, if the run fails nothing of it is left behind. With it the run can be
        killed at any moment and run again: it goes on where the last commit was, and what is
        written is as if nothing had happened. The path is then a folder, with one file of panes
        for each commit that had any.

        Args:
            state: A state directory: see :meth:`Delivering.run`.
            commit_every: See :meth:`Delivering.run`.
            memory_limit: See :meth:`Delivering.run`; goes with ``state``.
            **options: See :class:`RunOptions`.
        """
        if state is None:
            return run(self, memory_limit=memory_limit, **options)
        return run(
            self, state=state, commit_every=commit_every, memory_limit=memory_limit, **options
        )


@final
@dataclass(frozen=True, slots=True, eq=False)
class Delivering:
    """A pipeline with durable sinks."""

    _end: End
    _sinks: tuple[DurableSink, ...]

    def run(
        self,
        *,
        state: PathLike,
        commit_every: CommitEvery = "1s",
        memory_limit: MemoryLimit | None = None,
        **options: Unpack[RunOptions],
    ) -> Metrics:
        """Run to the end, from the last commit if there is one, and return the metrics.

        State, positions and outputs are committed together; then the outputs are delivered.

        Args:
            state: A state directory; made if it is not there. One pipeline's, one process's at a
                time.
            commit_every: ``"bundle"``, a number of elements, or a duration: how much is done
                again after a crash, and how long a pane waits before it is delivered.
            memory_limit: How much memory windows that are aggregated may take, such as
                ``"512MB"``, at least 16 MiB: those not touched for the longest time are in the
                state directory alone, and come back when elements touch them or they are due. It
                bounds this state, not the process: that of the user's own processes, bundles,
                panes on their way out and Python itself come on top. Keys stay for as long as
                they have windows, and so do windows that wait for the clock. Stages share it
                alike. ``None``: all windows are in memory. It may change from run to run.
            **options: See :class:`RunOptions`; ``bundle_size`` must stay what it was.

        Raises:
            InvalidArgument: A source cannot be read again, as in-memory ones cannot; there is a
                ``memory_limit``, but no stage of aggregates; or windows
                cannot leave memory: the trigger is the user's own, or ``timestamps`` is not
                ``"end"``.
            StateError: The directory is damaged, in use, or another pipeline's.
        """
        return run(
            self, state=state, commit_every=commit_every, memory_limit=memory_limit, **options
        )


Ending: TypeAlias = Writing | Delivering


def run(
    *ends: Ending,
    state: PathLike | None = None,
    commit_every: CommitEvery = "1s",
    memory_limit: MemoryLimit | None = None,
    **options: Unpack[RunOptions],
) -> Metrics:
    """Run several ends of a pipeline at once, and return the metrics.

    Sources and stages that ends share run once; steps on the way, such as ``filter``, run once
    for each stage that reads through them. A stage is shared if it is the same object: ``p`` and
    ``p.named("x")`` are two stages, and both run. Late elements and dead letters go to the first
    end behind where they were found.

    Args:
        *ends: What ``write_parquet``, ``write_jsonl`` and ``write_to`` return.
        state: A state directory: see :meth:`Delivering.run`. ``write_to`` needs one.
        commit_every: See :meth:`Delivering.run`.
        memory_limit: See :meth:`Delivering.run`; goes with ``state``.
        **options: See :class:`RunOptions`.

    Raises:
        InvalidArgument: There is no end, one needs a state directory, two write to one place, or
            one to a place within another's.
    """
    if not ends:
        raise InvalidArgument(
            "run needs at least one end",
            hint='Write, say, lw.run(first.write_parquet("a/"), second.write_parquet("b/"))',
        )
    for end in ends:
        if not isinstance(end, (Writing, Delivering)):
            raise InvalidArgument(
                f"{describe('end', end)} is not the end of a pipeline",
                where="run",
                hint='Say where its panes go: pipeline.write_parquet("out/")',
            )
    sinks = [(end._durable,) if isinstance(end, Writing) else end._sinks for end in ends]
    check_apart(sinks, durable=state is not None)
    if state is not None:
        return _run_durably(ends, state, commit_every, memory_limit, options)
    if memory_limit is not None:
        raise InvalidArgument(
            "memory_limit= needs a place for what leaves memory",
            where="run(memory_limit=)",
            hint='Name a state directory: run(state="state/", memory_limit=...)',
        )
    return _run_in_memory(ends, options)


def _run_in_memory(ends: Sequence[Ending], options: RunOptions) -> Metrics:
    opened: list[tuple[End, Sink]] = []
    outcomes = _outcomes(ends, options)
    complete = False
    try:
        for end in ends:
            if not isinstance(end, Writing):
                raise InvalidArgument(
                    "write_to() needs a state directory: its sinks take what was committed",
                    where="run",
                    hint='Name one: run(..., state="state/")',
                )
            opened.append((end._end, end._open()))
        homes = _homes(outcomes, ends)
        with closing(iter(outcomes)) as found:
            for outcome in found:
                _write(outcome, opened, homes, outcomes)
        complete = True
    finally:
        for _, sink in opened:
            sink.close(complete=complete)
    return outcomes.metrics


def _write(
    outcome: Outcome, opened: Sequence[tuple[End, Sink]], homes: Sequence[int], outcomes: Outcomes
) -> None:
    if outcome.panes is not None:
        for end, sink in opened:
            if outcomes.graph.stages[outcome.stage] is end.stage:
                sink.panes(panes_to_arrow(outcome.panes, end.stage.key_names))
    for end, sink in opened if outcome.emitted else ():
        if outcomes.graph.stages[outcome.stage] is end.stage and end.output in outcome.emitted:
            table = emitted_table([outcome.emitted[end.output]], end.stage.key_names)
            for batch in table.to_batches():
                sink.panes(batch)
    if outcome.late is not None:
        opened[homes[outcome.stage]][1].late(outcome.late.to_records())
    if outcome.errors:
        opened[0][1].errors(outcome.errors)


def _run_durably(
    ends: Sequence[Ending],
    state: PathLike,
    commit_every: CommitEvery,
    memory_limit: MemoryLimit | None,
    options: RunOptions,
) -> Metrics:
    (path,) = as_paths(state)
    budget = MemoryBudget.of(memory_limit)
    if memory_limit is not None:
        _check_bounded(ends)
    outcomes = _outcomes(ends, options, durable=True, memory=budget.rows)
    homes = _homes(outcomes, ends)
    durable = [
        DurableEnd(
            stage=outcomes.graph.stages.index(end._end.stage),
            output=end._end.output,
            sinks=(end._durable,) if isinstance(end, Writing) else end._sinks,
            no_panes=end._end.no_panes,
            late_of=frozenset(stage for stage, home in enumerate(homes) if home == at),
        )
        for at, end in enumerate(ends)
    ]
    run = DurableRun(
        outcomes.local,
        path,
        durable,
        CommitPolicy.of(commit_every),
        outcomes.clock,
        outcomes.bundle_size,
        budget,
    )
    with closing(iter(outcomes)) as found:
        for _ in run.deliveries(found):
            pass
    return run.metrics


def _check_bounded(ends: Sequence[Ending]) -> None:
    """Raise if nothing would heed a memory limit: the state of processes stays in memory."""
    stages = Graph.of(dict.fromkeys(end._end.stage for end in ends)).stages
    if not any(isinstance(stage.work, Windowed) for stage in stages):
        raise InvalidArgument(
            "memory_limit= bounds windows that are aggregated, and there are none: the state of a "
            "process stays in memory",
            where="run(memory_limit=)",
            hint="Leave it out, and clear cells that are not needed any more",
        )


def _outcomes(
    ends: Sequence[Ending],
    options: RunOptions,
    *,
    durable: bool = False,
    memory: int | None = None,
) -> Outcomes:
    stages = tuple(dict.fromkeys(end._end.stage for end in ends))
    return Outcomes(stages, options, durable=durable, memory=memory)


def _homes(outcomes: Outcomes, ends: Sequence[Ending]) -> list[int]:
    """Return, for each stage, the first end that it leads to: where its late elements go."""
    behind = [outcomes.graph.behind(end._end.stage) for end in ends]
    return [
        next(at for at, stages in enumerate(behind) if stage in stages)
        for stage in outcomes.graph.stages
    ]
