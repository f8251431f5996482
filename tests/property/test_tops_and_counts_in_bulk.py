"""Windows of counts, and tables of tops: many rows past every chunk, and each row once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lowwater as lw
from lowwater.engine.join.tops import TopOperator
from tests.oracles.top_rows import Change, TableRow, TopRun
from tests.property.driven_joins import Driven
from tests.property.top_runs import bundle_of, rules_of, shown


@pytest.mark.parametrize(
    "windows", [lw.CountWindows(7), lw.CountWindows(5_000, every=1_000)], ids=str
)
@pytest.mark.parametrize("bundle_size", [997, 60_000])
def test_counted_bundles_past_every_chunk(windows: lw.CountWindows, bundle_size: int) -> None:
    """60,000 records of keys that are rare and of one that is not, in one bundle and in many."""
    random = np.random.default_rng(5)
    size = 60_000
    keys = np.minimum(random.zipf(1.3, size), 3_000)
    times = random.permutation(size)
    values = random.integers(-(2**46), 2**46, size)
    table = pa.table({"at": pa.array(times, pa.timestamp("us", "UTC")), "k": keys, "v": values})
    windowed = lw.from_arrow(table, time="at").key_by("k").window(windows)
    found = windowed.aggregate(n=lw.count(), total=lw.sum("v"), low=lw.min("v")).to_arrow(
        bundle_size=bundle_size
    )
    got: dict[Any, list[Any]] = {}
    for row in found.select(["k", "n", "total", "low"]).to_pylist():
        got.setdefault(row["k"], []).append((row["n"], row["total"], row["low"]))
    for key in np.unique(keys).tolist():
        own = values[keys == key].tolist()
        wanted = [own[at : at + windows.count] for at in range(0, len(own), windows.step)]
        expected = [(len(some), sum(some), min(some)) for some in wanted]
        assert sorted(got[key]) == sorted(expected)


@pytest.mark.parametrize("order", ["first rows go first", "last rows go first", "at random"])
@pytest.mark.parametrize("many", [6, 2_000])
def test_rows_that_go_leave_others_in_their_place(order: str, many: int) -> None:
    """A group of 2,000 rows is emptied: its head is filled again and again."""
    random = np.random.default_rng(4)
    run = TopRun(3, tied=True)
    rows = [
        TableRow(at, "a", int(random.integers(30)), random.choice(["x", "y"]), at)
        for at in range(many)
    ]
    operator = TopOperator(rules_of(run), {})
    driven = Driven(lambda: operator, 0)

    def step(changes: list[Change]) -> None:
        wanted = run.take(changes)
        assert shown(driven.step(bundle_of(changes, run, arrow=True)), run) == wanted

    step([(row, 1) for row in rows])
    going = {
        "first rows go first": run.in_order(rows),
        "last rows go first": run.in_order(rows)[::-1],
        "at random": [rows[at] for at in random.permutation(many)],
    }[order]
    sizes = [1] * min(many, 40) + [97] * many
    while going:
        size = sizes.pop(0)
        step([(row, -1) for row in going[:size]])
        going = going[size:]
    operator._check()
    assert operator.state_rows == 0


@pytest.mark.parametrize("bundle_size", [997, 20_000])
@pytest.mark.parametrize("groups", [1, 50])
def test_tops_of_bundles_past_every_chunk(groups: int, bundle_size: int) -> None:
    """20,000 upserts of 5,000 rows, in one bundle and in many, against sorting all at the end."""
    random = np.random.default_rng(5)
    size = 20_000
    ids, values = random.integers(0, 5_000, size), random.integers(0, 900, size)
    at = pa.array(np.arange(size), pa.timestamp("us", "UTC"))
    upserts = pa.table({"at": at, "id": ids, "g": (ids + values) % groups, "v": values})
    table = lw.from_arrow(upserts, time="at").table(key="id")
    rows = table.top(10, per="g", by="v").rows(bundle_size=bundle_size)
    last = dict(zip(ids.tolist(), values.tolist(), strict=True))
    wanted: dict[int, list[tuple[int, int]]] = {}
    for which, value in last.items():
        wanted.setdefault((which + value) % groups, []).append((-value, which))
    expected = {
        (group, rank, which, -value)
        for group, some in wanted.items()
        for rank, (value, which) in enumerate(sorted(some)[:10], 1)
    }
    assert {(row["g"], row["rank"], row["id"], row["v"]) for row in rows} == expected
    assert len(rows) == len(expected)


def counted_changes(make: Callable[[lw.Table[lw.Stream]], lw.Table[lw.Stream]]) -> list[Any]:
    rows = [{"at": f"2024-05-01T12:00:{at:02}Z", "id": at, "v": at} for at in range(12)]
    table = lw.from_iterable(rows, time="at").table(key="id")
    return list(make(table).changes().run(bundle_size=1))


def test_a_row_changes_the_ranks_behind_it_alone() -> None:
    """The row that comes last each time changes one rank, and the first one all (T-6)."""
    ascending = counted_changes(lambda table: table.top(3, by="v", reverse=True))
    assert len(ascending) == 3
    descending = counted_changes(lambda table: table.top(3, by="v"))
    assert len(descending) == 1 + 3 + 5 + 9 * 6
