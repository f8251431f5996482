"""Sums, means and variances of integers are exact, rounded once, in any order and any bundles."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw

LOW, HIGH = -(2**63), 2**63 - 1
NEAR = st.sampled_from([LOW, LOW + 1, HIGH, 2**62, -(2**62), 2**53 + 1, 2**32, 2**31 - 1, 0])
START = 1_700_000_000 * 10**9
VALUES = st.one_of(
    st.integers(LOW, HIGH),
    NEAR,
    st.integers(-1000, 1000),
    st.integers(START - 1000, START + 1000),
    st.integers(-(2**31), 2**31),
)
COLUMNS = st.one_of(
    st.lists(VALUES, min_size=1, max_size=12),
    st.lists(st.integers(START - 300, START + 300), min_size=1, max_size=12),
    st.lists(st.booleans(), min_size=1, max_size=6),
)
AGGREGATES = {
    "n": lw.count("v"), "mean": lw.mean("v"), "var": lw.var("v"), "pop": lw.var("v", ddof=0),
    "std": lw.std("v"),
}  # fmt: skip


def wanted(values: list[Any]) -> dict[str, Any]:
    """Return what Python's integers come to; a quotient of these is rounded once."""
    n, total, squares = len(values), sum(values), sum(v * v for v in values)
    apart = n * squares - total * total
    var = apart / (n * (n - 1)) if n > 1 else None
    return {
        "n": n, "mean": total / n if n else None, "var": var, "pop": apart / (n * n) if n else None,
        "std": None if var is None else math.sqrt(var),
    }  # fmt: skip


def windowed(values: list[Any], size: int, **options: Any) -> list[Any]:
    rows = [{"at": at % 3, "k": 1, "v": value} for at, value in enumerate(values)]
    stage = (
        lw.from_iterable(rows, time="at", unit="s").key_by("k")
        .window(lw.FixedWindows("1h"), **options).aggregate(**AGGREGATES)
    )  # fmt: skip
    return [pane.values for pane in stage.collect(bundle_size=size, progress=False).panes]


@given(COLUMNS, st.integers(1, 13))
def test_a_window_is_what_python_computes(values: list[Any], size: int) -> None:
    assert windowed(values, size) == [wanted(values)]


@given(st.lists(VALUES, min_size=1, max_size=12), st.integers(1, 13), st.randoms())
def test_an_order_changes_nothing(values: list[int], size: int, chance: Any) -> None:
    mixed = list(values)
    chance.shuffle(mixed)
    assert windowed(mixed, size) == windowed(values, len(values))


@given(st.lists(VALUES, min_size=1, max_size=12), st.integers(1, 5))
def test_sessions_that_merge_are_what_python_computes(values: list[int], size: int) -> None:
    """The last elements lie between the others: all sessions become one."""
    count = len(values)
    times = [*range(0, 20 * count, 20)]
    times = [*times, *range(10, 20 * count, 20)]
    rows = [{"at": at, "k": 1, "v": value} for at, value in zip(times, values * 2, strict=True)]
    stage = (
        lw.from_iterable(rows, time="at", unit="s", watermark=lw.BoundedDisorder("1d")).key_by("k")
        .window(lw.Sessions("11s")).aggregate(**AGGREGATES)
    )  # fmt: skip
    (pane,) = stage.collect(bundle_size=size, progress=False).panes
    assert pane.values == wanted(values * 2)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.one_of(st.none(), VALUES)), min_size=1, max_size=16),
    st.integers(1, 17),
)
def test_a_group_of_a_table_is_what_its_rows_come_to(
    changes: list[tuple[int, int | None]], size: int
) -> None:
    """Rows are corrected and deleted: what was taken back leaves nothing behind."""
    rows = [
        {"at": at, "id": one, "g": 1, "v": 0 if value is None else value, "gone": value is None}
        for at, (one, value) in enumerate(changes)
    ]
    table = lw.from_iterable(rows, time="at", unit="s").table(key="id", deleted=lw.col("gone"))
    found = table.group_by("g").aggregate(**AGGREGATES).rows(bundle_size=size, progress=False)
    left = [value for value in dict(changes).values() if value is not None]
    assert [{n: row[n] for n in AGGREGATES} for row in found] == ([wanted(left)] if left else [])


@given(st.lists(VALUES, min_size=1, max_size=12), st.integers(1, 13))
def test_a_sum_may_pass_64_bits_on_the_way(values: list[int], size: int) -> None:
    """S-B1: what is emitted is judged, not what came to it."""
    rows = [{"at": at, "k": 1, "v": value} for at, value in enumerate(values)]
    stage = (
        lw.from_iterable(rows, time="at", unit="s").key_by("k")
        .window(lw.FixedWindows("1h")).aggregate(s=lw.sum("v"))
    )  # fmt: skip
    total = sum(values)
    if LOW <= total <= HIGH:
        (pane,) = stage.collect(bundle_size=size, progress=False).panes
        assert pane.values["s"] == total
    else:
        with pytest.raises(lw.DataError, match=str(total)):
            stage.collect(bundle_size=size, progress=False)


@given(
    st.lists(st.integers(-(2**70), 2**70).filter(lambda v: LOW <= v <= HIGH), max_size=6),
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=6),
    st.integers(1, 13),
)
def test_integers_before_fractions_are_exact(
    whole: list[int], fractions: list[float], size: int
) -> None:
    rows = [{"at": at, "k": 1, "v": value} for at, value in enumerate([*whole, *fractions])]
    stage = (
        lw.from_iterable(rows, time="at", unit="s").key_by("k").window(lw.FixedWindows("1h"))
        .aggregate(s=lw.sum("v"), m=lw.mean("v"), n=lw.count("v"), d=lw.std("v", ddof=0))
    )  # fmt: skip
    (pane,) = stage.collect(bundle_size=min(size, len(whole) or 1), progress=False).panes
    total = sum(whole) + math.fsum(fractions)
    near = max([*map(abs, whole), 1e6]) * 1e-9
    assert pane.values["n"] == len(rows)
    assert pane.values["s"] == pytest.approx(total, rel=1e-12, abs=near)
    assert pane.values["m"] == pytest.approx(total / len(rows), rel=1e-12, abs=near)


@pytest.mark.parametrize("size", [1_000, 20_000])
@pytest.mark.parametrize("start", [0, START, 2**62])
def test_past_every_chunk_and_through_a_restart(start: int, size: int, tmp_path: Path) -> None:
    """20,000 records in 7 keys, with a state directory, spilled and not."""
    count = 20_000
    values = start + (np.arange(count) * 7919) % 100_003
    keys = np.arange(count) % 7
    table = pa.table({"at": np.arange(count), "k": keys, "v": values})
    pq.write_table(table, tmp_path / "in.parquet")
    stage = (
        lw.read_parquet(tmp_path / "in.parquet", time="at", unit="us").key_by("k")
        .window(lw.FixedWindows("1h")).aggregate(**AGGREGATES)
    )  # fmt: skip
    plain = {p.key: p.values for p in stage.collect(bundle_size=size, progress=False).panes}
    assert plain == {key: wanted(values[keys == key].tolist()) for key in range(7)}
    stage.write_jsonl(tmp_path / "out.jsonl").run(
        state=tmp_path / "state", bundle_size=size, commit_every="bundle", progress=False
    )
    stored = lw.read_jsonl(tmp_path / "out.jsonl", time="timestamp").map(dict)
    found = stored.collect(progress=False).values()
    assert Counter(row["mean"] for row in found) == Counter(one["mean"] for one in plain.values())
    assert Counter(row["var"] for row in found) == Counter(one["var"] for one in plain.values())
