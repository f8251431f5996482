"""Ranked aggregates of odd values: the same content in any order, bundling, and company.

Integers beyond 2**53 beside floats, both zeros, decimals and lists that are equal but written
differently; columns whose Arrow type changes from bundle to bundle; and other aggregates that add
the same column up.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given

import lowwater as lw
from tests.examples import examples
from tests.property.small_chunks import small_chunks

WIDE = 2**53
POOLS: dict[str, list[Any]] = {
    "zeros": [0.0, -0.0, 0.5, -0.5],
    "wide": [WIDE, WIDE + 1, float(WIDE), 0.5, -(2**63), 2**63 - 1, -(2.0**63)],
    "decimals": [Decimal("1.0"), Decimal("1.00"), Decimal("-0"), Decimal("0.0"), Decimal("2")],
    "texts": ["", "a", "é", "\uffff", "𝄞"],
    "tuples": [(1, "a"), (1.0, "a"), (2, ""), (0, "z")],
}
ANY_POOLS: dict[str, list[Any]] = {
    "lists": [[1], [1.0], [True], [], [1, None], [[1]], {"a": 1}, {"a": 1.0}, {1}, None],
    "several": [1, 1.0, True, "1", b"1", Decimal(1), math.nan, Decimal("NaN"), None, 2**62],
}
RANKED = {
    "top": lw.top(3, by="v", keep="n"),
    "bottom": lw.top(2, by="v", reverse=True),
    "quantiles": lw.quantile("v", [0, 0.5, 1]),
}
ANY = {
    "frequent": lw.most_frequent("v", n=3),
    "distinct": lw.count_distinct("v"),
    "about": lw.approx_count_distinct("v", precision=16),
}
SUMS = {"sum": lw.sum("v"), "mean": lw.mean("v"), "near": lw.approx_quantile("v", 0.5)}


def shown(values: list[Any], bundle: int, aggregates: dict[str, Any]) -> dict[str, Any]:
    rows = [{"at": 0, "v": value, "n": 7} for value in values]
    stream = lw.from_iterable(rows, time="at", unit="s").key_by(k=lw.lit(1))
    pipeline = stream.window(lw.GlobalWindow()).aggregate(**aggregates)
    (pane,) = pipeline.run(bundle_size=bundle, on_error="raise", progress=False)
    return {name: pane.values[name] for name in aggregates}


def exact(found: dict[str, Any]) -> str:
    """Return what tells -0.0 and 0.0 apart, and equal values that are written differently."""
    return repr(found)


@st.composite
def orders(draw: st.DrawFn, pools: dict[str, list[Any]]) -> tuple[str, list[Any], list[Any], int]:
    """Some values of one pool, in two orders, and the size of bundles."""
    name = draw(st.sampled_from(sorted(pools)))
    values = draw(st.lists(st.sampled_from(pools[name]), min_size=1, max_size=12))
    return name, values, draw(st.permutations(values)), draw(st.integers(1, 13))


@given(orders(POOLS))
@examples(4)
def test_ordered_values(case: tuple[str, list[Any], list[Any], int]) -> None:
    name, values, again, bundle = case
    with small_chunks():
        found = shown(values, 1000, RANKED | ANY)
        other = shown(again, bundle, RANKED | ANY)
    assert found == other
    if name != "wide":  # where integers stand beside floats, a bundle may make floats of them
        assert exact(found) == exact(other)
    assert found["distinct"] == found["about"] == len(set(values))
    assert found["quantiles"][::2] == [min(values), max(values)]


@given(orders(ANY_POOLS))
@examples(4)
def test_any_values(case: tuple[str, list[Any], list[Any], int]) -> None:
    _, values, again, bundle = case
    with small_chunks():
        found, other = shown(values, 1000, ANY), shown(again, bundle, ANY)
    assert exact(found) == exact(other)
    assert found["distinct"] == found["about"]


@given(orders({"wide": POOLS["wide"][:4], "zeros": POOLS["zeros"]}))
@examples(4)
def test_an_aggregate_beside_others_shows_what_it_shows_alone(
    case: tuple[str, list[Any], list[Any], int],
) -> None:
    """A sum takes floats where some are; the values themselves stay what they are (S-B1)."""
    _, values, again, bundle = case
    alone = shown(values, 1000, RANKED | ANY)
    beside = shown(again, bundle, RANKED | ANY | SUMS | {"max": lw.max("v")})
    assert {name: beside[name] for name in alone} == alone
    assert beside["max"] == max(values)
    total = math.fsum(values)
    assert beside["sum"] == pytest.approx(total, rel=1e-12, abs=2048 * len(values))


TYPED = [
    pa.array([WIDE + 1, 1], pa.int64()), pa.array([0.5, -0.0], pa.float64()),
    pa.array([None, None], pa.int64()), pa.array([0, -(2**63)], pa.int64()),
    pa.array([-(2.0**63), 0.0], pa.float64()), pa.array([3, None], pa.int8()),
]  # fmt: skip


@given(st.lists(st.sampled_from(range(len(TYPED))), min_size=1, max_size=5))
@examples(4)
def test_columns_whose_type_changes(which: list[int]) -> None:
    values = [value for at in which for value in TYPED[at].to_pylist()]
    batches = [
        pa.record_batch({"at": pa.array([0, 0]), "v": TYPED[at], "n": pa.array([7, 7])})
        for at in which
    ]
    rows = lw.from_iterable([{"at": 0, "b": at} for at in range(len(which))], time="at", unit="s")
    stream = rows.map_batches(
        lambda batch: pa.concat_tables(
            [pa.Table.from_batches([batches[at]]) for at in batch["b"].to_pylist()]
        )
    ).key_by(k=lw.lit(1))
    pipeline = stream.window(lw.GlobalWindow()).aggregate(**RANKED, **ANY)
    (pane,) = pipeline.run(bundle_size=1, on_error="raise", progress=False)
    there = [value for value in values if value is not None]
    assert pane.values["distinct"] == pane.values["about"] == len(set(there))
    wanted = sorted(there)
    ends = [wanted[0], wanted[-(-len(wanted) // 2) - 1], wanted[-1]] if wanted else None
    assert pane.values["quantiles"] == ends
    assert [one["v"] for one in pane.values["top"]] == wanted[::-1][:3]


def test_what_is_retracted_stands_for_nothing() -> None:
    """0.0 goes, and -0.0 is left, whenever sums were made in between."""
    rows = [
        {"at": 0, "id": 0, "v": 0.0}, {"at": 1, "id": 1, "v": -0.0}, {"at": 2, "id": 0, "v": 100.0},
    ]  # fmt: skip
    for bundle in (1, 2, 1000):
        with small_chunks():
            first = (
                lw.from_iterable(rows, time="at", unit="s").key_by("id")
                .window(lw.GlobalWindow(), trigger=lw.Always(), accumulation="retracting")
                .aggregate(v=lw.last("v"))
            )  # fmt: skip
            second = first.key_by(k=lw.lit(1)).window(lw.GlobalWindow(), accumulation="retracting")
            panes = second.aggregate(
                q=lw.quantile("v", 0),
                often=lw.most_frequent("v"),
            ).collect(bundle_size=bundle, progress=False)
        last = [pane for pane in panes.panes if pane.kind == "insert"][-1]
        assert repr(last.values["q"]) == "-0.0"
        assert repr(last.values["often"][0]) == "{'value': -0.0, 'count': 1}"
