"""Drops records whose id was seen before, for as long as the id is remembered (S-D1).

The first record with an id is kept, and the id is remembered until the watermark reaches that
record's event time plus ``within``. Until then every other record with the id is a duplicate,
whatever its own event time; after that the next one is a first record again. A record so late that
its id would expire at once is kept and not remembered.

The set of ids is exact. Without a state directory it is held in memory, as columns; with one it is
in the store, in sorted pages behind Bloom filters (:mod:`lowwater.state.id_set`). A lookup in
RocksDB takes thousands of nanoseconds, so the filters save nearly all of them, for about four bytes
per id. The columns take about fifty bytes per id, and text several times that.

An id is encoded as bytes that are equal if and only if the values are equal in Python: a tag and a
value. ``i`` is an int of 64 bits, ``r`` another number, ``s`` text, ``b`` bytes; ``z``, ``n``,
``d``, ``h`` and ``u`` are an instant with and without a time zone, a date, a time of day and a
duration; ``x`` is anything else that can be stored. Several columns are joined, each part after its
length.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction
from typing import Any, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lowwater.engine.records.columns import Column
from lowwater.engine.records.keys import KeyDictionary
from lowwater.errors import InternalError, InvalidArgument, describe
from lowwater.state.arrays import NONE, widened
from lowwater.state.codec import decode, encode
from lowwater.state.formats import FORMATS, check_format, damaged, decoding
from lowwater.state.id_columns import IdColumns
from lowwater.state.id_set import StoredIds
from lowwater.state.key_layout import StoredPlace, encode_int64
from lowwater.state.store import Batch, StateStore
from lowwater.time import (
    END_OF_TIME,
    START_OF_TIME,
    DurationLike,
    Int64Array,
    as_micros,
    format_duration,
    meant,
    saturating_add_array,
)
from lowwater.windows._base import positive_duration

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_DAY_MS = 86_400_000
_YEAR_2000 = dt.datetime(2000, 1, 1, tzinfo=dt.UTC)
_FAR = 10_000
"""The exponent beyond which a decimal is encoded by its digits."""


def id_bytes(columns: tuple[Column, ...]) -> list[bytes]:
    """Encode each row's id as bytes; no value is null. O(n), vectorised for ints and text."""
    parts = [_part(column) for column in columns]
    if len(parts) == 1:
        return parts[0]
    return [
        b"".join(len(part).to_bytes(4) + part for part in row) for row in zip(*parts, strict=True)
    ]


def id_columns(columns: tuple[Column, ...]) -> IdColumns:
    """Encode each row's id as :func:`id_bytes` does, as columns. O(n)."""
    if len(columns) == 1 and (packed := _fixed(columns[0])) is not None:
        return IdColumns.fixed(packed)
    return IdColumns.of(id_bytes(columns))


