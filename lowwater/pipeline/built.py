"""A built pipeline: a value that can be run, as often as its source can be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, Unpack, final

import pyarrow as pa

from lowwater.engine.clocks import ArrivalClock, Clock, ClockLike, WallClock
from lowwater.engine.delivery import DurableSink
from lowwater.engine.ingest import OnError
from lowwater.engine.metrics import Metrics
from lowwater.engine.outcomes import Outcome
from lowwater.engine.pane_table import empty_panes, panes_to_arrow
from lowwater.engine.panes import ErrorRecord, LateRecord, Pane
from lowwater.engine.progress import Progress, observer_for
from lowwater.engine.runner import LocalRun, Plan
from lowwater.engine.steps import PaneBatch
from lowwater.errors import InvalidArgument, UnsupportedByRunner, describe, nearest
from lowwater.io.delivery import JsonLinesFolder, ParquetFolder
from lowwater.io.paths import PathLike, as_paths
from lowwater.io.sinks import JsonLinesSink, ParquetSink, Sink
from lowwater.pipeline._memory_budget import MemoryBudget, MemoryLimit
from lowwater.pipeline._outline import outline
from lowwater.pipeline.durable import CommitEvery, CommitPolicy, DurableRun
from lowwater.pipeline.result import Result

if TYPE_CHECKING:
    import pandas as pd

OnLate: TypeAlias = Callable[[LateRecord], object]
OnDeadLetter: TypeAlias = Callable[[ErrorRecord], object]


class RunOptions(TypedDict, total=False):
    """How to run a pipeline; every end takes these.

    Args:
        bundle_size: How many elements a bundle has at most: triggers are judged once per bundle.
        clock: Where processing time comes from; the source's own, or the machine's.
        on_error: ``"dead_letter"`` sets unusable records aside, ``"raise"`` stops at the first.
        progress: A function called with the metrics after each bundle; ``True`` for a line in any
            case, ``False`` for none. Left out: a line if standard error is a terminal.
        on_late: Called with each element dropped from one of its windows.
        on_dead_letter: Called with each record that could not be used.
    """

    bundle_size: int
    clock: ClockLike | None
    on_error: OnError
    progress: Progress | None
    on_late: OnLate | None
    on_dead_letter: OnDeadLetter | None


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Pipeline:
    """One keyed stage from source to panes. Nothing runs until one of its ends is called.

    Pipelines are made by :func:`lowwater.read_parquet` and its like, not by hand.
    """

    _plan: Plan
    _clock: ClockLike | None = None
    _key_types: tuple[pa.DataType, ...] = field(default=())

    def __repr__(self) -> str:
        plan = self._plan
        shown = outline(
            plan.source, plan.steps, plan.key_names, plan.windowing, plan.aggregates,
            deduplication=plan.deduplication,
        )  # fmt: skip
        return f"Pipeline({shown})"

    def run(self, **options: Unpack[RunOptions]) -> Panes:
        """Run, and give the panes one by one as they come: see :class:`RunOptions`.

        What comes back is an iterator that also has ``metrics``.
        """
        return Panes(self._outcomes(options), self._plan.key_names)

    def run_batches(self, **options: Unpack[RunOptions]) -> PaneBatches:
        """Run, and give the panes as columns: what is fast for many of them."""
        return PaneBatches(self._outcomes(options), self._plan.key_names)

    def collect(self, **options: Unpack[RunOptions]) -> Result:
        """Run to the end and keep everything: panes, late elements, dead letters and metrics."""
        run = self._outcomes(options)
        result = Result(self._plan.key_names, self._no_panes(), run.metrics)
        for outcome in run:
            result._add(outcome.panes, outcome.late, outcome.errors)
        return result

    def to_arrow(self, **options: Unpack[RunOptions]) -> pa.Table:
        """Run to the end and return the panes as an Arrow table."""
        return self.collect(**options).to_arrow()

    def to_pandas(self, **options: Unpack[RunOptions]) -> pd.DataFrame:
        """Run to the end and return the panes as a pandas DataFrame."""
        return self.collect(**options).to_pandas()

    def write_parquet(self, folder: PathLike) -> Writing:
        """Return the pipeline with a folder of Parquet files as its end; call ``run`` on that.

        Late elements and dead letters go to ``late.jsonl`` and ``errors.jsonl`` in the folder.
        """
        (path,) = as_paths(folder)
        return Writing(self, lambda: ParquetSink(path), ParquetFolder(path))

    def write_jsonl(self, path: PathLike) -> Writing:
        """Return the pipeline with a file of JSON lines as its end; call ``run`` on that.

        For ``out.jsonl``, late elements and dead letters go to ``out.late.jsonl`` and
        ``out.errors.jsonl``.
        """
        (target,) = as_paths(path)
        return Writing(self, lambda: JsonLinesSink(target), JsonLinesFolder(target))

    def write_to(self, *sinks: DurableSink) -> Delivering:
        """Return the pipeline with durable sinks as its ends; call ``run(state=...)`` on that.

        See :mod:`lowwater.io.delivery` for what there is; a user's own is a
        :class:`lowwater.engine.delivery.DurableSink`.
        """
        for sink in sinks:
            if not isinstance(sink, DurableSink):
                raise InvalidArgument(
                    f"{describe('sink', sink)} has no open, deliver and close",
                    mend="Use, say, lowwater.io.delivery.SqliteTable",
                )
        return Delivering(self, sinks)

    def to_spark(self, spark: Any, **options: Any) -> Any:
        """Return the panes as a Spark DataFrame: streaming if the source is, else the batch answer.

        See :class:`lowwater.engine.spark.SparkOptions` for the options, and ``docs/spark.md`` for
        the columns.

        Args:
            spark: The Spark session.
            **options: How to run there.

        Raises:
            UnsupportedByRunner: Spark is not there, or cannot do what the pipeline asks for.
        """
        try:
            from lowwater.engine.spark.query import SparkOptions, panes_on_spark
        except ImportError as error:
            raise UnsupportedByRunner(
                f"pyspark cannot be imported: {error}", mend="pip install 'lowwater[spark]'"
            ) from error
        known = SparkOptions.__dataclass_fields__
        for name in options:
            if name not in known:
                raise InvalidArgument(f"there is no option {name!r}", mend=nearest(name, known))
        return panes_on_spark(spark, self._plan, SparkOptions(**options), self._clock)

    def _outcomes(
        self, options: RunOptions, *, durable: bool = False, memory: int | None = None
    ) -> _Outcomes:
        return _Outcomes(self._plan, self._clock, options, durable=durable, memory=memory)

    def _no_panes(self) -> pa.Table:
        names = self._plan.key_names
        types = self._key_types or (pa.null(),) * len(names)
        return empty_panes(list(zip(names, types, strict=True)), list(self._plan.aggregates))


@final
@dataclass(frozen=True, slots=True, eq=False)
class Writing:
    """A pipeline that writes what it gives."""

    _pipeline: Pipeline
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
        if state is not None:
            return Delivering(self._pipeline, (self._durable,)).run(
                state=state,
                commit_every=commit_every,
                memory_limit=memory_limit,
                **options,
            )
        if memory_limit is not None:
            raise InvalidArgument(
                "memory_limit= needs a place for what leaves memory",
                where="run(memory_limit=)",
                mend='Name a state directory: run(state="state/", memory_limit=...)',
            )
        run = self._pipeline._outcomes(options)
        sink = self._open()
        complete = False
        try:
            for outcome in run:
                if outcome.panes is not None:
                    sink.panes(panes_to_arrow(outcome.panes, self._pipeline._plan.key_names))
                if outcome.late is not None:
                    sink.late(outcome.late.to_records())
                if outcome.errors:
                    sink.errors(outcome.errors)
            complete = True
        finally:
            sink.close(complete=complete)
        return run.metrics


@final
@dataclass(frozen=True, slots=True, eq=False)
class Delivering:
    """A pipeline with durable sinks."""

    _pipeline: Pipeline
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
            memory_limit: How much memory state may take, such as ``"512MB"``, at least 16 MiB:
                windows not touched for the longest time are in the state directory alone, and come
                back when elements touch them or they are due. It bounds state, not the process:
                bundles, panes on their way out and Python itself come on top. Keys stay for as
                long as they have windows, and so do windows that wait for the clock. ``None``:
                all windows are in memory. It may change from run to run.
            **options: See :class:`RunOptions`; ``bundle_size`` must stay what it was.

        Raises:
            InvalidArgument: The source cannot be read again, as in-memory ones cannot; or windows
                cannot leave memory: the trigger is the user's own, or ``timestamps`` is not
                ``"end"``.
            StateError: The directory is damaged, in use, or another pipeline's.
        """
        (path,) = as_paths(state)
        pipeline = self._pipeline
        budget = MemoryBudget.of(memory_limit)
        outcomes = pipeline._outcomes(options, durable=True, memory=budget.rows)
        run = DurableRun(
            pipeline._plan,
            outcomes.local,
            path,
            self._sinks,
            CommitPolicy.of(commit_every),
            outcomes.clock,
            options.get("bundle_size", 50_000),
            pipeline._no_panes(),
            budget,
        )
        for _ in run.deliveries(iter(outcomes)):
            pass
        return run.metrics


