"""Steps that become Spark's columns give what they give embedded, null and NaN included."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest

import lowwater as lw
from lowwater.engine.records.batch import Records
from lowwater.engine.records.expressions import Expressions
from lowwater.engine.records.stateless import Filter, Select, Step, WithColumns
from lowwater.spark.spark_steps import native_steps

NAN, INF = math.nan, math.inf
FLOATS = [1.0, -0.0, 0.0, NAN, NAN, INF, -INF, None, None, 2.5]
DATA = pa.table(
    {
        "f": pa.array([f for f in FLOATS for _ in FLOATS], pa.float64()),
        "g": pa.array([g for _ in FLOATS for g in FLOATS], pa.float64()),
        "i": pa.array([0, 1, None, -1, 2**62] * 20, pa.int64()),
        "j": pa.array([1, None, 3, 0] * 25, pa.int32()),
        "s": pa.array(["a", "B", None, "é", ""] * 20),
        "b": pa.array([True, None, False, None] * 25),
        "c": pa.array([None, True, False, True, False] * 20),
    }
)
f, g, i, j, s, b, c = (lw.col(name) for name in DATA.column_names)
NATIVE = [
    f == g, f != g, f < g, f <= g, f > g, f >= g, f > 1, f != 1.0, i == j, i < 1, f <= 3, f < 2,
    s == "a", s < "b", s != s, b & c, b | c, ~b, b & (f > g), ~(f > g) | c, f.is_null(),
    (s == "a").is_null(), i.is_in([1, -1]), s.is_in(["a", "é"]), f + g, f - 1, 2 * f, 1 - f, f * 3,
    (f + g) * 2.0 > g, f, i.alias("renamed"), b == c, lw.col("f").alias("s"),
]  # fmt: skip
IN_WORKERS = [
    i + 1, i * j, i / j, f / g, s.str.to_uppercase(), f.abs(),
    i.is_in([1, None]), i % 2, i // 2, f < i, f * i,
]  # fmt: skip


def embedded(step: Step) -> list[dict[str, Any]]:
    batch = DATA.combine_chunks().to_batches()[0]
    rows: list[dict[str, Any]] = step.apply(Records.from_arrow(batch)).to_arrow().to_pylist()
    return rows


def on_spark(spark: Any, step: Step) -> list[dict[str, Any]]:
    frame = spark.createDataFrame(DATA).coalesce(1)
    made, schema, left = native_steps(frame, (step,))
    assert not left
    assert made.columns == schema.names
    rows: list[dict[str, Any]] = made.toArrow().to_pylist()
    return rows


def test_expressions_that_spark_computes(spark: Any) -> None:
    step = WithColumns(Expressions((), {f"x{at}": one for at, one in enumerate(NATIVE)}))
    assert [*map(repr, on_spark(spark, step))] == [*map(repr, embedded(step))]


@pytest.mark.parametrize("held", [f == g, f <= g, (f > g) | c, ~b, s.is_in(["a"]), b])
def test_conditions_that_spark_judges(spark: Any, held: Any) -> None:
    step = Filter(held)
    assert sorted(map(repr, on_spark(spark, step))) == sorted(map(repr, embedded(step)))


def test_columns_that_spark_picks(spark: Any) -> None:
    step = Select(Expressions(("s", f > 1), {"i": i, "t": s}), ("b",))
    assert [*map(repr, on_spark(spark, step))] == [*map(repr, embedded(step))]


@pytest.mark.parametrize("one", IN_WORKERS)
def test_what_spark_would_compute_otherwise_is_left_to_the_workers(spark: Any, one: Any) -> None:
    frame = spark.createDataFrame(DATA)
    first, second = WithColumns(Expressions((), {"x": one})), Filter(b)
    made, schema, left = native_steps(frame, (first, second))
    assert left == (first, second)
    assert made.columns == frame.columns
    assert "x" in schema.names
