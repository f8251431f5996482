"""The events of an auction house, as one table in the order in which they arrive.

Proportions, ranges and what is "hot" follow the generator of https://github.com/nexmark/nexmark
(``NexmarkConfiguration`` and ``generator/model``), which continues that of Apache Beam
(``NexmarkConfiguration.DEFAULT``): of 50 events one is a new person, 3 are auctions, 46 are bids.
Half of the bids go to the newest hot auction, one in 100; three quarters of them come from the
newest hot bidder, and three quarters of the auctions from the newest hot seller, each one person in
100. The others choose among the last 100 auctions and 1,000 persons, or up to ten that are yet to
come. Two things differ: every column is drawn at once instead of event by event, so the values of a
seed are others; and a bidder's id is a person's id (that generator adds the first id twice).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import lowwater as lw
from benchmarks.nexmark.text import chosen, padding, words

PERSON, AUCTION, BID = 0, 1, 2
"""The values of ``event_type``."""

FIRST_ID = 1_000
FIRST_CATEGORY = 10
_PERSONS, _AUCTIONS, _ALL = 1, 3, 50
_CATEGORIES = 5
_HOT_AUCTION, _HOT_SELLER, _HOT_BIDDER, _HOT_CHANNEL = 2, 4, 4, 2
_HOT_EVERY = 100
_OPEN_AUCTIONS, _ACTIVE_PERSONS, _LEAD = 100, 1_000, 10
_CHANNELS = 10_000
_PERSON_BYTES, _AUCTION_BYTES, _BID_BYTES = 200, 500, 100
_UTC = pa.timestamp("us", "UTC")

_Numbers: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]


@final
@dataclass(frozen=True, slots=True)
class Events:
    """What to make; the same values make the same events.

    Args:
        count: How many events.
        seed: Of the random numbers.
        per_second: Events in each second of event time.
        start: When the first event happens.
        out_of_order: How much later than it happens an event may arrive at most: each one arrives
            up to that much later.
        late: Share of the events, 0 to 1, that arrive later than ``out_of_order`` allows.
        later: By how much these exceed it, at most.
    """

    count: int
    seed: int = 1
    per_second: int = 10_000
    start: str = "2015-07-15T00:00:00Z"
    out_of_order: str = "0s"
    late: float = 0.0
    later: str = "5s"

    @property
    def lateness(self) -> str:
        """How far below the watermark an event may be: with that lateness allowed, all count."""
        return self.later if self.late else "0s"

    @property
    def longest_auction(self) -> int:
        """How long an auction may last, in microseconds."""
        return 2 * self._horizon_ms * 1_000

    @property
    def _horizon_ms(self) -> int:
        """How long it takes until 100 more auctions have begun; auctions last so on average."""
        return max(_OPEN_AUCTIONS * _ALL // _AUCTIONS * 1_000 // self.per_second, 1)

    def table(self) -> pa.Table:
        """Return the events, in order of arrival.

        Columns: ``event`` (int64, from 0 in order of event time), ``event_type``, ``date_time`` and
        ``arrival`` (timestamp[us, UTC], in milliseconds), and ``person``, ``auction`` and ``bid``
        (structs, of which two are null).
        """
        random = np.random.default_rng(self.seed)
        number = np.arange(self.count, dtype=np.int64)
        place = number % _ALL
        kind = np.where(
            place < _PERSONS, PERSON, np.where(place < _PERSONS + _AUCTIONS, AUCTION, BID)
        ).astype(np.int64)
        time_ms = lw.instant(self.start) // 1_000 + number * 1_000 // self.per_second
        arrival_ms = time_ms + self._delays_ms(random)
        makers = (self._persons, self._auctions, self._bids)
        structs = []
        for one, make in enumerate(makers):
            mine = kind == one
            made = make(random, number[mine], time_ms[mine])
            at = pa.array(np.cumsum(mine) - 1, mask=~mine)
            structs.append(made.take(at))
        order = np.argsort(arrival_ms, kind="stable")
        columns = {
            "event": pa.array(number),
            "event_type": pa.array(kind),
            "date_time": _times(time_ms),
            "arrival": _times(arrival_ms),
            **dict(zip(("person", "auction", "bid"), structs, strict=True)),
        }
        table = pa.table(columns)
        return table.take(pa.array(order)) if (np.diff(order) < 0).any() else table

    def _delays_ms(self, random: np.random.Generator) -> _Numbers:
        usual, more = (lw.duration(one) // 1_000 for one in (self.out_of_order, self.later))
        delays = random.integers(0, usual + 1, self.count)
        too_late = random.random(self.count) < self.late
        return np.where(too_late, usual + random.integers(1, more + 1, self.count), delays)

    def _persons(
        self, random: np.random.Generator, number: _Numbers, time_ms: _Numbers
    ) -> pa.StructArray:
        count = len(number)
        card = random.integers(0, 10_000, (4, count))
        fields = {
            "id": pa.array(_last_person(number) + FIRST_ID),
            "name": pc.binary_join_element_wise(
                chosen(random, count, _FIRST_NAMES), chosen(random, count, _LAST_NAMES), " "
            ),
            "email": pc.binary_join_element_wise(
                words(random, count, 7), "@", words(random, count, 5), ".com", ""
            ),
            "credit_card": pc.binary_join_element_wise(
                *(pa.array(_FOUR_DIGITS).take(pa.array(part)) for part in card), " "
            ),
            "city": chosen(random, count, _CITIES),
            "state": chosen(random, count, _STATES),
        }
        return _filled(random, fields, 8, _PERSON_BYTES)

    def _auctions(
        self, random: np.random.Generator, number: _Numbers, time_ms: _Numbers
    ) -> pa.StructArray:
        count = len(number)
        initial = _prices(random, count)
        length_ms = 1 + random.integers(0, 2 * self._horizon_ms, count)
        hot = random.integers(0, _HOT_SELLER, count) > 0
        newest = _last_person(number) // _HOT_EVERY * _HOT_EVERY
        fields = {
            "id": pa.array(_last_auction(number) + FIRST_ID),
            "item_name": words(random, count, 20),
            "description": words(random, count, 100),
            "initial_bid": pa.array(initial),
            "reserve": pa.array(initial + _prices(random, count)),
            "expires": _times(time_ms + length_ms),
            "seller": pa.array(np.where(hot, newest, _any_person(random, number)) + FIRST_ID),
            "category": pa.array(FIRST_CATEGORY + random.integers(0, _CATEGORIES, count)),
        }
        return _filled(random, fields, 48, _AUCTION_BYTES)

    def _bids(
        self, random: np.random.Generator, number: _Numbers, time_ms: _Numbers
    ) -> pa.StructArray:
        count = len(number)
        hot_auction = random.integers(0, _HOT_AUCTION, count) > 0
        newest = _last_auction(number) // _HOT_EVERY * _HOT_EVERY
        hot_bidder = random.integers(0, _HOT_BIDDER, count) > 0
        second = _last_person(number) // _HOT_EVERY * _HOT_EVERY + 1  # the first one is the seller
        channels, urls = _channels(random)
        hot_channel = random.integers(0, _HOT_CHANNEL, count) > 0
        channel = pa.array(
            np.where(
                hot_channel,
                random.integers(0, len(_HOT_CHANNELS), count),
                len(_HOT_CHANNELS) + random.integers(0, _CHANNELS, count),
            )
        )
        fields = {
            "auction": pa.array(
                np.where(hot_auction, newest, _any_auction(random, number)) + FIRST_ID
            ),
            "bidder": pa.array(
                np.where(hot_bidder, second, _any_person(random, number)) + FIRST_ID
            ),
            "price": pa.array(_prices(random, count)),
            "channel": channels.take(channel),
            "url": urls.take(channel),
        }
        extra = padding(random, np.full(count, 32), _BID_BYTES)
        return pa.StructArray.from_arrays([*fields.values(), extra], [*fields, "extra"])


def _last_person(number: _Numbers) -> _Numbers:
    """The number of the person that was the newest at each event."""
    return number // _ALL


def _last_auction(number: _Numbers) -> _Numbers:
    """The number of the auction that was the newest at each event; -1 before the first."""
    begun = np.clip(number % _ALL - _PERSONS + 1, 0, _AUCTIONS)
    return number // _ALL * _AUCTIONS + begun - 1


def _any_person(random: np.random.Generator, number: _Numbers) -> _Numbers:
    """One of the last persons, or of those to come."""
    persons = _last_person(number) + 1
    active = np.minimum(persons, _ACTIVE_PERSONS)
    return persons - active + random.integers(0, active + _LEAD)


def _any_auction(random: np.random.Generator, number: _Numbers) -> _Numbers:
    """One of the last auctions, or of those to come."""
    last = _last_auction(number)
    first = np.maximum(last - _OPEN_AUCTIONS, 0)
    return first + random.integers(0, last - first + 1 + _LEAD)


def _prices(random: np.random.Generator, count: int) -> _Numbers:
    """Prices in cents, from 1 to a million dollars, the logarithm of which is uniform."""
    return np.round(10.0 ** (random.random(count) * 6.0) * 100.0).astype(np.int64)


def _channels(random: np.random.Generator) -> tuple[pa.Array, pa.Array]:
    """All channels, hot ones first, and the URL of each."""
    count = len(_HOT_CHANNELS) + _CHANNELS
    url = pc.binary_join_element_wise(
        "https://www.nexmark.com", *(words(random, count, 5, "_") for _ in range(3)),
        "item.htm?query=1", "/",
    )  # fmt: skip
    names = [*_HOT_CHANNELS, *(f"channel-{one}" for one in range(_CHANNELS))]
    numbered = random.integers(0, 10, count) > 0
    numbered[: len(_HOT_CHANNELS)] = False
    ids = random.permutation(2**31 - 1 - np.arange(count) * 104_729)
    suffix = [f"&channel_id={one}" if has else "" for one, has in zip(ids, numbered, strict=True)]
    return pa.array(names), pc.binary_join_element_wise(url, pa.array(suffix), "")


def _filled(
    random: np.random.Generator, fields: dict[str, Any], numbers: int, size: int
) -> pa.StructArray:
    """Return records with ``extra``, which brings them to their size in bytes on average."""
    used = np.full(len(fields["id"]), numbers)
    for values in fields.values():
        if pa.types.is_string(values.type):
            used = used + pc.binary_length(values).to_numpy(zero_copy_only=False)
    extra = padding(random, used, size)
    return pa.StructArray.from_arrays([*fields.values(), extra], [*fields, "extra"])


def _times(milliseconds: _Numbers) -> pa.Array:
    return pa.array(milliseconds * 1_000).cast(_UTC)


_FIRST_NAMES = [
    "Peter",
    "Paul",
    "Luke",
    "John",
    "Saul",
    "Vicky",
    "Kate",
    "Julie",
    "Sarah",
    "Deiter",
    "Walter",
]
_LAST_NAMES = [
    "Shultz",
    "Abrams",
    "Spencer",
    "White",
    "Bartels",
    "Walton",
    "Smith",
    "Jones",
    "Noris",
]
_CITIES = [
    "Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle",
    "Kent", "Cheyenne",
]  # fmt: skip
_STATES = ["AZ", "CA", "ID", "OR", "WA", "WY"]
_HOT_CHANNELS = ["Google", "Facebook", "Baidu", "Apple"]
_FOUR_DIGITS = [f"{one:04}" for one in range(10_000)]
