"""The places where a user's value enters a run, or a later part of it: a pipeline for each.

A new place is an entry of :data:`PLACES`. The pipeline reads records with the fields ``t``, ``k``,
``v`` and ``n``. The poison record has its value in ``field``, and unless that is the key a key of
its own, so that what sound keys come to is the same with and without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import narwhals as nw
import numpy as np

import lowwater as lw

Build = Callable[[Any], Any]
SECOND = 1_000_000
POISON = 1000
"""The number of the first poison record."""


@final
@dataclass(frozen=True)
class Place:
    """One of them.

    Args:
        build: Makes the pipeline of a stream of records.
        field: Which field of the poison record has the value.
        sound: Returns the value of a sound record in that field, of its number.
        python: Whether workers have something to do in it.
        moves: Whether the value moves the watermark, so that what is late depends on bundles.
        filters: Whether a step may filter the poison record out.
        reads: Returns the stream of records, and may write files to a folder; by default a function
            of ``map`` makes them.
        is_durable: Whether a run of it can be resumed.
        values: The poison values, if it takes others than the rest.
        sink: Makes a sink in a folder.
        stored: Returns the rows that the sink has written there.
    """

    build: Build
    field: str = "v"
    sound: Callable[[int], Any] = lambda n: n + 100
    python: bool = False
    moves: bool = False
    filters: bool = False
    reads: Callable[[list[dict[str, Any]], Path], Any] | None = None
    is_durable: bool = True
    values: Mapping[str, Any] | None = None
    sink: Callable[[Path], Any] | None = None
    stored: Callable[[Path], Iterator[dict[str, Any]]] | None = None


class Echo:
    """Emits each record, and how many there were of its key."""

    seen = lw.value_cell(0)

    def on_record(self, record: Any, ctx: Any) -> None:
        ctx.seen.set(ctx.seen.get() + 1)
        ctx.emit({"n": record["n"], "v": record["v"], "seen": ctx.seen.get()})


class EmitsValue:
    """Emits a field alone."""

    def on_record(self, record: Any, ctx: Any) -> None:
        ctx.emit(VALUES[record["n"]])
        ctx.emit(record["n"])


class EmitsRecord:
    """Emits a record, with a value that was not in the one it got."""

    seen = lw.value_cell(0)

    def on_record(self, record: Any, ctx: Any) -> None:
        ctx.seen.set(ctx.seen.get() + 1)
        ctx.emit({"n": record["n"], "x": VALUES[record["n"]]})
        ctx.emit({"n": record["n"], "x": ctx.seen.get()})


class EmitsAside:
    """Emits the odd value to an output of its own, from a timer."""

    odd = lw.output()
    number = lw.value_cell()
    later = lw.timer()

    def on_record(self, record: Any, ctx: Any) -> None:
        ctx.number.set(record["n"])
        ctx.later.set(ctx.time + 1)
        ctx.emit({"seen": record["n"]})

    def on_timer(self, name: str, ctx: Any) -> None:
        number = ctx.number.get()
        ctx.emit({"odd": {"inner": VALUES[number]}})
        ctx.emit({"odd": -number})


VALUES: dict[int, Any] = {}
"""What processes emit for the record of a number; the test fills it."""


class EmitsColumns:
    """Emits a column with values that were not in what it got."""

    def on_records(self, batch: Any, ctx: Any) -> None:
        numbers = [int(n) for n in batch["n"]]
        values = np.empty(len(numbers), dtype=object)
        values[:] = [VALUES[n] for n in numbers]
        ctx.emit({"n": np.array(numbers), "x": values}, ids=batch.ids, times=batch.times)


class Longest:
    """A combiner of the user's: how many values there were."""

    def create_accumulator(self) -> int:
        return 0

    def add_input(self, accumulator: int, value: Any) -> int:
        return accumulator + 1

    def merge_accumulators(self, accumulators: Any) -> int:
        return sum(accumulators)

    def extract_output(self, accumulator: int) -> int:
        return accumulator


def _windows(stream: Any, *keys: Any) -> Any:
    return stream.key_by(*keys).window(lw.FixedWindows("1h"))


def _aggregate(**specs: Any) -> Build:
    return lambda stream: _windows(stream, "k").aggregate(**specs)


