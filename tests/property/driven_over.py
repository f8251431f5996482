"""Operators of ``over`` that are given what the scalar oracle is given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Any, final

import numpy as np
import pyarrow as pa

import lowwater as lw
from lowwater.engine.graph.graph import Stage
from lowwater.engine.over.operator import OverOperator
from lowwater.engine.records.batch import Records
from lowwater.engine.records.columns import Column
from lowwater.engine.records.steps import Bundle
from lowwater.engine.stages.ranged import Ranged
from tests.oracles.over_rows import OverRun, Row
from tests.property.driven_joins import Row as OutRow


@final
@dataclass(frozen=True)
class Asked:
    """A result, as the oracle and as the library are asked for it.

    Args:
        oracle: Computes it, given the values of the range: those that are not null.
        library: The aggregate.
        column: The column.
    """

    oracle: Callable[[list[Any]], Any]
    library: Any
    column: str = "n"


def _mean(values: Sequence[Any]) -> float | None:
    if not values:
        return None
    return float(sum(map(Fraction, values)) / len(values))


def _sum(values: Sequence[Any]) -> float:
    return float(sum(map(Fraction, values)))


def _float_mean(values: Sequence[Any]) -> float | None:
    return _sum(values) / len(values) if values else None  # the sum is rounded once, too


def _variance(values: Sequence[int]) -> float | None:
    if len(values) < 2:
        return None
    mean = Fraction(sum(values), len(values))
    return float(sum((value - mean) ** 2 for value in values) / (len(values) - 1))


def _first(values: Sequence[Any]) -> Any:
    return values[0] if values else None


AGGREGATES: Mapping[str, Asked] = {
    "count": Asked(len, lw.count("n")),
    "sum": Asked(sum, lw.sum("n")),
    "mean": Asked(_mean, lw.mean("n")),
    "var": Asked(_variance, lw.var("n")),
    "floats": Asked(_sum, lw.sum("f"), "f"),
    "float mean": Asked(_float_mean, lw.mean("f"), "f"),
    "min": Asked(lambda values: min(values, default=None), lw.min("n")),
    "max": Asked(lambda values: max(values, default=None), lw.max("n")),
    "max text": Asked(lambda values: max(values, default=None), lw.max("v"), "v"),
    "first": Asked(_first, lw.first("n")),
    "last": Asked(lambda values: _first(values[::-1]), lw.last("v"), "v"),
    "list": Asked(list, lw.collect("n")),
    "distinct": Asked(lambda values: len(set(values)), lw.count_distinct("n")),
    "median": Asked(
        lambda values: sorted(values)[ceil(len(values) / 2) - 1] if values else None,
        lw.median("n"),
    ),
    "where": Asked(
        lambda values: sum(value == "x" for value in values),
        lw.count(where=lw.col("v") == "x"), "v",
    ),
}  # fmt: skip
NAMES = tuple(AGGREGATES)
NUMBERS = ("number", "rank", "rank down")
EXPRESSIONS = ("prev", "prev 2", "step")


@final
@dataclass(frozen=True)
class Case:
    """What is computed, with its options; microseconds, ``None`` for none."""

    names: tuple[str, ...] = ("count",)
    length: int | None = None
    rows: int | None = None
    ordered: bool = False
    keep: int | None = None
    lateness: int = 0
    signed: bool = False

    def run(self) -> OverRun:
        """Return the oracle."""
        run = OverRun(
            [self._oracle(name, lambda: run) for name in self.names],
            length=self.length, rows=self.rows, order="o" if self.ordered else None,
            keep=self.keep, lateness=self.lateness,
        )  # fmt: skip
        return run

    def _oracle(self, name: str, run: Callable[[], OverRun]) -> Any:
        if name == "number":
            return lambda rows, place, _: place + 1
        if name.startswith("rank"):
            sign = -1 if name == "rank down" else 1

            def rank(rows: Sequence[Row], place: int, some: Sequence[Row]) -> Any:
                own = rows[place].values["n"]
                if own is None:
                    return None
                values = [row.values["n"] for row in some if row.values["n"] is not None]
                return 1 + sum(sign * value < sign * own for value in values)

            return rank
        if name in EXPRESSIONS:
            k = 2 if name == "prev 2" else 1

            def before(rows: Sequence[Row], place: int, _: Sequence[Row]) -> Any:
                row = run().previous(rows, place, k)
                value = None if row is None else row.values["n"]
                if name != "step":
                    return value
                own = rows[place].values["n"]
                return None if value is None or own is None else own - value

            return before
        asked = AGGREGATES[name]

        def aggregate(_rows: Sequence[Row], _place: int, some: Sequence[Row]) -> Any:
            values = [row.values[asked.column] for row in some]
            return asked.oracle([value for value in values if value is not None])

        return aggregate

    def stage(self) -> Stage:
        """Return the stage of the library."""
        nothing: list[dict[str, Any]] = []
        asked: dict[str, Any] = {
            "number": lw.row_number(),
            "rank": lw.rank("n"),
            "rank down": lw.rank("n", descending=True),
            "prev": lw.prev("n"),
            "prev 2": lw.prev("n", 2),
            "step": lw.col("n") - lw.prev("n"),
            **{name: aggregate.library for name, aggregate in AGGREGATES.items()},
        }
        options: dict[str, Any] = {name: asked[name] for name in self.names}
        stream = lw.from_iterable(nothing, time="at").key_by("k")
        return stream.over(
            None if self.length is None else f"{self.length}us",
            rows=self.rows,
            order="o" if self.ordered else None,
            keep=None if self.keep is None else f"{self.keep}us",
            allowed_lateness=f"{self.lateness}us",
            **options,
        )._stage


def bundle_of(stage: Stage, rows: Sequence[Row]) -> Bundle:
    """Return rows as the stage's operator gets them."""
    types = {"v": pa.string(), "n": pa.int64(), "f": pa.float64(), "o": pa.int64()}
    columns = {
        name: Column.from_arrow(pa.array([row.values[name] for row in rows], kind))
        for name, kind in types.items()
    }
    records = Records(columns, len(rows))
    for step in stage.inputs[0].steps:
        done = step.apply(records)
        assert done.rows is None
        records = done.records
    signs = np.array([row.sign for row in rows], dtype=np.int8)
    return Bundle(
        np.array([row.time for row in rows], dtype=np.int64),
        (Column.of_objects([row.key for row in rows]),),
        dict(records.columns),
        None if (signs > 0).all() else signs,
    )


def maker(case: Case, stage: Stage) -> Callable[[], OverOperator]:
    """Return what makes the operator of a stage."""
    work = stage.work
    assert isinstance(work, Ranged)
    return lambda: OverOperator(work.rules, {}, signed=case.signed)


def shown(case: Case, rows: Sequence[OutRow]) -> Counter[Any]:
    """Return what comes out of the library as the oracle has it."""
    found: Counter[Any] = Counter()
    for key, time, row, sign in rows:
        values = {name: row[name] for name in ("v", "n", "f", "o")}
        results = [row[name] for name in case.names]
        found[key, time, repr(values), repr(results), sign] += 1
    return found
