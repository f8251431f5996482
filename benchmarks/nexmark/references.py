"""What each query is to answer: one query of Polars over all events at once.

Nothing here knows of arrival, bundles or watermarks, but q12, whose windows are of the time of
arrival, and the order of arrival where SQL leaves open which of several rows is meant.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import final

import polars as pl
import pyarrow as pa

_EURO = (pl.col("price") * pl.lit(Decimal("0.908"))).cast(pl.Decimal(23, 3))
_NUMBER = pl.int_range(pl.len(), dtype=pl.Int64)
_WINDOW = timedelta(seconds=10)


@final
class Frames:
    """Persons, auctions and bids as frames, in order of event time, then of arrival.

    Args:
        events: The events in order of arrival.
    """

    def __init__(self, events: pa.Table) -> None:
        frame = pl.from_arrow(events)
        assert isinstance(frame, pl.DataFrame)
        ordered = frame.with_columns(position=_NUMBER).sort("date_time", "position")
        self.persons, self.auctions, self.bids = (
            ordered.filter(pl.col(one).is_not_null())
            .select("event", "date_time", "arrival", one, "position")
            .unnest(one)
            for one in ("person", "auction", "bid")
        )


def q0(f: Frames) -> pl.DataFrame:
    return f.bids.select("auction", "bidder", "price", "date_time", "extra")


def q1(f: Frames) -> pl.DataFrame:
    return q0(f).with_columns(price=_EURO)


def q2(f: Frames) -> pl.DataFrame:
    return f.bids.filter(pl.col("auction") % 123 == 0).select("auction", "price")


def q3(f: Frames) -> pl.DataFrame:
    sellers = f.persons.filter(pl.col("state").is_in(["OR", "ID", "CA"]))
    items = f.auctions.filter(pl.col("category") == 10)
    joined = items.join(sellers, left_on="seller", right_on="id")
    return joined.select("name", "city", "state", "id")


def q4(f: Frames) -> pl.DataFrame:
    finals = _bids_in_time(f).group_by("id", "category").agg(final=pl.col("price").max())
    return finals.group_by("category").agg(pl.col("final").mean())


def q5(f: Frames) -> pl.DataFrame:
    start = pl.col("date_time").dt.truncate("2s")
    hops = pl.concat(
        f.bids.select("auction", window_start=start - timedelta(seconds=2 * back))
        for back in range(5)
    )
    counts = hops.group_by("auction", "window_start").agg(num=pl.len().cast(pl.Int64))
    most = pl.col("num").max().over("window_start")
    hot = counts.filter(pl.col("num") == most)
    return hot.select("auction", "num", end=pl.col("window_start") + _WINDOW)


def q6(f: Frames) -> pl.DataFrame:
    sold = _winning(f).sort("date_time_right", "id", descending=[True, False])
    return sold.group_by("seller", maintain_order=True).agg(average=pl.col("price").head(10).mean())


def q7(f: Frames) -> pl.DataFrame:
    window = pl.col("date_time").dt.truncate("10s")
    return q0(f).filter(pl.col("price") == pl.col("price").max().over(window))


def q8(f: Frames) -> pl.DataFrame:
    window = pl.col("date_time").dt.truncate("10s")
    opened = f.auctions.select(id="seller", window_start=window)
    came = f.persons.select("id", "name", window_start=window)
    return came.join(opened, on=["id", "window_start"], how="semi")


def q9(f: Frames) -> pl.DataFrame:
    return _winning(f).select(
        "id", "item_name", "description", "initial_bid", "reserve", "date_time", "expires",
        "seller", "category", "extra", "bidder", "price",
        "date_time_right", "extra_right",
    )  # fmt: skip


def q10(f: Frames) -> pl.DataFrame:
    at = pl.col("date_time").dt
    return q0(f).with_columns(dt=at.to_string("%Y-%m-%d"), hm=at.to_string("%H:%M"))


def q11(f: Frames) -> pl.DataFrame:
    apart = pl.col("date_time").diff().over("bidder") >= _WINDOW
    session = apart.fill_null(value=True).cum_sum().over("bidder")
    by = f.bids.group_by("bidder", session=session)
    return by.agg(
        bid_count=pl.len().cast(pl.Int64),
        window_start=pl.col("date_time").min(),
        window_end=pl.col("date_time").max() + _WINDOW,
    ).drop("session")


def q12(f: Frames) -> pl.DataFrame:
    by = f.bids.group_by("bidder", window_start=pl.col("arrival").dt.truncate("10s"))
    counts = by.agg(bid_count=pl.len().cast(pl.Int64))
    return counts.with_columns(window_end=pl.col("window_start") + _WINDOW)


def q13(f: Frames) -> pl.DataFrame:
    value = (pl.col("auction") % 10_000).cast(pl.String)
    return f.bids.select("auction", "bidder", "price", "date_time", value=value)


def q14(f: Frames) -> pl.DataFrame:
    hour = pl.col("date_time").dt.hour()
    kind = (
        pl.when(hour.is_between(8, 18))
        .then(pl.lit("dayTime"))
        .when((hour <= 6) | (hour >= 20))
        .then(pl.lit("nightTime"))
        .otherwise(pl.lit("otherTime"))
    )
    found = pl.col("extra").str.count_matches("c", literal=True).cast(pl.Int64)
    bids = q1(f).with_columns(bid_time_type=kind, c_counts=found)
    return bids.filter((pl.col("price") > 1_000_000) & (pl.col("price") < 50_000_000))


def q15(f: Frames) -> pl.DataFrame:
    return f.bids.group_by(window_start=_day()).agg(**_statistics())


def q16(f: Frames) -> pl.DataFrame:
    minute = pl.col("date_time").max().dt.to_string("%H:%M")
    return f.bids.group_by("channel", window_start=_day()).agg(minute=minute, **_statistics())


def q17(f: Frames) -> pl.DataFrame:
    price = pl.col("price")
    ranks = {name: one for name, one in _statistics().items() if name.endswith("_bids")}
    return f.bids.group_by("auction", window_start=_day()).agg(
        **ranks,
        min_price=price.min(),
        max_price=price.max(),
        avg_price=price.mean(),
        sum_price=price.sum(),
    )


def q18(f: Frames) -> pl.DataFrame:
    last = f.bids.unique(["bidder", "auction"], keep="last", maintain_order=True)
    return last.select("auction", "bidder", "price", "channel", "url", "date_time", "extra")


def q19(f: Frames) -> pl.DataFrame:
    ranked = f.bids.sort("price", "date_time", "position", descending=[True, False, False])
    rank = _NUMBER.over("auction") + 1
    ten = ranked.with_columns(rank_number=rank).filter(pl.col("rank_number") <= 10)
    return ten.select(
        "auction", "bidder", "price", "channel", "url", "date_time", "extra", "rank_number"
    )


def q20(f: Frames) -> pl.DataFrame:
    auctions = f.auctions.filter(pl.col("category") == 10)
    return f.bids.join(auctions, left_on="auction", right_on="id").select(
        "auction", "bidder", "price", "channel", "url", "date_time", "extra",
        "item_name", "description", "initial_bid", "reserve", "date_time_right", "expires",
        "seller", "category", "extra_right",
    )  # fmt: skip


def q21(f: Frames) -> pl.DataFrame:
    known = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}
    named = pl.col("channel").str.to_lowercase().replace_strict(known, default=None)
    found = pl.col("url").str.extract(r"(?:&|^)channel_id=([^&]*)", 1)
    bids = f.bids.with_columns(channel_id=pl.coalesce(named, found))
    kept = bids.filter(pl.col("channel_id").is_not_null())
    return kept.select("auction", "bidder", "price", "channel", "channel_id")


def q22(f: Frames) -> pl.DataFrame:
    part = pl.col("url").str.split("/").list.get
    return f.bids.select(
        "auction", "bidder", "price", "channel", dir1=part(3), dir2=part(4), dir3=part(5)
    )


def _bids_in_time(f: Frames) -> pl.DataFrame:
    """Each auction with each bid that came while it was open."""
    near = f.auctions.join(f.bids, left_on="id", right_on="auction")
    return near.filter(pl.col("date_time_right").is_between(pl.col("date_time"), pl.col("expires")))


def _winning(f: Frames) -> pl.DataFrame:
    """Each auction with its highest bid, the earliest of several, the last to arrive of these."""
    bids = _bids_in_time(f).sort(
        "id", "price", "date_time_right", "position_right", descending=[False, True, False, True]
    )
    return bids.unique("id", keep="first", maintain_order=True)


def _day() -> pl.Expr:
    return pl.col("date_time").dt.truncate("1d")


def _statistics() -> dict[str, pl.Expr]:
    """How many bids, bidders and auctions there are, in all and with a price of each rank."""
    price = pl.col("price")
    ranks = {
        "total": pl.lit(value=True),
        "rank1": price < 10_000,
        "rank2": (price >= 10_000) & (price < 1_000_000),
        "rank3": price >= 1_000_000,
    }
    counts: dict[str, pl.Expr] = {}
    for rank, where in ranks.items():
        counts[f"{rank}_bids"] = price.filter(where).len()
        counts[f"{rank}_bidders"] = pl.col("bidder").filter(where).n_unique()
        counts[f"{rank}_auctions"] = pl.col("auction").filter(where).n_unique()
    return {name: one.cast(pl.Int64) for name, one in counts.items()}


REFERENCES: dict[str, Callable[[Frames], pl.DataFrame]] = {
    query.__name__: query
    for query in (
        q0, q1, q2, q3, q4, q5, q6, q7, q8, q9, q10, q11,
        q12, q13, q14, q15, q16, q17, q18, q19, q20, q21, q22,
    )
}  # fmt: skip
"""All of them by name."""
