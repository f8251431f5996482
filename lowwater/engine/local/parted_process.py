"""A keyed computation in parts: operators of its own for each part of the keys, in any processes.

The key groups of a stage are divided into :data:`PARTS` parts, whatever the number of workers, and
each part is one operator with a state of its own. So output, its order and state are the same for
any number of workers: a worker has some of the parts, and what parts emit is put in one order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple, TypeAlias, assert_never, final

import numpy as np

from lowwater.engine.graph.graph import Computed
from lowwater.engine.local.worker_pool import Request, Workers, as_error, as_plain
from lowwater.engine.process.definition import Definition
from lowwater.engine.process.operator import InputBundle, ProcessOperator
from lowwater.engine.process.output import NOTHING, Emitted, ProcessOutput
from lowwater.engine.records.columns import Column
from lowwater.engine.records.key_hash import KEY_GROUPS, key_groups
from lowwater.engine.records.steps import (
    Bundle,
    ClockAdvance,
    EndOfInput,
    LateBatch,
    StepInput,
    WatermarkAdvance,
)
from lowwater.errors import InternalError, LowwaterError
from lowwater.state.key_layout import StoredPlace, group_range
from lowwater.state.memory import MemoryContents, MemoryStore
from lowwater.state.store import Batch, Delete, DeleteRange, Put, StateStore
from lowwater.time import END_OF_TIME, START_OF_TIME, Int64Array
from lowwater.watermark import Hold

PARTS = 16
"""How many parts a stage has, and so the most workers that have work. State depends on it."""

_GROUPS = KEY_GROUPS // PARTS

Placed: TypeAlias = tuple[Emitted, Int64Array]
"""Records that several parts emitted, in order, and the part of each, int64, shape (n,)."""


Refused: TypeAlias = tuple[LateBatch, Bundle, Int64Array]
"""Records that waited and were refused, what they are, and the part of each, int64, shape (n,)."""


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
    """

    held_at: int = END_OF_TIME
    next_event: int = END_OF_TIME
    next_deadline: int = END_OF_TIME
    open_windows: int = 0
    state_rows: int = 0
    hold: Hold | None = None


