"""The queries q0 to q22 of Nexmark, each one function of the streams.

Every query gives the answer over all events, whatever their order and however late they are:
tables and joins of tables take events of any time, and windows allow as much lateness as the events
have, and retract what a late event corrects. The SQL of each is at
https://github.com/nexmark/nexmark; docstrings say where this differs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any, TypeAlias

import pyarrow.parquet as pq

import lowwater as lw
from benchmarks.nexmark.streams import EURO, RANKS, SIDE_INPUT, Nexmark
from lowwater.io.sinks import Callback, Delivery
from lowwater.pipeline.outputs import Writing

Answer: TypeAlias = "lw.Stream | lw.Pipeline | lw.JoinedStream | lw.Table[lw.Stream] | Writing"

_CHANNEL_ID = "(&|^)channel_id=([^&]*)"


def q0(n: Nexmark) -> Answer:
    """Pass through: what it costs to read bids and to hand them on."""
    return n.bids.select("auction", "bidder", "price", "date_time", "extra")


def q1(n: Nexmark) -> lw.Stream:
    """Currency: each bid in euros, exactly, in decimals."""
    euros = n.bids.with_columns(price=lw.lit(EURO) * lw.col("price"))
    return euros.select("auction", "bidder", "price", "date_time", "extra")


def q2(n: Nexmark) -> Answer:
    """Selection: the bids for some auctions."""
    return n.bids.filter(lw.col("auction") % 123 == 0).select("auction", "price")


def q3(n: Nexmark) -> Answer:
    """Local item suggestion: who sells what in category 10 in three states."""
    items = n.auctions.filter(lw.col("category") == 10).select("id", "seller").table(key="id")
    people = n.persons.filter(lw.col("state").is_in(["OR", "ID", "CA"])).table(key="id")
    sellers = people.select("id", "name", "city", "state")
    return items.join(sellers, left_on="seller", right_on="id").select(
        "name", "city", "state", "id"
    )


def q4(n: Nexmark) -> Answer:
    """Average price for a category: the mean of the winning bids of its auctions."""
    return _winning(n).group_by("category").aggregate(final=lw.mean("price"))


def q5(n: Nexmark) -> Answer:
    """Hot items: the auctions with the most bids in the last 10 seconds, every 2 seconds."""
    recent = n.bids.key_by("auction").window(lw.SlidingWindows("10s", "2s"), **n.corrections)
    counts = recent.aggregate(num=lw.count()).key_by(end=lw.col("window_end"))
    hop = counts.window(lw.FixedWindows("2s"), accumulation="retracting")  # one window ends in it
    most = hop.aggregate(hot=lw.top(1, by="num", keep="auction", with_ties=True)).explode("hot")
    hot = lw.col("hot").struct.field
    return most.select("end", auction=hot("auction"), num=hot("num"))


def q6(n: Nexmark) -> Answer:
    """Average selling price by seller, over the last ten auctions that someone won.

    As Beam has it, and one row for each seller. (The SQL text has a row for each auction too, and
    takes eleven; Flink cannot run it.) The last ones are those whose winning bids came last.
    """
    last = _winning(n).top(10, per="seller", by="date_time_right", rank="nth")
    return last.group_by("seller").aggregate(average=lw.mean("price"))


def q7(n: Nexmark) -> Answer:
    """Highest bid of each 10 seconds, with all bids of that price."""
    every = n.bids.key_by(all=lw.lit("all")).window(lw.FixedWindows("10s"), **n.corrections)
    fields = ("auction", "bidder", "price", "date_time", "extra")
    highest = every.aggregate(bid=lw.top(1, by="price", keep=fields, with_ties=True))
    return highest.explode("bid").select(**{one: lw.col("bid").struct.field(one) for one in fields})


def q8(n: Nexmark) -> Answer:
    """Monitor new users: who opened an auction in the 10 seconds in which they came."""
    new = n.persons.join(
        n.auctions, left_on="id", right_on="seller", within=lw.FixedWindows("10s"), how="semi",
        **n.corrections,
    )  # fmt: skip
    return new.select("id", "name", "window_start")


def q9(n: Nexmark) -> Answer:
    """Winning bids: of each auction the highest one while it was open, the earliest if several."""
    return _winning(n)


def q10(n: Nexmark) -> Answer:
    """Log to files: the bids, in a folder for each day and minute."""
    day, minute = (lw.col("date_time").dt.to_string(form) for form in ("%Y-%m-%d", "%H:%M"))
    bids = n.bids.select("auction", "bidder", "price", "date_time", "extra", dt=day, hm=minute)

    def write(part: Delivery) -> None:
        pq.write_to_dataset(part.panes, n.folder, partition_cols=["dt", "hm"])

    return bids.write_to(Callback(write))


def q11(n: Nexmark) -> Answer:
    """User sessions: how many bids each bidder makes until 10 seconds pass without one."""
    sessions = n.bids.key_by("bidder").window(lw.Sessions("10s"), **n.corrections)
    return sessions.aggregate(bid_count=lw.count())


def q12(n: Nexmark) -> Answer:
    """Processing-time windows: how many bids of each bidder arrive in each 10 seconds.

    The time of arrival is a column of the events, so the answer is always the same. No event is
    late in processing time.
    """
    arriving = n.bids.with_columns(date_time=lw.col("arrival"))
    windows = arriving.key_by("bidder").window(lw.FixedWindows("10s"))
    return windows.aggregate(bid_count=lw.count())


def q13(n: Nexmark) -> Answer:
    """Bounded side input: each bid with a value from a table that does not change."""
    bids = n.bids.with_columns(key=lw.col("auction") % 10_000)
    found = bids.lookup(SIDE_INPUT, on="key", how="inner")
    return found.select("auction", "bidder", "price", "date_time", "value")


def q14(n: Nexmark) -> Answer:
    """Calculation: bids of some size in euros, the time of day, and how many c there are."""
    bids = q1(n).filter((lw.col("price") > 1_000_000) & (lw.col("price") < 50_000_000))
    hour, extra = lw.col("date_time").dt.hour(), lw.col("extra").str
    night = lw.when((hour <= 6) | (hour >= 20), "nightTime", "otherTime")
    day = lw.when((hour >= 8) & (hour <= 18), "dayTime", night)
    found = extra.len_chars() - extra.replace_all("c", "", literal=True).str.len_chars()
    return bids.with_columns(bid_time_type=day, c_counts=found)


def q15(n: Nexmark) -> Answer:
    """Bidding statistics: bids, bidders and auctions of each day, by three ranks of price."""
    daily = n.bids.key_by(all=lw.lit("all")).window(lw.FixedWindows("1d"), **n.corrections)
    return daily.aggregate(**_by_rank("bidder", "auction"))


def q16(n: Nexmark) -> Answer:
    """Channel statistics: those of q15 for each channel, and the minute of its last bid."""
    bids = n.bids.with_columns(minute=lw.col("date_time").dt.to_string("%H:%M"))
    daily = bids.key_by("channel").window(lw.FixedWindows("1d"), **n.corrections)
    return daily.aggregate(minute=lw.max("minute"), **_by_rank("bidder", "auction"))


def q17(n: Nexmark) -> Answer:
    """Auction statistics: bids of each auction and day, by rank, and their prices."""
    daily = n.bids.key_by("auction").window(lw.FixedWindows("1d"), **n.corrections)
    return daily.aggregate(
        min_price=lw.min("price"), max_price=lw.max("price"), avg_price=lw.mean("price"),
        sum_price=lw.sum("price"), **_by_rank(),
    )  # fmt: skip


def q18(n: Nexmark) -> Answer:
    """Find the last bid of each bidder for each auction; of two at one time, the later arrival."""
    last = n.bids.table(key=("bidder", "auction"), order="date_time")
    return last.select("auction", "bidder", "price", "channel", "url", "date_time", "extra")


def q19(n: Nexmark) -> Answer:
    """The ten highest bids of each auction, with their ranks; of equal ones the earliest first."""
    fields = ("price", "bidder", "channel", "url", "date_time", "extra")
    best = lw.top(10, by="price", keep=fields, ties=("date_time", "event"))
    bids = n.bids.key_by("auction").window(lw.GlobalWindow(), **n.standing).aggregate(best=best)
    ranked = bids.explode("best", position="place")
    columns = {name: lw.col("best").struct.field(name) for name in fields}
    return ranked.select("auction", rank_number=lw.col("place") + 1, **columns)


def q20(n: Nexmark) -> Answer:
    """Expand bids with their auctions, in category 10."""
    auctions = n.auctions.filter(lw.col("category") == 10).table(key="id")
    return n.bids.table(key="event").join(auctions, left_on="auction", right_on="id")


def q21(n: Nexmark) -> Answer:
    """Add the id of the channel, from its name or from the URL; without one, no row."""
    name, found = lw.col("channel").str.to_lowercase(), lw.col("url").str.extract(_CHANNEL_ID, 2)
    for known, number in {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}.items():
        found = lw.when(name == known, number, found)
    bids = n.bids.select("auction", "bidder", "price", "channel", channel_id=found)
    return bids.filter(~lw.col("channel_id").is_null())


def q22(n: Nexmark) -> Answer:
    """The directories of each bid's URL."""
    part = lw.col("url").str.split("/").list.get
    return n.bids.select(
        "auction", "bidder", "price", "channel", dir1=part(3), dir2=part(4), dir3=part(5)
    )


