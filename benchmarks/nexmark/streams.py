"""What the queries read: the events as three streams, of persons, auctions and bids."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, TypedDict, final

import pyarrow as pa

import lowwater as lw
from benchmarks.nexmark.events import AUCTION, BID, PERSON, Events

EURO = Decimal("0.908")
"""What a dollar is worth in euros."""
RANKS = {
    "total": None,
    "rank1": lw.col("price") < 10_000,
    "rank2": (lw.col("price") >= 10_000) & (lw.col("price") < 1_000_000),
    "rank3": lw.col("price") >= 1_000_000,
}
"""The ranks of a bid by its price, and none of them."""
SIDE_INPUT = pa.table({"key": range(10_000), "value": [str(one) for one in range(10_000)]})
"""A table that does not change, for q13."""


class WhileOpen(TypedDict):
    """Options of a join of auctions with the bids that are for them in time."""

    within: lw.Between
    allowed_lateness: str


class Standing(TypedDict):
    """Options of the global window, of which each bundle corrects what was emitted."""

    trigger: lw.Trigger
    accumulation: Literal["retracting"]


class Corrections(TypedDict):
    """Options of windows of which late events correct what was emitted."""

    accumulation: Literal["retracting"]
    allowed_lateness: str


@final
@dataclass(frozen=True, slots=True)
class Nexmark:
    """The streams, and what is known of them.

    Args:
        persons: New persons: ``id``, ``name``, ``email``, ``credit_card``, ``city``, ``state``.
        auctions: New auctions: ``id``, ``item_name``, ``description``, ``initial_bid``,
            ``reserve``, ``expires``, ``seller``, ``category``.
        bids: Bids: ``auction``, ``bidder``, ``price``, ``channel``, ``url``. Records of all three
            also have ``event`` (their number), ``date_time``, ``arrival`` and ``extra``.
        while_open: Options of a join of auctions with their bids: while they are open, how long
            that may be, and how late events may be.
        corrections: Options of windows: as late as events are, they count.
        standing: Options of the global window: after each bundle, what stands.
        folder: Where files are written.
    """

    persons: lw.Stream
    auctions: lw.Stream
    bids: lw.Stream
    while_open: WhileOpen
    corrections: Corrections
    standing: Standing
    folder: str

    @staticmethod
    def of(events: lw.Stream, made: Events, schema: pa.Schema, folder: str) -> Nexmark:
        """Return the three streams of one.

        Args:
            events: The columns of ``Events.table()``.
            made: How they were made.
            schema: The types of the columns.
            folder: Where files are written.
        """

        def only(kind: int, struct: str) -> lw.Stream:
            field = lw.col(struct).struct.field
            columns: dict[str, Any] = {
                one.name: field(one.name) for one in schema.field(struct).type
            }
            of_kind = events.filter(lw.col("event_type") == kind)
            return of_kind.select("event", "date_time", "arrival", **columns)

        return Nexmark(
            only(PERSON, "person"),
            only(AUCTION, "auction"),
            only(BID, "bid"),
            WhileOpen(
                within=lw.between("0s", "expires", longest=made.longest_auction),
                allowed_lateness=made.lateness,
            ),
            Corrections(accumulation="retracting", allowed_lateness=made.lateness),
            Standing(trigger=lw.Always(), accumulation="retracting"),
            folder,
        )