@final
class HostedParts:
    """Some parts of a stage: the operators, where they are.

    What methods return are plain values, which may go to another process.

    Args:
        work: The keyed computation.
        parts: The numbers of the parts, rising.
        stage: The name of the stage, if its state is stored.
    """

    def __init__(self, work: Computed, parts: Sequence[int], stage: str | None) -> None:
        self._operators = {
            part: ProcessOperator(work.process, windowing=work.windowing, order=work.order)
            for part in parts
        }
        self._in_order = work.order == "event_time"
        if stage is not None:
            for part, operator in self._operators.items():
                operator.keep_in_store(StoredPlace(stage, part * _GROUPS, _GROUPS))

    def answer(self, request: Request) -> Any:
        """Do what is asked.

        Args:
            request: A method; the stage's watermark and clock, up to which nothing is due, unless
                the method says so; its output watermark; and arguments.
        """
        name, watermark, clock, output_watermark, *arguments = request
        for operator in self._operators.values():
            if clock > operator.clock and clock < operator.next_deadline:
                operator.step(ClockAdvance(clock))
            if watermark > operator.watermark:
                operator.step(WatermarkAdvance(watermark))
            operator.records.meet(output_watermark)
        return getattr(self, name)(*arguments)

    def stand(self) -> tuple[Any, ...]:
        """Return how the parts stand; see :class:`PartsStatus`."""
        operators = self._operators.values()
        holds = [hold for operator in operators if (hold := operator.hold()) is not None]
        return tuple(
            PartsStatus(
                min(operator.records.held_at for operator in operators),
                min(operator.next_event for operator in operators),
                min(operator.next_deadline for operator in operators),
                sum(operator.open_windows for operator in operators),
                sum(operator.state_rows for operator in operators),
                min(holds, key=_time_of, default=None),
            )
        )

    def take(self, nth: int, bundle: Bundle, rows: Int64Array, bounds: list[list[int]]) -> Any:
        """Process elements.

        Args:
            nth: Which input they came by.
            bundle: The elements, part by part.
            rows: The number of each in the bundle of all parts, int64; rising within a part.
            bounds: Of each part with elements: its number, where it begins, where it ends.
        """
        if self._in_order:
            steps = {part: InputBundle(nth, bundle.slice(*at)) for part, *at in bounds}
        else:
            # Once for all parts: what it costs to convert a column is fixed, if its values are few.
            plain = next(iter(self._operators.values())).records.plain(bundle)
            steps = {
                part: InputBundle(nth, bundle.slice(*at), plain.part(*at)) for part, *at in bounds
            }
        return self._done(steps, {part: rows[start:stop] for part, start, stop in bounds})

    def advance(self, to: int) -> Any:
        """Advance the watermark."""
        return self._done(dict.fromkeys(self._operators, WatermarkAdvance(to)))

    def tick(self, to: int) -> Any:
        """Advance the clock."""
        return self._done(dict.fromkeys(self._operators, ClockAdvance(to)))

    def end(self, after: int) -> Any:
        """End the input; the last record of all parts came at ``after``."""
        return self._done(dict.fromkeys(self._operators, EndOfInput(after)))

    def save(self) -> list[Any]:
        """Return the changes since the last time: methods of a batch, and their arguments."""
        changes: list[Any] = []
        batch = Batch()
        for operator in self._operators.values():
            operator.save(batch)
        for change in batch.changes():
            match change:
                case Put(keys, values):
                    changes.append(["put", keys, values])
                case Delete(keys):
                    changes.append(["delete", keys])
                case DeleteRange(start, stop):
                    changes.append(["delete_range", start, stop])
                case _:
                    assert_never(change)
        return changes

    def restore(self, rows: Sequence[tuple[bytes, bytes]]) -> Any:
        """Load what was saved; return its times, and how the parts stand.

        The times: watermark, clock, output watermark, and that of the last record that waits.

        Args:
            rows: The key and the value of each stored row of these parts.
        """
        contents = MemoryContents()
        contents.rows.update(rows)
        with MemoryStore(contents) as store:
            for operator in self._operators.values():
                operator.restore(store)
        first = next(iter(self._operators.values()))
        last = max(operator.last_waiting for operator in self._operators.values())
        return first.watermark, first.clock, first.output_watermark, last, self.stand()

    def _done(
        self,
        steps: Mapping[int, StepInput | InputBundle],
        rows: Mapping[int, Int64Array] | None = None,
    ) -> Any:
        """Have parts do a step each.

        Returns the first failure, or what they gave and how they stand.

        Args:
            steps: By the number of the part.
            rows: Of each part, the number of its elements in the bundle of all parts.
        """
        given: dict[str, list[Placed]] = {}
        late: list[LateBatch] = []
        refused: list[Refused] = []
        failures: list[tuple[int, int, list[Any]]] = []
        for part, step in steps.items():
            operator = self._operators[part]
            mine = None if rows is None else rows[part]
            try:
                output = operator.step(step)
            except (LowwaterError, SystemExit) as error:
                place = operator.records.place
                if mine is not None:  # in event-time order, place is that of the last advance
                    place = int(mine[0 if self._in_order else place])
                failures.append((place, part, as_plain(error)))
                continue
            for tag, emitted in output.outputs.items():
                places = _places(emitted)
                placed = replace(emitted, places=places if mine is None else mine[places])
                given.setdefault(tag, []).append((placed, np.full(len(emitted), part)))
            if output.late is not None and output.late_of is not None:
                waited = output.late_of.take(output.late.element)
                every = replace(output.late, element=np.arange(len(waited)))
                refused.append((every, waited, np.full(len(waited), part)))
            elif output.late is not None and mine is not None:
                late.append(replace(output.late, element=mine[output.late.element]))
        if failures:
            return min(failures, key=lambda each: each[:2]), None, None, None, None
        outputs = {tag: in_order(placed) for tag, placed in given.items()}
        return None, outputs, late_in_order(late), refused_in_order(refused), self.stand()


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
        workers.add(number, lambda worker: self._hosted(range(worker, PARTS, workers.count)))

    @property
    def next_deadline(self) -> int:
        """The clock at which a processing-time timer is due next, or the end of time."""
        return min(each.next_deadline for each in self._standing.values())

    @property
    def open_windows(self) -> int:
        """How many keys (in windows: keys and windows) have state."""
        return sum(each.open_windows for each in self._standing.values())

    @property
    def state_rows(self) -> int:
        """The same, and how many records wait (S-K13)."""
        return sum(each.state_rows for each in self._standing.values())

    def hold(self) -> Hold | None:
        """Return what holds the output watermark below the input's, if anything: a key's timer."""
        unknown = [
            at
            for at, each in self._standing.items()
            if each.hold is None and each.held_at < self.watermark
        ]
        if unknown:  # these workers have not been told of the watermark
            request = self._request("stand")
            self._stand(unknown, self._workers.ask(self._number, dict.fromkeys(unknown, request)))
        holds = [each.hold for each in self._standing.values() if each.hold is not None]
        return min(holds, key=_time_of, default=None)

    def step(self, step: StepInput | InputBundle) -> ProcessOutput:
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
                due = to >= min(each.next_event for each in self._standing.values())
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

    def keep_in_store(self, place: StoredPlace) -> None:
        """Track changes, so that :meth:`save` can write them; call it before the first step."""
        self._stage = place.stage

    def save(self, batch: Batch) -> None:
        """Add what changed since the last save to a batch of a store. O(changed).

        Raises:
            StateError: A cell holds what cannot be stored; the message names cell and key.
        """
        for changes in self._ask("save"):
            for name, *arguments in changes:
                getattr(batch, name)(*arguments)

    def restore(self, store: StateStore) -> None:
        """Load what was saved in a store, before the first step.

        Raises:
            StateError: What is stored is damaged, or another process's.
        """
        if self._stage is None:
            raise InternalError("keep_in_store was not called")
        rows: dict[int, list[tuple[bytes, bytes]]] = {at: [] for at in self._every}
        for group in range(KEY_GROUPS):
            rows[self._owner(group // _GROUPS)] += store.scan(*group_range(self._stage, group))
        header = START_OF_TIME, START_OF_TIME, START_OF_TIME
        answers = self._workers.ask(
            self._number, {at: ("restore", *header, some) for at, some in rows.items()}
        )
        self.watermark, self.clock, self.output_watermark, *_ = answers[0]
        self._last = max(last for *_, last, _ in answers)
        self._stand(self._every, [answer[-1] for answer in answers])

    def _take(self, bundle: Bundle, nth: int) -> ProcessOutput:
        if not len(bundle):
            return NOTHING
        self._last = max(self._last, int(bundle.times.max()))
        if not bundle.keys:
            part = np.zeros(len(bundle), dtype=np.int64)
        else:
            part = key_groups(bundle.keys, KEY_GROUPS).astype(np.int64) // _GROUPS
        owner = part % self._workers.count
        order = np.lexsort((part, owner))  # stable: within a part, elements come as they were
        part, owner = part[order], owner[order]
        edges = np.flatnonzero(np.diff(part, prepend=-1))
        requests: dict[int, Request] = {}
        for at in np.unique(owner).tolist():
            first, last = np.searchsorted(owner, [at, at + 1]).tolist()
            starts = edges[(edges >= first) & (edges < last)].tolist()
            bounds = [
                [int(part[start]), start - first, stop - first]
                for start, stop in pairwise([*starts, last])
            ]
            rows = order[first:last]
            requests[at] = self._request("take", nth, bundle.take(rows), rows, bounds)
        return self._gave(requests)

    def _all(self, name: str, *arguments: Any) -> ProcessOutput:
        return self._gave(dict.fromkeys(self._every, self._request(name, *arguments)))

    def _gave(self, requests: Mapping[int, Request]) -> ProcessOutput:
        """Have parts do a step; return their output in one order, or raise their first failure."""
        answers = self._workers.ask(self._number, requests)
        if failures := [failure for failure, *_ in answers if failure is not None]:
            _, _, plain = min(failures, key=itemgetter(0, 1))
            raise as_error(plain)
        outputs: dict[str, list[Placed]] = {}
        late: list[LateBatch] = []
        refused: list[Refused] = []
        self._stand(requests, [standing for *_, standing in answers])
        for _, given, dropped, waited, _ in answers:
            for tag, placed in given.items():
                outputs.setdefault(tag, []).append(placed)
            late += [] if dropped is None else [dropped]
            refused += [] if waited is None else [waited]
        self._meet()
        together = {tag: in_order(outputs[tag])[0] for tag in self._outputs if tag in outputs}
        if (waited := refused_in_order(refused)) is not None:
            return ProcessOutput(together, *waited[:2])
        return ProcessOutput(together, late_in_order(late))

    def _stand(self, workers: Iterable[int], standing: Iterable[Any]) -> None:
        for at, each in zip(workers, standing, strict=True):
            self._standing[at] = PartsStatus(*each)

    def _held_at(self) -> int:
        return min(each.held_at for each in self._standing.values())

    def _meet(self) -> None:
        """Advance the output watermark as far as no timer holds it."""
        self.output_watermark = max(self.output_watermark, min(self.watermark, self._held_at()))

    def _ask(self, name: str, *arguments: Any) -> list[Any]:
        request = self._request(name, *arguments)
        return self._workers.ask(self._number, dict.fromkeys(self._every, request))

    def _request(self, name: str, *arguments: Any) -> Request:
        return name, self.watermark, self.clock, self.output_watermark, *arguments

    def _owner(self, part: int) -> int:
        return part % self._workers.count

    def _hosted(self, parts: Sequence[int]) -> HostedParts:
        return HostedParts(self._work, parts, self._stage)


def in_order(placed: Sequence[Placed]) -> Placed:
    """Return what parts emitted to one output in one order: by place, then by part.

    Args:
        placed: Pieces, each in this order, of which no two have records of the same part.
    """
    if len(placed) == 1:
        return placed[0]
    every = [emitted for emitted, _ in placed]
    places = np.concatenate([_places(emitted) for emitted in every])
    parts = np.concatenate([part for _, part in placed])
    order = np.lexsort((parts, places))
    values = [value for emitted in every for value in emitted.values]
    keys = zip(*(emitted.keys for emitted in every), strict=True)
    together = Emitted(
        times=np.concatenate([emitted.times for emitted in every])[order],
        keys=tuple(_columns_together(columns).take(order) for columns in keys),
        values=[values[at] for at in order.tolist()],
        start=_arrays_together([emitted.start for emitted in every], order),
        end=_arrays_together([emitted.end for emitted in every], order),
        signs=_arrays_together([emitted.signs for emitted in every], order),
        places=places[order],
    )
    return together, parts[order]


def late_in_order(late: Sequence[LateBatch]) -> LateBatch | None:
    """Return what parts dropped, in order of element, then window."""
    if len(late) <= 1:
        return late[0] if late else None
    element, start, end, reason = (
        np.concatenate([getattr(each, name) for each in late])
        for name in ("element", "start", "end", "reason")
    )
    order = np.lexsort((end, start, element))
    details = None
    if any(each.details is not None for each in late):
        said = [detail for each in late for detail in each.all_details()]
        details = [said[at] for at in order.tolist()]
    return LateBatch(
        element[order], start[order], end[order], reason[order], late[0].watermark, details
    )


def refused_in_order(refused: Sequence[Refused]) -> Refused | None:
    """Return what parts refused of the records that waited, in order of time, then part."""
    if len(refused) <= 1:
        return refused[0] if refused else None
    bundles = [bundle for _, bundle, _ in refused]
    parts = np.concatenate([part for *_, part in refused])
    times = np.concatenate([bundle.times for bundle in bundles])
    order = np.lexsort((parts, times))
    keys = zip(*(bundle.keys for bundle in bundles), strict=True)
    names = dict.fromkeys(name for bundle in bundles for name in bundle.values)
    values = {name: [_column(bundle, name) for bundle in bundles] for name in names}
    together = Bundle(
        times[order],
        tuple(_columns_together(columns).take(order) for columns in keys),
        {name: _columns_together(columns).take(order) for name, columns in values.items()},
    )
    every = [late for late, *_ in refused]
    start, end, reason = (
        np.concatenate([getattr(late, name) for late in every])[order]
        for name in ("start", "end", "reason")
    )
    details = [detail for late in every for detail in late.all_details()]
    said = [details[at] for at in order.tolist()]
    late = LateBatch(np.arange(len(order)), start, end, reason, every[0].watermark, said)
    return late, together, parts[order]


_time_of = attrgetter("at")


def _places(emitted: Emitted) -> Int64Array:
    if emitted.places is None:
        raise InternalError("a process did not say where it emitted")
    return emitted.places


def _column(bundle: Bundle, name: str) -> Column:
    """Return a column of a bundle; without one, as in other inputs, all values are missing."""
    if name in bundle.values:
        return bundle.values[name]
    return Column.of_objects([None] * len(bundle))


def _columns_together(columns: Sequence[Column]) -> Column:
    """Concatenate a key column of several parts, each of which has seen other types of keys."""
    if len({(column.data.dtype, column.type) for column in columns}) == 1:
        return Column.concat(columns)
    return Column.of_objects([value for column in columns for value in column.to_list(exact=True)])


def _arrays_together(arrays: Sequence[Any], order: Int64Array) -> Any:
    given = [array for array in arrays if array is not None]
    return np.concatenate(given)[order] if given else None