@final
class _Outcomes:
    """What a run gives, after the user's callbacks have seen it."""

    def __init__(
        self,
        plan: Plan,
        clock: ClockLike | None,
        options: RunOptions,
        *,
        durable: bool,
        memory: int | None,
    ) -> None:
        known = RunOptions.__annotations__
        for name in options:
            if name not in known:
                raise InvalidArgument(
                    f"there is no option {name!r}", mend="Known: " + ", ".join(known)
                )
        size = options.get("bundle_size", 50_000)
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise InvalidArgument(
                f"{describe('bundle_size', size)} must be an int of at least 1",
                mend="Use, say, 50_000; or 1 to judge triggers after every element",
            )
        self._observer = observer_for(options.get("progress"))
        self._on_late = _callback("on_late", options.get("on_late"))
        self._on_dead_letter = _callback("on_dead_letter", options.get("on_dead_letter"))
        self.clock = _clock(options.get("clock") or clock or WallClock())
        self.local = self._run = LocalRun(
            plan,
            bundle_size=size,
            clock=self.clock,
            on_error=options.get("on_error", "dead_letter"),
            observer=self._observer,
            durable=durable,
            memory=memory,
        )

    @property
    def metrics(self) -> Metrics:
        return self._run.metrics

    def __iter__(self) -> Iterator[Outcome]:
        try:
            for outcome in self._run:
                if self._on_dead_letter is not None:
                    for error in outcome.errors:
                        self._on_dead_letter(error)
                if self._on_late is not None and outcome.late is not None:
                    for late in outcome.late.to_records():
                        self._on_late(late)
                yield outcome
        finally:
            if self._observer is not None:
                self._observer.close()


