"""Keep each reader's timeline up to date: the posts of the people that they follow.

    python examples/timelines.py                                 # in an SQLite file
    python examples/timelines.py "host=localhost dbname=social"  # in PostgreSQL

The timelines are a materialised view: a join of two tables, kept in a database by its primary key.
Each change costs the rows that it joins. To unfollow deletes rows of one timeline, and to delete a
post deletes it from every timeline. Needs ``lowwater[postgres]`` for PostgreSQL, where it replaces
a table ``timelines`` that it made before.
"""

import sqlite3
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import lowwater as lw
from lowwater.io.sinks import Callback, Delivery, PostgresTable, Sink, SqliteTable

EVENTS: list[dict[str, Any]] = [
    {"what": "follow", "reader": "ann", "author": "bob"},
    {"what": "follow", "reader": "cy", "author": "bob"},
    {"what": "post", "author": "bob", "post": 1, "text": "I am here!"},
    {"what": "post", "author": "dee", "post": 2, "text": "Rain again."},
    {"what": "follow", "reader": "ann", "author": "dee"},  # brings what dee has posted so far
    {"what": "edit", "author": "dee", "post": 2, "text": "Rain, again."},
    {"what": "unfollow", "reader": "ann", "author": "bob"},
    {"what": "post", "author": "bob", "post": 3, "text": "Anyone?"},
    {"what": "delete", "author": "bob", "post": 1},
]


def timelines(events: lw.Stream) -> lw.Table[lw.Stream]:
    """Return the table of ``reader``, ``author``, ``post`` and ``text``: a post for each reader."""
    what = lw.col("what")
    follows = events.filter(what.is_in(["follow", "unfollow"])).table(
        key=("reader", "author"), deleted=what == "unfollow"
    )
    posts = events.filter(what.is_in(["post", "edit", "delete"])).table(
        key="post", deleted=what == "delete"
    )
    return follows.select("reader", "author").join(
        posts.select("post", "author", "text"), on="author"
    )


def run(view: lw.Table[lw.Stream], sink: Sink, connect: Callable[[], Any]) -> None:
    """Keep the timelines in a database, and print them after each commit."""

    def look(delivery: Delivery) -> None:
        print(*EVENTS[delivery.epoch - 1].values())
        with closing(connect()) as database:
            rows = database.execute("SELECT reader, author, text FROM timelines ORDER BY 1, post")
            for reader, author, text in rows.fetchall():
                print(f"    {reader} reads {author}: {text}")

    # One event per commit, to show what each does. By default there is a commit each second.
    view.write_to(sink, Callback(look)).run(bundle_size=1, commit_every="bundle", progress=False)


def main(dsn: str | None) -> None:
    events = [{"at": at, **event} for at, event in enumerate(EVENTS)]
    view = timelines(lw.from_iterable(events, time="at", unit="s"))
    if dsn is None:
        print("no connection string is given, so the timelines are in an SQLite file")
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "social.sqlite")
            run(view, SqliteTable(path, "timelines"), partial(sqlite3.connect, path))
    else:
        import psycopg

        sink = PostgresTable(dsn, "timelines", overwrite=True)
        run(view, sink, partial(psycopg.connect, dsn))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
