"""A join as a process: searches with their clicks, and searches without clicks.

A timer emits a search that nobody clicked on ten minutes after it. The timer holds the watermark at
the search, so what it emits is not late to the stage that counts it.
"""

from __future__ import annotations

from typing import Any

import lowwater as lw

MINUTE = lw.duration("1m")
PATIENCE = 10 * MINUTE


class Joined:
    """Joins a search with its clicks; the two may arrive in any order."""

    search = lw.value_cell()
    clicks = lw.list_cell()
    joined = lw.value_cell(False)
    expire = lw.timer()
    unclicked = lw.output()

    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        if record["kind"] == "click":
            ctx.clicks.append((ctx.time, record["what"]))
        else:
            ctx.search.set((ctx.time, record["what"]))
        if not ctx.search.is_set or not len(ctx.clicks):
            if ctx.expire.get() is None:
                ctx.expire.set(ctx.time + PATIENCE, output_time=ctx.time)
            return
        searched, query = ctx.search.get()
        for clicked, link in ctx.clicks:
            ctx.emit({"query": query, "link": link}, time=max(searched, clicked))
        ctx.clicks.clear()
        ctx.joined.set(True)
        ctx.expire.set(searched + PATIENCE)  # no hold: nothing is left to emit

    def on_timer(self, name: str, ctx: lw.ProcessContext) -> None:
        if ctx.search.is_set and not ctx.joined.get():
            ctx.emit({"query": ctx.search.get()[1]}, tag="unclicked")
        for cell in (ctx.search, ctx.clicks, ctx.joined):
            cell.clear()


def joined(searches: lw.Stream, clicks: lw.Stream) -> lw.Processed:
    """Join searches and clicks of (``session``, ``what``); the output ``unclicked`` is the rest."""
    both = searches.with_columns(kind=lw.lit("search")) | clicks.with_columns(kind=lw.lit("click"))
    return both.key_by("session").process(Joined())


def unclicked_per_hour(pairs: lw.Processed) -> lw.Pipeline:
    """Count the searches of each hour that nobody clicked on."""
    return (
        pairs.output("unclicked")
        .key_by(all=lw.lit("all"))
        .window(lw.FixedWindows("1h"))
        .aggregate(searches=lw.count())
    )
