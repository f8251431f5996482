"""One source of a run: read batch by batch, checked, cut into bundles, and where it has come to."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import pyarrow as pa

from lowwater.engine.graph.clocks import ArrivalClock, ClockLike, Cut, Cutter, WallClock, arrivals
from lowwater.engine.graph.graph import MAIN, Read
from lowwater.engine.graph.sources import Position, ReplayableSource
from lowwater.engine.local.estimator_input import ObservedBatch
from lowwater.engine.records.admission import Admission, Admitted, OnError
from lowwater.engine.records.batch import HIDDEN, Records
from lowwater.engine.records.columns import Column
from lowwater.engine.records.pane_table import SIGN
from lowwater.engine.records.panes import ErrorRecord
from lowwater.engine.records.stateless import (
    Filter,
    FlatMap,
    Map,
    MapBatches,
    Select,
    Step,
    WithColumns,
)
from lowwater.engine.records.steps import Bundle
from lowwater.errors import InvalidArgument
from lowwater.time import END_OF_TIME, START_OF_TIME, Int64Array, format_instant
from lowwater.watermark import columns_read, excuse_silence, holder_of

ROW = HIDDEN + "row"
"""Where a record was in its batch, where a source is read by several stages."""


@final
@dataclass(frozen=True, slots=True)
class StageAdmission:
    """The way from an origin into a stage: stateless steps, and the check of what comes out.

    Args:
        stage: Number of the stage.
        steps: The steps.
        ingest: The check.
        output: Which output of the origin is meant.
        signed: Whether among the records are some that take back others.
    """

    stage: int
    steps: tuple[Step, ...]
    admission: Admission
    output: str = MAIN
    signed: bool = False

    def take(self, records: Records, clock: int | Int64Array | None = None) -> AdmittedBatch | None:
        """Return what becomes of a batch of records; ``None`` if nothing does.

        Args:
            records: The batch.
            clock: The clock when it came, where event times are held against that.
        """
        for step in self.steps:
            records = step.apply(records)
            if not records.length:  # of nothing, Python functions make no columns either
                return None
        admitted = self.admission.admit(records, clock=clock)
        return AdmittedBatch(self, records, _signed(admitted, records) if self.signed else admitted)


@final
@dataclass(frozen=True, slots=True)
class AdmittedBatch:
    """A batch that has come through a gate."""

    entry: StageAdmission
    records: Records
    admitted: Admitted

    def bundles(self, size: int) -> Iterator[StageBundle]:
        """Yield it in bundles of at most ``size`` elements."""
        bundle = self.admitted.bundle
        for start in range(0, len(bundle), size):
            yield self.stage_bundle(bundle_slice(bundle, start, start + size), start)

    def stage_bundle(self, bundle: Bundle, start: int) -> StageBundle:
        """Return some of its elements, in a row, as a bundle for the stage."""
        return StageBundle(self.entry.stage, bundle, start, self.records, self.admitted)


@final
@dataclass(frozen=True, slots=True)
class StageBundle:
    """A bundle for a stage.

    Args:
        stage: Number of the stage.
        bundle: The elements.
        start: Which of the admitted elements of the batch is the first.
        records: The batch they are of.
        admitted: What became of the batch.
    """

    stage: int
    bundle: Bundle
    start: int
    records: Records
    admitted: Admitted


@final
@dataclass(frozen=True, slots=True)
class SourceCut:
    """What arrives together from a source: a bundle for each stage that reads it.

    Args:
        clock: The clock before it; ``None``: ask the clock.
        parts: The bundles.
        times: The event times of the elements of the source that they are, int64.
        batch: The batch they are of, as the watermark's estimator sees it.
        start: Which of its admitted elements is the first.
    """

    clock: int | None
    bundles: tuple[StageBundle, ...]
    times: Int64Array
    batch: ObservedBatch
    start: int


@final
class SourceReader:
    """One source of a run.

    The watermark is that of the source's records, whatever becomes of them (S-T3): batches are
    checked and cut before the first step that may drop or add some, or that not all readers share,
    and each stage gets what becomes of its part. Where one stage reads the source and its steps
    keep every record, that is behind them; so it is where only the steps make the event time.

    Args:
        read: The source.
        gates: The ways into the stages that read it.
        keys: Key columns that are best read as dictionaries.
        bundle_size: How many elements a bundle has at most.
        clock: Where processing time comes from.
        on_error: What becomes of unusable records.
        durable: Whether the run may be stopped and resumed: the source must be replayable.
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
    ) -> None:
        self.read = read
        self._entries = tuple(entries)
        self.keys = keys
        self._size = bundle_size
        self._durable = durable
        self._own: Admission | None = None
        looks = read.watermark is not None and bool(columns_read(read.watermark))
        self._shared = _shared_steps(self._entries, looks=looks)
        if len(self._entries) > 1 or _may_change(self._entries[0], len(self._shared), read.time):
            self._own = Admission(
                time=read.time, keys=(), needs={}, on_error=on_error, timezone=read.timezone,
                max_ahead_us=read.max_ahead_us,
            )  # fmt: skip
        self._clock = clock
        self._cutter = Cutter(clock, bundle_size, read.timezone)
        self._estimator = None if read.watermark is None else read.watermark.start()
        self._iterator: Iterator[tuple[Records, Position | None]] | None = None
        self.position: Position | None = None
        self.bundles_done = 0
        self.taken = 0
        self.ended = False
        self.due_at = 0.0
        self._heard_at: int | None = None
        self._silent_at: int | None = None
        self._asked_at = START_OF_TIME
        self._came_at: int | None = None
        self._away = False
        self._learned = self._learn()

    def watermark(self) -> int:
        """Return how far event time is known to be complete, by what this source has given.

        Its clock is that of its last answer: while others are read, nobody listens to it.
        """
        if self.ended:
            return END_OF_TIME
        if self._estimator is None:
            return START_OF_TIME
        if self._away and self._asked_at > START_OF_TIME:
            self._away = False
            excuse_silence(self._estimator, self._asked_at)
        return self._estimator.current(self._asked_at)

    def is_idle(self) -> bool:
        """Whether the others wait no more for this source, which has given nothing for so long.

        That it has nothing is known when it is asked, and not while only others are.
        """
        after = self.read.idle_after_us
        if after is None or self.ended or self._heard_at is None or self._silent_at is None:
            return False
        return self._silent_at - self._heard_at >= after

    @property
    def heard_at(self) -> int | None:
        """The clock when it last gave an element; ``None`` before it is listened to."""
        return self._heard_at

    def holder(self, clock: int) -> str:
        """Return in words what holds this source's watermark."""
        if self._estimator is None:
            return "it has no watermark until it ends"
        since = self._heard_at
        silent = ""
        if since is not None and since < clock:
            silent = f"silent since {format_instant(since)}"
            if self.is_idle():
                silent = f"idle since {format_instant(since)}, and so are the others"
        return holder_of(self._estimator) or silent or "its latest elements"

    def next(self) -> tuple[Records, Position | None] | None:
        """Return the next batch and the position behind it; ``None`` at the end."""
        if self._iterator is None:
            self._iterator = self._batches()
        return next(self._iterator, None)

    def close(self) -> None:
        """Have the source let go of files and connections; it is not read any more."""
        close = getattr(self._iterator, "close", None)
        if close is not None:
            close()

    def begin(self, *, fresh: bool) -> None:
        """Note that a batch is to be taken: a ``fresh`` one, or one that a restart came in."""
        if fresh:
            self._learned = self._learn() if self._durable else {}

    def cuts(self, records: Records) -> Iterator[Sequence[ErrorRecord] | SourceCut]:
        """Yield the bundles of a batch, and dead letters.

        Args:
            records: The batch, not empty.
        """
        if self._own is None:
            yield from self._of_one(self._entries[0], records)
            return
        came = self._came(records)
        before = records
        for step in self._shared:
            before = step.apply(before)
        if len(self._entries) == 1 and self.read.time not in set(before.columns):
            yield from self._of_one(self._entries[0], records)  # the steps make it
        else:
            yield from self._of_several(self._own, before, came)

    def observe(self, cut: SourceCut, clock: int) -> None:
        """Have the watermark's estimator see a bundle."""
        self._heard_at = self._asked_at = clock
        self._silent_at = None
        if self._estimator is not None:
            self._estimator.observe(cut.batch.bundle(cut.times, cut.start, clock))

    def idle(self) -> int | None:
        """Return the clock while nothing arrives; ``None`` if it follows arrivals."""
        return self._cutter.idle()

    def now(self, cut: SourceCut) -> int:
        """Return the clock before a bundle."""
        return self._cutter.now(Cut(0, 0, cut.clock))

    def remember(self) -> dict[str, Any]:
        """Return where it is, as plain values; to be called between bundles.

        Half way through a batch of the source it is where that batch begins, and so many bundles
        further: the batch will be read, checked and cut again.
        """
        return {
            "position": self.position,
            "bundles": self.bundles_done,
            "learned": self._learned if self.bundles_done else self._learn(),
            "estimator": None if self._estimator is None else self._estimator.remember(),
            "ended": self.ended,
            "heard": [self._heard_at, self._silent_at],
        }

    def resume(self, known: Mapping[str, Any]) -> None:
        """Take up where another run was."""
        self.position = known["position"]
        self.bundles_done = known["bundles"]
        self._learned = known["learned"]
        for admission, learned in zip(self._admissions(), self._learned["ingest"], strict=True):
            admission.resume(learned)
        self._cutter.resume(self._learned["tick"])
        self._came_at = self._learned["came"]
        if self._estimator is not None and known["estimator"] is not None:
            self._estimator.resume(known["estimator"])
            self._away = isinstance(self._clock, WallClock)
        if not isinstance(self._clock, WallClock):  # which went on while nobody listened
            self._heard_at, self._silent_at = known.get("heard", (None, None))
        self.ended = known["ended"]

    def _learn(self) -> dict[str, Any]:
        learned = [admission.remember() for admission in self._admissions()]
        return {"ingest": learned, "tick": self._cutter.tick, "came": self._came_at}

    def _came(self, records: Records) -> int | Int64Array | None:
        """Return when elements came, if event times are held against that.

        Of a batch that a restart came in it is what it was: it must be cut as it was.
        """
        if self.read.max_ahead_us is None:
            return None
        clock = self._clock
        if isinstance(clock, ArrivalClock):
            return arrivals(records, clock, self.read.timezone)
        if not self.bundles_done or self._came_at is None:
            self._came_at = clock.now()
            if self._learned:
                self._learned["came"] = self._came_at
        return self._came_at

    def _admissions(self) -> list[Admission]:
        own = [] if self._own is None else [self._own]
        return [*own, *(entry.admission for entry in self._entries)]

    def _batches(self) -> Iterator[tuple[Records, Position | None]]:
        source = self.read.source
        if not self._durable:
            return self._unnumbered()
        if not isinstance(source, ReplayableSource):
            raise InvalidArgument(
                f"{type(source).__name__} cannot be read again after a restart",
                where="run(state=)",
                hint="Read files or a log: read_parquet, read_csv, read_jsonl or read_log",
            )
        return source.batches_from(self.position, self._size, self.keys)

    def _unnumbered(self) -> Iterator[tuple[Records, None]]:
        batches = self.read.source.batches(self._size, self.keys)
        try:
            for records in batches:
                yield records, None
        finally:
            close = getattr(batches, "close", None)  # generators have one, other iterators may
            if close is not None:
                close()

    def _of_one(
        self, entry: StageAdmission, records: Records
    ) -> Iterator[Sequence[ErrorRecord] | SourceCut]:
        admitted_batch = entry.take(records, self._came(records))
        if admitted_batch is None:
            return
        admitted = admitted_batch.admitted
        if admitted.errors:
            yield admitted.errors
        bundle = admitted.bundle
        if len(bundle) > self._size:
            bundle = replace(bundle, keys=tuple(_as_dictionary(key) for key in bundle.keys))
        observed = ObservedBatch(admitted_batch.records, admitted.kept, self.read.timezone)
        for cut in self._cutter.cuts(admitted_batch.records, admitted.kept):
            bundled = bundle_slice(bundle, cut.start, cut.stop)
            stage_bundle = admitted_batch.stage_bundle(bundled, cut.start)
            yield SourceCut(cut.clock, (stage_bundle,), bundled.times, observed, cut.start)

    def _of_several(
        self, own: Admission, records: Records, came: int | Int64Array | None
    ) -> Iterator[Sequence[ErrorRecord] | SourceCut]:
        checked = own.admit(records, clock=came)
        if checked.errors:
            yield checked.errors
        sound = records if checked.kept is None else records.take(checked.kept)
        cuts = list(self._cutter.cuts(sound, None))
        ways = [self._way(entry, sound, cuts) for entry in self._entries]
        for _, errors in ways:
            if errors:
                yield errors
        observed = ObservedBatch(sound, None, self.read.timezone)
        for at, cut in enumerate(cuts):
            bundles = tuple(
                stage_bundle for by_cut, _ in ways if (stage_bundle := by_cut[at]) is not None
            )
            times = checked.bundle.times[cut.start : cut.stop]
            yield SourceCut(cut.clock, bundles, times, observed, cut.start)

    def _way(
        self, entry: StageAdmission, sound: Records, cuts: Sequence[Cut]
    ) -> tuple[list[StageBundle | None], Sequence[ErrorRecord]]:
        """Return what becomes of each cut of a batch on the way to a stage, and dead letters."""
        entry = replace(entry, steps=entry.steps[len(self._shared) :])
        errors: list[ErrorRecord] = []
        bundles: list[StageBundle | None] = []
        if len(cuts) == 1 or any(isinstance(step, MapBatches) for step in entry.steps):
            # Which rows those of map_batches' function come from, nobody knows.
            for cut in cuts:
                admitted_batch = entry.take(sound.slice(cut.start, cut.stop))
                bundles.append(None)
                if admitted_batch is not None:
                    errors.extend(admitted_batch.admitted.errors)
                    bundle = admitted_batch.admitted.bundle
                    bundles[-1] = admitted_batch.stage_bundle(bundle, 0) if len(bundle) else None
            return bundles, errors
        placed = dict(sound.columns.items())
        placed[ROW] = Column(np.arange(sound.length, dtype=np.int64))
        admitted_batch = entry.take(Records(placed, sound.length, sound.origin, sound.first_row))
        if admitted_batch is None or not cuts:
            return [None] * len(cuts), errors
        rows = _rows(admitted_batch)
        for cut in cuts:
            start, stop = np.searchsorted(rows, (cut.start, cut.stop)).tolist()
            bundle = bundle_slice(admitted_batch.admitted.bundle, start, stop)
            bundles.append(admitted_batch.stage_bundle(bundle, start) if start < stop else None)
        return bundles, admitted_batch.admitted.errors

    def rest(self, seconds: float, clock: int) -> None:
        """Note that there was nothing, and when the source will look again.

        Others are read meanwhile. A run that begins, or goes on, listens from now on.
        """
        self._asked_at = max(self._asked_at, clock)
        if clock > START_OF_TIME:
            self._silent_at = clock
            if self._heard_at is None:
                self._heard_at = clock
        self.due_at = time.monotonic() + seconds if seconds else 0.0