@final
class Panes(Iterator[Pane]):
    """The panes of a run, as they come, and its metrics."""

    def __init__(self, outcomes: _Outcomes, keys: tuple[str, ...]) -> None:
        self._outcomes = outcomes
        self._keys = keys
        self._panes = self._each()

    def __repr__(self) -> str:
        return f"<panes of a run, {self.metrics.events} events so far>"

    @property
    def metrics(self) -> Metrics:
        """What the run has done so far, in numbers."""
        return self._outcomes.metrics

    def __next__(self) -> Pane:
        return next(self._panes)

    def _each(self) -> Iterator[Pane]:
        for outcome in self._outcomes:
            if outcome.panes is not None:
                yield from outcome.panes


@final
class PaneBatches(Iterator[PaneBatch]):
    """The panes of a run as columns, as they come, and its metrics."""

    def __init__(self, outcomes: _Outcomes, keys: tuple[str, ...]) -> None:
        self._outcomes = outcomes
        self._keys = keys
        self._batches = self._each()

    def __repr__(self) -> str:
        return f"<batches of panes of a run, {self.metrics.events} events so far>"

    @property
    def metrics(self) -> Metrics:
        """What the run has done so far, in numbers."""
        return self._outcomes.metrics

    def __next__(self) -> PaneBatch:
        return next(self._batches)

    def to_arrow_batches(self) -> Iterator[pa.RecordBatch]:
        """Give the remaining batches as Arrow batches instead."""
        return (panes_to_arrow(batch, self._keys) for batch in self)

    def _each(self) -> Iterator[PaneBatch]:
        for outcome in self._outcomes:
            if outcome.panes is not None:
                yield outcome.panes


def _callback(name: str, function: Any) -> Any:
    if function is not None and not callable(function):
        raise InvalidArgument(
            f"{describe(name, function)} is not a function", mend="Give a function of one record"
        )
    return function


def _clock(clock: object) -> ClockLike:
    if not isinstance(clock, (ArrivalClock, Clock)):
        raise InvalidArgument(
            f"{describe('clock', clock)} is not a clock",
            mend='Use WallClock(), ArrivalClock("landed"), or an object with now()',
        )
    return clock
