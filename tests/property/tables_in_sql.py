"""Random upserts of two tables, tables that are computed from them, and what SQL says of those.

The column ``g``, which is joined and grouped by, may be null.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import narwhals as nw
import pyarrow as pa
from hypothesis import strategies as st

import lowwater as lw
from lowwater.pipeline import Stream
from lowwater.pipeline.tables import Table

SECOND = 1_000_000
SCHEMA = pa.schema(
    [
        ("at", pa.int64()),
        ("side", pa.string()),
        ("id", pa.int64()),
        ("g", pa.int64()),
        ("v", pa.int64()),
        ("place", pa.int64()),
        ("gone", pa.bool_()),
    ]
)

Row: TypeAlias = Mapping[str, Any]
Made: TypeAlias = Callable[[Table[Stream], Table[Stream]], Table[Stream]]


@dataclass(frozen=True)
class Computed:
    """A table that is made from two others, and the query that says what is in it."""

    make: Made
    query: str


def _of(make: Made, query: str) -> Computed:
    return Computed(make, query)


def _joined_groups(left: Table[Stream], right: Table[Stream]) -> Table[Stream]:
    """Return groups of both tables, of which two may have the key null: :data:`_GROUPS` in SQL."""
    groups = right.group_by("g").aggregate(s=lw.sum("v"))
    return left.group_by("g").aggregate(n=lw.count()).join(groups, on="g", how="outer")


def _with_text(table: Table[Stream]) -> Table[Stream]:
    """Return a table with another column that may be null, text: :data:`_TEXT` in SQL."""
    v = nw.col("v")
    return table.with_columns(h=nw.when(v > 2).then(v.cast(nw.String)))


_TEXT = "SELECT *, CASE WHEN v > 2 THEN CAST(v AS TEXT) END AS h FROM"
_GROUPS = (
    "SELECT coalesce(l.g, r.g) AS g, n, s FROM (SELECT g, count(*) AS n FROM l GROUP BY g) l "
    "FULL JOIN (SELECT g, sum(v) AS s FROM r GROUP BY g) r ON l.g = r.g"
)
_OUTER = "SELECT coalesce(l.g, r.g) AS g, l.id, r.id AS id_right FROM l FULL JOIN r ON l.g = r.g"


def _top(columns: str, of: str, by: str, per: str = "", most: int = 2, name: str = "rank") -> str:
    """Return a query for the first rows of each group."""
    over = f"{f'PARTITION BY {per} ' if per else ''}ORDER BY {by}"
    ranked = f"SELECT {columns}, row_number() OVER ({over}) AS {name} FROM {of}"
    return f"SELECT * FROM ({ranked}) WHERE {name} <= {most}"


TABLES: Mapping[str, Computed] = {
    "upserts": _of(lambda left, right: left, "SELECT id, g, v FROM l"),
    "filter": _of(
        lambda left, right: left.filter(lw.col("v") > 3).select("id", "v"),
        "SELECT id, v FROM l WHERE v > 3",
    ),
    "with_columns": _of(
        lambda left, right: left.with_columns(w=lw.col("v") * 2).filter(lw.col("w") > 5),
        "SELECT id, g, v, v * 2 AS w FROM l WHERE w > 5",
    ),
    "group": _of(
        lambda left, right: left.group_by("g").aggregate(
            n=lw.count(), total=lw.sum("v"), most=lw.max("v")
        ),
        "SELECT g, count(*) AS n, sum(v) AS total, max(v) AS most FROM l GROUP BY g",
    ),
    "filtered group": _of(
        lambda left, right: (
            left.filter(lw.col("v") > 2)
            .group_by("g")
            .aggregate(n=lw.count())
            .filter(lw.col("n") > 1)
        ),
        "SELECT g, count(*) AS n FROM l WHERE v > 2 GROUP BY g HAVING count(*) > 1",
    ),
    **{
        f"{how} join on the key": _of(
            lambda left, right, how=how: left.join(  # type: ignore[misc]
                right.select("id", "v"), left_on="g", right_on="id", how=how
            ),
            f"SELECT l.id, l.g, l.v, r.v AS v_right FROM l {how} JOIN r ON l.g = r.id",
        )
        for how in ("inner", "left")
    },
    **{
        f"{how} join": _of(
            lambda left, right, how=how: left.join(right, on="g", how=how),  # type: ignore[misc]
            "SELECT coalesce(l.g, r.g) AS g, l.id, l.v, r.id AS id_right, r.v AS v_right "
            f"FROM l {'full' if how == 'outer' else how} JOIN r ON l.g = r.g",
        )
        for how in ("inner", "left", "right", "outer")
    },
    "semi join": _of(
        lambda left, right: left.join(right, on="g", how="semi"),
        "SELECT id, g, v FROM l WHERE g IN (SELECT g FROM r)",
    ),
    "anti join": _of(
        lambda left, right: left.join(right, on="g", how="anti"),
        "SELECT id, g, v FROM l WHERE NOT EXISTS (SELECT 1 FROM r WHERE l.g = r.g)",
    ),
    "join of a group": _of(
        lambda left, right: left.join(
            left.group_by("g").aggregate(total=lw.sum("v")), on="g"
        ).filter(lw.col("v") * 2 >= lw.col("total")),
        "SELECT l.id, l.g, l.v, t.total FROM l "
        "JOIN (SELECT g, sum(v) AS total FROM l GROUP BY g) t ON l.g = t.g WHERE l.v * 2 >= total",
    ),
    "group of a join": _of(
        lambda left, right: (
            left.join(right, on="g").group_by("id_right").aggregate(n=lw.count(), s=lw.sum("v"))
        ),
        "SELECT r.id AS id_right, count(*) AS n, sum(l.v) AS s FROM l JOIN r ON l.g = r.g "
        "GROUP BY r.id",
    ),
    **{
        f"{how} join on two columns": _of(
            lambda left, right, how=how: _with_text(left).join(  # type: ignore[misc]
                _with_text(right), on=("g", "h"), how=how
            ),
            "SELECT coalesce(l.g, r.g) AS g, coalesce(l.h, r.h) AS h, l.id, l.v, r.id AS id_right, "
            f"r.v AS v_right FROM ({_TEXT} l) l FULL JOIN ({_TEXT} r) r ON l.g = r.g AND l.h = r.h"
            + ("" if how == "outer" else " WHERE l.id IS NOT NULL"),
        )
        for how in ("left", "outer")
    },
    "group by two columns": _of(
        lambda left, right: _with_text(left).group_by("h", "g").aggregate(n=lw.count()),
        f"SELECT h, g, count(*) AS n FROM ({_TEXT} l) GROUP BY h, g",
    ),
    "group of an outer join": _of(
        lambda left, right: (
            left.join(right, on="g", how="outer").group_by("id_right", "g").aggregate(n=lw.count())
        ),
        f"SELECT id_right, g, count(*) AS n FROM ({_OUTER}) GROUP BY id_right, g",
    ),
    "join of an outer join": _of(
        lambda left, right: (
            left.join(right, on="g", how="outer")
            .select("id", "id_right")
            .join(left.select("id", "g"), left_on="id_right", right_on="id", how="left")
        ),
        f"SELECT o.id, o.id_right, l.g FROM ({_OUTER}) o LEFT JOIN l ON o.id_right = l.id",
    ),
    "outer join of groups": _of(_joined_groups, _GROUPS),
    "outer join of an outer join of groups": _of(
        lambda left, right: _joined_groups(left, right).join(
            right.group_by("g").aggregate(m=lw.max("v")), left_on="n", right_on="m", how="outer"
        ),
        f"SELECT coalesce(o.n, r.m) AS n, o.g, o.s, r.g AS g_right FROM ({_GROUPS}) o "
        "FULL JOIN (SELECT g, max(v) AS m FROM r GROUP BY g) r ON o.n = r.m",
    ),
    "inner join of an outer join of groups": _of(
        lambda left, right: left.select("id", "g").join(_joined_groups(left, right), on="g"),
        f"SELECT l.id, l.g, o.n, o.s FROM l JOIN ({_GROUPS}) o ON l.g = o.g",
    ),
    "top": _of(
        lambda left, right: left.top(2, per="g", by="v"),
        _top("id, g, v", "l", "v DESC, id", "g"),
    ),
    "top of all": _of(
        lambda left, right: left.top(3, by="v", ties="g", reverse=True),
        _top("id, g, v", "l", "v, g, id", most=3),
    ),
    "top of an outer join": _of(
        lambda left, right: left.join(right, on="g", how="outer").top(1, per="g", by="v"),
        _top(
            "g, id, v, id_right, v_right",
            "(SELECT coalesce(l.g, r.g) AS g, l.id, l.v, r.id AS id_right, r.v AS v_right "
            "FROM l FULL JOIN r ON l.g = r.g) WHERE v IS NOT NULL",
            "v DESC, id, id_right", "g", most=1,
        ),
    ),
    "top of joined groups": _of(
        lambda left, right: (
            _joined_groups(left, right)
            .with_columns(both=nw.coalesce(lw.col("n"), lw.lit(-1)))
            .top(2, by="both")
        ),
        # SQL cannot say which of two rows of the key null is of the left: its values here.
        _top("*", f"(SELECT *, coalesce(n, -1) AS both FROM ({_GROUPS}))", "both DESC, g"),
    ),
    "group of a top": _of(
        lambda left, right: left.top(2, per="g", by="v").group_by("rank").aggregate(s=lw.sum("v")),
        "SELECT rank, sum(v) AS s FROM "
        f"({_top('id, g, v', 'l', 'v DESC, id', 'g')}) GROUP BY rank",
    ),
    "top of a top": _of(
        lambda left, right: left.top(2, per="g", by="v").top(2, by="v", ties="g", rank="place"),
        _top("*", f"({_top('id, g, v', 'l', 'v DESC, id', 'g')})", "v DESC, g, rank", name="place"),
    ),
}  # fmt: skip


@st.composite
def upserts(draw: st.DrawFn, most: int = 24) -> list[dict[str, Any]]:
    """Draw upserts of both tables; ``place`` is their order."""
    small = st.integers(0, 3)
    return [
        {
            "at": draw(st.integers(0, 50)) * SECOND,
            "side": draw(st.sampled_from("lr")),
            "id": draw(small),
            "g": draw(st.none() | small),
            "v": draw(st.integers(0, 6)),
            "place": draw(st.integers(0, 8)),
            "gone": draw(st.sampled_from([False, False, False, True])),
        }
        for _ in range(draw(st.integers(1, most)))
    ]


def tables_of(stream: Stream, *, ordered: bool) -> tuple[Table[Stream], Table[Stream]]:
    """Return both tables of a stream of upserts."""
    left, right = (
        stream.filter(lw.col("side") == side).table(
            key="id", order="place" if ordered else None, deleted=lw.col("gone")
        )
        for side in "lr"
    )
    return left.select("id", "g", "v"), right.select("id", "g", "v")


def rows_after(given: Iterable[Row], side: str, *, ordered: bool) -> list[Row]:
    """Return the rows of a table after upserts, one by one."""
    held: dict[int, Row] = {}
    for row in given:
        old = held.get(row["id"])
        if row["side"] == side and not (ordered and old and row["place"] < old["place"]):
            held[row["id"]] = row
    return [row for row in held.values() if not row["gone"]]


def answer(query: str, given: Sequence[Row], *, ordered: bool) -> Counter[tuple[Any, ...]]:
    """Return what a query gives over both tables after upserts; columns sorted by name."""
    with sqlite3.connect(":memory:") as connection:
        for side in "lr":
            connection.execute(f"CREATE TABLE {side} (id INTEGER, g INTEGER, v INTEGER)")
            found = rows_after(given, side, ordered=ordered)
            connection.executemany(
                f"INSERT INTO {side} VALUES (?, ?, ?)",
                [(row["id"], row["g"], row["v"]) for row in found],
            )
        return _rows(connection, query)


def held_in(path: str, table: str) -> Counter[tuple[Any, ...]]:
    """Return the rows of a table that a sink keeps; nothing if it has not made it yet."""
    with sqlite3.connect(path) as connection:
        made = connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,))
        if made.fetchone() is None:
            return Counter()
        return _rows(connection, f'SELECT * FROM "{table}"', ("timestamp", "row_key"))


def _rows(
    connection: sqlite3.Connection, query: str, without: Sequence[str] = ()
) -> Counter[tuple[Any, ...]]:
    cursor = connection.execute(query)
    names = [column[0] for column in cursor.description]
    kept = sorted((name, at) for at, name in enumerate(names) if name not in without)
    return Counter(tuple((name, row[at]) for name, at in kept) for row in cursor.fetchall())
