"""Aggregates that order, sketch or choose among values, and the same as plain Python.

They read the columns of :data:`tests.property.strategies.RANKED` beside the value.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import lowwater as lw
from lowwater.testing.oracle import OfRecords

Records = list[dict[str, Any]]


def top(
    n: int, by: str, keep: tuple[str, ...], ties: tuple[str, ...] = (), *,
    with_ties: bool = False, reverse: bool = False, takes: Any = None,
) -> OfRecords:  # fmt: skip
    """Return what ``lw.top`` gives: a sort of all records."""
    order = dict.fromkeys((*ties, *keep, by))
    sign = 1 if reverse else -1

    def place(record: dict[str, Any]) -> Any:
        return sign * record[by], [nulls_first(record[name]) for name in order]

    def tie(record: dict[str, Any]) -> Any:
        return record[by], [record[name] for name in ties]

    def listed(records: Records) -> list[Any]:
        rows = sorted((one for one in records if one[by] is not None), key=place)
        first = rows[:n]
        if with_ties and len(rows) > n:
            first += [one for one in rows[n:] if tie(one) == tie(first[-1])]
        return [{name: one[name] for name in dict.fromkeys((by, *keep))} for one in first]

    return OfRecords(("value", "rank", "name"), listed, takes)


def nulls_first(value: Any) -> Any:
    return (value is not None, 0 if value is None else value)


def largest(values: list[Any], n: int) -> list[dict[str, Any]]:
    """What ``lw.top(n, by="value")`` gives."""
    return [{"value": value} for value in sorted(values, reverse=True)[:n]]


def frequent(values: list[Any], n: int) -> list[dict[str, Any]]:
    counts = sorted(Counter(values).items(), key=lambda one: (-one[1], one[0]))
    return [{"value": value, "count": count} for value, count in counts[:n]]


def quantile(values: list[Any], q: float) -> Any:
    """The nearest rank, with the fraction as it is written."""
    rank = max(math.ceil(Fraction(str(q)) * len(values)), 1)
    return sorted(values)[rank - 1] if values else None


def estimate(values: list[Any], q: float, error: float, low: float) -> float | None:
    """The quantile of the bins, found by walking along their bounds."""
    value = quantile(values, q)
    if value is None or value == 0:
        return value
    growth, bound = (1 + error) / (1 - error), low
    while bound * growth < abs(value):
        bound *= growth
    return math.copysign(bound * (2 * growth / (growth + 1)), value)


def of(column: str, function: Callable[[list[Any]], Any], takes: Any = None) -> OfRecords:
    """Return a function of the values of a column that are not null."""

    def result(records: Records) -> Any:
        return function([one[column] for one in records if one[column] is not None])

    return OfRecords(tuple(dict.fromkeys((column, "rank", "name"))), result, takes)


def is_high(record: dict[str, Any]) -> bool:
    return record["rank"] is not None and record["rank"] > 0


def is_a(record: dict[str, Any]) -> bool:
    return bool(record["name"] == "a")


HIGH, A = lw.col("rank") > 0, lw.col("name") == "a"

SUBTRACTING = {
    "frequent": lw.most_frequent("rank", n=2),
    "frequent values": lw.most_frequent(n=3),
    "median": lw.median("value"),
    "median rank": lw.median("rank"),
    "quantiles": lw.quantile("name", [0, 0.1, 0.5, 1]),
    "about": lw.approx_quantile("value", 0.7, error=0.1, between=(0.5, 1000.0)),
    "abouts": lw.approx_quantile("rank", [0.1, 0.9]),
    "distinct": lw.approx_count_distinct("value", precision=18),
    "names": lw.approx_count_distinct("name", precision=18),
    "high": lw.count(where=HIGH),
    "high names": lw.count("name", where=HIGH),
    "sum of a": lw.sum(where=A),
    "mean of a": lw.mean("rank", where=A),
    "median of a": lw.median("value", where=A),
}
SUBTRACTING_PLAIN: dict[str, Any] = {
    "frequent": of("rank", lambda values: frequent(values, 2)),
    "frequent values": of("value", lambda values: frequent(values, 3)),
    "median": of("value", lambda values: quantile(values, 0.5)),
    "median rank": of("rank", lambda values: quantile(values, 0.5)),
    "quantiles": of(
        "name", lambda values: [quantile(values, q) for q in (0, 0.1, 0.5, 1)] if values else None
    ),
    "about": of("value", lambda values: estimate(values, 0.7, 0.1, 0.5)),
    "abouts": of(
        "rank",
        lambda values: [estimate(values, q, 0.01, 1e-9) for q in (0.1, 0.9)] if values else None,
    ),
    "distinct": of("value", lambda values: len(set(values))),
    "names": of("name", lambda values: len(set(values))),
    "high": OfRecords(("rank",), len, is_high),
    "high names": of("name", len, is_high),
    "sum of a": of("value", sum, is_a),
    "mean of a": of("rank", lambda v: sum(v) / len(v) if v else None, is_a),
    "median of a": of("value", lambda values: quantile(values, 0.5), is_a),
}
KEEPING = {
    "top": lw.top(2, by="value", keep=("rank", "name"), ties="name"),
    "top ranks": lw.top(3, by="rank", keep=("name", "value"), reverse=True),
    "tied": lw.top(1, by="rank", keep="name", with_ties=True),
    "tied by name": lw.top(2, by="rank", keep="value", ties="name", with_ties=True),
    "top of a": lw.top(2, by="value", keep="rank", where=A),
    "list of a": lw.collect(where=A),
    "set of high": lw.collect_set(where=HIGH),
    "most of a": lw.max(where=A),
    "distinct of high": lw.count_distinct("name", where=HIGH),
}
KEEPING_PLAIN: dict[str, Any] = {
    "top": top(2, "value", ("rank", "name"), ("name",)),
    "top ranks": top(3, "rank", ("name", "value"), reverse=True),
    "tied": top(1, "rank", ("name",), with_ties=True),
    "tied by name": top(2, "rank", ("value",), ("name",), with_ties=True),
    "top of a": top(2, "value", ("rank",), takes=is_a),
    "list of a": of("value", list, is_a),
    "set of high": of("value", lambda values: list(dict.fromkeys(values)), is_high),
    "most of a": of("value", lambda values: max(values, default=None), is_a),
    "distinct of high": of("name", lambda values: len(set(values)), is_high),
}
