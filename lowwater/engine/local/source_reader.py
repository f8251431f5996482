"""Reads one source, validates its records and splits them into bundles.

Tracks the position from which a restart resumes.

The file is long because cutting, validating, counting and the position describe the same batch: a
restart in the middle of it has to continue exactly where each of them stopped.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, final

import numpy as np
import pyarrow as pa

from lowwater.engine.graph.clocks import ArrivalClock, ClockLike, Cut, Cutter, WallClock, arrivals
from lowwater.engine.graph.graph import Read
from lowwater.engine.graph.sources import (
    Position,
    Source,
    hears_commits,
    is_replayable,
    up_to_now,
)
from lowwater.engine.local.covered_records import timed_rejects, with_rejects
from lowwater.engine.local.estimator_input import ObservedBatch
from lowwater.engine.local.source_watermark import SourceWatermark
from lowwater.engine.local.stage_input import AdmittedBatch, StageAdmission, own_dead_letters
from lowwater.engine.records.admission import Admission, OnError
from lowwater.engine.records.async_calls import MapAsync
from lowwater.engine.records.batch import HIDDEN, Records
from lowwater.engine.records.columns import Column
from lowwater.engine.records.explode import Explode
from lowwater.engine.records.lookup import Lookup
from lowwater.engine.records.pane_table import MICROS_UTC
from lowwater.engine.records.panes import ErrorRecord
from lowwater.engine.records.problems import Tally
from lowwater.engine.records.stage_bundle import StageBundle
from lowwater.engine.records.stateless import (
    Filter,
    FlatMap,
    Map,
    MapBatches,
    Select,
    WithColumns,
    check_columns_read,
)
from lowwater.engine.records.stepping import AppliedSteps, Step, apply_steps
from lowwater.errors import DataError, InternalError, InvalidArgument, describe, placed
from lowwater.time import START_OF_TIME, Int64Array
from lowwater.watermark import columns_read

Input: TypeAlias = tuple[str, int]
"""An input of a stage: the name of the stage, and which of its inputs it is."""

ROW = HIDDEN + "row"
"""Row of a record in its source batch; needed only where several stages read one source."""


@final
@dataclass(frozen=True, slots=True)
class SourceCut:
    """The elements that arrive together from a source: one bundle for each stage that reads it.

    Args:
        clock: The clock to set before the elements; ``None``: read the run's clock.
        bundles: The bundles.
        times: Event times of the source's elements in this cut, int64.
        batch: The batch as the watermark estimator observes it.
        start: Index of the cut's first element among the batch's admitted elements.
    """

    clock: int | None
    bundles: tuple[StageBundle, ...]
    times: Int64Array
    batch: ObservedBatch
    start: int


@final
@dataclass(frozen=True, slots=True)
class _Cutting:
    """How batches become cuts, which depends on all that reads them.

    Args:
        entries: The inputs of stages that get a share of each cut.
        shared: The steps that come before the cuts.
        own: Validates batches before they are cut; ``None``: that is up to the only entry.
    """

    entries: tuple[StageAdmission, ...]
    shared: tuple[Step, ...]
    own: Admission | None

    @classmethod
    def of(cls, read: Read, entries: tuple[StageAdmission, ...], on_error: OnError) -> _Cutting:
        """Return how batches of a source are cut for some inputs of stages."""
        looks = read.watermark is not None and bool(columns_read(read.watermark))
        shared = _shared_steps(entries, looks=looks)
        is_own = len(entries) > 1 or _may_change(entries[0], len(shared), read.time)
        return cls(entries, shared, _own_admission(read, on_error) if is_own else None)


@final
@dataclass(frozen=True, slots=True)
class _BatchCut:
    """A batch that was cut.

    Args:
        cuts: The cuts of the records that the watermark covers, and which of the admitted records
            each has: from the first to the last, exclusive.
        times: The event times of what the watermark covers, int64.
        observed: What it covers.
    """

    cuts: Sequence[tuple[Cut, int, int]]
    times: Int64Array
    observed: ObservedBatch


@final
class _Letters:
    """The dead letters of one batch, from several places, each with its row in the batch."""

    def __init__(self) -> None:
        self.errors: list[ErrorRecord] = []
        self._rows: list[Int64Array] = []

    def add(self, rows: Int64Array, errors: Sequence[ErrorRecord]) -> None:
        """Add dead letters and their rows."""
        self.errors.extend(errors)
        self._rows.append(rows)

    def in_order(self) -> list[ErrorRecord]:
        """Return them in the order of the records; those of one record as they were added."""
        order = np.argsort(np.concatenate(self._rows), kind="stable")
        return [self.errors[at] for at in order.tolist()]


def _others(kept: Int64Array | None, length: int) -> Int64Array:
    """Return the rows that are not kept."""
    left = np.zeros(length, dtype=np.bool_) if kept is None else np.ones(length, dtype=np.bool_)
    if kept is not None:
        left[kept] = False
    return np.flatnonzero(left)


def _places(rows: Int64Array | None, at: Int64Array) -> Int64Array:
    """Return the rows of a batch that records come from; ``None``: row for row."""
    return at if rows is None else rows[at]


@final
class SourceReader:
    """Reads one source of a run and estimates its watermark.

    The watermark covers every record of the source, even those that a step drops later (S-T3).
    Batches are therefore validated and cut before the first step that may drop or add records, or
    that not all consumers share; each stage then gets its share of every cut. There are two
    exceptions, which cut after the steps: a single stage whose steps keep every record, and steps
    that compute the event time.

    Args:
        read: The source.
        entries: The inputs of the stages that read it.
        keys: Key columns to read as dictionaries where the source can.
        bundle_size: The largest number of elements in a bundle.
        clock: The clock for processing time.
        on_error: How invalid records are handled.
        durable: Whether the run can be stopped and resumed; the source must then be replayable.
        stages: The names of the stages, by their number; a durable run needs them.
        only_now: Whether to read what is there when the run begins, and no more.
        name: The name of the source, for messages that name no place; ``None`` if it is the only
            one.

    ``was_counted`` says that the next batch was counted by an earlier run, whose stages that read
    it are all gone. ``delivered`` counts the records of batches, and ``invalid`` those of them that
    became dead letters before all stages (S-B2).
    """

    def __init__(
        self,
        read: Read,
        entries: Sequence[StageAdmission],
        keys: tuple[str, ...],
        *,
        bundle_size: int,
        clock: ClockLike,
        on_error: OnError,
        durable: bool,
        stages: Sequence[str] = (),
        only_now: bool = False,
        name: str | None = None,
    ) -> None:
        self.read = read
        self._name = name
        self.source = _up_to_now(read) if only_now else read.source
        self.reached = False
        self.is_left_open = only_now and not read.ends
        self.keys = keys
        self._size = bundle_size
        self._durable = durable
        self._stages = stages
        self._on_error: OnError = on_error
        self._usual = self._cutting = _Cutting.of(read, tuple(entries), on_error)
        self.was_counted = False
        self._clock = clock
        self._cutter = Cutter(clock, bundle_size, read.times)
        self.mark = SourceWatermark(read)
        self._iterator: Iterator[tuple[Records, Position | None]] | None = None
        self.position: Position | None = None
        self._listener = self.source if hears_commits(self.source) else None
        self._told: Position | None = None
        self.bundles_done = 0
        self.delivered = 0
        self.invalid = 0
        self._is_resuming = self._is_in_batch = False
        self.tally = Tally()
        self.taken = 0
        self._share: float | None = None
        self._batch_share: float | None = None
        self.due_at = 0.0
        self._arrived_at: int | None = None
        self._rows: int | None = None
        self._learned = self._learn()

    @property
    def entries(self) -> Sequence[StageAdmission]:
        """What admits records to the stages that read the source."""
        return self._usual.entries

    @property
    def is_resuming(self) -> bool:
        """Whether it is in a batch that an earlier run had begun, or is yet to read that again."""
        return self._is_resuming or self._cutting is not self._usual

    @property
    def is_between_batches(self) -> bool:
        """Whether all records that were delivered have been cut."""
        return not self._is_in_batch

    @property
    def is_read(self) -> bool:
        """Whether this run reads no more of it: it has ended, or all that was there is read."""
        return self.reached or self.mark.ended

    def finish(self, clock: int) -> None:
        """Report that the iteration over the source is over, which ends it or leaves it open."""
        if self.is_left_open:
            self.reached = True
            self.mark.reach(clock)
        else:
            self.ended = True
            self.end()

    @property
    def ended(self) -> bool:
        """Whether the source has ended."""
        return self.mark.ended

    @ended.setter
    def ended(self, ended: bool) -> None:
        self.mark.ended = ended

    @property
    def share(self) -> float | None:
        """How much of what there is to read this run has read, 0 to 1; ``None``: not known."""
        return 1.0 if self.is_read else self._share

    @property
    def is_known_to_end(self) -> bool:
        """Whether the source is certain to end, and its share will be known once it is read."""
        source = self.source
        is_open = getattr(source, "follow", False) or getattr(source, "endless", False) is not False
        return self.is_left_open or not is_open

    def watermark(self) -> int:
        """Return the source's watermark, int microseconds."""
        return self.mark.current()

    def is_idle(self) -> bool:
        """Whether the source has been silent for so long that other sources stop waiting."""
        return self.mark.is_idle()

    def next(self) -> tuple[Records, Position | None] | None:
        """Return the next batch and the position after it; ``None`` at the end of the source."""
        if self._iterator is None:
            self._iterator = self._batches()
        batch = next(self._iterator, None)
        if batch is not None and self._durable and not isinstance(batch[1], dict):
            source = type(self.read.source).__name__
            raise InvalidArgument(
                f"{source}.batches_from gave {describe('position', batch[1])}, which is not a dict",
                where="run(state=)",
                hint='Yield (records, position) with a dict of plain values, such as {"row": 7}',
            )
        self._share = self._batch_share
        if batch is not None and batch[0].share is not None:
            self._batch_share = batch[0].share
        return batch

    def committed(self) -> None:
        """Notify a source that listens that the position in the state directory is durable."""
        if self.position is not None and self._listener is not None:
            self._listener.committed(self.position)
            self._told = self.position

    @property
    def has_moved(self) -> bool:
        """Whether a source that listens has another position than it was told of."""
        return self._listener is not None and self.position != self._told

    def close(self) -> None:
        """Release the source's files and connections."""
        close = getattr(self._iterator, "close", None)
        if close is not None:
            close()

    def tallies(self) -> tuple[list[Tally], list[tuple[int, Tally]]]:
        """Return what counts dead letters: in front of all stages, and by number of each stage.

        The first of the former counts all records, and as dead letters those that the source could
        not parse.
        """
        own, entries = self._usual.own, self._usual.entries
        shared = [self.tally] if own is None else [self.tally, own.tally]
        return shared, [(entry.stage, entry.admission.tally) for entry in entries]

    def end(self) -> None:
        """Raise ``InvalidArgument`` if no record of the source had a column that is read."""
        with placed(self._name):
            if self._usual.own is not None:
                self._usual.own.end()
            for entry in self._usual.entries:
                entry.end()

    def begin(self, records: Records, *, fresh: bool) -> None:
        """Start and count a batch: a ``fresh`` one, or the one in which a restart resumes.

        A fresh batch saves what admission knows *before* it. A resumed run reads this batch again
        and must validate and cut it exactly as before.

        Raises:
            DataError: Records of the batch in which a restart resumes were removed since, and it
                was one of several bundles.
        """
        if fresh:
            # An empty batch between restart and batch leaves the batch counted by the earlier run.
            self.was_counted = self.was_counted and not records.length + len(records.unreadable)
            # The cutting of a resumed batch is that of the earlier run, and holds for that batch
            # alone.
            if self._cutting is not self._usual:
                self._cut_as_usual()
            # Admission learns types from what it sees: a resumed run has to begin where this batch
            # began.
            if self._durable:
                self._learned = self._learn()
            self._rows = records.length
        elif self._rows not in (None, records.length) and not self._is_one_bundle(self._rows):
            raise DataError(
                f"a batch that the earlier run had read in part, up to bundle {self.bundles_done}, "
                f"had {self._rows} records and has {records.length} now",
                where=records.origin,
                hint="Put the records back from a copy, or begin without the state of that run; "
                "compact a log only when its runs have read it",
            )
        self._is_resuming = False
        if not self.read.arrives:  # else as bundles are cut, each of which arrives by itself
            self.delivered += records.length
        self.tally.count(records.length + len(records.unreadable), records.unreadable)

    def cuts(self, records: Records) -> Iterator[Sequence[ErrorRecord] | SourceCut]:
        """Validate a batch and yield its cuts, and its dead letters as they are found.

        Args:
            records: The batch, not empty.
        """
        self._is_in_batch = True
        before, after = self._share, self._batch_share
        with placed(self._name):
            for cut in self._cuts(records):
                if after is not None and isinstance(cut, SourceCut):
                    begun = min(cut.start + len(cut.times), records.length) / records.length
                    self._share = (before or 0.0) + (after - (before or 0.0)) * begun
                yield cut
        self._is_in_batch = False

    def _cuts(self, records: Records) -> Iterator[Sequence[ErrorRecord] | SourceCut]:
        if not self.read.arrives:
            yield from self._cuts_of(records)
        elif records.length:
            yield from self._cuts_by_arrival(records)
        else:
            yield from self._cuts_of(self._arrived(records, START_OF_TIME))

    def _cuts_by_arrival(self, records: Records) -> Iterator[Sequence[ErrorRecord] | SourceCut]:
        """Cut a batch first, so that the event time of a bundle is the clock before it."""
        name = self.read.time
        # Of elements, only their own fields are listed; a reader of text may add one of nulls.
        given = records.columns[name] if name in set(records.columns) else None
        if given is not None and (given.valid is None or given.valid.any()):
            raise DataError(
                f"the records have a column {name!r} already",
                where="time=",
                hint='Call that of the times of arrival otherwise: lw.arrival("came")',
            )
        for part in list(self._cutter.cuts(records, None)):
            now = self._clock_now() if part.clock is None else part.clock
            now = max(now, self.mark.current())  # a clock that is set back changes nothing
            own = self._arrived(records.slice(part.start, part.stop), now)
            self.delivered += own.length
            for cut in self._cuts_of(own):
                yield replace(cut, clock=now) if isinstance(cut, SourceCut) else cut

    def _arrived(self, records: Records, at: int) -> Records:
        """Return records with their time of arrival."""
        column = Column(np.full(records.length, at, dtype=np.int64), None, MICROS_UTC)
        return records.replaced({**records.columns, self.read.time: column})

    def _clock_now(self) -> int:
        now = self.now()
        if now is None:
            raise InternalError("a cut by ticks has a clock")
        return now

    def _cuts_of(self, records: Records) -> Iterator[Sequence[ErrorRecord] | SourceCut]:
        entries, shared, own = self._cutting.entries, self._cutting.shared, self._cutting.own
        if not records.length:
            for entry in entries:
                check_columns_read(entry.steps, records)
        if own is None:
            yield from self._cuts_for_one_stage(entries[0], records)
            return
        arrived = self._arrivals(records)
        stepped = apply_steps(shared, records, entries[0].apply)
        left = stepped.records
        own.require(stepped)
        are_gone = bool(stepped.rejects) and not left.length
        # The event time does not exist before the later steps, so nothing can be cut by it yet.
        if len(entries) == 1 and not are_gone and self.read.time not in set(left.columns):
            yield from self._cuts_for_one_stage(entries[0], records)  # later steps make it
            return
        self.invalid += len(stepped.rejected)
        for entry in entries:
            entry.counts.read += records.length
            entry.counts.apply(0, stepped.counts)
        yield from self._cuts_for_several_stages(own, stepped, arrived)

    def observe(self, cut: SourceCut, clock: int) -> None:
        """Pass a cut to the watermark estimator."""
        self.mark.observe(cut.batch.bundle(cut.times, cut.start, clock))

    def now(self) -> int | None:
        """Return the clock; ``None`` if it follows arrivals, so that each cut has its own."""
        return None if isinstance(self._clock, ArrivalClock) else self._clock.now()

    def remember(self) -> dict[str, Any]:
        """Return the state to store, as plain values; call it between bundles only.

        In the middle of a batch this is the position of the batch and the number of bundles done:
        on restart the batch is read, validated and cut again, and that many bundles are skipped.
        """
        return {
            "position": self.position,
            "bundles": self.bundles_done,
            "rows": self._rows if self.bundles_done else None,
            "counted": self.was_counted,
            "learned": self._learned if self.bundles_done else self._learn(),
            **self.mark.remember(),
        }

    def resume(self, known: Mapping[str, Any], inputs: Mapping[Input, Input]) -> None:
        """Resume from the state that an earlier run stored.

        A batch that the earlier run had begun is cut as it had been, for the stages that read it
        then: the bundles that were done are a number of such cuts. What has come to read the source
        since then gets the batches after it. If none of those stages is left, that batch is begun
        again.

        Args:
            known: What :meth:`remember` returned.
            inputs: The inputs of stages that are still there, by what they were.
        """
        self.position = known["position"]
        self.bundles_done = known["bundles"]
        rows = known.get("rows")  # earlier versions did not store it
        self._rows = rows if isinstance(rows, int) else None
        ingest = known["learned"]["ingest"]
        kept = [
            [*inputs[stage, nth], learned]
            for stage, nth, learned in ingest["entries"]
            if (stage, nth) in inputs
        ]
        self.was_counted = known["counted"]
        if not kept and self.bundles_done:
            self.bundles_done = 0
            self.was_counted = True
        self._learned = {**known["learned"], "ingest": {**ingest, "entries": kept}}
        self.tally.resume(self._learned.get("tally"))
        entries = {self._input_of(entry): entry for entry in self._usual.entries}
        resumed = [(entries[stage, nth], learned) for stage, nth, learned in kept]
        for entry, learned in resumed:
            entry.resume(learned)
        if self._usual.own is not None and ingest["own"] is not None:
            self._usual.own.resume(ingest["own"])
        self.delivered = self._learned.get("delivered", 0)
        if self.bundles_done:
            self._is_resuming = True
            self._cutting = self._former([entry for entry, _ in resumed], ingest)
        self._cutter.tick = self._learned["tick"]
        self._arrived_at = self._learned["came"]
        self.mark.resume(known, was_away=isinstance(self._clock, WallClock))

    def _former(self, entries: Sequence[StageAdmission], ingest: Mapping[str, Any]) -> _Cutting:
        """Return how an earlier run has cut a batch, for the inputs of it that are left."""
        usual, shared = self._usual, entries[0].steps[: ingest["shared"]]
        is_own = ingest["own"] is not None
        if (tuple(entries), len(shared), is_own) == (
            usual.entries, len(usual.shared), usual.own is not None
        ):  # fmt: skip
            return usual
        own = usual.own if is_own else None
        if is_own and own is None:
            own = _own_admission(self.read, self._on_error)
            own.resume(ingest["own"])
        if not is_own:  # then the only input was the first to look at the times
            limit = self.read.max_ahead_us
            entries = [
                replace(entry, admission=entry.admission.with_max_ahead(limit)) for entry in entries
            ]
        return _Cutting(tuple(entries), shared, own)

    def _cut_as_usual(self) -> None:
        """Cut batches for all that reads the source from now on."""
        usual = {self._input_of(entry): entry for entry in self._usual.entries}
        for entry in self._cutting.entries:
            usual.pop(self._input_of(entry)).admission.resume(entry.admission.remember())
        for entry in usual.values():  # it is new, and gets nothing of what came before
            entry.counts.since = self.delivered
        self._cutting = self._usual

    def _input_of(self, entry: StageAdmission) -> Input:
        return self._stages[entry.stage], entry.nth

    def _learn(self) -> dict[str, Any]:
        if not self._durable:
            return {}
        own, shared = self._cutting.own, self._cutting.shared
        return {
            "ingest": {
                "own": None if own is None else own.remember(),
                "shared": len(shared),
                "entries": [
                    [*self._input_of(entry), entry.remember()] for entry in self._cutting.entries
                ],
            },
            "tally": self.tally.remember(),
            "delivered": self.delivered,
            "tick": self._cutter.tick,
            "came": self._arrived_at,
        }

    def _is_one_bundle(self, rows: int | None) -> bool:
        """Return whether a batch of so many records is certain to be at most one bundle.

        Then a restart that skips one bundle skips what is left of that batch, however much it is.
        """
        steps = (step for entry in self._cutting.entries for step in entry.steps)
        return (
            rows is not None
            and rows <= self._size
            and not isinstance(self._clock, ArrivalClock)
            and not any(isinstance(step, (FlatMap, Explode, MapBatches)) for step in steps)
        )

    def _arrivals(self, records: Records) -> int | Int64Array | None:
        """Return the clock at arrival if event times have a ``max_ahead``; else ``None``.

        For a batch in which a restart resumes this is the stored reading, not a new one, so that
        the same records are rejected and the batch is cut as before.
        """
        if self.read.max_ahead_us is None:
            return None
        clock = self._clock
        if isinstance(clock, ArrivalClock):
            return arrivals(records, clock, self.read.times)
        if not self.bundles_done or self._arrived_at is None:
            self._arrived_at = clock.now()
            if self._learned:
                self._learned["came"] = self._arrived_at
        return self._arrived_at

    def _batches(self) -> Iterator[tuple[Records, Position | None]]:
        source = self.source
        if not self._durable:
            return self._batches_without_positions()
        if not is_replayable(source):
            raise InvalidArgument(
                f"{type(source).__name__} cannot be read again after a restart",
                where="run(state=)",
                hint="Read files or a log: read_parquet, read_csv, read_jsonl or read_log",
            )
        return source.batches_from(self.position, self._size, self.keys)

    def _batches_without_positions(self) -> Iterator[tuple[Records, None]]:
        batches = self.source.batches(self._size, self.keys)
        try:
            for records in batches:
                yield records, None
        finally:
            close = getattr(batches, "close", None)  # generators have close(), iterators may not
            if close is not None:
                close()

    def _cuts_for_one_stage(
        self, entry: StageAdmission, records: Records
    ) -> Iterator[Sequence[ErrorRecord] | SourceCut]:
        arrived = self._arrivals(records)
        entry.counts.read += records.length
        admitted_batch = entry.take(records, arrived)
        if admitted_batch is None:
            return
        admitted, stepped = admitted_batch.admitted, admitted_batch.stepped
        if admitted.errors:
            yield admitted.errors
        bundle = admitted.bundle
        # Bundles that share one dictionary look up each distinct key once, not once a bundle.
        if len(bundle) > self._size:
            bundle = replace(bundle, keys=tuple(_as_dictionary(key) for key in bundle.keys))
        batch = self._batch_cut(
            stepped, entry.steps, admitted_batch.records, admitted.kept, bundle.times, arrived
        )
        for cut, start, stop in batch.cuts:
            bundled = bundle.slice(start, stop)
            bundles = (admitted_batch.stage_bundle(bundled, start),) if len(bundled) else ()
            times = batch.times[cut.start : cut.stop]
            yield SourceCut(cut.clock, bundles, times, batch.observed, cut.start)

    def _cuts_for_several_stages(
        self, own: Admission, stepped: AppliedSteps, arrived: int | Int64Array | None
    ) -> Iterator[Sequence[ErrorRecord] | SourceCut]:
        letters = _Letters()
        if stepped.rejected:
            own.reject(stepped.errors)
            letters.add(np.array([row for row, _ in stepped.rejected]), stepped.errors)
        left, rows = stepped.records, stepped.rows()
        kept: Int64Array | None = None
        times = np.zeros(0, dtype=np.int64)
        if left.length or not self._cutting.shared:
            came = arrived if rows is None or not isinstance(arrived, np.ndarray) else arrived[rows]
            checked = own.admit(left, clock=came)
            kept, times = checked.kept, checked.bundle.times
            letters.add(_places(rows, _others(kept, left.length)), checked.errors)
            self.invalid += len(checked.errors)
            for entry in self._cutting.entries:
                entry.counts.set_aside(len(self._cutting.shared), len(checked.errors))
        batch = self._batch_cut(stepped, self._cutting.shared, left, kept, times, arrived)
        sound = left if kept is None else left.take(kept)
        cuts = [Cut(start, stop, cut.clock) for cut, start, stop in batch.cuts]
        # All validation comes before the first yield: the source is judged there.
        by_stage = []
        entries = self._cutting.entries
        for number, entry in enumerate(entries):
            bundles, at, by, errors = self._bundles_by_cut(entry, sound, cuts)
            by_stage.append(bundles)
            if number and errors:
                by = np.where(by < 0, by, by + len(self._cutting.shared))
                own_ones = own_dead_letters(entry, entries[:number], by)
                at, errors = at[own_ones], [errors[place] for place in own_ones.tolist()]
            letters.add(_places(rows, at if kept is None else kept[at]), errors)
        if letters.errors:
            yield letters.in_order()
        for number, (cut, _, _) in enumerate(batch.cuts):
            mine = tuple(
                stage_bundle for by_cut in by_stage if (stage_bundle := by_cut[number]) is not None
            )
            cut_times = batch.times[cut.start : cut.stop]
            yield SourceCut(cut.clock, mine, cut_times, batch.observed, cut.start)

    def _batch_cut(
        self,
        stepped: AppliedSteps,
        steps: Sequence[Step],
        records: Records,
        kept: Int64Array | None,
        times: Int64Array,
        arrived: int | Int64Array | None,
    ) -> _BatchCut:
        """Cut the records of a batch that the watermark covers.

        Args:
            stepped: What became of the batch in some steps.
            steps: These steps.
            records: The records after them.
            kept: The admitted ones; ``None`` for all.
            times: The event times of these, int64.
            arrived: The clock at arrival.
        """
        time, format = self.read.time, self.read.times
        rejects = None
        if stepped.rejects:
            reading = _own_admission(self.read, "dead_letter")
            rejects = timed_rejects(stepped, steps, time, reading, arrived)
        if rejects is None:
            # An estimator that names a column must not look for it here.
            if not records.length:  # of which the columns may be any
                return _BatchCut((), times, ObservedBatch(records, kept, format))
            cuts = [(cut, cut.start, cut.stop) for cut in self._cutter.cuts(records, kept)]
            return _BatchCut(cuts, times, ObservedBatch(records, kept, format))
        covered = with_rejects(records, kept, stepped.rows(), times, rejects)
        before = covered.admitted
        cuts = [
            (cut, int(before[cut.start]), int(before[cut.stop]))
            for cut in self._cutter.cuts(covered.records, None)
        ]
        return _BatchCut(cuts, covered.times, ObservedBatch(covered.records, None, format))

    def _bundles_by_cut(
        self, entry: StageAdmission, sound: Records, cuts: Sequence[Cut]
    ) -> tuple[list[StageBundle | None], Int64Array, Int64Array, Sequence[ErrorRecord]]:
        """Return the stage's bundle for each cut of a batch (``None``: empty), and dead letters.

        These come with their rows among the records, and with the step that rejected each.
        """
        first = len(self._cutting.shared)
        entry = replace(entry, steps=entry.steps[first:], first=first)
        errors: list[ErrorRecord] = []
        none = np.zeros(0, dtype=np.int64)
        at, by = [none], [none]
        bundles: list[StageBundle | None] = []
        if len(cuts) == 1 or any(isinstance(step, MapBatches) for step in entry.steps):
            # The function of map_batches may reorder rows, so its output cannot be split by cut
            # afterwards: run the steps on each cut separately.
            for cut in cuts:
                admitted_batch = entry.take(sound.slice(cut.start, cut.stop))
                bundles.append(None)
                if admitted_batch is not None:
                    errors.extend(admitted_batch.admitted.errors)
                    at.append(admitted_batch.error_rows + cut.start)
                    by.append(admitted_batch.error_steps)
                    bundle = admitted_batch.admitted.bundle
                    bundles[-1] = admitted_batch.stage_bundle(bundle, 0) if len(bundle) else None
            return bundles, np.concatenate(at), np.concatenate(by), errors
        placed = dict(sound.columns.items())
        placed[ROW] = Column(np.arange(sound.length, dtype=np.int64))
        admitted_batch = entry.take(sound.replaced(placed))
        if admitted_batch is None or not cuts:
            return [None] * len(cuts), none, none, errors
        rows = _rows(admitted_batch)
        for cut in cuts:
            start, stop = np.searchsorted(rows, (cut.start, cut.stop)).tolist()
            bundle = admitted_batch.admitted.bundle.slice(start, stop)
            bundles.append(admitted_batch.stage_bundle(bundle, start) if start < stop else None)
        errors = admitted_batch.admitted.errors
        return bundles, admitted_batch.error_rows, admitted_batch.error_steps, errors

    def rest(self, seconds: float, clock: int) -> None:
        """Record that a poll returned nothing, and when to poll the source again.

        Other sources are read meanwhile.
        """
        self.mark.rest(clock)
        self.due_at = time.monotonic() + seconds if seconds else 0.0


