"""A pipeline for every operator and step of the package, by name: laws hold for each of them.

A case builds its pipeline on a stream for each of its inputs, whose records are those of
``tests.property.bundled.arrivals``. ``tests/property/test_every_operator.py`` fails if the package
has a stage, a step, a window, a trigger, an aggregate or a cell that no case uses.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from functools import partial
from itertools import product
from typing import Any

import pyarrow as pa

import lowwater as lw
from lowwater.engine.join.joining import AS_OF_HOWS, DIRECTIONS, HOWS, UNMATCHED
from tests.property import every_process
from tests.property import every_sequence as every_sequence
from tests.property.bundled import SECOND, Build
from tests.property.operator_parts import (
    ADDING,
    EARLY,
    FAMILIES,
    LISTS,
    MODES,
    NUMBERS,
    PATIENT,
    TRIGGERS,
    WINDOWS,
    case,
    with_bounds,
)
from tests.property.operator_parts import CASES as CASES

# -- windows -------------------------------------------------------------------------------------


def windowed(windows: Any, aggregates: Any, *keys: Any, **options: Any) -> Build:
    """Return what builds a stage of windows."""

    def build(stream: Any) -> Any:
        if getattr(windows, "gap_column", None):
            stream = stream.with_columns(gap=(lw.col("i") + 1) * SECOND)
        if isinstance(windows, lw.ColumnWindows):
            stream = with_bounds(stream)
        keyed = stream.key_by(*(keys or ("k",)))
        return keyed.window(windows, **options).aggregate(**aggregates)

    return build


for name, windows in WINDOWS.items():
    case(f"{name} windows", windowed(windows, ADDING, "i"))
    for mode in MODES:
        case(
            f"{name} windows, {mode}, early and late",
            windowed(windows, ADDING, "i", trigger=EARLY, accumulation=mode, **PATIENT),
            content="final",
            is_short=(name, mode) in (("fixed", "discarding"), ("sessions", "retracting")),
        )
for name, trigger in TRIGGERS.items():
    for at, mode in enumerate(MODES):
        windows = WINDOWS["sessions" if at == 2 else "fixed"]
        case(
            f"{name} trigger, {mode}",
            windowed(windows, ADDING, "i", trigger=trigger, accumulation=mode, **PATIENT),
            content="final",
            is_short=(name, mode) in (("by the clock", "accumulating"), ("custom", "retracting")),
        )
for name, aggregates in FAMILIES.items():
    for windows in ("fixed", "sliding", "cumulative", "sessions"):
        case(
            f"{name} in {windows} windows",
            windowed(WINDOWS[windows], aggregates),
            is_short=(windows == "sessions") == (name in ("numbers", "combined")),
            is_large=(name, windows)
            in (("numbers", "sliding"), ("numbers", "cumulative"), ("lists", "sessions")),
            has_workers=name == "combined",
        )
    case(
        f"{name}, retracted",
        windowed(
            WINDOWS["sessions"], aggregates, trigger=EARLY, accumulation="retracting", **PATIENT
        ),
        content="final",
        is_short=name == "lists",
    )
for name, keys in {
    "several keys": ("k", "i"),
    "float keys": ("f",),
    "date keys": ("day",),
    "bool and large keys": ("b", "big"),
}.items():
    case(name, windowed(WINDOWS["fixed"], ADDING, *keys), is_short=name == "several keys")
for name in ("fixed", "sliding", "calendar"):
    case(
        f"{name} windows, filled",
        windowed(
            WINDOWS[name], ADDING, "i", fill="3 windows", **PATIENT, accumulation="retracting"
        ),
        content="final",
        is_large=name == "sliding",
    )
case("filled until idle", windowed(WINDOWS["fixed"], NUMBERS, fill=lw.until_idle("5m")))
case("always closing", windowed(WINDOWS["fixed"], ADDING, closing="always", on_time="if_new"))
case(
    "the earliest time",
    windowed(WINDOWS["fixed"], ADDING, timestamps="earliest"),
    is_short=False,
)
case("the latest time", windowed(WINDOWS["sessions"], ADDING, timestamps="latest"))
case("unusable values in windows", windowed(WINDOWS["fixed"], NUMBERS), written="python")
case(
    "unusable values in sessions",
    windowed(WINDOWS["sessions"], LISTS),
    written="python",
    is_short=False,
)
case(
    "a group of records",
    lambda stream: stream.key_by("i").window(WINDOWS["fixed"]).group(),
)


for mode in MODES:
    case(
        f"late records of cumulative windows, {mode}",
        windowed(
            WINDOWS["cumulative"],
            ADDING | {"all": lw.collect("n")} if mode != "discarding" else ADDING,
            accumulation=mode,
            **PATIENT,
        ),
        content="final",
        is_short=mode == "retracting",
    )


# -- chains --------------------------------------------------------------------------------------


def chain(first: Any, second: Any, **options: Any) -> Build:
    """Return what builds windows over the panes of others."""

    def build(stream: Any) -> Any:
        panes = stream.key_by("k", "i").window(first, **options).aggregate(**ADDING)
        return (
            panes.key_by("i")
            .window(second, accumulation=options.get("accumulation", "discarding"))
            .aggregate(rows=lw.sum("rows"), most=lw.max("total"), totals=lw.count_distinct("total"))
        )

    return build


for first, second in product(("fixed", "sessions"), ("fixed", "sliding", "sessions")):
    case(
        f"chain of {first} and {second}",
        chain(WINDOWS[first], WINDOWS[second]),
        is_short=(first, second) == ("fixed", "sessions"),
    )
    if first == "fixed":  # early panes of sessions have other times, which leave traces (S-C3)
        case(
            f"retracting chain of {first} and {second}",
            chain(
                WINDOWS[first], WINDOWS[second], trigger=EARLY, accumulation="retracting", **PATIENT
            ),
            content="final",
            is_short=second == "sliding",
        )


# -- joins ---------------------------------------------------------------------------------------


def joined(on: Any = "k", *, whole: bool = False, **options: Any) -> Build:
    """Return what builds a join of two streams."""

    def build(left: Any, right: Any) -> Any:
        if not whole:
            left, right = left.select("k", "g", "n", "v"), right.select("k", "g", "n", "s")
        return left.join(right, on=on, **options)

    return build


for how, unmatched in product(HOWS, UNMATCHED):
    if how in ("inner", "semi") and unmatched != "final":
        continue  # it does not apply (J-4)
    case(
        f"{how} join, {unmatched}",
        joined(
            ("k", "g"), within=lw.between("-9s", "14s"), how=how, unmatched=unmatched,
            allowed_lateness="40s",
        ),
        inputs=2,
        is_short=how in ("outer", "semi") or (how, unmatched) == ("anti", "early"),
        is_large=(how, unmatched) == ("outer", "early"),
    )  # fmt: skip


def bounded_join(left: Any, right: Any, how: Any) -> Any:
    """A join whose left records say until when they have partners; some say it wrongly."""
    seconds = lw.when(lw.col("n") % 50 == 3, 90, lw.col("n") % 40) * timedelta(seconds=1)
    left = left.select("k", "g", "n", "v", "time").with_columns(until=lw.col("time") + seconds)
    return left.join(
        right.select("k", "g", "n", "s"), on=("k", "g"), how=how, unmatched="on_time",
        within=lw.between("-9s", "until", longest="50s"), allowed_lateness="40s",
    )  # fmt: skip


case("outer join until a column", partial(bounded_join, how="outer"), inputs=2, is_large=True)
case("anti join until a column", partial(bounded_join, how="anti"), inputs=2, is_short=False)
for how in HOWS:
    of = ("fixed", "sliding", "sessions", *(("cumulative",) if how == "outer" else ()))
    for name in of:
        case(
            f"{how} join in {name} windows",
            joined(("k", "g"), within=WINDOWS[name], how=how),
            inputs=2,
            is_short=(how, name) == ("outer", "sessions"),
            is_large=(how, name) == ("outer", "fixed"),
        )
    case(
        f"{how} join in windows, retracting",
        joined(
            ("k", "g"), within=WINDOWS["sessions"], how=how, trigger=EARLY,
            accumulation="retracting", **PATIENT,
        ),
        inputs=2,
        content="untimed",
        is_short=how == "outer",
    )  # fmt: skip
for how, late in product(AS_OF_HOWS, ("ignore", "correct")):
    every: dict[str, dict[str, Any]] = {
        "": {},
        ", by order": {"order": "version"},
        ", tolerance": {"tolerance": "20s", "keep": "40s"},
    }
    for name, options in every.items():
        case(
            f"{how} join as of{name}, {late}",
            lambda facts, versions, how=how, late=late, options=options: facts.select(
                "k", "n", "v"
            ).join_as_of(
                versions.select("k", "s", "version"),
                on="k", how=how, late_versions=late, **options,
            ),
            inputs=2,
            is_short=how == "left" and (not name) == (late == "ignore"),
            is_large=(how, name, late) == ("left", "", "correct"),
        )  # fmt: skip


for direction, late in product(DIRECTIONS, ("ignore", "correct")):
    for equal in (True, False):
        if direction == "backward" and equal:
            continue  # above
        case(
            f"join as of, {direction}, {late}, {'at' if equal else 'not at'} its time",
            lambda facts, versions, direction=direction, late=late, equal=equal: facts.select(
                "k", "n", "v"
            ).join_as_of(
                versions.select("k", "s", "version"),
                on="k", direction=direction, allow_equal=equal, tolerance="20s", keep="40s",
                late_versions=late, order=None if equal else "version",
            ),
            inputs=2,
            is_short=(late == "correct") == equal,
            is_large=(direction, late, equal) == ("nearest", "correct", True),
        )  # fmt: skip


def joined_panes(left: Any, right: Any) -> Any:
    """A join of panes that are retracted."""
    panes = left.key_by("k").window(
        WINDOWS["fixed"], trigger=EARLY, accumulation="retracting", allowed_lateness="60s"
    )
    counts = panes.aggregate(rows=lw.count()).to_stream().select("k", "rows")
    return counts.join(right.select("k", "n"), on="k", within=lw.between("-5s", "5s"), how="left")


case("join of retracted panes", joined_panes, inputs=2)
case(
    "unusable values in a join",
    joined(whole=True, within="3s", how="outer"),
    inputs=2,
    written="python",
)


# -- tables --------------------------------------------------------------------------------------

ROW = lw.col("n") % 397


def upserts(stream: Any, **options: Any) -> Any:
    """The table of which the records are upserts."""
    return stream.with_columns(row=ROW).select(
        "row", "k", "i", "n", "v", "s", "gone", "version"
    ).table(key="row", **options)  # fmt: skip


def table(**options: Any) -> Build:
    return lambda stream: upserts(stream, **options)


GONE = lw.col("gone")
case("table", table())
case("table by order", table(order="version"), is_short=False)
case("table with deletes", table(deleted=GONE, keep_deleted="30s"), is_short=False)
case("table with deletes by order", table(order="version", deleted=GONE))
case("table with ttl", table(ttl="60s", deleted=GONE), is_short=False)
case(
    "table with ttl by order",
    table(ttl="30s", order="version", keep_deleted="20s", deleted=GONE),
    is_large=True,
)
case(
    "unusable values in a table",
    lambda stream: stream.table(key=("k", "i"), deleted=lw.col("gone")),
    written="python",
)
case("filtered table", lambda stream: upserts(stream).filter(lw.col("v") > 300), is_short=False)
case(
    "computed table",
    lambda stream: (
        upserts(stream, deleted=GONE)
        .with_columns(twice=lw.col("n") * 2)
        .select("row", "twice", "k", half=lw.col("v") / 2)
    ),
)
for form in ("upsert", "debezium"):
    case(
        f"changes as {form}",
        lambda stream, form=form: upserts(stream, deleted=GONE).changes(form=form),
        content="last",
        is_short=form == "debezium",
    )


def both_tables(left: Any, right: Any) -> tuple[Any, Any]:
    other = right.select("k", "i", "n", "gone").table(key=("k", "i"), deleted=GONE)
    return upserts(left, order="version", deleted=GONE), other


for how in HOWS:
    case(
        f"{how} join of tables",
        lambda left, right, how=how: both_tables(left, right)[0].join(
            both_tables(left, right)[1], on=("k", "i"), how=how
        ),
        inputs=2,
        is_short=how == "anti",
        is_large=how == "outer",
    )
case(
    "outer join of tables on other columns",
    lambda left, right: upserts(left).join(
        right.select("i", "n", "k").table(key="n"), left_on="v", right_on="n", how="outer"
    ),
    inputs=2,
    is_short=False,
)
# At one event time, rows of several keys come in the order of their hashes, by bundle (S-K1).
WITHOUT_TIES = {
    "any": lw.any("b"),
    "all": lw.all("b"),
    "newest": lw.last("v", by="n"),
    "oldest": lw.first("s", by="n"),
    "at most": lw.max_by("s", "n"),
    "at least": lw.min_by("v", "n"),
}
for name, aggregates in {**FAMILIES, "picks": WITHOUT_TIES, "adding": ADDING}.items():
    case(
        f"groups of a table, {name}",
        lambda stream, aggregates=aggregates: (
            upserts(stream, order="version", deleted=GONE)
            .with_columns(b=lw.col("v") % 2 == 0, x=lw.col("v") / 8, big=lw.col("n"))
            .group_by("k")
            .aggregate(**aggregates)
        ),
        content="untimed",
        is_short=name == "picks",
    )
case(
    "top of a table",
    lambda stream: upserts(stream, order="version", deleted=GONE).top(3, per="k", by="v"),
    is_large=True,
)
case(
    "top of all rows, with ties",
    lambda stream: (
        upserts(stream, order="version", deleted=GONE)
        .with_columns(few=lw.col("v") % 7)
        .top(20, by="few", ties=("s", "n"), reverse=True, rank="place")
    ),
)
case(
    "top of joined tables, and groups of it",
    lambda left, right: (
        both_tables(left, right)[0]
        .join(both_tables(left, right)[1], on=("k", "i"), how="outer")
        .top(2, per="i", by="v")
        .group_by("rank")
        .aggregate(rows=lw.count(), values=lw.sum("v"))
    ),
    inputs=2,
    content="untimed",
    is_short=False,
)
case(
    "groups of joined tables",
    lambda left, right: (
        both_tables(left, right)[0]
        .join(both_tables(left, right)[1], on=("k", "i"), how="left")
        .group_by("i")
        .aggregate(rows=lw.count(), values=lw.sum("v"))
    ),
    inputs=2,
    content="untimed",
    is_short=False,
)
case(
    "table of panes",
    lambda stream: (
        stream.key_by("k")
        .window(WINDOWS["fixed"], trigger=EARLY, accumulation="retracting", **PATIENT)
        .aggregate(**ADDING)
        .table()
    ),
)


def change(record: Any) -> Any:
    """Return what a database says of a change; some of it is nonsense."""
    n = record["n"]
    row = {"row": n % 397, "k": record["k"], "n": n}
    before = {"row": n * 3 % 397, "k": None, "n": n - 1}
    op = "crudx"[n % 97 % 5]
    return {
        "time": record["time"],
        "op": op,
        "before": None if op == "c" or n % 41 == 0 else before,
        "after": None if op == "d" or n % 43 == 0 else row,
    }


case("changelog", lambda stream: lw.changelog(stream.map(change), key="row"), has_workers=True)
case(
    "debezium",
    lambda stream: lw.debezium(stream.map(change), key="row", ttl="200s"),
    has_workers=True,
    is_short=False,
)


# -- processes -----------------------------------------------------------------------------------

for order in ("arrival", "event_time"):
    for name, process in every_process.PROCESSES.items():
        if order in process.orders:
            case(
                f"{name} process, {order}",
                lambda stream, process=process, order=order: process.build(stream, order),
                is_short=(order == "event_time") == (name not in ("holding", "sliding", "column")),
                is_large=(order == "event_time") == (name != "answering")
                and name in ("echoing", "answering", "windowed"),
                has_workers=process.has_workers,
            )
    case(
        f"unusable values in a process, {order}",
        lambda stream, order=order: stream.key_by("k").process(every_process.Echo(), order=order),
        written="python",
        has_workers=True,
    )
case(
    "process of a union, event_time",
    lambda left, right: (left | right).key_by("k").process(
        every_process.Answers(), order="event_time"
    ),
    inputs=2,
    is_large=True,
    has_workers=True,
)  # fmt: skip
case(
    "process of a union, arrival",
    lambda left, right: (left | right).key_by("i").process(every_process.Answers()),
    inputs=2,
    has_workers=True,
)


def behind_a_process(stream: Any) -> Any:
    """Windows and a second process over what a process emits."""
    answers = stream.key_by("k").process(every_process.Answers(), order="event_time")
    odd = answers.output("odd").to_stream()
    counts = odd.key_by("k").window(WINDOWS["fixed"]).aggregate(rows=lw.count())
    return counts, answers.to_stream().key_by("k").process(every_process.Numbers())


case("stages over a process", behind_a_process, has_workers=True)


# -- stored queries ------------------------------------------------------------------------------


def searched(match: Any, late: Any) -> Build:
    def build(left: Any, right: Any) -> Any:
        documents, queries = (
            each.with_columns(words=lw.col("s").str.split("1")) for each in (left, right)
        )
        # Each query has a time of its own: of versions of one time, the last to arrive counts.
        ids = queries.with_columns(query=lw.col("n") % 97).select("query", "words", "n")
        found = documents.select("k", "n", "v", "words").search(
            ids, on="words", key="query", match=match, late_versions=late, keep="40s"
        )
        counts = found.key_by("k").window(WINDOWS["fixed"], accumulation="retracting")
        return found, counts.aggregate(found=lw.count(), total=lw.sum("n_query"))

    return build


case("search of stored queries", searched("all", "correct"), inputs=2, content="final")
case("search of stored queries, any", searched("any", "correct"), inputs=2, content="final")


# -- duplicates and unions -----------------------------------------------------------------------

case(
    "no duplicates",
    lambda stream: (
        stream.deduplicate(id="id", within="60s").key_by("i").process(every_process.Echo())
    ),
    is_large=True,
)
case(
    "no duplicates in windows",
    lambda stream: (
        stream.deduplicate(id=("k", "s"), within="20s")
        .key_by("i")
        .window(WINDOWS["fixed"])
        .aggregate(**ADDING)
    ),
)
case(
    "no duplicates of a join",
    lambda left, right: left.select("k", "n", "id").deduplicate(id="id", within="60s").join(
        right.select("k", "n"), on="k", within="3s"
    ),
    inputs=2,
)  # fmt: skip
case(
    "unusable values, no duplicates",
    lambda stream: (
        stream.deduplicate(id="k", within="9s").key_by("i").process(every_process.Echo())
    ),
    written="python",
)
case(
    "union of three",
    lambda first, second, third: (
        first.filter(lw.col("i") < 9)
        .union(second, third)
        .key_by("k")
        .window(WINDOWS["fixed"])
        .aggregate(**NUMBERS)
    ),
    inputs=3,
)


# -- steps on records ----------------------------------------------------------------------------


def more(record: Any) -> Any:
    return None if record["n"] % 31 == 0 else {**record, "more": record["n"] * 2}


async def more_from_outside(record: Any) -> Any:
    return more(record)


def none_or_two(record: Any) -> Iterable[Any]:
    return [{**record, "copy": copy} for copy in range(record["n"] % 3)]


def with_items(record: Any) -> Any:
    items = None if record["n"] % 7 == 0 else [record["n"], "x", None][: record["n"] % 4]
    return {**record, "items": "no list" if record["n"] % 31 == 0 else items}


def is_small(record: Any) -> bool:
    return bool(record["n"] % 10 < 7)


def key_of(record: Any) -> Any:
    return (str(record["k"]), record["i"] % 3)


def shortened(batch: pa.RecordBatch) -> pa.RecordBatch:
    names = ["time", "k", "i", "n"]
    return batch.select(names).filter(pa.compute.less(batch["i"], 6))


PLACES = pa.table({"i": [0, 1, 2, None], "place": ["here", None, "there", "nowhere"]})
STEPS: dict[str, Build] = {
    "as they come": lambda stream: stream,
    "filter": lambda stream: stream.filter((lw.col("v") > 100) | lw.col("b")),
    "with_columns": lambda stream: stream.with_columns(
        lw.col("s").str.to_uppercase().alias("upper"), twice=lw.col("v") * 2, half=lw.col("x") / 2
    ),
    "select": lambda stream: stream.select("k", "n", twice=lw.col("n") * 2),
    "map_batches": lambda stream: stream.map_batches(shortened),
    "explode": lambda stream: (
        stream.with_columns(s=lw.col("s").str.split("1")).explode("s").select("k", "n", "s")
    ),
    "lookup": lambda stream: stream.lookup(PLACES, on="i"),
    "lookup, inner": lambda stream: stream.lookup(PLACES, on={"i": "i"}, how="inner"),
    "map_async": lambda stream: stream.map_async(more_from_outside, capacity=7),
}
CALLING: dict[str, Build] = {
    "map": lambda stream: stream.map(more),
    "flat_map": lambda stream: stream.flat_map(none_or_two),
    "explode lists of Python": lambda stream: stream.map(with_items).explode("items"),
    "filter by function": lambda stream: stream.filter(is_small),
    "key by function": lambda stream: (
        stream.key_by(key_of).window(WINDOWS["fixed"]).aggregate(**ADDING)
    ),
}
for name, build in {**STEPS, **CALLING}.items():
    case(name, build, is_short=name not in ("select", "filter"), has_workers=name in CALLING)
for name in ("as they come", *CALLING):
    case(
        f"unusable values, {name}",
        {**STEPS, **CALLING}[name],
        written="python",
        is_short=name in ("as they come", "map", "key by function"),
        has_workers=name in CALLING,
    )


def steps_after_steps(stream: Any) -> Any:
    return (
        stream.filter(lw.col("n") % 5 != 0)
        .map(more)
        .with_columns(even=lw.col("more") % 4 == 0)
        .flat_map(none_or_two)
        .filter(is_small)
        .select("k", "n", "copy", "even")
    )


case("steps after steps", steps_after_steps, has_workers=True)
case(
    "branches of one stream",
    lambda stream: (
        stream.filter(lw.col("i") < 4).key_by("k").window(WINDOWS["fixed"]).aggregate(**ADDING),
        stream.map(more).key_by("i").process(every_process.Echo(), order="event_time"),
    ),
    has_workers=True,
)
