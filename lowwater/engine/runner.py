"""The local runner: drives a source through the steps and the window operator, in one process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, final

import numpy as np
import pyarrow as pa

from lowwater.engine.aggregates import AggregateSpec
from lowwater.engine.aggregates._base import Needs
from lowwater.engine.clocks import ClockLike, Cut, Cutter
from lowwater.engine.columns import Column
from lowwater.engine.deduplicate import Deduplication, Deduplicator
from lowwater.engine.ingest import Admitted, Ingest, OnError
from lowwater.engine.metrics import Metrics
from lowwater.engine.operator import WindowOperator
from lowwater.engine.outcomes import LateElements, Outcome
from lowwater.engine.panes import ErrorRecord
from lowwater.engine.records import Records
from lowwater.engine.sources import Position, ReplayableSource, Source
from lowwater.engine.stateless import Step
from lowwater.engine.steps import (
    Bundle,
    ClockAdvance,
    LateBatch,
    StepOutput,
    WatermarkAdvance,
)
from lowwater.engine.windowing import Windowing
from lowwater.errors import DataError, InvalidArgument
from lowwater.state.store import Batch, StateStore
from lowwater.time import END_OF_TIME, Instant, Int64Array
from lowwater.watermark import WatermarkEstimator

_OPERATOR, _DEDUPLICATOR = 1, 2
Observer: TypeAlias = Callable[[Metrics], None]

_STRICTEST: tuple[Needs, ...] = (
    "nothing", "presence", "anything", "ordered", "numbers", "booleans",
)  # fmt: skip


@final
@dataclass(frozen=True, slots=True)
class Plan:
    """One keyed stage, ready to run: a value that holds no state.

    Args:
        source: Where records come from.
        steps: What becomes of them before they are grouped.
        time: The column of event times.
        timezone: What times without a time zone mean.
        keys: The key columns.
        key_names: What panes call these.
        windowing: Windows, trigger and the rest.
        aggregates: What panes show, by name.
        watermark: How the watermark is guessed; ``None``: there is none until the input ends.
        deduplication: Which records are duplicates, before they are grouped; ``None``: none are.
    """

    source: Source
    steps: tuple[Step, ...]
    time: str
    timezone: str | None
    keys: tuple[str, ...]
    key_names: tuple[str, ...]
    windowing: Windowing
    aggregates: Mapping[str, AggregateSpec]
    watermark: WatermarkEstimator | None
    deduplication: Deduplication | None = None

    def ingest(self, on_error: OnError) -> Ingest:
        """Return the gate before the window operator."""
        durations = self.windowing.windows.columns
        needs = strictest_needs(self.aggregates)
        return Ingest(
            time=self.time,
            keys=self.keys,
            needs={name: need for name, need in needs.items() if name not in durations},
            durations=durations,
            on_error=on_error,
            timezone=self.timezone,
            ids=() if self.deduplication is None else self.deduplication.columns,
        )


@final
class LocalRun:
    """One run of a plan.

    For each bundle, in this order: the clock moves, the elements arrive, the watermark moves to
    where the estimator puts it after them (S-O8). A batch of the source that has no elements is a
    heartbeat: the clock and the watermark move all the same. Duplicates count for the
    watermark, but do not reach the operator (S-D1).

    Args:
        plan: What to run.
        bundle_size: How many elements a bundle has at most.
        clock: Where processing time comes from.
        on_error: What becomes of unusable records.
        observer: Called with the metrics after every bundle and at the end.
        durable: Whether the run may be stopped and resumed: its operator notes what changes, and
            an outcome says where a bundle is done. The source must be replayable.
        memory: How many bytes the state of a durable run may take in memory, about; the rest is in
            the store alone. ``None``: any number.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        bundle_size: int,
        clock: ClockLike,
        on_error: OnError,
        observer: Observer | None = None,
        durable: bool = False,
        memory: int | None = None,
    ) -> None:
        self.metrics = Metrics()
        self._plan = plan
        self._bundle_size = bundle_size
        self._raise = on_error == "raise"
        self._ingest = plan.ingest(on_error)
        self._operator = WindowOperator(plan.windowing, plan.aggregates)
        self._cutter = Cutter(clock, bundle_size, plan.timezone)
        self._estimator = None if plan.watermark is None else plan.watermark.start()
        self._deduplicator = None
        if plan.deduplication is not None:
            self._deduplicator = Deduplicator(plan.deduplication)
        self._observer = observer
        self._durable = durable
        if durable:
            self._operator.keep_in_store(_OPERATOR, memory=memory)
            if self._deduplicator is not None:
                self._deduplicator.keep_in_store(_DEDUPLICATOR)
        self._store: StateStore | None = None
        self._position: Position | None = None
        self._bundles_done = 0
        self._taken = 0
        self._ended = False
        self._learned = self._learn()

    @property
    def ended(self) -> bool:
        """Whether the input has ended and all was shown."""
        return self._ended

    @property
    def ending(self) -> bool:
        """Whether the input has ended, whatever is left to show."""
        return self._operator.watermark == END_OF_TIME

    @property
    def is_over(self) -> bool:
        """Whether state takes more memory than it may: :meth:`save` sends rows to the store."""
        return self._operator.is_over

    @property
    def taken(self) -> int:
        """How many elements this run has dealt with, where ``metrics.events`` are read."""
        return self._taken

    @property
    def position(self) -> Position | None:
        """Where the source is, behind the last batch that was taken whole."""
        return self._position

    def save(self, batch: Batch) -> dict[str, Any]:
        """Add the operator's changes to a batch; return where the run is, as plain values.

        To be called at a boundary. Half way through a batch of the source the run is where that
        batch begins, and so many bundles further: it will be read, checked and cut again.
        """
        self._operator.save(batch)
        if self._deduplicator is not None:
            self._deduplicator.advance(self._operator.watermark)
            self._deduplicator.save(batch)
        return {
            "position": self._position,
            "bundles": self._bundles_done,
            "learned": self._learned if self._bundles_done else self._learn(),
            "estimator": None if self._estimator is None else self._estimator.remember(),
            "metrics": self.metrics.remember(),
            "ended": self._ended,
        }

    def resume(self, store: StateStore, known: Mapping[str, Any] | None) -> None:
        """Take up where another run was, if there was one, before this durable one begins.

        Args:
            store: What is read from, now and until the run ends.
            known: What the other run's :meth:`save` returned.
        """
        self._store = store
        if self._deduplicator is not None:
            self._deduplicator.restore(store)
        if known is None:
            return
        self._operator.restore(store)
        self._position = known["position"]
        self._bundles_done = known["bundles"]
        self._learned = known["learned"]
        self._ingest.resume(self._learned["ingest"])
        self._cutter.resume(self._learned["tick"])
        if self._estimator is not None and known["estimator"] is not None:
            self._estimator.resume(known["estimator"])
        self.metrics.resume(known["metrics"])
        self._ended = known["ended"]

    def _learn(self) -> dict[str, Any]:
        return {"ingest": self._ingest.remember(), "tick": self._cutter.tick}

    def _batches(self) -> Iterator[tuple[Records, Position | None]]:
        source, size, keys = self._plan.source, self._bundle_size, self._plan.keys
        if not self._durable:
            return ((records, None) for records in source.batches(size, keys))
        if not isinstance(source, ReplayableSource):
            raise InvalidArgument(
                f"{type(source).__name__} cannot be read again after a restart",
                where="run(state=)",
                mend="Read files or a log: read_parquet, read_csv, read_jsonl or read_log",
            )
        return source.batches_from(self._position, size, keys)

    def __iter__(self) -> Iterator[Outcome]:
        """Run, and yield what comes out as soon as it does."""
        began = time.perf_counter()
        if self._ended:
            return
        if self._operator.is_advancing:  # a run before this one was stopped in its midst
            yield from self._move(self._operator.watermark)
        for records, position in () if self.ending else self._batches():
            taken = self._taken + len(records) + len(records.unreadable)
            yield from self._read(records, began)
            self._taken = taken
            self._position = position
            self._bundles_done = 0
            if self._durable:
                yield Outcome(boundary=True)
        yield from self._move(END_OF_TIME)
        self._note(began)
        self._ended = True
        if self._deduplicator is not None:
            self._deduplicator.advance(END_OF_TIME)
        if self._observer is not None:
            self._observer(self.metrics)

    def _read(self, records: Records, began: float) -> Iterator[Outcome]:
        unread = records.unreadable
        if not records.length and not unread:
            yield from self._beat(began)
            if not records.columns:
                return
        resumed = self._bundles_done
        if not resumed:
            self._learned = self._learn() if self._durable else {}
            self.metrics.events += records.length + len(unread)
        if unread:
            if not resumed:
                yield self._dead_letters(unread)
            if not records.length:
                return
        for step in self._plan.steps:
            records = step.apply(records)
            if not records.length:  # of nothing, Python functions make no columns either
                return
        admitted = self._ingest.admit(records)
        if admitted.errors and not resumed:
            yield self._dead_letters(admitted.errors)
        bundle = self._encoded(admitted.bundle)
        for at, cut in enumerate(self._cutter.cuts(records, admitted.kept)):
            if at < resumed:
                continue
            yield from self._step(cut, _part(bundle, cut), records, admitted)
            self._taken += cut.stop - cut.start
            if self._durable:
                self._bundles_done = at + 1
            if self._estimator is not None:
                yield from self._move(self._estimator.current())
            self._note(began)
            if self._observer is not None:
                self._observer(self.metrics)
            if self._durable:
                yield Outcome(boundary=True)

    def _beat(self, began: float) -> Iterator[Outcome]:
        """Take a heartbeat: the clock and the watermark move, though nothing has arrived."""
        now = self._cutter.idle()
        if now is not None:
            yield from self._shown(self._operator.step(ClockAdvance(now)))
        if self._estimator is not None:
            yield from self._move(self._estimator.current())
        self._note(began)
        if self._observer is not None:
            self._observer(self.metrics)

    def _step(
        self, cut: Cut, bundle: Bundle, records: Records, admitted: Admitted
    ) -> Iterator[Outcome]:
        operator, estimator = self._operator, self._estimator
        yield from self._shown(operator.step(ClockAdvance(self._cutter.now(cut))))
        self.metrics.bundles += 1
        kept = self._first_ones(cut, bundle, admitted)
        given = bundle if kept is None else bundle.take(kept)
        if self._store is not None:
            operator.thaw(self._store, given)
        output = operator.step(given)
        late = None
        if output.late is not None:
            rows = output.late.element if kept is None else kept[output.late.element]
            late = _late(output.late, rows + cut.start, given, records, admitted)
            self.metrics.count_late(output.late)
        if output.panes is not None:
            self.metrics.count_panes(output.panes)
        if output.panes is not None or late is not None:
            yield Outcome(output.panes, late)
        if estimator is not None:
            estimator.observe(bundle.times)

    def _move(self, to: int) -> Iterator[Outcome]:
        """Move the watermark, in portions where much comes back from the store for it.

        Between these a run can be stopped: the next one goes on with the advance.
        """
        operator = self._operator
        if self._store is not None:
            while (bound := operator.thaw_due(self._store, to)) is not None:
                yield from self._shown(operator.step(WatermarkAdvance(to, due=bound)))
                yield Outcome(boundary=True)
        yield from self._shown(operator.step(WatermarkAdvance(to)))

    def _first_ones(self, cut: Cut, bundle: Bundle, admitted: Admitted) -> Int64Array | None:
        """Return which elements of a bundle are no duplicates; ``None`` if none is one."""
        if self._deduplicator is None:
            return None
        ids = tuple(column.slice(cut.start, cut.stop) for column in admitted.ids)
        self._deduplicator.advance(self._operator.watermark)
        first = self._deduplicator.step(ids, bundle.times)
        if first.all():
            return None
        kept = np.flatnonzero(first)
        self.metrics.duplicates += len(first) - len(kept)
        return kept

    def _shown(self, output: StepOutput) -> Iterator[Outcome]:
        if output.panes is not None:
            self.metrics.count_panes(output.panes)
            yield Outcome(panes=output.panes)

    def _dead_letters(self, errors: Sequence[ErrorRecord]) -> Outcome:
        if self._raise:
            first = errors[0]
            raise DataError(
                f"a record cannot be used ({first.reason}): {first.detail}; it is {first.record!r}",
                where=first.where,
                mend='Mend it, or use on_error="dead_letter" to set such records aside',
            )
        for error in errors:
            self.metrics.errors[error.reason] += 1
        return Outcome(errors=errors)

    def _encoded(self, bundle: Bundle) -> Bundle:
        """Return the bundle with its text keys as dictionaries, which all its parts then share."""
        if len(bundle) <= self._bundle_size:
            return bundle
        return replace(bundle, keys=tuple(_as_dictionary(key) for key in bundle.keys))

    def _note(self, began: float) -> None:
        metrics, operator = self.metrics, self._operator
        metrics.watermark = Instant(operator.watermark)
        metrics.clock = Instant(operator.clock)
        metrics.open_windows = operator.open_windows
        metrics.elapsed = time.perf_counter() - began


def strictest_needs(aggregates: Mapping[str, AggregateSpec]) -> dict[str, Needs]:
    """Return, for each column that aggregates read, the strictest of their needs."""
    needs: dict[str, Needs] = {}
    for spec in aggregates.values():
        if spec.column is not None:
            known = needs.get(spec.column, "nothing")
            needs[spec.column] = max(known, spec.needs, key=_STRICTEST.index)
    return needs


def _part(bundle: Bundle, cut: Cut) -> Bundle:
    start, stop = cut.start, cut.stop
    if start == 0 and stop == len(bundle):
        return bundle
    return bundle.slice(start, stop)


def _late(
    late: LateBatch, rows: Int64Array, bundle: Bundle, records: Records, admitted: Admitted
) -> LateElements:
    element = late.element
    if admitted.kept is not None:
        rows = admitted.kept[rows]
    keys = tuple(key.take(element) for key in bundle.keys)
    return LateElements(late, records, rows, bundle.times[element], keys)


def _as_dictionary(key: Column) -> Column:
    array = key.arrow
    if array is None or not (
        pa.types.is_string(array.type)
        or pa.types.is_large_string(array.type)
        or pa.types.is_binary(array.type)
    ):
        return key
    return Column.from_arrow(array.dictionary_encode())
