"""Goldens of joins: of intervals, in windows and as of; and of tables, in every form."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import narwhals as nw

import lowwater as lw
from lowwater.engine.join.joining import AS_OF_HOWS, DIRECTIONS, HOWS, LATE_VERSIONS, UNMATCHED
from lowwater.engine.join.searching import MATCHES
from lowwater.io.sinks import JsonLinesFolder, SqliteTable
from lowwater.pipeline import Stream
from lowwater.pipeline.outputs import Writing
from tests.goldens.golden import Golden
from tests.goldens.processes import Kinds
from tests.goldens.rows import feed_changes, feed_sides
from tests.goldens.windows import CLOCK, OFTEN, Total, read, written

COLUMNS = ("at", "arrived", "id", "key", "v", "big", "s", "dec", "by", "tags", "who")


def sides() -> tuple[Stream, Stream]:
    """Return the two sides of a join."""
    return read("left").select(*COLUMNS), read("right").select(*COLUMNS)


def intervals() -> list[Writing]:
    """Joins of intervals: each ``how`` with each ``unmatched``, and stages over them."""
    left, right = sides()
    found: list[Any] = []
    for how in HOWS:
        for unmatched in UNMATCHED:
            if how in ("inner", "semi") and unmatched != "final":
                continue
            joined = left.join(
                right, on="key", within=lw.between("-9s", "14s"), how=how, unmatched=unmatched,
                allowed_lateness="20s",
            )  # fmt: skip
            found.append(joined.named(f"{how} {unmatched}"))
    pairs = left.join(
        right, left_on=("key", "big"), right_on=("key", "big"), within="25s", how="outer",
        unmatched="early", suffixes=("_l", "_r"),
    ).named("several keys")  # fmt: skip
    totals = (
        pairs.key_by("key")
        .window(lw.FixedWindows("40s"), trigger=OFTEN, accumulation="retracting")
        .aggregate(n=lw.count(), v=lw.sum("v_l"), s=lw.collect("s_r"), t=lw.combine(Total(), "v_r"))
        .named("totals of pairs")
    )
    return written(*found, pairs, totals)


def bounded() -> list[Writing]:
    """Joins whose left records say when their partners are: from, until, and both."""
    left, right = sides()
    seconds = timedelta(seconds=1)
    left = left.with_columns(
        opens=lw.col("at") - (lw.col("id") % 7) * seconds,
        closes=lw.col("at") + (lw.col("id") % 23) * seconds,
    )
    intervals: dict[str, Any] = {
        "both": lw.between("opens", "closes", longest="18s"),
        "until": lw.between("-2s", "closes", longest="18s"),
        "from": lw.between("opens", "9s", longest="5s"),
    }
    kinds: Any = (("inner", "final"), ("outer", "early"), ("anti", "on_time"))
    return written(
        *(
            left.join(
                right, on="key", within=within, how=how, unmatched=unmatched,
                allowed_lateness="20s",
            ).named(f"{name} {how}")
            for name, within in intervals.items()
            for how, unmatched in kinds
        )
    )  # fmt: skip


def in_windows() -> list[Writing]:
    """Joins in windows: each ``how``, in windows that do not merge and in sessions."""
    names = ("at", "arrived", "id", "key", "v")
    left, right = (side.select(*names) for side in sides())
    found = []
    for at, how in enumerate(HOWS):
        windows = (lw.FixedWindows("40s"), lw.Sessions("9s"), lw.SlidingWindows("60s", "30s"))[
            at % 3
        ]
        joined = left.join(
            right, on="key", within=windows, how=how, trigger=OFTEN,
            accumulation="retracting", allowed_lateness="20s",
        )  # fmt: skip
        found.append(joined.named(f"windows {how}"))
    once = left.join(right, on="key", within=lw.FixedWindows("30s"), how="outer").named("once")
    return written(*found, once)


def as_of() -> list[Writing]:
    """Joins as of: each ``how``, with each way of late versions."""
    left, right = sides()
    found = []
    for how in AS_OF_HOWS:
        for late in ("ignore", "correct"):
            joined = left.join_as_of(
                right, on="key", how=how, late_versions=late, keep="70s",
                order="big" if how == "left" else None,
                tolerance="50s" if late == "correct" else None,
            )  # fmt: skip
            found.append(joined.named(f"as of {how} {late}"))
    return written(*found)


def as_of_ahead() -> list[Writing]:
    """Joins as of that look ahead, each direction with each way of late versions; and strictly."""
    left, right = sides()
    found = []
    for direction in DIRECTIONS:
        for late in ("ignore", "correct"):
            joined = left.join_as_of(
                right, on="key", how="left" if late == "correct" else "inner", late_versions=late,
                direction=direction, allow_equal=direction == "forward", tolerance="50s",
                order="big" if late == "correct" else None, keep="70s",
            )  # fmt: skip
            found.append(joined.named(f"as of {direction} {late}"))
    return written(*found)


def searches() -> list[Writing]:
    """Searches of stored queries: for all words and for any, with each way of late versions."""
    left, right = sides()
    documents = left.select("id", "key", "v", "tags")
    queries = right.select("tags", "big", query=lw.col("key")).filter(~lw.col("query").is_null())
    found = [
        documents.search(
            queries, on="tags", key="query", match=match, late_versions=late, keep="30s"
        ).named(f"search {match} {late}")
        for match in MATCHES
        for late in LATE_VERSIONS
    ]
    return written(*found)


def upserts() -> list[Writing]:
    """Tables of upserts: their options, joins of each ``how``, groups, and forms of changes."""
    left, right = sides()
    people = left.table(key="key", order="v", deleted=lw.col("id") % 7 == 3, ttl="70s").named(
        "people"
    )
    plain = right.table(key=("key", "big")).named("plain")
    kept = left.table(key="id", keep_deleted="20s", deleted=lw.col("v") < -5).named("kept")
    joined = [people.join(plain, on="key", how=how).named(f"tables {how}") for how in HOWS]
    other = (
        kept.with_columns(half=nw.when(lw.col("v") > 0).then(lw.col("big")))
        .join(people, left_on="key", right_on="key", how="left")
        .named("foreign")
    )
    grouped = kept.group_by("key", "who").aggregate(
        n=lw.count(), v=lw.sum("v"), most=lw.max("s"), all_of=lw.collect("id"), mean=lw.mean("v"),
        set_of=lw.count_distinct("big"), total=lw.combine(Total(), "big"),
    ).named("groups")  # fmt: skip
    again = (
        grouped.group_by("n").aggregate(groups=lw.count(), v=lw.min("v")).named("groups of groups")
    )
    panes = (
        left.key_by("key")
        .window(lw.Sessions("9s"), trigger=OFTEN, accumulation="retracting")
        .aggregate(n=lw.count())
        .named("panes")
        .table()
        .group_by("n")
        .aggregate(sessions=lw.count())
        .named("of panes")
    )
    Path("out").mkdir(exist_ok=True)
    out: list[Writing] = []
    for table in (people, plain, kept, *joined, other, grouped, again, panes):
        name = str(table._stage.name)
        in_sql = table in (people, other, grouped)
        rows = [SqliteTable("out/tables.sqlite", name)] if in_sql else []
        out.append(table.write_to(JsonLinesFolder(f"out/{name}"), *rows))
    forms = (
        kept.changes("upsert")
        .key_by("key")
        .window(lw.FixedWindows("60s"), trigger=OFTEN, accumulation="retracting")
        .aggregate(n=lw.count())
        .named("of upserts")
    )
    events = kept.changes("debezium").key_by("op").process(Kinds()).named("of events")
    return [*out, *written(forms, events)]


def tops() -> list[Writing]:
    """The first rows of each group of tables and of joins of them, and groups of these."""
    left, right = sides()
    people = left.table(key="id", keep_deleted="20s", deleted=lw.col("v") < -5)
    plain = right.table(key=("key", "big")).select("key", "big", "who")
    few = people.top(2, per="key", by="v", ties="s").named("few")
    lowest = people.top(30, by="big", reverse=True, rank="place").named("lowest")
    joined = (
        people.select("id", "key", "v").join(plain, on="key", how="outer")
        .top(3, per=("who", "key"), by="v").named("joined")
    )  # fmt: skip
    again = few.group_by("rank").aggregate(n=lw.count(), v=lw.sum("v")).named("again")
    Path("out").mkdir(exist_ok=True)
    out: list[Writing] = []
    for table in (few, lowest, joined, again):
        name = str(table._stage.name)
        rows = [SqliteTable("out/tables.sqlite", name)] if table in (lowest, joined) else []
        out.append(table.write_to(JsonLinesFolder(f"out/{name}"), *rows))
    return out


def changelogs() -> list[Writing]:
    """Tables of explicit changes: a changelog, and events of Debezium."""
    changes = lw.read_parquet(
        "in", time="at", watermark=lw.BoundedDisorder("8s"), clock=CLOCK
    ).named("in")
    Path("out").mkdir(exist_ok=True)
    of = {
        "changelog": lw.changelog(changes, key="id", insert=("c", "r"), ttl="90s"),
        "debezium": lw.debezium(changes, key=("id", "key")),
    }
    return [
        table.named(name).write_to(
            SqliteTable("out/tables.sqlite", name), JsonLinesFolder(f"out/{name}")
        )
        for name, table in of.items()
    ]


GOLDENS = [
    Golden(name="interval-joins", feed=feed_sides, outputs=intervals, clock=CLOCK, stop=6),
    Golden(name="bounded-joins", feed=feed_sides, outputs=bounded, clock=CLOCK, stop=6),
    Golden(
        name="window-joins", feed=feed_sides, outputs=in_windows, clock=CLOCK, stop=6, killed=False,
        point="after the write",
    ),
    Golden(
        name="window-joins-with-headers", feed=feed_sides, outputs=in_windows, clock=CLOCK, stop=6,
        killed=False, point="after the write",
    ),
    Golden(name="as-of-joins", feed=feed_sides, outputs=as_of, clock=CLOCK, stop=6, killed=False),
    Golden(
        name="as-of-joins-ahead", feed=feed_sides, outputs=as_of_ahead, clock=CLOCK, stop=6,
        killed=False,
    ),
    Golden(name="tables", feed=feed_sides, outputs=upserts, clock=CLOCK, stop=6),
    Golden(name="searches", feed=feed_sides, outputs=searches, clock=CLOCK),
    Golden(name="tops", feed=feed_sides, outputs=tops, clock=CLOCK),
    Golden(
        name="changelogs", feed=feed_changes, outputs=changelogs, clock=CLOCK, killed=False,
    ),
]  # fmt: skip
