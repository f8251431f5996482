"""Join two streams in one process: searches with their clicks, and searches without clicks.

    python examples/search_and_click.py

A timer emits a search that nobody clicked on ten minutes after it. The timer holds the
watermark at the search, so what it emits is not late to the stage that counts it.
"""

import json
import tempfile
from pathlib import Path
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


def main() -> None:
    def stream(*rows: tuple[str, str, str]) -> lw.Stream:
        items = [{"at": f"2000-01-01T{at}Z", "session": s, "what": what} for at, s, what in rows]
        return lw.from_iterable(items, time="at", watermark=lw.BoundedDisorder("1m"))

    searches = stream(
        ("12:01:00", "s1", "cats"), ("12:02:00", "s2", "dogs"), ("12:58:00", "s3", "owls")
    )
    clicks = stream(("12:03:00", "s1", "cats.org"), ("13:30:00", "s4", "home"))
    pairs = joined(searches, clicks)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lw.run(
            pairs.write_jsonl(folder / "clicked.jsonl"),
            pairs.output("unclicked").write_jsonl(folder / "unclicked.jsonl"),
            unclicked_per_hour(pairs).write_jsonl(folder / "per_hour.jsonl"),
            progress=False,
        )
        for path in sorted(folder.glob("*clicked.jsonl")):
            for line in path.read_text().splitlines():
                told = json.loads(line)
                print(path.stem, told["session"], told["query"], told.get("link", ""))
        for line in (folder / "per_hour.jsonl").read_text().splitlines():
            told = json.loads(line)
            print("per hour", told["window_start"], told["searches"])


if __name__ == "__main__":
    main()
