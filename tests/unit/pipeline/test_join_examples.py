"""Joins as a user would write them: those of ``examples/``."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import lowwater as lw
from examples.currency_rates import converted, turnover
from examples.search_and_click import clicked, unclicked_per_hour
from tests.children import run_example

MINUTE = lw.duration("1m")
HOUR = 60 * MINUTE


def stream(what: str, *rows: tuple[int, str, Any], disorder: str = "10m") -> lw.Stream:
    items = [{"at": at * MINUTE, "key": key, what: value} for at, key, value in rows]
    return lw.from_iterable(items, time="at", unit="us", watermark=lw.BoundedDisorder(disorder))


@pytest.mark.parametrize("bundle_size", [1, 2, 100])
def test_searches_with_their_clicks_and_without(bundle_size: int, tmp_path: Path) -> None:
    """J-2, J-4: whatever comes first, and what has no partner is not late downstream."""
    searches = stream(
        "query", (1, "s1", "cats"), (2, "s2", "dogs"), (58, "s3", "owls"), (90, "s5", "bats")
    ).with_columns(session=lw.col("key"))
    clicks = stream("link", (3, "s1", "cats.org"), (91, "s5", "bats.org"), (89, "s4", "home"))
    pairs = clicked(searches, clicks.with_columns(session=lw.col("key")))
    metrics = lw.run(
        pairs.write_jsonl(tmp_path / "clicked.jsonl"),
        unclicked_per_hour(pairs).write_jsonl(tmp_path / "hours.jsonl"),
        bundle_size=bundle_size,
        progress=False,
    )
    assert not metrics.late

    def written(name: str, *columns: str) -> list[Any]:
        lines = (tmp_path / f"{name}.jsonl").read_text().splitlines()
        return [tuple(json.loads(line)[column] for column in columns) for line in lines]

    assert sorted(written("clicked", "session", "query", "link")) == [
        ("s1", "cats", "cats.org"),
        ("s2", "dogs", None),
        ("s3", "owls", None),
        ("s5", "bats", "bats.org"),
    ]
    # That nobody clicked for s3 is certain after its hour; until then it held the watermark.
    assert written("hours", "window_start", "searches", "timing") == [
        ("1970-01-01T00:00:00Z", 2, "ON_TIME")
    ]


RATES = [(0, "EUR", 1.0), (30, "EUR", 1.25), (45, "EUR", 1.5), (90, "EUR", 2.0)]
ORDERS = [(10, "EUR", 100), (40, "EUR", 200), (45, "EUR", 40), (100, "EUR", 8), (50, "CHF", 1)]


@pytest.mark.parametrize("bundle_size", [1, 100])
def test_turnover_is_right_whatever_comes_late(bundle_size: int) -> None:
    """J-9: the net output is the batch join, in any order of arrival."""
    for order in itertools.permutations(RATES):
        rates = stream("rate", *order, disorder="0s").with_columns(currency=lw.col("key"))
        orders = stream("amount", *ORDERS).with_columns(currency=lw.col("key"))
        rows = converted(orders, rates)
        found = rows.collect(bundle_size=bundle_size)
        assert not found.late
        net: Counter[Any] = Counter()
        for row in found.elements():
            sign = 1 if row.kind == "insert" else -1
            net[row.value["amount"], row.value["rate"], row.timestamp // MINUTE] += sign
        assert {row: count for row, count in net.items() if count} == {
            (100, 1.0, 10): 1,
            (200, 1.25, 40): 1,
            (40, 1.5, 45): 1,
            (8, 2.0, 100): 1,
        }
        totals = turnover(rows).collect(bundle_size=bundle_size).final()
        assert [(pane.window.start // HOUR, pane.value) for pane in totals] == [
            (0, 100.0 + 250.0 + 60.0),
            (1, 16.0),
        ]


@pytest.mark.parametrize(
    ("name", "last"),
    [
        ("search_and_click", "per hour 2000-01-01T12:00:00Z 2"),
        ("currency_rates", "insert ON_TIME 2000-01-01T13:00:00Z 37.5"),
    ],
)
def test_the_files_run(name: str, last: str) -> None:
    assert run_example(name)[-1] == last
