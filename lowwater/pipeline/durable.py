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

from lowwater.engine.clocks import ClockLike
from lowwater.engine.delivery import Delivery, DurableSink
from lowwater.engine.metrics import Metrics
from lowwater.engine.outbox import encode_delivery
from lowwater.engine.outcomes import Outcome
from lowwater.engine.records import Records
from lowwater.engine.runner import LocalRun, Plan
from lowwater.engine.sources import Position, ReplayableSource
from lowwater.engine.steps import PaneBatch
from lowwater.engine.tagged import panes_to_table
from lowwater.errors import InvalidArgument, StateError, describe
from lowwater.io.delivery.sidecars import errors_to_table, late_to_table
from lowwater.pipeline._memory_budget import MemoryBudget
from lowwater.pipeline._stored_run import (
    LAYOUT,
    OUTBOX,
    RUN,
    check_compatible,
    describe_plan,
    outbox_key,
    read_outbox,
    read_run,
)
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
            mend='Use "bundle", a number of elements, or a duration such as "1s"',
        )


@final
class DurableRun:
    """One run of a pipeline over a state directory; a later one goes on where it stopped.

    Args:
        plan: What to run.
        run: The run, made with ``durable=True``.
        path: The state directory.
        sinks: Where deliveries go.
        every: When to commit.
        clock: The run's.
        bundle_size: The run's; it must stay what it was.
        no_panes: A table of panes with none in it.
        memory: How the memory of the run is shared out.
    """

    def __init__(
        self,
        plan: Plan,
        run: LocalRun,
        path: str,
        sinks: Sequence[DurableSink],
        every: CommitPolicy,
        clock: ClockLike,
        bundle_size: int,
        no_panes: pa.Table,
        memory: MemoryBudget,
    ) -> None:
        if not isinstance(plan.source, ReplayableSource):
            raise InvalidArgument(
                f"{type(plan.source).__name__} cannot be read again after a restart",
                where="run(state=)",
                mend="Write the elements to files or to a lowwater.io.Log, and read those: "
                "read_parquet, read_csv, read_jsonl",
            )
        self._source: Any = plan.source
        self._bundle_size = bundle_size
        self._plan = plan
        self._run = run
        self._path = path
        self._sinks = sinks
        self._every = every
        self._description = describe_plan(plan, clock, bundle_size)
        self._no_panes = no_panes
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
            for sink in self._sinks:
                sink.open({"state_id": self._state_id})
            try:
                yield from self._deliver(list(read_outbox(store)))
                yield from self._go_on(store, outcomes)
            finally:
                for sink in self._sinks:
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
        if self._run.ended or self._run.ending:
            self._refuse_more(record["run"]["position"])

    def _refuse_more(self, position: Position | None) -> None:
        """Raise if a source has more than the complete run over this state has read."""
        for records, _ in self._beyond(position):
            if records.length or records.unreadable:
                raise StateError(
                    "the run over this state is complete, but there is more to read now"
                    + ("" if records.origin is None else f": {records.origin!r}"),
                    where=self._path,
                    mend="Run over the new input with a state directory of its own, or reset this "
                    "one and run over everything; read with follow= what is to come later",
                )

    def _beyond(self, position: Position | None) -> Iterator[tuple[Records, Position]]:
        """Return what a source has beyond a position by now; what was read must not differ."""
        source: Any = self._source
        follow = getattr(source, "follow", None)
        if follow and is_dataclass(source):
            ends: Any = source
            source = replace(ends, follow=False if follow is True else None)
        beyond: Iterator[tuple[Records, Position]]
        beyond = source.batches_from(position, self._bundle_size, self._plan.keys)
        return beyond

    def _record(self, run: Mapping[str, Any] | None) -> dict[str, Any]:
        return {
            "layout": LAYOUT,
            "state_id": self._state_id,
            "epoch": self._epoch,
            "description": self._description,
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
        next(self._beyond(self._run.position), None)  # raises if a file grew while it was read
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
        deliveries = [] if not outcomes else [self._packed(outcomes)]
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

    def _packed(self, outcomes: Sequence[Outcome]) -> Delivery:
        keys = self._plan.key_names
        shown = [outcome.panes for outcome in outcomes if outcome.panes is not None]
        late = [r for outcome in outcomes if outcome.late for r in outcome.late.to_records()]
        errors = [error for outcome in outcomes for error in outcome.errors]
        return Delivery(
            epoch=self._epoch,
            sequence=0,
            panes=panes_to_table(PaneBatch.concat(shown), keys) if shown else self._no_panes,
            late=late_to_table(late) if late else None,
            errors=errors_to_table(errors) if errors else None,
        )

    def _deliver(self, deliveries: Sequence[Delivery]) -> Iterator[Delivery]:
        for delivery in deliveries:
            for sink in self._sinks:
                on_point("before publishing")
                sink.deliver(delivery)
                on_point("between sinks")
            yield delivery
