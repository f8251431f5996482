"""The outputs of pipelines, and running several of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack, final

import pyarrow as pa

from lowwater.engine.graph.graph import MAIN, Graph, Stage, Windowed
from lowwater.engine.graph.metrics import Metrics
from lowwater.engine.local.commit_policy import CommitEvery, CommitPolicy
from lowwater.engine.local.delivery import Checks, Sink, check_sink
from lowwater.engine.local.direct import DirectRun
from lowwater.engine.local.durable import DurableRun
from lowwater.engine.local.memory_budget import MemoryBudget, MemoryLimit
from lowwater.engine.local.pieces import RunOutput
from lowwater.errors import InvalidArgument, describe
from lowwater.io.paths import PathLike, as_paths
from lowwater.io.sinks import JsonLinesFile, JsonLinesFolder, ParquetFolder
from lowwater.io.sinks.json_lines_file import is_file_name
from lowwater.io.sinks.sink_conflicts import check_conflicts, check_inputs, check_state
from lowwater.pipeline.run import Outcomes, RunOptions

_LIKE_FILES = (".json", ".jsonl", ".ndjson", ".json.gz", ".jsonl.gz", ".ndjson.gz")


@final
@dataclass(frozen=True, slots=True, eq=False)
class Writing:
    """A pipeline and the sinks that its panes are written to; nothing happens until ``run``.

    Made by ``write_parquet``, ``write_jsonl`` and ``write_to``.
    """

    _stage: Stage
    _empty: pa.Table
    _sinks: tuple[Sink, ...]
    _tag: str = MAIN

    def __post_init__(self) -> None:
        for sink in self._sinks:
            check_sink(sink, "Use, say, lowwater.io.sinks.ParquetFolder, or see Sink there")
            if isinstance(sink, Checks):
                sink.check(self._empty)

    def run(
        self,
        *,
        state: PathLike | None = None,
        commit_every: CommitEvery = "1s",
        memory_limit: MemoryLimit | None = None,
        **options: Unpack[RunOptions],
    ) -> Metrics:
        """Run to the end, write everything, and return the metrics.

        The sinks get what comes out in pieces while the run goes on, with the same names and
        content whether there is a state directory or not. Without one, a run that fails leaves
        the pieces it has written, and the sinks note that it is not complete. With one, state,
        positions and outputs are committed together, and then the outputs are delivered: the run
        can be killed at any moment and run again. It resumes from the last commit, and what is
        written is as if nothing had happened.

        Args:
            state: A state directory; made if it is not there. It belongs to one pipeline, and to
                one process at a time.
            commit_every: How often what came out is delivered, and committed if there is a state
                directory: ``"bundle"``, a number of elements, or a duration. So long a pane waits
                before it is written, and so much is done again after a crash. Time is looked at
                between bundles. An output with 131,072 panes waiting does not wait any longer.
            memory_limit: Goes with ``state``. How much memory windows that are aggregated may
                take, such as ``"512MB"``, at least 16 MiB: those not touched for the longest time
                are in the state directory alone, and come back when elements touch them or they
                are due. It bounds this state, not the process: that of the user's own processes,
                bundles, panes on their way out and Python itself come on top. Keys stay for as
                long as they have windows, and so do windows that wait for the clock. Stages share
                it alike. ``None``: all windows are in memory. It may change from run to run.
            **options: See :class:`RunOptions`; with ``state``, ``bundle_size`` must stay what it
                was.

        Raises:
            InvalidArgument: With ``state``, a source cannot be read again, as in-memory ones
                cannot; there is a ``memory_limit``, but no state or no stage of aggregates; or
                windows cannot leave memory: the trigger is the user's own, or ``timestamps`` is
                not ``"end"``.
            StateError: The state directory is damaged, in use, or another pipeline's; or a sink
                holds the output of another run.
        """
        return run(
            self, state=state, commit_every=commit_every, memory_limit=memory_limit, **options
        )


def run(
    *outputs: Writing,
    state: PathLike | None = None,
    commit_every: CommitEvery = "1s",
    memory_limit: MemoryLimit | None = None,
    **options: Unpack[RunOptions],
) -> Metrics:
    """Run several outputs of a pipeline at once, and return the metrics.

    Sources and stages that outputs share run once; steps on the way, such as ``filter``, run once
    for each stage that reads through them. A stage is shared if it is the same object: ``p`` and
    ``p.named("x")`` are two stages, and both run. Late elements go to the first output
    downstream of where they were found; dead letters go to the first output of all, wherever they
    were found.

    Args:
        *outputs: What ``write_parquet``, ``write_jsonl`` and ``write_to`` return.
        state: A state directory: see :meth:`Writing.run`.
        commit_every: See :meth:`Writing.run`.
        memory_limit: See :meth:`Writing.run`; goes with ``state``.
        **options: See :class:`RunOptions`.

    Raises:
        InvalidArgument: There is no output, two write to one place, or one to a place within
            another's; or the places of inputs, outputs and state lie within one another.
    """
    if not outputs:
        raise InvalidArgument(
            "run needs at least one output",
            hint='Write, say, lw.run(first.write_parquet("a/"), second.write_parquet("b/"))',
        )
    for output in outputs:
        if not isinstance(output, Writing):
            raise InvalidArgument(
                f"{describe('output', output)} is not the output of a pipeline",
                where="run",
                hint='Say where its panes go: pipeline.write_parquet("out/")',
            )
    sinks = [output._sinks for output in outputs]
    sources = [read.source for read in Graph.of(output._stage for output in outputs).reads]
    check_conflicts(sinks)
    check_inputs(sinks, sources)
    policy = CommitPolicy.of(commit_every)
    if state is None:
        if memory_limit is not None:
            raise InvalidArgument(
                "memory_limit= needs a place for what leaves memory",
                where="run(memory_limit=)",
                hint='Name a state directory: run(state="state/", memory_limit=...)',
            )
        outcomes = _outcomes(outputs, options)
        direct = DirectRun(outcomes.local, _run_outputs(outputs, outcomes), policy)
        return _driven(direct, outcomes)
    (path,) = as_paths(state)
    check_state(path, sinks, sources)
    budget = MemoryBudget.of(memory_limit)
    if memory_limit is not None:
        _check_bounded(outputs)
    outcomes = _outcomes(outputs, options, durable=True, memory=budget.rows)
    durable = DurableRun(
        outcomes.local,
        path,
        _run_outputs(outputs, outcomes),
        policy,
        outcomes.clock,
        outcomes.bundle_size,
        budget,
    )
    return _driven(durable, outcomes)


def parquet_sink(folder: PathLike, *, overwrite: bool) -> Sink:
    """Return the sink of ``write_parquet``."""
    (path,) = as_paths(folder)
    return ParquetFolder(path, overwrite)


def jsonl_sink(path: PathLike, *, overwrite: bool) -> Sink:
    """Return the sink of ``write_jsonl``: one file if the name ends in ``.jsonl``, or a folder."""
    (target,) = as_paths(path)
    if is_file_name(target):
        return JsonLinesFile(target, overwrite)
    if target.lower().endswith(_LIKE_FILES) and not Path(target).is_dir():
        raise InvalidArgument(
            f"{describe('path', target)} looks like a file, but only a name that ends in '.jsonl' "
            "is one: this would be a folder",
            where="write_jsonl",
            hint='Use "out.jsonl" for one file, or a name such as "out/" for a folder',
        )
    return JsonLinesFolder(target, overwrite)


def _driven(run: DirectRun | DurableRun, outcomes: Outcomes) -> Metrics:
    with closing(iter(outcomes)) as found, closing(run.deliveries(found)) as delivered:
        for _ in delivered:
            pass
    return outcomes.metrics


def _run_outputs(outputs: Sequence[Writing], outcomes: Outcomes) -> list[RunOutput]:
    """Return the outputs as the engine knows them, by the number of their stage.

    Late elements of a stage go to the first output that it leads to.
    """
    stages = outcomes.graph.stages
    downstream = [outcomes.graph.behind(output._stage) for output in outputs]
    first = [
        next(at for at, behind in enumerate(downstream) if stage in behind) for stage in stages
    ]
    return [
        RunOutput(
            stage=stages.index(output._stage),
            keys=output._stage.key_names,
            sinks=output._sinks,
            empty=output._empty,
            late_of=frozenset(number for number, home in enumerate(first) if home == at),
            tag=output._tag,
        )
        for at, output in enumerate(outputs)
    ]


def _check_bounded(outputs: Sequence[Writing]) -> None:
    """Raise if nothing would heed a memory limit: the state of processes stays in memory."""
    stages = Graph.of(dict.fromkeys(output._stage for output in outputs)).stages
    if not any(isinstance(stage.work, Windowed) for stage in stages):
        raise InvalidArgument(
            "memory_limit= bounds windows that are aggregated, and there are none: the state of a "
            "process stays in memory",
            where="run(memory_limit=)",
            hint="Leave it out, and clear cells that are not needed any more",
        )


def _outcomes(
    outputs: Sequence[Writing],
    options: RunOptions,
    *,
    durable: bool = False,
    memory: int | None = None,
) -> Outcomes:
    stages = tuple(dict.fromkeys(output._stage for output in outputs))
    return Outcomes(stages, options, durable=durable, memory=memory)
