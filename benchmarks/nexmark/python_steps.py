"""What queries do in Python, a record at a time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from heapq import nlargest
from typing import Any

import lowwater as lw

Record = dict[str, Any]


class Top:
    def __init__(self, count: int) -> None:
        self.count = count

    def create_accumulator(self) -> list[Record]:
        return []

    def add_input(self, accumulator: list[Record], value: Record) -> list[Record]:
        return self.merge_accumulators([accumulator, [value]])

    def merge_accumulators(self, accumulators: Iterable[list[Record]]) -> list[Record]:
        every = (value for one in accumulators for value in one)
        return nlargest(
            self.count, every, key=lambda bid: (bid["price"], -bid["date_time"].timestamp())
        )

    def extract_output(self, accumulator: list[Record]) -> list[Record]:
        return accumulator


class LastMean:
    def __init__(self, count: int) -> None:
        self.count = count

    def create_accumulator(self) -> list[Any]:
        return []

    def add_input(self, accumulator: list[Any], value: Any) -> list[Any]:
        return [*accumulator, value]

    def merge_accumulators(self, accumulators: Iterable[list[Any]]) -> list[Any]:
        return [value for one in accumulators for value in one]

    def remove_input(self, accumulator: list[Any], value: Any) -> list[Any]:
        kept = list(accumulator)
        kept.remove(value)
        return kept

    def extract_output(self, accumulator: list[Any]) -> float | None:
        last = nlargest(self.count, accumulator, key=lambda sale: (sale[0], -sale[1]))
        return sum(price for *_, price in last) / len(last) if last else None


def places(pane: Record) -> Iterator[Record]:
    for at, bid in enumerate(pane["top"]):
        yield {**pane, **bid, "rank_number": at + 1}


def sale(won: Record) -> Record:
    """When an auction was won, and at what price."""
    at = (won["date_time_right"], won["id"], won["price"])
    return {"id": won["id"], "seller": won["seller"], "sale": at}


HOURS = {
    hour: "dayTime" if 8 <= hour <= 18 else "nightTime" if hour <= 6 or hour >= 20 else "otherTime"
    for hour in range(24)
}


def with_ranks(bid: Record) -> Record:
    price = bid["price"]
    rank = 1 if price < 10_000 else 2 if price < 1_000_000 else 3
    for one in (1, 2, 3):
        bid = {
            **bid,
            f"auction{one}": bid["auction"] if rank == one else None,
            f"bidder{one}": bid["bidder"] if rank == one else None,
            f"rank{one}": int(rank == one),
        }
    return bid


_KNOWN = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}


def channel_id(bid: Record) -> Record:
    found = re.search("(&|^)channel_id=([^&]*)", bid["url"])
    return {**bid, "channel_id": _KNOWN.get(bid["channel"].lower(), found and found[2])}


STATISTICS = {
    "total_bids": lw.count(),
    "total_bidders": lw.count_distinct("bidder"),
    "total_auctions": lw.count_distinct("auction"),
    **{f"rank{one}_bids": lw.sum(f"rank{one}") for one in (1, 2, 3)},
    **{f"rank{one}_bidders": lw.count_distinct(f"bidder{one}") for one in (1, 2, 3)},
    **{f"rank{one}_auctions": lw.count_distinct(f"auction{one}") for one in (1, 2, 3)},
}
