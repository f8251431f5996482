"""Aggregates of integers and decimals are exact on Spark's level function, in any micro-batches."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from tests.property.test_integer_aggregates import AGGREGATES, HIGH, LOW, VALUES, wanted
from tests.spark.stepped import Stepped

SECOND = 1_000_000
CENTS = st.integers(-(10**15), 10**15).map(lambda one: Decimal(one).scaleb(-2))


def stepped(pipeline: Any, table: pa.Table, size: int, *, forgets: bool) -> list[dict[str, Any]]:
    """Return the panes of micro-batches of so many records; ``forgets``: each in a new worker."""
    query = Stepped(pipeline, table.schema)
    for start in range(0, len(table), size):
        query.step([table.slice(start, size)], now=start)
        if forgets:
            rows = query.rows
            query = Stepped(pipeline, table.schema, query.cells)
            query.rows = rows
    query.end(now=len(table))
    return [row for row in query.rows if row["output"] == "pane"]


def source(values: pa.Array, times: Any) -> tuple[pa.Table, lw.Stream]:
    table = pa.table({
        "at": pa.array(times, pa.int64()), "k": pa.array([1] * len(values)), "v": values,
    })  # fmt: skip
    return table, lw.from_arrow(table, time="at", unit="us", watermark=lw.BoundedDisorder("1d"))


@given(st.lists(VALUES, min_size=1, max_size=12), st.integers(1, 13), st.booleans())
def test_integers_in_sessions_that_merge(values: list[int], size: int, forgets: bool) -> None:
    """The last elements lie between the others: all sessions become one."""
    count = len(values)
    times = SECOND * np.array([*range(0, 20 * count, 20), *range(10, 20 * count, 20)])
    table, stream = source(pa.array(values * 2, pa.int64()), times)
    made = stream.key_by("k").window(lw.Sessions("11s")).aggregate(**AGGREGATES)
    (pane,) = stepped(made, table, size, forgets=forgets)
    assert {name: pane[name] for name in AGGREGATES} == wanted(values * 2)


@given(
    st.lists(VALUES, min_size=1, max_size=12).filter(lambda vs: LOW <= sum(vs) <= HIGH),
    st.lists(CENTS, min_size=1, max_size=12),
    st.integers(1, 13),
    st.booleans(),
)
def test_sums_and_decimals(
    values: list[int], cents: list[Decimal], size: int, forgets: bool
) -> None:
    table, stream = source(pa.array(values, pa.int64()), np.arange(len(values)))
    windowed = stream.key_by("k").window(lw.FixedWindows("1h"))
    (pane,) = stepped(windowed.aggregate(s=lw.sum("v")), table, size, forgets=forgets)
    assert pane["s"] == sum(values)
    table, stream = source(pa.array(cents, pa.decimal128(18, 2)), np.arange(len(cents)))
    windowed = stream.key_by("k").window(lw.FixedWindows("1h"))
    made = windowed.aggregate(s=lw.sum("v"), low=lw.min("v"))
    (pane,) = stepped(made, table, size, forgets=forgets)
    assert (pane["s"], pane["low"]) == (sum(cents), min(cents))