def _named(stream: Any) -> Any:
    return stream.select("k", "v", "n")


def _other(stream: Any) -> Any:
    return _named(stream).filter((lw.col("n") % 2 == 0) & (lw.col("n") < 1000))


class Unreadable:
    """Raises when it is iterated."""

    def __iter__(self) -> Iterator[Any]:
        yield {}
        raise ValueError("of the value's own class")


def _counted(stream: Any) -> Any:
    return _windows(stream, "k").aggregate(a=lw.collect("v"), c=lw.count())


def _made(row: Any) -> Any:
    """Return the poison value instead of a record."""
    return VALUES[row["n"]] if row["n"] >= POISON else row


async def _answered(row: Any) -> Any:
    return _made(row)


async def _all_answered(rows: Any) -> Any:
    return [_made(row) for row in rows]


async def _added(row: Any) -> Any:
    return {**row, "w": row["v"] + 1}


async def _at(row: Any) -> Any:
    return {**row, "t": VALUES[row["n"]]}


def _failing_late(row: Any) -> Iterator[Any]:
    """Yield a record, and fail on the value of some."""
    yield row
    if row["n"] >= POISON:
        raise ValueError(row["n"])


def _refused(row: Any) -> Any:
    """Fail with the value as the text of the exception."""
    if row["n"] >= POISON:
        raise ValueError(row["n"])
    return row["k"]


def _key(n: int) -> str:
    return f"k{n % 3}"


