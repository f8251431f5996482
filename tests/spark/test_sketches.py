"""Registers equal those of Apache DataSketches, whose sketches Spark makes and reads."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lowwater.engine.aggregates._hyperloglog import coupons, estimates
from tests.examples import sampled

PRECISION = 11
HEAD = 40
VALUES = {
    "long": [*range(-2500, 5000), 2**62, -(2**63)],
    "string": [f"user-{n}-{'é' * (n % 40)}" for n in range(6000)],
    "double": [n / 8 + 0.0625 for n in range(6000)],
}


def registers(values: list[Any], kind: str) -> np.ndarray[Any, Any]:
    given = np.array(values, dtype=object if kind == "string" else None)
    found = coupons(given, PRECISION)
    made = np.zeros(1 << PRECISION, dtype=np.uint8)
    np.maximum.at(made, found >> 6, (found & 63).astype(np.uint8))
    return made


def hll_8(made: np.ndarray[Any, Any]) -> bytes:
    """Return registers as the bytes of an HLL_8 sketch that is marked out of order."""
    small = made < 32
    low = float(np.ldexp(1.0, -made[small].astype(int)).sum())
    high = float(np.ldexp(1.0, -made[~small].astype(int)).sum())
    head = struct.pack("<8B", 10, 1, 7, PRECISION, 0, 16, 0, 10)
    sums = struct.pack("<3d2i", 0.0, low, high, int((made == 0).sum()), 0)
    return head + sums + made.tobytes()


@pytest.mark.parametrize("kind", sampled(VALUES, every=3))
def test_registers_and_estimates(spark: Any, kind: str) -> None:
    from pyspark.sql import functions as f

    values = VALUES[kind]
    rows = spark.createDataFrame(pa.table({"v": values}))
    if kind == "double":  # Spark's function takes no doubles: their bits are hashed as integers
        bits = np.array(values).view(np.int64).tolist()
        rows = spark.createDataFrame(pa.table({"v": bits}))
    (sketch,) = rows.agg(f.hll_sketch_agg("v", f.lit(PRECISION))).first()
    made = registers(values, kind)
    assert np.array_equal(np.frombuffer(bytes(sketch), np.uint8)[HEAD:], made)

    ours = int(estimates(np.bincount(made, minlength=64)[None, :], 1 << PRECISION)[0])
    stored = spark.createDataFrame(pa.table({"s": [hll_8(made)]}))
    (theirs,) = stored.select(f.hll_sketch_estimate("s")).first()
    assert theirs == pytest.approx(ours, rel=0.01)
    assert ours == pytest.approx(len(values), rel=0.08)
