"""Runs that survive being killed: state, outputs and positions committed together.

MillWheel's recipe (Akidau and others, VLDB 2013): one atomic, durable write holds the state that
changed, where the source and the watermark are, and what was produced but not delivered; then the
output is delivered; then it is forgotten. After a crash the last commit is taken up, and what its
outbox holds is delivered again under the same ids.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from typing import Any, TypeAlias, final

import pyarrow as pa

from lowwater.engine.graph.clocks import ClockLike
from lowwater.engine.graph.graph import MAIN
from lowwater.engine.graph.metrics import Metrics
from lowwater.engine.graph.sources import Position, ReplayableSource
from lowwater.engine.local.delivery import Delivery, DurableSink
from lowwater.engine.local.memory_budget import MemoryBudget
from lowwater.engine.local.outbox import encode_delivery
from lowwater.engine.local.outcomes import Outcome
from lowwater.engine.local.run_record import (
    LAYOUT,
    OUTBOX,
    RUN,
    check_compatible,
    describe_graph,
    outbox_key,
    read_outbox,
    read_run,
    stored_operators,
)
from lowwater.engine.local.runner import LocalRun
from lowwater.engine.local.source_reader import SourceReader
from lowwater.engine.process.emitted import emitted_table
from lowwater.engine.records.batch import Records
from lowwater.engine.records.json_rows import errors_to_table, late_to_table
from lowwater.engine.records.steps import PaneBatch
from lowwater.engine.records.tagged import panes_to_table
from lowwater.errors import InvalidArgument, StateError, describe
from lowwater.state.codec import encode
from lowwater.state.damage import decoding
from lowwater.state.key_layout import prefix_range
from lowwater.state.store import Batch, StateStore
from lowwater.time import duration

CommitEvery: TypeAlias = int | str


def _ignore(point: str) -> None:
    """Do nothing at a point between two steps of a commit."""


on_point: Callable[[str], None] = _ignore
"""Called at each named point between the steps of a commit: where tests crash."""


@final
@dataclass(frozen=True, slots=True)
class CommitPolicy:
    """When to commit: after so many elements, so much time, or every bundle.

    Args:
        elements: After this many elements, if not ``None``.
        seconds: After this much time, if not ``None``.
    """

    elements: int | None
    seconds: float | None

    @classmethod
    def of(cls, value: CommitEvery) -> CommitPolicy:
        """Return the policy that ``commit_every=`` stands for.

        Raises:
            InvalidArgument: It is not ``"bundle"``, a duration, or an int of at least 1.
        """
        if value == "bundle":
            return cls(1, None)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
            return cls(value, None)
        if isinstance(value, str):
            micros = duration(value, name="commit_every")
            if micros >= 0:
                return cls(None, micros / 1e6)
        raise InvalidArgument(
            f"{describe('commit_every', value)} is not known",
            hint='Use "bundle", a number of elements, or a duration such as "1s"',
        )


@final
@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class DurableEnd:
    """Where panes leave a durable run.

    Args:
        stage: Number of the stage that shows them.
        sinks: Where they go.
        no_panes: A table of them with none in it.
        late_of: Numbers of the stages whose late elements go there too.
        output: Which output of the stage is meant, if it is a process.
    """

    stage: int
    sinks: Sequence[DurableSink]
    no_panes: pa.Table
    late_of: frozenset[int]
    output: str = MAIN


@final
class DurableRun:
    """One run of a pipeline over a state directory; a later one goes on where it stopped.

    Deliveries are numbered within a commit by the end they go to; dead letters go to the first.

    Args:
        run: The run, made with ``durable=True``.
        path: The state directory.
        ends: Where panes leave it.
        every: When to commit.
        clock: The run's.
        bundle_size: The run's; it must stay what it was.
        memory: How the memory of the run is shared out.
    """

    def __init__(
        self,
        run: LocalRun,
        path: str,
        ends: Sequence[DurableEnd],
        every: CommitPolicy,
        clock: ClockLike,
        bundle_size: int,
        memory: MemoryBudget,
    ) -> None:
        for read in run.graph.reads:
            if not isinstance(read.source, ReplayableSource):
                raise InvalidArgument(
                    f"{type(read.source).__name__} cannot be read again after a restart",
                    where="run(state=)",
                    hint="Write the elements to files or to a lowwater.io.Log, and read those: "
                    "read_parquet, read_csv, read_jsonl",
                )
        self._bundle_size = bundle_size
        self._run = run
        self._path = path
        self._ends = ends
        self._every = every
        outputs = [(end.stage, end.output) for end in ends]
        self._description = describe_graph(run.graph, outputs, clock, bundle_size)
        self._memory = memory
        self._epoch = 0
        self._state_id = ""

    @property
    def metrics(self) -> Metrics:
        """What all runs over this state have done, in numbers."""
        return self._run.metrics

    def deliveries(self, outcomes: Iterator[Outcome]) -> Iterator[Delivery]:
        """Run to the end; yield what is committed and has been delivered to the sinks.

        Args:
            outcomes: The run's own outcomes, perhaps after callbacks have seen them.
        """
        with self._memory.open(self._path) as store:
            self._take_up(store)
            for at, end in enumerate(self._ends):
                name = f"{self._state_id}-{at}" if at else self._state_id
                for sink in end.sinks:
                    sink.open({"state_id": name})
            try:
                yield from self._deliver(list(read_outbox(store)))
                yield from self._go_on(store, outcomes)
            finally:
                for end in self._ends:
                    for sink in end.sinks:
                        sink.close()

    def _take_up(self, store: StateStore) -> None:
        record = read_run(store, self._path)
        if record is None:
            self._state_id = uuid.uuid4().hex
            batch = Batch()
            batch.put([RUN], [encode(self._record(None))])
            store.commit(batch)
            self._run.resume(store, None)
            return
        check_compatible(record["description"], self._description, self._path)
        self._state_id = record["state_id"]
        self._epoch = record["epoch"]
        with decoding("the record of the run"):
            self._run.resume(store, record["run"])
        for reader in self._run.readers:
            if reader.ended:
                self._refuse_more(reader)

    def _refuse_more(self, reader: SourceReader) -> None:
        """Raise if a source that was read to its end has more to read by now."""
        for records, _ in self._beyond(reader):
            if records.length or records.unreadable:
                raise StateError(
                    "the run over this state is complete, but there is more to read now"
                    + ("" if records.origin is None else f": {records.origin!r}"),
                    where=self._path,
                    hint="Run over the new input with a state directory of its own, or reset this "
                    "one and run over everything; read with follow= what is to come later",
                )

    def _beyond(self, reader: SourceReader) -> Iterator[tuple[Records, Position]]:
        """Return what a source has beyond its position by now; what was read must not differ."""
        source: Any = reader.read.source
        follow = getattr(source, "follow", None)
        if follow and is_dataclass(source):
            ends: Any = source
            source = replace(ends, follow=False if follow is True else None)
        beyond: Iterator[tuple[Records, Position]]
        beyond = source.batches_from(reader.position, self._bundle_size, reader.keys)
        return beyond

    def _record(self, run: Mapping[str, Any] | None) -> dict[str, Any]:
        return {
            "layout": LAYOUT,
            "state_id": self._state_id,
            "epoch": self._epoch,
            "description": self._description,
            "operators": stored_operators(self._run.graph),
            "run": run,
        }

    def _go_on(self, store: StateStore, outcomes: Iterator[Outcome]) -> Iterator[Delivery]:
        pending: list[Outcome] = []
        last, at = self._done(), time.monotonic()
        for outcome in outcomes:
            if not outcome.boundary:
                pending.append(outcome)
                continue
            done = self._done()
            if self._run.is_over or self._is_enough(done, last, at, bool(pending)):
                yield from self._commit(store, pending)
                pending = []
                last, at = done, time.monotonic()
        for reader in self._run.readers:
            next(self._beyond(reader), None)  # raises if a file grew while it was read
        yield from self._commit(store, pending)
        yield from self._commit(store, [])  # forgets what was delivered

    def _done(self) -> tuple[int, int]:
        """Return how many elements and bundles this run has dealt with."""
        return self._run.taken, self.metrics.bundles

    def _is_enough(
        self, done: tuple[int, int], last: tuple[int, int], at: float, pending: bool
    ) -> bool:
        """Whether to commit now; not where there is nothing to commit."""
        every = self._every
        if not pending and done == last:
            return False
        if every.elements is None:
            return time.monotonic() - at >= (every.seconds or 0)
        if every.elements == 1:
            return pending or done[1] > last[1]
        return done[0] - last[0] >= every.elements

    def _commit(self, store: StateStore, outcomes: Sequence[Outcome]) -> Iterator[Delivery]:
        self._epoch += 1
        deliveries = [
            delivery
            for at in range(len(self._ends))
            if (delivery := self._packed(at, outcomes)) is not None
        ]
        batch = Batch()
        batch.delete_range(*prefix_range(OUTBOX))  # delivered by now
        batch.put(
            [outbox_key(delivery) for delivery in deliveries],
            [encode_delivery(delivery) for delivery in deliveries],
        )
        batch.put([RUN], [encode(self._record(self._run.save(batch)))])
        on_point("before the write")
        store.commit(batch)
        on_point("after the write")
        yield from self._deliver(deliveries)
        on_point("before forgetting")

    def _packed(self, at: int, outcomes: Sequence[Outcome]) -> Delivery | None:
        """Return what is to go to an end; ``None`` for nothing."""
        end = self._ends[at]
        shown = [o.panes for o in outcomes if o.panes is not None and o.stage == end.stage]
        late = [
            record
            for outcome in outcomes
            if outcome.late is not None and outcome.stage in end.late_of
            for record in outcome.late.to_records()
        ]
        errors = [] if at else [error for outcome in outcomes for error in outcome.errors]
        emitted = [
            outcome.emitted[end.output]
            for outcome in outcomes
            if outcome.stage == end.stage and end.output in outcome.emitted
        ]
        if not (shown or emitted or late or errors):
            return None
        keys = self._run.graph.stages[end.stage].key_names
        panes = end.no_panes
        if shown:
            panes = panes_to_table(PaneBatch.concat(shown), keys)
        elif emitted:
            panes = emitted_table(emitted, keys)
        return Delivery(
            epoch=self._epoch,
            sequence=at,
            panes=panes,
            late=late_to_table(late) if late else None,
            errors=errors_to_table(errors) if errors else None,
        )

    def _deliver(self, deliveries: Sequence[Delivery]) -> Iterator[Delivery]:
        for delivery in deliveries:
            if delivery.sequence < len(self._ends):
                for sink in self._ends[delivery.sequence].sinks:
                    on_point("before publishing")
                    sink.deliver(delivery)
                    on_point("between sinks")
            yield delivery
