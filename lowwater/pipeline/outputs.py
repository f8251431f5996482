"""The outputs of pipelines, and running several of them at once."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, NoReturn, Unpack, final

import pyarrow as pa

from lowwater.display.text import shown
from lowwater.engine.graph.graph import MAIN, Graph, Stage
from lowwater.engine.graph.metrics import Metrics
from lowwater.engine.graph.outline import output_suffix, stage_outline
from lowwater.engine.local.commit_policy import CommitEvery, CommitPolicy
from lowwater.engine.local.delivery import Checks, Place, Sink, check_sink
from lowwater.errors import (
    InvalidArgument,
    StateError,
    UnusedNotice,
    describe,
    explained,
    explains,
)
from lowwater.io.paths import PathLike, as_paths
from lowwater.pipeline.handle import RunHandle, stopping_at_sigterm
from lowwater.pipeline.outcomes import Outcomes, RunOptions, with_run_options
from lowwater.pipeline.vocabulary import no_step

if TYPE_CHECKING:
    from lowwater.engine.join.views import View
    from lowwater.engine.local.direct import DirectRun
    from lowwater.engine.local.durable import DurableRun
    from lowwater.engine.local.memory_budget import MemoryLimit
    from lowwater.engine.local.pieces import RunOutput

_LOG = logging.getLogger("lowwater.pipeline")
_OF_PIPELINES = (
    *("collect", "filter", "key_by", "named", "process", "to_arrow", "to_pandas", "to_polars"),
    *("write_jsonl", "write_parquet", "write_to"),
)


@explains
@final
@dataclass(frozen=True, slots=True, eq=False, repr=False, weakref_slot=True)
class Writing:
    """A pipeline with the sinks that it writes to; nothing happens until ``run``.

    ``write_parquet``, ``write_jsonl`` and ``write_to`` return it. A ``PipelineWarning`` says so if
    nothing is done with it.
    """

    _written: Stage
    _empty: pa.Table
    _sinks: tuple[Sink, ...]
    _tag: str = MAIN
    _view: View | None = None
    _notice: UnusedNotice | None = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_notice", None)
        for sink in self._sinks:
            check_sink(sink, "Use, say, lowwater.io.sinks.ParquetFolder, or see Sink there")
            if isinstance(sink, Checks):
                sink.check(self._empty)
        if self._sinks:  # else nothing was asked for
            notice = UnusedNotice(
                self,
                f"the output to {', '.join(map(shown, self._sinks))} was not run, so nothing is "
                "written",
                hint="Add .run(), or run several with lw.run(...)",
            )
            object.__setattr__(self, "_notice", notice)

    @property
    def _stage(self) -> Stage:
        """The stage whose output is written: who asks for it has a use for this."""
        if self._notice is not None:
            self._notice.withdraw()
        return self._written

    def __repr__(self) -> str:
        sinks = ", ".join(map(shown, self._sinks))
        written = f"{stage_outline(self._stage)}{output_suffix(self._tag)} → {sinks}"
        return f"Writing({written}; nothing is written before .run())"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            hint = "Write it with .run(); call this on the pipeline, before write_..."
            hints = dict.fromkeys(_OF_PIPELINES, hint)
            hints["to_spark"] = (
                "On Spark, Spark writes: call to_spark(spark) on the pipeline, and write the "
                "DataFrame that it returns"
            )
            raise no_step("the output of a pipeline", name, hints, dir(Writing))

    def _repr_html_(self) -> str:
        from lowwater.viz import GraphDiagram
        from lowwater.viz.output_html import graph_html

        return graph_html("Pipeline with an output", GraphDiagram.of(Graph.of([self._stage])))

    @with_run_options
    def run(
        self,
        *,
        state: PathLike | None = None,
        commit_every: CommitEvery = "1s",
        memory_limit: MemoryLimit | None = None,
        remove: str | Sequence[str] = (),
        drop_undelivered: bool = False,
        **options: Unpack[RunOptions],
    ) -> Metrics:
        """Run to the end, write everything, and return the metrics.

        The sinks receive the output in pieces during the run, with the same names and contents with
        and without a state directory. Without one, a run that fails leaves the pieces that it has
        written, and the sinks mark the output as incomplete. With one, each commit stores state,
        positions and outputs together, and then the outputs are delivered. Such a run can be killed
        at any moment and run again: it resumes from the last commit, and the final output is that
        of an undisturbed run.

        Args:
            state: A state directory; created if it does not exist. It belongs to one pipeline, and
                to one process at a time.
            commit_every: How often output is delivered, and committed if there is a state
                directory: ``"bundle"``, a number of elements, or a duration, which is checked
                between bundles. It bounds how long a pane waits before it is written, and how much
                work is repeated after a crash. An output with 131,072 waiting panes is delivered
                at once.
            memory_limit: The memory that windows, joins and tables may use, such as ``"512MB"``; at
                least 16 MiB. Needs ``state``: the least recently touched windows, and keys of joins
                and tables, move to the state directory, and are loaded again when they are touched
                or due. The limit does not cover the state of processes, bundles, output being
                delivered, and Python itself. Stages share the limit equally. It may change from run
                to run. ``None``: all state stays in memory.
            remove: The names of sources, stages and outputs that the pipeline had at its last run
                over this state and no longer has: what is stored of them is released. An output
                is named by its stage, as ``"counts"`` or ``"process['odd']"``, or by the place of a
                sink. Without the name, a pipeline that lacks something is refused. What is new
                needs no word. A name may stay there at later restarts.
            drop_undelivered: Whether to drop what the last run may not have delivered to outputs
                that are removed.
            **options: See :class:`RunOptions`; with ``state``, ``bundle_size`` must not change.

        Raises:
            InvalidArgument: With ``state``, a source cannot be read again, such as an in-memory
                one; or ``memory_limit`` is given without a state, or where only processes have
                any.
            StateError: The state directory is damaged, in use, or belongs to another pipeline; or a
                sink holds the output of another run.
            SystemExit: SIGTERM arrived, and the program does not handle it itself. What was read is
                processed, committed and delivered by then. The status is 143.
        """
        return run(
            self,
            state=state,
            commit_every=commit_every,
            memory_limit=memory_limit,
            remove=remove,
            drop_undelivered=drop_undelivered,
            **options,
        )

    @with_run_options
    def start(
        self,
        *,
        state: PathLike | None = None,
        commit_every: CommitEvery = "1s",
        memory_limit: MemoryLimit | None = None,
        remove: str | Sequence[str] = (),
        drop_undelivered: bool = False,
        **options: Unpack[RunOptions],
    ) -> RunHandle:
        """Run in a thread of its own, and return a handle that can stop the run.

        Args:
            state: See :meth:`run`.
            commit_every: See :meth:`run`.
            memory_limit: See :meth:`run`.
            remove: See :meth:`run`.
            drop_undelivered: See :meth:`run`.
            **options: See :class:`RunOptions`.
        """
        return start(
            self,
            state=state,
            commit_every=commit_every,
            memory_limit=memory_limit,
            remove=remove,
            drop_undelivered=drop_undelivered,
            **options,
        )


@explained()
@with_run_options
def run(
    *outputs: Writing,
    state: PathLike | None = None,
    commit_every: CommitEvery = "1s",
    memory_limit: MemoryLimit | None = None,
    remove: str | Sequence[str] = (),
    drop_undelivered: bool = False,
    **options: Unpack[RunOptions],
) -> Metrics:
    """Drive several outputs in one run, and return the metrics.

    Sources and stages that outputs share run once. Steps between stages, such as ``filter``, run
    once for each stage that reads through them. A stage is shared if it is the same object: ``p``
    and ``p.named("x")`` are two stages, and both run. Late elements go to the first output
    downstream of the stage that dropped them. All dead letters go to the first output.

    Args:
        *outputs: The return values of ``write_parquet``, ``write_jsonl`` and ``write_to``.
        state: A state directory: see :meth:`Writing.run`.
        commit_every: See :meth:`Writing.run`.
        memory_limit: See :meth:`Writing.run`; needs ``state``.
        remove: See :meth:`Writing.run`.
        drop_undelivered: See :meth:`Writing.run`.
        **options: See :class:`RunOptions`.

    Raises:
        InvalidArgument: There is no output; two outputs write to the same place, or one inside the
            place of another; or the places of inputs, outputs and state lie within one another.
    """
    made, outcomes = _prepared(
        outputs, state, commit_every, memory_limit, options, remove, drop_undelivered
    )
    with stopping_at_sigterm(outcomes.stop, lambda: outcomes.local.is_stopped):
        _drive(made, outcomes)
    return outcomes.metrics


@explained()
@with_run_options
def start(
    *outputs: Writing,
    state: PathLike | None = None,
    commit_every: CommitEvery = "1s",
    memory_limit: MemoryLimit | None = None,
    remove: str | Sequence[str] = (),
    drop_undelivered: bool = False,
    **options: Unpack[RunOptions],
) -> RunHandle:
    """Run several outputs in a thread of their own, and return a handle that can stop the run.

    Args:
        *outputs: See :func:`run`.
        state: See :meth:`Writing.run`.
        commit_every: See :meth:`Writing.run`.
        memory_limit: See :meth:`Writing.run`.
        remove: See :meth:`Writing.run`.
        drop_undelivered: See :meth:`Writing.run`.
        **options: See :class:`RunOptions`.

    Raises:
        InvalidArgument: See :func:`run`. What goes wrong later is raised by the handle's ``wait``.
    """
    made, outcomes = _prepared(
        outputs, state, commit_every, memory_limit, options, remove, drop_undelivered
    )

    serving = outcomes.open_page()

    def go() -> Metrics:
        _drive(made, outcomes)
        return outcomes.metrics

    try:
        return RunHandle(go, outcomes.stop, lambda: outcomes.metrics, serving)
    except BaseException as error:
        outcomes.page.close(error)
        raise


def _prepared(
    outputs: Sequence[Writing],
    state: PathLike | None,
    commit_every: CommitEvery,
    memory_limit: MemoryLimit | None,
    options: RunOptions,
    remove: str | Sequence[str],
    drop_undelivered: bool,
) -> tuple[DirectRun | DurableRun, Outcomes]:
    """Return a run that has not begun, and its outcomes."""
    if not outputs:
        raise InvalidArgument(
            "run needs at least one output",
            hint='Write, say, lw.run(first.write_parquet("a/"), second.write_parquet("b/"))',
        )
    for output in outputs:
        if not isinstance(output, Writing):
            several = isinstance(output, (list, tuple))
            raise InvalidArgument(
                f"{describe('output', output)} is not the output of a pipeline",
                where="run",
                hint="Unpack the list: lw.run(*outputs)"
                if several
                else 'Give it an output: pipeline.write_parquet("out/")',
            )
    from lowwater.io.sinks.left_folder import left_folder
    from lowwater.io.sinks.sink_conflicts import check_conflicts, check_inputs, check_state

    sinks = [output._sinks for output in outputs]
    sources = [read.source for read in Graph.of(output._stage for output in outputs).reads]
    check_conflicts(sinks)
    check_inputs(sinks, sources)
    policy = CommitPolicy.of(commit_every)
    names = _removed(remove, drop_undelivered, state)
    if state is None:
        if memory_limit is not None:
            raise InvalidArgument(
                "memory_limit= needs a state directory for what leaves memory",
                where="run(memory_limit=)",
                hint='Name a state directory: run(state="state/", memory_limit=...)',
            )
        from lowwater.engine.local.direct import DirectRun

        outcomes = _outcomes(outputs, options)
        written = _run_outputs(outputs, outcomes)
        outcomes.page.written = written, None
        return DirectRun(outcomes.local, written, policy), outcomes
    from lowwater.engine.local.durable import DurableRun
    from lowwater.engine.local.memory_budget import MemoryBudget

    (path,) = as_paths(state, "state", writes=True)
    check_state(path, sinks, sources)
    budget = MemoryBudget.of(memory_limit)
    if memory_limit is not None:
        _check_bounded(outputs)
    outcomes = _outcomes(outputs, options, durable=True, memory=budget.rows)
    written = _run_outputs(outputs, outcomes)
    outcomes.page.written = written, path
    durable = DurableRun(
        outcomes.local,
        path,
        written,
        policy,
        outcomes.clock,
        outcomes.bundle_size,
        budget,
        remove=names,
        drop_undelivered=drop_undelivered,
        reopen=left_folder,
    )
    return durable, outcomes


def _removed(
    remove: str | Sequence[str], drop_undelivered: bool, state: PathLike | None
) -> tuple[str, ...]:
    """Return the names of what may be gone from a pipeline since the last run over its state."""
    names = (remove,) if isinstance(remove, str) else tuple(remove)
    for name in names:
        if not isinstance(name, str):
            raise InvalidArgument(
                f"{describe('remove', name)} is not a name",
                where="run(remove=)",
                hint='Name sources, stages and outputs, as in remove=["old_counts"]',
            )
    if state is None and (names or drop_undelivered):
        raise InvalidArgument(
            "remove= and drop_undelivered= change what a state directory holds, and there is none",
            where="run(remove=)",
            hint='Leave them out, or name the state directory: run(state="state/", remove=...)',
        )
    return names


def _drive(run: DirectRun | DurableRun, outcomes: Outcomes) -> None:
    outcomes.is_driven = True
    serving = outcomes.open_page()
    failure: BaseException | None = None
    if serving is not None:
        run.on_commit = serving.watch.committed
    try:
        with closing(iter(outcomes)) as found, closing(run.deliveries(found)) as delivered:
            for delivery in delivered:
                if serving is not None:
                    numbers = [output.number for output in run.outputs]
                    if delivery.output in numbers:  # else the last run's, of one that is gone
                        serving.watch.delivered(numbers.index(delivery.output), delivery)
    except BaseException as error:  # a sink may fail after the input has ended
        failure = error
        # What is refused before the run begins has touched no output, which may be complete.
        is_refused = not outcomes.has_begun and isinstance(error, (InvalidArgument, StateError))
        what = "the run was refused" if is_refused else "the output is incomplete"
        if isinstance(error, Exception):
            _LOG.error("%s: %s: %s", what, type(error).__name__, error)
        raise
    finally:
        outcomes.page.close(failure)


def _run_outputs(outputs: Sequence[Writing], outcomes: Outcomes) -> list[RunOutput]:
    """Return the outputs as the engine knows them, by the number of their stage.

    Late elements of a stage go to the first output that it leads to.
    """
    from lowwater.engine.local.pieces import RunOutput

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
            view=output._view,
            number=at,
            set_aside=outcomes.set_aside,
        )
        for at, output in enumerate(outputs)
    ]


def _check_bounded(outputs: Sequence[Writing]) -> None:
    """Raise if nothing would heed a memory limit: processes stay in memory."""
    stages = Graph.of(dict.fromkeys(output._stage for output in outputs)).stages
    if not any(stage.spills for stage in stages):
        raise InvalidArgument(
            "memory_limit= bounds windows that are aggregated, joins and tables, and there are "
            "none: the state of processes stays in memory",
            where="run(memory_limit=)",
            hint="Leave it out, and clear cells that are not needed",
        )


def _outcomes(
    outputs: Sequence[Writing],
    options: RunOptions,
    *,
    durable: bool = False,
    memory: int | None = None,
) -> Outcomes:
    stages = tuple(dict.fromkeys(output._stage for output in outputs))
    # All dead letters go to the first output. A sink that names its places stores what it is given.
    places = [place for sink in outputs[0]._sinks for place in sink.places()]
    return Outcomes(
        stages,
        options,
        dead_letters_in=_dead_letters_in(places) if places else None,
        durable=durable,
        memory=memory,
        sinks=[(output._stage, output._sinks) for output in outputs],
    )


def _dead_letters_in(places: Sequence[Place]) -> str:
    """Return where sinks store dead letters: in a file, in files of a folder, or in a table."""
    for place in places:
        for part in place.parts:
            if part.endswith("_errors"):
                return f"the table {part!r}"
        if isinstance(place.at, PurePath):
            for pattern in place.patterns:
                if pattern.startswith("errors"):
                    at = str(place.at) if isinstance(place.at, Path) else place.name
                    return repr(f"{at}/{pattern}")
            if place.at.name.endswith(".errors.jsonl"):
                return repr(str(place.at))
    return "the output"
