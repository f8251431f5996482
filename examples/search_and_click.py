"""Join searches with the clicks on their results, and count the searches that nobody clicked on.

    python examples/search_and_click.py

A click belongs to a search of the same session, at most ten minutes before it. A search without a
click comes out with nulls, once no click can come any more. The join holds the watermark at such
searches, so they are not late to the stage that counts them.
"""

import json
import tempfile
from pathlib import Path

import lowwater as lw


def clicked(searches: lw.Stream, clicks: lw.Stream) -> lw.JoinedStream:
    """Join searches (``session``, ``query``) with clicks (``session``, ``link``)."""
    pairs = searches.join(
        clicks, on="session", within="10m", how="left", suffixes=("_searched", "_clicked")
    )
    return pairs.named("clicked")


def unclicked_per_hour(pairs: lw.JoinedStream) -> lw.Pipeline:
    """Count the searches of each hour that nobody clicked on."""
    return (
        pairs.filter(lw.col("link").is_null())
        .key_by(all=lw.lit("all"))
        .window(lw.FixedWindows("1h"))
        .aggregate(searches=lw.count())
    )


def main() -> None:
    def stream(what: str, *rows: tuple[str, str, str]) -> lw.Stream:
        items = [{"at": f"2000-01-01T{at}Z", "session": s, what: value} for at, s, value in rows]
        return lw.from_iterable(items, time="at", watermark=lw.BoundedDisorder("1m"))

    searches = stream(
        "query", ("12:01:00", "s1", "cats"), ("12:02:00", "s2", "dogs"), ("12:58:00", "s3", "owls")
    )
    clicks = stream("link", ("12:03:00", "s1", "cats.org"), ("13:30:00", "s4", "home"))
    pairs = clicked(searches, clicks)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lw.run(
            pairs.write_jsonl(folder / "clicked.jsonl"),
            unclicked_per_hour(pairs).write_jsonl(folder / "per_hour.jsonl"),
            progress=False,
        )
        for line in (folder / "clicked.jsonl").read_text().splitlines():
            pair = json.loads(line)
            print(pair["session"], pair["query"], pair["link"] or "(nobody clicked)")
        for line in (folder / "per_hour.jsonl").read_text().splitlines():
            pane = json.loads(line)
            print("per hour", pane["window_start"], pane["searches"])


if __name__ == "__main__":
    main()
