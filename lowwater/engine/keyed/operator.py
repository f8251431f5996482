"""What operators that keep records by key have in common: the records, and how they are stored."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias, assert_never, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lowwater.engine.keyed.persistence import StoredSides
from lowwater.engine.keyed.records import KeyedRecords
from lowwater.engine.keyed.row_counts import have_rows
from lowwater.engine.keyed.sides import LEFT, Side
from lowwater.engine.keyed.spilled import SpilledKeys
from lowwater.engine.records.columns import Column
from lowwater.engine.records.keys import KeyDictionary
from lowwater.engine.records.stage_output import NOTHING, Emitted, StageOutput, only
from lowwater.engine.records.steps import (
    Bundle,
    ClockAdvance,
    EndOfInput,
    LateBatch,
    WatermarkAdvance,
)
from lowwater.engine.records.value_hash import hash_values
from lowwater.errors import DataError, InternalError, StateError
from lowwater.state.arrays import mixed
from lowwater.state.deadlines import Deadlines
from lowwater.state.key_layout import StoredPlace
from lowwater.state.store import Batch, StateStore
from lowwater.time import END_OF_TIME, Int64Array, format_instant
from lowwater.watermark import Hold

_GARBAGE = 1 << 16
_FEW_KEYS = 1 << 10


@final
@dataclass(frozen=True, slots=True)
class SideBundle:
    """A bundle of one side of a join.

    Args:
        side: The side.
        bundle: Its elements; ``values`` are their columns, without the key's.
    """

    side: Side
    bundle: Bundle


@final
@dataclass(frozen=True, slots=True)
class SidesAdvance:
    """Advances the watermark of both sides together, and that of the right side by itself.

    Args:
        to: The lower of both, int microseconds.
        right: That of the right side.
    """

    to: int
    right: int


KeyedInput: TypeAlias = (
    SideBundle | Bundle | SidesAdvance | WatermarkAdvance | ClockAdvance | EndOfInput
)


class KeyedOperator(ABC):
    """An operator that keeps records by key.

    With a limit of memory, records of keys that were not touched for long leave it for the store.
    Before a step, the runner then loads what the step is about: :meth:`load` before a bundle,
    :meth:`load_due` before an advance; and :meth:`load_holder` after each.

    ``admitted`` counts the records that were kept, retracted or used up, and ``waiting`` those that
    are still to be (S-B2).

    Args:
        sides: The records it keeps, of each of its inputs.
        signed: Whether an input may contain retractions (S-C1).
        retracts: Whether the output may.
        watermark: Input watermark to begin with, int microseconds.
        clock: Clock to begin with, int microseconds.
    """

    is_advancing = False
    next_deadline = END_OF_TIME
    partly = 0
    link: str | None = None
    """The column of the left side that refers to rows of the right one, if there is any."""

    def __init__(
        self,
        sides: Sequence[KeyedRecords],
        *,
        signed: bool,
        retracts: bool,
        watermark: int,
        clock: int,
    ) -> None:
        self.watermark = self.output_watermark = watermark
        self.clock = clock
        self.admitted = 0
        self.retracts = retracts
        self.keys: KeyDictionary | None = None
        self.sides = tuple(sides)
        self._signed = signed
        self._stored: StoredSides | None = None

    def due_times(self) -> Int64Array:
        """Return the watermark at which each row in memory comes out or goes next. O(rows)."""
        waits = [self.waits(side, records.table.live()) for side, records in enumerate(self.sides)]
        return np.concatenate([np.minimum(due, right_due) for due, right_due, _ in waits])

    def next_due(self) -> int:
        """Return the watermark at which rows come out or go next, or the end of time. O(rows)."""
        first = int(self.due_times().min(initial=END_OF_TIME))
        if self._stored is not None:
            spilled = self._stored.spilled
            first = min(first, spilled.dues.first, spilled.right_dues.first)
        return first

    @property
    def waiting(self) -> int:
        """How many records came that are still to be used."""
        return 0

    @property
    def open_windows(self) -> int:
        """How many records there are."""
        return sum(map(len, self.sides)) + self.spilled_rows

    @property
    def spilled_rows(self) -> int:
        """How many of them are in the store alone."""
        return 0 if self._stored is None else sum(self._stored.spilled.rows)

    @property
    def is_over(self) -> bool:
        """Whether the records take more memory than they may, and some can be spared."""
        return self._stored is not None and self._stored.is_over

    @property
    def state_rows(self) -> int:
        """The same."""
        return self.open_windows

    def step(self, step: KeyedInput) -> StageOutput:
        """Process one input and return its output (S-O1).

        Costs O(records log records of a key), and what it emits. It does no I/O, reads no clock and
        starts no thread.

        Raises:
            DataError: A retraction came of a record that never did, or values of an order cannot be
                compared.
        """
        match step:
            case SideBundle(side=side, bundle=bundle):
                return self._take(side, bundle)
            case Bundle():
                return self._take(LEFT, step)
            case SidesAdvance(to=to, right=right):
                return self._advance(int(to), int(right))
            case WatermarkAdvance(to=to):
                return self._advance(int(to), int(to))
            case EndOfInput():
                return self._advance(END_OF_TIME, END_OF_TIME)
            case ClockAdvance(to=to):
                self.clock = max(self.clock, int(to))
                return NOTHING
            case _:
                assert_never(step)

    @abstractmethod
    def hold(self) -> Hold | None:
        """Return what holds the output watermark below the input's, if anything."""

    def keep_in_store(self, place: StoredPlace, memory: int | None = None) -> None:
        """Track changes, so that :meth:`save` can write them; call it before the first step.

        Args:
            place: Where the state is stored.
            memory: About how many bytes it may take in memory; ``None``: any number.
        """
        self._stored = StoredSides(
            self, self._gone_by_time(), place, frozenset(self._facts()), memory
        )

    def _gone_by_time(self) -> Sequence[int | None]:
        """Return for each side how long after its time a record is gone; ``None``: not by time."""
        return (None,) * len(self.sides)

    def restore(self, store: StateStore) -> bool:
        """Load what was saved in a store, before the first step; return whether there was any.

        Raises:
            StateError: What is stored is damaged, or of another layout.
        """
        facts = self._restored(store)
        if facts is not None:
            self._take_up(facts)
        return facts is not None

    def _take_up(self, facts: Mapping[str, int]) -> None:  # noqa: B027  # most have nothing
        """Take up what is stored beside the records and the watermarks: :meth:`_facts`."""

    @abstractmethod
    def _take(self, side: Side, bundle: Bundle) -> StageOutput:
        """Process a bundle of one side; operators with one input have the left one."""

    @abstractmethod
    def _advance(self, to: int, right: int) -> StageOutput:
        """Advance the watermark to ``to``, and that of the right side to ``right``."""

    def save(self, batch: Batch) -> None:
        """Add what changed since the last save to a batch of a store. O(changed)."""
        if self._stored is None:
            raise InternalError("keep_in_store was not called")
        if self._stored.write(batch, self.keys, self._facts()):
            self._forget_keys(_FEW_KEYS)

    def _facts(self) -> dict[str, int]:
        """Return what is stored beside the records."""
        return {
            "watermark": self.watermark,
            "clock": self.clock,
            "output watermark": self.output_watermark,
        }

    @abstractmethod
    def waits(self, side: int, rows: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
        """Return what all rows of some keys wait for: (watermark, the right side's, hold).

        At the watermarks, int64, rows come out or go; :data:`END_OF_TIME` for never before the end.
        """

    @abstractmethod
    def readmitted(self, side: int, rows: Int64Array) -> None:
        """Queue rows that were restored or loaded, in no order, for all that they wait for."""

    def prepare(self, store: StateStore, step: KeyedInput) -> Iterator[KeyedInput]:
        """Load what a step needs; yield it, behind portions of an advance with much due."""
        match step:
            case SideBundle(bundle=bundle):
                self.load(store, bundle)
            case Bundle():
                self.load(store, step)
            case SidesAdvance(to=to, right=right):
                yield from self._portions(store, int(to), int(right))
            case WatermarkAdvance(to=to):
                yield from self._portions(store, int(to), int(to))
            case EndOfInput():
                yield from self._portions(store, END_OF_TIME, END_OF_TIME)
            case ClockAdvance():
                pass
            case _:
                assert_never(step)
        yield step

    def _portions(self, store: StateStore, to: int, right: int) -> Iterator[KeyedInput]:
        while (portion := self.load_due(store, to, right)) is not None:
            yield portion

    def report_to_trace(self) -> None:  # noqa: B027  # right for all below
        """Do nothing: there are no windows."""

    def report_replaced(self) -> None:  # noqa: B027  # right for all below
        """Do nothing: there are no windows."""

    def settle(self, store: StateStore) -> None:
        """Load what holds the output watermark, so that it is known exactly; after steps."""
        self.load_holder(store)

    def load(self, store: StateStore, bundle: Bundle) -> None:
        """Load from the store what a bundle may touch; before the bundle's own step."""
        if self._spilled and len(bundle):
            _, keys = self._encode(bundle)
            self._spilled.load_touched(store, keys)

    def load_due(self, store: StateStore, to: int, right: int) -> SidesAdvance | None:
        """Load from the store a portion of what watermarks make due.

        Args:
            store: The store.
            to: The lower watermark of both sides.
            right: That of the right side.

        Returns:
            ``None`` if all is loaded, for the step to there; or a step to be made before, which
            deals with what is loaded.
        """
        spilled = self._spilled
        if not spilled:
            return None
        if to == END_OF_TIME:
            bound = self._load_last(store, spilled)
            return None if bound is None else SidesAdvance(bound, bound)
        bound = spilled.load_due(store, spilled.right_dues, right)
        if bound is not None:
            return SidesAdvance(self.watermark, bound)
        bound = spilled.load_due(store, spilled.dues, to)
        return None if bound is None else SidesAdvance(bound, right)

    def load_holder(self, store: StateStore) -> None:
        """Load from the store what holds the output watermark, if it is there; after a step."""
        while (spilled := self._spilled) and spilled.holds.first < (low := self._lowest_hold()):
            spilled.load_holder(store, low)

    def _lowest_hold(self) -> int:
        """Return the lowest time that what is in memory holds; the watermark if nothing does."""
        return self.watermark

    @property
    def _spilled(self) -> SpilledKeys | None:
        """What is in the store alone, if there is any."""
        return None if self._stored is None or not self._stored.spilled else self._stored.spilled

    def _load_last(self, store: StateStore, spilled: SpilledKeys) -> int | None:
        """Load a portion of what comes out as the input ends; have all else deleted.

        Returns:
            The watermark until which all that comes out has been loaded; ``None`` if that is all.
        """
        spilled.drop()
        return None

    def _restored(self, store: StateStore) -> dict[str, int] | None:
        """Load the records; return what was stored beside them, ``None`` if nothing was.

        Raises:
            StateError: What is stored is damaged, or of another layout.
        """
        if self._stored is None:
            raise InternalError("keep_in_store was not called")
        facts = self._stored.load(store)
        if facts is None:
            return None
        self.keys = self._stored.keys.keys
        self.watermark, self.clock = facts["watermark"], facts["clock"]
        self.output_watermark = facts["output watermark"]
        for number, side in enumerate(self.sides):
            self.readmitted(number, side.rebuild())
        self._stored.load_rest(store)
        return facts

    def encode_keys(self, columns: tuple[Column, ...]) -> tuple[KeyDictionary, Int64Array]:
        """Return the dictionary of keys, and the id of each."""
        if self.keys is None:
            self.keys = KeyDictionary(len(columns))
        return self.keys, self.keys.encode(columns)

    def _encode(self, bundle: Bundle) -> tuple[KeyDictionary, Int64Array]:
        """Return the keys, and the id of each element's."""
        dictionary, keys = self.encode_keys(bundle.keys)
        if self._stored is not None:
            self._stored.keys.use(dictionary)
            self._stored.touched(keys)
        return dictionary, keys

    def _finish(
        self,
        emitted: Emitted | None,
        late: LateBatch | None = None,
        queues: Sequence[Sequence[Deadlines]] = (),
    ) -> StageOutput:
        """Free what is removed, now that it is read, and return the output of a step.

        Args:
            emitted: What is emitted.
            late: What of the bundle is late.
            queues: Further queues of the rows of each side.
        """
        for number, side in enumerate(self.sides):
            side.release_removed()
            side.tidy(*(each[number] for each in queues))
        self._forget_keys()
        if emitted is None and late is None:
            return NOTHING
        return StageOutput(only(emitted), late=late)

    def _forget_keys(self, garbage: int = _GARBAGE) -> None:
        """Recycle the ids of keys without records, once most have none. Amortised."""
        if self.keys is None or len(self.keys) <= 2 * sum(map(len, self.sides)) + garbage:
            return
        every = np.arange(self.keys.capacity)
        kept = have_rows(every, [side.row_counts for side in self.sides])
        if self._stored is not None:
            self._stored.forget(kept)
        self.keys.retain(kept)

    def _check(self) -> None:
        """Assert what must hold between the records. O(records)."""
        for side in self.sides:
            side._check()
        if self._stored is not None:
            self._stored._check()


def unknown_record(bundle: Bundle, places: Int64Array, where: str) -> DataError:
    """Return the error for a retraction of a record that is not here."""
    at = places[:1]
    record = {name: column.take(at).to_list()[0] for name, column in bundle.values.items()}
    key = tuple(column.take(at).to_list()[0] for column in bundle.keys)
    return DataError(
        f"a record is retracted that never came: key {key[0] if len(key) == 1 else key!r}, "
        f"time {format_instant(int(bundle.times[at[0]]))}, {record!r}",
        where=where,
        hint="Whatever retracts must have emitted the same record with the same time before",
    )


def record_hashes(bundle: Bundle) -> Int64Array:
    """Return a hash of each record, int64: a null is like a column that is not there."""
    total = np.zeros(len(bundle), dtype=np.uint64)
    for name, column in bundle.values.items():
        hashes = _hashes(column)
        hashes = mixed([hashes.view(np.int64), np.full(len(bundle), _salt(name))])
        if column.valid is not None:
            hashes = np.where(column.valid, hashes, np.uint64(0))
        total += hashes
    return total.view(np.int64)


@lru_cache(maxsize=1_000)
def _salt(name: str) -> int:
    """Return a hash of a column's name, int64: a bundle of a few records has as many columns."""
    return int(hash_values([Column.of_objects([name])]).view(np.int64)[0])


def _hashes(column: Column) -> NDArray[np.uint64]:
    """Return a hash of each value; of nested ones by what they consist of."""
    kind = column.type
    if kind is None or not pa.types.is_nested(kind):
        try:
            return hash_values([column])
        except (TypeError, StateError):  # lists or dicts among Python objects
            pass
    return hash_values([Column.of_objects([_hashable(one) for one in column.to_list(exact=True)])])


def _hashable(value: Any) -> Any:
    """Return a nested value as tuples."""
    if isinstance(value, dict):
        parts = sorted(((str(name), _hashable(one)) for name, one in value.items()), key=_by_name)
        return ("dict", *parts)
    if isinstance(value, (list, tuple)):
        return ("list", *map(_hashable, value))
    if isinstance(value, (set, frozenset)):
        return frozenset(map(_hashable, value))
    return value


def _by_name(part: tuple[str, Any]) -> str:
    return part[0]
