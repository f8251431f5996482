"""Tables of panes, by key and window."""

from __future__ import annotations

import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from lowwater.errors import InvalidArgument
from lowwater.io.sinks import SqliteTable

SECOND = 1_000_000
OFTEN = lw.AfterWatermark(early=lw.AfterCount(1), late=lw.AfterCount(1))


def pipeline(
    points: list[tuple[int, str, int]], windows: Any = None, **options: Any
) -> lw.Pipeline:
    rows = [{"at": at * SECOND, "team": team, "n": n} for at, team, n in points]
    stream = lw.from_iterable(rows, time="at", unit="us", watermark=lw.BoundedDisorder("10s"))
    made = windows or lw.FixedWindows("20s")
    return stream.key_by("team").window(made, **options).aggregate(total=lw.sum("n"))


POINTS = [(1, "a", 1), (2, "b", 2), (25, "a", 4), (3, "a", 8), (60, "a", 16)]


def found(table: lw.Table[lw.Stream], **options: Any) -> list[tuple[Any, ...]]:
    rows = table.rows(progress=False, **options)
    return sorted((row["team"], row["window_start"].second, row["total"]) for row in rows)


@pytest.mark.parametrize("accumulation", ["accumulating", "retracting"])
@pytest.mark.parametrize("size", [1, 2, 100])
def test_what_stands_of_each_window(accumulation: Any, size: int) -> None:
    made = pipeline(POINTS, trigger=OFTEN, accumulation=accumulation, allowed_lateness="1m")
    table = made.table()
    assert table.key == ("team", "window_start", "window_end")
    assert table.columns is not None
    assert set(table.columns) == {*table.key, "total", "timestamp"}
    wanted = [("a", 0, 9), ("a", 0, 16), ("a", 20, 4), ("b", 0, 2)]
    assert found(table, bundle_size=size) == wanted


def test_windows_that_fire_once() -> None:
    assert found(pipeline(POINTS).table()) == [("a", 0, 9), ("a", 0, 16), ("a", 20, 4), ("b", 0, 2)]


def test_steps_and_groups_of_a_pane_table() -> None:
    table = pipeline(POINTS, trigger=OFTEN, accumulation="retracting").table()
    by_team = table.filter(lw.col("total") > 3).group_by("team").aggregate(n=lw.count())
    assert by_team.rows(bundle_size=1) == [{"team": "a", "n": 3}]


def test_in_sql_by_key_and_window(tmp_path: Path) -> None:
    path = str(tmp_path / "a.sqlite")
    made = pipeline(POINTS, trigger=OFTEN, accumulation="retracting", allowed_lateness="1m")
    made.table().write_to(SqliteTable(path, "t")).run(bundle_size=1, commit_every="bundle")
    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT team, total FROM t ORDER BY 1, 2").fetchall()
        key = connection.execute("SELECT name FROM pragma_table_info('t') WHERE pk").fetchall()
    assert rows == [("a", 4), ("a", 9), ("a", 16), ("b", 2)]
    assert key == [("team",), ("window_start",), ("window_end",)]


def test_the_panes_as_upserts_of_another_key() -> None:
    table = pipeline(POINTS).table(key="team", order="window_start").select("team", "total")
    assert sorted(row["total"] for row in table.rows()) == [2, 16]


@given(
    st.lists(st.tuples(st.integers(0, 80), st.sampled_from("ab"), st.integers(0, 5)), max_size=12),
    st.booleans(),
    st.integers(1, 12),
)
def test_sessions_that_are_retracted_equal_what_stands(
    points: list[tuple[int, str, int]], sessions: bool, size: int
) -> None:
    windows = lw.Sessions("15s") if sessions else lw.SlidingWindows("20s", period="10s")
    made = pipeline(
        points, windows, trigger=OFTEN, accumulation="retracting", allowed_lateness="2m"
    )
    rows = made.table().rows(bundle_size=size, progress=False)
    held = Counter((row["team"], row["window_start"], row["total"]) for row in rows)
    panes = made.collect(bundle_size=size, progress=False).final().to_arrow().to_pylist()
    assert held == Counter((row["team"], row["window_start"], row["total"]) for row in panes)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"trigger": OFTEN, "accumulation": "discarding"}, "only"),
        (
            {
                "windows": lw.Sessions("5s"),
                "trigger": OFTEN,
                "accumulation": "accumulating",
                "allowed_lateness": "1m",
            },
            "merge",
        ),
        ({"closing": "always", "allowed_lateness": "1m", "accumulation": "discarding"}, "only"),
    ],
)
def test_what_is_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidArgument, match=rf"{why}.*retracting"):
        pipeline(POINTS, **options).table()


def test_arguments_without_a_key() -> None:
    with pytest.raises(InvalidArgument, match="order= needs key="):
        pipeline(POINTS).table(order="index")
    with pytest.raises(InvalidArgument, match="needs the columns of its primary key"):
        lw.from_iterable([{"at": 1}], time="at").table()