PLACES: dict[str, Place] = {
    "key": Place(lambda s: _windows(s, "k").aggregate(c=lw.count()), "k", _key),
    "keys": Place(lambda s: _windows(s, "n", "k").aggregate(c=lw.count()), "k", _key),
    "function of a key": Place(
        lambda s: _windows(s, lambda row: row["v"]).aggregate(c=lw.count()), python=True
    ),
    "key of a process": Place(lambda s: s.key_by("k").process(Echo()), "k", _key, python=True),
    "id": Place(
        lambda s: _windows(s.deduplicate(id="v", within="1h"), "k").aggregate(c=lw.count())
    ),
    "ids": Place(
        lambda s: _windows(s.deduplicate(id=("n", "v"), within="1h"), "k").aggregate(c=lw.count())
    ),
    "count": Place(_aggregate(a=lw.count("v"))),
    "sum": Place(_aggregate(a=lw.sum("v"))),
    "mean": Place(_aggregate(a=lw.mean("v"), b=lw.var("v"))),
    "max": Place(_aggregate(a=lw.max("v"), b=lw.min("v"))),
    "max of texts": Place(_aggregate(a=lw.max("v"), b=lw.min("v")), sound=str),
    "max of tuples": Place(_aggregate(a=lw.max("v"), b=lw.min("v")), sound=lambda n: (n, "x")),
    "any": Place(_aggregate(a=lw.any("v"), b=lw.all("v")), sound=lambda n: n % 2 == 0),
    "first": Place(_aggregate(a=lw.first("v"), b=lw.last("v"))),
    "first by": Place(_aggregate(a=lw.first("n", by="v"), b=lw.last("n", by="v"))),
    "max by": Place(_aggregate(a=lw.max_by("v", by="n"), b=lw.min_by("v", by="n"))),
    "by": Place(_aggregate(a=lw.max_by("n", by="v"), b=lw.min_by("n", by="v"))),
    "collect": Place(_aggregate(a=lw.collect("v"))),
    "set": Place(_aggregate(a=lw.collect_set("v"), b=lw.count_distinct("v"))),
    "top": Place(_aggregate(a=lw.top(2, by="v", keep="n"), b=lw.top(2, by="n", keep="v"))),
    "ties": Place(_aggregate(a=lw.top(1, by="k", keep="n", ties="v"))),
    "frequent": Place(_aggregate(a=lw.most_frequent("v"))),
    "quantile": Place(_aggregate(a=lw.quantile("v", 0.9), b=lw.median("v"))),
    "approximate": Place(
        _aggregate(a=lw.approx_quantile("v", 0.9), b=lw.approx_count_distinct("v"))
    ),
    "where": Place(_aggregate(a=lw.count(where=lw.col("v") > 3), b=lw.sum("n"))),
    "combiner": Place(_aggregate(a=lw.combine(Longest(), "v")), python=True),
    "group": Place(lambda s: _windows(s, "k").group()),
    "process": Place(lambda s: s.key_by("k").process(Echo()), python=True),
    "process in order": Place(
        lambda s: s.key_by("k").process(Echo(), order="event_time"), python=True
    ),
    "process in windows": Place(lambda s: _windows(s, "k").process(Echo()), python=True),
    "emitted value": Place(lambda s: s.key_by("k").process(EmitsValue()), "", python=True),
    "emitted record": Place(lambda s: s.key_by("k").process(EmitsRecord()), "", python=True),
    "emitted by a timer": Place(lambda s: s.key_by("n").process(EmitsAside()), "", python=True),
    "emitted to a stage": Place(
        lambda s: _windows(s.key_by("k").process(EmitsRecord()), "k").aggregate(
            a=lw.collect("x"), c=lw.count()
        ),
        "",
        python=True,
    ),
    "passed": Place(lambda s: s.filter(lw.col("n") >= 0)),
    "step": Place(
        lambda s: _windows(
            s.map(lambda row: {**row, "w": row["v"]})
            .filter(lambda row: row["n"] >= 0)
            .flat_map(lambda row: [row]),
            "k",
        ).aggregate(a=lw.collect("w")),
        python=True,
    ),
    "map raises": Place(
        lambda s: _counted(s.map(lambda row: {**row, "w": row["v"] + 1})), python=True
    ),
    "map makes": Place(lambda s: _counted(s.map(_made)), "", python=True),
    "map_async makes": Place(lambda s: _counted(s.map_async(_answered)), "", python=True),
    "map_async raises": Place(lambda s: _counted(s.map_async(_added)), python=True),
    "map_async of several": Place(
        lambda s: _counted(s.map_async(_all_answered, batch=7)), "", python=True
    ),
    "map_async makes a time": Place(
        lambda s: _counted(s.map_async(_at)), "", python=True, moves=True
    ),
    "map makes a name": Place(
        lambda s: _counted(
            s.map(lambda row: {**row, VALUES[row["n"]] if row["n"] >= POISON else "w": 1})
        ),
        "",
        python=True,
    ),
    "map makes a time": Place(
        lambda s: _counted(s.map(lambda row: {**row, "t": VALUES[row["n"]]})),
        "",
        python=True,
        moves=True,
    ),
    "flat_map raises": Place(lambda s: _counted(s.flat_map(_failing_late)), "", python=True),
    "flat_map makes": Place(
        lambda s: _counted(
            s.flat_map(lambda row: [row, _made(row)] if row["n"] >= POISON else [row])
        ),
        "",
        python=True,
    ),
    "flat_map returns": Place(
        lambda s: _counted(
            s.flat_map(lambda row: VALUES[row["n"]] if row["n"] >= POISON else [row])
        ),
        "",
        python=True,
        values={"number": 1, "text": "ab", "bytes": b"x", "dict": {"k": 1}, "raises": Unreadable()},
    ),
    "items": Place(
        lambda s: _counted(s.map(lambda row: {**row, "w": [row["n"], row["v"]]}).explode("w")),
        "",
        python=True,
    ),
    "explode": Place(
        lambda s: _windows(s.explode("v"), "k").aggregate(c=lw.count(), d=lw.count("v")),
        sound=lambda n: [n, n + 1],
        values={"number": 1, "text": "ab", "bytes": b"x", "dict": {"k": 1}, "raises": Unreadable()},
    ),
    "filter raises": Place(
        lambda s: _counted(s.filter(lambda row: row["v"] > 50)), python=True, filters=True
    ),
    "filter returns": Place(
        lambda s: _counted(s.filter(lambda row: row["v"])), python=True, filters=True
    ),
    "key_by raises": Place(lambda s: _windows(s, _refused).aggregate(c=lw.count()), python=True),
    "filter of an expression": Place(lambda s: _counted(s.filter(lw.col("v") >= 50)), filters=True),
    "with_columns": Place(
        lambda s: _windows(s.with_columns(w=lw.col("v") * 2 - 1), "k").aggregate(a=lw.collect("w"))
    ),
    "select": Place(
        lambda s: _windows(s.select("k", "n", w=lw.col("v").str.to_uppercase()), "k").aggregate(
            a=lw.collect("w")
        ),
        sound=str,
    ),
    "cast": Place(
        lambda s: _windows(s.with_columns(w=lw.col("v").cast(nw.Int64)), "k").aggregate(
            a=lw.sum("w")
        ),
    ),
    "expression of a key": Place(
        lambda s: s.key_by(x=lw.col("v") // 7).window(lw.FixedWindows("1h")).aggregate(c=lw.count())
    ),
    "filter of a table": Place(
        lambda s: s.table(key="n").filter(lw.col("v") >= 50).changes(), filters=True
    ),
    "with_columns of a table": Place(
        lambda s: s.table(key="n").with_columns(w=lw.col("v") + 1).changes()
    ),
    "deleted of a table": Place(
        lambda s: s.table(key="n", deleted=lw.col("v") < 100).changes(), filters=True
    ),
    "emitted columns": Place(lambda s: s.key_by("k").process(EmitsColumns()), "", python=True),
    "table": Place(lambda s: s.table(key="n").changes()),
    "key of a table": Place(lambda s: s.table(key="v").changes()),
    "order of a table": Place(lambda s: s.table(key="k", order="v").changes()),
    "group of a table": Place(
        lambda s: s.table(key="n").group_by("v").aggregate(c=lw.count()).changes()
    ),
    "aggregate of a table": Place(
        lambda s: s.table(key="n").group_by("k").aggregate(a=lw.max("v")).changes()
    ),
    "key of a join": Place(lambda s: _named(s).join(_other(s), on="v", within="1m", how="left")),
    "joined": Place(lambda s: _named(s).join(_other(s), on="n", within="1m", how="left")),
    "joined in windows": Place(
        lambda s: _named(s).join(_other(s), on="n", within=lw.FixedWindows("1h"), how="outer")
    ),
    "versions": Place(lambda s: _named(s).join_as_of(_other(s), on="k")),
    "order of versions": Place(
        lambda s: s.select("k", "n").join_as_of(_named(s), on="k", order="v")
    ),
    "bound of partners": Place(
        lambda s: _named(s).join(
            _other(s).select("k", "n"),
            on="k",
            how="left",
            within=lw.between("0s", "v", longest="1h"),
        ),
        sound=lambda n: (n + 60) * SECOND,
    ),
    "words of a search": Place(
        lambda s: s.select("n", "v").search(
            _other(s).select("v", q=lw.col("n")), on="v", key="q", match="any"
        ),
        sound=lambda n: [n % 5, str(n % 3)],
    ),
    "words of queries": Place(
        lambda s: _other(s).select("n", "v").search(s.select("v", q=lw.col("n")), on="v", key="q"),
        sound=lambda n: [n % 5],
    ),
    "id of a query": Place(
        lambda s: s.select("n", w=lw.col("k").str.split("k")).search(
            s.select("v", w=lw.col("k").str.split("k")), on="w", key="v"
        ),
    ),
    "top of a table": Place(lambda s: s.table(key="n").top(2, per="k", by="v").changes()),
    "ties of a table": Place(
        lambda s: (
            s.with_columns(same=lw.lit(1))
            .table(key="n")
            .top(9, per="k", by="same", ties="v")
            .changes()
        )
    ),
    "group of top": Place(lambda s: s.table(key="n").top(2, per="v", by="k").changes()),
    "joined tables": Place(
        lambda s: (
            _named(s).table(key="n").join(_other(s).table(key="k"), on="k", how="left").changes()
        )
    ),
    "gap": Place(
        lambda s: s.key_by("k").window(lw.Sessions(gap_column="v")).aggregate(c=lw.count()),
        sound=lambda n: 1_000_000 + n,
    ),
    "bound of a window": Place(
        lambda s: (
            s.with_columns(until=lw.lit(10**9))
            .key_by("k")
            .window(lw.ColumnWindows("v", "until", longest="1h"))
            .aggregate(c=lw.count())
        ),
    ),
    "time": Place(
        lambda s: _windows(s, "k").aggregate(c=lw.count()), "t", lambda n: n * 1_000_000, moves=True
    ),
}
"""The places by name."""