def _up_to_now(read: Read) -> Source:
    source = up_to_now(read.source)
    if source is None:
        raise InvalidArgument(
            f"{type(read.source).__name__} never ends, and does not say where what is there ends",
            where='run(until="available")',
            hint="Give it a method up_to_now that returns a source which ends there; or let it end",
        )
    return source


def _own_admission(read: Read, on_error: OnError) -> Admission:
    """Return what validates batches before several stages get their share."""
    return Admission(
        time=read.time, keys=(), needs={}, on_error=on_error, times=read.times,
        max_ahead_us=read.max_ahead_us,
    )  # fmt: skip


def _shared_steps(entries: Sequence[StageAdmission], *, looks: bool) -> tuple[Step, ...]:
    """Return the leading steps that all stages share and that keep every record.

    If the watermark estimator ``looks`` at columns, these steps keep every column too.
    """
    ending = (*_CHANGING, Map, MapAsync, Select) if looks else _CHANGING
    shared: list[Step] = []
    for steps in zip(*(entry.steps for entry in entries), strict=False):
        if any(step is not steps[0] for step in steps) or isinstance(steps[0], ending):
            break
        shared.append(steps[0])
    return tuple(shared)


def _may_change(entry: StageAdmission, shared: int, time: str) -> bool:
    """Whether steps after the shared ones may change the set of records or their columns.

    ``False`` if they compute the event time, because there is no event time before them.
    """
    steps = entry.steps[shared:]
    makes = (step for step in steps if isinstance(step, (WithColumns, Select)))
    return bool(steps) and not any(time in step.expressions.named for step in makes)


_CHANGING = (Filter, FlatMap, Explode, Lookup, MapBatches)
"""Steps that may output fewer or more records than they take."""


def _rows(admitted_batch: AdmittedBatch) -> Int64Array:
    """Return the row of the source batch that each admitted element came from, ascending."""
    rows = admitted_batch.records.columns[ROW].data
    if admitted_batch.admitted.kept is not None:
        rows = rows[admitted_batch.admitted.kept]
    return rows


def _as_dictionary(key: Column) -> Column:
    """Dictionary-encode a text key once, so that all bundles of the batch share the dictionary."""
    array = key.arrow
    if array is None or not (
        pa.types.is_string(array.type)
        or pa.types.is_large_string(array.type)
        or pa.types.is_binary(array.type)
    ):
        return key
    return Column.from_arrow(array.dictionary_encode())