def _shared_steps(entries: Sequence[StageAdmission], *, looks: bool) -> tuple[Step, ...]:
    """Return the first steps of all ways from a source, as long as they keep every record.

    And every column, where the watermark's estimator ``looks`` at columns.
    """
    ending = (*_CHANGING, Map, Select) if looks else _CHANGING
    shared: list[Step] = []
    for steps in zip(*(entry.steps for entry in entries), strict=False):
        if any(step is not steps[0] for step in steps) or isinstance(steps[0], ending):
            break
        shared.append(steps[0])
    return tuple(shared)


def _may_change(entry: StageAdmission, shared: int, time: str) -> bool:
    """Whether steps behind the shared ones may change which records there are, or their columns.

    Not if they make the event time: then there is none before.
    """
    steps = entry.steps[shared:]
    makes = (step for step in steps if isinstance(step, (WithColumns, Select)))
    return bool(steps) and not any(time in step.expressions.named for step in makes)


_CHANGING = (Filter, FlatMap, MapBatches)
"""Steps of whose records there may be fewer or more than before."""


def bundle_slice(bundle: Bundle, start: int, stop: int) -> Bundle:
    """Return the elements of a bundle from ``start`` up to ``stop``, without copying."""
    if start == 0 and stop >= len(bundle):
        return bundle
    return bundle.slice(start, stop)


def _signed(admitted: Admitted, records: Records) -> Admitted:
    """Return what was admitted with the signs of the records (S-C1)."""
    column = records.columns[SIGN]
    signs = column.data if admitted.kept is None else column.data[admitted.kept]
    return replace(admitted, bundle=replace(admitted.bundle, signs=signs.astype(np.int8)))


def _rows(admitted_batch: AdmittedBatch) -> Int64Array:
    """Return which row of the source's batch each admitted element came from, rising."""
    rows = admitted_batch.records.columns[ROW].data
    if admitted_batch.admitted.kept is not None:
        rows = rows[admitted_batch.admitted.kept]
    return rows


def _as_dictionary(key: Column) -> Column:
    """Return a text key as a dictionary, which all parts of its batch then share."""
    array = key.arrow
    if array is None or not (
        pa.types.is_string(array.type)
        or pa.types.is_large_string(array.type)
        or pa.types.is_binary(array.type)
    ):
        return key
    return Column.from_arrow(array.dictionary_encode())
