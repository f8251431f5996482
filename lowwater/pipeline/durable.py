"""Runs that survive being killed: state, outputs and positions committed together.

MillWheel's recipe (Akidau and others, VLDB 2013): one atomic, durable write holds the state that
changed, where the source and the watermark are, and what was produced but not delivered; then the
output is delivered; then it is forgotten. After a crash the last commit is taken up, and what its
outbox holds is delivered again under the same ids.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
import pyarrow as pa

from lowwater.engine.delivery import Delivery, DurableSink
from lowwater.engine.metrics import Metrics
from lowwater.engine.outbox import decode_delivery, encode_delivery
from lowwater.engine.outcomes import Outcome
from lowwater.engine.runner import LocalRun, Plan
from lowwater.engine.stateless import Step
from lowwater.engine.steps import PaneBatch
from lowwater.engine.tagged import panes_to_table
from lowwater.errors import InvalidArgument, StateError, describe
from lowwater.io.delivery.sidecars import errors_to_table, late_to_table
from lowwater.state.codec import decode, encode
from lowwater.state.key_layout import encode_int64, prefix_range, table_prefix
from lowwater.state.rocks import RocksStore
from lowwater.state.store import Batch, StateStore
from lowwater.time import duration, format_duration

LAYOUT = 1
_PIPELINE = 0
_RUN = table_prefix(_PIPELINE, 0, 0)
_OUTBOX = table_prefix(_PIPELINE, 0, 1)

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
            return cls(None, duration(value, name="commit_every") / 1e6)
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
        bundle_size: The run's; it must stay what it was.
        no_panes: A table of panes with none in it.
    """

    def __init__(
        self,
        plan: Plan,
        run: LocalRun,
        path: str,
        sinks: Sequence[DurableSink],
        every: CommitPolicy,
        bundle_size: int,
        no_panes: pa.Table,
    ) -> None:
        self._plan = plan
        self._run = run
        self._path = path
        self._sinks = sinks
        self._every = every
        self._description = describe_plan(plan, bundle_size)
        self._no_panes = no_panes
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
        with RocksStore(self._path) as store:
            self._take_up(store)
            for sink in self._sinks:
                sink.open({"state_id": self._state_id})
            try:
                yield from self._deliver(self._outbox(store))
                yield from self._go_on(store, outcomes)
            finally:
                for sink in self._sinks:
                    sink.close()

    def _take_up(self, store: StateStore) -> None:
        (data,) = store.get([_RUN])
        if data is None:
            self._state_id = uuid.uuid4().hex
            batch = Batch()
            batch.put([_RUN], [encode(self._record(None))])
            store.commit(batch)
            return
        record = decode(data)
        if record["layout"] != LAYOUT:
            raise StateError(
                f"the state was written with layout {record['layout']}; this lowwater has {LAYOUT}",
                where=self._path,
                mend="Use the lowwater that wrote it, or reset the state",
            )
        check_compatible(record["description"], self._description, self._path)
        self._state_id = record["state_id"]
        self._epoch = record["epoch"]
        if record["run"] is not None:
            self._run.resume(store, record["run"])

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
        events, at = self.metrics.events, time.monotonic()
        bundles = self.metrics.bundles
        for outcome in outcomes:
            if not outcome.boundary:
                pending.append(outcome)
                continue
            every = self._every
            if every.elements is not None:
                enough = self._is_enough(every.elements, events, bundles)
            else:
                enough = time.monotonic() - at >= (every.seconds or 0)
            if enough:
                yield from self._commit(store, pending)
                pending = []
                events, at = self.metrics.events, time.monotonic()
                bundles = self.metrics.bundles
        yield from self._commit(store, pending)
        yield from self._commit(store, [])  # forgets what was delivered

    def _is_enough(self, elements: int, events: int, bundles: int) -> bool:
        if elements == 1:
            return self.metrics.bundles > bundles
        return self.metrics.events - events >= elements

    def _commit(self, store: StateStore, outcomes: Sequence[Outcome]) -> Iterator[Delivery]:
        self._epoch += 1
        deliveries = [] if not outcomes else [self._packed(outcomes)]
        batch = Batch()
        batch.delete_range(*prefix_range(_OUTBOX))  # delivered by now
        batch.put(
            [_outbox_key(delivery) for delivery in deliveries],
            [encode_delivery(delivery) for delivery in deliveries],
        )
        batch.put([_RUN], [encode(self._record(self._run.save(batch)))])
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

    def _outbox(self, store: StateStore) -> list[Delivery]:
        return [decode_delivery(value) for _, value in store.scan(*prefix_range(_OUTBOX))]

    def _deliver(self, deliveries: Sequence[Delivery]) -> Iterator[Delivery]:
        for delivery in deliveries:
            for sink in self._sinks:
                on_point("before publishing")
                sink.deliver(delivery)
                on_point("between sinks")
            yield delivery


def describe_plan(plan: Plan, bundle_size: int) -> dict[str, Any]:
    """Return what a state directory must know of the pipeline it belongs to."""
    windowing = plan.windowing
    return {
        "source": type(plan.source).__name__,
        "steps": [_step(step) for step in plan.steps],
        "time": plan.time,
        "keys": list(plan.keys),
        "windows": _text(windowing.windows),
        "trigger": _text(windowing.trigger),
        "accumulation": windowing.mode,
        "allowed_lateness": windowing.lateness_us,
        "closing": windowing.closing,
        "on_time": windowing.on_time,
        "timestamps": windowing.timestamps,
        "aggregates": {name: _text(spec) for name, spec in plan.aggregates.items()},
        "bundle_size": bundle_size,
    }


def check_compatible(stored: Mapping[str, Any], now: Mapping[str, Any], path: str) -> None:
    """Raise unless a pipeline can take up a state that another one has left.

    A longer lateness, another watermark estimator and other sinks can; what changes what the state
    means cannot.

    Raises:
        StateError: It cannot; the message names what differs.
    """
    differs = []
    for name in sorted({*stored, *now}):
        before, after = stored.get(name), now.get(name)
        if name == "allowed_lateness" and before is not None and after is not None:
            if after < before:
                differs.append(
                    f"{name} was {format_duration(before)} and is {format_duration(after)}, shorter"
                )
        elif before != after:
            differs.append(f"{name} was {before!r} and is {after!r}")
    if differs:
        raise StateError(
            f"the state belongs to another pipeline: {'; '.join(differs)}",
            where=path,
            mend="Run the pipeline as it was, use another state directory, or reset this one",
        )


def _outbox_key(delivery: Delivery) -> bytes:
    place = np.array([delivery.epoch, delivery.sequence], dtype=np.int64)
    return _OUTBOX + encode_int64(place).tobytes()


def _step(step: Step) -> str:
    return _text(step) if step.vectorised else type(step).__name__


def _text(value: object) -> str:
    """Return a value's repr without addresses, which change from process to process."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))