def _part(column: Column) -> list[bytes]:
    arrow, kind = column.arrow, column.type
    if arrow is not None and pa.types.is_dictionary(arrow.type):
        arrow = arrow.dictionary_decode()
        column = Column.from_arrow(arrow)
        kind = arrow.type
    if arrow is not None and (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        wide = pa.large_binary() if pa.types.is_large_string(kind) else pa.binary()
        return [b"s" + text for text in arrow.cast(wide).to_pylist()]
    packed = _fixed(column)
    if packed is not None:
        rows: list[Any] = packed.view(np.dtype((np.void, packed.shape[1]))).reshape(-1).tolist()
        return rows
    return [_one(value) for value in column.to_list()]


def _fixed(column: Column) -> NDArray[np.uint8] | None:
    """Return the ids of a column if all have one length, uint8, shape (n, length)."""
    kind = column.type
    if kind is not None and (pa.types.is_dictionary(kind) or pa.types.is_large_string(kind)):
        return None
    if kind is not None and pa.types.is_string(kind):
        return None
    data = column.data
    if data.dtype == np.bool_:
        data = data.astype(np.int64)
    if data.dtype != np.int64:
        return None
    if kind is not None and pa.types.is_temporal(kind):
        return _temporal(data, kind)
    return _packed(b"i", data)


def _temporal(data: Int64Array, kind: pa.DataType) -> NDArray[np.uint8]:
    if pa.types.is_date(kind):
        return _packed(b"d", data if pa.types.is_date32(kind) else data // _DAY_MS)
    per_second = _PER_SECOND[kind.unit]
    seconds, rest = np.divmod(data, per_second)
    if pa.types.is_timestamp(kind):
        tag = b"n" if kind.tz is None else b"z"
    else:
        tag = b"h" if pa.types.is_time(kind) else b"u"
    return _packed(tag, seconds, rest * (10**9 // per_second))


def _packed(tag: bytes, *columns: Int64Array) -> NDArray[np.uint8]:
    width = 1 + 8 * len(columns)
    packed = np.empty((len(columns[0]), width), dtype=np.uint8)
    packed[:, 0] = tag[0]
    for at, column in enumerate(columns):
        packed[:, 1 + 8 * at : 9 + 8 * at] = encode_int64(column)
    return packed


def _one(value: Any) -> bytes:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str):
        return b"s" + value.encode("utf-8", "surrogatepass")
    if isinstance(value, bytes):
        return b"b" + value
    if isinstance(value, (int, float, Decimal, Fraction)):
        return _number(value)
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        try:
            value = value.astimezone(dt.UTC)
        except OverflowError:  # before the year 1 or after 9999 in UTC
            local = value.replace(tzinfo=dt.UTC, fold=0) - _YEAR_2000
            value = [(local - (value.utcoffset() or dt.timedelta())) // dt.timedelta.resolution]
    elif isinstance(value, dt.datetime):
        value = value.replace(fold=0)  # equal whatever it is
    elif isinstance(value, dt.time):
        zone = None if value.utcoffset() is None else value.tzinfo
        value = value.replace(fold=0, tzinfo=zone)
    return b"x" + encode(value)


def _number(value: float | Decimal | Fraction) -> bytes:
    if isinstance(value, Decimal) and value.is_finite() and abs(value.adjusted()) > _FAR:
        # Its ratio would have so many digits; no number but a decimal is equal to it.
        exact = Context(prec=len(value.as_tuple().digits), Emax=MAX_EMAX, Emin=MIN_EMIN)
        return b"r" + encode(str(value.normalize(exact)))
    try:
        over, under = value.as_integer_ratio()
    except OverflowError:  # it is infinite
        return b"r+" if value > 0 else b"r-"
    if under == 1 and -(2**63) <= over < 2**63:
        return b"i" + (over + 2**63).to_bytes(8)
    return b"r" + encode([over, under])


Mask = NDArray[np.bool_]

FORMAT = "record ids"
IDS, IDS_FACTS = 32, 33
"""Tags of the tables of record ids, beside those of the stage they are read for."""


@final
@dataclass(frozen=True, slots=True, repr=False)
class Deduplication:
    """Defines duplicates: records whose id was seen within a period of event time.

    Args:
        id: The column of ids, or several columns that form one id.
        within: How long an id is remembered after its first record, in event time, measured by
            the watermark; above zero.

    >>> Deduplication(("a", "b"), "1h")
    Deduplication(('a', 'b'), '1h')
    """

    id: str | tuple[str, ...]
    within: DurationLike

    def __post_init__(self) -> None:
        names = (self.id,) if isinstance(self.id, str) else self.id
        if not (
            isinstance(names, (tuple, list))
            and names
            and all(isinstance(name, str) for name in names)
            and len(set(names)) == len(names)
        ):
            raise InvalidArgument(
                f"{describe('id', self.id)} must name a column, or several different ones",
                where="deduplicate",
                hint='Write deduplicate(id="order_id", within="1h")',
            )
        object.__setattr__(self, "id", tuple(names))
        object.__setattr__(self, "within", meant(positive_duration(self.within, "within")))

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns that make up an id."""
        return (self.id,) if isinstance(self.id, str) else self.id

    @property
    def within_us(self) -> int:
        """How long an id is remembered, int microseconds."""
        return as_micros(self.within)

    def __repr__(self) -> str:
        names = self.columns
        shown = repr(names[0] if len(names) == 1 else names)
        return f"Deduplication({shown}, {format_duration(self.within_us)!r})"


@final
class Deduplicator:
    """Separates first records from duplicates by id (S-D1).

    Args:
        deduplication: What the ids are, and how long they are remembered.
    """

    def __init__(self, deduplication: Deduplication) -> None:
        self._within = deduplication.within_us
        self.watermark = START_OF_TIME
        self._memory = _IdsInMemory(len(deduplication.columns))
        self._stored: StoredIds | None = None
        self._facts = b""

    def __len__(self) -> int:
        """Return the number of ids held, some expired: at most about twice the live ones."""
        return len(self._memory) if self._stored is None else len(self._stored)

    def step(self, ids: tuple[Column, ...], times: Int64Array) -> Mask:
        """Return which elements of a bundle are first records rather than duplicates.

        While the watermark does not move, the result does not depend on how elements are split
        into bundles.

        Args:
            ids: The id columns, each of length n, without nulls.
            times: Event times, int64 microseconds, shape (n,).

        Returns:
            bool, shape (n,). O(n) expected; stored ids that pass the filter are looked up.
        """
        if not len(times):
            return np.ones(0, dtype=np.bool_)
        expiry = saturating_add_array(times, self._within)
        if self._stored is None:
            return self._memory.step(ids, expiry, self.watermark)
        return _step_stored(self._stored, id_columns(ids), expiry, self.watermark)

    def advance(self, watermark: int) -> None:
        """Forget ids that the watermark has passed. Amortised O(1).

        An earlier watermark changes nothing.
        """
        if watermark <= self.watermark:
            return
        self.watermark = watermark
        if self._stored is None:
            self._memory.forget(watermark)
        else:
            self._stored.forget(watermark)

    def keep_in_store(self, place: StoredPlace) -> None:
        """Keep ids in a store. Call it before the first step, and :meth:`restore` after it.

        They are in the first key group: a duplicate may come with another key.

        Args:
            place: Where: the name of the stage, and the key groups.
        """
        self._stored = StoredIds(place.prefix(IDS), self._within)
        self._facts = place.prefix(IDS_FACTS)

    def save(self, batch: Batch) -> None:
        """Add the changes since the last save to a batch, to be committed before the next step."""
        self._kept().save(batch, self.watermark)
        batch.put([self._facts], [encode({"layout": FORMATS[FORMAT], "watermark": self.watermark})])

    def restore(self, store: StateStore) -> bool:
        """Restore what was saved in a store, if anything, and use the store from now on.

        Returns:
            Whether anything was saved there.

        Raises:
            StateError: The stored data is damaged or has another layout.
        """
        (data,) = store.get([self._facts])
        if data is not None:
            with decoding("stored record ids"):
                facts = decode(data)
                check_format(FORMAT, facts["layout"])
                self.watermark = facts["watermark"]
                if type(self.watermark) is not int:
                    raise damaged("stored record ids", f"the watermark is {self.watermark!r}")
        self._kept().restore(store, self.watermark)
        return data is not None

    def _kept(self) -> StoredIds:
        if self._stored is None:
            raise InternalError("keep_in_store was not called")
        return self._stored


@final
class _IdsInMemory:
    """Ids as codes of a key dictionary, with the expiry of each code as a column."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._keys = KeyDictionary(count)
        self._expiry: Int64Array = np.full(64, START_OF_TIME, dtype=np.int64)
        self._first: Int64Array = np.empty(64, dtype=np.int64)
        self._look_at = END_OF_TIME

    def __len__(self) -> int:
        return len(self._keys)

    def step(self, ids: tuple[Column, ...], expiry: Int64Array, watermark: int) -> Mask:
        codes = self._keys.encode(ids)
        self._cover()
        kept = self._expiry[codes] <= watermark
        lasting = expiry > watermark
        able = np.flatnonzero(kept & lasting)
        # Index of each id's first element. Assigned in reverse, so that of several elements with
        # one id the first assignment wins.
        self._first[codes] = len(codes)
        self._first[codes[able[::-1]]] = able[::-1]
        kept &= np.arange(len(codes)) <= self._first[codes]
        new = np.flatnonzero(kept & lasting)
        self._expiry[codes[new]] = expiry[new]
        if self._look_at == END_OF_TIME:
            self._look_at = _middle(expiry[new]) if new.size else watermark + 1
        return kept

    def forget(self, watermark: int) -> None:
        """Release expired ids once about half of the ids have expired.

        ``_look_at`` is the median expiry at the last release. Waiting for it makes the cost of a
        full pass proportional to the number of ids it releases.
        """
        if watermark < self._look_at:
            return
        live = self._expiry > watermark
        left = np.flatnonzero(live)
        expiry = self._expiry[left]
        if 4 * len(left) < len(live):  # mostly empty: rebuild, so that memory shrinks too
            ids = self._keys.decode(left) if len(left) else None
            self.__init__(self._count)
            left = NONE if ids is None else self._keys.encode(ids)
            self._cover()
        else:
            self._keys.retain(live)
            self._expiry[~live] = START_OF_TIME
        self._expiry[left] = expiry
        self._look_at = _middle(expiry) if len(left) else END_OF_TIME

    def _cover(self) -> None:
        need = self._keys.capacity
        if need > len(self._expiry):
            room = max(need, 2 * len(self._expiry))
            self._expiry = widened(self._expiry, room, START_OF_TIME)
            self._first = np.empty(room, dtype=np.int64)


def _middle(values: Int64Array) -> int:
    half = len(values) // 2
    return int(np.partition(values, half)[half])


def _step_stored(seen: StoredIds, ids: IdColumns, expiry: Int64Array, watermark: int) -> Mask:
    ids, order = ids.sorted()
    expiry = expiry[order]
    kept = ~seen.known(ids, watermark)
    lasting = expiry > watermark
    same = ids.hashes[1:] == ids.hashes[:-1]
    if same.any():  # the same id several times, or ids whose hashes collide
        again = np.zeros(len(ids), dtype=np.bool_)
        again[1:] |= same
        again[:-1] |= same
        new: set[bytes] = set()
        for place in np.flatnonzero(again & kept).tolist():  # of one id in order of arrival
            each = ids[place]
            if each in new:
                kept[place] = False
            elif lasting[place]:
                new.add(each)
    lasting &= kept
    if lasting.all():
        seen.add(ids, expiry, watermark)
    else:
        rows = np.flatnonzero(lasting)
        seen.add(ids.take(rows), expiry[rows], watermark)
    first = np.empty(len(ids), dtype=np.bool_)
    first[order] = kept
    return first