def _by_rank(*distinct: str) -> dict[str, lw.AggregateSpec]:
    """Count bids and distinct values of columns, of all bids and of each rank of price."""
    counts: dict[str, Any] = {f"{one}s": partial(lw.count_distinct, one) for one in distinct}
    pairs = product({"bids": lw.count, **counts}.items(), RANKS.items())
    return {f"{rank}_{name}": count(where=one) for (name, count), (rank, one) in pairs}


def _winning(n: Nexmark) -> lw.Table[lw.Stream]:
    """Each auction that has a bid while it is open, with the highest one."""
    bids = n.auctions.join(n.bids, left_on="id", right_on="auction", **n.while_open)
    elapsed = (lw.col("date_time_right") - lw.col("date_time")).dt.total_milliseconds()
    ranked = bids.with_columns(rank=lw.col("price") * 2**36 - elapsed)  # 2**36 ms are two years
    return ranked.table(key="id", order="rank")


QUERIES: dict[str, Callable[[Nexmark], Answer]] = {
    query.__name__: query
    for query in (
        q0, q1, q2, q3, q4, q5, q6, q7, q8, q9, q10, q11,
        q12, q13, q14, q15, q16, q17, q18, q19, q20, q21, q22,
    )
}  # fmt: skip
"""All of them by name."""
