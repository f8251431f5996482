"""Probes of tables: their changes, and what is computed from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import lowwater as lw
from docs.tools.probe import Probe
from docs.tools.records import ONE_FILE, begun, in_files

BOTH = ("key", "even")


def table_probes() -> Iterator[Probe]:
    """Yield them, in the order of the table."""
    graphs: Mapping[str, Callable[[], lw.Stream]] = {
        "table(key=)": lambda: begun().table(key="key").changes(),
        "table(order=, deleted=)": lambda: _newest().changes(),
        "table(ttl=)": lambda: (
            begun(lw.Ascending()).table(key="value", ttl="1m").select("value", "key").changes()
        ),
        'changes(form="upsert")': lambda: _newest().changes(form="upsert"),
        'changes(form="debezium")': lambda: _newest().changes(form="debezium"),
        "filter, with_columns, select": lambda: (
            _newest()
            .filter(lw.col("value") > 2)
            .with_columns(twice=lw.col("value") * 2)
            .select(*BOTH, "twice")
            .changes()
        ),
        "a join of tables, on a key": lambda: _newest().join(_first(), on="key").changes(),
        "an outer join of tables": lambda: (
            _newest().join(_first(), on="value", how="outer").changes()
        ),
        "group_by(...).aggregate(...)": lambda: (
            _newest().group_by("key").aggregate(n=lw.count(), most=lw.max("value")).changes()
        ),
        "a group of a join": lambda: (
            _newest().join(_first(), on="key").group_by("even").aggregate(n=lw.count()).changes()
        ),
        "top(n, per=, by=)": lambda: _newest().top(2, per="key", by="value").changes(),
        "top(n, by=) of all rows": lambda: (
            _newest().top(3, by="value", ties="even", reverse=True).changes()
        ),
        "a group of a top": lambda: (
            _newest().top(3, by="value").group_by("even").aggregate(n=lw.count()).changes()
        ),
        "a table of panes": lambda: (
            begun()
            .key_by("key")
            .window(lw.FixedWindows("1m"))
            .aggregate(n=lw.count())
            .table()
            .changes()
        ),
        "lw.changelog": lambda: lw.changelog(
            _newest().changes(form="debezium"), key=BOTH
        ).changes(),
    }
    for name, make in graphs.items():
        yield Probe("Tables", name, _anywhere(make))
    yield Probe("Tables", "a join of tables, in micro-batches", _in_batches, ONE_FILE)


def _anywhere(make: Callable[[], lw.Stream]) -> Callable[[Path], lw.Stream]:
    """Return what makes a stream that needs no folder."""
    return lambda _: make()


def _newest() -> lw.Table[lw.Stream]:
    table = begun().table(key=BOTH, order="value", deleted=lw.col("value") == 4)
    return table.select(*BOTH, "value")


def _first() -> lw.Table[lw.Stream]:
    return begun().filter(lw.col("even")).table(key="key").select("key", "value")


def _in_batches(folder: Path) -> lw.Stream:
    """Return a join in which each row comes once: how changes are bundled differs by runner."""
    left, right = (
        in_files(folder / side, rows=slice(2)).table(key=("at", "key"))
        for side in ("left", "right")
    )
    return left.join(right.select("at", "key"), on=("at", "key")).changes()
