"""A keyed computation in parts: operators for some parts of the keys each, in any processes.

The keys of a stage are in :data:`~lowwater.engine.process.key_parts.PARTS` parts, whatever the
number of workers. A worker has some of the parts in one operator, which numbers what is of a part
for itself. So output, its order and state are the same for any number of workers: what they emit is
put in one order.

The file is long because the two sides of an exchange, in the run and in a worker, have to agree on
order and failures.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias, assert_never, final

import numpy as np
import pyarrow as pa

from lowwater.engine.local.worker_pool import Request, Workers, as_error, as_plain
from lowwater.engine.process.definition import Definition
from lowwater.engine.process.key_parts import PARTS, parts_of, parts_of_hashes, place_of_part
from lowwater.engine.process.operator import InputBundle, ProcessInput, ProcessOperator
from lowwater.engine.process.stored_facts import FACTS
from lowwater.engine.records.columns import Column
from lowwater.engine.records.key_hash import hash_keys
from lowwater.engine.records.keys import KeyDictionary
from lowwater.engine.records.stage_output import NOTHING, UNFIT, Emitted, StageOutput
from lowwater.engine.records.steps import (
    Bundle,
    ClockAdvance,
    EndOfInput,
    LateBatch,
    WatermarkAdvance,
)
from lowwater.engine.records.stored_keys import Kinds, become, kinds_of
from lowwater.engine.stages.computed import Computed
from lowwater.errors import InternalError, LowwaterError
from lowwater.state.arrays import run_starts
from lowwater.state.key_layout import StoredPlace, group_range
from lowwater.state.memory import MemoryContents, MemoryStore
from lowwater.state.store import Batch, StateStore
from lowwater.time import END_OF_TIME, START_OF_TIME, Int64Array
from lowwater.watermark import Hold

Refused: TypeAlias = tuple[LateBatch, Bundle, Int64Array]
"""Records that waited and were refused, what they are, and the part of each, int64, shape (n,)."""

_FEW = 64


def is_parted(work: Computed) -> bool:
    """Return whether a keyed computation can be in parts.

    One that takes columns has little Python to run side by side.
    """
    return hasattr(work.process, "on_record")


class PartsStatus(NamedTuple):
    """What parts wait for, as their stage has to know it.

    Args:
        held_at: The earliest output time of a timer, which holds the output watermark.
        next_event: The earliest watermark at which something may be due.
        next_deadline: The earliest clock at which a timer may be due.
        open_windows: How many keys (in windows: keys and windows) have state.
        state_rows: The same, and how many records wait.
        hold: What holds the output watermark below the input's.
        hold_part: The part of the key whose timer it is.
        admitted: How many records hooks got and did not refuse (S-B2).
        partly: How many of these were dropped from another window.
        waiting: How many records wait for the watermark.
    """

    held_at: int = END_OF_TIME
    next_event: int = END_OF_TIME
    next_deadline: int = END_OF_TIME
    open_windows: int = 0
    state_rows: int = 0
    hold: Hold | None = None
    hold_part: int = 0
    admitted: int = 0
    partly: int = 0
    waiting: int = 0


@final
class HostedParts:
    """Some parts of a stage: their operator, where it is.

    What methods return are plain values, which may go to another process.

    Args:
        work: The keyed computation.
        parts: The numbers of the parts, rising.
        stage: The name of the stage, if its state is stored.
    """

    def __init__(self, work: Computed, parts: Sequence[int], stage: str | None) -> None:
        self._operator = ProcessOperator(
            work.process, windowing=work.windowing, order=work.order, parts=parts
        )
        self._in_order = work.order == "event_time"
        self._has_all = len(parts) == PARTS
        if stage is not None:
            self._operator.keep_in_store(StoredPlace(stage))

    def answer(self, request: Request) -> Any:
        """Do what is asked.

        Args:
            request: A method; the stage's watermark and clock, up to which nothing is due; its
                output watermark; the types of its keys; and arguments.
        """
        name, watermark, clock, output_watermark, kinds, *arguments = request
        operator = self._operator
        if kinds is not None:
            operator.records.become(kinds)
        operator.records.stand_at(watermark, clock, output_watermark)
        return getattr(self, name)(*arguments)

    def stand(self) -> tuple[Any, ...]:
        """Return how the parts stand; see :class:`PartsStatus`."""
        operator = self._operator
        return tuple(
            PartsStatus(
                operator.records.held_at,
                operator.next_due(),
                operator.next_deadline,
                operator.open_windows,
                operator.state_rows,
                operator.hold(),
                operator.records.hold_part,
                operator.admitted,
                operator.partly,
                operator.waiting,
            )
        )

    def take(self, nth: int, bundle: Bundle, rows: Int64Array | None) -> Any:
        """Process elements.

        Args:
            nth: Which input they came by.
            bundle: The elements.
            rows: The number of each in the bundle of all parts, int64, rising; ``None``: its own.
        """
        return self._done(InputBundle(nth, bundle), rows, of_records=not self._in_order)

    def advance(self, to: int) -> Any:
        """Advance the watermark."""
        return self._done(WatermarkAdvance(to))

    def tick(self, to: int) -> Any:
        """Advance the clock."""
        return self._done(ClockAdvance(to))

    def end(self, after: int) -> Any:
        """End the input; the last record of all parts came at ``after``."""
        return self._done(EndOfInput(after))

    def save(self) -> Any:
        """Return (the failure: cell, part and error; the changes since the last time)."""
        batch = Batch()
        try:
            self._operator.save(batch)
        except LowwaterError as error:
            return (self._operator.refused_at, as_plain(error)), []
        return None, list(batch.changes())

    def restore(self, rows: Sequence[tuple[bytes, bytes]]) -> Any:
        """Load what was saved; return its times, the types of its keys, and how the parts stand.

        The times: watermark, clock, output watermark, and that of the last record that waits.

        Args:
            rows: The key and the value of each stored row of these parts.
        """
        contents = MemoryContents()
        contents.rows.update(rows)
        operator = self._operator
        with MemoryStore(contents) as store:
            operator.restore(store)
        times = operator.watermark, operator.clock, operator.output_watermark
        return times, operator.last_waiting, operator.stored_kinds, self.stand()

    def _done(
        self,
        step: ProcessInput,
        rows: Int64Array | None = None,
        *,
        of_records: bool = False,
    ) -> Any:
        """Do a step.

        Args:
            step: The step.
            rows: The number of each element in the bundle of all parts; ``None``: its own.
            of_records: Whether what is emitted says by the number of which element.

        Returns:
            (its failure: the place, the part and the error; the outputs; what was dropped; what
            had waited and was refused; how the parts stand). After a failure it is all there is.
        """
        operator = self._operator
        try:
            output = operator.step(step)
        except (LowwaterError, SystemExit) as error:
            place = operator.records.place
            if isinstance(step, InputBundle) and rows is not None:
                # In event-time order, place is that of the last advance.
                place = int(rows[place if of_records else 0])
            return (place, operator.records.part, as_plain(error)), None, None, None, None
        outputs = output.emitted
        if not self._has_all:  # as columns they are put together, and packed, sooner
            outputs = {tag: emitted.in_columns() for tag, emitted in outputs.items()}
        if of_records and rows is not None:
            outputs = {
                tag: replace(emitted, places=rows[_places(emitted)])
                for tag, emitted in outputs.items()
            }
        late, refused = output.late, None
        if late is not None and output.late_of is not None:
            late, refused = None, (late, output.late_of, parts_of(output.late_of.keys))
        elif late is not None and rows is not None:
            late = replace(late, element=rows[late.element])
        return None, outputs, late, refused, self.stand()


@final
class PartedProcess:
    """The operator of a keyed computation whose keys are in parts (S-K1 to S-K13).

    It is used as :class:`~lowwater.engine.process.ProcessOperator` is. Among several keys, what
    timers of one instant emit, and what ``on_end`` emits, comes part by part; in event-time order
    (S-K13) also what records of one instant emit.

    Args:
        work: The keyed computation.
        number: The number of the stage.
        workers: Have the parts.
    """

    is_advancing = False
    is_over = False

    def __init__(self, work: Computed, number: int, workers: Workers) -> None:
        self._work = work
        self._number = number
        self._workers = workers
        self._every = range(workers.count)
        self._outputs = Definition.of(work.process, work.windowing).outputs
        self.watermark = self.clock = self.output_watermark = START_OF_TIME
        self._last = START_OF_TIME  # the time of the last record
        self._standing = dict.fromkeys(self._every, PartsStatus())
        self._stage: str | None = None
        self._kinds = KeyKinds()
        workers.add(number, lambda worker: self._hosted(range(worker, PARTS, workers.count)))

    def due_times(self) -> Int64Array:
        """Return nothing: timers are not counted by when they are due."""
        return np.zeros(0, dtype=np.int64)

    def next_due(self) -> int:
        """Return the watermark at which something may be due next, or the end of time."""
        return min(part.next_event for part in self._standing.values())

    @property
    def next_deadline(self) -> int:
        """The clock at which a processing-time timer is due next, or the end of time."""
        return min(part.next_deadline for part in self._standing.values())

    @property
    def open_windows(self) -> int:
        """How many keys (in windows: keys and windows) have state."""
        return sum(part.open_windows for part in self._standing.values())

    @property
    def state_rows(self) -> int:
        """The same, and how many records wait (S-K13)."""
        return sum(part.state_rows for part in self._standing.values())

    @property
    def admitted(self) -> int:
        """How many records hooks got and did not refuse, each counted once (S-B2)."""
        return sum(part.admitted for part in self._standing.values())

    @property
    def partly(self) -> int:
        """How many of these were dropped from another of their windows."""
        return sum(part.partly for part in self._standing.values())

    @property
    def waiting(self) -> int:
        """How many records wait for the watermark (S-K13)."""
        return sum(part.waiting for part in self._standing.values())

    def hold(self) -> Hold | None:
        """Return what holds the output watermark below the input's, if anything: a key's timer."""
        unknown = [
            at
            for at, part in self._standing.items()
            if part.hold is None and part.held_at < self.watermark
        ]
        if unknown:  # these workers have not been told of the watermark
            request = self._request("stand")
            self._stand(unknown, self._workers.ask(self._number, dict.fromkeys(unknown, request)))
        holds = [
            (part.hold.at, part.hold_part, part.hold)
            for part in self._standing.values()
            if part.hold is not None
        ]
        return min(holds)[2] if holds else None

    def prepare(self, store: StateStore, step: ProcessInput) -> Iterator[ProcessInput]:
        """Yield the step: all state is in memory."""
        yield step

    def settle(self, store: StateStore) -> None:
        """Load nothing: all state is in memory."""

    def step(self, step: ProcessInput) -> StageOutput:
        """Process one input and return its output (S-O1).

        Raises:
            DataError: A hook failed; of several, the first in the order of the input.
            InvalidArgument: A hook asked for what there is not.
            WorkerLost: A worker has ended.
        """
        match step:
            case InputBundle(nth=nth, bundle=bundle):
                return self._take(bundle, nth)
            case Bundle():
                return self._take(step, 0)
            case WatermarkAdvance(to=to):
                if to <= self.watermark:
                    return NOTHING
                due = to >= self.next_due()
                output = self._all("advance", int(to)) if due else NOTHING
                self.watermark = int(to)
                self._meet()
                return output
            case ClockAdvance(to=to):
                if to <= self.clock:
                    return NOTHING
                due = to >= self.next_deadline
                output = self._all("tick", int(to)) if due else NOTHING
                self.clock = int(to)
                return output
            case EndOfInput():
                output = self._all("end", self._last)
                self.watermark = END_OF_TIME
                self._meet()
                return output
            case _:
                assert_never(step)

    def report_to_trace(self) -> None:
        """Do nothing: it emits no panes."""

    def report_replaced(self) -> None:
        """Do nothing: it emits no panes."""

    def keep_in_store(self, place: StoredPlace, memory: int | None = None) -> None:
        """Track changes, so that :meth:`save` can write them; call it before the first step."""
        self._stage = place.stage

    def save(self, batch: Batch) -> None:
        """Add what changed since the last save to a batch of a store. O(changed).

        Raises:
            StateError: A cell holds what cannot be stored; the message names cell and key.
        """
        answers = self._ask("save")
        if failures := [failure for failure, _ in answers if failure is not None]:
            raise as_error(min(failures, key=itemgetter(0))[1])
        for _, changes in answers:
            batch.add(changes)

    def restore(self, store: StateStore) -> bool:
        """Load what was saved in a store, before the first step; return whether there was any.

        Raises:
            StateError: What is stored is damaged, or another process's.
        """
        if self._stage is None:
            raise InternalError("keep_in_store was not called")
        facts = place_of_part(self._stage, 0).prefix(FACTS)
        (data,) = store.get([facts])
        shared = [] if data is None else [(facts, data)]  # they are those of all parts
        rows: dict[int, list[tuple[bytes, bytes]]] = {at: list(shared) for at in self._every}
        for part in range(PARTS):
            for group in place_of_part(self._stage, part).groups:
                rows[part % self._workers.count] += store.scan(*group_range(self._stage, group))
        header = START_OF_TIME, START_OF_TIME, START_OF_TIME, None
        requests = {at: ("restore", *header, some) for at, some in rows.items()}
        answers = self._workers.ask(self._number, requests, is_trusted=True)
        times, lasts, kinds, standing = zip(*answers, strict=True)
        self.watermark, self.clock, self.output_watermark = times[0]
        self._last = max(lasts)
        self._kinds.resume(next((kind for kind in kinds if kind is not None), None))
        self._stand(self._every, standing)
        return data is not None

    def _take(self, bundle: Bundle, nth: int) -> StageOutput:
        if not len(bundle):
            return NOTHING
        self._last = max(self._last, int(bundle.times.max()))
        self._kinds.see(bundle.keys)
        count = self._workers.count
        if count == 1:
            return self._gave({0: self._request("take", nth, bundle, None)}, of_records=True)
        hashes = hash_keys(bundle.keys)
        owner = (parts_of_hashes(hashes) % count).astype(np.uint8)
        order = np.argsort(owner, kind="stable")
        bundle, owner = replace(bundle, hashes=hashes).take(order), owner[order]
        bounds = np.searchsorted(owner, np.arange(count + 1)).tolist()
        requests = {
            at: self._request("take", nth, bundle.slice(start, stop), order[start:stop])
            for at, (start, stop) in enumerate(pairwise(bounds))
            if start < stop
        }
        return self._gave(requests, of_records=True)

    def _all(self, name: str, *arguments: Any) -> StageOutput:
        return self._gave(dict.fromkeys(self._every, self._request(name, *arguments)))

    def _gave(self, requests: Mapping[int, Request], *, of_records: bool = False) -> StageOutput:
        """Run a step in the workers; return their output in one order, or raise the first failure.

        Args:
            requests: By the number of the worker.
            of_records: Whether what is emitted says by the number of which element.
        """
        answers = self._workers.ask(self._number, requests)
        if failures := [failure for failure, *_ in answers if failure is not None]:
            _, _, plain = min(failures, key=itemgetter(0, 1))
            raise as_error(plain)
        outputs: dict[str, list[Emitted]] = {}
        late: list[LateBatch] = []
        refused: list[Refused] = []
        self._stand(requests, [standing for *_, standing in answers])
        for _, given, dropped, waited, _ in answers:
            for tag, emitted in given.items():
                outputs.setdefault(tag, []).append(emitted)
            late += [] if dropped is None else [dropped]
            refused += [] if waited is None else [waited]
        self._meet()
        together = {
            tag: in_order(outputs[tag], of_records=of_records)
            for tag in (*self._outputs, UNFIT)
            if tag in outputs
        }
        if refused:
            batch, late_of = refused_in_order(refused)
            return StageOutput(outputs=together, late=batch, late_of=late_of)
        return StageOutput(outputs=together, late=late_in_order(late))

    def _stand(self, workers: Iterable[int], standing: Iterable[Any]) -> None:
        for at, part in zip(workers, standing, strict=True):
            self._standing[at] = PartsStatus(*part)

    def _held_at(self) -> int:
        return min(part.held_at for part in self._standing.values())

    def _meet(self) -> None:
        """Advance the output watermark as far as no timer holds it."""
        self.output_watermark = max(self.output_watermark, min(self.watermark, self._held_at()))

    def _ask(self, name: str, *arguments: Any) -> list[Any]:
        request = self._request(name, *arguments)
        requests = dict.fromkeys(self._every, request)
        return self._workers.ask(self._number, requests, is_trusted=True)

    def _request(self, name: str, *arguments: Any) -> Request:
        kinds = self._kinds.kinds
        return name, self.watermark, self.clock, self.output_watermark, kinds, *arguments

    def _hosted(self, parts: Sequence[int]) -> HostedParts:
        return HostedParts(self._work, parts, self._stage)


@final
class KeyKinds:
    """The types of the keys of a stage: each worker sees some of the keys, and is told of these."""

    def __init__(self) -> None:
        self.kinds: Kinds | None = None
        self._keys: KeyDictionary | None = None  # a few keys that have these types
        self._seen: set[Any] = set()

    def see(self, columns: Sequence[Column]) -> None:
        """Record the types of the keys of a bundle, which has some."""
        types = tuple((column.type, _dtype(column)) for column in columns)
        if types in self._seen:
            return
        if self._keys is None:
            self._keys = KeyDictionary(len(columns))
        elif len(self._keys) > _FEW:
            self.resume(self.kinds)
        one_of_each = tuple(_one_value(column) for column in columns)
        self._keys.encode(one_of_each)
        self.kinds = kinds_of(self._keys)
        if not any(key.is_null() for key in one_of_each):  # null does not say of which type it is
            self._seen.add(types)

    def resume(self, kinds: Kinds | None) -> None:
        """Go on from the types of stored keys; ``None`` if there are none."""
        if kinds is not None:
            self.kinds = [(kind, dtype) for kind, dtype in kinds]
            self._keys = KeyDictionary(len(kinds))
            become(self._keys, self.kinds)


def in_order(emitted: Sequence[Emitted], *, of_records: bool) -> Emitted:
    """Return what workers emitted to one output in one order: by place, then by part.

    Args:
        emitted: What each did; no two of them have the same part.
        of_records: Whether places are of records: then no two parts emit at the same place, and
            what one worker emitted is in this order. The order of the latest times is not.
    """
    if len(emitted) == 1 and of_records:
        return emitted[0]
    places = np.concatenate([_places(part) for part in emitted])
    if of_records:
        order = np.argsort(places, kind="stable")
    else:
        parts = np.concatenate([part.parts for part in emitted if part.parts is not None])
        order = np.lexsort((parts, places))
    keys = zip(*(part.keys for part in emitted), strict=True)
    return Emitted(
        times=np.concatenate([part.times for part in emitted])[order],
        keys=tuple(Column.concat_as_is(columns).take(order) for columns in keys),
        values=_values_together(emitted, order),
        start=_arrays_together([part.start for part in emitted], order),
        end=_arrays_together([part.end for part in emitted], order),
        signs=_arrays_together([part.signs for part in emitted], order),
        places=places[order],
    )


def late_in_order(late: Sequence[LateBatch]) -> LateBatch | None:
    """Return what parts dropped, in order of element, then window."""
    if len(late) <= 1:
        return late[0] if late else None
    element, start, end, reason = (
        np.concatenate([getattr(batch, name) for batch in late])
        for name in ("element", "start", "end", "reason")
    )
    order = np.lexsort((end, start, element))
    details = None
    if any(batch.details is not None for batch in late):
        said = [detail for batch in late for detail in batch.all_details()]
        details = [said[at] for at in order.tolist()]
    return LateBatch(
        element[order], start[order], end[order], reason[order], late[0].watermark, details
    )


def refused_in_order(refused: Sequence[Refused]) -> tuple[LateBatch, Bundle]:
    """Return what parts refused of the records that waited, in order of time, then part."""
    every = [late for late, *_ in refused]
    numbers = np.concatenate([late.element for late in every])
    bundle = Bundle.concat([bundle.take(late.element) for late, bundle, _ in refused])
    if len({tuple(each.values) for _, each, _ in refused}) > 1:  # as where one has all
        bundle = replace(
            bundle, values={name: bundle.values[name] for name in sorted(bundle.values)}
        )
    parts = np.concatenate([parts[late.element] for late, _, parts in refused])
    order = np.lexsort((parts, bundle.times))
    start, end, reason = (
        np.concatenate([getattr(late, name) for late in every])[order]
        for name in ("start", "end", "reason")
    )
    details = [detail for late in every for detail in late.all_details()]
    said = [details[at] for at in order.tolist()]
    # Those of one record, which was refused from several windows, are neighbours.
    begins = run_starts(parts[order], numbers[order])
    element, bundle = np.cumsum(begins) - 1, bundle.take(order[begins])
    return LateBatch(element, start, end, reason, every[0].watermark, said), bundle


def _places(emitted: Emitted) -> Int64Array:
    if emitted.places is None:
        raise InternalError("a process did not say where it emitted")
    return emitted.places


def _one_value(column: Column) -> Column:
    """Return a row of a column that has its type: one that is not null, if there is any."""
    if _is_unsigned(column) and column.data.dtype == object:
        at = int(np.argmax([value or 0 for value in column.data.tolist()]))
        return column.slice(at, at + 1)
    nulls = column.nulls()
    at = 0 if nulls is None or nulls.all() else int(np.argmin(nulls))
    return column.slice(at, at + 1)


def _dtype(column: Column) -> np.dtype[Any] | None:
    """Return the dtype of a column where its Arrow type, if any, does not say it."""
    return column.data.dtype if column.arrow is None or _is_unsigned(column) else None


def _is_unsigned(column: Column) -> bool:
    """Return whether a column may hold integers beyond int64, which are Python objects."""
    return column.arrow is not None and bool(pa.types.is_uint64(column.arrow.type))


def _values_together(
    emitted: Sequence[Emitted], order: Int64Array
) -> Sequence[Any] | Mapping[str, Column]:
    columns = [part.values for part in emitted if isinstance(part.values, Mapping)]
    if len(columns) == len(emitted) and len({tuple(part) for part in columns}) == 1:
        return {
            name: Column.concat_as_is([part[name] for part in columns]).take(order)
            for name in columns[0]
        }
    values = [value for part in emitted for value in part.to_list()]
    return [values[at] for at in order.tolist()]


def _arrays_together(arrays: Sequence[Any], order: Int64Array) -> Any:
    present = [array for array in arrays if array is not None]
    return np.concatenate(present)[order] if present else None
