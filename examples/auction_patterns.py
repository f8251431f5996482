"""Patterns in the events of an auction house: those of Nexmark, out of order.

    python -m examples.auction_patterns

Nexmark's own queries have no patterns. These four read its persons, auctions and bids. Events
arrive up to five seconds late here, and the answers are those of their order in event time.
"""

import lowwater as lw
from benchmarks.nexmark.events import Events
from benchmarks.nexmark.measuring import streams_of
from benchmarks.nexmark.streams import Nexmark


def rising(n: Nexmark) -> lw.MatchedStream:
    """Find three bids for an auction that follow a bid, each twice the one before."""
    return n.bids.key_by("auction").match(
        "bid doubled{3}",
        define={"doubled": lw.col("price") >= 2 * lw.prev("price")},
        measures={"low": lw.first("price"), "high": lw.last("price")},
        within="1m",
    )


def newcomers(n: Nexmark) -> lw.MatchedStream:
    """Find who opens an auction within ten seconds of registering."""
    joined = n.persons.select("id", person=lw.col("id"), what=lw.lit("joined"))
    opened = n.auctions.select("id", person=lw.col("seller"), what=lw.lit("opened"))
    return (joined | opened).key_by("person").match(
        "joined .. opened",
        define={what: lw.col("what") == what for what in ("joined", "opened")},
        measures={"auction": lw.last("id")},
        within="10s",
    )  # fmt: skip


def unwanted(n: Nexmark) -> lw.MatchedStream:
    """Find auctions for which nobody bids in their first half minute."""
    opened = n.auctions.select(auction=lw.col("id"), what=lw.lit("opened"))
    bids = n.bids.select("auction", what=lw.lit("bid"))
    return (opened | bids).key_by("auction").match(
        "opened",
        define={"opened": lw.col("what") == "opened"},
        without=lw.absent(lw.col("what") == "bid", within="30s"),
    )  # fmt: skip


def stubborn(n: Nexmark) -> lw.MatchedStream:
    """Find who is outbid twice in an auction, and bids more at once each time."""
    is_more = lw.col("price") > lw.prev("price")
    return n.bids.key_by("auction").match(
        "bid (outbid back){2}",
        define={
            "outbid": is_more & (lw.col("bidder") != lw.prev("bidder")),
            "back": is_more & (lw.col("bidder") == lw.prev("bidder", 2)),
        },
        measures={"bidder": lw.first("bidder"), "from": lw.first("price"), "to": lw.last("price")},
        within="1m",
    )


QUERIES = (rising, newcomers, unwanted, stubborn)


def auction_house(count: int) -> Nexmark:
    """Return the streams of some events, ten a second."""
    events = Events(count, per_second=10, out_of_order="5s")
    return streams_of(events, events.table(), "")


def main() -> None:
    house = auction_house(20_000)
    for query in QUERIES:
        found = query(house).collect().elements()
        print(f"{query.__name__}: {len(found)}, the first one at {found[0].timestamp}:")
        print(f"    {found[0].key}", *list(found[0].value.values())[2:])


if __name__ == "__main__":
    main()
